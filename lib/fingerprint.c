// SPDX-License-Identifier: Apache-2.0
/*
 * fingerprint.c - fingerprints by the processor: in plain C, and with its vectors.
 *
 * A block is read row by row, so memory is read in order; the values of all lanes fill 4 KiB, which
 * stay in the nearest cache. The vectors hold the lanes of plain C in the same order.
 */
#include "lib/fingerprint.h"

#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif
#ifdef __aarch64__
#include <arm_neon.h>
#endif

#define LANES FDRY_FINGERPRINT_LANES

/* A way to compute the value of a block; all give the same one. */
struct way {
	const char *name;
	struct fdry_fingerprint (*block)(const void *bytes, size_t len);
	bool (*usable)(void); /* by this processor */
};

struct lanes {
	_Alignas(64) struct fdry_fingerprint v[LANES];
};

static void lanes_init(struct lanes *s)
{
	const struct fdry_fingerprint first = { FDRY_FINGERPRINT_LANE_A, FDRY_FINGERPRINT_LANE_B };
	size_t i;

	for (i = 0; i < LANES; i++)
		s->v[i] = first;
}

/* The block of @len bytes: @rows reads whole rows, @half pairs @n lanes with the @n behind them. */
static inline __attribute__((always_inline)) struct fdry_fingerprint
block_by(const uint8_t *bytes, size_t len,
	 void (*rows)(struct lanes *s, const uint8_t *bytes, size_t count),
	 void (*half)(struct lanes *s, size_t n))
{
	uint8_t last[FDRY_FINGERPRINT_ROW];
	size_t n, rest = len % FDRY_FINGERPRINT_ROW;
	struct lanes s;

	lanes_init(&s);
	rows(&s, bytes, len / FDRY_FINGERPRINT_ROW);
	if (rest) {
		memcpy(last, bytes + len - rest, rest);
		memset(last + rest, 0, sizeof(last) - rest);
		rows(&s, last, 1);
	}
	for (n = LANES / 2; n; n /= 2)
		half(&s, n);
	return fdry_fingerprint_end(s.v[0], len);
}

/* --- plain --- */

static void plain_rows(struct lanes *s, const uint8_t *bytes, size_t count)
{
	uint64_t unit[2];
	size_t i;

	for (; count; count--)
		for (i = 0; i < LANES; i++, bytes += sizeof(unit)) {
			memcpy(unit, bytes, sizeof(unit));
			s->v[i] = fdry_fingerprint_step(s->v[i], unit[0], unit[1]);
		}
}

static void plain_half(struct lanes *s, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		s->v[i] = fdry_fingerprint_pair(s->v[i], s->v[i + n]);
}

static struct fdry_fingerprint plain_block(const void *bytes, size_t len)
{
	return block_by(bytes, len, plain_rows, plain_half);
}

static bool always_usable(void)
{
	return true;
}

/* --- x86-64: vectors of 32 bytes; those of 64 were slower --- */

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))
#define SWAP_HALVES 0x4e

AVX2 static inline __m256i avx2_mix(__m256i v)
{
	const __m256i k1 = _mm256_set1_epi64x(FDRY_FINGERPRINT_K1);
	const __m256i k2 = _mm256_set1_epi64x(FDRY_FINGERPRINT_K2);

	v = _mm256_add_epi64(_mm256_mul_epu32(v, k1), _mm256_srli_epi64(v, 32));
	return _mm256_add_epi64(_mm256_mul_epu32(v, k2), _mm256_srli_epi64(v, 32));
}

AVX2 static void avx2_rows(struct lanes *s, const uint8_t *bytes, size_t count)
{
	const __m256i *x = (const __m256i *)bytes;
	__m256i *v, *end = (__m256i *)(s->v + LANES), unit;

	for (; count; count--)
		for (v = (__m256i *)s->v; v < end; v++, x++) {
			unit = _mm256_loadu_si256(x);
			*v = _mm256_add_epi64(avx2_mix(_mm256_xor_si256(*v, unit)),
					      _mm256_shuffle_epi32(unit, SWAP_HALVES));
		}
}

AVX2 static void avx2_half(struct lanes *s, size_t n)
{
	const __m256i low = _mm256_set_epi64x(0, -1, 0, -1);
	__m256i *l = (__m256i *)s->v, *r = (__m256i *)(s->v + n), v, mixed;

	if (n < 2) {
		plain_half(s, n);
		return;
	}
	for (n /= 2; n; n--, l++, r++) {
		mixed = avx2_mix(*l);
		v = _mm256_and_si256(_mm256_shuffle_epi32(*l, SWAP_HALVES), low);
		v = _mm256_add_epi64(mixed, v);
		mixed = _mm256_andnot_si256(low, _mm256_shuffle_epi32(v, SWAP_HALVES));
		*l = _mm256_xor_si256(_mm256_add_epi64(v, mixed), *r);
	}
}

AVX2 static struct fdry_fingerprint avx2_block(const void *bytes, size_t len)
{
	return block_by(bytes, len, avx2_rows, avx2_half);
}

/*
 * True if the processor has AVX2 and the system saves its registers. __builtin_cpu_supports() needs
 * compiler-rt's table of features, which some compilers' libraries do not have.
 */
static bool avx2_usable(void)
{
	const unsigned int saved = 0x6; /* registers of 16 and 32 bytes */
	unsigned int a, b, c, d, high;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return false;
	__asm__("xgetbv" : "=a"(a), "=d"(high) : "c"(0));
	if ((a & saved) != saved)
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}
#endif

/* --- aarch64: vectors of 16 bytes, which every processor has --- */

#ifdef __aarch64__
static inline uint64x2_t neon_mix(uint64x2_t v)
{
	const uint32x2_t k1 = vdup_n_u32(FDRY_FINGERPRINT_K1);
	const uint32x2_t k2 = vdup_n_u32(FDRY_FINGERPRINT_K2);

	v = vmlal_u32(vshrq_n_u64(v, 32), vmovn_u64(v), k1);
	return vmlal_u32(vshrq_n_u64(v, 32), vmovn_u64(v), k2);
}

static inline uint64x2_t neon_get(const struct fdry_fingerprint *lane)
{
	return vld1q_u64((const uint64_t *)lane);
}

static inline void neon_set(struct fdry_fingerprint *lane, uint64x2_t v)
{
	vst1q_u64((uint64_t *)lane, v);
}

static void neon_rows(struct lanes *s, const uint8_t *bytes, size_t count)
{
	struct fdry_fingerprint *lane;
	uint64x2_t unit, v;

	for (; count; count--)
		for (lane = s->v; lane < s->v + LANES; lane++, bytes += sizeof(unit)) {
			unit = vreinterpretq_u64_u8(vld1q_u8(bytes));
			v = neon_mix(veorq_u64(neon_get(lane), unit));
			neon_set(lane, vaddq_u64(v, vextq_u64(unit, unit, 1)));
		}
}

static void neon_half(struct lanes *s, size_t n)
{
	const uint64x2_t zero = vdupq_n_u64(0);
	struct fdry_fingerprint *l = s->v, *r = s->v + n;
	uint64x2_t mixed, v;

	for (; n; n--, l++, r++) {
		v = neon_get(l);
		mixed = neon_mix(v);
		v = vaddq_u64(mixed, vdupq_laneq_u64(v, 1));
		v = vaddq_u64(v, vextq_u64(zero, mixed, 1));
		neon_set(l, veorq_u64(v, neon_get(r)));
	}
}

static struct fdry_fingerprint neon_block(const void *bytes, size_t len)
{
	return block_by(bytes, len, neon_rows, neon_half);
}
#endif

/* The slowest way is first and can always be used. The last one has no name. */
static const struct way ways[] = {
	{ "plain", plain_block, always_usable },
#ifdef __x86_64__
	{ "avx2", avx2_block, avx2_usable },
#endif
#ifdef __aarch64__
	{ "neon", neon_block, always_usable },
#endif
	{ NULL, NULL, NULL },
};

/* --- all --- */

/* Find the fastest way that this processor supports. All threads find the same one. */
static const struct way *fastest(void)
{
	static const struct way *found;
	const struct way *way, *best;

	best = __atomic_load_n(&found, __ATOMIC_RELAXED);
	if (best)
		return best;
	for (way = ways; way->name; way++)
		if (way->usable())
			best = way;
	__atomic_store_n(&found, best, __ATOMIC_RELAXED);
	return best;
}

struct fdry_fingerprint fdry_fingerprint_block(const void *bytes, size_t len)
{
	return fastest()->block(bytes, len);
}

static struct fdry_fingerprint all_begin(void)
{
	return (struct fdry_fingerprint){ FDRY_FINGERPRINT_ALL_A, FDRY_FINGERPRINT_ALL_B };
}

struct fdry_fingerprint fdry_fingerprint_of(const void *bytes, size_t len)
{
	struct fdry_fingerprint v = all_begin();
	const struct way *way = fastest();
	const uint8_t *at = bytes;
	size_t n, left;

	for (left = len; left; left -= n, at += n) {
		n = left < FDRY_FINGERPRINT_BLOCK ? left : FDRY_FINGERPRINT_BLOCK;
		v = fdry_fingerprint_pair(v, way->block(at, n));
	}
	return fdry_fingerprint_end(v, len);
}

struct fdry_fingerprint fdry_fingerprint_join(uint64_t len, const struct fdry_fingerprint *blocks)
{
	struct fdry_fingerprint v = all_begin();
	size_t i, n = fdry_fingerprint_blocks(len);

	for (i = 0; i < n; i++)
		v = fdry_fingerprint_pair(v, blocks[i]);
	return fdry_fingerprint_end(v, len);
}
