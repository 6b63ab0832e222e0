// SPDX-License-Identifier: Apache-2.0
/*
 * load_stats.c - counts the loads and captures of this host in lines of the store's file "used".
 *
 * A hit, a miss and a capture are one line each; "zero" begins a new count. A file that is
 * shortened holds the sums of the lines that were dropped. See Documentation/format/store.rst.
 */
#include <stdio.h>
#include <string.h>

#include "store/internal.h"

typedef unsigned long long ull;

static void miss_add(struct fdry_load_stats *s, int code, uint64_t count)
{
	uint32_t i;

	s->missed += count;
	for (i = 0; i < s->codes && s->why[i].code != code; i++)
		;
	if (i == FDRY_MISS_CODES)
		i--;
	if (i == s->codes) {
		s->why[i].code = code;
		s->codes++;
	}
	s->why[i].count += count;
}

static void hit_add(struct fdry_load_stats *s, const struct fdry_atime *image, uint64_t bytes,
		    uint64_t us)
{
	uint64_t capture_us = image ? image->took_ms * 1000 : 0;

	s->hits++;
	s->bytes += bytes;
	s->load_us += us;
	s->saved_hits += capture_us != 0;
	s->saved_us += capture_us > us ? capture_us - us : 0;
}

static void begin(struct fdry_load_stats *s, uint64_t when)
{
	if (!s->since)
		s->since = when;
}

/* "sum SINCE HITS BYTES US CAPTURES SAVED_HITS SAVED_US" */
static void sums_add(struct fdry_load_stats *s, const char *line)
{
	ull v[7];

	if (sscanf(line, "sum %10llu %15llu %18llu %18llu %15llu %15llu %18llu", &v[0], &v[1],
		   &v[2], &v[3], &v[4], &v[5], &v[6]) != 7)
		return;
	begin(s, v[0]);
	s->hits += v[1];
	s->bytes += v[2];
	s->load_us += v[3];
	s->captures += v[4];
	s->saved_hits += v[5];
	s->saved_us += v[6];
}

static void line_add(struct fdry_load_stats *s, const struct fdry_buf *all, const char *line)
{
	char hex[FDRY_OID_HEX_SIZE] = "";
	ull when, a, b;
	struct fdry_oid oid;

	if (sscanf(line, "hit %64[0-9a-f] %10llu %18llu %15llu", hex, &when, &a, &b) == 4 &&
	    !fdry_oid_parse(hex, &oid)) {
		begin(s, when);
		hit_add(s, fdry_atime_find(all, &oid), a, b);
	} else if (sscanf(line, "missed %10llu %3llu %15llu", &when, &a, &b) == 3) {
		begin(s, when);
		miss_add(s, -(int)a, b);
	} else if (sscanf(line, "took %64[0-9a-f] %10llu %12llu", hex, &when, &a) == 3) {
		begin(s, when);
		s->captures++;
	} else if (sscanf(line, "zero %10llu", &when) == 1) {
		*s = (struct fdry_load_stats){ .since = when };
	} else {
		sums_add(s, line);
	}
}

void fdry_load_stats_sum(const struct fdry_buf *text, const struct fdry_buf *all,
			 struct fdry_load_stats *ret)
{
	char line[FDRY_ATIME_LINE_MAX];
	size_t at = 0;

	*ret = (struct fdry_load_stats){ 0 };
	while (fdry_atime_next(text, &at, line))
		line_add(ret, all, line);
}

int fdry_load_stats_put(const struct fdry_load_stats *s, struct fdry_buf *ret)
{
	uint32_t i;
	int err;

	if (!s->since)
		return 0;
	err = fdry_buf_printf(ret, "sum %llu %llu %llu %llu %llu %llu %llu\n", (ull)s->since,
			      (ull)s->hits, (ull)s->bytes, (ull)s->load_us, (ull)s->captures,
			      (ull)s->saved_hits, (ull)s->saved_us);
	for (i = 0; i < s->codes && !err; i++)
		err = fdry_buf_printf(ret, "missed %llu %d %llu\n", (ull)s->since, -s->why[i].code,
				      (ull)s->why[i].count);
	return err;
}
