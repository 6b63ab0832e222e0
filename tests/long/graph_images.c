// SPDX-License-Identifier: Apache-2.0
/*
 * graph_images.c - random graphs with nodes of all kinds, sealed by one process and loaded by
 * another.
 *
 * The capturing process launches each graph once, from a known state, and keeps digests of the
 * memory, the host memory and the calls of host functions afterwards. The loading process does the
 * same with the image's graphs, and compares.
 */
#include "lib/oid.h"
#include "tests/lib/graph_make.h"
#include "tests/lib/image.h"
#include "tests/lib/test.h"
#include "tests/long/long.h"

#define GRAPHS 20u /* of one image */

enum { EQUAL };

struct result {
	struct fdry_oid oid; /* of the memory, then of the host memory */
	int calls[2];
};

static struct result results[GRAPHS];
static char results_file[320];

static void CUDA_CB call(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static void state_fill(uint8_t *mem, uint8_t *host)
{
	uint32_t i;

	for (i = 0; i < GRAPH_MEM_BYTES; i++)
		mem[i] = (uint8_t)(i * 31 + i / 256);
	for (i = 0; i < GRAPH_HOST_BYTES; i++)
		host[i] = (uint8_t)(i * 7 + i / 256);
}

static void result_set(struct result *r, const uint8_t *mem, const uint8_t *host, const int *calls)
{
	static uint8_t all[GRAPH_MEM_BYTES + GRAPH_HOST_BYTES];

	memcpy(all, mem, GRAPH_MEM_BYTES);
	memcpy(all + GRAPH_MEM_BYTES, host, GRAPH_HOST_BYTES);
	ok(fdry_oid_of(all, sizeof(all), &r->oid));
	memcpy(r->calls, calls, sizeof(r->calls));
}

/* --- the capturing process --- */

/* The driver, with the interposer's functions in place of those that it must see. */
static struct fdry_driver driver_through_hook(void)
{
	struct fdry_driver drv = *test_sim_open();

	*(void **)&drv.cuGraphAddNode_v2 = test_hook_symbol("cuGraphAddNode_v2");
	*(void **)&drv.cuGraphConditionalHandleCreate =
		test_hook_symbol("cuGraphConditionalHandleCreate");
	*(void **)&drv.cuGraphKernelNodeSetAttribute =
		test_hook_symbol("cuGraphKernelNodeSetAttribute");
	*(void **)&drv.cuGraphAddChildGraphNode = test_hook_symbol("cuGraphAddChildGraphNode");
	*(void **)&drv.cuGraphDestroy = test_hook_symbol("cuGraphDestroy");
	return drv;
}

static void env_make(struct work *w, const struct fdry_driver *drv, struct graph_env *env)
{
	static int calls[2];
	const struct fdry_host_function named[] = { { "a", call, &calls[0] },
						    { "b", call, &calls[1] } };
	struct fdry_tensor t = { .name = "mem", .dtype = FDRY_U8, .use = FDRY_USE_STATE,
				 .rank = 1, .shape = { GRAPH_MEM_BYTES }, .stride = { 1 } };
	void *host;

	*env = (struct graph_env){ .below = long_below, .drv = drv, .call = call, .calls = calls,
				   .body_handles = true };
	*(void **)&env->alloc = test_hook_symbol("cuGraphAddMemAllocNode");
	*(void **)&env->free = test_hook_symbol("cuGraphAddMemFreeNode");
	cuda_ok(cuCtxGetCurrent, &env->ctx);
	cuda_ok(cuMemAlloc_v2, &env->mem, GRAPH_MEM_BYTES);
	cuda_ok(cuMemAllocHost_v2, &host, GRAPH_HOST_BYTES);
	env->host = host;
	cuda_ok(cuModuleGetFunction, &env->step, w->module, "step");
	cuda_ok(cuModuleGetFunction, &env->words, w->module, "words");
	cuda_ok(cuModuleGetFunction, &env->nothing, w->module, "nothing");
	cuda_ok(cuModuleGetFunction, &env->condition, w->module, "condition");
	t.addr = env->mem;
	ok(fdry_capture_tensor(w->cap, &t));
	t = (struct fdry_tensor){ .name = "host", .addr = (uintptr_t)host, .dtype = FDRY_U8,
				  .use = FDRY_USE_STATE, .flags = FDRY_TENSOR_HOST, .rank = 1,
				  .shape = { GRAPH_HOST_BYTES }, .stride = { 1 } };
	ok(fdry_capture_tensor(w->cap, &t));
	ok(fdry_capture_host_function(w->cap, &named[0]));
	ok(fdry_capture_host_function(w->cap, &named[1]));
}

static void graph_launch(struct work *w, struct graph_env *env, CUgraph g, struct result *ret)
{
	static uint8_t mem[GRAPH_MEM_BYTES];
	CUgraphExec x;

	state_fill(mem, env->host);
	env->calls[0] = env->calls[1] = 0;
	cuda_ok(cuMemcpyHtoD_v2, env->mem, mem, sizeof(mem));
	cuda_ok(cuCtxSynchronize);
	cuda_ok(cuGraphInstantiateWithFlags, &x, g, 0);
	cuda_ok(cuGraphLaunch, x, w->stream);
	cuda_ok(cuStreamSynchronize, w->stream);
	cuda_ok(cuGraphExecDestroy, x);
	cuda_ok(cuMemcpyDtoH_v2, mem, env->mem, sizeof(mem));
	result_set(ret, mem, env->host, env->calls);
}

static void seal_graphs(void *arg)
{
	struct fdry_driver drv;
	struct graph_env env;
	struct work w;
	uint32_t i, k, nodes;
	CUgraph g;

	(void)arg;
	work_make(&w);
	drv = driver_through_hook();
	env_make(&w, &drv, &env);
	for (i = 0; i < GRAPHS; i++) {
		for (k = 0; k < GRAPH_EVENTS; k++)
			cuda_ok(cuEventCreate, &env.event[k], CU_EVENT_DISABLE_TIMING);
		g = graph_make_random(&env, &nodes);
		graph_launch(&w, &env, g, &results[i]);
		ok(fdry_capture_graph(w.cap, i, NULL, g));
	}
	ok(work_seal(&w, "graphs"));
	long_write_file(results_file, results, sizeof(results));
	work_end(&w);
}

/* --- the loading process --- */

static void image_compare(void)
{
	static uint8_t mem[GRAPH_MEM_BYTES], host[GRAPH_HOST_BYTES];
	static int calls[2];
	const struct fdry_host_function bound[] = { { "b", call, &calls[1] },
						    { "a", call, &calls[0] } };
	struct fdry_load_opts o = { .sz = sizeof(o), .functions = bound, .nfunctions = 2 };
	struct fdry_image *img = NULL;
	struct result r;
	void *at;
	uint32_t i;

	ok(fdry_image_load(load_store(), "graphs", &o, &img));
	ok(fdry_image_host(img, "host", &at));
	for (i = 0; i < GRAPHS; i++) {
		state_fill(mem, host);
		calls[0] = calls[1] = 0;
		ok(fdry_image_write(img, "mem", mem, sizeof(mem), NULL));
		memcpy(at, host, sizeof(host));
		ok(fdry_image_launch(img, i, NULL));
		ok(fdry_image_read(img, "mem", mem, sizeof(mem), NULL));
		memset(&r, 0, sizeof(r));
		result_set(&r, mem, at, calls);
		ck_assert_msg(!memcmp(&r, &results[i], sizeof(r)),
			      "graph %u has another result than when it was captured", i);
	}
	fdry_image_unload(img);
}

static void one(void)
{
	size_t len;
	uint8_t *bytes;

	snprintf(path, sizeof(path), "%s/store", long_dir);
	snprintf(results_file, sizeof(results_file), "%s/results", long_dir);
	test_child(seal_graphs, NULL);
	bytes = long_read_file(results_file, &len);
	ck_assert_uint_eq(len, sizeof(results));
	memcpy(results, bytes, len);
	free(bytes);
	image_compare();
	long_remove(path);
}

static int run(uint64_t nr)
{
	(void)nr;
	long_checked(one);
	return EQUAL;
}

int main(int argc, char **argv)
{
	static const struct long_test t = {
		.name = "graph_images",
		.sample = 6,
		.all = 1000,
		.together = 1,
		.seconds = 60,
		.run = run,
		.ends = { "images of 20 graphs, equal" },
	};

	return long_main(argc, argv, &t);
}
