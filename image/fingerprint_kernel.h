/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint_kernel.h - the fingerprint kernel on devices for which the library has no cubin.
 *
 * There the driver compiles the library's PTX. The result is kept in a store (image/compiled.h)
 * under the key that a cache of kernels would give it, so one process of a host compiles it, and
 * the others find it.
 */
#ifndef FDRY_IMAGE_FINGERPRINT_KERNEL_H
#define FDRY_IMAGE_FINGERPRINT_KERNEL_H

#include "graph/fingerprint.h"
#include "store/store.h"

/* As fdry_fingerprinter_new(), and looks for compiled code in @store. If the driver compiled the
 * kernel now, @compiled is its cubin. Nothing is written. */
int fdry_fingerprint_kernel_load(const struct fdry_driver *drv, CUdevice device,
				 struct fdry_store *store, struct fdry_buf *compiled,
				 struct fdry_fingerprinter **ret) __must_check;
/* Keep such a cubin in a store that can be written. A failure is logged and is no error. */
void fdry_fingerprint_kernel_keep(const struct fdry_driver *drv, CUdevice device,
				  struct fdry_store *store, struct fdry_span compiled);

#endif
