// SPDX-License-Identifier: Apache-2.0
/*
 * content.c - content from the store's map to the device.
 *
 * Chunks are copied through two pinned buffers, so that one fills while the other is on
 * its way. Memory of a region is zero when it is mapped, so what no chunk covers is only
 * written when content is restored later.
 */
#include <string.h>

#include "api/image.h"

#define PINNED_BYTES ((size_t)16 << 20)

_Static_assert(PINNED_BYTES >= FDRY_MF_CHUNK_MAX, "a chunk fits a pinned buffer");

struct pump {
	struct fdry_image *img;
	void *buf[2];
	CUevent done[2]; /* recorded after the copies out of a buffer */
	int which;
	size_t used; /* of buf[which] */
};

static int pump_start(struct pump *p)
{
	const struct fdry_driver *drv = p->img->drv;
	int i, err = 0;

	for (i = 0; i < 2 && !err; i++) {
		err = fdry_call(drv, cuMemAllocHost_v2, &p->buf[i], PINNED_BYTES);
		if (!err)
			err = fdry_call(drv, cuEventCreate, &p->done[i], CU_EVENT_DISABLE_TIMING);
	}
	return err;
}

static void pump_stop(struct pump *p)
{
	const struct fdry_driver *drv = p->img->drv;
	int i;

	(void)fdry_call_raw(drv, cuStreamSynchronize, p->img->stream);
	for (i = 0; i < 2; i++) {
		if (p->done[i])
			(void)fdry_call_raw(drv, cuEventDestroy_v2, p->done[i]);
		if (p->buf[i])
			(void)fdry_call_raw(drv, cuMemFreeHost, p->buf[i]);
	}
}

static int pump_turn(struct pump *p)
{
	const struct fdry_driver *drv = p->img->drv;
	int err = fdry_call(drv, cuEventRecord, p->done[p->which], p->img->stream);

	p->which = !p->which;
	p->used = 0;
	return err ? err : fdry_call(drv, cuEventSynchronize, p->done[p->which]);
}

static int pump_copy(struct pump *p, uint64_t addr, struct fdry_span bytes)
{
	uint8_t *to;
	int err = 0;

	if (bytes.len > PINNED_BYTES - p->used)
		err = pump_turn(p);
	if (err)
		return err;
	to = (uint8_t *)p->buf[p->which] + p->used;
	memcpy(to, bytes.data, bytes.len);
	p->used += bytes.len;
	return fdry_call(p->img->drv, cuMemcpyHtoDAsync_v2, addr, to, bytes.len, p->img->stream);
}

static int chunk_copy(struct pump *p, struct fdry_get *get, const struct fdry_mf_chunk *c, bool verify)
{
	struct fdry_span bytes;
	int err;

	err = fdry_get_map(get, &c->oid, &bytes);
	if (!err && bytes.len != c->size)
		err = fdry_fail(FDRY_E_BADIMAGE, "the chunk at %#llx has %zu bytes, the manifest says %llu; seal the image anew",
				(unsigned long long)c->addr, bytes.len, (unsigned long long)c->size);
	if (!err)
		err = fdry_get_verify(get, &c->oid, bytes, verify);
	if (err)
		return err;
	p->img->report.content_bytes += bytes.len;
	return pump_copy(p, c->addr, bytes);
}

static int content_zero(struct fdry_image *img)
{
	const struct fdry_mf_segment *s = img->m.segments;
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_segments && !err; i++)
		if (s[i].role == FDRY_ROLE_CONTENT)
			err = fdry_call(img->drv, cuMemsetD8Async, s[i].addr, 0, s[i].size, img->stream);
	return err;
}

int fdry_image_content(struct fdry_image *img, struct fdry_get *get, bool verify, bool zero)
{
	struct pump p = { .img = img };
	uint32_t i;
	int err = 0;

	if (zero)
		err = content_zero(img);
	if (!err && img->m.n_chunks)
		err = pump_start(&p);
	for (i = 0; i < img->m.n_chunks && !err; i++)
		err = chunk_copy(&p, get, &img->m.chunks[i], verify);
	if (!err)
		err = fdry_call(img->drv, cuStreamSynchronize, img->stream);
	pump_stop(&p);
	return err;
}
