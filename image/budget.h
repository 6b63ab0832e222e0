/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h - host memory that one load may take for what an image says it needs.
 *
 * Stored bytes say little about the memory that they need: objects are compressed, graphs share
 * arguments, and a host segment is a number. So each load counts what it will take and refuses
 * before it takes more than FOUNDRY_LOAD_MEMORY.
 */
#ifndef FDRY_IMAGE_BUDGET_H
#define FDRY_IMAGE_BUDGET_H

#include <stdatomic.h>
#include <stdint.h>

#include "lib/err.h"

struct fdry_budget {
	uint64_t limit;         /* bytes */
	_Atomic uint64_t taken;
};

/* The limit is FOUNDRY_LOAD_MEMORY, or half of the memory of this machine or of the process'
 * control group. FDRY_E_ENV. */
int fdry_budget_init(struct fdry_budget *b) __must_check;
/* Count @bytes more for @what, which a sentence names. FDRY_E_LIMIT says what to raise. Any thread.
 */
int fdry_budget_take(struct fdry_budget *b, uint64_t bytes, const char *what) __must_check;
/* Whether @bytes could be had for a moment, without counting them. */
int fdry_budget_fits(struct fdry_budget *b, uint64_t bytes, const char *what) __must_check;

#endif
