// SPDX-License-Identifier: Apache-2.0
/*
 * start.c - detect whether CUDA was started before a fork.
 *
 * If the driver is only open at a fork, the child can start CUDA of its own. If CUDA was started,
 * the child cannot use it, and locks of the interposer may be held by threads that do not exist in
 * the child.
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

bool fdry_start_is_forked(void)
{
	return __atomic_load_n(&forked, __ATOMIC_RELAXED);
}

int fdry_start_forked(void)
{
	if (!fdry_start_is_forked())
		return 0;
	return fdry_fail(
		FDRY_E_FORKED,
		"this process was forked after CUDA started and has none; start CUDA work in the "
		"child only, or start the child as a new program (multiprocessing: the spawn "
		"method)");
}
