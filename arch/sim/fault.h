/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - counting calls and making them fail, between entry.c and fault.c. */
#ifndef FDRY_ARCH_SIM_FAULT_H
#define FDRY_ARCH_SIM_FAULT_H

#include "arch/sim/control.h"
#include "arch/sim/sim.h"

/* Count a call of @fn. CUDA_SUCCESS, or the error that the call must return. */
CUresult sim_fault(enum sim_fn fn);

/* The number of the exported function named by the @len bytes at @symbol; -2 if there is none. */
int sim_fn_index(const char *symbol, size_t len);

#endif
