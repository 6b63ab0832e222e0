// SPDX-License-Identifier: Apache-2.0
/*
 * unseen.c - writers that die when their commit is durable and not yet shown to readers.
 *
 * LMDB writes the meta page, then the transaction's number for readers. Between the two, a child
 * ends itself. Other processes must then handle the store correctly.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>

#include "tests/crash/io.h"
#include "tests/lib/store.h"

static int commits; /* until the child ends itself */

static void leave(struct io_call *c, long ret)
{
	int flags = c->op == IO_WRITE ? fcntl(c->fd, F_GETFL) : -1;

	if (ret > 0 && flags >= 0 && flags & O_DSYNC && !--commits)
		syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
}

static const struct io_hooks hooks = { NULL, leave };

static struct fdry_store
	*s; /* open in the parent since before the child's end, so no process clears the table */

static void setup(void)
{
	dir_setup();
	s = store_make();
}

static void teardown(void)
{
	fdry_store_close(s);
	dir_teardown();
}

/* Run @fn on a handle of its own in a child, which dies inside its @nth commit. */
static void dies_in_commit(int nth, void (*fn)(struct fdry_store *own))
{
	pid_t pid = fork();
	int status = 0;

	if (!pid) {
		struct fdry_store *own;

		if (fdry_store_open(path, 0, &own))
			_exit(1);
		commits = nth;
		io_hooks = &hooks;
		fn(own);
		_exit(2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%#x", status);
}

static void collects(struct fdry_store *own)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };

	(void)!fdry_store_gc(own, NULL, &r);
}

/* Two transactions: the parts, put twice each, then manifest and ref. */
static void seals(struct fdry_store *own)
{
	uint8_t data[5000];
	struct fdry_oid oid;
	struct fdry_writer *p;

	noise(1, data, sizeof(data));
	if (!fdry_writer_begin(own, &p) &&
	    !fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, sizeof(data), NULL, 0, &oid) &&
	    !fdry_writer_add_object(p, FDRY_OBJECT_GRAPH, data, sizeof(data), NULL, 0, &oid))
		(void)!fdry_writer_commit(p, "image", 5, &oid, 1, "r", &oid, NULL);
}

/* Objects that a dead collector removed do not count as known. */
START_TEST(a_put_after_a_collector_that_died)
{
	struct fdry_oid kernel, graph, image;
	uint8_t data[3000], other[100];
	struct fdry_writer *p;
	struct fdry_reader *g;

	noise(1, data, sizeof(data));
	noise(2, other, sizeof(other));
	ok(fdry_writer_begin(s, &p));
	kernel = put(p, FDRY_OBJECT_KERNEL, data, sizeof(data));
	ok(fdry_writer_commit(p, "old", 3, &kernel, 1, NULL, &image, NULL));
	dies_in_commit(1, collects);
	ok(fdry_writer_begin(s, &p));
	kernel = put(p, FDRY_OBJECT_KERNEL, data, sizeof(data));
	ok(fdry_writer_add_object(p, FDRY_OBJECT_GRAPH, other, sizeof(other), &kernel, 1, &graph));
	ok(fdry_writer_commit(p, "new", 3, &graph, 1, "r", &image, NULL));
	check_sound(s);
	ok(fdry_reader_begin(s, &g));
	check_object(g, &kernel, data, sizeof(data));
	fdry_reader_end(g);
}
END_TEST

/* Objects of a dead seal's ref are not collected: the ref appears when the next writer begins. */
START_TEST(a_collection_after_a_seal_that_died)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_oid oid;
	struct fdry_reader *g;
	uint8_t data[5000];

	dies_in_commit(2, seals);
	ok(fdry_store_gc(s, NULL, &r));
	check_sound(s);
	ok(fdry_ref_get(s, "r", &oid));
	noise(1, data, sizeof(data));
	oid = oid_of(data, sizeof(data));
	ok(fdry_reader_begin(s, &g));
	check_object(g, &oid, data, sizeof(data));
	fdry_reader_end(g);
}
END_TEST

/* Readers need not wait, and see a whole state, the one before or the one after. */
START_TEST(a_load_after_a_seal_that_died)
{
	struct fdry_oid oid;
	int err;

	dies_in_commit(2, seals);
	err = fdry_ref_get(s, "r", &oid);
	ck_assert(!err || err == -FDRY_E_NOENT);
	seal(s, 50, 1, 100, "q");
	ok(fdry_ref_get(s, "r", &oid));
	check_sound(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("unseen");
	TCase *tc = tcase_create("unseen");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_put_after_a_collector_that_died);
	tcase_add_test(tc, a_collection_after_a_seal_that_died);
	tcase_add_test(tc, a_load_after_a_seal_that_died);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
