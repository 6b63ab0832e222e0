/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint_kernel.h - loads the fingerprint kernel on devices for which the library has no
 * cubin.
 *
 * For such a device, the driver compiles the library's PTX. A store keeps the result
 * (image/compiled.h) under the key that a cache of kernels would use. So one process of a host
 * compiles it, and the others find it.
 */
#ifndef FDRY_IMAGE_FINGERPRINT_KERNEL_H
#define FDRY_IMAGE_FINGERPRINT_KERNEL_H

#include "graph/fingerprint.h"
#include "store/store.h"

/* Load the kernel into the current context: the library's cubin for the device, a compiled one from
 * @store, or the library's PTX. If the driver compiles the PTX, @compiled receives the cubin. Does
 * not write to @store. Errors: FDRY_E_NOFUNC if there is no code for the device; those of the
 * driver. */
int fdry_fingerprint_kernel_load(const struct fdry_driver *drv, CUdevice device,
				 struct fdry_store *store, struct fdry_buf *compiled,
				 struct fdry_fingerprinter **ret) __must_check;
/* Write such a cubin to a store that is not read-only. A failure is only logged. */
void fdry_fingerprint_kernel_keep(const struct fdry_driver *drv, CUdevice device,
				  struct fdry_store *store, struct fdry_span compiled);

#endif
