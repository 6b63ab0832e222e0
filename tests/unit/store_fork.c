// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of one environment in a process: the state after a fork, process ids that repeat in
 * containers, readers that died, and a map that must grow.
 */
#include "store/env_open.c"

#include <fcntl.h>
#include <lmdb.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/lib/share.h"

static void setup(void)
{
	dir_setup();
}

static void teardown(void)
{
	dir_teardown();
}

static void file_path(char file[400], const char *name)
{
	snprintf(file, 400, "%s/%s", path, name);
}

/* --- fork --- */

struct inherited {
	struct fdry_store *s;
	struct fdry_writer *writer;
	struct fdry_reader *reader;
	struct fdry_oid oid;
};

static int ignore_object(void *arg, const struct fdry_object_info *info)
{
	(void)arg, (void)info;
	return 0;
}

static int ignore_ref(void *arg, const struct fdry_ref *ref)
{
	(void)arg, (void)ref;
	return 0;
}

/* Check that each call on an inherited handle returns the same result. Returns 0, or the number of
 * a call that did not. */
static int use_inherited(void *arg)
{
	struct inherited *in = arg;
	struct fdry_object_info info;
	struct fdry_gc_report gr = { .sz = sizeof(gr) };
	struct fdry_buf b = { 0 };
	struct fdry_oid oid, *links;
	struct fdry_span span;
	struct fdry_writer *p;
	struct fdry_reader *g;
	size_t count, i;
	int got[] = {
		fdry_writer_begin(in->s, &p),
		fdry_writer_add_object(in->writer, FDRY_OBJECT_CHUNK, "x", 1, NULL, 0, &oid),
		fdry_reader_begin(in->s, &g),
		fdry_reader_copy(in->reader, &in->oid, &b),
		fdry_reader_map(in->reader, &in->oid, &span),
		fdry_reader_resolve(in->reader, "r", &oid),
		fdry_reader_verify(in->reader, &in->oid, (struct fdry_span){ 0 }, false, NULL),
		fdry_store_info(in->s, &in->oid, &info),
		fdry_store_links(in->s, &in->oid, &links, &count),
		fdry_store_each(in->s, ignore_object, NULL),
		fdry_store_reach(in->s, &in->oid, ignore_object, NULL),
		fdry_ref_set(in->s, "q", &in->oid, NULL),
		fdry_ref_get(in->s, "r", &oid),
		fdry_store_remove(in->s, "r"),
		fdry_ref_each(in->s, ignore_ref, NULL),
		fdry_store_resolve(in->s, "r", &oid),
		fdry_store_gc(in->s, NULL, &gr),
		fdry_writer_commit(in->writer, "m", 1, NULL, 0, NULL, &oid, NULL),
	};

	for (i = 0; i < sizeof(got) / sizeof(got[0]); i++)
		if (got[i] != -FDRY_E_FORKED || !strstr(fdry_last_error(), "fork"))
			return 1 + (int)i;
	return 0;
}

/* The child's own environment works, and closing inherited handles does not affect the parent. */
static int open_in_child(void *arg)
{
	struct inherited *in = arg;
	struct fdry_store *own;
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_oid oid;

	fdry_reader_end(in->reader);
	fdry_writer_abort(in->writer);
	fdry_store_close(in->s);
	if (fdry_store_open(path, 0, &own) || fdry_ref_get(own, "r", &oid))
		return 1;
	if (fdry_store_gc(own, NULL, &r) || r.live != 3 ||
	    r.dead != 1) /* the parent's session keeps the objects that it found */
		return 2;
	fdry_store_close(own);
	return 0;
}

static void gc_gives(struct fdry_store *s, uint64_t live, uint64_t dead)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };

	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_uint_eq(r.live, live);
	ck_assert_uint_eq(r.dead, dead);
}

START_TEST(a_child_opens_its_own)
{
	struct inherited in = { .s = store_make() };
	struct fdry_buf b = { 0 };
	uint8_t data[100];

	in.oid = seal(in.s, 1, 1, 100, "r");
	seal(in.s, 2, 1, 100, NULL);
	ok(fdry_writer_begin(in.s, &in.writer));
	noise(2, data, sizeof(data));
	put(in.writer, FDRY_OBJECT_CHUNK, data, sizeof(data));
	ok(fdry_reader_begin(in.s, &in.reader));
	ck_assert_int_eq(share_child(use_inherited, &in), 0);
	ck_assert_int_eq(share_child(open_in_child, &in), 0);
	ok(fdry_reader_copy(in.reader, &in.oid, &b));
	gc_gives(in.s, 3, 0);
	fdry_reader_end(in.reader);
	fdry_writer_abort(in.writer);
	gc_gives(in.s, 2, 1);
	fdry_buf_release(&b);
	fdry_store_close(in.s);
}
END_TEST

/* A child does not keep the leases of its dead parent. */
START_TEST(a_lease_ends_with_the_process_that_took_it)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s;
	pid_t grandchild, pid;
	int pipes[2], status;
	uint8_t data[100];

	s = store_make();
	seal(s, 1, 1, sizeof(data), NULL);
	fdry_store_close(s);
	noise(1, data, sizeof(data));
	ck_assert(!pipe(pipes));
	pid = fork();
	if (!pid) {
		struct fdry_oid oid;
		struct fdry_writer *p;

		if (fdry_store_open(path, 0, &s) || fdry_writer_begin(s, &p) ||
		    fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, sizeof(data), NULL, 0, &oid))
			_exit(1);
		if (fdry_store_gc(s, NULL, &r) || r.live != 1 || r.dead != 1 || r.leases != 1)
			_exit(2);
		if (fork())
			_exit(0);
		grandchild = getpid();
		if (write(pipes[1], &grandchild, sizeof(grandchild)) == sizeof(grandchild))
			pause();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(read(pipes[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
	ok(fdry_store_open(path, 0, &s));
	status = fdry_store_gc(s, NULL, &r);
	kill(grandchild, SIGKILL);
	ck_assert_msg(!status, "%s", fdry_last_error());
	ck_assert_uint_eq(r.reclaimed, 1);
	ck_assert_uint_eq(r.leases, 0);
	ck_assert_uint_eq(r.dead, 1);
	fdry_store_close(s);
}
END_TEST

/* LMDB's environment is opened by one process at a time. */
START_TEST(opening_waits_for_another_that_opens)
{
	struct timespec a, b;
	struct fdry_store *s = store_make();
	int pipes[2], fd;
	char file[400], c;
	pid_t pid;

	fdry_store_close(s);
	ck_assert(!pipe(pipes));
	file_path(file, "data.mdb");
	pid = fork();
	if (!pid) {
		fd = open(file, O_RDONLY);
		if (flock(fd, LOCK_EX) || write(pipes[1], "x", 1) != 1)
			_exit(1);
		usleep(300000);
		_exit(0);
	}
	ck_assert_int_eq(read(pipes[0], &c, 1), 1);
	clock_gettime(CLOCK_MONOTONIC, &a);
	ok(fdry_store_open(path, 0, &s));
	clock_gettime(CLOCK_MONOTONIC, &b);
	ck_assert_int_gt((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000, 150);
	fdry_store_close(s);
	waitpid(pid, NULL, 0);
}
END_TEST

/* --- process ids that repeat --- */

/* Hold @pid's byte of LMDB's lock file, as a process of that id in another namespace does; signal,
 * and wait. */
static pid_t hold_reader_place(pid_t who)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = who, .l_len = 1 };
	char file[400], c;
	int pipes[2], fd;
	pid_t pid;

	ck_assert(!pipe(pipes));
	file_path(file, "lock.mdb");
	pid = fork();
	if (!pid) {
		fd = open(file, O_RDWR);
		if (fd < 0 || fcntl(fd, F_SETLK, &fl) || write(pipes[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(pipes[1]);
	ck_assert_int_eq(read(pipes[0], &c, 1), 1);
	close(pipes[0]);
	return pid;
}

START_TEST(a_repeated_process_id_reads_in_turns)
{
	struct fdry_store *s = store_make();
	struct fdry_oid image = seal(s, 1, 20, 100000, "r"), oid, chunk;
	struct fdry_verify_report vr;
	struct fdry_span span[20];
	struct fdry_reader *g;
	uint8_t data[100000];
	struct fdry_txn t;
	pid_t other;
	int i;

	fdry_store_close(s);
	other = hold_reader_place(getpid());
	ok(fdry_store_open(path, 0, &s));
	ok(fdry_ref_get(s, "r", &oid));
	ok(fdry_txn_read(s->env->db, &t));
	ck_assert(t.exclusive);
	fdry_txn_abort(&t);
	ok(fdry_reader_begin(s, &g));
	for (i = 0; i < 20; i++) {
		noise(1 + i, data, sizeof(data));
		chunk = oid_of(data, sizeof(data));
		ok(fdry_reader_map(g, &chunk, &span[i]));
	}
	/* Writers are not blocked, and mapped bytes stay right while they write and while the
	 * objects are collected. */
	for (i = 0; i < 5; i++)
		seal(s, 1000 * (1 + i), 20, 50000, i & 1 ? "q" : NULL);
	ok(fdry_reader_resolve(g, "r", &oid));
	ok(fdry_store_remove(s, "r"));
	gc_gives(s, 21 + 21, 4 * 21);
	for (i = 0; i < 5; i++)
		seal(s, 1000 * (1 + i), 20, 100000, NULL);
	for (i = 0; i < 20; i++) {
		noise(1 + i, data, sizeof(data));
		ck_assert(!memcmp(span[i].data, data, sizeof(data)));
	}
	check_object(g, &image, "image 1 20 100000", 17);
	fdry_reader_end(g);
	gc_gives(s, 21, 21 + 5 * 21);
	ok(store_verify(s, &vr));
	ck_assert_uint_eq(vr.faults, 0);
	kill(other, SIGKILL);
	fdry_store_close(s);
}
END_TEST

/* Run @fn as process 1 of a new PID namespace. Returns 200 if that is not permitted. */
static int as_process_1(int (*fn)(void *arg), void *arg)
{
	int status = 0;
	pid_t pid;

	if (unshare(CLONE_NEWPID))
		return 200;
	pid = fork();
	if (!pid)
		_exit(getpid() != 1 ? 201 : fn(arg));
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 202;
}

/* Hold a session until the pipe closes. */
static int load_and_wait(void *arg)
{
	struct fdry_oid oid;
	struct fdry_store *s;
	struct fdry_reader *g;
	int *pipes = arg;
	char c;

	if (fdry_store_open(path, 0, &s) || fdry_reader_begin(s, &g) ||
	    fdry_reader_resolve(g, "r", &oid))
		return 1;
	if (write(pipes[3], "x", 1) != 1 || read(pipes[0], &c, 1))
		return 2;
	fdry_reader_end(g);
	fdry_store_close(s);
	return 0;
}

static int load_and_seal(void *arg)
{
	struct fdry_buf b = { 0 };
	struct fdry_oid oid;
	struct fdry_store *s;
	struct fdry_reader *g;
	struct fdry_writer *p;

	(void)arg;
	if (fdry_store_open(path, 0, &s) || fdry_reader_begin(s, &g) ||
	    fdry_reader_resolve(g, "r", &oid))
		return 1;
	if (fdry_reader_copy(g, &oid, &b) || fdry_writer_begin(s, &p))
		return 2;
	if (fdry_writer_commit(p, "sealed beside", 13, NULL, 0, "beside", &oid, NULL))
		return 3;
	fdry_reader_end(g);
	fdry_store_close(s);
	return 0;
}

static int first_process_1(void *arg)
{
	close(((int *)arg)[1]);
	return as_process_1(load_and_wait, arg);
}

static int second_process_1(void *arg)
{
	return as_process_1(load_and_seal, arg);
}

/* The same with namespaces, if this process may make them: two processes, each process 1 of its own
 * namespace. */
START_TEST(two_containers_share_a_store)
{
	struct fdry_store *s = store_make();
	struct fdry_oid oid;
	int pipes[4], status;
	pid_t first;
	char c;

	seal(s, 1, 2, 5000, "r");
	fdry_store_close(s);
	ck_assert(!pipe(pipes) && !pipe(pipes + 2));
	first = fork();
	if (!first)
		_exit(first_process_1(pipes));
	close(pipes[0]);
	close(pipes[3]);
	if (read(pipes[2], &c, 1) == 1) {
		ck_assert_int_eq(share_child(second_process_1, NULL), 0);
		ok(fdry_store_open(path, 0, &s));
		ok(fdry_ref_get(s, "beside", &oid));
		check_sound(s);
		fdry_store_close(s);
	}
	close(pipes[1]);
	close(pipes[2]);
	ck_assert_int_eq(waitpid(first, &status, 0), first);
	ck_assert(WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == 200));
}
END_TEST

static struct fdry_store *small_map_open(unsigned int flags)
{
	struct fdry_store *s;

	map_size_first = 16 << 20;
	ok(fdry_store_open(path, flags, &s));
	map_size_first = FDRY_MAP_SIZE;
	return s;
}

/* The map does not move while a session uses bytes that it mapped in one of its turns. */
START_TEST(reading_in_turns_pins_the_map)
{
	struct fdry_store *s;
	struct fdry_oid chunk, oid;
	struct fdry_span span;
	struct fdry_reader *g;
	struct fdry_writer *p;
	uint8_t *data = malloc(4 << 20);
	pid_t other;
	int i, err = 0;

	fdry_store_close(store_make());
	other = hold_reader_place(getpid());
	s = small_map_open(0);
	noise(1, data, 5000);
	chunk = oid_of(data, 5000);
	seal(s, 1, 1, 5000, "r");
	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_map(g, &chunk, &span));
	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < 40 && !err; i++) {
		noise(100 + (uint64_t)i, data, 4 << 20);
		err = fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, 4 << 20, NULL, 0, &oid);
	}
	ck_assert_int_eq(err, -FDRY_E_LOCKED);
	fdry_writer_abort(p);
	noise(1, data, 5000);
	ck_assert(!memcmp(span.data, data, 5000));
	fdry_reader_end(g);
	seal(s, 200, 6, 4 << 20, "q");
	check_sound(s);
	fdry_store_close(s);
	kill(other, SIGKILL);
	free(data);
}
END_TEST

/* Small objects share a page with others and are rewritten with it; a session's bytes stay right
 * then, too. */
START_TEST(reading_in_turns_keeps_small_bytes)
{
	struct fdry_store *s;
	struct fdry_oid chunk;
	struct fdry_span span;
	struct fdry_reader *g;
	uint8_t data[100];
	pid_t other;
	uint64_t i;

	fdry_store_close(store_make());
	other = hold_reader_place(getpid());
	ok(fdry_store_open(path, 0, &s));
	noise(1, data, sizeof(data));
	chunk = oid_of(data, sizeof(data));
	seal(s, 1, 1, sizeof(data), "r");
	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_map(g, &chunk, &span));
	ok(fdry_reader_verify(g, &chunk, span, true, NULL));
	for (i = 0; i < 20; i++)
		seal(s, 100 + 10 * i, 5, sizeof(data), "q");
	ck_assert(span.len == sizeof(data) && !memcmp(span.data, data, sizeof(data)));
	fdry_reader_end(g);
	fdry_store_close(s);
	kill(other, SIGKILL);
}
END_TEST

/* Dead readers with this process' id are cleared; otherwise the file would grow for ever. */
static int reader_line(const char *line, void *arg)
{
	if (strtol(line, NULL, 10))
		++*(int *)arg;
	return 0;
}

static int die_reading(void *arg)
{
	struct fdry_store *s;
	struct fdry_reader *g;

	(void)arg;
	return fdry_store_open(path, 0, &s) || fdry_reader_begin(s, &g)
		       ? 1
		       : 0; /* neither ended nor closed */
}

static uint64_t used_bytes(struct fdry_store *s)
{
	struct fdry_extent x;

	ok(fdry_db_extent(s->env->db, &x));
	return x.used_bytes;
}

/* A process keeps the store open for long: the space that it collects is used again, also if
 * readers died. */
START_TEST(a_collection_clears_readers_that_died)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s = store_make();
	uint64_t before;
	int i, status;
	pid_t pid;

	seal(s, 1, 1, 1 << 20, NULL);
	pid = fork();
	if (!pid)
		_exit(die_reading(NULL));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(fdry_db_readers(s->env->db), 1);
	before = used_bytes(s);
	for (i = 0; i < 8; i++) {
		ok(fdry_store_gc(s, NULL, &r));
		ck_assert_uint_eq(r.dead, 2);
		seal(s, 10 + (uint64_t)i, 1, 1 << 20, NULL);
	}
	ck_assert_uint_eq(fdry_db_readers(s->env->db), 0);
	ck_assert_uint_lt(used_bytes(s), before + (3 << 20));
	fdry_store_close(s);
}
END_TEST

/*
 * Runs in a child, since a process must not open an environment twice. The map is small: by default
 * LMDB uses the size that the store reserved, a terabyte, for which the thread sanitizer has
 * addresses only in some runs.
 */
static int count_readers(void *arg)
{
	MDB_env *env;
	int n = 0;

	(void)arg;
	if (mdb_env_create(&env) || mdb_env_set_mapsize(env, 64 << 20))
		return 100;
	if (mdb_env_open(env, path, MDB_RDONLY, 0600))
		return 101;
	mdb_reader_list(env, reader_line, &n);
	return n;
}

/* Replace @from by @to in LMDB's table of readers. */
static int readers_rename(pid_t from, pid_t to)
{
	uint8_t bytes[65536];
	char file[400];
	ssize_t len;
	int n = 0, fd, i;

	file_path(file, "lock.mdb");
	fd = open(file, O_RDWR);
	len = pread(fd, bytes, sizeof(bytes), 0);
	for (i = 0; i + 4 <= len; i += 4)
		if (!memcmp(bytes + i, &from, 4)) {
			ck_assert_int_eq(pwrite(fd, &to, 4, i), 4);
			n++;
		}
	close(fd);
	return n;
}

START_TEST(readers_that_died_are_cleared)
{
	struct fdry_store *s = store_make(), *keep;
	int pipes[2], status, n, ours;
	pid_t pid, holder;
	char c;

	fdry_store_close(s);
	ck_assert(!pipe(pipes));
	for (ours = 0; ours < 2; ours++) {
		/* Another process keeps the environment open; otherwise LMDB would clear the
		 * table. */
		holder = fork();
		if (!holder) {
			if (!fdry_store_open(path, 0, &keep) && write(pipes[1], "x", 1) == 1)
				pause();
			_exit(1);
		}
		ck_assert_int_eq(read(pipes[0], &c, 1), 1);
		pid = fork();
		if (!pid)
			_exit(die_reading(NULL));
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
		if (ours)
			ck_assert_int_ge(readers_rename(pid, getpid()), 1);
		ck_assert_int_ge(share_child(count_readers, NULL), 1);
		ok(fdry_store_open(path, 0, &s));
		n = share_child(count_readers, NULL);
		fdry_store_close(s);
		kill(holder, SIGKILL);
		waitpid(holder, &status, 0);
		ck_assert_int_eq(n, 0);
	}
}
END_TEST

/* --- the map --- */

static int seal_much(void *arg)
{
	struct fdry_store *s;
	struct fdry_writer *p;
	struct fdry_oid oid;
	uint8_t *data = malloc(4 << 20);
	int i, bad = 0;

	(void)arg;
	if (fdry_store_open(path, 0, &s) || fdry_writer_begin(s, &p))
		return 1;
	for (i = 0; i < 20; i++) {
		noise(5000 + i, data, 4 << 20);
		bad |= fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, 4 << 20, NULL, 0, &oid);
	}
	bad |= fdry_writer_commit(p, "much", 4, NULL, 0, "much", &oid, NULL);
	fdry_store_close(s);
	return bad ? 1 : 0;
}

/* Sanitizers need all addresses for themselves. */
#if !TEST_SANITIZED
static int use_few_addresses(void *arg)
{
	struct rlimit limit = { 3ul << 30, 3ul << 30 };

	return setrlimit(RLIMIT_AS, &limit) ? 100 : seal_much(arg);
}
#endif

START_TEST(few_addresses_are_enough)
{
	struct fdry_store *s = store_make();

	fdry_store_close(s);
#if !TEST_SANITIZED
	ck_assert_int_eq(share_child(use_few_addresses, NULL), 0);
#endif
}
END_TEST

START_TEST(a_small_map_grows)
{
	struct fdry_store *s, *t;
	struct fdry_oid oid;
	struct fdry_reader *g;
	struct fdry_writer *p;
	uint8_t *data = malloc(4 << 20);
	int i, err = 0;

	s = small_map_open(FDRY_STORE_CREATE);
	seal(s, 1, 10, 2 << 20, "r"); /* by ourselves */
	ck_assert_int_eq(share_child(seal_much, NULL), 0); /* by another process */
	ok(fdry_ref_get(s, "much", &oid));
	check_sound(s);

	/* not while a session maps it; collected objects are reported as lost then */
	ok(fdry_reader_begin(s, &g));
	ok(fdry_store_open(path, 0, &t));
	ok(fdry_writer_begin(t, &p));
	for (i = 0; i < 300 && !err; i++) {
		noise(9000 + i, data, 4 << 20);
		err = fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, 4 << 20, NULL, 0, &oid);
	}
	ck_assert_int_eq(err, -FDRY_E_LOCKED);
	fails(LOCKED, "an earlier put",
	      fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, 1, NULL, 0, &oid));
	fails(LOCKED, "an earlier put", fdry_writer_commit(p, "m", 1, NULL, 0, NULL, &oid, NULL));
	fdry_reader_end(g);
	fdry_store_close(t);
	check_sound(s);
	fdry_store_close(s);
	free(data);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_fork");
	TCase *tc = tcase_create("fork");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_child_opens_its_own);
	tcase_add_test(tc, a_lease_ends_with_the_process_that_took_it);
	tcase_add_test(tc, opening_waits_for_another_that_opens);
	tcase_add_test(tc, a_repeated_process_id_reads_in_turns);
	tcase_add_test(tc, two_containers_share_a_store);
	tcase_add_test(tc, reading_in_turns_pins_the_map);
	tcase_add_test(tc, reading_in_turns_keeps_small_bytes);
	tcase_add_test(tc, readers_that_died_are_cleared);
	tcase_add_test(tc, a_collection_clears_readers_that_died);
	tcase_add_test(tc, few_addresses_are_enough);
	tcase_add_test(tc, a_small_map_grows);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
