/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - other users, other PID namespaces and mounts, for tests of a shared store.
 *
 * Permissions differ: root can become any user, and other users can make namespaces, or not even
 * that. A child reports its result by its exit status; NOT_ALLOWED means that it could not begin.
 * It must not use Check.
 */
#ifndef FDRY_TESTS_LIB_SHARE_H
#define FDRY_TESTS_LIB_SHARE_H

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/lib/store.h"

#define NOT_ALLOWED 200

/* Numbers that are nobody's. */
enum { MAKER = 54321, MEMBER = 54322, STRANGER = 54323, GROUP = 54400 };

int share_wait(pid_t pid);
int share_child(int (*fn)(void *arg), void *arg);

/* Become another user, in GROUP where @member; only root can. */
int become(uid_t uid, bool member);

/* Say on standard error what went wrong, for whoever reads a failed test; gives @where. */
int share_say(int where);

/* Answer -@want with a message that holds @text? */
bool share_refused(int err, enum fdry_errcode want, const char *text);

/* An image of @n chunks in a child: 0 or an error. */
int share_seal(struct fdry_store *s, uint64_t seed, size_t n, size_t len, const char *ref);

/* Get what share_seal() put, every byte of it, as a load does: 0 or an error. */
int share_load(struct fdry_store *s, uint64_t seed, size_t n, size_t len, const char *ref);

/* Get new namespaces, a user's among them where this process is not root; nothing that is mounted
 * there is seen outside. */
int unshare_as_root(int flags);

/* A namespace of mounts of its own: NOT_ALLOWED where that may not be. */
int own_mounts(void);

#endif
