// SPDX-License-Identifier: Apache-2.0
/*
 * content.c - cuts content into chunks and stores them.
 *
 * A large named tensor is cut by itself: at its ends and at multiples of FDRY_MF_CHUNK_MAX from its
 * first byte. So equal tensors give equal chunks at any address. The memory between such tensors is
 * cut at multiples of the address: equal memory at equal addresses gives equal chunks. The parts
 * are called cells. Within a cell a chunk ends at the first block of zeros; blocks are counted from
 * the same origin. Zeros are in no chunk and are not stored.
 *
 * Any kernel or copy may have written memory since the last seal, so each seal reads all of it.
 * Threads read pieces of several whole cells, cut them, and search them for pointers. A capture
 * remembers the address and id of each chunk that it sealed last. If the bytes in the store under
 * this id equal the memory, the chunk is neither hashed nor stored again. The sealing thread stores
 * the results in the order of addresses, so the image is the same for any number of threads.
 */
#include "image/seal/seal.h"

#include <stdlib.h>

#include "lib/search.h"
#include "lib/workqueue.h"

/* Zeros shorter than this inside content are kept, so that content stays in few pieces. */
#define ZERO_RUN_MIN (64u << 10)
#define CONTENT_BLOCK 4096u
/* Smaller tensors are not worth chunks of their own. */
#define TENSOR_MIN (64u << 10)
/* Tensors that begin or end elsewhere are not cut out, so that no word lies in two chunks. */
#define TENSOR_ALIGN 16u

/* A piece consists of whole cells. */
_Static_assert(FDRY_MEM_READ_PIECE >= FDRY_MF_CHUNK_MAX, "a piece holds a cell");
/* Each thread reads one piece at a time; layout.c reads none meanwhile. */
_Static_assert(FDRY_SEAL_BLOCKS > FDRY_WORKERS_MAX, "no thread waits for a block");

/* Less content than this is not worth a thread. */
#define PIECES_A_THREAD 4u
/* Pieces that are begun and not stored yet, for each thread. */
#define AHEAD 3u

/* A tensor that is cut out. */
struct run {
	uint64_t from, to;
};

/* A chunk lies in one cell: up to @end, in blocks counted from @origin. */
struct cell {
	uint64_t origin, end;
};

struct content {
	struct fdry_seal *s;
	struct fdry_buf runs;  /* ascending, apart */
	struct fdry_buf spots; /* of struct spot: all pieces, in order */
	struct fdry_reader *reader; /* of the store; NULL if nothing was sealed before */
};

/* The addresses of a piece. */
struct spot {
	uint64_t addr;
	size_t len;
};

/* A chunk of the last seal, and its bytes in the store. */
struct before {
	const struct fdry_mf_chunk *chunk;
	const uint8_t *bytes;
};

/* A chunk of a piece. @known: the store has it; if not, its bytes are in piece.fresh. */
struct found {
	struct fdry_mf_chunk chunk;
	struct fdry_fingerprint print;
	bool known;
};

struct piece {
	struct fdry_work work;
	struct fdry_saved_err saved_err;
	const struct content *c;
	struct spot spot;
	struct fdry_buf before; /* of struct before, ascending */
	struct fdry_buf found;  /* of struct found, ascending */
	struct fdry_buf fresh;  /* the bytes of those that are not known, end to end */
	struct fdry_buf words;  /* that may be pointers */
	uint64_t zeros;
};

/* --- where chunks are cut --- */

/* By address; of tensors with one address, the largest first. */
static int run_cmp(const void *a, const void *b)
{
	const struct run *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return (x->to < y->to) - (x->to > y->to);
}

/* Of tensors that share bytes only the first is cut out: the others are views. */
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

		if (!(t[i].desc.flags & FDRY_TENSOR_HOST) && t[i].extent >= TENSOR_MIN &&
		    !((r.from | r.to) % TENSOR_ALIGN))
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
	size_t lo = fdry_lower_bound(i, fdry_array_count(*runs, struct run), r[i].to <= addr);
	return lo < fdry_array_count(*runs, struct run) ? &r[lo] : NULL;
}

static struct cell cell_at(const struct content *c, uint64_t addr)
{
	const struct run *r = run_behind(&c->runs, addr);
	struct cell cell = { 0, UINT64_MAX };
	uint64_t left;

	if (r && r->from <= addr)
		cell = (struct cell){ r->from, r->to };
	else if (r)
		cell.end = r->from;
	left = FDRY_MF_CHUNK_MAX - (addr - cell.origin) % FDRY_MF_CHUNK_MAX;
	if (left < cell.end - addr)
		cell.end = addr + left;
	return cell;
}

/* How much of [@addr, @addr + @len) is a piece: as many whole cells as fit. */
static size_t piece_cut(const struct content *c, uint64_t addr, uint64_t len)
{
	uint64_t at = addr, next = addr;

	if (len <= FDRY_MEM_READ_PIECE)
		return (size_t)len;
	for (; next - addr <= FDRY_MEM_READ_PIECE; next = cell_at(c, at).end)
		at = next;
	return (size_t)(at - addr);
}

/* --- chunks in a cell; @at is counted from the cell's origin --- */

static bool is_zero(const uint8_t *p, size_t len)
{
	return !len || (!p[0] && !memcmp(p, p + 1, len - 1));
}

/* Bytes from @at to the end of its content block, at most @len. */
static size_t block_len(uint64_t at, size_t len)
{
	uint64_t left = CONTENT_BLOCK - at % CONTENT_BLOCK;

	return left < len ? (size_t)left : len;
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

/* The length of the chunk that begins at @bytes; its first block is not zero. */
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

/* Does the chunk equal, byte for byte, the one that the last seal stored? */
static bool chunk_known(const struct piece *p, struct fdry_mf_chunk *chunk, const uint8_t *bytes)
{
	const struct before *b = fdry_array(p->before, struct before);
	size_t lo = fdry_lower_bound(i, fdry_array_count(p->before, struct before),
				     b[i].chunk->addr < chunk->addr);
	if (lo == fdry_array_count(p->before, struct before) || b[lo].chunk->addr != chunk->addr ||
	    b[lo].chunk->size != chunk->size || memcmp(b[lo].bytes, bytes, chunk->size))
		return false;
	chunk->oid = b[lo].chunk->oid;
	return true;
}

static int chunk_find(struct piece *p, uint64_t addr, const uint8_t *bytes, size_t len)
{
	struct found f = { .chunk = { .addr = addr, .size = len } };
	int err = fdry_pointers_find(p->c->s, addr, bytes, len, &p->words);

	f.print = fdry_fingerprint_of(bytes, len);
	f.known = !err && chunk_known(p, &f.chunk, bytes);
	if (!err && !f.known) {
		err = fdry_oid_of(bytes, len, &f.chunk.oid);
		if (!err)
			err = fdry_buf_put(&p->fresh, bytes, len);
	}
	return err ? err : fdry_buf_put(&p->found, &f, sizeof(f));
}

/* Find the chunks of one cell. */
static int cell_find(struct piece *p, uint64_t origin, uint64_t addr, const uint8_t *bytes,
		     size_t len)
{
	size_t n;
	int err = 0;

	for (; len && !err; addr += n, bytes += n, len -= n) {
		n = zero_run(addr - origin, bytes, len);
		p->zeros += n;
		if (n)
			continue;
		n = chunk_run(addr - origin, bytes, len);
		err = chunk_find(p, addr, bytes, n);
	}
	return err;
}

static int cells_find(struct piece *p, const uint8_t *bytes)
{
	uint64_t addr = p->spot.addr;
	size_t n, len = p->spot.len;
	struct cell cell;
	int err = 0;

	for (; len && !err; addr += n, bytes += n, len -= n) {
		cell = cell_at(p->c, addr);
		n = cell.end - addr < len ? (size_t)(cell.end - addr) : len;
		err = cell_find(p, cell.origin, addr, bytes, n);
	}
	return err;
}

/* --- pieces, by several threads --- */

static int piece_fn(struct fdry_work *work, unsigned int worker)
{
	struct piece *p = (struct piece *)work; /* its first member */
	const struct fdry_capture *cap = p->c->s->cap;
	struct fdry_mem_reader *r = p->c->s->reader;
	struct fdry_mem_block *block;
	const uint8_t *bytes = NULL;
	CUcontext popped;
	int err = fdry_call(cap->drv, cuCtxPushCurrent_v2, cap->ctx);

	(void)worker;
	if (err)
		return err;
	err = fdry_mem_start(r, p->spot.addr, p->spot.len, &block);
	if (err)
		goto out_pop;
	err = fdry_mem_wait(r, block, &bytes);
	if (!err)
		err = cells_find(p, bytes);
	fdry_mem_end(r, block);
out_pop:
	(void)fdry_call_raw(cap->drv, cuCtxPopCurrent_v2, &popped);
	return err;
}

/* The first chunk of the last seal at or behind @addr. */
static size_t sealed_from(const struct fdry_capture *cap, uint64_t addr)
{
	const struct fdry_mf_chunk *k = fdry_array(cap->sealed, struct fdry_mf_chunk);
	return fdry_lower_bound(i, fdry_array_count(cap->sealed, struct fdry_mf_chunk),
				k[i].addr < addr);
}

/* List the chunks of the last seal that the store still has. Others are sealed as new ones. */
static int before_list(const struct content *c, struct piece *p)
{
	const struct fdry_mf_chunk *k = fdry_array(c->s->cap->sealed, struct fdry_mf_chunk);
	size_t i, n = fdry_array_count(c->s->cap->sealed, struct fdry_mf_chunk);
	struct fdry_span bytes;
	struct before b;
	int err = 0;

	p->before.len = 0;
	for (i = sealed_from(c->s->cap, p->spot.addr);
	     c->reader && i < n && k[i].addr < p->spot.addr + p->spot.len && !err; i++) {
		if (fdry_reader_map(c->reader, &k[i].oid, &bytes) || bytes.len != k[i].size)
			continue;
		b = (struct before){ &k[i], bytes.data };
		err = fdry_buf_put(&p->before, &b, sizeof(b));
	}
	return err;
}

static int piece_begin(const struct content *c, struct fdry_workqueue *q, struct piece *p, size_t i)
{
	int err;

	p->work.fn = piece_fn;
	p->work.saved_err = &p->saved_err;
	p->c = c;
	p->spot = fdry_array(c->spots, struct spot)[i];
	p->found.len = p->fresh.len = p->words.len = 0;
	p->zeros = 0;
	err = before_list(c, p);
	if (!err)
		fdry_workqueue_add(q, &p->work);
	return err;
}

/* A collection removed the chunk while it was compared: read its bytes again and store them. */
static int chunk_again(struct fdry_seal *s, struct fdry_mf_chunk *chunk)
{
	struct fdry_mem_block *block;
	const uint8_t *bytes = NULL;
	int err = fdry_mem_start(s->reader, chunk->addr, chunk->size, &block);

	if (err)
		return err;
	err = fdry_mem_wait(s->reader, block, &bytes);
	if (!err)
		err = fdry_writer_add_object(s->writer, FDRY_OBJECT_CHUNK, bytes, chunk->size, NULL,
					     0, &chunk->oid);
	fdry_mem_end(s->reader, block);
	return err;
}

static int chunk_put(struct fdry_seal *s, struct found *f, const uint8_t *bytes)
{
	bool there = true;
	int err;

	if (f->known)
		err = fdry_writer_has_chunk(s->writer, f->chunk.size, &f->chunk.oid, &there);
	else
		err = fdry_writer_add_chunk(s->writer, bytes, f->chunk.size, &f->chunk.oid);
	if (!err && !there)
		err = chunk_again(s, &f->chunk);
	s->report.content_bytes += f->chunk.size;
	if (f->known && there)
		s->report.unchanged_bytes += f->chunk.size;
	if (!err)
		err = fdry_buf_put(&s->w.fingerprints, &f->print, sizeof(f->print));
	return err ? err : fdry_buf_put(&s->w.chunks, &f->chunk, sizeof(f->chunk));
}

static int piece_put(struct fdry_seal *s, const struct piece *p)
{
	struct found *f = fdry_array(p->found, struct found);
	const uint8_t *bytes = p->fresh.data;
	size_t i;
	int err = fdry_pointers_judge(s, &p->words);

	s->report.zero_bytes += p->zeros;
	for (i = 0; i < fdry_array_count(p->found, struct found) && !err; i++) {
		err = chunk_put(s, &f[i], bytes);
		if (!f[i].known)
			bytes += f[i].chunk.size;
	}
	return err;
}

/* Threads work on a window of pieces, which moves over all of them. */
static int pieces_put(struct content *c, struct fdry_workqueue *q, struct piece *window,
		      size_t size)
{
	size_t i, begun, n = fdry_array_count(c->spots, struct spot);
	int err = 0;

	for (begun = 0; begun < n && begun < size && !err; begun++)
		err = piece_begin(c, q, &window[begun], begun);
	for (i = 0; i < n && !err; i++) {
		err = fdry_workqueue_wait(q, &window[i % size].work);
		if (!err)
			err = piece_put(c->s, &window[i % size]);
		if (!err && begun < n) {
			err = piece_begin(c, q, &window[i % size], begun);
			begun++;
		}
	}
	return err;
}

static int pieces_seal(struct content *c)
{
	static const struct fdry_workqueue_opts opts = { .name = "fdry-seal", .help_all = true };
	size_t i, n = fdry_array_count(c->spots, struct spot), size;
	struct fdry_workqueue queue;
	struct piece *window;
	unsigned int threads;
	int err;

	fdry_workqueue_init(&queue, &opts);
	threads = n / PIECES_A_THREAD < FDRY_WORKERS_MAX ? (unsigned int)(1 + n / PIECES_A_THREAD)
							 : 0;
	threads = fdry_workqueue_start(&queue, fdry_worker_threads(threads));
	size = (threads + 1) * AHEAD;
	window = calloc(size, sizeof(*window));
	err = window ? pieces_put(c, &queue, window, size) : fdry_nomem();
	fdry_workqueue_release(&queue);
	for (i = 0; window && i < size; i++) {
		fdry_buf_release(&window[i].before);
		fdry_buf_release(&window[i].found);
		fdry_buf_release(&window[i].fresh);
		fdry_buf_release(&window[i].words);
	}
	free(window);
	return err;
}

/* --- all of it --- */

static int range_cut(struct content *c, const struct fdry_layout_range *r)
{
	struct fdry_mf_segment seg = { r->addr, r->size, r->role, 0 };
	struct spot spot = { .addr = r->addr };
	int err = fdry_buf_put(&c->s->w.segments, &seg, sizeof(seg));

	if (r->role == FDRY_ROLE_SCRATCH)
		c->s->report.scratch_bytes += r->size;
	else if (r->role == FDRY_ROLE_EXTERNAL)
		c->s->report.external_bytes += r->size;
	for (; r->role == FDRY_ROLE_CONTENT && spot.addr < r->addr + r->size && !err;
	     spot.addr += spot.len) {
		spot.len = piece_cut(c, spot.addr, r->addr + r->size - spot.addr);
		err = fdry_buf_put(&c->spots, &spot, sizeof(spot));
	}
	return err;
}

/* The next seal of this capture compares its content with these chunks. */
static int sealed_keep(const struct fdry_seal *s)
{
	struct fdry_buf *sealed = &s->cap->sealed;

	sealed->len = 0;
	return fdry_buf_put(sealed, s->w.chunks.data, s->w.chunks.len);
}

int fdry_seal_content(struct fdry_seal *s)
{
	const struct fdry_layout_range *r = fdry_array(s->layout.ranges, struct fdry_layout_range);
	size_t i, n = fdry_array_count(s->layout.ranges, struct fdry_layout_range);
	struct content c = { .s = s };
	int err = runs_list(s->cap, &c.runs);

	for (i = 0; i < n && !err; i++)
		err = range_cut(&c, &r[i]);
	if (!err && s->cap->sealed.len)
		err = fdry_reader_begin(s->store, &c.reader);
	if (!err)
		err = pieces_seal(&c);
	fdry_reader_end(c.reader);
	if (!err)
		err = sealed_keep(s);
	fdry_buf_release(&c.runs);
	fdry_buf_release(&c.spots);
	s->w.base = s->layout.base;
	s->w.end = s->layout.end;
	return err;
}
