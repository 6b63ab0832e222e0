/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.h - the objects that callers own, so that using a freed object is an error and no use after
 * free.
 *
 * A table of addresses, which threads read without a lock, so that a launch can afford the look-up.
 * The table holds no reference: callers must not free an object while another thread is in a call
 * with it.
 */
#ifndef FDRY_LIB_LIVE_H
#define FDRY_LIB_LIVE_H

#include "lib/err.h"

/* Enter @obj, before a call returns it to the caller. */
void fdry_live_add(const void *obj);
/* FDRY_E_STALE if no caller owns @obj. @what: its name in the message, such as "the image". */
int fdry_live_check(const void *obj, const char *what) __must_check;
/* The same, and remove @obj: the one thread for which this returns 0 frees the object. */
int fdry_live_end(const void *obj, const char *what) __must_check;

#endif
