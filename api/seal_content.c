// SPDX-License-Identifier: Apache-2.0
/*
 * seal_content.c - content, cut into chunks.
 *
 * A named tensor of some size is cut by itself: its chunks begin where it begins, end where
 * it ends, and between at multiples of FDRY_MF_CHUNK_MAX from its begin, so that equal
 * tensors give equal chunks wherever they lie. The memory between such tensors is cut at
 * multiples of the address: equal memory at equal addresses gives equal chunks. Within
 * these cells chunks end where zeros begin, looked at in blocks that are counted from the same
 * place. Zeros are in no chunk, and cost nothing.
 */
#include "api/seal.h"

#include <stdlib.h>

/* Zeros shorter than this inside content are kept, so that content stays in few pieces. */
#define ZERO_RUN_MIN (64u << 10)
#define CONTENT_BLOCK 4096u
/* Smaller tensors are not worth chunks of their own. */
#define TENSOR_MIN (64u << 10)
/* Tensors that begin or end elsewhere are not cut out, so that no word lies in two chunks. */
#define TENSOR_ALIGN 16u

/* A piece of memory is as many cells as it has room for. */
_Static_assert(FDRY_MEM_READ_PIECE >= FDRY_MF_CHUNK_MAX, "a piece holds a cell");

/* A tensor that is cut out. */
struct run {
	uint64_t from, to;
};

/* What a chunk lies in: up to @end, in blocks counted from @origin. */
struct cell {
	uint64_t origin, end;
};

struct content {
	struct fdry_seal *s;
	struct fdry_buf runs; /* ascending, apart */
};

/* --- where chunks are cut --- */

/* By address; of those that begin at one place the largest first. */
static int run_cmp(const void *a, const void *b)
{
	const struct run *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return (x->to < y->to) - (x->to > y->to);
}

/* Of tensors that share bytes the first counts: the others are views of it, or of what it is a view of. */
static size_t runs_apart(struct run *r, size_t n)
{
	size_t i, kept = 0;

	for (i = 0; i < n; i++)
		if (!kept || r[i].from >= r[kept - 1].to)
			r[kept++] = r[i];
	return kept;
}

static int runs_list(const struct fdry_capture *cap, struct fdry_buf *ret)
{
	const struct fdry_capture_tensor *t = fdry_array(cap->tensors, struct fdry_capture_tensor);
	size_t i, n = fdry_array_count(cap->tensors, struct fdry_capture_tensor);
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		struct run r = { t[i].desc.addr, t[i].desc.addr + t[i].extent };

		if (!(t[i].desc.flags & FDRY_TENSOR_HOST) && t[i].extent >= TENSOR_MIN && !((r.from | r.to) % TENSOR_ALIGN))
			err = fdry_buf_put(ret, &r, sizeof(r));
	}
	if (err || !ret->len)
		return err;
	n = fdry_array_count(*ret, struct run);
	qsort(ret->data, n, sizeof(struct run), run_cmp);
	ret->len = runs_apart(fdry_array(*ret, struct run), n) * sizeof(struct run);
	return 0;
}

/* The first run that ends behind @addr, or NULL. */
static const struct run *run_behind(const struct fdry_buf *runs, uint64_t addr)
{
	const struct run *r = fdry_array(*runs, struct run);
	size_t lo = 0, hi = fdry_array_count(*runs, struct run), mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (r[mid].to <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < fdry_array_count(*runs, struct run) ? &r[lo] : NULL;
}

static struct cell cell_at(const struct content *c, uint64_t addr)
{
	const struct run *r = run_behind(&c->runs, addr);
	struct cell cell = { 0, UINT64_MAX };
	uint64_t room;

	if (r && r->from <= addr)
		cell = (struct cell){ r->from, r->to };
	else if (r)
		cell.end = r->from;
	room = FDRY_MF_CHUNK_MAX - (addr - cell.origin) % FDRY_MF_CHUNK_MAX;
	if (room < cell.end - addr)
		cell.end = addr + room;
	return cell;
}

/* As many whole cells as a piece has room for. */
static size_t piece_cut(void *arg, uint64_t addr, uint64_t len)
{
	uint64_t at = addr, next = addr;

	if (len <= FDRY_MEM_READ_PIECE)
		return (size_t)len;
	for (; next - addr <= FDRY_MEM_READ_PIECE; next = cell_at(arg, at).end)
		at = next;
	return (size_t)(at - addr);
}

/* --- what goes into them; @at is counted from the cell's origin --- */

static bool is_zero(const uint8_t *p, size_t len)
{
	return !len || (!p[0] && !memcmp(p, p + 1, len - 1));
}

/* Bytes from @at to the end of its content block, at most @len. */
static size_t block_len(uint64_t at, size_t len)
{
	uint64_t room = CONTENT_BLOCK - at % CONTENT_BLOCK;

	return room < len ? (size_t)room : len;
}

static size_t zero_run(uint64_t at, const uint8_t *bytes, size_t len)
{
	size_t done = 0, n;

	for (; done < len; done += n) {
		n = block_len(at + done, len - done);
		if (!is_zero(bytes + done, n))
			break;
	}
	return done;
}

/* How much of what begins with a block that is not zero goes into one chunk. */
static size_t chunk_run(uint64_t at, const uint8_t *bytes, size_t len)
{
	size_t done, zeros;

	for (done = block_len(at, len); done < len; done += block_len(at + done, len - done)) {
		zeros = zero_run(at + done, bytes + done, len - done);
		if (zeros >= ZERO_RUN_MIN || done + zeros == len)
			return done;
		done += zeros;
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

/* All of one cell that is content. */
static int cell_put(struct fdry_seal *s, uint64_t origin, uint64_t addr, const uint8_t *bytes, size_t len)
{
	size_t n;
	int err = 0;

	for (; len && !err; addr += n, bytes += n, len -= n) {
		n = zero_run(addr - origin, bytes, len);
		s->report.zero_bytes += n;
		if (n)
			continue;
		n = chunk_run(addr - origin, bytes, len);
		err = chunk_put(s, addr, bytes, n);
	}
	return err;
}

static int piece_put(void *arg, uint64_t addr, const uint8_t *bytes, size_t len)
{
	const struct content *c = arg;
	struct cell cell;
	size_t n;
	int err = 0;

	for (; len && !err; addr += n, bytes += n, len -= n) {
		cell = cell_at(c, addr);
		n = cell.end - addr < len ? (size_t)(cell.end - addr) : len;
		err = cell_put(c->s, cell.origin, addr, bytes, n);
	}
	return err;
}

static int range_put(struct content *c, const struct fdry_layout_range *r)
{
	const struct fdry_mem_pieces pieces = { .fn = piece_put, .cut = piece_cut, .arg = c };
	struct fdry_mf_segment seg = { r->addr, r->size, r->role, 0 };
	int err = fdry_buf_put(&c->s->w.segments, &seg, sizeof(seg));

	if (r->role == FDRY_ROLE_SCRATCH)
		c->s->report.scratch_bytes += r->size;
	else if (r->role == FDRY_ROLE_EXTERNAL)
		c->s->report.external_bytes += r->size;
	else if (!err)
		err = fdry_mem_read(c->s->reader, r->addr, r->size, &pieces);
	return err;
}

int fdry_seal_content(struct fdry_seal *s)
{
	const struct fdry_layout_range *r = fdry_array(s->layout.ranges, struct fdry_layout_range);
	size_t i, n = fdry_array_count(s->layout.ranges, struct fdry_layout_range);
	struct content c = { .s = s };
	int err = runs_list(s->cap, &c.runs);

	for (i = 0; i < n && !err; i++)
		err = range_put(&c, &r[i]);
	fdry_buf_release(&c.runs);
	s->w.base = s->layout.base;
	s->w.end = s->layout.end;
	return err;
}
