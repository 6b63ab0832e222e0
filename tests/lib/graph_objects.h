/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_objects.h - graph objects for tests: from golden files, and single fields of them.
 *
 * Tests run in the root of the tree.
 */
#ifndef FDRY_TESTS_LIB_GRAPH_OBJECTS_H
#define FDRY_TESTS_LIB_GRAPH_OBJECTS_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/oid.h"
#include "graph/graph.h"

#define GOLDEN "tests/golden/graph/"

static const char *const golden_names[] = { "by-hand",  "empty", "all-kinds",
					    "optional", "host",  "short", "children",
					    "functions", "memops", "conditions",
					    "semaphores", "arrays" };
#define GOLDEN_COUNT (sizeof(golden_names) / sizeof(golden_names[0]))

struct fdry_span span_of(const struct fdry_buf *b);

/* A whole file of the golden folder; the caller releases it. */
struct fdry_buf golden_file(const char *name, const char *suffix);

/* Make the object that a text describes. */
struct fdry_buf object_of(struct fdry_span text);
struct fdry_buf golden_object(const char *name);
struct fdry_buf object_of_string(const char *text);
struct fdry_buf text_of(const struct fdry_buf *object);

/* The offset of the directory entry of a section. */
size_t entry_of(const struct fdry_buf *object, uint32_t id);

/* The offset of a section's bytes. */
size_t section_of(const struct fdry_buf *object, uint32_t id);

#endif
