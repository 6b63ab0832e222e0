// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the format of graph objects: golden bytes, every field damaged in turn, limits. */
#include "tests/lib/graph_damage.h"

#include "graph/intern.h"
#include "tests/lib/test.h"
#include "tests/replace/graph_kernels.h"

/* --- golden --- */

START_TEST(golden_hashes)
{
	const char *name = golden_names[_i];
	struct fdry_buf object = golden_object(name), sum = golden_file(name, ".sha256");
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid oid;

	ck_assert_int_eq(fdry_oid_of(object.data, object.len, &oid), 0);
	fdry_oid_hex(&oid, hex);
	ck_assert_uint_ge(sum.len, 64);
	sum.data[64] = 0;
	ck_assert_str_eq(hex, (char *)sum.data);
	fdry_buf_release(&object);
	fdry_buf_release(&sum);
}
END_TEST

/* Bytes of a file of hexadecimal digits and comments. */
static struct fdry_buf unhex(const struct fdry_buf *text)
{
	struct fdry_buf b = { 0 };
	char pair[3] = { 0 };
	size_t i, n = 0;
	uint8_t byte;

	for (i = 0; i < text->len; i++) {
		if (text->data[i] == '#')
			while (i < text->len && text->data[i] != '\n')
				i++;
		else if (text->data[i] > ' ')
			pair[n++] = (char)text->data[i];
		if (n < 2)
			continue;
		byte = (uint8_t)strtoul(pair, NULL, 16);
		ck_assert_int_eq(fdry_buf_put(&b, &byte, 1), 0);
		n = 0;
	}
	return b;
}

START_TEST(written_by_hand)
{
	struct fdry_buf hex = golden_file("by-hand", ".hex"), hand = unhex(&hex),
			ours = golden_object("by-hand");
	struct fdry_graph_view v;

	ck_assert_msg(!fdry_graph_view_init(span_of(&hand), &v), "%s", fdry_last_error());
	ck_assert_uint_eq(hand.len, ours.len);
	ck_assert_mem_eq(hand.data, ours.data, hand.len);
	fdry_buf_release(&hex);
	fdry_buf_release(&hand);
	fdry_buf_release(&ours);
}
END_TEST

/* --- the view --- */

START_TEST(view_says_what_is_there)
{
	struct fdry_buf o = golden_object("by-hand");
	struct fdry_graph_cursor c;
	struct fdry_graph_view v;
	struct fdry_node n;

	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), &v), 0);
	ck_assert_int_eq(fdry_graph_cursor_init(&v, &c), 0);
	ck_assert(fdry_graph_next(&c, &n));
	ck_assert_uint_eq(n.kind, FDRY_NODE_KERNEL);
	ck_assert_uint_eq(n.kernel.kernel, 2);
	ck_assert_uint_eq(n.kernel.launch.grid[0], 3);
	ck_assert_uint_eq(n.kernel.launch.grid[1], 2);
	ck_assert_uint_eq(n.kernel.launch.block[0], 64);
	ck_assert_uint_eq(n.kernel.launch.shared, 1024);
	ck_assert_uint_eq(n.kernel.attrs.len, 0);
	ck_assert_uint_eq(n.kernel.args.len, 18);
	ck_assert_uint_eq(fdry_get64(n.kernel.args.data + 8), 0x500000000200);
	ck_assert(fdry_graph_next(&c, &n));
	ck_assert_uint_eq(n.kind, FDRY_NODE_MEMSET);
	ck_assert_uint_eq(n.memset.value, 0xabcd);
	ck_assert(!fdry_graph_next(&c, &n));
	ck_assert(!fdry_graph_next(&c, &n));
	fdry_graph_cursor_release(&c);
	fdry_buf_release(&o);
}
END_TEST

START_TEST(view_at_any_alignment)
{
	struct fdry_buf o = golden_object("all-kinds"), text = text_of(&o), again = { 0 };
	uint8_t *copy = malloc(o.len + 1);
	struct fdry_graph_view v;

	memcpy(copy + 1, o.data, o.len);
	ck_assert_int_eq(fdry_graph_view_init((struct fdry_span){ copy + 1, o.len }, &v), 0);
	ck_assert_int_eq(fdry_graph_to_text(&v, NULL, 0, &again), 0);
	ck_assert_str_eq((char *)text.data, (char *)again.data);
	free(copy);
	fdry_buf_release(&o);
	fdry_buf_release(&text);
	fdry_buf_release(&again);
}
END_TEST

START_TEST(view_untouched_on_failure)
{
	struct fdry_graph_view v, before;
	uint8_t zeros[256] = { 0 };

	memset(&v, 0x5a, sizeof(v));
	before = v;
	ck_assert_int_eq(fdry_graph_view_init((struct fdry_span){ zeros, sizeof(zeros) }, &v),
			 -FDRY_E_BADIMAGE);
	ck_assert_mem_eq(&v, &before, sizeof(v));
}
END_TEST

START_TEST(every_cut_is_refused)
{
	struct fdry_buf o = golden_object(golden_names[_i]);
	struct fdry_graph_view v;
	uint8_t *exact;
	size_t n;
	int err;

	for (n = 0; n < o.len; n++) {
		exact = malloc(n + !n);
		memcpy(exact, o.data, n);
		err = fdry_graph_view_init((struct fdry_span){ exact, n }, &v);
		ck_assert_msg(err == -FDRY_E_BADIMAGE, "%zu bytes of %zu: %d", n, o.len, err);
		free(exact);
	}
	fdry_buf_release(&o);
}
END_TEST

/* Arguments can be stored in several ways, and the library writes one of them: the nodes and edges
 * must be equal. */
static void same_meaning(const struct fdry_buf *a, const struct fdry_buf *b)
{
	struct fdry_buf x = text_of(a), y = text_of(b);

	char *p = strstr((char *)x.data, " bytes\n"), *q = strstr((char *)y.data, " bytes\n");

	ck_assert_str_eq(p, q);
	fdry_buf_release(&x);
	fdry_buf_release(&y);
}

/* A changed byte is refused, or the object has another meaning and another text. */
START_TEST(every_byte_matters)
{
	static const uint8_t masks[] = { 0x01, 0x02, 0x40, 0x80, 0xff };
	struct fdry_buf o = golden_object(golden_names[_i]), text = text_of(&o), other, again;
	struct fdry_graph_view v;
	size_t i, m;

	for (i = 0; i < o.len; i++)
		for (m = 0; m < sizeof(masks); m++) {
			o.data[i] ^= masks[m];
			if (!fdry_graph_view_init(span_of(&o), &v)) {
				other = text_of(&o);
				ck_assert_msg(strcmp((char *)other.data, (char *)text.data) != 0,
					      "byte %zu ^ 0x%x changes nothing", i, masks[m]);
				again = object_of(span_of(&other));
				same_meaning(&again, &o);
				fdry_buf_release(&other);
				fdry_buf_release(&again);
			}
			o.data[i] ^= masks[m];
		}
	fdry_buf_release(&o);
	fdry_buf_release(&text);
}
END_TEST

/* --- one field damaged at a time --- */


/* In "all-kinds". */
static const struct damage damages[] = {
	{ HEADER(magic), 0x1a46524759524447, FDRY_E_BADIMAGE,
	  "does not begin like a graph object" },
	{ HEADER(version), 1, FDRY_E_VERSION, "format version 1 and this version reads 2" },
	{ HEADER(version), 0, FDRY_E_VERSION, "format version 0" },
	{ HEADER(incompat), 1u << 31, FDRY_E_VERSION, "needs features 0x80000000" },
	{ HEADER(sections), 65, FDRY_E_LIMIT, "sections is 65, more than the limit of 64" },
	{ HEADER(sections), 20, FDRY_E_BADIMAGE, "section 1 begins at 632, not at 608" },
	{ HEADER(size), 0, FDRY_E_BADIMAGE, "its header says 0" },
	{ HEADER(size), 1ull << 33, FDRY_E_LIMIT, "size is 8589934592" },
	{ HEADER(nodes), 1u << 23, FDRY_E_LIMIT, "nodes is 8388608, more than the limit" },
	{ HEADER(nodes), 13, FDRY_E_BADIMAGE,
	  "section 1 (node kinds) has 14 bytes, and 13 entries need 13" },
	{ HEADER(kernel_nodes), UINT32_MAX, FDRY_E_LIMIT, "kernel_nodes is 4294967295" },
	{ HEADER(kernel_nodes), 4, FDRY_E_BADIMAGE,
	  "section 20 (configuration of kernel nodes) has 10 bytes, and 4 entries need 8" },
	{ HEADER(memset_nodes), 3, FDRY_E_BADIMAGE, "section 10 (memset nodes)" },
	{ HEADER(memcpy_nodes), 1, FDRY_E_BADIMAGE, "section 11 (memcpy nodes)" },
	{ HEADER(event_nodes), 5, FDRY_E_BADIMAGE, "section 12 (event of event nodes)" },
	{ HEADER(events), 1, FDRY_E_BADIMAGE, "entry 1 of section 12 (event of event nodes) is 1" },
	{ HEADER(events), 3, FDRY_E_BADIMAGE,
	  "section 12 (event of event nodes) uses 2 of 3 records" },
	{ HEADER(events), 40000, FDRY_E_LIMIT, "events is 40000" },
	{ HEADER(kernels), 2, FDRY_E_BADIMAGE, "section 2 (kernels)" },
	{ HEADER(kernels), 1u << 17, FDRY_E_LIMIT, "kernels is 131072" },
	{ HEADER(launches), 9, FDRY_E_BADIMAGE, "section 3 (launch configurations)" },
	{ HEADER(attr_sets), 0, FDRY_E_BADIMAGE, "section 4 (attribute set ends)" },
	{ HEADER(attrs), 8, FDRY_E_BADIMAGE, "section 5 (attributes)" },
	{ HEADER(attrs), 1u << 21, FDRY_E_LIMIT, "attrs is 2097152" },
	{ HEADER(edges), 1, FDRY_E_BADIMAGE, "section 13 (edge sources)" },
	{ HEADER(edges), 1u << 25, FDRY_E_LIMIT, "edges is 33554432" },
	{ HEADER(edge_data), 1, FDRY_E_BADIMAGE, "section 16 (edge data)" },
	{ HEADER(edge_data), 256, FDRY_E_LIMIT, "edge_data is 256" },
	{ HEADER(arg_bytes), 8, FDRY_E_BADIMAGE,
	  "the arguments of kernel node 0 end at 24 of 8 bytes" },
	{ HEADER(arg_bytes), 88, FDRY_E_BADIMAGE,
	  "8 bytes of arguments and 0 patches belong to no node" },
	{ HEADER(arg_bytes), 1ull << 32, FDRY_E_LIMIT, "arg_bytes is 4294967296" },
	{ HEADER(configs), 4, FDRY_E_BADIMAGE, "section 17 (kernel of configurations)" },
	{ HEADER(configs), 1u << 17, FDRY_E_LIMIT, "configs is 131072" },
	{ HEADER(patches), 11, FDRY_E_BADIMAGE, "section 23 (places of patches)" },
	{ HEADER(patches), 1u << 30, FDRY_E_LIMIT, "patches is 1073741824" },
	{ HEADER(breaks), 9, FDRY_E_BADIMAGE, "section 25 (breaks of the chain)" },
	{ HEADER(breaks), 1u << 23, FDRY_E_LIMIT, "breaks is 8388608" },
	{ HEADER(semaphore_bytes), 1, FDRY_E_BADIMAGE, "section 33 (semaphores of nodes) is" },
	{ 0, sizeof(struct fdry_graph_header) - 1, 1, 2, FDRY_E_LIMIT,
	  "semaphore_bytes is 33554432" },
	{ ENTRY(KERNEL, id), 1, FDRY_E_BADIMAGE, "section 1 does not stand in ascending order" },
	{ ENTRY(KIND, id), 0, FDRY_E_BADIMAGE, "section 0 does not stand in ascending order" },
	{ ENTRY(BREAK, id), 63, FDRY_E_VERSION, "section 63 is not understood" },
	{ ENTRY(MEMSET, id), 9, FDRY_E_VERSION, "section 9 is not understood" },
	{ ENTRY(BREAK, id), 0x80000000, FDRY_E_BADIMAGE,
	  "section 25 (breaks of the chain) is missing" },
	{ ENTRY(LAUNCH, reserved), 1, FDRY_E_BADIMAGE, "reserved bytes of section 3" },
	{ ENTRY(LAUNCH, offset), 4, FDRY_E_BADIMAGE, "section 3 begins at 4, not at" },
	{ ENTRY(LAUNCH, offset), UINT64_MAX, FDRY_E_BADIMAGE,
	  "section 3 begins at 18446744073709551615" },
	{ ENTRY(LAUNCH, length), 0, FDRY_E_BADIMAGE, "section 3 has a length of 0" },
	{ ENTRY(LAUNCH, length), UINT64_MAX, FDRY_E_BADIMAGE,
	  "section 3 has a length of 18446744073709551615" },
	{ ENTRY(BREAK, length), 48, FDRY_E_BADIMAGE, "section 25 ends beyond the object" },
	{ ENTRY(LAUNCH, length), 108, FDRY_E_BADIMAGE,
	  "section 3 (launch configurations) has 108 bytes" },
	{ ENTRY(LAUNCH, length), 113, FDRY_E_BADIMAGE, "padding after section 3 is not zero" },
	{ IN(KIND, 14, 1), 1, FDRY_E_BADIMAGE, "padding after section 1 is not zero" },
	{ IN(KIND, 3, 1), 0, FDRY_E_VERSION, "node 3 is of kind 0" },
	{ IN(KIND, 3, 1), 99, FDRY_E_VERSION, "node 3 is of kind 99" },
	{ IN(KIND, 3, 1), 4, FDRY_E_BADIMAGE, "node kinds do not add up" },
	{ IN(KIND, 8, 1), 6, FDRY_E_BADIMAGE, "event 0 is not both recorded and waited for" },
	{ IN(KIND, 11, 1), 5, FDRY_E_BADIMAGE, "event 1 is not both recorded and waited for" },
	{ IN(KERNEL, 4, 4), 32765, FDRY_E_LIMIT,
	  "takes 32765 bytes of arguments, more than the limit" },
	{ IN(KERNEL, 4, 4), 32, FDRY_E_BADIMAGE,
	  "the arguments of kernel node 3 end at 96 of 80 bytes" },
	{ IN(KERNEL, 20, 4), 0, FDRY_E_BADIMAGE,
	  "patch 11, at word 0 of the 0 bytes of kernel node 4" },
	{ IN(LAUNCH, 8, 4), 0, FDRY_E_BADIMAGE, "launch configuration 0 has a size of 0" },
	{ IN(LAUNCH, 28 + 12, 4), 0, FDRY_E_BADIMAGE, "launch configuration 1 has a size of 0" },
	{ IN(ATTR_SET, 0, 4), 0, FDRY_E_BADIMAGE, "attribute set 0 ends at attribute 0" },
	{ IN(ATTR_SET, 0, 4), 8, FDRY_E_BADIMAGE, "attribute access_policy_window is not in" },
	{ IN(ATTR_SET, 4, 4), 2, FDRY_E_BADIMAGE,
	  "attribute set 1 ends at attribute 2 of 9 and begins at 2" },
	{ IN(ATTR_SET, 8, 4), 10, FDRY_E_BADIMAGE, "attribute set 2 ends at attribute 10 of 9" },
	{ IN(ATTR, 0, 4), 13, FDRY_E_VERSION, "attribute set 0: attribute 13 is unknown" },
	{ IN(ATTR, 0, 4), 0, FDRY_E_VERSION, "attribute 0 is unknown" },
	{ IN(ATTR, 0, 4), 15, FDRY_E_VERSION, "attribute 15 is unknown" },
	{ IN(ATTR, 0, 4), UINT32_MAX, FDRY_E_VERSION, "attribute 4294967295 is unknown" },
	{ IN(ATTR, 0, 4), 8, FDRY_E_BADIMAGE, "attribute priority is not in ascending order" },
	{ IN(ATTR, 4, 4), 8, FDRY_E_BADIMAGE, "attribute cooperative has 8 bytes, not 4" },
	{ IN(ATTR, 8, 4), 2, FDRY_E_BADIMAGE,
	  "attribute cooperative is not in canonical encoding" },
	{ IN(ATTR, 8 + 63, 1), 1, FDRY_E_BADIMAGE,
	  "attribute cooperative is not in canonical encoding" },
	{ IN(ATTR, 2 * 72 + 8 + 8, 8), 0, FDRY_E_BADIMAGE,
	  "attribute access_policy_window is not in canonical encoding" },
	{ IN(CONFIG_KERNEL, 0, 4), 1, FDRY_E_BADIMAGE,
	  "entry 0 of section 17 (kernel of configurations) is 1, and at most 0" },
	{ IN(CONFIG_KERNEL, 4, 4), UINT32_MAX, FDRY_E_BADIMAGE, "entry 1 of section 17" },
	{ IN(CONFIG_KERNEL, 16, 4), 0, FDRY_E_BADIMAGE,
	  "section 17 (kernel of configurations) uses 2 of 3" },
	{ IN(CONFIG_LAUNCH, 0, 4), 1, FDRY_E_BADIMAGE, "entry 0 of section 18" },
	{ IN(CONFIG_LAUNCH, 16, 4), 4, FDRY_E_BADIMAGE,
	  "entry 4 of section 18 (launch of configurations) is 4, and at most 3" },
	{ IN(CONFIG_ATTRS, 0, 4), 2, FDRY_E_BADIMAGE,
	  "entry 0 of section 19 (attribute set of configurations) is 2, and at most 1" },
	{ IN(CONFIG_ATTRS, 16, 4), 4, FDRY_E_BADIMAGE, "entry 4 of section 19" },
	{ IN(NODE_CONFIG, 0, 2), 1, FDRY_E_BADIMAGE,
	  "entry 0 of section 20 (configuration of kernel nodes) is 1, and at most 0" },
	{ IN(NODE_CONFIG, 2, 2), UINT16_MAX, FDRY_E_BADIMAGE, "entry 1 of section 20" },
	{ IN(NODE_CONFIG, 8, 2), 0, FDRY_E_BADIMAGE,
	  "section 20 (configuration of kernel nodes) uses 4 of 5" },
	{ IN(NODE_LIKE, 0, 2), 1, FDRY_E_BADIMAGE,
	  "kernel node 0 refers to the node 1 before it, which has another kernel" },
	{ IN(NODE_LIKE, 2, 2), UINT16_MAX, FDRY_E_BADIMAGE,
	  "kernel node 1 refers to the node 65535 before it" },
	{ IN(NODE_LIKE, 6, 2), 1, FDRY_E_BADIMAGE,
	  "kernel node 3 refers to the node 1 before it, which has another kernel" },
	{ IN(NODE_PATCHES, 8, 2), 2, FDRY_E_BADIMAGE,
	  "the arguments of kernel node 4 end at 80 of 80 bytes, its patches at 13 of 12" },
	{ IN(NODE_PATCHES, 8, 2), 0, FDRY_E_BADIMAGE,
	  "0 bytes of arguments and 1 patches belong to no node" },
	{ IN(PATCH_AT, 2, 2), 0, FDRY_E_BADIMAGE,
	  "patch 1, at word 0 of the 24 bytes of kernel node 0, is out of order or outside" },
	{ IN(PATCH_AT, 10, 2), 6, FDRY_E_BADIMAGE,
	  "patch 5, at word 6 of the 24 bytes of kernel node 0" },
	{ IN(PATCH_AT, 22, 2), 1, FDRY_E_BADIMAGE,
	  "patch 11, at word 1 of the 1 bytes of kernel node 4" },
	{ IN(PATCH, 45, 1), 1, FDRY_E_BADIMAGE,
	  "padding after the arguments of kernel node 4 is not zero" },
	{ IN(PATCH, 47, 1), 128, FDRY_E_BADIMAGE,
	  "padding after the arguments of kernel node 4 is not zero" },
	{ IN(BREAK, 0, 4), 13, FDRY_E_BADIMAGE,
	  "break 0, after node 13 of 14, is out of order or outside" },
	{ IN(BREAK, 36, 4), UINT32_MAX, FDRY_E_BADIMAGE, "break 9, after node 4294967295 of 14" },
	{ IN(BREAK, 4, 4), 0, FDRY_E_BADIMAGE, "break 1, after node 0 of 14, is out of order" },
	{ IN(MEMSET, 8, 8), 1, FDRY_E_BADIMAGE, "memset node 0 has a pitch and only one row" },
	{ IN(MEMSET, 16, 8), 0, FDRY_E_BADIMAGE, "memset node 0 has a size of 0" },
	{ IN(MEMSET, 16, 8), UINT64_MAX - 100, FDRY_E_BADIMAGE,
	  "memset node 0 has a size that does not fit" },
	{ IN(MEMSET, 24, 8), 0, FDRY_E_BADIMAGE, "memset node 0 has a size of 0" },
	{ IN(MEMSET, 32, 4), 256, FDRY_E_BADIMAGE,
	  "memset node 0 has a value larger than its elements" },
	{ IN(MEMSET, 36, 4), 3, FDRY_E_BADIMAGE, "memset node 0 has elements of neither" },
	{ IN(MEMSET, 40 + 8, 8), 511, FDRY_E_BADIMAGE,
	  "memset node 1 has a size that does not fit its pitch" },
	{ IN(MEMSET, 40 + 24, 8), 1ull << 60, FDRY_E_BADIMAGE,
	  "memset node 1 has a size that does not fit" },
	{ IN(MEMCPY, 8, 8), 4097, FDRY_E_BADIMAGE, "memcpy node 0 has a pitch" },
	{ IN(MEMCPY, 16, 8), 2, FDRY_E_BADIMAGE, "memcpy node 0 has a slice height" },
	{ IN(MEMCPY, 32, 8), 4097, FDRY_E_BADIMAGE, "memcpy node 0 has a pitch" },
	{ IN(MEMCPY, 40, 8), 2, FDRY_E_BADIMAGE, "memcpy node 0 has a slice height" },
	{ IN(MEMCPY, 48, 8), 0, FDRY_E_BADIMAGE, "memcpy node 0 has a size of 0" },
	{ IN(MEMCPY, 56, 8), 0, FDRY_E_BADIMAGE, "memcpy node 0 has a size of 0" },
	{ IN(MEMCPY, 64, 8), 0, FDRY_E_BADIMAGE, "memcpy node 0 has a size of 0" },
	{ IN(MEMCPY, 72 + 8, 8), 199, FDRY_E_BADIMAGE, "memcpy node 1 has a pitch" },
	{ IN(MEMCPY, 72 + 40, 8), 7, FDRY_E_BADIMAGE, "memcpy node 1 has a slice height" },
	{ IN(MEMCPY, 72 + 64, 8), 1ull << 62, FDRY_E_BADIMAGE,
	  "memcpy node 1 has a size that does not fit" },
	{ IN(EVENT, 0, 4), 1, FDRY_E_BADIMAGE, "entry 0 of section 12" },
	{ IN(EVENT, 12, 4), 0, FDRY_E_BADIMAGE, "event 1 is not both recorded and waited for" },
	{ IN(EDGE_FROM, 0, 4), 1, FDRY_E_BADIMAGE, "edge 0 leads from node 1 to node 1" },
	{ IN(EDGE_FROM, 4, 4), UINT32_MAX, FDRY_E_BADIMAGE, "edge 1 leads from node 4294967295" },
	{ IN(EDGE_TO, 48, 4), 14, FDRY_E_BADIMAGE, "edge 12 leads from node 12 to node 14 of 14" },
	{ IN(EDGE_TO, 4, 4), 1, FDRY_E_BADIMAGE,
	  "edge 1 leads from node 0 to the next without data, which is not stored" },
	{ IN(EDGE_FROM, 20, 4), 2, FDRY_E_BADIMAGE, "edge 5 is not in ascending order" },
	{ IN(EDGE_INDEX, 0, 1), 2, FDRY_E_BADIMAGE,
	  "entry 0 of section 15 (edge data of edges) is 2, and at most 1" },
	{ IN(EDGE_INDEX, 12, 1), 3, FDRY_E_BADIMAGE, "entry 12 of section 15" },
	{ IN(EDGE_DATA, 0, 1), 3, FDRY_E_VERSION, "edge data 1 has an outgoing port" },
	{ IN(EDGE_DATA, 1, 1), 1, FDRY_E_VERSION, "edge data 1 has an incoming port" },
	{ IN(EDGE_DATA, 2, 1), 2, FDRY_E_VERSION, "edge data 1 has a type" },
	{ IN(EDGE_DATA, 7, 1), 1, FDRY_E_VERSION, "edge data 1 has reserved bytes" },
	{ IN(EDGE_DATA, 0, 3), 0, FDRY_E_BADIMAGE, "edge data 1 is the default" },
};

START_TEST(damage_is_named)
{
	graph_damage_try("all-kinds", &damages[_i]);
}
END_TEST

/* --- host memory --- */

static struct fdry_buf host_object(void)
{
	return object_of_string("foundry-graph 1\nnode 0 memcpy src host 1 0x10 src_pitch 16 "
				"src_height 4 dst 0x500000000000 dst_pitch 8 "
				"dst_height 2 width 8 height 2 depth 3\n");
}

/* In the object above; 0: the header. */
static const struct damage host_damages[] = {
	{ HEADER(incompat), 0, FDRY_E_BADIMAGE,
	  "its copies use host memory, but its header says otherwise" },
	{ IN(MEMCPY, 0, 8), 0x500000000000, FDRY_E_BADIMAGE,
	  "its copies do not use host memory, but its header says" },
	{ IN(MEMCPY, 0, 8), FDRY_HOST_PLACE | 1ull << 60, FDRY_E_BADIMAGE,
	  "memcpy node 0 names host segment 1048576, more than" },
	{ IN(MEMCPY, 24, 8), FDRY_CUARRAY_PLACE - 1, FDRY_E_BADIMAGE,
	  "a size that does not fit the address space" },
	{ IN(MEMCPY, 24, 8), FDRY_HOST_PLACE | 3ull << 60, FDRY_E_BADIMAGE,
	  "memcpy node 0 names host segment 3145728" },
	{ IN(MEMCPY, 0, 8), FDRY_HOST_PLACE | (FDRY_HOST_SIZE_MAX - 151), FDRY_E_BADIMAGE,
	  "a size that does not fit the address" },
	{ IN(MEMCPY, 24, 8), FDRY_HOST_PLACE - 39, FDRY_E_BADIMAGE,
	  "a size that does not fit the address space" },
};

START_TEST(host_damage_is_named)
{
	const struct damage *d = &host_damages[_i];
	struct fdry_buf o = host_object();
	struct fdry_graph_view v;

	memcpy(o.data + d->at + (d->section ? section_of(&o, d->section) : 0), &d->value, d->size);
	graph_damage_fails(d, fdry_graph_view_init(span_of(&o), &v));
	fdry_buf_release(&o);
}
END_TEST

/* (2 * 4 + 1) * 16 + 8 = 152 bytes from offset 16 of segment 1. */
START_TEST(host_segments)
{
	struct fdry_host_segment hosts[] = { { 0, 1 }, { 0, 168 } };
	struct fdry_buf o = host_object(), plain = golden_object("all-kinds");
	struct fdry_graph_view v;

	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), &v), 0);
	ck_assert_uint_eq(v.header.incompat, FDRY_GRAPH_INCOMPAT_HOST);
	ck_assert_int_eq(fdry_graph_view_check_hosts(&v, hosts, 2), 0);
	ck_assert_int_eq(fdry_graph_view_check_hosts(&v, hosts, 1), -FDRY_E_BADIMAGE);
	ck_assert_str_eq(fdry_last_error(),
			 "memcpy node 0 copies beyond the image's 1 host segments");
	hosts[1].size = 167;
	ck_assert_int_eq(fdry_graph_view_check_hosts(&v, hosts, 2), -FDRY_E_BADIMAGE);
	hosts[1].size = 15;
	ck_assert_int_eq(fdry_graph_view_check_hosts(&v, hosts, 2), -FDRY_E_BADIMAGE);
	fdry_buf_release(&o);
	o = object_of_string("foundry-graph 1\nnode 0 memcpy src 0x500000000000 src_pitch 8 "
			     "src_height 1 dst host 0 0x0 dst_pitch 8 "
			     "dst_height 1 width 8 height 1 depth 1\n");
	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), &v), 0);
	ck_assert_int_eq(fdry_graph_view_check_hosts(&v, hosts, 1), -FDRY_E_BADIMAGE);
	ck_assert_int_eq(fdry_graph_view_init(span_of(&plain), &v), 0);
	ck_assert_uint_eq(v.header.incompat, 0);
	ck_assert_int_eq(fdry_graph_view_check_hosts(&v, NULL, 0), 0);
	fdry_buf_release(&o);
	fdry_buf_release(&plain);
}
END_TEST

/* --- arrays --- */

static struct fdry_buf array_object(void)
{
	return object_of_string("foundry-graph 1\nnode 0 memcpy src array 1 0x10 src_y 2 src_z 1 "
				"dst 0x500000000000 dst_pitch 8 dst_height 2 width 8 height 2 "
				"depth 3\n");
}

static const struct damage array_damages[] = {
	{ HEADER(incompat), 0, FDRY_E_BADIMAGE,
	  "its copies use arrays, but its header says otherwise" },
	{ HEADER(incompat), FDRY_GRAPH_INCOMPAT_ARRAYS | FDRY_GRAPH_INCOMPAT_HOST, FDRY_E_BADIMAGE,
	  "its copies do not use host memory, but its header says otherwise" },
	{ IN(MEMCPY, 0, 8), 0x500000000000, FDRY_E_BADIMAGE, "a pitch that does not fit" },
	{ IN(MEMCPY, 0, 8), FDRY_CUARRAY_PLACE | 1ull << 56, FDRY_E_BADIMAGE,
	  "memcpy node 0 names array 65536, more than the limit of 65536" },
	{ IN(MEMCPY, 0, 8), UINT64_MAX, FDRY_E_BADIMAGE, "a size that does not fit an array" },
	{ IN(MEMCPY, 0, 8), FDRY_CUARRAY_PLACE | (FDRY_CUARRAY_X_MAX - 7), FDRY_E_BADIMAGE,
	  "a size that does not fit an array" },
	{ IN(MEMCPY, 8, 8), UINT32_MAX - 1, FDRY_E_BADIMAGE, "a size that does not fit an array" },
	{ IN(MEMCPY, 8, 8), UINT64_MAX, FDRY_E_BADIMAGE, "a size that does not fit an array" },
	{ IN(MEMCPY, 16, 8), UINT32_MAX - 2, FDRY_E_BADIMAGE, "a size that does not fit an array" },
	{ IN(MEMCPY, 56, 8), 0, FDRY_E_BADIMAGE, "memcpy node 0 has a size of 0" },
	{ IN(MEMCPY, 24, 8), FDRY_HOST_PLACE, FDRY_E_BADIMAGE,
	  "its copies use host memory, but its header says otherwise" },
};

START_TEST(array_damage_is_named)
{
	const struct damage *d = &array_damages[_i];
	struct fdry_buf o = array_object();
	struct fdry_graph_view v;

	memcpy(o.data + d->at + (d->section ? section_of(&o, d->section) : 0), &d->value, d->size);
	graph_damage_fails(d, fdry_graph_view_init(span_of(&o), &v));
	fdry_buf_release(&o);
}
END_TEST

/* 8 bytes from byte 16 of rows 2 and 3 in slices 1 to 3 of array 1. */
START_TEST(arrays)
{
	const struct fdry_cuarray good = { .element = 8, .row = 24, .rows = 4, .slices = 4 };
	struct fdry_cuarray all[] = { { .element = 1, .row = 1, .rows = 1, .slices = 1 }, good };
	struct fdry_buf o = array_object(), plain = golden_object("all-kinds");
	struct fdry_graph_view v;

	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), &v), 0);
	ck_assert_uint_eq(v.header.incompat, FDRY_GRAPH_INCOMPAT_ARRAYS);
	ok(fdry_graph_view_check_arrays(&v, all, 2));
	ok(fdry_graph_view_check_hosts(&v, NULL, 0));
	fails(BADIMAGE, "memcpy node 0 copies beyond the image's 1 arrays",
	      fdry_graph_view_check_arrays(&v, all, 1));
#define TOO_SMALL(change) \
	all[1] = good; \
	all[1].change; \
	ck_assert_int_eq(fdry_graph_view_check_arrays(&v, all, 2), -FDRY_E_BADIMAGE)
	TOO_SMALL(row = 23);
	TOO_SMALL(rows = 3);
	TOO_SMALL(rows = 1);
	TOO_SMALL(slices = 3);
	TOO_SMALL(element = 16);
	TOO_SMALL(element = 12);
#undef TOO_SMALL
	ck_assert_int_eq(fdry_graph_view_init(span_of(&plain), &v), 0);
	ok(fdry_graph_view_check_arrays(&v, NULL, 0));
	fdry_buf_release(&o);
	fdry_buf_release(&plain);
}
END_TEST

START_TEST(bytes_behind_the_end)
{
	struct fdry_buf o = golden_object("by-hand");
	struct fdry_graph_view v;

	ck_assert_int_eq(fdry_buf_put_u64(&o, 0), 0);
	fdry_set64(o.data + offsetof(struct fdry_graph_header, size), o.len);
	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), &v), -FDRY_E_BADIMAGE);
	ck_assert(strstr(fdry_last_error(), "8 bytes follow its last section"));
	fdry_buf_release(&o);
}
END_TEST

START_TEST(attributes_in_no_set)
{
	struct fdry_buf o =
		object_of_string("foundry-graph 1\nnode 0 kernel 0 grid 1 1 1 block 1 1 1 shared 0 "
				 "attr cooperative 1 attr priority 2 args\n");
	struct fdry_graph_view v;

	fdry_set32(o.data + section_of(&o, FDRY_GSEC_ATTR_SET), 1);
	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), &v), -FDRY_E_BADIMAGE);
	ck_assert(strstr(fdry_last_error(), "1 attributes are in no attribute set"));
	fdry_buf_release(&o);
}
END_TEST

/* --- the kernel table --- */

START_TEST(kernel_table)
{
	static const struct fdry_param beyond[] = { { 0, 8 }, { 16, 3 } };
	struct fdry_buf o = golden_object("by-hand");
	struct fdry_kernel table[TEST_KERNELS];
	struct fdry_graph_view v;

	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), &v), 0);
	memcpy(table, test_kernels, sizeof(table));
	ck_assert_int_eq(fdry_graph_view_check_kernels(&v, table, TEST_KERNELS), 0);
	ck_assert_int_eq(fdry_graph_view_check_kernels(&v, table, 2), -FDRY_E_BADIMAGE);
	ck_assert_str_eq(fdry_last_error(), "the graph uses kernel 2, and the image has 2");
	table[2].param_bytes = 24;
	ck_assert_int_eq(fdry_graph_view_check_kernels(&v, table, TEST_KERNELS), -FDRY_E_BADIMAGE);
	ck_assert_str_eq(fdry_last_error(),
			 "kernel 2 (gap) takes 24 bytes of arguments, and the graph has 18");
	table[2].param_bytes = 18;
	table[2].params = beyond;
	table[2].nparams = 2;
	ck_assert_int_eq(fdry_graph_view_check_kernels(&v, table, TEST_KERNELS), -FDRY_E_BADIMAGE);
	ck_assert_str_eq(fdry_last_error(),
			 "parameter 1 of kernel 2 (gap) lies outside of its 18 bytes");
	fdry_buf_release(&o);
}
END_TEST

/* --- the encoder --- */

START_TEST(encoder_refuses_bad_edges)
{
	struct fdry_edge edges[] = { { .from = 0, .to = 1 }, { .from = 0, .to = 1 } };
	struct fdry_node node = { .kind = FDRY_NODE_EMPTY };
	struct fdry_graph_enc enc = { 0 };
	struct fdry_buf out = { 0 };

	ck_assert_int_eq(fdry_graph_enc_node(&enc, &node), 0);
	ck_assert_int_eq(fdry_graph_enc_node(&enc, &node), 0);
	ck_assert_int_eq(fdry_graph_enc_edges(&enc, edges, 2), 0);
	ck_assert_int_eq(fdry_graph_enc_finish(&enc, &out), -FDRY_E_BADIMAGE);
	ck_assert(strstr(fdry_last_error(),
			 "edge 0 leads from node 0 to the next without data, which is not stored"));
	ck_assert_ptr_null(out.data);
	ck_assert_int_eq(fdry_graph_enc_edges(&enc, edges, FDRY_GRAPH_EDGES_MAX + 1),
			 -FDRY_E_LIMIT);
	fdry_graph_enc_release(&enc);
}
END_TEST

START_TEST(encoder_limits_edge_data)
{
	struct fdry_edge edges[257];
	struct fdry_graph_enc enc = { 0 };
	unsigned int i;

	memset(edges, 0, sizeof(edges));
	for (i = 0; i < 257; i++) {
		edges[i].to = i + 1;
		edges[i].data.from_port = (unsigned char)i;
		edges[i].data.type = i > 255;
	}
	ck_assert_int_eq(fdry_graph_enc_edges(&enc, edges, 257), -FDRY_E_LIMIT);
	fdry_graph_enc_release(&enc);
}
END_TEST

START_TEST(encoder_limits_events)
{
	struct fdry_node node = { .kind = FDRY_NODE_RECORD, .event = FDRY_GRAPH_EVENTS_MAX };
	struct fdry_graph_enc enc = { 0 };

	ck_assert_int_eq(fdry_graph_enc_node(&enc, &node), -FDRY_E_LIMIT);
	fdry_graph_enc_release(&enc);
}
END_TEST

START_TEST(encoder_limits_nodes)
{
	struct fdry_node node = { .kind = FDRY_NODE_EMPTY };
	struct fdry_graph_enc enc = { 0 };

	ck_assert_int_eq(fdry_buf_grow(&enc.column[FDRY_GSEC_KIND], FDRY_GRAPH_NODES_MAX - 1, NULL),
			 0);
	ck_assert_int_eq(fdry_graph_enc_node(&enc, &node), 0);
	ck_assert_int_eq(fdry_graph_enc_node(&enc, &node), -FDRY_E_LIMIT);
	fdry_graph_enc_release(&enc);
}
END_TEST

START_TEST(encoder_accepts_only_optional_sections)
{
	struct fdry_graph_enc enc = { 0 };
	struct fdry_span x = { (const uint8_t *)"x", 1 };

	ck_assert_int_eq(fdry_graph_enc_optional(&enc, 17, x), -FDRY_E_INVAL);
	x.len = 0;
	ck_assert_int_eq(fdry_graph_enc_optional(&enc, FDRY_SECTION_OPTIONAL, x), -FDRY_E_INVAL);
	fdry_graph_enc_release(&enc);
}
END_TEST

/* --- order --- */

START_TEST(order_is_creation_where_that_is_topological)
{
	struct fdry_edge edges[] = { { .from = 0, .to = 2 },
				     { .from = 1, .to = 3 },
				     { .from = 2, .to = 3 } };
	uint32_t order[5], i;

	ck_assert_int_eq(fdry_edges_order(edges, 3, 5, order), 0);
	for (i = 0; i < 5; i++)
		ck_assert_uint_eq(order[i], i);
}
END_TEST

START_TEST(order_follows_edges)
{
	/* 4 -> 0, 3 -> 1, 1 -> 0; 2 alone */
	struct fdry_edge edges[] = { { .from = 4, .to = 0 },
				     { .from = 3, .to = 1 },
				     { .from = 1, .to = 0 } };
	static const uint32_t expect[] = { 2, 3, 1, 4, 0 };
	uint32_t order[5];

	ck_assert_int_eq(fdry_edges_order(edges, 3, 5, order), 0);
	ck_assert_mem_eq(order, expect, sizeof(expect));
}
END_TEST

/* A chain gives the same object, in any order of creating its nodes. */
START_TEST(order_of_a_shuffled_chain)
{
	enum { N = 1000 };
	static uint32_t chain[N], order[N];
	static struct fdry_edge edges[N - 1];
	uint32_t i, k, t, seed = 12345;

	for (i = 0; i < N; i++)
		chain[i] = i;
	for (i = N - 1; i; i--) {
		seed = seed * 1664525 + 1013904223;
		k = (seed >> 8) % (i + 1);
		t = chain[i], chain[i] = chain[k], chain[k] = t;
	}
	for (i = 0; i + 1 < N; i++)
		edges[(i * 7) % (N - 1)] =
			(struct fdry_edge){ .from = chain[i], .to = chain[i + 1] };
	ck_assert_int_eq(fdry_edges_order(edges, N - 1, N, order), 0);
	ck_assert_mem_eq(order, chain, sizeof(chain));
}
END_TEST

START_TEST(order_refuses_circles)
{
	struct fdry_edge edges[] = { { .from = 0, .to = 1 },
				     { .from = 1, .to = 2 },
				     { .from = 2, .to = 1 } };
	uint32_t order[3];

	ck_assert_int_eq(fdry_edges_order(edges, 3, 3, order), -FDRY_E_REFUSED);
	ck_assert(
		strstr(fdry_last_error(), "2 nodes of the graph depend on each other in a cycle"));
}
END_TEST

/* --- interning --- */

START_TEST(intern_by_first_use)
{
	struct fdry_intern t = { 0 };
	uint32_t i, index = 99;
	uint64_t v;
	bool fresh;

	for (i = 0; i < 20000; i++) {
		v = (uint64_t)i * 0x100000001b3u;
		ck_assert_int_eq(fdry_intern(&t, &v, i & 1 ? 8 : 7, &index, &fresh), 0);
		ck_assert_uint_eq(index, i);
		ck_assert(fresh);
	}
	for (i = 0; i < 20000; i += 7) {
		v = (uint64_t)i * 0x100000001b3u;
		ck_assert_int_eq(fdry_intern(&t, &v, i & 1 ? 8 : 7, &index, &fresh), 0);
		ck_assert_uint_eq(index, i);
		ck_assert(!fresh);
	}
	ck_assert_uint_eq(t.count, 20000);
	v = 3;
	ck_assert(!fdry_intern_find(&t, &v, 8, &index));
	fdry_intern_release(&t);
	ck_assert(!fdry_intern_find(&t, &v, 8, &index));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_codec");
	TCase *tc = tcase_create("codec");

	tcase_add_loop_test(tc, golden_hashes, 0, GOLDEN_COUNT);
	tcase_add_test(tc, written_by_hand);
	tcase_add_test(tc, view_says_what_is_there);
	tcase_add_test(tc, view_at_any_alignment);
	tcase_add_test(tc, view_untouched_on_failure);
	tcase_add_loop_test(tc, every_cut_is_refused, 0, GOLDEN_COUNT);
	tcase_add_loop_test(tc, every_byte_matters, 0, GOLDEN_COUNT);
	tcase_add_loop_test(tc, damage_is_named, 0, sizeof(damages) / sizeof(damages[0]));
	tcase_add_loop_test(tc, host_damage_is_named, 0,
			    sizeof(host_damages) / sizeof(host_damages[0]));
	tcase_add_test(tc, host_segments);
	tcase_add_loop_test(tc, array_damage_is_named, 0,
			    sizeof(array_damages) / sizeof(array_damages[0]));
	tcase_add_test(tc, arrays);
	tcase_add_test(tc, bytes_behind_the_end);
	tcase_add_test(tc, attributes_in_no_set);
	tcase_add_test(tc, kernel_table);
	tcase_add_test(tc, encoder_refuses_bad_edges);
	tcase_add_test(tc, encoder_limits_edge_data);
	tcase_add_test(tc, encoder_limits_events);
	tcase_add_test(tc, encoder_limits_nodes);
	tcase_add_test(tc, encoder_accepts_only_optional_sections);
	tcase_add_test(tc, order_is_creation_where_that_is_topological);
	tcase_add_test(tc, order_follows_edges);
	tcase_add_test(tc, order_of_a_shuffled_chain);
	tcase_add_test(tc, order_refuses_circles);
	tcase_add_test(tc, intern_by_first_use);
	suite_add_tcase(s, tc);
	return test_main(s);
}
