/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.h - random numbers of a loaded image. A generator's state is a seed and an offset. Before
 * each launch of a graph that draws, they are written to two cells, from which its kernels read
 * them. foundry/rng.h is the public part.
 *
 * Locking: the lock of struct fdry_random guards the states. A launch holds it from before it
 * writes the cells until the graph was launched, so no other launch comes between the two on a
 * stream. A thread takes it before the locks of private_ctx.c and overlap.c. A graph that draws
 * nothing needs no lock.
 */
#ifndef FDRY_IMAGE_RANDOM_H
#define FDRY_IMAGE_RANDOM_H

#include "image/image.h"

/* A launch of the graph at position @graph. It draws from @states; if that is NULL, from the
 * image's own states. */
struct fdry_launch {
	uint32_t graph;
	CUgraphExec exec;
	CUstream stream;
	const struct fdry_rng_state *states;
};

/* Make the states, after the manifest was read. Makes nothing if no graph draws. */
int fdry_random_new(struct fdry_image *img) __must_check;
void fdry_random_free(struct fdry_image *img);
/* Destroy the event. Must come before fdry_random_free(), while the image has a context. */
void fdry_random_event_free(struct fdry_image *img);

/* Call these before and after a launch, in the primary context. @err: the result of the launch; if
 * it is 0, the offsets advance by what the graph draws. Both do nothing for a graph that draws
 * nothing. */
void fdry_random_begin(struct fdry_image *img, const struct fdry_launch *l);
void fdry_random_end(struct fdry_image *img, const struct fdry_launch *l, int err);
/* Write the cells on the launch's stream, after the last launch that drew. Call it between begin
 * and end; the graph must be the next launch on that stream. */
int fdry_random_write(struct fdry_image *img, const struct fdry_launch *l) __must_check;

#endif
