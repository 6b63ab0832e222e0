/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden.h - the device code in tests/golden/cubin, and ways to damage it.
 *
 * Everything here ends the test on failure. Tests run in the root of the tree.
 */
#ifndef FDRY_TESTS_LIB_GOLDEN_H
#define FDRY_TESTS_LIB_GOLDEN_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "tests/lib/test.h"

/* A file's bytes, in memory of exactly its size, so that sanitizers see reads beyond it; free()
 * data. */
struct fdry_span golden_read(const char *name);
void golden_free(struct fdry_span s);

/* The first @len bytes in memory of their own. */
struct fdry_span golden_cut(struct fdry_span s, size_t len);

/* Return a pseudo-random number, the same in every run. */
uint32_t golden_random(uint32_t *state);
typedef void (*golden_fn)(struct fdry_span bytes);

/*
 * Call @fn with the file truncated at about @cuts places, and with about @flips single bits
 * inverted (a quarter of them under the thread sanitizer). @fn must succeed or return an error;
 * sanitizers detect other faults.
 */
void golden_damage(const char *name, unsigned int cuts, unsigned int flips, golden_fn fn);

#endif
