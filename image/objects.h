/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects.h - an image's kernel and graph objects, read and verified beside everything else.
 *
 * Reading begins as soon as the manifest is there and goes on while the driver starts,
 * memory is mapped and content is on its way: kernel objects first, in the order in which
 * kernels are loaded, then graph objects in the order in which graphs are expected.
 */
#ifndef FDRY_IMAGE_OBJECTS_H
#define FDRY_IMAGE_OBJECTS_H

#include "image/image.h"

struct fdry_objects;

/* What a load asks for that concerns order and threads. */
struct fdry_objects_opts {
	const uint64_t *order; /* @norder keys of graphs, the first to be launched first */
	size_t norder;
	unsigned int threads;  /* at most; 0: as many as pay */
};

/**
 * fdry_objects_start() - Begin to read.
 * @img: its manifest is open; gets the kernel table, the order and the array of execs
 * @reader: the load's session, which outlives the reading
 *
 * Errors: FDRY_E_NOKEY if @opts->order names a graph that is not there, FDRY_E_EXISTS if it
 * names one twice.
 */
int fdry_objects_start(struct fdry_image *img, struct fdry_reader *reader,
		       const struct fdry_objects_opts *opts,
		       struct fdry_objects **ret) __must_check;
/* A fdry_object_get_fn, whose @arg is a struct fdry_objects: waits for the object; its bytes live
 * until fdry_objects_free(). */
int fdry_objects_kernel(void *arg, const struct fdry_oid *oid, struct fdry_span *ret) __must_check;
/* Until every graph object is read, verified and checked against the kernel table; reports what it
 * took. */
int fdry_objects_finish(struct fdry_objects *o) __must_check;
/* Waits for what is being read. NULL is fine. */
void fdry_objects_free(struct fdry_objects *o);

#endif
