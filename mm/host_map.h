/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_map.h - pinned host memory at addresses that the caller chooses.
 *
 * The driver's own pinned memory lies at addresses of its choice. So this file maps memory at a
 * fixed place and registers it with the driver. Device and host then use one address, if the device
 * can use host pointers of registered memory, which fdry_host_map_check() finds out.
 *
 * A mapping replaces no other, and a child of fork() does not inherit it: the device writes to the
 * pages of the parent, and copy-on-write would separate the parent from them.
 */
#ifndef FDRY_MM_HOST_MAP_H
#define FDRY_MM_HOST_MAP_H

#include "arch/driver.h"

/* FDRY_E_DRIVER if the device uses other addresses than the host for registered memory. */
int fdry_host_map_check(const struct fdry_driver *drv, CUdevice dev) __must_check;

/* The first of the pages that hold [@addr, @addr + @size), and the bytes of all of them. */
void *fdry_host_pages(uint64_t addr, uint64_t size, size_t *len);

/* Map [@addr, @addr + @size), rounded outwards to pages, without memory or access. FDRY_E_TAKEN
 * names the mapping that is there; FDRY_E_NOMEM. */
int fdry_host_reserve(uint64_t addr, uint64_t size) __must_check;
void fdry_host_unreserve(uint64_t addr, uint64_t size);

/* Give the pages of a part of a reservation memory, which is zero, and register [@addr,
 * @addr + @size) for all contexts. Context: any of the device. FDRY_E_NOMEM if so much memory
 * cannot be pinned; FDRY_E_DRIVER. */
int fdry_host_back(const struct fdry_driver *drv, uint64_t addr, uint64_t size) __must_check;
/* Undo fdry_host_back(). If the driver refuses to unregister the memory, it stays; returns the
 * driver's result. */
CUresult fdry_host_unback(const struct fdry_driver *drv, uint64_t addr, uint64_t size);

#endif
