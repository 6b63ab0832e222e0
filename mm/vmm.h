/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm.h - reserved device addresses, and the driver calls that put memory behind them.
 *
 * The caller decides where memory lies (backing.h); this file makes the driver calls. They run with
 * the device's primary context current and the thread in relaxed capture mode, so that no call
 * becomes part of a capture of the caller: fdry_vmm_enter() sets both, fdry_vmm_leave() restores
 * both.
 *
 * One stream, which all regions of the context share (arch/stream.h), fills the memory.
 *
 * Locking: only fdry_vmm_extend() and a change of peers write the structure after fdry_vmm_init(),
 * so any thread may call. The caller serialises calls on one range, and calls that change or use
 * peers.
 */
#ifndef FDRY_MM_VMM_H
#define FDRY_MM_VMM_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/driver.h"

#define FDRY_VMM_PARTS 64
#define FDRY_VMM_DEVICES 64 /* ordinals that can be peers */

struct fdry_vmm {
	const struct fdry_driver *drv;
	CUdevice dev;
	CUcontext ctx;   /* the primary one, retained */
	CUstream stream; /* shared; never destroyed here */
	CUdeviceptr base;
	uint64_t size;    /* bytes */
	uint64_t reserved[FDRY_VMM_PARTS]; /* bytes of each reservation; they are contiguous, and
					      may end behind base + size */
	unsigned int parts;
	uint64_t peers; /* other devices that may access new memory, a bit for each ordinal */
	bool keep_va;   /* the release keeps the addresses reserved, for the next region there */
	uint64_t granule;    /* unit of mapping, bytes: the driver's granularity, at least
				FDRY_ALLOC_BLOCK */
};

/* Reserve [@base, @base + @size); errors as fdry_region_new(). */
int fdry_vmm_init(struct fdry_vmm *v, const struct fdry_driver *drv, CUdevice dev, CUdeviceptr base,
		  uint64_t size) __must_check;
/* Reserve @size more bytes at the end, and return the old end. A mapping must not lie on both sides
 * of it. FDRY_E_TAKEN names the mapping that is there; FDRY_E_LIMIT, FDRY_E_RANGE. Call it between
 * enter and leave. */
int fdry_vmm_extend(struct fdry_vmm *v, uint64_t size, CUdeviceptr *ret) __must_check;
/* Free the addresses, or put them into the cache (va_cache.h). Nothing may be mapped there any
 * more.
 */
void fdry_vmm_release(struct fdry_vmm *v);

/* Call these before and after the functions below. Leaving preserves the message of the last
 * failure. */
int fdry_vmm_enter(const struct fdry_vmm *v, CUstreamCaptureMode *mode) __must_check;
void fdry_vmm_leave(const struct fdry_vmm *v, CUstreamCaptureMode *mode);

/* Map @size bytes of new physical memory at @start in one piece, and begin to zero them. A failure
 * leaves nothing. */
int fdry_vmm_map(const struct fdry_vmm *v, uint64_t start, uint64_t size) __must_check;
/* Permit device @dev to read and write one mapping of fdry_vmm_map(), or end that. Preserves the
 * message of the last failure. */
CUresult fdry_vmm_open(const struct fdry_vmm *v, uint64_t start, uint64_t size, CUdevice dev,
		       bool open);
/* Begin to write a 32-bit pattern; @size is a multiple of 4. */
int fdry_vmm_fill(const struct fdry_vmm *v, uint64_t start, uint64_t size,
		  uint32_t pattern) __must_check;
/* Wait for zeroing and filling. */
int fdry_vmm_sync(const struct fdry_vmm *v) __must_check;
/* Wait like fdry_vmm_sync() after a failure, and preserve its message. */
void fdry_vmm_quiesce(const struct fdry_vmm *v);
/* Unmap one mapping of fdry_vmm_map() as a whole, which frees its memory. A failure changes
 * nothing. The message of the last failure is preserved, since this call undoes failures. */
CUresult fdry_vmm_unmap(const struct fdry_vmm *v, uint64_t start, uint64_t size);

/* Wait for all work in flight in the primary context and, if that is another, in the current
 * context. Call it outside of enter and leave. */
int fdry_vmm_wait(const struct fdry_vmm *v) __must_check;

#endif
