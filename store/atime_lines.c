// SPDX-License-Identifier: Apache-2.0
/* atime_lines.c - parses the lines of the store's file "used" that are about images. */
#include <stdio.h>
#include <stdlib.h>

#include "store/internal.h"

#define LINE (FDRY_ATIME_LINE)


static bool line_parse(const char *line, struct fdry_atime *ret)
{
	char hex[FDRY_OID_HEX_SIZE];
	const char *digits = line + FDRY_OID_HEX_SIZE;

	if (line[FDRY_OID_HEX_SIZE - 1] != ' ' ||
	    strspn(digits, "0123456789") != FDRY_ATIME_DIGITS)
		return false;
	memcpy(hex, line, sizeof(hex));
	hex[sizeof(hex) - 1] = '\0';
	if (strspn(hex, "0123456789abcdef") != sizeof(hex) - 1 || fdry_oid_parse(hex, &ret->oid))
		return false;
	ret->time = strtoull(digits, NULL, 10);
	return true;
}

/* "made ID TIME", "took ID TIME MS" and "kept ID TIME MS". */
static bool other_parse(const char *line, struct fdry_atime *ret)
{
	char hex[FDRY_OID_HEX_SIZE] = "";
	unsigned long long time = 0, ms = 0;
	char word[5] = "";
	int n = sscanf(line, "%4[a-z] %64[0-9a-f] %10llu %12llu", word, hex, &time, &ms);
	bool made = !strcmp(word, "made"), kept = !strcmp(word, "kept");

	if (!(n == 3 && made) && !(n == 4 && (kept || !strcmp(word, "took"))))
		return false;
	ret->made = made || kept ? time : 0;
	ret->took_ms = ms;
	return !fdry_oid_parse(hex, &ret->oid);
}

bool fdry_atime_next(const struct fdry_buf *text, size_t *at, char line[FDRY_ATIME_LINE_MAX])
{
	const char *begin = (const char *)text->data + *at, *end;
	size_t len;

	end = *at < text->len ? memchr(begin, '\n', text->len - *at) : NULL;
	if (!end)
		return false;
	len = (size_t)(end - begin);
	*at += len + 1;
	len = len < FDRY_ATIME_LINE_MAX ? len : 0; /* no line of ours is longer */
	memcpy(line, begin, len);
	line[len] = '\0';
	return true;
}

static int lines_parse(const struct fdry_buf *text, struct fdry_buf *ret)
{
	char line[FDRY_ATIME_LINE_MAX];
	struct fdry_atime u;
	uint64_t order = 0;
	size_t at = 0;
	int err = 0;

	while (!err && fdry_atime_next(text, &at, line)) {
		order++;
		u = (struct fdry_atime){ .order = order };
		if ((strlen(line) == LINE - 1 && line_parse(line, &u)) || other_parse(line, &u))
			err = fdry_buf_put(ret, &u, sizeof(u));
	}
	return err;
}

/* By id, then the latest first. */
static int atime_cmp(const void *a, const void *b)
{
	const struct fdry_atime *x = a, *y = b;
	int order = memcmp(&x->oid, &y->oid, sizeof(x->oid));

	if (order)
		return order;
	return x->order > y->order ? -1 : x->order < y->order;
}

/* Of each image, the latest line that says something counts. */
static void latest_only(struct fdry_buf *all)
{
	struct fdry_atime *u = (void *)all->data, *to;
	size_t i, n = all->len / sizeof(*u), out = 0;

	if (n)
		qsort(u, n, sizeof(*u), atime_cmp);
	for (i = 0; i < n; i++) {
		if (!out || !fdry_oid_eq(&u[i].oid, &u[out - 1].oid)) {
			u[out++] = u[i];
			continue;
		}
		to = &u[out - 1];
		to->order = to->time ? to->order : u[i].order;
		to->time = to->time ?: u[i].time;
		to->made = to->made ?: u[i].made;
		to->took_ms = to->took_ms ?: u[i].took_ms;
	}
	all->len = out * sizeof(*u);
}

int fdry_atime_parse(const struct fdry_buf *text, struct fdry_buf *ret)
{
	int err = lines_parse(text, ret);

	if (!err)
		latest_only(ret);
	return err;
}

const struct fdry_atime *fdry_atime_find(const struct fdry_buf *all, const struct fdry_oid *oid)
{
	if (!all->len)
		return NULL;
	return bsearch(oid, all->data, all->len / sizeof(struct fdry_atime),
		       sizeof(struct fdry_atime), fdry_oid_cmp);
}
