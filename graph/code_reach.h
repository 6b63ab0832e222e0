/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code_reach.h - what some kernels of a cubin need: code, data, functions of the driver.
 *
 * A kernel reaches what it may call, read or write. The answer is never too small: anything
 * uncertain counts as reached. A slice is a smaller cubin with only the reached parts (slice.h).
 * Code that cannot be sliced is no error, since the whole cubin can still be kept; @unsliceable
 * holds the reason.
 */
#ifndef FDRY_GRAPH_CODE_REACH_H
#define FDRY_GRAPH_CODE_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/cubin.h"

struct fdry_code_reach {
	const struct fdry_cubin *cubin;
	uint8_t *sections;  /* by section: reached code with its sections, and reached data */
	uint8_t *symbols;   /* by symbol: reached code or data refers to it */
	uint8_t *variables; /* by variable: may be read or written */
	uint8_t *touched;   /* a flag for each 4 bytes of data; those of a section begin at
			       data_at[section] */
	uint32_t *data_at;
	uint8_t *whole;     /* by section: every byte of this data is reached */
	uint64_t *work;     /* the work list: sections and variables */
	uint32_t nwork;
	bool prints;       /* by the driver's printf */
	bool allocates;    /* or frees, in the device's heap */
	bool pointers;     /* calls through pointers, all of which tables of the module hold */
	char refused[200]; /* why the code cannot be restored: "calls __cudaCDP2... (dynamic
			      parallelism)"; "" if it can */
	char unsliceable[200]; /* why the code cannot be sliced; "" if it can */
};

/**
 * fdry_code_reach_init() - Find everything that kernels reach.
 * @kernels: indices into @c->kernels
 * @ret: points to @c; release it with fdry_code_reach_release()
 *
 * Errors: FDRY_E_BADCODE (malformed), FDRY_E_NOMEM.
 */
int fdry_code_reach_init(const struct fdry_cubin *c, const uint32_t *kernels, uint32_t count,
		  struct fdry_code_reach *ret) __must_check;
/* Add variables that pointers lead to, and what they reach. Not after fdry_code_reach_trim(). */
int fdry_code_reach_variables(struct fdry_code_reach *r, const uint32_t *variables,
			      uint32_t n) __must_check;
void fdry_code_reach_release(struct fdry_code_reach *r);
/* Keep only @variables and the reasons. */
void fdry_code_reach_trim(struct fdry_code_reach *r);

/* Whether a relocation at @offset of section @target (code, owned or data) is reached. */
bool fdry_code_reach_keeps(const struct fdry_code_reach *r, uint32_t target, uint64_t offset);

#endif
