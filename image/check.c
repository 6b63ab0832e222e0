// SPDX-License-Identifier: Apache-2.0
/*
 * check.c - checks of content by fingerprints; see check.h.
 *
 * Every byte of content belongs to a range: a chunk, or memory between chunks, which must be zero
 * and has at most the size of a chunk. The device computes the fingerprint of a range after its
 * copy. In a load it does so for many ranges while later ones arrive. Memory in which the process
 * keeps its own bytes is left out. If the process keeps a part of a chunk, the chunk is checked in
 * the store, and each other part is a range of its own. If the device lacks code or memory for the
 * fingerprints, the content is copied back, and the processor computes them.
 */
#include "image/check.h"

#include <stdlib.h>

#include "arch/stream.h"
#include "image/damage.h"
#include "image/place.h"
#include "image/shared_fingerprinter.h"
#include "image/tensor.h"
#include "lib/log.h"

#define ZEROS UINT32_MAX
/* Bytes whose fingerprints the device computes at once, while others arrive. Each time costs some
 * calls of the driver, and the last time delays the load. */
#define GROUP ((uint64_t)64 << 20)

static const uint8_t zeros[FDRY_FINGERPRINT_BLOCK];

/* The expected fingerprint of a range. */
struct expected {
	struct fdry_fingerprint value;
	uint32_t chunk; /* its index in the manifest, or ZEROS */
};

struct fdry_content_check {
	struct fdry_image *img;
	struct fdry_reader *reader; /* NULL: only find content that is on the device */
	struct fdry_buf ranges;   /* of struct fdry_fingerprint_range */
	struct fdry_buf expected; /* of struct expected, one for each range */
	struct fdry_fingerprint zero_block;
	uint64_t bytes;           /* of all ranges */
	bool partial;             /* the process keeps parts of some chunks */
	struct fdry_fingerprinter *f; /* NULL: it is not begun, or the processor computes them */
	CUstream stream;              /* of the fingerprinter */
	CUevent sent;    /* after what the image's stream had when the last launch began */
	size_t launched; /* ranges whose fingerprints the device computes or has computed */
};

/* --- chunks that differ --- */

int fdry_content_fail(const struct fdry_image *img, int err, uint64_t addr, uint64_t len)
{
	const struct fdry_mf_tensor *first = NULL, *mf = img->m.tensors;
	struct fdry_saved_err saved;
	struct fdry_tensor t;
	uint32_t i, n = 0;
	uint64_t bytes;

	if (!err)
		return 0;
	fdry_saved_err_set(&saved, err); /* looking for tensors may fail, too */
	for (i = 0; i < img->m.n_tensors; i++, mf++) {
		fdry_manifest_tensor_get(&img->m, mf, &t);
		if (mf->flags & FDRY_TENSOR_HOST || fdry_tensor_extent(&t, &bytes) ||
		    mf->addr >= addr + len || mf->addr + bytes <= addr)
			continue;
		n++;
		if (!first || mf->addr < first->addr)
			first = mf;
	}
	err = fdry_saved_err_restore(&saved);
	if (!n)
		return fdry_fail_at(err, "content at %#llx, in no tensor",
				    (unsigned long long)addr);
	if (n == 1)
		return fdry_fail_at(err, "content at %#llx, tensor '%.100s'",
				    (unsigned long long)addr,
				    fdry_manifest_str(&img->m, first->name));
	return fdry_fail_at(err, "content at %#llx, tensor '%.100s' and %u more",
			    (unsigned long long)addr, fdry_manifest_str(&img->m, first->name),
			    n - 1);
}

/* Chunk @oid should have fingerprint @want, and the device has other bytes. Find the cause and
 * return its error. */
static int chunk_fail(struct fdry_image *img, struct fdry_reader *reader,
		      const struct fdry_oid *oid, struct fdry_fingerprint want)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_span bytes;
	int err = fdry_damage_noted(img, oid, fdry_reader_map(reader, oid, &bytes));

	if (err)
		return err;
	fdry_oid_hex(oid, hex);
	if (fdry_fingerprint_eq(fdry_fingerprint_of(bytes.data, bytes.len), want))
		return fdry_fail(FDRY_E_CORRUPT,
				 "chunk %.12s is whole in the store, and other bytes arrived in "
				 "memory; load again, and test the memory if that repeats",
				 hex);
	err = fdry_reader_verify(reader, oid, bytes, true, NULL);
	if (!err)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "the manifest has another fingerprint than the bytes of chunk "
				 "%.12s; seal the image anew",
				 hex);
	if (fdry_damage_noted(img, oid, err) != -FDRY_E_CORRUPT)
		return err;
	return fdry_fail(FDRY_E_CORRUPT,
			 "chunk %.12s is damaged in the store; bring it back with foundry-store "
			 "repair, from a pack, another store or a registry",
			 hex);
}

/* --- ranges --- */

static size_t ranges_count(const struct fdry_content_check *c)
{
	return fdry_array_count(c->ranges, struct fdry_fingerprint_range);
}

static int range_add(struct fdry_content_check *c, uint64_t addr, uint64_t len,
		     struct expected want)
{
	const struct fdry_fingerprint_range range = { addr, len };
	int err = fdry_buf_put(&c->ranges, &range, sizeof(range));

	c->bytes += len;
	return err ? err : fdry_buf_put(&c->expected, &want, sizeof(want));
}

/* Return the fingerprint of @len zeros, at most the size of a chunk. */
static struct fdry_fingerprint zeros_of(const struct fdry_content_check *c, uint64_t len)
{
	struct fdry_fingerprint blocks[FDRY_MF_CHUNK_MAX / FDRY_FINGERPRINT_BLOCK];
	size_t i, full = len / FDRY_FINGERPRINT_BLOCK, rest = len % FDRY_FINGERPRINT_BLOCK;

	for (i = 0; i < full; i++)
		blocks[i] = c->zero_block;
	if (rest)
		blocks[full] = fdry_fingerprint_block(zeros, rest);
	return fdry_fingerprint_join(len, blocks);
}

/* Add memory of content without a chunk. */
static int zeros_add(void *arg, uint64_t addr, uint64_t size)
{
	struct expected want = { .chunk = ZEROS };
	struct fdry_content_check *c = arg;
	uint64_t n;
	int err;

	for (; size; addr += n, size -= n) {
		n = size < FDRY_MF_CHUNK_MAX ? size : FDRY_MF_CHUNK_MAX;
		want.value = zeros_of(c, n);
		err = range_add(c, addr, n, want);
		if (err)
			return err;
	}
	return 0;
}

static int piece_sum(void *arg, uint64_t addr, uint64_t size)
{
	(void)addr;
	*(uint64_t *)arg += size;
	return 0;
}

/* A part of a chunk that the load fills, with the chunk's bytes in the store. */
struct part {
	struct fdry_content_check *check;
	const uint8_t *bytes;
	uint32_t chunk;
};

static int part_add(void *arg, uint64_t addr, uint64_t size)
{
	const struct part *p = arg;
	const uint8_t *bytes = p->bytes + (addr - p->check->img->m.chunks[p->chunk].addr);

	return range_add(p->check, addr, size,
			 (struct expected){ fdry_fingerprint_of(bytes, size), p->chunk });
}

/* Add the parts of a chunk, and check it in the store: the process keeps the other bytes, so the
 * device cannot compute the fingerprint of all. The check comes last, so that it covers the bytes
 * that gave the parts' fingerprints. */
static int parts_add(struct fdry_content_check *c, uint32_t i)
{
	const struct fdry_manifest *m = &c->img->m;
	const struct fdry_mf_chunk *chunk = &m->chunks[i];
	struct fdry_span bytes;
	struct part part;
	int err = fdry_damage_noted(c->img, &chunk->oid,
				    fdry_reader_map(c->reader, &chunk->oid, &bytes));

	if (err)
		return fdry_content_fail(c->img, err, chunk->addr, chunk->size);
	if (bytes.len != chunk->size)
		return 0; /* the copy refuses it */
	part = (struct part){ c, bytes.data, i };
	err = fdry_placement_pieces(c->img, chunk->addr, chunk->size, part_add, &part);
	if (err)
		return err;
	err = fdry_chunk_check(c->img, c->reader, &chunk->oid, bytes, m->fingerprints[i]);
	return fdry_content_fail(c->img, err, chunk->addr, chunk->size);
}

static int chunk_add(struct fdry_content_check *c, uint32_t i)
{
	const struct fdry_mf_chunk *chunk = &c->img->m.chunks[i];
	uint64_t copied = 0;
	int err = fdry_placement_pieces(c->img, chunk->addr, chunk->size, piece_sum, &copied);

	if (err || !copied)
		return err;
	c->partial |= copied < chunk->size;
	if (copied < chunk->size)
		return c->reader ? parts_add(c, i) : 0;
	return range_add(c, chunk->addr, chunk->size,
			 (struct expected){ c->img->m.fingerprints[i], i });
}

/* Add the chunks of a content segment, and the memory between them. */
static int segment_add(struct fdry_content_check *c, const struct fdry_mf_segment *s,
		       uint32_t *chunk)
{
	const struct fdry_manifest *m = &c->img->m;
	uint64_t at = s->addr, end = s->addr + s->size;
	int err;

	for (; *chunk < m->n_chunks && m->chunks[*chunk].addr < end; (*chunk)++) {
		err = fdry_placement_pieces(c->img, at, m->chunks[*chunk].addr - at, zeros_add, c);
		if (err)
			return err;
		err = chunk_add(c, *chunk);
		if (err)
			return err;
		at = m->chunks[*chunk].addr + m->chunks[*chunk].size;
	}
	return fdry_placement_pieces(c->img, at, end - at, zeros_add, c);
}

static int ranges_make(struct fdry_content_check *c)
{
	const struct fdry_manifest *m = &c->img->m;
	uint32_t i, chunk = 0;
	int err;

	c->zero_block = fdry_fingerprint_block(zeros, sizeof(zeros));
	for (i = 0; i < m->n_segments; i++) {
		if (m->segments[i].role != FDRY_ROLE_CONTENT)
			continue;
		err = segment_add(c, &m->segments[i], &chunk);
		if (err)
			return err;
	}
	return 0;
}

/* --- comparing --- */

static int range_fail(struct fdry_content_check *c, const struct fdry_fingerprint_range *range,
		      const struct expected *want)
{
	const struct fdry_manifest *m = &c->img->m;
	int err;

	if (want->chunk == ZEROS)
		err = fdry_fail(FDRY_E_CORRUPT,
				"%llu bytes are zero in the image, and other bytes are on the "
				"device; load again, and test its memory if that repeats",
				(unsigned long long)range->len);
	else
		err = chunk_fail(c->img, c->reader, &m->chunks[want->chunk].oid,
				 m->fingerprints[want->chunk]);
	return fdry_content_fail(c->img, err, range->addr, range->len);
}

/* Find the cause for each chunk that differs, so that one repair restores them all. Returns the
 * error of the first. */
static int compare(struct fdry_content_check *c, const struct fdry_fingerprint *found)
{
	const struct fdry_fingerprint_range *range = (const void *)c->ranges.data;
	const struct expected *want = (const void *)c->expected.data;
	size_t i, n = ranges_count(c);
	struct fdry_saved_err first = { 0 };
	bool differs = false;
	int err;

	for (i = 0; i < n; i++) {
		if (fdry_fingerprint_eq(found[i], want[i].value))
			continue;
		err = range_fail(c, &range[i], &want[i]);
		if (!differs)
			fdry_saved_err_set(&first, err);
		differs = true;
	}
	return differs ? fdry_saved_err_restore(&first) : 0;
}

/* Copy at most FDRY_MF_CHUNK_MAX bytes back, and compute the fingerprints of their blocks. */
static int blocks_read(struct fdry_image *img, uint64_t addr, size_t n, uint8_t *bytes,
		       struct fdry_fingerprint *blocks)
{
	size_t i, block;
	int err = fdry_call(img->drv, cuMemcpyDtoHAsync_v2, bytes, addr, n, img->stream)
			  ?: fdry_stream_wait(img->drv, img->stream);

	if (err)
		return err;
	for (i = 0; i < n; i += block) {
		block = n - i < FDRY_FINGERPRINT_BLOCK ? n - i : FDRY_FINGERPRINT_BLOCK;
		*blocks++ = fdry_fingerprint_block(bytes + i, block);
	}
	return 0;
}

/* Copy a range back, and compute its fingerprint. */
static int range_read(struct fdry_image *img, const struct fdry_fingerprint_range *range,
		      uint8_t *bytes, struct fdry_fingerprint *ret)
{
	size_t n;
	struct fdry_fingerprint *blocks =
		malloc((fdry_fingerprint_blocks(range->len) + 1) * sizeof(*blocks));
	uint64_t at;
	int err = 0;

	if (!blocks)
		return fdry_nomem();
	for (at = 0; at < range->len; at += n) {
		n = range->len - at < FDRY_MF_CHUNK_MAX ? range->len - at : FDRY_MF_CHUNK_MAX;
		err = blocks_read(img, range->addr + at, n, bytes,
				  blocks + at / FDRY_FINGERPRINT_BLOCK);
		if (err)
			goto out_free;
	}
	*ret = fdry_fingerprint_join(range->len, blocks);
out_free:
	free(blocks);
	return err;
}

/* Compute the fingerprints on the processor. That is slower, because all memory is copied back. */
static int by_processor(struct fdry_image *img, const struct fdry_fingerprint_range *ranges,
			size_t n, struct fdry_fingerprint *ret)
{
	uint8_t *bytes = malloc(FDRY_MF_CHUNK_MAX);
	size_t i;
	int err = bytes ? 0 : fdry_nomem();

	for (i = 0; i < n && !err; i++)
		err = range_read(img, &ranges[i], bytes, &ret[i]);
	free(bytes);
	return err;
}

int fdry_image_fingerprints(struct fdry_image *img, const struct fdry_fingerprint_range *ranges,
			    size_t n, struct fdry_fingerprint *ret)
{
	int err = -FDRY_E_NODEVMEM;

	if (img->fingerprinter)
		err = fdry_shared_fingerprinter_run(img->fingerprinter, img->stream, ranges, n,
						    ret);
	return err == -FDRY_E_NODEVMEM ? by_processor(img, ranges, n, ret) : err;
}

/* --- the check of a load --- */

/* If the device has no memory for fingerprints, the processor computes all of them at the end. */
static int device_result(struct fdry_content_check *c, int err)
{
	if (err != -FDRY_E_NODEVMEM)
		return err;
	fdry_shared_fingerprinter_return(c->img->fingerprinter, c->f);
	c->f = NULL;
	return 0;
}

/* Take a fingerprinter, and give it the ranges. */
static int device_begin(struct fdry_content_check *c)
{
	const struct fdry_driver *drv = c->img->drv;
	int err = fdry_stream_shared(drv, FDRY_STREAM_CHECK, &c->stream) ?:
		  fdry_call(drv, cuEventCreate, &c->sent, CU_EVENT_DISABLE_TIMING) ?:
		  fdry_shared_fingerprinter_take(c->img->fingerprinter, &c->f);

	if (err)
		return err;
	err = fdry_fingerprinter_begin(c->f, c->stream, (const void *)c->ranges.data,
				       ranges_count(c));
	return device_result(c, err);
}

/* Compute the fingerprints of the ranges before @end, behind the work that the image's stream has
 * now. */
static int ranges_launch(struct fdry_content_check *c, size_t end)
{
	const struct fdry_driver *drv = c->img->drv;
	int err = fdry_call(drv, cuEventRecord, c->sent, c->img->stream) ?:
		  fdry_call(drv, cuStreamWaitEvent, c->stream, c->sent, 0) ?:
		  fdry_fingerprinter_launch(c->f, end);

	c->launched = end;
	return device_result(c, err);
}

int fdry_content_check_begin(struct fdry_image *img, struct fdry_reader *reader,
			     struct fdry_content_check **ret)
{
	struct fdry_content_check *c = NULL;
	int err;

	*ret = NULL;
	if (!img->m.n_fingerprints)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return fdry_nomem();
	c->img = img;
	c->reader = reader;
	err = ranges_make(c);
	if (!err && img->fingerprinter)
		err = device_begin(c);
	if (err)
		goto out_free;
	*ret = c;
	return 0;
out_free:
	fdry_content_check_free(c);
	return err;
}

int fdry_content_check_sent(struct fdry_content_check *c, uint32_t chunk)
{
	const struct fdry_fingerprint_range *range;
	const struct fdry_mf_chunk *last;
	uint64_t bytes = 0;
	size_t end;

	if (!c || !c->f)
		return 0;
	range = fdry_array(c->ranges, struct fdry_fingerprint_range);
	last = &c->img->m.chunks[chunk];
	for (end = c->launched; end < ranges_count(c) && range[end].addr <= last->addr; end++)
		bytes += range[end].len;
	return bytes < GROUP ? 0 : ranges_launch(c, end);
}

/* The fingerprints of all ranges. */
static int found_get(struct fdry_content_check *c, struct fdry_fingerprint *found)
{
	int err = c->f ? ranges_launch(c, ranges_count(c)) : 0;

	if (!err && c->f)
		err = device_result(c, fdry_fingerprinter_wait(c->f, found));
	if (err || c->f)
		return err;
	return by_processor(c->img, (const void *)c->ranges.data, ranges_count(c), found);
}

int fdry_content_check_end(struct fdry_content_check *c, uint64_t *ret)
{
	struct fdry_fingerprint *found;
	int err;

	*ret = 0;
	if (!c)
		return 0;
	found = calloc(ranges_count(c) + 1, sizeof(*found));
	if (!found)
		return fdry_nomem();
	err = found_get(c, found);
	if (err)
		goto out_free;
	err = compare(c, found);
	*ret = c->bytes;
out_free:
	free(found);
	return err;
}

void fdry_content_check_free(struct fdry_content_check *c)
{
	if (!c)
		return;
	if (c->f)
		fdry_shared_fingerprinter_return(c->img->fingerprinter, c->f);
	if (c->sent)
		(void)fdry_call_raw(c->img->drv, cuEventDestroy_v2, c->sent);
	fdry_buf_release(&c->ranges);
	fdry_buf_release(&c->expected);
	free(c);
}

int fdry_content_check(struct fdry_image *img, struct fdry_reader *reader, uint64_t *ret)
{
	struct fdry_content_check *c;
	int err = fdry_content_check_begin(img, reader, &c);

	*ret = 0;
	if (err)
		return err;
	err = fdry_content_check_end(c, ret);
	fdry_content_check_free(c);
	return err;
}

/* --- content that is on the device already --- */

static int marks_set(struct fdry_content_check *c, const struct fdry_fingerprint *found,
		     bool *whole)
{
	const struct fdry_fingerprint_range *range = (const void *)c->ranges.data;
	const struct expected *want = (const void *)c->expected.data;
	size_t i, n = c->expected.len / sizeof(*want);
	int err = 0;

	*whole = !c->partial;
	for (i = 0; i < n; i++) {
		bool same = fdry_fingerprint_eq(found[i], want[i].value);

		*whole &= same;
		if (want[i].chunk != ZEROS)
			c->img->in_place[want[i].chunk] = same;
		else if (!same)
			err = fdry_call(c->img->drv, cuMemsetD8Async, range[i].addr, 0,
					range[i].len, c->img->stream);
		if (err)
			return err;
	}
	return 0;
}

static int ranges_find(struct fdry_content_check *c, bool *whole)
{
	size_t n = c->expected.len / sizeof(struct expected);
	struct fdry_fingerprint *found = calloc(n + 1, sizeof(*found));
	int err;

	c->img->in_place = calloc(c->img->m.n_chunks + 1ul, 1);
	if (!found || !c->img->in_place) {
		err = fdry_nomem();
		goto out_free;
	}
	err = fdry_image_fingerprints(c->img, (const void *)c->ranges.data, n, found);
	if (err)
		goto out_free;
	err = marks_set(c, found, whole);
out_free:
	free(found);
	return err;
}

int fdry_content_find(struct fdry_image *img, bool *whole, uint64_t *ret)
{
	struct fdry_content_check c = { .img = img };
	int err;

	*ret = 0;
	*whole = false;
	if (!img->fingerprinter)
		return 0;
	err = ranges_make(&c);
	if (err)
		goto out_release;
	err = ranges_find(&c, whole);
	*ret = c.bytes;
out_release:
	fdry_buf_release(&c.ranges);
	fdry_buf_release(&c.expected);
	return err;
}

/* The name of the first tensor in a host chunk. */
static const char *host_tensor_of(const struct fdry_manifest *m, const struct fdry_mf_host_chunk *c)
{
	uint64_t at = fdry_host_place(c->segment, c->offset), end = at + c->size, least = end;
	const char *name = "";
	uint32_t i;

	for (i = 0; i < m->n_tensors; i++) {
		const struct fdry_mf_tensor *t = &m->tensors[i];

		if (t->flags & FDRY_TENSOR_HOST && t->addr < least &&
		    fdry_host_segment(t->addr) == c->segment) {
			least = t->addr > at ? t->addr : at;
			name = fdry_manifest_str(m, t->name);
		}
	}
	return name;
}

int fdry_chunk_map(struct fdry_image *img, struct fdry_reader *reader, const struct fdry_oid *oid,
		   struct fdry_content_sum *sum, struct fdry_span *bytes)
{
	uint64_t size = bytes->len;
	bool hashed = false;
	int err = fdry_damage_noted(img, oid, fdry_reader_map(reader, oid, bytes));

	if (err)
		return err;
	if (bytes->len != size)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "it has %zu bytes, but %llu in the manifest; seal the image anew",
				 bytes->len, (unsigned long long)size);
	err = fdry_damage_noted(img, oid,
				fdry_reader_verify(reader, oid, *bytes, img->verify, &hashed));
	if (err)
		return err;
	sum->bytes += size;
	sum->hashed += hashed ? size : 0;
	return 0;
}

int fdry_chunk_check(struct fdry_image *img, struct fdry_reader *reader,
		     const struct fdry_oid *oid, struct fdry_span bytes,
		     struct fdry_fingerprint want)
{
	if (fdry_fingerprint_eq(fdry_fingerprint_of(bytes.data, bytes.len), want))
		return 0;
	return chunk_fail(img, reader, oid, want);
}

int fdry_host_chunk_check(struct fdry_image *img, struct fdry_reader *reader, uint32_t i)
{
	const struct fdry_mf_host_chunk *chunk = &img->m.host_chunks[i];
	const uint8_t *segment = (const uint8_t *)(uintptr_t)img->hosts[chunk->segment].addr;
	struct fdry_span bytes = { segment + chunk->offset, (size_t)chunk->size };
	int err = 0;

	if (img->m.n_host_fingerprints)
		err = fdry_chunk_check(img, reader, &chunk->oid, bytes,
				       img->m.host_fingerprints[i]);
	return err ? fdry_fail_at(err, "content in host memory, tensor '%.100s'",
				  host_tensor_of(&img->m, chunk))
		   : 0;
}

/* --- the kernel --- */

int fdry_check_prepare(struct fdry_image *img)
{
	CUstream stream;
	int err;

	if (img->check_prepared || (!img->m.n_fingerprints && !img->m.n_external_prints))
		return 0;
	/* Now, and not beside the copies. */
	err = fdry_stream_shared(img->drv, FDRY_STREAM_CHECK, &stream);
	if (err)
		return err;
	err = fdry_shared_fingerprinter_get(img->drv, img->device, img->store,
					    &img->fingerprinter);
	img->check_prepared = !err || err == -FDRY_E_NOFUNC || err == -FDRY_E_NODEVMEM;
	if (!err || !img->check_prepared)
		return err;
	fdry_info("the processor checks content, which is slower: %s", fdry_last_error());
	return 0;
}

void fdry_check_end(struct fdry_image *img)
{
	fdry_shared_fingerprinter_put(img->fingerprinter);
	img->fingerprinter = NULL;
}
