/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - a loaded image, as load.c makes it and image.c and launch.c use it.
 *
 * Manifest and graph objects are verified copies that live as long as the image: no
 * store session outlives the load. Memory, kernels and execs belong to the device's
 * primary context. Locking: @lock guards building and the set of filled tensors; what
 * else is here does not change after the load.
 */
#ifndef FDRY_API_IMAGE_H
#define FDRY_API_IMAGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/foundry.h"
#include "api/manifest.h"
#include "arch/driver.h"
#include "graph/graph.h"
#include "mm/region.h"
#include "store/store.h"

struct fdry_image_exec {
	struct fdry_buf bytes; /* the graph object */
	struct fdry_graph_view view;
	struct fdry_graph_built built;
	_Atomic(CUgraphExec) exec; /* NULL until built */
};

struct fdry_image {
	struct fdry_oid id;
	struct fdry_store *store; /* a reference of its own, for restoring content */
	const struct fdry_driver *drv;
	CUdevice device;
	CUcontext ctx; /* primary, retained */
	CUstream stream; /* for content and uploads */
	struct fdry_buf bytes; /* the manifest */
	struct fdry_manifest m;
	struct fdry_region *region;
	struct fdry_kernel *kernels;
	struct fdry_kernel_bank *bank;
	struct fdry_image_exec *execs; /* by position in m.graphs */
	pthread_mutex_t lock;
	uint8_t *filled;           /* by position in m.tensors: external and filled */
	_Atomic uint32_t unfilled; /* external tensors that are not */
	struct fdry_load_report report;
};

/* Make the image's context current for a while; leave undoes enter. */
int fdry_image_enter(const struct fdry_image *img) __must_check;
void fdry_image_leave(const struct fdry_image *img);

/* content.c: copy every chunk to its address, verified; zero what is in none where @zero. Counts into the report. */
int fdry_image_content(struct fdry_image *img, struct fdry_get *get, bool verify, bool zero) __must_check;

#endif
