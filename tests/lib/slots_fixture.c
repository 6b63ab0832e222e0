// SPDX-License-Identifier: Apache-2.0
/* slots_fixture.c - see slots_fixture.h. */
#include "tests/lib/slots_fixture.h"

#include <stdlib.h>

struct slots_fixture sf;

CUdeviceptr sf_at(int i)
{
	return sf.x + (unsigned int)i * sizeof(uint64_t);
}

/* Begin a thread other than the first. */
void sf_context_use(void)
{
	cu(cuCtxSetCurrent, sf.ctx);
}

void slots_fixture_open(void)
{
	void *code;

	if (!sf.backend)
		sf.backend = &backend_sim;
	sf.drv = sf.backend->driver();
	cu(cuDevicePrimaryCtxRetain, &sf.ctx, 0);
	sf_context_use();
	code = sf.backend->code();
	cu(cuModuleLoadDataEx, &sf.module, code, 0, NULL, NULL);
	free(code);
	cu(cuModuleGetFunction, &sf.step, sf.module, "step");
	cu(cuModuleGetFunction, &sf.decode, sf.module, "decode");
	cu(cuStreamCreate, &sf.stream, CU_STREAM_NON_BLOCKING);
	cu(cuMemAlloc_v2, &sf.x, NUMBERS * sizeof(uint64_t));
	cu(cuMemsetD8Async, sf.x, 0, NUMBERS * sizeof(uint64_t), sf.stream);
	cu(cuStreamSynchronize, sf.stream);
	ok(fdry_slots_new(NULL, &sf.t));
}

void slots_fixture_close(void)
{
	fdry_slots_free(sf.t);
	cu(cuMemFree_v2, sf.x);
	cu(cuStreamDestroy_v2, sf.stream);
	cu(cuModuleUnload, sf.module);
	ck_assert(sf.kept || !sf.backend->live("graph"));
	ck_assert(sf.kept || !sf.backend->live("exec"));
	cu(cuDevicePrimaryCtxRelease_v2, 0);
}

CUstream sf_stream_make(void)
{
	CUstream s;

	cu(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	return s;
}

/* Read the numbers now, in no stream's order. */
uint64_t sf_number_now(int i)
{
	static _Thread_local CUstream s;
	uint64_t v;

	if (!s)
		s = sf_stream_make();
	cu(cuMemcpyDtoHAsync_v2, &v, sf_at(i), sizeof(v), s);
	cu(cuStreamSynchronize, s);
	cu(cuStreamDestroy_v2, s);
	s = NULL;
	return v;
}

uint64_t sf_number(int i)
{
	cu(cuStreamSynchronize, sf.stream);
	return sf_number_now(i);
}

uint64_t sf_stepped(uint64_t x, uint64_t salt, int times)
{
	while (times-- > 0)
		x = x * STEP + salt;
	return x;
}

void sf_step_launch(CUstream s, int i, uint64_t salt, uint32_t spins)
{
	CUdeviceptr x = sf_at(i);
	void *args[] = { &x, &salt, &spins };

	cu(cuLaunchKernel, sf.step, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
}

void sf_capture_start(CUstream s)
{
	cu(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* Make a graph that steps number @i by @salt, 1 + @spins times. */
CUgraph sf_graph_make(int i, uint64_t salt, uint32_t spins)
{
	CUstream s = sf_stream_make();
	CUgraph g;

	sf_capture_start(s);
	sf_step_launch(s, i, salt, spins);
	cu(cuStreamEndCapture, s, &g);
	cu(cuStreamDestroy_v2, s);
	return g;
}

CUgraphExec sf_exec_make(int i, uint64_t salt, uint32_t spins)
{
	CUgraph g = sf_graph_make(i, salt, spins);
	CUgraphExec x;

	cu(cuGraphInstantiateWithFlags, &x, g, 0);
	cu(cuGraphDestroy, g);
	return x;
}

void sf_slot_make(struct fdry_slots *t, uint64_t key, int i, uint64_t salt)
{
	ok(fdry_slots_install_graph(t, key, sf_graph_make(i, salt, 0), 0, FDRY_SLOTS_OWN_GRAPH));
}

bool sf_replay(struct fdry_slots *t, uint64_t key)
{
	int launched = 7;

	ok(fdry_slots_replay(t, key, sf.stream, &launched));
	ck_assert(launched == 0 || launched == 1);
	return launched;
}

struct fdry_slots *sf_table_with(uint32_t upload, uint32_t sync)
{
	struct fdry_slots_opts opts = { .sz = sizeof(opts), .upload = upload, .sync = sync };
	struct fdry_slots *t = NULL;

	ok(fdry_slots_new(&opts, &t));
	return t;
}

bool sf_phase_is(const struct fdry_slots_phase *p, uint64_t calls)
{
	return p->calls == calls && p->p50_ns && p->p50_ns <= p->p90_ns && p->p90_ns <= p->p99_ns &&
	       p->p99_ns <= p->max_ns && p->max_ns <= p->total_ns &&
	       p->total_ns <= p->max_ns * calls;
}
