/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared_fingerprinter.h - one fingerprinter for all images of the process in a context.
 *
 * A fingerprinter computes fingerprints of device memory by a kernel (graph/fingerprint.h). The
 * first image loads the kernel. The last image that returns the fingerprinter unloads it and frees
 * its device memory.
 *
 * Locking: any thread may call, also beside others. A child of fork() finds none of its parent's
 * fingerprinters.
 */
#ifndef FDRY_IMAGE_SHARED_FINGERPRINTER_H
#define FDRY_IMAGE_SHARED_FINGERPRINTER_H

#include "graph/fingerprint.h"
#include "store/store.h"

struct fdry_shared_fingerprinter;

/* Find or make the fingerprinter of the current context, whose device is @device. Compiled code of
 * the kernel is read from @store, which may be NULL, if it is there. Errors: those of
 * fdry_fingerprint_kernel_load(), FDRY_E_NOMEM. */
int fdry_shared_fingerprinter_get(const struct fdry_driver *drv, CUdevice device,
				  struct fdry_store *store,
				  struct fdry_shared_fingerprinter **ret) __must_check;
/* If the driver compiled the kernel, and no call has stored the compiled code yet, write it to
 * @store. @s may be NULL. */
void fdry_shared_fingerprinter_keep(struct fdry_shared_fingerprinter *s,
				    struct fdry_store *store);
/* Return the fingerprinter, unless @s is NULL. Its context must be current. */
void fdry_shared_fingerprinter_put(struct fdry_shared_fingerprinter *s);

/* Take a fingerprinter for one computation: the shared one, or if that is taken, another one with
 * its kernel. FDRY_E_NOMEM. */
int fdry_shared_fingerprinter_take(struct fdry_shared_fingerprinter *s,
				   struct fdry_fingerprinter **ret) __must_check;
/* Return it, and cancel what it has begun. Its context must be current. */
void fdry_shared_fingerprinter_return(struct fdry_shared_fingerprinter *s,
				      struct fdry_fingerprinter *f);
/* Call fdry_fingerprinter_start(), then fdry_fingerprinter_wait(). */
int fdry_shared_fingerprinter_run(struct fdry_shared_fingerprinter *s, CUstream stream,
				  const struct fdry_fingerprint_range *ranges, size_t n,
				  struct fdry_fingerprint *ret) __must_check;

#endif
