/* SPDX-License-Identifier: Apache-2.0 */
/* devcall.h - functions of the driver or the device runtime that kernels call, by name. */
#ifndef FDRY_GRAPH_DEVCALL_H
#define FDRY_GRAPH_DEVCALL_H

#include <stdbool.h>

/* Whether the list has that function. */
bool fdry_devcall_known(const char *name);
/* Why a kernel that calls it cannot be restored exactly ("dynamic parallelism"); NULL if it can. A
 * static string. */
const char *fdry_devcall_refused(const char *name);
/* Why the code of a kernel that calls it is kept whole ("device printf"); NULL: it need not be. */
const char *fdry_devcall_whole(const char *name);
/* The context's memory that it uses. */
enum fdry_devcall_memory {
	FDRY_DEVCALL_NONE,
	FDRY_DEVCALL_PRINTF, /* the buffer of printf */
	FDRY_DEVCALL_HEAP,
};
enum fdry_devcall_memory fdry_devcall_memory(const char *name);

#endif
