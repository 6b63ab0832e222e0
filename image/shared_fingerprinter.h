/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared_fingerprinter.h - one fingerprinter for all images of the process in a context.
 *
 * The first image loads its kernel. The last one that returns it unloads the kernel and frees its
 * device memory.
 *
 * Locking: any thread may call; the fingerprints of one image are computed after those of another.
 * A child of fork() finds none of its parent's fingerprinters.
 */
#ifndef FDRY_IMAGE_SHARED_FINGERPRINTER_H
#define FDRY_IMAGE_SHARED_FINGERPRINTER_H

#include "graph/fingerprint.h"
#include "store/store.h"

struct fdry_shared_fingerprinter;

/* Find or make the fingerprinter of the current context, whose device is @device. Compiled code is
 * looked for in @store. Errors: those of fdry_fingerprinter_new(), FDRY_E_NOMEM. */
int fdry_shared_fingerprinter_get(const struct fdry_driver *drv, CUdevice device,
				  struct fdry_store *store,
				  struct fdry_shared_fingerprinter **ret) __must_check;
/* If the driver compiled its kernel, and no call has kept it, keep it in @store. NULL is fine. */
void fdry_shared_fingerprinter_keep(struct fdry_shared_fingerprinter *s,
				    struct fdry_store *store);
/* Its context is current. NULL is fine. */
void fdry_shared_fingerprinter_put(struct fdry_shared_fingerprinter *s);

/* As fdry_fingerprinter_start() and fdry_fingerprinter_wait(), one after the other. */
int fdry_shared_fingerprinter_run(struct fdry_shared_fingerprinter *s, CUstream stream,
				  const struct fdry_fingerprint_range *ranges, size_t n,
				  struct fdry_fingerprint *ret) __must_check;

#endif
