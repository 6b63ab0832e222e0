// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the text form of graph objects: complete both ways, stable, every mistake named
 * with its line. */
#include "tests/lib/graph_objects.h"
#include "tests/lib/test.h"
#include "tests/replace/graph_kernels.h"

START_TEST(text_is_stable)
{
	struct fdry_buf golden = golden_file(golden_names[_i], ".txt"),
			object = object_of(span_of(&golden));
	struct fdry_buf text = text_of(&object);

	ck_assert_uint_eq(text.len, golden.len);
	ck_assert_mem_eq(text.data, golden.data, golden.len);
	fdry_buf_release(&golden);
	fdry_buf_release(&object);
	fdry_buf_release(&text);
}
END_TEST

START_TEST(text_gives_the_same_bytes)
{
	struct fdry_buf object = golden_object(golden_names[_i]), text = text_of(&object),
			again = object_of(span_of(&text));

	ck_assert_uint_eq(object.len, again.len);
	ck_assert_mem_eq(object.data, again.data, object.len);
	fdry_buf_release(&object);
	fdry_buf_release(&text);
	fdry_buf_release(&again);
}
END_TEST

START_TEST(names_are_comments)
{
	struct fdry_buf object = golden_object("by-hand"), text = { 0 }, again;
	struct fdry_graph_view v;

	ck_assert_int_eq(fdry_graph_view_init(span_of(&object), &v), 0);
	ck_assert_int_eq(fdry_graph_to_text(&v, test_kernels, TEST_KERNELS, &text), 0);
	ck_assert_ptr_nonnull(strstr((char *)text.data, "\n# kernel 2 is gap\n"));
	again = object_of(span_of(&text));
	ck_assert_mem_eq(object.data, again.data, object.len);
	fdry_buf_release(&text);
	/* A table that is too short is no reason to fail. */
	ck_assert_int_eq(fdry_graph_to_text(&v, test_kernels, 1, &text), 0);
	ck_assert_ptr_null(strstr((char *)text.data, "is gap"));
	fdry_buf_release(&object);
	fdry_buf_release(&text);
	fdry_buf_release(&again);
}
END_TEST

START_TEST(layout_of_text_is_free)
{
	struct fdry_buf a = object_of_string("foundry-graph 1\nnode 0 empty\nnode 1 kernel 0 grid "
					     "1 1 1 block 255 1 1 shared 0 args 0000000000000010\n"
					     "edge 0 1\n");
	struct fdry_buf b = object_of_string(
		"# a comment\n\n  foundry-graph\t1 # and here\r\nedge 0x0 1\n\n node 0 empty\r\n"
		"node 1 kernel 0x0 grid 1 1 1 block 0xff 1 1 shared 0 args 0000000000000010");

	ck_assert_uint_eq(a.len, b.len);
	ck_assert_mem_eq(a.data, b.data, a.len);
	fdry_buf_release(&a);
	fdry_buf_release(&b);
}
END_TEST

#define V1 "foundry-graph 1\n"
#define KERNEL "node 0 kernel 0 grid 1 1 1 block 1 1 1 shared 0"

#define P4 " attr priority 1 attr priority 1 attr priority 1 attr priority 1"
#define P32 P4 P4 P4 P4 P4 P4 P4 P4

static const struct mistake {
	const char *text;
	enum fdry_errcode code;
	const char *says;
} mistakes[] = {
	{ "", FDRY_E_INVAL, "the text is empty" },
	{ "# nothing\n", FDRY_E_INVAL, "the text does not begin with 'foundry-graph 1'" },
	{ "foundry\n", FDRY_E_INVAL, "line 1: 'foundry' stands where 'foundry-graph' should" },
	{ "foundry-graph\n", FDRY_E_INVAL, "line 1: the line ends where the version should stand" },
	{ "foundry-graph 2\n", FDRY_E_INVAL,
	  "line 1: it has format version 2, and this version writes 1" },
	{ "foundry-graph 1 x\n", FDRY_E_INVAL, "line 1: 'x' stands where the line should end" },
	{ "\n" V1 "\nvertex 0\n", FDRY_E_INVAL,
	  "line 4: it begins with 'vertex', which is no kind of line" },
	{ V1 "node 1 empty\n", FDRY_E_INVAL, "line 2: node 1 stands where node 0 should" },
	{ V1 "node 0\n", FDRY_E_INVAL, "line 2: the line ends where the node's kind should stand" },
	{ V1 "node 0 guest\n", FDRY_E_INVAL, "line 2: 'guest' is no kind of node" },
	{ V1 "node 0 host\n", FDRY_E_INVAL,
	  "line 2: the line ends where the host function should stand" },
	{ V1 "node 0 host a(b)\n", FDRY_E_BADIMAGE,
	  "the name of host node 0, which ends at byte 4 of 4, is no name" },
	{ V1 "node 0 signal\n", FDRY_E_INVAL,
	  "line 2: the line ends where a semaphore should stand" },
	{ V1 "node 0 signal a 1\n", FDRY_E_INVAL, "line 2: the line ends where the key should" },
	{ V1 "node 0 signal a(b) 1 0 0\n", FDRY_E_BADIMAGE,
	  "node 0 has a semaphore whose name is no name" },
	{ V1 "node 0 signal a 1 0 2\n", FDRY_E_BADIMAGE, "node 0 has a time, but does not wait" },
	{ V1 "node 0 empty 1\n", FDRY_E_INVAL, "line 2: '1' stands where the line should end" },
	{ V1 "node x empty\n", FDRY_E_INVAL,
	  "line 2: the node is 'x'; it must be a number from 0 to 4294967295" },
	{ V1 "node 4294967296 empty\n", FDRY_E_INVAL, "line 2: the node is '4294967296'" },
	{ V1 "node 0x empty\n", FDRY_E_INVAL, "line 2: the node is '0x'" },
	{ V1 "node 99999999999999999999999 empty\n", FDRY_E_INVAL,
	  "line 2: the node is '99999999999999999999999'" },
	{ V1 "node 0 kernel\n", FDRY_E_INVAL,
	  "line 2: the line ends where the kernel should stand" },
	{ V1 "node 0 kernel 0 block 1 1 1\n", FDRY_E_INVAL,
	  "line 2: 'block' stands where 'grid' should" },
	{ V1 "node 0 kernel 0 grid 1 1\n", FDRY_E_INVAL,
	  "line 2: the line ends where grid should stand" },
	{ V1 "node 0 kernel 0 grid 0 1 1 block 1 1 1 shared 0 args\n", FDRY_E_BADIMAGE,
	  "launch configuration 0 has a size of 0" },
	{ V1 KERNEL "\n", FDRY_E_INVAL, "line 2: the line ends where 'args' should stand" },
	{ V1 KERNEL " args 1\n", FDRY_E_INVAL, "line 2: '1' is not 16 hexadecimal digits" },
	{ V1 KERNEL " args 0g\n", FDRY_E_INVAL, "line 2: '0g' is not 16 hexadecimal digits" },
	{ V1 KERNEL " args 01 0000000000000000\n", FDRY_E_INVAL,
	  "line 2: '0000000000000000' is not 16" },
	{ V1 KERNEL " args 000000000000000000\n", FDRY_E_INVAL,
	  "line 2: '000000000000000000' is not 16" },
	{ V1 KERNEL " attr colour 1 args\n", FDRY_E_INVAL,
	  "line 2: an attribute has an unknown name" },
	{ V1 KERNEL P32 " attr priority 1 args\n", FDRY_E_INVAL,
	  "line 2: a node has more than 32 attributes" },
	{ V1 KERNEL P32 " args\n", FDRY_E_BADIMAGE,
	  "attribute priority is not in ascending order" },
	{ V1 KERNEL " attr priority args\n", FDRY_E_INVAL, "line 2: priority is 'args'" },
	{ V1 KERNEL " attr priority -2147483649 args\n", FDRY_E_INVAL,
	  "line 2: priority is '-2147483649'" },
	{ V1 KERNEL " attr priority -0 args\n", FDRY_E_INVAL, "line 2: priority is '-0'" },
	{ V1 KERNEL " attr priority 2147483648 args\n", FDRY_E_INVAL,
	  "line 2: priority is '2147483648'" },
	{ V1 KERNEL " attr mem_sync_domain_map 256 0 args\n", FDRY_E_INVAL,
	  "line 2: mem_sync_domain_map is '256'; it must be a number from 0 to 255" },
	{ V1 KERNEL " attr cooperative 2 args\n", FDRY_E_BADIMAGE,
	  "cooperative is not in canonical encoding" },
	{ V1 KERNEL " attr device_updatable 1 args\n", FDRY_E_VERSION, "attribute 13 is unknown" },
	{ V1 KERNEL " attr priority 1 attr cooperative 1 args\n", FDRY_E_BADIMAGE,
	  "cooperative is not in ascending order" },
	{ V1 "node 0 memset dst 1\n", FDRY_E_INVAL,
	  "line 2: the line ends where 'pitch' should stand" },
	{ V1 "node 0 memset dst 1 pitch 0 value 0x100000000 element 1 width 1 height 1\n",
	  FDRY_E_INVAL, "line 2: value and element have 32 bits" },
	{ V1 "node 0 memset dst 1 pitch 0 value 0 element 8 width 1 height 1\n", FDRY_E_BADIMAGE,
	  "memset node 0 has elements" },
	{ V1 "node 0 memcpy dst 1\n", FDRY_E_INVAL, "line 2: 'dst' stands where 'src' should" },
	{ V1 "node 0 memcpy src host\n", FDRY_E_INVAL,
	  "line 2: the line ends where the host segment should stand" },
	{ V1 "node 0 memcpy src host 1048576 0\n", FDRY_E_INVAL,
	  "line 2: the host segment is '1048576'; it must be a number from 0 to 1048575" },
	{ V1 "node 0 memcpy src host 0 0x10000000000\n", FDRY_E_INVAL,
	  "line 2: the offset is '0x10000000000'" },
	{ V1 "node 0 memcpy src 0x8000000000000000\n", FDRY_E_INVAL,
	  "line 2: src is '0x8000000000000000'" },
	{ V1 "node 0 record\n", FDRY_E_INVAL,
	  "line 2: the line ends where the event should stand" },
	{ V1 "node 0 record 32768\n", FDRY_E_LIMIT,
	  "line 2: the graph uses more than 32768 events" },
	{ V1 "node 0 record 0\n", FDRY_E_BADIMAGE, "event 0 is not both recorded and waited for" },
	{ V1 "node 0 record 1\nnode 1 wait 1\n", FDRY_E_BADIMAGE, "entry 0 of section 12" },
	{ V1 "edge 0\n", FDRY_E_INVAL,
	  "line 2: the line ends where the edge's target should stand" },
	{ V1 "edge 0 1\n", FDRY_E_BADIMAGE, "edge 0 leads from node 0 to node 1 of 0" },
	{ V1 "edge 0 1 from_port 1\n", FDRY_E_INVAL,
	  "line 2: the line ends where 'to_port' should stand" },
	{ V1 "edge 0 1 from_port 256 to_port 0 type 0\n", FDRY_E_INVAL,
	  "line 2: from_port is '256'" },
	{ V1 "edge 0 1 from_port 0 to_port 0 kind 0\n", FDRY_E_INVAL,
	  "line 2: 'kind' stands where 'type' should" },
	{ V1 "section 0x80000000\n", FDRY_E_INVAL,
	  "line 2: section 0x80000000 is not an optional one with content" },
	{ V1 "section 5 00\n", FDRY_E_INVAL,
	  "line 2: section 0x5 is not an optional one with content" },
	{ V1 "section 0x80000002 00\nsection 0x80000001 00\n", FDRY_E_BADIMAGE,
	  "section 2147483649 does not stand in ascending order" },
	{ V1 "node 0 child 1\n", FDRY_E_INVAL, "line 2: '1' stands where the line should end" },
	{ V1 "graph\n", FDRY_E_INVAL,
	  "line 2: the line ends where the node that holds the graph should stand" },
	{ V1 "graph 0\n", FDRY_E_BADIMAGE, "graph 0 within it, of node 0, begins at node 0 of 0" },
	{ V1 "node 0 child\n", FDRY_E_BADIMAGE, "child graph node 0 has no graph" },
	{ V1 "node 0 child\ngraph 0\nnode 1 empty\nedge 0 1\n", FDRY_E_BADIMAGE,
	  "an edge leads from node 0 to node 1 of another graph" },
	{ V1 "node 0 memop add32 0 0 0\n", FDRY_E_INVAL,
	  "line 2: 'add32' is no memory operation" },
	{ V1 "node 0 memop write32 0 0\n", FDRY_E_INVAL,
	  "line 2: the line ends where the value should stand" },
	{ V1 "compat -1\n", FDRY_E_INVAL, "line 2: compat is '-1'" },
};

START_TEST(mistakes_are_named)
{
	const struct mistake *m = &mistakes[_i];
	struct fdry_buf out = { 0 };
	/* Not terminated: the parser must keep to the length. */
	size_t len = strlen(m->text);
	uint8_t *exact = malloc(len + !len);
	int err;

	memcpy(exact, m->text, len);
	err = fdry_graph_from_text((struct fdry_span){ exact, len }, &out);
	ck_assert_msg(err == -(int)m->code && strstr(fdry_last_error(), m->says),
		      "mistake %d: %s (%s), not '%s'", _i, fdry_error_name(err),
		      err ? fdry_last_error() : "taken", m->says);
	ck_assert_ptr_null(out.data);
	free(exact);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_dump");
	TCase *tc = tcase_create("dump");

	tcase_add_loop_test(tc, text_is_stable, 0, GOLDEN_COUNT);
	tcase_add_loop_test(tc, text_gives_the_same_bytes, 0, GOLDEN_COUNT);
	tcase_add_test(tc, names_are_comments);
	tcase_add_test(tc, layout_of_text_is_free);
	tcase_add_loop_test(tc, mistakes_are_named, 0, sizeof(mistakes) / sizeof(mistakes[0]));
	suite_add_tcase(s, tc);
	return test_main(s);
}
