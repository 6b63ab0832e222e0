// SPDX-License-Identifier: Apache-2.0
/*
 * readers.c - LMDB's list of readers: how many there are, and giving up the places of those that died.
 */
#include <stdlib.h>
#include <unistd.h>

#include "arch/log.h"
#include "store/db.h"

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
		fdry_info("store %s: cleared %d readers that had died", dir, dead);
}

void fdry_db_clear_readers(struct fdry_db *db)
{
	fdry_readers_check(db->env, db->dir);
}

/* A place that is not in a transaction says "-". */
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
