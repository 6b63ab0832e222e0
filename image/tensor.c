// SPDX-License-Identifier: Apache-2.0
/* tensor.c - element types, names and extents of tensors; see tensor.h. */
#include "image/tensor.h"

#include <string.h>

#define FLAGS ((uint32_t)(FDRY_TENSOR_EXTERNAL | FDRY_TENSOR_HOST))

size_t fdry_dtype_size(uint32_t dtype)
{
	switch (dtype) {
#define X(nr, name, size) case nr: return size;
	FDRY_DTYPES(X)
#undef X
	default:
		return 0;
	}
}

int fdry_name_check(const char *what, const char *name)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@+/=:,";
	size_t len = name ? strlen(name) : 0;

	if (!len || len > FDRY_NAME_MAX || strspn(name, allowed) != len)
		return fdry_fail(FDRY_E_NAME,
				 "'%.80s' cannot name a %s; use 1 to %d letters, digits and - _ . "
				 "@ + / = : ,",
				 name ? name : "", what, FDRY_NAME_MAX);
	return 0;
}

static int sizes_check(const struct fdry_tensor *t)
{
	uint32_t d;

	if (!fdry_dtype_size(t->dtype) || t->use > FDRY_USE_CONST || t->flags & ~FLAGS ||
	    t->rank > FDRY_RANK_MAX)
		return fdry_fail(FDRY_E_INVAL,
				 "tensor '%s' has an unknown type, use, flag or a rank over %d",
				 t->name, FDRY_RANK_MAX);
	for (d = 0; d < t->rank; d++)
		if (t->shape[d] < 0 || t->stride[d] < 0)
			return fdry_fail(FDRY_E_INVAL,
					 "tensor '%s' has a negative size or stride in dimension "
					 "%u; make it contiguous first",
					 t->name, d);
	return 0;
}

static bool is_empty(const struct fdry_tensor *t)
{
	uint32_t d;

	for (d = 0; d < t->rank; d++)
		if (!t->shape[d])
			return true;
	return false;
}

static int too_large(const struct fdry_tensor *t)
{
	return fdry_fail(FDRY_E_INVAL, "tensor '%s' is larger than the address space", t->name);
}

int fdry_tensor_extent(const struct fdry_tensor *t, uint64_t *ret)
{
	uint64_t last = 0, step, bytes;
	uint32_t d;
	int err = sizes_check(t);

	if (err)
		return err;
	if (is_empty(t)) {
		*ret = 0;
		return 0;
	}
	for (d = 0; d < t->rank; d++)
		if (__builtin_mul_overflow((uint64_t)(t->shape[d] - 1), (uint64_t)t->stride[d],
					   &step) ||
		    __builtin_add_overflow(last, step, &last))
			return too_large(t);
	if (__builtin_add_overflow(last, 1, &last) ||
	    __builtin_mul_overflow(last, (uint64_t)fdry_dtype_size(t->dtype), &bytes) ||
	    t->addr + bytes < t->addr)
		return too_large(t);
	*ret = bytes;
	return 0;
}

int fdry_tensor_bytes(const struct fdry_tensor *t, uint64_t *ret)
{
	uint64_t bytes = fdry_dtype_size(t->dtype);
	uint32_t d;

	if (is_empty(t)) {
		*ret = 0;
		return 0;
	}
	for (d = 0; d < t->rank; d++)
		if (__builtin_mul_overflow(bytes, (uint64_t)t->shape[d], &bytes) ||
		    bytes > INT64_MAX)
			return too_large(t);
	*ret = bytes;
	return 0;
}

static uint64_t distance(const struct fdry_tensor *t, uint32_t d)
{
	return t->stride[d] < 0 ? -(uint64_t)t->stride[d] : (uint64_t)t->stride[d];
}

/* Sort the dimensions of more than one element, or of none, by stride, the smallest first. */
static uint32_t dims_sorted(const struct fdry_tensor *t, uint32_t *ret)
{
	uint32_t n = 0, d, i;

	for (d = 0; d < t->rank; d++) {
		if (t->shape[d] == 1)
			continue;
		for (i = n++; i && distance(t, ret[i - 1]) > distance(t, d); i--)
			ret[i] = ret[i - 1];
		ret[i] = d;
	}
	return n;
}

bool fdry_tensor_dense(const struct fdry_tensor *t)
{
	uint32_t dims[FDRY_RANK_MAX], n = dims_sorted(t, dims), i;
	uint64_t want = 1;

	for (i = 0; i < n && !is_empty(t); i++) {
		if (distance(t, dims[i]) != want)
			return false;
		want *= (uint64_t)t->shape[dims[i]];
	}
	return true;
}

bool fdry_tensor_distinct(const struct fdry_tensor *t)
{
	uint32_t dims[FDRY_RANK_MAX], n = dims_sorted(t, dims), i;
	uint64_t span = 1, step;

	for (i = 0; i < n && !is_empty(t); i++) {
		if (distance(t, dims[i]) < span)
			return false;
		if (__builtin_mul_overflow((uint64_t)(t->shape[dims[i]] - 1), distance(t, dims[i]),
					   &step) ||
		    __builtin_add_overflow(span, step, &span))
			return false;
	}
	return true;
}

bool fdry_tensor_extendable(const struct fdry_tensor *t)
{
	int64_t row = 1;
	uint32_t d;

	if (!t->rank || is_empty(t) || !fdry_tensor_dense(t))
		return false;
	for (d = 1; d < t->rank; d++)
		row *= t->shape[d];
	return t->shape[0] == 1 || t->stride[0] == row;
}
