// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of lock.mdb, which LMDB maps and writes: every byte of it is allocated, so that a full
 * disk gives an error and not a bus error. Also tests of the limit on a file's length, which gives
 * an error and not a signal.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "tests/lib/store.h"

#define NO_MOUNT 77
#define READERS 100 /* more than a page of lock.mdb has places for */
#define FEW 5       /* the number of places that one process may use in one page */

static void setup(void)
{
	dir_setup_in("/dev/shm");
}

static void teardown(void)
{
	dir_teardown();
}

static void lock_path(char file[400])
{
	snprintf(file, 400, "%s/lock.mdb", path);
}

static bool is_allocated(void)
{
	char file[400];
	struct stat st;

	lock_path(file);
	return !stat(file, &st) && st.st_size >= 4096 &&
	       (uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size;
}

/* In a child, which may not use Check: it answers with the number of the line that failed. */
static void in_process(int (*fn)(void))
{
	int status = 0;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(fn());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "the child was ended by signal %d", WTERMSIG(status));
	ck_assert_msg(!WEXITSTATUS(status) || WEXITSTATUS(status) == NO_MOUNT, "%d",
		      WEXITSTATUS(status));
}

static void sound(void)
{
	struct fdry_store *s;

	ok(fdry_store_open(path, 0, &s));
	check_sound(s);
	fdry_store_close(s);
}

static void lock_make_sparse(uint64_t size)
{
	char file[400];
	int fd;

	lock_path(file);
	fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
	ck_assert(fd >= 0 && !ftruncate(fd, (off_t)size) && !close(fd));
}

START_TEST(allocated)
{
	char file[400];
	struct stat st;

	fdry_store_close(store_make());
	ck_assert(is_allocated());
	lock_make_sparse(65664); /* as an older version made it */
	ck_assert(!is_allocated());
	sound();
	ck_assert(is_allocated());
	lock_make_sparse(4 << 20);
	sound();
	ck_assert(is_allocated());
	lock_path(file);
	ck_assert(!unlink(file));
	sound();
	ck_assert(is_allocated());
	ck_assert(!stat(file, &st));
	ck_assert_uint_eq(st.st_size, (FDRY_DB_READERS_MAX + 2) * 64);
}
END_TEST

/* While a process uses the file, its length does not change. */
static int sparse_beside(void)
{
	struct fdry_store *s;
	char file[400];
	struct stat st;

	if (fdry_store_open(path, 0, &s) || !is_allocated())
		return 1;
	lock_path(file);
	return stat(file, &st) || st.st_size != 65664 ? 2 : 0;
}

START_TEST(used_meanwhile)
{
	struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1 };
	char file[400];
	int fd;

	fdry_store_close(store_make());
	lock_path(file);
	fd = open(file, O_RDWR);
	ck_assert(fd >= 0 && !fcntl(fd, F_SETLK, &l)); /* as LMDB does */
	ck_assert(!ftruncate(fd, 4096) && !ftruncate(fd, 65664) && !is_allocated());
	in_process(sparse_beside);
	close(fd);
}
END_TEST

/* --- many readers --- */

static int many_read(struct fdry_store *s, int want)
{
	struct fdry_txn t[READERS];
	int i, n, err = 0;

	for (n = 0; n < want && !err; n++)
		err = fdry_txn_read(s->env->db, &t[n]);
	n -= err != 0;
	for (i = 0; i < n; i++)
		fdry_txn_abort(&t[i]);
	return n;
}

static int limit_set(rlim_t bytes)
{
	struct rlimit limit = { bytes, bytes };

	return setrlimit(RLIMIT_FSIZE, &limit);
}

/* SIGXFSZ would end the process. */
static int small_limit(void)
{
	struct fdry_store *s;
	struct fdry_oid oid;

	if (limit_set(8192) || fdry_store_open(path, 0, &s) || !is_allocated())
		return 1;
	if (many_read(s, FEW) != FEW || fdry_ref_get(s, "m", &oid))
		return 2;
	if (fdry_store_set_limit(s, 1 << 30) != -FDRY_E_FULL ||
	    !strstr(fdry_last_error(), "ulimit -f"))
		return 3;
	fdry_atime_note(s->env, &oid);
	fdry_store_close(s);
	return 0;
}

/* Not even one page of lock.mdb. */
static int no_room(void)
{
	struct fdry_verify_report r;
	struct fdry_store *s;
	struct fdry_oid oid;

	if (limit_set(1000))
		return 1;
	if (fdry_store_open(path, 0, &s) != -FDRY_E_FULL)
		return 2;
	if (fdry_store_open(path, FDRY_STORE_READONLY, &s) || fdry_ref_get(s, "m", &oid) ||
	    many_read(s, READERS) != READERS)
		return 3;
	if (store_verify(s, &r) || r.faults)
		return 4;
	fdry_store_close(s);
	return 0;
}

static void lockless(void)
{
	struct fdry_store *s = store_make();
	char file[400];

	seal(s, 1, 4, 10000, "m");
	fdry_store_close(s);
	lock_path(file);
	ck_assert(!unlink(file));
}

START_TEST(limited)
{
	lockless();
	in_process(small_limit);
	sound();
	ck_assert(is_allocated());
}
END_TEST

START_TEST(no_lock_file)
{
	lockless();
	in_process(no_room);
	sound();
}
END_TEST

/* --- a disk that is full --- */

static int fill_disk(void)
{
	static const char bytes[4096] = { 1 };
	char file[400];
	int fd;

	snprintf(file, sizeof(file), "%s/fill", dir);
	fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
	while (fd >= 0 && write(fd, bytes, sizeof(bytes)) > 0)
		;
	return fd < 0 || close(fd);
}

/* Mount a small disk, as root or in a new namespace. If neither is permitted, only the limits above
 * are tested. */
static bool disk_mount(void)
{
	if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return false;
	return !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=700");
}

/* @sparse: the length of a sparse lock.mdb when the disk is full; 0: there is no lock.mdb. */
static int on_full_disk(uint64_t sparse)
{
	struct fdry_verify_report r;
	struct fdry_store *s;
	struct fdry_oid oid;
	char file[400];
	int err;

	if (!disk_mount())
		return NO_MOUNT;
	lockless();
	if (sparse)
		lock_make_sparse(sparse);
	if (fill_disk())
		return 1;
	err = fdry_store_open(path, sparse ? FDRY_STORE_READONLY : 0, &s);
	if (!sparse && err != -FDRY_E_FULL)
		return 2;
	if (!sparse)
		err = fdry_store_open(path, FDRY_STORE_READONLY, &s);
	if (err || fdry_ref_get(s, "m", &oid) || many_read(s, FEW) != FEW)
		return 3;
	if (store_verify(s, &r) || r.faults || r.crashes)
		return 4;
	fdry_store_close(s);
	snprintf(file, sizeof(file), "%s/fill", dir);
	if (truncate(file, 4096) || fdry_store_open(path, 0, &s) || !is_allocated() ||
	    many_read(s, READERS) != READERS)
		return 5;
	fdry_store_close(s);
	return 0;
}

static int full_without(void)
{
	return on_full_disk(0);
}

static int full_sparse(void)
{
	return on_full_disk(65664);
}

START_TEST(full_disk)
{
	in_process(full_without);
	in_process(full_sparse);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_lockfile");
	TCase *tc = tcase_create("lockfile");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, allocated);
	tcase_add_test(tc, used_meanwhile);
	tcase_add_test(tc, limited);
	tcase_add_test(tc, no_lock_file);
	tcase_add_test(tc, full_disk);
	suite_add_tcase(s, tc);
	return test_main(s);
}
