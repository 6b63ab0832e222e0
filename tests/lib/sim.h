/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - the software driver, for unit tests.
 *
 * Each test must call test_sim() itself: Check forks a process for each test, and a driver's
 * threads do not survive a fork. Everything here ends the test on failure.
 */
#ifndef FDRY_TESTS_LIB_SIM_H
#define FDRY_TESTS_LIB_SIM_H

#include <check.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "arch/driver.h"
#include "arch/stream.h"
#include "tests/lib/sanitizers.h"

/*
 * A device address that is free under every sanitizer and in every process; 64 gigabytes
 * follow. The thread sanitizer leaves programs few addresses: these lie below the
 * addresses of their code, and no library and no store's map, small under that sanitizer, comes
 * near.
 */
#define TEST_BASE (TEST_SANITIZED_THREAD ? 0x551000000000ull : 0x500000000000ull)

/* A file of the build folder, which tests/run names. */
const char *test_built(const char *name);
const struct fdry_driver *test_sim_open(void);

/* The software driver, with device 0's primary context retained and current to this thread. */
const struct fdry_driver *test_sim(void);

/* A function that the software driver exports, as a pointer of any function type. */
void *test_sim_symbol(const char *name);

/* Functions that control the software driver; arch/sim/control.h describes them. */
void test_sim_fail(const char *spec);
unsigned long test_sim_failed(void);
unsigned long test_sim_calls(const char *function);
long test_sim_live(const char *what);

/* Return the number of live objects. The caller keeps device 0's primary context; its shared
 * streams are made first, since they stay with it. */
long test_sim_before(void);

/* tests/sim/NAME.c as device code; free() it. */
void *test_sim_cubin(const char *name, size_t *len);

/* The same as PTX, which the software driver compiles to exactly these bytes; free() it. */
char *test_sim_ptx(const char *name, size_t *len);

#endif
