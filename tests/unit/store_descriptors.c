// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of a store in a process that has closed its standard input, output and error. No file
 * of the store or of LMDB gets such a descriptor, so later output of the program harms no file.
 */
#include <fcntl.h>
#include <stdarg.h>

#include "lib/fd.h"
#include "tests/lib/store.h"

static void setup(void)
{
	dir_setup_in("/dev/shm");
}

static void teardown(void)
{
	dir_teardown();
}

/* Write to standard output and error, which are closed: the bytes must not reach any file. */
static bool say(void)
{
	static const char text[] =
		"server: started, and says so at some length, so that a file would notice\n";
	int fd;

	for (fd = 0; fd < FDRY_FD_LOW; fd++)
		if (write(fd, text, sizeof(text)) != -1 || errno != EBADF)
			return false;
	return true;
}

/* In a child, which may not use Check: it answers with the number of the line that failed. */
static void without_low(int missing, int (*fn)(void))
{
	int status = 0, fd;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		for (fd = 0; fd < FDRY_FD_LOW; fd++)
			if (missing & 1 << fd)
				close(fd);
		_exit(fn());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "the child was ended by signal %d", WTERMSIG(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}

static int put_image(struct fdry_store *s, uint64_t seed, const char *ref, struct fdry_oid *ret)
{
	uint8_t data[20000];
	struct fdry_oid link;
	struct fdry_writer *p;
	int err;

	noise(seed, data, sizeof(data));
	err = fdry_writer_begin(s, &p) ?:
	      fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, sizeof(data), NULL, 0, &link) ?:
	      !say();
	return err ?: fdry_writer_commit(p, &seed, sizeof(seed), &link, 1, ref, ret, NULL);
}

static void say_progress(void *arg, uint64_t done, uint64_t total)
{
	bool *said = arg;

	(void)done, (void)total;
	*said &= say();
}

static int export_nowhere(struct fdry_store *s)
{
	bool said = true;
	struct fdry_export_opts opts = { .sz = sizeof(opts), .progress = say_progress,
					 .progress_arg = &said };
	const char *name = "m";
	int fd = fdry_open("/dev/null", O_WRONLY, 0);
	int err = fd < 0 ? 1 : fdry_store_export(s, &name, 1, fd, &opts, NULL);

	close(fd);
	return err || !said;
}

/* One of everything that opens a file. */
static int everything(void)
{
	struct fdry_verify_report v;
	struct fdry_oid image;
	struct fdry_gc_report gc = { .sz = sizeof(gc) };
	struct fdry_claim *claim;
	struct fdry_store *s;
	struct fdry_reader *reader;
	bool waited;

	if (fdry_store_open(path, FDRY_STORE_CREATE, &s) || !say())
		return 1;
	if (put_image(s, 1, "m", &image) || !say() || put_image(s, 2, NULL, &image) ||
	    !say())
		return 2;
	if (fdry_ref_get(s, "m", &image) || fdry_reader_begin(s, &reader) || !say())
		return 3;
	fdry_atime_note(s->env, &image);
	fdry_reader_end(reader);
	if (fdry_claim_begin(s, "x", 1, NULL, &waited, &claim) || !say())
		return 4;
	fdry_claim_end(claim);
	if (export_nowhere(s))
		return 5;
	if (fdry_store_gc(s, NULL, &gc) || !gc.dead || !say())
		return 6;
	if (store_verify(s, &v) || v.faults || !say())
		return 7;
	fdry_store_close(s);
	if (fdry_store_open(path, FDRY_STORE_READONLY, &s) || !say() ||
	    fdry_ref_get(s, "m", &image))
		return 8;
	fdry_store_close(s);
	return say() ? 0 : 9;
}

static void sound(void)
{
	struct fdry_store *s;

	ok(fdry_store_open(path, 0, &s));
	check_sound(s);
	fdry_store_close(s);
}

START_TEST(all_closed)
{
	without_low(7, everything);
	sound();
}
END_TEST

/* --- another thread --- */

/* When LMDB opens its @nth file, another thread closes the low descriptors, @closings times. */
static int closings, nth;

static int open_as(const char *name, int flags, mode_t mode)
{
	const char *end = strrchr(name, '/');
	static int seen;
	int fd;

	if (closings && end && strstr(end, ".mdb") && seen++ % 3 == nth) {
		closings--;
		for (fd = 0; fd < FDRY_FD_LOW; fd++)
			close(fd);
	}
	return openat(AT_FDCWD, name, flags, mode);
}

#define EXPORT __attribute__((visibility("default")))
#define MODE_OF(flags) ({ \
	mode_t mode_ = 0; \
	va_list ap_; \
	va_start(ap_, flags); \
	if ((flags) & O_CREAT) \
		mode_ = va_arg(ap_, mode_t); \
	va_end(ap_); \
	mode_; })

/* This replaces the function for LMDB's calls. */
EXPORT int open(const char *name, int flags, ...)
{
	return open_as(name, flags, MODE_OF(flags));
}

int open64(const char *name, int flags, ...);
EXPORT int open64(const char *name, int flags, ...)
{
	return open_as(name, flags, MODE_OF(flags));
}

static bool store_is_low(void)
{
	static const char *const names[] = { "data.mdb", "lock.mdb" };
	struct stat st, low;
	char file[400];
	int i, fd;

	for (i = 0; i < 2; i++) {
		snprintf(file, sizeof(file), "%s/%s", path, names[i]);
		for (fd = 0; fd < FDRY_FD_LOW; fd++)
			if (!stat(file, &st) && !fstat(fd, &low) && st.st_dev == low.st_dev &&
			    st.st_ino == low.st_ino)
				return true;
	}
	return false;
}

static int closed_meanwhile(void)
{
	struct fdry_store *s;
	int err;

	closings = 1;
	if (fdry_store_open(path, 0, &s) || closings || store_is_low())
		return 1;
	fdry_store_close(s);
	closings = 1000;
	err = fdry_store_open(path, 0, &s);
	closings = 0;
	if (err != -FDRY_E_STATE || !strstr(fdry_last_error(), "another thread keeps closing") ||
	    store_is_low())
		return 2;
	if (fdry_store_open(path, 0, &s) || store_is_low())
		return 3;
	fdry_store_close(s);
	return 0;
}

START_TEST(another_thread)
{
	fdry_store_close(store_make());
	nth = _i;
	without_low(0, closed_meanwhile);
	without_low(7, closed_meanwhile);
	sound();
}
END_TEST

/* The library does not forbid a program's own descriptor of such a file. */
static int data_as_input(void)
{
	struct fdry_store *s;
	char file[400];

	snprintf(file, sizeof(file), "%s/data.mdb", path);
	close(0);
	if (open(file, O_RDONLY))
		return 1;
	if (fdry_store_open(path, 0, &s))
		return 2;
	fdry_store_close(s);
	return 0;
}

START_TEST(input_is_the_store)
{
	fdry_store_close(store_make());
	without_low(0, data_as_input);
	sound();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_descriptors");
	TCase *tc = tcase_create("descriptors");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, all_closed);
	tcase_add_loop_test(tc, another_thread, 0, 3);
	tcase_add_test(tc, input_is_the_store);
	suite_add_tcase(s, tc);
	return test_main(s);
}
