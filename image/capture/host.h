/* SPDX-License-Identifier: Apache-2.0 */
/* host.h - checks host memory that a program names. */
#ifndef FDRY_IMAGE_CAPTURE_HOST_H
#define FDRY_IMAGE_CAPTURE_HOST_H

#include "image/capture/capture.h"

/**
 * fdry_capture_host_look() - Look at the memory of a host tensor.
 * @t: with a description and an extent of at least 1
 * @serial: gets the driver's number for the allocation, never used twice; 0 for pageable memory,
 * which has none
 *
 * FDRY_E_RANGE if it is not host memory, cannot be read, or lies in more than one pinned
 * allocation. The capture's context need not be current.
 */
int fdry_capture_host_look(const struct fdry_capture *cap, const struct fdry_capture_tensor *t,
			   uint64_t *serial) __must_check;

/* FDRY_E_STATE if the memory that the program named was replaced or freed. */
int fdry_capture_host_still(const struct fdry_capture *cap,
			    const struct fdry_capture_tensor *t) __must_check;

#endif
