// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of several containers over one directory: thread numbers that repeat, readers that
 * LMDB cannot list (read-only mounts, files that may only be read), and of a store that another
 * copy of the library in this process has open.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>

#include "tests/lib/share.h"

static void setup(void)
{
	dir_setup_in("/dev/shm");
	ck_assert(!chmod(dir, 0755));
	fdry_store_close(store_make());
}

static void teardown(void)
{
	dir_teardown();
}

static void file_path(char file[400], const char *name)
{
	snprintf(file, 400, "%s/%s", path, name);
}

/* --- numbers that repeat --- */

/* A process that runs as process 1 of its own namespace. */
struct inside {
	int (*fn)(struct inside *in);
	int said[2], go[2], known[2]; /* pipes: from it, to it, its number */
	pid_t pid;          /* as this namespace sees it; 0: not allowed */
	pid_t outer;        /* the process that made the namespace */
};

static void inside_run(struct inside *in)
{
	int status = 0;
	pid_t pid = unshare_as_root(CLONE_NEWPID) ? 0 : fork();

	if (pid < 0)
		pid = 0;
	if (!pid && getpid() == 1)
		_exit(in->fn(in));
	if (write(in->known[1], &pid, sizeof(pid)) != sizeof(pid) || !pid)
		_exit(NOT_ALLOWED);
	_exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 100);
}

/* Returns false if this process may not make namespaces. */
static bool inside_start(struct inside *in, int (*fn)(struct inside *in))
{
	in->fn = fn;
	ck_assert(!pipe(in->said) && !pipe(in->go) && !pipe(in->known));
	in->outer = fork();
	if (!in->outer)
		inside_run(in);
	close(in->said[1]);
	close(in->go[0]);
	ck_assert_int_eq(read(in->known[0], &in->pid, sizeof(in->pid)), sizeof(in->pid));
	if (!in->pid)
		ck_assert_int_eq(share_wait(in->outer), NOT_ALLOWED);
	return in->pid;
}

static void inside_hear(struct inside *in)
{
	char c;

	ck_assert_int_eq(read(in->said[0], &c, 1), 1);
}

static bool hears_within(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* Hold a write transaction open until the parent permits the end. */
static int writes_long(struct inside *in)
{
	struct fdry_store *s;
	struct fdry_txn t;
	char c;

	if (fdry_store_open(path, 0, &s) || fdry_txn_write(s->env->db, 0, &t))
		return share_say(1);
	if (write(in->said[1], "x", 1) != 1 || read(in->go[0], &c, 1) != 1)
		return 2;
	if (fdry_meta_put(&t, "test", "x", 1) || fdry_meta_delete(&t, "test") ||
	    fdry_txn_commit(&t))
		return share_say(3);
	fdry_store_close(s);
	return 0;
}

static int waits_to_write(struct inside *in)
{
	struct fdry_store *s;
	struct fdry_txn t;

	/* Opening reads the store, under the writers' lock since the process number is in use: the
	 * process is killed there. */
	if (write(in->said[1], "x", 1) != 1 || fdry_store_open(path, 0, &s) ||
	    fdry_txn_write(s->env->db, 0, &t))
		return share_say(1);
	return 2;
}

static int writes(void *arg)
{
	int *said = arg;
	struct fdry_store *s;
	struct fdry_txn t;

	if (fdry_store_open(path, 0, &s) || fdry_txn_write(s->env->db, 0, &t) ||
	    write(said[1], "x", 1) != 1)
		return share_say(1);
	fdry_txn_abort(&t);
	fdry_store_close(s);
	return 0;
}

/* The thread that holds LMDB's lock for writers has the number of the one that dies waiting for it.
 */
START_TEST(a_dead_waiter_does_not_let_a_second_writer_in)
{
	struct inside holder, waiter;
	int said[2];
	pid_t third;

	if (!inside_start(&holder, writes_long))
		return;
	inside_hear(&holder);
	ck_assert(inside_start(&waiter, waits_to_write));
	inside_hear(&waiter);
	usleep(300000);
	ck_assert(!kill(waiter.pid, SIGKILL));
	ck_assert_int_eq(share_wait(waiter.outer), 100);
	ck_assert(!pipe(said));
	third = fork();
	if (!third)
		_exit(writes(said));
	ck_assert_msg(!hears_within(said[0], 500), "two write at a time");
	ck_assert_int_eq(write(holder.go[1], "x", 1), 1);
	ck_assert(hears_within(said[0], 20000));
	ck_assert_int_eq(share_wait(third), 0);
	ck_assert_int_eq(share_wait(holder.outer), 0);
}
END_TEST

/* If a writer is killed while it has the lock, the next one gets the lock. */
START_TEST(a_dead_writer_releases_its_lock)
{
	struct inside holder;
	int said[2];

	if (!inside_start(&holder, writes_long))
		return;
	inside_hear(&holder);
	ck_assert(!kill(holder.pid, SIGKILL));
	ck_assert_int_eq(share_wait(holder.outer), 100);
	ck_assert(!pipe(said));
	ck_assert_int_eq(share_child(writes, said), 0);
}
END_TEST

/* --- readers that LMDB cannot list --- */

struct reader {
	int (*enter)(void); /* 0, or NOT_ALLOWED */
	int said[2], go[2];
	bool fixed;
};

/* Check that all objects of share_seal()'s manifest exist. */
static int load_by_manifest(struct fdry_reader *g, const struct fdry_oid *image)
{
	unsigned long long seed, i, n, len;
	struct fdry_buf b = { 0 };
	struct fdry_oid oid;
	struct fdry_span span;
	uint8_t data[20000];
	int err = fdry_reader_copy(g, image, &b);

	if (!err && (fdry_buf_put(&b, "", 1) ||
		     sscanf((char *)b.data, "image %llu %llu %llu", &seed, &n, &len) != 3 ||
		     len > sizeof(data)))
		err = -FDRY_E_CORRUPT;
	for (i = 0; !err && i < n; i++) {
		noise(seed + i, data, len);
		err = fdry_oid_of(data, len, &oid) ?: fdry_reader_map(g, &oid, &span) ?:
		      fdry_reader_verify(g, &oid, span, true, NULL);
	}
	fdry_buf_release(&b);
	return err;
}

static int load_once(struct fdry_store *s, struct reader *r)
{
	struct fdry_oid image;
	struct fdry_reader *g;
	int err = fdry_reader_begin(s, &g);
	char c;

	if (err)
		return err;
	err = fdry_reader_resolve(g, "r", &image);
	/* others write now */
	if (!err && r && (write(r->said[1], "x", 1) != 1 || read(r->go[0], &c, 1) != 1))
		err = -FDRY_E_IO;
	err = err ?: load_by_manifest(g, &image);
	if (!err)
		fdry_reader_note_use(g, &image);
	fdry_reader_end(g);
	return err;
}

static int refuses_to_write(struct fdry_store *s)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_claim *claim;
	struct fdry_writer *p;
	bool waited;

	return !share_refused(fdry_writer_begin(s, &p), FDRY_E_PERM, "reading only") ||
	       !share_refused(fdry_store_gc(s, NULL, &r), FDRY_E_PERM, "reading only") ||
	       !share_refused(fdry_store_remove(s, "r"), FDRY_E_PERM, "reading only") ||
	       !share_refused(fdry_claim_begin(s, "k", 1, NULL, &waited, &claim), FDRY_E_PERM,
			      "reading only");
}

static int reads_beside_writers(void *arg)
{
	struct reader *r = arg;
	struct fdry_sharing sh;
	struct fdry_store *s;
	int i, rc = r->enter();

	if (rc)
		return rc;
	if (!share_refused(fdry_store_open(path, 0, &s), FDRY_E_PERM,
			   r->fixed ? "read-only media" : "denied"))
		return 1;
	if (fdry_store_open(path, FDRY_STORE_READONLY, &s) || fdry_store_sharing(s, &sh) ||
	    !sh.readonly || sh.fixed != r->fixed)
		return share_say(2);
	if (refuses_to_write(s))
		return 3;
	if (load_once(s, r))
		return share_say(4);
	for (i = 0; i < 200; i++)
		if (load_once(s, NULL))
			return share_say(5);
	fdry_store_close(s);
	return 0;
}

/* Seals and collections replace the objects that the reader reads, first while its session waits,
 * then continuously. */
static void write_beside(struct reader *r, pid_t pid)
{
	struct fdry_gc_report report = { .sz = sizeof(report) };
	struct fdry_store *s;
	uint64_t seed = 1000;
	int i, status, rc = 0;

	ok(fdry_store_open(path, 0, &s));
	for (i = 0; i < 30; i++, seed += 100)
		ok(share_seal(s, seed, 12, 2000, "r"));
	ck_assert_int_eq(fdry_store_gc(s, NULL, &report),
			 -FDRY_E_LOCKED); /* the session keeps it out */
	ck_assert_int_eq(write(r->go[1], "x", 1), 1);
	while (!(rc = waitpid(pid, &status, WNOHANG))) {
		ok(share_seal(s, seed += 100, 12, 2000, "r"));
		rc = fdry_store_gc(s, NULL, &report);
		ck_assert(!rc || rc == -FDRY_E_LOCKED);
	}
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "the reader ended with %#x",
		      status);
	check_sound(s);
	fdry_store_close(s);
}

static void read_and_write(struct reader *r)
{
	struct fdry_store *s;
	pid_t pid;
	char c;

	ok(fdry_store_open(path, 0, &s));
	ok(share_seal(s, 1, 12, 2000, "r"));
	fdry_store_close(s);
	ck_assert(!pipe(r->said) && !pipe(r->go));
	pid = fork();
	if (!pid)
		_exit(reads_beside_writers(r));
	close(r->said[1]);
	close(r->go[0]);
	if (read(r->said[0], &c, 1) == 1)
		write_beside(r, pid);
	else
		ck_assert_int_eq(share_wait(pid), NOT_ALLOWED);
}

static int enter_read_only_mount(void)
{
	if (own_mounts() || mount(path, path, NULL, MS_BIND, NULL) ||
	    mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
		return NOT_ALLOWED;
	return 0;
}

START_TEST(a_read_only_mount_of_a_store_that_others_write)
{
	struct reader r = { .enter = enter_read_only_mount, .fixed = true };

	read_and_write(&r);
}
END_TEST

/* Root may write under any mode. */
static int enter_stranger(void)
{
	return geteuid() ? 0 : become(STRANGER, false);
}

START_TEST(files_that_may_only_be_read)
{
	struct reader r = { .enter = enter_stranger };
	char file[400];

	if (geteuid())
		return; /* see the next */
	ck_assert(!chmod(path, 0755));
	file_path(file, "data.mdb");
	ck_assert(!chmod(file, 0644));
	read_and_write(&r);
}
END_TEST

static int reads_its_own(void *arg)
{
	struct fdry_store *s;

	(void)arg;
	if (enter_stranger())
		return NOT_ALLOWED;
	if (!share_refused(fdry_store_open(path, 0, &s), FDRY_E_PERM, "denied"))
		return 1;
	if (fdry_store_open(path, FDRY_STORE_READONLY, &s) || load_once(s, NULL) ||
	    refuses_to_write(s))
		return share_say(2);
	fdry_store_close(s);
	return 0;
}

START_TEST(a_store_without_permission_to_write)
{
	char file[400];
	struct fdry_store *s = store_make();
	int i;

	ok(share_seal(s, 1, 12, 2000, "r"));
	fdry_store_close(s);
	for (i = 0; i < 2; i++) {
		file_path(file, i ? "lock.mdb" : "data.mdb");
		ck_assert(!chmod(file, 0444));
	}
	ck_assert(!chmod(path, 0555));
	i = share_child(reads_its_own, NULL);
	ck_assert(!chmod(path, 0755));
	ck_assert_int_eq(i, 0);
}
END_TEST

/* --- a container's own layer --- */

static int overlay_at(const char *lower, int nr, char merged[400])
{
	char upper[400], work[400], opts[1300];

	snprintf(upper, sizeof(upper), "%s/upper%d", dir, nr);
	snprintf(work, sizeof(work), "%s/work%d", dir, nr);
	snprintf(merged, 400, "%s/merged%d", dir, nr);
	snprintf(opts, sizeof(opts), "lowerdir=%s,upperdir=%s,workdir=%s", lower, upper, work);
	if (mkdir(upper, 0700) || mkdir(work, 0700) || mkdir(merged, 0700))
		return 20;
	return mount("overlay", merged, "overlay", 0, opts) ? NOT_ALLOWED : 0;
}

/* Two containers of one container image with a store: each loads the store's images, and sees only
 * its own writes. */
static int overlays(void *arg)
{
	char one[400], two[400];
	struct fdry_store *a, *b, *r;
	struct fdry_oid oid;
	int rc;

	(void)arg;
	if (own_mounts())
		return NOT_ALLOWED;
	rc = overlay_at(path, 1, one);
	if (!rc)
		rc = overlay_at(path, 2, two);
	if (rc)
		return rc;
	if (fdry_store_open(two, FDRY_STORE_READONLY, &r) || share_load(r, 1, 3, 1000, "r"))
		return share_say(1);
	if (fdry_store_open(one, 0, &a) || share_load(a, 1, 3, 1000, "r") ||
	    share_seal(a, 10, 3, 1000, "own"))
		return share_say(2);
	if (fdry_store_open(two, 0, &b) ||
	    !share_refused(fdry_ref_get(b, "own", &oid), FDRY_E_NOENT, "own") || a->env == b->env)
		return share_say(3);
	if (share_load(r, 1, 3, 1000, "r") || share_seal(b, 20, 3, 1000, "other") ||
	    share_load(b, 20, 3, 1000, "other"))
		return share_say(4);
	fdry_store_close(a);
	fdry_store_close(b);
	fdry_store_close(r);
	if (fdry_store_open(one, 0, &a) || share_load(a, 10, 3, 1000, "own"))
		return share_say(5);
	fdry_store_close(a);
	return 0;
}

START_TEST(a_store_in_a_containers_layers)
{
	struct fdry_store *s = store_make();
	struct fdry_oid oid;
	int rc;

	ok(share_seal(s, 1, 3, 1000, "r"));
	fdry_store_close(s);
	rc = share_child(overlays, NULL);
	ck_assert_msg(!rc || rc == NOT_ALLOWED, "%d", rc);
	ok(fdry_store_open(path, 0, &s));
	fails(NOENT, "own", fdry_ref_get(s, "own", &oid)); /* the layer below is as it was */
	check_sound(s);
	fdry_store_close(s);
}
END_TEST

/* --- opened twice --- */

static int open_elsewhere(void *arg)
{
	struct fdry_store *s;

	if (!share_refused(fdry_store_open(arg, 0, &s), FDRY_E_STATE, "open already") ||
	    !share_refused(fdry_store_open(arg, FDRY_STORE_CREATE, &s), FDRY_E_STATE,
			   "open already"))
		return 1;
	return 0;
}

/* Two directories lead to one data.mdb; LMDB's lock files differ. */
static int one_file_in_two_directories(void *arg)
{
	char from[400], to[500], other[300];
	struct fdry_store *s;
	int fd;

	(void)arg;
	snprintf(other, sizeof(other), "%s/other", dir);
	snprintf(to, sizeof(to), "%s/data.mdb", other);
	file_path(from, "data.mdb");
	if (own_mounts())
		return NOT_ALLOWED;
	if (mkdir(other, 0700) || (fd = open(to, O_WRONLY | O_CREAT, 0600)) < 0 || close(fd) ||
	    mount(from, to, NULL, MS_BIND, NULL))
		return 10;
	if (fdry_store_open(path, 0, &s) || open_elsewhere(other))
		return share_say(11);
	fdry_store_close(s);
	if (fdry_store_open(other, 0, &s)) /* alone it is fine */
		return share_say(12);
	fdry_store_close(s);
	return 0;
}

START_TEST(one_file_by_two_mounts)
{
	int rc = share_child(one_file_in_two_directories, NULL);

	ck_assert(!rc || rc == NOT_ALLOWED);
}
END_TEST

/* A bind mount of the directory is the same directory. */
static int directory_by_two_mounts(void *arg)
{
	struct fdry_store *a, *b;
	char other[300];
	int rc;

	(void)arg;
	snprintf(other, sizeof(other), "%s/other", dir);
	if (own_mounts())
		return NOT_ALLOWED;
	if (mkdir(other, 0700) || mount(path, other, NULL, MS_BIND, NULL) ||
	    fdry_store_open(path, 0, &a) || fdry_store_open(other, 0, &b))
		return share_say(1);
	rc = a->env != b->env || share_seal(b, 1, 2, 100, "r") || share_load(a, 1, 2, 100, "r");
	fdry_store_close(a);
	fdry_store_close(b);
	return rc;
}

START_TEST(one_directory_by_two_mounts)
{
	int rc = share_child(directory_by_two_mounts, NULL);

	ck_assert(!rc || rc == NOT_ALLOWED);
}
END_TEST

/* The library, once more, beside the one that this program is linked with. */
static int with_another_copy(void *arg)
{
	const char *file = getenv("FOUNDRY_LIBRARY");
	void *lib = dlopen(file ? file : "build/libfoundry.so.0.2", RTLD_NOW | RTLD_LOCAL);
	int (*other_open)(const char *path, unsigned int flags, struct fdry_store **ret);
	const char *(*other_error)(void);
	void (*other_close)(struct fdry_store *s);
	struct fdry_store *s, *t;
	struct fdry_reader *g;

	(void)arg;
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&other_open = dlsym(lib, "fdry_store_open");
	*(void **)&other_close = dlsym(lib, "fdry_store_close");
	*(void **)&other_error = dlsym(lib, "fdry_last_error");
	if (!other_open || !other_close || !other_error || other_open == fdry_store_open)
		return 2;
	if (fdry_store_open(path, 0, &s) || fdry_reader_begin(s, &g))
		return share_say(3);
	if (other_open(path, 0, &t) != -FDRY_E_STATE || !strstr(other_error(), "another copy"))
		return 4;
	fdry_reader_end(g);
	fdry_store_close(s);
	if (other_open(path, 0, &t))
		return 5;
	if (open_elsewhere(path)) /* in the reverse order */
		return 6;
	other_close(t);
	return 0;
}

START_TEST(two_copies_of_the_library)
{
	ck_assert_int_eq(share_child(with_another_copy, NULL), 0);
}
END_TEST

/* --- children that do not fork() --- */

/* Descriptors of this process that lead below the store's directory. */
static int fds_below(const char *below)
{
	char file[300], to[PATH_MAX];
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	ssize_t len;
	int n = 0;

	while (d && (e = readdir(d))) {
		snprintf(file, sizeof(file), "/proc/self/fd/%.200s", e->d_name);
		len = readlink(file, to, sizeof(to) - 1);
		to[len < 0 ? 0 : len] = '\0';
		n += !strncmp(to, below, strlen(below));
	}
	if (d)
		closedir(d);
	return n;
}

/* While all kinds of files are open. */
START_TEST(programs_inherit_nothing)
{
	char script[400] = "! ls -l /proc/self/fd | grep -F ", *const argv[] = { "sh", "-c", script,
										 NULL };
	struct fdry_store *s = store_make();
	struct fdry_claim *claim;
	struct fdry_writer *p;
	struct fdry_reader *g;
	struct fdry_txn t;
	bool waited;
	pid_t pid;

	snprintf(script + strlen(script), sizeof(script) - strlen(script), "%s/", dir);
	ok(share_seal(s, 1, 2, 100, "r"));
	ok(fdry_writer_begin(s, &p));
	ok(fdry_reader_begin(s, &g));
	ok(fdry_claim_begin(s, "k", 1, NULL, &waited, &claim));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ck_assert_int_ge(fds_below(dir), 7);
	ck_assert(!posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ));
	ck_assert_int_eq(share_wait(pid), 0);
	fdry_txn_abort(&t);
	fdry_claim_end(claim);
	fdry_reader_end(g);
	fdry_writer_abort(p);
	fdry_store_close(s);
	ck_assert_int_eq(fds_below(dir), 0);
}
END_TEST

static int writes_and_loads(void *arg)
{
	struct fdry_store *s;

	(void)arg;
	if (fdry_store_open(path, 0, &s) || share_seal(s, 1, 2, 100, "r") ||
	    share_load(s, 1, 2, 100, "r"))
		return share_say(1);
	fdry_store_close(s);
	return 0;
}

static int forks_in_its_turn(void *arg)
{
	struct fdry_store *s;
	struct fdry_txn t;

	if (fdry_store_open(path, 0, &s) || fdry_txn_write(s->env->db, 0, &t))
		return share_say(1);
	if (!fork()) {
		*(pid_t *)arg = getpid();
		pause();
		_exit(0);
	}
	while (!*(volatile pid_t *)arg)
		usleep(1000);
	_exit(0); /* in the transaction */
}

/* A child that was forked in a transaction holds no lock of it, also after its parent's death. */
START_TEST(a_fork_in_a_transaction)
{
	pid_t *child = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;
	int status = 0, i = 0;

	ck_assert_int_eq(share_child(forks_in_its_turn, child), 0);
	pid = fork();
	if (!pid)
		_exit(writes_and_loads(NULL));
	for (; i < 2000 && !waitpid(pid, &status, WNOHANG); i++)
		usleep(10000);
	kill(*child, SIGKILL);
	ck_assert_int_lt(i, 2000);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_wlock");
	TCase *tc = tcase_create("gate");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_dead_waiter_does_not_let_a_second_writer_in);
	tcase_add_test(tc, a_dead_writer_releases_its_lock);
	tcase_add_test(tc, a_read_only_mount_of_a_store_that_others_write);
	tcase_add_test(tc, files_that_may_only_be_read);
	tcase_add_test(tc, a_store_without_permission_to_write);
	tcase_add_test(tc, a_store_in_a_containers_layers);
	tcase_add_test(tc, one_file_by_two_mounts);
	tcase_add_test(tc, one_directory_by_two_mounts);
	tcase_add_test(tc, two_copies_of_the_library);
	tcase_add_test(tc, programs_inherit_nothing);
	tcase_add_test(tc, a_fork_in_a_transaction);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
