// SPDX-License-Identifier: Apache-2.0
/* exec.c - builds executable graphs; see exec.h. */
#include "image/exec.h"

#include "image/events.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "arch/stream.h"

static int exec_upload(const struct fdry_driver *drv, CUgraphExec exec)
{
	CUstream stream;
	int err = fdry_stream_shared(drv, FDRY_STREAM_GRAPHS, &stream);

	if (err)
		return err;
	err = fdry_call(drv, cuGraphUpload, exec, stream);
	if (err)
		return err;
	return fdry_stream_wait(drv, stream);
}

static int exec_make(struct fdry_image *img, const struct fdry_image_exec *x, CUgraphExec *ret)
{
	CUgraphExec exec;
	int err = fdry_call(img->drv, cuGraphInstantiateWithFlags, &exec, x->built.graph,
			    fdry_graph_exec_flags(&x->view));

	if (err)
		return err;
	if (!atomic_load(&fdry_stream_launched))
		err = exec_upload(img->drv, exec);
	if (err)
		goto out_destroy;
	*ret = exec;
	return 0;
out_destroy:
	(void)fdry_call_raw(img->drv, cuGraphExecDestroy, exec);
	return err;
}

/* 0 if the driver cannot report it. */
static size_t memory_free(const struct fdry_image *img)
{
	size_t bytes, total;

	return fdry_call_raw(img->drv, cuMemGetInfo_v2, &bytes, &total) ? 0 : bytes;
}

/* The driver does not report how much device memory a graph needs. This much was measured. */
#define BYTES_A_NODE 3072ull

static int memory_short(struct fdry_image *img, int err, uint32_t nodes)
{
	size_t bytes = memory_free(img);
	uint64_t built;

	pthread_mutex_lock(&img->lock);
	built = img->report.graphs_built;
	pthread_mutex_unlock(&img->lock);
	return fdry_fail_at(err,
			    "its %u nodes need about %llu KiB of device memory, and %zu KiB are "
			    "free after %llu graphs were built",
			    nodes, nodes * BYTES_A_NODE >> 10, bytes >> 10,
			    (unsigned long long)built);
}

/* A graph that is built again, after it could not be made anew, counts as one for the image. */
static void built_report(struct fdry_image *img, struct fdry_image_exec *x, double ms, size_t bytes)
{
	struct fdry_load_report *r = &img->report;
	double since = fdry_now_ms() - img->start_ms;

	fdry_count(FDRY_METRIC_BUILDS, 1);
	fdry_count(FDRY_METRIC_BUILD_NODES, x->view.header.nodes);
	fdry_count_ms(FDRY_METRIC_BUILD_NS, ms);
	if (x->counted)
		return;
	x->counted = true;
	pthread_mutex_lock(&img->lock);
	r->build_ms += ms;
	r->exec_bytes += bytes;
	r->nodes_built += x->view.header.nodes;
	if (!r->graphs_built++)
		r->first_ms = since;
	if (r->graphs_built == img->m.n_graphs)
		r->all_ms = since;
	pthread_mutex_unlock(&img->lock);
}

struct fdry_graph_builder fdry_exec_builder(const struct fdry_image *img,
					    const struct fdry_image_exec *x)
{
	return (struct fdry_graph_builder){
		.drv = img->drv,
		.ctx = img->ctx,
		.kernels = img->kernels,
		.nkernels = img->m.n_kernels,
		.bank = img->bank,
		.hosts = img->hosts,
		.nhosts = img->m.n_hosts,
		.arrays = img->arrays,
		.narrays = img->m.n_arrays,
		.functions = fdry_array(img->functions, struct fdry_host_function),
		.nfunctions = fdry_array_count(img->functions, struct fdry_host_function),
		.semaphores = fdry_array(img->semaphores, struct fdry_semaphore),
		.nsemaphores = fdry_array_count(img->semaphores, struct fdry_semaphore),
		.events = x->events,
		.words = x->words,
		.nwords = x->nwords,
	};
}

static int exec_build(struct fdry_image *img, struct fdry_image_exec *x)
{
	const struct fdry_graph_builder builder = fdry_exec_builder(img, x);
	size_t before = memory_free(img), after;
	double mark = fdry_now_ms();
	CUgraphExec exec = NULL;
	int err;

	err = fdry_graph_build(&builder, &x->view, &x->built);
	if (err)
		return err;
	err = exec_make(img, x, &exec);
	if (err) {
		fdry_graph_built_release(img->drv, &x->built);
		return err;
	}
	/* An exec needs the graph's events, not the graph, unless nodes of it will change. */
	if (!x->built.nsemaphores) {
		(void)fdry_call_raw(img->drv, cuGraphDestroy, x->built.graph);
		x->built.graph = NULL;
	}
	atomic_store(&x->exec, exec);
	after = memory_free(img);
	built_report(img, x, fdry_elapsed_ms(&mark), before > after ? before - after : 0);
	return 0;
}

int fdry_exec_build(struct fdry_image *img, uint32_t i, bool *built)
{
	struct fdry_image_exec *x = &img->execs[i];
	bool again = x->counted;
	int err;

	*built = false;
	if (atomic_load(&x->exec))
		return 0;
	err = exec_build(img, x);
	*built = !err && !again;
	if (err == -FDRY_E_NODEVMEM)
		err = memory_short(img, err, x->view.header.nodes);
	return err ? fdry_fail_at(err, "graph %llu", (unsigned long long)img->m.graphs[i].key) : 0;
}

int fdry_exec_need(struct fdry_image *img, uint32_t i)
{
	CUstreamCaptureMode mode;
	bool built;
	int err;

	if (atomic_load(&img->execs[i].exec))
		return 0;
	err = fdry_image_check_outside(img);
	if (err)
		return err;
	err = fdry_image_enter(img, &mode);
	if (err)
		return err;
	fdry_ticket_take(&img->ticket);
	err = fdry_exec_build(img, i, &built);
	fdry_ticket_return(&img->ticket);
	fdry_image_leave(img, &mode);
	if (built)
		fdry_image_progress_built(img);
	return err;
}

int fdry_execs_build(struct fdry_image *img)
{
	uint32_t i;
	int err;

	for (i = 0; i < img->m.n_graphs; i++) {
		err = fdry_exec_need(img, img->order[i]);
		if (err)
			return err;
	}
	return 0;
}

void fdry_execs_begin(struct fdry_image *img, uint32_t n, const _Atomic bool *stop)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < n && !err && !atomic_load(stop); i++)
		err = fdry_exec_need(img, img->order[i]);
	if (err)
		fdry_info("a graph is built later: %s", fdry_last_error());
}

static void exec_destroy(struct fdry_image *img, struct fdry_image_exec *x)
{
	CUgraphExec exec = atomic_exchange(&x->exec, NULL);

	if (exec)
		(void)fdry_call_raw(img->drv, cuGraphExecDestroy, exec);
	fdry_graph_built_release(img->drv, &x->built);
}

/* Make the exec anew of the graph, whose events stay: launches before this one record them. */
static int exec_remake(struct fdry_image *img, struct fdry_image_exec *x)
{
	const struct fdry_graph_builder builder = fdry_exec_builder(img, x);
	CUgraphExec exec;
	int err = fdry_graph_semaphores_set(&builder, &x->view, &x->built, NULL);

	if (err)
		return err;
	/* The driver keeps it until its launches have ended. */
	(void)fdry_call_raw(img->drv, cuGraphExecDestroy, atomic_exchange(&x->exec, NULL));
	err = exec_make(img, x, &exec);
	if (!err)
		atomic_store(&x->exec, exec);
	return err;
}

int fdry_exec_semaphores_set(struct fdry_image *img, uint32_t i)
{
	struct fdry_image_exec *x = &img->execs[i];
	const struct fdry_graph_builder builder = fdry_exec_builder(img, x);
	CUgraphExec exec = atomic_load(&x->exec);
	int err;

	if (!exec || !fdry_graph_semaphores_set(&builder, &x->view, &x->built, exec))
		return 0;
	err = exec_remake(img, x);
	if (!err)
		return 0;
	exec_destroy(img, x); /* the next launch tries again */
	return fdry_fail_at(err, "graph %llu", (unsigned long long)img->m.graphs[i].key);
}

void fdry_execs_destroy(struct fdry_image *img)
{
	uint32_t i;

	for (i = 0; img->execs && i < img->m.n_graphs; i++)
		exec_destroy(img, &img->execs[i]);
	fdry_image_events_free(img);
}

int fdry_exec_index(const struct fdry_image *img, uint64_t key, uint32_t *ret)
{
	const struct fdry_mf_graph *g = fdry_manifest_graph(&img->m, key);

	if (!g)
		return fdry_fail(
			FDRY_E_NOKEY,
			"the image has no graph with key %llu; fdry_image_describe() lists them",
			(unsigned long long)key);
	*ret = (uint32_t)(g - img->m.graphs);
	return 0;
}
