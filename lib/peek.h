/* SPDX-License-Identifier: Apache-2.0 */
/* peek.h - host memory of the program, which may be gone by now, read without a fault. */
#ifndef FDRY_LIB_PEEK_H
#define FDRY_LIB_PEEK_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

struct fdry_peek {
	int fd[2]; /* a pipe: the kernel looks at the memory, and answers EFAULT where there is none */
};

/* FDRY_E_IO. */
int fdry_peek_open(struct fdry_peek *ret) __must_check;
void fdry_peek_close(struct fdry_peek *p);
/* Copy @len bytes from @addr into @to, whose content is undefined after a failure. FDRY_E_RANGE where not all of them can be read. */
int fdry_peek(struct fdry_peek *p, uint64_t addr, void *to, size_t len) __must_check;

#endif
