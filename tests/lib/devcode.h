/* SPDX-License-Identifier: Apache-2.0 */
/* devcode.h - finds device code in files for tests on a GPU. */
#ifndef FDRY_TESTS_LIB_DEVCODE_H
#define FDRY_TESTS_LIB_DEVCODE_H

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/gpu.h"
#include "graph/elf.h"
#include "graph/fatbin.h"

/* @bytes: a cubin, or a fatbin with the rest of the file after it. */
typedef void (*devcode_fn)(const char *file, struct fdry_span bytes);

/* Call @fn for each piece of device code in a shared library, fatbin or cubin. Returns non-zero if
 * there is no such file. */
int devcode_file(const char *path, devcode_fn fn);

#endif
