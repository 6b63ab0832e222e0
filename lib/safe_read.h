/* SPDX-License-Identifier: Apache-2.0 */
/* safe_read.h - host memory of the program, which may be gone by now, read without a fault. */
#ifndef FDRY_LIB_SAFE_READ_H
#define FDRY_LIB_SAFE_READ_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct fdry_safe_read {
	int fd[2]; /* a pipe: the kernel looks at the memory, and answers EFAULT where there is none */
};

/* FDRY_E_IO. */
int fdry_safe_read_init(struct fdry_safe_read *ret) __must_check;
void fdry_safe_read_release(struct fdry_safe_read *p);
/* Copy @len bytes from @addr into @to, whose content is undefined after a failure. FDRY_E_RANGE where not all of them can be read. */
int fdry_safe_read(struct fdry_safe_read *p, uint64_t addr, void *to, size_t len) __must_check;

#endif
