// SPDX-License-Identifier: Apache-2.0
/* name.c - see name.h. */
#include "graph/name.h"

#include <string.h>

#include "graph/format.h"

static const char allowed[] =
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@+/=:,";

bool fdry_graph_name_ok(struct fdry_span name)
{
	size_t i;

	for (i = 0; i < name.len; i++)
		if (!name.data[i] || !strchr(allowed, name.data[i]))
			return false;
	return name.len && name.len <= FDRY_GRAPH_HOST_NAME_MAX;
}

bool fdry_graph_name_is(struct fdry_span name, const char *text)
{
	return name.len == strlen(text) && !memcmp(name.data, text, name.len);
}
