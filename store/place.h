/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - do the names data.mdb and lock.mdb still lead to the files that are open? See place.c.
 * For lmdb.c alone.
 */
#ifndef FDRY_STORE_PLACE_H
#define FDRY_STORE_PLACE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "lib/err.h"

struct fdry_place_file {
	char *path; /* absolute; NULL: not looked at */
	dev_t dev;
	ino_t ino;
};

struct fdry_place {
	struct fdry_place_file data, lock;
};

/* Note which files are open in @dir. @lock: NULL if the process uses no lock.mdb. 0 or errno. */
int fdry_place_init(struct fdry_place *p, const char *dir, const struct stat *data,
		    const struct stat *lock) __must_check;
void fdry_place_release(struct fdry_place *p);
/* FDRY_E_STALE if a name leads to another file or to none. @dir: for the message. Any thread. */
int fdry_place_check(const struct fdry_place *p, const char *dir) __must_check;

#endif
