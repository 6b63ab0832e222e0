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

/* Print one table: every way that the file system and the kernel know, @rounds times, with the
 * file's pages in the page cache as they are. Ends the process after an error. The device's context
 * is current. */
void ways_warm(const struct fdry_driver *drv, const char *file, const char *title, int rounds);
/* The same after the file was taken out of the page cache, for the ways that read a disk. */
void ways_cold(const struct fdry_driver *drv, const char *file, int rounds);
/* Take a file out of the page cache; what is dirty or mapped stays. */
void ways_forget(const char *file);
/* Milliseconds that `cat` takes to read it. */
double ways_cat(const char *file);

#endif
