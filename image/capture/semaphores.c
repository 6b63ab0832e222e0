// SPDX-License-Identifier: Apache-2.0
/* semaphores.c - the semaphores that graphs of a capture signal or wait for. */
#include "image/capture/capture.h"
#include "image/semaphores.h"

static int same_check(const struct fdry_capture *cap, const struct fdry_semaphore *s)
{
	const struct fdry_semaphore *have = fdry_array(cap->semaphores, struct fdry_semaphore);
	size_t i;

	for (i = 0; i < fdry_array_count(cap->semaphores, struct fdry_semaphore); i++)
		if (have[i].semaphore == s->semaphore)
			return fdry_fail(FDRY_E_EXISTS,
					 "the semaphore '%s' is named '%s' already; use that name",
					 s->name, have[i].name);
	return 0;
}

int fdry_capture_semaphore(struct fdry_capture *cap, const char *name,
			   CUexternalSemaphore semaphore)
{
	const struct fdry_semaphore s = { .name = name, .semaphore = semaphore };
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	err = same_check(cap, &s) ?: fdry_semaphores_add(&cap->semaphores, &s);
	pthread_mutex_unlock(&cap->lock);
	return err;
}
