// SPDX-License-Identifier: Apache-2.0
/*
 * strided.c - plans and makes copies between arrays; see strided.h.
 *
 * One call of the driver copies a box: rows of equal length and distance, and slices with equally
 * many rows. A walk that is not a box becomes a loop over one dimension, with a smaller walk
 * inside.
 */
#include "image/strided.h"

#include <stdlib.h>
#include <string.h>

#include "image/tensor.h"
#include "lib/telemetry.h"

#define PITCH_MAX 2147483647 /* the most bytes between rows, and the most rows, that every driver
				accepts */
#define CALLS_MAX 65536

/* --- walks --- */

void fdry_strided_rows(struct fdry_tensor *t)
{
	int64_t step = 1;
	uint32_t d;

	for (d = t->rank; d-- > 0;) {
		t->stride[d] = step;
		step *= t->shape[d] ? t->shape[d] : 1;
	}
}

static void dim_remove(struct fdry_strided *s, uint32_t d)
{
	size_t left = --s->rank - d;

	memmove(&s->n[d], &s->n[d + 1], left * sizeof(s->n[0]));
	memmove(&s->dst[d], &s->dst[d + 1], left * sizeof(s->dst[0]));
	memmove(&s->src[d], &s->src[d + 1], left * sizeof(s->src[0]));
}

/* Merge neighbouring dimensions that one stride can walk. */
static void dims_merge(struct fdry_strided *s)
{
	uint32_t d;

	for (d = s->rank; d-- > 1;) {
		if (s->dst[d - 1] != s->dst[d] * (int64_t)s->n[d] ||
		    s->src[d - 1] != s->src[d] * (int64_t)s->n[d])
			continue;
		s->n[d] *= s->n[d - 1];
		dim_remove(s, d - 1);
	}
}

/* Add a dimension, and keep the walk sorted by the image's strides, the largest first. Returns the
 * position of the new one. */
static uint32_t dim_insert(struct fdry_strided *s, uint64_t n, int64_t dst, int64_t src, bool write)
{
	const int64_t *by = write ? s->dst : s->src;
	int64_t key = write ? dst : src;
	uint32_t d = s->rank++;

	for (; d && by[d - 1] < key; d--) {
		s->n[d] = s->n[d - 1];
		s->dst[d] = s->dst[d - 1];
		s->src[d] = s->src[d - 1];
	}
	s->n[d] = n;
	s->dst[d] = dst;
	s->src[d] = src;
	return d;
}

int fdry_strided_make(const struct fdry_tensor *image, const struct fdry_tensor *other, bool write,
		      struct fdry_strided *ret)
{
	struct fdry_strided s = { .width = fdry_dtype_size(image->dtype) };
	int64_t here, there, step, span = 0;
	uint32_t d;

	for (d = 0; d < image->rank; d++) {
		if (image->shape[d] == 1)
			continue;
		here = image->stride[d] * (int64_t)s.width;
		if (__builtin_mul_overflow(other->stride[d], (int64_t)s.width, &there) ||
		    there == INT64_MIN ||
		    __builtin_mul_overflow(there < 0 ? -there : there, image->shape[d] - 1,
					   &step) ||
		    __builtin_add_overflow(span, step, &span))
			return fdry_fail(
				FDRY_E_INVAL,
				"the array for tensor '%s' is larger than the address space",
				image->name);
		(void)dim_insert(&s, (uint64_t)image->shape[d], write ? here : there,
				 write ? there : here, write);
	}
	dims_merge(&s);
	*ret = s;
	return 0;
}

uint64_t fdry_strided_bytes(const struct fdry_strided *s)
{
	uint64_t bytes = s->width;
	uint32_t d;

	for (d = 0; d < s->rank; d++)
		bytes *= s->n[d];
	return bytes;
}

void fdry_strided_fold(struct fdry_strided *s)
{
	uint32_t d;

	for (d = s->rank; d-- > 0;)
		if (s->n[d] == 1)
			dim_remove(s, d);
	dims_merge(s);
	if (s->rank && s->dst[s->rank - 1] == (int64_t)s->width &&
	    s->src[s->rank - 1] == (int64_t)s->width)
		s->width *= s->n[--s->rank];
}

static void pack(const struct fdry_strided *s, int64_t *strides)
{
	int64_t step = (int64_t)s->width;
	uint32_t d;

	for (d = s->rank; d-- > 0;) {
		strides[d] = step;
		step *= (int64_t)s->n[d];
	}
}

void fdry_strided_pack_dst(struct fdry_strided *s)
{
	pack(s, s->dst);
}

void fdry_strided_pack_src(struct fdry_strided *s)
{
	pack(s, s->src);
}

static void dim_append(struct fdry_strided *s, const struct fdry_strided *of, uint32_t d)
{
	s->n[s->rank] = of->n[d];
	s->dst[s->rank] = of->dst[d];
	s->src[s->rank++] = of->src[d];
}

void fdry_strided_split(struct fdry_strided *s, struct fdry_strided *repeats)
{
	uint32_t d = 0;

	*repeats = (struct fdry_strided){ .width = s->width };
	while (d < s->rank) {
		if (s->src[d]) {
			d++;
			continue;
		}
		dim_append(repeats, s, d);
		dim_remove(s, d);
	}
}

void fdry_strided_join(struct fdry_strided *s, const struct fdry_strided *inner)
{
	uint32_t d;

	for (d = 0; d < inner->rank; d++)
		dim_append(s, inner, d);
}

/* --- by the processor --- */

/* With a constant size, the compiler copies an element by one instruction. */
#define UNITS(size)                                                     \
	case size:                                                      \
		for (; n; n--, dst += dst_step, src += src_step)        \
			memcpy(dst, src, size);                         \
		break

static void units_copy(uint8_t *dst, int64_t dst_step, const uint8_t *src, int64_t src_step,
		       uint64_t n, size_t width)
{
	switch (width) {
	UNITS(1);
	UNITS(2);
	UNITS(4);
	UNITS(8);
	UNITS(16);
	default:
		for (; n; n--, dst += dst_step, src += src_step)
			memcpy(dst, src, width);
	}
}

static void host_from(const struct fdry_strided *s, uint32_t d, uint8_t *dst, const uint8_t *src)
{
	uint64_t i;

	if (d + 1 == s->rank) {
		units_copy(dst, s->dst[d], src, s->src[d], s->n[d], s->width);
		return;
	}
	for (i = 0; i < s->n[d]; i++)
		host_from(s, d + 1, dst + (int64_t)i * s->dst[d], src + (int64_t)i * s->src[d]);
}

void fdry_strided_host(const struct fdry_strided *s, void *dst, const void *src)
{
	struct fdry_strided folded = *s;

	fdry_strided_fold(&folded);
	if (folded.rank)
		host_from(&folded, 0, dst, src);
	else
		memcpy(dst, src, folded.width);
}

/* --- by the driver --- */

struct device_copy {
	const struct fdry_driver *drv;
	struct fdry_place dst, src;
	CUstream stream;
};

static bool pitch_ok(const struct fdry_strided *s, int64_t pitch)
{
	return pitch >= (int64_t)s->width && pitch <= PITCH_MAX;
}

/* Whether the units along dimension @d can be the rows of a box. */
static bool rows_ok(const struct fdry_strided *s, uint32_t d)
{
	return pitch_ok(s, s->dst[d]) && pitch_ok(s, s->src[d]) && s->n[d] <= PITCH_MAX;
}

/* Whether the distance of slices is a number of whole rows. */
static bool slice_ok(const struct fdry_strided *s, const int64_t *stride)
{
	return stride[0] > 0 && stride[0] % stride[1] == 0 &&
	       stride[0] / stride[1] >= (int64_t)s->n[1] && stride[0] / stride[1] <= PITCH_MAX;
}

/* Whether one call of the driver can copy a folded walk. */
static bool is_box(const struct fdry_strided *s)
{
	if (s->rank < 2)
		return !s->rank || rows_ok(s, 0);
	return s->rank == 2 && rows_ok(s, 1) && s->n[0] <= PITCH_MAX && slice_ok(s, s->dst) &&
	       slice_ok(s, s->src);
}

/* Choose the dimension to loop over so that few calls remain. */
static uint32_t loop_dim(const struct fdry_strided *s)
{
	if (s->rank != 2 || !rows_ok(s, 0))
		return 0;
	return !rows_ok(s, 1) || s->n[1] < s->n[0] ? 1 : 0;
}

static uint64_t calls_count(struct fdry_strided s)
{
	uint64_t n = 1, more;
	uint32_t d;

	for (fdry_strided_fold(&s); !is_box(&s); fdry_strided_fold(&s)) {
		d = loop_dim(&s);
		more = s.n[d];
		dim_remove(&s, d);
		if (__builtin_mul_overflow(n, more, &n))
			return UINT64_MAX;
	}
	return n;
}

static int run_copy(const struct device_copy *c, uint64_t dst, uint64_t src, size_t len)
{
	if (c->src.host)
		return fdry_call(c->drv, cuMemcpyHtoDAsync_v2, dst, (void *)(uintptr_t)src, len,
				 c->stream);
	if (c->dst.host)
		return fdry_call(c->drv, cuMemcpyDtoHAsync_v2, (void *)(uintptr_t)dst, src, len,
				 c->stream);
	return fdry_call(c->drv, cuMemcpyDtoDAsync_v2, dst, src, len, c->stream);
}

/* Copy a box of rank 1 or 2. */
static int box_copy(const struct device_copy *c, const struct fdry_strided *s, uint64_t dst,
		    uint64_t src)
{
	uint32_t row = s->rank - 1;
	CUDA_MEMCPY3D p = {
		.srcMemoryType = c->src.host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = c->dst.host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.srcHost = c->src.host ? (void *)(uintptr_t)src : NULL,
		.srcDevice = c->src.host ? 0 : src,
		.dstHost = c->dst.host ? (void *)(uintptr_t)dst : NULL,
		.dstDevice = c->dst.host ? 0 : dst,
		.srcPitch = (size_t)s->src[row],
		.dstPitch = (size_t)s->dst[row],
		.WidthInBytes = s->width,
		.Height = s->n[row],
		.Depth = row ? s->n[0] : 1,
	};

	p.srcHeight = row ? (size_t)(s->src[0] / s->src[1]) : p.Height;
	p.dstHeight = row ? (size_t)(s->dst[0] / s->dst[1]) : p.Height;
	return fdry_call(c->drv, cuMemcpy3DAsync_v2, &p, c->stream);
}

static int boxes_copy(const struct device_copy *c, struct fdry_strided s, uint64_t dst,
		      uint64_t src)
{
	struct fdry_strided inner;
	uint32_t d;
	uint64_t i;
	int err;

	fdry_strided_fold(&s);
	if (!s.rank)
		return run_copy(c, dst, src, s.width);
	if (is_box(&s))
		return box_copy(c, &s, dst, src);
	d = loop_dim(&s);
	inner = s;
	dim_remove(&inner, d);
	for (i = 0; i < s.n[d]; i++) {
		err = boxes_copy(c, inner, dst + i * (uint64_t)s.dst[d],
				 src + i * (uint64_t)s.src[d]);
		if (err)
			return err;
	}
	return 0;
}

/* The source repeats elements along the dimensions of @repeats, and only index 0 of these has been
 * copied. Copy it on inside the destination, twice as much each time. */
static int repeat(const struct device_copy *c, struct fdry_strided s,
		  const struct fdry_strided *repeats)
{
	const struct device_copy on = { c->drv, c->dst, c->dst, c->stream };
	uint64_t have, more;
	uint32_t d, at;
	int err;

	memcpy(s.src, s.dst, sizeof(s.src));
	for (d = 0; d < repeats->rank; d++) {
		at = dim_insert(&s, 1, repeats->dst[d], repeats->dst[d], true);
		for (have = 1; have < repeats->n[d]; have += more) {
			more = have < repeats->n[d] - have ? have : repeats->n[d] - have;
			s.n[at] = more;
			err = boxes_copy(&on, s, c->dst.addr + have * (uint64_t)repeats->dst[d],
					 c->dst.addr);
			if (err)
				return err;
		}
		s.n[at] = repeats->n[d];
	}
	return 0;
}

int fdry_strided_device(const struct fdry_driver *drv, const struct fdry_strided *s,
			struct fdry_place dst, struct fdry_place src, CUstream stream)
{
	const struct device_copy c = { drv, dst, src, stream };
	struct fdry_strided once = *s, repeats = { 0 };
	uint64_t calls;
	int err;

	if (!dst.host)
		fdry_strided_split(&once, &repeats);
	calls = calls_count(once);
	if (calls > CALLS_MAX)
		return fdry_fail(
			FDRY_E_LIMIT,
			"the orders of elements in the two arrays need %llu copies by the "
			"driver, more than the limit of %d; make the other array contiguous "
			"first",
			(unsigned long long)calls, CALLS_MAX);
	err = boxes_copy(&c, once, dst.addr, src.addr);
	return err ? err : repeat(&c, once, &repeats);
}

/* --- in pieces --- */

struct cutter {
	size_t max;
	fdry_strided_fn fn;
	void *arg;
};

static int cut(const struct cutter *c, const struct fdry_strided *s, int64_t dst, int64_t src)
{
	struct fdry_strided inner = *s;
	uint64_t bytes, step, i;
	int err;

	if (!s->rank || fdry_strided_bytes(s) <= c->max)
		return c->fn(c->arg, s, dst, src);
	dim_remove(&inner, 0);
	bytes = fdry_strided_bytes(&inner);
	step = bytes <= c->max ? c->max / bytes : 1;
	for (i = 0; i < s->n[0]; i += step) {
		struct fdry_strided piece = *s;

		piece.n[0] = s->n[0] - i < step ? s->n[0] - i : step;
		err = cut(c, bytes <= c->max ? &piece : &inner, dst + (int64_t)i * s->dst[0],
			  src + (int64_t)i * s->src[0]);
		if (err)
			return err;
	}
	return 0;
}

int fdry_strided_pieces(const struct fdry_strided *s, size_t max, fdry_strided_fn fn, void *arg)
{
	const struct cutter c = { max, fn, arg };

	return cut(&c, s, 0, 0);
}
