/* SPDX-License-Identifier: Apache-2.0 */
/* image_kinds.h - graphs with nodes of one kind each, of which some cannot be replayed alone. */
#ifndef FDRY_TESTS_LIB_IMAGE_KINDS_H
#define FDRY_TESTS_LIB_IMAGE_KINDS_H

#include "tests/lib/image.h"

enum image_kind {
	KIND_ALLOCATION, /* allocates, writes c[0] and frees */
	KIND_WRITE,      /* a memory operation that writes c[0] */
	KIND_PARENT,     /* a child graph, whose memset writes c[0] */
	KIND_HOST,
	KIND_EVENT,
	KIND_CONDITION,
	KIND_WAIT,       /* a memory operation that waits for ever */
	KIND_HOST_CHILD, /* a child graph with a host node */
	KINDS
};

#define KIND_KEY 10u /* graph KIND_KEY + i has nodes of kind i */

extern int image_kind_calls; /* of host nodes */
/* The function that host nodes call. */
struct fdry_host_function image_kind_function(void);
/* Make a work with a graph of each kind, whose c is state. */
void image_kinds_make(struct work *w);

#endif
