/* SPDX-License-Identifier: Apache-2.0 */
/* maps.h - lists the memory mappings of this process. */
#ifndef FDRY_MM_MAPS_H
#define FDRY_MM_MAPS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

/* Describe the first mapping of /proc/self/maps that overlaps [@start, @end), such as
 * "/usr/lib/libc.so.6 (0x7f00..-0x7f01..)", "anonymous (...)", or "nothing that the kernel lists".
 * Always writes a string. */
void fdry_maps_describe(uint64_t start, uint64_t end, char *text, size_t len);

/* A mapped range, [start, end). */
struct fdry_maps_range {
	uint64_t start, end;
};

/* All mapped ranges, ascending, with neighbours joined; free() the list. If the kernel does not
 * list them, it is one range with all addresses. */
int fdry_maps_list(struct fdry_maps_range **ret, size_t *count) __must_check;

#endif
