// SPDX-License-Identifier: Apache-2.0
/*
 * content.c - content from the store to the device.
 *
 * Memory of a region is zero when it is mapped, so what no chunk covers is only written
 * when content is restored later.
 *
 * The threads of a work queue handle as many chunks at once as fit into a block of upload.h: they
 * find them in the map, verify their hashes if that is due, bring them into memory if they are not
 * there yet, and copy them. So hashing and copying are spread over processors, and several threads
 * read the disk, which makes it faster.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image/check.h"
#include "image/place.h"
#include "image/readers.h"
#include "image/upload.h"

/* Copying takes a dozen processors, and hashing as many as there are. */
#define THREADS_MAX FDRY_READERS_MAX
#define BYTES_A_THREAD (4ull << 20) /* for which a further thread pays */
#define BLOCKS \
	10u /* two or three for the device, and as many threads as keep it busy fill the others */
#define PIECES_MAX 256u             /* of one block */
#define PAGES_LOOKED_AT 3u           /* of a chunk, to know whether it is in memory */

/* Chunks that are handled together. */
struct batch {
	struct fdry_work work;
	struct fdry_content *c;
	uint32_t first, count; /* in the content's list of chunks */
};

struct fdry_content {
	struct fdry_image *img;
	struct fdry_upload *up;
	struct fdry_readers readers;
	struct batch *batches;
	uint32_t nbatches;
	uint32_t *chunks; /* of the manifest, those to copy or to verify */
	uint64_t bytes;
	_Atomic uint64_t hashed;
};

static bool is_resident(uintptr_t page)
{
	unsigned char flags = 0;

	return mincore((void *)page, 1, &flags) ||
	       flags & 1; /* where it does not say, the copy brings it in */
}

/*
 * Read what is not in the page cache, at once. Looking at every page takes a third of the time
 * of copying them; a chunk is mostly there or not there as a whole.
 */
static void bring(struct fdry_span bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)bytes.data & ~(page - 1);
	uintptr_t end = (uintptr_t)bytes.data + bytes.len;
	size_t i, step = bytes.len / (PAGES_LOOKED_AT - 1);

	for (i = 0; i < PAGES_LOOKED_AT; i++)
		if (!is_resident(((uintptr_t)bytes.data + (i ? i * step - 1 : 0)) & ~(page - 1))) {
			/* A kernel that does not know this leaves it to the copy. */
			(void)madvise((void *)at, end - at, MADV_POPULATE_READ);
			return;
		}
}

/* Find it in the map, and verify it. */
static int chunk_find(struct fdry_content *c, struct fdry_reader *reader,
		      const struct fdry_mf_chunk *chunk, struct fdry_span *ret)
{
	struct fdry_span bytes;
	bool hashed = false;
	int err = fdry_reader_map(reader, &chunk->oid, &bytes);

	if (err)
		goto out_name;
	if (bytes.len != chunk->size) {
		err = fdry_fail(FDRY_E_BADIMAGE,
				"it has %zu bytes, the manifest says %llu; seal the image anew",
				bytes.len, (unsigned long long)chunk->size);
		goto out_name;
	}
	err = fdry_reader_verify(reader, &chunk->oid, bytes, c->img->verify, &hashed);
	if (err)
		goto out_name;
	if (hashed)
		atomic_fetch_add(&c->hashed, chunk->size);
	else
		bring(bytes);
	*ret = bytes;
	return 0;
out_name:
	if (err == -FDRY_E_CORRUPT)
		fdry_damage_note(c->img, &chunk->oid);
	return fdry_fail_at(err, "content at %#llx", (unsigned long long)chunk->addr);
}

static int pieces_put(struct fdry_content *c, const struct fdry_piece *pieces, size_t n)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(c->img, &mode);

	if (err)
		return err;
	err = fdry_upload_put(c->up, pieces, n);
	fdry_image_leave(c->img, &mode);
	return err;
}

/* What of a batch is to be copied; the process may keep its own bytes in places. */
struct gather {
	struct fdry_content *c;
	const struct fdry_mf_chunk *chunk; /* whose pieces come, */
	struct fdry_span bytes;            /* and where it lies */
	struct fdry_piece pieces[PIECES_MAX];
	size_t n;
};

static int gather_put(struct gather *g)
{
	int err = g->n ? pieces_put(g->c, g->pieces, g->n) : 0;

	g->n = 0;
	return err;
}

static int gather_piece(void *arg, uint64_t addr, uint64_t size)
{
	struct gather *g = arg;

	g->pieces[g->n].addr = addr;
	g->pieces[g->n].bytes = (struct fdry_span){ g->bytes.data + (addr - g->chunk->addr), size };
	return ++g->n == PIECES_MAX ? gather_put(g) : 0;
}

static int batch_fn(struct fdry_work *work, unsigned int worker)
{
	const struct batch *b = (struct batch *)work; /* its first member */
	struct fdry_content *c = b->c;
	struct gather g = { .c = c };
	uint32_t i;
	int err;

	for (i = 0; i < b->count; i++) {
		g.chunk = &c->img->m.chunks[c->chunks[b->first + i]];
		err = chunk_find(c, c->readers.reader[worker], g.chunk, &g.bytes);
		if (err)
			return err;
		err = fdry_placement_pieces(c->img, g.chunk->addr, g.chunk->size,
					    gather_piece, &g);
		if (err)
			return err;
	}
	return gather_put(&g);
}

static int piece_seen(void *arg, uint64_t addr, uint64_t size)
{
	(void)addr, (void)size;
	*(bool *)arg = true;
	return 0;
}

/* The process keeps all bytes of its own there: nothing of the chunk is copied. */
static bool chunk_is_kept(const struct fdry_image *img, const struct fdry_mf_chunk *chunk)
{
	bool wanted = false;

	return img->kept.len &&
	       !fdry_placement_pieces(img, chunk->addr, chunk->size, piece_seen, &wanted) &&
	       !wanted;
}

/* Divide the chunks that are to be copied, or to be verified, into batches of one block. */
static int batches_make(struct fdry_content *c)
{
	const struct fdry_manifest *m = &c->img->m;
	struct batch *b = NULL;
	uint64_t left = 0;
	uint32_t i, n = 0;

	c->batches = calloc(m->n_chunks + 1, sizeof(*c->batches));
	c->chunks = calloc(m->n_chunks + 1, sizeof(*c->chunks));
	if (!c->batches || !c->chunks)
		return fdry_nomem();
	for (i = 0; i < m->n_chunks; i++) {
		if (!c->img->verify && chunk_is_kept(c->img, &m->chunks[i]))
			continue;
		if (!b || m->chunks[i].size > left || b->count == PIECES_MAX) {
			b = &c->batches[c->nbatches++];
			b->work.fn = batch_fn;
			b->c = c;
			b->first = n;
			left = FDRY_UPLOAD_BLOCK;
		}
		c->chunks[n++] = i;
		b->count++;
		left -= m->chunks[i].size;
		c->bytes += m->chunks[i].size;
	}
	return 0;
}

/* One at least, so that something is ready when memory is; none if nothing is to be copied. */
static unsigned int threads_for(uint64_t bytes, unsigned int most)
{
	uint64_t n = 1 + bytes / BYTES_A_THREAD;

	if (!bytes)
		return 0;
	if (most)
		return most - 1;
	if (n > fdry_cores() - 1)
		n = fdry_cores() - 1;
	if (n > THREADS_MAX)
		n = THREADS_MAX;
	return n ? (unsigned int)n : 1;
}

static int content_begin(struct fdry_content *c, unsigned int threads)
{
	uint32_t i;
	int err = batches_make(c);

	if (err)
		return err;
	err = fdry_upload_new(c->img->drv, c->img->stream,
			      c->nbatches < BLOCKS ? c->nbatches : BLOCKS, &c->up);
	if (err)
		return err;
	for (i = 0; i < c->nbatches; i++)
		fdry_workqueue_add(&c->readers.queue, &c->batches[i].work);
	fdry_readers_start(&c->readers, threads_for(c->bytes, threads), c->nbatches);
	return 0;
}

int fdry_content_begin(struct fdry_image *img, struct fdry_reader *reader, unsigned int threads,
		       struct fdry_content **ret)
{
	struct fdry_content *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return fdry_nomem();
	c->img = img;
	fdry_readers_init(&c->readers, img->store, reader, "fdry-content");
	err = content_begin(c, threads);
	if (err)
		goto out_end;
	*ret = c;
	return 0;
out_end:
	fdry_content_end(c);
	return err;
}

/* Wait for one batch after another, and report how far the content has come. */
static int batches_wait(struct fdry_content *c)
{
	const struct fdry_mf_chunk *chunks = c->img->m.chunks;
	uint64_t done = 0;
	uint32_t i, k;
	int err;

	for (i = 0; i < c->nbatches; i++) {
		err = fdry_workqueue_wait(&c->readers.queue, &c->batches[i].work);
		if (err)
			return err;
		for (k = 0; k < c->batches[i].count; k++)
			done += chunks[c->chunks[c->batches[i].first + k]].size;
		if (done < c->bytes)
			fdry_image_progress(c->img, FDRY_PHASE_CONTENT, done, c->bytes);
	}
	return fdry_upload_finish(c->up);
}

int fdry_content_copy(struct fdry_content *c, struct fdry_content_sum *sum)
{
	int err;

	fdry_upload_open(c->up);
	err = batches_wait(c);
	sum->bytes += c->bytes;
	sum->hashed += atomic_load(&c->hashed);
	if (err)
		return err;
	fdry_image_progress(c->img, FDRY_PHASE_CONTENT, c->bytes, c->bytes);
	return 0;
}

void fdry_content_end(struct fdry_content *c)
{
	if (!c)
		return;
	if (c->up)
		fdry_upload_abandon(c->up);
	fdry_readers_release(&c->readers);
	fdry_upload_free(c->up);
	free(c->batches);
	free(c->chunks);
	free(c);
}

static int piece_zero(void *arg, uint64_t addr, uint64_t size)
{
	struct fdry_image *img = arg;

	return fdry_call(img->drv, cuMemsetD8Async, addr, 0, size, img->stream);
}

int fdry_content_zero(struct fdry_image *img)
{
	const struct fdry_mf_segment *s = img->m.segments;
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_segments; i++) {
		if (s[i].role == FDRY_ROLE_CONTENT)
			err = fdry_placement_pieces(img, s[i].addr, s[i].size, piece_zero, img);
		if (err)
			return err;
	}
	return 0;
}
