// SPDX-License-Identifier: Apache-2.0
/* functions.c - the host functions that graphs of a capture call. */
#include "image/capture/capture.h"
#include "image/functions.h"
#include "lib/opts.h"

static int same_check(const struct fdry_capture *cap, const struct fdry_host_function *f)
{
	const struct fdry_host_function *have = fdry_array(cap->functions,
							   struct fdry_host_function);
	size_t i;

	for (i = 0; i < fdry_array_count(cap->functions, struct fdry_host_function); i++)
		if (have[i].fn == f->fn && have[i].data == f->data)
			return fdry_fail(FDRY_E_EXISTS,
					 "the host function '%s' with this argument is named '%s' "
					 "already; use that name",
					 f->name, have[i].name);
	return 0;
}

int fdry_capture_host_function(struct fdry_capture *cap, const struct fdry_host_function *function)
{
	int err = fdry_capture_check(cap) ?: fdry_need(function);

	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	err = same_check(cap, function) ?: fdry_functions_add(&cap->functions, function);
	pthread_mutex_unlock(&cap->lock);
	return err;
}
