// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of a store that several processes use, some of which die: two seals under one name,
 * kill -9 while sealing, a full disk, many processes at once.
 */
#include <signal.h>
#include <sys/resource.h>

#include "tests/lib/clock.h"
#include "tests/lib/share.h"

static void setup(void)
{
	dir_setup();
	fdry_store_close(store_make());
}

static void teardown(void)
{
	dir_teardown();
}

/* --- two seals under one name --- */

START_TEST(one_of_many_processes_gets_the_name)
{
	enum { N = 4 };
	struct fdry_store *s;
	pid_t pids[N];
	int go[2], ready[2], i, round, won, raced, got;
	char c;

	for (round = 0; round < 5; round++) {
		ck_assert(!pipe(go) && !pipe(ready));
		for (i = 0; i < N; i++) {
			pids[i] = fork();
			if (!pids[i]) {
				struct fdry_writer *p;
				struct fdry_oid oid;

				/* All have begun before any commits. */
				close(go[1]);
				if (fdry_store_open(path, 0, &s) || fdry_writer_begin(s, &p))
					_exit(3);
				if (write(ready[1], "r", 1) != 1 || read(go[0], &c, 1) != 0)
					_exit(4);
				got = round * N + i;
				got = fdry_writer_commit(p, &got, sizeof(got), NULL, 0, "name",
							 &oid, NULL);
				_exit(!got ? 0 : got == -FDRY_E_RACED ? 1 : 2);
			}
		}
		for (i = 0; i < N; i++)
			ck_assert_int_eq(read(ready[0], &c, 1), 1);
		close(go[0]);
		close(go[1]);
		won = raced = 0;
		for (i = 0; i < N; i++) {
			got = share_wait(pids[i]);
			won += got == 0;
			raced += got == 1;
		}
		close(ready[0]);
		close(ready[1]);
		ck_assert_int_eq(won, 1);
		ck_assert_int_eq(raced, N - 1);
	}
}
END_TEST

/* --- dying --- */

static void seal_for_ever(uint64_t seed)
{
	struct fdry_store *s;
	char ref[32];
	int i;

	if (fdry_store_open(path, 0, &s))
		_exit(1);
	for (i = 0;; i++) {
		snprintf(ref, sizeof(ref), "r%d", i % 3);
		if (share_seal(s, seed + (uint64_t)i * 40, 40, 300000, ref))
			_exit(1);
	}
}

/* Whenever it dies: the store opens, is sound, every ref is whole, and the locks are free. */
START_TEST(killed_while_sealing)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s;
	int i, status;
	pid_t pid;

	for (i = 0; i < 8; i++) {
		pid = fork();
		if (!pid)
			seal_for_ever(1 + 100000 * (uint64_t)i);
		usleep(20000 + 37000 * (unsigned int)i);
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(WIFSIGNALED(status), "%d", status);
		ok(fdry_store_open(path, 0, &s));
		check_sound(s);
		ok(fdry_store_gc(s, NULL, &r));
		check_sound(s);
		fdry_store_close(s);
	}
}
END_TEST

/* Whenever it dies: no image is left that lacks something. */
START_TEST(killed_while_collecting)
{
	enum { MANY = TEST_ROUNDS(9000) };
	struct fdry_verify_report r;
	unsigned int left, half = 0;
	struct fdry_gc_report gr = { .sz = sizeof(gr) };
	struct fdry_store *s;
	int i;

	for (i = 0; i < 6; i++) {
		pid_t pid;

		ok(fdry_store_open(path, 0, &s));
		seal(s, 1, MANY, 10, NULL);
		fdry_store_close(s);
		pid = fork();
		if (!pid)
			_exit(fdry_store_open(path, 0, &s) || fdry_store_gc(s, NULL, &gr));
		usleep(8000 + 7000 * (unsigned int)i);
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
		ok(fdry_store_open(path, 0, &s));
		ok(store_verify(s, &r));
		ck_assert_uint_eq(r.faults, 0);
		left = (unsigned int)r.objects;
		half += left && left < MANY + 1;
		ok(fdry_store_gc(s, NULL, &gr));
		ck_assert_uint_eq(gr.dead, left);
		fdry_store_close(s);
	}
	fprintf(stderr, "%u of 6 collections were stopped half way\n", half);
}
END_TEST

/* If the holder of the writers' lock dies, others get the lock, and its writes are not visible. */
START_TEST(killed_inside_a_transaction)
{
	struct fdry_store *s;
	struct fdry_oid oid;
	struct fdry_txn t;
	int pipes[2];
	pid_t pid;
	char c;

	ck_assert(!pipe(pipes));
	pid = fork();
	if (!pid) {
		if (fdry_store_open(path, 0, &s) || fdry_txn_write(s->env->db, 0, &t))
			_exit(1);
		oid = oid_of("x", 1);
		if (fdry_ref_store(&t, "half", &oid, NULL) || write(pipes[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	ck_assert_int_eq(read(pipes[0], &c, 1), 1);
	kill(pid, SIGKILL);
	ok(fdry_store_open(path, 0, &s));
	fails(NOENT, "half", fdry_ref_get(s, "half", &oid));
	seal(s, 1, 3, 1000, "r");
	check_sound(s);
	fdry_store_close(s);
	waitpid(pid, NULL, 0);
}
END_TEST

/* --- a full disk --- */

/* Seal until the disk is full. Then earlier images are whole, and smaller seals work again. Returns
 * 0, or the number of a failed step. */
static int fill(uint64_t seed)
{
	struct fdry_verify_report vr;
	struct fdry_gc_report gr = { .sz = sizeof(gr) };
	struct fdry_store *s;
	struct fdry_oid oid;
	int i, err = 0;

	if (fdry_store_open(path, FDRY_STORE_CREATE, &s))
		return 1;
	if (share_seal(s, 1, 4, 100000, "small"))
		return 2;
	for (i = 0; i < 400 && !err; i++)
		err = share_seal(s, seed + 100 * (uint64_t)i, 50, 100000, NULL);
	if (err != -FDRY_E_FULL || !strstr(fdry_last_error(), "f"))
		return 3;
	if (fdry_store_resolve(s, "small", &oid) || store_verify(s, &vr) || vr.faults)
		return 4;
	if (fdry_store_gc(s, NULL, &gr) || gr.live != 5 || !gr.dead)
		return 5;
	if (share_seal(s, 7, 8, 100000, "again") || store_verify(s, &vr) || vr.faults)
		return 6;
	fdry_store_close(s);
	return 0;
}

START_TEST(the_file_may_not_grow)
{
	pid_t pid = fork();

	if (!pid) {
		struct rlimit limit = { 30 << 20, 30 << 20 };

		signal(SIGXFSZ, SIG_IGN);
		_exit(setrlimit(RLIMIT_FSIZE, &limit) ? 100 : fill(1000));
	}
	ck_assert_int_eq(share_wait(pid), 0);
}
END_TEST

/* The same on a full file system, if mounting is permitted. */
START_TEST(the_disk_is_full)
{
	pid_t pid = fork();

	if (!pid) {
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("tmpfs", dir, "tmpfs", 0, "size=30m,mode=700"))
			_exit(0);
		_exit(fill(2000));
	}
	ck_assert_int_eq(share_wait(pid), 0);
}
END_TEST

/* On media that cannot be written there are no lock files to write either. */
static int use_fixed(void)
{
	struct fdry_verify_report r;
	struct fdry_store *s;
	struct fdry_oid oid;
	struct fdry_reader *g;
	struct fdry_buf b = { 0 };
	struct stat st;
	char file[400];

	if (fdry_store_open(path, 0, &s) != -FDRY_E_PERM ||
	    !strstr(fdry_last_error(), "read-only media"))
		return 1;
	if (fdry_store_open(path, FDRY_STORE_READONLY, &s) || fdry_store_resolve(s, "r", &oid))
		return 2;
	if (fdry_reader_begin(s, &g) || fdry_reader_copy(g, &oid, &b))
		return 3;
	fdry_reader_end(g);
	if (store_verify(s, &r) || r.faults)
		return 4;
	snprintf(file, sizeof(file), "%s/lock.mdb", path);
	if (!stat(file, &st))
		return 5;
	fdry_store_close(s);
	return 0;
}

START_TEST(read_only_media)
{
	pid_t pid = fork();

	if (!pid) {
		struct fdry_store *s;
		char file[400];

		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("tmpfs", dir, "tmpfs", 0, "size=30m,mode=700"))
			_exit(0);
		if (fdry_store_open(path, FDRY_STORE_CREATE, &s) || share_seal(s, 1, 3, 5000, "r"))
			_exit(10);
		fdry_store_close(s);
		snprintf(file, sizeof(file), "%s/lock.mdb", path);
		if (unlink(file) || mount(NULL, dir, NULL, MS_REMOUNT | MS_RDONLY, NULL))
			_exit(11);
		_exit(use_fixed());
	}
	ck_assert_int_eq(share_wait(pid), 0);
}
END_TEST

/* --- many at once --- */

static int read_ref(struct fdry_store *s, const char *ref)
{
	struct fdry_oid image, *links = NULL;
	struct fdry_span span;
	struct fdry_reader *g;
	size_t n = 0, i;
	int err = fdry_reader_begin(s, &g);

	if (err)
		return err;
	/* No collection can run between the two calls, because the session shares the lock. */
	err = fdry_store_resolve(s, ref, &image) ?: fdry_store_links(s, &image, &links, &n);
	fdry_reader_end(g);
	if (err)
		return err == -FDRY_E_NOENT ? 0 : err;
	err = fdry_reader_begin(s, &g);
	if (err)
		goto out_free;
	if (fdry_store_resolve(s, ref, &image))
		n = 0;
	for (i = 0; i < n && !err; i++) {
		err = fdry_reader_map(g, &links[i], &span) ?:
		      fdry_reader_verify(g, &links[i], span, i & 1, NULL);
		if (err == -FDRY_E_NOENT) /* meanwhile, the ref was replaced and the old image
					     collected */
			err = 0;
	}
	fdry_reader_end(g);
out_free:
	free(links);
	return err;
}

/* One of many processes: it seals, reads, tags, deletes and collects for a while. Returns 0 if no
 * call returned an unexpected result. */
static int worker(unsigned int nr, double until)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s;
	unsigned int x = nr + 1;
	int err = 0, ops = 0;
	char ref[16];

	if (fdry_store_open(path, 0, &s))
		return 1;
	while (now_s() < until && !err) {
		x = x * 1103515245u + 12345u;
		snprintf(ref, sizeof(ref), "r%u", x >> 20 & 3);
		switch (x >> 16 & 7) {
		case 0: case 1: case 2:
			err = share_seal(s, x >> 18 & 63, 5 + (int)(x >> 24 & 15), 20000, ref);
			if (err == -FDRY_E_RACED)
				err = 0;
			break;
		case 3:
			err = fdry_store_remove(s, ref);
			if (err == -FDRY_E_NOENT)
				err = 0;
			break;
		case 4:
			err = fdry_store_gc(s, NULL, &r);
			if (err == -FDRY_E_LOCKED)
				err = 0;
			break;
		default:
			err = read_ref(s, ref);
		}
		if (++ops % 50 == 0) { /* opening and closing beside others */
			fdry_store_close(s);
			err = err ? err : fdry_store_open(path, 0, &s);
		}
	}
	if (err)
		fprintf(stderr, "process %u: %s: %s\n", nr, fdry_error_name(err),
			fdry_last_error());
	return err ? 2 : 0;
}

START_TEST(many_processes_at_once)
{
	enum { N = 8 };
	double until = now_s() + 4;
	struct fdry_store *s;
	pid_t pids[N];
	int i, bad = 0;

	for (i = 0; i < N; i++) {
		pids[i] = fork();
		if (!pids[i])
			_exit(worker((unsigned int)i, until));
	}
	for (i = 0; i < N; i++)
		bad += share_wait(pids[i]);
	ck_assert_int_eq(bad, 0);
	ok(fdry_store_open(path, 0, &s));
	check_sound(s);
	fdry_store_close(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_process");
	TCase *tc = tcase_create("process");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, one_of_many_processes_gets_the_name);
	tcase_add_test(tc, killed_while_sealing);
	tcase_add_test(tc, killed_while_collecting);
	tcase_add_test(tc, killed_inside_a_transaction);
	tcase_add_test(tc, the_file_may_not_grow);
	tcase_add_test(tc, the_disk_is_full);
	tcase_add_test(tc, read_only_media);
	tcase_add_test(tc, many_processes_at_once);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
