/* SPDX-License-Identifier: Apache-2.0 */
/* image_host.h - a capturing process whose graphs copy from and to host memory. */
#ifndef FDRY_TESTS_LIB_IMAGE_HOST_H
#define FDRY_TESTS_LIB_IMAGE_HOST_H

#include "tests/lib/image.h"

#define PAGE 4096u

/* The program's host memory: the pinned vectors in, out, table and state, and one that is not
 * pinned.
 */
struct host_work {
	struct work w;
	float *in, *out, *table, *state, *plain;
};

float *pinned(size_t bytes);
void host_tensor(struct work *w, const char *name, const void *at, uint32_t use);
void host_make(struct host_work *h, bool swapped);
void tensors_name(struct host_work *h);
void host_end(struct host_work *h);

#endif
