// SPDX-License-Identifier: Apache-2.0
/*
 * start.c - detects whether CUDA was started before a fork.
 *
 * If the driver was only opened before a fork, the child can start CUDA itself. If CUDA was
 * started, the child cannot use it. Threads that do not exist in the child may then hold locks of
 * the interposer.
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
		"this process was forked after CUDA started, so it cannot use CUDA; start CUDA "
		"work in the "
		"child only, or start the child as a new program (multiprocessing: the spawn "
		"method)");
}
