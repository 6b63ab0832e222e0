/* SPDX-License-Identifier: Apache-2.0 */
/*
 * telemetry.h - counters of what this process did. Part of foundry.h and of foundry/run.h. The
 * rules of foundry.h for errors, threads and units apply.
 *
 * Counting is always on; it takes no lock and costs about a nanosecond. The numbers are those of
 * the process; a forked child begins with its parent's. Documentation/design/telemetry.rst lists
 * them.
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
 * @name: such as "foundry_launches_total"; @labels: such as "of=\"image\"", or ""; @help: one line.
 *         All are static strings
 * @value: since the last reset; of a gauge: now
 * @unit: of enum fdry_telemetry_unit
 * @gauge: 1: the number goes up and down, and a reset does not change it
 */
struct fdry_telemetry {
	const char *name, *labels, *help;
	uint64_t value;
	uint32_t unit, gauge;
};

/**
 * fdry_telemetry_at() - Read every number.
 * @ret: gets at most @n numbers; may be NULL if @n is 0
 * @count: how many numbers there are; may be more than @n
 *
 * The call reads all numbers one after another. Each is exact; if other threads count at the same
 * time, the numbers are from slightly different moments. Errors: FDRY_E_INVAL.
 */
int fdry_telemetry_at(struct fdry_telemetry *ret, size_t n, size_t *count);

/* Set the counters to zero. Gauges stay, and so do the caches and buffers that they count. */
void fdry_telemetry_reset(void);

/**
 * fdry_telemetry_text() - Write every number in Prometheus' text format (version 0.0.4).
 * @store: adds the numbers of this store; NULL: only those of the process
 * @ret: text; the caller frees it with free()
 *
 * Errors: FDRY_E_NOMEM, FDRY_E_INVAL; those of reading the store.
 */
int fdry_telemetry_text(struct fdry_store *store, char **ret);

#ifdef __cplusplus
}
#endif

#endif
