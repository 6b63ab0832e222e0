// SPDX-License-Identifier: Apache-2.0
/*
 * maps.c - reads /proc/self/maps.
 *
 * Allocates a stream's buffer and nothing else; a line that is longer than the buffer
 * loses the end of its path.
 */
#include "mm/maps.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Read on behind the part of a long line that did not fit. */
static void skip_line(FILE *f, const char *line)
{
	int c;

	if (strchr(line, '\n'))
		return;
	do
		c = getc(f);
	while (c != '\n' && c != EOF);
}

/* One line: "start-end perms offset dev inode   path". */
static bool line_overlaps(char *line, uint64_t start, uint64_t end, char *text, size_t len)
{
	uint64_t from, to;
	int at = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %n", &from, &to, &at) < 2 || !at)
		return false;
	if (from >= end || to <= start)
		return false;
	line[strcspn(line, "\n")] = '\0';
	snprintf(text, len, "%s (%#" PRIx64 "-%#" PRIx64 ")", line[at] ? line + at : "anonymous", from, to);
	return true;
}

void fdry_maps_describe(uint64_t start, uint64_t end, char *text, size_t len)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];

	snprintf(text, len, "nothing that the kernel lists");
	while (f && fgets(line, sizeof(line), f)) {
		skip_line(f, line);
		if (line_overlaps(line, start, end, text, len))
			break;
	}
	if (f)
		fclose(f);
}
