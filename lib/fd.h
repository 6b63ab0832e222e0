/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd.h - making descriptors, never as number 0, 1 or 2.
 *
 * If a program has closed its standard input, output or error, the kernel gives the number to the
 * next file that is opened, and the next message on standard error is written into that file. So
 * these functions open every descriptor of ours, with O_CLOEXEC and a number of 3 or more. Code
 * that opens descriptors itself, as LMDB does, runs between fdry_fd_enter() and fdry_fd_leave().
 * tests/static/descriptors.sh checks that no other code does.
 *
 * In between, the missing numbers are open on a directory with O_PATH, which permits neither
 * reading nor writing. fdry_fd_leave() closes them again, except a number that another thread has
 * replaced by a file of its own.
 *
 * Locking: any thread, also in the child of a fork().
 */
#ifndef FDRY_LIB_FD_H
#define FDRY_LIB_FD_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/err.h"

/* The numbers of standard input, output and error. */
#define FDRY_FD_LOW 3

/*
 * fdry_fd_enter() - Make sure that no new file gets the number 0, 1 or 2.
 *
 * A thread that closes one of them in between undoes this; fdry_fd_low_same() detects it before
 * leaving. Return: the argument for fdry_fd_leave(). Both functions preserve errno.
 */
bool fdry_fd_enter(void) __must_check;
void fdry_fd_leave(bool entered);

/*
 * A fork waits for threads that have entered; fdry_fd_enter() registers the handlers for that. A
 * caller may hold a lock while it enters, and take the same lock in its own fork handlers. It calls
 * this function before it registers them, so that the locks are always taken in one order.
 */
void fdry_fd_watch_forks(void);

/* The files that are open as 0, 1 and 2. */
struct fdry_fd_low {
	dev_t dev[FDRY_FD_LOW];
	ino_t ino[FDRY_FD_LOW]; /* 0: nothing */
};
void fdry_fd_low_get(struct fdry_fd_low *ret);
bool fdry_fd_low_same(const struct fdry_fd_low *was);

/* Open /dev/null as @fd, the lowest free number. If /dev/null does not exist, the number stays
 * free. */
void fdry_fd_null(int fd, int flags);

/* Like the functions of these names: -1 (or NULL) and errno after a failure. O_CLOEXEC is implied.
 */
int fdry_openat(int dir, const char *name, int flags, mode_t mode) __must_check;
int fdry_open(const char *path, int flags, mode_t mode) __must_check;
int fdry_memfd(const char *name) __must_check;
int fdry_pipe(int ret[2], int flags) __must_check;
/* Another descriptor of the same open file. */
int fdry_dup(int fd) __must_check;
/* A stream that reads a file, or one that writes it from scratch. */
FILE *fdry_fopen_read(const char *path) __must_check;
FILE *fdry_fopen_write(const char *path) __must_check;

#endif
