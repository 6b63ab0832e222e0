// SPDX-License-Identifier: Apache-2.0
/* file.c - writing files and listing directories, with every failure reported; see file.h. */
#include "lib/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* --- SIGXFSZ --- */

static void xfsz_set(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGXFSZ);
}

static bool xfsz_pending(void)
{
	sigset_t pending;

	return !sigpending(&pending) && sigismember(&pending, SIGXFSZ) == 1;
}

void fdry_xfsz_hold(struct fdry_xfsz *ret)
{
	sigset_t set, old;

	xfsz_set(&set);
	sigemptyset(&old);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	ret->blocked = sigismember(&old, SIGXFSZ) == 1;
	ret->pending = ret->blocked && xfsz_pending();
}

/* The kernel sends the signal to the thread that writes. A signal that is pending now, and was not
 * before, comes from our write. */
void fdry_xfsz_release(const struct fdry_xfsz *x)
{
	static const struct timespec at_once;
	int saved = errno;
	sigset_t set;

	xfsz_set(&set);
	if (!x->pending)
		while (sigtimedwait(&set, NULL, &at_once) < 0 && errno == EINTR)
			;
	if (!x->blocked)
		pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	errno = saved;
}

/* --- writing --- */

/* @at: an offset; -1: the current offset of the file. */
static int write_all(int fd, const uint8_t *p, size_t len, int64_t at)
{
	ssize_t n;

	while (len) {
		n = at < 0 ? write(fd, p, len) : pwrite(fd, p, len, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? errno : ENOSPC;
		p += n;
		at += at < 0 ? 0 : n;
		len -= (size_t)n;
	}
	return 0;
}

int fdry_write(int fd, const void *data, size_t len)
{
	struct fdry_xfsz x;
	int e;

	fdry_xfsz_hold(&x);
	e = write_all(fd, data, len, -1);
	fdry_xfsz_release(&x);
	return e;
}

int fdry_pwrite(int fd, const void *data, size_t len, uint64_t at)
{
	struct fdry_xfsz x;
	int e;

	fdry_xfsz_hold(&x);
	e = write_all(fd, data, len, (int64_t)at);
	fdry_xfsz_release(&x);
	return e;
}

int fdry_truncate(int fd, uint64_t len)
{
	struct fdry_xfsz x;
	int e;

	fdry_xfsz_hold(&x);
	e = ftruncate(fd, (off_t)len) ? errno : 0;
	fdry_xfsz_release(&x);
	return e;
}

int fdry_allocate(int fd, uint64_t len)
{
	struct fdry_xfsz x;
	int e;

	fdry_xfsz_hold(&x);
	do
		e = fallocate(fd, 0, 0, (off_t)len) ? errno : 0;
	while (e == EINTR);
	fdry_xfsz_release(&x);
	return e;
}

int fdry_temp_name(const char *prefix, char *to, size_t size)
{
	uint64_t nr;

	if (getrandom(&nr, sizeof(nr), 0) != sizeof(nr))
		return EIO;
	snprintf(to, size, "%s%0*llx", prefix, FDRY_TEMP_DIGITS, (unsigned long long)nr);
	return 0;
}

enum fdry_errcode fdry_write_code(int e)
{
	switch (e) {
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return FDRY_E_FULL;
	case EACCES:
	case EPERM:
	case EROFS:
		return FDRY_E_PERM;
	default:
		return FDRY_E_IO;
	}
}

/* --- listing --- */

int fdry_names_open(int dir, const char *name, int flags, struct fdry_names *ret)
{
	int e, fd = fdry_openat(dir, name, flags | O_RDONLY | O_DIRECTORY, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		e = errno;
		if (fd >= 0)
			close(fd);
		return e;
	}
	*ret = (struct fdry_names){ .dir = d };
	return 0;
}

const char *fdry_names_next(struct fdry_names *n)
{
	struct dirent *e;

	do {
		errno = 0;
		e = readdir(n->dir);
	} while (e && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")));
	if (!e)
		n->error = errno;
	return e ? e->d_name : NULL;
}

int fdry_names_close(struct fdry_names *n)
{
	closedir(n->dir);
	n->dir = NULL;
	return n->error;
}
