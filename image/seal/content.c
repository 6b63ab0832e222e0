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
 * Any kernel or copy may have written memory since the last seal. So the GPU computes the
 * fingerprint of every cell that an earlier seal of this capture has sealed. Cells with an
 * unchanged fingerprint are kept: the capture remembers their chunks and the words in them that
 * may be pointers (capture/sealed.h). Threads read the other cells in pieces, cut them, and search
 * them for pointers. Without fingerprints of the GPU they read all cells. The fingerprint of such
 * a cell is computed from the bytes that were read; if it did not change, the cell's chunks are
 * not hashed again. A cell with pointers to module variables is read by every seal, because its
 * chunks have zeros in their place. The sealing thread stores the results in the order of
 * addresses. So the image does not depend on the number of threads or on the kept cells.
 */
#include "image/seal/seal.h"

#include <stdlib.h>

#include "lib/search.h"
#include "lib/workqueue.h"

/* Shorter runs of zeros inside content are stored, so that content consists of few chunks. */
#define ZERO_RUN_MIN (64u << 10)
#define CONTENT_BLOCK 4096u
/* Smaller tensors have no chunks of their own. */
#define TENSOR_MIN (64u << 10)
/* Tensors with other ends are not cut out, so that no word is in two chunks. */
#define TENSOR_ALIGN 16u

/* A piece consists of whole cells. */
_Static_assert(FDRY_MEM_READ_PIECE >= FDRY_MF_CHUNK_MAX, "a piece holds a cell");
/* Each thread reads one piece at a time, and layout.c reads none at that time. */
_Static_assert(FDRY_SEAL_BLOCKS > FDRY_WORKERS_MAX, "no thread waits for a block");

/* A further thread is started for each group of this many pieces. */
#define PIECES_A_THREAD 4u
/* The number of pieces in work: so many for each thread, and 64 MiB at least, so that few threads
 * go on while the store writes a batch. */
#define AHEAD 3u
#define WINDOW_MIN 16u
/* A cell with more words that may be pointers is read at every seal. */
#define WORDS_MAX 4096u

/* The entry with number @i. It may be one past the last entry, even in an empty buffer. */
#define entry_at(buf, type, i) ((buf).len ? fdry_array(buf, type) + (i) : NULL)

/* A tensor that is cut by itself. */
struct run {
	uint64_t from, to;
};

/* The end of a cell, and the origin from which its blocks are counted. */
struct place {
	uint64_t origin, end;
};

/* A cell of the content. */
struct cell {
	uint64_t origin, addr, len;
	const struct fdry_sealed_cell *before; /* the same cell in an earlier seal, or NULL */
	bool keep; /* it did not change */
};

/* Adjacent cells that are read together, as many as fit into a piece. Kept cells may be between two
 * spots. */
struct spot {
	size_t cell, cells; /* in content.cells */
	uint64_t addr;
	size_t len;
};

struct content {
	struct fdry_seal *s;
	struct fdry_buf runs;  /* ascending, without overlap */
	struct fdry_buf cells; /* of struct cell: the whole content, in order */
	struct fdry_buf spots; /* of struct spot, in order */
	struct fdry_writer_object *sealed; /* the chunks of the last seal, in their order */
	struct fdry_sealed next; /* the results that the capture keeps of this seal */
	bool forget; /* the results of earlier seals do not hold any more */
	uint64_t done, total; /* bytes of the cells that are in the manifest, and of all */
	bool read_all; /* earlier seals did not search for all words, so all cells are read */
};

/* A chunk of a piece. @known: an earlier seal has stored it. Otherwise its bytes are in
 * piece.fresh. */
struct found {
	struct fdry_mf_chunk chunk;
	bool known;
};

struct piece {
	struct fdry_work work;
	struct fdry_saved_err saved_err;
	const struct content *c;
	struct spot spot;
	struct fdry_buf cells;  /* of struct fdry_sealed_cell, whose contents are in the next
				   three */
	struct fdry_buf found;  /* of struct found, ascending */
	struct fdry_buf prints; /* of struct fdry_fingerprint, one for each found */
	struct fdry_buf words;  /* of struct fdry_sealed_word */
	struct fdry_buf fresh;  /* the bytes of unknown chunks, one after the other */
};

/* --- the borders of chunks --- */

/* Order by address; of tensors at the same address, the largest is first. */
static int run_cmp(const void *a, const void *b)
{
	const struct run *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return (x->to < y->to) - (x->to > y->to);
}

/* Keep only the first of tensors that share bytes: the others are views of it. */
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

static struct place place_at(const struct content *c, uint64_t addr)
{
	const struct run *r = run_behind(&c->runs, addr);
	struct place place = { 0, UINT64_MAX };
	uint64_t left;

	if (r && r->from <= addr)
		place = (struct place){ r->from, r->to };
	else if (r)
		place.end = r->from;
	left = FDRY_MF_CHUNK_MAX - (addr - place.origin) % FDRY_MF_CHUNK_MAX;
	if (left < place.end - addr)
		place.end = addr + left;
	return place;
}

/* --- chunks in a cell; @at: the offset from the cell's origin --- */

/* Return the number of bytes from @at to the end of its content block, at most @len. */
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
		if (!fdry_seal_is_zero(bytes + done, n))
			break;
	}
	return done;
}

/* Return the length of the chunk that begins at @bytes. Its first block is not zero. */
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

static int chunk_find(struct piece *p, struct found *f, struct fdry_fingerprint print,
		      const uint8_t *bytes)
{
	const struct fdry_sealed *sealed = &p->c->s->cap->sealed;
	const struct fdry_mf_chunk *chunks = fdry_array(sealed->chunks, struct fdry_mf_chunk);
	const struct fdry_mf_chunk *before =
		fdry_sealed_chunk(sealed, f->chunk.addr, f->chunk.size, print);
	int err;

	f->known = before && p->c->sealed[before - chunks].has;
	if (f->known) {
		f->chunk.oid = before->oid;
	} else {
		err = fdry_oid_of(bytes, (size_t)f->chunk.size, &f->chunk.oid);
		if (err)
			return err;
		err = fdry_buf_put(&p->fresh, bytes, (size_t)f->chunk.size);
		if (err)
			return err;
	}
	err = fdry_buf_put(&p->prints, &print, sizeof(print));
	return err ? err : fdry_buf_put(&p->found, f, sizeof(*f));
}

/* Find the chunks of a cell, and the words in them that may be pointers. */
static int cell_cut(struct piece *p, const struct cell *cell, struct fdry_sealed_cell *ret,
		    const uint8_t *bytes)
{
	struct fdry_fingerprint print = ret->print;
	struct found f = { .known = false };
	uint64_t addr = cell->addr;
	size_t n, len = (size_t)cell->len;
	int err;

	for (; len; addr += n, bytes += n, len -= n) {
		n = zero_run(addr - cell->origin, bytes, len);
		ret->zeros += n;
		if (n)
			continue;
		n = chunk_run(addr - cell->origin, bytes, len);
		err = fdry_pointers_find(p->c->s, addr, bytes, n, &p->words);
		if (err)
			return err;
		if (n != cell->len)
			print = fdry_fingerprint_of(bytes, n);
		f.chunk = (struct fdry_mf_chunk){ .addr = addr, .size = n };
		err = chunk_find(p, &f, print, bytes);
		if (err)
			return err;
		ret->nchunks++;
	}
	return 0;
}

static int cell_find(struct piece *p, const struct cell *cell, const uint8_t *bytes)
{
	struct fdry_sealed_cell found = { .origin = cell->origin,
					  .addr = cell->addr,
					  .len = cell->len,
					  .word = fdry_array_count(p->words,
								   struct fdry_sealed_word) };
	int err;

	found.print = fdry_fingerprint_of(bytes, (size_t)cell->len);
	err = cell_cut(p, cell, &found, bytes);
	if (err)
		return err;
	found.nwords = fdry_array_count(p->words, struct fdry_sealed_word) - found.word;
	return fdry_buf_put(&p->cells, &found, sizeof(found));
}

static int cells_find(struct piece *p, const uint8_t *bytes)
{
	const struct cell *cell = fdry_array(p->c->cells, struct cell) + p->spot.cell;
	size_t i;
	int err = 0;

	for (i = 0; i < p->spot.cells && !err; i++, cell++) {
		err = cell_find(p, cell, bytes);
		bytes += cell->len;
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
	int err = fdry_capture_enter(cap);

	(void)worker;
	if (err)
		return err;
	err = fdry_mem_start(r, p->spot.addr, p->spot.len, &block);
	if (err)
		goto out_leave;
	err = fdry_mem_wait(r, block, &bytes) ?: cells_find(p, bytes);
	fdry_mem_end(r, block);
out_leave:
	fdry_capture_leave(cap);
	return err;
}

static void piece_begin(const struct content *c, struct fdry_workqueue *q, struct piece *p,
			size_t i)
{
	p->work.fn = piece_fn;
	p->work.saved_err = &p->saved_err;
	p->c = c;
	p->spot = fdry_array(c->spots, struct spot)[i];
	p->cells.len = p->found.len = p->prints.len = p->words.len = p->fresh.len = 0;
	fdry_workqueue_add(q, &p->work);
}

/* --- results, in the order of addresses --- */

/* @bytes: NULL for a chunk that was sealed before, and that the store has. */
static int chunk_put(struct fdry_seal *s, const struct fdry_mf_chunk *chunk,
		     const struct fdry_fingerprint *print, const uint8_t *bytes)
{
	int err = 0;

	if (bytes) {
		err = fdry_writer_add_chunk(s->writer, bytes, chunk->size, &chunk->oid);
	} else {
		fdry_writer_count_known(s->writer, 1);
		s->report.unchanged_bytes += chunk->size;
	}
	if (err)
		return err;
	s->report.content_bytes += chunk->size;
	err = fdry_buf_put(&s->w.fingerprints, print, sizeof(*print));
	return err ? err : fdry_buf_put(&s->w.chunks, chunk, sizeof(*chunk));
}

/* Record a cell for the next seal. Its chunks are the last @cell->nchunks of the manifest. */
static int cell_remember(struct content *c, const struct fdry_sealed_cell *cell,
			 const struct fdry_sealed_word *words)
{
	const struct fdry_manifest_writer *w = &c->s->w;
	size_t first = fdry_array_count(w->chunks, struct fdry_mf_chunk) - cell->nchunks;
	struct fdry_sealed_cell keep = *cell;

	c->s->report.zero_bytes += cell->zeros;
	c->done += cell->len;
	keep.wordy |= keep.nwords > WORDS_MAX;
	if (keep.wordy)
		keep.nwords = 0;
	return fdry_sealed_add(&c->next, &keep, entry_at(w->chunks, struct fdry_mf_chunk, first),
			       entry_at(w->fingerprints, struct fdry_fingerprint, first), words);
}

/* A word of a cell that is not read points to a module variable since an earlier seal. */
static int pointer_new(struct content *c)
{
	const struct fdry_sealed_word *w = fdry_array(c->s->found, struct fdry_sealed_word);

	c->forget = true;
	return fdry_fail(FDRY_E_STATE,
			 "the word at 0x%llx points to a module variable since the last seal; "
			 "seal again",
			 (unsigned long long)w->at);
}

/* Judge the words of a cell. Its pointers to module variables are in s->found afterwards. */
static int words_judge(struct content *c, const struct fdry_sealed_word *words, size_t n)
{
	c->s->found.len = 0;
	return fdry_seal_audit_words(c->s, words, n) ?: fdry_pointers_judge(c->s, words, n);
}

static int kept_put(struct content *c, const struct fdry_sealed_cell *cell)
{
	const struct fdry_sealed *sealed = &c->s->cap->sealed;
	const struct fdry_sealed_word *words =
		entry_at(sealed->words, struct fdry_sealed_word, cell->word);
	size_t i;
	int err = words_judge(c, words, cell->nwords);

	if (!err && c->s->found.len)
		err = pointer_new(c);
	for (i = cell->chunk; i < cell->chunk + cell->nchunks && !err; i++)
		err = chunk_put(c->s, &fdry_array(sealed->chunks, struct fdry_mf_chunk)[i],
				&fdry_array(sealed->prints, struct fdry_fingerprint)[i], NULL);
	return err ? err : cell_remember(c, cell, words);
}

/* Put kept cells, from @cell to the next cell that is read. */
static int kept_run_put(struct content *c, size_t cell)
{
	const struct cell *cells = fdry_array(c->cells, struct cell);
	size_t n = fdry_array_count(c->cells, struct cell);
	int err = 0;

	for (; cell < n && cells[cell].keep && !err; cell++)
		err = kept_put(c, cells[cell].before);
	return err;
}

/* Put the chunks of a cell that was read. *f, *print and *bytes move behind them. */
static int cell_put(struct content *c, const struct fdry_sealed_cell *cell, struct found **f,
		    struct fdry_fingerprint **print, uint8_t **bytes)
{
	size_t k;
	int err = 0;

	for (k = 0; k < cell->nchunks; k++, ++*f, ++*print) {
		if (fdry_seal_chunk_points(c->s, &(*f)->chunk))
			err = (*f)->known ? pointer_new(c)
					  : fdry_seal_chunk_pointers(c->s, &(*f)->chunk, *print,
								     *bytes);
		err = err ?: chunk_put(c->s, &(*f)->chunk, *print, (*f)->known ? NULL : *bytes);
		if (err)
			return err;
		if (!(*f)->known)
			*bytes += (*f)->chunk.size;
	}
	return 0;
}

static int piece_put(struct content *c, const struct piece *p)
{
	struct fdry_sealed_cell *cell = fdry_array(p->cells, struct fdry_sealed_cell);
	const struct fdry_sealed_word *words;
	struct fdry_fingerprint *print = fdry_array(p->prints, struct fdry_fingerprint);
	struct found *f = fdry_array(p->found, struct found);
	uint8_t *bytes = p->fresh.data;
	size_t i;
	int err;

	for (i = 0; i < p->spot.cells; i++, cell++) {
		words = entry_at(p->words, struct fdry_sealed_word, cell->word);
		err = words_judge(c, words, cell->nwords) ?:
		      cell_put(c, cell, &f, &print, &bytes);
		if (err)
			return err;
		cell->wordy |= c->s->found.len != 0;
		err = cell_remember(c, cell, words);
		if (err)
			return err;
	}
	return kept_run_put(c, p->spot.cell + p->spot.cells);
}

/* Threads work on a window of pieces, which moves over all pieces. */
static int pieces_put(struct content *c, struct fdry_workqueue *q, struct piece *window,
		      size_t size)
{
	size_t i, begun, n = fdry_array_count(c->spots, struct spot);
	int err;

	for (begun = 0; begun < n && begun < size; begun++)
		piece_begin(c, q, &window[begun], begun);
	err = kept_run_put(c, 0);
	if (err)
		return err;
	fdry_seal_progress(c->s, FDRY_SEAL_CONTENT, c->done, c->total);
	for (i = 0; i < n; i++) {
		err = fdry_workqueue_wait(q, &window[i % size].work);
		if (err)
			return err;
		err = piece_put(c, &window[i % size]);
		if (err)
			return err;
		fdry_seal_progress(c->s, FDRY_SEAL_CONTENT, c->done, c->total);
		if (begun < n) {
			piece_begin(c, q, &window[i % size], begun);
			begun++;
		}
	}
	return 0;
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
	threads = fdry_workqueue_start(&queue, n ? fdry_worker_threads(threads) : 0);
	size = (threads + 1) * AHEAD;
	size = size > WINDOW_MIN ? size : WINDOW_MIN;
	size = size < n ? size : n + 1; /* one for no content */
	window = calloc(size, sizeof(*window));
	err = window ? pieces_put(c, &queue, window, size) : fdry_nomem();
	fdry_workqueue_release(&queue);
	for (i = 0; window && i < size; i++) {
		fdry_buf_release(&window[i].cells);
		fdry_buf_release(&window[i].found);
		fdry_buf_release(&window[i].prints);
		fdry_buf_release(&window[i].words);
		fdry_buf_release(&window[i].fresh);
	}
	free(window);
	return err;
}

/* --- cells, and the choice of kept cells --- */

static int range_cut(struct content *c, const struct fdry_layout_range *r)
{
	uint64_t end = r->addr + r->size;
	struct cell cell = { .addr = r->addr };
	struct place place;
	int err = 0;

	if (r->role == FDRY_ROLE_SCRATCH)
		c->s->report.scratch_bytes += r->size;
	else if (r->role == FDRY_ROLE_EXTERNAL)
		c->s->report.external_bytes += r->size;
	for (; r->role == FDRY_ROLE_CONTENT && cell.addr < end && !err; cell.addr += cell.len) {
		place = place_at(c, cell.addr);
		cell.origin = place.origin;
		cell.len = (place.end < end ? place.end : end) - cell.addr;
		cell.before = fdry_sealed_cell(&c->s->cap->sealed, cell.origin, cell.addr,
					       cell.len);
		c->total += cell.len;
		err = fdry_buf_put(&c->cells, &cell, sizeof(cell));
	}
	return err;
}

/* Does the store still have the chunks of a cell? */
static bool has_chunks(const struct content *c, const struct fdry_sealed_cell *cell)
{
	size_t i;

	for (i = cell->chunk; i < cell->chunk + cell->nchunks; i++)
		if (!c->sealed[i].has)
			return false;
	return true;
}

/* Look up the chunks of the last seal in the store. */
static int sealed_find(struct content *c)
{
	const struct fdry_sealed *sealed = &c->s->cap->sealed;
	const struct fdry_mf_chunk *k = fdry_array(sealed->chunks, struct fdry_mf_chunk);
	size_t i, n = fdry_array_count(sealed->chunks, struct fdry_mf_chunk);

	if (!n)
		return 0;
	c->sealed = calloc(n, sizeof(*c->sealed));
	if (!c->sealed)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		c->sealed[i] = (struct fdry_writer_object){ .oid = k[i].oid, .size = k[i].size };
	return fdry_writer_find_objects(c->s->writer, FDRY_OBJECT_CHUNK, c->sealed, n);
}

/* Keep the cells whose fingerprints did not change. */
static int kept_find(struct content *c)
{
	struct cell *cells = fdry_array(c->cells, struct cell);
	size_t i, k = 0, n = fdry_array_count(c->cells, struct cell);
	struct fdry_fingerprint_range *ranges = malloc((n + 1) * sizeof(*ranges)), range;
	struct fdry_fingerprint *prints = malloc((n + 1) * sizeof(*prints));
	int err = ranges && prints ? 0 : fdry_nomem();
	bool known;

	if (err)
		goto out_free;
	for (i = 0; i < n; i++) {
		cells[i].keep = cells[i].before && !cells[i].before->wordy && !c->read_all &&
				has_chunks(c, cells[i].before);
		range = (struct fdry_fingerprint_range){ cells[i].addr, cells[i].len };
		if (cells[i].keep)
			ranges[k++] = range;
	}
	known = fdry_sealed_fingerprints(c->s->cap, ranges, k, prints);
	for (i = 0, k = 0; i < n; i++)
		if (cells[i].keep)
			cells[i].keep = known &&
					fdry_fingerprint_eq(prints[k++], cells[i].before->print);
out_free:
	free(ranges);
	free(prints);
	return err;
}

/* Group the cells that are read into spots. */
static int spots_list(struct content *c)
{
	const struct cell *cells = fdry_array(c->cells, struct cell);
	size_t i, n = fdry_array_count(c->cells, struct cell);
	struct spot spot = { 0 };
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		if (cells[i].keep)
			continue;
		if (spot.cells &&
		    (spot.cell + spot.cells != i || spot.addr + spot.len != cells[i].addr ||
		     spot.len + cells[i].len > FDRY_MEM_READ_PIECE)) {
			err = fdry_buf_put(&c->spots, &spot, sizeof(spot));
			spot.cells = 0;
		}
		if (!spot.cells)
			spot = (struct spot){ .cell = i, .addr = cells[i].addr };
		spot.cells++;
		spot.len += cells[i].len;
	}
	if (err)
		return err;
	if (spot.cells)
		return fdry_buf_put(&c->spots, &spot, sizeof(spot));
	return 0;
}

/* --- all of it --- */

/* The next seal of this capture begins with what this one found. */
static void sealed_replace(struct content *c)
{
	struct fdry_sealed *sealed = &c->s->cap->sealed;

	fdry_sealed_content_release(sealed);
	sealed->cells = c->next.cells;
	sealed->chunks = c->next.chunks;
	sealed->prints = c->next.prints;
	sealed->words = c->next.words;
	fdry_pointers_halves(c->s->pointers, sealed->halves);
	c->next = (struct fdry_sealed){ 0 };
}

static int cells_list(struct content *c)
{
	const struct fdry_seal *s = c->s;
	const struct fdry_layout_range *r = fdry_array(s->layout.ranges, struct fdry_layout_range);
	size_t i, n = fdry_array_count(s->layout.ranges, struct fdry_layout_range);
	int err = runs_list(s->cap, &c->runs);

	for (i = 0; i < n && !err; i++)
		err = range_cut(c, &r[i]);
	return err;
}

int fdry_seal_content(struct fdry_seal *s)
{
	struct content c = { .s = s };
	int err;

	c.read_all = fdry_pointers_remember(s->pointers, s->cap->sealed.halves);
	err = cells_list(&c);
	if (err)
		goto out_release;
	err = sealed_find(&c);
	if (err)
		goto out_release;
	err = kept_find(&c);
	fdry_seal_spent(s, fingerprints);
	if (err)
		goto out_release;
	err = spots_list(&c);
	if (err)
		goto out_release;
	err = pieces_seal(&c);
	if (err)
		goto out_release;
	sealed_replace(&c);
out_release:
	if (c.forget)
		fdry_sealed_content_release(&s->cap->sealed);
	fdry_sealed_content_release(&c.next);
	free(c.sealed);
	fdry_buf_release(&c.runs);
	fdry_buf_release(&c.cells);
	fdry_buf_release(&c.spots);
	return err;
}
