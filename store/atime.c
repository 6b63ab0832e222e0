// SPDX-License-Identifier: Apache-2.0
/*
 * atime.c - noting when images were last loaded or sealed, for eviction.
 *
 * Each load appends one line to a file in the store's directory, without a transaction or a lock. A
 * later line means a later use, whatever times they have. The file is only a hint: if it cannot be
 * written, nothing is noted; a line that cannot be parsed is ignored; lines that are appended while
 * the file is shortened may be lost.
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

#define ATIME_FILE "used"
#define ATIME_TEMP "used.new"
#define LINE (FDRY_ATIME_LINE)
#define SIZE_MAX_KEPT (1u << 20) /* bytes; a longer file is shortened */
#define IDS_MAX 4096u            /* ids in a shortened file, at most */

/* --- reading --- */

static bool line_parse(const char *line, struct fdry_atime *ret)
{
	char hex[FDRY_OID_HEX_SIZE];
	const char *digits = line + FDRY_OID_HEX_SIZE;

	if (line[FDRY_OID_HEX_SIZE - 1] != ' ' || line[LINE - 1] != '\n' ||
	    strspn(digits, "0123456789") != FDRY_ATIME_DIGITS)
		return false;
	memcpy(hex, line, sizeof(hex));
	hex[sizeof(hex) - 1] = '\0';
	if (strspn(hex, "0123456789abcdef") != sizeof(hex) - 1 || fdry_oid_parse(hex, &ret->oid))
		return false;
	ret->time = strtoull(digits, NULL, 10);
	return true;
}

static int lines_parse(const char *text, size_t len, struct fdry_buf *ret)
{
	struct fdry_atime u = { .order = 0 };
	const char *end;
	size_t at;
	int err;

	for (at = 0; at < len; at = (size_t)(end - text) + 1) {
		end = memchr(text + at, '\n', len - at);
		if (!end)
			return 0;
		if ((size_t)(end - text) + 1 != at + LINE || !line_parse(text + at, &u))
			continue;
		u.order++;
		err = fdry_buf_put(ret, &u, sizeof(u));
		if (err)
			return err;
	}
	return 0;
}

/* By id, then the latest first. */
static int atime_cmp(const void *a, const void *b)
{
	const struct fdry_atime *x = a, *y = b;
	int order = memcmp(&x->oid, &y->oid, sizeof(x->oid));

	if (order)
		return order;
	return x->order > y->order ? -1 : x->order < y->order;
}

static void latest_only(struct fdry_buf *all)
{
	struct fdry_atime *u = (void *)all->data;
	size_t i, n = all->len / sizeof(*u), out = 0;

	if (n)
		qsort(u, n, sizeof(*u), atime_cmp);
	for (i = 0; i < n; i++)
		if (!out || !fdry_oid_eq(&u[i].oid, &u[out - 1].oid))
			u[out++] = u[i];
	all->len = out * sizeof(*u);
}

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

int fdry_atime_read(const struct fdry_env *env, struct fdry_buf *ret)
{
	struct fdry_buf text = { 0 };
	int fd = fdry_file_get(env->dir.fd, ATIME_FILE, O_RDONLY);
	int err;

	if (fd < 0)
		return errno == ENOENT ? 0 : read_fail();
	err = fd_read(fd, &text) ?: lines_parse((const char *)text.data, text.len, ret);
	close(fd);
	fdry_buf_release(&text);
	if (err)
		return err;
	latest_only(ret);
	return 0;
}

const struct fdry_atime *fdry_atime_find(const struct fdry_buf *all, const struct fdry_oid *oid)
{
	if (!all->len)
		return NULL;
	return bsearch(oid, all->data, all->len / sizeof(struct fdry_atime),
		       sizeof(struct fdry_atime), fdry_oid_cmp);
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

static bool lines_write(int fd, const struct fdry_buf *all)
{
	struct fdry_atime *u = (void *)all->data;
	size_t i, n = all->len / sizeof(*u);
	struct fdry_buf text = { 0 };
	char line[LINE + 1];
	bool ok = true;

	if (n)
		qsort(u, n, sizeof(*u), by_order);
	for (i = n > IDS_MAX ? n - IDS_MAX : 0; i < n && ok; i++) {
		line_make(line, &u[i].oid, u[i].time);
		ok = !fdry_buf_put(&text, line, LINE);
	}
	ok = ok && !fdry_write(fd, text.data, text.len);
	fdry_buf_release(&text);
	return ok;
}

/* One process shortens the file; the others append to the old file meanwhile. */
static void shorten(const struct fdry_env *env, int used)
{
	struct fdry_buf all = { 0 };
	int fd;
	bool ok;

	if (flock(used, LOCK_EX | LOCK_NB))
		return;
	/* left by a process that died, perhaps another user's */
	(void)unlinkat(env->dir.fd, ATIME_TEMP, 0);
	fd = fdry_openat(env->dir.fd, ATIME_TEMP, O_WRONLY | O_CREAT | O_EXCL, env->dir.file_mode);
	ok = fd >= 0 && !fdry_file_adopt(&env->dir, fd) && !fdry_atime_read(env, &all) &&
	     lines_write(fd, &all);
	if (fd >= 0)
		ok = !close(fd) && ok &&
		     !renameat(env->dir.fd, ATIME_TEMP, env->dir.fd, ATIME_FILE);
	if (fd >= 0 && !ok)
		(void)unlinkat(env->dir.fd, ATIME_TEMP, 0);
	fdry_buf_release(&all);
}

void fdry_atime_note(const struct fdry_env *env, const struct fdry_oid *oid)
{
	char line[LINE + 1];
	struct stat st;
	int e, fd;

	if (env->dir.fixed)
		return;
	fd = fdry_file_open(&env->dir, ATIME_FILE, O_WRONLY | O_APPEND);
	if (fd < 0) {
		fdry_debug("cannot note the use of an image: %s", fdry_file_text(errno));
		return;
	}
	line_make(line, oid, (uint64_t)time(NULL));
	e = fdry_write(fd, line, LINE);
	if (e)
		fdry_debug("cannot note the use of an image: %s", strerror(e));
	if (!fstat(fd, &st) && st.st_size > SIZE_MAX_KEPT)
		shorten(env, fd);
	close(fd);
}
