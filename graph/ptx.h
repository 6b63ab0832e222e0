/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx.h - version and target of PTX, and which targets a device runs; the driver's compiler.
 *
 * PTX begins with .version and .target. A driver compiles all versions up to its own, and a
 * device runs a target by one of three rules (sm_90, sm_90a, sm_100f). Callers check both before
 * they compile, so that an error names the PTX and the device.
 */
#ifndef FDRY_GRAPH_PTX_H
#define FDRY_GRAPH_PTX_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/driver.h"
#include "lib/buf.h"

struct fdry_target {
	uint32_t arch; /* 90 */
	char suffix;   /* 'a': runs on this architecture only; 'f': on it and later ones of its
			  family; 0: on it and all later ones */
};

/* "sm_90a" or "compute_90a"; false for anything else. */
bool fdry_target_parse(const char *name, struct fdry_target *ret);
/* Whether a device of compute capability @cc (10 * major + minor) runs it. */
bool fdry_target_runs(const struct fdry_target *t, uint32_t cc);
/* Whether the architecture has a target for itself alone, like sm_90a. */
bool fdry_target_has_exact(uint32_t cc);

struct fdry_ptx_head {
	uint32_t version; /* 10 * major + minor: 90 is .version 9.0; 0: the text does not begin with
			     one */
	char target[24];   /* "sm_90a", without the options after it; "": none */
};
/* Never fails: the compiler refuses text that is no PTX. */
void fdry_ptx_head_read(struct fdry_span text, struct fdry_ptx_head *ret);

/* The CUDA version (13000 is 13.0) that introduced a version of PTX. For a version that the list
 * does not have yet, it is the lowest possible CUDA version. */
int fdry_ptx_needs(uint32_t version);
/* The highest version of PTX that a driver of that CUDA version compiles. */
uint32_t fdry_ptx_of_driver(int cuda);

/* Append the cubin that the driver makes of the PTX. A context must be current. @name: in the
 * driver's messages */
int fdry_ptx_compile(const struct fdry_driver *drv, struct fdry_span ptx, const char *name,
		     struct fdry_buf *ret) __must_check;

#endif
