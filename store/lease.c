// SPDX-License-Identifier: Apache-2.0
/*
 * lease.c - leases: files of ids, locked by their holders; see lease.h.
 *
 * Invariants:
 * - A file without a lock has no holder: a collection may remove it at its beginning and at
 *   its end. So a new holder checks, once it has the lock, that the file still exists.
 * - Ids are only appended: a reader that has read n ids continues behind them.
 * - A fence follows each write, and one precedes each scan, which follows the announcement of the
 *   collection. So either the scan sees the id, or the writer of the id sees the announcement.
 */
#include "store/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/log.h"
#include "store/step.h"

#define TRIES 64
#define NOTE_IDS 256 /* read or written at a time */

struct fdry_lease {
	struct fdry_lease *next;
	struct fdry_env *env;
	int fd;      /* -1: no file */
	bool shared; /* the store's lock is shared */
	uint64_t at; /* where the next id goes */
	char name[FDRY_LEASE_NAME_SIZE];
	struct fdry_idset noted;
};

/* Leases of this process that have a file, for fork(). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_lease *leases;

/* --- fork --- */

void fdry_leases_before_fork(void)
{
	pthread_mutex_lock(&lock);
}

void fdry_leases_after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

void fdry_leases_after_fork_child(void)
{
	struct fdry_lease *l;

	for (l = leases; l; l = l->next)
		close(l->fd);
	leases = NULL;
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* --- creating one --- */

static int file_make(const struct fdry_env *env, char name[FDRY_LEASE_NAME_SIZE], int *ret)
{
	int fd, e = fdry_temp_name(FDRY_LEASES "/", name, FDRY_LEASE_NAME_SIZE);

	if (e)
		return e;
	fd = fdry_openat(env->dir.fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
			 env->dir.file_mode);
	if (fd < 0 && errno == ENOENT) {
		e = fdry_folder_make(&env->dir, FDRY_LEASES);
		return e ? e : EAGAIN;
	}
	if (fd < 0)
		return errno == EEXIST ? EAGAIN : errno;
	*ret = fd;
	return 0;
}

/* EAGAIN: a collection removed the file before it was locked. */
static int file_claim(const struct fdry_dir *d, int fd)
{
	uint8_t head[FDRY_LEASE_AT_IDS] = FDRY_LEASE_MAGIC;
	struct stat st;
	int e;

	fdry_step(FDRY_STEP_LEASE);
	if (fdry_flock(fd, LOCK_EX) || fstat(fd, &st))
		return errno;
	if (!st.st_nlink)
		return EAGAIN;
	e = fdry_file_adopt(d, fd); /* a collector of the same group must read it */
	if (e)
		return e;
	fdry_set32(head + FDRY_LEASE_AT_VERSION, FDRY_LEASE_VERSION);
	return fdry_pwrite(fd, head, sizeof(head), 0);
}

static void lease_unlist(struct fdry_lease *l)
{
	struct fdry_lease **p;

	for (p = &leases; *p && *p != l; p = &(*p)->next)
		;
	if (*p)
		*p = l->next;
}

static void file_close(struct fdry_lease *l)
{
	pthread_mutex_lock(&lock);
	lease_unlist(l);
	close(l->fd);
	l->fd = -1;
	pthread_mutex_unlock(&lock);
}

static int lease_try(struct fdry_lease *l)
{
	int e;

	pthread_mutex_lock(&lock);
	e = file_make(l->env, l->name, &l->fd);
	if (!e) {
		l->next = leases;
		leases = l;
	}
	pthread_mutex_unlock(&lock);
	if (e)
		return e;
	e = file_claim(&l->env->dir, l->fd);
	if (e) {
		(void)unlinkat(l->env->dir.fd, l->name, 0);
		file_close(l);
	}
	return e;
}

/* 0, or errno. */
static int lease_make(struct fdry_lease *l)
{
	int i, e = EAGAIN;

	if (l->env->dir.fixed)
		return EROFS;
	for (i = 0; i < TRIES && e == EAGAIN; i++)
		e = lease_try(l);
	return e;
}

/* Keep collections out, if there is no lease or it cannot grow. */
static int lease_share(struct fdry_lease *l, int e)
{
	int err = fdry_env_share(l->env);

	if (err)
		return err;
	l->shared = true;
	fdry_debug("a session cannot write a lease (%s) and keeps collections out instead",
		   strerror(e));
	return 0;
}

int fdry_lease_begin(struct fdry_env *env, struct fdry_lease **ret)
{
	struct fdry_lease *l = calloc(1, sizeof(*l));
	int e, err;

	if (!l)
		return fdry_nomem();
	l->env = env;
	l->fd = -1;
	l->at = FDRY_LEASE_AT_IDS;
	e = lease_make(l);
	err = e ? lease_share(l, e) : 0;
	if (err) {
		free(l);
		return err;
	}
	*ret = l;
	return 0;
}

/* --- using one --- */

static int ids_write(struct fdry_lease *l, const struct fdry_oid *ids, size_t count)
{
	int e = count ? fdry_pwrite(l->fd, ids, count * sizeof(*ids), l->at) : 0;

	if (e)
		return e;
	l->at += count * sizeof(*ids);
	return 0;
}

/* Note the ids that are new; @e: errno of writing. After a failure those before it are noted. */
static int ids_note(struct fdry_lease *l, const struct fdry_oid *oids, size_t count, int *e)
{
	struct fdry_oid ids[NOTE_IDS];
	bool is_new;
	size_t i, n = 0;
	int err = 0;

	for (i = 0; i < count; i++) {
		is_new = false;
		err = fdry_idset_add(&l->noted, &oids[i], &is_new);
		if (err)
			break;
		if (is_new)
			ids[n++] = oids[i];
		if (n < NOTE_IDS)
			continue;
		*e = ids_write(l, ids, n);
		if (*e)
			return 0;
		n = 0;
	}
	*e = ids_write(l, ids, n);
	return err;
}

int fdry_lease_note(struct fdry_lease *l, const struct fdry_oid *oids, size_t count)
{
	int err, e = 0;

	if (l->shared)
		return 0;
	fdry_step(FDRY_STEP_NOTE);
	err = ids_note(l, oids, count, &e);
	if (e) {
		fdry_idset_release(&l->noted); /* its ids may not have been written */
		err = lease_share(l, e);
	}
	atomic_thread_fence(memory_order_seq_cst);
	fdry_step(FDRY_STEP_NOTED);
	return err;
}

bool fdry_lease_has(const struct fdry_lease *l, const struct fdry_oid *oid)
{
	return l->shared || fdry_idset_has(&l->noted, oid);
}

const struct fdry_idset *fdry_lease_noted(const struct fdry_lease *l)
{
	return l->shared ? NULL : &l->noted;
}

/* --- ending it --- */

/* An announced collection may not have read this lease yet. */
static bool may_remove(const struct fdry_lease *l, bool wrote)
{
	bool announced = true;
	struct fdry_txn t;

	if (!wrote)
		return true;
	if (fdry_txn_read(l->env->db, &t))
		return false;
	if (fdry_gc_announced(&t, &announced))
		announced = true;
	fdry_txn_abort(&t);
	return !announced;
}

static void file_end(struct fdry_lease *l, bool wrote)
{
	fdry_step(FDRY_STEP_LEASE_END);
	if (may_remove(l, wrote))
		(void)unlinkat(l->env->dir.fd, l->name, 0);
	/* a child that did not go through fork() may have the file open */
	(void)fdry_flock(l->fd, LOCK_UN);
	file_close(l);
}

void fdry_lease_end(struct fdry_lease *l, bool wrote)
{
	if (!l)
		return;
	if (l->fd >= 0)
		file_end(l, wrote);
	if (l->shared)
		fdry_env_unshare(l->env);
	fdry_lease_forget(l);
}

void fdry_lease_forget(struct fdry_lease *l)
{
	if (!l)
		return;
	fdry_idset_release(&l->noted);
	free(l);
}

/* --- collecting --- */

struct lease_read {
	char name[FDRY_LEASE_NAME_SIZE];
	uint64_t at; /* where its next id is */
};

struct scan {
	struct fdry_env *env;
	struct fdry_leases *ls;
	fdry_lease_fn fn;
	void *arg;
};

static int folder_fail(int e)
{
	return fdry_fail(e == EACCES ? FDRY_E_PERM : FDRY_E_IO,
			 "cannot list the store's folder " FDRY_LEASES ", whose files list the "
			 "objects in use: %s",
			 strerror(e));
}

/* Call @fn for every file in the folder whose name is that of a lease, until it returns nonzero. */
static int folder_each(const struct fdry_env *env, int (*fn)(void *arg, const char *name),
		       void *arg)
{
	char path[FDRY_LEASE_NAME_SIZE];
	struct fdry_names names;
	const char *name;
	int err = 0, e = fdry_names_open(env->dir.fd, FDRY_LEASES, O_NOFOLLOW, &names);

	if (e)
		return e == ENOENT ? 0 : folder_fail(e);
	while (!err && (name = fdry_names_next(&names))) {
		if (strlen(name) != 16 || strspn(name, "0123456789abcdef") != 16)
			continue;
		snprintf(path, sizeof(path), FDRY_LEASES "/%.16s", name);
		err = fn(arg, path);
	}
	e = fdry_names_close(&names);
	if (err)
		return err;
	return e ? folder_fail(e) : 0;
}

static int read_entry(struct fdry_leases *ls, const char *name, struct lease_read **ret)
{
	struct lease_read *r = (void *)ls->read.data, fresh = { .at = 0 };
	size_t i, n = ls->read.len / sizeof(*r);
	int err;

	for (i = 0; i < n && strcmp(r[i].name, name); i++)
		;
	if (i == n) {
		memcpy(fresh.name, name, sizeof(fresh.name));
		err = fdry_buf_put(&ls->read, &fresh, sizeof(fresh));
		if (err)
			return err;
	}
	*ret = (struct lease_read *)(void *)ls->read.data + i;
	return 0;
}

static int read_fail(const char *name)
{
	return fdry_fail(FDRY_E_IO, "cannot read %s in the store: %s", name, strerror(errno));
}

/*
 * Without a head, nothing was noted yet. Zeros in front of ids were left by a power cut: a live
 * session writes the head first.
 */
static int head_check(int fd, const char *name, bool *there)
{
	static const uint8_t zeros[FDRY_LEASE_AT_IDS];
	uint8_t head[FDRY_LEASE_AT_IDS];
	ssize_t n = pread(fd, head, sizeof(head), 0);

	if (n < 0)
		return read_fail(name);
	*there = n == sizeof(head) && memcmp(head, zeros, sizeof(head));
	if (*there && (memcmp(head, FDRY_LEASE_MAGIC, 8) ||
		       fdry_get32(head + FDRY_LEASE_AT_VERSION) != FDRY_LEASE_VERSION))
		return fdry_fail(FDRY_E_VERSION,
				 "a program of another version uses %s in the store; collect with "
				 "that program",
				 name);
	return 0;
}

static int ids_read(const struct scan *s, int fd, struct lease_read *r)
{
	struct fdry_oid ids[NOTE_IDS];
	bool there = true;
	ssize_t n, i;
	int err;

	if (!r->at) {
		err = head_check(fd, r->name, &there);
		if (err || !there)
			return err;
		r->at = FDRY_LEASE_AT_IDS;
	}
	do {
		n = pread(fd, ids, sizeof(ids), (off_t)r->at);
		if (n < 0)
			return read_fail(r->name);
		n /= FDRY_OID_SIZE;
		for (i = 0; i < n; i++) {
			err = s->fn(s->arg, &ids[i]);
			if (err)
				return err;
		}
		r->at += (uint64_t)n * FDRY_OID_SIZE;
	} while (n);
	return 0;
}

/* Is the lock free? Then the holder died, or has noted nothing yet. */
static bool is_unheld(const struct fdry_env *env, const char *name)
{
	int fd = fdry_file_get(env->dir.fd, name, O_RDONLY);
	bool ret = fd >= 0 && !fdry_flock(fd, LOCK_SH | LOCK_NB);

	if (fd >= 0)
		close(fd);
	return ret;
}

static int scan_file(void *arg, const char *name)
{
	struct scan *s = arg;
	struct lease_read *r = NULL;
	struct stat st;
	int fd, err = read_entry(s->ls, name, &r);

	if (err)
		return err;
	if (s->ls->plan && is_unheld(s->env, name)) {
		s->ls->unheld++;
		return 0;
	}
	s->ls->held++;
	if (!fstatat(s->env->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size <= r->at)
		return 0;
	fd = fdry_file_get(s->env->dir.fd, name, O_RDONLY);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return fdry_fail(errno == EACCES ? FDRY_E_PERM : FDRY_E_IO,
				 "cannot read %s in the store, which may keep objects: %s%s",
				 name, fdry_file_text(errno),
				 errno == EACCES ? "; collect as the user it belongs to" : "");
	err = ids_read(s, fd, r);
	close(fd);
	return err;
}

int fdry_leases_scan(struct fdry_leases *ls, struct fdry_env *env, fdry_lease_fn fn, void *arg)
{
	struct scan s = { .env = env, .ls = ls, .fn = fn, .arg = arg };

	fdry_step(FDRY_STEP_SCAN);
	atomic_thread_fence(memory_order_seq_cst);
	ls->held = ls->unheld = 0;
	return folder_each(env, scan_file, &s);
}

void fdry_leases_release(struct fdry_leases *ls)
{
	fdry_buf_release(&ls->read);
}

struct reclaim {
	struct fdry_env *env;
	uint64_t count;
};

/* With its lock held, no other process can begin to use it. */
static int reclaim_file(void *arg, const char *name)
{
	struct reclaim *r = arg;
	int fd = fdry_file_get(r->env->dir.fd, name, O_RDONLY);

	if (fd < 0)
		return 0; /* reading the lease reports the error */
	if (!fdry_flock(fd, LOCK_EX | LOCK_NB) && !unlinkat(r->env->dir.fd, name, 0))
		r->count++;
	close(fd);
	return 0;
}

int fdry_leases_reclaim(struct fdry_env *env, uint64_t *ret)
{
	struct reclaim r = { .env = env };
	int err;

	fdry_step(FDRY_STEP_SCAN);
	err = folder_each(env, reclaim_file, &r);
	if (err)
		return err;
	*ret = r.count;
	return 0;
}
