/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - helpers of the store's tests: a temporary directory, reproducible bytes, and short
 * forms of writing and reading.
 */
#ifndef FDRY_TESTS_LIB_STORE_H
#define FDRY_TESTS_LIB_STORE_H

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/internal.h"
#include "tests/lib/test.h"

/* A directory for one test, and the path of a store in it. */
extern char dir[256];
extern char path[300];
int rm_one(const char *p, const struct stat *st, int type, struct FTW *f);

/* The directory is in memory for a small test that writes often, since waiting for a disk would
 * test nothing. */
void dir_setup_in(const char *base);
void dir_setup(void);
void dir_teardown(void);
struct fdry_store *store_make(void);
/* For fdry_store_gc(): only report. */
extern const struct fdry_gc_opts gc_dry_run;

/* Write bytes that do not compress, the same for the same seed. */
void noise(uint64_t seed, void *to, size_t len);
struct fdry_oid oid_of(const void *data, size_t len);
struct fdry_oid put(struct fdry_writer *p, enum fdry_object_kind kind, const void *data,
		    size_t len);

/* Seal an image of @n chunks of @len bytes of noise, with seeds from @seed, under @ref (may be
 * NULL). */
struct fdry_oid seal(struct fdry_store *s, uint64_t seed, size_t n, size_t len, const char *ref);

/* Check that the object exists, is whole, and has these bytes. */
void check_object(struct fdry_reader *g, const struct fdry_oid *oid, const void *want, size_t len);

/* Verify an open store by its path. */
int store_verify(struct fdry_store *s, struct fdry_verify_report *ret) __must_check;

/* Check that verify finds no fault. */
void check_sound(struct fdry_store *s);

/* Damage the record of an object; put other bytes of the same length in place of its own. */
void spoil_record(struct fdry_store *s, const struct fdry_oid *oid);
void spoil_data(struct fdry_store *s, const struct fdry_oid *oid);

/* The number of files of leases in the store. */
unsigned int lease_files(void);

#endif
