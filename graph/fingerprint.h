/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph/fingerprint.h - fingerprints of device memory, computed on the device.
 *
 * A kernel of ours computes the values of blocks (lib/fingerprint.h). The library holds it as
 * cubins, as PTX for newer GPUs, and as an object of the software driver, so nothing else has to be
 * installed. graph/fingerprint/ holds its source and what was made of it.
 */
#ifndef FDRY_GRAPH_FINGERPRINT_H
#define FDRY_GRAPH_FINGERPRINT_H

#include "arch/driver.h"
#include "lib/buf.h"
#include "lib/fingerprint.h"

struct fdry_fingerprint_range {
	uint64_t addr, len;
};

/* The kernel and memory for its tables, in one context. One thread uses it at a time. */
struct fdry_fingerprinter;

/* Load the kernel, a cubin, into the current context. After an error of the driver, a caller may
 * copy the memory to the host and compute the fingerprints there. */
int fdry_fingerprinter_load(const struct fdry_driver *drv, struct fdry_span cubin,
			    struct fdry_fingerprinter **ret) __must_check;
/* Make another one with the kernel of @f, which must outlive it. FDRY_E_NOMEM. */
int fdry_fingerprinter_share(const struct fdry_fingerprinter *f,
			     struct fdry_fingerprinter **ret) __must_check;
/* Waits for the work that was started. Its context must be current, unless @f is NULL. */
void fdry_fingerprinter_free(struct fdry_fingerprinter *f);

/**
 * fdry_fingerprinter_begin() - Prepare to compute the fingerprints of @ranges.
 * @stream: of the same context, for the work that follows; it must not capture
 * @ranges: copied; their bytes need not be there yet
 *
 * The device allocates 32 bytes for each block of 64 KiB. They stay allocated for further begins.
 * fdry_fingerprinter_wait() or fdry_fingerprinter_cancel() ends it. Errors: FDRY_E_NODEVMEM,
 * FDRY_E_NOMEM, those of the driver. Context: must be current.
 */
int fdry_fingerprinter_begin(struct fdry_fingerprinter *f, CUstream stream,
			     const struct fdry_fingerprint_range *ranges, size_t n) __must_check;

/* Compute the fingerprints of the ranges before @end that no earlier call has computed, behind the
 * work of the stream. Waits for those of earlier calls. */
int fdry_fingerprinter_launch(struct fdry_fingerprinter *f, size_t end) __must_check;

/* Begin, and launch all. All bytes of @ranges must be mapped when the stream gets there. */
int fdry_fingerprinter_start(struct fdry_fingerprinter *f, CUstream stream,
			     const struct fdry_fingerprint_range *ranges, size_t n) __must_check;

/* Wait until all is computed, and write the fingerprints, one for each range in the same order. All
 * ranges must have been launched. */
int fdry_fingerprinter_wait(struct fdry_fingerprinter *f,
			    struct fdry_fingerprint *ret) __must_check;
/* End without results, and wait for work that was launched. Nothing need have begun. */
void fdry_fingerprinter_cancel(struct fdry_fingerprinter *f);

/* The code of the kernel for a device of compute capability @cc (10 * major + minor): a cubin, else
 * PTX, else nothing. *@ptx: whether it is PTX. */
struct fdry_span fdry_fingerprint_code(const struct fdry_driver *drv, unsigned int cc, bool *ptx);
/* The same for a device; FDRY_E_NOFUNC if there is none. */
int fdry_fingerprint_code_of(const struct fdry_driver *drv, CUdevice device, struct fdry_span *ret,
			     bool *ptx) __must_check;

#endif
