// SPDX-License-Identifier: Apache-2.0
/*
 * start.c - knows whether CUDA was started, and whether that was before a fork.
 *
 * A driver that is only open does not mind a fork: the child starts it and has a CUDA of
 * its own. Once it was started, the child has none, and of the stand-in only locks that a
 * thread may hold which is gone.
 */
#include "hook/internal.h"

#include <pthread.h>

static bool started, forked;

static void on_fork(void)
{
	__atomic_store_n(&forked, true, __ATOMIC_RELAXED);
}

CUresult cuInit(unsigned int flags)
{
	CUresult res = fdry_real(cuInit)(flags);

	if (!res && !__atomic_exchange_n(&started, true, __ATOMIC_RELAXED))
		pthread_atfork(NULL, NULL, on_fork);
	return res;
}

bool fdry_find_forked(void)
{
	return __atomic_load_n(&forked, __ATOMIC_RELAXED);
}

int fdry_start_forked(void)
{
	if (!fdry_find_forked())
		return 0;
	return fdry_fail(FDRY_E_FORKED, "this process was forked after CUDA started and has none; start CUDA work in the "
			 "child only, or start the child as a new program (multiprocessing: the spawn method)");
}
