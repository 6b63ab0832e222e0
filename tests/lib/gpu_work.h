/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_work.h - a capturing program for tests on a GPU: the interposer, a store at the path of
 * store.h, a capture, a stream, a kernel, and 64 numbers. It can also run on the software driver.
 */
#ifndef FDRY_TESTS_LIB_GPU_WORK_H
#define FDRY_TESTS_LIB_GPU_WORK_H

#include "foundry.h"
#include "tests/lib/hook.h"
#include "tests/lib/store.h"

struct gpu_work {
	struct fdry_capture *cap;
	struct fdry_store *store;
	CUstream stream;
	CUfunction step; /* (address, u64 salt, u32 unused): x = gpu_stepped(x, salt) */
	CUdeviceptr x;   /* tensor "x", 64 numbers of 8 bytes */
};

static inline uint64_t gpu_stepped(uint64_t x, uint64_t salt)
{
	return x * 6364136223846793005u + salt;
}

/* For main(): use the driver that the command line names, or the machine's own. Exits with status
 * 77 if there is no GPU. */
void gpu_work_main(int argc, char **argv);
/* Each process may call it once. */
void gpu_work_begin(struct gpu_work *w);
/* The stream must have no work. */
void gpu_work_end(struct gpu_work *w);

#endif
