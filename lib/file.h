/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - writing files and listing directories, with every failure reported.
 *
 * If a file would become longer than the process' limit (ulimit -f), the kernel sends SIGXFSZ,
 * which ends the program. The functions here block the signal in the calling thread while they
 * write, and return EFBIG. They set no handler and touch no other thread. Code that writes itself,
 * as LMDB does, runs between fdry_xfsz_hold() and fdry_xfsz_release().
 *
 * readdir() returns NULL both at the end of a directory and for an error. These functions
 * distinguish the two: a list that cannot be read to its end is an error.
 */
#ifndef FDRY_LIB_FILE_H
#define FDRY_LIB_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/fd.h"

/* --- writing --- */

/* The thread's state before a hold, in the caller's storage. */
struct fdry_xfsz {
	bool blocked; /* SIGXFSZ was blocked already */
	bool pending; /* a SIGXFSZ was pending */
};
/* Block SIGXFSZ in this thread, which must release it. Holds nest. errno is preserved. */
void fdry_xfsz_hold(struct fdry_xfsz *ret);
void fdry_xfsz_release(const struct fdry_xfsz *x);

/* 0 or errno: EFBIG for the limit on a file's length. After a failure, an unknown part is written.
 */
int fdry_write(int fd, const void *data, size_t len) __must_check;
int fdry_pwrite(int fd, const void *data, size_t len, uint64_t at) __must_check;
/* Set a file's length; 0 or errno. */
int fdry_truncate(int fd, uint64_t len) __must_check;
/*
 * Allocate disk space for the first @len bytes of a file, and extend a shorter file to that length.
 * Its content stays. 0 or errno: ENOSPC, EDQUOT, EFBIG; EOPNOTSUPP if the file system cannot do
 * that.
 */
int fdry_allocate(int fd, uint64_t len) __must_check;

/* A unique name: the prefix and a random number. A process id is not unique, since containers reuse
 * them. 0 or errno. */
int fdry_temp_name(const char *prefix, char *to, size_t size) __must_check;
#define FDRY_TEMP_DIGITS 16 /* of that number */

/* The code for a write that failed with @e: FDRY_E_FULL, FDRY_E_PERM or FDRY_E_IO. */
enum fdry_errcode fdry_write_code(int e);

/* --- listing --- */

struct fdry_names {
	DIR *dir;
	int error; /* errno of reading; 0 at the end */
};
/* Begin to list the folder @name in the directory @dir. 0 or errno; after an error there is nothing
 * to close. */
int fdry_names_open(int dir, const char *name, int flags, struct fdry_names *ret) __must_check;
/* The next name but "." and ".."; valid until the next call. NULL at the end, and after an error,
 * which fdry_names_close() returns. */
const char *fdry_names_next(struct fdry_names *n) __must_check;
/* 0, or the errno that ended the list early. */
int fdry_names_close(struct fdry_names *n) __must_check;

#endif
