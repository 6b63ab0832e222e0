/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.h - calls that may end in an assertion of LMDB; only for the files that include db.h.
 *
 * LMDB's handler of assertions jumps to the innermost guard of its thread.
 */
#ifndef FDRY_STORE_GUARD_H
#define FDRY_STORE_GUARD_H

#include <setjmp.h>

/* A guarded call returns this if an assertion of LMDB failed; neither LMDB nor errno uses the
 * number. */
#define DB_ASSERTED (-1)
/* LMDB may have got descriptor 0, 1 or 2. */
#define DB_LOW (-2)

struct guard {
	jmp_buf env;
	struct guard *outer;
};

extern __thread struct guard *fdry_guard; /* the innermost of the thread */

#define guarded(call) ({ \
	struct guard guard_ = { .outer = fdry_guard }; \
	volatile int rc_ = DB_ASSERTED; \
	fdry_guard = &guard_; \
	if (!_setjmp(guard_.env)) \
		rc_ = (call); \
	fdry_guard = guard_.outer; \
	rc_; })

#endif
