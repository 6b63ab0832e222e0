/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h - element types, tensors and ranges of memory. Part of foundry.h, whose rules for
 * errors, threads, handles and units apply.
 */
#ifndef FOUNDRY_TENSOR_H
#define FOUNDRY_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FDRY_RANK_MAX 8
#define FDRY_NAME_MAX 255 /* bytes of a name, without the terminator */
#define FDRY_FACT_MAX 4095 /* bytes of a fact's value, without the terminator */

/* Element types, FDRY_DTYPE(number, NAME, bytes); the numbers are frozen. FDRY_BYTES is
 * for memory of no particular type. */
#define FDRY_DTYPES(X) \
	X(0, BYTES, 1) X(1, BOOL, 1) X(2, U8, 1) X(3, I8, 1) X(4, I16, 2) X(5, I32, 4) \
	X(6, I64, 8) X(7, F16, 2) X(8, BF16, 2) X(9, F32, 4) X(10, F64, 8) \
	X(11, F8_E4M3, 1) X(12, F8_E5M2, 1) X(13, U16, 2) X(14, U32, 4) X(15, U64, 8) \
	X(16, C64, 8) X(17, C128, 16)
enum fdry_dtype {
#define X(nr, name, size) FDRY_##name = nr,
	FDRY_DTYPES(X)
#undef X
};

/* The use of a tensor. */
enum fdry_use {
	FDRY_USE_INPUT = 0,  /* written before a launch */
	FDRY_USE_OUTPUT = 1, /* read after a launch */
	FDRY_USE_STATE = 2,  /* both, from launch to launch: a KV cache, a position */
	FDRY_USE_CONST = 3,  /* read by the graphs alone: a weight */
};

enum fdry_tensor_flags {
	/* The image keeps no bytes of it: the loading program fills it before the first launch. */
	FDRY_TENSOR_EXTERNAL = 1 << 0,
	/* Host memory, pinned or not, which copies in the graphs read or write: see below. */
	FDRY_TENSOR_HOST = 1 << 1,
};

/**
 * struct fdry_tensor - A named piece of device memory, or of host memory that graphs copy.
 * @name: unique in its image; letters, digits and - _ . @ + / = : , at most FDRY_NAME_MAX bytes
 * @addr: address of element 0: a device address, or with FDRY_TENSOR_HOST a host pointer
 * @dtype: of enum fdry_dtype
 * @use: of enum fdry_use
 * @flags: of enum fdry_tensor_flags
 * @rank: dimensions in use, 0 to FDRY_RANK_MAX
 * @shape: elements in each dimension
 * @stride: distance of neighbours in each dimension, in elements; never negative
 *
 * A name that the library returns belongs to the image and lives as long.
 *
 * Host tensors: a captured copy reads or writes host memory when the graph is launched. So every
 * range of such memory must lie in one tensor with FDRY_TENSOR_HOST, which stays allocated until
 * the seal. A loaded image has these tensors in pinned memory of its own. Their first content
 * depends on their use. Inputs count as external: the program rewrites them before every launch, so
 * their bytes at the seal mean nothing. Outputs are zero. Constants and state have the bytes from
 * the seal.
 *
 * With FDRY_CAPTURE_PINNED, pinned memory that kernels use, or copies of memory in no tensor, comes
 * back at its own address, with its bytes from the seal. That includes the outputs in it. The host
 * tensors in such memory keep their addresses. Without it, such graphs are refused.
 */
struct fdry_tensor {
	const char *name;
	fdry_devptr addr;
	uint32_t dtype;
	uint32_t use;
	uint32_t flags;
	uint32_t rank;
	int64_t shape[FDRY_RANK_MAX];
	int64_t stride[FDRY_RANK_MAX];
};

/* Bytes of one element of @dtype; 0 for an unknown type. */
size_t fdry_dtype_size(uint32_t dtype);

/* A range of device memory. */
struct fdry_memory {
	fdry_devptr addr;
	uint64_t bytes;
};

#ifdef __cplusplus
}
#endif

#endif
