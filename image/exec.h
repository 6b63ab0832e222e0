/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - executable graphs: one for each graph of an image, built once.
 *
 * Building takes the image's turn. What is built is never updated: what is done to an
 * executable later slows its replays for good.
 */
#ifndef FDRY_IMAGE_EXEC_H
#define FDRY_IMAGE_EXEC_H

#include "image/image.h"

/* The position of graph @key; FDRY_E_NOKEY. */
int fdry_exec_index(const struct fdry_image *img, uint64_t key, uint32_t *ret) __must_check;
/* Build graph @i unless it is built; waits for a thread that is building. Any thread, any context.
 * FDRY_E_NODEVMEM if the device has no memory for it: everything else stays usable, and another
 * try may be made later. */
int fdry_exec_need(struct fdry_image *img, uint32_t i) __must_check;
/* The same by the thread that has the ticket, in the image's context. @built says whether this call
 * built it. */
int fdry_exec_build(struct fdry_image *img, uint32_t i, bool *built) __must_check;
/* In the image's context; nothing of it may be in flight. */
void fdry_execs_destroy(struct fdry_image *img);

#endif
