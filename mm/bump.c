// SPDX-License-Identifier: Apache-2.0
/*
 * bump.c - cursor arithmetic; see bump.h.
 *
 * Every sum is checked for overflow. A function that can fail computes first and writes
 * last, so that a failure leaves everything as it was.
 */
#include "mm/bump.h"

#include <inttypes.h>
#include <stdbool.h>

static bool is_power_of_two(uint64_t v)
{
	return v && !(v & (v - 1));
}

int fdry_round_up(uint64_t v, uint64_t align, uint64_t *ret)
{
	uint64_t up;

	if (__builtin_add_overflow(v, align - 1, &up))
		return fdry_fail(FDRY_E_RANGE,
				 "%#" PRIx64 " rounded up to a multiple of %" PRIu64
				 " leaves 64 bits; "
				 "ask for less",
				 v, align);
	*ret = fdry_round_down(up, align);
	return 0;
}

int fdry_bump_init(struct fdry_bump *b, uint64_t base, uint64_t size, uint64_t unit, uint64_t block)
{
	uint64_t end;

	if (!is_power_of_two(unit) || !is_power_of_two(block) || unit > block)
		return fdry_fail(FDRY_E_INVAL,
				 "unit %" PRIu64 " and block %" PRIu64 " must be powers of two, "
				 "the unit no larger",
				 unit, block);
	if (!base || !size || base % block)
		return fdry_fail(FDRY_E_INVAL,
				 "a region of %" PRIu64 " bytes at %#" PRIx64 ": neither may be 0, "
				 "and the base must be a multiple of %" PRIu64,
				 size, base, block);
	if (__builtin_add_overflow(base, size, &end))
		return fdry_fail(FDRY_E_RANGE,
				 "a region of %" PRIu64 " bytes at %#" PRIx64
				 " leaves the address space; "
				 "choose a lower base",
				 size, base);
	*b = (struct fdry_bump){ .base = base, .size = size, .unit = unit, .block = block };
	return 0;
}

static int exhausted(const struct fdry_bump *b, uint64_t size)
{
	return fdry_fail(FDRY_E_RANGE,
			 "the region of %" PRIu64 " bytes at %#" PRIx64 " has %" PRIu64
			 " left, too few for %" PRIu64 "; reserve a larger one",
			 b->size, b->base, b->size - b->cursor, size);
}

int fdry_bump_place(const struct fdry_bump *b, uint64_t size, uint64_t align,
		    struct fdry_place *ret)
{
	uint64_t step = fdry_bump_step(b, size);
	uint64_t addr = 0, extent = 0, end;

	if (!size)
		return fdry_fail(FDRY_E_INVAL, "an allocation of 0 bytes; ask for at least 1");
	if (align && !is_power_of_two(align))
		return fdry_fail(FDRY_E_INVAL,
				 "an alignment of %" PRIu64 " bytes; it must be a power of two, "
				 "or 0 for the default",
				 align);
	if (fdry_round_up(b->base + b->cursor, align > step ? align : step, &addr) ||
	    fdry_round_up(size, step, &extent) ||
	    __builtin_add_overflow(addr, extent, &end) || end > b->base + b->size)
		return exhausted(b, size);
	*ret = (struct fdry_place){ .addr = addr, .extent = extent };
	return 0;
}

uint64_t fdry_bump_past_numbers(const struct fdry_bump *b, uint64_t addr, uint64_t size)
{
	const uint64_t all = 1ull << 32, end = b->base + b->size;
	uint64_t block = fdry_round_down(addr, all), lower = addr - block, ret;

	if (size > all - FDRY_NUMBERS_END || block > UINT64_MAX - 2 * all)
		return addr;
	if (lower > all - size)
		block += all;
	else if (lower >= FDRY_NUMBERS_END)
		return addr;
	ret = block + FDRY_NUMBERS_END;
	if (ret - addr > (b->size - b->cursor) / 16 || ret > end || size > end - ret)
		return addr;
	return ret;
}

void fdry_bump_take(struct fdry_bump *b, const struct fdry_place *p)
{
	b->cursor = p->addr + p->extent - b->base;
	if (b->touched < b->cursor)
		b->touched = b->cursor;
}

int fdry_bump_set(struct fdry_bump *b, uint64_t cursor)
{
	if (cursor > b->size)
		return fdry_fail(FDRY_E_RANGE,
				 "offset %" PRIu64 " lies outside the region of %" PRIu64
				 " bytes at %#" PRIx64,
				 cursor, b->size, b->base);
	b->cursor = cursor;
	return 0;
}
