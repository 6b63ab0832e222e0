/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cupti.h - the part of CUPTI, the driver's profiling interface, that tests use: it reports the
 * cubin of every module that is loaded. CUPTI's own headers are not on every machine.
 */
#ifndef FDRY_TESTS_LIB_CUPTI_H
#define FDRY_TESTS_LIB_CUPTI_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { CUPTI_DOMAIN_RESOURCE = 3, CUPTI_MODULE_LOADED = 6 };

struct cupti_module {
	uint32_t id;
	size_t size;
	const uint8_t *cubin;
};
typedef void (*cupti_fn)(void *arg, int domain, uint32_t id, const void *data);

/* Let CUPTI call @fn inside each call that loads a module, on that call's thread. False if CUPTI
 * (the path in the environment's CUPTI, or the usual one) is missing or has a subscriber
 * already. */
bool cupti_subscribe(cupti_fn fn);

/* Return the module that a callback reports, or NULL. */
const struct cupti_module *cupti_module_of(int domain, uint32_t id, const void *data);

#endif
