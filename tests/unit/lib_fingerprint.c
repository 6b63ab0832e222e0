// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of fingerprints: the vectors of Documentation/format/fingerprint.rst, each way to
 * compute them, and the kinds of damage that must change them. Tests of damage collect the
 * fingerprint of each damaged input: no two may be equal.
 */
#include "lib/fingerprint.c"

#include <check.h>
#include <stdlib.h>
#include <string.h>


#define BLOCK FDRY_FINGERPRINT_BLOCK
#define ROW FDRY_FINGERPRINT_ROW
#define CHUNK ((size_t)2 << 20)

static uint8_t *bytes; /* of the vectors: CHUNK and a few more */
static struct fdry_fingerprint *seen;
static size_t nseen, capacity;

static void setup(void)
{
	size_t i;

	bytes = malloc(CHUNK + 64);
	ck_assert_ptr_nonnull(bytes);
	for (i = 0; i < CHUNK + 64; i++)
		bytes[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
	seen = NULL;
	nseen = capacity = 0;
}

static void teardown(void)
{
	free(bytes);
	free(seen);
}

static void collect(const uint8_t *at, size_t len)
{
	if (nseen == capacity) {
		capacity = capacity ? 2 * capacity : 1024;
		seen = realloc(seen, capacity * sizeof(*seen));
		ck_assert_ptr_nonnull(seen);
	}
	seen[nseen++] = fdry_fingerprint_of(at, len);
}

static int seen_cmp(const void *x, const void *y)
{
	const struct fdry_fingerprint *l = x, *r = y;

	if (l->a != r->a)
		return l->a < r->a ? -1 : 1;
	return l->b < r->b ? -1 : l->b > r->b;
}

static void all_differ(void)
{
	size_t i;

	ck_assert_uint_gt(nseen, 1);
	qsort(seen, nseen, sizeof(*seen), seen_cmp);
	for (i = 1; i < nseen; i++)
		ck_assert(!fdry_fingerprint_eq(seen[i - 1], seen[i]));
}

static void swap(size_t x, size_t y, size_t len)
{
	uint8_t keep;
	size_t i;

	for (i = 0; i < len; i++) {
		keep = bytes[x + i];
		bytes[x + i] = bytes[y + i];
		bytes[y + i] = keep;
	}
}

/* --- the value --- */

static const struct {
	size_t len;
	struct fdry_fingerprint pattern, zeros;
} vectors[] = {
	{ 0,
	  { 0xef25ec59c067a9d5u, 0x7ba208290607f78fu },
	  { 0xef25ec59c067a9d5u, 0x7ba208290607f78fu } },
	{ 1,
	  { 0xda1781a476510751u, 0x15770de0ebd30c21u },
	  { 0xda1781a476510751u, 0x15770de0ebd30c21u } },
	{ 15,
	  { 0x8b212590c31a7b7du, 0xbbf537c9f0538516u },
	  { 0x67e445a03adbe2ebu, 0xb589d437caeea3b8u } },
	{ 16,
	  { 0x18c9863474c7dca8u, 0xd417f49e409cc385u },
	  { 0xca6a3b794c588cf4u, 0xe348408f824ba0beu } },
	{ 17,
	  { 0x6a933b18638e52adu, 0x8078bf0cf0667eefu },
	  { 0xc5ebcaeafdb197d6u, 0x1e467e2644a5bb18u } },
	{ 4095,
	  { 0xfd3025efc80b2f40u, 0x97cbc43e0c6208ebu },
	  { 0xbec51a1d423509d6u, 0x2d439960eb760718u } },
	{ 4096,
	  { 0xbca3fff2d29ab441u, 0xf0c2e3c17a3b53bau },
	  { 0x1889657b53fd2fb6u, 0x1b25c1aef896668cu } },
	{ 4097,
	  { 0x7b3d0e45ab75d913u, 0xed3ccf472c52553du },
	  { 0x0220103c141cf617u, 0x41aa230d02602e59u } },
	{ 65535,
	  { 0x029d127e1381e2d9u, 0x2afe87d398d0337cu },
	  { 0xa28731bea2274af2u, 0x7d1733242bf19483u } },
	{ 65536,
	  { 0x42671177d3ce00b2u, 0x9ffbe8b1ab5d26a3u },
	  { 0x2b59935585e33a11u, 0x7124b61e6da13e04u } },
	{ 65537,
	  { 0x2566c596113e2addu, 0x87616f629145f885u },
	  { 0xc48ea0deec890df5u, 0x7392bddb9e005399u } },
	{ 131077,
	  { 0x80df7eabfe2c6c8au, 0xe594ff63e5370232u },
	  { 0xddd5d47dc2577de1u, 0x806cff4df0c549fcu } },
	{ 2097152,
	  { 0xe5603bb7f331bb83u, 0x0f1811334ba12010u },
	  { 0xd8af2e63cf703a64u, 0x2d13b10a94716b87u } },
};

START_TEST(value_is_that_of_the_format)
{
	struct fdry_fingerprint v = fdry_fingerprint_of(bytes, vectors[_i].len);

	ck_assert_uint_eq(v.a, vectors[_i].pattern.a);
	ck_assert_uint_eq(v.b, vectors[_i].pattern.b);
	memset(bytes, 0, vectors[_i].len);
	v = fdry_fingerprint_of(bytes, vectors[_i].len);
	ck_assert_uint_eq(v.a, vectors[_i].zeros.a);
	ck_assert_uint_eq(v.b, vectors[_i].zeros.b);
}
END_TEST

START_TEST(value_is_that_of_its_blocks)
{
	struct fdry_fingerprint blocks[CHUNK / BLOCK + 1], whole, joined;
	size_t at, n, len = vectors[_i].len;

	for (at = 0; at < len; at += n) {
		n = len - at < BLOCK ? len - at : BLOCK;
		blocks[at / BLOCK] = fdry_fingerprint_block(bytes + at, n);
	}
	ck_assert_uint_eq((len + BLOCK - 1) / BLOCK, fdry_fingerprint_blocks(len));
	whole = fdry_fingerprint_of(bytes, len);
	joined = fdry_fingerprint_join(len, blocks);
	ck_assert(fdry_fingerprint_eq(whole, joined));
}
END_TEST

/* Any length, at any address. */
START_TEST(ways_agree)
{
	const struct way *way;
	struct fdry_fingerprint plain, other;
	size_t len, at;

	for (len = 1; len <= BLOCK; len += len < 70 || len > BLOCK - 70 ? 1 : 61) {
		at = len * 7 % 64;
		plain = ways[0].block(bytes + at, len);
		for (way = ways; way->name; way++) {
			if (!way->usable())
				continue;
			other = way->block(bytes + at, len);
			ck_assert_msg(fdry_fingerprint_eq(plain, other), "%s: %zu bytes", way->name,
				      len);
		}
		other = fdry_fingerprint_block(bytes + at, len);
		ck_assert(fdry_fingerprint_eq(plain, other));
	}
}
END_TEST

/* --- accidents --- */

static void flip_each(size_t len, size_t step)
{
	size_t bit;

	collect(bytes, len);
	for (bit = 0; bit < 8 * len; bit += step) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		collect(bytes, len);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

START_TEST(each_bit_counts)
{
	flip_each(2 * ROW + 21, 1);
	flip_each(BLOCK, 13);
	flip_each(CHUNK, 8009);
	all_differ();
}
END_TEST

START_TEST(each_bit_counts_among_zeros)
{
	memset(bytes, 0, CHUNK);
	flip_each(ROW + 21, 1);
	flip_each(BLOCK, 13);
	all_differ();
}
END_TEST

/* Two equal flips in one lane: nothing that one row does may be undone by the next. */
START_TEST(flips_in_one_lane_do_not_cancel)
{
	size_t x, y, row;

	for (x = 0; x < 128; x++)
		for (y = 0; y < 128; y++)
			for (row = 1; row < 16; row += 7) {
				bytes[x / 8] ^= (uint8_t)(1u << x % 8);
				bytes[row * ROW + y / 8] ^= (uint8_t)(1u << y % 8);
				collect(bytes, BLOCK);
				bytes[x / 8] ^= (uint8_t)(1u << x % 8);
				bytes[row * ROW + y / 8] ^= (uint8_t)(1u << y % 8);
			}
	all_differ();
}
END_TEST

START_TEST(places_count)
{
	static const size_t sizes[] = { 1, 4, 8, 16, 64, ROW, BLOCK };
	size_t i, x, y, size;

	for (i = 0; i < CHUNK; i++)
		bytes[i] = (uint8_t)((i * 0x9e3779b97f4a7c15ull >> 29) ^ (i >> 16));
	collect(bytes, CHUNK);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size = sizes[i];
		for (x = 0; x < 6; x++)
			for (y = x + 1; y < 24; y++) {
				if (!memcmp(bytes + x * size, bytes + y * size, size))
					continue;
				swap(x * size, y * size, size);
				collect(bytes, CHUNK);
				swap(x * size, y * size, size);
			}
	}
	all_differ();
}
END_TEST

/* The same bytes later: every shift, with zeros before them. */
START_TEST(shifts_count)
{
	uint8_t *moved = calloc(1, 2 * BLOCK);
	size_t by;

	ck_assert_ptr_nonnull(moved);
	for (by = 0; by < 600; by++) {
		memset(moved, 0, by);
		memcpy(moved + by, bytes, BLOCK);
		collect(moved, 2 * BLOCK);
	}
	for (by = ROW; by < BLOCK; by += ROW / 2) {
		memset(moved, 0, 2 * BLOCK);
		memcpy(moved + by, bytes, BLOCK);
		collect(moved, 2 * BLOCK);
	}
	free(moved);
	all_differ();
}
END_TEST

/* Bytes cut off, and zeros in their places. */
START_TEST(lengths_count)
{
	size_t len;

	for (len = 0; len < 3 * ROW; len++)
		collect(bytes, len);
	for (; len <= CHUNK; len += 4099)
		collect(bytes, len);
	memset(bytes, 0, CHUNK); /* the first byte was zero before */
	for (len = 2; len < 3 * ROW; len++)
		collect(bytes, len);
	for (; len <= CHUNK; len += 4099)
		collect(bytes, len);
	all_differ();
}
END_TEST

START_TEST(runs_of_zeros_count)
{
	uint8_t keep[3 * ROW];
	size_t at, len;

	for (at = 0; at < BLOCK; at++)
		bytes[at] |= 1;
	for (at = 0; at + sizeof(keep) <= BLOCK; at += 509)
		for (len = 1; len <= sizeof(keep); len += 211) {
			memcpy(keep, bytes + at, len);
			memset(bytes + at, 0, len);
			collect(bytes, BLOCK);
			memcpy(bytes + at, keep, len);
		}
	all_differ();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lib_fingerprint");
	const int n = sizeof(vectors) / sizeof(vectors[0]);
	TCase *value = tcase_create("value"), *accidents = tcase_create("accidents");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(value, setup, teardown);
	tcase_add_loop_test(value, value_is_that_of_the_format, 0, n);
	tcase_add_loop_test(value, value_is_that_of_its_blocks, 0, n);
	tcase_add_test(value, ways_agree);
	suite_add_tcase(suite, value);
	tcase_add_checked_fixture(accidents, setup, teardown);
	tcase_set_timeout(accidents, 120);
	tcase_add_test(accidents, each_bit_counts);
	tcase_add_test(accidents, each_bit_counts_among_zeros);
	tcase_add_test(accidents, flips_in_one_lane_do_not_cancel);
	tcase_add_test(accidents, places_count);
	tcase_add_test(accidents, shifts_count);
	tcase_add_test(accidents, lengths_count);
	tcase_add_test(accidents, runs_of_zeros_count);
	suite_add_tcase(suite, accidents);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
