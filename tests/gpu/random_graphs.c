// SPDX-License-Identifier: Apache-2.0
/*
 * Random graphs with nodes of all kinds, on the machine's own driver: each is read and built again,
 * both are compared node by node, launched, and their memory is compared. GRAPHS sets how many
 * (default: 2000), SEED the first number.
 */
#include "tests/lib/clock.h"
#include "tests/lib/gpu.h"
#include "tests/lib/graph_random.h"
#include "tests/replace/graph_fixture.h"

static uint64_t state;

static uint64_t below(uint64_t n)
{
	state += 0x9e3779b97f4a7c15u;
	uint64_t x = state;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) % n;
}

START_TEST(random_graphs)
{
	const char *graphs = getenv("GRAPHS"), *seed = getenv("SEED");
	uint64_t i, n = graphs ? strtoull(graphs, NULL, 0) : 2000, nodes = 0;
	double start = now_us();

	for (i = 0; i < n; i++) {
		state = ((seed ? strtoull(seed, NULL, 0) : 1) << 32) + i;
		nodes += graph_random_check(below);
		if (now_us() - start > 40e6)
			n = i + 1; /* enough for one run */
	}
	printf("note: %llu graphs of %llu nodes came back equal, in %.1f s; the driver runs all "
	       "but %u\n",
	       (unsigned long long)n, (unsigned long long)nodes, (now_us() - start) / 1e6,
	       graph_random_unrun);
	ck_assert_uint_le(graph_random_unrun, n / 100);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("random_graphs");
	TCase *tc = tcase_create("graphs");

	gf.backend = &backend_gpu;
	gpu_driver();
	tcase_add_checked_fixture(tc, graph_fixture_open, graph_fixture_close);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, random_graphs);
	suite_add_tcase(s, tc);
	return test_main_nofork(s);
}
