/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interposer.h - finds the interposer, the library that takes the place of libcuda.so.1 in this
 * process.
 *
 * Code outside hook/ calls the interposer through a table of functions. Only these functions find
 * the table and turn its errors into errors of this library.
 */
#ifndef FDRY_IMAGE_CAPTURE_INTERPOSER_H
#define FDRY_IMAGE_CAPTURE_INTERPOSER_H

#include "hook/hook.h"

/* The interposer's table; FDRY_E_NOHOOK, or FDRY_E_LATE if the real libcuda was loaded first. */
int fdry_interposer_find(const struct fdry_hook **ret) __must_check;

/* The interposer's table; NULL if this process has none. */
const struct fdry_hook *fdry_interposer_loaded(void);

/* Return the result of a function of the table, with its message as this thread's last error. */
int fdry_interposer_result(const struct fdry_hook *hook, int ret) __must_check;

#endif
