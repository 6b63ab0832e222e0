// SPDX-License-Identifier: Apache-2.0
/* The tests of graph_rules.h, which hold on every driver, on the software driver. */
#include "tests/replace/graph_fixture.h"
#include "tests/lib/graph_rules.h"
#include "tests/lib/test.h"

int main(void)
{
	Suite *s = suite_create("graph_rules");
	TCase *tc = tcase_create("both");

	tcase_add_checked_fixture(tc, graph_fixture_open, graph_fixture_close);
	graph_rules_add(tc);
	graph_rules_nodes_add(tc);
	graph_rules_arrays_add(tc);
	suite_add_tcase(s, tc);
	return test_main(s);
}
