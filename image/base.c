// SPDX-License-Identifier: Apache-2.0
/*
 * base.c - bases of regions by name, and the list of what this process has placed.
 *
 * Which base a name has is frozen: images are sealed at it, and a process that seals one anew
 * wants the same addresses.
 *
 * A base lies where no kernel places a program, its heap or its libraries. Programs begin
 * at 0x555555554000 and, with as many random bits as distributions choose, up to 16 TiB
 * above. Libraries lie downwards from 0x7fffffffffff; where the stack's limit is high,
 * downwards from 0x155555555000; where it has none, upwards from 0x2aaaaaaaa000, up to
 * 16 TiB above. Address sanitizers have what is below 0x100080000000. Behind each base a
 * terabyte is left.
 *
 * The upper half of a base is no likely dimension of a tensor, so that two numbers side by
 * side do not look like an address: it is one of the 16 numbers after a multiple of 64,
 * and so are no multiple of 64 the first 188 GiB that follow.
 */
#include "image/base.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define DEFAULT_BASE 0x4fda00000000ull

/* Multiples of 64 that the upper half of a base follows; those around the default base are left
 * out. */
static const struct { uint32_t first, count; } slots[] = { { 86, 81 }, { 236, 83 }, { 321, 17 } };
#define SLOTS (81 + 83 + 17)

/* FNV-1a, and a last mix, since names often differ in their last letters alone. */
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

/* --- what this process has placed --- */

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
