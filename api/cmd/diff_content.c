// SPDX-License-Identifier: Apache-2.0
/*
 * diff_content.c - compares the memory content of two images, byte by byte.
 *
 * Chunks with equal ids are equal. Other chunks are read and their bytes compared. A byte that no
 * chunk of an image covers counts as zero.
 */
#include <stdlib.h>
#include <string.h>

#include "api/cmd/diff.h"
#include "image/array_pieces.h"
#include "lib/search.h"

/* A chunk of device, host or pinned memory or of an array; its bytes are read when they are
 * needed. */
struct piece {
	uint64_t at, size;
	const struct fdry_oid *oid;
	struct fdry_buf bytes;
};

enum memory { DEVICE, HOST, PINNED, ARRAY };

/* The chunks of one side, in order. */
struct pieces {
	const struct fdry_manifest *m;
	enum memory memory;
	uint32_t next;
	struct piece now; /* size 0: none is left */
};

/* Host memory is ordered by segment, arrays by number, then by offset. */
#define HOST_AT(segment, offset) ((uint64_t)(segment) << 42 | (offset))

static struct piece array_piece(const struct fdry_manifest *m, const struct fdry_mf_array_piece *p)
{
	struct fdry_cuarray a = fdry_cuarray_of(&m->arrays[p->array]);
	struct fdry_cuarray_piece piece = fdry_cuarray_piece(&a, p->piece);

	return (struct piece){ .at = HOST_AT(p->array, (piece.z * a.rows + piece.y) * a.row),
			       .size = piece.bytes,
			       .oid = &p->oid };
}

static void piece_next(struct pieces *p)
{
	const uint32_t counts[] = { [DEVICE] = p->m->n_chunks,
				    [HOST] = p->m->n_host_chunks,
				    [PINNED] = p->m->n_pinned_chunks,
				    [ARRAY] = p->m->n_array_pieces };
	const struct fdry_mf_chunk *c = &p->m->chunks[p->next];
	const struct fdry_mf_host_chunk *h = &p->m->host_chunks[p->next];
	const struct fdry_mf_pinned_chunk *f = &p->m->pinned_chunks[p->next];

	fdry_buf_release(&p->now.bytes);
	p->now = (struct piece){ 0 };
	if (p->next >= counts[p->memory])
		return;
	p->next++;
	if (p->memory == DEVICE)
		p->now = (struct piece){ .at = c->addr, .size = c->size, .oid = &c->oid };
	else if (p->memory == HOST)
		p->now = (struct piece){ .at = HOST_AT(h->segment, h->offset),
					 .size = h->size,
					 .oid = &h->oid };
	else if (p->memory == ARRAY)
		p->now = array_piece(p->m, &p->m->array_pieces[p->next - 1]);
	else
		p->now = (struct piece){ .at = f->addr, .size = f->size, .oid = &f->oid };
}

static int piece_read(struct diff *d, struct piece *p)
{
	int err = p->bytes.len ? 0 : fdry_reader_copy(d->reader, p->oid, &p->bytes);

	if (err)
		return err;
	if (p->bytes.len != p->size)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "a chunk has %zu bytes, but its manifest says %llu", p->bytes.len,
				 (unsigned long long)p->size);
	return 0;
}

/* --- tensors --- */

/* A tensor's place in device memory, and the highest end of this and all earlier tensors. */
struct place {
	uint64_t at, end, reach;
	const char *name;
};

struct places {
	struct place *p;
	size_t n;
};

static int place_order(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : strcmp(x->name, y->name);
}

static int places_make(const struct fdry_manifest *m, struct places *ret)
{
	struct places l = { .p = calloc((size_t)m->n_tensors + 1, sizeof(*l.p)) };
	uint64_t elements;
	uint32_t i, k;
	size_t n;

	if (!l.p)
		return fdry_nomem();
	for (i = 0; i < m->n_tensors; i++) {
		const struct fdry_mf_tensor *t = &m->tensors[i];

		if (t->flags & FDRY_TENSOR_HOST)
			continue;
		for (elements = 1, k = 0; k < t->rank; k++)
			elements += t->shape[k]
					    ? (uint64_t)(t->shape[k] - 1) * (uint64_t)t->stride[k]
					    : 0;
		l.p[l.n++] = (struct place){ .at = t->addr,
					     .end = t->addr + elements * cmd_dtype_size(t->dtype),
					     .name = fdry_manifest_str(m, t->name) };
	}
	qsort(l.p, l.n, sizeof(*l.p), place_order);
	for (n = 0; n < l.n; n++)
		l.p[n].reach = n && l.p[n - 1].reach > l.p[n].end ? l.p[n - 1].reach : l.p[n].end;
	*ret = l;
	return 0;
}

/* Returns the last tensor that begins at or before @at and contains @at; NULL: none does. */
static const char *tensor_at(const struct places *l, uint64_t at)
{
	size_t next = fdry_lower_bound(i, l->n, l->p[i].at <= at);

	for (; next && l->p[next - 1].reach > at; next--)
		if (l->p[next - 1].end > at)
			return l->p[next - 1].name;
	return NULL;
}

/* --- comparing --- */

/* A run of differing bytes: @at is the first, @count their number so far. */
struct run {
	uint64_t at, end, count;
};

static void run_report(struct diff *d, const struct run *r, enum memory memory,
		       const struct places *places)
{
	const char *tensor = memory == DEVICE ? tensor_at(places, r->at) : NULL;
	char name[64], text[64];

	if (!r->count)
		return;
	if (memory == HOST || memory == ARRAY)
		snprintf(name, sizeof(name), "%s %llu+%#llx", memory == HOST ? "host" : "array",
			 (unsigned long long)(r->at >> 42),
			 (unsigned long long)(r->at & (HOST_AT(1, 0) - 1)));
	else
		snprintf(name, sizeof(name), "%s%#llx", memory == PINNED ? "pinned " : "",
			 (unsigned long long)r->at);
	snprintf(text, sizeof(text), "%llu of %llu bytes differ", (unsigned long long)r->count,
		 (unsigned long long)(r->end - r->at));
	diff_begin(d, DIFF_CHANGED, name, "", text);
	diff_number(d, "bytes", r->count);
	if (tensor)
		diff_more(d, "in tensor %s", tensor);
	diff_end(d);
}

/* Returns the byte at @at, 0 if the piece does not cover it. */
static uint8_t byte_at(const struct piece *p, uint64_t at)
{
	return at - p->at < p->bytes.len ? p->bytes.data[at - p->at] : 0;
}

/* Compare [at, end) of both sides; each side has one piece for all of it, or none. */
static void range_compare(const struct piece *a, const struct piece *b, uint64_t at, uint64_t end,
			  struct run *r)
{
	uint64_t i;

	for (i = at; i < end; i++) {
		if (byte_at(a, i) == byte_at(b, i))
			continue;
		if (!r->count)
			r->at = i;
		r->count++;
		r->end = i + 1;
	}
}

static bool same_piece(const struct piece *a, const struct piece *b)
{
	return a->size && a->size == b->size && a->at == b->at && fdry_oid_eq(a->oid, b->oid);
}

/* Find the next range: it ends at the next piece border of either side. */
static uint64_t range_end(const struct piece *a, const struct piece *b, uint64_t at)
{
	uint64_t end = UINT64_MAX;

	if (a->size)
		end = a->at > at ? a->at : a->at + a->size;
	if (b->size && (b->at > at ? b->at : b->at + b->size) < end)
		end = b->at > at ? b->at : b->at + b->size;
	return end;
}

static int ranges_compare(struct diff *d, struct pieces p[2], uint64_t *at, struct run *r)
{
	struct piece *a = &p[0].now, *b = &p[1].now;
	uint64_t end = range_end(a, b, *at);
	int err = 0, k;

	if (!same_piece(a, b)) {
		for (k = 0; k < 2 && !err; k++)
			if (p[k].now.size && p[k].now.at <= *at)
				err = piece_read(d, &p[k].now);
		if (err)
			return err;
		range_compare(a, b, *at, end, r);
	}
	for (k = 0; k < 2; k++)
		if (p[k].now.size && end == p[k].now.at + p[k].now.size)
			piece_next(&p[k]);
	*at = end;
	return 0;
}

/* Adjacent pieces share one report. */
static int compare(struct diff *d, enum memory memory, const struct places *places)
{
	struct pieces p[2] = { { .m = &d->im[0].m, .memory = memory },
			       { .m = &d->im[1].m, .memory = memory } };
	struct run r = { 0 };
	uint64_t at = 0, next;
	int err = 0;

	piece_next(&p[0]);
	piece_next(&p[1]);
	while (!err && (p[0].now.size || p[1].now.size)) {
		next = !p[1].now.size || (p[0].now.size && p[0].now.at < p[1].now.at) ? p[0].now.at
										      : p[1].now.at;
		if (next > at || same_piece(&p[0].now, &p[1].now)) {
			run_report(d, &r, memory, places);
			r = (struct run){ 0 };
			at = next > at ? next : at;
		}
		err = ranges_compare(d, p, &at, &r);
	}
	if (!err)
		run_report(d, &r, memory, places);
	fdry_buf_release(&p[0].now.bytes);
	fdry_buf_release(&p[1].now.bytes);
	return err;
}

int diff_content(struct diff *d)
{
	const struct diff_list nothing = { .part = "content" };
	struct places places = { NULL, 0 };
	int err = diff_list(d, &nothing) ?: places_make(&d->im[0].m, &places) ?:
		  compare(d, DEVICE, &places) ?: compare(d, HOST, &places) ?:
		  compare(d, PINNED, &places) ?: compare(d, ARRAY, &places);

	free(places.p);
	return err;
}
