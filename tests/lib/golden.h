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

/* A number that looks random and is the same in every run. */
uint32_t golden_random(uint32_t *state);
typedef void (*golden_fn)(struct fdry_span bytes);

/*
 * Hand @fn the file cut off at some @cuts places and with some @flips single bits turned.
 * What @fn does must end well or with an error; the sanitizers see the rest.
 */
void golden_damage(const char *name, unsigned int cuts, unsigned int flips, golden_fn fn);

#endif
