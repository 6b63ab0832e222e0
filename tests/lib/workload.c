// SPDX-License-Identifier: Apache-2.0
/* workload.c - see workload.h. */
#include "tests/lib/workload.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch/driver.h"
#include "lib/buf.h"
#include "tests/lib/need.h"

#define FLOATS (1u << 20) /* of each vector */
#define BLOCK (2u << 20)

#define call(w, fn, ...) need(fdry_call((w)->drv, fn, __VA_ARGS__), #fn)

void workload_init(struct workload *w)
{
	ssize_t len = readlink("/proc/self/exe", w->build, sizeof(w->build) - 1);
	char sim[PATH_MAX + 64], *slash;
	int i;

	w->build[len < 0 ? 0 : len] = '\0';
	for (i = 0; i < 3 && (slash = strrchr(w->build, '/')); i++) /* build/tests/bench/NAME */
		*slash = '\0';
	snprintf(sim, sizeof(sim), "%s/foundry/sim/libcuda.so.1", w->build);
	need(setenv("FOUNDRY_DRIVER", sim, 1), sim);
}

static void interposer_load(struct workload *w)
{
	char hook[PATH_MAX + 64];
	CUcontext ctx;

	snprintf(hook, sizeof(hook), "%s/foundry/hook/libcuda.so.1", w->build);
	if (!dlopen(hook, RTLD_NOW | RTLD_GLOBAL))
		need(-1, dlerror());
	need(setenv("FOUNDRY_HOOK", hook, 1), hook);
	need(fdry_hook_install(NULL), "fdry_hook_install");
	need(fdry_driver_open(hook, &w->drv), hook);
	call(w, cuDevicePrimaryCtxRetain, &ctx, 0);
	call(w, cuCtxSetCurrent, ctx);
}

static struct fdry_buf file_read(const struct workload *w, const char *name)
{
	char path[PATH_MAX + 64], block[4096];
	struct fdry_buf code = { 0 };
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/sim/%s", w->build, name);
	f = fopen(path, "r");
	need(f ? 0 : 1, path);
	while ((n = fread(block, 1, sizeof(block), f)) > 0)
		need(fdry_buf_put(&code, block, n), path);
	fclose(f);
	return code;
}

void workload_functions(struct workload *w)
{
	struct fdry_buf code = file_read(w, "train.cubin");
	CUmodule module;
	unsigned int i;

	for (i = 0; i < w->kernels; i++) {
		fdry_set32(code.data + 48, i);
		call(w, cuModuleLoadDataEx, &module, code.data, 0, NULL, NULL);
		call(w, cuModuleGetFunction, &w->functions[i], module, "linear");
	}
	fdry_buf_release(&code);
}

void workload_begin(struct workload *w)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts), .base = w->base, .size = w->size };
	CUdeviceptr block;
	unsigned int i;

	interposer_load(w);
	need(fdry_capture_begin(&opts, &w->cap), "fdry_capture_begin");
	call(w, cuStreamCreate, &w->stream, CU_STREAM_NON_BLOCKING);
	for (i = 0; i < 3; i++)
		call(w, cuMemAlloc_v2, &w->vectors[i], FLOATS * sizeof(float));
	for (i = 0; i < w->blocks; i++) {
		call(w, cuMemAlloc_v2, &block, BLOCK);
		call(w, cuMemsetD32Async, block, i + 1, BLOCK / 4, w->stream);
	}
}

CUgraph workload_graph(struct workload *w, unsigned int key)
{
	int n = (int)key;
	void *args[] = { &w->vectors[0], &w->vectors[1], &w->vectors[2], &n };
	CUgraph graph = NULL;
	unsigned int i;

	call(w, cuStreamBeginCapture_v2, w->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	for (i = 0; i < w->nodes; i++)
		call(w, cuLaunchKernel, w->functions[i % w->kernels], 1, 1, 1, 64, 1, 1, 0,
		     w->stream, args, NULL);
	call(w, cuStreamEndCapture, w->stream, &graph);
	return graph;
}

void workload_run(void (*fn)(double *ms), double *ms, size_t n)
{
	double *shared =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid;

	need(shared == MAP_FAILED ? -1 : 0, "mmap");
	pid = fork();
	if (!pid) {
		fn(shared);
		_exit(EXIT_SUCCESS);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
		exit(EXIT_FAILURE);
	memcpy(ms, shared, n * sizeof(*ms));
	munmap(shared, 4096);
}
