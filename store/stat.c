// SPDX-License-Identifier: Apache-2.0
/* stat.c - objects by kind, and the file: see fdry_store_stat(). */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/internal.h"

/* --- objects --- */

#define STEP 4096 /* objects that one transaction looks at */

struct count {
	struct fdry_store_stat *st;
	struct fdry_oid last;
	unsigned int seen; /* in this step */
};

static int count_object(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct fdry_object_info info;
	struct count *c = arg;
	struct fdry_record rec;
	size_t i, kinds[] = { 0, 0 };
	int err = fdry_record_parse_entry(key, value, &c->last, &rec);

	if (err)
		return err;
	fdry_record_info(&c->last, &rec, &info);
	kinds[1] = info.kind;
	c->st->quarantined += rec.codec == FDRY_CODEC_NONE;
	for (i = 0; i < 2; i++) {
		c->st->kinds[kinds[i]].objects++;
		c->st->kinds[kinds[i]].bytes += info.size;
		c->st->kinds[kinds[i]].stored += info.stored;
	}
	return ++c->seen == STEP ? FDRY_EACH_STOP : 0;
}

/* The id behind @oid; false behind the last. */
static bool oid_next(struct fdry_oid *oid)
{
	int i;

	for (i = FDRY_OID_SIZE - 1; i >= 0 && ++oid->b[i] == 0; i--)
		;
	return i >= 0;
}

/* Count STEP objects from @from on. */
static int count_step(struct fdry_store *s, struct count *c, const struct fdry_oid *from,
		      uint64_t *total)
{
	struct fdry_txn t;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	c->seen = 0;
	err = fdry_txn_count(&t, FDRY_TABLE_OBJECTS, total) ?:
	      fdry_txn_each(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(from), count_object, c);
	fdry_txn_abort(&t);
	return err;
}

static int count_objects(struct fdry_store *s, fdry_step_fn step, void *arg,
			 struct fdry_store_stat *st)
{
	struct count c = { .st = st };
	struct fdry_oid from = { { 0 } };
	uint64_t total = 0;
	int err;

	do {
		err = count_step(s, &c, &from, &total);
		if (err)
			return err;
		if (step)
			step(arg, st->kinds[0].objects, total);
		from = c.last;
	} while (c.seen == STEP && oid_next(&from));
	return 0;
}

/* --- the file --- */

/* A list of free pages: how many, then their numbers. */
static int free_put(void *arg, struct fdry_span key, struct fdry_span value)
{
	const void *p = fdry_span_at(value, 0, 8), *pages;
	uint64_t n = p ? fdry_get64(p) : 0;

	(void)key;
	pages = n <= value.len / 8 ? fdry_span_at(value, 8, n * 8) : NULL;
	if (!pages)
		return fdry_fail(FDRY_E_CORRUPT,
				 "a list of free pages is damaged; " FDRY_DAMAGE_ADVICE);
	return fdry_buf_put(arg, pages, n * 8);
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = fdry_get64(a), y = fdry_get64(b);

	return (x > y) - (x < y);
}

static void free_sum(struct fdry_buf *pages, struct fdry_file_stat *f)
{
	size_t i, n = pages->len / 8;
	uint64_t run = 0;

	if (n)
		qsort(pages->data, n, 8, by_number);
	for (i = 0; i < n; i++) {
		run = i && fdry_get64(pages->data + 8 * i) ==
					      fdry_get64(pages->data + 8 * (i - 1)) + 1
			      ? run + 1
			      : 1;
		f->free_runs += run == 1;
		if (run > f->longest_run)
			f->longest_run = run;
	}
	f->free_pages = n;
}

static int file_in(struct fdry_txn *t, struct fdry_store_stat *st)
{
	struct fdry_file_stat *f = &st->file;
	struct fdry_buf pages = { 0 };
	struct fdry_extent x;
	int err = fdry_txn_count(t, FDRY_TABLE_REFS, &st->refs);

	if (err)
		return err;
	err = fdry_db_extent(t->db, &x);
	if (err)
		return err;
	err = fdry_txn_each_free(t, free_put, &pages);
	if (err)
		goto out_release;
	*f = (struct fdry_file_stat){ .page_size = x.page_size,
				      .file_bytes = x.file_bytes,
				      .pages = x.used_bytes / x.page_size,
				      .map_bytes = x.map_bytes,
				      .readers = fdry_db_readers(t->db),
				      .readers_max = fdry_db_readers_max(t->db) };
	f->readers -= f->readers > 0 && !t->exclusive; /* without this one */
	free_sum(&pages, f);
out_release:
	fdry_buf_release(&pages);
	return err;
}

static int file_stat(struct fdry_store *s, struct fdry_store_stat *st)
{
	struct stat file;
	struct fdry_txn t;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = file_in(&t, st);
	fdry_txn_abort(&t);
	if (err)
		return err;
	if (!fstatat(s->env->dir.fd, "data.mdb", &file, 0))
		st->file.disk_bytes = (uint64_t)file.st_blocks * 512;
	return 0;
}

int fdry_store_stat(struct fdry_store *s, fdry_step_fn step, void *arg, struct fdry_store_stat *ret)
{
	struct fdry_store_stat st = { 0 };
	int err = file_stat(s, &st);

	if (err)
		return err;
	err = count_objects(s, step, arg, &st);
	if (err)
		return err;
	*ret = st;
	return 0;
}
