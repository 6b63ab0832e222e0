// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of lib/fd.h: descriptors in a process that closed 0, 1 or 2, writes beyond the limit
 * on a file's length, and directories that cannot be listed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/file.h"
#include "tests/lib/test.h"

/* In a child, which answers with the number of the check that failed. */
static int child_returns(int (*fn)(int arg), int arg)
{
	int status = 0;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(fn(arg));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "the child was ended by signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

/* Bit n of @missing: descriptor n is closed. */
static void close_low(int missing)
{
	int fd;

	for (fd = 0; fd < FDRY_FD_LOW; fd++)
		if (missing & 1 << fd)
			close(fd);
}

static bool low_are_missing(int missing)
{
	int fd, found = 0;

	for (fd = 0; fd < FDRY_FD_LOW; fd++)
		if (fcntl(fd, F_GETFD) == -1)
			found |= 1 << fd;
	return found == missing;
}

static int make_all(int missing)
{
	char name[] = "/tmp/foundry-test-XXXXXX";
	int fds[8], n = 0, i, p[2], temp;
	FILE *r, *w;

	temp = mkstemp(name);
	close_low(missing);
	if (temp < 0 || fdry_pipe(p, 0))
		return 1;
	fds[n++] = p[0];
	fds[n++] = p[1];
	fds[n++] = fdry_open("/dev/null", O_RDWR, 0);
	fds[n++] = fdry_openat(AT_FDCWD, "/", O_DIRECTORY, 0);
	fds[n++] = fdry_memfd("test");
	fds[n++] = fdry_dup(temp);
	r = fdry_fopen_read("/dev/null");
	w = fdry_fopen_write(name);
	unlink(name);
	if (!r || !w)
		return 2;
	fds[n++] = fileno(r);
	fds[n++] = fileno(w);
	for (i = 0; i < n; i++)
		if (fds[i] < FDRY_FD_LOW || fcntl(fds[i], F_GETFD) != FD_CLOEXEC)
			return 10 + i;
	return low_are_missing(missing) ? 0 : 3;
}

START_TEST(made_above)
{
	ck_assert_int_eq(child_returns(make_all, _i), 0);
}
END_TEST

/* Between enter and leave, writes to a missing descriptor are discarded; a descriptor that another
 * thread opens there stays. */
static int enter_leave(int missing)
{
	struct fdry_fd_low was;
	bool entered, again;
	int null;

	close_low(missing);
	entered = fdry_fd_enter();
	again = fdry_fd_enter();
	if (write(2, "x", 1) != -1 || errno != EBADF)
		return 1;
	null = open("/dev/null", O_RDWR);
	if (null < FDRY_FD_LOW)
		return 2;
	fdry_fd_leave(again);
	if (open("/dev/null", O_RDWR) < FDRY_FD_LOW)
		return 3;
	fdry_fd_low_get(&was);
	if (!fdry_fd_low_same(&was) || dup2(null, 1) != 1 || fdry_fd_low_same(&was))
		return 4;
	fdry_fd_leave(entered);
	if (!low_are_missing(missing & ~2))
		return 5;
	return write(1, "x", 1) == 1 ? 0 : 6;
}

START_TEST(kept_free)
{
	ck_assert_int_eq(child_returns(enter_leave, 7), 0);
}
END_TEST

static int fork_inside(int missing)
{
	int status = -1;
	bool entered;
	pid_t pid;

	close_low(missing);
	entered = fdry_fd_enter();
	pid = fork();
	if (!pid)
		_exit(!low_are_missing(missing) || fdry_memfd("test") < FDRY_FD_LOW ||
		      !low_are_missing(missing));
	fdry_fd_leave(entered);
	return waitpid(pid, &status, 0) == pid && !status ? 0 : 1;
}

START_TEST(forked)
{
	ck_assert_int_eq(child_returns(fork_inside, 7), 0);
}
END_TEST

/* Threads that make descriptors beside each other, while one opens and closes the low numbers. */
static atomic_bool enough;
static atomic_int low_seen;

static void *maker(void *arg)
{
	int i, fd;

	(void)arg;
	for (i = 0; i < 2000; i++) {
		fd = fdry_open("/dev/null", O_RDWR, 0);
		if (fd >= 0 && fd < FDRY_FD_LOW)
			atomic_fetch_add(&low_seen, 1);
		if (fd >= 0)
			close(fd);
	}
	return NULL;
}

static void *shuffler(void *arg)
{
	int fd = *(int *)arg, i;

	while (!atomic_load(&enough))
		for (i = 0; i < FDRY_FD_LOW; i++) {
			dup2(fd, i);
			close(i);
		}
	return NULL;
}

static int race(int missing)
{
	pthread_t makers[4], other;
	int i, fd = open("/dev/zero", O_RDWR);

	close_low(missing);
	if (pthread_create(&other, NULL, shuffler, &fd))
		return 1;
	for (i = 0; i < 4; i++)
		if (pthread_create(&makers[i], NULL, maker, NULL))
			return 2;
	for (i = 0; i < 4; i++)
		pthread_join(makers[i], NULL);
	atomic_store(&enough, true);
	pthread_join(other, NULL);
	return atomic_load(&low_seen) ? 3 : 0;
}

START_TEST(threads)
{
	ck_assert_int_eq(child_returns(race, 7), 0);
}
END_TEST

/* --- the limit on a file's length --- */

#define LIMIT 8192

static atomic_int signals;

static void on_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&signals, 1);
}

enum { DEFAULT, HANDLED, BLOCKED, KINDS };

static int too_long(int kind)
{
	struct rlimit limit = { LIMIT, LIMIT };
	static char bytes[LIMIT];
	int fd = fdry_memfd("test");
	struct fdry_xfsz outer;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGXFSZ);
	if (setrlimit(RLIMIT_FSIZE, &limit) || fd < 0)
		return 1;
	if (kind == HANDLED)
		signal(SIGXFSZ, on_signal);
	if (kind == BLOCKED)
		pthread_sigmask(SIG_BLOCK, &set, NULL);
	fdry_xfsz_hold(&outer);
	if (fdry_write(fd, bytes, LIMIT) || fdry_write(fd, bytes, 1) != EFBIG ||
	    fdry_pwrite(fd, bytes, LIMIT, 1) != EFBIG)
		return 2;
	fdry_xfsz_release(&outer);
	if (fdry_truncate(fd, LIMIT + 1) != EFBIG || fdry_allocate(fd, LIMIT + 1) != EFBIG ||
	    fdry_allocate(fd, LIMIT))
		return 3;
	if (signals || (kind == BLOCKED && (sigpending(&set) || sigismember(&set, SIGXFSZ))))
		return 4;
	if (kind != HANDLED)
		return 0;
	/* the program's own writes are as before */
	return write(fd, bytes, 1) == -1 && errno == EFBIG && signals == 1 ? 0 : 5;
}

START_TEST(no_signal)
{
	ck_assert_int_eq(child_returns(too_long, _i), 0);
}
END_TEST

/* --- listing --- */

static int fail_after = -1;
static int fail_with;

/* The C library's, but for a list that ends with an error. */
struct dirent *readdir(DIR *d)
{
	static struct dirent e;

	(void)d;
	if (!fail_after) {
		errno = fail_with;
		return NULL;
	}
	fail_after--;
	snprintf(e.d_name, sizeof(e.d_name), "%s",
		 fail_after == 2   ? "."
		 : fail_after == 1 ? ".."
				   : "a");
	return &e;
}

static int list(int e, int *count)
{
	struct fdry_names names;

	fail_after = 4;
	fail_with = e;
	*count = 0;
	ck_assert_int_eq(fdry_names_open(AT_FDCWD, "/", 0, &names), 0);
	while (fdry_names_next(&names))
		++*count;
	return fdry_names_close(&names);
}

START_TEST(listing)
{
	struct fdry_names names;
	int n;

	errno = EIO; /* of something else */
	ck_assert_int_eq(list(0, &n), 0);
	ck_assert_int_eq(n, 2);
	ck_assert_int_eq(list(EIO, &n), EIO);
	ck_assert_int_eq(n, 2);
	ck_assert_int_eq(fdry_names_open(AT_FDCWD, "/nonexistent", 0, &names), ENOENT);
	ck_assert_int_eq(fdry_names_open(AT_FDCWD, "/dev/null", 0, &names), ENOTDIR);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("arch_fd");
	TCase *tc = tcase_create("fd");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, made_above, 0, 8);
	tcase_add_test(tc, kept_free);
	tcase_add_test(tc, forked);
	tcase_add_test(tc, threads);
	tcase_add_loop_test(tc, no_signal, 0, KINDS);
	tcase_add_test(tc, listing);
	suite_add_tcase(s, tc);
	return test_main(s);
}
