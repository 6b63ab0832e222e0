/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.h - a test on a GPU in independent parts: a part that fails reports its reason, and the
 * others run.
 */
#ifndef FDRY_TESTS_LIB_PARTS_H
#define FDRY_TESTS_LIB_PARTS_H

#include <stdbool.h>
#include <string.h>

#include "foundry.h"
#include "tests/lib/gpu.h"
#include "tests/lib/drv.h"

extern CUcontext ctx; /* device 0's primary context, current to the first thread */
extern unsigned int checks, failures;

struct part {
	const char *name;
	void (*fn)(void);
};

/* Check a condition; print it if it is false. */
bool check_(bool good, const char *what, const char *file, int line);
#define check(cond) check_(cond, #cond, __FILE__, __LINE__)
#define ok(call) check_(!(call), #call, __FILE__, __LINE__)
#define cu(fn, ...) ok(fdry_call(drv, fn, __VA_ARGS__))
#define need(cond) do { if (!(cond)) return; } while (0)

bool part_refused(int ret, int code, const char *words, const char *file, int line);
#define fails(code, words, call) part_refused(call, FDRY_E_##code, words, __FILE__, __LINE__)

/* Allocate zeroed device memory. */
CUdeviceptr part_mem(size_t bytes);

CUstream part_stream(void);

/* Open the driver at @path, or the machine's own if @path is NULL, and make device 0's primary
 * context current. */
bool parts_begin(const char *path);
void parts_run(const struct part *parts, size_t n);

#endif
