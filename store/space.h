/* SPDX-License-Identifier: Apache-2.0 */
/* space.h - checks for free disk space and free address space. */
#ifndef FDRY_STORE_SPACE_H
#define FDRY_STORE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

/* Is the disk of @dir nearly full, or a file of @size bytes near the limit on file sizes, so that a
 * write may have failed for it? @e: the errno for that; written only then. */
bool fdry_space_nearly_full(const char *dir, uint64_t size, int *e);
/* Are @bytes of address space free now? */
bool fdry_space_address(uint64_t bytes);

#endif
