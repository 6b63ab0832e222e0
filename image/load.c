// SPDX-License-Identifier: Apache-2.0
/*
 * load.c - the one place where an image is taken apart.
 *
 * Each phase leaves what it made in the image, and fdry_image_unload() undoes whatever
 * is there: a load that fails is an unload. Phases that do not need each other run side
 * by side, in threads that are gone when the load returns:
 *
 *	manifest | driver, context | identity | kernels           | wait
 *	         | kernel and graph objects, by several threads ......
 *	                                      | memory, content   |
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/builder.h"
#include "lib/clock.h"
#include "image/context.h"
#include "image/exec.h"
#include "image/identity.h"
#include "image/image_host.h"
#include "image/place.h"
#include "image/objects.h"
#include "lib/opts.h"
#include "image/overlap.h"
#include "image/private_ctx.h"
#include "image/select.h"
#include "image/plan.h"
#include "image/random.h"
#include "image/staging.h"
#include "lib/live.h"
#include "arch/stream.h"
#include "lib/threads.h"

#define POISON 0xA5

/* --- manifest and identity --- */

/* Of several images that the facts leave the device decides; only then is the driver needed for it. */
static int candidates_filter(struct fdry_image *img, const struct fdry_load_opts *o, struct fdry_candidates *p)
{
	struct fdry_wanted w = { .facts = o->facts, .nfacts = o->nfacts };
	struct fdry_identity here;
	int err = fdry_candidates_filter(p, &w, img->mismatch);

	if (err || (fdry_candidates_count(p) == 1 && !p->broken))
		return err;
	err = fdry_context_start(img, o);
	if (!err)
		err = fdry_identity_of(img->drv, img->device, &here);
	w.here = &here;
	return err ? err : fdry_candidates_filter(p, &w, img->mismatch);
}

static int manifest_select(struct fdry_image *img, struct fdry_reader *reader, const char *name,
			   const struct fdry_load_opts *o)
{
	struct fdry_candidates picks = { .name = name };
	struct fdry_candidate pick;
	int err;

	err = fdry_candidates_read(reader, name, &picks);
	if (!err)
		err = candidates_filter(img, o, &picks);
	if (!err) {
		pick = fdry_candidates_select(&picks);
		img->id = pick.id;
		img->bytes = pick.bytes;
		img->m = pick.m;
		fdry_reader_note_use(reader, &img->id);
	}
	fdry_candidates_release(&picks);
	return err ? fdry_fail_at(err, "image '%.100s'", name) : 0;
}

static int identity_check(struct fdry_image *img, const struct fdry_load_opts *o)
{
	struct fdry_identity here;
	int err;

	err = fdry_identity_of(img->drv, img->device, &here);
	return err ? err : fdry_identity_compare(&img->m, &here, o->facts, o->nfacts, img->mismatch);
}

/* --- memory --- */

/* The addresses, before anything else is asked of the driver: it hands out what was freed, ours too. */
static int memory_reserve(struct fdry_image *img, const struct fdry_plan *plan)
{
	char hex[FDRY_OID_HEX_SIZE];
	int err = fdry_region_new(img->drv, img->device, plan->base, plan->size, &img->region);

	if (err)
		return fdry_placed_fail(err, plan->base, plan->size);
	img->placed.base = plan->base;
	img->placed.size = plan->size;
	snprintf(img->placed.what, sizeof(img->placed.what), "image %.12s", fdry_oid_hex(&img->id, hex));
	fdry_placed_add(&img->placed);
	return 0;
}

static int memory_plan(struct fdry_image *img, const struct fdry_load_opts *o, struct fdry_plan *plan)
{
	int err = fdry_plan_make(&img->m, o, plan);

	if (!err && o->into)
		return fdry_placement_make(img, o);
	if (!err && plan->size)
		err = fdry_plan_check(plan, img->drv);
	return !err && plan->size ? memory_reserve(img, plan) : err;
}

static int memory_map(struct fdry_image *img, const struct fdry_plan *plan)
{
	size_t i;
	int err = 0;

	if (!img->region)
		return 0;
	for (i = 0; i < fdry_plan_count(plan) && !err; i++)
		err = fdry_region_back(img->region, fdry_plan_range(plan, i)->addr, fdry_plan_range(plan, i)->size);
	img->report.mapped_bytes = plan->mapped;
	return err;
}

static int poison_fill(void *arg, uint64_t addr, uint64_t size)
{
	struct fdry_image *img = arg;

	return fdry_call(img->drv, cuMemsetD8Async, addr, POISON, size, img->stream);
}

static int memory_poison(struct fdry_image *img, const struct fdry_plan *plan)
{
	const struct fdry_mf_segment *s = img->m.segments;
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_segments && !err; i++)
		if (s[i].role != FDRY_ROLE_CONTENT)
			err = fdry_placement_pieces(img, s[i].addr, fdry_plan_segment(plan, &s[i]), poison_fill, img);
	return err ? err : fdry_stream_wait(img->drv, img->stream);
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

/* What the phases share. */
struct load {
	struct fdry_image *img;
	const struct fdry_load_opts *opts;
	struct fdry_reader *reader; /* of the thread that loads */
	struct fdry_reader *session; /* for content, of one thread after the other; or NULL */
	struct fdry_content *content; /* NULL: not begun */
	struct fdry_objects *objects;
	struct fdry_plan plan;
	double mark;          /* when the phase that is under way began */
	bool overlap;         /* launches are to be checked */
};

static int content_copy(struct load *l)
{
	struct fdry_load_report *r = &l->img->report;
	struct fdry_content_sum sum = { 0 };
	double mark = fdry_now_ms();
	int err = l->opts->flags & FDRY_LOAD_POISON ? memory_poison(l->img, &l->plan) : 0;

	if (!err && l->img->place_hook)
		err = fdry_content_zero(l->img);
	if (!err)
		err = fdry_content_copy(l->content, &sum);
	if (!err)
		err = fdry_image_hosts_content(l->img, l->session, &sum);
	r->content_bytes = sum.bytes;
	r->verified_bytes = sum.hashed;
	r->content_ms = fdry_elapsed_ms(&mark);
	return err;
}

static int memory_place(struct load *l)
{
	double mark = fdry_now_ms();
	int err = memory_plan(l->img, l->opts, &l->plan);

	l->img->report.memory_ms = fdry_elapsed_ms(&mark);
	return err;
}

static int memory_make(struct load *l)
{
	struct fdry_load_report *r = &l->img->report;
	double mark = fdry_now_ms();
	int err = memory_map(l->img, &l->plan);

	if (!err)
		err = fdry_image_hosts_make(l->img, l->opts->flags & FDRY_LOAD_POISON ? POISON : 0);
	r->memory_ms += fdry_elapsed_ms(&mark);
	if (!err)
		fdry_image_tell(l->img, FDRY_PHASE_MEMORY, r->mapped_bytes, r->mapped_bytes);
	return err;
}

/* Each enters by itself: what the region leaves behind on the thread where leaving fails is covered up. */
static int in_context(struct load *l, int (*phase)(struct load *l))
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(l->img, &mode);

	if (err)
		return err;
	err = phase(l);
	fdry_image_leave(l->img, &mode);
	return err;
}

static int content_begin(struct load *l)
{
	int err = fdry_reader_begin(l->img->store, &l->session);

	return err ? err : fdry_content_begin(l->img, l->session, l->opts->threads, &l->content);
}

static void content_end(struct load *l)
{
	fdry_content_end(l->content);
	fdry_reader_end(l->session);
}

/* By a thread of its own: memory, and meanwhile content is read. */
static int memory_load(void *arg)
{
	int err = in_context(arg, content_begin);

	return err ? err : in_context(arg, memory_make);
}

static int kernels_load(struct load *l)
{
	struct fdry_image *img = l->img;
	double mark = fdry_now_ms();
	int err = fdry_kernel_bank_new(img->drv, img->kernels, img->m.n_kernels, fdry_objects_kernel, l->objects,
					&img->bank);

	img->report.kernels_ms = fdry_elapsed_ms(&mark);
	if (!err)
		fdry_image_tell(img, FDRY_PHASE_KERNELS, img->m.n_kernels, img->m.n_kernels);
	return err;
}

/*
 * Kernels need no memory and memory no kernels. But the driver lets each kernel wait for copies that
 * are in flight, and copies for kernels: content is made ready beside both and copied after them.
 */
static int phases_in_context(struct load *l)
{
	struct fdry_image *img = l->img;
	struct fdry_saved_err kernels;
	struct fdry_task memory;
	int err;

	err = fdry_stream_shared(img->drv, FDRY_STREAM_MEMORY, &img->stream);
	if (!err)
		err = fdry_context_limits(img);
	if (!err && l->overlap && !img->private_ctx)
		err = fdry_overlap_new(img);
	if (err)
		return err;
	fdry_task_start(&memory, "fdry-memory", memory_load, l);
	fdry_saved_err_set(&kernels, kernels_load(l));
	err = fdry_task_finish(&memory);
	if (!err)
		err = fdry_saved_err_restore(&kernels);
	if (!err)
		err = content_copy(l);
	content_end(l);
	return err;
}

/* Graphs must not use what the caller leaves out of a room. */
static int capacities_check(struct load *l)
{
	struct fdry_image *img = l->img;
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_graphs && !err; i++) {
		err = fdry_capacities_check(&img->m, &l->plan.capacities, &img->execs[i].view);
		if (err)
			fdry_fail_at(err, "graph %llu", (unsigned long long)img->m.graphs[i].key);
	}
	if (err)
		return err;
	img->capacities = l->plan.capacities;
	memset(&l->plan.capacities, 0, sizeof(l->plan.capacities));
	return 0;
}

static int driver_start(struct load *l)
{
	struct fdry_image *img = l->img;
	int err = img->ctx ? 0 : fdry_context_start(img, l->opts);

	img->report.driver_ms = fdry_elapsed_ms(&l->mark);
	if (!err)
		fdry_image_tell(img, FDRY_PHASE_DRIVER, 1, 1);
	if (!err)
		err = identity_check(img, l->opts);
	img->report.manifest_ms += fdry_elapsed_ms(&l->mark);
	return err;
}

/* After the addresses are reserved: a context takes whatever is free. */
static int own_start(struct load *l)
{
	struct fdry_image *img = l->img;
	int err;

	if (!(l->opts->flags & FDRY_LOAD_OWN_CONTEXT))
		return 0;
	fdry_elapsed_ms(&l->mark);
	err = fdry_context_private(img);
	if (!err)
		err = fdry_private_ctx_new(img);
	img->report.driver_ms += fdry_elapsed_ms(&l->mark);
	return err;
}

/* In the order in which they began before there were threads, which is also that of errors. */
static int phases(struct load *l)
{
	struct fdry_image *img = l->img;
	CUstreamCaptureMode mode;
	int err = driver_start(l);

	if (!err)
		err = in_context(l, memory_place);
	if (!err)
		err = own_start(l);
	if (!err)
		err = fdry_image_enter(img, &mode);
	if (err)
		return err;
	err = phases_in_context(l);
	if (!err)
		err = fdry_objects_finish(l->objects);
	if (!err)
		err = capacities_check(l);
	fdry_image_leave(img, &mode);
	return err ? err : externals_count(img);
}

/* The driver is not touched before the manifest was found: who has no image to load may still fork. */
static int load_in_session(struct load *l, const char *name)
{
	const struct fdry_objects_opts opts = { l->opts->order, l->opts->norder, l->opts->threads };
	int err = manifest_select(l->img, l->reader, name, l->opts);

	if (!err)
		err = fdry_image_hosts_plan(l->img);
	if (!err)
		err = fdry_random_new(l->img);
	if (!err)
		err = fdry_objects_start(l->img, l->reader, &opts, &l->objects);
	l->img->report.manifest_ms = fdry_elapsed_ms(&l->mark);
	if (err)
		return err;
	fdry_image_tell(l->img, FDRY_PHASE_MANIFEST, 1, 1);
	err = phases(l);
	fdry_objects_free(l->objects);
	fdry_plan_release(&l->plan);
	return err;
}

static int load_all(struct fdry_image *img, const char *name, const struct fdry_load_opts *o)
{
	struct load l = { .img = img, .opts = o, .mark = fdry_now_ms() };
	uint32_t i;
	int err = fdry_overlap_asked(&l.overlap);

	l.overlap |= (o->flags & FDRY_LOAD_CHECK_OVERLAP) != 0;
	if (!err)
		err = fdry_reader_begin(img->store, &l.reader);
	if (err)
		return err;
	err = load_in_session(&l, name);
	fdry_reader_end(l.reader);
	for (i = 0; !err && o->flags & FDRY_LOAD_BUILD && i < img->m.n_graphs; i++)
		err = fdry_exec_need(img, img->order[i]);
	return err;
}

static int opts_check(const struct fdry_load_opts *o)
{
	const uint32_t known = FDRY_LOAD_VERIFY | FDRY_LOAD_POISON | FDRY_LOAD_BUILD | FDRY_LOAD_BACKGROUND |
			       FDRY_LOAD_OWN_CONTEXT | FDRY_LOAD_CHECK_OVERLAP | FDRY_LOAD_ORDERED;

	if (o->flags & ~known)
		return fdry_fail(FDRY_E_OPTS, "fdry_image_load() does not know the flags %#x; use a newer library",
				 o->flags & ~known);
	if (o->nfacts && !o->facts)
		return fdry_fail(FDRY_E_OPTS, "fdry_image_load() was given %zu facts at NULL", o->nfacts);
	if (o->norder && !o->order)
		return fdry_fail(FDRY_E_OPTS, "fdry_image_load() was given an order of %zu graphs at NULL", o->norder);
	if (o->reserved)
		return fdry_fail(FDRY_E_OPTS, "the reserved field of struct fdry_load_opts is %u; set it to 0", o->reserved);
	return fdry_placement_check(o);
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
	CUstreamCaptureMode mode;
	struct fdry_saved_err o;

	fdry_saved_err_set(&o, err);
	if (img->ctx && !fdry_image_enter(img, &mode)) {
		fdry_context_limits_undo(img);
		fdry_image_leave(img, &mode);
	}
	fdry_image_unload(img);
	return fdry_saved_err_restore(&o);
}

int fdry_image_load_telling(struct fdry_store *store, const char *name, const struct fdry_load_opts *opts,
			    struct fdry_mismatch *mismatch, struct fdry_image **ret)
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
	fdry_live_add(img);
	fdry_ticket_init(&img->ticket);
	pthread_mutex_init(&img->lock, NULL);
	pthread_mutex_init(&img->staging_lock, NULL);
	pthread_mutex_init(&img->telling, NULL);
	img->progress = o.progress;
	img->progress_arg = o.progress_arg;
	img->pid = getpid();
	img->start_ms = start;
	img->mismatch = mismatch;
	img->verify = o.flags & FDRY_LOAD_VERIFY;
	err = fdry_budget_init(&img->budget);
	if (!err)
		err = fdry_store_again(store, &img->store);
	if (!err)
		err = load_all(img, name, &o);
	if (err)
		return load_undo(img, err);
	img->mismatch = NULL;
	img->report.total_ms = fdry_now_ms() - start;
	fdry_count(FDRY_METRIC_LOADS, 1);
	fdry_count_ms(FDRY_METRIC_LOAD_NS, img->report.total_ms);
	if (o.flags & FDRY_LOAD_BACKGROUND)
		fdry_builder_start(img, o.flags & FDRY_LOAD_ORDERED ? (uint32_t)o.norder : img->m.n_graphs);
	*ret = img;
	return 0;
}

int fdry_image_load(struct fdry_store *store, const char *name, const struct fdry_load_opts *opts,
		    struct fdry_image **ret)
{
	return fdry_image_load_telling(store, name, opts, NULL, ret);
}

static void device_release(struct fdry_image *img)
{
	CUstreamCaptureMode mode;
	uint32_t i;

	if (fdry_image_enter(img, &mode))
		return;
	/* Where nothing was launched do without waiting, which breaks captures in the context. */
	if (atomic_load(&img->launches))
		(void)fdry_call_raw(img->drv, cuCtxSynchronize);
	for (i = 0; img->execs && i < img->m.n_graphs; i++)
		fdry_exec_destroy(img, i);
	fdry_overlap_free(img);
	fdry_random_end(img);
	fdry_private_ctx_free(img);
	fdry_kernel_bank_free(img->bank);
	fdry_staging_free(img);
	fdry_region_free_to_cache(img->region);
	fdry_placement_release(img);
	fdry_image_hosts_free(img);
	fdry_image_leave(img, &mode);
	fdry_context_end(img);
}

void fdry_image_unload(struct fdry_image *img)
{
	uint32_t i;

	if (!img || fdry_live_check(img, "the image"))
		return;
	if (img->pid == getpid() && fdry_image_check_outside(img))
		return;
	if (fdry_live_end(img, "the image"))
		return;
	if (img->pid == getpid()) {
		fdry_builder_free(img);
		if (img->ctx) {
			fdry_placed_remove(&img->placed);
			device_release(img);
		}
	}
	for (i = 0; img->execs && i < img->m.n_graphs; i++)
		fdry_shared_graph_put(img->execs[i].graph);
	if (img->drv)
		fdry_driver_close(img->drv);
	fdry_store_close(img->store);
	fdry_buf_release(&img->bytes);
	fdry_ticket_release(&img->ticket);
	pthread_mutex_destroy(&img->telling);
	pthread_mutex_destroy(&img->lock);
	pthread_mutex_destroy(&img->staging_lock);
	free(img->hosts);
	free(img->kernels);
	free(img->execs);
	free(img->order);
	fdry_buf_release(&img->capacities);
	fdry_random_free(img);
	free(img->filled);
	free(img);
}
