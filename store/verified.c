// SPDX-License-Identifier: Apache-2.0
/*
 * verified.c - which mapped objects were verified since the machine was started.
 *
 * The note is a file in the store's directory; it is replaced as a whole by rename. If it is
 * missing, damaged, or from another boot or another state of data.mdb, objects are hashed again. It
 * cannot show damage that reaches the disk after an object was hashed.
 *
 * Invariants:
 * - A note is valid for one state of data.mdb: its inode, the time of its last change, and its
 * transaction. A commit carries a valid note on to the new state, since no other process writes at
 * that time. A copy that is written over data.mdb makes the note invalid.
 * - A process that finds damage cancels the note: it writes a new epoch. Sessions that began before
 * add nothing, since they may have hashed bytes that were still whole.
 * - A process replaces the file only while it holds a lock on the file of that name.
 * - A process that cannot cancel a note does not trust it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "store/internal.h"

#define VERIFIED_FILE "verified"
#define VERIFIED_COUNT_MAX (1u << 24)
#define LOCK_TRIES 200
#define LOCK_NAP_MS 1

/* The first bytes of a valid file, except the number of ids and the epoch. */
static bool header_make(const struct fdry_env *env, uint8_t head[FDRY_VERIFIED_AT_IDS])
{
	struct fdry_db_state state;

	memset(head, 0, FDRY_VERIFIED_AT_IDS);
	memcpy(head, FDRY_VERIFIED_MAGIC, 8);
	fdry_set32(head + FDRY_VERIFIED_AT_VERSION, FDRY_VERIFIED_VERSION);
	memcpy(head + FDRY_VERIFIED_AT_STORE, env->id, FDRY_FORMAT_ID_SIZE);
	if (!fdry_boot_id(head + FDRY_VERIFIED_AT_BOOT) || !fdry_db_state(env->db, &state))
		return false;
	fdry_set64(head + FDRY_VERIFIED_AT_DEV, state.dev);
	fdry_set64(head + FDRY_VERIFIED_AT_INO, state.ino);
	fdry_set64(head + FDRY_VERIFIED_AT_CHANGED, state.changed);
	fdry_set64(head + FDRY_VERIFIED_AT_TXN, state.txn);
	return true;
}

/* One half is the complement of the other half, so that a flipped bit shows. 0: no epoch. */
static uint64_t epoch_of(const uint8_t head[FDRY_VERIFIED_AT_IDS])
{
	uint64_t epoch = fdry_get64(head + FDRY_VERIFIED_AT_EPOCH);

	return (uint32_t)(epoch >> 32) == (uint32_t)~epoch ? epoch : 0;
}

static uint64_t epoch_make(void)
{
	uint32_t nr = 0;

	if (getrandom(&nr, sizeof(nr), 0) != sizeof(nr))
		nr = (uint32_t)time(NULL);
	return nr | (uint64_t)(uint32_t)~nr << 32;
}

static bool read_all(int fd, void *to, size_t len)
{
	uint8_t *p = to;
	ssize_t n;

	while (len) {
		n = read(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

/* Append the ids of an open file to @ret if they are valid. Returns its epoch in any case. */
static uint64_t file_read(int fd, const uint8_t want[FDRY_VERIFIED_AT_IDS], struct fdry_buf *ret)
{
	uint8_t head[FDRY_VERIFIED_AT_IDS];
	size_t before = ret->len;
	uint64_t count, epoch;
	struct stat st;
	void *p = NULL;

	if (fstat(fd, &st) || !read_all(fd, head, sizeof(head)))
		return 0;
	count = fdry_get64(head + FDRY_VERIFIED_AT_COUNT);
	epoch = epoch_of(head);
	if (!epoch)
		return 0;
	fdry_set64(head + FDRY_VERIFIED_AT_COUNT, 0);
	fdry_set64(head + FDRY_VERIFIED_AT_EPOCH, 0);
	if (memcmp(head, want, sizeof(head)) || count > VERIFIED_COUNT_MAX ||
	    (uint64_t)st.st_size != FDRY_VERIFIED_AT_IDS + count * FDRY_OID_SIZE)
		return epoch;
	if (fdry_buf_grow(ret, count * FDRY_OID_SIZE, &p) ||
	    !read_all(fd, p, count * FDRY_OID_SIZE))
		ret->len = before;
	return epoch;
}

static int plain_open(const struct fdry_dir *dir)
{
	return fdry_file_get(dir->fd, VERIFIED_FILE, O_RDWR);
}

void fdry_verified_add(struct fdry_verified *v, const struct fdry_oid *oid)
{
	if (fdry_buf_put(&v->added, oid, sizeof(*oid)))
		fdry_debug("cannot note a verified object: %s", fdry_last_error());
}

/* --- replacing the file --- */

/* Open the file of that name and lock it; -1 and errno on failure. fdry_lockfd_close() closes
 * it. */
static int locked_open(const struct fdry_dir *dir)
{
	int i, fd, e;

	for (i = 0; i < LOCK_TRIES; i++) {
		fd = fdry_lockfd_open(dir, VERIFIED_FILE);
		if (fd < 0)
			return -1;
		e = flock(fd, LOCK_EX | LOCK_NB) ? errno : 0;
		if (!e && fdry_file_is_named(dir->fd, VERIFIED_FILE, fd))
			return fd;
		fdry_lockfd_close(fd);
		if (e && e != EWOULDBLOCK && e != EINTR) {
			errno = e;
			return -1;
		}
		fdry_sleep_ms(LOCK_NAP_MS);
	}
	errno = EWOULDBLOCK;
	return -1;
}

static int temp_open(const struct fdry_dir *dir, char name[64])
{
	int fd, i;

	for (i = 0; i < 8; i++) {
		if (fdry_temp_name(FDRY_VERIFIED_TEMP, name, 64))
			return -1;
		fd = fdry_openat(dir->fd, name, O_WRONLY | O_CREAT | O_EXCL, dir->file_mode);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
	return -1;
}

static bool file_replace(const struct fdry_dir *dir, const uint8_t head[FDRY_VERIFIED_AT_IDS],
			 const struct fdry_buf *ids)
{
	char name[64];
	int fd = temp_open(dir, name);
	bool ok;

	if (fd < 0)
		return false;
	ok = !fdry_file_adopt(dir, fd) && !fdry_write(fd, head, FDRY_VERIFIED_AT_IDS) &&
	     !fdry_write(fd, ids->data, ids->len);
	ok = !close(fd) && ok && !renameat(dir->fd, name, dir->fd, VERIFIED_FILE);
	if (!ok)
		(void)unlinkat(dir->fd, name, 0);
	return ok;
}

/* Write an empty note with a new epoch and return the epoch; 0 on failure. */
static uint64_t file_begin(const struct fdry_dir *dir)
{
	uint8_t head[FDRY_VERIFIED_AT_IDS] = FDRY_VERIFIED_MAGIC;
	uint64_t epoch = epoch_make();
	struct fdry_buf none = { 0 };

	fdry_set32(head + FDRY_VERIFIED_AT_VERSION, FDRY_VERIFIED_VERSION);
	fdry_set64(head + FDRY_VERIFIED_AT_EPOCH, epoch);
	return file_replace(dir, head, &none) ? epoch : 0;
}

/* --- a session --- */

/* The first session creates the note, so that it has an epoch to compare with. */
static uint64_t epoch_begin(const struct fdry_dir *dir, const uint8_t want[FDRY_VERIFIED_AT_IDS],
			    struct fdry_buf *ret)
{
	int fd = locked_open(dir);
	uint64_t epoch;

	if (fd < 0)
		return 0;
	epoch = file_read(fd, want, ret); /* another process may have been faster */
	if (!epoch)
		epoch = file_begin(dir);
	fdry_lockfd_close(fd);
	return epoch;
}

/* Read the ids that are valid now. The file is opened for writing: a process that may not write
 * could not cancel it. */
static void note_load(struct fdry_verified *v, struct fdry_env *env)
{
	int fd;

	v->loaded = true;
	if (env->dir.fixed || !header_make(env, v->head))
		return;
	fd = plain_open(&env->dir);
	if (fd >= 0) {
		v->epoch = file_read(fd, v->head, &v->old);
		close(fd);
	}
	if (!v->epoch && (fd >= 0 || errno == ENOENT))
		v->epoch = epoch_begin(&env->dir, v->head, &v->old);
}

bool fdry_verified_has(struct fdry_verified *v, struct fdry_env *env, const struct fdry_oid *oid)
{
	if (!v->loaded)
		note_load(v, env);
	return v->old.len &&
	       bsearch(oid, v->old.data, v->old.len / FDRY_OID_SIZE, FDRY_OID_SIZE, fdry_oid_cmp);
}

/* With the lock held: add the ids of the session to the file, unless the note was cancelled since
 * the session began. */
static bool ids_add(const struct fdry_verified *v, const struct fdry_dir *dir, int fd)
{
	uint8_t head[FDRY_VERIFIED_AT_IDS];
	struct fdry_buf ids = { 0 };
	bool ok = true;

	if (file_read(fd, v->head, &ids) == v->epoch &&
	    !fdry_buf_put(&ids, v->added.data, v->added.len)) {
		fdry_oids_sort(&ids);
		memcpy(head, v->head, sizeof(head));
		fdry_set64(head + FDRY_VERIFIED_AT_COUNT, ids.len / FDRY_OID_SIZE);
		fdry_set64(head + FDRY_VERIFIED_AT_EPOCH, v->epoch);
		ok = file_replace(dir, head, &ids);
	}
	fdry_buf_release(&ids);
	return ok;
}

void fdry_verified_end(struct fdry_verified *v, struct fdry_env *env)
{
	uint8_t head[FDRY_VERIFIED_AT_IDS];
	int fd;

	/* If something was committed meanwhile, it is unknown which state was hashed. */
	if (!v->added.len || !v->epoch || !header_make(env, head) ||
	    memcmp(head, v->head, sizeof(head)))
		return;
	fd = locked_open(&env->dir);
	if (fd < 0 || !ids_add(v, &env->dir, fd))
		fdry_debug("cannot note verified objects: %s", strerror(errno));
	if (fd >= 0)
		fdry_lockfd_close(fd);
}

void fdry_verified_release(struct fdry_verified *v)
{
	fdry_buf_release(&v->old);
	fdry_buf_release(&v->added);
}

void fdry_verified_forget(const struct fdry_dir *dir)
{
	int fd;

	if (dir->fixed)
		return;
	fdry_checked_forget(dir);
	fd = locked_open(dir);
	if (fd < 0 || !file_begin(dir))
		/* the disk is full, or a stopped process holds the lock */
		(void)unlinkat(dir->fd, VERIFIED_FILE, 0);
	if (fd >= 0)
		fdry_lockfd_close(fd);
}

void fdry_verified_carry(const struct fdry_dir *dir, const struct fdry_db_state *from,
			 const struct fdry_db_state *to)
{
	uint8_t head[FDRY_VERIFIED_AT_IDS];
	int fd = plain_open(dir);

	if (fd < 0)
		return;
	if (read_all(fd, head, sizeof(head)) &&
	    fdry_get64(head + FDRY_VERIFIED_AT_DEV) == from->dev &&
	    fdry_get64(head + FDRY_VERIFIED_AT_INO) == from->ino &&
	    fdry_get64(head + FDRY_VERIFIED_AT_CHANGED) == from->changed &&
	    fdry_get64(head + FDRY_VERIFIED_AT_TXN) == from->txn) {
		fdry_set64(head + FDRY_VERIFIED_AT_CHANGED, to->changed);
		fdry_set64(head + FDRY_VERIFIED_AT_TXN, to->txn);
		if (fdry_pwrite(fd, head + FDRY_VERIFIED_AT_CHANGED, 16, FDRY_VERIFIED_AT_CHANGED))
			fdry_debug("cannot note verified objects: %s", strerror(errno));
	}
	close(fd);
}
