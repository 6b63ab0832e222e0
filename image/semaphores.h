/* SPDX-License-Identifier: Apache-2.0 */
/*
 * semaphores.h - the semaphores of other APIs that graphs use, by name: those of a capture, and
 * those that a load binds.
 */
#ifndef FDRY_IMAGE_SEMAPHORES_H
#define FDRY_IMAGE_SEMAPHORES_H

#include "image/image.h"

/* Append a copy of @s to @list, an array of struct fdry_semaphore. FDRY_E_NAME; FDRY_E_INVAL if
 * there is no semaphore; FDRY_E_EXISTS if the list has the name. */
int fdry_semaphores_add(struct fdry_buf *list, const struct fdry_semaphore *s) __must_check;
/* Append those of a load. */
int fdry_semaphores_take(struct fdry_buf *list, const struct fdry_load_opts *o) __must_check;
void fdry_semaphores_release(struct fdry_buf *list);

#endif
