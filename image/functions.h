/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions.h - the host functions that graphs call, by name: those of a capture, and those that a
 * load binds.
 */
#ifndef FDRY_IMAGE_FUNCTIONS_H
#define FDRY_IMAGE_FUNCTIONS_H

#include "foundry.h"
#include "lib/buf.h"

/* Append a copy of @f to @list, an array of struct fdry_host_function. FDRY_E_NAME; FDRY_E_INVAL if
 * there is no function; FDRY_E_EXISTS if the list has the name, or the function with the same
 * argument under another name. */
int fdry_functions_add(struct fdry_buf *list, const struct fdry_host_function *f) __must_check;
/* Append those of a load. */
int fdry_functions_take(struct fdry_buf *list, const struct fdry_load_opts *o) __must_check;
void fdry_functions_release(struct fdry_buf *list);

#endif
