// SPDX-License-Identifier: Apache-2.0
/*
 * va_claims.c - what images have claimed in regions, with how many share it; see va_claims.h.
 */
#include "image/va_claims.h"

#include <pthread.h>
#include <stdlib.h>

struct claim {
	struct claim *next;
	CUdeviceptr addr;
	uint64_t size;
	uint64_t users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct claim *claims;

/* The pointer to the claim at @addr, or the end of the list. */
static struct claim **claim_at(CUdeviceptr addr)
{
	struct claim **p;

	for (p = &claims; *p && (*p)->addr != addr; p = &(*p)->next)
		;
	return p;
}

static int claim_new(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size)
{
	struct claim *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return fdry_nomem();
	err = fdry_interposer_result(hook, hook->region_claim(addr, size));
	if (err) {
		free(c);
		return err;
	}
	*c = (struct claim){ .next = claims, .addr = addr, .size = size, .users = 1 };
	claims = c;
	return 0;
}

int fdry_va_claim_get(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size)
{
	struct claim *c;
	int err = 0;

	pthread_mutex_lock(&lock);
	c = *claim_at(addr);
	if (c && c->size == size)
		c->users++;
	else
		err = claim_new(
			hook, addr,
			size); /* of another size there: the region says what is in the way */
	pthread_mutex_unlock(&lock);
	return err;
}

bool fdry_va_claim_exists(CUdeviceptr addr, uint64_t size)
{
	struct claim *c;
	bool held;

	pthread_mutex_lock(&lock);
	c = *claim_at(addr);
	held = c && c->size == size;
	pthread_mutex_unlock(&lock);
	return held;
}

void fdry_va_claim_put(const struct fdry_hook *hook, CUdeviceptr addr)
{
	struct claim **p, *c;

	pthread_mutex_lock(&lock);
	p = claim_at(addr);
	c = *p;
	if (c && !--c->users) {
		*p = c->next;
		(void)hook->region_free(addr);
		free(c);
	}
	pthread_mutex_unlock(&lock);
}
