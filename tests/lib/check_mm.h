/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_mm.h - checks that the parts of a region agree with each other.
 *
 * Each function returns 0, or -FDRY_E_BUG with a message.
 */
#ifndef FDRY_TESTS_LIB_CHECK_MM_H
#define FDRY_TESTS_LIB_CHECK_MM_H

#include "mm/internal.h"

int check_bump(const struct fdry_bump *b);
/* Allocations lie in [@start, @end) and do not overlap; the counts are right. */
int check_ledger(const struct fdry_ledger *l, CUdeviceptr start, CUdeviceptr end);
int check_free_ranges(const struct fdry_ranges *s);
int check_stream_pool(const struct fdry_stream_pool *p);
/* Check all parts of a region. Locks the region. */
int check_region(struct fdry_region *r);

#endif
