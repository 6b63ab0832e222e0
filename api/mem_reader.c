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

/* Bytes from @addr to the end of its piece, at most @len. */
static size_t piece_len(uint64_t addr, uint64_t len)
{
	uint64_t room = FDRY_MEM_READ_PIECE - addr % FDRY_MEM_READ_PIECE;

	return room < len ? room : len;
}

static int piece_start(struct fdry_mem_reader *r, int which, uint64_t addr, uint64_t len)
{
	return len ? fdry_call(r->drv, cuMemcpyDtoHAsync_v2, r->buf[which], addr, piece_len(addr, len), r->stream) : 0;
}

int fdry_mem_read(struct fdry_mem_reader *r, uint64_t addr, uint64_t len, fdry_mem_piece_fn fn, void *arg)
{
	int which = 0, err, done;
	size_t n;

	err = piece_start(r, which, addr, len);
	while (len && !err) {
		n = piece_len(addr, len);
		err = fdry_call(r->drv, cuStreamSynchronize, r->stream);
		if (!err)
			err = piece_start(r, !which, addr + n, len - n);
		if (!err)
			err = fn(arg, addr, r->buf[which], n);
		addr += n;
		len -= n;
		which = !which;
	}
	/* A copy may still be on its way into a buffer. */
	done = fdry_call_raw(r->drv, cuStreamSynchronize, r->stream);
	return err ? err : fdry_driver_result(r->drv, FDRY_DRV_cuStreamSynchronize, (CUresult)done);
}
