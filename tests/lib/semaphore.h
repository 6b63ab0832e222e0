/* SPDX-License-Identifier: Apache-2.0 */
/* semaphore.h - semaphores of other APIs, for the software driver: files that hold their value. */
#ifndef FDRY_TESTS_LIB_SEMAPHORE_H
#define FDRY_TESTS_LIB_SEMAPHORE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct test_semaphore {
	uint64_t *value;
	CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc; /* an import takes its file */
};

/* A semaphore with the value 0. */
void test_semaphore_make(struct test_semaphore *s, bool timeline);
/* The same, imported by the software driver without an interposer. */
CUexternalSemaphore test_semaphore_import(struct test_semaphore *s, bool timeline);

#endif
