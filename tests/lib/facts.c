// SPDX-License-Identifier: Apache-2.0
/* facts.c - see facts.h. */
#include "tests/lib/facts.h"

#include <dlfcn.h>
#include <string.h>

#include "tests/lib/gpu.h"

static const char ptx[] =
	".version 8.3\n.target sm_90\n.address_size 64\n"
	".extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);\n"
	/* *p += n */
	".visible .entry add(.param .u64 p, .param .u32 n)\n"
	"{\n"
	"	.reg .b64 %p; .reg .b32 %v, %n;\n"
	"	ld.param.u64 %p, [p]; ld.param.u32 %n, [n]; cvta.to.global.u64 %p, %p;\n"
	"	ld.volatile.global.u32 %v, [%p]; add.u32 %v, %v, %n;\n"
	"	st.volatile.global.u32 [%p], %v; ret;\n"
	"}\n"
	/* the condition @h becomes *p */
	".visible .entry set(.param .u64 h, .param .u64 p)\n"
	"{\n"
	"	.reg .b64 %h, %p; .reg .b32 %v;\n"
	"	ld.param.u64 %h, [h]; ld.param.u64 %p, [p]; cvta.to.global.u64 %p, %p;\n"
	"	ld.volatile.global.u32 %v, [%p];\n"
	"	{ .param .b64 a; .param .b32 b; st.param.b64 [a+0], %h; st.param.b32 [b+0], %v;\n"
	"	call.uni cudaGraphSetConditional, (a, b); }\n"
	"	ret;\n"
	"}\n"
	/* *p -= 1; the condition @h becomes *p */
	".visible .entry down(.param .u64 h, .param .u64 p)\n"
	"{\n"
	"	.reg .b64 %h, %p; .reg .b32 %v;\n"
	"	ld.param.u64 %h, [h]; ld.param.u64 %p, [p]; cvta.to.global.u64 %p, %p;\n"
	"	ld.volatile.global.u32 %v, [%p]; sub.u32 %v, %v, 1;\n"
	"	st.volatile.global.u32 [%p], %v;\n"
	"	{ .param .b64 a; .param .b32 b; st.param.b64 [a+0], %h; st.param.b32 [b+0], %v;\n"
	"	call.uni cudaGraphSetConditional, (a, b); }\n"
	"	ret;\n"
	"}\n";

static unsigned long checks, failures;
struct facts facts;

void facts_check(bool good, const char *what, int line)
{
	checks++;
	failures += !good;
	if (!good)
		printf("line %d: not so: %s\n", line, what);
}

void facts_must(CUresult res, const char *what)
{
	if (!res)
		return;
	fprintf(stderr, "%s: error %d\n", what, (int)res);
	exit(EXIT_FAILURE);
}

void *facts_symbol(const char *name)
{
	void *p = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);

	if (!p) {
		fprintf(stderr, "the driver has no %s\n", name);
		exit(EXIT_FAILURE);
	}
	return p;
}

CUgraph facts_graph_new(void)
{
	CUgraph g;

	MUST(cuGraphCreate, &g, 0);
	return g;
}

CUgraphNode facts_kernel(CUgraph g, const CUgraphNode *dep, CUfunction f, void **args)
{
	CUDA_KERNEL_NODE_PARAMS p = { .func = f, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
				      .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
				      .kernelParams = args };
	CUgraphNode n = NULL;
	CUresult res = API(cuGraphAddKernelNode_v2)(&n, g, dep, dep ? 1 : 0, &p);

	if (res)
		NOTE("a kernel node: error %d\n", (int)res);
	return n;
}

CUgraphNode facts_add(CUgraph g, const CUgraphNode *dep, unsigned int i, uint32_t n)
{
	CUdeviceptr p = facts.mem + 4 * i;
	void *args[] = { &p, &n };

	return facts_kernel(g, dep, facts.add, args);
}

CUgraphNode facts_cond_set(CUgraph g, const CUgraphNode *dep, CUgraphConditionalHandle h,
			   unsigned int i, bool down)
{
	CUdeviceptr p = facts.mem + 4 * i;
	void *args[] = { &h, &p };

	return facts_kernel(g, dep, down ? facts.down : facts.set, args);
}

void facts_words_set(const uint32_t *w, size_t n)
{
	MUST(cuMemsetD8_v2, facts.mem, 0, 256);
	MUST(cuMemcpyHtoD_v2, facts.mem, w, 4 * n);
}

uint32_t facts_word(unsigned int i)
{
	uint32_t w;

	MUST(cuMemcpyDtoH_v2, &w, facts.mem + 4 * i, 4);
	return w;
}

CUresult facts_run(CUgraph g, unsigned int times, bool gone)
{
	CUgraphExec x = NULL;
	CUresult res = API(cuGraphInstantiateWithFlags)(&x, g, 0);

	if (res)
		return res;
	if (gone)
		MUST(cuGraphDestroy, g);
	while (times-- && !res) {
		res = API(cuGraphLaunch)(x, facts.stream);
		if (!res)
			res = API(cuStreamSynchronize)(facts.stream);
	}
	MUST(cuGraphExecDestroy, x);
	return res;
}

CUresult facts_any_add(CUgraph g, const CUgraphNode *dep, CUgraphNodeParams *p, CUgraphNode *ret)
{
	return API(cuGraphAddNode_v2)(ret, g, dep, NULL, dep ? 1 : 0, p);
}

size_t facts_nodes_of(CUgraph g, CUgraphNode *nodes, size_t max)
{
	size_t n = max;

	MUST(cuGraphGetNodes, g, nodes, &n);
	return n;
}

static void section_run(const struct facts_section *section)
{
	CUmodule m;

	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(cuDevicePrimaryCtxRetain, &facts.ctx, 0);
	MUST(cuCtxSetCurrent, facts.ctx);
	MUST(cuStreamCreate, &facts.stream, CU_STREAM_NON_BLOCKING);
	MUST(cuMemAlloc_v2, &facts.mem, 4096);
	MUST(cuModuleLoadDataEx, &m, ptx, 0, NULL, NULL);
	MUST(cuModuleGetFunction, &facts.add, m, "add");
	MUST(cuModuleGetFunction, &facts.set, m, "set");
	MUST(cuModuleGetFunction, &facts.down, m, "down");
	section->run();
}

int facts_main(int argc, char **argv, const struct facts_section *sections, size_t n)
{
	char command[4352];
	int status;
	size_t i;

	gpu_driver();
	for (i = 0; argc > 1 && i < n; i++)
		if (!strcmp(sections[i].name, argv[1])) {
			section_run(&sections[i]);
			return failures != 0;
		}
	for (i = 0; i < n; i++) {
		snprintf(command, sizeof(command), "timeout 20 '%s' %s", argv[0],
			 sections[i].name);
		printf("--- %s\n", sections[i].name);
		fflush(stdout);
		status = system(command);
		if (status)
			printf("%s: status 0x%x\n", sections[i].name, status);
		CHECK(!status);
	}
	return gpu_end(checks, failures);
}
