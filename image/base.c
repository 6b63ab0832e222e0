// SPDX-License-Identifier: Apache-2.0
/*
 * base.c - bases of regions by name, and the list of what this process has placed.
 *
 * The base of a name must never change: images are sealed at it, and a process that seals an image
 * again expects the same addresses.
 *
 * A base lies where no operating system kernel places a program, its heap or its libraries.
 * Programs begin between 0x555555554000 and 16 TiB above, depending on the random bits that the
 * distribution configures. Libraries lie below 0x7fffffffffff. If the stack's limit is high, they
 * lie below 0x155555555000. If the stack has no limit, they lie from 0x2aaaaaaaa000 up to 16 TiB
 * above. Address sanitizers use the addresses below 0x100080000000. At least a terabyte is free
 * after each base.
 *
 * A seal searches memory for words that look like addresses of the region. Two 32-bit dimensions of
 * a tensor, side by side, must not look like one, and dimensions are often multiples of 64. So the
 * upper half of a base is one of the 16 numbers after a multiple of 64, and no multiple of 64
 * occurs in the upper halves of the 188 GiB that follow.
 */
#include "image/base.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define DEFAULT_BASE 0x4fda00000000ull

/* The upper half of a base follows 64 times one of these numbers. The numbers around the default
 * base are left out. */
static const struct { uint32_t first, count; } slots[] = { { 86, 81 }, { 236, 83 }, { 321, 17 } };
#define SLOTS (81 + 83 + 17)

/* FNV-1a with a final mix, since names often differ only in their last letters. */
static uint64_t name_hash(const char *name)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001b3ull;
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdull;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ull;
	return h ^ h >> 33;
}

fdry_devptr fdry_base_for_name(const char *name)
{
	uint64_t h, word;
	uint32_t slot;
	size_t i;

	if (!name || !*name)
		return DEFAULT_BASE;
	h = name_hash(name);
	slot = (uint32_t)(h % SLOTS);
	for (i = 0; slot >= slots[i].count; i++)
		slot -= slots[i].count;
	word = 64ull * (slots[i].first + slot) + 1 + (h >> 32) % 16;
	return word << 32 | (h >> 40) % 16 << 28;
}

/* --- the addresses that this process uses --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_placed *list;

void fdry_placed_add(struct fdry_placed *p)
{
	pthread_mutex_lock(&lock);
	p->next = list;
	list = p;
	pthread_mutex_unlock(&lock);
}

void fdry_placed_remove(struct fdry_placed *p)
{
	struct fdry_placed **at;

	pthread_mutex_lock(&lock);
	for (at = &list; *at && *at != p; at = &(*at)->next)
		;
	if (*at)
		*at = p->next;
	pthread_mutex_unlock(&lock);
}

int fdry_placed_fail(int err, uint64_t base, uint64_t size)
{
	const struct fdry_placed *p;
	char what[sizeof(p->what)] = "";

	if (err != -FDRY_E_TAKEN)
		return err;
	pthread_mutex_lock(&lock);
	for (p = list; p; p = p->next)
		if (p->base < base + size && base < p->base + p->size)
			memcpy(what, p->what, sizeof(what));
	pthread_mutex_unlock(&lock);
	return *what ? fdry_fail_at(err, "%s of this process lies there", what) : err;
}
