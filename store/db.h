/* SPDX-License-Identifier: Apache-2.0 */
/*
 * db.h - declarations for the files that know LMDB's types: lmdb.c, db*.c, env_*.c, view*.c,
 * walk.c.
 */
#ifndef FDRY_STORE_DB_H
#define FDRY_STORE_DB_H

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "store/wlock.h"
#include "store/guard.h"
#include "store/lmdb.h"
#include "store/place.h"

struct fdry_db {
	MDB_env *env;
	MDB_dbi tables[FDRY_TABLE_COUNT];
	pthread_mutex_t lock; /* users, and the map while it moves */
	unsigned int users;   /* transactions and pins of this process */
	_Atomic unsigned int places; /* of this process among LMDB's readers */
	_Atomic(const uint8_t *) base; /* of the map; NULL: not known */
	struct fdry_db_state sound;  /* its pages are; with the writers' lock held */
	struct fdry_db_state heads;  /* the values' first pages are sound, too; likewise */
	uint64_t page_size;
	bool readonly;
	bool unlisted;        /* LMDB cannot list this process' readers: it has no lock file */
	const struct fdry_dir *home; /* the directory, if others use it, too; else NULL */
	struct fdry_wlock wlock;
	struct fdry_place place; /* of the open files; empty before they are opened */
	char dir[];
};

/* A handle without an environment; fdry_db_free() frees it. NULL if there is no memory. */
struct fdry_db *fdry_db_new(const struct fdry_db_opts *o) __must_check;
/* Open the environment of @db with as much address space as there is, and check nothing; 0, or
 * LMDB's error code. */
int fdry_env_open(const struct fdry_db_opts *o, struct fdry_db *db) __must_check;

/* Turn LMDB's error code or errno @rc into an error of this library; @doing: "read". */
int fdry_db_fail(const struct fdry_db *db, int rc, const char *doing);


/* --- env_info.c --- */

/* The state of the file data.mdb; 0 or errno. */
int fdry_db_stat(const struct fdry_db *db, struct stat *ret);
/* Is a place with this process' id taken? */
bool fdry_readers_are_ours(MDB_env *env);
/* Clear the places of processes that died. */
void fdry_readers_check(MDB_env *env, const char *dir);
/* May this process take one more place? Its share is an eighth of all. */
bool fdry_readers_left(const struct fdry_db *db);

/* --- env_map.c --- */

#define FDRY_MAP_SLACK (8ull << 20) /* pages of the trees that a transaction touches */
/* Bytes up to the last page in use; not while the map may move. */
uint64_t fdry_db_used(const struct fdry_db *db);
uint64_t fdry_db_mapped(const struct fdry_db *db);
/* Grow the map for the pages in use and @growth bytes more; no transaction is open. Unless @must, a
 * failure to grow is no error. */
int fdry_db_map_fit(struct fdry_db *db, uint64_t growth, bool must) __must_check;

static inline MDB_val val_of(struct fdry_span s)
{
	return (MDB_val){ .mv_size = s.len, .mv_data = (void *)(uintptr_t)s.data };
}

static inline struct fdry_span span_of(MDB_val v)
{
	return (struct fdry_span){ v.mv_data, v.mv_size };
}

#endif
