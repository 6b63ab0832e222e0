/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects.h - reads and verifies an image's kernel and graph objects, in parallel with the rest of
 * a load.
 *
 * Reading begins as soon as the manifest was read. It runs while the driver starts, memory is
 * mapped and content is copied. Kernel objects come first, in the order in which kernels are
 * loaded. Graph objects follow, in the order of expected first launches.
 */
#ifndef FDRY_IMAGE_OBJECTS_H
#define FDRY_IMAGE_OBJECTS_H

#include "image/image.h"

struct fdry_objects;

/* The options of a load for order and threads. */
struct fdry_objects_opts {
	const uint64_t *order; /* @norder keys of graphs, in the order of first launches */
	size_t norder;
	unsigned int threads;  /* the most threads; 0: as many as are useful */
};

/**
 * fdry_objects_start() - Start reading.
 * @img: its manifest is set; gets the kernel table, the order and the array of execs
 * @reader: the load's reader, which must stay open until fdry_objects_free()
 *
 * Errors: FDRY_E_NOKEY if @opts->order names a graph that the image does not have, FDRY_E_EXISTS if
 * it names one twice.
 */
int fdry_objects_start(struct fdry_image *img, struct fdry_reader *reader,
		       const struct fdry_objects_opts *opts,
		       struct fdry_objects **ret) __must_check;
/* A fdry_object_get_fn whose @arg is a struct fdry_objects. It waits for the object, whose bytes
 * are valid until fdry_objects_free(). */
int fdry_objects_kernel(void *arg, const struct fdry_oid *oid, struct fdry_span *ret) __must_check;
/* Wait until every graph object is read, verified and checked against the kernel table. Adds the
 * time and bytes to the load's report. */
int fdry_objects_finish(struct fdry_objects *o) __must_check;
/* Is there a kernel object that no other image has loaded? */
bool fdry_objects_have_kernels(const struct fdry_objects *o);
/* Wait for objects that are being read, then free everything. @o may be NULL. */
void fdry_objects_free(struct fdry_objects *o);

#endif
