// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_graph.c - untrusted graph objects: as bytes, as text, and a good one with bytes replaced. An
 * object that opens must be walkable to its end, convert to text, and convert back to the same
 * bytes. The first byte of the input selects how the rest is used.
 */
#include <stdlib.h>

#include "graph/graph.h"
#include "tests/replace/graph_kernels.h"

static const char base_text[] =
	"foundry-graph 1\n"
	"node 0 kernel 0 grid 132 1 1 block 256 1 1 shared 49152 args 0000500000000200 "
	"0000500000200000 3f80000000000010\n"
	"node 1 kernel 0 grid 264 2 9 block 32 4 2 shared 0 attr cooperative 1 attr priority -5 "
	"args 0000500000000400 0000500000200200 0000000000000011\n"
	"node 2 kernel 1 grid 8 1 1 block 128 1 1 shared 9 attr access_policy_window "
	"0x500000000000 1048576 0x3f000000 1 2 args\n"
	"node 3 memset dst 0x500000002000 pitch 1024 value 0xdeadbeef element 4 width 128 height "
	"3\n"
	"node 4 memcpy src 0x500000010000 src_pitch 256 src_height 16 dst 0x500000300000 dst_pitch "
	"512 dst_height 8 width 200 height 8 depth 5\n"
	"node 5 await a 7 1 1000 tokens.done 8 0 0\n"
	"node 6 record 0\n"
	"node 7 wait 0\n"
	"node 8 memcpy src host 1 0x40 src_pitch 64 src_height 1 dst host 0 0x0 dst_pitch 64 "
	"dst_height 1 width 64 height 1 depth 1\n"
	"node 9 kernel 2 grid 1 1 1 block 1 1 1 shared 0 args 0000000000000007 0000500000000200 "
	"3039\n"
	"node 10 child\n"
	"node 11 host tokens.ready\n"
	"node 12 child\n"
	"node 13 memop write32 0 0x500000000200 0xff wait64 2 0x500000000208 0x1 barrier 1\n"
	"node 14 conditional switch 2 handle 1 of 0 default 1\n"
	"graph 10\n"
	"node 15 signal a 9 0 0\n"
	"node 16 child\n"
	"graph 12\n"
	"graph 14\n"
	"node 17 conditional if 1 handle 2 of 3\n"
	"graph 14\n"
	"graph 16\n"
	"node 18 memop\n"
	"graph 17\n"
	"node 19 empty\n"
	"edge 0 1 from_port 1 to_port 0 type 1\n"
	"edge 0 3\n"
	"edge 1 2 from_port 2 to_port 0 type 0\n"
	"edge 4 5\n"
	"edge 6 7\n"
	"edge 7 8\n"
	"edge 8 9\n"
	"edge 10 11\n"
	"edge 15 16\n"
	"section 0x80000007 0123456789abcdef 01\n";

static const struct fdry_host_segment test_hosts[] = { { 0x1000, 4096 }, { 0x2000, 100 } };
static const struct fdry_cuarray test_arrays[] = {
	{ .element = 4, .row = 400, .rows = 1, .slices = 1 },
	{ .element = 8, .row = 256, .rows = 32, .slices = 16 },
};

static void must(int ok)
{
	if (!ok)
		abort();
}

static void walk(const struct fdry_graph_view *v)
{
	struct fdry_graph_edges edges = { .v = v };
	struct fdry_graph_cursor c;
	struct fdry_graph_edge e;
	uint32_t count = 0;
	struct fdry_span bytes;
	struct fdry_node n;
	uint64_t sum = 0;
	size_t i;

	must(!fdry_graph_cursor_init(v, &c));
	while (fdry_graph_next(&c, &n)) {
		bytes = (struct fdry_span){ 0 };
		if (n.kind == FDRY_NODE_KERNEL)
			bytes = n.kernel.args;
		else if (n.kind == FDRY_NODE_HOST)
			bytes = n.host;
		else if (n.kind == FDRY_NODE_MEMOP)
			bytes = n.memops;
		else if (n.kind == FDRY_NODE_SIGNAL || n.kind == FDRY_NODE_AWAIT)
			bytes = n.semaphores;
		for (i = 0; i < bytes.len; i++)
			sum += bytes.data[i];
	}
	must(c.node == v->header.nodes && c.args == v->header.arg_bytes &&
	     c.patch == v->header.patches && sum < UINT64_MAX);
	fdry_graph_cursor_release(&c);
	for (; fdry_graph_edge_next(&edges, &e); count++)
		must(e.from < e.to && e.to < v->header.nodes && e.index <= v->header.edge_data);
	must(count == fdry_graph_edge_count(v));
}

/* An object from another writer may have an entry twice in tables, or store arguments in another
 * way. Then the round trip gives other bytes with the same meaning, which a further round trip does
 * not change. */
static void same_text(const struct fdry_buf *text, const struct fdry_buf *object)
{
	struct fdry_graph_view v;
	struct fdry_buf second = { 0 }, third = { 0 };

	must(!fdry_graph_view_init((struct fdry_span){ object->data, object->len }, &v));
	must(!fdry_graph_to_text(&v, test_kernels, TEST_KERNELS, &second));
	must(!strcmp(strstr((char *)text->data, " bytes\n"),
		     strstr((char *)second.data, " bytes\n")));
	must(!fdry_graph_from_text((struct fdry_span){ second.data, second.len }, &third));
	must(third.len == object->len && !memcmp(third.data, object->data, third.len));
	fdry_buf_release(&second);
	fdry_buf_release(&third);
}

static void try_object(struct fdry_span object)
{
	struct fdry_graph_view v;
	struct fdry_buf text = { 0 }, again = { 0 };

	if (fdry_graph_view_init(object, &v))
		return;
	walk(&v);
	if (fdry_graph_view_check_kernels(&v, test_kernels, TEST_KERNELS) ||
	    fdry_graph_view_check_hosts(&v, test_hosts, 2) ||
	    fdry_graph_view_check_arrays(&v, test_arrays, 2))
		must(*fdry_last_error() != 0);
	must(!fdry_graph_to_text(&v, test_kernels, TEST_KERNELS, &text));
	must(!fdry_graph_from_text((struct fdry_span){ text.data, text.len }, &again));
	same_text(&text, &again);
	fdry_buf_release(&text);
	fdry_buf_release(&again);
}

static void try_text(struct fdry_span text)
{
	struct fdry_buf object = { 0 };

	if (fdry_graph_from_text(text, &object))
		return;
	try_object((struct fdry_span){ object.data, object.len });
	fdry_buf_release(&object);
}

/* Each three bytes are a patch: its offset and its value. */
static void try_patches(struct fdry_span patches)
{
	struct fdry_buf object = { 0 };
	size_t i;

	must(!fdry_graph_from_text(
		(struct fdry_span){ (const uint8_t *)base_text, sizeof(base_text) - 1 }, &object));
	for (i = 0; i + 3 <= patches.len; i += 3)
		object.data[fdry_get16(patches.data + i) % object.len] = patches.data[i + 2];
	try_object((struct fdry_span){ object.data, object.len });
	fdry_buf_release(&object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fdry_span rest = { data + 1, len - 1 };

	if (!len)
		return 0;
	if (data[0] % 3 == 0)
		try_object(rest);
	else if (data[0] % 3 == 1)
		try_text(rest);
	else
		try_patches(rest);
	return 0;
}
