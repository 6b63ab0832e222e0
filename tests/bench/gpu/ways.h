/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ways.h - ways to bring a file's bytes into the memory of a GPU, beside each other.
 *
 * Each way copies the same bytes of the same file. A few of them are compared with the file
 * afterwards, so a way that copies nothing fails.
 */
#ifndef FDRY_TESTS_BENCH_GPU_WAYS_H
#define FDRY_TESTS_BENCH_GPU_WAYS_H

#include "arch/driver.h"

/* Print one table with each way that the file system and the kernel support, @rounds times, without
 * changing the file's pages in the page cache. Exits after an error. The device's context must be
 * current. */
void ways_warm(const struct fdry_driver *drv, const char *file, const char *title, int rounds);
/* The same after removing the file from the page cache, for the ways that read a disk. */
void ways_cold(const struct fdry_driver *drv, const char *file, int rounds);
/* Remove a file from the page cache; dirty or mapped pages stay. */
void ways_forget(const char *file);
/* Return the milliseconds that `cat` needs to read the file. */
double ways_cat(const char *file);

#endif
