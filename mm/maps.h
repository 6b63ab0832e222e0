/* SPDX-License-Identifier: Apache-2.0 */
/* maps.h - what lies at an address of this process, for error messages. */
#ifndef FDRY_MM_MAPS_H
#define FDRY_MM_MAPS_H

#include <stddef.h>
#include <stdint.h>

/* Describe the first mapping of /proc/self/maps that overlaps [@start, @end), such as
 * "/usr/lib/libc.so.6 (0x7f00..-0x7f01..)", "anonymous (...)", or "nothing that the kernel lists".
 * Always writes a string. */
void fdry_maps_describe(uint64_t start, uint64_t end, char *text, size_t len);

#endif
