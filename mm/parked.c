// SPDX-License-Identifier: Apache-2.0
/*
 * parked.c - reservations without memory, oldest first; see parked.h.
 */
#include "mm/parked.h"

#include <pthread.h>
#include <string.h>

#include "lib/log.h"

#define PARKED_MAX 64u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_parked parked[PARKED_MAX];
static unsigned int n;

static void forget(unsigned int i)
{
	memmove(&parked[i], &parked[i + 1], (n - i - 1) * sizeof(parked[0]));
	n--;
}

static void drop(unsigned int i)
{
	CUresult res = fdry_call_raw(parked[i].drv, cuMemAddressFree, parked[i].base, parked[i].size);

	if (res)
		fdry_warn("the addresses %#llx-%#llx could not be freed (%d)", parked[i].base,
			  parked[i].base + parked[i].size, (int)res);
	forget(i);
}

void fdry_parked_add(const struct fdry_parked *p)
{
	pthread_mutex_lock(&lock);
	if (n == PARKED_MAX)
		drop(0);
	parked[n++] = *p;
	pthread_mutex_unlock(&lock);
}

bool fdry_parked_take(const struct fdry_driver *drv, CUdeviceptr base, uint64_t size, uint64_t *ret)
{
	unsigned int i;
	bool found;

	pthread_mutex_lock(&lock);
	for (i = 0; i < n && (parked[i].drv != drv || parked[i].base != base || parked[i].size < size); i++)
		;
	found = i < n;
	if (found) {
		*ret = parked[i].size;
		forget(i);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

void fdry_parked_clear(CUdeviceptr base, uint64_t size)
{
	unsigned int i;

	pthread_mutex_lock(&lock);
	for (i = n; i; i--)
		if (parked[i - 1].base < base + size && base < parked[i - 1].base + parked[i - 1].size)
			drop(i - 1);
	pthread_mutex_unlock(&lock);
}

unsigned int fdry_parked_count(void)
{
	unsigned int ret;

	pthread_mutex_lock(&lock);
	ret = n;
	pthread_mutex_unlock(&lock);
	return ret;
}
