/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx.h - what PTX says at its head, and which targets a device runs.
 *
 * PTX begins with .version and .target. A driver compiles the versions up to its own, and a
 * device runs a target by one of three rules (sm_90, sm_90a, sm_100f). Asked before anything
 * is compiled, so that an error can name both sides.
 */
#ifndef FDRY_GRAPH_PTX_H
#define FDRY_GRAPH_PTX_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/buf.h"

struct fdry_target {
	uint32_t arch; /* 90 */
	char suffix;   /* 'a': this architecture alone; 'f': its family, from it on; 0: it and all above */
};

/* "sm_90a" or "compute_90a"; false for anything else. */
bool fdry_target_parse(const char *name, struct fdry_target *ret);
/* Does a device of compute capability @cc (10 * major + minor) run it? */
bool fdry_target_runs(const struct fdry_target *t, uint32_t cc);
/* Whether there is a target for exactly that architecture, sm_90a. */
bool fdry_target_has_exact(uint32_t cc);

struct fdry_ptx_head {
	uint32_t version;  /* 10 * major + minor: 90 is .version 9.0; 0: there is none where it must be */
	char target[24];   /* "sm_90a", without what may follow it; "": none */
};
/* Never fails: text that does not begin like PTX is for the compiler to judge. */
void fdry_ptx_head_read(struct fdry_span text, struct fdry_ptx_head *ret);

/* The CUDA version (13000 is 13.0) that brought a version of PTX; for one that is newer than this list, the least that it can be. */
int fdry_ptx_needs(uint32_t version);
/* The highest version of PTX that a driver of that CUDA version is known to compile. */
uint32_t fdry_ptx_of_driver(int cuda);

#endif
