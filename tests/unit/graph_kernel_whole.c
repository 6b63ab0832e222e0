// SPDX-License-Identifier: Apache-2.0
/* Unit tests of kernel objects that keep the whole code, with a driver on paper (paper.h). */
#include "graph/heap.h"
#include "graph/kernel_set.h"
#include "tests/lib/paper.h"

/* The driver prepares code that prints when it loads it, so the code is kept as it is. */
START_TEST(kernels_that_print_are_whole)
{
	const struct fdry_kernel *k;
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("syscalls.90.cubin");
	intern(set, kernel_of(l, "says"), true);
	intern(set, kernel_of(l, "quiet"), true);
	slice(set);
	k = fdry_kernel_set_get(set, 0);
	ck_assert(k->whole && k->prints);
	ck_assert_ptr_nonnull(strstr(k->whole_reason, "it calls vprintf (device printf)"));
	ck_assert(!sliced(set, 1)->prints);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* So is code that allocates. The seal looks for the heap if any kernel of the set does. */
START_TEST(kernels_that_allocate_are_whole)
{
	const struct fdry_kernel *k;
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("syscalls.90.cubin");
	intern(set, kernel_of(l, "quiet"), true);
	slice(set);
	ck_assert(!fdry_kernel_set_allocates(set));
	intern(set, kernel_of(l, "gives"), true);
	intern(set, kernel_of(l, "takes"), true);
	slice(set);
	ck_assert(fdry_kernel_set_allocates(set));
	ck_assert(!sliced(set, 0)->allocates);
	k = fdry_kernel_set_get(set, 1);
	ck_assert(k->whole && k->allocates && !k->prints);
	ck_assert_ptr_nonnull(strstr(k->whole_reason, "it calls free (device malloc)"));
	k = fdry_kernel_set_get(set, 2);
	ck_assert(k->whole && k->allocates && !k->prints);
	ck_assert_ptr_nonnull(strstr(k->whole_reason, "it calls malloc (device malloc)"));
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(whole_with_a_reason)
{
	struct fdry_kernel_set *set;
	const struct fdry_kernel *k;
	struct fdry_oid oid;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("vars.100.cubin");
	intern(set, kernel_of(l, "alone"), true);
	intern(set, kernel_of(l, "bump"), true);
	slice(set);
	k = fdry_kernel_set_get(set, 0);
	ck_assert(k->whole);
	ck_assert_ptr_nonnull(strstr(k->whole_reason, "Mercury"));
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 1);
	ck_assert_uint_eq(fdry_kernel_set_object(set, 0, &oid).len, l->bytes.len);
	ck_assert(fdry_oid_eq(&oid, &k->object));
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

static int value_count(void *arg, const struct fdry_kernel_value *v)
{
	(void)v;
	++*(unsigned int *)arg;
	return 0;
}

/* Code that cannot be sliced is stored once for loads with equal constants, and once for each load
 * whose variables kernels can write. */
START_TEST(whole_of_two_loads)
{
	struct fdry_kernel_set *set;
	unsigned int values = 0;
	struct load *a, *b;

	paper_begin();
	set = set_new();
	a = load_file("vars.100.cubin");
	b = load_file("vars.100.cubin");
	intern(set, kernel_of(a, "affine"), true);
	intern(set, kernel_of(b, "affine"), true);
	slice(set);
	ck_assert(fdry_kernel_set_get(set, 0)->whole);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 1);
	variable_of(a, "weights")[0] = 9;
	slice(set);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 2);
	variable_of(b, "weights")[0] = 9;
	slice(set);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 1);
	ok(fdry_kernel_set_values(set, value_count, &values));
	ck_assert_uint_eq(values, 1);
	intern(set, kernel_of(a, "bump"), true);
	intern(set, kernel_of(b, "bump"), true);
	slice(set);
	ck_assert(same_object(set, 0, 2) && !same_object(set, 2, 3));
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 2);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_kernel_whole");
	TCase *tc = tcase_create("kernel");

	tcase_add_test(tc, kernels_that_print_are_whole);
	tcase_add_test(tc, kernels_that_allocate_are_whole);
	tcase_add_test(tc, whole_with_a_reason);
	tcase_add_test(tc, whole_of_two_loads);
	suite_add_tcase(s, tc);
	return test_main(s);
}
