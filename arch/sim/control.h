/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control.h - what the software driver exports beside the driver's own functions.
 *
 * Found by dlsym() in the opened driver; nothing links against it. The environment:
 *
 *	FDRY_SIM_DEVICES         how many devices there are (1); 0: cuInit finds none
 *	FDRY_SIM_CC              compute capability, "9.0"
 *	FDRY_SIM_MEMORY          device memory in bytes, K, M or G may follow (8G)
 *	FDRY_SIM_DRIVER_VERSION  as cuDriverGetVersion says (13000); newer functions are hidden
 *	FDRY_SIM_FAIL            as fdry_sim_fail(); where it is malformed, every call fails
 */
#ifndef FDRY_ARCH_SIM_CONTROL_H
#define FDRY_ARCH_SIM_CONTROL_H

/* The mark by which a driver is known to be the software driver: its interface version, 1. */
int fdry_sim_version(void);

/**
 * fdry_sim_fail() - Make a driver call fail, and count from zero again.
 * @spec: "FUNCTION:N" the Nth call from now of that exported function, "*:N" the Nth call
 *	of any; a "+" after N means that one and all later ones; ":ERROR" may follow, a
 *	CUresult as a number (otherwise 999, CUDA_ERROR_UNKNOWN). NULL or "": nothing fails.
 *
 * A call that is made to fail does nothing else. cuGetErrorName, cuGetErrorString and
 * cuGetProcAddress neither count nor fail.
 *
 * Return: 0, or -1 where @spec is malformed or names no function (nothing fails then).
 * Context: any thread.
 */
int fdry_sim_fail(const char *spec);

/* How many calls were made to fail since the last fdry_sim_fail(). */
unsigned long fdry_sim_failed(void);

/* Calls of an exported function since the last fdry_sim_fail(); NULL: of all. 0 where there is no such function. */
unsigned long fdry_sim_calls(const char *function);

/*
 * Objects alive now, for tests that look for leaks: "context" (a primary context counts
 * while it is retained), "stream", "event", "module", "library", "memory" (cuMemCreate
 * handles and what is still mapped of them), "reservation", "mapping", "allocation"
 * (cuMemAlloc), "host" (pinned), "texture", "surface", "link", "graph", "exec", "userobject";
 * NULL: all of these together. -1 for another word.
 */
long fdry_sim_live(const char *what);

#endif
