/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - executable graphs: one for each graph of an image, built once.
 *
 * A thread that builds holds the image's ticket. An exec is never updated, because every update
 * makes all its later launches slower; but the values of semaphores must change.
 */
#ifndef FDRY_IMAGE_EXEC_H
#define FDRY_IMAGE_EXEC_H

#include "image/image.h"

struct fdry_launch; /* random.h */

/* The position of graph @key; FDRY_E_NOKEY. */
int fdry_exec_index(const struct fdry_image *img, uint64_t key, uint32_t *ret) __must_check;
/* Build graph @i unless it is built, and wait for a thread that is building. Any thread, any
 * context. FDRY_E_NODEVMEM if the device has too little memory: the image stays usable, and the
 * caller may try again later. */
int fdry_exec_need(struct fdry_image *img, uint32_t i) __must_check;
/* Build graph @i unless it is built. The caller holds the ticket, and the image's context is
 * current. @built: whether this call built it, as the first one. */
int fdry_exec_build(struct fdry_image *img, uint32_t i, bool *built) __must_check;
/* Build all graphs, in the caller's order. */
int fdry_execs_build(struct fdry_image *img) __must_check;
/* Build the first @n graphs in the caller's order, until *@stop is set, or one fails. The
 * background thread tries that again. */
void fdry_execs_begin(struct fdry_image *img, uint32_t n, const _Atomic bool *stop);
/* Give the semaphores of graph @i the values that they have now, if it is built. The caller holds
 * the ticket, the image's context is current, and no other thread launches the graph. After a
 * failure the graph is not built. */
int fdry_exec_semaphores_set(struct fdry_image *img, uint32_t i) __must_check;
/* The inputs that exec @x is built from. */
struct fdry_graph_builder fdry_exec_builder(const struct fdry_image *img,
					    const struct fdry_image_exec *x);
/* Launch the exec of @l, which is of graph @l->graph, as a launch of that graph: with its random
 * state, and in the order of the stream. Memory must hold what graphs expect. */
int fdry_exec_launch(struct fdry_image *img, const struct fdry_launch *l) __must_check;
/* Destroy the exec of graph @i. The image's context is current, and no launch of it may be in
 * flight. */
void fdry_execs_destroy(struct fdry_image *img);

#endif
