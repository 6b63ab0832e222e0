// SPDX-License-Identifier: Apache-2.0
/*
 * pinned.c - pinned host memory: allocations at fixed addresses, and notes of memory that the
 * program registers itself.
 *
 * Each region has a host area (mm/host_area.h), and so has its aside area. If the capture asks for
 * that (region_pinned() of the table), the program's pinned allocations come from there. Otherwise
 * every call goes to the driver. If the area cannot provide one, the driver allocates, with a
 * warning: the program runs, and the seal refuses a graph whose kernels use that memory. An area
 * stays until the region has ended and its last allocation is freed.
 *
 * Memory that the program registers keeps its address, which is only noted.
 *
 * Locking: every use of an area holds a lock for reading; adding and removing one, and the notes,
 * hold it for writing. The region's lock may be taken inside. If there is no area and no note, no
 * lock is taken. A forked child takes none.
 */
#include "hook/regions.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/buf.h"
#include "lib/log.h"
#include "mm/host_area.h"
#include "mm/ledger.h"

#define AREAS_MAX 16

struct area {
	struct fdry_host_area *host; /* NULL: the entry is free */
	uint64_t base;
	uint64_t region; /* the number of the region that began it */
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct area areas[AREAS_MAX];
static struct fdry_ledger registered; /* memory that the program registered */
static unsigned int used;             /* areas and notes, atomic */

static bool idle(void)
{
	return !__atomic_load_n(&used, __ATOMIC_ACQUIRE) || fdry_start_is_forked();
}

static struct area *area_of(uint64_t addr)
{
	int i;

	for (i = 0; i < AREAS_MAX; i++)
		if (areas[i].host && addr - areas[i].base < FDRY_HOST_AREA_SIZE)
			return &areas[i];
	return NULL;
}

/* Free areas without allocations whose regions have ended. */
static void release_ended(void)
{
	uint64_t current = fdry_dispatch_number();
	int i;

	pthread_rwlock_wrlock(&lock);
	for (i = 0; i < AREAS_MAX; i++) {
		if (!areas[i].host || areas[i].region == current ||
		    !fdry_host_area_unused(areas[i].host))
			continue;
		fdry_host_area_free(areas[i].host);
		areas[i].host = NULL;
		__atomic_fetch_sub(&used, 1, __ATOMIC_RELEASE);
	}
	pthread_rwlock_unlock(&lock);
}

/* Add an area for the region @at; the lock is held for writing. */
static int area_add(const struct fdry_dispatch_at *at, uint64_t base)
{
	const struct fdry_driver *drv;
	int i, err;

	for (i = 0; i < AREAS_MAX && areas[i].host; i++)
		;
	if (i == AREAS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "%d ended regions still hold pinned memory; free it",
				 AREAS_MAX);
	err = fdry_driver_open(fdry_find_path(), &drv);
	if (err)
		return err;
	err = fdry_host_area_new(drv, at->dev, base, FDRY_HOST_AREA_SIZE, &areas[i].host);
	if (err) {
		fdry_driver_close(drv);
		return err;
	}
	areas[i].base = base;
	areas[i].region = at->number;
	__atomic_store_n(&fdry_regions.ended, release_ended, __ATOMIC_RELAXED);
	__atomic_fetch_add(&used, 1, __ATOMIC_RELEASE);
	return 0;
}

/* Get the area for new memory; the lock is then held for reading. */
static int area_get(const struct fdry_dispatch_at *at, struct area **ret)
{
	uint64_t base = fdry_host_area_base(at->base, at->aside);
	struct area *a;
	int err = 0;

	if (!base)
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&lock);
	a = area_of(base);
	if (a && a->region == at->number) {
		*ret = a;
		return 0;
	}
	pthread_rwlock_unlock(&lock);
	release_ended();
	pthread_rwlock_wrlock(&lock);
	a = area_of(base);
	if (a) /* its region has ended, and some of its memory is still in use */
		a->region = at->number;
	else
		err = area_add(at, base);
	pthread_rwlock_unlock(&lock);
	if (err)
		return err;
	pthread_rwlock_rdlock(&lock);
	*ret = area_of(base);
	if (*ret)
		return 0;
	pthread_rwlock_unlock(&lock);
	return fdry_fail(FDRY_E_STATE, "the region ended while pinned memory was allocated");
}

/* The flags of cuMemHostAlloc() that a host area knows. Memory is never write-combined: the flag is
 * only kept. */
#define KNOWN_FLAGS \
	(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)

/* Allocate in the area of the current region; FDRY_FOREIGN if the driver is to allocate. */
static int pinned_alloc(size_t size, unsigned int flags, void **ret)
{
	struct fdry_dispatch_at at;
	uint64_t addr = 0;
	struct area *a;
	int err;

	if (!ret || !size || flags & ~KNOWN_FLAGS || fdry_start_is_forked())
		return FDRY_FOREIGN; /* the driver returns the error */
	if (fdry_dispatch_at(true, &at))
		return FDRY_FOREIGN;
	err = area_get(&at, &a);
	if (err)
		goto out_foreign;
	err = fdry_host_area_alloc(a->host, size, fdry_capture_alloc_flags(), flags, &addr);
	pthread_rwlock_unlock(&lock);
	if (err)
		goto out_foreign;
	*ret = (void *)(uintptr_t)addr;
	return 0;
out_foreign:
	if (err != FDRY_FOREIGN)
		fdry_warn("interposer: the driver allocates %zu bytes of pinned memory, which no "
			  "image can hold: %s",
			  size, fdry_last_error());
	return FDRY_FOREIGN;
}

CUresult cuMemHostAlloc(void **ret, size_t size, unsigned int flags)
{
	return pinned_alloc(size, flags, ret) ? fdry_real(cuMemHostAlloc)(ret, size, flags)
					      : CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **ret, size_t size)
{
	return pinned_alloc(size, 0, ret) ? fdry_real(cuMemAllocHost_v2)(ret, size) : CUDA_SUCCESS;
}

CUresult cuMemAllocHost(void **ret, unsigned int size)
{
	return pinned_alloc(size, 0, ret) ? fdry_real(cuMemAllocHost)(ret, size) : CUDA_SUCCESS;
}

/* Free an allocation of an area; FDRY_FOREIGN if it is not of one. */
static int pinned_free(uint64_t addr)
{
	struct area *a;
	int err;

	if (idle())
		return FDRY_FOREIGN;
	pthread_rwlock_rdlock(&lock);
	a = area_of(addr);
	err = a ? fdry_host_area_dealloc(a->host, addr) : FDRY_FOREIGN;
	pthread_rwlock_unlock(&lock);
	if (!err)
		release_ended();
	return err;
}

CUresult cuMemFreeHost(void *p)
{
	int err = pinned_free((uintptr_t)p);

	return err == FDRY_FOREIGN ? fdry_real(cuMemFreeHost)(p) : fdry_dispatch_free_result(err);
}

/* The allocation of a host area that holds @addr; its owner is the flags of cuMemHostAlloc(). */
static bool pinned_find(uint64_t addr, struct fdry_alloc *ret)
{
	struct area *a;
	bool found;

	if (idle())
		return false;
	pthread_rwlock_rdlock(&lock);
	a = area_of(addr);
	found = a && fdry_host_area_find(a->host, addr, ret);
	pthread_rwlock_unlock(&lock);
	return found;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
	struct fdry_alloc a;

	if (!flags || !pinned_find((uintptr_t)p, &a))
		return fdry_real(cuMemHostGetFlags)(flags, p);
	*flags = (unsigned int)a.owner | CU_MEMHOSTALLOC_DEVICEMAP; /* as the driver does */
	return CUDA_SUCCESS;
}

/* --- memory that the program registers --- */

static void note(const void *p, size_t size, unsigned int flags)
{
	struct fdry_alloc a = { .addr = (uintptr_t)p, .size = size, .extent = size, .owner = flags,
				.kind = FDRY_KIND_REGISTERED };
	struct fdry_dispatch_at at;

	if (fdry_start_is_forked() || flags & CU_MEMHOSTREGISTER_IOMEMORY ||
	    fdry_dispatch_at(true, &at))
		return;
	pthread_rwlock_wrlock(&lock);
	if (fdry_ledger_add(&registered, &a))
		fdry_warn("interposer: registered memory is not noted, so no image can hold it: %s",
			  fdry_last_error());
	else
		__atomic_fetch_add(&used, 1, __ATOMIC_RELEASE);
	pthread_rwlock_unlock(&lock);
}

/* Forget the notes of memory in [@p, @p + @size), which the driver does not know any more: it was
 * unregistered, or its context was destroyed. */
static void forget(const void *p, size_t size)
{
	uint64_t addr = (uintptr_t)p;
	struct fdry_range *n;

	if (idle())
		return;
	pthread_rwlock_wrlock(&lock);
	while ((n = fdry_ranges_from(&registered.entries, addr)) && n->start < addr + size) {
		fdry_ledger_del(&registered, n->start);
		__atomic_fetch_sub(&used, 1, __ATOMIC_RELEASE);
	}
	pthread_rwlock_unlock(&lock);
}

/* The program has registered memory with result @res. To the driver an allocation is registered
 * memory, but to the program it is not. */
static CUresult registration(CUresult res, const void *p, size_t size, unsigned int flags)
{
	struct fdry_alloc a;

	if (res == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED && pinned_find((uintptr_t)p, &a))
		return CUDA_ERROR_INVALID_VALUE;
	if (res)
		return res;
	forget(p, size);
	note(p, size, flags);
	return res;
}

CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags)
{
	return registration(fdry_real(cuMemHostRegister_v2)(p, size, flags), p, size, flags);
}

CUresult cuMemHostRegister(void *p, size_t size, unsigned int flags)
{
	return registration(fdry_real(cuMemHostRegister)(p, size, flags), p, size, flags);
}

CUresult cuMemHostUnregister(void *p)
{
	struct fdry_alloc a;
	CUresult res;

	if (pinned_find((uintptr_t)p, &a))
		return CUDA_ERROR_INVALID_VALUE;
	res = fdry_real(cuMemHostUnregister)(p);
	if (!res)
		forget(p, 1);
	return res;
}

/* --- the table --- */

static int ledger_put(struct fdry_buf *ret)
{
	struct fdry_range *n;
	int i, err = 0;

	for (i = 0; i < AREAS_MAX && !err; i++)
		if (areas[i].host)
			err = fdry_host_area_ledger(areas[i].host, ret);
	fdry_ranges_each(n, &registered.entries, 0, UINT64_MAX)
		err = err ?: fdry_buf_put(ret, fdry_ledger_entry(n), sizeof(struct fdry_alloc));
	return err;
}

int fdry_hook_pinned_ledger(struct fdry_alloc **ret, size_t *count)
{
	struct fdry_buf list = { 0 };
	int err = fdry_start_forked();

	if (err)
		return err;
	pthread_rwlock_rdlock(&lock);
	err = ledger_put(&list);
	pthread_rwlock_unlock(&lock);
	if (err) {
		fdry_buf_release(&list);
		return err;
	}
	*count = list.len / sizeof(**ret);
	*ret = (struct fdry_alloc *)list.data;
	if (*count)
		qsort(*ret, *count, sizeof(**ret), fdry_alloc_cmp);
	return 0;
}

bool fdry_hook_pinned_used(CUdeviceptr addr)
{
	const struct area *a;
	bool ret;

	if (idle())
		return false;
	pthread_rwlock_rdlock(&lock);
	a = area_of(addr);
	ret = a && addr < fdry_host_area_used(a->host);
	pthread_rwlock_unlock(&lock);
	return ret;
}

/* The state in which a region claims memory at @addr. */
static int claim_at(CUdeviceptr addr, struct fdry_dispatch_at *at)
{
	int err = fdry_dispatch_at(false, at);

	if (err)
		return err == FDRY_FOREIGN ? fdry_fail(FDRY_E_STATE, "no region has begun") : err;
	at->aside = addr >= fdry_host_area_base(at->base, true);
	return 0;
}

int fdry_hook_pinned_claim(CUdeviceptr addr, uint64_t size)
{
	struct fdry_dispatch_at at;
	struct area *a;
	int err = fdry_start_forked();

	if (err)
		return err;
	err = claim_at(addr, &at);
	if (err)
		return err;
	err = area_get(&at, &a);
	if (err)
		return err == FDRY_FOREIGN ? fdry_fail(FDRY_E_STATE, "the region has no host area")
					   : err;
	err = fdry_host_area_claim(a->host, addr, size);
	pthread_rwlock_unlock(&lock);
	return err;
}

int fdry_hook_pinned_free(CUdeviceptr addr)
{
	int err = fdry_start_forked();

	if (err)
		return err;
	err = pinned_free(addr);
	return err == FDRY_FOREIGN ? fdry_fail(FDRY_E_INVAL, "%#llx lies in no host area", addr)
				   : err;
}
