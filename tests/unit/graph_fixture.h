/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_fixture.h - what tests of reading and building graphs share: a driver with a region,
 * kernels of one module as a kernel table, and steps to put driver graphs together. Which
 * driver and which code: tests/unit/graph_code.h, or tests/gpu/graph_code.h.
 *
 * Stands in for graph/kernel.c at link time: a kernel table of functions of one module.
 */
#ifndef FDRY_TESTS_GRAPH_FIXTURE_H
#define FDRY_TESTS_GRAPH_FIXTURE_H

#include "mm/region.h"
#include "tests/lib/graph_built.h"
#include "tests/lib/graph_objects.h"
#ifdef GRAPH_ON_GPU
#include "tests/gpu/graph_code.h"
#else
#include "tests/unit/graph_code.h"
#endif

#define ok(call) ck_assert_int_eq(call, 0)
/* It fails with this code, and the sentence has these words. */
#define fails(code, words, call) \
	do { \
		int err_ = (call); \
		ck_assert_msg(err_ == -(code) && strstr(fdry_last_error(), words), \
			      "%s: %s, not '%s'", fdry_error_name(err_), \
			      err_ ? fdry_last_error() : "it worked", words); \
	} while (0)

#define REGION_SIZE (64ull << 20)

enum { STEP, ODD, NOTHING, REVERSE, KERNELS };
static const char *const kernel_names[] = { "step", "odd", "nothing", "reverse" };

static struct {
	struct fdry_driver drv; /* a copy: tests replace single functions */
	CUdevice dev;
	CUcontext ctx;
	CUstream stream;
	CUmodule module;
	CUfunction func[KERNELS];
	CUkernel kern;          /* counts as "step" too */
	struct fdry_kernel kernels[KERNELS];
	struct fdry_region *region;
	CUdeviceptr mem;        /* 64 KiB of it */
	uint8_t *pinned; /* the host segments as they were captured, and behind them as a loader has
			    them */
	struct fdry_host_segment hosts[2], moved[2];
	struct fdry_graph_reader reader;
	struct fdry_graph_builder builder;
	unsigned int asked;     /* how often test_where() was called */
	CUdeviceptr fail_where; /* the address at which it fails */
	CUdeviceptr freed;      /* and one where memory was */
	CUevent events[4];      /* for event nodes; destroyed at the end */
	int nevents;
} fx;

/* --- in place of graph/kernel.c --- */

int fdry_kernel_set_intern(struct fdry_kernel_set *set, CUkernel kern, CUfunction func,
			   uint32_t *index)
{
	uint32_t i;

	(void)set;
	for (i = 0; i < KERNELS; i++)
		if ((func && fx.func[i] == func) || (kern && i == STEP && fx.kern == kern)) {
			*index = i;
			return 0;
		}
	return fdry_fail(FDRY_E_REFUSED, "its code was never seen");
}

const struct fdry_kernel *fdry_kernel_set_get(const struct fdry_kernel_set *set, uint32_t index)
{
	(void)set;
	return &fx.kernels[index];
}

CUfunction fdry_kernel_bank_get(const struct fdry_kernel_bank *bank, uint32_t index)
{
	(void)bank;
	return fx.func[index];
}

/* --- the fixture --- */

static int test_where(void *arg, CUdeviceptr addr, uint64_t bytes, enum fdry_where *ret,
		      const char **what)
{
	unsigned int type = 0;
	struct fdry_alloc a;

	(void)arg;
	fx.asked++;
	if (addr == fx.fail_where)
		return fdry_fail(FDRY_E_DRIVER, "asked for the wrong address");
	*ret = FDRY_WHERE_FREED;
	*what = "memory that was freed";
	if (addr == fx.freed)
		return 0;
	*ret = FDRY_WHERE_REGION;
	*what = "nothing that this names";
	if (fdry_region_find(fx.region, addr, &a) && bytes <= a.size - (addr - a.addr))
		return 0;
	*ret = FDRY_WHERE_NOTHING;
	if (fx.drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					 bytes ? addr + bytes - 1 : addr))
		return 0;
	*ret = type == CU_MEMORYTYPE_HOST ? FDRY_WHERE_HOST : FDRY_WHERE_OUTSIDE;
	*what = type == CU_MEMORYTYPE_HOST ? "host memory" : "device memory outside of the region";
	return 0;
}

#define HOST_ROOM 8192u

static void test_host(void *arg, uint64_t addr, uint64_t bytes, uint64_t *ret)
{
	uint32_t i, k;

	(void)arg;
	for (i = 0; i < 2; i++)
		for (k = 0; k < 2; k++) {
			const struct fdry_host_segment *s = i ? &fx.moved[k] : &fx.hosts[k];

			if (addr >= s->addr && addr - s->addr <= s->size &&
			    bytes <= s->size - (addr - s->addr))
				*ret = fdry_host_place(k, addr - s->addr);
		}
}

/* Two host segments, 4,096 and 100 bytes. */
static inline void hosts_make(void)
{
	static const uint64_t at[2] = { 512, 5000 }, to[2] = { 1024, 64 }, size[2] = { 4096, 100 };
	int i;

	ok(fx.drv.cuMemAllocHost_v2((void **)&fx.pinned, 2 * HOST_ROOM));
	memset(fx.pinned, 0, 2 * HOST_ROOM);
	for (i = 0; i < 2; i++) {
		fx.hosts[i] = (struct fdry_host_segment){ (uintptr_t)fx.pinned + at[i], size[i] };
		fx.moved[i] = (struct fdry_host_segment){ (uintptr_t)fx.pinned + HOST_ROOM + to[i],
							  size[i] };
	}
}

static inline void kernel_load(int i)
{
	static struct fdry_param params[KERNELS][16];
	struct fdry_kernel *k = &fx.kernels[i];
	size_t offset, size;

	ok(fx.drv.cuModuleGetFunction(&fx.func[i], fx.module, kernel_names[i]));
	k->name = kernel_names[i];
	k->params = params[i];
	while (!fx.drv.cuFuncGetParamInfo(fx.func[i], k->nparams, &offset, &size)) {
		params[i][k->nparams++] = (struct fdry_param){ (uint16_t)offset, (uint16_t)size };
		k->param_bytes = (uint32_t)(offset + size);
	}
}

static inline void fixture_open(void)
{
	const struct fdry_driver *drv = code_driver();
	void *code;
	int i;

	memset(&fx, 0, sizeof(fx));
	fx.drv = *drv;
	ok(fx.drv.cuDeviceGet(&fx.dev, 0));
	ok(fx.drv.cuDevicePrimaryCtxRetain(&fx.ctx, fx.dev));
	ok(fx.drv.cuCtxSetCurrent(fx.ctx));
	ok(fx.drv.cuStreamCreate(&fx.stream, CU_STREAM_NON_BLOCKING));
	code = code_bytes();
	ok(fx.drv.cuModuleLoadDataEx(&fx.module, code, 0, NULL, NULL));
	free(code);
	for (i = 0; i < KERNELS; i++)
		kernel_load(i);
	ck_assert_msg(!fdry_region_new(drv, fx.dev, TEST_BASE, REGION_SIZE, &fx.region), "%s",
		      fdry_last_error());
	ok(fdry_region_alloc(fx.region, 65536, 0, &fx.mem));
	fx.reader = (struct fdry_graph_reader){ .drv = &fx.drv, .where = test_where,
						.host = test_host };
	hosts_make();
	fx.builder = (struct fdry_graph_builder){ &fx.drv, fx.ctx, fx.kernels, KERNELS,
						  NULL, fx.moved, 2 };
}

/* Nothing that a test made may be left over. */
static inline void fixture_close(void)
{
	ck_assert_int_eq(code_live("graph"), 0);
	ck_assert_int_eq(code_live("exec"), 0);
	while (fx.nevents)
		ok(fx.drv.cuEventDestroy_v2(fx.events[--fx.nevents]));
	ck_assert_int_eq(code_live("event"), 0);
	fdry_region_free(fx.region);
	ok(fx.drv.cuMemFreeHost(fx.pinned));
	ok(fx.drv.cuModuleUnload(fx.module));
	ok(fx.drv.cuStreamDestroy_v2(fx.stream));
	ok(fx.drv.cuDevicePrimaryCtxRelease_v2(fx.dev));
}

/* --- driver graphs --- */

static inline CUgraph graph_new(void)
{
	CUgraph g;

	ok(fx.drv.cuGraphCreate(&g, 0));
	return g;
}

static inline CUDA_KERNEL_NODE_PARAMS kernel_params(int i, void **args)
{
	return (CUDA_KERNEL_NODE_PARAMS){ .func = fx.func[i], .gridDimX = 1, .gridDimY = 1,
					  .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
					  .blockDimZ = 1, .kernelParams = args };
}

static inline CUgraphNode kernel_add(CUgraph g, const CUgraphNode *after, int i, void **args)
{
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(i, args);
	CUgraphNode n;

	ok(fx.drv.cuGraphAddKernelNode_v2(&n, g, after, after != NULL, &p));
	return n;
}

/* "step" on the @i-th number of the memory: x = x * constant + salt. */
static inline CUgraphNode step_add(CUgraph g, const CUgraphNode *after, int i, uint64_t salt)
{
	CUdeviceptr x = fx.mem + 8 * (unsigned int)i;
	uint32_t spins = 0;
	void *args[] = { &x, &salt, &spins };

	return kernel_add(g, after, STEP, args);
}

static inline CUgraphNode memset_add(CUgraph g, const CUgraphNode *after, CUDA_MEMSET_NODE_PARAMS p)
{
	CUgraphNode n;

	ok(fx.drv.cuGraphAddMemsetNode(&n, g, after, after != NULL, &p, fx.ctx));
	return n;
}

static inline CUgraphNode memcpy_add(CUgraph g, const CUgraphNode *after, CUDA_MEMCPY3D p)
{
	CUgraphNode n;

	ok(fx.drv.cuGraphAddMemcpyNode(&n, g, after, after != NULL, &p, fx.ctx));
	return n;
}

static inline CUevent event_new(void)
{
	ok(fx.drv.cuEventCreate(&fx.events[fx.nevents], CU_EVENT_DISABLE_TIMING));
	return fx.events[fx.nevents++];
}

static inline CUgraphNode empty_add(CUgraph g, const CUgraphNode *after)
{
	CUgraphNode n;

	ok(fx.drv.cuGraphAddEmptyNode(&n, g, after, after != NULL));
	return n;
}

static inline void edge_add(CUgraph g, CUgraphNode from, CUgraphNode to, CUgraphEdgeData data)
{
	ok(fx.drv.cuGraphAddDependencies_v2(g, &from, &to, &data, 1));
}

/* By a reader that knows nothing yet. */
static inline int graph_read(CUgraph g, struct fdry_buf *ret)
{
	struct fdry_graph_reader rd = fx.reader;
	int err = fdry_graph_read(&rd, g, ret);

	fdry_graph_reader_release(&rd);
	return err;
}

/* The object of a driver graph. */
static inline struct fdry_buf graph_object(CUgraph g)
{
	struct fdry_buf b = { 0 };

	ck_assert_msg(!graph_read(g, &b), "%s", fdry_last_error());
	return b;
}

/* Destroys the graph. */
static inline void graph_refused(CUgraph g, const char *words)
{
	struct fdry_buf b = { 0 };

	fails(FDRY_E_REFUSED, words, graph_read(g, &b));
	ck_assert_ptr_null(b.data);
	ok(fx.drv.cuGraphDestroy(g));
}

static inline void built_of(const struct fdry_buf *object, struct fdry_graph_built *ret)
{
	struct fdry_graph_view v;

	ck_assert_msg(!fdry_graph_view_init(span_of(object), &v), "%s", fdry_last_error());
	ck_assert_msg(!fdry_graph_build(&fx.builder, &v, ret), "%s", fdry_last_error());
	ck_assert_msg(!graph_built_check(&fx.drv, &v, ret), "%s", fdry_last_error());
}

static inline void graph_run(CUgraph g)
{
	CUgraphExec x;

	ok(fx.drv.cuGraphInstantiateWithFlags(&x, g, 0));
	ok(fx.drv.cuGraphLaunch(x, fx.stream));
	ok(fx.drv.cuStreamSynchronize(fx.stream));
	ok(fx.drv.cuGraphExecDestroy(x));
}

/* A graph with every kind of node, attributes, a fork, a join and edges with data. */
static inline CUgraph graph_of_all(void)
{
	CUgraph g = graph_new();
	CUgraphNode a = step_add(g, NULL, 0, 3), b = step_add(g, &a, 1, 5),
		    c = step_add(g, &a, 2, 7), d, e, f, h, i;
	CUlaunchAttributeValue v = { .priority = -5 };
	CUevent event = event_new();

	ok(fx.drv.cuGraphKernelNodeSetAttribute(c, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	d = memset_add(g, &b, (CUDA_MEMSET_NODE_PARAMS){ fx.mem + 512, 64, 0x1234, 2, 16, 4 });
	e = memcpy_add(g, &c,
		       (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = fx.mem,
					.srcPitch = 64, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
					.dstDevice = fx.mem + 1024, .dstPitch = 64,
					.WidthInBytes = 64, .Height = 1, .Depth = 1 });
	f = empty_add(g, &d);
	edge_add(g, e, f, (CUgraphEdgeData){ 0 });
	ok(fx.drv.cuGraphAddEventRecordNode(&h, g, &f, 1, event));
	ok(fx.drv.cuGraphAddEventWaitNode(&i, g, &h, 1, event));
	b = step_add(g, &i, 0, 11);
	c = step_add(g, NULL, 5, 13); /* another number: programmatic edges let kernels overlap */
	edge_add(g, b, c, (CUgraphEdgeData){ .from_port = 1, .type = 1 });
	return g;
}

/* --- comparing --- */

/* The text of @g's object, without the two lines at its top, as if the region began at
 * 0x500000000000. @g is destroyed. */
static inline void reads_as(CUgraph g, const char *text)
{
	struct fdry_buf o = graph_object(g), t = text_of(&o);
	char *body = strchr(strchr((char *)t.data, '\n') + 1, '\n') + 1, *p, top[9];

	snprintf(top, sizeof(top), "%llx", TEST_BASE >> 16);
	for (p = body; (p = strstr(p, top)) != NULL; p++)
		memcpy(p, "50000000", 8);
	ck_assert_str_eq(body, text);
	fdry_buf_release(&o);
	fdry_buf_release(&t);
	ok(fx.drv.cuGraphDestroy(g));
}

/* Both are destroyed. */
static inline void same_object(CUgraph a, CUgraph b)
{
	struct fdry_buf x = graph_object(a), y = graph_object(b);

	ck_assert_uint_eq(x.len, y.len);
	ck_assert_mem_eq(x.data, y.data, x.len);
	fdry_buf_release(&x);
	fdry_buf_release(&y);
	ok(fx.drv.cuGraphDestroy(a));
	ok(fx.drv.cuGraphDestroy(b));
}

/* --- "odd", whose parameters have every size and alignment --- */

#define ODD_BYTES 96

/* Arguments of "odd", packed, with @junk wherever no parameter lies. */
static inline void odd_pack(uint8_t packed[ODD_BYTES], uint8_t junk)
{
	const struct fdry_kernel *k = &fx.kernels[ODD];
	uint32_t i;

	ck_assert_uint_le(k->param_bytes, ODD_BYTES);
	memset(packed, junk, ODD_BYTES);
	for (i = 0; i < k->nparams; i++)
		memset(packed + k->params[i].offset, 0x11 * (int)(i + 1), k->params[i].size);
	memcpy(packed + k->params[6].offset, &fx.mem, sizeof(fx.mem));
}

static inline CUgraph odd_graph(uint8_t *packed, bool as_buffer)
{
	const struct fdry_kernel *k = &fx.kernels[ODD];
	size_t size = k->param_bytes;
	void *args[16], *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, packed,
				     CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(ODD, args);
	CUgraph g = graph_new();
	CUgraphNode n;
	uint32_t i;

	for (i = 0; i < k->nparams; i++)
		args[i] = packed + k->params[i].offset;
	if (as_buffer) {
		p.kernelParams = NULL;
		p.extra = extra;
	}
	ok(fx.drv.cuGraphAddKernelNode_v2(&n, g, NULL, 0, &p));
	return g;
}

/* --- round trips --- */

static inline void same_bytes(const struct fdry_buf *a, const struct fdry_buf *b)
{
	ck_assert_uint_eq(a->len, b->len);
	ck_assert_mem_eq(a->data, b->data, a->len);
}

/* The memory after @g has run on numbers that a seed gives. */
static inline void run_on_seed(CUgraph g, uint8_t mem[65536])
{
	size_t i;

	for (i = 0; i < 65536; i++)
		mem[i] = (uint8_t)(i * 31 + i / 256);
	ok(fx.drv.cuMemcpyHtoD_v2(fx.mem, mem, 65536));
	graph_run(g);
	ok(fx.drv.cuMemcpyDtoH_v2(mem, fx.mem, 65536));
}

/* Built from its object, a graph reads the same and does the same. @g is destroyed. */
static inline void round_trip(CUgraph g)
{
	static uint8_t before[65536], after[65536];
	struct fdry_buf object = graph_object(g), again;
	struct fdry_graph_built b;

	built_of(&object, &b);
	again = graph_object(b.graph);
	same_bytes(&object, &again);
	run_on_seed(g, before);
	run_on_seed(b.graph, after);
	ck_assert_mem_eq(before, after, sizeof(before));
	fdry_graph_built_release(&fx.drv, &b);
	ck_assert_ptr_null(b.graph);
	fdry_buf_release(&object);
	fdry_buf_release(&again);
	ok(fx.drv.cuGraphDestroy(g));
}

#endif
