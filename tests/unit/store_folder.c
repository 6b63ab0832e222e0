// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of a store's folder in a bad state: it cannot be listed, a file in it cannot be read
 * or is a FIFO, and sessions have died in it. No call waits, and no file is removed that may be in
 * use.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "store/lease.h"
#include "tests/lib/store_fixture.h"

static struct fdry_oid put_noise(struct fdry_writer *p, uint64_t seed)
{
	uint8_t data[100];

	noise(seed, data, sizeof(data));
	return put(p, FDRY_OBJECT_CHUNK, data, sizeof(data));
}

/* --- readdir() that fails --- */

#define EXPORT __attribute__((visibility("default")))
#define SKIP 1 /* names before the error; "." is one */

static const char *failing; /* of this folder; NULL: none */
static int failing_with, passed;

EXPORT struct dirent *readdir(DIR *d)
{
	static struct dirent *(*real)(DIR *d);
	char link[64], name[400] = "";
	ssize_t n;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "readdir");
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd(d));
	n = readlink(link, name, sizeof(name) - 1);
	if (failing && n > 0 && !strcmp(name, failing) && passed++ >= SKIP) {
		errno = failing_with;
		return NULL;
	}
	return real(d);
}

static const int errors[] = { EIO, ESTALE };

/* The list of a session's objects cannot be read: nothing may be removed. */
START_TEST(leases_unreadable)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_oid chunk, image;
	char leases[400];
	struct fdry_writer *p;

	snprintf(leases, sizeof(leases), "%s/leases", path);
	seal(s, 7, 2, 100, "other");
	ok(fdry_writer_begin(s, &p));
	chunk = put_noise(p, 1);
	failing = leases;
	failing_with = errors[_i];
	passed = 0;
	fails(IO, "cannot list the store's folder leases", fdry_store_gc(s, NULL, &r));
	passed = 0;
	fails(IO, "cannot list the store's folder leases", fdry_store_gc(s, &gc_dry_run, &r));
	failing = NULL;
	ok(fdry_writer_commit(p, "m", 1, &chunk, 1, "m", &image, NULL));
	check_sound(s);
	ok(fdry_store_gc(s, NULL, &r));
}
END_TEST

/* If the store's own folder cannot be read, a collection reports that, and no store is made in it,
 * since it may hold other files. */
START_TEST(folder_unreadable)
{
	struct fdry_store *other = NULL;
	struct fdry_gc_report r = { .sz = sizeof(r) };
	char place[400];

	failing = path;
	failing_with = errors[_i];
	passed = 0;
	fails(IO, "cannot list", fdry_store_gc(s, NULL, &r));
	snprintf(place, sizeof(place), "%s/new", dir);
	ck_assert(!mkdir(place, 0700));
	failing = place;
	passed = 0;
	fails(IO, "cannot list", fdry_store_open(place, FDRY_STORE_CREATE, &other));
	failing = NULL;
	ok(fdry_store_gc(s, NULL, &r));
	check_sound(s);
}
END_TEST

/* --- files that are not regular --- */

enum { A_FIFO, A_SOCKET, A_FOLDER, A_LINK, KINDS };

static void make_odd(const char *name, int kind)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char file[400];
	int fd;

	snprintf(file, sizeof(file), "%s/%s", path, name);
	(void)unlink(file);
	if (kind == A_FIFO) {
		ck_assert(!mkfifo(file, 0600));
	} else if (kind == A_SOCKET) {
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		ck_assert_uint_lt(strlen(file), sizeof(a.sun_path));
		strcpy(a.sun_path, file);
		ck_assert(fd >= 0 && !bind(fd, (void *)&a, sizeof(a)) && !close(fd));
	} else if (kind == A_FOLDER) {
		ck_assert(!mkdir(file, 0700));
	} else {
		ck_assert(!symlink("/dev/zero", file));
	}
}

static void get_all(const struct fdry_oid *image)
{
	struct fdry_buf b = { 0 };
	struct fdry_reader *g;

	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_copy(g, image, &b));
	fdry_reader_end(g);
	fdry_buf_release(&b);
	fdry_atime_note(s->env, image);
}

/* An odd file in the place of a note costs only the note. In the place of a list of objects in use,
 * it stops a collection, whose message names it.
 */
START_TEST(odd_notes)
{
	struct fdry_oid image = seal(s, 1, 2, 100, "m");
	struct fdry_evict_opts opts = { .sz = sizeof(opts) };
	struct fdry_evict_bounds bounds = { .free = 1 };
	struct fdry_evict_report evicted;
	struct fdry_gc_report r = { .sz = sizeof(r) };

	make_odd("used", _i);
	make_odd("verified", _i);
	make_odd("checked", _i);
	get_all(&image);
	fails(IO, "file used: it is no regular file; remove it",
	      fdry_evict(s, &opts, &bounds, &evicted));
	ok(fdry_store_gc(s, NULL, &r));
	fdry_store_close(s);
	ok(fdry_store_open(path, 0, &s));
	check_sound(s);
	get_all(&image);
}
END_TEST

START_TEST(odd_lease)
{
	struct fdry_oid image = seal(s, 1, 2, 100, "m");
	struct fdry_gc_report r = { .sz = sizeof(r) };
	char file[400];

	make_odd("leases/0123456789abcdef", _i);
	fails(IO,
	      "leases/0123456789abcdef in the store, which may keep objects: it is no regular "
	      "file; remove it",
	      fdry_store_gc(s, NULL, &r));
	get_all(&image);
	snprintf(file, sizeof(file), "%s/leases/0123456789abcdef", path);
	ck_assert(!remove(file));
	ok(fdry_store_gc(s, NULL, &r));
}
END_TEST

START_TEST(odd_claim)
{
	struct fdry_claim *claim = NULL;
	char name[64], hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid oid = oid_of("x", 1);
	struct fdry_gc_report r = { .sz = sizeof(r) };
	bool waited = false;

	snprintf(name, sizeof(name), ".claim-%.16s", fdry_oid_hex(&oid, hex));
	make_odd(name, _i);
	fails(IO, "it is no regular file", fdry_claim_begin(s, "x", 1, NULL, &waited, &claim));
	ok(fdry_store_gc(s, NULL, &r));
}
END_TEST

/* The store checks LMDB's own files before LMDB opens them. */
START_TEST(odd_database)
{
	static const char *const names[] = { "data.mdb", "lock.mdb" };
	int i;

	for (i = 0; i < 2; i++) {
		fdry_store_close(s);
		make_odd(names[i], _i);
		s = NULL;
		fails(NOSTORE, names[i], fdry_store_open(path, 0, &s));
		fails(NOSTORE, names[i], fdry_store_open(path, FDRY_STORE_READONLY, &s));
		dir_teardown();
		dir_setup_in("/dev/shm");
		s = store_make();
	}
}
END_TEST

/* --- sessions that died --- */

/* A session that ends with its process, and stored objects. */
static void die_putting(void)
{
	struct fdry_store *own;
	struct fdry_writer *w;
	int i;

	if (fdry_store_open(path, 0, &own) || fdry_writer_begin(own, &w))
		_exit(1);
	for (i = 0; i < 20; i++)
		put_noise(w, 100 + (uint64_t)i);
	_exit(fdry_writer_flush(w) != 0);
}

/* A dry run reports exactly the objects that a collection removes. */
START_TEST(plan_is_the_deed)
{
	struct fdry_gc_report plan = { .sz = sizeof(plan) }, deed = { .sz = sizeof(deed) };
	struct fdry_writer *alive;
	struct fdry_oid chunk;
	int status = 0;
	pid_t pid;

	seal(s, 1, 3, 100, "m");
	ok(fdry_writer_begin(s, &alive));
	chunk = put_noise(alive, 50);
	ok(fdry_writer_flush(alive));
	pid = fork();
	if (!pid)
		die_putting();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && !WEXITSTATUS(status));
	ok(fdry_store_gc(s, &gc_dry_run, &plan));
	ok(fdry_store_gc(s, NULL, &deed));
	ck_assert_uint_eq(deed.dead, 20);
	ck_assert_uint_eq(plan.dead, deed.dead);
	ck_assert_uint_eq(plan.dead_bytes, deed.dead_bytes);
	ck_assert_uint_eq(plan.live, deed.live);
	ck_assert_uint_eq(plan.leases, deed.leases);
	ck_assert_uint_eq(plan.reclaimed, 1);
	ck_assert_uint_eq(deed.reclaimed, 1);
	ok(fdry_writer_commit(alive, "a", 1, &chunk, 1, "a", &chunk, NULL));
	check_sound(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_folder");
	TCase *tc = tcase_create("folder");

	tcase_add_checked_fixture(tc, store_setup, store_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, leases_unreadable, 0, 2);
	tcase_add_loop_test(tc, folder_unreadable, 0, 2);
	tcase_add_loop_test(tc, odd_notes, 0, KINDS);
	tcase_add_loop_test(tc, odd_lease, 0, KINDS);
	tcase_add_loop_test(tc, odd_claim, 0, KINDS);
	tcase_add_loop_test(tc, odd_database, 0, KINDS);
	tcase_add_test(tc, plan_is_the_deed);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
