// SPDX-License-Identifier: Apache-2.0
/*
 * fingerprint.c - the speed of fingerprints on this processor, and their quality.
 *
 * fingerprint [MIB]: prints the bytes per second of each way to compute them, from memory of that
 * size, beside a sum of the same words. Then come tests of the kinds that SMHasher has for such
 * functions, with inputs that differ little from each other. 32 bits of a value, at any place, may
 * collide only as often as random numbers do. A changed bit of the input must change each bit of
 * the value in half of the cases, and two bits of it alike in half of them. The program fails if a
 * number lies outside its bounds.
 */
#include "lib/fingerprint.c"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/clock.h"

#define BLOCK ((size_t)FDRY_FINGERPRINT_BLOCK)
#define WINDOW 32u /* bits that are compared */
#define KEYS_MAX 700000u

static struct fdry_fingerprint *keys;
static size_t nkeys;
static uint8_t *buffer; /* two blocks */
static int bad;
static uint64_t state = 1;

static uint64_t noise(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static void noise_fill(size_t len)
{
	uint64_t word;
	size_t i;

	for (i = 0; i < len; i += sizeof(word)) {
		word = noise();
		memcpy(buffer + i, &word, sizeof(word));
	}
}

/* --- speed --- */

static double sum_gbs(const uint8_t *bytes, size_t len)
{
	volatile uint64_t keep;
	uint64_t sum = 0, word;
	double begun = now_s();
	size_t i;

	for (i = 0; i < len; i += sizeof(word)) {
		memcpy(&word, bytes + i, sizeof(word));
		sum += word;
	}
	keep = sum;
	(void)keep;
	return (double)len / (now_s() - begun) * 1e-9;
}

static double way_gbs(const struct way *way, const uint8_t *bytes, size_t len)
{
	volatile uint64_t keep;
	uint64_t sum = 0;
	double begun = now_s();
	size_t i;

	for (i = 0; i < len; i += BLOCK)
		sum ^= way->block(bytes + i, BLOCK).a;
	keep = sum;
	(void)keep;
	return (double)len / (now_s() - begun) * 1e-9;
}

static double best(const struct way *way, const uint8_t *bytes, size_t len)
{
	double most = 0, gbs;
	int i;

	for (i = 0; i < 5; i++) {
		gbs = way ? way_gbs(way, bytes, len) : sum_gbs(bytes, len);
		if (gbs > most)
			most = gbs;
	}
	return most;
}

static void speeds(size_t mib)
{
	const struct way *way;
	uint8_t *bytes = malloc(mib << 20);

	if (!bytes) {
		fprintf(stderr, "fingerprint: no memory\n");
		exit(EXIT_FAILURE);
	}
	memset(bytes, 0x5a, mib << 20);
	printf("%-22s %8s\n", "way", "GB/s");
	printf("%-22s %8.1f\n", "sum of words", best(NULL, bytes, mib << 20));
	for (way = ways; way->name; way++)
		if (way->usable())
			printf("%-22s %8.1f\n", way->name, best(way, bytes, mib << 20));
	free(bytes);
}

/* --- collisions --- */

static void key(size_t len)
{
	if (nkeys < KEYS_MAX)
		keys[nkeys++] = fdry_fingerprint_of(buffer, len);
}

static int u32_cmp(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Return the highest number of collisions of any WINDOW adjacent bits that begin at a multiple of
 * 8. */
static size_t collisions(void)
{
	uint32_t *window = malloc(nkeys * sizeof(*window));
	size_t i, from, n, most = 0;

	if (!window)
		exit(EXIT_FAILURE);
	for (from = 0; from + WINDOW <= 128; from += 8) {
		for (i = 0; i < nkeys; i++)
			memcpy(&window[i], (const uint8_t *)&keys[i] + from / 8, sizeof(*window));
		qsort(window, nkeys, sizeof(*window), u32_cmp);
		for (i = 1, n = 0; i < nkeys; i++)
			n += window[i] == window[i - 1];
		if (n > most)
			most = n;
	}
	free(window);
	return most;
}

/* Random numbers collide so often as @expect; six deviations more are a fault. */
static void keys_judge(const char *what)
{
	double expect = (double)nkeys * (double)nkeys / 2 / pow(2, WINDOW);
	double limit = expect + 6 * sqrt(expect) + 6;
	size_t most = collisions();

	printf("%-22s %8zu keys: at most %zu collisions in %u bits, %.1f expected\n", what, nkeys,
	       most, WINDOW, expect);
	bad |= (double)most > limit;
	nkeys = 0;
}

static void flip(size_t bit)
{
	buffer[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

/* Zeros with one or two bits that are set. */
static void sparse(size_t len, size_t step)
{
	size_t x, y;

	memset(buffer, 0, 2 * BLOCK);
	for (x = 0; x < 8 * len; x += step)
		for (y = x; y < 8 * len; y += step) {
			flip(x);
			if (x != y)
				flip(y);
			key(len);
			flip(x);
			if (x != y)
				flip(y);
		}
}

/* A few bytes, repeated over all of the input. */
static void cyclic(void)
{
	size_t i, nr, cycle;

	for (nr = 0; nr < 200000; nr++) {
		cycle = 1 + nr % 24;
		noise_fill(2 * 24);
		for (i = cycle; i < 8192; i++)
			buffer[i] = buffer[i - cycle];
		/* Short cycles repeat by chance; a counter makes each input unique. */
		memcpy(buffer, &nr, sizeof(nr));
		key(8192);
	}
}

/* Noise with up to three bits changed in one lane and the next one. */
static void differential(void)
{
	size_t x, y, z, row = 8 * FDRY_FINGERPRINT_ROW;

	noise_fill(2 * BLOCK);
	for (x = 0; x < 256; x += 3)
		for (y = 0; y < 256; y += 3)
			for (z = 0; z < 256; z += 7) {
				flip(x);
				flip(row + y);
				flip(2 * row + z);
				key(3 * FDRY_FINGERPRINT_ROW);
				flip(x);
				flip(row + y);
				flip(2 * row + z);
			}
}

/* Each of 16 places holds one of two words. */
static void permutation(size_t stride, uint64_t one, uint64_t other)
{
	uint32_t nr;
	size_t i;

	memset(buffer, 0, 2 * BLOCK);
	for (nr = 0; nr < 1u << 16; nr++) {
		for (i = 0; i < 16; i++)
			memcpy(buffer + i * stride, nr >> i & 1 ? &other : &one, sizeof(one));
		key(15 * stride + sizeof(one));
	}
}

/* Numbers, as counters of a program have them; @as_float: as 32-bit floats. */
static void counters(int as_float)
{
	uint32_t nr;
	float f;

	memset(buffer, 0, 2 * BLOCK);
	for (nr = 0; nr < 300000; nr++) {
		f = (float)nr / 128;
		memcpy(buffer + 4000, as_float ? (void *)&f : (void *)&nr, sizeof(nr));
		memcpy(buffer + 4096 + 4000, as_float ? (void *)&f : (void *)&nr, sizeof(nr));
		key(2 * FDRY_FINGERPRINT_ROW);
	}
}

/* Zeros with at most two other bytes. */
static void two_bytes(size_t len)
{
	size_t x, y;
	int a, b;

	memset(buffer, 0, 2 * BLOCK);
	for (x = 0; x < len; x++)
		for (a = 1; a < 256; a++) {
			buffer[x] = (uint8_t)a;
			key(len);
			for (y = x + 1; y < len; y++) {
				for (b = 1; b < 256; b++) {
					buffer[y] = (uint8_t)b;
					key(len);
				}
				buffer[y] = 0;
			}
			buffer[x] = 0;
		}
}

/* All words of three letters or digits, between two others. */
static void text(const char *before, const char *after)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789"
				      "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	enum { LETTERS = sizeof(letters) - 1 };
	size_t at = strlen(before), rest = strlen(after);
	int nr;

	memcpy(buffer, before, at);
	memcpy(buffer + at + 3, after, rest);
	for (nr = 0; nr < LETTERS * LETTERS * LETTERS; nr++) {
		buffer[at] = (uint8_t)letters[nr % LETTERS];
		buffer[at + 1] = (uint8_t)letters[nr / LETTERS % LETTERS];
		buffer[at + 2] = (uint8_t)letters[nr / LETTERS / LETTERS];
		key(at + 3 + rest);
	}
}

static void windows(void)
{
	sparse(64, 1);
	keys_judge("sparse, 64 bytes");
	sparse(3 * FDRY_FINGERPRINT_ROW, 97);
	keys_judge("sparse, 12 KiB");
	sparse(BLOCK + 4096, 523);
	keys_judge("sparse, 68 KiB");
	cyclic();
	keys_judge("cyclic");
	differential();
	keys_judge("differential");
	permutation(8, 0, 1ull << 63);
	keys_judge("permutation, top bits");
	permutation(FDRY_FINGERPRINT_ROW, 1, 1ull << 63);
	keys_judge("permutation, one lane");
	permutation(FDRY_FINGERPRINT_ROW, 0x3f800000bf800000, 0xbf8000003f800000);
	keys_judge("permutation, signs");
	counters(0);
	keys_judge("counters");
	counters(1);
	keys_judge("counters, floats");
	two_bytes(5);
	keys_judge("two bytes of five");
	text("model.layers.", ".weight");
	keys_judge("text, in the middle");
	text("", "_embedding");
	keys_judge("text, at the start");
	text("attention/", "");
	keys_judge("text, at the end");
}

/* --- avalanche --- */

enum { TRIALS = 48 * 64, BITS = 128 };

/* For each bit of the value, whether it has changed in each trial. */
static uint64_t changed[BITS][TRIALS / 64];

static void trials(size_t len, size_t bit)
{
	struct fdry_fingerprint v, w;
	uint64_t d[2];
	size_t i, t;

	memset(changed, 0, sizeof(changed));
	for (t = 0; t < TRIALS; t++) {
		noise_fill(256);
		memcpy(buffer + len - len / 2, buffer, len / 2 < 256 ? len / 2 : 256);
		v = fdry_fingerprint_of(buffer, len);
		flip(bit);
		w = fdry_fingerprint_of(buffer, len);
		d[0] = v.a ^ w.a;
		d[1] = v.b ^ w.b;
		for (i = 0; i < BITS; i++)
			changed[i][t / 64] |= (d[i / 64] >> i % 64 & 1) << t % 64;
	}
}

/* Make @most the deviation from one half if it is larger: how often bit @i has changed, or bits
 * @i and @j alike. */
static void deviation(double *most, size_t i, size_t j)
{
	size_t n = 0, t;
	double off;

	for (t = 0; t < TRIALS / 64; t++)
		n += (size_t)__builtin_popcountll(changed[i][t] ^ (i == j ? 0 : changed[j][t]));
	off = fabs((double)n / TRIALS - 0.5);
	if (off > *most)
		*most = off;
}

/* The largest deviations, over all bits of the value and some of the input. */
static void avalanche(size_t len)
{
	double most = 0, alike = 0;
	size_t i, j;
	int k;

	for (k = 0; k < 24; k++) {
		trials(len, k < 8 ? 8 * len - 1 - (size_t)k : (size_t)noise() % (8 * len));
		for (i = 0; i < BITS; i++) {
			deviation(&most, i, i);
			for (j = i + 1; j < BITS; j++)
				deviation(&alike, i, j);
		}
	}
	printf("avalanche, %8zu bytes: a bit of the value changes in 50 %% +- %.1f of the cases, "
	       "two of them alike in 50 %% +- %.1f\n", len, 100 * most, 100 * alike);
	bad |= most > 0.06 || alike > 0.06; /* 6.5 standard deviations */
}

int main(int argc, char **argv)
{
	buffer = calloc(1, 2 * BLOCK);
	keys = malloc(KEYS_MAX * sizeof(*keys));
	if (!buffer || !keys)
		return EXIT_FAILURE;
	speeds(argc > 1 ? (size_t)strtoul(argv[1], NULL, 0) : 256);
	windows();
	avalanche(8);
	avalanche(100);
	avalanche(5000);
	avalanche(BLOCK + 100);
	free(buffer);
	free(keys);
	if (bad)
		printf("outside of the bounds\n");
	return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
