/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm.h - reserved device addresses, and the driver calls that put memory behind them.
 *
 * Which memory lies where is the caller's business (backing.h); this is what is done with
 * the driver. Every call is made with the device's primary context current and the
 * thread in relaxed capture mode, since what happens here must never become part of a
 * capture of the caller's: fdry_vmm_enter() sets both, fdry_vmm_leave() puts both back.
 *
 * Memory is filled on the stream that all of ours in the context share (arch/stream.h).
 *
 * Locking: constant after fdry_vmm_init(), but for fdry_vmm_extend() and peers, so any thread;
 * the caller keeps calls on one range apart, and those that change or use peers.
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
	CUcontext ctx;    /* the primary one, retained */
	CUstream stream;  /* shared, not ours to destroy */
	CUdeviceptr base;
	uint64_t size;    /* bytes */
	uint64_t reserved[FDRY_VMM_PARTS]; /* bytes of each reservation; they follow one another, and may go behind size */
	unsigned int parts;
	uint64_t peers;   /* other devices that new memory is made accessible to, a bit for each ordinal */
	bool keep_va;        /* on release the addresses stay reserved, for the next region there */
	uint64_t granule; /* what memory is mapped in, bytes: the driver's granularity, at least FDRY_ALLOC_BLOCK */
};

/* Reserve [@base, @base + @size); errors as fdry_region_new(). */
int fdry_vmm_init(struct fdry_vmm *v, const struct fdry_driver *drv, CUdevice dev, CUdeviceptr base,
		  uint64_t size) __must_check;
/* Reserve @size bytes more, right behind the end, and give that end. What is mapped may not lie on both sides of it.
 * FDRY_E_TAKEN, naming what lies there; FDRY_E_LIMIT, FDRY_E_RANGE. Between enter and leave. */
int fdry_vmm_extend(struct fdry_vmm *v, uint64_t size, CUdeviceptr *ret) __must_check;
/* Everything is unmapped; free the addresses, or keep_va them. */
void fdry_vmm_release(struct fdry_vmm *v);

/* To be called before and after the others below. Leaving keeps the sentence of the last failure. */
int fdry_vmm_enter(const struct fdry_vmm *v, CUstreamCaptureMode *mode) __must_check;
void fdry_vmm_leave(const struct fdry_vmm *v, CUstreamCaptureMode *mode);

/* Put @size bytes of new physical memory at @start, one piece, and begin to zero them. Undoes all on failure. */
int fdry_vmm_map(const struct fdry_vmm *v, uint64_t start, uint64_t size) __must_check;
/* Let device @dev read and write what one fdry_vmm_map() mapped, or no longer. The sentence of the last failure is kept. */
CUresult fdry_vmm_open(const struct fdry_vmm *v, uint64_t start, uint64_t size, CUdevice dev, bool open);
/* Begin to write a 32-bit pattern; @size is a multiple of 4. */
int fdry_vmm_fill(const struct fdry_vmm *v, uint64_t start, uint64_t size, uint32_t pattern) __must_check;
/* Wait for zeroing and filling. */
int fdry_vmm_sync(const struct fdry_vmm *v) __must_check;
/* The same on the way out of a failure, whose sentence it keeps. */
void fdry_vmm_quiesce(const struct fdry_vmm *v);
/* The whole of what one fdry_vmm_map() mapped; its memory goes back to the driver. On failure nothing has
 * changed, and the sentence of the last failure is kept, since this is how failures are undone. */
CUresult fdry_vmm_unmap(const struct fdry_vmm *v, uint64_t start, uint64_t size);

/* Wait for everything in flight in the primary context and, where that is another, in the current one.
 * Not between enter and leave. */
int fdry_vmm_wait(const struct fdry_vmm *v) __must_check;

#endif
