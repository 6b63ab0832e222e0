// SPDX-License-Identifier: Apache-2.0
/*
 * atime.c - noting when images were last loaded or sealed, for eviction.
 *
 * Each load appends one line to a file in the store's directory, without a transaction or a lock. A
 * later line means a later use, whatever times they have. The file is only a hint: if it cannot be
 * written, nothing is noted; a line that cannot be parsed is ignored; lines that are appended while
 * the file is shortened may be lost.
 *
 * Lines of other forms say when an image was written to the store, how long its capture took, and
 * count loads (load_stats.c). Programs that do not know these forms ignore them, and drop them when
 * they shorten the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/log.h"
#include "store/internal.h"
#include "store/step.h"

#define ATIME_FILE "used"
#define ATIME_TEMP "used.new"
#define LINE (FDRY_ATIME_LINE)
#define SIZE_MAX_KEPT (1u << 20) /* bytes; a longer file is shortened */
#define IDS_MAX 4096u            /* ids in a shortened file, at most */

/* --- reading --- */

static int read_fail(void)
{
	return fdry_fail(FDRY_E_IO, "cannot read the store's file " ATIME_FILE ": %s",
			 fdry_file_text(errno));
}

static int fd_read(int fd, struct fdry_buf *text)
{
	struct stat st;
	size_t done = 0;
	void *p = NULL;
	ssize_t n;
	int err;

	if (fstat(fd, &st) || st.st_size <= 0)
		return 0;
	err = fdry_buf_grow(text, (size_t)st.st_size, &p);
	if (err)
		return err;
	while (done < text->len) {
		n = pread(fd, (char *)p + done, text->len - done, (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return read_fail();
		if (!n)
			break;
		done += (size_t)n;
	}
	text->len = done;
	return 0;
}

int fdry_atime_text(const struct fdry_env *env, struct fdry_buf *ret)
{
	int fd = fdry_file_get(env->dir.fd, ATIME_FILE, O_RDONLY);
	int err;

	if (fd < 0)
		return errno == ENOENT ? 0 : read_fail();
	err = fd_read(fd, ret);
	close(fd);
	return err;
}

int fdry_atime_read(const struct fdry_env *env, struct fdry_buf *ret)
{
	struct fdry_buf text = { 0 };
	int err = fdry_atime_text(env, &text) ?: fdry_atime_parse(&text, ret);

	fdry_buf_release(&text);
	return err;
}

/* --- writing --- */

static void line_make(char line[LINE + 1], const struct fdry_oid *oid, uint64_t when)
{
	char hex[FDRY_OID_HEX_SIZE];

	snprintf(line, LINE + 1, "%s %0*llu\n", fdry_oid_hex(oid, hex), FDRY_ATIME_DIGITS,
		 (unsigned long long)(when % 10000000000ull));
}

static int by_order(const void *a, const void *b)
{
	const struct fdry_atime *x = a, *y = b;

	return x->order < y->order ? -1 : x->order > y->order;
}

/* The two lines of an image in a shortened file. */
static int image_put(const struct fdry_atime *u, struct fdry_buf *ret)
{
	char line[LINE + 1], hex[FDRY_OID_HEX_SIZE];
	int err;

	line_make(line, &u->oid, u->time);
	err = fdry_buf_put(ret, line, LINE);
	if (err || (!u->made && !u->took_ms))
		return err;
	return fdry_buf_printf(ret, "kept %s %llu %llu\n", fdry_oid_hex(&u->oid, hex),
			       (unsigned long long)u->made, (unsigned long long)u->took_ms);
}

static int short_make(const struct fdry_buf *old, struct fdry_buf *ret)
{
	struct fdry_load_stats stats;
	struct fdry_buf all = { 0 };
	struct fdry_atime *u;
	size_t i, n;
	int err = fdry_atime_parse(old, &all);

	if (err)
		goto out_release;
	fdry_load_stats_sum(old, &all, &stats);
	u = (void *)all.data;
	n = all.len / sizeof(*u);
	if (n)
		qsort(u, n, sizeof(*u), by_order);
	for (i = n > IDS_MAX ? n - IDS_MAX : 0; i < n && !err; i++)
		err = image_put(&u[i], ret);
	if (!err)
		err = fdry_load_stats_put(&stats, ret);
out_release:
	fdry_buf_release(&all);
	return err;
}

/* One process shortens the file; the others append to the old file meanwhile. If the file was
 * replaced before this process locked it, that process has shortened it already, and the lock of
 * the old file protects nothing. */
static void shorten(const struct fdry_env *env, int used)
{
	struct fdry_buf old = { 0 }, text = { 0 };
	int fd;
	bool ok;

	fdry_step(FDRY_STEP_SHORTEN);
	if (fdry_flock(used, LOCK_EX | LOCK_NB) ||
	    !fdry_file_is_named(env->dir.fd, ATIME_FILE, used))
		return;
	/* left by a process that died, perhaps another user's */
	(void)unlinkat(env->dir.fd, ATIME_TEMP, 0);
	fd = fdry_openat(env->dir.fd, ATIME_TEMP, O_WRONLY | O_CREAT | O_EXCL, env->dir.file_mode);
	ok = fd >= 0 && !fdry_file_adopt(&env->dir, fd) && !fdry_atime_text(env, &old) &&
	     !short_make(&old, &text) && !fdry_write(fd, text.data, text.len);
	if (fd >= 0)
		ok = !close(fd) && ok &&
		     !renameat(env->dir.fd, ATIME_TEMP, env->dir.fd, ATIME_FILE);
	if (fd >= 0 && !ok)
		(void)unlinkat(env->dir.fd, ATIME_TEMP, 0);
	fdry_buf_release(&old);
	fdry_buf_release(&text);
}

int fdry_atime_append(const struct fdry_env *env, const char *line)
{
	struct stat st;
	int e, fd;

	if (env->dir.fixed)
		return EROFS;
	fd = fdry_file_open(&env->dir, ATIME_FILE, O_WRONLY | O_APPEND);
	e = fd < 0 ? errno : fdry_write(fd, line, strlen(line));
	if (e)
		fdry_debug("cannot note the use of an image: %s", fdry_file_text(e));
	if (fd < 0)
		return e;
	if (!fstat(fd, &st) && st.st_size > SIZE_MAX_KEPT)
		shorten(env, fd);
	close(fd);
	return e;
}

void fdry_atime_note(const struct fdry_env *env, const struct fdry_oid *oid)
{
	char line[LINE + 1];

	line_make(line, oid, (uint64_t)time(NULL));
	(void)fdry_atime_append(env, line);
}

void fdry_atime_note_made(const struct fdry_env *env, const struct fdry_oid *oid)
{
	char lines[2 * LINE + 16], hex[FDRY_OID_HEX_SIZE];
	uint64_t now = (uint64_t)time(NULL);

	line_make(lines, oid, now);
	snprintf(lines + LINE, sizeof(lines) - LINE, "made %s %llu\n", fdry_oid_hex(oid, hex),
		 (unsigned long long)now);
	(void)fdry_atime_append(env, lines);
}
