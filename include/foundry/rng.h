/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rng.h - graphs that draw random numbers. Part of foundry.h, whose rules for errors,
 * threads and units hold here.
 *
 * A kernel that draws reads a seed and an offset, 8 bytes each, from two cells of device
 * memory; what a launch draws is counted by its offset. PyTorch's generators are such, and so may
 * be anybody's. Whoever replays a graph writes the cells before, and adds what the graph draws to
 * the offset: in the loading process that is the library, on the launch's own stream.
 *
 *   Capturing                       Loading
 *   fdry_capture_rng_use()          fdry_image_rng_seed()          or
 *                                   fdry_image_rng_set_state()     or
 *                                   fdry_image_launch_rng()        the caller keeps the state
 *                                   fdry_image_launch()
 *
 * Documentation/design/random.rst says how it is done.
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

/* What a generator that nobody has seeded begins with, as PyTorch's do. */
#define FDRY_RNG_SEED 67280421310721ull

/* Of a generator. The offset wraps around at 2^64. */
struct fdry_rng_state {
	uint64_t seed;
	uint64_t offset;
};

/**
 * struct fdry_rng_use - What one graph draws from one generator.
 * @generator: its name, as a tensor's; graphs that name the same one share its state. In what the
 *             library returns it belongs to the image
 * @seed: address of the 8 bytes that the graph's kernels read the seed from, a multiple of 8
 * @offset: the same for the offset; another cell
 * @increment: what a launch of the graph adds to the generator's offset
 */
struct fdry_rng_use {
	const char *generator;
	fdry_devptr seed;
	fdry_devptr offset;
	uint64_t increment;
};

/**
 * fdry_capture_rng_use() - Say from which generator graph @key draws random numbers.
 * @draw: is copied; the cells lie in live memory of the region, in no external tensor
 *
 * Once for each generator of a graph, after fdry_capture_graph(). Several graphs may have the same
 * cells, or each its own. A graph that fdry_capture_rng() was called for can be sealed when its
 * generators are declared: all of them, which only the caller can know.
 *
 * The seal sets the cells to zero, since their bytes mean nothing, and refuses (FDRY_E_REFUSED) a graph
 * where no kernel is given the cell's address, or where a copy or memset touches one.
 * Errors: FDRY_E_NOKEY; FDRY_E_NAME; FDRY_E_RANGE (no live memory of the region, or no multiple of 8); FDRY_E_INVAL (one
 * cell for both); FDRY_E_EXISTS (this graph and generator were declared, or a cell is another generator's of the graph);
 * FDRY_E_REFUSED (memory that no image can hold).
 */
int fdry_capture_rng_use(struct fdry_capture *cap, uint64_t key, const struct fdry_rng_use *draw);

/* 8 bytes of device memory. */
struct fdry_rng_slot {
	fdry_devptr addr;
	uint64_t value;
};

/**
 * fdry_capture_rng_slots() - Read what the arguments of a graph's kernels point to.
 * @cells: gets up to @max of them, ascending by address, each once: the first 8 bytes where a word of an argument,
 *         at any multiple of 4, is a multiple of 8 and points into live memory of the region
 * @ret: how many there are, which may be more than @max
 *
 * For finding cells that somebody else writes, such as those of a framework's generator: let it write
 * values that nothing else has, and look where they are. Waits for the device.
 * Errors: FDRY_E_NOKEY, FDRY_E_DRIVER, FDRY_E_STATE while a stream captures.
 */
int fdry_capture_rng_slots(struct fdry_capture *cap, uint64_t key, struct fdry_rng_slot *cells, size_t max, size_t *ret);

/* The generators that an image's graphs draw from, by name; FDRY_E_NOKEY past the end. */
size_t fdry_image_rng_count(const struct fdry_image *img);
int fdry_image_rng(const struct fdry_image *img, size_t i, const char **name);
/* What graph @key draws, by generator's name: the @i'th of it; FDRY_E_NOKEY past the end. */
int fdry_image_rng_use(const struct fdry_image *img, uint64_t key, size_t i, struct fdry_rng_use *ret);

/**
 * fdry_image_rng_seed() - Seed a generator: its seed becomes @seed and its offset 0.
 * @generator: its name; NULL: every one of the image
 *
 * Holds for launches that come after it in time, whatever stream they are on. Generators begin with
 * FDRY_RNG_SEED and 0. FDRY_E_NOKEY where the image has no such generator.
 */
int fdry_image_rng_seed(struct fdry_image *img, const char *generator, uint64_t seed);
/* Ask for a generator's state: what the next launch begins with. FDRY_E_NOKEY. */
int fdry_image_rng_state(struct fdry_image *img, const char *generator, struct fdry_rng_state *ret);
/* Set it. FDRY_E_NOKEY. */
int fdry_image_rng_set_state(struct fdry_image *img, const char *generator, const struct fdry_rng_state *state);
/* Pass over @count of what @generator gives: somebody else has drawn them. FDRY_E_NOKEY. */
int fdry_image_rng_advance(struct fdry_image *img, const char *generator, uint64_t count);

/**
 * fdry_image_launch_rng() - Launch a graph with generators in states of the caller's.
 * @states: @n of them, one for each generator of the image, by position
 *
 * As fdry_image_launch(), which uses the image's own states and moves them on once for each launch that
 * succeeds. This one neither uses nor changes them: the caller adds the increments to its own.
 * Either way the cells are written on @stream right before the launch, and another launch of a graph
 * that draws, by whatever thread and on whatever stream, comes before or after both. FDRY_E_INVAL where @n is not the number of generators.
 */
int fdry_image_launch_rng(struct fdry_image *img, uint64_t key, CUstream stream,
			     const struct fdry_rng_state *states, size_t n);

#ifdef __cplusplus
}
#endif

#endif
