// SPDX-License-Identifier: Apache-2.0
/*
 * io.c - replaces the C library's calls that change files; see io.h. Neither LMDB nor the store
 * uses other calls (splice, io_uring, writing through a map) for durable data. A map that is shared
 * and writable is reported.
 */
#undef _FORTIFY_SOURCE /* its headers define some of these functions themselves */

#include "tests/crash/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

const struct io_hooks *io_hooks;

static void enter(struct io_call *c)
{
	int e = errno;

	if (io_hooks && io_hooks->enter)
		io_hooks->enter(c);
	errno = e;
}

static long leave(struct io_call *c, long ret)
{
	int e = errno;

	if (io_hooks && io_hooks->leave)
		io_hooks->leave(c, ret);
	errno = e;
	return ret;
}

#define UNLESS_FAILED(c, call) ((c).fail ? (errno = (c).fail, -1L) : (call))

int io_write_unseen(int fd, const void *data, size_t len, int64_t at)
{
	const char *p = data;
	long n;

	while (len) {
		n = syscall(SYS_pwrite64, fd, p, len, at);
		if (n <= 0)
			return -1;
		p += n;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* --- opening --- */

static int do_open(int dir, const char *name, int flags, mode_t mode)
{
	struct io_call c = { .op = IO_OPEN, .fd = dir, .name = name, .flags = flags };
	int e = errno;

	c.existed = flags & O_CREAT && !syscall(SYS_faccessat, dir, name, F_OK);
	errno = e;
	enter(&c);
	return (int)leave(&c, UNLESS_FAILED(c, syscall(SYS_openat, dir, name, flags, mode)));
}

/* A call has a mode only if it may make a file. */
#define MODE_OF(flags) ({ \
	mode_t mode_ = 0; \
	va_list ap_; \
	if ((flags) & (O_CREAT | __O_TMPFILE)) { \
		va_start(ap_, flags); \
		mode_ = va_arg(ap_, mode_t); \
		va_end(ap_); \
	} \
	mode_; })

EXPORT int open(const char *name, int flags, ...)
{
	return do_open(AT_FDCWD, name, flags, MODE_OF(flags));
}

EXPORT int open64(const char *name, int flags, ...)
{
	return do_open(AT_FDCWD, name, flags, MODE_OF(flags));
}

EXPORT int openat(int dir, const char *name, int flags, ...)
{
	return do_open(dir, name, flags, MODE_OF(flags));
}

EXPORT int openat64(int dir, const char *name, int flags, ...)
{
	return do_open(dir, name, flags, MODE_OF(flags));
}

/* The functions that a build with _FORTIFY_SOURCE calls. */
EXPORT int __open_2(const char *name, int flags);
EXPORT int __open_2(const char *name, int flags)
{
	return do_open(AT_FDCWD, name, flags, 0);
}

EXPORT int __openat_2(int dir, const char *name, int flags);
EXPORT int __openat_2(int dir, const char *name, int flags)
{
	return do_open(dir, name, flags, 0);
}

EXPORT int creat(const char *name, mode_t mode)
{
	return do_open(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* --- writing --- */

static ssize_t do_write(int fd, const struct iovec *iov, int n, int64_t at)
{
	struct io_call c = { .op = IO_WRITE, .fd = fd, .iov = iov, .niov = n, .at = at };
	int i;

	for (i = 0; i < n; i++)
		c.len += iov[i].iov_len;
	enter(&c);
	if (at < 0)
		return leave(&c, UNLESS_FAILED(c, syscall(SYS_writev, fd, iov, n)));
	return leave(&c, UNLESS_FAILED(c, syscall(SYS_pwritev, fd, iov, n, at, 0)));
}

EXPORT ssize_t write(int fd, const void *data, size_t len)
{
	struct iovec iov = { (void *)(uintptr_t)data, len };

	return do_write(fd, &iov, 1, -1);
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	return do_write(fd, iov, n, -1);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t len, off_t at)
{
	struct iovec iov = { (void *)(uintptr_t)data, len };

	return do_write(fd, &iov, 1, at);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t len, off_t at)
{
	return pwrite(fd, data, len, at);
}

EXPORT ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	return do_write(fd, iov, n, at);
}

EXPORT int ftruncate(int fd, off_t size)
{
	struct io_call c = { .op = IO_TRUNCATE, .fd = fd, .at = size };

	enter(&c);
	return (int)leave(&c, UNLESS_FAILED(c, syscall(SYS_ftruncate, fd, size)));
}

EXPORT int ftruncate64(int fd, off_t size)
{
	return ftruncate(fd, size);
}

/* --- making durable --- */

static int do_sync(long nr, int fd)
{
	struct io_call c = { .op = IO_SYNC, .fd = fd };

	enter(&c);
	return (int)leave(&c, UNLESS_FAILED(c, syscall(nr, fd)));
}

EXPORT int fsync(int fd)
{
	return do_sync(SYS_fsync, fd);
}

EXPORT int fdatasync(int fd)
{
	return do_sync(SYS_fdatasync, fd);
}

/* --- names --- */

EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned int flags)
{
	struct io_call c = {
		.op = IO_RENAME, .fd = from_dir, .fd2 = to_dir, .name = from, .name2 = to
	};

	enter(&c);
	return (int)leave(
		&c, UNLESS_FAILED(c, syscall(SYS_renameat2, from_dir, from, to_dir, to, flags)));
}

EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	return renameat2(from_dir, from, to_dir, to, 0);
}

EXPORT int rename(const char *from, const char *to)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	struct io_call c = { .op = IO_LINK, .fd = from_dir, .fd2 = to_dir, .name = from,
			     .name2 = to, .flags = flags };

	enter(&c);
	return (int)leave(&c,
			  UNLESS_FAILED(c, syscall(SYS_linkat, from_dir, from, to_dir, to, flags)));
}

EXPORT int link(const char *from, const char *to)
{
	return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int unlinkat(int dir, const char *name, int flags)
{
	struct io_call c = { .op = IO_UNLINK, .fd = dir, .name = name, .flags = flags };

	enter(&c);
	return (int)leave(&c, UNLESS_FAILED(c, syscall(SYS_unlinkat, dir, name, flags)));
}

EXPORT int unlink(const char *name)
{
	return unlinkat(AT_FDCWD, name, 0);
}

EXPORT int rmdir(const char *name)
{
	return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

EXPORT int mkdirat(int dir, const char *name, mode_t mode)
{
	struct io_call c = { .op = IO_MKDIR, .fd = dir, .name = name };

	enter(&c);
	return (int)leave(&c, UNLESS_FAILED(c, syscall(SYS_mkdirat, dir, name, mode)));
}

EXPORT int mkdir(const char *name, mode_t mode)
{
	return mkdirat(AT_FDCWD, name, mode);
}

/* --- maps --- */

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t at)
{
	struct io_call c = { .op = IO_MAP, .fd = fd, .len = len, .at = at };
	bool shared = fd >= 0 && prot & PROT_WRITE && flags & MAP_SHARED;

	if (shared)
		enter(&c);
	addr = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, at);
	if (shared)
		leave(&c, addr == MAP_FAILED ? -1 : 0);
	return addr;
}

EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t at)
{
	return mmap(addr, len, prot, flags, fd, at);
}
