/* SPDX-License-Identifier: Apache-2.0 */
/* maps.h - what lies at addresses of this process. */
#ifndef FDRY_MM_MAPS_H
#define FDRY_MM_MAPS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

/* Describe the first mapping of /proc/self/maps that overlaps [@start, @end), such as
 * "/usr/lib/libc.so.6 (0x7f00..-0x7f01..)", "anonymous (...)", or "nothing that the kernel lists".
 * Always writes a string. */
void fdry_maps_describe(uint64_t start, uint64_t end, char *text, size_t len);

/* Something mapped, [start, end). */
struct fdry_maps_range {
	uint64_t start, end;
};

/* Everything that is mapped, ascending, neighbours joined; free() it. Where the kernel does not tell, that is all there
 * could be, in one piece. */
int fdry_maps_list(struct fdry_maps_range **ret, size_t *count) __must_check;

#endif
