// SPDX-License-Identifier: Apache-2.0
/*
 * safe_read.c - host memory read through a pipe; see safe_read.h.
 *
 * Nothing says whether memory that a program named an hour ago is still there, and a
 * fault in a library is not an answer. A write to a pipe reads the memory in the kernel,
 * needs no privilege and is in every sandbox.
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
		/* Not write(), which sanitizers stand in for: it is the kernel that looks. */
		n = syscall(SYS_write, p->fd[1], addr, len < PIECE ? len : PIECE);
		if (n < 0 && errno == EINTR) {
			n = 0;
			continue;
		}
		if (n <= 0)
			return fdry_fail(FDRY_E_RANGE, "host memory at %#llx cannot be read: %s", (unsigned long long)addr,
					 strerror(errno));
		if (read(p->fd[0], out, (size_t)n) != (ssize_t)n)
			return fdry_bug("a pipe gives other bytes than it took");
	}
	return 0;
}
