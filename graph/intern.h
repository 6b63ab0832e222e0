/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intern.h - a table of distinct records: the same bytes always get the same index.
 *
 * Indices count from 0 in the order of first use, so the table depends only on its records and
 * their order. Records may differ in length.
 */
#ifndef FDRY_GRAPH_INTERN_H
#define FDRY_GRAPH_INTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/buf.h"

/* Zero it to start. */
struct fdry_intern {
	struct fdry_buf bytes; /* the records, one after the other */
	struct fdry_buf ends;  /* u32 each: the end of record i in bytes */
	uint32_t *slots;       /* index + 1, by hash; 0 is free */
	uint32_t nslots;       /* a power of two, or 0 */
	uint32_t count;
};

/* Add a record unless the table has it. @index: its index; @is_new (may be NULL): whether it was
 * added. */
int fdry_intern(struct fdry_intern *t, const void *rec, size_t len, uint32_t *index,
		bool *is_new) __must_check;
/* The index of a record, or false. */
bool fdry_intern_find(const struct fdry_intern *t, const void *rec, size_t len, uint32_t *index);
void fdry_intern_release(struct fdry_intern *t);

#endif
