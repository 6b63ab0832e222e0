// SPDX-License-Identifier: Apache-2.0
/* check.c - checks that a store has kept everything that it reported to workers as done; see
 * work.h. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/work.h"

struct check {
	const char *path;
	struct fdry_store *s;
	struct fdry_reader *g;
	struct work_notes *all;
	uint32_t count;
	struct work_check *r;
	uint64_t refs, reached, listed;
};

static void fault(struct check *c, const char *what, const char *detail)
{
	fprintf(stderr, "fault: %s: %s\n", what, detail);
	c->r->faults++;
}

/* --- names --- */

static int hash_object(void *arg, const struct fdry_object_info *info)
{
	struct check *c = arg;
	struct fdry_buf b = { 0 };
	struct fdry_oid oid;
	int err = fdry_reader_copy(c->g, &info->oid, &b) ?: fdry_oid_of(b.data, b.len, &oid);

	if (!err && !fdry_oid_eq(&oid, &info->oid))
		err = fdry_fail(FDRY_E_BUG, "an object has other bytes than its id says");
	fdry_buf_release(&b);
	c->r->objects++;
	return err;
}

static int load(struct check *c, const char *ref)
{
	struct fdry_oid oid;
	int err = fdry_reader_begin(c->s, &c->g);

	if (err)
		return err;
	err = fdry_reader_resolve(c->g, ref, &oid) ?: fdry_store_reach(c->s, &oid, hash_object, c);
	fdry_reader_end(c->g);
	c->r->images++;
	return err;
}

static bool is_reported(const struct work_name *n, bool there, const struct fdry_oid *oid)
{
	return there == n->there && (!there || fdry_oid_eq(oid, &n->reported));
}

static bool is_wanted(const struct work_name *n, enum work_intent intent, bool there,
		      const struct fdry_oid *oid)
{
	if (intent == INTENT_REMOVE)
		return !there;
	return there &&
	       (intent == INTENT_ANY || (intent == INTENT_SET && fdry_oid_eq(oid, &n->wanted)));
}

/* Does @err mean that one of the workers that still run evicted the name a moment ago? */
static bool was_evicted(struct check *c, const struct work_name *n, const char *ref, int err)
{
	struct fdry_oid oid;

	return err == -FDRY_E_NOENT && work_may_go(n) &&
	       fdry_ref_get(c->s, ref, &oid) == -FDRY_E_NOENT;
}

/* Check the name's pin against its report; from now on, the state found counts as reported. */
static void check_pin(struct check *c, struct work_name *n, const char *ref, bool *there)
{
	struct fdry_ref *refs;
	size_t count;
	int err = *there ? fdry_ref_list(c->s, ref, &refs, &count) : 0;

	*there = *there && !was_evicted(c, n, ref, err);
	if (*there && err) {
		fault(c, ref, fdry_last_error());
	} else if (*there) {
		if (refs[0].pinned != n->pinned && !atomic_load(&n->pinning) &&
		    atomic_load(&n->intent) == INTENT_NONE)
			fault(c, ref,
			      n->pinned ? "it was reported as pinned and is not"
					: "it is pinned, and no call reported that");
		n->pinned = refs[0].pinned;
		free(refs);
	} else {
		n->pinned = false;
	}
	atomic_store(&n->pinning, 0);
}

static void check_name(struct check *c, struct work_name *n, const char *ref)
{
	enum work_intent intent = atomic_load(&n->intent);
	struct fdry_oid oid = { { 0 } };
	char text[300];
	bool there;
	int err = fdry_ref_get(c->s, ref, &oid);

	there = !err;
	if (err && err != -FDRY_E_NOENT) {
		fault(c, ref, fdry_last_error());
		return;
	}
	if (intent != INTENT_NONE)
		c->r->undecided++;
	if (!is_reported(n, there, &oid) && !is_wanted(n, intent, there, &oid) &&
	    (there || !work_may_go(n))) {
		snprintf(text, sizeof(text), "%s; it was reported as %s%s",
			 there ? "is another image" : "is lost", n->there ? "there" : "removed",
			 intent ? ", and was being changed" : "");
		fault(c, ref, text);
	}
	err = there ? load(c, ref) : 0;
	there = there && !was_evicted(c, n, ref, err);
	if (there && err)
		fault(c, ref, fdry_last_error());
	check_pin(c, n, ref, &there);
	n->there = there;
	n->reported = oid;
	atomic_store(&n->intent, INTENT_NONE);
}

static void check_names(struct check *c, uint32_t from, uint32_t to)
{
	char ref[32];
	uint32_t i, k;

	for (i = from; i < to; i++) {
		for (k = 0; k < WORK_NAMES; k++) {
			work_name(ref, i, k);
			check_name(c, &c->all[i].name[k], ref);
		}
	}
}

/*
 * A process that died after it wrote LMDB's meta page, and before it informed others, leaves a
 * change that appears when the next writer begins. Begin a write transaction here, so that
 * the state read now does not change later.
 */
static bool store_open(struct check *c)
{
	int err = fdry_store_open(c->path, FDRY_STORE_CREATE, &c->s);

	if (!err) {
		err = fdry_store_remove(c->s, "nobodys");
		if (err == -FDRY_E_NOENT)
			return true;
		fdry_store_close(c->s);
	}
	fault(c, "open", fdry_last_error());
	return false;
}

void work_check_names(const char *path, struct work_notes *all, uint32_t from, uint32_t to,
		      struct work_check *r)
{
	struct check c = { .path = path, .all = all, .r = r };

	if (!store_open(&c))
		return;
	check_names(&c, from, to);
	fdry_store_close(c.s);
}

/* --- the whole store --- */

static void verify_fault(void *arg, int kind, const char *id, const char *other, const char *text)
{
	(void)kind, (void)id, (void)other;
	fault(arg, "verify", text);
}

static void verify(struct check *c)
{
	struct fdry_verify_opts opts = { .sz = sizeof(opts), .fault = verify_fault,
					 .fault_arg = c };

	if (fdry_store_verify(fdry_store_path(c->s), &opts, NULL))
		fault(c, "verify", fdry_last_error());
}

static void collect(struct check *c)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };

	if (fdry_store_gc(c->s, NULL, &r)) {
		fault(c, "gc", fdry_last_error());
		return;
	}
	c->r->collected += r.dead;
	if (fdry_store_gc(c->s,
			  &(struct fdry_gc_opts){ .sz = sizeof(struct fdry_gc_opts),
						  .flags = FDRY_GC_DRY_RUN },
			  &r) ||
	    r.dead)
		fault(c, "gc", "it left something for the next one");
	c->listed = r.live;
}

/* A name must belong to a worker. Its objects count once each: seen ones are marked in the list of
 * all objects. */
static int count_ref(void *arg, const struct fdry_ref *ref)
{
	unsigned int worker, nr;
	struct check *c = arg;

	c->refs++;
	if (sscanf(ref->name, "w%u/%u", &worker, &nr) != 2 || worker >= c->count ||
	    nr >= WORK_NAMES || !c->all[worker].name[nr].there)
		fault(c, ref->name, "a name that nobody made");
	return 0;
}

static int count_object(void *arg, const struct fdry_object_info *info)
{
	struct check *c = arg;

	(void)info;
	c->reached++;
	return 0;
}

static void check_counts(struct check *c)
{
	uint64_t there = 0;
	uint32_t i, k;

	for (i = 0; i < c->count; i++)
		for (k = 0; k < WORK_NAMES; k++)
			there += c->all[i].name[k].there;
	if (fdry_ref_each(c->s, count_ref, c) || fdry_store_each(c->s, count_object, c))
		fault(c, "list", fdry_last_error());
	if (c->refs != there)
		fault(c, "list", "another number of names than there should be");
	if (c->reached != c->listed)
		fault(c, "list", "another number of objects than gc left alive");
}

static void check_folder(struct check *c, const char *path, const char *const *known, size_t nknown)
{
	struct dirent *e;
	DIR *d = opendir(path);
	size_t i;

	while (d && (e = readdir(d))) {
		for (i = 0; i < nknown && strcmp(e->d_name, known[i]); i++)
			;
		if (i == nknown)
			fault(c, e->d_name, "a file that gc left");
	}
	if (d)
		closedir(d);
}

/* Check that gc has removed what crashes leave: the folder has only the store's own files, and no
 * lease. */
static void check_files(struct check *c)
{
	static const char *const known[] = { ".", "..", "data.mdb", "lock.mdb",
					     "verified", "checked", "used", "leases" };
	char leases[4200];

	snprintf(leases, sizeof(leases), "%s/leases", c->path);
	check_folder(c, c->path, known, sizeof(known) / sizeof(known[0]));
	check_folder(c, leases, known, 2);
}

void work_check_all(const char *path, struct work_notes *all, uint32_t count, struct work_check *r)
{
	struct check c = { .path = path, .all = all, .count = count, .r = r };

	if (!store_open(&c))
		return;
	check_names(&c, 0, count);
	verify(&c);
	collect(&c);
	verify(&c);
	check_counts(&c);
	check_files(&c);
	check_names(&c, 0, count);
	fdry_store_close(c.s);
}

bool work_in_child(void (*fn)(void *arg), void *arg)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		fn(arg);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid > 0 && WIFEXITED(status) && !WEXITSTATUS(status))
		return true;
	fprintf(stderr, "fault: a check ended with status %#x%s\n", status,
		WIFSIGNALED(status) ? ", by a signal" : "");
	return false;
}
