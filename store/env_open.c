// SPDX-License-Identifier: Apache-2.0
/*
 * env_open.c - opening LMDB's environment, which opens and writes files itself.
 *
 * LMDB's files never get descriptor 0, 1 or 2, and no signal ends the process if the disk or a limit is too small.
 */
#include <errno.h>
#include <fcntl.h>

#include "arch/log.h"
#include "store/db.h"

#define MAP_SIZE_MIN (64ull << 20)
#define LOW_TRIES 16

/* --- assertions --- */

__thread struct guard *fdry_guard;

void fdry_db_on_assert(MDB_env *env, const char *text)
{
	(void)env;
	fdry_warn("LMDB: %s", text);
	if (fdry_guard)
		longjmp(fdry_guard->env, 1);
}

/* --- opening --- */

int fdry_env_files(MDB_env *env, const char *path, unsigned int flags, mode_t mode)
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
	unsigned int flags = MDB_NOTLS | (o->readonly ? MDB_RDONLY : 0) | (o->fixed ? MDB_NOLOCK : 0);
	MDB_env *env = NULL;
	int fd, rc = mdb_env_create(&env);

	if (rc)
		return rc;
	mdb_env_set_assert(env, fdry_db_on_assert);
	mdb_env_set_maxdbs(env, FDRY_TABLE_COUNT + 1);
	mdb_env_set_maxreaders(env, FDRY_DB_READERS_MAX);
	mdb_env_set_mapsize(env, map_size);
	rc = fdry_env_files(env, o->dir, flags, o->mode);
	if (rc) {
		mdb_env_close(env);
		return rc;
	}
	if (!mdb_env_get_fd(env, &fd)) /* of its three descriptors LMDB leaves this one to programs that are executed */
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret = env;
	return 0;
}

static int env_make(const struct fdry_db_opts *o, uint64_t map_size, MDB_env **ret)
{
	int i, rc = DB_LOW;

	for (i = 0; i < LOW_TRIES && rc == DB_LOW; i++)
		rc = env_try(o, map_size, ret);
	return rc;
}

/* With as much address space as there is to have. */
int fdry_env_open(const struct fdry_db_opts *o, MDB_env **ret)
{
	uint64_t size = o->map_size ? o->map_size : FDRY_MAP_SIZE;
	int rc = env_make(o, size, ret);

	while (rc == ENOMEM && size > MAP_SIZE_MIN) {
		size /= 4;
		rc = env_make(o, size, ret);
	}
	return rc;
}
