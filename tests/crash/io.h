/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io.h - hooks before and after every call by which a program of these tests changes files. io.c
 * defines write(), fdatasync(), rename() and so on for the whole program, including LMDB, because
 * the dynamic linker prefers symbols of the program to those of the C library. A test sets hooks;
 * without them calls go straight to the operating system.
 */
#ifndef FDRY_TESTS_CRASH_IO_H
#define FDRY_TESTS_CRASH_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum io_op {
	IO_OPEN,
	IO_WRITE,
	IO_TRUNCATE,
	IO_SYNC,
	IO_RENAME,
	IO_LINK,
	IO_UNLINK,
	IO_MKDIR,
	IO_MAP
};

/* One call. Names are as the caller passed them, relative to the directories @fd and @fd2
 * (AT_FDCWD: the current one). */
struct io_call {
	enum io_op op;
	int fd, fd2;
	const char *name, *name2;
	const struct iovec *iov; /* IO_WRITE */
	int niov;
	int64_t at;  /* IO_WRITE: the offset, or -1 for the file's position. IO_TRUNCATE: the new
			size */
	size_t len;  /* IO_WRITE, IO_MAP */
	int flags;   /* IO_OPEN: its flags. IO_UNLINK: AT_REMOVEDIR or 0 */
	bool existed;  /* IO_OPEN with O_CREAT: the file was there */
	uint64_t mark; /* for the hooks' own use */
	int fail; /* set by enter(): the call is not made, and fails with this errno; not of IO_MAP
		   */
};

struct io_hooks {
	void (*enter)(struct io_call *c);
	/* @ret: the kernel's result, -1 for an error. errno is kept. */
	void (*leave)(struct io_call *c, long ret);
};

/* The hooks of this process and of those that it forks from now on. NULL: none. */
extern const struct io_hooks *io_hooks;

/* The same calls without the hooks. They return 0 or -1, and write all @len bytes. */
int io_write_unseen(int fd, const void *data, size_t len, int64_t at);

#endif
