// SPDX-License-Identifier: Apache-2.0
/*
 * capture.c - the functions of a capture: begin and end, tensors, facts, graphs.
 *
 * Nothing is copied, hashed or parsed here; the seal does that (seal/). The region itself belongs
 * to the interposer. Locking: cap->lock guards the arrays.
 */
#include "image/capture/capture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/base.h"
#include "image/capture/host.h"
#include "image/functions.h"
#include "image/semaphores.h"
#include "lib/clock.h"
#include "lib/opts.h"
#include "image/tensor.h"
#include "mm/va_cache.h"
#include "lib/live.h"
#include "lib/telemetry.h"
#include "graph/kernel.h"

static int context_retain(struct fdry_capture *cap, int ordinal)
{
	int err = fdry_interposer_result(cap->hook, cap->hook->forked());
	const char *path;

	if (err)
		return err;
	path = cap->hook->real_path();
	if (!path)
		return fdry_fail(FDRY_E_NODRIVER, "%s", cap->hook->last_error());
	err = fdry_driver_open(path, &cap->drv);
	if (err)
		return err;
	err = fdry_driver_check(cap->drv);
	if (err)
		goto out_close;
	err = fdry_call(cap->drv, cuDeviceGet, &cap->device, ordinal);
	if (err)
		goto out_close;
	err = fdry_call(cap->drv, cuDevicePrimaryCtxRetain, &cap->ctx, cap->device);
	if (err)
		goto out_close;
	err = fdry_interposer_result(cap->hook, cap->hook->reached());
	if (err)
		goto out_release;
	return 0;
out_release:
	(void)fdry_call_raw(cap->drv, cuDevicePrimaryCtxRelease_v2, cap->device);
out_close:
	fdry_driver_close(cap->drv);
	return err;
}

static void context_release(struct fdry_capture *cap)
{
	(void)fdry_call_raw(cap->drv, cuDevicePrimaryCtxRelease_v2, cap->device);
	fdry_driver_close(cap->drv);
}

/* Begin a region of the size that the caller asks for, or else of the largest size that is free. */
static int region_begin(struct fdry_capture *cap, const struct fdry_capture_opts *o)
{
	struct fdry_placed *p = &cap->placed;
	int (*begin)(CUdeviceptr, uint64_t) =
		o->after ? cap->hook->region_move : cap->hook->region_begin;
	int err;

	p->base = o->base ? o->base : fdry_base_for_name(o->name);
	p->size = o->size ? o->size : FDRY_REGION_SIZE_MAX;
	fdry_va_cache_clear(p->base, p->size + o->aside); /* addresses that unloaded images left
							     reserved */
	err = fdry_interposer_result(cap->hook, begin(p->base, p->size));
	while ((err == -FDRY_E_TAKEN || err == -FDRY_E_NODEVMEM) && !o->size &&
	       p->size > FDRY_REGION_SIZE_MIN) {
		p->size /= 2;
		err = fdry_interposer_result(cap->hook, begin(p->base, p->size));
	}
	return fdry_placed_fail(err, p->base, p->size);
}

/* Apply the other options to a region that has begun. */
static int region_extend(struct fdry_capture *cap, const struct fdry_capture_opts *o)
{
	const struct fdry_hook *hook = cap->hook;
	int err = o->aside ? fdry_interposer_result(hook, hook->region_aside_begin(o->aside)) : 0;

	if (err)
		return fdry_placed_fail(err, cap->placed.base + cap->placed.size, o->aside);
	cap->placed.size += o->aside;
	cap->pinned = o->flags & FDRY_CAPTURE_PINNED;
	hook->region_pinned(cap->pinned);
	if (!o->preallocate)
		return 0;
	return fdry_interposer_result(hook, hook->region_preallocate(o->preallocate));
}

int fdry_capture_enter(const struct fdry_capture *cap)
{
	return fdry_call(cap->drv, cuCtxPushCurrent_v2, cap->ctx);
}

void fdry_capture_leave(const struct fdry_capture *cap)
{
	CUcontext popped;

	(void)fdry_call_raw(cap->drv, cuCtxPopCurrent_v2, &popped);
}

static int region_start(struct fdry_capture *cap, const struct fdry_capture_opts *o)
{
	int err = fdry_capture_enter(cap);

	if (err)
		return err;
	err = region_begin(cap, o);
	if (err)
		goto out_leave;
	err = region_extend(cap, o);
	if (err)
		cap->hook->region_end();
out_leave:
	fdry_capture_leave(cap);
	if (err)
		return err;
	if (o->after) {
		fdry_placed_remove(&o->after->placed);
		o->after->left = true;
	}
	fdry_placed_add(&cap->placed);
	return 0;
}

static int opts_check(const struct fdry_capture_opts *o)
{
	int err;

	if (o->flags & ~(uint32_t)FDRY_CAPTURE_PINNED)
		return fdry_fail(FDRY_E_OPTS, "fdry_capture_begin() does not know the flags %#x; "
					      "use a newer library, or zero the struct first",
				 o->flags);
	if (o->aside && (!o->size || o->after))
		return fdry_fail(FDRY_E_OPTS,
				 "an aside area needs a region of a given size, "
				 "which must be the first region of its process; set "
				 "fdry_capture_opts.size, and not .after");
	err = o->after ? fdry_capture_check(o->after) : 0;
	if (err)
		return err;
	if (o->after && o->preallocate)
		return fdry_fail(FDRY_E_OPTS, "a capture that begins after another maps no memory "
					      "ahead; call fdry_capture_preallocate()");
	return 0;
}

int fdry_capture_begin(const struct fdry_capture_opts *opts, struct fdry_capture **ret)
{
	struct fdry_capture_opts o;
	struct fdry_capture *cap;
	int err;

	err = fdry_need(ret);
	if (err)
		return err;
	err = fdry_opts_take(opts, &o, sizeof(o));
	if (err)
		return err;
	err = opts_check(&o);
	if (err)
		return err;
	cap = calloc(1, sizeof(*cap));
	if (!cap)
		return fdry_nomem();
	cap->pid = getpid();
	cap->begun_ms = fdry_now_ms();
	memcpy(cap->placed.what, "a capture", sizeof("a capture"));
	pthread_mutex_init(&cap->lock, NULL);
	err = fdry_interposer_find(&cap->hook);
	if (err)
		goto out_free;
	err = context_retain(cap, o.device);
	if (err)
		goto out_free;
	err = region_start(cap, &o);
	if (err)
		goto out_release;
	fdry_count(FDRY_METRIC_CAPTURES, 1);
	fdry_live_add(cap);
	*ret = cap;
	return 0;
out_release:
	context_release(cap);
out_free:
	pthread_mutex_destroy(&cap->lock);
	free(cap);
	return err;
}

/* The capture whose progress function this thread runs. A seal of another capture cannot run in it,
 * because a process has one. */
static __thread const struct fdry_capture *reporting;

void fdry_capture_report(struct fdry_capture *cap, enum fdry_seal_phase phase, uint64_t done,
			 uint64_t total, double start_ms)
{
	if (!cap->progress)
		return;
	reporting = cap;
	cap->progress(cap->progress_arg, (int)phase, done, total, fdry_now_ms() - start_ms);
	reporting = NULL;
}

static int outside_check(const struct fdry_capture *cap)
{
	return cap != reporting ? 0
				: fdry_fail(FDRY_E_STATE,
					    "the seal waits for its progress function, which made "
					    "this call; make it when the seal has returned");
}

int fdry_capture_check(const struct fdry_capture *cap)
{
	int err;

	if (!cap)
		return fdry_need_fail("", "cap");
	err = fdry_live_check(cap, "the capture") ?: outside_check(cap);
	if (err)
		return err;
	if (cap->pid != getpid())
		return fdry_fail(
			FDRY_E_FORKED,
			"the capture was begun before fork(), and CUDA does not work in the child; "
			"use it in the process that began it");
	if (cap->left)
		return fdry_fail(FDRY_E_STATE,
				 "the region of this capture, at %#llx, ended when another began; "
				 "end the capture",
				 (unsigned long long)cap->placed.base);
	return 0;
}

/* A destroyed context has no work left. */
int fdry_capture_wait(const struct fdry_capture *cap)
{
	CUcontext ctx = NULL;
	CUresult res;
	int err = fdry_call(cap->drv, cuCtxGetCurrent, &ctx);

	if (err || !ctx || ctx == cap->ctx)
		return err;
	res = fdry_call_raw(cap->drv, cuCtxSynchronize);
	if (res == CUDA_ERROR_INVALID_CONTEXT || res == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return 0;
	return fdry_driver_result(cap->drv, FDRY_DRV_cuCtxSynchronize, res);
}

static void sealed_release(struct fdry_capture *cap)
{
	bool alive = cap->pid == getpid();
	bool entered = alive && !fdry_call_raw(cap->drv, cuCtxPushCurrent_v2, cap->ctx);

	fdry_sealed_release(&cap->sealed, entered);
	if (entered)
		fdry_capture_leave(cap);
}

void fdry_capture_end(struct fdry_capture *cap)
{
	size_t i;

	if (!cap || fdry_live_check(cap, "the capture") || outside_check(cap))
		return;
	if (cap->lent) {
		(void)fdry_fail(FDRY_E_STATE, "fdry_load_or_capture() ends this capture itself, "
					      "when the function that it was given to returns");
		return;
	}
	if (fdry_live_end(cap, "the capture"))
		return;
	sealed_release(cap);
	if (cap->pid == getpid()) {
		if (!cap->left) {
			fdry_placed_remove(&cap->placed);
			(void)cap->hook->region_end();
		}
		context_release(cap);
	}
	for (i = 0; i < fdry_array_count(cap->tensors, struct fdry_capture_tensor); i++)
		free((char *)fdry_array(cap->tensors, struct fdry_capture_tensor)[i].desc.name);
	for (i = 0; i < fdry_array_count(cap->facts, struct fdry_capture_fact); i++) {
		free(fdry_array(cap->facts, struct fdry_capture_fact)[i].key);
		free(fdry_array(cap->facts, struct fdry_capture_fact)[i].value);
	}
	for (i = 0; i < fdry_array_count(cap->graphs, struct fdry_capture_graph); i++)
		fdry_capture_graph_release(&fdry_array(cap->graphs, struct fdry_capture_graph)[i]);
	for (i = 0; i < fdry_array_count(cap->rng_uses, struct fdry_capture_rng_use); i++)
		free((char *)fdry_array(cap->rng_uses, struct fdry_capture_rng_use)[i]
			     .desc.generator);
	fdry_functions_release(&cap->functions);
	fdry_semaphores_release(&cap->semaphores);
	fdry_buf_release(&cap->rng_uses);
	fdry_graph_memo_release(&cap->memo);
	fdry_kernel_codes_release(&cap->codes);
	fdry_buf_release(&cap->tensors);
	fdry_buf_release(&cap->facts);
	fdry_buf_release(&cap->graphs);
	pthread_mutex_destroy(&cap->lock);
	free(cap);
}

int fdry_capture_pause(struct fdry_capture *cap)
{
	int err = fdry_capture_check(cap);

	return err ? err : fdry_interposer_result(cap->hook, cap->hook->region_pause());
}

int fdry_capture_resume(struct fdry_capture *cap)
{
	int err = fdry_capture_check(cap);

	return err ? err : fdry_interposer_result(cap->hook, cap->hook->region_resume());
}

int fdry_capture_aside(struct fdry_capture *cap, int on)
{
	int err = fdry_capture_check(cap);

	return err ? err : fdry_interposer_result(cap->hook, cap->hook->region_aside(on));
}

int fdry_capture_offset(struct fdry_capture *cap, uint64_t *ret)
{
	int err = fdry_capture_check(cap) ?: fdry_need(ret);

	return err ? err : fdry_interposer_result(cap->hook, cap->hook->region_offset(ret));
}

static int offset_set(struct fdry_capture *cap, uint64_t offset)
{
	uint64_t before = 0;
	int err;

	err = fdry_interposer_result(cap->hook, cap->hook->region_offset(&before));
	if (err)
		return err;
	err = fdry_interposer_result(cap->hook, cap->hook->region_set_offset(offset));
	if (err)
		return err;
	if (before > cap->highest)
		cap->highest = before;
	return 0;
}

int fdry_capture_set_offset(struct fdry_capture *cap, uint64_t offset)
{
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	err = offset_set(cap, offset);
	pthread_mutex_unlock(&cap->lock);
	return err;
}

int fdry_capture_preallocate(struct fdry_capture *cap, uint64_t size)
{
	int err = fdry_capture_check(cap);

	return err ? err : fdry_interposer_result(cap->hook, cap->hook->region_preallocate(size));
}

int fdry_capture_free_preallocated(struct fdry_capture *cap)
{
	int err = fdry_capture_check(cap);

	return err ? err : fdry_interposer_result(cap->hook, cap->hook->region_free_preallocated());
}

static bool is_mapped(const struct fdry_alloc *a)
{
	return a->kind == FDRY_KIND_MAP || a->kind == FDRY_KIND_SHARED;
}

/* An odd and large factor, so that different serial numbers, one or several, give different
 * results. */
#define SERIALS_MIX 0x9E3779B97F4A7C15ull

uint64_t fdry_allocs_under(const struct fdry_alloc *a, size_t n, uint64_t addr, uint64_t len,
			   bool *shared)
{
	const struct fdry_alloc *end = a + n;
	uint64_t sum, have;

	for (; a < end && addr - a->addr >= a->size; a++)
		;
	if (a == end)
		return 0;
	sum = a->serial;
	have = a->size - (addr - a->addr);
	*shared = a->kind == FDRY_KIND_SHARED;
	for (; have < len; have += a->size) {
		if (++a == end || !is_mapped(a) || !is_mapped(a - 1) || a->addr != addr + have)
			return 0;
		sum = sum * SERIALS_MIX + a->serial;
		*shared |= a->kind == FDRY_KIND_SHARED;
	}
	return sum;
}

int fdry_capture_find(struct fdry_capture *cap, uint64_t addr, uint64_t len, uint64_t *serial,
		      bool *shared)
{
	struct fdry_alloc *ledger;
	CUdeviceptr base;
	uint64_t size;
	size_t n;
	int err = fdry_interposer_result(cap->hook,
					 cap->hook->region_ledger(&base, &size, &ledger, &n));

	if (err)
		return err;
	*shared = false;
	*serial = fdry_allocs_under(ledger, n, addr, len, shared);
	free(ledger);
	return 0;
}

/* Find the allocation of the region that holds the tensor. */
static int memory_look(struct fdry_capture *cap, struct fdry_capture_tensor *t)
{
	bool shared;
	int err = fdry_capture_find(cap, t->desc.addr, t->extent, &t->serial, &shared);

	if (err)
		return err;
	if (!t->serial)
		return fdry_fail(FDRY_E_RANGE,
				 "tensor '%s' (%llu bytes at %#llx) does not lie in one live "
				 "allocation of the capture's region; allocate it after "
				 "fdry_capture_begin(), or set FDRY_TENSOR_HOST for host memory",
				 t->desc.name, (unsigned long long)t->extent, t->desc.addr);
	if (shared)
		return fdry_fail(FDRY_E_REFUSED,
				 "tensor '%s' lies in memory that the program mapped twice, "
				 "exported, imported or created before fdry_capture_begin(), which "
				 "no image can hold",
				 t->desc.name);
	return 0;
}

static int range_check(struct fdry_capture *cap, struct fdry_capture_tensor *t)
{
	return t->desc.flags & FDRY_TENSOR_HOST ? fdry_capture_host_look(cap, t, &t->serial)
						: memory_look(cap, t);
}

static int tensor_add(struct fdry_capture *cap, struct fdry_capture_tensor add)
{
	struct fdry_capture_tensor *t = fdry_array(cap->tensors, struct fdry_capture_tensor);
	const char *name = add.desc.name;
	size_t i;
	int err;

	for (i = 0; i < fdry_array_count(cap->tensors, struct fdry_capture_tensor); i++)
		if (!strcmp(t[i].desc.name, name))
			return fdry_fail(FDRY_E_EXISTS, "a tensor named '%s' was declared before; "
					 "give each a name of its own", name);
	for (i = add.desc.rank; i < FDRY_RANK_MAX; i++)
		add.desc.shape[i] = add.desc.stride[i] = 0;
	add.desc.name = strdup(name);
	if (!add.desc.name)
		return fdry_nomem();
	err = fdry_buf_put(&cap->tensors, &add, sizeof(add));
	if (err)
		free((char *)add.desc.name);
	return err;
}

int fdry_capture_tensor(struct fdry_capture *cap, const struct fdry_tensor *tensor)
{
	struct fdry_capture_tensor t = { 0 };
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	err = fdry_need(tensor);
	if (err)
		return err;
	t.desc = *tensor;
	/* The program rewrites an input in host memory before every launch, so the image need not
	 * hold its bytes. */
	if (tensor->flags & FDRY_TENSOR_HOST && tensor->use == FDRY_USE_INPUT)
		t.desc.flags |= FDRY_TENSOR_EXTERNAL;
	err = fdry_name_check("tensor", tensor->name);
	if (err)
		return err;
	err = fdry_tensor_extent(tensor, &t.extent);
	if (err)
		return err;
	if (t.desc.flags & FDRY_TENSOR_EXTERNAL && !fdry_tensor_dense(tensor))
		return fdry_fail(FDRY_E_INVAL,
				 "external tensor '%s' has gaps between its elements, or elements "
				 "that share memory; make it contiguous",
				 tensor->name);
	err = range_check(cap, &t);
	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	err = tensor_add(cap, t);
	pthread_mutex_unlock(&cap->lock);
	return err;
}

static int fact_add(struct fdry_capture *cap, const char *key, const char *value)
{
	struct fdry_capture_fact *f = fdry_array(cap->facts, struct fdry_capture_fact), add;
	size_t i;
	int err;

	for (i = 0; i < fdry_array_count(cap->facts, struct fdry_capture_fact); i++)
		if (!strcmp(f[i].key, key))
			return fdry_fail(FDRY_E_EXISTS, "the fact '%s' was stated before", key);
	add.key = strdup(key);
	add.value = strdup(value);
	err = add.key && add.value ? fdry_buf_put(&cap->facts, &add, sizeof(add)) : fdry_nomem();
	if (err) {
		free(add.key);
		free(add.value);
	}
	return err;
}

int fdry_capture_fact(struct fdry_capture *cap, const char *key, const char *value)
{
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	err = fdry_name_check("fact", key);
	if (err)
		return err;
	if (!strncmp(key, "fdry.", 5))
		return fdry_fail(
			FDRY_E_NAME,
			"facts whose names begin with 'fdry.' are the library's own; rename '%s'",
			key);
	if (!value || strlen(value) > FDRY_FACT_MAX)
		return fdry_fail(
			FDRY_E_INVAL,
			"the value of fact '%s' is missing or longer than %d bytes; shorten it",
			key, FDRY_FACT_MAX);
	pthread_mutex_lock(&cap->lock);
	err = fact_add(cap, key, value);
	pthread_mutex_unlock(&cap->lock);
	return err;
}

struct fdry_capture_graph *fdry_capture_graph_find(struct fdry_capture *cap, uint64_t key)
{
	struct fdry_capture_graph *g = fdry_array(cap->graphs, struct fdry_capture_graph);
	size_t i;

	for (i = 0; i < fdry_array_count(cap->graphs, struct fdry_capture_graph); i++)
		if (g[i].key == key)
			return &g[i];
	return NULL;
}

void fdry_capture_graph_release(struct fdry_capture_graph *g)
{
	free(g->name);
	fdry_graph_kept_release(&g->kept);
}

static int graph_add(struct fdry_capture *cap, uint64_t key, const char *name, CUgraph graph)
{
	struct fdry_capture_graph add = { .key = key, .graph = graph };
	int err;

	if (fdry_capture_graph_find(cap, key))
		return fdry_fail(
			FDRY_E_EXISTS,
			"a graph with key %llu was added before; give each a key of its own",
			(unsigned long long)key);
	add.name = strdup(name ? name : "");
	if (!add.name)
		return fdry_nomem();
	err = fdry_buf_put(&cap->graphs, &add, sizeof(add));
	if (err)
		free(add.name);
	return err;
}

int fdry_capture_graph(struct fdry_capture *cap, uint64_t key, const char *name, CUgraph graph)
{
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	if (!graph)
		return fdry_fail(FDRY_E_INVAL,
				 "graph %llu is NULL; did the capture end with an error?",
				 (unsigned long long)key);
	if (name && *name)
		err = fdry_name_check("graph", name);
	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	err = graph_add(cap, key, name, graph);
	pthread_mutex_unlock(&cap->lock);
	return err;
}

/* Lock the capture and find a graph. The caller unlocks, unless this fails. */
static int graph_lock(struct fdry_capture *cap, uint64_t key, struct fdry_capture_graph **ret)
{
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	*ret = fdry_capture_graph_find(cap, key);
	if (*ret)
		return 0;
	pthread_mutex_unlock(&cap->lock);
	return fdry_fail(FDRY_E_NOKEY, "no graph with key %llu was added; add it first",
			 (unsigned long long)key);
}

int fdry_capture_rng(struct fdry_capture *cap, uint64_t key)
{
	struct fdry_capture_graph *g;
	int err = graph_lock(cap, key, &g);

	if (err)
		return err;
	g->random = true;
	pthread_mutex_unlock(&cap->lock);
	return 0;
}

int fdry_capture_graph_fixed(struct fdry_capture *cap, uint64_t key, int on)
{
	struct fdry_capture_graph *g;
	int err = graph_lock(cap, key, &g);

	if (err)
		return err;
	g->fixed = on != 0;
	fdry_graph_kept_release(&g->kept);
	pthread_mutex_unlock(&cap->lock);
	return 0;
}

int fdry_capture_graph_skip(struct fdry_capture *cap, uint64_t key, int on)
{
	struct fdry_capture_graph *g;
	int err = graph_lock(cap, key, &g);

	if (err)
		return err;
	g->skip = on != 0;
	pthread_mutex_unlock(&cap->lock);
	return 0;
}

int fdry_capture_hold(struct fdry_capture *cap, int on)
{
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	cap->hook->launches_hold(on);
	return 0;
}

int fdry_capture_progress(struct fdry_capture *cap, fdry_seal_fn fn, void *arg)
{
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	cap->progress = fn;
	cap->progress_arg = arg;
	pthread_mutex_unlock(&cap->lock);
	return 0;
}
