/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.h - random numbers of a loaded image: states of its generators, and the cells that are
 * written before a launch. foundry/rng.h has what callers see.
 *
 * Locking: the lock of struct fdry_random guards the states. A launch holds it from before it
 * writes the cells until the graph was launched, so nothing comes between the two on a stream. A
 * thread takes it before the locks of private_ctx.c and overlap.c. A graph that draws nothing
 * needs no lock.
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

/* The manifest was read. Makes nothing if no graph draws. */
int fdry_random_new(struct fdry_image *img) __must_check;
void fdry_random_free(struct fdry_image *img);
/* Before that, while the image has a context: destroy the event. */
void fdry_random_event_free(struct fdry_image *img);

/* Around a launch, in the primary context. The end takes the result of the launch: if it is 0, the
 * states move on by what the graph draws. Neither does anything for a graph that draws nothing. */
void fdry_random_begin(struct fdry_image *img, const struct fdry_launch *l);
void fdry_random_end(struct fdry_image *img, const struct fdry_launch *l, int err);
/* Between the two: write the cells on the launch's stream, behind the launch that drew before. The
 * graph must be the next launch on that stream. */
int fdry_random_write(struct fdry_image *img, const struct fdry_launch *l) __must_check;

#endif
