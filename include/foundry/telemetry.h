/* SPDX-License-Identifier: Apache-2.0 */
/*
 * telemetry.h - what this process did, in numbers. Part of foundry.h, whose rules for errors,
 * threads and units hold here.
 *
 * Counting takes no lock and about a nanosecond, and is always on. Numbers are those of the
 * process; a forked child goes on from its parent's. Documentation/design/telemetry.rst lists them.
 */
#ifndef FOUNDRY_TELEMETRY_H
#define FOUNDRY_TELEMETRY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fdry_store;

enum fdry_telemetry_unit {
	FDRY_UNIT_ONE,   /* things */
	FDRY_UNIT_BYTES,
	FDRY_UNIT_NS     /* nanoseconds; the text shows seconds */
};

/**
 * struct fdry_telemetry - One number.
 * @name: such as "foundry_launches_total"; @labels: such as "of=\"image\"", or ""; @help: one line. Static strings
 * @value: since the last reset; of a gauge: now
 * @unit: of enum fdry_telemetry_unit
 * @gauge: 1: goes up and down with what is there, and a reset leaves it alone
 */
struct fdry_telemetry {
	const char *name, *labels, *help;
	uint64_t value;
	uint32_t unit, gauge;
};

/**
 * fdry_telemetry_at() - A snapshot of every number.
 * @ret: room for @n; may be NULL where @n is 0
 * @count: how many there are; may be more than @n
 *
 * All are read in one go; each is exact, and where other threads count meanwhile they are of slightly
 * different moments.
 * Errors: FDRY_E_INVAL.
 */
int fdry_telemetry_at(struct fdry_telemetry *ret, size_t n, size_t *count);

/* Counters begin at zero again. Gauges stay, and so do caches, buffers and all else that they tell of. */
void fdry_telemetry_reset(void);

/**
 * fdry_telemetry_text() - Everything in Prometheus' text format (version 0.0.4), for scrapers.
 * @store: what this store holds comes too; NULL: only what the process counted
 * @ret: yours to free()
 *
 * Errors: FDRY_E_NOMEM, FDRY_E_INVAL; those of reading the store.
 */
int fdry_telemetry_text(struct fdry_store *store, char **ret);

#ifdef __cplusplus
}
#endif

#endif
