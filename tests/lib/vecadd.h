/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vecadd.h - the image that the example vecadd seals, for tests that load: out = a + b, as graph 1.
 */
#ifndef FDRY_TESTS_LIB_VECADD_H
#define FDRY_TESTS_LIB_VECADD_H

#include <check.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "foundry.h"
#include "tests/lib/gpu.h"
#include "tests/lib/test.h"
#include "tests/lib/drv.h"

#define N 100003
#define BYTES (N * sizeof(float))
#define KEY 1

extern char vecadd_dir[64]; /* the store */

/* Seal the image in a process of its own. Afterwards the driver is open and device 0's context is
 * current, as in a program that uses CUDA itself. */
bool vecadd_make(void);

/* Run @s in this process, since forked children cannot use its driver. Returns main()'s result. */
int vecadd_run(Suite *s);

#endif
