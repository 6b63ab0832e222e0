// SPDX-License-Identifier: Apache-2.0
/* space.c - what the system has left; see space.h. */
#include "store/space.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

/* If more than this is free, a write did not fail for want of space. */
#define NEARLY_FULL (16ull << 20)

bool fdry_space_nearly_full(const char *dir, uint64_t size, int *e)
{
	struct rlimit limit;
	struct statvfs vfs;

	if (!statvfs(dir, &vfs) && (uint64_t)vfs.f_bavail * vfs.f_frsize < NEARLY_FULL) {
		*e = ENOSPC;
		return true;
	}
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
	    size + NEARLY_FULL > limit.rlim_cur) {
		*e = EFBIG;
		return true;
	}
	return false;
}

bool fdry_space_address(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p != MAP_FAILED && !munmap(p, bytes);
}
