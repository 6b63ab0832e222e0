// SPDX-License-Identifier: Apache-2.0
/*
 * graphs.c - random graphs with nodes of all kinds, on the software driver: each is read and built
 * again, both are compared node by node, launched, and their memory is compared.
 */
#include "tests/lib/graph_random.h"
#include "tests/long/long.h"
#include "tests/replace/graph_fixture.h"

enum { SMALL, LARGE };

static uint32_t nodes;

static void one(void)
{
	nodes = graph_random_check(long_below);
	ck_assert_uint_eq(graph_random_unrun, 0);
}

static void begin(void)
{
	long_checked(graph_fixture_open);
}

static int run(uint64_t nr)
{
	(void)nr;
	long_checked(one);
	return nodes < 12 ? SMALL : LARGE;
}

int main(int argc, char **argv)
{
	static const struct long_test t = {
		.name = "graphs",
		.sample = 400,
		.all = 40000,
		.together = 50,
		.seconds = 20,
		.begin = begin,
		.run = run,
		.ends = { "fewer than 12 nodes", "12 nodes or more" },
	};

	return long_main(argc, argv, &t);
}
