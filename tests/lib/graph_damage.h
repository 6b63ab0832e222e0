/* SPDX-License-Identifier: Apache-2.0 */
/* graph_damage.h - writes over one field of a golden graph object, and checks the refusal. */
#ifndef FDRY_TESTS_LIB_GRAPH_DAMAGE_H
#define FDRY_TESTS_LIB_GRAPH_DAMAGE_H

#include "tests/lib/graph_objects.h"

#define HEADER(field) \
	0, offsetof(struct fdry_graph_header, field), sizeof(((struct fdry_graph_header *)0)->field)
#define ENTRY(id, field) FDRY_GSEC_##id, offsetof(struct fdry_section, field), \
			 sizeof(((struct fdry_section *)0)->field) | DIRECTORY
#define IN(id, at, size) FDRY_GSEC_##id, at, size
#define DIRECTORY 0x100 /* in the directory entry, not in the section */

/* Write @value over a field; opening must say @says. */
struct damage {
	uint32_t section; /* 0: the header */
	size_t at;
	unsigned int size;
	uint64_t value;
	enum fdry_errcode code;
	const char *says;
};

/* Check that @err, and the message, are those of @d. */
void graph_damage_fails(const struct damage *d, int err);
/* Damage the golden object @name, and check that it is refused. */
void graph_damage_try(const char *name, const struct damage *d);

#endif
