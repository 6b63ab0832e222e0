// SPDX-License-Identifier: Apache-2.0
/* record_fs.c - computes the states of files that a power cut could leave, from a recording; see
 * record.h.
 */
#include "tests/crash/record_fs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u
#define SECTOR 512u
#define NAMES_MAX 4096

struct file {
	uint8_t *data;
	uint64_t size, cap;
};

/* Files and names: the durable ones, or those of one state. */
struct rec_fs {
	struct file file[REC_INODES];
	struct rec_entry names[NAMES_MAX];
	size_t count;
};

/* --- applying --- */

static int file_room(struct file *f, uint64_t size)
{
	uint8_t *data;

	if (size <= f->cap)
		return 0;
	data = realloc(f->data, size * 2);
	if (!data)
		return -1;
	memset(data + f->cap, 0, size * 2 - f->cap);
	f->data = data;
	f->cap = size * 2;
	return 0;
}

/* Bytes behind the end are zero, so that growing a file only sets its size. */
static int file_resize(struct file *f, uint64_t size)
{
	if (file_room(f, size))
		return -1;
	if (size < f->size)
		memset(f->data + size, 0, f->size - size);
	f->size = size;
	return 0;
}

static int file_write(struct file *f, uint64_t at, const uint8_t *data, uint64_t len)
{
	if (file_room(f, at + len))
		return -1;
	memcpy(f->data + at, data, len);
	if (f->size < at + len)
		f->size = at + len;
	return 0;
}

static void name_apply(struct rec_fs *fs, const struct rec_entry *e)
{
	size_t i;

	if (!e->dir)
		return;
	for (i = 0; i < fs->count; i++)
		if (fs->names[i].dir == e->dir && !strcmp(fs->names[i].name, e->name))
			break;
	if (i < fs->count)
		fs->names[i] = fs->names[--fs->count];
	if (e->inode && fs->count < NAMES_MAX)
		fs->names[fs->count++] = *e;
}

/* @take: parts of 512 bytes, counted from the beginning of the page that holds @u. */
static int write_apply(struct rec_fs *fs, const struct rec *r, const struct rec_unit *u,
		       uint8_t take)
{
	uint64_t at, end, page = (r->at + u->from) / PAGE * PAGE;
	int err = 0;

	for (at = r->at + u->from; at < r->at + u->to && !err; at = end) {
		end = (at / SECTOR + 1) * SECTOR;
		end = end < r->at + u->to ? end : r->at + u->to;
		if (take >> (at - page) / SECTOR & 1)
			err = file_write(&fs->file[r->inode], at,
					 rec_the_log()->bytes + r->data + (at - r->at), end - at);
	}
	return err;
}

static int unit_apply(struct rec_fs *fs, const struct rec_unit *u, uint8_t take)
{
	const struct rec *r = &rec_the_log()->rec[u->rec];

	if (!take)
		return 0;
	if (r->type == REC_WRITE)
		return write_apply(fs, r, u, take);
	if (r->type == REC_SIZE)
		return file_resize(&fs->file[r->inode], r->at);
	name_apply(fs, &r->entry[0]);
	name_apply(fs, &r->entry[1]);
	return 0;
}

static void fs_free(struct rec_fs *fs)
{
	size_t i;

	if (!fs)
		return;
	for (i = 0; i < REC_INODES; i++)
		free(fs->file[i].data);
	free(fs);
}

/* --- walking --- */

static int unit_add(struct rec_walk *w, struct rec_unit u)
{
	struct rec_unit *units;

	if (w->nunits % 256 == 0) {
		units = realloc(w->units, (w->nunits + 256) * sizeof(*units));
		if (!units)
			return -1;
		w->units = units;
	}
	w->units[w->nunits++] = u;
	return 0;
}

static int rec_add(struct rec_walk *w, uint32_t nr)
{
	const struct rec *r = &rec_the_log()->rec[nr];
	struct rec_unit u = { .rec = nr };
	int err = 0;

	if (r->type != REC_WRITE)
		return unit_add(w, u);
	for (; u.from < r->len && !err; u.from = u.to) {
		u.to = ((r->at + u.from) / PAGE + 1) * PAGE - r->at;
		u.to = u.to < r->len ? u.to : r->len;
		err = unit_add(w, u);
	}
	return err;
}

/* A name becomes durable with its directory, and a moved name with both directories. */
static bool is_covered(const struct rec_unit *u, const struct rec *sync)
{
	const struct rec *r = &rec_the_log()->rec[u->rec];

	if (u->rec >= sync->begin)
		return false;
	if (r->type == REC_ENTRY)
		return r->entry[0].dir == sync->inode &&
		       (!r->entry[1].dir || r->entry[1].dir == sync->inode);
	return r->inode == sync->inode;
}

static bool sync_matters(const struct rec_walk *w, const struct rec *sync)
{
	size_t i;

	for (i = 0; i < w->nunits; i++)
		if (is_covered(&w->units[i], sync))
			return true;
	return false;
}

static int sync_apply(struct rec_walk *w, const struct rec *sync)
{
	size_t i, kept = 0;
	int err = 0;

	for (i = 0; i < w->nunits; i++) {
		if (!is_covered(&w->units[i], sync))
			w->units[kept++] = w->units[i];
		else if (unit_apply(w->fs, &w->units[i], 0xFF))
			err = -1;
	}
	w->nunits = kept;
	return err;
}

static int pass(struct rec_walk *w, uint32_t nr)
{
	const struct rec *r = &rec_the_log()->rec[nr];

	if (r->type == REC_SYNC)
		return sync_apply(w, r);
	if (r->type != REC_NOTE)
		return rec_add(w, nr);
	w->names[r->worker].name[r->name] = r->state;
	return 0;
}

int rec_walk_start(struct rec_walk *w)
{
	memset(w, 0, sizeof(*w));
	w->count = rec_the_log()->count;
	w->fs = calloc(1, sizeof(*w->fs));
	return w->fs ? 0 : -1;
}

bool rec_walk_next(struct rec_walk *w)
{
	const struct rec *r;

	if (w->at > w->count)
		return false;
	if (w->at == w->count)
		return w->at++, true;
	do {
		if (pass(w, (uint32_t)w->at))
			return false;
		w->at++;
		r = &rec_the_log()->rec[w->at];
	} while (w->at < w->count &&
		 (w->at < rec_the_log()->initial || r->type != REC_SYNC || !sync_matters(w, r)));
	if (w->at == w->count)
		w->at++;
	return true;
}

void rec_walk_end(struct rec_walk *w)
{
	fs_free(w->fs);
	free(w->units);
}

/* --- making a state --- */

static struct rec_fs *fs_copy(const struct rec_fs *from)
{
	struct rec_fs *fs = malloc(sizeof(*fs));
	size_t i;

	if (!fs)
		return NULL;
	memcpy(fs->names, from->names, sizeof(fs->names));
	fs->count = from->count;
	memset(fs->file, 0, sizeof(fs->file));
	for (i = 0; i < REC_INODES; i++)
		if (from->file[i].size)
			file_write(&fs->file[i], 0, from->file[i].data, from->file[i].size);
	return fs;
}

/* Choose the bytes of a page written through a map: unchanged, zero, or noise. */
static void map_spoil(struct file *f, uint64_t *random)
{
	uint64_t i, how = work_random(random) / 2 % 3;

	for (i = 0; how && i < f->size; i++)
		f->data[i] = how == 1 ? 0 : (uint8_t)(work_random(random) >> 20);
}

static int file_make(const struct file *f, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int err = fd < 0 || io_write_unseen(fd, f->data, f->size, 0) ? -1 : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

static int dir_fill(struct rec_fs *fs, uint32_t dir, const char *path, uint64_t *random)
{
	const struct rec_inode *inode;
	char child[4096];
	int err = 0;
	size_t i;

	for (i = 0; i < fs->count && !err; i++) {
		if (fs->names[i].dir != dir)
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, fs->names[i].name);
		inode = &rec_the_log()->inode[fs->names[i].inode];
		if (inode->mapped)
			map_spoil(&fs->file[fs->names[i].inode], random);
		if (inode->dir)
			err = mkdir(child, 0700) || dir_fill(fs, fs->names[i].inode, child, random);
		else
			err = file_make(&fs->file[fs->names[i].inode], child);
	}
	return err;
}

int rec_state(struct rec_walk *w, const uint8_t *take, uint64_t *random, const char *to)
{
	struct rec_fs *fs = fs_copy(w->fs);
	int err = fs ? 0 : -1;
	size_t i;

	for (i = 0; i < w->nunits && !err; i++)
		err = unit_apply(fs, &w->units[i], take[i]);
	err = err ?: dir_fill(fs, REC_ROOT, to, random);
	fs_free(fs);
	return err;
}

/* Its last name. */
static const char *inode_name(uint32_t inode)
{
	const struct rec_log *l = rec_the_log();
	const char *name = "?";
	uint64_t i;

	for (i = 0; i < l->count; i++)
		if (l->rec[i].type == REC_ENTRY && l->rec[i].entry[0].inode == inode)
			name = l->rec[i].entry[0].name;
	return name;
}

void rec_unit_text(const struct rec_walk *w, const struct rec_unit *u, char *text, size_t len)
{
	const struct rec *r = &rec_the_log()->rec[u->rec];

	(void)w;
	if (r->type == REC_WRITE)
		snprintf(text, len, "%u: write %llu at %llu of %s", u->rec,
			 (unsigned long long)(u->to - u->from),
			 (unsigned long long)(r->at + u->from), inode_name(r->inode));
	else if (r->type == REC_SIZE)
		snprintf(text, len, "%u: size %llu of %s", u->rec, (unsigned long long)r->at,
			 inode_name(r->inode));
	else
		snprintf(text, len, "%u: name %s %s", u->rec, r->entry[0].name,
			 r->entry[0].inode ? "made"
			 : r->entry[1].dir ? r->entry[1].name
					   : "removed");
}
