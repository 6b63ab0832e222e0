/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd.h - making descriptors, never as number 0, 1 or 2.
 *
 * If a program has closed its standard input, output or error, the kernel gives the number to the
 * next file that is opened, and the next message on standard error is written into that file. So
 * every descriptor of ours is made here, with O_CLOEXEC, and gets 3 or a higher number. Code that
 * makes descriptors itself, as LMDB does, runs between fdry_fd_enter() and fdry_fd_leave().
 * tests/static/descriptors.sh checks that nothing goes around this.
 *
 * Meanwhile the missing numbers are open on a directory in a mode (O_PATH) that can neither be read
 * nor written. They are closed again afterwards, unless another thread has put a file of its own
 * there.
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
 * fdry_fd_enter() - Keep 0, 1 and 2 from being given to a new file.
 *
 * Another thread that closes one of them in between undoes it: fdry_fd_low_same() tells so before leaving.
 * Return: what fdry_fd_leave() needs. errno stays as it is in both.
 */
bool fdry_fd_enter(void) __must_check;
void fdry_fd_leave(bool entered);

/*
 * A fork waits for whoever has entered. fdry_fd_enter() sees to that itself; a caller that enters while it holds a lock
 * which its own fork handlers take calls this before it registers them, so that the order of the locks is the same.
 */
void fdry_fd_watch_forks(void);

/* What is open as 0, 1 and 2. */
struct fdry_fd_low {
	dev_t dev[FDRY_FD_LOW];
	ino_t ino[FDRY_FD_LOW]; /* 0: nothing */
};
void fdry_fd_low_get(struct fdry_fd_low *ret);
bool fdry_fd_low_same(const struct fdry_fd_low *was);

/* Open /dev/null as the number @fd, the lowest that is free. If there is none, it stays missing. */
void fdry_fd_null(int fd, int flags);

/* As the functions of these names, -1 (or NULL) and errno. O_CLOEXEC need not be said. */
int fdry_openat(int dir, const char *name, int flags, mode_t mode) __must_check;
int fdry_open(const char *path, int flags, mode_t mode) __must_check;
int fdry_memfd(const char *name) __must_check;
int fdry_pipe(int ret[2], int flags) __must_check;
/* Another descriptor of the same open file. */
int fdry_dup(int fd) __must_check;
/* Streams of a file, to read it, or to write it anew. */
FILE *fdry_fopen_read(const char *path) __must_check;
FILE *fdry_fopen_write(const char *path) __must_check;

#endif
