// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of a store whose allocations and system calls fail, each in turn, once or from then
 * on. The calls are replaced in this program, also for LMDB and the other libraries. For each call,
 * a child works with a store until that call fails. It may get errors, but must never crash or
 * hang. Then no call fails any more, and the same work must succeed in the same process. In all
 * cases the store is sound and has kept its contents.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "tests/lib/pack.h"

/* --- failing --- */

enum { CALLS, MEMORY, THREADS };

#define STEP TEST_EACH(5) /* through the calls that fail */

static struct {
	bool on;
	int what;
	long left; /* calls until one fails */
	bool ever; /* and all later ones */
	long seen;
} fault;

/* Does this call fail? */
static bool fails_now(int what)
{
	if (!fault.on || fault.what != what)
		return false;
	fault.seen++;
	if (fault.left > 0 && --fault.left == 0)
		return fault.ever ? (fault.left = -1) : true;
	return fault.left < 0;
}

/* Seen by the shared libraries, instead of the C library's. */
#pragma GCC visibility push(default)

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REPLACED(type, name, args, call, error, bad) \
	type name args; \
	type name args \
	{ \
		static __typeof__(&name) real; \
		if (!real) \
			real = REAL(name); \
		if (fails_now(CALLS)) { \
			errno = error; \
			return bad; \
		} \
		return real call; \
	}

REPLACED(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), ENOSPC, -1)
REPLACED(ssize_t, pwrite64, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), ENOSPC, -1)
REPLACED(ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at), ENOSPC,
	 -1)
REPLACED(ssize_t, pwritev64, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at),
	 ENOSPC, -1)
REPLACED(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), ENOSPC, -1)
REPLACED(ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at), EIO, -1)
REPLACED(ssize_t, pread64, (int fd, void *p, size_t n, off_t at), (fd, p, n, at), EIO, -1)
REPLACED(int, fdatasync, (int fd), (fd), EIO, -1)
REPLACED(int, fsync, (int fd), (fd), EIO, -1)
REPLACED(int, ftruncate, (int fd, off_t n), (fd, n), ENOSPC, -1)
REPLACED(int, ftruncate64, (int fd, off_t n), (fd, n), ENOSPC, -1)
REPLACED(int, renameat, (int a, const char *p, int b, const char *q), (a, p, b, q), EIO, -1)
#if !TEST_SANITIZED_THREAD /* which maps before it can look symbols up */
REPLACED(void *, mmap, (void *a, size_t n, int prot, int flags, int fd, off_t at),
	 (a, n, prot, flags, fd, at), ENOMEM, MAP_FAILED)
REPLACED(void *, mmap64, (void *a, size_t n, int prot, int flags, int fd, off_t at),
	 (a, n, prot, flags, fd, at), ENOMEM, MAP_FAILED)
#endif

#if !TEST_SANITIZED
int pthread_create(pthread_t *to, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	return fails_now(THREADS) ? EAGAIN : REAL(pthread_create)(to, attr, fn, arg);
}
#endif

/* Unlocking does not fail. */
int flock(int fd, int op)
{
	if (op != LOCK_UN && fails_now(CALLS)) {
		errno = EIO;
		return -1;
	}
	return REAL(flock)(fd, op);
}

/* Sanitizers have an allocator of their own. */
#if TEST_SANITIZED
#define WITH_MEMORY 0
#else
#define WITH_MEMORY 1

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
	return fails_now(MEMORY) ? errno = ENOMEM, NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return fails_now(MEMORY) ? errno = ENOMEM, NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return fails_now(MEMORY) ? errno = ENOMEM, NULL : __libc_realloc(p, n);
}
#endif

#pragma GCC visibility pop

/* --- the work --- */

static struct fdry_oid kept; /* an image that is there from the start */
static char kernel_bytes[3000];

static int seal_some(struct fdry_store *s, struct fdry_oid chunks[3])
{
	struct fdry_oid oid;
	uint8_t data[9000];
	struct fdry_writer *p;
	int i, err = fdry_writer_begin(s, &p);

	if (err)
		return err;
	for (i = 0; i < 3 && !err; i++) {
		noise(50 + (uint64_t)i, data, sizeof(data));
		err = fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, sizeof(data), NULL, 0,
					     &chunks[i]);
	}
	err = err ?: fdry_writer_add_object(p, FDRY_OBJECT_KERNEL, kernel_bytes,
					    sizeof(kernel_bytes), chunks, 1, &oid);
	if (err) {
		fdry_writer_abort(p);
		return err;
	}
	return fdry_writer_commit(p, "new", 3, chunks, 3, "new", &oid, NULL);
}

static int load_some(struct fdry_store *s, const struct fdry_oid chunks[3])
{
	struct fdry_buf b = { 0 };
	struct fdry_span span;
	struct fdry_reader *g;
	struct fdry_oid oid;
	int err = fdry_reader_begin(s, &g);

	if (err)
		return err;
	err = fdry_store_resolve(s, "new", &oid) ?: fdry_reader_copy(g, &oid, &b);
	if (!err && (b.len != 3 || memcmp(b.data, "new", 3)))
		err = 1;
	err = err ?: fdry_reader_map(g, &chunks[1], &span) ?:
	      fdry_reader_verify(g, &chunks[1], span, false, NULL);
	fdry_reader_end(g);
	fdry_buf_release(&b);
	return err;
}

static int packed, nowhere; /* a pack with an image that the store lacks; /dev/null */

static int pack_some(struct fdry_store *s)
{
	struct fdry_export_opts out = { .sz = sizeof(out), .threads = 1 };
	struct fdry_import_opts in = { .sz = sizeof(in), .threads = 1 };
	const char *name = "kept";
	int err = fdry_store_export(s, &name, 1, nowhere, &out, NULL);

	if (!err && !lseek(packed, 0, SEEK_SET))
		err = fdry_store_import(s, packed, &in, NULL);
	return err ? err : fdry_store_remove(s, "packed");
}

static int ignore_object(void *arg, const struct fdry_object_info *info)
{
	(void)arg, (void)info;
	return 0;
}

/* 0, or the first error. */
static int work(void)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_oid chunks[3];
	struct fdry_store *s;
	int err = fdry_store_open(path, 0, &s);

	if (err)
		return err;
	err = seal_some(s, chunks) ?: load_some(s, chunks) ?: pack_some(s) ?:
	      fdry_ref_set(s, "other", &kept, NULL) ?: fdry_store_remove(s, "other") ?:
	      fdry_store_each(s, ignore_object, NULL) ?:
	      fdry_store_reach(s, &kept, ignore_object, NULL) ?: fdry_store_remove(s, "new") ?:
	      fdry_store_gc(s, NULL, &r);
	fdry_store_close(s);
	return err;
}

enum { FAILED_WELL, NOTHING_FAILED, NO_SENTENCE, LEFT_LOCKED, NOT_AGAIN };

/* In a child: fail at call @nr, then work again. */
static int trial(int what, long nr, bool ever)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *keep; /* so that closing does not clean up */
	int err;

	if (fdry_store_open(path, 0, &keep))
		return NOT_AGAIN;
	fault.what = what;
	fault.left = nr;
	fault.ever = ever;
	fault.seen = 0;
	fault.on = true;
	err = work();
	fault.on = false;
	if (fdry_store_gc(keep, &gc_dry_run, &r) == -FDRY_E_LOCKED)
		return LEFT_LOCKED;
	fdry_store_close(keep);
	if (fault.seen < nr)
		return err ? NOT_AGAIN : NOTHING_FAILED;
	if (err && (err > 0 || !*fdry_last_error()))
		return NO_SENTENCE;
	err = work();
	if (err)
		fprintf(stderr, "afterwards: %s: %s\n", fdry_error_name(err), fdry_last_error());
	return err ? NOT_AGAIN : FAILED_WELL;
}

static int trial_in_child(int what, long nr, bool ever)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		alarm(60);
		_exit(trial(what, nr, ever));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "call %ld%s: the child was ended by signal %d", nr,
		      ever ? " and all after it" : "", WTERMSIG(status));
	return WEXITSTATUS(status);
}

static void every_one(int what, bool ever)
{
	int got = FAILED_WELL;
	struct fdry_store *s;
	struct fdry_oid oid;
	long nr;

	for (nr = 1; got != NOTHING_FAILED; nr += STEP) {
		got = trial_in_child(what, nr, ever);
		ck_assert_msg(got <= NOTHING_FAILED, "call %ld%s: %s", nr,
			      ever ? " and all after it" : "",
			      got == NO_SENTENCE   ? "no sentence"
			      : got == LEFT_LOCKED ? "the lock is left"
						   : "does not work afterwards");
		if (nr / STEP % 10)
			continue;
		ok(fdry_store_open(path, 0, &s));
		check_sound(s);
		ok(fdry_ref_get(s, "kept", &oid));
		ck_assert(fdry_oid_eq(&oid, &kept));
		fdry_store_close(s);
	}
	ck_assert_int_gt(nr, 30); /* LMDB's calls are among them */
	fprintf(stderr, "%ld %s made to fail%s\n", nr - 2, what == MEMORY ? "allocations" : "calls",
		ever ? " for ever" : "");
}

static void setup(void)
{
	struct fdry_export_opts opts = { .sz = sizeof(opts), .flags = FDRY_EXPORT_ALL };
	struct fdry_store *s;
	char name[400];

	dir_setup_in("/dev/shm");
	s = store_make();
	kept = seal(s, 1, 3, 9000, "kept");
	ok(fdry_store_pin(s, "kept"));
	fdry_store_close(s);
	s = store_at("other");
	seal_mixed(s, 1, 3000, "packed");
	snprintf(name, sizeof(name), "%s/pack", dir);
	packed = open(name, O_RDWR | O_CREAT, 0600);
	nowhere = open("/dev/null", O_WRONLY);
	ck_assert(packed >= 0 && nowhere >= 0);
	ok(fdry_store_export(s, NULL, 0, packed, &opts, NULL));
	fdry_store_close(s);
}

static void teardown(void)
{
	close(packed);
	close(nowhere);
	dir_teardown();
}

/* A compaction at whose call @nr there is a fault. It says that the old file stays only if it does,
 * and never that the store is damaged. Returns whether there was such a call. */
static bool compaction(int what, long nr, int *ret)
{
	struct fdry_compact_report r = { 0 };
	struct stat before, now;
	struct fdry_store *s;
	char file[400];
	bool stays;
	int err;

	snprintf(file, sizeof(file), "%s/data.mdb", path);
	ck_assert_int_eq(stat(file, &before), 0);
	fault.what = what;
	fault.left = nr;
	fault.ever = false;
	fault.seen = 0;
	fault.on = true;
	*ret = err = fdry_store_compact(path, NULL, NULL, &r);
	fault.on = false;
	ck_assert_int_eq(stat(file, &now), 0);
	stays = now.st_ino == before.st_ino;
	ck_assert_msg(err || !stays, "call %ld: nothing was done", nr);
	ck_assert_msg(err != -FDRY_E_CORRUPT, "call %ld: %s", nr, fdry_last_error());
	ck_assert_msg(!err || stays || !strstr(fdry_last_error(), "the old one stays"),
		      "call %ld: %s", nr, fdry_last_error());
	ok(fdry_store_open(path, 0, &s));
	check_sound(s);
	fdry_store_close(s);
	return fault.seen >= nr;
}

START_TEST(every_call_of_a_compaction_fails)
{
	long nr;
	int err;

	for (nr = 1; compaction(CALLS, nr, &err); nr++)
		;
	ck_assert_int_gt(nr, 10);
}
END_TEST

#if !TEST_SANITIZED
/* The copy needs no thread of ours, but LMDB needs one. */
START_TEST(a_compaction_without_threads)
{
	int err;

	ck_assert(compaction(THREADS, 1, &err));
	ok(err);
	ck_assert(compaction(THREADS, 2, &err));
	ck_assert_int_eq(err, -FDRY_E_NOMEM);
	ck_assert_msg(strstr(fdry_last_error(), "thread"), "%s", fdry_last_error());
}
END_TEST
#endif

static int evicted[2]; /* how often "a" and "b" were named */

static void note_evicted(void *arg, const char *ref, const char *id, uint64_t used)
{
	(void)arg, (void)id, (void)used;
	evicted[ref[0] - 'a']++;
}

static uint64_t count_objects(struct fdry_store *s)
{
	struct fdry_gc_opts opts = { .sz = sizeof(opts), .flags = FDRY_GC_DRY_RUN };
	struct fdry_gc_report r = { .sz = sizeof(r) };

	ok(fdry_store_gc(s, &opts, &r));
	return r.live + r.dead;
}

/* The report of an eviction that failed: @named refs and the objects that @s lacks were removed. */
static void check_evicted(struct fdry_store *s, const struct fdry_evict_report *r, int named,
			  uint64_t before, uint64_t objects)
{
	ck_assert_uint_eq(r->images, named);
	ck_assert_uint_eq(r->limit, 1);
	ck_assert(!r->before || r->before == before); /* 0: the store could not be read */
	ck_assert(named ? r->before && r->after && r->after <= r->before : r->after == r->before);
	ck_assert(!r->collected);
	ck_assert_uint_eq(r->objects, objects - count_objects(s));
	ck_assert(!r->objects == !r->stored);
}

/* An eviction at whose call @nr there is a fault names the refs that it has removed, and no other.
 * So does its report. Returns whether there was such a call. */
static bool eviction(int what, long nr)
{
	struct fdry_evict_opts opts = { .sz = sizeof(opts), .bytes = 1, .evicted = note_evicted };
	struct fdry_evict_report r = { .sz = sizeof(r), .before = 7, .after = 7, .images = 7 };
	struct fdry_store *s;
	uint64_t before, objects;
	struct fdry_oid oid;
	int i, err;

	ok(fdry_store_open(path, 0, &s));
	seal(s, 11, 2, 9000, "a");
	seal(s, 12, 2, 9000, "b");
	ok(fdry_store_limit(s, NULL, &before));
	objects = count_objects(s);
	evicted[0] = evicted[1] = 0;
	fault.what = what;
	fault.left = nr;
	fault.ever = false;
	fault.seen = 0;
	fault.on = true;
	err = fdry_store_evict(s, &opts, &r);
	fault.on = false;
	ck_assert_msg(!err || *fdry_last_error(), "call %ld: no sentence", nr);
	fdry_store_close(s); /* LMDB may not be usable any more */
	ok(fdry_store_open(path, 0, &s));
	for (i = 0; i < 2; i++)
		ck_assert_msg(!fdry_ref_get(s, i ? "b" : "a", &oid) == !evicted[i],
			      "call %ld, %s: named %d times", nr, fdry_error_name(err), evicted[i]);
	if (err)
		check_evicted(s, &r, evicted[0] + evicted[1], before, objects);
	check_sound(s);
	fdry_store_close(s);
	return fault.seen >= nr;
}

START_TEST(every_call_of_an_eviction_fails)
{
	long nr;
	int what;

	for (what = CALLS; what <= (WITH_MEMORY ? MEMORY : CALLS); what++) {
		for (nr = 1; eviction(what, nr); nr++)
			;
		ck_assert_int_gt(nr, 10);
	}
}
END_TEST

START_TEST(every_call_fails_once)
{
	every_one(CALLS, false);
}
END_TEST

START_TEST(every_call_fails_for_ever)
{
	every_one(CALLS, true);
}
END_TEST

/* The same if a full disk is a reason to evict: no pinned image is evicted. */
START_TEST(every_call_fails_where_images_may_go)
{
	setenv("FOUNDRY_STORE_LIMIT", "1G", 1);
	every_one(CALLS, false);
	every_one(CALLS, true);
}
END_TEST

START_TEST(every_allocation_fails_once)
{
	if (WITH_MEMORY)
		every_one(MEMORY, false);
}
END_TEST

START_TEST(every_allocation_fails_for_ever)
{
	if (WITH_MEMORY)
		every_one(MEMORY, true);
}
END_TEST

/* Making a store: after a failure there is either no store, or one that can be completed. */
START_TEST(every_call_fails_while_a_store_is_made)
{
	struct fdry_store *s;
	int status, what;
	bool more;
	pid_t pid;
	long nr;

	for (what = 0; what <= WITH_MEMORY; what++)
		for (nr = 1, more = true; more; nr++) {
			nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);
			pid = fork();
			if (!pid) {
				alarm(60);
				fault.what = what;
				fault.left = nr;
				fault.on = true;
				status = fdry_store_open(path, FDRY_STORE_CREATE, &s);
				fault.on = false;
				if (fault.seen < nr)
					_exit(status ? 2 : 1);
				if (!status)
					fdry_store_close(s);
				_exit(fdry_store_open(path, FDRY_STORE_CREATE, &s) ||
						      seal_some(s, &(struct fdry_oid[3]){ 0 }[0])
					      ? 3
					      : 0);
			}
			ck_assert_int_eq(waitpid(pid, &status, 0), pid);
			ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) < 2,
				      "call %ld: status %#x", nr, status);
			more = !WEXITSTATUS(status);
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_fail");
	TCase *tc = tcase_create("fail");

	memset(kernel_bytes, 'k', sizeof(kernel_bytes));
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, every_call_fails_once);
	tcase_add_test(tc, every_call_of_a_compaction_fails);
	tcase_add_test(tc, every_call_of_an_eviction_fails);
#if !TEST_SANITIZED
	tcase_add_test(tc, a_compaction_without_threads);
#endif
	tcase_add_test(tc, every_call_fails_for_ever);
	tcase_add_test(tc, every_call_fails_where_images_may_go);
	tcase_add_test(tc, every_allocation_fails_once);
	tcase_add_test(tc, every_allocation_fails_for_ever);
	tcase_add_test(tc, every_call_fails_while_a_store_is_made);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
