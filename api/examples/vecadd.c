// SPDX-License-Identifier: Apache-2.0
/*
 * vecadd.c - a complete example: capture in one process, load in another.
 *
 *   vecadd capture [-s STORE] [-m MODULE]   run, capture, seal as "vecadd"
 *   vecadd load    [-s STORE]               load "vecadd", launch, compare
 *
 * The graph clears a vector, adds two others into it and copies the sum out: out = a + b.
 * b is set before the capture and is part of the image. a is an input, which the loading process
 * sets to values that the capturing process never had. MODULE is device code with the kernel
 * vecadd(a, b, c, n); the default is the PTX below, which any GPU can run.
 * Exit status: 0 only if every number is right.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <foundry.h>

#define N 100003 /* not a multiple of any block size */
#define BYTES (N * sizeof(float))
#define KEY 1

static const char ptx[] =
	".version 7.0\n"
	".target sm_52\n"
	".address_size 64\n"
	".visible .entry vecadd(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)\n"
	"{\n"
	"	.reg .pred %p;\n"
	"	.reg .f32 %x, %y, %z;\n"
	"	.reg .b32 %i, %t, %b, %d, %n;\n"
	"	.reg .b64 %a, %o;\n"
	"	mov.u32 %t, %tid.x;\n"
	"	mov.u32 %b, %ctaid.x;\n"
	"	mov.u32 %d, %ntid.x;\n"
	"	mad.lo.s32 %i, %b, %d, %t;\n"
	"	ld.param.u32 %n, [pn];\n"
	"	setp.ge.s32 %p, %i, %n;\n"
	"	@%p bra DONE;\n"
	"	mul.wide.s32 %o, %i, 4;\n"
	"	ld.param.u64 %a, [pa];\n"
	"	add.s64 %a, %a, %o;\n"
	"	ld.global.f32 %x, [%a];\n"
	"	ld.param.u64 %a, [pb];\n"
	"	add.s64 %a, %a, %o;\n"
	"	ld.global.f32 %y, [%a];\n"
	"	add.f32 %z, %x, %y;\n"
	"	ld.param.u64 %a, [pc];\n"
	"	add.s64 %a, %a, %o;\n"
	"	st.global.f32 [%a], %z;\n"
	"DONE:	ret;\n"
	"}\n";

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void phase(const char *what, double *mark)
{
	double t = now_ms();

	printf("  %-34s %9.3f ms\n", what, t - *mark);
	*mark = t;
}

static void check(int err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "vecadd: %s: %s (%s)\n", what, fdry_last_error(), fdry_error_name(err));
	exit(1);
}

/* The capturing process sets b; each process sets a to its own values. */
static float value_b(int i) { return 0.25f * (float)(i % 1000); }
static float value_a(int i, float salt) { return salt + (float)(i % 777); }

/* --- capturing: an ordinary user of the driver API --- */

#define CUDA_FUNCTIONS(X) \
	X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuMemAlloc_v2) \
	X(cuMemcpyHtoD_v2) X(cuMemcpyDtoDAsync_v2) X(cuMemsetD32Async) X(cuModuleLoadData) \
	X(cuModuleGetFunction) X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamBeginCapture_v2) \
	X(cuStreamEndCapture) X(cuLaunchKernel) X(cuGetErrorName)

static struct {
#define X(name) __typeof__(&name) name;
	CUDA_FUNCTIONS(X)
#undef X
} cu;

static void cuda_open(void)
{
	/* The interposer has this name, and passes calls to the real driver. */
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);

#define X(name) *(void **)&cu.name = lib ? dlsym(lib, #name) : NULL;
	CUDA_FUNCTIONS(X)
#undef X
	if (!lib || !cu.cuInit) {
		fprintf(stderr, "vecadd: %s\n", dlerror());
		exit(1);
	}
}

static void cuda_check(CUresult res, const char *what)
{
	const char *name = "?";

	if (!res)
		return;
	cu.cuGetErrorName(res, &name);
	fprintf(stderr, "vecadd: %s: %s\n", what, name);
	exit(1);
}
#define CU(call) cuda_check(cu.call, #call)

struct work {
	CUstream stream;
	CUfunction kernel;
	CUdeviceptr a, b, c, out;
};

static void *file_read(const char *path)
{
	FILE *f = fopen(path, "rb");
	char *data;
	long len;

	if (!f || fseek(f, 0, SEEK_END) || (len = ftell(f)) < 0) {
		perror(path);
		exit(1);
	}
	rewind(f);
	data = calloc((size_t)len + 1, 1);
	if (!data || fread(data, 1, (size_t)len, f) != (size_t)len) {
		perror(path);
		exit(1);
	}
	fclose(f);
	return data;
}

static void context_make(void)
{
	CUdevice dev;
	CUcontext ctx;

	CU(cuInit(0));
	CU(cuDeviceGet(&dev, 0));
	CU(cuDevicePrimaryCtxRetain(&ctx, dev));
	CU(cuCtxSetCurrent(ctx));
}

static void work_make(struct work *w, const char *module_path)
{
	static float a[N], b[N];
	CUmodule module;
	int i;

	for (i = 0; i < N; i++) {
		a[i] = value_a(i, 1);
		b[i] = value_b(i);
	}
	CU(cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&w->a, BYTES));
	CU(cuMemAlloc_v2(&w->b, BYTES));
	CU(cuMemAlloc_v2(&w->c, BYTES));
	CU(cuMemAlloc_v2(&w->out, BYTES));
	CU(cuMemcpyHtoD_v2(w->a, a, BYTES));
	CU(cuMemcpyHtoD_v2(w->b, b, BYTES));
	CU(cuModuleLoadData(&module, module_path ? file_read(module_path) : ptx));
	CU(cuModuleGetFunction(&w->kernel, module, "vecadd"));
}

static void work_enqueue(struct work *w)
{
	int n = N;
	void *args[] = { &w->a, &w->b, &w->c, &n };

	CU(cuMemsetD32Async(w->c, 0, N, w->stream));
	CU(cuLaunchKernel(w->kernel, (N + 255) / 256, 1, 1, 256, 1, 1, 0, w->stream, args, NULL));
	CU(cuMemcpyDtoDAsync_v2(w->out, w->c, BYTES, w->stream));
}

static void tensor_name(struct fdry_capture *cap, const char *name, CUdeviceptr addr, uint32_t use)
{
	struct fdry_tensor t = { .name = name, .addr = addr, .dtype = FDRY_F32, .use = use,
				 .rank = 1, .shape = { N }, .stride = { 1 } };

	check(fdry_capture_tensor(cap, &t), name);
}

static int do_capture(const char *store_path, const char *module_path)
{
	struct fdry_seal_report report = { .sz = sizeof(report) };
	struct fdry_capture *cap;
	struct fdry_store *store;
	struct work w;
	char id[FDRY_ID_SIZE];
	double mark = now_ms();
	CUgraph graph;

	check(fdry_hook_install(NULL), "putting the interposer in place");
	check(fdry_store_open(store_path, FDRY_STORE_CREATE, &store), "opening the store");
	phase("interposer and store", &mark);
	cuda_open();
	context_make();
	phase("driver and context", &mark);
	check(fdry_capture_begin(NULL, &cap), "beginning a capture");
	work_make(&w, module_path);
	work_enqueue(&w);
	CU(cuStreamSynchronize(w.stream));
	phase("memory, module, warm-up", &mark);

	CU(cuStreamBeginCapture_v2(w.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	work_enqueue(&w);
	CU(cuStreamEndCapture(w.stream, &graph));
	phase("capture", &mark);

	tensor_name(cap, "a", w.a, FDRY_USE_INPUT);
	tensor_name(cap, "out", w.out, FDRY_USE_OUTPUT);
	check(fdry_capture_graph(cap, KEY, "vecadd", graph), "adding the graph");
	check(fdry_capture_fact(cap, "example", "vecadd"), "stating a fact");
	check(fdry_capture_seal(cap, store, "vecadd", id, &report), "sealing");
	phase("seal", &mark);
	printf("image %s\n", id);
	printf("  %llu nodes, %llu kernel (%llu whole), %llu bytes of code, %llu of content, %llu "
	       "at rest\n",
	       (unsigned long long)report.nodes, (unsigned long long)report.kernels,
	       (unsigned long long)report.kernels_whole, (unsigned long long)report.kernel_bytes,
	       (unsigned long long)report.content_bytes, (unsigned long long)report.stored_new);
	fdry_capture_end(cap);
	fdry_store_close(store);
	return 0;
}

/* --- loading: no driver API at all --- */

static int compare(const float *out, float salt)
{
	int i, wrong = 0;

	for (i = 0; i < N; i++) {
		float want = value_a(i, salt) + value_b(i);

		if (memcmp(&out[i], &want, sizeof(want)) && wrong++ < 3)
			fprintf(stderr, "vecadd: out[%d] is %g, should be %g\n", i, (double)out[i],
				(double)want);
	}
	return wrong;
}

static int run(struct fdry_image *img, float salt)
{
	static float a[N], out[N];
	int i;

	for (i = 0; i < N; i++)
		a[i] = value_a(i, salt);
	memset(out, 0xFF, sizeof(out));
	check(fdry_image_write(img, "out", out, BYTES, NULL), "poisoning the output");
	check(fdry_image_write(img, "a", a, BYTES, NULL), "writing the input");
	check(fdry_image_launch(img, KEY, NULL), "launching");
	check(fdry_image_read(img, "out", out, BYTES, NULL), "reading the output");
	return compare(out, salt);
}

static int do_load(const char *store_path)
{
	struct fdry_fact fact = { "example", "vecadd" };
	struct fdry_load_opts opts = {
		.sz = sizeof(opts), .flags = FDRY_LOAD_POISON, .facts = &fact, .nfacts = 1
	};
	struct fdry_load_report r = { .sz = sizeof(r) };
	struct fdry_store *store;
	struct fdry_image *img;
	char id[FDRY_ID_SIZE];
	const char *gpu;
	double mark = now_ms();
	int wrong, i;

	check(fdry_store_open(store_path, 0, &store), "opening the store");
	phase("store", &mark);
	check(fdry_image_load(store, "vecadd", &opts, &img), "loading");
	mark = now_ms();
	check(fdry_image_report(img, &r), "reading the report");
	printf("  %-34s %9.3f ms\n", "driver and context", r.driver_ms);
	printf("  %-34s %9.3f ms\n", "manifest, identity", r.manifest_ms);
	printf("  %-34s %9.3f ms\n", "memory mapped", r.memory_ms);
	printf("  %-34s %9.3f ms\n", "content", r.content_ms);
	printf("  %-34s %9.3f ms\n", "kernels (beside memory, content)", r.kernels_ms);
	printf("  %-34s %9.3f ms\n", "objects (beside all of these)", r.objects_ms);
	printf("  %-34s %9.3f ms\n", "the whole load", r.total_ms);
	wrong = run(img, 2);
	phase("first launch, input to output", &mark);
	for (i = 3; i < 13; i++)
		wrong += run(img, (float)i);
	phase("ten more", &mark);
	fdry_image_id(img, id);
	check(fdry_image_fact(img, "fdry.gpu.name", &gpu), "reading the name of the GPU");
	printf("image %s on %s: %s\n", id, gpu, wrong ? "WRONG" : "every number is right");
	fdry_image_unload(img);
	fdry_store_close(store);
	return wrong != 0;
}

int main(int argc, char **argv)
{
	const char *store = NULL, *module = NULL;
	int opt;

	while ((opt = getopt(argc, argv, "s:m:")) != -1) {
		if (opt == 's')
			store = optarg;
		else if (opt == 'm')
			module = optarg;
		else
			return 2;
	}
	if (optind + 1 == argc && !strcmp(argv[optind], "capture"))
		return do_capture(store, module);
	if (optind + 1 == argc && !strcmp(argv[optind], "load"))
		return do_load(store);
	fprintf(stderr, "usage: vecadd [-s STORE] [-m MODULE] capture|load\n");
	return 2;
}
