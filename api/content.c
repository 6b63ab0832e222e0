// SPDX-License-Identifier: Apache-2.0
/*
 * content.c - content from the store to the device.
 *
 * Memory of a region is zero when it is mapped, so what no chunk covers is only written
 * when content is restored later.
 *
 * Chunks are made ready by a few threads, in order: found in the map, hashed where that is
 * due, else brought into memory where they are not there yet. One thread copies what is
 * ready. So a disk is read by several threads, which it wants, and hashing, which is
 * slower than copying, is spread over processors.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/image.h"
#include "api/pool.h"
#include "arch/threads.h"
#include "api/upload.h"

#define THREADS_MAX 8
#define BYTES_A_THREAD (32ull << 20) /* for which a further thread pays */
#define PAGES_A_LOOK 1024u

struct ready {
	const struct fdry_image *img;
	struct fdry_span *chunks; /* by position in m.chunks: where they lie, once ready */
	_Atomic uint64_t hashed;
};

static bool resident(uintptr_t from, size_t len, size_t page)
{
	unsigned char pages[PAGES_A_LOOK];
	size_t i, n = (len + page - 1) / page;

	if (mincore((void *)from, len, pages))
		return true; /* it does not say; the copy brings it in */
	for (i = 0; i < n && pages[i] & 1; i++)
		;
	return i == n;
}

/* Read what is not in the page cache, a part of the chunk after the other. */
static void bring(struct fdry_span bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)bytes.data & ~(page - 1);
	uintptr_t end = (uintptr_t)bytes.data + bytes.len;
	size_t len;

	for (; at < end; at += len) {
		len = end - at < PAGES_A_LOOK * page ? end - at : PAGES_A_LOOK * page;
		/* A kernel that does not know this leaves it to the copy. */
		if (!resident(at, len, page))
			(void)madvise((void *)at, len, MADV_POPULATE_READ);
	}
}

static int chunk_ready(struct ready *r, struct fdry_get *get, size_t i)
{
	const struct fdry_mf_chunk *c = &r->img->m.chunks[i];
	struct fdry_span bytes;
	bool hashed = false;
	int err = fdry_get_map(get, &c->oid, &bytes);

	if (!err && bytes.len != c->size)
		err = fdry_fail(FDRY_E_BADIMAGE, "it has %zu bytes, the manifest says %llu; seal the image anew",
				bytes.len, (unsigned long long)c->size);
	if (!err)
		err = fdry_get_verify(get, &c->oid, bytes, r->img->verify, &hashed);
	if (err)
		return fdry_fail_at(err, "content at %#llx", (unsigned long long)c->addr);
	if (hashed)
		atomic_fetch_add(&r->hashed, c->size);
	else
		bring(bytes);
	r->chunks[i] = bytes;
	return 0;
}

static int ready_fn(void *arg, struct fdry_get *get, size_t i)
{
	return chunk_ready(arg, get, i);
}

static unsigned int threads_for(uint64_t bytes, unsigned int most)
{
	unsigned int n = fdry_cores() - 1;

	if (most)
		return most - 1;
	if (n > THREADS_MAX)
		n = THREADS_MAX;
	return n < bytes / BYTES_A_THREAD ? n : (unsigned int)(bytes / BYTES_A_THREAD);
}

static uint64_t content_bytes(const struct fdry_image *img)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < img->m.n_chunks; i++)
		bytes += img->m.chunks[i].size;
	return bytes;
}

static int chunks_upload(struct fdry_image *img, struct fdry_pool *pool, struct fdry_upload *up, const struct ready *r)
{
	uint64_t total = content_bytes(img), done = 0;
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_chunks && !err; i++) {
		err = fdry_pool_wait(pool, i);
		if (!err)
			err = fdry_upload_add(up, img->m.chunks[i].addr, r->chunks[i]);
		done += img->m.chunks[i].size;
		if (!err && done < total)
			fdry_image_tell(img, FDRY_PHASE_CONTENT, done, total);
	}
	if (!err)
		err = fdry_upload_finish(up);
	if (!err)
		fdry_image_tell(img, FDRY_PHASE_CONTENT, total, total);
	return err;
}

static int chunks_do(struct fdry_image *img, struct fdry_get *get, struct fdry_upload *up, struct fdry_content *c)
{
	struct ready r = { .img = img };
	struct fdry_pool_opts opts = { .store = img->store, .get = get, .fn = ready_fn, .arg = &r,
				       .count = img->m.n_chunks, .name = "fdry-content" };
	struct fdry_pool *pool;
	int err;

	c->bytes = content_bytes(img);
	opts.threads = threads_for(c->bytes, c->threads);
	r.chunks = calloc(img->m.n_chunks + 1, sizeof(*r.chunks));
	if (!r.chunks)
		return fdry_nomem();
	err = fdry_pool_start(&opts, &pool);
	if (!err) {
		err = chunks_upload(img, pool, up, &r);
		fdry_pool_free(pool); /* what is on its way lies in the caller's session as well */
	}
	c->hashed = atomic_load(&r.hashed);
	free(r.chunks);
	return err;
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

int fdry_image_content(struct fdry_image *img, struct fdry_get *get, struct fdry_content *c)
{
	struct fdry_upload *up;
	int err;

	err = fdry_upload_new(img->drv, img->device, img->stream, c->gate, &up);
	if (err)
		return err;
	if (c->zero)
		err = content_zero(img);
	if (!err)
		err = chunks_do(img, get, up, c);
	fdry_upload_free(up);
	return err;
}
