// SPDX-License-Identifier: Apache-2.0
/*
 * Unit test of a lease when host memory runs out: an id that the lease remembers is in its file, so
 * that no collection deletes the object. Sanitizers have their own allocator, so under them no
 * allocation fails.
 */
#include "store/lease.h"
#include "tests/lib/nomem.h"
#include "tests/lib/store.h"

#define IDS 600u /* more than half of the slots that the set of ids begins with */
#define FIRST 100u /* noted before the others, so some wait to be written when the set grows */

static int scanned(void *arg, const struct fdry_oid *oid)
{
	return fdry_idset_add(arg, oid, NULL);
}

/* The lease's file must have all ids. */
static void all_written(struct fdry_env *env, const struct fdry_oid *ids)
{
	struct fdry_leases leases = { 0 };
	struct fdry_idset found = { 0 };
	unsigned int i;

	ok(fdry_leases_scan(&leases, env, scanned, &found));
	for (i = 0; i < IDS; i++)
		ck_assert_msg(fdry_idset_has(&found, &ids[i]), "id %u is not in the file", i);
	fdry_idset_release(&found);
	fdry_leases_release(&leases);
}

START_TEST(ids_are_written_although_memory_ran_out)
{
	struct fdry_store *s = store_make();
	struct fdry_oid ids[IDS] = { 0 };
	struct fdry_lease *lease;
	unsigned long n, made;
	unsigned int i;
	int err;

	for (i = 0; i < IDS; i++)
		fdry_set32(ids[i].b, i + 1);
	for (n = 1;; n++) {
		ok(fdry_lease_begin(s->env, &lease));
		test_nomem(n);
		err = fdry_lease_note(lease, ids, FIRST) ?: fdry_lease_note(lease, ids, IDS);
		made = test_nomem(0);
		if (made < n)
			break;
		ck_assert_int_eq(err, -FDRY_E_NOMEM);
		ok(fdry_lease_note(lease, ids, IDS));
		all_written(s->env, ids);
		fdry_lease_end(lease, false);
	}
	ok(err);
	all_written(s->env, ids);
	fdry_lease_end(lease, false);
	ck_assert(TEST_SANITIZED || n > 4); /* the set grew twice */
	fdry_store_close(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_lease_nomem");
	TCase *tc = tcase_create("lease");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_test(tc, ids_are_written_although_memory_ran_out);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
