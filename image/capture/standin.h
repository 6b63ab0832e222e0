/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standin.h - finding the stand-in for libcuda.so.1 in this process.
 *
 * The only place above hook/ that knows how the table is found and how its failures
 * become ours.
 */
#ifndef FDRY_IMAGE_CAPTURE_STANDIN_H
#define FDRY_IMAGE_CAPTURE_STANDIN_H

#include "hook/hook.h"

/* The stand-in's table; FDRY_E_NOHOOK, or FDRY_E_LATE where the real libcuda was loaded first. */
int fdry_standin_find(const struct fdry_hook **ret) __must_check;

/* Whether this process has one; never fails. */
const struct fdry_hook *fdry_standin_peek(void);

/* What a function of the table returned, with its sentence made this thread's. */
int fdry_standin_result(const struct fdry_hook *hook, int ret) __must_check;

#endif
