/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h - the driver that a test runs on, for tests that run on the software driver and on a
 * GPU.
 */
#ifndef FDRY_TESTS_LIB_BACKEND_H
#define FDRY_TESTS_LIB_BACKEND_H

#include <stdint.h>

#include "arch/driver.h"

struct test_backend {
	const struct fdry_driver *(*driver)(void);
	/* A module with the kernels of tests/sim/kernels.c; free() it. */
	void *(*code)(void);
	/* How many objects of a kind are alive in the driver; 0 if it does not count them. */
	long (*live)(const char *what);
	uint64_t base;  /* the first of some free device addresses */
	uint32_t spins; /* rounds of the kernel "step" that take some tens of milliseconds */
};

extern const struct test_backend backend_sim, backend_gpu;

/* The module of backend_gpu, as PTX. */
extern const char backend_ptx[];

#endif
