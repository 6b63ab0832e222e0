// SPDX-License-Identifier: Apache-2.0
/*
 * launch.c - launches graphs.
 *
 * A launch of a graph that is built takes no lock, unless the graph draws random numbers.
 */
#include "arch/stream.h"
#include "image/builder.h"
#include "image/exec.h"
#include "image/image_host.h"
#include "image/overlap.h"
#include "lib/opts.h"
#include "image/private_ctx.h"
#include "image/random.h"
#include "lib/telemetry.h"

int fdry_image_build(struct fdry_image *img, uint64_t key)
{
	uint32_t i = 0;
	int err;

	err = fdry_image_usable(img);
	if (err)
		return err;
	err = fdry_exec_index(img, key, &i);
	if (err)
		return err;
	return fdry_exec_need(img, i);
}

int fdry_image_wait(struct fdry_image *img)
{
	uint32_t i;
	int err = fdry_image_check_outside(img);

	if (err)
		return err;
	fdry_builder_wait(img);
	for (i = 0; i < img->m.n_graphs; i++) {
		err = fdry_exec_need(img, img->order[i]);
		if (err)
			return err;
	}
	return 0;
}

int fdry_image_build_stop(struct fdry_image *img)
{
	int err = fdry_image_check_outside(img);

	if (err)
		return err;
	fdry_builder_stop(img);
	return 0;
}

static int unfilled_fail(struct fdry_image *img)
{
	const char *name = "";
	uint32_t i, n;

	pthread_mutex_lock(&img->lock);
	for (i = img->m.n_tensors; i-- > 0;)
		if (img->m.tensors[i].flags & FDRY_TENSOR_EXTERNAL && !img->filled[i])
			name = fdry_manifest_str(&img->m, img->m.tensors[i].name);
	n = atomic_load(&img->unfilled);
	pthread_mutex_unlock(&img->lock);
	return fdry_fail(
		FDRY_E_UNBOUND,
		"%u external tensor(s) have no content yet, '%s' first; write or copy them, "
		"or declare them with fdry_image_filled()",
		n, name);
}

/* Check that memory holds what graphs expect. */
static int memory_check(struct fdry_image *img)
{
	int err = fdry_content_use(img);

	if (err)
		return err;
	return atomic_load(&img->unfilled) ? unfilled_fail(img) : 0;
}

static int exec_launch(struct fdry_image *img, const struct fdry_launch *l)
{
	int err;

	if (img->overlap && !img->private_ctx)
		return fdry_overlap_launch(img, l);
	err = fdry_random_write(img, l);
	if (err)
		return err;
	return img->private_ctx ? fdry_private_ctx_launch(img, l->exec, l->stream)
				: fdry_call(img->drv, cuGraphLaunch, l->exec, l->stream);
}

/* Launch with the primary context current, since the caller's stream belongs to it. */
int fdry_exec_launch(struct fdry_image *img, const struct fdry_launch *l)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter_primary(img, &mode);

	if (err)
		return err;
	err = fdry_image_stream_check(img, l->stream);
	if (err)
		goto out_leave;
	fdry_count(FDRY_METRIC_LAUNCHES_IMAGE, 1);
	atomic_fetch_add_explicit(&img->launches, 1, memory_order_relaxed);
	fdry_stream_note_launch();
	fdry_random_begin(img, l);
	err = exec_launch(img, l);
	fdry_random_end(img, l, err);
out_leave:
	fdry_image_leave(img, &mode);
	return err;
}

static int launch(struct fdry_image *img, uint64_t key, struct fdry_launch *l)
{
	int err = fdry_exec_index(img, key, &l->graph);

	if (err)
		return err;
	err = fdry_exec_need(img, l->graph);
	if (err)
		return err;
	err = memory_check(img); /* only now, because fdry_exec_need() may have waited for a
				    restore */
	if (err)
		return err;
	l->exec = atomic_load(&img->execs[l->graph].exec);
	return fdry_exec_launch(img, l);
}

int fdry_image_launch(struct fdry_image *img, uint64_t key, CUstream stream)
{
	struct fdry_launch l = { .stream = stream };
	int err = fdry_image_usable(img);

	return err ? err : launch(img, key, &l);
}

int fdry_image_launch_rng(struct fdry_image *img, uint64_t key, CUstream stream,
			  const struct fdry_rng_state *states, size_t n)
{
	struct fdry_launch l = { .stream = stream, .states = states };
	int err = fdry_image_usable(img) ?: fdry_need(states);

	if (err)
		return err;
	if (n != img->m.n_generators)
		return fdry_fail(FDRY_E_INVAL,
				 "the image has %u generators, but %zu states were given; "
				 "give one for each",
				 img->m.n_generators, n);
	return launch(img, key, &l);
}
