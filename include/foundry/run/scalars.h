/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scalars.h - numbers in device memory that change between launches of a graph. Part of
 * foundry.h, whose rules for errors, threads and units hold here.
 *
 * A graph keeps the addresses that its kernels were given, not what lies there. What
 * changes from launch to launch (a position, a token, a learning rate) is put into device
 * memory before the capture, and updated on the stream before each launch.
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

/* A value of any type; the member that goes with the type is used. 16-bit and 8-bit floats go by their bits. */
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

/* One number, or several side by side that are updated in one copy. */
struct fdry_scalars;

/**
 * struct fdry_scalars_opts - What scalars to make.
 * @sz: sizeof(struct fdry_scalars_opts)
 * @driver, @device: as for fdry_cudagraph_new()
 * @count: how many, 1 to FDRY_SCALARS_MAX
 * @dtypes: @count types of enum fdry_dtype, of 1, 2, 4 or 8 bytes
 * @values: what they begin with, @count of them; NULL: 0, or with @addr what is there
 * @addr: memory of the caller's, such as a tensor of a loaded image: 8 bytes for each, a multiple of 8, which stays
 *        allocated; 0: memory of their own
 */
struct fdry_scalars_opts {
	size_t sz;
	const char *driver;
	int32_t device;
	uint32_t count;
	const uint32_t *dtypes;
	const union fdry_scalars_value *values;
	fdry_devptr addr;
};

/* Made, and their first values there. FDRY_E_NODRIVER, FDRY_E_NOGPU, FDRY_E_FORKED, FDRY_E_INVAL, FDRY_E_NODEVMEM. */
int fdry_scalars_new(const struct fdry_scalars_opts *opts, struct fdry_scalars **ret);
/* Waits for updates under way. The memory goes, unless it is the caller's. NULL is fine. */
void fdry_scalars_free(struct fdry_scalars *s);
/* Where scalar @i lies: the same for its whole life, a multiple of 8. FDRY_E_RANGE. */
int fdry_scalars_addr(const struct fdry_scalars *s, uint32_t i, fdry_devptr *ret);
/* How many there are; 0 for NULL. */
size_t fdry_scalars_count(const struct fdry_scalars *s);
/* The type of scalar @i. FDRY_E_RANGE. */
int fdry_scalars_dtype(const struct fdry_scalars *s, uint32_t i, uint32_t *ret);

/**
 * fdry_scalars_update() - Change @count scalars, from @first on, in one copy.
 * @values: @count of them, not needed after the call
 * @stream: the one that the graph is launched on; NULL is the legacy default stream
 *
 * Asynchronous: work that @stream was given before sees the old values, what it is given later
 * the new ones. Values are kept in pinned memory until they are copied, so updates may come faster than
 * launches: with 64 of them under way the next waits for the first. All of the values change, or none.
 * Errors: FDRY_E_RANGE, FDRY_E_STATE (the stream captures: a graph would write this one value at every launch),
 * FDRY_E_INVAL (not a stream of the device's primary context).
 */
int fdry_scalars_update(struct fdry_scalars *s, uint32_t first, uint32_t count,
			const union fdry_scalars_value *values, CUstream stream);
/* What scalar @i is when everything that @stream was given is done; waits for that. */
int fdry_scalars_read(struct fdry_scalars *s, uint32_t i, union fdry_scalars_value *ret, CUstream stream);

/* ------------------------------------------------------------ decode state --- */

/*
 * What the next step of a decoder needs to know: the token, its position, which is the step, and
 * the length of the KV cache with it, which is one more.
 */
struct fdry_decode_state;

/* Where code takes it from. */
enum fdry_decode_state_source {
	FDRY_DECODE_STATE_ARGS = 0,   /* from arguments: a graph keeps the values of its capture */
	FDRY_DECODE_STATE_DEVICE = 1, /* from device memory: the same graph does every step */
};

/**
 * struct fdry_decode_state_args - What to give to kernels.
 * @token_addr, @position_addr, @length_addr: in device memory, the same for ever: u32, i32, i32
 * @token, @position, @length: as they were set last
 * @source: of enum fdry_decode_state_source
 *
 * Can be a kernel's argument as it is: n = a.source ? *a.position_addr : a.position.
 */
struct fdry_decode_state_args {
	fdry_devptr token_addr, position_addr, length_addr;
	uint32_t token;
	int32_t position, length;
	uint32_t source;
};

/**
 * struct fdry_decode_state_opts - Where the state lies.
 * @sz: sizeof(struct fdry_decode_state_opts)
 * @driver, @device: as for fdry_cudagraph_new()
 * @addr: 24 bytes of the caller's, a multiple of 8; 0: memory of its own
 */
struct fdry_decode_state_opts {
	size_t sz;
	const char *driver;
	int32_t device;
	uint32_t reserved;
	fdry_devptr addr;
};

/* Token 0 at step 0, from arguments. Errors as for fdry_scalars_new(). */
int fdry_decode_state_new(const struct fdry_decode_state_opts *opts, struct fdry_decode_state **ret);
/* NULL is fine. */
void fdry_decode_state_free(struct fdry_decode_state *d);
/**
 * fdry_decode_state_set() - Go to a step: all three numbers in one copy on @stream.
 *
 * As fdry_scalars_update(), whatever the source is, so that the source may be switched at any time.
 * Errors: those, and FDRY_E_RANGE for a step whose length no i32 holds.
 */
int fdry_decode_state_set(struct fdry_decode_state *d, uint32_t token, uint32_t step, CUstream stream);
/* Choose where code that asks takes it from: of enum fdry_decode_state_source, else FDRY_E_INVAL. */
int fdry_decode_state_use(struct fdry_decode_state *d, uint32_t source);
int fdry_decode_state_args(const struct fdry_decode_state *d, struct fdry_decode_state_args *ret);

#ifdef __cplusplus
}
#endif

#endif
