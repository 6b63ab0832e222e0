// SPDX-License-Identifier: Apache-2.0
/*
 * record.c - the recording: one list in shared memory for all processes; see record.h. A call is
 * listed after it has returned. A sync is listed with the length that the list had before the call,
 * so only writes before the sync count as durable. Calls that change names are made and listed in
 * one step. Otherwise a process could use a directory before another has listed it.
 */
#include "tests/crash/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/crash/record_fs.h"

static struct rec_log *rec_log;
static int recording;

const struct rec_log *rec_the_log(void)
{
	return rec_log;
}

/* --- the list; under its lock --- */

static void full(const char *what)
{
	fprintf(stderr, "the recording is full: %s\n", what);
	_exit(3);
}

static struct rec *append(enum rec_type type)
{
	struct rec *r = &rec_log->rec[rec_log->count];

	if (rec_log->count == REC_MAX)
		full("calls");
	*r = (struct rec){ .type = type };
	return r;
}

static void appended(void)
{
	__atomic_store_n(&rec_log->count, rec_log->count + 1, __ATOMIC_RELEASE);
}

static uint64_t keep(const void *data, size_t len)
{
	uint64_t at = rec_log->used;

	if (len > REC_BYTES - at)
		full("bytes");
	memcpy(rec_log->bytes + at, data, len);
	rec_log->used += len;
	return at;
}

/* Inode numbers are reused, also for another kind of file. The time of birth distinguishes the
 * files, if the file system records it. */
static bool look(int fd, const char *name, int flags, struct statx *ret)
{
	return !statx(fd, name, flags, STATX_TYPE | STATX_INO | STATX_BTIME, ret);
}

static uint64_t born(const struct statx *st)
{
	return st->stx_mask & STATX_BTIME
		       ? (uint64_t)st->stx_btime.tv_sec * 1000000000 + st->stx_btime.tv_nsec
		       : 0;
}

/* Returns 0 for a file that is not recorded. */
static uint32_t inode_find(const struct statx *st)
{
	uint32_t i;

	if (makedev(st->stx_dev_major, st->stx_dev_minor) != rec_log->dev)
		return 0;
	for (i = rec_log->inodes; i > 0; i--)
		if (rec_log->inode[i].ino == st->stx_ino && rec_log->inode[i].born == born(st))
			return i;
	return 0;
}

static uint32_t inode_add(const struct statx *st)
{
	uint32_t i = inode_find(st);

	if (i)
		return i;
	i = ++rec_log->inodes;
	if (i == REC_INODES)
		full("files");
	rec_log->inode[i] = (struct rec_inode){ .ino = st->stx_ino, .born = born(st),
						.dir = S_ISDIR(st->stx_mode) };
	return i;
}

static uint32_t inode_of(int fd)
{
	struct statx st;

	return fd < 0 || !look(fd, "", AT_EMPTY_PATH, &st) ? 0 : inode_find(&st);
}

/* Return the directory that holds a name, and the name's last part. */
static uint32_t dir_of(int fd, const char *name, const char **last)
{
	const char *slash = strrchr(name, '/');
	char path[4096];
	struct statx st;

	*last = slash ? slash + 1 : name;
	if (slash)
		snprintf(path, sizeof(path), "%.*s", (int)(slash > name ? slash - name : 1), name);
	else
		snprintf(path, sizeof(path), ".");
	return look(fd, path, 0, &st) ? inode_find(&st) : 0;
}

static void name_set(struct rec_entry *e, uint32_t dir, const char *name, uint32_t inode)
{
	e->dir = dir;
	e->inode = inode;
	snprintf(e->name, sizeof(e->name), "%s", name);
}

/* --- calls --- */

static void entry_made(int fd, const char *name)
{
	const char *last;
	uint32_t dir = dir_of(fd, name, &last);
	struct statx st;
	struct rec *r;

	if (!dir || !look(fd, name, AT_SYMLINK_NOFOLLOW, &st))
		return;
	r = append(REC_ENTRY);
	name_set(&r->entry[0], dir, last, inode_add(&st));
	appended();
}

static void entry_gone(int fd, const char *name)
{
	const char *last;
	uint32_t dir = dir_of(fd, name, &last);

	if (!dir)
		return;
	name_set(&append(REC_ENTRY)->entry[0], dir, last, 0);
	appended();
}

static void renamed(const struct io_call *c)
{
	const char *from, *to;
	uint32_t dir = dir_of(c->fd, c->name, &from), dir2 = dir_of(c->fd2, c->name2, &to);
	struct statx st;
	struct rec *r;

	if (!dir || !dir2 || !look(c->fd2, c->name2, AT_SYMLINK_NOFOLLOW, &st))
		return;
	r = append(REC_ENTRY);
	name_set(&r->entry[0], dir, from, 0);
	name_set(&r->entry[1], dir2, to, inode_find(&st));
	appended();
}

static void opened(const struct io_call *c, int fd)
{
	struct rec *r;

	if (c->flags & O_CREAT && !c->existed)
		entry_made(c->fd, c->name);
	if (!(c->flags & O_TRUNC) || !c->existed || !inode_of(fd))
		return;
	r = append(REC_SIZE);
	r->inode = inode_of(fd);
	appended();
}

static void synced(uint32_t inode, uint64_t begin)
{
	struct rec *r = append(REC_SYNC);

	r->inode = inode;
	r->begin = begin;
	appended();
}

static void written(const struct io_call *c, uint64_t len)
{
	uint32_t inode = inode_of(c->fd);
	int flags = fcntl(c->fd, F_GETFL);
	struct rec *r;
	uint64_t n;
	int i;

	if (!inode)
		return;
	r = append(REC_WRITE);
	r->inode = inode;
	r->at = c->at >= 0 ? (uint64_t)c->at
			   : (uint64_t)syscall(SYS_lseek, c->fd, 0, SEEK_CUR) - len;
	r->len = len;
	r->data = rec_log->used;
	for (i = 0; i < c->niov && len; i++, len -= n) {
		n = c->iov[i].iov_len < len ? c->iov[i].iov_len : len;
		keep(c->iov[i].iov_base, n);
	}
	appended();
	if (flags >= 0 && flags & O_DSYNC && rec_log->broken != REC_NO_META)
		synced(inode, rec_log->count);
}

static void resized(const struct io_call *c)
{
	struct rec *r;
	uint32_t inode = inode_of(c->fd);

	if (!inode)
		return;
	r = append(REC_SIZE);
	r->inode = inode;
	r->at = (uint64_t)c->at;
	appended();
}

static void sync_done(const struct io_call *c)
{
	uint32_t inode = inode_of(c->fd);
	bool dir;

	if (!inode)
		return;
	dir = rec_log->inode[inode].dir;
	if (rec_log->broken != (dir ? REC_NO_DIR : REC_NO_SYNC))
		synced(inode, c->mark);
}

static void call_done(const struct io_call *c, long ret)
{
	switch (c->op) {
	case IO_OPEN:
		opened(c, (int)ret);
		break;
	case IO_WRITE:
		written(c, (uint64_t)ret);
		break;
	case IO_TRUNCATE:
		resized(c);
		break;
	case IO_SYNC:
		sync_done(c);
		break;
	case IO_RENAME:
		renamed(c);
		break;
	case IO_LINK:
		entry_made(c->fd2, c->name2);
		break;
	case IO_UNLINK:
		entry_gone(c->fd, c->name);
		break;
	case IO_MKDIR:
		entry_made(c->fd, c->name);
		break;
	case IO_MAP:
		if (inode_of(c->fd))
			rec_log->inode[inode_of(c->fd)].mapped = true;
	}
}

static bool changes_names(const struct io_call *c)
{
	return c->op == IO_RENAME || c->op == IO_LINK || c->op == IO_UNLINK || c->op == IO_MKDIR ||
	       (c->op == IO_OPEN && c->flags & O_CREAT);
}

static void enter(struct io_call *c)
{
	c->mark = __atomic_load_n(&rec_log->count, __ATOMIC_ACQUIRE);
	if (!recording && changes_names(c))
		pthread_mutex_lock(&rec_log->lock);
}

static void leave(struct io_call *c, long ret)
{
	int error = errno;

	if (recording || (ret < 0 && !changes_names(c)))
		return;
	if (!changes_names(c))
		pthread_mutex_lock(&rec_log->lock);
	recording = 1;
	if (ret >= 0)
		call_done(c, ret);
	recording = 0;
	pthread_mutex_unlock(&rec_log->lock);
	errno = error;
}

static const struct io_hooks hooks = { enter, leave };

void rec_note(struct worker *w, uint32_t name)
{
	struct rec *r;

	pthread_mutex_lock(&rec_log->lock);
	r = append(REC_NOTE);
	r->worker = w->nr;
	r->name = name;
	r->state = w->all[w->nr].name[name];
	appended();
	pthread_mutex_unlock(&rec_log->lock);
}

/* --- files that existed at the beginning --- */

static void file_found(int dir, const char *name, uint32_t inode)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	struct stat st;
	struct rec *r;

	if (fd < 0 || fstat(fd, &st))
		full("reading what is there");
	r = append(REC_WRITE);
	r->inode = inode;
	r->len = (uint64_t)st.st_size;
	r->data = rec_log->used;
	if (r->len > REC_BYTES - rec_log->used ||
	    read(fd, rec_log->bytes + r->data, r->len) != (ssize_t)r->len)
		full("reading what is there");
	rec_log->used += r->len;
	appended();
	close(fd);
}

static void tree_found(const char *path, uint32_t dir)
{
	DIR *d = opendir(path);
	char child[4096];
	struct dirent *e;
	struct statx st;
	uint32_t inode;

	while (d && (e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    !look(dirfd(d), e->d_name, 0, &st))
			continue;
		inode = inode_add(&st);
		name_set(&append(REC_ENTRY)->entry[0], dir, e->d_name, inode);
		appended();
		snprintf(child, sizeof(child), "%s/%s", path, e->d_name);
		if (S_ISDIR(st.stx_mode))
			tree_found(child, inode);
		else
			file_found(dirfd(d), e->d_name, inode);
		synced(inode, rec_log->count);
	}
	if (d)
		closedir(d);
	synced(dir, rec_log->count);
}

static int log_make(void)
{
	pthread_mutexattr_t attr;

	if (!rec_log) {
		rec_log = mmap(NULL, sizeof(*rec_log), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (rec_log == MAP_FAILED)
			return -1;
	}
	rec_log->count = rec_log->used = rec_log->inodes = 0;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&rec_log->lock, &attr);
	return 0;
}

int rec_start(const char *root, enum rec_broken broken)
{
	struct statx st;

	if (!look(AT_FDCWD, root, 0, &st) || log_make())
		return -1;
	rec_log->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	rec_log->broken = broken;
	inode_add(&st); /* REC_ROOT */
	tree_found(root, REC_ROOT);
	rec_log->initial = rec_log->count;
	io_hooks = &hooks;
	return 0;
}

void rec_stop(void)
{
	io_hooks = NULL;
}

void rec_count(struct rec_counts *ret)
{
	uint64_t i;

	*ret = (struct rec_counts){ .calls = rec_log->count, .bytes = rec_log->used };
	for (i = 0; i < rec_log->count; i++) {
		ret->writes += rec_log->rec[i].type == REC_WRITE;
		ret->syncs += rec_log->rec[i].type == REC_SYNC;
		ret->names += rec_log->rec[i].type == REC_ENTRY;
	}
}
