// SPDX-License-Identifier: Apache-2.0
/*
 * launch.c - graphs built, launched, and their memory put back.
 *
 * A graph is built once, under the image's lock; after that a launch takes no lock. Each
 * graph has an exec of its own, uploaded before its first launch and never updated: what
 * is done to an exec later slows its replays for good.
 */
#include "api/clock.h"
#include "api/image.h"

static int exec_make(struct fdry_image *img, const struct fdry_graph_built *built, CUgraphExec *ret)
{
	CUgraphExec exec;
	int err;

	err = fdry_call(img->drv, cuGraphInstantiateWithFlags, &exec, built->graph, 0);
	if (err)
		return err;
	err = fdry_call(img->drv, cuGraphUpload, exec, img->stream);
	if (!err)
		err = fdry_call(img->drv, cuStreamSynchronize, img->stream);
	if (err)
		(void)fdry_call_raw(img->drv, cuGraphExecDestroy, exec);
	else
		*ret = exec;
	return err;
}

static int exec_build(struct fdry_image *img, struct fdry_image_exec *x)
{
	const struct fdry_graph_builder builder = { img->drv, img->ctx, img->kernels, img->m.n_kernels, img->bank };
	double mark = fdry_now_ms();
	CUgraphExec exec = NULL;
	int err;

	err = fdry_graph_build(&builder, &x->view, &x->built);
	if (err)
		return err;
	err = exec_make(img, &x->built, &exec);
	if (err) {
		fdry_graph_built_release(img->drv, &x->built);
		return err;
	}
	/* An exec needs the graph's events, not the graph. */
	(void)fdry_call_raw(img->drv, cuGraphDestroy, x->built.graph);
	x->built.graph = NULL;
	img->report.build_ms += fdry_lap_ms(&mark);
	img->report.graphs_built++;
	img->report.nodes_built += x->view.header.nodes;
	atomic_store(&x->exec, exec);
	return 0;
}

/* A capture elsewhere in the process must not be broken by what building does. */
static int build_relaxed(struct fdry_image *img, struct fdry_image_exec *x)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	int err;

	err = fdry_call(img->drv, cuThreadExchangeStreamCaptureMode, &mode);
	if (err)
		return err;
	err = exec_build(img, x);
	(void)fdry_call_raw(img->drv, cuThreadExchangeStreamCaptureMode, &mode);
	return err;
}

static int graph_index(const struct fdry_image *img, uint64_t key, uint32_t *ret)
{
	const struct fdry_mf_graph *g = fdry_manifest_graph(&img->m, key);

	if (!g)
		return fdry_fail(FDRY_E_NOKEY, "the image has no graph with key %llu; fdry_image_describe() lists them", (unsigned long long)key);
	*ret = (uint32_t)(g - img->m.graphs);
	return 0;
}

int fdry_image_build(struct fdry_image *img, uint64_t key)
{
	struct fdry_image_exec *x;
	uint32_t i = 0;
	int err;

	err = graph_index(img, key, &i);
	if (err)
		return err;
	x = &img->execs[i];
	if (atomic_load(&x->exec))
		return 0;
	err = fdry_image_enter(img);
	if (err)
		return err;
	pthread_mutex_lock(&img->lock);
	if (!atomic_load(&x->exec))
		err = build_relaxed(img, x);
	pthread_mutex_unlock(&img->lock);
	fdry_image_leave(img);
	return err ? fdry_fail_at(err, "graph %llu", (unsigned long long)key) : 0;
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
	return fdry_fail(FDRY_E_UNBOUND, "%u external tensor(s) have no content yet, '%s' first; write or copy them, or declare them with "
			 "fdry_image_filled()", n, name);
}

static int exec_launch(struct fdry_image *img, CUgraphExec exec, CUstream stream)
{
	int err = fdry_image_enter(img);

	if (err)
		return err;
	err = fdry_call(img->drv, cuGraphLaunch, exec, stream);
	fdry_image_leave(img);
	return err;
}

int fdry_image_launch(struct fdry_image *img, uint64_t key, CUstream stream)
{
	CUgraphExec exec;
	uint32_t i = 0;
	int err;

	err = graph_index(img, key, &i);
	if (err)
		return err;
	if (atomic_load(&img->unfilled))
		return unfilled_fail(img);
	exec = atomic_load(&img->execs[i].exec);
	if (!exec) {
		err = fdry_image_build(img, key);
		if (err)
			return err;
		exec = atomic_load(&img->execs[i].exec);
	}
	return exec_launch(img, exec, stream);
}

int fdry_image_restore(struct fdry_image *img, CUstream stream)
{
	struct fdry_get *get;
	int err;

	err = fdry_image_enter(img);
	if (err)
		return err;
	err = fdry_get_begin(img->store, &get);
	if (err)
		goto out_leave;
	err = fdry_call(img->drv, cuStreamSynchronize, stream);
	if (!err) {
		pthread_mutex_lock(&img->lock);
		err = fdry_image_content(img, get, false, true);
		pthread_mutex_unlock(&img->lock);
	}
	fdry_get_end(get);
out_leave:
	fdry_image_leave(img);
	return err;
}
