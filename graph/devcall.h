/* SPDX-License-Identifier: Apache-2.0 */
/* devcall.h - functions that kernels call and the driver or the device runtime brings, by name. */
#ifndef FDRY_GRAPH_DEVCALL_H
#define FDRY_GRAPH_DEVCALL_H

#include <stdbool.h>

/* Is it one that is known here? */
bool fdry_devcall_known(const char *name);
/* Why a kernel that calls it cannot be restored exactly ("device printf"); NULL where it can. Static strings. */
const char *fdry_devcall_refused(const char *name);

#endif
