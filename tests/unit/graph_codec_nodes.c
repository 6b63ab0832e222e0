// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the format of nodes that few graphs have: every field damaged in turn, limits. */
#include "tests/lib/graph_damage.h"
#include "tests/lib/test.h"

/* In "children". */
static const struct damage child_damages[] = {
	{ HEADER(incompat), 0, FDRY_E_BADIMAGE,
	  "it has 3 graphs within it, but its header says otherwise" },
	{ HEADER(subgraphs), 2, FDRY_E_BADIMAGE,
	  "section 26 (graphs of child graph nodes) has 24 bytes, and 2 entries need 16" },
	{ HEADER(subgraphs), 1u << 23, FDRY_E_LIMIT, "subgraphs is 8388608" },
	{ IN(KIND, 2, 1), 4, FDRY_E_BADIMAGE, "node 2 owns a graph and is no child graph" },
	{ IN(KIND, 7, 1), 7, FDRY_E_BADIMAGE, "node kinds do not add up" },
	{ IN(SUBGRAPH, 0, 4), 2, FDRY_E_BADIMAGE, "child graph node 1 has no graph" },
	{ IN(SUBGRAPH, 0, 4), 4, FDRY_E_BADIMAGE,
	  "graph 0 within it, of node 4, begins at node 4 of 9" },
	{ IN(SUBGRAPH, 4, 4), 3, FDRY_E_BADIMAGE, "an edge leads from node 1 to node 3 of" },
	{ IN(SUBGRAPH, 4, 4), 5, FDRY_E_BADIMAGE, "an edge leads from node 4 to node 5 of" },
	{ IN(SUBGRAPH, 4, 4), 8, FDRY_E_BADIMAGE, "graph 1 within it, of node 2, begins at" },
	{ IN(SUBGRAPH, 8, 4), 0, FDRY_E_BADIMAGE, "graph 1 within it, of node 0, begins at" },
	{ IN(SUBGRAPH, 12, 4), UINT32_MAX, FDRY_E_BADIMAGE, "begins at node 4294967295 of 9" },
	{ IN(SUBGRAPH, 16, 4), 7, FDRY_E_BADIMAGE, "graph 2 within it, of node 7, begins at" },
	{ IN(SUBGRAPH, 16, 4), 3, FDRY_E_BADIMAGE, "node 3 owns a graph and is no child graph" },
	{ IN(SUBGRAPH, 20, 4), 10, FDRY_E_BADIMAGE, "begins at node 10 of 9" },
};

/* In "functions". */
static const struct damage function_damages[] = {
	{ HEADER(incompat), 0, FDRY_E_BADIMAGE,
	  "it has 3 host nodes, but its header says otherwise" },
	{ HEADER(host_nodes), 2, FDRY_E_BADIMAGE, "section 27 (name ends of host nodes)" },
	{ HEADER(host_nodes), 1u << 23, FDRY_E_LIMIT, "host_nodes is 8388608" },
	{ HEADER(host_bytes), 24, FDRY_E_BADIMAGE, "section 28 (names of host functions)" },
	{ HEADER(host_bytes), 1u << 25, FDRY_E_LIMIT, "host_bytes is 33554432" },
	{ IN(KIND, 1, 1), 8, FDRY_E_BADIMAGE, "node kinds do not add up" },
	{ IN(HOST_END, 0, 4), 0, FDRY_E_BADIMAGE, "the name of host node 0, which ends at byte 0" },
	{ IN(HOST_END, 4, 4), 12, FDRY_E_BADIMAGE, "the name of host node 1, which ends at" },
	{ IN(HOST_END, 8, 4), 26, FDRY_E_BADIMAGE, "host node 2, which ends at byte 26 of 25" },
	{ IN(HOST_END, 8, 4), UINT32_MAX, FDRY_E_BADIMAGE, "the name of host node 2" },
	{ IN(HOST_NAME, 24, 1), 0, FDRY_E_BADIMAGE, "the name of host node 2" },
	{ IN(HOST_NAME, 3, 1), '\n', FDRY_E_BADIMAGE, "the name of host node 0" },
};

/* In "memops". */
static const struct damage memop_damages[] = {
	{ HEADER(incompat), 0, FDRY_E_BADIMAGE,
	  "it has 3 nodes of memory operations, but its header says otherwise" },
	{ HEADER(memop_nodes), 2, FDRY_E_BADIMAGE, "section 29 (ends of memory operation nodes)" },
	{ HEADER(memop_nodes), 1u << 23, FDRY_E_LIMIT, "memop_nodes is 8388608" },
	{ HEADER(memops), 4, FDRY_E_BADIMAGE, "section 30 (memory operations)" },
	{ HEADER(memops), 1u << 23, FDRY_E_LIMIT, "memops is 8388608" },
	{ IN(KIND, 1, 1), 4, FDRY_E_BADIMAGE, "node kinds do not add up" },
	{ IN(MEMOP_END, 0, 4), 3, FDRY_E_BADIMAGE,
	  "the memory operations of node 1 end at 2 of 5" },
	{ IN(MEMOP_END, 8, 4), 6, FDRY_E_BADIMAGE, "the memory operations of node 2 end at 6 of" },
	{ IN(MEMOP_END, 8, 4), 4, FDRY_E_BADIMAGE, "1 memory operations belong to no node" },
	{ IN(MEMOP, 0, 4), 3, FDRY_E_BADIMAGE, "memory operation 0 has an operation that" },
	{ IN(MEMOP, 0, 4), 7, FDRY_E_BADIMAGE, "memory operation 0 has an operation that" },
	{ IN(MEMOP, 4, 4), 1, FDRY_E_BADIMAGE, "memory operation 0 has flags that" },
	{ IN(MEMOP, 8, 8), 0x500000000202, FDRY_E_BADIMAGE,
	  "memory operation 0 has an address that is no multiple" },
	{ IN(MEMOP, 20, 4), 1, FDRY_E_BADIMAGE, "memory operation 0 has a value larger than 32" },
	{ IN(MEMOP, 24 + 4, 4), 4, FDRY_E_BADIMAGE, "memory operation 1 has flags that" },
	{ IN(MEMOP, 48 + 8, 8), UINT64_MAX - 7, FDRY_E_BADIMAGE,
	  "memory operation 2 has an address that" },
	{ IN(MEMOP, 72 + 8, 8), 8, FDRY_E_BADIMAGE,
	  "memory operation 3 has an address and no value" },
};

/* In "conditions". */
static const struct damage condition_damages[] = {
	{ HEADER(incompat), FDRY_GRAPH_INCOMPAT_SUBGRAPHS, FDRY_E_BADIMAGE,
	  "it has 3 conditional nodes, but its header says otherwise" },
	{ HEADER(conditional_nodes), 2, FDRY_E_BADIMAGE, "section 31 (conditional nodes)" },
	{ HEADER(conditional_nodes), 1u << 16, FDRY_E_LIMIT, "conditional_nodes is 65536" },
	{ HEADER(semaphore_bytes), 8, FDRY_E_BADIMAGE, "section 33 (semaphores of nodes) is" },
	{ IN(KIND, 1, 1), 4, FDRY_E_BADIMAGE, "node kinds do not add up" },
	{ IN(CONDITIONAL, 0, 4), 0, FDRY_E_BADIMAGE, "conditional node 0 has handle 0, which" },
	{ IN(CONDITIONAL, 0, 4), 2, FDRY_E_BADIMAGE, "conditional node 0 has handle 2, which" },
	{ IN(CONDITIONAL, 0, 4), 4, FDRY_E_BADIMAGE, "conditional node 0 has handle 4, which" },
	{ IN(CONDITIONAL, 4, 4), 3, FDRY_E_BADIMAGE,
	  "conditional node 0 of type 3 has 1 graphs from 1 of 7" },
	{ IN(CONDITIONAL, 8, 4), 2, FDRY_E_BADIMAGE,
	  "conditional node 0 of type 1 has 2 graphs from 1 of 7" },
	{ IN(CONDITIONAL, 8, 4), 0, FDRY_E_BADIMAGE, "node 0 of type 1 has 0 graphs" },
	{ IN(CONDITIONAL, 12, 4), 0, FDRY_E_BADIMAGE, "has 1 graphs from 0 of 7" },
	{ IN(CONDITIONAL, 12, 4), 8, FDRY_E_BADIMAGE, "has 1 graphs from 8 of 7" },
	{ IN(CONDITIONAL, 12, 4), 2, FDRY_E_BADIMAGE,
	  "conditional node 0 has graphs from 2, and others have them" },
	{ IN(CONDITIONAL, 24, 4), 7, FDRY_E_BADIMAGE, "has 7 graphs from 2 of 7" },
	{ IN(CONDITIONAL, 24, 4), 2, FDRY_E_BADIMAGE,
	  "conditional node 2 has graphs from 5, and others have them" },
	{ IN(CONDITION, 0, 4), 1, FDRY_E_BADIMAGE, "conditional node 0 has handle 1, which" },
	{ IN(CONDITION, 4, 4), 8, FDRY_E_BADIMAGE, "handle 1 of graph 8 has node 0" },
	{ IN(CONDITION, 4, 4), 1, FDRY_E_BADIMAGE,
	  "handle 1 is of a body, whose node has the later handle 1" },
	{ IN(CONDITION, 4, 4), 7, FDRY_E_BADIMAGE,
	  "a condition lies in the child graph of node 6" },
	{ IN(CONDITION, 8, 4), 1, FDRY_E_BADIMAGE, "flags 0x0 and value 1" },
	{ IN(CONDITION, 12, 4), 2, FDRY_E_BADIMAGE, "flags 0x2 and value 0" },
	{ IN(SUBGRAPH, 8, 4), 1, FDRY_E_BADIMAGE, "child graph node 2 has no graph" },
};

/* In "semaphores". */
static const struct damage semaphore_damages[] = {
	{ HEADER(incompat), 0, FDRY_E_BADIMAGE,
	  "it has 208 bytes of semaphores, but its header says otherwise" },
	{ HEADER(semaphore_bytes), 200, FDRY_E_BADIMAGE, "section 33 (semaphores of nodes)" },
	{ HEADER(semaphore_bytes), 1u << 25, FDRY_E_LIMIT, "semaphore_bytes is 33554432" },
	{ IN(KIND, 1, 1), 12, FDRY_E_BADIMAGE, "node 2 has a time, but does not wait" },
	{ IN(KIND, 3, 1), 4, FDRY_E_BADIMAGE, "80 bytes of semaphores belong to no node" },
	{ IN(SEMAPHORE, 0, 4), 0, FDRY_E_BADIMAGE, "node 0 has no semaphores" },
	{ IN(SEMAPHORE, 0, 4), 36, FDRY_E_BADIMAGE, "node 0 has no semaphores" },
	{ IN(SEMAPHORE, 0, 4), 48, FDRY_E_BADIMAGE, "node 0 has a semaphore that is malformed" },
	{ IN(SEMAPHORE, 0, 4), UINT32_MAX - 7, FDRY_E_BADIMAGE, "node 0 has no semaphores" },
	{ IN(SEMAPHORE, 4, 4), 1, FDRY_E_BADIMAGE, "node 0 has no semaphores" },
	{ IN(SEMAPHORE, 28, 4), 0, FDRY_E_BADIMAGE, "node 0 has a semaphore whose name is no" },
	{ IN(SEMAPHORE, 28, 4), 12, FDRY_E_BADIMAGE, "node 0 has a semaphore whose name is no" },
	{ IN(SEMAPHORE, 28, 4), 17, FDRY_E_BADIMAGE, "node 0 has a semaphore that is malformed" },
	{ IN(SEMAPHORE, 28, 4), UINT32_MAX, FDRY_E_BADIMAGE,
	  "node 0 has a semaphore that is malformed" },
	{ IN(SEMAPHORE, 32, 1), '\n', FDRY_E_BADIMAGE, "node 0 has a semaphore whose name is no" },
	{ IN(SEMAPHORE, 43, 1), 1, FDRY_E_BADIMAGE, "node 0 has a semaphore that is malformed" },
	{ IN(SEMAPHORE, 72, 4), 1, FDRY_E_BADIMAGE, "node 2 has a time, but does not wait" },
};

START_TEST(semaphore_damage_is_named)
{
	graph_damage_try("semaphores", &semaphore_damages[_i]);
}
END_TEST

START_TEST(condition_damage_is_named)
{
	graph_damage_try("conditions", &condition_damages[_i]);
}
END_TEST

START_TEST(memop_damage_is_named)
{
	graph_damage_try("memops", &memop_damages[_i]);
}
END_TEST

START_TEST(child_damage_is_named)
{
	graph_damage_try("children", &child_damages[_i]);
}
END_TEST

START_TEST(function_damage_is_named)
{
	graph_damage_try("functions", &function_damages[_i]);
}
END_TEST

/* Child graphs within child graphs, @depth deep. */
static struct fdry_buf nested_text(unsigned int depth)
{
	struct fdry_buf text = { 0 };
	unsigned int i;

	ck_assert_int_eq(fdry_buf_printf(&text, "foundry-graph 1\n"), 0);
	for (i = 0; i < depth; i++)
		ck_assert_int_eq(fdry_buf_printf(&text, "node %u child\ngraph %u\n", i, i), 0);
	return text;
}

START_TEST(depth_is_limited)
{
	struct fdry_buf text = nested_text(FDRY_GRAPH_DEPTH_MAX), o = object_of(span_of(&text));

	fdry_buf_release(&o);
	fdry_buf_release(&text);
	text = nested_text(FDRY_GRAPH_DEPTH_MAX + 1);
	ck_assert_int_eq(fdry_graph_from_text(span_of(&text), &o), -FDRY_E_LIMIT);
	ck_assert_str_eq(fdry_last_error(), "it has graphs more than 64 deep");
	fdry_buf_release(&text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_codec_nodes");
	TCase *tc = tcase_create("nodes");

	tcase_add_loop_test(tc, condition_damage_is_named, 0,
			    sizeof(condition_damages) / sizeof(condition_damages[0]));
	tcase_add_loop_test(tc, child_damage_is_named, 0,
			    sizeof(child_damages) / sizeof(child_damages[0]));
	tcase_add_loop_test(tc, function_damage_is_named, 0,
			    sizeof(function_damages) / sizeof(function_damages[0]));
	tcase_add_loop_test(tc, memop_damage_is_named, 0,
			    sizeof(memop_damages) / sizeof(memop_damages[0]));
	tcase_add_loop_test(tc, semaphore_damage_is_named, 0,
			    sizeof(semaphore_damages) / sizeof(semaphore_damages[0]));
	tcase_add_test(tc, depth_is_limited);
	suite_add_tcase(s, tc);
	return test_main(s);
}
