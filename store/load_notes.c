// SPDX-License-Identifier: Apache-2.0
/* load_notes.c - notes loads and captures in the store's file "used", and reads what it says. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/threads.h"
#include "store/internal.h"

typedef unsigned long long ull;


static uint64_t positive(double x)
{
	return x > 0 && x < 1e15 ? (uint64_t)x : 0;
}

void fdry_store_note_hit(struct fdry_store *s, const struct fdry_oid *image, uint64_t bytes,
			 double ms)
{
	char line[FDRY_ATIME_LINE_MAX], hex[FDRY_OID_HEX_SIZE];

	snprintf(line, sizeof(line), "hit %s %llu %llu %llu\n", fdry_oid_hex(image, hex),
		 (ull)time(NULL), (ull)bytes, (ull)positive(ms * 1000));
	if (!fdry_store_check(s))
		(void)fdry_atime_append(s->env, line);
}

int fdry_store_note_miss(struct fdry_store *s, int err)
{
	char line[FDRY_ATIME_LINE_MAX];
	struct fdry_saved_err saved;

	fdry_saved_err_set(&saved, err);
	snprintf(line, sizeof(line), "missed %llu %d 1\n", (ull)time(NULL), -err);
	if (!fdry_store_check(s))
		(void)fdry_atime_append(s->env, line);
	return fdry_saved_err_restore(&saved);
}

void fdry_store_note_capture(struct fdry_store *s, const struct fdry_oid *image, double ms)
{
	char line[FDRY_ATIME_LINE_MAX], hex[FDRY_OID_HEX_SIZE];

	snprintf(line, sizeof(line), "took %s %llu %llu\n", fdry_oid_hex(image, hex),
		 (ull)time(NULL), (ull)positive(ms));
	if (!fdry_store_check(s))
		(void)fdry_atime_append(s->env, line);
}

void fdry_store_note_same_capture(struct fdry_store *s, const struct fdry_oid *image,
				  const struct fdry_oid *from)
{
	char line[FDRY_ATIME_LINE_MAX], hex[FDRY_OID_HEX_SIZE];
	struct fdry_buf all = { 0 };
	const struct fdry_atime *known;

	if (fdry_store_check(s) || fdry_atime_read(s->env, &all))
		return;
	known = fdry_atime_find(&all, from);
	if (known && known->took_ms) {
		snprintf(line, sizeof(line), "kept %s %llu %llu\n", fdry_oid_hex(image, hex),
			 (ull)time(NULL), (ull)known->took_ms);
		(void)fdry_atime_append(s->env, line);
	}
	fdry_buf_release(&all);
}

int fdry_store_load_stats(struct fdry_store *s, struct fdry_load_stats *ret)
{
	struct fdry_buf text = { 0 }, all = { 0 };
	int err = fdry_store_check(s) ?: fdry_atime_text(s->env, &text) ?:
		  fdry_atime_read(s->env, &all);

	if (!err)
		fdry_load_stats_sum(&text, &all, ret);
	fdry_buf_release(&text);
	fdry_buf_release(&all);
	return err;
}

int fdry_store_load_stats_zero(struct fdry_store *s)
{
	enum fdry_errcode code = FDRY_E_IO;
	char line[32];
	int e, err = fdry_store_check(s);

	if (err)
		return err;
	snprintf(line, sizeof(line), "zero %llu\n", (ull)time(NULL));
	e = fdry_atime_append(s->env, line);
	if (!e)
		return 0;
	if (e == EROFS || e == EACCES || e == EPERM)
		code = FDRY_E_PERM;
	else if (e == ENOSPC || e == EDQUOT)
		code = FDRY_E_FULL;
	return fdry_fail(code, "cannot write the store's file used: %s", fdry_file_text(e));
}

int fdry_store_times_read(struct fdry_store *s, struct fdry_buf *ret)
{
	return fdry_store_check(s) ?: fdry_atime_read(s->env, ret);
}

struct fdry_image_times fdry_times_of(const struct fdry_buf *all, const struct fdry_oid *image)
{
	const struct fdry_atime *u = fdry_atime_find(all, image);

	return u ? (struct fdry_image_times){ u->made, u->time } : (struct fdry_image_times){ 0 };
}
