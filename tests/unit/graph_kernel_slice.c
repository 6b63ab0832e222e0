// SPDX-License-Identifier: Apache-2.0
/* Unit tests of what becomes of the kernels of a set, with a driver on paper: objects, variables,
 * refusals. */
#include "tests/lib/paper.h"

/* --- slicing --- */

START_TEST(kernels_that_share_a_variable_stay_together)
{
	struct fdry_kernel_set *set;
	struct load *l;
	uint32_t bump, alone, bump_by, lookup, affine, more;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	bump = intern(set, kernel_of(l, "bump"), true);
	alone = intern(set, kernel_of(l, "alone"), true);
	bump_by = intern(set, kernel_of(l, "bump_by"), true);
	lookup = intern(set, kernel_of(l, "lookup"), true);
	affine = intern(set, kernel_of(l, "affine"), true);
	slice(set);
	ck_assert(same_object(set, bump, bump_by));
	ck_assert(!same_object(set, bump, alone) && !same_object(set, alone, lookup) &&
		  !same_object(set, lookup, affine));
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 4);
	for (more = 0; more < 5; more++)
		sliced(set, more);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* The same kernels give the same objects, in whatever order they were met. */
START_TEST(order_does_not_matter)
{
	static const char *const names[] = { "bump", "alone", "bump_by", "own_static" };
	struct fdry_kernel_set *a, *b;
	struct load *l;
	uint32_t i;

	paper_begin();
	a = set_new();
	b = set_new();
	l = load_file("vars.90.cubin");
	for (i = 0; i < 4; i++) {
		intern(a, kernel_of(l, names[i]), true);
		intern(b, kernel_of(l, names[3 - i]), true);
	}
	slice(a);
	slice(b);
	for (i = 0; i < 4; i++)
		ck_assert(fdry_oid_eq(&fdry_kernel_set_get(a, i)->object,
				      &fdry_kernel_set_get(b, 3 - i)->object));
	fdry_kernel_set_free(a);
	fdry_kernel_set_free(b);
	paper_end();
}
END_TEST

/* What is read only is everybody's own: constants, and strings of assertions. */
START_TEST(read_only_data_is_duplicated)
{
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("syscalls.90.cubin");
	paper.hide_names = true; /* and needs no reading */
	intern(set, kernel_of(l, "checks"), true);
	intern(set, kernel_of(l, "quiet"), true);
	intern(set, kernel_of(l, "checks_too"), true);
	slice(set);
	ck_assert(!same_object(set, 0, 2));
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 3);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(two_loads_with_a_variable_each)
{
	struct fdry_kernel_set *set;
	struct load *a, *b;

	paper_begin();
	set = set_new();
	a = load_file("vars.90.cubin");
	b = load_file("vars.90.cubin");
	intern(set, kernel_of(a, "lookup"), true);
	intern(set, kernel_of(b, "affine"), true); /* shares nothing */
	slice(set);
	intern(set, kernel_of(a, "bump"), true);
	intern(set, kernel_of(b, "bump_by"), true);
	slice_refused(set, "loaded twice", "bump");
	fdry_kernel_set_free(set);
	set = set_new();
	intern(set, kernel_of(a, "bump"), true);
	intern(set, kernel_of(b, "bump"), true); /* one kernel, two counters */
	slice_refused(set, "loaded twice", "bump");
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* A function has one set of attributes, and a second load of its module would have variables of its
 * own. */
START_TEST(two_sets_of_attributes_and_a_variable)
{
	struct paper_kernel alone, bump; /* the context's functions, of which only the kernels had
					    their attributes set */
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	alone = *kernel_of(l, "alone");
	bump = *kernel_of(l, "bump");
	kernel_of(l, "alone")->kernel_attrs[0] = 100000;
	kernel_of(l, "bump")->kernel_attrs[0] = 100000;
	intern(set, kernel_of(l, "alone"), true); /* it writes nothing */
	ck_assert_uint_eq(intern(set, &alone, false), 1);
	intern(set, kernel_of(l, "bump_by"), false);
	intern(set, kernel_of(l, "bump"), true);
	slice(set);
	ck_assert_uint_eq(intern(set, &bump, false), 4);
	slice_refused(set, "different attributes", "bump");
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(changed_variables)
{
	static const struct {
		const char *kernel, *variable;
	} changes[] = {
		{ "bump", "counter" },	    { "lookup", "table" },
		{ "lookup", "into_table" }, { "affine", "weights" },
		{ "affine", "biases" },	    { "own_static", "_ZZ10own_staticE5calls" },
	};
	struct fdry_kernel_set *set;
	struct load *l;
	uint8_t *v;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	v = variable_of(l, changes[_i].variable);
	intern(set, kernel_of(l, changes[_i].kernel), _i % 2);
	intern(set, kernel_of(l, "alone"), true);
	v[3] ^= 1;
	slice_refused(set, changes[_i].variable, changes[_i].kernel);
	v[3] ^= 1;
	slice(set); /* and the set can be used again */
	variable_of(l, "untouched")[0] ^= 1; /* what no kernel here reaches may change */
	slice(set);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(unreadable_variables)
{
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	intern(set, kernel_of(l, "bump"), true);
	paper.hide_names = true;
	slice_refused(set, "unknown to the driver", "counter");
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(refused_kernels)
{
	static const struct {
		const char *file, *kernel, *why;
	} refused[] = {
		{ "syscalls.90.cubin", "says", "device printf" },
		{ "syscalls.90.cubin", "takes", "device malloc" },
		{ "syscalls.90.cubin", "gives", "device malloc" },
		{ "linked.90.cubin", "indirect", "through pointers" },
		{ "launches.rel.cubin", "parent", "dynamic parallelism" },
	};
	struct fdry_kernel_set *set;

	paper_begin();
	set = set_new();
	intern(set, kernel_of(load_file("plain.90.cubin"), "add"), true);
	intern(set, kernel_of(load_file(refused[_i].file), refused[_i].kernel), true);
	slice_refused(set, refused[_i].why, refused[_i].kernel);
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

int main(void)
{
	Suite *s = suite_create("graph_kernel_slice");
	TCase *tc = tcase_create("kernel");

	tcase_add_test(tc, kernels_that_share_a_variable_stay_together);
	tcase_add_test(tc, order_does_not_matter);
	tcase_add_test(tc, read_only_data_is_duplicated);
	tcase_add_test(tc, two_loads_with_a_variable_each);
	tcase_add_test(tc, two_sets_of_attributes_and_a_variable);
	tcase_add_loop_test(tc, changed_variables, 0, 6);
	tcase_add_test(tc, unreadable_variables);
	tcase_add_loop_test(tc, refused_kernels, 0, 5);
	tcase_add_test(tc, whole_with_a_reason);
	suite_add_tcase(s, tc);
	return test_main(s);
}
