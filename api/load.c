// SPDX-License-Identifier: Apache-2.0
/*
 * load.c - the one place where an image is taken apart.
 *
 * Phases, in this order: driver and context, manifest, identity, memory, content,
 * kernels, graph objects. Each leaves what it made in the image, and fdry_image_unload()
 * undoes whatever is there: a load that fails is an unload.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/clock.h"
#include "api/identity.h"
#include "api/image.h"
#include "api/opts.h"
#include "api/plan.h"
#include "api/standin.h"

#define POISON 0xA5

int fdry_image_check(const struct fdry_image *img)
{
	int err = fdry_need(img);

	if (!err && img->pid != getpid())
		err = fdry_fail(FDRY_E_FORKED, "the image was loaded before fork(), and CUDA does not work in the child; "
				"use it in the process that loaded it");
	return err;
}

int fdry_image_enter(const struct fdry_image *img, CUstreamCaptureMode *mode)
{
	return fdry_driver_enter(img->drv, img->ctx, mode);
}

void fdry_image_leave(const struct fdry_image *img, CUstreamCaptureMode *mode)
{
	fdry_driver_leave(img->drv, mode);
}

/* --- driver and context --- */

static int driver_start(struct fdry_image *img, const struct fdry_load_opts *o)
{
	const struct fdry_hook *hook = fdry_standin_peek();
	const char *path = o->driver;
	int count, err;

	if (!path && hook)
		path = hook->real_path(); /* what we do ourselves need not go through the stand-in */
	err = fdry_driver_open(path, &img->drv);
	if (!err)
		err = fdry_call(img->drv, cuDeviceGetCount, &count);
	if (!err && (o->device < 0 || o->device >= count))
		err = fdry_fail(FDRY_E_NOGPU, "there is no device %d; this process sees %d", o->device, count);
	if (!err)
		err = fdry_call(img->drv, cuDeviceGet, &img->device, o->device);
	if (!err)
		err = fdry_call(img->drv, cuDevicePrimaryCtxRetain, &img->ctx, img->device);
	return err;
}

/* --- manifest and identity --- */

static int manifest_get(struct fdry_image *img, struct fdry_get *get, const char *name)
{
	int err;

	err = fdry_get_resolve(get, name, &img->id);
	if (!err)
		err = fdry_get_object(get, &img->id, &img->bytes);
	if (!err)
		err = fdry_manifest_open((struct fdry_span){ img->bytes.data, img->bytes.len }, &img->m);
	return err ? fdry_fail_at(err, "image '%.100s'", name) : 0;
}

static int identity_check(struct fdry_image *img, const struct fdry_load_opts *o)
{
	struct fdry_identity here;
	int err;

	err = fdry_identity_of(img->drv, img->device, &here);
	return err ? err : fdry_identity_compare(&img->m, &here, o->facts, o->nfacts);
}

/* The manifest knows one limit, the stack's. It stays raised: others in the process may rely on it by then. */
static int limits_raise(struct fdry_image *img)
{
	const struct fdry_mf_limit *l = img->m.limits;
	size_t now;
	int err;

	if (!img->m.n_limits)
		return 0;
	err = fdry_call(img->drv, cuCtxGetLimit, &now, CU_LIMIT_STACK_SIZE);
	if (err || now >= l->value)
		return err;
	err = fdry_call(img->drv, cuCtxSetLimit, CU_LIMIT_STACK_SIZE, (size_t)l->value);
	if (!err)
		img->stack_was = now;
	return err;
}

/* After a failed load. */
static void limits_restore(struct fdry_image *img)
{
	size_t now;

	if (img->stack_was && !fdry_call_raw(img->drv, cuCtxGetLimit, &now, CU_LIMIT_STACK_SIZE) &&
	    now == img->m.limits->value)
		(void)fdry_call_raw(img->drv, cuCtxSetLimit, CU_LIMIT_STACK_SIZE, img->stack_was);
}

/* --- memory --- */

static int plan_map(struct fdry_image *img, const struct fdry_plan *plan)
{
	size_t i;
	int err = fdry_region_new(img->drv, img->device, plan->base, plan->size, &img->region);

	for (i = 0; i < fdry_plan_count(plan) && !err; i++)
		err = fdry_region_back(img->region, fdry_plan_range(plan, i)->addr, fdry_plan_range(plan, i)->size);
	img->report.mapped_bytes = plan->mapped;
	return err;
}

static int memory_map(struct fdry_image *img)
{
	struct fdry_plan plan;
	int err = fdry_plan_make(&img->m, &plan);

	if (err)
		return err;
	if (plan.size)
		err = fdry_plan_check(&plan, img->drv);
	if (!err && plan.size)
		err = plan_map(img, &plan);
	fdry_plan_release(&plan);
	return err;
}

static int memory_poison(struct fdry_image *img)
{
	const struct fdry_mf_segment *s = img->m.segments;
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_segments && !err; i++)
		if (s[i].role != FDRY_ROLE_CONTENT)
			err = fdry_call(img->drv, cuMemsetD8Async, s[i].addr, POISON, s[i].size, img->stream);
	return err ? err : fdry_call(img->drv, cuStreamSynchronize, img->stream);
}

/* --- kernels --- */

struct object_source {
	struct fdry_get *get;
	struct fdry_buf buf;
};

static int object_get(void *arg, const struct fdry_oid *oid, struct fdry_span *ret)
{
	struct object_source *src = arg;
	int err;

	src->buf.len = 0;
	err = fdry_get_object(src->get, oid, &src->buf);
	*ret = (struct fdry_span){ src->buf.data, src->buf.len };
	return err;
}

static int kernels_load(struct fdry_image *img, struct fdry_get *get)
{
	struct object_source src = { .get = get };
	uint32_t i;
	int err;

	img->kernels = calloc(img->m.n_kernels ? img->m.n_kernels : 1, sizeof(*img->kernels));
	if (!img->kernels)
		return fdry_nomem();
	for (i = 0; i < img->m.n_kernels; i++) {
		const struct fdry_mf_kernel *k = &img->m.kernels[i];

		img->kernels[i] = (struct fdry_kernel){
			.name = fdry_manifest_str(&img->m, k->name),
			.object = img->m.objects[k->object].oid,
			.nparams = k->param_count,
			.param_bytes = k->param_bytes,
			.params = (const struct fdry_param *)(img->m.params + k->param_first),
			.whole = k->whole_reason != 0,
			.whole_reason = k->whole_reason ? fdry_manifest_str(&img->m, k->whole_reason) : NULL,
		};
		memcpy(img->kernels[i].attrs, k->attrs, sizeof(img->kernels[i].attrs));
	}
	err = fdry_kernel_bank_load(img->drv, img->device, img->kernels, img->m.n_kernels, object_get, &src,
				    &img->bank);
	fdry_buf_release(&src.buf);
	return err;
}

/* --- graphs --- */

static int graphs_get(struct fdry_image *img, struct fdry_get *get)
{
	struct fdry_image_exec *x;
	uint32_t i;
	int err = 0;

	img->execs = calloc(img->m.n_graphs ? img->m.n_graphs : 1, sizeof(*img->execs));
	if (!img->execs)
		return fdry_nomem();
	for (i = 0; i < img->m.n_graphs && !err; i++) {
		x = &img->execs[i];
		err = fdry_get_object(get, &img->m.graphs[i].oid, &x->bytes);
		if (!err)
			err = fdry_graph_view_open((struct fdry_span){ x->bytes.data, x->bytes.len }, &x->view);
		if (!err)
			err = fdry_graph_view_check_kernels(&x->view, img->kernels, img->m.n_kernels);
		if (err)
			fdry_fail_at(err, "graph %llu", (unsigned long long)img->m.graphs[i].key);
	}
	return err;
}

static int externals_count(struct fdry_image *img)
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

/* --- the whole --- */

static int content_load(struct fdry_image *img, struct fdry_get *get)
{
	struct fdry_content c = { .zero = false };
	int err = fdry_image_content(img, get, &c);

	img->report.content_bytes = c.bytes;
	img->report.verified_bytes = c.hashed;
	return err;
}

static int phases_in_context(struct fdry_image *img, struct fdry_get *get, uint32_t flags, double *mark)
{
	struct fdry_load_report *r = &img->report;
	int err;

	err = fdry_call(img->drv, cuStreamCreate, &img->stream, CU_STREAM_NON_BLOCKING);
	if (!err)
		err = limits_raise(img);
	if (!err)
		err = memory_map(img);
	if (!err && flags & FDRY_LOAD_POISON)
		err = memory_poison(img);
	r->memory_ms = fdry_lap_ms(mark);
	if (!err)
		err = content_load(img, get);
	r->content_ms = fdry_lap_ms(mark);
	if (!err)
		err = kernels_load(img, get);
	r->kernels_ms = fdry_lap_ms(mark);
	if (!err)
		err = graphs_get(img, get);
	r->manifest_ms += fdry_lap_ms(mark);
	return err ? err : externals_count(img);
}

static int phases(struct fdry_image *img, struct fdry_get *get, const char *name, const struct fdry_load_opts *o)
{
	CUstreamCaptureMode mode;
	double mark = fdry_now_ms();
	int err;

	err = manifest_get(img, get, name);
	img->report.manifest_ms = fdry_lap_ms(&mark);
	if (!err)
		err = driver_start(img, o);
	img->report.driver_ms = fdry_lap_ms(&mark);
	if (!err)
		err = identity_check(img, o);
	img->report.manifest_ms += fdry_lap_ms(&mark);
	if (!err)
		err = fdry_image_enter(img, &mode);
	if (err)
		return err;
	err = phases_in_context(img, get, o->flags, &mark);
	if (err)
		limits_restore(img);
	fdry_image_leave(img, &mode);
	return err;
}

static int load_all(struct fdry_image *img, const char *name, const struct fdry_load_opts *o)
{
	struct fdry_get *get;
	uint32_t i;
	int err;

	err = fdry_get_begin(img->store, &get);
	if (err)
		return err;
	err = phases(img, get, name, o);
	fdry_get_end(get);
	for (i = 0; !err && o->flags & FDRY_LOAD_BUILD && i < img->m.n_graphs; i++)
		err = fdry_image_build(img, img->m.graphs[i].key);
	return err;
}

static int opts_check(const struct fdry_load_opts *o)
{
	const uint32_t known = FDRY_LOAD_VERIFY | FDRY_LOAD_POISON | FDRY_LOAD_BUILD;

	if (o->flags & ~known)
		return fdry_fail(FDRY_E_OPTS, "fdry_image_load() does not know the flags %#x; use a newer library",
				 o->flags & ~known);
	if (o->nfacts && !o->facts)
		return fdry_fail(FDRY_E_OPTS, "fdry_image_load() was given %zu facts at NULL", o->nfacts);
	return 0;
}

static int args_check(const struct fdry_store *store, const char *name, struct fdry_image **ret)
{
	int err = fdry_need(store);

	if (!err)
		err = fdry_need(name);
	return err ? err : fdry_need(ret);
}

/* The load failed: undo it, which must not cover up why. */
static int load_undo(struct fdry_image *img, int err)
{
	char why[1024];

	snprintf(why, sizeof(why), "%s", fdry_last_error());
	fdry_image_unload(img);
	return fdry_fail((enum fdry_errcode)-err, "%s", why);
}

int fdry_image_load(struct fdry_store *store, const char *name, const struct fdry_load_opts *opts,
		    struct fdry_image **ret)
{
	double start = fdry_now_ms();
	struct fdry_load_opts o;
	struct fdry_image *img;
	int err;

	err = args_check(store, name, ret);
	if (!err)
		err = fdry_opts_take(opts, &o, sizeof(o));
	if (!err)
		err = opts_check(&o);
	if (err)
		return err;
	img = calloc(1, sizeof(*img));
	if (!img)
		return fdry_nomem();
	pthread_mutex_init(&img->lock, NULL);
	img->pid = getpid();
	img->verify = o.flags & FDRY_LOAD_VERIFY;
	err = fdry_store_again(store, &img->store);
	if (!err)
		err = load_all(img, name, &o);
	if (err)
		return load_undo(img, err);
	img->report.total_ms = fdry_now_ms() - start;
	*ret = img;
	return 0;
}

static void exec_destroy(struct fdry_image *img, struct fdry_image_exec *x)
{
	CUgraphExec exec = atomic_load(&x->exec);

	if (exec)
		(void)fdry_call_raw(img->drv, cuGraphExecDestroy, exec);
	fdry_graph_built_release(img->drv, &x->built);
}

static void device_release(struct fdry_image *img)
{
	CUstreamCaptureMode mode;
	uint32_t i;

	if (fdry_image_enter(img, &mode))
		return;
	/* Where no graph was built none was launched: then do without waiting, which breaks captures in the context. */
	if (img->report.graphs_built)
		(void)fdry_call_raw(img->drv, cuCtxSynchronize);
	for (i = 0; img->execs && i < img->m.n_graphs; i++)
		exec_destroy(img, &img->execs[i]);
	fdry_kernel_bank_free(img->bank);
	fdry_region_free(img->region);
	if (img->stream)
		(void)fdry_call_raw(img->drv, cuStreamDestroy_v2, img->stream);
	fdry_image_leave(img, &mode);
	(void)fdry_call_raw(img->drv, cuDevicePrimaryCtxRelease_v2, img->device);
}

void fdry_image_unload(struct fdry_image *img)
{
	uint32_t i;

	if (!img)
		return;
	if (img->ctx && img->pid == getpid())
		device_release(img);
	for (i = 0; img->execs && i < img->m.n_graphs; i++)
		fdry_buf_release(&img->execs[i].bytes);
	if (img->drv)
		fdry_driver_close(img->drv);
	fdry_store_close(img->store);
	fdry_buf_release(&img->bytes);
	pthread_mutex_destroy(&img->lock);
	free(img->kernels);
	free(img->execs);
	free(img->filled);
	free(img);
}
