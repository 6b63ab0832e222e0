// SPDX-License-Identifier: Apache-2.0
/*
 * image.c - what can be asked of a loaded image, and its tensors written and read.
 */
#include "api/image.h"

#include <string.h>

#include "api/opts.h"
#include "api/tensor.h"

void fdry_image_id(const struct fdry_image *img, char *id)
{
	fdry_oid_hex(&img->id, id);
}

size_t fdry_image_graph_count(const struct fdry_image *img)
{
	return img->m.n_graphs;
}

int fdry_image_graph(const struct fdry_image *img, size_t i, uint64_t *key, const char **name, uint32_t *nodes)
{
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
	return img->m.n_tensors;
}

int fdry_image_tensor(const struct fdry_image *img, size_t i, struct fdry_tensor *ret)
{
	if (i >= img->m.n_tensors)
		return fdry_fail(FDRY_E_NOKEY, "the image has %u tensors, there is no number %zu", img->m.n_tensors, i);
	fdry_manifest_tensor_get(&img->m, &img->m.tensors[i], ret);
	return 0;
}

static int tensor_index(const struct fdry_image *img, const char *name, uint32_t *ret)
{
	const struct fdry_mf_tensor *t = name ? fdry_manifest_tensor(&img->m, name) : NULL;

	if (!t)
		return fdry_fail(FDRY_E_NOKEY, "the image has no tensor named '%.80s'; fdry_image_describe() lists them", name ? name : "");
	*ret = (uint32_t)(t - img->m.tensors);
	return 0;
}

int fdry_image_tensor_find(const struct fdry_image *img, const char *name, struct fdry_tensor *ret)
{
	uint32_t i = 0;
	int err = tensor_index(img, name, &i);

	if (!err)
		fdry_manifest_tensor_get(&img->m, &img->m.tensors[i], ret);
	return err;
}

int fdry_image_fact(const struct fdry_image *img, const char *key, const char **value)
{
	const char *found = fdry_manifest_fact(&img->m, key);

	if (!found)
		return fdry_fail(FDRY_E_NOKEY, "the image states no fact '%.80s'", key);
	*value = found;
	return 0;
}

int fdry_image_report(const struct fdry_image *img, struct fdry_load_report *report)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)&img->lock;
	struct fdry_load_report copy;

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
	int err;

	if (!name) {
		for (i = 0; i < img->m.n_tensors; i++)
			mark_filled(img, i);
		return 0;
	}
	err = tensor_index(img, name, &i);
	if (!err && !(img->m.tensors[i].flags & FDRY_TENSOR_EXTERNAL))
		err = fdry_fail(FDRY_E_STATE, "tensor '%s' is not external: the image itself fills it", name);
	if (!err)
		mark_filled(img, i);
	return err;
}

/* The tensor of a copy: by name, dense, exactly @len bytes. */
static int copy_target(const struct fdry_image *img, const char *name, size_t len, uint32_t *index, CUdeviceptr *addr)
{
	struct fdry_tensor t;
	uint64_t bytes;
	int err;

	err = tensor_index(img, name, index);
	if (err)
		return err;
	fdry_manifest_tensor_get(&img->m, &img->m.tensors[*index], &t);
	err = fdry_tensor_extent(&t, &bytes);
	if (err)
		return err;
	if (!fdry_tensor_dense(&t))
		return fdry_fail(FDRY_E_INVAL, "tensor '%s' has gaps between its elements; copy by its address and strides", name);
	if (bytes != len)
		return fdry_fail(FDRY_E_RANGE, "tensor '%s' has %llu bytes, %zu were given", name, (unsigned long long)bytes, len);
	*addr = t.addr;
	return 0;
}

/* One of the three copies; the other side of it is in the field that fits. */
struct copy {
	enum { FROM_HOST, FROM_DEVICE, TO_HOST } way;
	const void *from;
	CUdeviceptr src;
	void *to;
};

static int copy_start(const struct fdry_image *img, const struct copy *c, CUdeviceptr addr, size_t len, CUstream stream)
{
	switch (c->way) {
	case FROM_HOST:
		return fdry_call(img->drv, cuMemcpyHtoDAsync_v2, addr, c->from, len, stream);
	case FROM_DEVICE:
		return fdry_call(img->drv, cuMemcpyDtoDAsync_v2, addr, c->src, len, stream);
	default:
		return fdry_call(img->drv, cuMemcpyDtoHAsync_v2, c->to, addr, len, stream);
	}
}

static int tensor_copy(struct fdry_image *img, const char *name, size_t len, CUstream stream, const struct copy *c)
{
	CUdeviceptr addr = 0;
	uint32_t i = 0;
	int err;

	err = copy_target(img, name, len, &i, &addr);
	if (!err)
		err = fdry_image_enter(img);
	if (err)
		return err;
	if (len)
		err = copy_start(img, c, addr, len, stream);
	/* Host memory is the caller's again when this returns. */
	if (!err && c->way != FROM_DEVICE)
		err = fdry_call(img->drv, cuStreamSynchronize, stream);
	fdry_image_leave(img);
	if (!err && c->way != TO_HOST)
		mark_filled(img, i);
	return err;
}

int fdry_image_write(struct fdry_image *img, const char *name, const void *data, size_t len, CUstream stream)
{
	return tensor_copy(img, name, len, stream, &(struct copy){ .way = FROM_HOST, .from = data });
}

int fdry_image_copy(struct fdry_image *img, const char *name, fdry_devptr src, size_t len, CUstream stream)
{
	return tensor_copy(img, name, len, stream, &(struct copy){ .way = FROM_DEVICE, .src = src });
}

int fdry_image_read(struct fdry_image *img, const char *name, void *data, size_t len, CUstream stream)
{
	return tensor_copy(img, name, len, stream, &(struct copy){ .way = TO_HOST, .to = data });
}

int fdry_image_synchronize(struct fdry_image *img, CUstream stream)
{
	int err = fdry_image_enter(img);

	if (err)
		return err;
	err = fdry_call(img->drv, cuStreamSynchronize, stream);
	fdry_image_leave(img);
	return err;
}
