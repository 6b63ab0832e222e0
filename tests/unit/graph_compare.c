// SPDX-License-Identifier: Apache-2.0
/* Unit tests of what two graph objects differ in. */
#include "graph/compare.h"
#include "tests/lib/graph_objects.h"

#define KERNEL(node, k, grid, attr, args) \
	"node " #node " kernel " #k " grid " #grid " 1 1 block 1 1 1 shared 0 " attr "args " args \
	"\n"
#define FILL(value) \
	"node 1 memset dst 0x500000000000 pitch 0 value " #value " element 1 width 8 height 1\n"
#define A "0000500000000200 0000000000000001"
#define B "0000500000000400 0000000000000001"
#define EDGES "edge 0 1\nedge 1 2\nedge 2 3\n"
#define HEAD "foundry-graph 1\n"
#define BASE \
	HEAD KERNEL(0, 0, 1, "", A) FILL(1) KERNEL(2, 0, 1, "", A) KERNEL(3, 2, 1, "", "07") EDGES

/* The texts of two graphs as views. */
static struct fdry_buf object[2];
static struct fdry_graph_view view[2];

static void pair(const char *a, const char *b)
{
	int i;

	object[0] = object_of_string(a);
	object[1] = object_of_string(b);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(fdry_graph_view_init(span_of(&object[i]), &view[i]), 0);
}

static void pair_release(void)
{
	fdry_buf_release(&object[0]);
	fdry_buf_release(&object[1]);
}

static const struct {
	const char *text;
	uint32_t count, nodes[3];
} same[] = {
	{ BASE, 0, { 0 } },
	{ HEAD KERNEL(0, 0, 1, "", B) FILL(1) KERNEL(2, 0, 1, "", A) KERNEL(3, 2, 1, "", "07")
		  EDGES,
	  1,
	  { 0 } },
	{ HEAD KERNEL(0, 0, 1, "", A) FILL(1) KERNEL(2, 0, 1, "", B) KERNEL(3, 2, 1, "", "07")
		  EDGES,
	  1,
	  { 2 } },
	{ HEAD KERNEL(0, 0, 1, "", B) FILL(1) KERNEL(2, 0, 1, "", B) KERNEL(3, 2, 1, "", "08")
		  EDGES,
	  3,
	  { 0, 2, 3 } },
};

START_TEST(arguments_alone)
{
	struct fdry_buf nodes = { 0 };

	pair(BASE, same[_i].text);
	ck_assert(fdry_graph_same_shape(&view[0], &view[1]));
	ck_assert_int_eq(fdry_buf_put_u32(&nodes, 99), 0);
	ck_assert_int_eq(fdry_graph_args_differ(&view[0], &view[1], &nodes), 0);
	ck_assert_uint_eq(nodes.len, 4 + 4 * same[_i].count);
	ck_assert_uint_eq(fdry_get32(nodes.data), 99);
	ck_assert_mem_eq(nodes.data + 4, same[_i].nodes, 4 * same[_i].count);
	fdry_buf_release(&nodes);
	pair_release();
}
END_TEST

static const char *const others[] = {
	HEAD KERNEL(0, 1, 1, "", A) FILL(1) KERNEL(2, 1, 1, "", A) KERNEL(3, 2, 1, "", "07") EDGES,
	HEAD KERNEL(0, 0, 2, "", A) FILL(1) KERNEL(2, 0, 2, "", A) KERNEL(3, 2, 2, "", "07") EDGES,
	HEAD KERNEL(0, 0, 1, "", A) FILL(1) KERNEL(2, 0, 2, "", A) KERNEL(3, 2, 1, "", "07") EDGES,
	HEAD KERNEL(0, 0, 1, "", A) FILL(1) KERNEL(2, 0, 1, "attr priority 1 ", A)
		KERNEL(3, 2, 1, "", "07") EDGES,
	HEAD KERNEL(0, 0, 1, "", A) FILL(2) KERNEL(2, 0, 1, "", A) KERNEL(3, 2, 1, "", "07") EDGES,
	HEAD KERNEL(0, 0, 1, "", A) "node 1 empty\n" KERNEL(2, 0, 1, "", A)
		KERNEL(3, 2, 1, "", "07") EDGES,
	HEAD KERNEL(0, 0, 1, "", A) FILL(1) KERNEL(2, 0, 1, "", A) KERNEL(3, 2, 1, "", "07") EDGES
	"edge 0 3\n",
	HEAD KERNEL(0, 0, 1, "", A) FILL(1) KERNEL(2, 0, 1, "", A)
		KERNEL(3, 2, 1, "", "07") "edge 0 1\nedge 1 2\n",
	HEAD KERNEL(0, 0, 1, "", A) FILL(1) KERNEL(2, 0, 1, "", A)
		KERNEL(3, 2, 1, "", "07") "edge 0 1\nedge 1 2\n"
					  "edge 2 3 from_port 1 to_port 0 type 1\n",
	HEAD KERNEL(0, 0, 1, "", A) FILL(1) KERNEL(2, 0, 1, "", A) "edge 0 1\nedge 1 2\n",
};

START_TEST(more_than_arguments)
{
	struct fdry_buf nodes = { 0 };

	pair(BASE, others[_i]);
	ck_assert(!fdry_graph_same_shape(&view[0], &view[1]));
	ck_assert_int_eq(fdry_graph_args_differ(&view[0], &view[1], &nodes), -FDRY_E_INVAL);
	ck_assert_ptr_null(nodes.data);
	pair_release();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_compare");
	TCase *tc = tcase_create("compare");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, arguments_alone, 0, sizeof(same) / sizeof(same[0]));
	tcase_add_loop_test(tc, more_than_arguments, 0, sizeof(others) / sizeof(others[0]));
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
