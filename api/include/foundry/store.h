/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - stores and packs: what holds images, how they travel, what stays and what goes. Part of foundry.h,
 * whose rules for errors, threads and units hold here.
 */
#ifndef FOUNDRY_STORE_H
#define FOUNDRY_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------ stores --- */
struct fdry_store;

/**
 * fdry_store_open() - Open a store.
 * @path: its directory; NULL: FOUNDRY_STORE, else $XDG_CACHE_HOME/foundry/store, else
 *        $HOME/.cache/foundry/store
 * @flags: of enum fdry_store_flags
 * @ret: the handle, yours until fdry_store_close()
 *
 * A store that is made is its owner's alone, or with FDRY_STORE_GROUP its group's, whatever the umask. What
 * a user who is not trusted could write to is refused: Documentation/design/store.rst, "Sharing".
 * A directory is opened once in a process however often it is asked for. A handle does
 * not survive fork: a child opens its own.
 * Errors: FDRY_E_NOSTORE (nothing there, or not a store), FDRY_E_CORRUPT (cut short),
 * FDRY_E_NETFS, FDRY_E_PERM, FDRY_E_VERSION, FDRY_E_FULL, FDRY_E_NOHOME, FDRY_E_ENV, FDRY_E_IO.
 */
int fdry_store_open(const char *path, unsigned int flags, struct fdry_store **ret);
/* Give the handle back. NULL is fine. Images loaded from it stay. */
void fdry_store_close(struct fdry_store *store);
#ifdef __cplusplus
}
#endif

#endif
