/* SPDX-License-Identifier: Apache-2.0 */
/* places.h - the folders in which container tools keep their configuration. */
#ifndef FDRY_REGISTRY_PLACES_H
#define FDRY_REGISTRY_PLACES_H

#include "lib/buf.h"

/* Append @name in XDG_CONFIG_HOME, else in ~/.config; nothing without a home. No terminator. */
int fdry_registry_config_place(const char *name, struct fdry_buf *ret) __must_check;
/* The same in the folder DOCKER_CONFIG, else ~/.docker. */
int fdry_registry_docker_place(const char *name, struct fdry_buf *ret) __must_check;
/* The same in XDG_RUNTIME_DIR. */
int fdry_registry_runtime_place(const char *name, struct fdry_buf *ret) __must_check;

#endif
