// SPDX-License-Identifier: Apache-2.0
/*
 * va_cache.c - reservations without memory, oldest first; see va_cache.h.
 */
#include "mm/va_cache.h"

#include <pthread.h>
#include <string.h>

#include "lib/log.h"

#define VA_CACHE_MAX 64u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_va_cached cached[VA_CACHE_MAX];
static unsigned int n;

static void forget(unsigned int i)
{
	memmove(&cached[i], &cached[i + 1], (n - i - 1) * sizeof(cached[0]));
	n--;
}

static void drop(unsigned int i)
{
	CUresult res =
		fdry_call_raw(cached[i].drv, cuMemAddressFree, cached[i].base, cached[i].size);

	if (res)
		fdry_warn("the addresses %#llx-%#llx could not be freed (%d)", cached[i].base,
			  cached[i].base + cached[i].size, (int)res);
	forget(i);
}

void fdry_va_cache_add(const struct fdry_va_cached *p)
{
	pthread_mutex_lock(&lock);
	if (n == VA_CACHE_MAX)
		drop(0);
	cached[n++] = *p;
	pthread_mutex_unlock(&lock);
}

bool fdry_va_cache_take(const struct fdry_driver *drv, CUdeviceptr base, uint64_t size,
			uint64_t *ret)
{
	unsigned int i;
	bool found;

	pthread_mutex_lock(&lock);
	for (i = 0;
	     i < n && (cached[i].drv != drv || cached[i].base != base || cached[i].size < size);
	     i++)
		;
	found = i < n;
	if (found) {
		*ret = cached[i].size;
		forget(i);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

void fdry_va_cache_clear(CUdeviceptr base, uint64_t size)
{
	unsigned int i;

	pthread_mutex_lock(&lock);
	for (i = n; i; i--)
		if (cached[i - 1].base < base + size &&
		    base < cached[i - 1].base + cached[i - 1].size)
			drop(i - 1);
	pthread_mutex_unlock(&lock);
}

