// SPDX-License-Identifier: Apache-2.0
/*
 * stakes.c - what images have claimed in regions, with how many share it; see stakes.h.
 */
#include "image/stakes.h"

#include <pthread.h>
#include <stdlib.h>

struct stake {
	struct stake *next;
	CUdeviceptr addr;
	uint64_t size;
	uint64_t users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stake *stakes;

/* Where the claim at @addr hangs, or the end of the list. */
static struct stake **stake_at(CUdeviceptr addr)
{
	struct stake **p;

	for (p = &stakes; *p && (*p)->addr != addr; p = &(*p)->next)
		;
	return p;
}

static int stake_new(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size)
{
	struct stake *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return fdry_nomem();
	err = fdry_standin_result(hook, hook->region_claim(addr, size));
	if (err) {
		free(c);
		return err;
	}
	*c = (struct stake){ .next = stakes, .addr = addr, .size = size, .users = 1 };
	stakes = c;
	return 0;
}

int fdry_stake_take(const struct fdry_hook *hook, CUdeviceptr addr, uint64_t size)
{
	struct stake *c;
	int err = 0;

	pthread_mutex_lock(&lock);
	c = *stake_at(addr);
	if (c && c->size == size)
		c->users++;
	else
		err = stake_new(hook, addr, size); /* of another size there: the region says what is in the way */
	pthread_mutex_unlock(&lock);
	return err;
}

bool fdry_stake_held(CUdeviceptr addr, uint64_t size)
{
	struct stake *c;
	bool held;

	pthread_mutex_lock(&lock);
	c = *stake_at(addr);
	held = c && c->size == size;
	pthread_mutex_unlock(&lock);
	return held;
}

void fdry_stake_drop(const struct fdry_hook *hook, CUdeviceptr addr)
{
	struct stake **p, *c;

	pthread_mutex_lock(&lock);
	p = stake_at(addr);
	c = *p;
	if (c && !--c->users) {
		*p = c->next;
		(void)hook->region_free(addr);
		free(c);
	}
	pthread_mutex_unlock(&lock);
}
