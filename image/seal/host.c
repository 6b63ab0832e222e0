// SPDX-License-Identifier: Apache-2.0
/*
 * host.c - makes host segments of the host tensors, the host memory that a graph's copies use.
 *
 * Tensors that share bytes share a segment. Adjacent tensors do not, since their order in memory
 * differs between processes. Segments are numbered by the names of their tensors, so the same
 * tensors give the same segments in every process. A segment begins at a multiple of
 * FDRY_HOST_ALIGN, which keeps the alignment of its tensors.
 *
 * Constants and state have content, which is stored in chunks. The program writes inputs before
 * every replay, and the graphs write outputs: their bytes are not stored.
 */
#include <stdlib.h>
#include <string.h>

#include "image/capture/host.h"
#include "lib/safe_read.h"
#include "lib/search.h"
#include "image/seal/seal.h"

/* The alignment of a segment's first byte in the loading process. */
#define SEGMENT_ALIGN 256u

/* A host tensor or a host segment. */
struct span {
	uint64_t addr, end;
	const struct fdry_tensor *tensor; /* of a segment: the tensor with the first name */
	uint32_t index;                   /* of a segment: its number in the image */
};

static int addr_cmp(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return (x->end > y->end) - (x->end < y->end);
}

static int name_cmp(const void *a, const void *b)
{
	return strcmp(((const struct span *)a)->tensor->name,
		      ((const struct span *)b)->tensor->name);
}

static void spans_sort(struct fdry_buf *spans, int (*cmp)(const void *, const void *))
{
	if (spans->len)
		qsort(spans->data, fdry_array_count(*spans, struct span), sizeof(struct span), cmp);
}

/* List the host tensors, and check that each still has the memory that the program named. */
static int tensors_list(const struct fdry_seal *s, struct fdry_buf *ret)
{
	const struct fdry_capture_tensor *t =
		fdry_array(s->cap->tensors, struct fdry_capture_tensor);
	size_t i, n = fdry_array_count(s->cap->tensors, struct fdry_capture_tensor);
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		struct span add = { t[i].desc.addr, t[i].desc.addr + t[i].extent, &t[i].desc, 0 };

		if (!(t[i].desc.flags & FDRY_TENSOR_HOST))
			continue;
		err = fdry_capture_host_still(s->cap, &t[i]) ?:
		      fdry_buf_put(ret, &add, sizeof(add));
	}
	spans_sort(ret, addr_cmp);
	return err;
}

static int segments_join(const struct fdry_buf *tensors, struct fdry_buf *ret)
{
	const struct span *t = fdry_array(*tensors, struct span);
	struct span *last = NULL;
	size_t i;
	int err = 0;

	for (i = 0; i < fdry_array_count(*tensors, struct span) && !err; i++) {
		if (!last || t[i].addr >= last->end) {
			err = fdry_buf_put(ret, &t[i], sizeof(t[i]));
			last = fdry_array(*ret, struct span) + fdry_array_count(*ret, struct span) -
			       1;
			continue;
		}
		if (t[i].end > last->end)
			last->end = t[i].end;
		if (strcmp(t[i].tensor->name, last->tensor->name) < 0)
			last->tensor = t[i].tensor;
	}
	return err;
}

/* Return the beginning of a segment. */
static uint64_t segment_start(const struct span *s)
{
	return s->addr & ~(uint64_t)(FDRY_HOST_ALIGN - 1);
}

/* Add segments to the manifest in the order of names. Afterwards sort them by address again, for
 * searches. */
static int segments_put(struct fdry_seal *s)
{
	struct span *seg = fdry_array(s->hosts, struct span);
	size_t i, n = fdry_array_count(s->hosts, struct span);
	int err = 0;

	if (n > FDRY_HOST_SEGMENTS_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "the host tensors are in %zu places, more than the limit of %u; "
				 "use fewer allocations",
				 n, FDRY_HOST_SEGMENTS_MAX);
	spans_sort(&s->hosts, name_cmp);
	for (i = 0; i < n && !err; i++) {
		struct fdry_mf_host h = { .size = seg[i].end - segment_start(&seg[i]),
					  .align = SEGMENT_ALIGN };

		seg[i].index = (uint32_t)i;
		if (h.size > FDRY_HOST_SIZE_MAX)
			return fdry_fail(FDRY_E_LIMIT,
					 "host tensor '%s' and those that share bytes with it have "
					 "%llu bytes, more than the limit of %llu",
					 seg[i].tensor->name, (unsigned long long)h.size,
					 FDRY_HOST_SIZE_MAX);
		err = fdry_buf_put(&s->w.hosts, &h, sizeof(h));
	}
	spans_sort(&s->hosts, addr_cmp);
	return err;
}

int fdry_seal_hosts(struct fdry_seal *s)
{
	return tensors_list(s, &s->host_tensors) ?: segments_join(&s->host_tensors, &s->hosts) ?:
	       segments_put(s);
}

/* The segment that holds the byte at @addr, or NULL. */
static const struct span *segment_find(const struct fdry_seal *s, uint64_t addr)
{
	const struct span *seg = fdry_array(s->hosts, struct span);
	size_t lo =
		fdry_lower_bound(i, fdry_array_count(s->hosts, struct span), seg[i].end <= addr);
	return lo < fdry_array_count(s->hosts, struct span) && seg[lo].addr <= addr ? &seg[lo]
										    : NULL;
}

void fdry_seal_host(void *arg, uint64_t addr, uint64_t bytes, uint64_t *ret)
{
	const struct span *seg = segment_find(arg, addr);

	if (seg && bytes <= seg->end - addr)
		*ret = fdry_host_place(seg->index, addr - segment_start(seg));
}

int fdry_seal_host_places(struct fdry_seal *s)
{
	const struct span *seg;
	size_t i, n = fdry_array_count(s->hosts, struct span);
	int err = 0;

	spans_sort(&s->hosts, name_cmp);
	for (i = 0, seg = fdry_array(s->hosts, struct span); i < n && !err; i++, seg++) {
		struct fdry_mf_host_place p = { .segment = seg->index,
						.addr = segment_start(seg) };

		if (fdry_seal_pinned_holds(s, seg->addr))
			err = fdry_buf_put(&s->w.host_places, &p, sizeof(p));
	}
	spans_sort(&s->hosts, addr_cmp);
	return err;
}

int fdry_seal_host_externals(const struct fdry_seal *s, uint64_t addr, uint64_t end,
			     int (*fn)(void *arg, uint64_t addr, uint64_t end), void *arg)
{
	const struct span *t = fdry_array(s->host_tensors, struct span);
	size_t i;
	int err = 0;

	for (i = 0; i < fdry_array_count(s->host_tensors, struct span) && !err; i++, t++)
		if (t->tensor->flags & FDRY_TENSOR_EXTERNAL && t->addr < end && t->end > addr)
			err = fn(arg, t->addr, t->end);
	return err;
}

int fdry_seal_hosts_still(const struct fdry_seal *s)
{
	struct fdry_buf again = { 0 };
	int err = tensors_list(s, &again);

	fdry_buf_release(&again);
	return err;
}

/* --- content --- */

static bool kept(const struct fdry_tensor *t)
{
	return (t->use == FDRY_USE_CONST || t->use == FDRY_USE_STATE) &&
	       !(t->flags & FDRY_TENSOR_EXTERNAL);
}

/* Are the bytes from @at content? Moves *end back to the next address at which a tensor begins or
 * ends: the answer holds up to there. As in device memory, bytes of an external tensor are not
 * content.
 */
static bool content_at(const struct fdry_seal *s, uint64_t at, uint64_t *end)
{
	const struct span *t = fdry_array(s->host_tensors, struct span);
	bool content = false, external = false;
	size_t i;

	for (i = 0; i < fdry_array_count(s->host_tensors, struct span); i++) {
		if (t[i].addr > at && t[i].addr < *end)
			*end = t[i].addr;
		if (t[i].addr > at || t[i].end <= at)
			continue;
		if (t[i].end < *end)
			*end = t[i].end;
		content |= kept(t[i].tensor);
		external |= (t[i].tensor->flags & FDRY_TENSOR_EXTERNAL) != 0;
	}
	return content && !external;
}

/* The segment whose content is being stored. */
struct storing {
	struct fdry_seal *s;
	const struct span *seg;
	struct fdry_safe_read reader;
	uint8_t *chunk; /* FDRY_MF_CHUNK_MAX bytes */
	struct fdry_buf next; /* of struct fdry_sealed_host: the chunks so far */
};

/* Is this what the last seal stored as the chunk of this number? Then it has its id, and is not
 * hashed, if the store has the chunk. */
static int chunk_recall(const struct storing *st, const struct fdry_sealed_host *now,
			struct fdry_oid *oid, bool *ret)
{
	const struct fdry_buf *hosts = &st->s->cap->sealed.hosts;
	const struct fdry_sealed_host *before = fdry_array(*hosts, struct fdry_sealed_host);
	size_t i = fdry_array_count(st->next, struct fdry_sealed_host);

	*ret = false;
	if (i >= fdry_array_count(*hosts, struct fdry_sealed_host) ||
	    before[i].addr != now->addr || before[i].size != now->size ||
	    !fdry_fingerprint_eq(before[i].print, now->print))
		return 0;
	*oid = before[i].oid;
	return fdry_writer_has_object(st->s->writer, FDRY_OBJECT_CHUNK, now->size, oid, ret);
}

static int chunk_put(struct storing *st, struct fdry_mf_host_chunk *c)
{
	struct fdry_seal *s = st->s;
	struct fdry_sealed_host now = { .addr = segment_start(st->seg) + c->offset,
					.size = c->size };
	bool known = false;
	int err = fdry_safe_read(&st->reader, now.addr, st->chunk, (size_t)c->size) ?:
		  fdry_pointers_look(s, now.addr, st->chunk, (size_t)c->size);

	if (err == -FDRY_E_RANGE)
		return fdry_fail(FDRY_E_STATE,
				 "the host memory of tensor '%s' was freed while the seal ran; "
				 "keep it allocated",
				 st->seg->tensor->name);
	if (err)
		return err;
	now.print = fdry_fingerprint_of(st->chunk, (size_t)c->size);
	err = chunk_recall(st, &now, &c->oid, &known);
	if (!err && !known)
		err = fdry_writer_add_object(s->writer, FDRY_OBJECT_CHUNK, st->chunk,
					     (size_t)c->size, NULL, 0, &c->oid);
	if (err)
		return err;
	s->report.content_bytes += c->size;
	s->report.unchanged_bytes += known ? c->size : 0;
	now.oid = c->oid;
	err = fdry_buf_put(&st->next, &now, sizeof(now)) ?:
	      fdry_buf_put(&s->w.host_fingerprints, &now.print, sizeof(now.print));
	return err ? err : fdry_buf_put(&s->w.host_chunks, c, sizeof(*c));
}

/* Store the content [@at, @end). Chunks end at multiples of FDRY_MF_CHUNK_MAX in the segment. */
static int range_put(struct storing *st, uint64_t at, uint64_t end)
{
	uint64_t start = segment_start(st->seg), left;
	int err = 0;

	while (at < end && !err) {
		struct fdry_mf_host_chunk c = { .segment = st->seg->index, .offset = at - start };

		left = FDRY_MF_CHUNK_MAX - c.offset % FDRY_MF_CHUNK_MAX;
		c.size = left < end - at ? left : end - at;
		err = chunk_put(st, &c);
		at += c.size;
	}
	return err;
}

static int segment_content(struct storing *st)
{
	uint64_t at, end, from = st->seg->addr;
	int err = 0;

	for (at = from; at < st->seg->end && !err; at = end) {
		end = st->seg->end;
		if (content_at(st->s, at, &end))
			continue;
		err = range_put(st, from, at);
		from = end;
	}
	return err ? err : range_put(st, from, st->seg->end);
}

static int segments_content(struct storing *st)
{
	struct fdry_seal *s = st->s;
	size_t i;
	int err = 0;

	spans_sort(&s->hosts, name_cmp);
	for (i = 0; i < fdry_array_count(s->hosts, struct span) && !err; i++) {
		st->seg = &fdry_array(s->hosts, struct span)[i];
		err = segment_content(st);
	}
	spans_sort(&s->hosts, addr_cmp);
	return err;
}

/* The next seal of this capture begins with what this one found. */
static void hosts_replace(struct storing *st)
{
	struct fdry_buf *hosts = &st->s->cap->sealed.hosts;

	fdry_buf_release(hosts);
	*hosts = st->next;
	st->next = (struct fdry_buf){ 0 };
}

int fdry_seal_host_content(struct fdry_seal *s)
{
	struct storing st = { .s = s };
	int err;

	if (!s->hosts.len)
		return 0;
	err = fdry_safe_read_init(&st.reader);
	if (err)
		return err;
	st.chunk = malloc(FDRY_MF_CHUNK_MAX);
	err = st.chunk ? segments_content(&st) : fdry_nomem();
	if (!err)
		hosts_replace(&st);
	fdry_buf_release(&st.next);
	free(st.chunk);
	fdry_safe_read_release(&st.reader);
	return err;
}
