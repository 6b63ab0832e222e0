// SPDX-License-Identifier: Apache-2.0
/* Unit tests of how graph objects store arguments and edges: which earlier block each block refers
 * to, and where the chain of edges breaks. */
#include "tests/lib/graph_objects.h"
#include "tests/lib/test.h"
#include "tests/replace/graph_kernels.h"

/* --- arguments --- */

#define ARG_WORDS 4

/* A node of a kernel with four words of arguments: each @seed, and its own number unless @seed is
 * 0. */
static void args_node(struct fdry_graph_enc *enc, uint32_t kernel, uint32_t seed)
{
	uint32_t words[ARG_WORDS] = { seed, seed + (seed != 0), seed + 2 * (seed != 0),
				      seed + 3 * (seed != 0) };
	struct fdry_node n = { .kind = FDRY_NODE_KERNEL };

	n.kernel = (struct fdry_node_kernel){ .kernel = kernel,
					      .launch = { { 1, 1, 1 }, { 1, 1, 1 }, 0 },
					      .args = { (const uint8_t *)words, sizeof(words) } };
	ck_assert_int_eq(fdry_graph_enc_node(enc, &n), 0);
}

static struct fdry_buf args_finish(struct fdry_graph_enc *enc, struct fdry_graph_view *v)
{
	struct fdry_buf o = { 0 };

	ck_assert_msg(!fdry_graph_enc_finish(enc, &o), "%s", fdry_last_error());
	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), v), 0);
	fdry_graph_enc_release(enc);
	return o;
}

static void stored_as(const struct fdry_graph_view *v, uint32_t node, uint32_t like,
		      uint32_t patches)
{
	ck_assert_uint_eq(fdry_graph_u16(v, FDRY_GSEC_NODE_LIKE, node), like);
	ck_assert_uint_eq(fdry_graph_u16(v, FDRY_GSEC_NODE_PATCHES, node), patches);
}

START_TEST(arguments_like_earlier_ones)
{
	static const uint32_t seeds[] = { 100, 200, 0, 100, 100, 101, 200 };
	static const uint32_t expect[][2] = { { 0, 4 }, { 0, 4 }, { 0, 0 }, { 3, 0 },
					      { 1, 0 }, { 0, 4 }, { 5, 0 } };
	struct fdry_graph_enc enc = { 0 };
	struct fdry_graph_cursor c;
	struct fdry_graph_view v;
	struct fdry_node n;
	struct fdry_buf o;
	uint32_t i;

	for (i = 0; i < 7; i++)
		args_node(&enc, 0, seeds[i]);
	o = args_finish(&enc, &v);
	ck_assert_int_eq(fdry_graph_cursor_init(&v, &c), 0);
	for (i = 0; i < 7; i++) {
		stored_as(&v, i, expect[i][0], expect[i][1]);
		ck_assert(fdry_graph_next(&c, &n));
		ck_assert_uint_eq(fdry_get32(n.kernel.args.data), seeds[i]);
		ck_assert_uint_eq(fdry_get32(n.kernel.args.data + 12), seeds[i] ? seeds[i] + 3 : 0);
	}
	fdry_graph_cursor_release(&c);
	fdry_buf_release(&o);
}
END_TEST

/* The last 16 of the kernel are looked at. */
START_TEST(arguments_of_the_window)
{
	struct fdry_graph_enc enc = { 0 };
	struct fdry_graph_view v;
	struct fdry_buf o;
	uint32_t i;

	for (i = 0; i < 17; i++)
		args_node(&enc, 0, 1000 * (i + 1));
	args_node(&enc, 1, 5);
	args_node(&enc, 0, 2000);
	args_node(&enc, 0, 2000);
	args_node(&enc, 0, 3000);
	args_node(&enc, 0, 4000);
	o = args_finish(&enc, &v);
	stored_as(&v, 18, 17, 0); /* the second of 17 */
	stored_as(&v, 19, 1, 0);
	stored_as(&v, 20, 0, 4);  /* the third object, after two others */
	stored_as(&v, 21, 0, 4);
	fdry_buf_release(&o);
}
END_TEST

START_TEST(arguments_too_far_away)
{
	struct fdry_graph_enc enc = { 0 };
	struct fdry_graph_view v;
	struct fdry_buf o;
	uint32_t i;

	args_node(&enc, 0, 7);
	args_node(&enc, 0, 9);
	for (i = 0; i < UINT16_MAX - 1; i++)
		args_node(&enc, 1, 0);
	args_node(&enc, 0, 9);
	args_node(&enc, 0, 7);
	o = args_finish(&enc, &v);
	stored_as(&v, UINT16_MAX + 1, UINT16_MAX, 0);
	stored_as(&v, UINT16_MAX + 2, 0, 4);
	fdry_buf_release(&o);
}
END_TEST

START_TEST(encoder_limits_configurations)
{
	struct fdry_node n = { .kind = FDRY_NODE_KERNEL };
	struct fdry_graph_enc enc = { 0 };
	uint32_t i;

	n.kernel.launch = (struct fdry_graph_launch){ { 1, 1, 1 }, { 1, 1, 1 }, 0 };
	for (i = 0; i < FDRY_GRAPH_CONFIGS_MAX; i++, n.kernel.launch.shared++)
		ck_assert_int_eq(fdry_graph_enc_node(&enc, &n), 0);
	ck_assert_int_eq(fdry_graph_enc_node(&enc, &n), -FDRY_E_LIMIT);
	ck_assert(strstr(fdry_last_error(), "more than 65536 configurations; split it"));
	fdry_graph_enc_release(&enc);
}
END_TEST

/* --- arguments that are shorter than parameters --- */

/* Make nodes of kernel 0 with 12 of its 24 bytes, and with all of them. */
static struct fdry_buf short_object(void)
{
	return object_of_string(
		"foundry-graph 1\n"
		"node 0 kernel 0 grid 1 1 1 block 1 1 1 shared 0 short args 0000000000000007 "
		"00000009\n"
		"node 1 kernel 0 grid 1 1 1 block 1 1 1 shared 0 args 0000000000000007 "
		"0000000000000000 0000000000000001\n"
		"node 2 kernel 0 grid 1 1 1 block 1 1 1 shared 0 short args 0000000000000007 "
		"00000009\n");
}

/* In the object above: write @value over a field of a section, or of the header (0). */
static const struct {
	uint32_t section;
	size_t at, size;
	uint64_t value;
	enum fdry_errcode code;
	const char *says;
} short_damages[] = {
	{ 0, offsetof(struct fdry_graph_header, incompat), 4, 0, FDRY_E_BADIMAGE,
	  "its header and its kernels disagree whether arguments are shorter than parameters" },
	{ 0, offsetof(struct fdry_graph_header, incompat), 4, 3, FDRY_E_BADIMAGE,
	  "its copies do not use host memory" },
	{ FDRY_GSEC_KERNEL, 7, 1, 0, FDRY_E_BADIMAGE, "its header and its kernels disagree" },
	{ FDRY_GSEC_KERNEL, 7, 1, 0x40, FDRY_E_LIMIT, "takes 1073741836 bytes of arguments" },
	{ FDRY_GSEC_KERNEL, 4, 4, 1u << 31 | 32765, FDRY_E_LIMIT,
	  "takes 32765 bytes of arguments" },
	{ FDRY_GSEC_KERNEL, 4, 4, 1u << 31 | 4, FDRY_E_BADIMAGE,
	  "patch 1, at word 2 of the 4 bytes of kernel node 0" },
	{ FDRY_GSEC_NODE_LIKE, 2, 2, 1, FDRY_E_BADIMAGE,
	  "kernel node 1 refers to the node 1 before it, which has another kernel" },
};

START_TEST(short_damage_is_named)
{
	struct fdry_buf o = short_object();
	size_t at = short_damages[_i].at;
	struct fdry_graph_view v;
	int err;

	if (short_damages[_i].section)
		at += section_of(&o, short_damages[_i].section);
	memcpy(o.data + at, &short_damages[_i].value, short_damages[_i].size);
	err = fdry_graph_view_init(span_of(&o), &v);
	ck_assert_int_eq(err, -(int)short_damages[_i].code);
	ck_assert_msg(strstr(fdry_last_error(), short_damages[_i].says) != NULL, "%s",
		      fdry_last_error());
	fdry_buf_release(&o);
}
END_TEST

START_TEST(short_arguments)
{
	struct fdry_buf o = short_object();
	struct fdry_kernel table[TEST_KERNELS];
	struct fdry_graph_cursor c;
	struct fdry_graph_view v;
	struct fdry_node n;
	int i;

	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), &v), 0);
	ck_assert_uint_eq(v.header.incompat, FDRY_GRAPH_INCOMPAT_SHORT);
	ck_assert_uint_eq(v.header.kernels, 2);
	ck_assert_uint_eq(v.header.arg_bytes, 16 + 24 + 16);
	ck_assert_int_eq(fdry_graph_cursor_init(&v, &c), 0);
	for (i = 0; i < 3; i++) {
		ck_assert(fdry_graph_next(&c, &n));
		ck_assert_uint_eq(n.kernel.kernel, 0);
		ck_assert_int_eq(n.kernel.args_short, i != 1);
		ck_assert_uint_eq(n.kernel.args.len, i == 1 ? 24 : 12);
		ck_assert_uint_eq(n.kernel.args.data[0], 7);
		ck_assert_uint_eq(n.kernel.args.data[8], i == 1 ? 0 : 9);
	}
	fdry_graph_cursor_release(&c);
	memcpy(table, test_kernels, sizeof(table));
	ck_assert_int_eq(fdry_graph_view_check_kernels(&v, table, TEST_KERNELS), 0);
	table[0].param_bytes = 12;
	ck_assert_int_eq(fdry_graph_view_check_kernels(&v, table, TEST_KERNELS), -FDRY_E_BADIMAGE);
	ck_assert_str_eq(fdry_last_error(), "kernel 0 (saxpy) takes 12 bytes of arguments, and the "
					    "graph has 12 as a part of them");
	fdry_buf_release(&o);
}
END_TEST

/* The most that the driver accepts: 32,764 bytes. */
START_TEST(large_arguments)
{
	static uint8_t args[FDRY_KERNEL_PARAM_BYTES_MAX + 1];
	struct fdry_node n = { .kind = FDRY_NODE_KERNEL };
	struct fdry_graph_enc enc = { 0 };
	struct fdry_graph_cursor c;
	struct fdry_graph_view v;
	struct fdry_buf o = { 0 };
	int i;

	n.kernel.launch = (struct fdry_graph_launch){ { 1, 1, 1 }, { 1, 1, 1 }, 0 };
	n.kernel.args = (struct fdry_span){ args, FDRY_KERNEL_PARAM_BYTES_MAX };
	for (i = 0; i < 3; i++) {
		memset(args, i == 1 ? 0 : 0x5a + i, sizeof(args));
		ck_assert_int_eq(fdry_graph_enc_node(&enc, &n), 0);
	}
	n.kernel.args.len++;
	ck_assert_int_eq(fdry_graph_enc_node(&enc, &n), -FDRY_E_LIMIT);
	fdry_graph_enc_release(&enc);
	n.kernel.args.len--;
	for (i = 0; i < 3; i++) {
		memset(args, i == 1 ? 0 : 0x5a + i, sizeof(args));
		ck_assert_int_eq(fdry_graph_enc_node(&enc, &n), 0);
	}
	ck_assert_msg(!fdry_graph_enc_finish(&enc, &o), "%s", fdry_last_error());
	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), &v), 0);
	ck_assert_int_eq(fdry_graph_cursor_init(&v, &c), 0);
	for (i = 0; i < 3; i++) {
		ck_assert(fdry_graph_next(&c, &n));
		memset(args, i == 1 ? 0 : 0x5a + i, sizeof(args));
		ck_assert_uint_eq(n.kernel.args.len, FDRY_KERNEL_PARAM_BYTES_MAX);
		ck_assert_mem_eq(n.kernel.args.data, args, n.kernel.args.len);
	}
	fdry_graph_cursor_release(&c);
	fdry_graph_enc_release(&enc);
	fdry_buf_release(&o);
}
END_TEST

/* --- edges --- */

/* Nodes without an edge to the next, nodes with two, and the order of the result. */
START_TEST(edges_beside_the_chain)
{
	static const uint32_t expect[][3] = {
		{ 0, 1, 0 }, { 0, 1, 1 }, { 0, 3, 0 }, { 2, 3, 0 }, { 2, 4, 0 }
	};
	struct fdry_buf o = object_of_string(
		"foundry-graph 1\nnode 0 empty\nnode 1 empty\nnode 2 empty\nnode 3 empty\nnode 4 "
		"empty\n"
		"edge 2 4\nedge 0 1\nedge 0 3\nedge 0 1 from_port 1 to_port 0 type 1\nedge 2 3\n");
	struct fdry_graph_edges edges = { 0 };
	struct fdry_graph_edge e;
	struct fdry_graph_view v;
	uint32_t i;

	ck_assert_int_eq(fdry_graph_view_init(span_of(&o), &v), 0);
	ck_assert_uint_eq(fdry_graph_edge_count(&v), 5);
	ck_assert_uint_eq(v.header.edges, 3);
	ck_assert_uint_eq(v.header.breaks, 2);
	edges.v = &v;
	for (i = 0; i < 5; i++) {
		ck_assert(fdry_graph_edge_next(&edges, &e));
		ck_assert(e.from == expect[i][0] && e.to == expect[i][1] &&
			  e.index == expect[i][2]);
	}
	ck_assert(!fdry_graph_edge_next(&edges, &e));
	fdry_buf_release(&o);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_args");
	TCase *tc = tcase_create("args");

	tcase_add_test(tc, arguments_like_earlier_ones);
	tcase_add_test(tc, arguments_of_the_window);
	tcase_add_test(tc, arguments_too_far_away);
	tcase_add_test(tc, encoder_limits_configurations);
	tcase_add_loop_test(tc, short_damage_is_named, 0,
			    sizeof(short_damages) / sizeof(short_damages[0]));
	tcase_add_test(tc, short_arguments);
	tcase_add_test(tc, large_arguments);
	tcase_add_test(tc, edges_beside_the_chain);
	suite_add_tcase(s, tc);
	return test_main(s);
}
