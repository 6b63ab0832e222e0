// SPDX-License-Identifier: Apache-2.0
/*
 * group.c - the processes of a group exchange records through a file beside LMDB's; see
 * fdry_group_meet().
 *
 * The file has a head, and a record for each rank. Its lock makes every step of a rank one step for
 * the others. The rank that completes the records decides that the group has met, and a rank whose
 * time is over decides that it has not: whichever comes first counts for all. A rank answers only
 * after it has read the decision under the lock.
 *
 * The last rank of a group that has met removes the file. A collection removes files that are a day
 * old.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/threads.h"
#include "store/internal.h"

#define MAGIC "FDRYGRP1"

enum state { OPEN, MET, FAILED };

struct head {
	uint8_t magic[8];
	uint32_t ranks, len, state, left;
};

/* The file, locked. */
struct meeting {
	struct fdry_store *s;
	const struct fdry_group *g;
	char name[32];
	int fd;
	struct head head;
	uint8_t *records; /* for each rank a byte that says whether it is there, and its bytes */
};

static size_t record_size(const struct fdry_group *g)
{
	return 1 + g->len;
}

static int io_fail(const struct meeting *m, const char *doing, int e)
{
	return fdry_fail(fdry_write_code(e), "cannot %s the file of the group '%.100s': %s", doing,
			 m->g->name, fdry_file_text(e));
}

static int write_at(const struct meeting *m, const void *bytes, size_t len, size_t at)
{
	int e = fdry_pwrite(m->fd, bytes, len, at);

	return e ? io_fail(m, "write", e) : 0;
}

static int head_write(struct meeting *m, enum state state)
{
	m->head.state = state;
	return write_at(m, &m->head, sizeof(m->head), 0);
}

/* --- the file --- */

static int file_lock(struct meeting *m)
{
	int e;

	for (;;) {
		m->fd = fdry_lockfd_open(&m->s->env->dir, m->name);
		if (m->fd < 0)
			return errno == ENOMEM ? fdry_nomem() : io_fail(m, "make", errno);
		if (fdry_flock(m->fd, LOCK_EX)) {
			e = errno;
			fdry_lockfd_close(m->fd);
			return io_fail(m, "lock", e);
		}
		if (fdry_file_is_named(m->s->env->dir.fd, m->name, m->fd))
			return 0;
		fdry_lockfd_close(m->fd); /* removed meanwhile */
	}
}

/* A new file gets its whole length, so that no rank finds the disk full later. */
static int file_begin(struct meeting *m)
{
	memcpy(m->head.magic, MAGIC, sizeof(m->head.magic));
	m->head.ranks = m->g->ranks;
	m->head.len = (uint32_t)m->g->len;
	memset(m->records, 0, m->g->ranks * record_size(m->g));
	return write_at(m, m->records, m->g->ranks * record_size(m->g), sizeof(m->head)) ?:
	       head_write(m, OPEN);
}

static int file_read(struct meeting *m)
{
	ssize_t len = (ssize_t)(m->g->ranks * record_size(m->g));
	ssize_t n = pread(m->fd, &m->head, sizeof(m->head), 0);

	if (n < 0)
		return io_fail(m, "read", errno);
	if (n < (ssize_t)sizeof(m->head)) /* new, or its first rank died */
		return file_begin(m);
	if (memcmp(m->head.magic, MAGIC, sizeof(m->head.magic)) || m->head.ranks != m->g->ranks ||
	    m->head.len != m->g->len)
		return fdry_fail(FDRY_E_INVAL, "the group '%.100s' has %u ranks elsewhere, and %u "
				 "here; use a new name for each start", m->g->name, m->head.ranks,
				 m->g->ranks);
	return pread(m->fd, m->records, (size_t)len, sizeof(m->head)) == len ? 0 :
		       io_fail(m, "read", errno);
}

/* --- ranks --- */

static int record_put(struct meeting *m, const void *mine)
{
	size_t at = m->g->rank * record_size(m->g);

	if (m->records[at])
		return fdry_fail(FDRY_E_EXISTS, "rank %u of the group '%.100s' was there before; "
				 "use a new name for each start", m->g->rank, m->g->name);
	m->records[at] = 1;
	memcpy(m->records + at + 1, mine, m->g->len);
	return write_at(m, m->records + at, record_size(m->g), sizeof(m->head) + at);
}

static uint32_t ranks_there(const struct meeting *m)
{
	uint32_t i, n = 0;

	for (i = 0; i < m->g->ranks; i++)
		n += m->records[i * record_size(m->g)];
	return n;
}

/* Decide what can be decided. */
static int decide(struct meeting *m, bool late)
{
	if (m->head.state != OPEN)
		return 0;
	if (ranks_there(m) == m->g->ranks)
		return head_write(m, MET);
	return late ? head_write(m, FAILED) : 0;
}

static int leave(struct meeting *m, uint8_t *all)
{
	uint32_t i;

	if (m->head.state == FAILED)
		return fdry_fail(FDRY_E_LOCKED, "%u of %u ranks of the group '%.100s' came within "
				 "%u ms", ranks_there(m), m->g->ranks, m->g->name, m->g->wait.ms);
	for (i = 0; i < m->g->ranks; i++)
		memcpy(all + i * m->g->len, m->records + i * record_size(m->g) + 1, m->g->len);
	if (++m->head.left == m->g->ranks)
		(void)unlinkat(m->s->env->dir.fd, m->name, 0);
	else
		(void)!fdry_pwrite(m->fd, &m->head, sizeof(m->head), 0); /* or it is left over */
	return 0;
}

/* One step under the lock. @mine: NULL if it is there already. @decided: @all is complete. */
static int step(struct meeting *m, const void *mine, bool late, uint8_t *all, bool *decided)
{
	int err = file_lock(m);

	if (err)
		return err;
	err = file_read(m);
	if (!err && mine && m->head.state != FAILED)
		err = record_put(m, mine);
	err = err ?: decide(m, late);
	*decided = !err && m->head.state != OPEN;
	if (*decided)
		err = leave(m, all);
	fdry_lockfd_close(m->fd);
	return err;
}

int fdry_group_meet(struct fdry_store *s, const struct fdry_group *g, const void *mine, void *all)
{
	struct meeting m = { .s = s, .g = g };
	char hex[FDRY_OID_HEX_SIZE];
	double begin = fdry_now_ms();
	struct fdry_oid oid;
	struct fdry_saved_err ended = { 0 };
	bool decided = false, late;
	int err = fdry_store_check_write(s) ?: fdry_oid_of(g->name, strlen(g->name), &oid);

	if (err)
		return err;
	snprintf(m.name, sizeof(m.name), FDRY_GROUP_FILE "%.16s", fdry_oid_hex(&oid, hex));
	m.records = calloc(g->ranks, record_size(g));
	if (!m.records)
		return fdry_nomem();
	for (;;) {
		late = ended.err || fdry_now_ms() - begin >= g->wait.ms;
		err = step(&m, mine, late, all, &decided);
		if (err || decided)
			break;
		mine = NULL;
		fdry_saved_err_set(&ended, fdry_wait_nap(&g->wait));
	}
	free(m.records);
	return err == -FDRY_E_LOCKED && ended.err ? fdry_saved_err_restore(&ended) : err;
}
