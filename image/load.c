// SPDX-License-Identifier: Apache-2.0
/*
 * load.c - loads an image of a store, so that this process can launch its graphs.
 *
 * load() has the order of the steps. Each step stores its results in the image, and
 * fdry_image_unload() undoes all steps that were made: a failed load unloads its image. Independent
 * steps run concurrently, in threads that end before the load returns:
 *
 *	manifest | driver, context | identity | kernels           | wait
 *	         | kernel and graph objects, by several threads ......
 *	         | pages for content          | memory            | content
 *	                                                          | graphs, if asked for
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/arrays.h"
#include "image/builder.h"
#include "lib/clock.h"
#include "image/check.h"
#include "image/context.h"
#include "image/damage.h"
#include "image/events.h"
#include "image/exec.h"
#include "image/identity.h"
#include "image/image_host.h"
#include "image/image_pinned.h"
#include "image/load_opts.h"
#include "image/place.h"
#include "image/objects.h"
#include "lib/opts.h"
#include "image/overlap.h"
#include "image/private_ctx.h"
#include "image/select.h"
#include "image/plan.h"
#include "image/poison.h"
#include "image/random.h"
#include "image/shared_fingerprinter.h"
#include "image/targets.h"
#include "image/variables.h"
#include "lib/live.h"
#include "lib/log.h"
#include "arch/stream.h"
#include "lib/threads.h"

/* Bytes of content that take longer than building a graph. */
#define CONTENT_LONG ((uint64_t)128 << 20)

/* The state that the steps of a load share. */
struct load {
	struct fdry_image *img;
	const struct fdry_load_opts *opts;
	struct fdry_reader *reader;         /* of the loading thread */
	struct fdry_reader *content_reader; /* of the memory thread, then the loading one */
	struct fdry_content *content;       /* NULL until its threads are started */
	struct fdry_objects *objects;
	struct fdry_plan plan;
	_Atomic bool content_ended;         /* content_load() has returned */
	bool arriving;                      /* another thread fetches the objects meanwhile */
	bool prepared;                      /* graphs_prepare() was called */
	double mark;                        /* the time at which the current step began */
};

/* --- manifest --- */

/* Among several images, the facts decide first, then the device. Only the device needs the
 * driver. */
static int candidates_filter(struct load *l, struct fdry_candidates *c)
{
	struct fdry_wanted w = { .facts = l->opts->facts, .nfacts = l->opts->nfacts };
	struct fdry_image *img = l->img;
	struct fdry_identity here;
	int err = fdry_candidates_filter(c, &w, img->mismatch);

	if (err)
		return err;
	if (fdry_candidates_count(c) == 1 && !c->broken)
		return 0;
	err = fdry_context_start(img, l->opts);
	if (err)
		return err;
	err = fdry_identity_of(img->drv, img->device, &here);
	if (err)
		return err;
	w.here = &here;
	return fdry_candidates_filter(c, &w, img->mismatch);
}

/* The load fails, and may be repeated after a repair of these. */
static void manifests_note(struct fdry_image *img, const struct fdry_candidates *c)
{
	const struct fdry_oid *id = fdry_array(c->damaged, const struct fdry_oid);
	size_t i;

	for (i = 0; i < fdry_array_count(c->damaged, struct fdry_oid); i++)
		fdry_damage_note(img, &id[i]);
}

static int manifest_select(struct load *l, const char *name)
{
	struct fdry_candidates candidates = { .name = name };
	struct fdry_candidate selected;
	struct fdry_image *img = l->img;
	int err = fdry_candidates_read(l->reader, name, &candidates);

	if (err)
		goto out_release;
	err = candidates_filter(l, &candidates);
	if (err)
		goto out_release;
	selected = fdry_candidates_select(&candidates);
	img->id = selected.id;
	img->bytes = selected.bytes;
	img->m = selected.m;
	snprintf(img->name, sizeof(img->name), "%s", name);
	fdry_reader_note_use(l->reader, &img->id);
out_release:
	if (err == -FDRY_E_CORRUPT)
		manifests_note(img, &candidates);
	fdry_candidates_release(&candidates);
	return err ? fdry_fail_at(err, "image '%.100s'", name) : 0;
}

/* Select and read the manifest, and start the threads that read kernels and graphs, and those of
 * content if all of it is copied and is there. The driver is started later: if no image fits, the
 * process may still fork. */
static int manifest_load(struct load *l, const char *name)
{
	const struct fdry_objects_opts opts = { l->opts->order, l->opts->norder, l->opts->threads };
	struct fdry_image *img = l->img;
	int err = manifest_select(l, name);

	if (err)
		return err;
	err = fdry_image_hosts_plan(img) ?: fdry_image_arrays_plan(img) ?: fdry_random_new(img);
	if (err)
		return err;
	err = fdry_objects_start(img, l->reader, &opts, &l->objects);
	if (!err && !l->opts->into && !l->arriving) /* a region may hold content, and pages */
		err = fdry_content_new(img, l->opts->threads, &l->content);
	if (err)
		return err;
	img->report.manifest_ms = fdry_elapsed_ms(&l->mark);
	fdry_image_progress(img, FDRY_PHASE_MANIFEST, 1, 1);
	return 0;
}

/* --- driver and identity --- */

static int driver_start(struct load *l)
{
	struct fdry_image *img = l->img;
	struct fdry_identity here;
	int err = img->ctx ? 0 : fdry_context_start(img, l->opts);

	if (err)
		return err;
	img->report.driver_ms = fdry_elapsed_ms(&l->mark);
	fdry_image_progress(img, FDRY_PHASE_DRIVER, 1, 1);
	err = fdry_identity_of(img->drv, img->device, &here);
	if (err)
		return err;
	err = fdry_identity_compare(&img->m, &here, l->opts->facts, l->opts->nfacts, img->mismatch);
	img->report.manifest_ms += fdry_elapsed_ms(&l->mark);
	return err;
}

/* --- addresses --- */

/* Reserve the image's addresses before any other use of the driver, since a new context may use any
 * free addresses.
 */
static int memory_place(struct load *l)
{
	struct fdry_image *img = l->img;
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(img, &mode);

	if (err)
		return err;
	err = fdry_plan_make(&img->m, l->opts, &l->plan);
	if (err)
		goto out_leave;
	err = fdry_buf_put(&img->capacities, l->plan.capacities.data, l->plan.capacities.len);
	if (err)
		goto out_leave;
	if (l->opts->into)
		err = fdry_placement_make(img, l->opts);
	else if (l->plan.size)
		err = fdry_placement_reserve(img, &l->plan);
	if (err)
		goto out_leave;
	err = fdry_image_pinned_make(img);
out_leave:
	fdry_image_leave(img, &mode);
	img->report.memory_ms = fdry_elapsed_ms(&l->mark);
	return err;
}

static int private_ctx_start(struct load *l)
{
	struct fdry_image *img = l->img;
	int err = fdry_context_private(img);

	if (err)
		return err;
	err = fdry_private_ctx_new(img);
	img->report.driver_ms += fdry_elapsed_ms(&l->mark);
	return err;
}

/* --- memory and content --- */

static int memory_map(struct load *l)
{
	struct fdry_image *img = l->img;
	double mark = fdry_now_ms();
	size_t i;
	int err;

	for (i = 0; img->region && i < fdry_plan_count(&l->plan); i++) {
		err = fdry_region_back(img->region, fdry_plan_range(&l->plan, i)->addr,
				       fdry_plan_range(&l->plan, i)->size);
		if (err)
			return err;
	}
	if (img->region)
		img->report.mapped_bytes = l->plan.mapped;
	err = fdry_image_hosts_make(img, l->opts->flags & FDRY_LOAD_POISON ? FDRY_POISON : 0);
	if (err)
		return err;
	if (l->opts->flags & FDRY_LOAD_POISON)
		fdry_image_pinned_fill(img, FDRY_POISON);
	img->report.memory_ms += fdry_elapsed_ms(&mark);
	fdry_image_progress(img, FDRY_PHASE_MEMORY, img->report.mapped_bytes,
			    img->report.mapped_bytes);
	return 0;
}

/* The memory thread: begin to read content, then map memory. */
static int memory_load(void *arg)
{
	struct load *l = arg;
	struct fdry_image *img = l->img;
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(img, &mode);

	if (err)
		return err;
	err = fdry_reader_begin(img->store, &l->content_reader);
	if (err)
		goto out_leave;
	if (!img->reuse) /* otherwise the load first finds content that is on the device */
		err = fdry_content_begin(img, l->content_reader, l->opts->threads, &l->content);
	if (err)
		goto out_leave;
	err = memory_map(l);
out_leave:
	fdry_image_leave(img, &mode);
	return err;
}

/* Prepare memory for the copies. @whole: all content is on the device, so none is copied. */
static int content_prepare(struct load *l, bool *whole, uint64_t *found)
{
	struct fdry_image *img = l->img;
	int err = l->opts->flags & FDRY_LOAD_POISON ? fdry_image_poison(img, &l->plan) : 0;

	if (err)
		return err;
	if (img->reuse)
		err = fdry_content_find(img, whole, found);
	if (!err && img->place_hook && !img->in_place)
		err = fdry_content_zero(img);
	if (err || !img->reuse)
		return err;
	return fdry_content_begin(img, l->content_reader, l->opts->threads, &l->content);
}

static int content_fill(struct load *l)
{
	struct fdry_load_report *r = &l->img->report;
	struct fdry_content_sum sum = { 0 };
	double mark = fdry_now_ms();
	bool delayed = l->opts->flags & FDRY_LOAD_CHECK_AT_LAUNCH, whole = false;
	struct fdry_content_check *check = NULL;
	uint64_t found = 0, checked = 0;
	int err = content_prepare(l, &whole, &found);

	if (err)
		return err;
	err = fdry_content_copy(l->content, &sum, delayed || whole ? NULL : &check) ?:
	      fdry_image_pinned_content(l->img, l->content_reader, &sum) ?:
	      fdry_image_hosts_content(l->img, l->content_reader, &sum) ?:
	      fdry_image_arrays_content(l->img, l->content_reader, &sum);
	if (err)
		goto out_free;
	r->content_bytes = sum.bytes;
	r->verified_bytes = sum.hashed;
	r->content_ms = fdry_elapsed_ms(&mark);
	if (delayed)
		fdry_content_delay(l->img);
	else
		err = fdry_content_check_end(check, &checked);
	if (!err && atomic_load(&l->img->content) == FDRY_CONTENT_WHOLE)
		err = fdry_image_targets_content(l->img);
	r->checked_bytes = (whole ? found : checked) + sum.checked;
	r->check_ms = fdry_elapsed_ms(&mark);
out_free:
	fdry_content_check_free(check);
	return err;
}

/* Images in one region may share memory, so the content of each is compared before another image
 * writes there. A progress function may load an image itself: so the lock is recursive, and a
 * thread that needs both locks takes the one of progress first. */
static int content_copy(struct load *l)
{
	static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	int err;

	if (!l->img->place_hook)
		return content_fill(l);
	pthread_mutex_lock(&l->img->progress_lock);
	pthread_mutex_lock(&lock);
	err = content_fill(l);
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&l->img->progress_lock);
	return err;
}

/* --- kernels and graphs --- */

static int kernels_load(struct load *l)
{
	struct fdry_image *img = l->img;
	double mark = fdry_now_ms();
	int err = l->opts->flags & FDRY_LOAD_CHECK_AT_LAUNCH ? 0 : fdry_check_prepare(img);

	if (err)
		return err;
	err = fdry_kernel_bank_new(img->drv, img->kernels, img->m.n_kernels,
				   fdry_objects_kernel, l->objects, &img->bank);
	if (err)
		return err;
	err = fdry_image_targets_find(img) ?: fdry_image_values_load(img, l->reader);
	if (err)
		return err;
	img->report.kernels_ms = fdry_elapsed_ms(&mark);
	fdry_image_progress(img, FDRY_PHASE_KERNELS, img->m.n_kernels, img->m.n_kernels);
	return 0;
}

/* Check that no graph uses memory of a tensor's capacity beyond the size that the caller chose. */
static int capacities_check(struct load *l)
{
	struct fdry_image *img = l->img;
	uint32_t i;
	int err;

	for (i = 0; i < img->m.n_graphs; i++) {
		err = fdry_capacities_check(&img->m, &l->plan.capacities, &img->execs[i].view);
		if (err)
			return fdry_fail_at(err, "graph %llu",
					    (unsigned long long)img->m.graphs[i].key);
	}
	return 0;
}

/* All graph objects are read after this, so that graphs can be built. */
static int graphs_prepare(struct load *l)
{
	l->prepared = true;
	return fdry_objects_finish(l->objects) ?: fdry_image_events_make(l->img) ?:
	       capacities_check(l);
}

/* While content is on its way, the thread has nothing else to do. Content that is not there yet
 * keeps no graph from being built, only from being launched. */
static int graphs_early(struct load *l)
{
	int err = graphs_prepare(l);

	if (err)
		return err;
	if (l->opts->flags & FDRY_LOAD_BUILD)
		return fdry_execs_build(l->img);
	/* The background thread builds what cannot be built now. */
	if (l->opts->flags & FDRY_LOAD_BACKGROUND && fdry_execs_build(l->img))
		fdry_info("a graph is built later: %s", fdry_last_error());
	return 0;
}

/* --- the whole load --- */

static int content_load(void *arg)
{
	struct load *l = arg;
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(l->img, &mode);

	if (err)
		return err;
	err = content_copy(l);
	fdry_image_leave(l->img, &mode);
	atomic_store(&l->content_ended, true);
	return err;
}

/*
 * A load that builds all graphs builds them while another thread copies the content. In a region,
 * a load with a progress function does not, nor does a load within one: the function may load an
 * image there. A thread owns the lock of content_copy(), so that load would wait for this one.
 */
static bool builds_beside(const struct load *l)
{
	const struct fdry_image *img = l->img;

	if (!(l->opts->flags & FDRY_LOAD_BUILD) || l->opts->threads == 1)
		return false;
	return !img->place_hook || (!img->progress && !fdry_image_progress_runs());
}

/* Should graphs for the background be built while content is copied, as long as that takes? Not if
 * one graph takes longer than the content. A progress function gets such graphs in another thread,
 * and may wait there. */
static bool begins_beside(const struct load *l)
{
	const struct fdry_image *img = l->img;

	return l->opts->flags & FDRY_LOAD_BACKGROUND && l->opts->threads != 1 &&
	       !img->place_hook && !img->progress &&
	       fdry_content_bytes(l->content) >= CONTENT_LONG;
}

/* The number of graphs to build in the background, in the caller's order. */
static uint32_t builder_count(const struct load *l)
{
	return l->opts->flags & FDRY_LOAD_ORDERED ? (uint32_t)l->opts->norder
						  : l->img->m.n_graphs;
}

static int content_and_graphs(struct load *l)
{
	struct fdry_saved_err graphs;
	struct fdry_task content;
	int err;

	if (l->arriving) {
		err = graphs_early(l);
		return err ? err : content_copy(l);
	}
	if (!builds_beside(l) && !begins_beside(l))
		return content_copy(l);
	fdry_task_start(&content, "fdry-content", content_load, l);
	err = graphs_prepare(l);
	if (!err && builds_beside(l))
		err = fdry_execs_build(l->img);
	else if (!err && content.started)
		fdry_execs_begin(l->img, builder_count(l), &l->content_ended);
	fdry_saved_err_set(&graphs, err);
	err = fdry_task_finish(&content);
	return err ? err : fdry_saved_err_restore(&graphs);
}

/*
 * Loading kernels and mapping memory are independent. But the driver makes a load of a kernel wait
 * for running copies, and copies wait for such loads. So content is prepared during both and copied
 * after them.
 */
static int device_fill(struct load *l)
{
	struct fdry_saved_err kernels;
	struct fdry_task memory;
	int err;

	if (fdry_objects_have_kernels(l->objects))
		fdry_task_start(&memory, "fdry-memory", memory_load, l);
	else
		fdry_task_init(&memory, memory_load, l);
	fdry_saved_err_set(&kernels, kernels_load(l));
	err = fdry_task_finish(&memory);
	if (err)
		goto out_end;
	err = fdry_saved_err_restore(&kernels);
	if (err)
		goto out_end;
	err = content_and_graphs(l);
out_end:
	fdry_content_end(l->content);
	l->content = NULL;
	fdry_reader_end(l->content_reader);
	free(l->img->in_place);
	l->img->in_place = NULL;
	return err;
}

static int device_load(struct load *l)
{
	struct fdry_image *img = l->img;
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(img, &mode);

	if (err)
		return err;
	err = fdry_stream_shared(img->drv, FDRY_STREAM_MEMORY, &img->stream);
	if (err)
		goto out_leave;
	err = fdry_context_limits(img);
	if (err)
		goto out_leave;
	err = fdry_image_arrays_make(img);
	if (err)
		goto out_leave;
	if (img->check_overlap && !img->private_ctx)
		err = fdry_overlap_new(img);
	if (err)
		goto out_leave;
	err = device_fill(l);
	if (!err && !l->prepared)
		err = graphs_prepare(l);
out_leave:
	fdry_image_leave(img, &mode);
	return err;
}

/* Run the steps. If several fail, the caller gets the error of the first one in this order. */
static int load(struct load *l, const char *name)
{
	int err = fdry_reader_begin(l->img->store, &l->reader);

	if (err)
		return err;
	err = manifest_load(l, name);
	if (err)
		goto out_free;
	err = driver_start(l);
	if (err)
		goto out_free;
	err = memory_place(l);
	if (err)
		goto out_free;
	if (l->opts->flags & FDRY_LOAD_OWN_CONTEXT)
		err = private_ctx_start(l);
	if (err)
		goto out_free;
	err = device_load(l);
	if (err == -FDRY_E_CORRUPT || err == -FDRY_E_BADIMAGE)
		err = fdry_image_fail(l->img, err);
	if (err)
		goto out_free;
	err = fdry_image_unfilled_make(l->img);
out_free:
	fdry_content_end(l->content);
	fdry_objects_free(l->objects);
	fdry_plan_release(&l->plan);
	fdry_reader_end(l->reader);
	return err;
}

/* Undo a failed load. The error's message stays. */
static int load_undo(struct fdry_image *img, int err)
{
	CUstreamCaptureMode mode;
	struct fdry_saved_err saved;

	fdry_saved_err_set(&saved, err);
	if (img->ctx && !fdry_image_enter(img, &mode)) {
		fdry_context_limits_undo(img);
		fdry_image_leave(img, &mode);
	}
	fdry_image_unload(img);
	return fdry_saved_err_restore(&saved);
}

static int image_new(const struct fdry_load_source *from, const struct fdry_load_opts *o,
		     struct fdry_mismatch *mismatch, struct fdry_image **ret)
{
	struct fdry_image *img = calloc(1, sizeof(*img));
	int err;

	if (!img)
		return fdry_nomem();
	fdry_live_add(img);
	fdry_ticket_init(&img->ticket);
	pthread_mutex_init(&img->lock, NULL);
	pthread_mutex_init(&img->staging_lock, NULL);
	img->progress_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	img->progress = o->progress;
	img->progress_arg = o->progress_arg;
	img->pid = getpid();
	img->start_ms = fdry_now_ms();
	img->mismatch = mismatch;
	img->verify = o->flags & FDRY_LOAD_VERIFY;
	err = fdry_overlap_asked(&img->check_overlap);
	if (err)
		goto out_undo;
	img->check_overlap |= (o->flags & FDRY_LOAD_CHECK_OVERLAP) != 0;
	err = fdry_budget_init(&img->budget);
	if (err)
		goto out_undo;
	err = fdry_load_opts_bind(o, img);
	if (err)
		goto out_undo;
	err = fdry_store_again(from->store, &img->store);
	if (err)
		goto out_undo;
	fdry_store_expect(img->store, from->arrival);
	*ret = img;
	return 0;
out_undo:
	return load_undo(img, err);
}

/* Try the load once. If it fails, @damaged lists the objects that are damaged in the store. */
static int image_load(const struct fdry_load_source *from, struct load *l,
		      struct fdry_mismatch *mismatch, const struct fdry_wait *stop,
		      struct fdry_buf *damaged)
{
	struct fdry_image *img = NULL;
	int err = image_new(from, l->opts, mismatch, &img);

	if (err)
		return err;
	l->img = img;
	l->arriving = from->arrival;
	l->mark = img->start_ms;
	err = load(l, from->name);
	if (err)
		goto out_undo;
	if (l->opts->flags & FDRY_LOAD_BUILD)
		err = fdry_execs_build(img);
	if (err)
		goto out_undo;
	fdry_store_expect(img->store, NULL);
	return 0;
out_undo:
	/* Of an image that arrives, other objects may not be there yet. */
	if (err == -FDRY_E_CORRUPT && !from->arrival)
		err = fdry_damage_find(img, stop);
	*damaged = img->damaged;
	memset(&img->damaged, 0, sizeof(img->damaged));
	return load_undo(img, err);
}

/* A function of its own, so that a message names no function that the caller did not call. */
static int args_check(const struct fdry_store *store, const char *name, struct fdry_image **ret)
{
	return fdry_need(store) ?: fdry_need(name) ?: fdry_need(ret);
}

int fdry_image_load_stored(const struct fdry_load_source *from, const struct fdry_load_opts *opts,
			   struct fdry_mismatch *mismatch, struct fdry_image **ret)
{
	struct fdry_buf damaged = { 0 };
	struct fdry_load_opts o;
	struct load l;
	struct fdry_image *img;
	struct fdry_wait stop;
	unsigned int repairs = 0;
	bool again;
	int err = args_check(from->store, from->name, ret);

	if (err)
		return err;
	err = fdry_opts_take(opts, &o, sizeof(o));
	if (err)
		return err;
	err = fdry_load_opts_check(&o);
	if (err)
		return err;
	stop = (struct fdry_wait){ .stop = o.stop, .arg = o.stop_arg };
	do {
		again = false;
		l = (struct load){ .opts = &o };
		err = image_load(from, &l, mismatch, &stop, &damaged);
		if (err == -FDRY_E_CORRUPT && repairs++ < FDRY_REPAIRS_MAX) {
			err = fdry_damage_repair(from->store, from->name, &stop, &damaged);
			again = !err;
		}
		fdry_buf_release(&damaged);
	} while (again);
	if (err)
		return err;
	img = l.img;
	img->mismatch = NULL;
	fdry_shared_fingerprinter_keep(img->fingerprinter, from->store);
	img->report.total_ms = fdry_now_ms() - img->start_ms;
	fdry_count(FDRY_METRIC_LOADS, 1);
	if (img->m.n_chunks && !img->m.n_fingerprints)
		fdry_count(FDRY_METRIC_LOADS_UNCHECKED, 1);
	fdry_count_ms(FDRY_METRIC_LOAD_NS, img->report.total_ms);
	fdry_store_note_hit(img->store, &img->id, img->report.content_bytes, img->report.total_ms);
	if (o.flags & FDRY_LOAD_BACKGROUND)
		fdry_builder_start(img, builder_count(&l));
	*ret = img;
	return 0;
}
