// SPDX-License-Identifier: Apache-2.0
/*
 * seal.c - the cost of N seals in turn beside one seal of N graphs, on any driver.
 *
 * seal [GRAPHS[,GRAPHS...] [NODES [MIB]]]: 8 and 64 graphs of 1,200 kernel nodes and 64 MiB of
 * content unless the arguments say otherwise. "together" captures all graphs and seals once. "in
 * turn" seals after each capture, as a program does that saves each graph at once. "fixed" does the
 * same and promises that no graph changes (fdry_capture_graph_fixed()). Each row is a process with
 * a store of its own, in TMPDIR or /tmp, and shows the sums over its seals: milliseconds, and the
 * number of graphs.
 * The driver is the one that FOUNDRY_DRIVER names, else the machine's, else the software driver.
 *
 * seal changed [MIB [STORE]]: the cost of seals of one capture when all memory is new, when nothing
 * changed, and when 1 % of it changed: one byte in every 100th chunk of 2 MiB, so that 1 % of all
 * chunks is new. Each row is the median of 5 seals with the least and the most; the first has one.
 * Then another capture of the first bytes seals them once: it has no fingerprints of an earlier
 * seal, so it reads and hashes all, and finds that the store has it. The image stays in STORE, with
 * the ref "bench".
 *
 * seal calls: the cost of the driver calls that a seal makes, in nanoseconds, for a graph of 1,200
 * kernel nodes.
 */
#include <dlfcn.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>

#include "foundry.h"
#include "foundry/capture.h"
#include "image/capture/interposer.h"
#include "lib/clock.h"
#include "mm/maps.h"
#include "tests/lib/need.h"

#define MIB (1ull << 20)
#define BASE 0x500000000000
#define PARAMS 64 /* of one kernel, at most */

enum way { TOGETHER, IN_TURN, FIXED, CALLS };

static const char *const ways[] = { "together", "in turn", "fixed" };

static char dir[256];
static const char *kept; /* the directory of a store that stays; NULL: a temporary one */
static void *interposer;
static uint32_t nodes = 1200;
static uint64_t content = 64 * MIB;
static CUdeviceptr memory;
static CUstream stream;
static CUfunction kernels[2];

/* A function of the interposer, as a program calls it. */
static void *symbol(const char *name)
{
	void *p = dlsym(interposer, name);

	if (p)
		return p;
	fprintf(stderr, "seal: no %s\n", name);
	exit(EXIT_FAILURE);
}

static void cuda_must(CUresult res, const char *name)
{
	if (!res)
		return;
	fprintf(stderr, "seal: %s answers %d\n", name, (int)res);
	exit(EXIT_FAILURE);
}

#define cuda(fn, ...) cuda_must(((__typeof__(&fn))symbol(#fn))(__VA_ARGS__), #fn)

/* --- set-up --- */

static const char *built(const char *name)
{
	static char path[4096];
	const char *build = getenv("BUILD");

	snprintf(path, sizeof(path), "%s/%s", build && *build ? build : "build", name);
	return path;
}

static void interposer_open(void)
{
	void *probe;

	must(setenv("FOUNDRY_HOOK", built("foundry/hook/libcuda.so.1"), 0));
	if (!getenv("FOUNDRY_DRIVER")) {
		probe = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
		if (probe)
			dlclose(probe);
		else
			must(setenv("FOUNDRY_DRIVER", built("foundry/sim/libcuda.so.1"), 1));
	}
	must(fdry_hook_install(NULL));
	interposer = dlopen("libcuda.so.1", RTLD_NOW);
	if (!interposer)
		must(fprintf(stderr, "seal: %s\n", dlerror()));
}

static void *file_read(const char *path)
{
	FILE *f = fopen(path, "r");
	char *bytes = malloc(16 * MIB);

	if (!f || !bytes || !fread(bytes, 1, 16 * MIB, f)) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	fclose(f);
	return bytes;
}

/* For GPUs: kernels with the parameters of the software driver's, which do nothing. */
static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry scale(.param .u64 p, .param .f32 factor, .param .u32 n) { ret; }\n"
	".visible .entry vecadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) "
	"{ ret; }\n";

static void kernels_load(void)
{
	const char *driver = getenv("FOUNDRY_DRIVER");
	int soft = driver && strstr(driver, "/sim/") != NULL;
	CUmodule m;

	cuda(cuModuleLoadData, &m, soft ? file_read(built("sim/kernels.cubin")) : ptx);
	cuda(cuModuleGetFunction, &kernels[0], m, "scale");
	cuda(cuModuleGetFunction, &kernels[1], m, "vecadd");
}

/* Pairs of bf16 numbers between 0.004 and 0.008, of either sign, as a model's weights may be. A
 * search for pointers finds none in them, as in a model. */
static void memory_fill(void)
{
	uint32_t *block = malloc(MIB), i, bits;
	uint64_t at;

	for (at = 0; at < content; at += MIB) {
		for (i = 0; i < MIB / 4; i++) {
			bits = ((uint32_t)(at / MIB) * 40503u + i) * 2654435761u;
			bits ^= bits >> 15;
			block[i] = 0x3b803b80u | (bits & 0x807f807fu);
		}
		cuda(cuMemcpyHtoD_v2, memory + at, block, content - at < MIB ? content - at : MIB);
	}
	free(block);
}

static struct fdry_capture *capture_begin(uint64_t base)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts),
					  .base = base,
					  .size = (1ull << 34) + content };
	struct fdry_capture *cap;
	CUcontext ctx;

	interposer_open();
	cuda(cuInit, 0);
	cuda(cuDevicePrimaryCtxRetain, &ctx, 0);
	cuda(cuCtxSetCurrent, ctx);
	must(fdry_capture_begin(&opts, &cap));
	cuda(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	cuda(cuMemAlloc_v2, &memory, content);
	memory_fill();
	kernels_load();
	return cap;
}

/* Pointers in parameters of 8 bytes, numbers in the others. */
static void launch(uint32_t i)
{
	static uint64_t values[PARAMS];
	CUfunction f = kernels[i % 2];
	void *args[PARAMS];
	size_t offset, size, k;

	for (k = 0; k < PARAMS && !((__typeof__(&cuFuncGetParamInfo))symbol("cuFuncGetParamInfo"))(
					  f, k, &offset, &size);
	     k++) {
		values[k] = size == 8 ? memory + 512 * ((i * 7 + k) % 2000) : i;
		args[k] = &values[k];
	}
	cuda(cuLaunchKernel, f, 1 + i % 100, 1, 1, 128, 1, 1, 0, stream, args, NULL);
}

static void graph_add(struct fdry_capture *cap, uint64_t key, enum way way)
{
	CUdeviceptr scratch;
	CUgraph graph;
	uint32_t i;

	cuda(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuda(cuMemAlloc_v2, &scratch, MIB);
	for (i = 0; i < nodes; i++)
		launch((uint32_t)key * 31 + i);
	cuda(cuStreamEndCapture, stream, &graph);
	must(fdry_capture_graph(cap, key, NULL, graph));
	if (way == FIXED)
		must(fdry_capture_graph_fixed(cap, key, 1));
}

/* --- measuring --- */

static void seal(struct fdry_capture *cap, struct fdry_store *store, struct fdry_seal_report *sum)
{
	struct fdry_seal_report r = { .sz = sizeof(r) };

	must(fdry_capture_seal(cap, store, "bench", NULL, &r));
	sum->graphs_ms += r.graphs_ms;
	sum->kernels_ms += r.kernels_ms;
	sum->content_ms += r.content_ms;
	sum->commit_ms += r.commit_ms;
	sum->total_ms += r.total_ms;
	sum->graphs += r.graphs;
}

static void row(enum way way, uint32_t count)
{
	struct fdry_seal_report sum = { 0 };
	struct fdry_capture *cap;
	struct fdry_store *store;
	uint32_t i;

	cap = capture_begin(BASE);
	must(fdry_store_open(dir, FDRY_STORE_CREATE, &store));
	for (i = 1; i <= count; i++) {
		graph_add(cap, i, way);
		if (way != TOGETHER || i == count)
			seal(cap, store, &sum);
	}
	printf("%4u graphs %-9s %9.1f %9.1f %9.1f %9.1f %9.1f %9llu\n", count, ways[way],
	       sum.graphs_ms, sum.kernels_ms, sum.content_ms, sum.commit_ms, sum.total_ms,
	       (unsigned long long)sum.graphs);
	fdry_store_close(store);
	fdry_capture_end(cap);
}

/* --- seals after a change --- */

#define SEALS 5

static int double_cmp(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* A byte of every @step-th chunk, another one in each @round; none if @step is 0. */
static void memory_change(uint64_t step, int round)
{
	uint8_t byte = (uint8_t)(round + 1);
	uint64_t at;

	for (at = 0; step && at < content; at += step * 2 * MIB)
		cuda(cuMemcpyHtoD_v2, memory + at + 4 * (uint64_t)round, &byte, 1);
}

static void changed_row(struct fdry_capture *cap, struct fdry_store *store, const char *name,
			uint64_t step, int times)
{
	struct fdry_seal_report r = { .sz = sizeof(r) };
	double total[SEALS], part[SEALS];
	int i;

	for (i = 0; i < times; i++) {
		memory_change(step, i);
		must(fdry_capture_seal(cap, store, "bench", NULL, &r));
		total[i] = r.total_ms;
		part[i] = r.content_ms;
	}
	qsort(total, (size_t)times, sizeof(double), double_cmp);
	qsort(part, (size_t)times, sizeof(double), double_cmp);
	printf("%-18s %9.1f (%.1f to %.1f), content %9.1f, %6llu MiB read\n", name,
	       total[times / 2], total[0], total[times - 1], part[times / 2],
	       (unsigned long long)((r.content_bytes - r.unchanged_bytes) / MIB));
}

static void changed_rows(void)
{
	struct fdry_capture *cap = capture_begin(BASE);
	struct fdry_store *store;

	must(fdry_store_open(dir, FDRY_STORE_CREATE, &store));
	graph_add(cap, 1, FIXED);
	printf("seals of %llu MiB of content, milliseconds\n",
	       (unsigned long long)(content / MIB));
	changed_row(cap, store, "all of it new", 0, 1);
	changed_row(cap, store, "a first repeat", 0, 1);
	changed_row(cap, store, "nothing changed", 0, SEALS);
	changed_row(cap, store, "1 % changed", 100, SEALS);
	cuda(cuMemFree_v2, memory);
	fdry_capture_end(cap);
	cap = capture_begin(BASE + (1ull << 44));
	graph_add(cap, 1, FIXED);
	changed_row(cap, store, "in the store", 0, 1);
	fdry_store_close(store);
	fdry_capture_end(cap);
}

/* --- calls of the driver --- */

#define REPEAT 200

/* The mean of @REPEAT calls, beside the first. */
#define call_show(name, ...) \
	do { \
		double begin = fdry_now_ms(), first; \
		int k = 0; \
		(void)(__VA_ARGS__); \
		first = fdry_elapsed_ms(&begin); \
		for (; k < REPEAT; k++) \
			(void)(__VA_ARGS__); \
		printf("%-58s %10.0f, first %10.0f\n", name, \
		       fdry_elapsed_ms(&begin) * 1e6 / REPEAT, first * 1e6); \
	} while (0)

static void graph_calls(const struct fdry_driver *drv, CUgraph graph)
{
	CUgraphNode *all = calloc(nodes, sizeof(*all)), *to = calloc(nodes, sizeof(*to));
	CUgraphNode *from = calloc(nodes, sizeof(*from));
	CUgraphEdgeData *edges = calloc(nodes, sizeof(*edges));
	size_t n = nodes, nedges = 0;
	CUlaunchAttributeValue value;
	CUDA_KERNEL_NODE_PARAMS p;
	CUgraphNodeType type;

	call_show("cuGraphGetNodes, the number", drv->cuGraphGetNodes(graph, NULL, &n));
	call_show("cuGraphGetNodes", drv->cuGraphGetNodes(graph, all, &n));
	call_show("cuGraphGetEdges_v2, the number",
		  drv->cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &nedges));
	call_show("cuGraphGetEdges_v2",
		  drv->cuGraphGetEdges_v2(graph, from, to, edges, &nedges));
	call_show("cuGraphNodeGetType", drv->cuGraphNodeGetType(all[k % (int)n], &type));
	call_show("cuGraphKernelNodeGetParams_v2",
		  drv->cuGraphKernelNodeGetParams_v2(all[k % (int)n], &p));
	call_show("cuGraphKernelNodeGetAttribute, priority",
		  drv->cuGraphKernelNodeGetAttribute(all[k % (int)n], CU_LAUNCH_ATTRIBUTE_PRIORITY,
						     &value));
	free(all);
	free(from);
	free(to);
	free(edges);
}

static void kernel_calls(const struct fdry_driver *drv)
{
	size_t offset, size;
	const char *name;
	CUmodule module;
	int value;

	call_show("cuFuncGetModule", drv->cuFuncGetModule(&module, kernels[0]));
	call_show("cuFuncGetName", drv->cuFuncGetName(&name, kernels[0]));
	call_show("cuFuncGetAttribute, shared memory",
		  drv->cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					  kernels[0]));
	call_show("cuFuncGetParamInfo", drv->cuFuncGetParamInfo(kernels[0], 0, &offset, &size));
}

static void memory_calls(const struct fdry_driver *drv)
{
	uint8_t *pages = aligned_alloc(2 * MIB, 4 * MIB);
	struct fdry_maps_range *maps;
	unsigned int type;
	uint64_t word;
	CUevent event;
	size_t n;

	call_show("cuPointerGetAttribute, the region",
		  drv->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					     memory + 512 * (CUdeviceptr)k));
	call_show("cuPointerGetAttribute, a number with no mapping",
		  drv->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					     (7ull << 40) + 4096 * (CUdeviceptr)k));
	call_show("cuPointerGetAttribute, pageable memory",
		  drv->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					     (uintptr_t)pages));
	call_show("cuMemcpyDtoH_v2 of 8 bytes", drv->cuMemcpyDtoH_v2(&word, memory, 8));
	call_show("cuEventCreate", drv->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	memset(pages, 1, 4 * MIB);
	call_show("cuMemHostRegister_v2 and cuMemHostUnregister of 4 MiB",
		  drv->cuMemHostRegister_v2(pages, 4 * MIB, 0) ||
			  drv->cuMemHostUnregister(pages));
	call_show("reading /proc/self/maps",
		  fdry_maps_list(&maps, &n) ? 0 : (free(maps), 0));
	free(pages);
}

static void calls_rows(void)
{
	struct fdry_capture *cap = capture_begin(BASE);
	const struct fdry_driver *drv;
	const struct fdry_hook *hook;
	CUgraph graph;
	uint32_t i;

	must(fdry_interposer_find(&hook));
	must(fdry_driver_open(hook->real_path(), &drv));
	cuda(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	for (i = 0; i < nodes; i++)
		launch(i);
	cuda(cuStreamEndCapture, stream, &graph);
	printf("calls of the driver, nanoseconds\n");
	graph_calls(drv, graph);
	kernel_calls(drv);
	memory_calls(drv);
	fdry_driver_close(drv);
	fdry_capture_end(cap);
}

static int entry_remove(const char *name, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(name);
}

/* In a process of its own; @count 0: seals after a change, or calls of the driver. */
static int row_run(enum way way, uint32_t count)
{
	int status = -1;
	pid_t pid;

	fflush(stdout);
	if (kept)
		snprintf(dir, sizeof(dir), "%s", kept);
	else
		snprintf(dir, sizeof(dir), "%s/fdry-bench-seal-XXXXXX",
			 getenv("TMPDIR") ?: "/tmp");
	if (!kept && !mkdtemp(dir))
		return -1;
	pid = fork();
	if (!pid) {
		if (count)
			row(way, count);
		else if (way == CALLS)
			calls_rows();
		else
			changed_rows();
		exit(EXIT_SUCCESS);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	if (!kept)
		nftw(dir, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
	return status;
}

int main(int argc, char **argv)
{
	const char *counts = argc > 1 ? argv[1] : "8,64";
	enum way way;

	if (!strcmp(counts, "changed")) {
		content = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1024) * MIB;
		kept = argc > 3 ? argv[3] : NULL;
		return row_run(FIXED, 0) ? EXIT_FAILURE : EXIT_SUCCESS;
	}
	if (!strcmp(counts, "calls"))
		return row_run(CALLS, 0) ? EXIT_FAILURE : EXIT_SUCCESS;
	if (argc > 2)
		nodes = (uint32_t)strtoul(argv[2], NULL, 10);
	if (argc > 3)
		content = strtoull(argv[3], NULL, 10) * MIB;
	printf("sealing graphs of %u nodes, %llu MiB of content, milliseconds\n%21s %9s %9s %9s "
	       "%9s %9s %9s\n",
	       nodes, (unsigned long long)(content / MIB), "", "graphs", "kernels", "content",
	       "commit", "total", "sealed");
	for (; *counts; counts += strcspn(counts, ","), counts += *counts == ',')
		for (way = TOGETHER; way <= FIXED; way++)
			if (row_run(way, (uint32_t)strtoul(counts, NULL, 10)))
				return EXIT_FAILURE;
	return EXIT_SUCCESS;
}
