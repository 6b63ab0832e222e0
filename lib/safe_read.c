// SPDX-License-Identifier: Apache-2.0
/*
 * safe_read.c - read host memory through a pipe; see safe_read.h.
 *
 * A program may have unmapped memory that it named long ago, and a library must not fault. When a
 * thread writes the memory to a pipe, the kernel reads it. That needs no privilege, and every
 * sandbox permits it.
 */
#include "lib/safe_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/fd.h"

#define PIECE 4096u /* fits any pipe */

int fdry_safe_read_init(struct fdry_safe_read *ret)
{
	if (fdry_pipe(ret->fd, O_NONBLOCK))
		return fdry_fail(FDRY_E_IO, "a pipe cannot be opened: %s", strerror(errno));
	return 0;
}

void fdry_safe_read_release(struct fdry_safe_read *p)
{
	close(p->fd[0]);
	close(p->fd[1]);
}

int fdry_safe_read(struct fdry_safe_read *p, uint64_t addr, void *to, size_t len)
{
	char *out = to;
	long n;

	for (; len; addr += (size_t)n, out += n, len -= (size_t)n) {
		/* Sanitizers intercept write() and check the memory, so this is the system call. */
		n = syscall(SYS_write, p->fd[1], addr, len < PIECE ? len : PIECE);
		if (n < 0 && errno == EINTR) {
			n = 0;
			continue;
		}
		if (n <= 0)
			return fdry_fail(FDRY_E_RANGE, "host memory at %#llx cannot be read: %s",
					 (unsigned long long)addr, strerror(errno));
		if (read(p->fd[0], out, (size_t)n) != (ssize_t)n)
			return fdry_bug("a pipe returned other bytes than were written");
	}
	return 0;
}
