// SPDX-License-Identifier: Apache-2.0
/*
 * How the machine's driver treats arguments in a packed buffer (`extra`) that is shorter or longer
 * than the kernel's parameters: launches, captures, nodes, updates. NCCL passes 384 of 4,096 bytes.
 * Lines that begin with "note" are facts about the driver, for people. The checks are the rules
 * that the software driver follows and that graph objects rely on.
 */
#include <dlfcn.h>
#include <string.h>

#include "tests/lib/gpu.h"

#define WORDS 512u /* parameter words of 8 bytes: the first is the address of the output */
#define BIG_WORDS 4095u
#define MARK 0x1111111111111111ull

/* Each thread copies its word of the parameters to the output. */
#define SHOW(name, bytes, n) \
	".visible .entry " name "(.param .u64 out, .param .align 8 .b8 rest[" bytes "])\n" \
	"{\n" \
	"	.reg .b64 %o, %t, %p, %v;\n" \
	"	.reg .b32 %a, %b, %c;\n" \
	"	.reg .pred %q;\n" \
	"	ld.param.u64 %o, [out];\n" \
	"	cvta.to.global.u64 %o, %o;\n" \
	"	mov.u32 %a, %ctaid.x;\n" \
	"	mov.u32 %b, %ntid.x;\n" \
	"	mov.u32 %c, %tid.x;\n" \
	"	mad.lo.u32 %c, %a, %b, %c;\n" \
	"	setp.ge.u32 %q, %c, " n ";\n" \
	"	@%q ret;\n" \
	"	mul.wide.u32 %t, %c, 8;\n" \
	"	mov.b64 %p, rest;\n" \
	"	add.u64 %p, %p, %t;\n" \
	"	ld.param.u64 %v, [%p];\n" \
	"	add.u64 %o, %o, %t;\n" \
	"	st.global.u64 [%o], %v;\n" \
	"	ret;\n" \
	"}\n"

static const char small_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
	SHOW("show", "4088", "511");
static const char big_ptx[] = ".version 8.1\n.target sm_70\n.address_size 64\n"
	SHOW("show", "32752", "4094");

typedef CUresult (*set_params_fn)(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *);
typedef CUresult (*update_fn)(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *);
typedef CUresult (*memset_fn)(CUdeviceptr, unsigned char, size_t);

static const struct fdry_driver *drv;
static CUfunction func;
static CUstream stream;
static CUdeviceptr out;
static set_params_fn exec_set;
static update_fn exec_update;
static memset_fn memset_d8;
static unsigned long checks, failures;
static uint64_t got[BIG_WORDS], args[BIG_WORDS + 512];

#define CHECK(cond) check(cond, #cond, __LINE__)

static void check(bool good, const char *what, int line)
{
	checks++;
	failures += !good;
	if (!good)
		printf("line %d: not so: %s\n", line, what);
}

static void must(CUresult res, const char *what)
{
	if (!res)
		return;
	fprintf(stderr, "%s: error %d\n", what, (int)res);
	exit(EXIT_FAILURE);
}

static void args_set(uint64_t seed)
{
	size_t i;

	args[0] = out;
	for (i = 1; i < sizeof(args) / sizeof(args[0]); i++)
		args[i] = seed + i;
}

/* A packed buffer of @size bytes of args. */
struct packed {
	size_t size;
	void *extra[5];
};

static struct packed *pack(struct packed *p, size_t size)
{
	p->size = size;
	p->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	p->extra[1] = args;
	p->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	p->extra[3] = &p->size;
	p->extra[4] = CU_LAUNCH_PARAM_END;
	return p;
}

static CUDA_KERNEL_NODE_PARAMS node_params(struct packed *p)
{
	return (CUDA_KERNEL_NODE_PARAMS){ .func = func, .gridDimX = 16, .gridDimY = 1,
					  .gridDimZ = 1, .blockDimX = 256, .blockDimY = 1,
					  .blockDimZ = 1, .extra = p->extra };
}

/* Print the words that the kernel read: those that were passed, and those behind them. */
static void seen_note(const char *how, size_t size, size_t words, uint64_t seed)
{
	size_t i, right = 0, zeros = 0, old = 0, end = size / 8 > 1 ? size / 8 - 1 : 0;

	must(drv->cuStreamSynchronize(stream), how);
	must(drv->cuMemcpyDtoH_v2(got, out, (words - 1) * 8), "cuMemcpyDtoH");
	if (end > words - 1)
		end = words - 1;
	for (i = 0; i < end; i++)
		right += got[i] == seed + i + 1;
	for (i = end; i < words - 1; i++) {
		zeros += !got[i];
		old += got[i] == MARK + i + 1;
	}
	printf("note: %s, %zu bytes: %zu of %zu words as passed; behind them %zu zeros, %zu of an "
	       "earlier launch, %zu others, first 0x%llx\n", how, size, right, end, zeros, old,
	       words - 1 - end - zeros - old,
	       end < words - 1 ? (unsigned long long)got[end] : 0ull);
	CHECK(right == end);
}

static void output_clear(size_t words)
{
	must(memset_d8(out, 0x77, words * 8), "cuMemsetD8");
	must(drv->cuCtxSynchronize(), "cuCtxSynchronize");
}

/* Launch other kernels, so that other bytes fill the memory of launch parameters. */
static void other_launches(size_t words)
{
	struct packed p;
	int i;

	args_set(MARK);
	for (i = 0; i < 64; i++)
		must(drv->cuLaunchKernel(func, 16, 1, 1, 256, 1, 1, 0, stream, NULL,
					 pack(&p, words * 8)->extra), "a whole launch");
	must(drv->cuStreamSynchronize(stream), "whole launches");
	output_clear(words);
}

static void launch_try(size_t size, size_t words)
{
	struct packed p;
	CUresult res;

	other_launches(words);
	args_set(5000);
	res = drv->cuLaunchKernel(func, 16, 1, 1, 256, 1, 1, 0, stream, NULL,
				  pack(&p, size)->extra);
	printf("note: launch with %zu bytes: %d\n", size, (int)res);
	CHECK(res == (size > words * 8 ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS));
	if (!res)
		seen_note("launched", size, words, 5000);
}

/* Replay a graph with one kernel node, and destroy it. */
static void replay(CUgraph g, CUgraphNode n, const char *how, size_t size, size_t words)
{
	CUgraphExec x;
	struct packed p;
	CUDA_KERNEL_NODE_PARAMS np;
	CUresult res;

	other_launches(words);
	must(drv->cuGraphInstantiateWithFlags(&x, g, 0), "cuGraphInstantiate");
	must(drv->cuGraphLaunch(x, stream), "cuGraphLaunch");
	seen_note(how, size, words, 6000);
	args_set(7000);
	np = node_params(pack(&p, size > 24 ? size - 16 : size));
	res = exec_set(x, n, &np);
	printf("note: %s, exec changed to %zu bytes: %d\n", how, p.size, (int)res);
	if (!res) {
		output_clear(words);
		must(drv->cuGraphLaunch(x, stream), "cuGraphLaunch");
		seen_note("after the change", p.size, words, 7000);
	}
	must(drv->cuGraphExecDestroy(x), "cuGraphExecDestroy");
}

static void node_look(CUgraphNode n, const char *how, size_t size)
{
	CUDA_KERNEL_NODE_PARAMS p;
	const uint8_t *buffer = NULL;
	size_t len = SIZE_MAX;
	void **e;

	memset(&p, 0, sizeof(p));
	must(drv->cuGraphKernelNodeGetParams_v2(n, &p), "cuGraphKernelNodeGetParams");
	for (e = p.extra; e && *e != CU_LAUNCH_PARAM_END; e += 2) {
		if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = e[1];
		else if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE)
			len = *(size_t *)e[1];
	}
	printf("note: %s, %zu bytes: kernelParams %s, extra %s, size %zd\n", how, size,
	       p.kernelParams ? "set" : "null", p.extra ? "set" : "null", (ssize_t)len);
	CHECK(!p.kernelParams && p.extra);
	CHECK(buffer && len == size && !memcmp(buffer, args, size));
}

static void capture_try(size_t size, size_t words)
{
	struct packed p;
	CUgraphNode n;
	size_t one = 1;
	CUresult res;
	CUgraph g;

	args_set(6000);
	must(drv->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "capture");
	res = drv->cuLaunchKernel(func, 16, 1, 1, 256, 1, 1, 0, stream, NULL,
				  pack(&p, size)->extra);
	must(drv->cuStreamEndCapture(stream, &g), "cuStreamEndCapture");
	printf("note: captured with %zu bytes: %d\n", size, (int)res);
	CHECK(res == (size && size <= words * 8 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
	if (!res) {
		must(drv->cuGraphGetNodes(g, &n, &one), "cuGraphGetNodes");
		node_look(n, "captured", size);
		if (size >= 8)
			replay(g, n, "captured", size, words);
	}
	must(drv->cuGraphDestroy(g), "cuGraphDestroy");
}

/* A node that is added, cloned with its graph, and the base of an update. */
static void add_try(size_t size, size_t words)
{
	CUDA_KERNEL_NODE_PARAMS np;
	CUgraphExecUpdateResultInfo info;
	struct packed p, whole;
	CUgraphNode n, m;
	CUgraphExec x;
	CUgraph g, h;
	CUresult res;

	args_set(6000);
	must(drv->cuGraphCreate(&g, 0), "cuGraphCreate");
	np = node_params(pack(&p, size));
	res = drv->cuGraphAddKernelNode_v2(&n, g, NULL, 0, &np);
	printf("note: added with %zu bytes: %d\n", size, (int)res);
	CHECK(res == (size && size <= words * 8 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
	if (res)
		goto out_destroy;
	node_look(n, "added", size);
	if (size < 8)
		goto out_destroy;
	replay(g, n, "added", size, words);
	must(drv->cuGraphCreate(&h, 0), "cuGraphCreate");
	args_set(8000);
	np = node_params(pack(&whole, words * 8));
	must(drv->cuGraphAddKernelNode_v2(&m, h, NULL, 0, &np), "a whole node");
	must(drv->cuGraphInstantiateWithFlags(&x, h, 0), "cuGraphInstantiate");
	memset(&info, 0, sizeof(info));
	res = exec_update(x, g, &info);
	printf("note: an exec of %zu bytes updated to %zu: %d, result %d\n", whole.size, size,
	       (int)res, (int)info.result);
	if (!res) {
		output_clear(words);
		must(drv->cuGraphLaunch(x, stream), "cuGraphLaunch");
		seen_note("updated", size, words, 6000);
	}
	must(drv->cuGraphExecDestroy(x), "cuGraphExecDestroy");
	must(drv->cuGraphDestroy(h), "cuGraphDestroy");
out_destroy:
	must(drv->cuGraphDestroy(g), "cuGraphDestroy");
}

/* Does the driver refuse 16 bytes for a kernel whose parameters have 12, and any buffer for one
 * without parameters? */
static void tails_try(void)
{
	static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
				  ".visible .entry tail(.param .u64 a, .param .u32 b) { ret; }\n"
				  ".visible .entry none() { ret; }\n";
	static const size_t sizes[] = { 0, 8, 11, 12, 13, 16, 24 };
	CUDA_KERNEL_NODE_PARAMS np;
	CUfunction f[2];
	struct packed p;
	CUgraphNode n;
	CUmodule m;
	CUgraph g;
	size_t i, k;
	int added;

	must(drv->cuModuleLoadDataEx(&m, ptx, 0, NULL, NULL), "cuModuleLoadDataEx");
	must(drv->cuModuleGetFunction(&f[0], m, "tail"), "cuModuleGetFunction");
	must(drv->cuModuleGetFunction(&f[1], m, "none"), "cuModuleGetFunction");
	must(drv->cuGraphCreate(&g, 0), "cuGraphCreate");
	for (k = 0; k < 2; k++)
		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			np = node_params(pack(&p, sizes[i]));
			np.func = f[k];
			added = (int)drv->cuGraphAddKernelNode_v2(&n, g, NULL, 0, &np);
			printf("note: parameters of %d bytes, %zu passed: added %d, launched %d\n",
			       k ? 0 : 12, sizes[i], added,
			       (int)drv->cuLaunchKernel(f[k], 1, 1, 1, 1, 1, 1, 0, stream, NULL,
							p.extra));
		}
	must(drv->cuStreamSynchronize(stream), "cuStreamSynchronize");
	must(drv->cuGraphDestroy(g), "cuGraphDestroy");
	must(drv->cuModuleUnload(m), "cuModuleUnload");
}

static void kernel_try(const char *ptx, size_t words, const size_t *sizes, size_t n)
{
	CUresult res;
	CUmodule m;
	size_t i;

	res = drv->cuModuleLoadDataEx(&m, ptx, 0, NULL, NULL);
	printf("note: a kernel with %zu bytes of parameters: %d\n", words * 8, (int)res);
	CHECK(!res);
	if (res)
		return;
	must(drv->cuModuleGetFunction(&func, m, "show"), "cuModuleGetFunction");
	for (i = 0; i < n; i++) {
		if (sizes[i] >= 8)
			launch_try(sizes[i], words);
		capture_try(sizes[i], words);
		add_try(sizes[i], words);
	}
	must(drv->cuModuleUnload(m), "cuModuleUnload");
}

/* A function that the library does not use. */
static void *symbol(const char *name)
{
	void *p = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);

	must(p ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, name);
	return p;
}

int main(void)
{
	static const size_t small[] = { 0, 4, 8, 16, 100, 384, 4088, 4096, 4104, 6000 };
	static const size_t big[] = { 384, 8192, 32752, 32760 };

	drv = gpu_driver();
	gpu_context(drv);
	exec_set = (set_params_fn)symbol("cuGraphExecKernelNodeSetParams_v2");
	exec_update = (update_fn)symbol("cuGraphExecUpdate_v2");
	memset_d8 = (memset_fn)symbol("cuMemsetD8_v2");
	must(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	must(drv->cuMemAlloc_v2(&out, BIG_WORDS * 8), "cuMemAlloc");
	kernel_try(small_ptx, WORDS, small, sizeof(small) / sizeof(small[0]));
	kernel_try(big_ptx, BIG_WORDS, big, sizeof(big) / sizeof(big[0]));
	tails_try();
	return gpu_end(checks, failures);
}
