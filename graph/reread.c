// SPDX-License-Identifier: Apache-2.0
/*
 * reread.c - reads an unchanged graph again without most driver calls; see fdry_graph_reread().
 *
 * The caller promises that nodes and edges are unchanged. The first reading recorded the other
 * facts that determine the graph object: the memory to which a word or a range points, and the
 * kernel of each handle. Each fact is determined again. If one differs, the graph is read from the
 * driver.
 *
 * Kernels are compared last, because interning them changes the set. If the graph is then read from
 * the driver, it interns the same kernels in the same order.
 */
#include <stdlib.h>

#include "graph/listing.h"
#include "graph/read.h"

/* Check the part of the promise that is cheap to check: the same nodes, and the same number of
 * edges. If there are more nodes than before, the driver lists one more. */
static int nodes_same(const struct fdry_driver *drv, CUgraph graph,
		      const struct fdry_graph_kept *kept, bool *ret)
{
	size_t had = kept->nodes.len / sizeof(CUgraphNode), n = had + 1, nedges = 0;
	CUgraphNode *nodes = calloc(n, sizeof(*nodes));
	int err;

	*ret = false;
	if (!nodes)
		return fdry_nomem();
	err = fdry_call(drv, cuGraphGetNodes, graph, nodes, &n);
	if (err || n != had || (n && memcmp(nodes, kept->nodes.data, kept->nodes.len)))
		goto out_free;
	err = fdry_call(drv, cuGraphGetEdges_v2, graph, NULL, NULL, NULL, &nedges);
	*ret = !err && nedges == kept->nedges;
out_free:
	free(nodes);
	return err;
}

static bool words_same(struct fdry_read *rd, const struct fdry_graph_kept *kept)
{
	const char *what = NULL;
	uint64_t key, word;
	bool variable;
	size_t at;

	for (at = 0; at < kept->words.len; at += sizeof(key)) {
		key = fdry_get64(kept->words.data + at);
		word = key & ~fdry_read_word_key(0, true);
		if (fdry_read_word(rd, word, key != word, &what, &variable) || what || variable)
			return false;
	}
	return true;
}

/* May each of them still point to a module variable? The caller finds out which one. */
static bool pointers_same(const struct fdry_read *rd, const struct fdry_graph_kept *kept)
{
	const struct fdry_graph_word *w = fdry_array(kept->pointers, struct fdry_graph_word);
	size_t i, n = fdry_array_count(kept->pointers, struct fdry_graph_word);
	enum fdry_where where = FDRY_WHERE_NOTHING;
	const char *what;

	for (i = 0; i < n; i++)
		if (rd->in->where(rd->in->where_arg, w[i].value, 0, &where, &what) ||
		    where != FDRY_WHERE_VARIABLE)
			return false;
	return true;
}

/* An array that exists still has its shape: see fdry_cuarray_fn. */
static bool array_same(struct fdry_read *rd, const struct fdry_read_range *r)
{
	struct fdry_cuarray array;
	uint32_t number;

	return !fdry_read_array(rd, (CUgraph)(uintptr_t)r->bytes, (CUarray)(uintptr_t)r->addr,
				&number, &array) &&
	       fdry_cuarray_place(number, 0) == r->place;
}

static bool range_same(struct fdry_read *rd, const struct fdry_read_range *r)
{
	uint64_t place = r->addr;

	if (r->type == CU_MEMORYTYPE_ARRAY)
		return array_same(rd, r);
	if (!r->type)
		return !fdry_read_range(rd, "it", r->addr, r->bytes);
	return !fdry_read_place(rd, "it", (CUmemorytype)r->type, r->bytes, &place) &&
	       place == r->place;
}

static bool ranges_same(struct fdry_read *rd, const struct fdry_graph_kept *kept)
{
	struct fdry_read_range r;
	size_t at;

	for (at = 0; at < kept->ranges.len; at += sizeof(r)) {
		memcpy(&r, kept->ranges.data + at, sizeof(r));
		if (!range_same(rd, &r))
			return false;
	}
	return true;
}

/* List the numbers of the kernels' fingerprints, in the kernels' order. */
static int prints_list(struct fdry_graph_reader *in, const struct fdry_buf *kernels,
		       struct fdry_buf *ret)
{
	struct fdry_read_handle h;
	uint32_t index = 0, number;
	size_t at;
	int err;

	for (at = 0; at < kernels->len; at += sizeof(h)) {
		memcpy(&h, kernels->data + at, sizeof(h));
		err = fdry_kernel_set_intern(in->kernels, h.kern, h.func, &index);
		if (err)
			return err;
		fdry_kernel_set_allow_shared(in->kernels, index, (uint32_t)h.shared);
		err = fdry_read_print(in, index, &number);
		if (err)
			return err;
		err = fdry_buf_put_u32(ret, number);
		if (err)
			return err;
	}
	return 0;
}

static bool kernels_same(struct fdry_graph_reader *in, const struct fdry_graph_kept *kept)
{
	struct fdry_buf now = { 0 };
	bool same = !prints_list(in, &kept->kernels, &now) &&
		    in->memo.prints_id == kept->prints_id && now.len == kept->prints.len &&
		    (!now.len || !memcmp(now.data, kept->prints.data, now.len));

	fdry_buf_release(&now);
	return same;
}

/* Does the kept object still hold? A failed look-up is no error here: reading the graph repeats it,
 * and that error names the node. */
static int kept_holds(struct fdry_graph_reader *in, CUgraph graph, struct fdry_graph_kept *kept,
		      bool *ret)
{
	struct fdry_read rd = { .in = in, .drv = in->drv };
	bool same = false;
	int err;

	*ret = false;
	if (!kept->object.len)
		return 0;
	err = nodes_same(in->drv, graph, kept, &same);
	if (err || !same)
		return err;
	if (!in->words_again || kept->ask) {
		same = words_same(&rd, kept);
		kept->ask = rd.freed;
	}
	*ret = same && pointers_same(&rd, kept) && ranges_same(&rd, kept) &&
	       kernels_same(in, kept);
	return 0;
}

/* Move the records of a table to @ret. */
static void records_move(struct fdry_intern *t, struct fdry_buf *ret)
{
	*ret = t->bytes;
	t->bytes = (struct fdry_buf){ 0 };
	fdry_intern_release(t);
}

static int kept_make(struct fdry_graph_reader *in, CUgraph graph, struct fdry_graph_kept *kept)
{
	struct fdry_read_record record = { 0 };
	struct fdry_read rd = { .in = in, .drv = in->drv, .graph = graph, .record = &record };
	struct fdry_listing l = { 0 };
	int err = fdry_listing_init(in->drv, graph, &l);

	if (err)
		goto out_release;
	in->memo.words.reading += 2; /* higher than any stamp, so that no word counts as listed */
	err = fdry_buf_put(&kept->nodes, l.nodes, l.nnodes * sizeof(*l.nodes));
	if (err)
		goto out_release;
	err = fdry_read_listing(&rd, &l, &kept->object);
	kept->nedges = l.nedges;
	kept->ask = rd.freed;
	kept->words = record.words;
	records_move(&record.ranges, &kept->ranges);
	records_move(&record.kernels, &kept->kernels);
	if (err)
		goto out_release;
	err = fdry_buf_put(&kept->events, rd.events.bytes.data, rd.events.bytes.len) ?:
	      fdry_buf_put(&kept->pointers, rd.pointers.data, rd.pointers.len);
	if (err)
		goto out_release;
	err = prints_list(in, &kept->kernels, &kept->prints);
	kept->prints_id = in->memo.prints_id;
out_release:
	fdry_read_release(&rd);
	fdry_listing_release(&l);
	return err;
}

int fdry_graph_reread(struct fdry_graph_reader *in, CUgraph graph, struct fdry_graph_kept *kept)
{
	bool holds;
	int err = kept_holds(in, graph, kept, &holds);

	if (err)
		goto out_release;
	if (holds)
		return 0;
	fdry_graph_kept_release(kept);
	err = kept_make(in, graph, kept);
	if (err)
		goto out_release;
	return 0;
out_release:
	fdry_graph_kept_release(kept);
	return err;
}

size_t fdry_graph_kept_bytes(const struct fdry_graph_kept *kept)
{
	return kept->object.cap + kept->nodes.cap + kept->words.cap + kept->ranges.cap +
	       kept->kernels.cap + kept->prints.cap + kept->events.cap +
	       kept->pointers.cap;
}

void fdry_graph_kept_release(struct fdry_graph_kept *kept)
{
	fdry_buf_release(&kept->object);
	fdry_buf_release(&kept->nodes);
	fdry_buf_release(&kept->words);
	fdry_buf_release(&kept->ranges);
	fdry_buf_release(&kept->kernels);
	fdry_buf_release(&kept->prints);
	fdry_buf_release(&kept->events);
	fdry_buf_release(&kept->pointers);
	kept->nedges = 0;
	kept->ask = false;
	kept->has_oid = false;
}
