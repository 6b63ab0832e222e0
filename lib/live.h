/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.h - which objects callers have, so that one that was freed is an error and not a use after free.
 *
 * A table of addresses. It is read without a lock, so that a launch can afford to look. An object that is freed by one
 * thread while another thread is inside a call with it is still the callers' fault: nothing here holds an object.
 */
#ifndef FDRY_LIB_LIVE_H
#define FDRY_LIB_LIVE_H

#include "lib/err.h"

/* @obj is about to be given to a caller. */
void fdry_live_add(const void *obj);
/* FDRY_E_STALE: no caller has @obj; @what it is called, such as "the image". */
int fdry_live_check(const void *obj, const char *what) __must_check;
/* The same, and from here on no caller has it: who gets 0 frees it. */
int fdry_live_end(const void *obj, const char *what) __must_check;

#endif
