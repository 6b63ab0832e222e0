// SPDX-License-Identifier: Apache-2.0
/* graph_fixture.c - see graph_fixture.h. */
#include "tests/replace/graph_fixture.h"

struct graph_fixture gf;

static const char *const kernel_names[] = { "step", "odd", "nothing", "reverse",
						     "words", "condition" };

/* --- in place of graph/kernel.c --- */

int fdry_kernel_set_intern(struct fdry_kernel_set *set, CUkernel kern, CUfunction func,
			   uint32_t *index)
{
	uint32_t i;

	(void)set;
	for (i = 0; i < KERNELS; i++)
		if ((func && gf.func[i] == func) || (kern && i == STEP && gf.kern == kern)) {
			*index = i;
			return 0;
		}
	return fdry_fail(FDRY_E_REFUSED, "its code was never seen");
}

void fdry_kernel_set_allow_shared(struct fdry_kernel_set *set, uint32_t index, uint32_t bytes)
{
	(void)set;
	(void)index;
	(void)bytes;
}

const struct fdry_kernel *fdry_kernel_set_get(const struct fdry_kernel_set *set, uint32_t index)
{
	(void)set;
	return &gf.kernels[index];
}

int fdry_kernel_set_print(const struct fdry_kernel_set *set, uint32_t index, struct fdry_buf *ret)
{
	int err = fdry_buf_put_u32(ret, index);

	(void)set;
	return err ? err : fdry_buf_put_u32(ret, gf.print);
}

CUfunction fdry_kernel_bank_get(const struct fdry_kernel_bank *bank, uint32_t index)
{
	(void)bank;
	return gf.func[index];
}

/* --- the fixture --- */

static int test_where(void *arg, CUdeviceptr addr, uint64_t bytes, enum fdry_where *ret,
		      const char **what)
{
	unsigned int type = 0;
	struct fdry_alloc a;

	(void)arg;
	gf.asked++;
	if (addr == gf.fail_where)
		return fdry_fail(FDRY_E_DRIVER, "asked for the wrong address");
	*ret = FDRY_WHERE_FREED;
	*what = "memory that was freed";
	if (addr == gf.freed)
		return 0;
	*ret = FDRY_WHERE_REGION;
	*what = "nothing that this names";
	if (fdry_region_find(gf.region, addr, &a) && bytes <= a.size - (addr - a.addr))
		return 0;
	*ret = FDRY_WHERE_NOTHING;
	if (gf.drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					 bytes ? addr + bytes - 1 : addr))
		return 0;
	*ret = type == CU_MEMORYTYPE_HOST ? FDRY_WHERE_HOST : FDRY_WHERE_OUTSIDE;
	*what = type == CU_MEMORYTYPE_HOST ? "host memory" : "device memory outside of the region";
	return 0;
}

/* --- in place of the interposer --- */

#define NOTES 4096u

static struct noted_node {
	CUgraphNode node;
	CUgraph root, bodies[8];
	struct fdry_conditional c;
} noted_nodes[NOTES];
static struct noted_handle {
	CUgraph root;
	uint64_t nr;
	struct fdry_condition c;
} noted_handles[NOTES];
static unsigned int nnodes, nhandles;

static CUgraph root_of(CUgraph g)
{
	unsigned int i, k;

	for (i = nnodes; i--;)
		for (k = 0; k < noted_nodes[i].c.size; k++)
			if (noted_nodes[i].bodies[k] == g)
				return noted_nodes[i].root;
	return g;
}

/* A handle 1 is of a graph that is no body, whatever had its address. */
static void bodies_forget(CUgraph g)
{
	unsigned int i, k;

	for (i = 0; i < nnodes; i++)
		for (k = 0; k < noted_nodes[i].c.size; k++)
			if (noted_nodes[i].bodies[k] == g)
				noted_nodes[i].bodies[k] = NULL;
}

static CUresult handle_noted(CUgraphConditionalHandle *ret, CUgraph g, CUcontext ctx,
			     unsigned int value, unsigned int flags)
{
	CUresult res = gf.backend->driver()->cuGraphConditionalHandleCreate(ret, g, ctx, value,
									    flags);

	if (res)
		return res;
	if (*ret == 1)
		bodies_forget(g);
	ck_assert_uint_lt(nhandles, NOTES);
	noted_handles[nhandles++] =
		(struct noted_handle){ root_of(g), *ret, { g, ctx, value, flags } };
	return res;
}

static CUresult node_noted(CUgraphNode *ret, CUgraph g, const CUgraphNode *deps,
			   const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *p)
{
	CUresult res = gf.backend->driver()->cuGraphAddNode_v2(ret, g, deps, data, n, p);
	struct noted_node *note = &noted_nodes[nnodes];

	if (res || p->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return res;
	ck_assert(nnodes < NOTES && p->conditional.size <= 8);
	*note = (struct noted_node){ .node = *ret, .root = root_of(g) };
	memcpy(note->bodies, p->conditional.phGraph_out, p->conditional.size * sizeof(CUgraph));
	note->c = (struct fdry_conditional){ .handle = p->conditional.handle,
					     .type = p->conditional.type,
					     .size = p->conditional.size,
					     .ctx = p->conditional.ctx };
	nnodes++;
	return res;
}

void graph_fixture_forget(void)
{
	nnodes = nhandles = 0;
}

static int test_conditional(void *arg, CUgraphNode node, struct fdry_conditional *ret)
{
	unsigned int i = nnodes, k;

	(void)arg;
	while (i && noted_nodes[i - 1].node != node)
		i--;
	if (!i)
		return fdry_fail(FDRY_E_REFUSED, "it was not seen");
	*ret = noted_nodes[i - 1].c;
	ret->bodies = noted_nodes[i - 1].bodies;
	for (k = nhandles; k--;) {
		if (noted_handles[k].root != noted_nodes[i - 1].root)
			continue;
		if (ret->handles < noted_handles[k].nr)
			ret->handles = noted_handles[k].nr;
		if (noted_handles[k].nr == ret->handle)
			ret->condition = noted_handles[k].c;
		if (noted_handles[k].nr == 1)
			break;
	}
	return 0;
}

CUgraphConditionalHandle handle_make(CUgraph g, unsigned int value)
{
	CUgraphConditionalHandle h;

	ok(gf.drv.cuGraphConditionalHandleCreate(&h, g, gf.ctx, value,
						 CU_GRAPH_COND_ASSIGN_DEFAULT));
	return h;
}

CUgraphNode conditional_add(CUgraph g, const CUgraphNode *after,
			    const CUDA_CONDITIONAL_NODE_PARAMS *params, CUgraph *bodies)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUgraphNode n;

	p.conditional = *params;
	p.conditional.ctx = gf.ctx;
	ok(gf.drv.cuGraphAddNode_v2(&n, g, after, NULL, after != NULL, &p));
	memcpy(bodies, p.conditional.phGraph_out, params->size * sizeof(*bodies));
	return n;
}

CUgraphNode condition_set(CUgraph g, const CUgraphNode *after, CUgraphConditionalHandle h,
			  unsigned int word, uint32_t down)
{
	CUdeviceptr at = gf.mem + 4 * word;
	void *args[] = { &h, &at, &down };

	return kernel_add(g, after, CONDITION, args);
}

#define HOST_ROOM 8192u

static void test_host(void *arg, uint64_t addr, uint64_t bytes, uint64_t *ret)
{
	uint32_t i, k;

	(void)arg;
	for (i = 0; i < 2; i++)
		for (k = 0; k < 2; k++) {
			const struct fdry_host_segment *s = i ? &gf.moved[k] : &gf.hosts[k];

			if (addr >= s->addr && addr - s->addr <= s->size &&
			    bytes <= s->size - (addr - s->addr))
				*ret = fdry_host_place(k, addr - s->addr);
		}
}

/* Two host segments, 4,096 and 100 bytes. */
static void hosts_make(void)
{
	static const uint64_t at[2] = { 512, 5000 }, to[2] = { 1024, 64 }, size[2] = { 4096, 100 };
	int i;

	ok(gf.drv.cuMemAllocHost_v2((void **)&gf.pinned, 2 * HOST_ROOM));
	memset(gf.pinned, 0, 2 * HOST_ROOM);
	for (i = 0; i < 2; i++) {
		gf.hosts[i] = (struct fdry_host_segment){ (uintptr_t)gf.pinned + at[i], size[i] };
		gf.moved[i] = (struct fdry_host_segment){ (uintptr_t)gf.pinned + HOST_ROOM + to[i],
							  size[i] };
	}
}

static void kernel_load(int i)
{
	static struct fdry_param params[KERNELS][16];
	struct fdry_kernel *k = &gf.kernels[i];
	size_t offset, size;

	ok(gf.drv.cuModuleGetFunction(&gf.func[i], gf.module, kernel_names[i]));
	k->name = kernel_names[i];
	k->params = params[i];
	while (!gf.drv.cuFuncGetParamInfo(gf.func[i], k->nparams, &offset, &size)) {
		params[i][k->nparams++] = (struct fdry_param){ (uint16_t)offset, (uint16_t)size };
		k->param_bytes = (uint32_t)(offset + size);
	}
}

void graph_fixture_open(void)
{
	const struct test_backend *backend = gf.backend ? gf.backend : &backend_sim;
	const struct fdry_driver *drv = backend->driver();
	void *code;
	int i;

	memset(&gf, 0, sizeof(gf));
	gf.backend = backend;
	gf.drv = *drv;
	ok(gf.drv.cuDeviceGet(&gf.dev, 0));
	ok(gf.drv.cuDevicePrimaryCtxRetain(&gf.ctx, gf.dev));
	ok(gf.drv.cuCtxSetCurrent(gf.ctx));
	ok(gf.drv.cuStreamCreate(&gf.stream, CU_STREAM_NON_BLOCKING));
	code = gf.backend->code();
	ok(gf.drv.cuModuleLoadDataEx(&gf.module, code, 0, NULL, NULL));
	free(code);
	for (i = 0; i < KERNELS; i++)
		kernel_load(i);
	ck_assert_msg(!fdry_region_new(drv, gf.dev, gf.backend->base, REGION_SIZE, &gf.region),
		      "%s", fdry_last_error());
	ok(fdry_region_alloc(gf.region, 65536, 0, &gf.mem));
	gf.drv.cuGraphConditionalHandleCreate = handle_noted;
	gf.drv.cuGraphAddNode_v2 = node_noted;
	graph_fixture_forget();
	gf.reader = (struct fdry_graph_reader){ .drv = &gf.drv, .where = test_where,
						.host = test_host,
						.conditional = test_conditional };
	hosts_make();
	gf.builder = (struct fdry_graph_builder){ .drv = &gf.drv, .ctx = gf.ctx,
						  .kernels = gf.kernels, .nkernels = KERNELS,
						  .hosts = gf.moved, .nhosts = 2 };
}

/* Nothing that a test made may be left over. */
void graph_fixture_close(void)
{
	ck_assert_int_eq(gf.backend->live("graph"), 0);
	ck_assert_int_eq(gf.backend->live("exec"), 0);
	while (gf.nevents)
		ok(gf.drv.cuEventDestroy_v2(gf.events[--gf.nevents]));
	ck_assert_int_eq(gf.backend->live("event"), 0);
	fdry_region_free(gf.region);
	ok(gf.drv.cuMemFreeHost(gf.pinned));
	ok(gf.drv.cuModuleUnload(gf.module));
	ok(gf.drv.cuStreamDestroy_v2(gf.stream));
	ok(gf.drv.cuDevicePrimaryCtxRelease_v2(gf.dev));
}

/* --- driver graphs --- */

CUgraph graph_make(void)
{
	CUgraph g;

	ok(gf.drv.cuGraphCreate(&g, 0));
	return g;
}

CUDA_KERNEL_NODE_PARAMS kernel_params(int i, void **args)
{
	return (CUDA_KERNEL_NODE_PARAMS){ .func = gf.func[i], .gridDimX = 1, .gridDimY = 1,
					  .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
					  .blockDimZ = 1, .kernelParams = args };
}

CUgraphNode kernel_add(CUgraph g, const CUgraphNode *after, int i, void **args)
{
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(i, args);
	CUgraphNode n;

	ok(gf.drv.cuGraphAddKernelNode_v2(&n, g, after, after != NULL, &p));
	return n;
}

/* "step" on the @i-th number of the memory: x = x * constant + salt. */
CUgraphNode step_node(CUgraph g, const CUgraphNode *after, int i, uint64_t salt)
{
	CUdeviceptr x = gf.mem + 8 * (unsigned int)i;
	uint32_t spins = 0;
	void *args[] = { &x, &salt, &spins };

	return kernel_add(g, after, STEP, args);
}

CUgraphNode memset_add(CUgraph g, const CUgraphNode *after, CUDA_MEMSET_NODE_PARAMS p)
{
	CUgraphNode n;

	ok(gf.drv.cuGraphAddMemsetNode(&n, g, after, after != NULL, &p, gf.ctx));
	return n;
}

CUgraphNode memcpy_add(CUgraph g, const CUgraphNode *after, CUDA_MEMCPY3D p)
{
	CUgraphNode n;

	ok(gf.drv.cuGraphAddMemcpyNode(&n, g, after, after != NULL, &p, gf.ctx));
	return n;
}

CUevent event_make(void)
{
	ok(gf.drv.cuEventCreate(&gf.events[gf.nevents], CU_EVENT_DISABLE_TIMING));
	return gf.events[gf.nevents++];
}

CUgraphNode empty_add(CUgraph g, const CUgraphNode *after)
{
	CUgraphNode n;

	ok(gf.drv.cuGraphAddEmptyNode(&n, g, after, after != NULL));
	return n;
}

void edge_add(CUgraph g, CUgraphNode from, CUgraphNode to, CUgraphEdgeData data)
{
	ok(gf.drv.cuGraphAddDependencies_v2(g, &from, &to, &data, 1));
}

/* Read with a new reader. */
int graph_read(CUgraph g, struct fdry_buf *ret)
{
	struct fdry_graph_reader rd = gf.reader;
	int err = fdry_graph_read(&rd, g, ret);

	fdry_graph_memo_release(&rd.memo);
	return err;
}

/* The object of a driver graph. */
struct fdry_buf graph_object(CUgraph g)
{
	struct fdry_buf b = { 0 };

	ck_assert_msg(!graph_read(g, &b), "%s", fdry_last_error());
	return b;
}

/* Destroys the graph. */
void graph_refused(CUgraph g, const char *words)
{
	struct fdry_buf b = { 0 };

	fails(REFUSED, words, graph_read(g, &b));
	ck_assert_ptr_null(b.data);
	ok(gf.drv.cuGraphDestroy(g));
}

void built_of(const struct fdry_buf *object, struct fdry_graph_built *ret)
{
	struct fdry_graph_view v;

	ck_assert_msg(!fdry_graph_view_init(span_of(object), &v), "%s", fdry_last_error());
	ck_assert_msg(!fdry_graph_build(&gf.builder, &v, ret), "%s", fdry_last_error());
	ck_assert_msg(!graph_built_check(&gf.drv, &v, ret, gf.reader.conditional), "%s",
		      fdry_last_error());
}

void graph_run(CUgraph g)
{
	CUgraphExec x;

	ok(gf.drv.cuGraphInstantiateWithFlags(&x, g, 0));
	ok(gf.drv.cuGraphLaunch(x, gf.stream));
	ok(gf.drv.cuStreamSynchronize(gf.stream));
	ok(gf.drv.cuGraphExecDestroy(x));
}

/* A graph with every kind of node, attributes, a fork, a join and edges with data. */
CUgraph graph_of_all(void)
{
	CUgraph g = graph_make();
	CUgraphNode a = step_node(g, NULL, 0, 3), b = step_node(g, &a, 1, 5),
		    c = step_node(g, &a, 2, 7), d, e, f, h, i;
	CUlaunchAttributeValue v = { .priority = -5 };
	CUevent event = event_make();

	ok(gf.drv.cuGraphKernelNodeSetAttribute(c, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	d = memset_add(g, &b, (CUDA_MEMSET_NODE_PARAMS){ gf.mem + 512, 64, 0x1234, 2, 16, 4 });
	e = memcpy_add(g, &c,
		       (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = gf.mem,
					.srcPitch = 64, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
					.dstDevice = gf.mem + 1024, .dstPitch = 64,
					.WidthInBytes = 64, .Height = 1, .Depth = 1 });
	f = empty_add(g, &d);
	edge_add(g, e, f, (CUgraphEdgeData){ 0 });
	ok(gf.drv.cuGraphAddEventRecordNode(&h, g, &f, 1, event));
	ok(gf.drv.cuGraphAddEventWaitNode(&i, g, &h, 1, event));
	b = step_node(g, &i, 0, 11);
	c = step_node(g, NULL, 5, 13); /* another number: programmatic edges let kernels overlap */
	edge_add(g, b, c, (CUgraphEdgeData){ .from_port = 1, .type = 1 });
	return g;
}

/* --- comparing --- */

/* The text of @g's object, without the two lines at its top, as if the region began at
 * 0x500000000000. @g is destroyed. */
void reads_as(CUgraph g, const char *text)
{
	struct fdry_buf o = graph_object(g), t = text_of(&o);
	char *body = strchr(strchr((char *)t.data, '\n') + 1, '\n') + 1, *p, top[9];

	snprintf(top, sizeof(top), "%llx", (unsigned long long)gf.backend->base >> 16);
	for (p = body; (p = strstr(p, top)) != NULL; p++)
		memcpy(p, "50000000", 8);
	ck_assert_str_eq(body, text);
	fdry_buf_release(&o);
	fdry_buf_release(&t);
	ok(gf.drv.cuGraphDestroy(g));
}

/* Both are destroyed. */
void objects_equal(CUgraph a, CUgraph b)
{
	struct fdry_buf x = graph_object(a), y = graph_object(b);

	ck_assert_uint_eq(x.len, y.len);
	ck_assert_mem_eq(x.data, y.data, x.len);
	fdry_buf_release(&x);
	fdry_buf_release(&y);
	ok(gf.drv.cuGraphDestroy(a));
	ok(gf.drv.cuGraphDestroy(b));
}

/* --- "odd", whose parameters have every size and alignment --- */

/* Pack arguments of "odd", with @junk in the gaps between parameters. */
void odd_pack(uint8_t packed[ODD_BYTES], uint8_t junk)
{
	const struct fdry_kernel *k = &gf.kernels[ODD];
	uint32_t i;

	ck_assert_uint_le(k->param_bytes, ODD_BYTES);
	memset(packed, junk, ODD_BYTES);
	for (i = 0; i < k->nparams; i++)
		memset(packed + k->params[i].offset, 0x11 * (int)(i + 1), k->params[i].size);
	memcpy(packed + k->params[6].offset, &gf.mem, sizeof(gf.mem));
}

CUgraph odd_graph(uint8_t *packed, bool as_buffer)
{
	const struct fdry_kernel *k = &gf.kernels[ODD];
	size_t size = k->param_bytes;
	void *args[16], *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, packed,
				     CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(ODD, args);
	CUgraph g = graph_make();
	CUgraphNode n;
	uint32_t i;

	for (i = 0; i < k->nparams; i++)
		args[i] = packed + k->params[i].offset;
	if (as_buffer) {
		p.kernelParams = NULL;
		p.extra = extra;
	}
	ok(gf.drv.cuGraphAddKernelNode_v2(&n, g, NULL, 0, &p));
	return g;
}

/* --- "words", whose parameters have 32,760 bytes --- */

struct words_args *words_args(uint64_t n)
{
	static struct words_args args;
	uint64_t i;

	args = (struct words_args){ .dst = gf.mem, .n = n };
	for (i = 0; i < n; i++)
		args.w[i] = 0x0101010101010101 * (i % 255 + 1);
	return &args;
}

CUgraph words_graph(struct words_args *args, size_t bytes)
{
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, args, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(WORDS, NULL);
	CUgraph g = graph_make();
	CUgraphNode n;

	p.extra = extra;
	ok(gf.drv.cuGraphAddKernelNode_v2(&n, g, NULL, 0, &p));
	return g;
}

/* --- round trips --- */

void same_bytes(const struct fdry_buf *a, const struct fdry_buf *b)
{
	ck_assert_uint_eq(a->len, b->len);
	ck_assert_mem_eq(a->data, b->data, a->len);
}

/* Fill the memory with pseudo-random numbers, run @g, and return the memory. */
void run_on_seed(CUgraph g, uint8_t mem[65536])
{
	size_t i;

	for (i = 0; i < 65536; i++)
		mem[i] = (uint8_t)(i * 31 + i / 256);
	/* The call may return before the bytes are there, and the stream waits for no other one. */
	ok(gf.drv.cuMemcpyHtoD_v2(gf.mem, mem, 65536));
	ok(gf.drv.cuCtxSynchronize());
	graph_run(g);
	ok(gf.drv.cuMemcpyDtoH_v2(mem, gf.mem, 65536));
}

/* Built from its object, a graph reads the same and does the same. @g is destroyed. */
void round_trip(CUgraph g)
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
	fdry_graph_built_release(&gf.drv, &b);
	ck_assert_ptr_null(b.graph);
	fdry_buf_release(&object);
	fdry_buf_release(&again);
	ok(gf.drv.cuGraphDestroy(g));
}
