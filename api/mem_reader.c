// SPDX-License-Identifier: Apache-2.0
/*
 * mem_reader.c - device memory read through two pinned buffers.
 *
 * While one piece is looked at, the next is on its way.
 */
#include <stdlib.h>

#include "api/layout.h"
#include "arch/stream.h"

struct fdry_mem_reader {
	const struct fdry_driver *drv;
	CUstream stream;
	void *buf[2];
};

int fdry_mem_reader_new(const struct fdry_driver *drv, struct fdry_mem_reader **ret)
{
	struct fdry_mem_reader *r = calloc(1, sizeof(*r));
	int i, err;

	if (!r)
		return fdry_nomem();
	r->drv = drv;
	err = fdry_stream_shared(drv, FDRY_STREAM_MEMORY, &r->stream);
	for (i = 0; i < 2 && !err; i++)
		err = fdry_call(drv, cuMemAllocHost_v2, &r->buf[i], FDRY_MEM_READ_PIECE);
	if (err) {
		fdry_mem_reader_free(r);
		return err;
	}
	*ret = r;
	return 0;
}

void fdry_mem_reader_free(struct fdry_mem_reader *r)
{
	int i;

	if (!r)
		return;
	for (i = 0; i < 2; i++)
		if (r->buf[i])
			(void)fdry_call_raw(r->drv, cuMemFreeHost, r->buf[i]);
	free(r);
}

bool fdry_mem_reader_holds(const struct fdry_mem_reader *r, uint64_t addr)
{
	int i;

	for (i = 0; i < 2; i++)
		if (addr - (uintptr_t)r->buf[i] < FDRY_MEM_READ_PIECE)
			return true;
	return false;
}

static size_t piece_len(const struct fdry_mem_pieces *p, uint64_t addr, uint64_t len)
{
	uint64_t room = FDRY_MEM_READ_PIECE - addr % FDRY_MEM_READ_PIECE;

	if (p->cut && len)
		return p->cut(p->arg, addr, len);
	return room < len ? room : len;
}

static int piece_start(struct fdry_mem_reader *r, int which, uint64_t addr, size_t len)
{
	if (len)
		fdry_count_copy(FROM, len);
	return len ? fdry_call(r->drv, cuMemcpyDtoHAsync_v2, r->buf[which], addr, len, r->stream) : 0;
}

int fdry_mem_read(struct fdry_mem_reader *r, uint64_t addr, uint64_t len, const struct fdry_mem_pieces *p)
{
	size_t n = piece_len(p, addr, len), next;
	int which = 0, err, done;

	err = piece_start(r, which, addr, n);
	while (len && !err) {
		next = piece_len(p, addr + n, len - n);
		err = fdry_stream_wait(r->drv, r->stream);
		if (!err)
			err = piece_start(r, !which, addr + n, next);
		if (!err)
			err = p->fn(p->arg, addr, r->buf[which], n);
		addr += n;
		len -= n;
		n = next;
		which = !which;
	}
	/* A copy may still be on its way into a buffer. */
	done = fdry_call_raw(r->drv, cuStreamSynchronize, r->stream);
	return err ? err : fdry_driver_result(r->drv, FDRY_DRV_cuStreamSynchronize, (CUresult)done);
}
