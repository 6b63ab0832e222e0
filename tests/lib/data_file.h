/* SPDX-License-Identifier: Apache-2.0 */
/* data_file.h - the file data.mdb of the store at @path (store.h), for tests that damage it. */
#ifndef FDRY_TESTS_LIB_DATA_FILE_H
#define FDRY_TESTS_LIB_DATA_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Write the path of a file in the store's directory. */
void data_file_path(char file[400], const char *name);
/* The bytes of data.mdb, which the caller frees. @len: their number. */
uint8_t *data_file_read(size_t *len);
/* The address at which this process maps data.mdb; NULL if it does not. */
uint8_t *data_file_map(void);

/* From now on, each child process crashes when it reads one of the pages at these @n offsets of
 * data.mdb, at most 2, as if the file had been cut. 0: no longer. */
void data_file_crash(const off_t *at, size_t n);

#endif
