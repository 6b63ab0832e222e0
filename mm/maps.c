// SPDX-License-Identifier: Apache-2.0
/*
 * maps.c - reads /proc/self/maps.
 *
 * A description for a message never fails: a mapping that cannot be read is left out. For the list
 * the opposite holds: addresses whose state cannot be read count as mapped.
 */
#include "mm/maps.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/fd.h"

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
	snprintf(text, len, "%s (%#" PRIx64 "-%#" PRIx64 ")", line[at] ? line + at : "anonymous",
		 from, to);
	return true;
}

void fdry_maps_describe(uint64_t start, uint64_t end, char *text, size_t len)
{
	FILE *f = fdry_fopen_read("/proc/self/maps");
	char *line = NULL;
	size_t capacity = 0;

	snprintf(text, len, "nothing that the kernel lists");
	while (f && getline(&line, &capacity, f) > 0)
		if (line_overlaps(line, start, end, text, len))
			break;
	free(line);
	if (f)
		fclose(f);
}

static int range_put(struct fdry_buf *list, uint64_t start, uint64_t end)
{
	struct fdry_maps_range r = { start, end }, *last;

	last = list->len ? (struct fdry_maps_range *)(list->data + list->len) - 1 : NULL;
	if (!last || last->end != start)
		return fdry_buf_put(list, &r, sizeof(r));
	last->end = end;
	return 0;
}

static int lines_put(FILE *f, struct fdry_buf *list)
{
	char *line = NULL;
	uint64_t from, to;
	size_t capacity = 0;
	int err = 0;

	while (getline(&line, &capacity, f) > 0) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &to) != 2)
			continue;
		err = range_put(list, from, to);
		if (err)
			goto out_free;
	}
	if (ferror(f))
		list->len = 0; /* the rest of the list is unknown */
out_free:
	free(line);
	return err;
}

int fdry_maps_list(struct fdry_maps_range **ret, size_t *count)
{
	FILE *f = fdry_fopen_read("/proc/self/maps");
	struct fdry_buf list = { 0 };
	int err = f ? lines_put(f, &list) : 0;

	if (f)
		fclose(f);
	if (err)
		goto out_release;
	if (!list.len)
		err = range_put(&list, 0, UINT64_MAX);
	if (err)
		goto out_release;
	*ret = (struct fdry_maps_range *)list.data;
	*count = list.len / sizeof(**ret);
	return 0;
out_release:
	fdry_buf_release(&list);
	return err;
}
