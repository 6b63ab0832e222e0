// SPDX-License-Identifier: Apache-2.0
/*
 * seal_content.c - content, cut into chunks.
 *
 * Chunks end at multiples of FDRY_MF_CHUNK_MAX and where zeros begin, and are looked at
 * in blocks that lie at multiples of their size: equal memory at equal addresses gives
 * equal chunks. Zeros are in no chunk, and cost nothing.
 */
#include "api/seal.h"

/* Zeros shorter than this inside content are kept, so that content stays in few pieces. */
#define ZERO_RUN_MIN (64u << 10)
#define CONTENT_BLOCK 4096u

/* Pieces of memory end where chunks do. */
_Static_assert(FDRY_MEM_READ_PIECE % FDRY_MF_CHUNK_MAX == 0, "a piece holds whole chunks");

static bool is_zero(const uint8_t *p, size_t len)
{
	return !len || (!p[0] && !memcmp(p, p + 1, len - 1));
}

/* Bytes from @addr to the end of its content block, at most @len. */
static size_t block_len(uint64_t addr, size_t len)
{
	uint64_t room = CONTENT_BLOCK - addr % CONTENT_BLOCK;

	return room < len ? (size_t)room : len;
}

static size_t zero_run(uint64_t addr, const uint8_t *bytes, size_t len)
{
	size_t at = 0, n;

	for (; at < len; at += n) {
		n = block_len(addr + at, len - at);
		if (!is_zero(bytes + at, n))
			break;
	}
	return at;
}

/* How much of what begins with a block that is not zero goes into one chunk. */
static size_t chunk_run(uint64_t addr, const uint8_t *bytes, size_t len)
{
	uint64_t room = FDRY_MF_CHUNK_MAX - addr % FDRY_MF_CHUNK_MAX;
	size_t at, zeros;

	if (len > room)
		len = (size_t)room;
	for (at = block_len(addr, len); at < len; at += block_len(addr + at, len - at)) {
		zeros = zero_run(addr + at, bytes + at, len - at);
		if (zeros >= ZERO_RUN_MIN || at + zeros == len)
			return at;
		at += zeros;
	}
	return len;
}

static int chunk_put(struct fdry_seal *s, uint64_t addr, const uint8_t *bytes, size_t len)
{
	struct fdry_mf_chunk c = { .addr = addr, .size = len };
	int err = fdry_pointers_look(s, addr, bytes, len);

	if (!err)
		err = fdry_put_object(s->put, FDRY_OBJECT_CHUNK, bytes, len, NULL, 0, &c.oid);
	s->report.content_bytes += len;
	return err ? err : fdry_buf_put(&s->w.chunks, &c, sizeof(c));
}

static int piece_put(void *arg, uint64_t addr, const uint8_t *bytes, size_t len)
{
	struct fdry_seal *s = arg;
	size_t n;
	int err = 0;

	for (; len && !err; addr += n, bytes += n, len -= n) {
		n = zero_run(addr, bytes, len);
		s->report.zero_bytes += n;
		if (n)
			continue;
		n = chunk_run(addr, bytes, len);
		err = chunk_put(s, addr, bytes, n);
	}
	return err;
}

int fdry_seal_content(struct fdry_seal *s)
{
	const struct fdry_layout_range *r = fdry_array(s->layout.ranges, struct fdry_layout_range);
	size_t i, n = fdry_array_count(s->layout.ranges, struct fdry_layout_range);
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		struct fdry_mf_segment seg = { r[i].addr, r[i].size, r[i].role, 0 };

		err = fdry_buf_put(&s->w.segments, &seg, sizeof(seg));
		if (r[i].role == FDRY_ROLE_SCRATCH)
			s->report.scratch_bytes += r[i].size;
		else if (r[i].role == FDRY_ROLE_EXTERNAL)
			s->report.external_bytes += r[i].size;
		else if (!err)
			err = fdry_mem_read(s->reader, r[i].addr, r[i].size, piece_put, s);
	}
	s->w.base = s->layout.base;
	s->w.end = s->layout.end;
	return err;
}
