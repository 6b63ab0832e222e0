// SPDX-License-Identifier: Apache-2.0
/*
 * content.c - copies an image's content from the store to the device.
 *
 * Memory of a region is zero when it is mapped. So memory without a chunk is written only by a
 * later restore.
 *
 * A batch consists of the chunks that fit into a block of upload.h. It has parts, for the threads
 * of a work queue. A thread finds the chunks of a part in the store's map, verifies their hashes if
 * that is due, reads them from the disk if they are not in memory, and copies them into the block.
 * So several processors hash and copy, and several threads read the disk, which is faster. Several
 * threads fill a block, so few blocks suffice: making their memory takes longer than copying it.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image/check.h"
#include "image/damage.h"
#include "image/place.h"
#include "image/readers.h"
#include "image/upload.h"

/* Hashing takes as many processors as there are, and a disk is faster with several readers. Eight
 * threads that only copy suffice if a page fault maps much of the file, as on ext4. On tmpfs it
 * maps little, so there are twelve, which are no slower on ext4. */
#define THREADS_MAX FDRY_READERS_MAX
#define COPIERS 12u
#define BYTES_A_THREAD (4ull << 20) /* content for each further thread */
#define BYTES_ALONE (1u << 20) /* starting a thread takes longer than copying this */
#define BLOCKS_MAX 6u       /* some that the device reads, and some that threads fill */
#define PART (2u << 20)      /* bytes; a larger part is one chunk */
#define PART_CHUNKS_MAX 256u
#define PAGES_LOOKED_AT 3u           /* of a chunk, to decide whether it is in memory */
#define ABSENT_PART 16u     /* readers of the disk pay if at least this part of content is absent */

_Static_assert(BLOCKS_MAX * FDRY_UPLOAD_BLOCK <= FDRY_PINNED_KEPT, "a load's memory may be kept");

/* The chunks of one block. */
struct batch {
	struct fdry_upload_batch block;
	uint32_t first, count; /* in the content's list of chunks */
};

/* Some chunks of a batch, which one thread handles. */
struct part {
	struct fdry_work work;
	struct fdry_content *c;
	struct batch *batch;
	uint32_t first, count;
	size_t at; /* the part's offset in the block */
	uint64_t bytes;
};

/* Lets a thread make pages for blocks. */
struct populate {
	struct fdry_work work;
	struct fdry_content *c;
};

struct fdry_content {
	struct fdry_image *img;
	struct fdry_upload *up;
	struct fdry_readers readers;
	struct batch *batches;
	struct part *parts;
	struct populate populates[COPIERS];
	uint32_t nbatches, nparts;
	uint32_t *chunks; /* indices in the manifest of the chunks to copy or verify */
	uint64_t bytes;
	_Atomic uint64_t hashed;
	_Atomic uint64_t absent; /* bytes of chunks that were not in the page cache */
	unsigned int threads; /* to start when more is to be done than copying; 0: no more */
	_Atomic bool grown;   /* they were started */
};

static void threads_add(struct fdry_content *c)
{
	if (c->threads && !atomic_exchange(&c->grown, true))
		(void)fdry_readers_start(&c->readers, c->threads, c->nparts);
}

static bool is_resident(uintptr_t page)
{
	unsigned char flags = 0;

	return mincore((void *)page, 1, &flags) ||
	       flags & 1; /* if it fails, the copy reads the page */
}

/*
 * Read the chunk at once if it is not in the page cache. Checking every page would take a third of
 * the time of copying them. So three pages are checked, because a chunk usually is in the cache as
 * a whole or not at all.
 */
static void bring(struct fdry_content *c, struct fdry_span bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)bytes.data & ~(page - 1);
	uintptr_t end = (uintptr_t)bytes.data + bytes.len;
	size_t i, step = bytes.len / (PAGES_LOOKED_AT - 1);

	for (i = 0; i < PAGES_LOOKED_AT; i++)
		if (!is_resident(((uintptr_t)bytes.data + (i ? i * step - 1 : 0)) & ~(page - 1))) {
			if (atomic_fetch_add(&c->absent, bytes.len) + bytes.len >=
			    c->bytes / ABSENT_PART)
				threads_add(c);
			/* If the kernel does not support this, the copy reads the pages. */
			(void)madvise((void *)at, end - at, MADV_POPULATE_READ);
			return;
		}
}

/* Find a chunk in the map, and verify it. */
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
	if (hashed) {
		threads_add(c);
		atomic_fetch_add(&c->hashed, chunk->size);
	} else {
		bring(c, bytes);
	}
	*ret = bytes;
	return 0;
out_name:
	err = fdry_damage_noted(c->img, &chunk->oid, err);
	return fdry_content_fail(c->img, err, chunk->addr, chunk->size);
}

static int part_fill(const struct part *p, unsigned int worker)
{
	struct fdry_content *c = p->c;
	struct fdry_span bytes[PART_CHUNKS_MAX];
	uint8_t *to;
	uint32_t i;
	int err;

	fdry_upload_prepare(c->up);
	for (i = 0; i < p->count; i++) {
		err = chunk_find(c, c->readers.reader[worker],
				 &c->img->m.chunks[c->chunks[p->first + i]], &bytes[i]);
		if (err)
			return err;
	}
	err = fdry_upload_need(c->up, &p->batch->block, &to);
	if (err)
		return err;
	to += p->at;
	for (i = 0; i < p->count; i++) {
		memcpy(to, bytes[i].data, bytes[i].len);
		to += bytes[i].len;
	}
	return 0;
}

/* The copies of a batch. Pieces that are adjacent in the block and on the device become one
 * copy. */
struct sending {
	struct fdry_content *c;
	struct batch *batch;
	const struct fdry_mf_chunk *chunk;
	size_t at;     /* the chunk's offset in the block */
	uint64_t addr; /* the pending copy: its destination */
	size_t from, len; /* and its offset in the block and length */
};

static int sending_copy(struct sending *s)
{
	size_t len = s->len;

	s->len = 0;
	return len ? fdry_upload_copy(s->c->up, &s->batch->block, s->addr, s->from, len) : 0;
}

/* Add a piece of a chunk. A chunk has several pieces if the process keeps its own bytes in parts of
 * it. */
static int sending_piece(void *arg, uint64_t addr, uint64_t size)
{
	struct sending *s = arg;
	size_t from = s->at + (addr - s->chunk->addr);
	int err = 0;

	if (s->addr + s->len != addr || s->from + s->len != from)
		err = sending_copy(s);
	if (err)
		return err;
	if (!s->len) {
		s->addr = addr;
		s->from = from;
	}
	s->len += size;
	return 0;
}

static int batch_copy(struct fdry_content *c, struct batch *b)
{
	struct sending s = { .c = c, .batch = b };
	uint32_t i;
	int err;

	for (i = 0; i < b->count; i++) {
		s.chunk = &c->img->m.chunks[c->chunks[b->first + i]];
		err = fdry_placement_pieces(c->img, s.chunk->addr, s.chunk->size, sending_piece,
					    &s);
		if (err)
			return err;
		s.at += s.chunk->size;
	}
	return sending_copy(&s);
}

static int part_handle(const struct part *p, unsigned int worker)
{
	struct fdry_upload_batch *block = &p->batch->block;
	int err = part_fill(p, worker);

	if (!fdry_upload_filled(p->c->up, block, !err))
		return err;
	return fdry_upload_sent(p->c->up, block, batch_copy(p->c, p->batch));
}

static int part_fn(struct fdry_work *work, unsigned int worker)
{
	const struct part *p = (struct part *)work; /* its first member */
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(p->c->img, &mode);

	if (err) {
		(void)fdry_upload_filled(p->c->up, &p->batch->block, false);
		return err;
	}
	err = part_handle(p, worker);
	fdry_image_leave(p->c->img, &mode);
	return err;
}

static int piece_seen(void *arg, uint64_t addr, uint64_t size)
{
	(void)addr, (void)size;
	*(bool *)arg = true;
	return 0;
}

/* Is the chunk on the device already, or does the process keep its own bytes in all of the chunk's
 * memory? Then the chunk is not copied. */
static bool chunk_is_kept(const struct fdry_image *img, uint32_t i)
{
	const struct fdry_mf_chunk *chunk = &img->m.chunks[i];
	bool wanted = false;

	if (img->in_place && img->in_place[i])
		return true;
	return img->kept.len &&
	       !fdry_placement_pieces(img, chunk->addr, chunk->size, piece_seen, &wanted) &&
	       !wanted;
}

static void part_begin(struct fdry_content *c, struct batch *b, uint32_t chunk, uint64_t at)
{
	c->parts[c->nparts++] = (struct part){ .work.fn = part_fn, .c = c, .batch = b,
					       .first = chunk, .at = (size_t)at };
	b->block.left++;
}

/* Divide the chunks that are to be copied, or to be verified, into batches and their parts. */
static int batches_make(struct fdry_content *c)
{
	const struct fdry_manifest *m = &c->img->m;
	struct batch *b = NULL;
	struct part *p = NULL;
	uint64_t size, at = 0; /* in the block */
	uint32_t i, n = 0;

	c->batches = calloc(m->n_chunks + 1, sizeof(*c->batches));
	c->parts = calloc(m->n_chunks + 1, sizeof(*c->parts));
	c->chunks = calloc(m->n_chunks + 1, sizeof(*c->chunks));
	if (!c->batches || !c->parts || !c->chunks)
		return fdry_nomem();
	for (i = 0; i < m->n_chunks; i++) {
		size = m->chunks[i].size;
		if (!c->img->verify && chunk_is_kept(c->img, i))
			continue;
		if (!b || at + size > FDRY_UPLOAD_BLOCK) {
			b = &c->batches[c->nbatches++];
			b->first = n;
			at = 0;
		}
		if (!at || p->bytes + size > PART || p->count == PART_CHUNKS_MAX)
			part_begin(c, b, n, at);
		p = &c->parts[c->nparts - 1];
		p->count++;
		p->bytes += size;
		c->chunks[n++] = i;
		b->count++;
		at += size;
		c->bytes += size;
	}
	return 0;
}

/* Return the number of threads: at least one, so that content is ready when memory is mapped, and
 * none with little content. */
static unsigned int threads_for(uint64_t bytes)
{
	uint64_t n = 1 + bytes / BYTES_A_THREAD;

	if (bytes <= BYTES_ALONE)
		return 0;
	if (n > fdry_cores() - 1)
		n = fdry_cores() - 1;
	if (n > THREADS_MAX)
		n = THREADS_MAX;
	return n ? (unsigned int)n : 1;
}

/* Few threads need few blocks, and making more would take them longer. */
static unsigned int blocks_for(const struct fdry_content *c, unsigned int threads)
{
	unsigned int n = threads ? 3 + threads / 4 : 2;

	if (n > BLOCKS_MAX)
		n = BLOCKS_MAX;
	return c->nbatches < n ? c->nbatches : n;
}

static int populate_fn(struct fdry_work *work, unsigned int worker)
{
	const struct populate *p = (struct populate *)work; /* its first member */

	(void)worker;
	fdry_upload_populate(p->c->up);
	return 0;
}

/* Start the threads, then let them make pages: the system starts threads slowly while others do
 * that. */
static void threads_start(struct fdry_content *c, unsigned int threads)
{
	unsigned int i;

	fdry_workqueue_expect(&c->readers.queue, true);
	threads = fdry_readers_start(&c->readers, threads, c->nparts);
	for (i = 0; i < threads && i < COPIERS; i++)
		c->populates[i] = (struct populate){ .work.fn = populate_fn, .c = c };
	fdry_workqueue_add_array(&c->readers.queue, c->populates, i, sizeof(c->populates[0]));
}

/* @most: threads of the load, the calling one among them; 0: as many as pay. */
static int content_plan(struct fdry_content *c, unsigned int most)
{
	unsigned int threads;
	int err = batches_make(c);

	if (err)
		return err;
	threads = most ? most - 1 : threads_for(c->bytes);
	if (!most && threads > COPIERS) {
		c->threads = threads;
		threads = COPIERS;
	}
	err = fdry_upload_new(blocks_for(c, threads), c->bytes, &c->up);
	if (err)
		return err;
	threads_start(c, threads);
	return 0;
}

int fdry_content_new(struct fdry_image *img, unsigned int threads, struct fdry_content **ret)
{
	struct fdry_content *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return fdry_nomem();
	c->img = img;
	fdry_readers_init(&c->readers, img->store, NULL, "fdry-content");
	err = content_plan(c, threads);
	if (err)
		fdry_content_end(c);
	else
		*ret = c;
	return err;
}

static int content_begin(struct fdry_content *c, struct fdry_reader *reader)
{
	int err = fdry_upload_begin(c->up, c->img->drv, c->img->stream);

	if (err)
		return err;
	c->readers.reader[0] = reader;
	fdry_workqueue_add_array(&c->readers.queue, c->parts, c->nparts, sizeof(*c->parts));
	fdry_workqueue_expect(&c->readers.queue, false);
	return 0;
}

int fdry_content_begin(struct fdry_image *img, struct fdry_reader *reader, unsigned int threads,
		       struct fdry_content **c)
{
	int err = *c ? 0 : fdry_content_new(img, threads, c);

	return err ? err : content_begin(*c, reader);
}

uint64_t fdry_content_bytes(const struct fdry_content *c)
{
	return c->bytes;
}

/* All parts of a batch were handled, so its copies were given to the stream. */
static int batch_check(struct fdry_content *c, const struct batch *b,
		       struct fdry_content_check *check)
{
	return fdry_content_check_sent(check, c->chunks[b->first + b->count - 1]);
}

/* Wait for one part after another, and report the progress. */
static int parts_wait(struct fdry_content *c, struct fdry_content_check *check)
{
	const struct part *p, *end = c->parts + c->nparts;
	uint64_t done = 0;
	int err;

	for (p = c->parts; p < end; p++) {
		err = fdry_workqueue_wait(&c->readers.queue, &c->parts[p - c->parts].work);
		if (err)
			return err;
		done += p->bytes;
		if (done < c->bytes)
			fdry_image_progress(c->img, FDRY_PHASE_CONTENT, done, c->bytes);
		if (p + 1 < end && p[1].batch != p->batch)
			err = batch_check(c, p->batch, check);
		if (err)
			return err;
	}
	return fdry_upload_finish(c->up);
}

int fdry_content_copy(struct fdry_content *c, struct fdry_content_sum *sum,
		      struct fdry_content_check **check)
{
	int err;

	fdry_upload_open(c->up);
	/* The threads copy already, while this one prepares the check. */
	err = check ? fdry_content_check_begin(c->img, c->readers.reader[0], check) : 0;
	if (err)
		return err;
	err = parts_wait(c, check ? *check : NULL);
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
	free(c->parts);
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
