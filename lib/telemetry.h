/* SPDX-License-Identifier: Apache-2.0 */
/*
 * telemetry.h - counters that cost about a nanosecond and take no lock.
 *
 * Each thread adds to numbers that only it writes; a snapshot sums them up. A thread that ends
 * leaves its block, with the numbers, to the next thread. So no count is lost, and there are never
 * more blocks than the most threads that ran at one time.
 */
#ifndef FDRY_LIB_TELEMETRY_H
#define FDRY_LIB_TELEMETRY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"

enum fdry_metric_id {
#define FDRY_METRIC(id, kind, unit, name, labels, help) FDRY_METRIC_##id,
#include "lib/telemetry.def"
#undef FDRY_METRIC
	FDRY_METRICS
};

enum fdry_metric_kind { FDRY_METRIC_COUNTER, FDRY_METRIC_GAUGE };
enum fdry_metric_unit { FDRY_METRIC_ONE, FDRY_METRIC_BYTES, FDRY_METRIC_NS };

/* One line of telemetry.def. */
struct fdry_metric_info {
	enum fdry_metric_kind kind;
	enum fdry_metric_unit unit;
	const char *name, *labels, *help;
};

extern const struct fdry_metric_info fdry_metric_infos[FDRY_METRICS];

/* This thread's numbers; NULL until its first count, and while it is ending. */
extern __thread _Atomic uint64_t *fdry_metrics_mine;

void fdry_count_first(enum fdry_metric_id id, uint64_t n);

/* Any thread may count at any time; counting orders no other access. The first count of a thread
 * takes a block. */
static inline void fdry_count(enum fdry_metric_id id, uint64_t n)
{
	_Atomic uint64_t *mine = fdry_metrics_mine;

	if (__builtin_expect(!mine, 0))
		fdry_count_first(id, n);
	else
		atomic_store_explicit(&mine[id],
				      atomic_load_explicit(&mine[id], memory_order_relaxed) + n,
				      memory_order_relaxed);
}

/* Add @n, which may be negative, to a gauge. One thread may lower what another has raised. */
static inline void fdry_gauge(enum fdry_metric_id id, int64_t n)
{
	fdry_count(id, (uint64_t)n);
}

/* Count a copy of @bytes by the driver: TO the device, FROM it, or ON it. */
#define fdry_count_copy(which, bytes) \
	(fdry_count(FDRY_METRIC_COPIES_##which, 1), fdry_count(FDRY_METRIC_COPIED_##which, bytes))
/* Count milliseconds, the unit of reports. */
#define fdry_count_ms(id, ms) fdry_count(id, (uint64_t)((ms) * 1e6))

/* Count an error with code 0 to 999. This never allocates, so it counts errors of every kind. */
void fdry_count_error(unsigned int code);

/* The counters since the last reset, and the gauges. Each number is exact. If other threads count
 * meanwhile, the numbers belong to slightly different moments. */
void fdry_telemetry_read(uint64_t values[FDRY_METRICS]);
/* Reset the counters to zero. Gauges stay. */
void fdry_telemetry_zero(void);

/* --- the text for scrapers --- */

/**
 * fdry_metric_print() - Append one line of Prometheus' text format.
 * @before: the metric printed before; NULL: none. A new name gets its HELP and TYPE lines
 */
int fdry_metric_print(struct fdry_buf *b, const struct fdry_metric_info *m,
		      const struct fdry_metric_info *before, uint64_t value) __must_check;
/* Append all metrics of this process. */
int fdry_telemetry_print(struct fdry_buf *b) __must_check;
/* Append @text with the escapes of a quoted label. */
int fdry_label_print(struct fdry_buf *b, const char *text) __must_check;

#endif
