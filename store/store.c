// SPDX-License-Identifier: Apache-2.0
/*
 * store.c - opening and closing a store.
 *
 * LMDB forbids opening one environment twice in a process. So a process has one struct fdry_env for
 * each directory, which it finds by device and inode. It counts references: every open returns a
 * handle of its own. LMDB also forbids using an environment after fork(). So a child drops all
 * environments that it inherited. It closes its copies of the locked descriptors, so that a lock
 * ends with the process that acquired it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/config.h"
#include "lib/fd.h"
#include "lib/live.h"
#include "lib/log.h"
#include "lib/opts.h"
#include "store/lease.h"

/* Recursive, since opening itself may fork (to look at a damaged file) and so run the handlers
 * below. */
static pthread_mutex_t registry = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct fdry_env *envs;
static unsigned int generation; /* of forks; written only by a child that has one thread */

/* --- fork --- */

static void before_fork(void)
{
	pthread_mutex_lock(&registry);
	fdry_leases_before_fork();
	fdry_lockfd_lock();
}

static void after_fork(void)
{
	fdry_lockfd_unlock();
	fdry_leases_after_fork();
	pthread_mutex_unlock(&registry);
}

static void after_fork_child(void)
{
	struct fdry_env *env;

	for (env = envs; env; env = env->next) {
		close(env->dir.fd);
		fdry_db_forked(env->db);
	}
	fdry_leases_after_fork_child();
	fdry_lockfd_after_fork_child();
	envs = NULL;
	generation++;
	/* its owner was another thread */
	registry = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

/* fork() calls the handlers that were registered last first: ours, and then that of the lock which
 * we acquire while we hold ours. */
static void watch_forks(void)
{
	fdry_fd_watch_forks();
	pthread_atfork(before_fork, after_fork, after_fork_child);
}

static bool env_inherited(const struct fdry_env *env)
{
	return env->generation != generation || env->pid != getpid();
}

int fdry_store_check(const struct fdry_store *s)
{
	int err = fdry_live_check(s, "the store");

	if (err)
		return err;
	if (env_inherited(s->env))
		return fdry_fail(
			FDRY_E_FORKED,
			"the store %s was opened before fork(); open it again in the child",
			s->path);
	return 0;
}

int fdry_store_read(const struct fdry_store *s, struct fdry_txn *t)
{
	int err = fdry_store_check(s);

	return err ? err : fdry_txn_read(s->env->db, t);
}

int fdry_store_check_write(const struct fdry_store *s)
{
	int err = fdry_store_check(s);

	if (err)
		return err;
	if (s->readonly)
		return fdry_fail(FDRY_E_PERM,
				 "the store %s is open for reading only; open it for writing",
				 s->path);
	return 0;
}

/* --- the format record --- */

static int format_write(struct fdry_txn *t)
{
	uint8_t rec[FDRY_FORMAT_SIZE] = { 0 };

	memcpy(rec, FDRY_FORMAT_MAGIC, FDRY_FORMAT_MAGIC_SIZE);
	fdry_set32(rec + FDRY_FORMAT_AT_VERSION, FDRY_FORMAT_VERSION);
	if (getrandom(rec + FDRY_FORMAT_AT_ID, FDRY_FORMAT_ID_SIZE, 0) != FDRY_FORMAT_ID_SIZE)
		return fdry_fail(FDRY_E_IO, "the kernel returned no random bytes: %s",
				 strerror(errno));
	return fdry_meta_put(t, FDRY_META_FORMAT, rec, sizeof(rec));
}

static int format_check(const char *path, struct fdry_span rec, uint8_t id[FDRY_FORMAT_ID_SIZE])
{
	const uint8_t *p = fdry_span_at(rec, 0, FDRY_FORMAT_SIZE);
	uint32_t version;
	uint64_t unknown;

	if (!p || memcmp(p, FDRY_FORMAT_MAGIC, FDRY_FORMAT_MAGIC_SIZE))
		return fdry_fail(FDRY_E_NOSTORE,
				 "%s holds another program's data; name another directory", path);
	version = fdry_get32(p + FDRY_FORMAT_AT_VERSION);
	unknown = fdry_get64(p + FDRY_FORMAT_AT_INCOMPAT) & ~FDRY_FORMAT_INCOMPAT_KNOWN;
	if (version > FDRY_FORMAT_VERSION)
		return fdry_fail(FDRY_E_VERSION,
				 "the store %s has format version %u and this program knows %u; "
				 "use a newer one",
				 path, version, FDRY_FORMAT_VERSION);
	if (version < FDRY_FORMAT_VERSION)
		return fdry_fail(FDRY_E_VERSION,
				 "the store %s has format version %u, of an older program, and "
				 "this one knows %u; remove it and seal anew, or name another",
				 path, version, FDRY_FORMAT_VERSION);
	if (unknown)
		return fdry_fail(FDRY_E_VERSION,
				 "the store %s uses features %#llx that this program does not "
				 "know; use a newer one",
				 path, (unsigned long long)unknown);
	memcpy(id, p + FDRY_FORMAT_AT_ID, FDRY_FORMAT_ID_SIZE);
	return 0;
}

static int format_read(struct fdry_env *env, const char *path)
{
	struct fdry_span rec;
	struct fdry_txn t;
	int err = fdry_txn_read(env->db, &t);

	if (err)
		return err;
	err = fdry_meta_get(&t, FDRY_META_FORMAT, &rec) ?: format_check(path, rec, env->id);
	fdry_txn_abort(&t);
	return err;
}

/* --- opening --- */

/* LMDB lists a process that may only read, if it may write to lock.mdb; otherwise that process
 * keeps writers out during each read. */
static int db_open(struct fdry_env *env, const char *path, unsigned int flags)
{
	struct fdry_db_opts o = {
		.dir = path,
		.entered = &env->dir,
		.create = flags & FDRY_STORE_CREATE,
		.readonly = env->dir.fixed,
		.fixed = env->dir.fixed,
		.mode = env->dir.file_mode,
	};
	int err = fdry_db_open(&o, format_write, &env->db);

	if (err == -FDRY_E_PERM && (flags & FDRY_STORE_READONLY) && !o.readonly) {
		o.readonly = true;
		err = fdry_db_open(&o, format_write, &env->db);
	}
	if ((err == -FDRY_E_PERM && o.readonly && !o.fixed) ||
	    (err == -FDRY_E_FULL && (flags & FDRY_STORE_READONLY) && !o.fixed)) {
		o.readonly = o.fixed = true; /* no permission, or no disk space, for lock.mdb */
		err = fdry_db_open(&o, format_write, &env->db);
	}
	env->readonly = o.readonly;
	return err;
}

static int env_new(const char *path, unsigned int flags, struct fdry_dir *dir,
		   struct fdry_env **ret)
{
	struct fdry_env *env = calloc(1, sizeof(*env));
	int err, fd;

	if (!env)
		return fdry_nomem();
	env->dir = *dir;
	env->generation = generation;
	env->pid = getpid();
	pthread_mutex_init(&env->lock, NULL);
	err = fdry_dir_prepare(dir, path, flags & FDRY_STORE_CREATE, format_write);
	if (err)
		goto out_free;
	err = fdry_dir_enter(dir, path, flags & FDRY_STORE_CREATE, &fd);
	if (err)
		goto out_free;
	err = db_open(env, path, flags);
	if (err)
		goto out_leave;
	err = format_read(env, path);
	if (err)
		goto out_close;
	fdry_dir_leave(fd);
	*ret = env;
	return 0;
out_close:
	fdry_db_close(env->db);
out_leave:
	fdry_dir_leave(fd);
out_free:
	pthread_mutex_destroy(&env->lock);
	free(env);
	return err;
}

/* Does the name data.mdb still lead to the file that the environment has open? If not, the
 * directory has another store now. */
static int env_is_there(const struct fdry_env *env, bool *ret)
{
	struct stat st;
	dev_t dev;
	ino_t ino;
	int err = fdry_db_file(env->db, &dev, &ino);

	*ret = !err && !fstatat(env->dir.fd, "data.mdb", &st, 0) && st.st_dev == dev &&
	       st.st_ino == ino;
	return err;
}

/* The environment of that directory, if this process has one. If its data.mdb was replaced, only
 * the handles that have it open keep it. */
static int env_find(const struct fdry_dir *dir, struct fdry_env **ret)
{
	struct fdry_env *env;
	bool there = false;
	int err;

	*ret = NULL;
	for (env = envs; env; env = env->next)
		if (!env->replaced && env->dir.dev == dir->dev && env->dir.ino == dir->ino)
			break;
	if (!env)
		return 0;
	err = env_is_there(env, &there);
	if (err)
		return err;
	env->replaced = !there;
	*ret = there ? env : NULL;
	return 0;
}

/* The environment of a directory; takes over @dir or closes it. Under the registry's lock. */
static int env_get(const char *path, unsigned int flags, struct fdry_dir *dir,
		   struct fdry_env **ret)
{
	struct fdry_env *env = NULL;
	int err = env_find(dir, &env);

	if (err)
		goto out_close;
	if (env) {
		fdry_dir_close(dir, path, false);
	} else {
		err = env_new(path, flags, dir, &env);
		if (err)
			goto out_close;
		env->next = envs;
		envs = env;
	}
	env->refs++;
	*ret = env;
	return 0;
out_close:
	fdry_dir_close(dir, path, true);
	return err;
}

static void env_close(struct fdry_env *env)
{
	bool there = false;
	int fd = -1;

	/* Alone, if possible: a process that was stopped while it opens the store may hold the
	 * lock. No process opens a file that was replaced. */
	if (!env_is_there(env, &there) && there && fdry_dir_enter(&env->dir, "", false, &fd))
		fdry_warn("closing a store while another process opens it: %s",
			  fdry_last_error());
	fdry_db_close(env->db);
	fdry_dir_leave(fd);
	close(env->dir.fd);
}

static void env_put(struct fdry_env *env)
{
	struct fdry_env **p;

	pthread_mutex_lock(&registry);
	if (!--env->refs) {
		for (p = &envs; *p && *p != env; p = &(*p)->next)
			;
		if (*p)
			*p = env->next;
		if (env_inherited(env))
			fdry_db_free(env->db);
		else
			env_close(env);
		free(env);
	}
	pthread_mutex_unlock(&registry);
}

/* A handle for writing needs an environment that can write. */
static int can_write(const struct fdry_env *env, const char *path, unsigned int flags)
{
	if ((flags & FDRY_STORE_READONLY) || !env->readonly)
		return 0;
	if (env->dir.fixed)
		return fdry_fail(FDRY_E_PERM,
				 "the store %s lies on read-only media; open it for reading only",
				 path);
	return fdry_fail(FDRY_E_PERM,
			 "this process has the store %s open for reading only, for want of "
			 "permission to write, or of space; close it, then open it again",
			 path);
}

static int flags_check(unsigned int flags)
{
	if (flags & ~(unsigned int)(FDRY_STORE_CREATE | FDRY_STORE_READONLY | FDRY_STORE_GROUP))
		return fdry_fail(FDRY_E_INVAL, "unknown flags %#x for opening a store", flags);
	if ((flags & FDRY_STORE_CREATE) && (flags & FDRY_STORE_READONLY))
		return fdry_fail(FDRY_E_INVAL,
				 "a store cannot be created by opening it for reading only; drop "
				 "one of the flags");
	if ((flags & FDRY_STORE_GROUP) && !(flags & FDRY_STORE_CREATE))
		return fdry_fail(FDRY_E_INVAL,
				 "only a store that is being created can be for a group; open it "
				 "with FDRY_STORE_CREATE, too");
	return 0;
}

static int store_new(const char *path, unsigned int flags, struct fdry_store **ret)
{
	size_t path_len = strlen(path) + 1;
	struct fdry_store *s;
	struct fdry_dir dir;
	int err = fdry_dir_open(path, flags, &dir);

	if (err)
		return err;
	s = calloc(1, sizeof(*s) + path_len);
	if (!s) {
		fdry_dir_close(&dir, path, true);
		return fdry_nomem();
	}
	memcpy(s->path, path, path_len);
	s->readonly = flags & FDRY_STORE_READONLY;
	pthread_mutex_lock(&registry);
	err = env_get(path, flags, &dir, &s->env);
	pthread_mutex_unlock(&registry);
	if (err)
		goto out_free;
	err = can_write(s->env, path, flags);
	if (err)
		goto out_put;
	fdry_live_add(s);
	*ret = s;
	return 0;
out_put:
	env_put(s->env);
out_free:
	free(s);
	return err;
}

int fdry_store_open(const char *path, unsigned int flags, struct fdry_store **ret)
{
	struct fdry_buf buf = { 0 };
	int err = fdry_config_check(FDRY_CONFIG_LOG) ?: flags_check(flags) ?:
		  fdry_store_locate(path, &buf);

	if (err)
		return err;
	pthread_once(&once, watch_forks);
	err = store_new((const char *)buf.data, flags, ret);
	fdry_buf_release(&buf);
	return err;
}

int fdry_store_again(const struct fdry_store *s, struct fdry_store **ret)
{
	struct fdry_store *again;
	size_t len;
	int err = fdry_store_check(s);

	if (err)
		return err;
	len = strlen(s->path) + 1;
	again = calloc(1, sizeof(*again) + len);
	if (!again)
		return fdry_nomem();
	memcpy(again->path, s->path, len);
	again->env = s->env;
	again->readonly = true;
	pthread_mutex_lock(&registry);
	again->env->refs++;
	pthread_mutex_unlock(&registry);
	fdry_live_add(again);
	*ret = again;
	return 0;
}

void fdry_store_close(struct fdry_store *s)
{
	if (!s || fdry_live_check(s, "the store"))
		return;
	if (s->busy) {
		(void)fdry_fail(FDRY_E_STATE,
				"the store %s is in use by an export, import, eviction or "
				"collection, perhaps the one whose function called this; close it "
				"afterwards",
				s->path);
		return;
	}
	if (fdry_live_end(s, "the store"))
		return;
	env_put(s->env);
	free(s);
}

/* All options of a store begin so; the second word is a number of threads, or reserved. */
struct opts_head {
	size_t sz;
	uint32_t flags, word;
};

int fdry_store_flags_take(const void *opts, void *ret, size_t len, uint32_t known)
{
	struct opts_head head;
	int err = fdry_opts_take(opts, ret, len);

	if (err)
		return err;
	memcpy(&head, ret, sizeof(head));
	if (head.flags & ~known)
		return fdry_fail(FDRY_E_OPTS,
				 "unknown flags %#x in the options; use a newer library, or set "
				 "them to 0",
				 head.flags & ~known);
	return 0;
}

int fdry_store_opts_take(const void *opts, void *ret, size_t len, uint32_t known)
{
	struct opts_head head;
	int err = fdry_store_flags_take(opts, ret, len, known);

	if (err)
		return err;
	memcpy(&head, ret, sizeof(head));
	if (head.word)
		return fdry_fail(FDRY_E_OPTS,
				 "a reserved field in the options is not 0; use a newer library, "
				 "or set it to 0");
	return 0;
}

int fdry_store_busy(struct fdry_store *s)
{
	int err = fdry_store_check(s);

	if (err)
		return err;
	s->busy++;
	return 0;
}

void fdry_store_idle(struct fdry_store *s)
{
	s->busy--;
}

const char *fdry_store_path(const struct fdry_store *s)
{
	return s->path;
}

int fdry_store_sharing(struct fdry_store *s, struct fdry_sharing *ret)
{
	const struct fdry_dir *d;
	struct stat st;
	int err = fdry_store_check(s);

	if (err)
		return err;
	d = &s->env->dir;
	if (fstat(d->fd, &st))
		return fdry_fail(FDRY_E_IO, "cannot look at the directory of the store %s: %s",
				 s->path, strerror(errno));
	*ret = (struct fdry_sharing){
		.uid = st.st_uid, .gid = st.st_gid, .mode = st.st_mode & 07777,
		.group = d->group, .fixed = d->fixed, .readonly = s->env->readonly,
	};
	return 0;
}
