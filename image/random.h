/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.h - random numbers of a loaded image: states of its generators, and the cells that are
 * written before a launch. foundry/rng.h has what callers see.
 *
 * Locking: the lock of struct fdry_random guards the states, and is held from before a launch's
 * cells are written until it was launched: nothing comes between the two on a stream. It is taken
 * before own->lock and overlap->lock, and not for graphs that draw nothing.
 */
#ifndef FDRY_IMAGE_RANDOM_H
#define FDRY_IMAGE_RANDOM_H

#include "image/image.h"

/* A launch: of graph @graph, by position, from @states or, if that is NULL, from the image's
 * own. */
struct fdry_launch {
	uint32_t graph;
	CUstream stream;
	const struct fdry_rng_state *states;
};

/* The manifest is there; makes nothing if no graph draws. */
int fdry_random_new(struct fdry_image *img) __must_check;
void fdry_random_free(struct fdry_image *img);
/* Before that, while there is a context: what it has of the driver's. */
void fdry_random_end(struct fdry_image *img);

/* Run @fn, which launches @l, under the lock if the graph draws; what it draws is counted where
 * @fn succeeded. */
int fdry_random_launch(struct fdry_image *img, const struct fdry_launch *l,
		       int (*fn)(struct fdry_image *img, const struct fdry_launch *l)) __must_check;
/* For such a function: write the cells, if any, on the launch's stream, behind the launch that drew
 * before, in the primary context, which is current. Nothing else may be launched on that stream
 * before the graph. */
int fdry_random_write(struct fdry_image *img, const struct fdry_launch *l) __must_check;
/* After that, whether the graph was launched or not: the next one comes behind. */
void fdry_random_written(struct fdry_image *img, const struct fdry_launch *l);

#endif
