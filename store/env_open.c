// SPDX-License-Identifier: Apache-2.0
/*
 * env_open.c - opening LMDB's environment, which opens and writes files itself.
 *
 * LMDB's files never get descriptor 0, 1 or 2. No signal ends the process if the disk or a file
 * size limit is too small.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/log.h"
#include "store/db.h"
#include "store/internal.h"

#define MAP_SIZE_MIN (64ull << 20)
#define LOW_TRIES 16

/* bytes of the map that are tried first */
static uint64_t map_size_first = FDRY_MAP_SIZE;

/* --- assertions --- */

__thread struct guard *fdry_guard;

/* LMDB's handler of assertions: jumps to the innermost guard. */
static void on_assert(MDB_env *env, const char *text)
{
	(void)env;
	fdry_warn("LMDB: %s", text);
	if (fdry_guard)
		longjmp(fdry_guard->env, 1);
}

/* --- lock.mdb --- */

/* bytes of a reader's place; LMDB's head takes three of them, and includes one place */
#define LOCK_PLACE 64u
#define LOCK_SMALLEST 4096u /* bytes */
#define LOCK_BYTES(readers) (((uint64_t)(readers) + 2) * LOCK_PLACE)

/* Every process that has it open shares a lock on its first byte. */
static bool lock_is_unused(int fd)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };

	return !fcntl(fd, F_OFD_GETLK, &l) && l.l_type == F_UNLCK;
}

/* If the file system cannot allocate, write zeros, unless a process uses the file. */
static int lock_allocate(int fd, uint64_t len, bool unused)
{
	static const uint8_t zeros[LOCK_SMALLEST];
	uint64_t at, n;
	int e = fdry_allocate(fd, len);

	if (e != EOPNOTSUPP)
		return e;
	for (e = 0, at = 0; unused && at < len && !e; at += n) {
		n = len - at < sizeof(zeros) ? len - at : sizeof(zeros);
		e = fdry_pwrite(fd, zeros, n, at);
	}
	return e;
}

/* Allocate as many places as the disk has space for. LMDB would extend the file without
 * allocating. */
static int lock_fit(int fd, uint64_t size, unsigned int *readers)
{
	const uint64_t lengths[] = { LOCK_BYTES(FDRY_DB_READERS_MAX), size, LOCK_SMALLEST };
	int e = ENOSPC;
	size_t i;

	if (!lock_is_unused(fd))
		return lock_allocate(fd, size, false);
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]) && fdry_write_code(e) == FDRY_E_FULL;
	     i++) {
		if (lengths[i] < LOCK_SMALLEST || lengths[i] > lengths[0])
			continue;
		if (i)
			/* no process maps it: its content is not needed */
			e = fdry_truncate(fd, lengths[i]);
		e = i && e ? e : lock_allocate(fd, lengths[i], true);
		*readers = (unsigned int)(lengths[i] / LOCK_PLACE) - 2;
	}
	return e;
}

/*
 * LMDB maps lock.mdb and writes to it: a page without space on the disk would be a bus error. So
 * the whole file is allocated first. Closing it here releases no lock: this process does not have
 * it open otherwise. @readers: the number of places to ask LMDB for.
 */
static int lock_prepare(const char *dir, unsigned int *readers)
{
	char file[4096 + 16];
	struct stat st;
	int e, fd;

	snprintf(file, sizeof(file), "%s/lock.mdb", dir);
	if (!stat(file, &st) && (uint64_t)st.st_size >= LOCK_BYTES(FDRY_DB_READERS_MAX) &&
	    (uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size)
		return 0;
	fd = fdry_file_get(AT_FDCWD, file, O_RDWR);
	if (fd < 0)
		return 0; /* LMDB will report the error */
	e = fstat(fd, &st) ? errno : lock_fit(fd, (uint64_t)st.st_size, readers);
	close(fd);
	return e;
}

/* --- opening --- */

/* mdb_env_open() that never gets descriptor 0, 1 or 2. DB_LOW if another thread changed one of
 * these meanwhile, so that LMDB may have got it. The caller closes the environment on failure. */
static int files_open(MDB_env *env, const char *path, unsigned int flags, mode_t mode)
{
	bool entered = fdry_fd_enter(), low;
	struct fdry_fd_low was;
	struct fdry_xfsz x;
	int rc;

	fdry_fd_low_get(&was);
	fdry_xfsz_hold(&x);
	rc = guarded(mdb_env_open(env, path, flags, mode));
	fdry_xfsz_release(&x);
	low = !fdry_fd_low_same(&was);
	fdry_fd_leave(entered);
	return low ? DB_LOW : rc;
}

static int env_try(const struct fdry_db_opts *o, uint64_t map_size, MDB_env **ret)
{
	unsigned int flags =
		MDB_NOTLS | (o->readonly ? MDB_RDONLY : 0) | (o->fixed ? MDB_NOLOCK : 0);
	unsigned int readers = FDRY_DB_READERS_MAX;
	MDB_env *env = NULL;
	int fd, rc = o->fixed ? 0 : lock_prepare(o->dir, &readers);

	if (!rc)
		rc = mdb_env_create(&env);
	if (rc)
		return rc;
	mdb_env_set_assert(env, on_assert);
	mdb_env_set_maxdbs(env, FDRY_TABLE_COUNT + 1);
	mdb_env_set_maxreaders(env, readers);
	mdb_env_set_mapsize(env, map_size);
	rc = files_open(env, o->dir, flags, o->mode);
	if (rc) {
		mdb_env_close(env);
		return rc;
	}
	if (!mdb_env_get_fd(env, &fd)) /* LMDB sets the flag on its two other descriptors */
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret = env;
	return 0;
}

int fdry_env_open(const struct fdry_db_opts *o, struct fdry_db *db)
{
	uint64_t size = map_size_first;
	MDB_stat st = { 0 };
	int rc, low = 0;

	for (;;) {
		rc = env_try(o, size, &db->env);
		if (rc == DB_LOW && ++low < LOW_TRIES)
			continue;
		if (rc != ENOMEM || size <= MAP_SIZE_MIN)
			break;
		size /= 4;
	}
	if (rc)
		return rc;
	rc = mdb_env_stat(db->env, &st);
	db->page_size = st.ms_psize;
	return rc;
}

/* --- the handle --- */

struct fdry_db *fdry_db_new(const struct fdry_db_opts *o)
{
	struct fdry_db *db = calloc(1, sizeof(*db) + strlen(o->dir) + 1);

	if (!db)
		return NULL;
	strcpy(db->dir, o->dir);
	pthread_mutex_init(&db->lock, NULL);
	db->readonly = o->readonly;
	db->home = o->entered;
	db->wlock.fd = db->wlock.lock_fd = -1;
	return db;
}

void fdry_db_free(struct fdry_db *db)
{
	fdry_place_release(&db->place);
	pthread_mutex_destroy(&db->lock);
	free(db);
}
