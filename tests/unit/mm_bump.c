// SPDX-License-Identifier: Apache-2.0
/*
 * The bump allocator, exhaustively: every operation in every state that a region of a few bytes can
 * reach. This covers every sequence of operations of any length. The results are compared with a
 * model that finds addresses by trying them one by one. Then come tests at the limits of 64 bits.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "mm/bump.h"
#include "tests/lib/test.h"
#include "tests/lib/check_mm.h"

enum { UNIT = 2, BLOCK = 8, BASE = 16, SIZE = 44 };

/* --- the model: no arithmetic, only trying --- */

struct model {
	uint64_t cursor;
	uint64_t touched;
};

static uint64_t first_multiple(uint64_t from, uint64_t of)
{
	while (from % of)
		from++;
	return from;
}

static bool model_place(const struct model *m, uint64_t size, uint64_t align,
			struct fdry_place *ret)
{
	uint64_t step = size >= BLOCK ? BLOCK : UNIT, addr, i;

	if (!size || size > SIZE || (align && align != 1 && align != 4 && align != 16))
		return false;
	for (addr = BASE + m->cursor; addr % step || (align && addr % align); addr++)
		;
	for (i = 0; i < first_multiple(size, step); i++)
		if (addr + i >= BASE + SIZE)
			return false;
	*ret = (struct fdry_place){ addr, i };
	return true;
}

/* --- every sequence --- */

struct op {
	bool set;
	uint64_t arg;
	uint64_t align;
};

static const uint64_t sizes[] = { 0, 1, 2, 3, 7, 8, 9, 16, 17, 44, 45, UINT64_MAX };
static const uint64_t aligns[] = { 0, 1, 3, 4, 16 };

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define CURSORS (SIZE + 3) /* 0 .. SIZE + 1, UINT64_MAX */
#define OPS (COUNT(sizes) * COUNT(aligns) + CURSORS)

static struct op op_nr(size_t i)
{
	size_t allocs = COUNT(sizes) * COUNT(aligns);

	if (i < allocs)
		return (struct op){ .arg = sizes[i / COUNT(aligns)],
				    .align = aligns[i % COUNT(aligns)] };
	return (struct op){ .set = true, .arg = i - allocs < SIZE + 2 ? i - allocs : UINT64_MAX };
}

static int step_alloc(struct fdry_bump *b, struct model *m, const struct op *op)
{
	struct fdry_place want = { 77, 77 }, got = { 77, 77 };
	bool fits = model_place(m, op->arg, op->align, &want);
	bool bad = !op->arg || op->align == 3;
	int ret = fdry_bump_place(b, op->arg, op->align, &got);

	if (ret != (fits  ? 0
		    : bad ? -FDRY_E_INVAL
			  : -FDRY_E_RANGE) ||
	    got.addr != want.addr || got.extent != want.extent)
		return -1;
	if (!fits)
		return 0;
	fdry_bump_take(b, &got);
	m->cursor = want.addr + want.extent - BASE;
	m->touched = m->cursor > m->touched ? m->cursor : m->touched;
	return 0;
}

static int step_set(struct fdry_bump *b, struct model *m, const struct op *op)
{
	bool inside = op->arg <= SIZE;

	if (inside)
		m->cursor = op->arg;
	return fdry_bump_set(b, op->arg) == (inside ? 0 : -FDRY_E_RANGE) ? 0 : -1;
}

/* States that were reached, and those whose operations are not tried yet. */
static bool seen[SIZE + 1][SIZE + 1];
static struct fdry_bump todo[(SIZE + 1) * (SIZE + 1)];
static size_t ntodo;

static void reach(const struct fdry_bump *b)
{
	if (seen[b->cursor][b->touched])
		return;
	seen[b->cursor][b->touched] = true;
	todo[ntodo++] = *b;
}

/* Everything that can be done in state @b. */
static void try_all(const struct fdry_bump *b)
{
	size_t i;

	for (i = 0; i < OPS; i++) {
		struct model m = { b->cursor, b->touched };
		struct fdry_bump next = *b;
		struct op op = op_nr(i);
		int ret = (op.set ? step_set : step_alloc)(&next, &m, &op);

		if (ret || check_bump(&next) || next.cursor != m.cursor ||
		    next.touched != m.touched)
			ck_abort_msg("%s(%lu, %lu) at cursor %lu, mark %lu: now %lu and %lu, the "
				     "model says %lu and %lu",
				     op.set ? "set" : "alloc", (unsigned long)op.arg,
				     (unsigned long)op.align, (unsigned long)b->cursor,
				     (unsigned long)b->touched, (unsigned long)next.cursor,
				     (unsigned long)next.touched, (unsigned long)m.cursor,
				     (unsigned long)m.touched);
		reach(&next);
	}
}

START_TEST(every_sequence)
{
	struct fdry_bump b;
	size_t states = 0;

	ck_assert_int_eq(fdry_bump_init(&b, BASE, SIZE, UNIT, BLOCK), 0);
	reach(&b);
	for (; ntodo; states++) {
		b = todo[--ntodo];
		try_all(&b);
	}
	/* Every cursor with every mark that an allocation can leave, and the untouched region. */
	ck_assert_uint_eq(states, (SIZE + 1) * (1 + SIZE / UNIT));
}
END_TEST

/* --- the edges --- */

START_TEST(init_refuses)
{
	struct fdry_bump b, before;

	memset(&b, 0x5a, sizeof(b));
	before = b;
	ck_assert_int_eq(fdry_bump_init(&b, 0, 64, 2, 8), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_bump_init(&b, 64, 0, 2, 8), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_bump_init(&b, 68, 64, 2, 8), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_bump_init(&b, 64, 64, 0, 8), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_bump_init(&b, 64, 64, 3, 8), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_bump_init(&b, 64, 64, 2, 12), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_bump_init(&b, 64, 64, 16, 8), -FDRY_E_INVAL);
	ck_assert_int_eq(fdry_bump_init(&b, 64, UINT64_MAX - 63, 2, 8), -FDRY_E_RANGE);
	ck_assert_mem_eq(&b, &before, sizeof(b));
	ck_assert_int_eq(fdry_bump_init(&b, 64, UINT64_MAX - 64, 2, 8), 0);
	ck_assert_int_eq(check_bump(&b), 0);
}
END_TEST

/* A region that ends at the last address: no size near 2^64 wraps into it. */
START_TEST(nothing_wraps)
{
	const uint64_t block = 2u << 20, base = -(64 * block);
	struct fdry_place p = { 1, 1 };
	struct fdry_bump b;
	uint64_t i;

	ck_assert_int_eq(fdry_bump_init(&b, base, 64 * block - 1, 512, block), 0);
	for (i = 0; i < 3 * block; i += 511) {
		ck_assert_int_eq(fdry_bump_place(&b, UINT64_MAX - i, 0, &p), -FDRY_E_RANGE);
		ck_assert_int_eq(fdry_bump_place(&b, 1 + i, 1ull << 63, &p), -FDRY_E_RANGE);
	}
	ck_assert(p.addr == 1 && p.extent == 1);
	ck_assert_int_eq(fdry_bump_place(&b, 63 * block, 0, &p), 0);
	fdry_bump_take(&b, &p);
	ck_assert_int_eq(check_bump(&b), 0);
	ck_assert_int_eq(fdry_bump_place(&b, block, 0, &p), -FDRY_E_RANGE);
	ck_assert_int_eq(fdry_bump_place(&b, block - 512, 0, &p), 0);
	fdry_bump_take(&b, &p);
	ck_assert_int_eq(check_bump(&b), 0);
	ck_assert_uint_eq(b.cursor, 64 * block - 512);
	ck_assert_int_eq(fdry_bump_place(&b, 1, 0, &p), -FDRY_E_RANGE);
	ck_assert_int_eq(fdry_bump_set(&b, 64 * block - 1), 0);
	ck_assert_int_eq(fdry_bump_place(&b, 1, 0, &p), -FDRY_E_RANGE);
}
END_TEST

START_TEST(rounding)
{
	uint64_t v = 7;

	ck_assert_int_eq(fdry_round_up(0, 512, &v), 0);
	ck_assert_uint_eq(v, 0);
	ck_assert_int_eq(fdry_round_up(513, 512, &v), 0);
	ck_assert_uint_eq(v, 1024);
	ck_assert_int_eq(fdry_round_up(UINT64_MAX - 511, 512, &v), 0);
	ck_assert_uint_eq(v, UINT64_MAX - 511);
	ck_assert_int_eq(fdry_round_up(UINT64_MAX - 510, 512, &v), -FDRY_E_RANGE);
	ck_assert_uint_eq(v, UINT64_MAX - 511);
	ck_assert_uint_eq(fdry_round_down(UINT64_MAX, 512), UINT64_MAX - 511);
}
END_TEST

START_TEST(addresses_past_numbers)
{
	const uint64_t base = 0x41cc00000000, past = base + FDRY_NUMBERS_END;
	const uint64_t next = past + (1ull << 32), most = (1ull << 32) - FDRY_NUMBERS_END;
	struct fdry_bump b = { .base = base, .size = 64ull << 30, .unit = 512, .block = 2u << 20 };

	ck_assert_uint_eq(fdry_bump_past_numbers(&b, base, 512), past);
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, past - 512, 512), past);
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, past, 512), past);
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, past + 512, most - 512), past + 512);
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, past + 512, most), next);
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, base + 0xfffffe00, 512), base + 0xfffffe00);
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, base + 0xfffffe00, 1024), next);
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, base, most + 512), base);
	ck_assert_uint_eq(past % FDRY_NUMBERS_STEP, 0);
	b.cursor = b.size - 16ull * FDRY_NUMBERS_END;
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, base, 512), past);
	b.cursor += 16;
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, base, 512), base);
	b = (struct fdry_bump){ .base = base, .size = 64ull << 30 };
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, base + (15ull << 32), most),
			  past + (15ull << 32));
	b.size -= 512;
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, base + (15ull << 32), most),
			  base + (15ull << 32));
	b = (struct fdry_bump){ .base = UINT64_MAX - (64ull << 30), .size = 64ull << 30 };
	ck_assert_uint_eq(fdry_bump_past_numbers(&b, UINT64_MAX - 511, 512), UINT64_MAX - 511);
}
END_TEST

#ifdef NDEBUG /* a broken invariant stops a debug build */
START_TEST(check_sees_what_is_broken)
{
	static const struct fdry_bump good = {
		.base = 16, .size = 44, .cursor = 4, .touched = 8, .unit = 2, .block = 8
	};
	struct fdry_bump b = good;

	ck_assert_int_eq(check_bump(&b), 0);
	b.cursor = 45;
	ck_assert_int_eq(check_bump(&b), -FDRY_E_BUG);
	b = good, b.touched = 45;
	ck_assert_int_eq(check_bump(&b), -FDRY_E_BUG);
	b = good, b.size = UINT64_MAX - 8;
	ck_assert_int_eq(check_bump(&b), -FDRY_E_BUG);
	b = good, b.base = 20;
	ck_assert_int_eq(check_bump(&b), -FDRY_E_BUG);
	b = good, b.unit = 3;
	ck_assert_int_eq(check_bump(&b), -FDRY_E_BUG);
}
END_TEST
#endif

int main(void)
{
	Suite *s = suite_create("mm_bump");
	TCase *tc = tcase_create("bump");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, every_sequence);
	tcase_add_test(tc, init_refuses);
	tcase_add_test(tc, nothing_wraps);
	tcase_add_test(tc, rounding);
	tcase_add_test(tc, addresses_past_numbers);
#ifdef NDEBUG
	tcase_add_test(tc, check_sees_what_is_broken);
#endif
	suite_add_tcase(s, tc);
	return test_main(s);
}
