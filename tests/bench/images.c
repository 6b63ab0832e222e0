// SPDX-License-Identifier: Apache-2.0
/*
 * images.c - the cost of loading many images of one workload into one region, beside one image of
 * the whole workload, on the software driver. A program that saves its graphs one by one makes many
 * images: image i holds graph i and all memory, and the last one holds all graphs.
 *
 * images [IMAGES [KERNELS [NODES]]]
 *
 * Every graph has NODES nodes, which launch KERNELS kernels of as many objects. Each way runs in a
 * process of its own and ends when every graph was launched once. Milliseconds, the least of three;
 * "objects" is what was read, in KiB.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch/driver.h"
#include "foundry.h"
#include "lib/buf.h"
#include "lib/clock.h"
#include "tests/lib/need.h"

#define IMAGES_MAX 256
#define KERNELS_MAX 256
#define BASE 0x200000000000ull
#define FLOATS (1u << 20) /* of each of three vectors */
#define WEIGHTS \
	64u /* blocks of 2 MiB that the program makes itself and the image brings as well \
	     */

static char build[PATH_MAX], store_path[PATH_MAX];
static unsigned int images = 64, kernels = 45, nodes = 200;
static const struct fdry_driver *drv;
static CUstream stream;
static CUdeviceptr vectors[3], weights[WEIGHTS];
static struct fdry_capture *cap;

#define call(fn, ...) need(fdry_call(drv, fn, __VA_ARGS__), #fn)

/* --- the program --- */

/* The interposer in front of the software driver, a region, and the memory that the model has. */
static void program_begin(void)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts), .base = BASE, .size = 1ull << 34 };
	char hook[PATH_MAX + 64];
	CUcontext ctx;
	unsigned int i;

	snprintf(hook, sizeof(hook), "%s/foundry/hook/libcuda.so.1", build);
	if (!dlopen(hook, RTLD_NOW | RTLD_GLOBAL))
		need(-1, dlerror());
	need(setenv("FOUNDRY_HOOK", hook, 1), hook);
	need(fdry_hook_install(NULL), "fdry_hook_install");
	need(fdry_driver_open(hook, &drv), hook);
	call(cuDevicePrimaryCtxRetain, &ctx, 0);
	call(cuCtxSetCurrent, ctx);
	need(fdry_capture_begin(&opts, &cap), "fdry_capture_begin");
	call(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	for (i = 0; i < 3; i++)
		call(cuMemAlloc_v2, &vectors[i], FLOATS * sizeof(float));
	for (i = 0; i < WEIGHTS; i++) {
		call(cuMemAlloc_v2, &weights[i], 2u << 20);
		call(cuMemsetD32Async, weights[i], i + 1, (2u << 20) / 4, stream);
	}
}

static struct fdry_buf file_read(const char *name)
{
	char path[PATH_MAX + 64], block[4096];
	struct fdry_buf code = { 0 };
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/sim/%s", build, name);
	f = fopen(path, "r");
	need(f ? 0 : -1, path);
	while ((n = fread(block, 1, sizeof(block), f)) > 0)
		need(fdry_buf_put(&code, block, n), path);
	fclose(f);
	return code;
}

/* Load the same kernel from @kernels objects, which differ in a word without a reader: e_flags of
 * the ELF header. */
static void functions_load(CUfunction *ret)
{
	struct fdry_buf code = file_read("train.cubin");
	CUmodule module;
	unsigned int i;

	for (i = 0; i < kernels; i++) {
		fdry_set32(code.data + 48, i);
		call(cuModuleLoadDataEx, &module, code.data, 0, NULL, NULL);
		call(cuModuleGetFunction, &ret[i], module, "linear");
	}
	fdry_buf_release(&code);
}

static CUgraph graph_capture(const CUfunction *functions, unsigned int key)
{
	int n = (int)key;
	void *args[] = { &vectors[0], &vectors[1], &vectors[2], &n };
	CUgraph graph = NULL;
	unsigned int i;

	call(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	for (i = 0; i < nodes; i++)
		call(cuLaunchKernel, functions[i % kernels], 1, 1, 1, 64, 1, 1, 0, stream, args,
		     NULL);
	call(cuStreamEndCapture, stream, &graph);
	return graph;
}

static void save(double *ms)
{
	CUfunction functions[KERNELS_MAX];
	struct fdry_store *store;
	char ref[32];
	unsigned int i;

	(void)ms;
	program_begin();
	functions_load(functions);
	need(fdry_store_open(store_path, FDRY_STORE_CREATE, &store), store_path);
	for (i = 1; i <= images; i++) {
		need(fdry_capture_graph(cap, i, "graph", graph_capture(functions, i)),
		     "fdry_capture_graph");
		snprintf(ref, sizeof(ref), "image%u", i);
		need(fdry_capture_seal(cap, store, ref, NULL, NULL), ref);
		need(fdry_capture_graph_skip(cap, i, 1), "fdry_capture_graph_skip");
	}
	for (i = 1; i <= images; i++)
		need(fdry_capture_graph_skip(cap, i, 0), "fdry_capture_graph_skip");
	need(fdry_capture_seal(cap, store, "all", NULL, NULL), "all");
}

/* --- loading --- */

enum { TOTAL, LOAD, KERNELS, CONTENT, OBJECTS, FIGURES };

/* Load an image, and launch its graphs @first to @last. */
static void load(struct fdry_store *store, const char *ref, unsigned int first, unsigned int last,
		 double *ms)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .into = cap };
	struct fdry_load_report r = { .sz = sizeof(r) };
	struct fdry_image *img;

	need(fdry_image_load(store, ref, &opts, &img), ref);
	for (; first <= last; first++)
		need(fdry_image_launch(img, first, stream), "fdry_image_launch");
	call(cuStreamSynchronize, stream);
	need(fdry_image_report(img, &r), "fdry_image_report");
	ms[LOAD] += r.total_ms;
	ms[KERNELS] += r.kernels_ms;
	ms[CONTENT] += r.content_ms;
	ms[OBJECTS] += (double)r.object_bytes / 1024;
}

static void one(double *ms)
{
	struct fdry_store *store;
	double mark;

	program_begin();
	mark = fdry_now_ms();
	need(fdry_store_open(store_path, 0, &store), store_path);
	load(store, "all", 1, images, ms);
	ms[TOTAL] = fdry_now_ms() - mark;
}

static void turn(double *ms)
{
	struct fdry_store *store;
	unsigned int i;
	char ref[32];
	double mark;

	program_begin();
	mark = fdry_now_ms();
	need(fdry_store_open(store_path, 0, &store), store_path);
	for (i = 1; i <= images; i++) {
		snprintf(ref, sizeof(ref), "image%u", i);
		load(store, ref, i, i, ms);
	}
	ms[TOTAL] = fdry_now_ms() - mark;
}

/* --- processes --- */

static void run(void (*fn)(double *ms), double *ms)
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
	memcpy(ms, shared, FIGURES * sizeof(*ms));
	munmap(shared, 4096);
}

static double show(const char *name, void (*fn)(double *ms))
{
	double best[FIGURES] = { 0 }, ms[FIGURES];
	int i;

	for (i = 0; i < 3; i++) {
		run(fn, ms);
		if (!i || ms[TOTAL] < best[TOTAL])
			memcpy(best, ms, sizeof(best));
	}
	printf("%-8s ready %8.1f  loads %8.1f  kernels %8.1f  content %8.1f  objects %8.0f\n", name,
	       best[TOTAL], best[LOAD], best[KERNELS], best[CONTENT], best[OBJECTS]);
	fflush(stdout);
	return best[TOTAL];
}

static pid_t owner; /* of the store: not a child */

static void store_remove(void)
{
	char command[PATH_MAX + 32];

	if (getpid() != owner)
		return;
	snprintf(command, sizeof(command), "rm -rf '%s'", store_path);
	(void)!system(command);
}

static unsigned int number(const char *text, unsigned int most)
{
	unsigned long n = strtoul(text, NULL, 10);

	if (!n || n > most) {
		fprintf(stderr, "images: '%s' is no number from 1 to %u\n", text, most);
		exit(EXIT_FAILURE);
	}
	return (unsigned int)n;
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	char sim[PATH_MAX + 64], *slash;
	double ms[FIGURES], together;
	ssize_t len = readlink("/proc/self/exe", build, sizeof(build) - 1);
	int i;

	if (argc > 1)
		images = number(argv[1], IMAGES_MAX);
	if (argc > 2)
		kernels = number(argv[2], KERNELS_MAX);
	if (argc > 3)
		nodes = number(argv[3], 1u << 20);
	build[len < 0 ? 0 : len] = '\0';
	for (i = 0; i < 3 && (slash = strrchr(build, '/')); i++) /* build/tests/bench/images */
		*slash = '\0';
	snprintf(sim, sizeof(sim), "%s/foundry/sim/libcuda.so.1", build);
	need(setenv("FOUNDRY_DRIVER", sim, 1), sim);
	snprintf(store_path, sizeof(store_path), "%s/fdry-images-XXXXXX", tmp ? tmp : "/tmp");
	need(mkdtemp(store_path) ? 0 : -1, store_path);
	owner = getpid();
	atexit(store_remove);
	run(save, ms);
	printf("%u images, %u kernels, %u nodes a graph\n", images, kernels, nodes);
	fflush(stdout);
	together = show("one", one);
	printf("in turn / one: %.2f\n", show("in turn", turn) / together);
	return EXIT_SUCCESS;
}
