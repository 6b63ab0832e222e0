// SPDX-License-Identifier: Apache-2.0
/*
 * maps.c - reads /proc/self/maps.
 *
 * Names things for messages and so never fails: what cannot be read is not there.
 */
#include "mm/maps.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line: "start-end perms offset dev inode   path". */
static bool line_overlaps(char *line, uint64_t start, uint64_t end, char *text, size_t len)
{
	uint64_t from, to;
	int at = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %n", &from, &to, &at) < 2)
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
	char *line = NULL;
	size_t room = 0;

	snprintf(text, len, "nothing that the kernel lists");
	while (f && getline(&line, &room, f) > 0)
		if (line_overlaps(line, start, end, text, len))
			break;
	free(line);
	if (f)
		fclose(f);
}
