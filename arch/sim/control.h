/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control.h - functions that the software driver exports beside those of a driver.
 *
 * dlsym() finds them in the opened driver; nothing links against it. The environment:
 *
 *	FDRY_SIM_DEVICES         number of devices (1); 0: cuInit finds none
 *	FDRY_SIM_CC              compute capability, "9.0"
 *	FDRY_SIM_MEMORY          device memory in bytes, or with K, M or G (8G)
 *	FDRY_SIM_DRIVER_VERSION  result of cuDriverGetVersion (13000); newer functions are hidden
 *	FDRY_SIM_FAIL            as fdry_sim_fail(); if it is malformed, every call fails
 */
#ifndef FDRY_ARCH_SIM_CONTROL_H
#define FDRY_ARCH_SIM_CONTROL_H

/* Only the software driver has this function. Returns the version of its interface, 1. */
int fdry_sim_version(void);

/**
 * fdry_sim_fail() - Make a driver call fail, and count from zero again.
 * @spec: "FUNCTION:N" is the Nth call from now of that exported function, "*:N" the Nth call
 *	of any. A "+" after N means that call and all later ones. ":ERROR" may follow, a
 *	CUresult as a number (default 999, CUDA_ERROR_UNKNOWN). NULL or "": nothing fails.
 *
 * The failing call does nothing else. cuGetErrorName, cuGetErrorString and
 * cuGetProcAddress neither count nor fail.
 *
 * Return: 0, or -1 if @spec is malformed or names no function (then nothing fails).
 * Context: any thread.
 */
int fdry_sim_fail(const char *spec);

/* The number of calls that failed by request since the last fdry_sim_fail(). */
unsigned long fdry_sim_failed(void);

/* The number of calls of an exported function since the last fdry_sim_fail(); NULL: of all. 0 if
 * there is no such function. */
unsigned long fdry_sim_calls(const char *function);

/*
 * The number of live objects, for tests that look for leaks: "context" (a primary context counts
 * while it is retained), "stream", "event", "module", "library", "memory" (cuMemCreate handles,
 * also released ones that are still mapped), "reservation", "mapping", "allocation"
 * (cuMemAlloc), "host" (pinned), "array", "mipmap", "texture", "surface", "link", "graph", "exec",
 * "userobject"; NULL: all of these together. -1 for another word.
 */
long fdry_sim_live(const char *what);

#endif
