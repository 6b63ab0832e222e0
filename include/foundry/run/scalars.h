/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scalars.h - numbers in device memory that change between launches of a graph. Part of
 * foundry/run.h. The rules of foundry.h for errors, threads, handles and units apply.
 *
 * A graph keeps the addresses that its kernels got as arguments, not the bytes at these addresses.
 * A value that changes from launch to launch (a position, a token, a learning rate) therefore lies
 * in device memory: the program puts it there before the capture, and updates it on the stream
 * before each launch.
 */
#ifndef FOUNDRY_RUN_SCALARS_H
#define FOUNDRY_RUN_SCALARS_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/tensor.h"
#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------ scalars --- */

#define FDRY_SCALARS_MAX 512

/* A value of any type; the type says which member is used. Floats of 16 and 8 bits are passed as
 * their bits. */
union fdry_scalars_value {
	uint64_t u64;
	int64_t i64;
	uint32_t u32;
	int32_t i32;
	uint16_t u16;
	int16_t i16;
	uint8_t u8;
	int8_t i8;
	double f64;
	float f32;
	uint8_t bytes[8];
};

/* One number, or several side by side that one operation updates. */
struct fdry_scalars;

/**
 * struct fdry_scalars_opts - What scalars to make.
 * @sz: sizeof(struct fdry_scalars_opts)
 * @driver, @device: as for fdry_cudagraph_new()
 * @count: number of scalars, 1 to FDRY_SCALARS_MAX
 * @dtypes: @count types of enum fdry_dtype, of 1, 2, 4 or 8 bytes
 * @values: @count first values. NULL: 0, or with @addr the bytes that are there
 * @addr: memory of the caller, such as a tensor of a loaded image: 8 bytes for each scalar, at a
 *         multiple of 8; it must stay allocated. 0: the library allocates memory
 * @flags: 0; there are none yet
 */
struct fdry_scalars_opts {
	size_t sz;
	const char *driver;
	int32_t device;
	uint32_t count;
	const uint32_t *dtypes;
	const union fdry_scalars_value *values;
	fdry_devptr addr;
	uint64_t flags;
};

/* Make scalars, and write their first values. Errors: FDRY_E_NODRIVER, FDRY_E_NOGPU, FDRY_E_FORKED,
 * FDRY_E_INVAL, FDRY_E_OPTS (unknown flags), FDRY_E_NODEVMEM. */
int fdry_scalars_new(const struct fdry_scalars_opts *opts, struct fdry_scalars **ret);
/* Wait for pending updates, and free the scalars. Memory of the caller stays. NULL is allowed. */
void fdry_scalars_free(struct fdry_scalars *s);
/* The address of scalar @i, a multiple of 8, which never changes. FDRY_E_RANGE. */
int fdry_scalars_addr(const struct fdry_scalars *s, uint32_t i, fdry_devptr *ret);
/* The number of scalars; 0 for NULL. */
size_t fdry_scalars_count(const struct fdry_scalars *s);
/* The type of scalar @i. FDRY_E_RANGE. */
int fdry_scalars_dtype(const struct fdry_scalars *s, uint32_t i, uint32_t *ret);

/**
 * fdry_scalars_update() - Change @count scalars, from @first on, with one operation.
 * @values: @count values, which are not needed after the call
 * @stream: the stream on which the graph is launched; NULL is the legacy default stream
 *
 * Asynchronous. Earlier work on @stream sees the old values, later work sees the new ones. Up to 32
 * scalars are written by memory operations (cuStreamBatchMemOp), which are faster than a copy, if
 * the library allocated the memory, and the device and the driver have them. Else they are copied
 * from pinned memory. Updates may come faster than launches; with 64 pending copies the next one
 * waits for the first. Either all values change, or none.
 *
 * Errors: FDRY_E_RANGE, FDRY_E_STATE (the stream is capturing: the graph would write this one value
 * at every launch), FDRY_E_INVAL (not a stream of the device's primary context).
 */
int fdry_scalars_update(struct fdry_scalars *s, uint32_t first, uint32_t count,
			const union fdry_scalars_value *values, CUstream stream);
/* Wait for all work that is on @stream now, and read scalar @i. */
int fdry_scalars_read(struct fdry_scalars *s, uint32_t i, union fdry_scalars_value *ret,
		      CUstream stream);

/* ------------------------------------------------------------ decode state --- */

/*
 * The state of a decoder before its next step: the token, its position (the step), and the length
 * of the KV cache, which is the position plus one.
 */
struct fdry_decode_state;

/* The place from which kernels read the state. */
enum fdry_decode_state_source {
	FDRY_DECODE_STATE_ARGS = 0,   /* in arguments: a graph keeps the values of its capture */
	FDRY_DECODE_STATE_DEVICE = 1, /* in device memory: the same graph does every step */
};

/**
 * struct fdry_decode_state_args - The state as an argument of kernels.
 * @token_addr, @position_addr, @length_addr: in device memory, never changing: u32, i32, i32
 * @token, @position, @length: as they were set last
 * @source: of enum fdry_decode_state_source
 *
 * The struct can be a kernel's argument: n = a.source ? *a.position_addr : a.position.
 */
struct fdry_decode_state_args {
	fdry_devptr token_addr, position_addr, length_addr;
	uint32_t token;
	int32_t position, length;
	uint32_t source;
};

/**
 * struct fdry_decode_state_opts - The place of the state.
 * @sz: sizeof(struct fdry_decode_state_opts)
 * @driver, @device: as for fdry_cudagraph_new()
 * @addr: 24 bytes of the caller, at a multiple of 8; 0: the library allocates memory
 */
struct fdry_decode_state_opts {
	size_t sz;
	const char *driver;
	int32_t device;
	uint32_t reserved;
	fdry_devptr addr;
};

/* Make a state with token 0 at step 0, read from arguments. Errors as for fdry_scalars_new(). */
int fdry_decode_state_new(const struct fdry_decode_state_opts *opts,
			  struct fdry_decode_state **ret);
/* NULL is allowed. */
void fdry_decode_state_free(struct fdry_decode_state *d);
/**
 * fdry_decode_state_set() - Go to a step: write all three numbers by one operation on @stream.
 *
 * As fdry_scalars_update(). The call always writes the numbers, so the source may be switched at
 * any time. Errors: those, and FDRY_E_RANGE for a step whose length no i32 holds.
 */
int fdry_decode_state_set(struct fdry_decode_state *d, uint32_t token, uint32_t step,
			  CUstream stream);
/* Choose where kernels read the state: of enum fdry_decode_state_source, else FDRY_E_INVAL. */
int fdry_decode_state_use(struct fdry_decode_state *d, uint32_t source);
int fdry_decode_state_args(struct fdry_decode_state *d, struct fdry_decode_state_args *ret);

#ifdef __cplusplus
}
#endif

#endif
