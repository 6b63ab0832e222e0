/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h - the limit on the host memory that one load may allocate for an image.
 *
 * The size of an image in the store is no measure of the memory that it needs: objects are
 * compressed, graphs share arguments, and a host segment is only a number. So each load counts the
 * bytes before it allocates them, and fails before they exceed FOUNDRY_LOAD_MEMORY.
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

/* Set the limit to FOUNDRY_LOAD_MEMORY, or to half of the memory of this machine or of the process'
 * control group. FDRY_E_ENV. */
int fdry_budget_init(struct fdry_budget *b) __must_check;
/* Count @bytes more. @what names their use in the message. FDRY_E_LIMIT. Any thread.
 */
int fdry_budget_take(struct fdry_budget *b, uint64_t bytes, const char *what) __must_check;
/* Check that @bytes fit, without counting them, since they are soon freed. FDRY_E_LIMIT. */
int fdry_budget_fits(struct fdry_budget *b, uint64_t bytes, const char *what) __must_check;

#endif
