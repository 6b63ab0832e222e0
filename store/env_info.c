// SPDX-License-Identifier: Apache-2.0
/*
 * env_info.c - questions about an environment and its file: readers, state, sizes.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/log.h"
#include "store/db.h"

/* --- readers --- */

/* One line of LMDB's list of readers: process id, thread, transaction. */
static int reader_is_ours(const char *line, void *arg)
{
	if (strtol(line, NULL, 10) == getpid())
		*(int *)arg = 1;
	return 0;
}

bool fdry_readers_are_ours(MDB_env *env)
{
	int ours = 0;

	mdb_reader_list(env, reader_is_ours, &ours);
	return ours;
}

void fdry_readers_check(MDB_env *env, const char *dir)
{
	int dead = 0;

	mdb_reader_check(env, &dead);
	if (dead)
		fdry_info("store %s: cleared %d dead readers", dir, dead);
}

void fdry_db_clear_readers(struct fdry_db *db)
{
	fdry_readers_check(db->env, db->dir);
}

/* A place without a transaction shows "-". */
static int reader_count(const char *line, void *arg)
{
	const char *last = strrchr(line, ' ');

	*(uint32_t *)arg += last && strtol(line, NULL, 10) > 0 && last[1] != '-';
	return 0;
}

uint32_t fdry_db_readers(const struct fdry_db *db)
{
	uint32_t n = 0;

	mdb_reader_list(db->env, reader_count, &n);
	return n;
}

/* A lock.mdb that an earlier process or another program created may have fewer places. */
uint32_t fdry_db_readers_max(const struct fdry_db *db)
{
	MDB_envinfo info = { 0 };

	mdb_env_info(db->env, &info);
	return info.me_maxreaders;
}

bool fdry_readers_left(const struct fdry_db *db)
{
	MDB_envinfo info = { 0 };

	mdb_env_info(db->env, &info);
	return atomic_load(&db->places) < (info.me_maxreaders + 7) / 8;
}

/* --- the file --- */

int fdry_db_stat(const struct fdry_db *db, struct stat *ret)
{
	int fd, rc = mdb_env_get_fd(db->env, &fd);

	if (!rc && fstat(fd, ret))
		rc = errno;
	return rc;
}

bool fdry_db_state(const struct fdry_db *db, struct fdry_db_state *ret)
{
	MDB_envinfo info = { 0 };
	struct stat st;

	if (fdry_db_stat(db, &st))
		return false;
	mdb_env_info(db->env, &info);
	*ret = (struct fdry_db_state){
		.dev = st.st_dev, .ino = st.st_ino, .txn = info.me_last_txnid,
		.changed = (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec,
	};
	return true;
}

bool fdry_db_state_eq(const struct fdry_db_state *a, const struct fdry_db_state *b)
{
	return a->ino && a->dev == b->dev && a->ino == b->ino && a->changed == b->changed &&
	       a->txn == b->txn;
}

/* LMDB keeps at least two entries in a page. */
uint64_t fdry_db_small_max(const struct fdry_db *db)
{
	return db->page_size / 2;
}
