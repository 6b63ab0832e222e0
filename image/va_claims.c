// SPDX-License-Identifier: Apache-2.0
/*
 * va_claims.c - the list of claims, each with the number of its users; see va_claims.h.
 */
#include "image/va_claims.h"

#include <pthread.h>
#include <stdlib.h>

#include "mm/range.h"

/* A region refuses a claim that overlaps another allocation, so claims do not overlap. */
struct claim {
	struct fdry_range range;
	uint64_t users; /* 0: its memory could not be freed, so the next user gets it */
	bool pinned; /* of a host area */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_ranges claims;

/* The claim that begins at @addr, or NULL. Needs the lock. */
static struct claim *claim_at(CUdeviceptr addr)
{
	struct fdry_range *r = fdry_ranges_floor(&claims, addr);

	return r && r->start == addr ? (struct claim *)r : NULL; /* range is its first member */
}

static bool claim_is(const struct claim *c, uint64_t size)
{
	return c && c->range.end - c->range.start == size;
}

/* @end: 0 for pinned memory */
static int claim_new(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size, CUdeviceptr end)
{
	struct claim *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return fdry_nomem();
	err = fdry_interposer_result(hook, end ? hook->region_claim(addr, size, end)
					       : hook->pinned_claim(addr, size));
	if (err) {
		free(c);
		return err;
	}
	c->range.start = addr;
	c->range.end = addr + size;
	c->users = 1;
	c->pinned = !end;
	fdry_ranges_add(&claims, &c->range);
	return 0;
}

/* If there is a claim of another size, the region refuses the new one, and its message names the
 * old one. */
static int claim_get(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size, CUdeviceptr end)
{
	struct claim *c;
	int err = 0;

	pthread_mutex_lock(&lock);
	c = claim_at(addr);
	if (claim_is(c, size))
		c->users++;
	else
		err = claim_new(hook, addr, size, end);
	pthread_mutex_unlock(&lock);
	return err;
}

int fdry_va_claim_get(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size,
		      CUdeviceptr end)
{
	return claim_get(hook, addr, size, end);
}

int fdry_va_claim_pinned_get(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size)
{
	return claim_get(hook, addr, size, 0);
}

bool fdry_va_claim_exists(CUdeviceptr addr, uint64_t size)
{
	bool exists;

	pthread_mutex_lock(&lock);
	exists = claim_is(claim_at(addr), size);
	pthread_mutex_unlock(&lock);
	return exists;
}

void fdry_va_claim_put(const struct fdry_hook *hook, CUdeviceptr addr)
{
	struct claim *c;

	pthread_mutex_lock(&lock);
	c = claim_at(addr);
	if (c && !--c->users && !(c->pinned ? hook->pinned_free(addr) : hook->region_free(addr))) {
		fdry_ranges_del(&claims, &c->range);
		free(c);
	}
	pthread_mutex_unlock(&lock);
}
