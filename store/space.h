/* SPDX-License-Identifier: Apache-2.0 */
/* space.h - what the system has left: of disk, of address space. */
#ifndef FDRY_STORE_SPACE_H
#define FDRY_STORE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

/* Is so little left on the disk of @dir, or under the limit on a file of @size bytes, that a write may have failed for it?
 * @e: as which errno; written where it is. */
bool fdry_space_nearly_full(const char *dir, uint64_t size, int *e);
/* Are @bytes of address space there, at this moment? */
bool fdry_space_address(uint64_t bytes);

#endif
