// SPDX-License-Identifier: Apache-2.0
/* Unit tests of collections. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "store/lease.h"
#include "tests/lib/store.h"

static struct fdry_store *s;

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

static int count_object(void *arg, const struct fdry_object_info *info)
{
	(void)info;
	++*(unsigned int *)arg;
	return 0;
}

static unsigned int objects(void)
{
	unsigned int n = 0;

	ok(fdry_store_each(s, count_object, &n));
	return n;
}

static void gc(bool dry_run, uint64_t live, uint64_t dead)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };

	ok(fdry_store_gc(s, dry_run ? &gc_dry_run : NULL, &r));
	ck_assert_uint_eq(r.live, live);
	ck_assert_uint_eq(r.dead, dead);
	ck_assert(!dead == !r.dead_bytes && !dead == !r.dead_stored);
}

START_TEST(objects_that_no_ref_reaches_are_collected)
{
	struct fdry_oid a;

	gc(false, 0, 0);
	a = seal(s, 1, 10, 5000, "a");
	seal(s, 6, 10, 5000, "b"); /* five chunks are a's too */
	seal(s, 100, 10, 5000, NULL);
	ck_assert_uint_eq(objects(), 10 + 1 + 5 + 1 + 11);
	gc(true, 17, 11);
	ck_assert_uint_eq(objects(), 28);
	gc(false, 17, 11);
	ck_assert_uint_eq(objects(), 17);
	gc(false, 17, 0);
	check_sound(s);
	ok(fdry_ref_set(s, "c", &a, NULL));
	ok(fdry_store_remove(s, "a"));
	gc(false, 17, 0);
	ok(fdry_store_remove(s, "c"));
	gc(false, 11, 6);
	ok(fdry_store_remove(s, "b"));
	gc(false, 0, 11);
	ck_assert_uint_eq(objects(), 0);
	check_sound(s);
}
END_TEST

/* Collect more objects than one transaction removes, by number and by bytes; the space is used
 * again. */
START_TEST(many_go_in_turns)
{
	struct stat before, after;
	char file[400];

	seal(s, 1, 3000, 40, NULL);
	seal(s, 10000, 80, 1 << 20, NULL);
	seal(s, 20000, 3, 40, "keep");
	gc(false, 4, 3082);
	check_sound(s);
	snprintf(file, sizeof(file), "%s/data.mdb", path);
	ck_assert(!stat(file, &before));
	seal(s, 30000, 60, 1 << 20, NULL);
	ck_assert(!stat(file, &after));
	ck_assert_int_le(after.st_size, before.st_size + (16 << 20));
}
END_TEST

START_TEST(links_are_followed_through_every_kind)
{
	struct fdry_oid oid, image;
	struct fdry_writer *p;
	char text[32];
	int i;

	ok(fdry_writer_begin(s, &p));
	oid = put(p, FDRY_OBJECT_CHUNK, "deep", 4);
	for (i = 0; i < 500; i++) {
		snprintf(text, sizeof(text), "level %d", i);
		ok(fdry_writer_add_object(p, 1 + i % 4, text, strlen(text), &oid, 1, &oid));
	}
	ok(fdry_writer_commit(p, "m", 1, &oid, 1, "r", &image, NULL));
	gc(false, 502, 0);
	ok(fdry_store_remove(s, "r"));
	gc(false, 0, 502);
}
END_TEST

static struct fdry_oid put_noise(struct fdry_writer *p, uint64_t seed)
{
	uint8_t data[100];

	noise(seed, data, sizeof(data));
	return put(p, FDRY_OBJECT_CHUNK, data, sizeof(data));
}

/* Objects that a session found stay, with the objects that they link to, until the session ends in
 * any way.
 */
START_TEST(objects_reported_to_a_session_stay)
{
	struct fdry_oid image = seal(s, 1, 3, 100, NULL), chunk, got;
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_writer *p;

	ok(fdry_writer_begin(s, &p));
	chunk = put_noise(p, 2);
	ck_assert_uint_eq(lease_files(), 1);
	ok(fdry_store_gc(s, &gc_dry_run, &r));
	ck_assert_uint_eq(r.dead, 3);
	ck_assert_uint_eq(r.leases, 1);
	gc(false, 1, 3);
	ok(fdry_writer_commit(p, "m", 1, &chunk, 1, "r", &got, NULL));
	ck_assert_uint_eq(lease_files(), 0);
	gc(false, 2, 0);
	check_sound(s);

	/* a manifest that is put again keeps its chunks, which the session did not name */
	ok(fdry_store_remove(s, "r"));
	image = seal(s, 1, 3, 100, NULL);
	ok(fdry_writer_begin(s, &p));
	got = put(p, FDRY_OBJECT_MANIFEST, "image 1 3 100", 13);
	ck_assert(fdry_oid_eq(&got, &image));
	gc(false, 4, 1);
	fdry_writer_abort(p);
	gc(false, 0, 4);
	ck_assert_uint_eq(lease_files(), 0);
}
END_TEST

/* Objects without links to them, written or not, belong to the session alone. */
START_TEST(objects_that_a_session_wrote_stay)
{
	struct fdry_oid links[40], oid;
	struct fdry_writer *p;
	static uint8_t big[1 << 20];
	int i;

	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < 40; i++) {
		noise(1 + i, big, sizeof(big));
		links[i] = put(p, FDRY_OBJECT_CHUNK, big, sizeof(big));
	}
	ck_assert_uint_ge(objects(), 32); /* a batch was written */
	gc(false, objects(), 0);
	ok(fdry_writer_commit(p, "m", 1, links, 40, "r", &oid, NULL));
	gc(false, 41, 0);
	check_sound(s);
}
END_TEST

/* A loader has its image to the end, and so have its other threads, which begin later. */
START_TEST(a_resolved_image_stays)
{
	struct fdry_oid image = seal(s, 1, 3, 100, "r"), got;
	struct fdry_reader *g, *h;

	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_resolve(g, "r", &got));
	ck_assert(fdry_oid_eq(&got, &image));
	ok(fdry_store_remove(s, "r"));
	gc(false, 4, 0);
	ok(fdry_reader_begin(s, &h));
	check_object(h, &image, "image 1 3 100", 13);
	fdry_reader_end(g);
	gc(false, 0, 4);
	check_object(h, &image, "image 1 3 100", 13); /* its own view */
	fdry_reader_end(h);
	ck_assert_uint_eq(lease_files(), 0);
}
END_TEST

/* One collection at a time; and none beside a session that could not make a lease. */
START_TEST(the_process_in_the_way_is_named)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_writer *p;
	char pid[32];
	int fd;

	seal(s, 1, 2, 100, NULL);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	ok(fdry_env_exclude(s->env, &fd));
	fails(LOCKED, "another collection", fdry_store_gc(s, NULL, &r));
	fails(LOCKED, pid, fdry_store_gc(s, &gc_dry_run, &r));
	fdry_env_unexclude(fd);
	s->env->dir.fixed = true; /* as if the folder could not be written */
	ok(fdry_writer_begin(s, &p));
	ck_assert_uint_eq(lease_files(), 0);
	s->env->dir.fixed = false;
	put_noise(p, 1);
	fails(LOCKED, pid, fdry_store_gc(s, NULL, &r));
	ok(fdry_store_gc(s, &gc_dry_run, &r));
	fdry_writer_abort(p);
	gc(false, 0, 3);
}
END_TEST

struct progress {
	int phase, stop_phase;
	uint64_t stop_at, last;
	unsigned int calls, phases;
};

static int on_progress(void *arg, int phase, uint64_t done, uint64_t total)
{
	struct progress *t = arg;

	ck_assert_int_ge(phase, t->phase);
	ck_assert(phase != t->phase || done >= t->last);
	ck_assert(phase != FDRY_GC_SWEEP || done <= total);
	t->phases |= 1u << phase;
	t->phase = phase;
	t->last = done;
	t->calls++;
	return phase == t->stop_phase && done >= t->stop_at;
}

/* A collection reports its progress. If it is stopped, the store is sound, and the next collection
 * removes the rest. */
START_TEST(it_can_be_stopped)
{
	enum { MANY = TEST_ROUNDS(60000) };
	struct progress t = { .stop_phase = FDRY_GC_SWEEP, .stop_at = 1 };
	struct fdry_gc_opts opts = { .sz = sizeof(opts),
				     .progress = on_progress,
				     .progress_arg = &t };
	struct fdry_gc_report r = { .sz = sizeof(r) };
	uint64_t gone;

	seal(s, 1, MANY, 10, NULL);
	seal(s, 90000, 3, 40, "keep");
	ok(fdry_store_gc(s, &opts, &r));
	ck_assert(r.stopped);
	ck_assert_uint_eq(t.phases, 7);
	ck_assert_uint_gt(r.dead, 0);
	ck_assert_uint_lt(r.dead, MANY + 1);
	gone = r.dead;
	check_sound(s);
	t = (struct progress){ .stop_phase = FDRY_GC_MARK };
	ok(fdry_store_gc(s, &opts, &r));
	ck_assert(r.stopped && !r.dead && t.calls == 1);
	t = (struct progress){ .stop_phase = FDRY_GC_SWEEP, .stop_at = UINT64_MAX };
	ok(fdry_store_gc(s, &opts, &r));
	ck_assert(!r.stopped);
	ck_assert_uint_eq(gone + r.dead, MANY + 1);
	ck_assert_uint_eq(r.by_kind[FDRY_OBJECT_CHUNK].dead, r.dead);
	ck_assert_uint_eq(r.by_kind[FDRY_OBJECT_CHUNK].stored, r.dead_stored);
	ck_assert_uint_eq(objects(), 4);
}
END_TEST

static bool announced(void)
{
	struct fdry_txn t;
	bool ret = false;

	ok(fdry_txn_read(s->env->db, &t));
	ok(fdry_gc_announced(&t, &ret));
	fdry_txn_abort(&t);
	return ret;
}

/* The next seal clears the mark of a dead collection; until then, no object counts as known without
 * a look. */
START_TEST(a_collection_that_died)
{
	struct fdry_writer_stats st;
	struct fdry_oid oid;
	struct fdry_writer *p;
	struct fdry_txn t;
	int fd;

	seal(s, 1, 2, 100, "r");
	ok(fdry_writer_begin(s, &p));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_put(&t, FDRY_TABLE_META,
			(struct fdry_span){ (const uint8_t *)"collecting", 10 },
			(struct fdry_span){ (const uint8_t *)"\1", 1 }));
	ok(fdry_txn_commit(&t));
	oid = put_noise(p, 1);
	ok(fdry_writer_commit(p, "m", 1, &oid, 1, "q", &oid, &st));
	ck_assert_uint_eq(st.objects_known, 1);
	ck_assert_uint_eq(st.objects_new, 1);
	ck_assert_uint_eq(lease_files(), 1); /* it may have been alive */
	ok(fdry_env_exclude(s->env, &fd));
	ok(fdry_writer_begin(s, &p)); /* it is */
	fdry_writer_abort(p);
	ck_assert(announced());
	fdry_env_unexclude(fd);
	ok(fdry_writer_begin(s, &p));
	fdry_writer_abort(p);
	ck_assert(!announced());
	gc(false, 4, 0);
	ck_assert(!announced());
	ck_assert_uint_eq(lease_files(), 0);
}
END_TEST

static bool access_exclusive(struct fdry_store *own)
{
	int fd = fdry_env_try(own->env);

	if (fd >= 0)
		fdry_env_unexclude(fd);
	return fd >= 0;
}

/* A session whose lease cannot grow blocks collections. */
START_TEST(a_lease_that_cannot_be_written)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	pid_t pid = fork();
	int status;

	if (!pid) {
		struct rlimit limit = { FDRY_LEASE_AT_IDS + FDRY_OID_SIZE,
					FDRY_LEASE_AT_IDS + FDRY_OID_SIZE };
		struct fdry_oid chunk[2];
		struct fdry_store *own;
		uint8_t data[2] = "ab";
		struct fdry_writer *p;

		signal(SIGXFSZ, SIG_IGN);
		if (fdry_store_open(path, 0, &own) || fdry_writer_begin(own, &p) ||
		    setrlimit(RLIMIT_FSIZE, &limit))
			_exit(1);
		if (fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, 1, NULL, 0, &chunk[0]) ||
		    !access_exclusive(own))
			_exit(2);
		if (fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data + 1, 1, NULL, 0, &chunk[1]) ||
		    access_exclusive(own))
			_exit(3);
		if (fdry_store_gc(own, NULL, &r) != -FDRY_E_LOCKED)
			_exit(4);
		fdry_writer_abort(p);
		_exit(!access_exclusive(own));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* A lease that a newer program holds, or that may not be read, stops a collection. */
START_TEST(a_lease_that_says_nothing)
{
	char file[400], mark[FDRY_LEASE_AT_IDS] = "SOMETHING";
	struct fdry_gc_report r = { .sz = sizeof(r) };
	int fd, i;

	seal(s, 1, 2, 100, NULL);
	snprintf(file, sizeof(file), "%s/leases", path);
	ck_assert(!mkdir(file, 0700) || errno == EEXIST);
	snprintf(file, sizeof(file), "%s/leases/0123456789abcdef", path);
	for (i = 0; i < 2; i++) {
		fd = open(file, O_RDWR | O_CREAT, 0600);
		ck_assert_int_ge(fd, 0);
		ck_assert(!flock(fd, LOCK_EX));
		ck_assert_int_eq(pwrite(fd, mark, sizeof(mark), 0), sizeof(mark));
		fails(VERSION, "0123456789abcdef", fdry_store_gc(s, NULL, &r));
		ck_assert_uint_eq(objects(), 3);
		close(fd);
		memcpy(mark, FDRY_LEASE_MAGIC "\2", 10);
	}
	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_uint_eq(r.reclaimed, 1);
	ck_assert_uint_eq(r.dead, 3);
}
END_TEST

/* A contradiction in the store stops a collection before it removes anything. */
/* Ids of it reached the disk, its head did not. */
START_TEST(a_lease_that_a_power_cut_tore)
{
	static const uint8_t torn[64] = { [40] = 1 };
	struct fdry_gc_report r = { .sz = sizeof(r) };
	char file[400];
	int fd;

	snprintf(file, sizeof(file), "%s/leases", path);
	ck_assert(!mkdir(file, 0700) || errno == EEXIST);
	snprintf(file, sizeof(file), "%s/leases/0123456789abcdef", path);
	fd = open(file, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_eq(write(fd, torn, sizeof(torn)), sizeof(torn));
	gc(true, 0, 0);
	ck_assert(!flock(fd, LOCK_EX)); /* as if another dry run were looking at it just now */
	gc(false, 0, 0);
	ck_assert(!flock(fd, LOCK_UN));
	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_uint_eq(r.reclaimed, 1);
	ck_assert_int_eq(access(file, F_OK), -1);
	close(fd);
}
END_TEST

START_TEST(damage_stops_a_collection)
{
	static const uint8_t record[FDRY_RECORD_AT_LINKS + 1] = { 2 };
	struct fdry_span bad = { record, sizeof(record) };
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_oid chunk;
	uint8_t data[100];
	struct fdry_txn t;

	seal(s, 1, 3, 100, "broken");
	seal(s, 10, 3, 100, NULL);
	noise(2, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&chunk)));
	ok(fdry_txn_commit(&t));
	fails(CORRUPT, "ref 'broken' needs object", fdry_store_gc(s, NULL, &r));
	ck_assert_uint_eq(objects(), 7);

	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_put(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&chunk), bad));
	ok(fdry_txn_commit(&t));
	fails(CORRUPT, "record is damaged", fdry_store_gc(s, NULL, &r));

	/* without the ref, everything is removed, also the bytes that lost their record */
	ok(fdry_store_remove(s, "broken"));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&chunk)));
	ok(fdry_txn_commit(&t));
	gc(false, 0, 8);
	check_sound(s);
}
END_TEST

/* Sealing again restores objects that lost their record or their bytes. */
START_TEST(sealing_again_heals)
{
	struct fdry_oid chunk[2];
	uint8_t data[100];
	struct fdry_txn t;
	int i;

	seal(s, 1, 3, 100, "r");
	ok(fdry_txn_write(s->env->db, 0, &t));
	for (i = 0; i < 2; i++) {
		noise(1 + i, data, sizeof(data));
		chunk[i] = oid_of(data, sizeof(data));
		ok(fdry_txn_delete(&t, i ? FDRY_TABLE_OBJECTS : FDRY_TABLE_DATA,
				   fdry_oid_span(&chunk[i])));
	}
	ok(fdry_txn_commit(&t));
	seal(s, 1, 3, 100, "r");
	check_sound(s);
	gc(false, 4, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_gc");
	TCase *tc = tcase_create("gc");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, objects_that_no_ref_reaches_are_collected);
	tcase_add_test(tc, many_go_in_turns);
	tcase_add_test(tc, links_are_followed_through_every_kind);
	tcase_add_test(tc, objects_reported_to_a_session_stay);
	tcase_add_test(tc, objects_that_a_session_wrote_stay);
	tcase_add_test(tc, a_resolved_image_stays);
	tcase_add_test(tc, the_process_in_the_way_is_named);
	tcase_add_test(tc, it_can_be_stopped);
	tcase_add_test(tc, a_collection_that_died);
	tcase_add_test(tc, a_lease_that_cannot_be_written);
	tcase_add_test(tc, a_lease_that_says_nothing);
	tcase_add_test(tc, a_lease_that_a_power_cut_tore);
	tcase_add_test(tc, damage_stops_a_collection);
	tcase_add_test(tc, sealing_again_heals);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
