// SPDX-License-Identifier: Apache-2.0
/* tensor.c - element types, names and extents of tensors; see tensor.h. */
#include "api/tensor.h"

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
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@+/=:,";
	size_t len = name ? strlen(name) : 0;

	if (!len || len > FDRY_NAME_MAX || strspn(name, allowed) != len)
		return fdry_fail(FDRY_E_NAME, "'%.80s' cannot name a %s; use 1 to %d letters, digits and - _ . @ + / = : ,",
				 name ? name : "", what, FDRY_NAME_MAX);
	return 0;
}

int fdry_tensor_extent(const struct fdry_tensor *t, uint64_t *ret)
{
	uint64_t last = 0, step, bytes;
	uint32_t d;

	if (!fdry_dtype_size(t->dtype) || t->use > FDRY_USE_CONST || t->flags & ~FLAGS || t->rank > FDRY_RANK_MAX)
		return fdry_fail(FDRY_E_INVAL, "tensor '%s' has an unknown type, use, flag or a rank over %d", t->name, FDRY_RANK_MAX);
	for (d = 0; d < t->rank; d++) {
		if (t->shape[d] < 0 || t->stride[d] < 0)
			return fdry_fail(FDRY_E_INVAL, "tensor '%s' has a negative size or stride in dimension %u; make it contiguous first", t->name, d);
		if (!t->shape[d]) {
			*ret = 0;
			return 0;
		}
		if (__builtin_mul_overflow((uint64_t)(t->shape[d] - 1), (uint64_t)t->stride[d], &step) ||
		    __builtin_add_overflow(last, step, &last))
			return fdry_fail(FDRY_E_INVAL, "tensor '%s' is larger than the address space", t->name);
	}
	if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, (uint64_t)fdry_dtype_size(t->dtype), &bytes) ||
	    t->addr + bytes < t->addr)
		return fdry_fail(FDRY_E_INVAL, "tensor '%s' is larger than the address space", t->name);
	*ret = bytes;
	return 0;
}

bool fdry_tensor_dense(const struct fdry_tensor *t)
{
	int64_t want = 1;
	uint32_t d;

	for (d = t->rank; d-- > 0;) {
		if (t->shape[d] != 1 && t->stride[d] != want)
			return false;
		want *= t->shape[d];
	}
	return true;
}
