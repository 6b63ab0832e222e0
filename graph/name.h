/* SPDX-License-Identifier: Apache-2.0 */
/* name.h - names of host functions and semaphores, in nodes. */
#ifndef FDRY_GRAPH_NAME_H
#define FDRY_GRAPH_NAME_H

#include <stdbool.h>

#include "lib/buf.h"

/* Whether a graph object may hold @name. */
bool fdry_graph_name_ok(struct fdry_span name);
bool fdry_graph_name_is(struct fdry_span name, const char *text);

#endif
