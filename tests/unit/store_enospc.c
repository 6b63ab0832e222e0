// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of a store on a full disk, or in a full map: a seal or an import there, with and
 * without a limit of the store. Each runs in a child with a limit on the size of files. If mounting
 * is allowed, it runs again on a file system that is really full.
 */
#include "store/env_open.c"

#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "tests/lib/pack.h"

#define DISK (24u << 20)
#define CHUNK (256u << 10)
#define NO_MOUNT 77

static struct fdry_store *s;

static void setup(void)
{
	dir_setup_in("/dev/shm");
}

/* --- the disk --- */

enum { FILE_LIMIT, REALLY_FULL, DISKS };

static void disk_make(int kind)
{
	struct rlimit limit = { DISK, DISK };
	char options[64];

	if (kind == FILE_LIMIT) {
		signal(SIGXFSZ, SIG_IGN);
		ck_assert(!setrlimit(RLIMIT_FSIZE, &limit));
		return;
	}
	snprintf(options, sizeof(options), "size=%u,mode=700", DISK);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", dir, "tmpfs", 0, options))
		_exit(NO_MOUNT);
}

/* @fn in a child, on a small disk, with an empty store in @s. */
static void on_small_disk(int kind, void (*fn)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		disk_make(kind);
		s = store_make();
		fn();
		fdry_store_close(s);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) &&
			      (!WEXITSTATUS(status) || WEXITSTATUS(status) == NO_MOUNT),
		      "status %#x", status);
}

/* --- sealing --- */

/* An image of 8 chunks, 2 MiB that do not compress. */
static int seal_two_mib(uint64_t seed, const char *ref)
{
	struct fdry_oid links[8], oid;
	static uint8_t data[CHUNK];
	struct fdry_writer *p;
	size_t i;
	int err = fdry_writer_begin(s, &p);

	if (err)
		return err;
	for (i = 0; i < 8 && !err; i++) {
		noise(seed * 100 + i, data, sizeof(data));
		err = fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, sizeof(data), NULL, 0,
					     &links[i]);
	}
	if (err) {
		fdry_writer_abort(p);
		return err;
	}
	return fdry_writer_commit(p, &seed, sizeof(seed), links, 8, ref, &oid, NULL);
}

static bool there(const char *name)
{
	struct fdry_oid oid;
	int err = fdry_ref_get(s, name, &oid);

	ck_assert(!err || err == -FDRY_E_NOENT);
	return !err;
}

static void name_of(unsigned int i, char name[16])
{
	snprintf(name, 16, "n/%u", i);
}

static void use(const char *name)
{
	struct fdry_oid oid;

	ok(fdry_ref_get(s, name, &oid));
	fdry_atime_note(s->env, &oid);
}

/* Images n/0, n/1 ... until one fails; how many there are. */
static unsigned int fill(unsigned int max, int *err)
{
	unsigned int i;
	char name[16];

	for (*err = 0, i = 0; i < max && !*err; i++) {
		name_of(i, name);
		*err = seal_two_mib(i, name);
	}
	return *err ? i - 1 : i;
}

static unsigned int count_there(unsigned int max)
{
	unsigned int i, n = 0;
	char name[16];

	for (i = 0; i < max; i++) {
		name_of(i, name);
		n += there(name);
	}
	return n;
}

/* Check that the file has no unused pages at its end. */
static void check_tail(void)
{
	struct fdry_extent x;

	ok(fdry_db_extent(s->env->db, &x));
	ck_assert_uint_eq(x.file_bytes, x.used_bytes);
}

/* --- without a limit --- */

static void without_limit(void)
{
	unsigned int n;
	int err;

	n = fill(100, &err);
	fails(FULL, "f", err);
	ck_assert_uint_ge(n, 7);
	ck_assert_uint_le(n, 12);
	ck_assert_uint_eq(count_there(n + 1), n);
	check_tail();
	check_sound(s);
	ok(fdry_store_remove(s, "n/0"));
	ok(fdry_store_gc(s, NULL, NULL));
	ok(seal_two_mib(500, "later"));
}

START_TEST(without_a_limit_it_is_an_error)
{
	on_small_disk(_i, without_limit);
}
END_TEST

/* --- with one --- */

static void with_limit(void)
{
	unsigned int i, max = 40;
	char name[16];

	ok(fdry_store_set_limit(s, 1u << 30));
	ok(seal_two_mib(900, "pinned"));
	ok(seal_two_mib(901, "used"));
	ok(fdry_store_pin(s, "pinned"));
	for (i = 0; i < max; i++) {
		name_of(i, name);
		ok(seal_two_mib(i, name));
		ck_assert(there(name));
		use("used");
	}
	ck_assert(there("pinned") && there("used"));
	ck_assert(!there("n/0") && there("n/39"));
	ck_assert_uint_ge(count_there(max), 5); /* no more images were evicted than necessary */
	check_sound(s);
}

START_TEST(with_a_limit_the_oldest_go)
{
	on_small_disk(_i, with_limit);
}
END_TEST

/* If evicting everything else could not make space for a seal, nothing is evicted. */
static void too_large(void)
{
	unsigned int i, n;
	struct fdry_oid oid;
	static uint8_t data[1u << 20];
	struct fdry_writer *p;
	int err = 0;

	ok(fdry_store_set_limit(s, 1u << 30));
	n = fill(4, &err);
	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < 30; i++) {
		noise(5000 + i, data, sizeof(data));
		oid = put(p, FDRY_OBJECT_CHUNK, data, sizeof(data));
	}
	fails(FULL, "f", fdry_writer_commit(p, "m", 1, &oid, 1, "large", &oid, NULL));
	ck_assert_uint_eq(count_there(n), n);
	check_tail();
	check_sound(s);
}

START_TEST(a_seal_that_can_never_fit_evicts_nothing)
{
	on_small_disk(_i, too_large);
}
END_TEST

static void all_pinned(void)
{
	unsigned int i, n;
	char name[16];
	int err;

	n = fill(100, &err);
	fails(FULL, "f", err);
	ok(fdry_store_set_limit(s, 1u << 30));
	for (i = 0; i < n; i++) {
		name_of(i, name);
		ok(fdry_store_pin(s, name));
	}
	fails(FULL, "f", seal_two_mib(700, "more"));
	ck_assert_uint_eq(count_there(n), n);
	ok(fdry_store_unpin(s, "n/2"));
	ok(seal_two_mib(700, "more"));
	ck_assert(!there("n/2") && there("more"));
	check_sound(s);
}

START_TEST(pinned_images_stay)
{
	on_small_disk(_i, all_pinned);
}
END_TEST

/* Collecting garbage makes enough space, so no ref is evicted. */
static void garbage_first(void)
{
	unsigned int n;
	int err;

	n = fill(100, &err);
	ok(fdry_store_set_limit(s, 1u << 30));
	ok(fdry_store_remove(s, "n/1"));
	ok(fdry_store_remove(s, "n/3"));
	ok(seal_two_mib(700, "more"));
	ck_assert_uint_eq(count_there(n), n - 2);
	check_sound(s);
}

START_TEST(garbage_is_collected_first)
{
	on_small_disk(_i, garbage_first);
}
END_TEST

/* Put a chunk that does not compress. */
static struct fdry_oid put_noise(struct fdry_writer *p, uint64_t seed)
{
	static uint8_t data[CHUNK];

	noise(seed, data, sizeof(data));
	return put(p, FDRY_OBJECT_CHUNK, data, sizeof(data));
}

/* Objects that the session found, or put in an earlier transaction, stay: only refs are evicted. */
static void own_stays(void)
{
	struct fdry_oid links[3], oid;
	uint64_t manifest = 4;
	unsigned int n;
	struct fdry_writer *p;
	int err;
	size_t i;

	n = fill(100, &err);
	ok(fdry_store_set_limit(s, 1u << 30));
	ok(fdry_writer_begin(s, &p));
	links[0] = put_noise(p, 0); /* an object of n/0, which is evicted first */
	for (i = 1; i < 3; i++) {
		links[i] = put_noise(p, 7000 + i);
		ok(fdry_writer_flush(p));
	}
	for (i = 0; i < 8; i++)
		oid = put_noise(p, 7100 + i);
	ok(fdry_writer_commit(p, &manifest, sizeof(manifest), links, 3, "own", &oid, NULL));
	ck_assert(there("own") && !there("n/0"));
	ck_assert_uint_ge(count_there(n), n - 3);
	check_sound(s);
}

START_TEST(objects_of_the_session_stay)
{
	on_small_disk(_i, own_stays);
}
END_TEST

/* Three images lack their manifests. They are evicted first as the oldest, and free no space, so
 * others are evicted, too. */
static void own_frees_no_space(void)
{
	struct fdry_oid links[24], oid;
	uint64_t manifest = 5;
	unsigned int n;
	struct fdry_writer *p;
	int err;
	size_t i;

	n = fill(100, &err);
	ok(fdry_store_set_limit(s, 1u << 30));
	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < 24; i++)
		links[i] = put_noise(p, i / 8 * 100 + i % 8);
	for (i = 0; i < 9; i++) /* more than the disk can have left */
		oid = put_noise(p, 7200 + i);
	ok(fdry_writer_commit(p, &manifest, sizeof(manifest), links, 24, "own", &oid, NULL));
	ck_assert(there("own") && !there("n/2") && !there("n/3"));
	ck_assert_uint_ge(count_there(n), n - 5);
	check_sound(s);
}

START_TEST(objects_of_the_session_free_no_space)
{
	on_small_disk(_i, own_frees_no_space);
}
END_TEST

static void import_evicts(void)
{
	const char *name = "packed";
	struct mem m;
	unsigned int n;
	int err;

	ok(seal_two_mib(3000, "packed"));
	m = export_to_mem(s, &name, 1, NULL, NULL);
	ok(fdry_store_remove(s, "packed"));
	ok(fdry_store_gc(s, NULL, NULL));
	n = fill(100, &err);
	fails(FULL, "f", import_mem(s, &m, NULL, NULL));
	ck_assert_uint_eq(count_there(n), n);
	ok(fdry_store_set_limit(s, 1u << 30));
	ok(import_mem(s, &m, NULL, NULL));
	ck_assert(there("packed") && !there("n/0"));
	check_sound(s);
	fdry_buf_release(&m.b);
}

START_TEST(an_import_evicts_too)
{
	on_small_disk(_i, import_evicts);
}
END_TEST

/* --- FOUNDRY_STORE_LIMIT --- */

static void environment(void)
{
	uint64_t limit = 0;
	unsigned int n;
	int err;

	n = fill(100, &err);
	ok(fdry_store_set_limit(s, 1u << 30));
	setenv("FOUNDRY_STORE_LIMIT", "0", 1);
	fails(FULL, "f", seal_two_mib(700, "more"));
	ck_assert_uint_eq(count_there(n), n);
	ok(fdry_store_set_limit(s, 0));
	setenv("FOUNDRY_STORE_LIMIT", "1G", 1);
	ok(fdry_store_limit(s, &limit, NULL));
	ck_assert_uint_eq(limit, 1u << 30);
	ok(seal_two_mib(700, "more"));
	ck_assert(there("more") && !there("n/0"));
	setenv("FOUNDRY_STORE_LIMIT", "8M", 1);
	ok(seal_two_mib(701, "last"));
	ck_assert_uint_le(count_there(n), 2);
	ck_assert(there("more") && there("last"));
}

START_TEST(the_environment_says_so)
{
	on_small_disk(_i, environment);
}
END_TEST

START_TEST(the_environment_is_checked)
{
	static const char *const bad[] = { "much", "-1", "8Q", "8M M", "none", "9999T" };
	struct fdry_writer *p;
	uint64_t limit;
	size_t i;

	s = store_make();
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("FOUNDRY_STORE_LIMIT", bad[i], 1);
		fails(ENV, "FOUNDRY_STORE_LIMIT is", fdry_writer_begin(s, &p));
		fails(ENV, "a number of bytes (K, M, G or T may follow) from 0 to 8191T",
		      fdry_store_limit(s, &limit, NULL));
	}
	unsetenv("FOUNDRY_STORE_LIMIT");
	ok(fdry_store_set_limit(s, 12345678));
	setenv("FOUNDRY_STORE_LIMIT", "", 1);
	ok(fdry_store_limit(s, &limit, NULL));
	ck_assert_uint_eq(limit, 12345678);
	setenv("FOUNDRY_STORE_LIMIT", "3G", 1);
	ok(fdry_store_limit(s, &limit, NULL));
	ck_assert_uint_eq(limit, 3ull << 30);
	fdry_store_close(s);
}
END_TEST

/* --- the map --- */

#define WITH_ADDRESS_LIMIT (!TEST_SANITIZED)

static uint64_t address_space(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* With 16 MiB of map and no address space for a larger one. */
static void full_map(void)
{
	struct rlimit limit;
	unsigned int n;
	int err;

	mallopt(M_MMAP_MAX, 0); /* memory that was in use once is there to be used again */
	mallopt(M_TRIM_THRESHOLD, -1);
	map_size_first = 16 << 20;
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &s));
	map_size_first = FDRY_MAP_SIZE;
	ok(seal_two_mib(900, "first"));
	limit.rlim_cur = limit.rlim_max = address_space() + (1u << 20);
	ck_assert(!setrlimit(RLIMIT_AS, &limit));
	n = fill(100, &err);
	fails(FULL, "address space is used up", err);
	ck_assert_uint_ge(n, 4);
	ck_assert_uint_eq(count_there(n), n);
	ok(fdry_store_set_limit(s, 1u << 30));
	ok(seal_two_mib(700, "more"));
	ck_assert(there("more") && !there("first"));
	ok(seal_two_mib(701, "last"));
	ck_assert(there("last") && !there("n/0"));
	fdry_store_close(s);
}

START_TEST(a_full_map_is_as_a_full_disk)
{
	int status = -1;
	pid_t pid;

	if (!WITH_ADDRESS_LIMIT)
		return;
	pid = fork();
	if (!pid) {
		full_map();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	s = store_make();
	check_sound(s);
	fdry_store_close(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_enospc");
	TCase *tc = tcase_create("full");

	tcase_add_checked_fixture(tc, setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, without_a_limit_it_is_an_error, 0, DISKS);
	tcase_add_loop_test(tc, with_a_limit_the_oldest_go, 0, DISKS);
	tcase_add_loop_test(tc, a_seal_that_can_never_fit_evicts_nothing, 0, DISKS);
	tcase_add_loop_test(tc, pinned_images_stay, 0, DISKS);
	tcase_add_loop_test(tc, garbage_is_collected_first, 0, DISKS);
	tcase_add_loop_test(tc, objects_of_the_session_stay, 0, DISKS);
	tcase_add_loop_test(tc, objects_of_the_session_free_no_space, 0, DISKS);
	tcase_add_loop_test(tc, an_import_evicts_too, 0, DISKS);
	tcase_add_loop_test(tc, the_environment_says_so, 0, DISKS);
	tcase_add_test(tc, the_environment_is_checked);
	tcase_add_test(tc, a_full_map_is_as_a_full_disk);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
