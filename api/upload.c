// SPDX-License-Identifier: Apache-2.0
/*
 * upload.c - windows of registered host memory; see upload.h.
 *
 * Pieces that follow each other in host memory collect in a window of whole pages. A full
 * window is registered and its pieces are copied while the next window is registered:
 * registering costs about as much as copying, so the two overlap. Two windows are in
 * flight. A window that the driver does not register goes through pinned memory.
 *
 * Pieces below SMALL may share a page with another piece, which cannot be registered
 * twice: they always go through pinned memory.
 */
#include "api/upload.h"

#include <stdlib.h>
#include <unistd.h>

#define WINDOW_MAX ((size_t)64 << 20)
#define GAP_MAX ((size_t)1 << 20) /* between pieces of one window */
#define SMALL ((size_t)64 << 10)
#define PINNED ((size_t)1 << 20) /* one of two buffers; pinning costs a third of a millisecond a megabyte */

struct piece {
	CUdeviceptr addr;
	struct fdry_span bytes;
};

struct window {
	uintptr_t from, to; /* whole pages; both 0: free */
	bool registered;
	CUevent copied;
};

struct pinned {
	uint8_t *buf;
	size_t used;
	CUevent copied;
};

struct fdry_upload {
	const struct fdry_driver *drv;
	CUstream stream;
	struct fdry_gate *gate; /* NULL once it is open */
	bool can_register;
	uintptr_t page;
	struct fdry_buf pieces; /* of the window that collects */
	uintptr_t from, to;     /* its pages */
	struct window windows[2];
	struct pinned pinned[2];
	int window, buffer; /* which comes next, of two */
};

static int event_make(struct fdry_upload *u, CUevent *ret)
{
	return fdry_call(u->drv, cuEventCreate, ret, CU_EVENT_DISABLE_TIMING);
}

int fdry_upload_new(const struct fdry_driver *drv, CUdevice dev, CUstream stream, struct fdry_gate *gate,
		    struct fdry_upload **ret)
{
	struct fdry_upload *u = calloc(1, sizeof(*u));
	int i, can = 0, err = 0;

	if (!u)
		return fdry_nomem();
	u->drv = drv;
	u->stream = stream;
	u->gate = gate;
	u->page = (uintptr_t)sysconf(_SC_PAGESIZE);
	if (!fdry_call_raw(drv, cuDeviceGetAttribute, &can, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, dev))
		u->can_register = can != 0;
	for (i = 0; i < 2 && !err; i++) {
		err = event_make(u, &u->windows[i].copied);
		if (!err)
			err = event_make(u, &u->pinned[i].copied);
	}
	if (err) {
		fdry_upload_free(u);
		return err;
	}
	*ret = u;
	return 0;
}

/* Every copy of the upload comes through here. */
static int copy_start(struct fdry_upload *u, CUdeviceptr addr, const void *bytes, size_t len)
{
	if (u->gate)
		fdry_gate_wait(u->gate);
	u->gate = NULL;
	return fdry_call(u->drv, cuMemcpyHtoDAsync_v2, addr, bytes, len, u->stream);
}

/* --- through pinned memory --- */

static int pinned_ready(struct fdry_upload *u, struct pinned *p)
{
	if (p->buf)
		return fdry_call(u->drv, cuEventSynchronize, p->copied);
	return fdry_call(u->drv, cuMemAllocHost_v2, (void **)&p->buf, PINNED);
}

static int pinned_copy(struct fdry_upload *u, CUdeviceptr addr, const uint8_t *bytes, size_t len)
{
	struct pinned *p = &u->pinned[u->buffer];
	int err = 0;

	if (!p->used)
		err = pinned_ready(u, p);
	if (err)
		return err;
	memcpy(p->buf + p->used, bytes, len);
	err = copy_start(u, addr, p->buf + p->used, len);
	if (!err)
		err = fdry_call(u->drv, cuEventRecord, p->copied, u->stream);
	p->used += len;
	if (p->used == PINNED) {
		u->buffer = !u->buffer;
		u->pinned[u->buffer].used = 0;
	}
	return err;
}

static int pinned_add(struct fdry_upload *u, CUdeviceptr addr, struct fdry_span bytes)
{
	size_t at, n;
	int err = 0;

	for (at = 0; at < bytes.len && !err; at += n) {
		n = PINNED - u->pinned[u->buffer].used;
		if (n > bytes.len - at)
			n = bytes.len - at;
		err = pinned_copy(u, addr + at, bytes.data + at, n);
	}
	return err;
}

/* --- windows --- */

static int window_close(struct fdry_upload *u, struct window *w)
{
	int err = 0;

	if (!w->registered)
		return 0;
	err = fdry_call(u->drv, cuEventSynchronize, w->copied);
	if (!err)
		err = fdry_call(u->drv, cuMemHostUnregister, (void *)w->from);
	w->registered = false;
	return err;
}

/* Registered memory is copied from where it lies, other memory by way of pinned buffers. */
static int pieces_copy(struct fdry_upload *u, bool registered)
{
	const struct piece *p = (const struct piece *)u->pieces.data;
	size_t i, n = u->pieces.len / sizeof(*p);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = registered ? copy_start(u, p[i].addr, p[i].bytes.data, p[i].bytes.len) :
				   pinned_add(u, p[i].addr, p[i].bytes);
	return err;
}

static int window_flush(struct fdry_upload *u)
{
	struct window *w = &u->windows[u->window];
	int err;

	if (!u->pieces.len)
		return 0;
	err = window_close(u, w);
	if (err)
		return err;
	w->from = u->from;
	w->to = u->to;
	if (u->can_register)
		w->registered = !fdry_call_raw(u->drv, cuMemHostRegister_v2, (void *)w->from, w->to - w->from,
					       CU_MEMHOSTREGISTER_READ_ONLY);
	err = pieces_copy(u, w->registered);
	if (!err && w->registered)
		err = fdry_call(u->drv, cuEventRecord, w->copied, u->stream);
	u->pieces.len = 0;
	u->window = !u->window;
	return err;
}

int fdry_upload_add(struct fdry_upload *u, CUdeviceptr addr, struct fdry_span bytes)
{
	struct piece piece = { addr, bytes };
	uintptr_t from = (uintptr_t)bytes.data & ~(u->page - 1);
	uintptr_t to = ((uintptr_t)bytes.data + bytes.len + u->page - 1) & ~(u->page - 1);
	int err = 0;

	if (bytes.len < SMALL || !u->can_register)
		return pinned_add(u, addr, bytes);
	if (u->pieces.len && (from < u->to || from - u->to > GAP_MAX || to - u->from > WINDOW_MAX))
		err = window_flush(u);
	if (err)
		return err;
	if (!u->pieces.len)
		u->from = from;
	u->to = to;
	return fdry_buf_put(&u->pieces, &piece, sizeof(piece));
}

int fdry_upload_finish(struct fdry_upload *u)
{
	int err, i;

	err = window_flush(u);
	if (!err)
		err = fdry_call(u->drv, cuStreamSynchronize, u->stream);
	for (i = 0; i < 2 && !err; i++)
		err = window_close(u, &u->windows[i]);
	return err;
}

void fdry_upload_free(struct fdry_upload *u)
{
	int i;

	if (!u)
		return;
	(void)fdry_call_raw(u->drv, cuStreamSynchronize, u->stream);
	for (i = 0; i < 2; i++) {
		if (u->windows[i].registered)
			(void)fdry_call_raw(u->drv, cuMemHostUnregister, (void *)u->windows[i].from);
		if (u->pinned[i].buf)
			(void)fdry_call_raw(u->drv, cuMemFreeHost, u->pinned[i].buf);
		if (u->windows[i].copied)
			(void)fdry_call_raw(u->drv, cuEventDestroy_v2, u->windows[i].copied);
		if (u->pinned[i].copied)
			(void)fdry_call_raw(u->drv, cuEventDestroy_v2, u->pinned[i].copied);
	}
	fdry_buf_release(&u->pieces);
	free(u);
}
