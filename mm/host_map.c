// SPDX-License-Identifier: Apache-2.0
/*
 * host_map.c - maps and registers host memory at fixed addresses; see host_map.h.
 */
#include "mm/host_map.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/log.h"
#include "mm/maps.h"

/* Larger mappings use huge pages if the kernel has some, which are faster to pin. */
#define HUGE_MIN (2ull << 20)

void *fdry_host_pages(uint64_t addr, uint64_t size, size_t *len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = addr / page * page;

	*len = (size_t)((addr + size - from + page - 1) / page * page);
	return (void *)(uintptr_t)from;
}

int fdry_host_map_check(const struct fdry_driver *drv, CUdevice dev)
{
	int same = 0, err;

	err = fdry_call(drv, cuDeviceGetAttribute, &same,
			CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, dev);
	if (err || same)
		return err;
	return fdry_fail(FDRY_E_DRIVER, "device %d uses other addresses for registered host memory "
					"than the host, so pinned memory cannot be restored on it",
			 dev);
}

int fdry_host_reserve(uint64_t addr, uint64_t size)
{
	char what[160];
	size_t len;
	void *want = fdry_host_pages(addr, size, &len), *p;

	p = mmap(want, len, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (p == MAP_FAILED && errno != EEXIST)
		return fdry_fail(FDRY_E_NOMEM, "%zu bytes of host addresses at %p: %m", len, want);
	if (p == want && !madvise(p, len, MADV_DONTFORK))
		return 0;
	if (p != MAP_FAILED)
		munmap(p, len); /* kernels before 4.17 do not know the flag, and map elsewhere */
	fdry_maps_describe((uintptr_t)want, (uintptr_t)want + len, what, sizeof(what));
	return fdry_fail(FDRY_E_TAKEN,
			 "the %zu bytes of host addresses at %p that pinned memory needs are in "
			 "use: %s",
			 len, want, what);
}

void fdry_host_unreserve(uint64_t addr, uint64_t size)
{
	size_t len;
	void *p = fdry_host_pages(addr, size, &len);

	munmap(p, len);
}

/* Drop the memory of pages and forbid access. */
static void pages_drop(uint64_t addr, uint64_t size)
{
	size_t len;
	void *p = fdry_host_pages(addr, size, &len);

	if (madvise(p, len, MADV_DONTNEED) || mprotect(p, len, PROT_NONE))
		fdry_warn("%zu bytes of host memory at %p are not freed: %m", len, p);
}

int fdry_host_back(const struct fdry_driver *drv, uint64_t addr, uint64_t size)
{
	void *own = (void *)(uintptr_t)addr;
	size_t len;
	void *p = fdry_host_pages(addr, size, &len);
	int err;

	if (mprotect(p, len, PROT_READ | PROT_WRITE))
		return fdry_fail(FDRY_E_NOMEM, "%zu bytes of host memory: %m", len);
	if (len >= HUGE_MIN)
		(void)madvise(p, len, MADV_HUGEPAGE);
	err = fdry_call(drv, cuMemHostRegister_v2, own, (size_t)size,
			CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (!err)
		return 0;
	pages_drop(addr, size);
	if (err != -FDRY_E_NODEVMEM)
		return err;
	return fdry_fail(FDRY_E_NOMEM,
			 "the driver cannot pin %llu bytes of host memory; free some, or allow the "
			 "process more locked memory",
			 (unsigned long long)size);
}

CUresult fdry_host_unback(const struct fdry_driver *drv, uint64_t addr, uint64_t size)
{
	CUresult res = fdry_call_raw(drv, cuMemHostUnregister, (void *)(uintptr_t)addr);

	if (!res)
		pages_drop(addr, size);
	return res;
}
