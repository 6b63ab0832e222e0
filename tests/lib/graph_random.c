// SPDX-License-Identifier: Apache-2.0
/* graph_random.c - see graph_random.h. */
#include "tests/lib/graph_random.h"

#include "tests/lib/graph_make.h"
#include "tests/replace/graph_fixture.h"

static int calls[2], built_calls[2];

static void CUDA_CB call(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static void host_fill(void)
{
	uint32_t i, k;

	for (k = 0; k < 2; k++)
		for (i = 0; i < GRAPH_HOST_BYTES; i++)
			((uint8_t *)(uintptr_t)(k ? gf.moved : gf.hosts)[0].addr)[i] =
				(uint8_t)(i * 7 + i / 256);
}

static void results_compare(CUgraph a, CUgraph b)
{
	static uint8_t before[65536], after[65536];

	host_fill();
	run_on_seed(a, before);
	run_on_seed(b, after);
	ck_assert_mem_eq(before, after, sizeof(before));
	ck_assert_mem_eq((void *)(uintptr_t)gf.hosts[0].addr,
			 (void *)(uintptr_t)gf.moved[0].addr, GRAPH_HOST_BYTES);
	ck_assert_mem_eq(calls, built_calls, sizeof(calls));
}

uint32_t graph_random_unrun;

static bool runs(CUgraph g)
{
	CUgraphExec x;

	if (gf.drv.cuGraphInstantiateWithFlags(&x, g, 0))
		return false;
	ok(gf.drv.cuGraphExecDestroy(x));
	return true;
}

uint32_t graph_random_check(uint64_t (*below)(uint64_t n))
{
	const struct fdry_host_function named[] = { { "a", call, &calls[0] },
						    { "b", call, &calls[1] } },
					bound[] = { { "b", call, &built_calls[1] },
						    { "a", call, &built_calls[0] } };
	struct fdry_buf object, again;
	struct fdry_graph_built b;
	struct fdry_graph_view v;
	struct graph_env env = { .below = below, .drv = &gf.drv, .ctx = gf.ctx, .mem = gf.mem,
				 .step = gf.func[STEP], .words = gf.func[WORDS],
				 .nothing = gf.func[NOTHING], .condition = gf.func[CONDITION],
				 .host = (uint8_t *)(uintptr_t)gf.hosts[0].addr,
				 .call = call, .calls = calls };
	uint32_t i, nodes;
	CUgraph g;

	calls[0] = calls[1] = built_calls[0] = built_calls[1] = 0;
	graph_fixture_forget();
	env.body_handles = below(2);
	for (i = 0; i < GRAPH_EVENTS; i++)
		ok(gf.drv.cuEventCreate(&env.event[i], CU_EVENT_DISABLE_TIMING));
	g = graph_make_random(&env, &nodes);
	gf.reader.functions = named;
	gf.builder.functions = bound;
	gf.reader.nfunctions = gf.builder.nfunctions = 2;
	object = graph_object(g);
	if (env.body_handles) {
		ok(fdry_graph_view_init(span_of(&object), &v));
		ok(fdry_graph_build(&gf.builder, &v, &b));
	} else {
		built_of(&object, &b);
	}
	for (i = env.body_handles; i < 2; i++) {
		/* the copy is read with the names of its own functions */
		gf.reader.functions = i ? named : bound;
		again = graph_object(i ? g : b.graph);
		same_bytes(&object, &again);
		fdry_buf_release(&again);
	}
	if (runs(g))
		results_compare(g, b.graph);
	else
		graph_random_unrun++;
	fdry_graph_built_release(&gf.drv, &b);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
	for (i = 0; i < GRAPH_EVENTS; i++)
		ok(gf.drv.cuEventDestroy_v2(env.event[i]));
	return nodes;
}
