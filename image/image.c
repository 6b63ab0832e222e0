// SPDX-License-Identifier: Apache-2.0
/*
 * image.c - reports what a loaded image has; writes and reads its tensors.
 */
#include "image/image_host.h"

#include <string.h>

#include "lib/opts.h"
#include "image/staging.h"
#include "image/strided.h"
#include "image/tensor.h"
#include "arch/stream.h"

void fdry_image_id(const struct fdry_image *img, char *id)
{
	if (img)
		fdry_oid_hex(&img->id, id);
	else
		*id = '\0';
}

size_t fdry_image_graph_count(const struct fdry_image *img)
{
	return img ? img->m.n_graphs : 0;
}

int fdry_image_graph(const struct fdry_image *img, size_t i, uint64_t *key, const char **name,
		     uint32_t *nodes)
{
	int err = fdry_need(img);

	if (err)
		return err;
	if (i >= img->m.n_graphs)
		return fdry_fail(FDRY_E_NOKEY,
				 "the image has %u graphs, but number %zu was asked for",
				 img->m.n_graphs, i);
	if (key)
		*key = img->m.graphs[i].key;
	if (name)
		*name = fdry_manifest_str(&img->m, img->m.graphs[i].name);
	if (nodes)
		*nodes = img->m.graphs[i].nodes;
	return 0;
}

size_t fdry_image_tensor_count(const struct fdry_image *img)
{
	return img ? img->m.n_tensors : 0;
}

int fdry_image_tensor(const struct fdry_image *img, size_t i, struct fdry_tensor *ret)
{
	int err = fdry_need(img) ?: fdry_need(ret);

	if (err)
		return err;
	if (i >= img->m.n_tensors)
		return fdry_fail(FDRY_E_NOKEY,
				 "the image has %u tensors, but number %zu was asked for",
				 img->m.n_tensors, i);
	fdry_image_tensor_get(img, (uint32_t)i, ret);
	return 0;
}

static int tensor_index(const struct fdry_image *img, const char *name, uint32_t *ret)
{
	const struct fdry_mf_tensor *t;
	int err = fdry_need(img) ?: fdry_need(name);

	if (err)
		return err;
	t = fdry_manifest_tensor(&img->m, name);
	if (!t)
		return fdry_fail(
			FDRY_E_NOKEY,
			"the image has no tensor named '%.80s'; fdry_image_describe() lists them",
			name);
	*ret = (uint32_t)(t - img->m.tensors);
	return 0;
}

int fdry_image_tensor_find(const struct fdry_image *img, const char *name, struct fdry_tensor *ret)
{
	uint32_t i = 0;
	int err = fdry_need(ret);

	if (err)
		return err;
	err = tensor_index(img, name, &i);
	if (err)
		return err;
	fdry_image_tensor_get(img, i, ret);
	return 0;
}

int fdry_image_fact(const struct fdry_image *img, const char *key, const char **value)
{
	const char *found;
	int err = fdry_need(img) ?: fdry_need(key) ?: fdry_need(value);

	if (err)
		return err;
	found = fdry_manifest_fact(&img->m, key);
	if (!found)
		return fdry_fail(
			FDRY_E_NOKEY,
			"the image states no fact '%.80s'; fdry_image_describe() lists them", key);
	*value = found;
	return 0;
}

int fdry_image_fact_at(const struct fdry_image *img, size_t i, const char **key, const char **value)
{
	int err = fdry_need(img) ?: fdry_need(key) ?: fdry_need(value);

	if (err)
		return err;
	if (i >= img->m.n_facts)
		return fdry_fail(FDRY_E_NOKEY,
				 "the image has %u facts, but number %zu was asked for",
				 img->m.n_facts, i);
	*key = fdry_manifest_str(&img->m, img->m.facts[i].key);
	*value = fdry_manifest_str(&img->m, img->m.facts[i].value);
	return 0;
}

int fdry_image_report(struct fdry_image *img, struct fdry_load_report *report)
{
	struct fdry_load_report copy;
	/* The check comes first: in a forked child, the lock may be held by a thread of the
	 * parent. */
	int err = fdry_image_usable(img) ?: fdry_need(report);

	if (err)
		return err;
	pthread_mutex_lock(&img->lock);
	copy = img->report;
	pthread_mutex_unlock(&img->lock);
	return fdry_report_give(&copy, sizeof(copy), report);
}

static void mark_filled(struct fdry_image *img, uint32_t i)
{
	pthread_mutex_lock(&img->lock);
	if (img->m.tensors[i].flags & FDRY_TENSOR_EXTERNAL && !img->filled[i]) {
		img->filled[i] = 1;
		atomic_fetch_sub(&img->unfilled, 1);
	}
	pthread_mutex_unlock(&img->lock);
}

int fdry_image_filled(struct fdry_image *img, const char *name)
{
	uint32_t i = 0;
	int err = fdry_image_usable(img);

	if (err)
		return err;
	if (!name) {
		for (; i < img->m.n_tensors; i++)
			mark_filled(img, i);
		return 0;
	}
	err = tensor_index(img, name, &i);
	if (err)
		return err;
	if (!(img->m.tensors[i].flags & FDRY_TENSOR_EXTERNAL))
		return fdry_fail(FDRY_E_STATE,
				 "tensor '%s' is not external: the image itself fills it", name);
	mark_filled(img, i);
	return 0;
}

/* --- copies --- */

enum direction { WRITE, READ };

struct copy {
	enum direction direction;
	const char *name;
	struct fdry_tensor other; /* the other side of the copy */
	bool raw;                 /* the other side has no shape: it is @len bytes, row by row */
	bool wait;                /* return only when the copy is complete */
	size_t len;
	CUstream stream;
};

/* The image's side of a copy. */
struct target {
	uint32_t index;
	struct fdry_place at;
	uint64_t bytes;
	struct fdry_strided how;
};

/* Describe @c's bytes as an array of the tensor's shape, row by row. */
static int raw_match(const struct fdry_tensor *t, const struct copy *c, uint64_t bytes,
		     struct fdry_tensor *other)
{
	if (bytes != c->len)
		return fdry_fail(FDRY_E_RANGE, "tensor '%s' has %llu bytes, and %zu were given",
				 c->name, (unsigned long long)bytes, c->len);
	*other = *t;
	other->addr = c->other.addr;
	other->flags = c->other.flags;
	if (bytes) /* for a tensor without elements, the product of the other dimensions could
		      overflow */
		fdry_strided_rows(other);
	return 0;
}

static int shape_differs(const struct fdry_tensor *t, const struct fdry_tensor *other)
{
	uint32_t d = 0;

	if (t->rank != other->rank)
		return fdry_fail(FDRY_E_RANGE,
				 "tensor '%s' has %u dimensions, and the array has %u; give it "
				 "the tensor's shape",
				 t->name, t->rank, other->rank);
	while (t->shape[d] == other->shape[d])
		d++;
	return fdry_fail(
		FDRY_E_RANGE,
		"tensor '%s' has %lld elements in dimension %u, and the array has %lld; give "
		"it the tensor's shape",
		t->name, (long long)t->shape[d], d, (long long)other->shape[d]);
}

/* Check that the array has the tensor's type and shape. */
static int array_match(const struct fdry_tensor *t, const struct copy *c, struct fdry_tensor *other)
{
	*other = c->other;
	if (other->flags & ~(uint32_t)FDRY_TENSOR_HOST)
		return fdry_fail(
			FDRY_E_INVAL,
			"tensor '%s': the array has flags %#x; only FDRY_TENSOR_HOST is allowed",
			t->name, other->flags);
	if (t->rank != other->rank || memcmp(t->shape, other->shape, t->rank * sizeof(t->shape[0])))
		return shape_differs(t, other);
	if (t->dtype != other->dtype)
		return fdry_fail(
			FDRY_E_INVAL,
			"tensor '%s' has elements of type %u, and the array of type %u (enum "
			"fdry_dtype); convert it",
			t->name, t->dtype, other->dtype);
	return 0;
}

static int overlap_check(const struct fdry_tensor *t, const struct fdry_tensor *other,
			 enum direction direction)
{
	if (direction == WRITE && !fdry_tensor_distinct(t))
		return fdry_fail(
			FDRY_E_INVAL,
			"elements of tensor '%s' share memory (it is expanded, or its rows "
			"overlap), so it can be read but not written; write the tensor "
			"that it is a view of",
			t->name);
	if (direction == READ && !fdry_tensor_distinct(other))
		return fdry_fail(FDRY_E_INVAL,
				 "tensor '%s' cannot be read into an array whose elements share "
				 "memory; give another array",
				 t->name);
	return 0;
}

static int copy_target(const struct fdry_image *img, const struct copy *c, struct target *ret)
{
	struct fdry_tensor t, other;
	uint64_t extent;
	int err;

	err = tensor_index(img, c->name, &ret->index);
	if (err)
		return err;
	fdry_image_tensor_get(img, ret->index, &t);
	err = fdry_tensor_extent(&t, &extent);
	if (err)
		return err;
	err = fdry_tensor_bytes(&t, &ret->bytes);
	if (err)
		return err;
	err = c->raw ? raw_match(&t, c, ret->bytes, &other) : array_match(&t, c, &other);
	if (err)
		return err;
	err = overlap_check(&t, &other, c->direction);
	if (err)
		return err;
	ret->at = (struct fdry_place){ t.addr, t.flags & FDRY_TENSOR_HOST };
	if (!ret->bytes)
		return 0;
	if (!other.addr)
		return fdry_fail(FDRY_E_INVAL,
				 "tensor '%s': the %s memory is NULL; give %llu bytes", c->name,
				 other.flags & FDRY_TENSOR_HOST ? "host" : "device",
				 (unsigned long long)ret->bytes);
	return fdry_strided_make(&t, &other, c->direction == WRITE, &ret->how);
}

/* The processor copies between host memory and host memory, after the work of the stream. */
static int host_copy(const struct fdry_image *img, const struct copy *c, const struct target *t)
{
	void *tensor = (void *)(uintptr_t)t->at.addr, *other = (void *)(uintptr_t)c->other.addr;
	int err = fdry_stream_wait(img->drv, c->stream);

	if (err)
		return err;
	if (c->direction == WRITE)
		fdry_strided_host(&t->how, tensor, other);
	else
		fdry_strided_host(&t->how, other, tensor);
	return 0;
}

/* Copy between the device and host memory that may be pageable. A single run of bytes is copied
 * directly, anything else through pinned memory. */
static int pageable_copy(struct fdry_image *img, const struct copy *c, const struct target *t)
{
	const struct fdry_staged s = { t->at, (void *)(uintptr_t)c->other.addr, &t->how,
				       c->stream };
	struct fdry_strided folded = t->how;

	fdry_strided_fold(&folded);
	if (folded.rank || !c->wait)
		return c->direction == WRITE ? fdry_staging_write(img, &s)
					     : fdry_staging_read(img, &s);
	if (c->direction == WRITE) {
		fdry_count_copy(TO, t->bytes);
		return fdry_call(img->drv, cuMemcpyHtoDAsync_v2, t->at.addr, s.data, t->bytes,
				 c->stream);
	}
	fdry_count_copy(FROM, t->bytes);
	return fdry_call(img->drv, cuMemcpyDtoHAsync_v2, s.data, t->at.addr, t->bytes, c->stream);
}

/* Copy to or from the caller's device memory. */
static int device_copy(const struct fdry_image *img, const struct copy *c, const struct target *t)
{
	struct fdry_place other = { c->other.addr, false };

	if (!t->at.host)
		fdry_count_copy(ON, t->bytes);
	else if (c->direction == WRITE)
		fdry_count_copy(FROM, t->bytes);
	else
		fdry_count_copy(TO, t->bytes);
	return c->direction == WRITE
		       ? fdry_strided_device(img->drv, &t->how, t->at, other, c->stream)
		       : fdry_strided_device(img->drv, &t->how, other, t->at, c->stream);
}

static int copy_in_context(struct fdry_image *img, const struct copy *c, const struct target *t)
{
	int err = fdry_image_stream_check(img, c->stream);

	if (err)
		return err;
	if (t->bytes && c->other.flags & FDRY_TENSOR_HOST && t->at.host && c->wait)
		return host_copy(img, c, t);
	if (t->bytes)
		err = c->other.flags & FDRY_TENSOR_HOST ? pageable_copy(img, c, t)
							: device_copy(img, c, t);
	return err || !c->wait ? err : fdry_stream_wait(img->drv, c->stream);
}

static int copy_do(struct fdry_image *img, const struct copy *c)
{
	CUstreamCaptureMode mode;
	struct target t = { 0 };
	int err = fdry_image_usable(img);

	if (err)
		return err;
	err = copy_target(img, c, &t);
	if (err)
		return err;
	if (!t.at.host && !(img->m.tensors[t.index].flags & FDRY_TENSOR_EXTERNAL))
		err = fdry_content_use(img);
	if (err)
		return err;
	err = fdry_image_enter_primary(img, &mode);
	if (err)
		return err;
	err = copy_in_context(img, c, &t);
	fdry_image_leave(img, &mode);
	if (err)
		return err;
	if (c->direction == WRITE)
		mark_filled(img, t.index);
	return 0;
}

static struct copy raw_copy(enum direction direction, const char *name, const void *data,
			    size_t len, CUstream stream)
{
	return (struct copy){ .direction = direction,
			      .name = name,
			      .raw = true,
			      .wait = true,
			      .len = len,
			      .stream = stream,
			      .other = { .addr = (uintptr_t)data, .flags = FDRY_TENSOR_HOST } };
}

int fdry_image_write(struct fdry_image *img, const char *name, const void *data, size_t len,
		     CUstream stream)
{
	struct copy c = raw_copy(WRITE, name, data, len, stream);

	return copy_do(img, &c);
}

int fdry_image_write_async(struct fdry_image *img, const char *name, const void *data, size_t len,
			   CUstream stream)
{
	struct copy c = raw_copy(WRITE, name, data, len, stream);

	c.wait = false;
	return copy_do(img, &c);
}

int fdry_image_copy(struct fdry_image *img, const char *name, fdry_devptr src, size_t len,
		    CUstream stream)
{
	struct copy c = raw_copy(WRITE, name, NULL, len, stream);

	c.other = (struct fdry_tensor){ .addr = src };
	c.wait = false;
	return copy_do(img, &c);
}

int fdry_image_read(struct fdry_image *img, const char *name, void *data, size_t len,
		    CUstream stream)
{
	struct copy c = raw_copy(READ, name, data, len, stream);

	return copy_do(img, &c);
}

int fdry_image_write_array(struct fdry_image *img, const char *name, const struct fdry_tensor *src,
			   uint32_t flags, CUstream stream)
{
	int err = fdry_need(src);

	if (err)
		return err;
	if (flags & ~(uint32_t)FDRY_ARRAY_ASYNC)
		return fdry_fail(FDRY_E_INVAL,
				 "fdry_image_write_array() does not know the flags %#x; pass 0 or "
				 "flags of image.h", flags);
	return copy_do(img, &(struct copy){ .direction = WRITE,
					    .name = name,
					    .other = *src,
					    .wait = !(flags & FDRY_ARRAY_ASYNC),
					    .stream = stream });
}

int fdry_image_read_array(struct fdry_image *img, const char *name, const struct fdry_tensor *dst,
			  CUstream stream)
{
	int err = fdry_need(dst);

	if (err)
		return err;
	return copy_do(img, &(struct copy){ .direction = READ,
					    .name = name,
					    .other = *dst,
					    .wait = true,
					    .stream = stream });
}

int fdry_image_host(struct fdry_image *img, const char *name, void **ret)
{
	struct fdry_tensor t;
	uint32_t i = 0;
	int err = fdry_image_usable(img) ?: fdry_need(ret);

	if (err)
		return err;
	err = tensor_index(img, name, &i);
	if (err)
		return err;
	fdry_image_tensor_get(img, i, &t);
	if (!(t.flags & FDRY_TENSOR_HOST))
		return fdry_fail(FDRY_E_STATE,
				 "tensor '%s' lies on the device; use fdry_image_write() and "
				 "fdry_image_read()",
				 name);
	*ret = (void *)(uintptr_t)t.addr;
	return 0;
}

int fdry_image_unfilled_make(struct fdry_image *img)
{
	uint32_t i, n = 0;

	img->filled = calloc(img->m.n_tensors ? img->m.n_tensors : 1, 1);
	if (!img->filled)
		return fdry_nomem();
	for (i = 0; i < img->m.n_tensors; i++)
		n += img->m.tensors[i].flags & FDRY_TENSOR_EXTERNAL;
	atomic_store(&img->unfilled, n);
	return 0;
}
