// SPDX-License-Identifier: Apache-2.0
/*
 * env_map.c - the map of an environment: it moves only while no transaction of this process is
 * open.
 */
#include <errno.h>
#include <sys/stat.h>

#include "store/db.h"
#include "store/space.h"

#define MAP_SIZE_LIMIT (1ull << 46)

void fdry_db_pin(struct fdry_db *db)
{
	pthread_mutex_lock(&db->lock);
	db->users++;
	pthread_mutex_unlock(&db->lock);
}

void fdry_db_unpin(struct fdry_db *db)
{
	pthread_mutex_lock(&db->lock);
	db->users--;
	pthread_mutex_unlock(&db->lock);
}

uint64_t fdry_db_used(const struct fdry_db *db)
{
	MDB_envinfo info;

	mdb_env_info(db->env, &info);
	return (info.me_last_pgno + 1) * db->page_size;
}

uint64_t fdry_db_mapped(const struct fdry_db *db)
{
	MDB_envinfo info;

	mdb_env_info(db->env, &info);
	return info.me_mapsize;
}

/* LMDB unmaps the old map before it asks for a larger one; without enough address space it would
 * have none. */
static int map_resize(struct fdry_db *db, uint64_t from, uint64_t need)
{
	uint64_t to = fdry_space_address(need + need / 2 - from) ? need + need / 2 : need;

	atomic_store(&db->base, NULL);
	return to > need || fdry_space_address(to - from) ? mdb_env_set_mapsize(db->env, to)
							  : ENOMEM;
}

/* 0, or LMDB's error code; EBUSY while transactions of this process are open. */
static int map_grow(struct fdry_db *db, uint64_t growth)
{
	struct stat st = { 0 };
	MDB_envinfo info;
	uint64_t need;
	int rc = fdry_db_stat(db, &st);

	if (rc)
		return rc;
	mdb_env_info(db->env, &info);
	need = fdry_db_used(db) > (uint64_t)st.st_size ? fdry_db_used(db) : (uint64_t)st.st_size;
	if (__builtin_add_overflow(need, growth, &need) || need > MAP_SIZE_LIMIT)
		return MDB_MAP_FULL;
	if (need <= info.me_mapsize)
		return 0;
	return db->users ? EBUSY : map_resize(db, info.me_mapsize, need);
}

int fdry_db_map_fit(struct fdry_db *db, uint64_t growth, bool must)
{
	int rc;

	pthread_mutex_lock(&db->lock);
	rc = map_grow(db, growth + growth / 8 + FDRY_MAP_SLACK);
	pthread_mutex_unlock(&db->lock);
	if (!must && (rc == ENOMEM || rc == MDB_MAP_FULL))
		return 0;
	if (rc == EBUSY)
		return fdry_fail(FDRY_E_LOCKED,
				 "store %s: its map has to grow while another thread of this "
				 "process uses it; try again when that is done",
				 db->dir);
	return rc ? fdry_db_fail(db, rc, "grow its map") : 0;
}
