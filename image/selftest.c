// SPDX-License-Identifier: Apache-2.0
/*
 * selftest.c - the inputs and outputs of a self-test, for seals and loads.
 *
 * Values repeat after PERIOD bytes, so that large tensors are filled fast. They are fractions with
 * few bits, which every type of floating point has exactly. Tensors with gaps are not filled.
 */
#include "image/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "image/strided.h"
#include "image/tensor.h"
#include "lib/buf.h"

#define PERIOD ((size_t)1 << 20)

bool fdry_selftest_compares(const struct fdry_tensor *t)
{
	return t->use == FDRY_USE_OUTPUT ||
	       (t->use == FDRY_USE_STATE && !(t->flags & FDRY_TENSOR_EXTERNAL));
}

/* --- values --- */

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9E3779B97F4A7C15ull;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	return z ^ z >> 31;
}

static uint64_t name_hash(const char *name)
{
	uint64_t h = 0xCBF29CE484222325ull;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001B3ull;
	return h;
}

/* The bits of a number from -1 to 1, of the floating type with @exponent and @mantissa bits: a
 * sign, an exponent from -3 to -1, and the highest bits of the mantissa. */
static uint64_t number(uint64_t random, unsigned int exponent, unsigned int mantissa)
{
	unsigned int bits = mantissa < 7 ? mantissa : 7;
	uint64_t bias = (1ull << (exponent - 1)) - 1;

	return (random & 1) << (exponent + mantissa) |
	       (bias - 1 - (random >> 1) % 3) << mantissa |
	       (random >> 8 & ((1u << bits) - 1)) << (mantissa - bits);
}

/* The size of a number of this type, and its bits; 0 if the type has no floating point. */
static size_t number_put(uint32_t dtype, uint64_t random, uint64_t *ret)
{
	switch (dtype) {
	case FDRY_F8_E4M3:
		*ret = number(random, 4, 3);
		return 1;
	case FDRY_F8_E5M2:
		*ret = number(random, 5, 2);
		return 1;
	case FDRY_F16:
		*ret = number(random, 5, 10);
		return 2;
	case FDRY_BF16:
		*ret = number(random, 8, 7);
		return 2;
	case FDRY_F32:
	case FDRY_C64:
		*ret = number(random, 8, 23);
		return 4;
	case FDRY_F64:
	case FDRY_C128:
		*ret = number(random, 11, 52);
		return 8;
	default:
		return 0;
	}
}

/* One period of the values of a tensor; zeros if its type has no floating point. */
static void values_make(const struct fdry_selftest *t, const struct fdry_tensor *d, uint8_t *ret)
{
	uint64_t state = t->seed ^ name_hash(d->name), bits = 0;
	size_t at, n;

	memset(ret, 0, PERIOD);
	for (at = 0; at < PERIOD; at += n) {
		n = number_put(d->dtype, next_random(&state), &bits);
		if (!n)
			return;
		memcpy(ret + at, &bits, n);
	}
}

static bool is_number(const struct fdry_tensor *d)
{
	uint64_t bits;

	return number_put(d->dtype, 0, &bits) != 0;
}

/* --- filling --- */

static int values_write(const struct fdry_selftest *t, const struct fdry_tensor *d, uint64_t bytes,
			const uint8_t *values)
{
	uint64_t at, n;
	int err = 0;

	for (at = 0; at < bytes && !err; at += n) {
		n = bytes - at < PERIOD ? bytes - at : PERIOD;
		if (d->flags & FDRY_TENSOR_HOST)
			memcpy((void *)(uintptr_t)(d->addr + at), values, n);
		else
			err = fdry_call(t->drv, cuMemcpyHtoD_v2, d->addr + at, values, n);
	}
	return err;
}

static bool is_filled(const struct fdry_tensor *d, bool external)
{
	if (!fdry_tensor_dense(d))
		return false;
	if (external && d->flags & FDRY_TENSOR_EXTERNAL)
		return true;
	return d->use == FDRY_USE_INPUT && (is_number(d) || d->flags & FDRY_TENSOR_EXTERNAL);
}

int fdry_selftest_fill(const struct fdry_selftest *t, bool external)
{
	uint8_t *values = malloc(PERIOD);
	uint64_t bytes;
	size_t i;
	int err = values ? 0 : fdry_nomem();

	for (i = 0; i < t->n && !err; i++) {
		if (!is_filled(&t->tensors[i], external))
			continue;
		values_make(t, &t->tensors[i], values);
		err = fdry_tensor_extent(&t->tensors[i], &bytes) ?:
		      values_write(t, &t->tensors[i], bytes, values);
	}
	free(values);
	return err ? err : fdry_call(t->drv, cuCtxSynchronize);
}

/* --- fingerprints --- */

/* Move the elements of @d, whose first is at @bytes, together, row by row. */
static int rows_make(const struct fdry_tensor *d, const struct fdry_buf *bytes,
		     struct fdry_buf *ret)
{
	struct fdry_tensor rows = *d;
	struct fdry_strided walk;
	uint64_t packed;
	int err = fdry_tensor_bytes(d, &packed);

	if (err)
		return err;
	fdry_strided_rows(&rows);
	err = fdry_buf_grow(ret, packed, NULL) ?: fdry_strided_make(d, &rows, false, &walk);
	if (!err)
		fdry_strided_host(&walk, ret->data, bytes->data);
	return err;
}

int fdry_selftest_print(const struct fdry_selftest *t, size_t i, struct fdry_fingerprint *ret)
{
	const struct fdry_tensor *d = &t->tensors[i];
	struct fdry_buf bytes = { 0 }, rows = { 0 };
	uint64_t extent;
	int err = fdry_tensor_extent(d, &extent);

	if (err)
		return err;
	if (!extent) {
		*ret = fdry_fingerprint_of(NULL, 0);
		return 0;
	}
	err = fdry_buf_grow(&bytes, extent, NULL);
	if (err)
		return err;
	if (d->flags & FDRY_TENSOR_HOST)
		memcpy(bytes.data, (const void *)(uintptr_t)d->addr, extent);
	else
		err = fdry_call(t->drv, cuMemcpyDtoH_v2, bytes.data, d->addr, extent);
	if (err)
		goto out_release;
	err = rows_make(d, &bytes, &rows);
	if (err)
		goto out_release;
	*ret = fdry_fingerprint_of(rows.data, rows.len);
out_release:
	fdry_buf_release(&bytes);
	fdry_buf_release(&rows);
	return err;
}
