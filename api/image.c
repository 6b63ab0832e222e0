// SPDX-License-Identifier: Apache-2.0
/*
 * image.c - what can be asked of a loaded image, and its tensors written and read.
 */
#include "api/image_host.h"

#include <string.h>

#include "api/opts.h"
#include "api/staging.h"
#include "api/tensor.h"
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

int fdry_image_graph(const struct fdry_image *img, size_t i, uint64_t *key, const char **name, uint32_t *nodes)
{
	int err = fdry_need(img);

	if (err)
		return err;
	if (i >= img->m.n_graphs)
		return fdry_fail(FDRY_E_NOKEY, "the image has %u graphs, there is no number %zu", img->m.n_graphs, i);
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
	int err = fdry_need(img);

	if (!err)
		err = fdry_need(ret);
	if (err)
		return err;
	if (i >= img->m.n_tensors)
		return fdry_fail(FDRY_E_NOKEY, "the image has %u tensors, there is no number %zu", img->m.n_tensors, i);
	fdry_image_tensor_get(img, (uint32_t)i, ret);
	return 0;
}

static int tensor_index(const struct fdry_image *img, const char *name, uint32_t *ret)
{
	const struct fdry_mf_tensor *t;
	int err = fdry_need(img);

	if (!err)
		err = fdry_need(name);
	if (err)
		return err;
	t = fdry_manifest_tensor(&img->m, name);
	if (!t)
		return fdry_fail(FDRY_E_NOKEY, "the image has no tensor named '%.80s'; fdry_image_describe() lists them",
				 name);
	*ret = (uint32_t)(t - img->m.tensors);
	return 0;
}

int fdry_image_tensor_find(const struct fdry_image *img, const char *name, struct fdry_tensor *ret)
{
	uint32_t i = 0;
	int err = fdry_need(ret);

	if (!err)
		err = tensor_index(img, name, &i);
	if (!err)
		fdry_image_tensor_get(img, i, ret);
	return err;
}

int fdry_image_fact(const struct fdry_image *img, const char *key, const char **value)
{
	const char *found;
	int err = fdry_need(img);

	if (!err)
		err = fdry_need(key);
	if (!err)
		err = fdry_need(value);
	if (err)
		return err;
	found = fdry_manifest_fact(&img->m, key);
	if (!found)
		return fdry_fail(FDRY_E_NOKEY, "the image states no fact '%.80s'; fdry_image_describe() lists them", key);
	*value = found;
	return 0;
}

int fdry_image_report(const struct fdry_image *img, struct fdry_load_report *report)
{
	struct fdry_load_report copy;
	pthread_mutex_t *lock;
	int err = fdry_image_check(img); /* in a forked child the lock may be held for ever */

	if (!err)
		err = fdry_need(report);
	if (err)
		return err;
	lock = (pthread_mutex_t *)&img->lock;
	pthread_mutex_lock(lock);
	copy = img->report;
	pthread_mutex_unlock(lock);
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
	int err = fdry_image_check(img);

	for (; !err && !name && i < img->m.n_tensors; i++)
		mark_filled(img, i);
	if (err || !name)
		return err;
	err = tensor_index(img, name, &i);
	if (!err && !(img->m.tensors[i].flags & FDRY_TENSOR_EXTERNAL))
		err = fdry_fail(FDRY_E_STATE, "tensor '%s' is not external: the image itself fills it", name);
	if (!err)
		mark_filled(img, i);
	return err;
}

/* --- copies --- */

enum direction { WRITE, WRITE_ASYNC, READ, COPY };

struct copy {
	enum direction direction;
	const char *name;
	void *host;     /* of all but COPY */
	CUdeviceptr src; /* of COPY */
	size_t len;
	CUstream stream;
};

/* The tensor of a copy. */
struct target {
	uint32_t index;
	CUdeviceptr addr;
	bool host;
};

/* By name, dense, exactly as long. */
static int copy_target(const struct fdry_image *img, const struct copy *c, struct target *ret)
{
	struct fdry_tensor t;
	uint64_t bytes;
	int err;

	err = tensor_index(img, c->name, &ret->index);
	if (err)
		return err;
	fdry_image_tensor_get(img, ret->index, &t);
	err = fdry_tensor_extent(&t, &bytes);
	if (err)
		return err;
	if (!fdry_tensor_dense(&t))
		return fdry_fail(FDRY_E_INVAL, "tensor '%s' has gaps between its elements; copy by its address and strides",
				 c->name);
	if (bytes != c->len)
		return fdry_fail(FDRY_E_RANGE, "tensor '%s' has %llu bytes, %zu were given", c->name,
				 (unsigned long long)bytes, c->len);
	if (c->len && c->direction != COPY && !c->host)
		return fdry_fail(FDRY_E_INVAL, "tensor '%s': the host memory is NULL; give %zu bytes", c->name, c->len);
	ret->addr = t.addr;
	ret->host = t.flags & FDRY_TENSOR_HOST;
	return 0;
}

static int copy_start(const struct fdry_image *img, const struct copy *c, CUdeviceptr addr)
{
	const struct fdry_driver *drv = img->drv;

	if (c->direction == WRITE) {
		fdry_count_copy(TO, c->len);
		return fdry_call(drv, cuMemcpyHtoDAsync_v2, addr, c->host, c->len, c->stream);
	}
	if (c->direction == READ) {
		fdry_count_copy(FROM, c->len);
		return fdry_call(drv, cuMemcpyDtoHAsync_v2, c->host, addr, c->len, c->stream);
	}
	fdry_count_copy(ON, c->len);
	return fdry_call(drv, cuMemcpyDtoDAsync_v2, addr, c->src, c->len, c->stream);
}

static int device_copy(const struct fdry_image *img, const struct copy *c, CUdeviceptr addr)
{
	int err = c->len ? copy_start(img, c, addr) : 0;

	return err || c->direction == COPY ? err : fdry_stream_wait(img->drv, c->stream);
}

/* The processor writes and reads host memory itself, when what was launched is done with it. */
static int host_copy(const struct fdry_image *img, const struct copy *c, void *at)
{
	int err;

	if (c->direction == COPY) {
		fdry_count_copy(FROM, c->len);
		return fdry_call(img->drv, cuMemcpyDtoHAsync_v2, at, c->src, c->len, c->stream);
	}
	err = fdry_stream_wait(img->drv, c->stream);
	if (!err && c->direction == WRITE)
		memcpy(at, c->host, c->len);
	else if (!err)
		memcpy(c->host, at, c->len);
	return err;
}

static int copy_in_context(struct fdry_image *img, const struct copy *c, const struct target *t)
{
	int err = fdry_image_stream_check(img, c->stream);

	if (err)
		return err;
	if (c->direction == WRITE_ASYNC)
		return fdry_staging_write(img, &(struct fdry_staged){ t->addr, t->host, c->host, c->len, c->stream });
	return t->host ? host_copy(img, c, (void *)(uintptr_t)t->addr) : device_copy(img, c, t->addr);
}

static int copy_do(struct fdry_image *img, const struct copy *c)
{
	CUstreamCaptureMode mode;
	struct target t = { 0 };
	int err;

	err = fdry_image_check(img);
	if (!err)
		err = copy_target(img, c, &t);
	if (!err)
		err = fdry_image_enter_primary(img, &mode);
	if (err)
		return err;
	err = copy_in_context(img, c, &t);
	fdry_image_leave(img, &mode);
	if (!err && c->direction != READ)
		mark_filled(img, t.index);
	return err;
}

int fdry_image_write(struct fdry_image *img, const char *name, const void *data, size_t len, CUstream stream)
{
	return copy_do(img, &(struct copy){ .direction = WRITE, .name = name, .host = (void *)data, .len = len,
					    .stream = stream });
}

int fdry_image_write_async(struct fdry_image *img, const char *name, const void *data, size_t len, CUstream stream)
{
	return copy_do(img, &(struct copy){ .direction = WRITE_ASYNC, .name = name, .host = (void *)data, .len = len,
					    .stream = stream });
}

int fdry_image_copy(struct fdry_image *img, const char *name, fdry_devptr src, size_t len, CUstream stream)
{
	return copy_do(img, &(struct copy){ .direction = COPY, .name = name, .src = src, .len = len,
					    .stream = stream });
}

int fdry_image_read(struct fdry_image *img, const char *name, void *data, size_t len, CUstream stream)
{
	return copy_do(img, &(struct copy){ .direction = READ, .name = name, .host = data, .len = len,
					    .stream = stream });
}

int fdry_image_host(struct fdry_image *img, const char *name, void **ret)
{
	struct fdry_tensor t;
	uint32_t i = 0;
	int err = fdry_image_check(img);

	if (!err)
		err = fdry_need(ret);
	if (!err)
		err = tensor_index(img, name, &i);
	if (err)
		return err;
	fdry_image_tensor_get(img, i, &t);
	if (!(t.flags & FDRY_TENSOR_HOST))
		return fdry_fail(FDRY_E_STATE, "tensor '%s' lies on the device; use fdry_image_write() and fdry_image_read()", name);
	*ret = (void *)(uintptr_t)t.addr;
	return 0;
}

int fdry_image_synchronize(struct fdry_image *img, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_check(img);

	if (!err)
		err = fdry_image_enter_primary(img, &mode);
	if (err)
		return err;
	err = fdry_image_stream_check(img, stream);
	if (!err)
		err = fdry_stream_wait(img->drv, stream);
	fdry_image_leave(img, &mode);
	return err;
}
