/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rng.h - graphs that draw random numbers. Part of foundry.h, whose rules for errors, threads,
 * handles and units apply.
 *
 * A kernel that draws random numbers reads a seed and an offset, 8 bytes each, from two slots of
 * device memory. The offset counts the numbers that launches draw. PyTorch's generators work like
 * this, and others may. Before each replay, a framework writes both slots, and then adds the count
 * of numbers that the graph draws to the offset. In a loading process the library does this, on the
 * stream of the launch.
 *
 *   Capturing                       Loading
 *   fdry_capture_rng_use()          fdry_image_rng_seed()          or
 *                                   fdry_image_rng_set_state()     or
 *                                   fdry_image_launch_rng()        the caller keeps the state
 *                                   fdry_image_launch()
 *
 * Documentation/design/random.rst explains how it works.
 */
#ifndef FOUNDRY_RNG_H
#define FOUNDRY_RNG_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fdry_capture;
struct fdry_image;

/* The seed of a generator before it is seeded; PyTorch has the same. */
#define FDRY_RNG_SEED 67280421310721ull

/* The state of a generator. The offset wraps around at 2^64. */
struct fdry_rng_state {
	uint64_t seed;
	uint64_t offset;
};

/**
 * struct fdry_rng_use - How one graph uses one generator.
 * @generator: its name, with the rules of tensor names. Graphs that name the same generator share
 *         its state. A name that the library returns belongs to the image
 * @seed: address of the 8 bytes from which the graph's kernels read the seed, a multiple of 8
 * @offset: the same for the offset; another slot
 * @increment: the number that a launch of the graph adds to the generator's offset
 */
struct fdry_rng_use {
	const char *generator;
	fdry_devptr seed;
	fdry_devptr offset;
	uint64_t increment;
};

/**
 * fdry_capture_rng_use() - Declare a generator from which graph @key draws random numbers.
 * @use: is copied; its slots lie in live memory of the region, and in no external tensor
 *
 * Call it once for each generator of a graph, after fdry_capture_graph(). Several graphs may use
 * the same slots, or each its own. A graph that was marked with fdry_capture_rng() can be sealed
 * when its generators are declared. Only the caller can know that these are all.
 *
 * The seal sets the slots to zero, because their bytes mean nothing. It refuses (FDRY_E_REFUSED) a
 * graph if no kernel gets the slot's address, or if a copy or memset touches a slot.
 *
 * Errors: FDRY_E_NOKEY; FDRY_E_NAME; FDRY_E_RANGE (no live memory of the region, or no multiple of
 * 8); FDRY_E_INVAL (one slot for both); FDRY_E_EXISTS (this graph and generator were declared
 * before, or another generator of the graph uses a slot); FDRY_E_REFUSED (memory that no image can
 * hold).
 */
int fdry_capture_rng_use(struct fdry_capture *cap, uint64_t key, const struct fdry_rng_use *use);

/* 8 bytes of device memory. */
struct fdry_rng_slot {
	fdry_devptr addr;
	uint64_t value;
};

/**
 * fdry_capture_rng_slots() - Read the memory that the nodes of a graph point to.
 * @slots: gets at most @max slots, ascending by address, each once. A slot is found for each word
 *         of a kernel's argument, at a multiple of 4, that points into live memory of the region,
 *         and for the addresses of copies and memsets there. A slot's address is rounded down to a
 *         multiple of 8. Its value is the 8 bytes there
 * @ret: the number of slots, which may be larger than @max
 *
 * The call helps to find slots that other code writes, such as those of a framework's generator:
 * let the framework write values that appear nowhere else, and search for them in @slots. The call
 * waits for the device.
 * Errors: FDRY_E_NOKEY, FDRY_E_DRIVER, FDRY_E_STATE while a stream captures.
 */
int fdry_capture_rng_slots(struct fdry_capture *cap, uint64_t key, struct fdry_rng_slot *slots,
			   size_t max, size_t *ret);

/* The generators of an image's graphs, by name; FDRY_E_NOKEY past the end. */
size_t fdry_image_rng_count(const struct fdry_image *img);
int fdry_image_rng(const struct fdry_image *img, size_t i, const char **name);
/* The @i'th generator that graph @key uses, by name; FDRY_E_NOKEY past the end. */
int fdry_image_rng_use(const struct fdry_image *img, uint64_t key, size_t i,
		       struct fdry_rng_use *ret);

/**
 * fdry_image_rng_seed() - Seed a generator: set its seed to @seed and its offset to 0.
 * @generator: its name; NULL: every generator of the image
 *
 * All later launches use it, on any stream. Generators begin with FDRY_RNG_SEED and 0.
 * FDRY_E_NOKEY if the image has no such generator.
 */
int fdry_image_rng_seed(struct fdry_image *img, const char *generator, uint64_t seed);
/* Read a generator's state: the one that the next launch begins with. FDRY_E_NOKEY. */
int fdry_image_rng_state(struct fdry_image *img, const char *generator,
			 struct fdry_rng_state *ret);
/* Set it. FDRY_E_NOKEY. */
int fdry_image_rng_set_state(struct fdry_image *img, const char *generator,
			     const struct fdry_rng_state *state);
/* Skip @count numbers of @generator, because other code has drawn them. FDRY_E_NOKEY. */
int fdry_image_rng_advance(struct fdry_image *img, const char *generator, uint64_t count);

/**
 * fdry_image_launch_rng() - Launch a graph with the caller's states of generators.
 * @states: @n states, one for each generator of the image, by position
 *
 * As fdry_image_launch(), which uses the image's own states and advances them for each launch that
 * succeeds. This call neither uses nor changes them: the caller adds the increments to its own.
 * Both write the slots on @stream right before the launch. The write and the launch are one step:
 * launches of other graphs that draw, from any thread or stream, come before or after both.
 * FDRY_E_INVAL if @n is not the number of generators.
 */
int fdry_image_launch_rng(struct fdry_image *img, uint64_t key, CUstream stream,
			  const struct fdry_rng_state *states, size_t n);

#ifdef __cplusplus
}
#endif

#endif
