/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots_fixture.h - the fixture of tests of slot tables: a driver, numbers in device memory, and
 * graphs that advance them by steps. A step is x = x * STEP + salt, so a number shows how many
 * steps it took, and with which salts.
 */
#ifndef FDRY_TESTS_LIB_SLOTS_FIXTURE_H
#define FDRY_TESTS_LIB_SLOTS_FIXTURE_H

#include <stdbool.h>

#include "foundry/run.h"
#include "tests/lib/backend.h"
#include "tests/lib/test.h"

#define cu(fn, ...) do { \
	int res_ = (int)sf.drv->fn(__VA_ARGS__); \
	ck_assert_msg(!res_, "%s: %d", #fn, res_); \
} while (0)

#define STEP 6364136223846793005u
#define NUMBERS 4096

extern struct slots_fixture {
	const struct test_backend *backend; /* backend_sim, unless main() sets another */
	const struct fdry_driver *drv;
	CUcontext ctx;
	CUmodule module;
	CUfunction step, decode;
	CUstream stream;
	CUdeviceptr x; /* NUMBERS numbers */
	struct fdry_slots *t;
	bool kept; /* calls that free objects were made to fail */
} sf;

CUdeviceptr sf_at(int i);

/* Begin a thread other than the first. */
void sf_context_use(void);

void slots_fixture_open(void);

void slots_fixture_close(void);

CUstream sf_stream_make(void);

/* Read the numbers now, in no stream's order. */
uint64_t sf_number_now(int i);

uint64_t sf_number(int i);

uint64_t sf_stepped(uint64_t x, uint64_t salt, int times);

void sf_step_launch(CUstream s, int i, uint64_t salt, uint32_t spins);

void sf_capture_start(CUstream s);

/* Make a graph that steps number @i by @salt, 1 + @spins times. */
CUgraph sf_graph_make(int i, uint64_t salt, uint32_t spins);

CUgraphExec sf_exec_make(int i, uint64_t salt, uint32_t spins);

void sf_slot_make(struct fdry_slots *t, uint64_t key, int i, uint64_t salt);

bool sf_replay(struct fdry_slots *t, uint64_t key);

struct fdry_slots *sf_table_with(uint32_t upload, uint32_t sync);

bool sf_phase_is(const struct fdry_slots_phase *p, uint64_t calls);

#endif
