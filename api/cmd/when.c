// SPDX-License-Identifier: Apache-2.0
/* when.c - times and durations as text. */
#include "api/cmd/cmd.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MINUTE 60u
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

struct cmd_when cmd_age(uint64_t seconds)
{
	static const struct {
		uint64_t below, unit;
		const char *name;
	} steps[] = {
		{ 2 * MINUTE, 1, "s" },	  { 2 * HOUR, MINUTE, "min" },
		{ 2 * DAY, HOUR, "h" },	  { 60 * DAY, DAY, "days" },
		{ 730 * DAY, 30 * DAY, "months" }, { UINT64_MAX, 365 * DAY, "years" },
	};
	uint64_t now = (uint64_t)time(NULL), age = now > seconds ? now - seconds : 0;
	struct cmd_when w = { "-" };
	size_t i;

	if (!seconds)
		return w;
	for (i = 0; age >= steps[i].below; i++)
		;
	snprintf(w.text, sizeof(w.text), "%llu %s ago", (unsigned long long)(age / steps[i].unit),
		 steps[i].name);
	return w;
}

struct cmd_when cmd_date(uint64_t seconds)
{
	struct cmd_when w = { "-" };
	time_t t = (time_t)seconds;
	struct tm tm;

	if (seconds && gmtime_r(&t, &tm))
		strftime(w.text, sizeof(w.text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return w;
}

struct cmd_when cmd_duration(double ms)
{
	struct cmd_when w;

	if (ms < 10)
		snprintf(w.text, sizeof(w.text), "%.1f ms", ms);
	else if (ms < 1e4)
		snprintf(w.text, sizeof(w.text), "%.0f ms", ms);
	else if (ms < 2e3 * MINUTE)
		snprintf(w.text, sizeof(w.text), "%.0f s", ms / 1e3);
	else if (ms < 2e3 * HOUR)
		snprintf(w.text, sizeof(w.text), "%.0f min", ms / 1e3 / MINUTE);
	else
		snprintf(w.text, sizeof(w.text), "%.0f h", ms / 1e3 / HOUR);
	return w;
}

static bool day_parse(const char *text, uint64_t *ret)
{
	struct tm tm = { 0 };
	const char *end = strptime(text, "%Y-%m-%d", &tm);
	int day = tm.tm_mday;
	time_t t = end && !*end ? timegm(&tm) : -1;

	*ret = (uint64_t)t;
	return t >= 0 && tm.tm_mday == day; /* else the month has no such day */
}

int cmd_parse_when(const char *text, const char *what, uint64_t *ret)
{
	static const struct {
		char letter;
		uint64_t seconds;
	} units[] = { { 's', 1 }, { 'm', MINUTE }, { 'h', HOUR }, { 'd', DAY }, { 'w', 7 * DAY } };
	uint64_t now = (uint64_t)time(NULL);
	unsigned long long n;
	char *end;
	size_t i;

	if (day_parse(text, ret))
		return 0;
	n = strtoull(text, &end, 10);
	for (i = 0; i < sizeof(units) / sizeof(units[0]) && units[i].letter != *end; i++)
		;
	if (*text < '0' || *text > '9' || i == sizeof(units) / sizeof(units[0]) || end[1] ||
	    n > now / units[i].seconds)
		return fdry_fail(FDRY_E_INVAL,
				 "'%.80s' is not %s; write a day such as 2026-11-23, or a number "
				 "followed by s, m, h, d or w",
				 text, what);
	*ret = now - n * units[i].seconds;
	return 0;
}
