/* SPDX-License-Identifier: Apache-2.0 */
/* vmm.h - memory by handle (phys.c), which vmm.c maps. */
#ifndef FDRY_ARCH_SIM_VMM_H
#define FDRY_ARCH_SIM_VMM_H

#include "arch/sim/sim.h"

#define SIM_GRANULARITY ((size_t)2 << 20)

static inline bool sim_granular(uint64_t n)
{
	return n % SIM_GRANULARITY == 0;
}

struct sim_mem {
	struct sim_obj obj;
	size_t size;
	int fd;               /* the file with its bytes: the common one, or one of its own */
	off_t offset;         /* in it */
	bool shared;          /* has a file of its own */
	bool imported;        /* memory of another process; not counted on this process's device */
	bool multicast;       /* it has no memory: its mappings show the bytes of @bound ... */
	struct sim_mem *bound; /* ... held; NULL: nothing yet */
	bool joined;          /* its device was added */
	unsigned int handles; /* cuMemCreate and cuMemRetainAllocationHandle less cuMemRelease */
	unsigned int mappings;
	CUmemAllocationProp prop;
};

/* NULL if the handle is invalid, or was released as often as it was returned. */
struct sim_mem *sim_mem_find(CUmemGenericAllocationHandle handle);
/* Call it after the end of a handle or a mapping: frees the memory after the last of both. */
void sim_mem_unused(struct sim_mem *mem);
/* Make memory, which has no bytes yet, and open its handle. */
struct sim_mem *sim_mem_new(size_t size, const CUmemAllocationProp *prop);
CUresult sim_mem_open(struct sim_mem *mem, CUmemGenericAllocationHandle *ret);

#endif
