// SPDX-License-Identifier: Apache-2.0
/*
 * region.c - lists the allocations of a capture, tells who made them, lists files of code, and
 * removes graphs; see foundry/capture.h.
 */
#include <stdlib.h>
#include <string.h>

#include "image/capture/capture.h"
#include "lib/opts.h"

static int alloc_cmp(const void *a, const void *b)
{
	uint64_t x = ((const struct fdry_alloc *)a)->serial,
		 y = ((const struct fdry_alloc *)b)->serial;

	return (x > y) - (x < y);
}

static int memory_copy(struct fdry_alloc *made, size_t n, struct fdry_memory **ret)
{
	struct fdry_memory *copy = NULL;
	size_t i;

	if (n) {
		copy = calloc(n, sizeof(*copy));
		if (!copy)
			return fdry_nomem();
		qsort(made, n, sizeof(*made), alloc_cmp);
	}
	for (i = 0; i < n; i++)
		copy[i] = (struct fdry_memory){ made[i].addr, made[i].size };
	*ret = copy;
	return 0;
}

int fdry_capture_allocs(struct fdry_capture *cap, struct fdry_memory **ret, size_t *count)
{
	struct fdry_alloc *made = NULL;
	CUdeviceptr base;
	uint64_t size;
	size_t n = 0;
	int err = fdry_capture_check(cap) ?: fdry_need(ret) ?: fdry_need(count);

	if (err)
		return err;
	err = fdry_interposer_result(cap->hook, cap->hook->region_ledger(&base, &size, &made, &n));
	if (err)
		return err;
	err = memory_copy(made, n, ret);
	if (err)
		goto out_free;
	*count = n;
out_free:
	free(made);
	return err;
}

int fdry_capture_code_files(struct fdry_capture *cap, char **ret, size_t *len)
{
	int err = fdry_capture_check(cap) ?: fdry_need(ret) ?: fdry_need(len);

	return err ?: fdry_interposer_result(cap->hook, cap->hook->code_files(ret, len));
}

static uint32_t origin_of(const struct fdry_alloc *a)
{
	return a->kind == FDRY_KIND_SHARED ? FDRY_MEMORY_SHARED
	       : a->kind == FDRY_KIND_MAP  ? FDRY_MEMORY_MAPPED
					   : FDRY_MEMORY_REGION;
}

int fdry_capture_origin(struct fdry_capture *cap, uint64_t addr, uint32_t *ret)
{
	struct fdry_alloc *made = NULL;
	CUdeviceptr base;
	uint64_t size;
	size_t i, n = 0;
	int err = fdry_capture_check(cap) ?: fdry_need(ret);

	if (err)
		return err;
	err = fdry_interposer_result(cap->hook, cap->hook->region_ledger(&base, &size, &made, &n));
	if (err)
		return err;
	for (i = 0; i < n && addr - made[i].addr >= made[i].extent; i++)
		;
	if (i < n)
		*ret = origin_of(&made[i]);
	else
		err = fdry_fail(FDRY_E_RANGE,
				"0x%llx lies in no live allocation of the capture's region",
				(unsigned long long)addr);
	free(made);
	return err;
}

/* Remove the declared draws of graph @key. */
static void rng_uses_drop(struct fdry_capture *cap, uint64_t key)
{
	struct fdry_capture_rng_use *d = fdry_array(cap->rng_uses, struct fdry_capture_rng_use);
	size_t n = fdry_array_count(cap->rng_uses, struct fdry_capture_rng_use), i, kept = 0;

	for (i = 0; i < n; i++) {
		if (d[i].key == key)
			free((char *)d[i].desc.generator);
		else
			d[kept++] = d[i];
	}
	cap->rng_uses.len = kept * sizeof(*d);
}

/* Remove graph @key. The capture's lock is held. */
static int graph_drop(struct fdry_capture *cap, uint64_t key)
{
	struct fdry_capture_graph *g = fdry_array(cap->graphs, struct fdry_capture_graph);
	size_t n = fdry_array_count(cap->graphs, struct fdry_capture_graph), i;

	for (i = 0; i < n && g[i].key != key; i++)
		;
	if (i == n)
		return fdry_fail(FDRY_E_NOKEY, "no graph with key %llu was added; add it first",
				 (unsigned long long)key);
	rng_uses_drop(cap, key);
	fdry_capture_graph_release(&g[i]);
	memmove(&g[i], &g[i + 1], (n - i - 1) * sizeof(*g));
	cap->graphs.len -= sizeof(*g);
	return 0;
}

int fdry_capture_graph_remove(struct fdry_capture *cap, uint64_t key)
{
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	err = graph_drop(cap, key);
	pthread_mutex_unlock(&cap->lock);
	return err;
}
