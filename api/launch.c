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

static void built_report(struct fdry_image *img, const struct fdry_image_exec *x, double ms)
{
	struct fdry_load_report *r = &img->report;
	double since = fdry_now_ms() - img->start_ms;

	r->build_ms += ms;
	r->nodes_built += x->view.header.nodes;
	if (!r->graphs_built++)
		r->first_ms = since;
	if (r->graphs_built == img->m.n_graphs)
		r->all_ms = since;
}

static int exec_build(struct fdry_image *img, struct fdry_image_exec *x)
{
	const struct fdry_graph_builder builder = { img->drv, img->ctx, img->kernels, img->m.n_kernels, img->bank, NULL, 0 };
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
	atomic_store(&x->exec, exec);
	built_report(img, x, fdry_lap_ms(&mark));
	return 0;
}

static int graph_index(const struct fdry_image *img, uint64_t key, uint32_t *ret)
{
	const struct fdry_mf_graph *g = fdry_manifest_graph(&img->m, key);

	if (!g)
		return fdry_fail(FDRY_E_NOKEY, "the image has no graph with key %llu; fdry_image_describe() lists them",
				 (unsigned long long)key);
	*ret = (uint32_t)(g - img->m.graphs);
	return 0;
}

static int graph_build(struct fdry_image *img, struct fdry_image_exec *x)
{
	CUstreamCaptureMode mode;
	int err;

	if (atomic_load(&x->exec))
		return 0;
	err = fdry_image_enter(img, &mode);
	if (err)
		return err;
	pthread_mutex_lock(&img->lock);
	if (!atomic_load(&x->exec))
		err = exec_build(img, x);
	pthread_mutex_unlock(&img->lock);
	fdry_image_leave(img, &mode);
	return err;
}

int fdry_image_build(struct fdry_image *img, uint64_t key)
{
	uint32_t i = 0;
	int err;

	err = fdry_image_check(img);
	if (!err)
		err = graph_index(img, key, &i);
	if (err)
		return err;
	err = graph_build(img, &img->execs[i]);
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
	return fdry_fail(FDRY_E_UNBOUND, "%u external tensor(s) have no content yet, '%s' first; write or copy them, "
			 "or declare them with fdry_image_filled()", n, name);
}

/* Whether memory is what graphs expect. */
static int memory_check(struct fdry_image *img)
{
	if (atomic_load(&img->torn))
		return fdry_fail(FDRY_E_STATE, "content was restored in part only; restore it again, or unload the image");
	return atomic_load(&img->unfilled) ? unfilled_fail(img) : 0;
}

static int exec_launch(struct fdry_image *img, CUgraphExec exec, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(img, &mode);

	if (err)
		return err;
	err = fdry_call(img->drv, cuGraphLaunch, exec, stream);
	fdry_image_leave(img, &mode);
	return err;
}

int fdry_image_launch(struct fdry_image *img, uint64_t key, CUstream stream)
{
	uint32_t i = 0;
	int err;

	err = fdry_image_check(img);
	if (!err)
		err = graph_index(img, key, &i);
	if (!err)
		err = memory_check(img);
	if (!err && !atomic_load(&img->execs[i].exec))
		err = fdry_image_build(img, key);
	return err ? err : exec_launch(img, atomic_load(&img->execs[i].exec), stream);
}

/* Under the lock: graphs are neither built nor launched for the first time meanwhile. */
static int content_restore(struct fdry_image *img, CUstream stream)
{
	struct fdry_content c = { .zero = true };
	struct fdry_get *get;
	int err;

	err = fdry_image_stream_check(img, stream);
	if (!err)
		err = fdry_get_begin(img->store, &get);
	if (err)
		return err;
	err = fdry_call(img->drv, cuStreamSynchronize, stream);
	if (!err) {
		atomic_store(&img->torn, true);
		err = fdry_image_content(img, get, &c);
	}
	if (!err)
		atomic_store(&img->torn, false);
	fdry_get_end(get);
	return err;
}

int fdry_image_restore(struct fdry_image *img, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err;

	err = fdry_image_check(img);
	if (!err)
		err = fdry_image_enter(img, &mode);
	if (err)
		return err;
	pthread_mutex_lock(&img->lock);
	err = content_restore(img, stream);
	pthread_mutex_unlock(&img->lock);
	fdry_image_leave(img, &mode);
	return err;
}
