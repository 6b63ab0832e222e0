/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - other users, other PID namespaces and mounts, for tests of a shared store.
 *
 * The rights of the test's user differ: root can become any user; others can at most make
 * namespaces. A child reports its result by its exit status; NOT_ALLOWED means that it could not
 * begin. It must not use Check.
 */
#ifndef FDRY_TESTS_LIB_SHARE_H
#define FDRY_TESTS_LIB_SHARE_H

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/lib/store.h"

#define NOT_ALLOWED 200

/* User and group ids that no user has. */
enum { MAKER = 54321, MEMBER = 54322, STRANGER = 54323, GROUP = 54400 };

int share_wait(pid_t pid);

/* Run @fn in a child, and return its result, 0 to 255. */
int share_child(int (*fn)(void *arg), void *arg);

/* Become another user, in GROUP if @member. Only root can. */
int become(uid_t uid, bool member);

/* Print the failure on standard error, for the log of a failed test. Returns @where. */
int share_say(int where);

/* Is @err -@want, and does the message contain @text? */
bool share_refused(int err, enum fdry_errcode want, const char *text);

/* Seal an image of @n chunks in a child. Returns 0 or an error. */
int share_seal(struct fdry_store *s, uint64_t seed, size_t n, size_t len, const char *ref);

/* Read every byte that share_seal() wrote, as a load does. Returns 0 or an error. */
int share_load(struct fdry_store *s, uint64_t seed, size_t n, size_t len, const char *ref);

/* Enter new namespaces, among them a user namespace if this process is not root. Mounts there are
 * not visible outside. */
int unshare_as_root(int flags);

/* Enter a mount namespace. Returns NOT_ALLOWED if the machine does not permit that. */
int own_mounts(void);

#endif
