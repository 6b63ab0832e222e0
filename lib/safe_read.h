/* SPDX-License-Identifier: Apache-2.0 */
/* safe_read.h - read host memory of the program without a fault, even if it was unmapped. */
#ifndef FDRY_LIB_SAFE_READ_H
#define FDRY_LIB_SAFE_READ_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct fdry_safe_read {
	int fd[2]; /* a pipe: the kernel reads the memory, and returns EFAULT if there is none */
};

/* FDRY_E_IO. */
int fdry_safe_read_init(struct fdry_safe_read *ret) __must_check;
void fdry_safe_read_release(struct fdry_safe_read *p);
/* Copy @len bytes from @addr into @to. FDRY_E_RANGE if not all of them can be read; then @to is
 * undefined. */
int fdry_safe_read(struct fdry_safe_read *p, uint64_t addr, void *to, size_t len) __must_check;

#endif
