// SPDX-License-Identifier: Apache-2.0
/*
 * load_opts.c - checks the options of a load, and keeps what they bind to names.
 */
#include "image/load_opts.h"

#include "image/functions.h"
#include "image/place.h"
#include "image/semaphores.h"

int fdry_load_opts_check(const struct fdry_load_opts *o)
{
	const uint32_t known = FDRY_LOAD_VERIFY | FDRY_LOAD_POISON | FDRY_LOAD_BUILD |
			       FDRY_LOAD_BACKGROUND | FDRY_LOAD_OWN_CONTEXT |
			       FDRY_LOAD_CHECK_OVERLAP | FDRY_LOAD_ORDERED |
			       FDRY_LOAD_CHECK_AT_LAUNCH;

	if (o->flags & ~known)
		return fdry_fail(
			FDRY_E_OPTS,
			"fdry_image_load() does not know the flags %#x; use a newer library",
			o->flags & ~known);
	if (o->nfacts && !o->facts)
		return fdry_fail(FDRY_E_OPTS, "fdry_load_opts.nfacts is %zu, but facts is NULL",
				 o->nfacts);
	if (o->norder && !o->order)
		return fdry_fail(FDRY_E_OPTS,
				 "fdry_load_opts.norder is %zu, but order is NULL",
				 o->norder);
	if (o->nfunctions && !o->functions)
		return fdry_fail(FDRY_E_OPTS,
				 "fdry_load_opts.nfunctions is %zu, but functions is NULL",
				 o->nfunctions);
	if (o->nsemaphores && !o->semaphores)
		return fdry_fail(FDRY_E_OPTS,
				 "fdry_load_opts.nsemaphores is %zu, but semaphores is NULL",
				 o->nsemaphores);
	if (o->nsemaphores && o->flags & FDRY_LOAD_OWN_CONTEXT)
		return fdry_fail(FDRY_E_OPTS,
				 "semaphores belong to the context in which they were imported; "
				 "load without FDRY_LOAD_OWN_CONTEXT");
	if (o->reserved)
		return fdry_fail(FDRY_E_OPTS,
				 "the reserved field of struct fdry_load_opts is %u; set it to 0",
				 o->reserved);
	return fdry_placement_check(o);
}

int fdry_load_opts_bind(const struct fdry_load_opts *o, struct fdry_image *img)
{
	return fdry_functions_take(&img->functions, o) ?: fdry_semaphores_take(&img->semaphores, o);
}
