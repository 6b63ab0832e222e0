// SPDX-License-Identifier: Apache-2.0
/*
 * verify.c - hashing everything again, in a child process.
 *
 * LMDB has no checksums, and pages with flipped bits can send it anywhere: the work is
 * done by a child with an environment of its own, whose crash is a finding. What it has
 * counted and where it was lies in shared memory; the parent starts another child behind
 * the place of a crash. Findings come through a pipe, one record each.
 *
 * Objects are checked in slices, each with a transaction of its own, so that a long check
 * does not make the file grow.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/internal.h"

#define CRASHES_MAX 64
#define SLICE_BYTES (64u << 20)
#define SLICE_OBJECTS 4096
#define FINDING_TEXT 400

enum stage { STAGE_TABLES, STAGE_OBJECTS, STAGE_REFS, STAGE_COUNT };

/* Through the pipe; less than PIPE_BUF, so that it arrives whole. */
struct finding {
	struct fdry_oid oid;
	uint8_t has_oid;
	uint8_t damaged; /* to be remembered when refs are checked */
	char text[FINDING_TEXT];
};

/* Shared by parent and child. */
struct shared {
	struct fdry_verify_report report;
	enum stage stage;
	struct fdry_oid at;  /* where the check of objects is ... */
	bool inside;         /* ... looking at that object, or for the next */
	bool done;           /* the child came to its end */
	int err;             /* why it could not work */
	char text[1024];
};

struct verify {
	struct fdry_store *s; /* the child's own */
	struct shared *shared;
	struct fdry_txn t;
	int pipe;
	/* the parent's, inherited by children */
	struct fdry_idset damaged;
	fdry_finding_fn finding;
	void *arg;
	/* of one slice */
	uint64_t bytes, objects;
	bool more;
	/* of one ref */
	const char *ref;
	struct fdry_oid worst;
	uint64_t bad;
	bool gone;
};

/* --- the child: findings --- */

static void say(struct verify *v, const struct fdry_oid *oid, bool damaged, const char *text)
{
	struct finding f = { .damaged = damaged };

	if (oid) {
		f.oid = *oid;
		f.has_oid = 1;
	}
	snprintf(f.text, sizeof(f.text), "%s", text);
	while (write(v->pipe, &f, sizeof(f)) < 0 && errno == EINTR)
		;
}

/* The last error as a finding, unless it only means that we cannot work. */
static int say_error(struct verify *v, int err, const struct fdry_oid *oid)
{
	if (err != -FDRY_E_CORRUPT && err != -FDRY_E_VERSION && err != -FDRY_E_NOENT)
		return err;
	v->shared->report.damaged++;
	say(v, oid, oid != NULL, fdry_last_error());
	return 0;
}

/* --- the child: tables --- */

struct tally {
	struct verify *v;
	enum fdry_table table;
	uint64_t count;
};

static int tally_entry(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct tally *tally = arg;
	struct fdry_record rec;
	struct fdry_oid oid;
	bool found = false;
	int err;

	(void)value;
	tally->count++;
	if (tally->table != FDRY_TABLE_DATA)
		return 0;
	if (key.len != FDRY_OID_SIZE)
		return fdry_fail(FDRY_E_CORRUPT, "there is a key of %zu bytes among the objects' bytes", key.len);
	memcpy(oid.b, key.data, FDRY_OID_SIZE);
	err = fdry_record_get(&tally->v->t, &oid, &found, &rec);
	if (err == -FDRY_E_CORRUPT || found)
		return 0; /* the check of objects says so */
	return err ? err : fdry_fail(FDRY_E_CORRUPT, "there are bytes of an object that has no record; gc removes them");
}

static int check_table(struct verify *v, enum fdry_table table, const char *name)
{
	struct tally tally = { .v = v, .table = table };
	uint64_t count = 0;
	int err = fdry_txn_each(&v->t, table, (struct fdry_span){ 0 }, tally_entry, &tally);

	if (!err)
		err = fdry_txn_count(&v->t, table, &count);
	if (!err && count != tally.count)
		err = fdry_fail(FDRY_E_CORRUPT, "its root counts %llu entries and %llu are there",
				(unsigned long long)count, (unsigned long long)tally.count);
	return err ? say_error(v, fdry_fail_at(err, "table %s", name), NULL) : 0;
}

/* Free pages: each one in the file, and none twice, or two objects would be written over each other. */
struct free_pages {
	uint64_t count;   /* pages of the file */
	uint8_t *is_free; /* a bit each */
};

static int check_free_entry(void *arg, struct fdry_span key, struct fdry_span value)
{
	const uint8_t *p = fdry_span_at(value, 0, 8);
	uint64_t i, pgno, count = p ? fdry_get64(p) : 0;
	struct free_pages *f = arg;

	(void)key;
	if (!p || count > value.len / 8 - 1)
		return fdry_fail(FDRY_E_CORRUPT, "a list of free pages is damaged");
	for (i = 1; i <= count; i++) {
		pgno = fdry_get64(value.data + i * 8);
		if (pgno < 2 || pgno >= f->count || f->is_free[pgno / 8] & 1 << pgno % 8)
			return fdry_fail(FDRY_E_CORRUPT, "page %llu is free twice, or beyond the end", (unsigned long long)pgno);
		f->is_free[pgno / 8] |= (uint8_t)(1 << pgno % 8);
	}
	return 0;
}

static int check_free(struct verify *v)
{
	struct free_pages f = { 0 };
	struct fdry_extent x;
	int err = fdry_db_extent(v->s->env->db, &x);

	if (err)
		return err;
	f.count = x.used_bytes / x.page_size; /* of a later moment than the view: not less */
	f.is_free = calloc(f.count / 8 + 1, 1);
	if (!f.is_free)
		return fdry_nomem();
	err = fdry_txn_each_inner(&v->t, FDRY_INNER_FREE, check_free_entry, &f);
	free(f.is_free);
	return err ? say_error(v, fdry_fail_at(err, "free pages"), NULL) : 0;
}

static int pass_over(void *arg, struct fdry_span key, struct fdry_span value)
{
	(void)arg, (void)key, (void)value;
	return 0;
}

static int check_roots(struct verify *v)
{
	int err = fdry_txn_each_inner(&v->t, FDRY_INNER_ROOTS, pass_over, NULL);

	return err ? say_error(v, fdry_fail_at(err, "roots"), NULL) : 0;
}

static int check_tables(struct verify *v)
{
	int err = fdry_txn_read(v->s->env->db, &v->t);

	if (err)
		return err;
	err = check_free(v);
	if (!err)
		err = check_roots(v);
#define X(NAME, name) \
	if (!err) \
		err = check_table(v, FDRY_TABLE_##NAME, name);
	FDRY_TABLES(X)
#undef X
	fdry_txn_abort(&v->t);
	return err;
}

/* --- the child: objects --- */

static int check_links(struct verify *v, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	char hex[FDRY_OID_HEX_SIZE], text[FINDING_TEXT];
	struct fdry_record other;
	struct fdry_oid link;
	bool found = false;
	uint32_t i;

	for (i = 0; i < rec->nlinks; i++) {
		link = fdry_record_link(rec, i);
		if (fdry_record_get(&v->t, &link, &found, &other) || found)
			continue;
		v->shared->report.missing++;
		snprintf(text, sizeof(text), "it links to object %s, which is not there", fdry_oid_hex(&link, hex));
		say(v, oid, false, text); /* following refs comes upon it again */
	}
	return 0;
}

static int check_object(struct verify *v, const struct fdry_oid *oid, struct fdry_span value)
{
	struct fdry_unpacker u = { 0 };
	struct fdry_buf copy = { 0 };
	struct fdry_record rec = { 0 };
	int err = fdry_record_parse(value, &rec);

	if (!err)
		err = fdry_object_read(&v->t, oid, &u, &copy);
	fdry_unpacker_release(&u);
	v->bytes += copy.len;
	v->shared->report.bytes += copy.len;
	fdry_buf_release(&copy);
	err = err ? say_error(v, err, oid) : 0;
	return err ? err : check_links(v, oid, &rec);
}

static int slice_entry(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct verify *v = arg;
	struct fdry_oid oid;
	int err;

	if (key.len != FDRY_OID_SIZE)
		return fdry_fail(FDRY_E_CORRUPT, "there is a key of %zu bytes among the objects", key.len);
	if (v->bytes >= SLICE_BYTES || v->objects >= SLICE_OBJECTS) {
		v->more = true;
		return FDRY_EACH_STOP;
	}
	memcpy(oid.b, key.data, FDRY_OID_SIZE);
	v->shared->at = oid;
	v->shared->inside = true;
	v->shared->report.objects++;
	v->objects++;
	err = check_object(v, &oid, value);
	v->shared->inside = false;
	return err;
}

/* The id behind @oid; false where there is none. */
static bool oid_next(struct fdry_oid *oid, int byte)
{
	memset(oid->b + byte + 1, 0, (size_t)(FDRY_OID_SIZE - 1 - byte));
	for (; byte >= 0; byte--)
		if (++oid->b[byte])
			return true;
	return false;
}

static int check_objects(struct verify *v)
{
	int err = 0;

	v->more = true;
	while (v->more && !err) {
		v->more = false;
		v->bytes = v->objects = 0;
		err = fdry_txn_read(v->s->env->db, &v->t);
		if (err)
			return err;
		err = fdry_txn_each(&v->t, FDRY_TABLE_OBJECTS, fdry_oid_span(&v->shared->at), slice_entry, v);
		fdry_txn_abort(&v->t);
		if (err)
			err = say_error(v, err, NULL);
		if (v->more)
			v->more = oid_next(&v->shared->at, FDRY_OID_SIZE - 1);
	}
	return err;
}

/* --- the child: refs --- */

static int check_reached(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	struct verify *v = arg;

	v->gone |= !rec;
	if (rec && !fdry_idset_has(&v->damaged, oid))
		return 0;
	if (!v->bad++)
		v->worst = *oid;
	return FDRY_EACH_STOP;
}

static int check_ref(void *arg, struct fdry_span key, struct fdry_span value)
{
	char hex[FDRY_OID_HEX_SIZE], text[FINDING_TEXT];
	struct fdry_idset seen = { 0 };
	struct verify *v = arg;
	struct fdry_ref ref;
	int err = fdry_ref_parse(value, &ref);

	v->shared->report.refs++;
	v->bad = 0;
	v->gone = false;
	if (!err)
		err = fdry_reach(&v->t, &ref.oid, &seen, check_reached, v);
	fdry_idset_release(&seen);
	if (err)
		return say_error(v, fdry_fail_at(err, "ref '%.*s'", (int)key.len, (const char *)key.data), NULL);
	if (!v->bad)
		return 0;
	v->shared->report.dangling_refs += v->gone;
	snprintf(text, sizeof(text), "ref '%.*s' cannot be loaded: %llu of its objects are damaged or missing, the first %s",
		 (int)key.len, (const char *)key.data, (unsigned long long)v->bad, fdry_oid_hex(&v->worst, hex));
	say(v, &ref.oid, false, text);
	return 0;
}

static int check_refs(struct verify *v)
{
	int err = fdry_txn_read(v->s->env->db, &v->t);

	if (err)
		return err;
	v->shared->report.refs = v->shared->report.dangling_refs = 0;
	err = fdry_txn_each(&v->t, FDRY_TABLE_REFS, (struct fdry_span){ 0 }, check_ref, v);
	fdry_txn_abort(&v->t);
	return err ? say_error(v, err, NULL) : 0;
}

/* --- the child --- */

static int child_work(struct verify *v, const char *path)
{
	static int (*const stages[])(struct verify *) = { check_tables, check_objects, check_refs };
	int err = fdry_store_open(path, FDRY_STORE_READONLY, &v->s);

	if (err)
		return err;
	err = fdry_env_share(v->s->env);
	if (!err)
		err = stages[v->shared->stage](v);
	/* Nothing is closed: the process ends here, and damage may make closing crash. */
	return err;
}

static void child_main(struct verify *v, const char *path)
{
	v->shared->err = child_work(v, path);
	if (v->shared->err)
		snprintf(v->shared->text, sizeof(v->shared->text), "%s", fdry_last_error());
	v->shared->done = true;
	_exit(0);
}

/* --- the parent --- */

static void finding_take(struct verify *v, const struct finding *f)
{
	if (f->damaged && fdry_idset_add(&v->damaged, &f->oid, NULL))
		return; /* out of memory: the ref that it touches goes unnamed */
	v->finding(v->arg, f->has_oid ? &f->oid : NULL, f->text);
}

static void findings_read(struct verify *v, int fd)
{
	struct finding f;
	size_t have = 0;
	ssize_t n;

	for (;;) {
		n = read(fd, (char *)&f + have, sizeof(f) - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		have += (size_t)n;
		if (have < sizeof(f))
			continue;
		finding_take(v, &f);
		have = 0;
	}
}

/* Runs one child to its end; @crash: the signal that ended it, 0 for none. */
static int child_run(struct verify *v, const char *path, int *crash)
{
	int fds[2], status = 0;
	pid_t pid;

	v->shared->done = false;
	if (pipe2(fds, O_CLOEXEC))
		return fdry_fail(FDRY_E_IO, "cannot make a pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return fdry_fail(FDRY_E_IO, "cannot start a process to verify in: %s", strerror(errno));
	}
	if (!pid) {
		close(fds[0]);
		v->pipe = fds[1];
		child_main(v, path);
	}
	close(fds[1]);
	findings_read(v, fds[0]);
	close(fds[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	*crash = 0;
	if (!v->shared->done)
		*crash = WIFSIGNALED(status) ? WTERMSIG(status) : SIGABRT;
	return 0;
}

static void say_crash(struct verify *v, int sig)
{
	static const char *const doing[] = { "going through the tables", "listing objects", "following refs" };
	struct finding f = { .oid = v->shared->at, .has_oid = v->shared->inside, .damaged = v->shared->inside };

	if (f.has_oid)
		snprintf(f.text, sizeof(f.text), "its pages are damaged: reading it ended with signal %d", sig);
	else
		snprintf(f.text, sizeof(f.text), "pages are damaged: %s ended with signal %d", doing[v->shared->stage], sig);
	v->shared->report.crashes++;
	v->shared->report.damaged++;
	finding_take(v, &f);
}

/* Where to go on after a crash: behind the object, or, where the list itself is damaged, some way further. */
static bool crash_skip(struct verify *v)
{
	int byte = v->shared->inside ? FDRY_OID_SIZE - 1 : 0;

	v->shared->inside = false;
	return v->shared->stage == STAGE_OBJECTS && v->shared->report.crashes < CRASHES_MAX &&
	       oid_next(&v->shared->at, byte);
}

static int stage_run(struct verify *v, const char *path)
{
	int crash = 0, err;

	do {
		err = child_run(v, path, &crash);
		if (!err && crash)
			say_crash(v, crash);
	} while (!err && crash && crash_skip(v));
	if (!err && !crash && v->shared->err)
		err = fdry_fail(-v->shared->err, "%s", v->shared->text);
	return err;
}

static int verify(const char *path, fdry_finding_fn finding, void *arg, struct fdry_verify_report *ret)
{
	struct verify v = { .finding = finding, .arg = arg };
	int err = 0;

	v.shared = mmap(NULL, sizeof(*v.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (v.shared == MAP_FAILED)
		return fdry_nomem();
	for (v.shared->stage = STAGE_TABLES; v.shared->stage < STAGE_COUNT && !err; v.shared->stage++)
		err = stage_run(&v, path);
	if (!err)
		*ret = v.shared->report;
	munmap(v.shared, sizeof(*v.shared));
	fdry_idset_release(&v.damaged);
	return err;
}

int fdry_store_verify_at(const char *path, fdry_finding_fn finding, void *arg, struct fdry_verify_report *ret)
{
	struct fdry_buf buf = { 0 };
	int err = path ? 0 : fdry_store_default_path(&buf);

	if (!err)
		err = verify(path ? path : (const char *)buf.data, finding, arg, ret);
	fdry_buf_release(&buf);
	return err;
}

int fdry_store_verify(struct fdry_store *s, fdry_finding_fn finding, void *arg, struct fdry_verify_report *ret)
{
	int err = fdry_store_check(s);

	return err ? err : verify(s->path, finding, arg, ret);
}
