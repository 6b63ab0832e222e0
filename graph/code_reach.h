/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code_reach.h - what some kernels of a cubin need: code, data, and the driver's own functions.
 *
 * The answer is never too small: what cannot be told counts as reached. What makes a slice
 * impossible is a reason (@unsliceable), not an error, since the whole cubin can still be kept.
 */
#ifndef FDRY_GRAPH_CODE_REACH_H
#define FDRY_GRAPH_CODE_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/cubin.h"

struct fdry_code_reach {
	const struct fdry_cubin *cubin;
	uint8_t *sections;  /* by section: code, what belongs to it, and data that is reached */
	uint8_t *symbols;   /* by symbol: referred to by code or data that is reached */
	uint8_t *variables; /* by variable: may be read or written */
	uint8_t *touched;   /* by byte / 4 of data sections, at data_at[section] */
	uint32_t *data_at;
	uint8_t *whole;     /* by section: data of which every byte is reached */
	uint64_t *work;     /* sections and variables still to look at */
	uint32_t nwork;
	char refused[200];  /* "calls vprintf (device printf)": why it cannot be restored; "" where it can */
	char unsliceable[200];      /* why it cannot be sliced; "" where it can */
};

/**
 * fdry_code_reach_init() - Find what kernels reach.
 * @kernels: indices into @c->kernels
 * @ret: release it with fdry_code_reach_release(); needs @c
 *
 * Errors: FDRY_E_BADCODE (malformed), FDRY_E_NOMEM.
 */
int fdry_code_reach_init(const struct fdry_cubin *c, const uint32_t *kernels, uint32_t count,
		  struct fdry_code_reach *ret) __must_check;
void fdry_code_reach_release(struct fdry_code_reach *r);

/* Is a relocation of section @target (code, owned or data) at @offset part of what is reached? */
bool fdry_code_reach_keeps(const struct fdry_code_reach *r, uint32_t target, uint64_t offset);

#endif
