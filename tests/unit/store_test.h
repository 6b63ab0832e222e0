/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_test.h - what the store's tests share: a directory that goes away, bytes that are
 * the same every time, and short forms of putting and getting.
 */
#ifndef FDRY_TESTS_STORE_TEST_H
#define FDRY_TESTS_STORE_TEST_H

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/internal.h"

/* A directory for one test, and a store's place in it. */
static char dir[256];
static char path[300];

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

/* In memory where a test is small and writes often: waiting for a disk tells nothing there. */
static void dir_setup_in(const char *base)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/foundry-test-XXXXXX", base && !access(base, W_OK) ? base : tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/store", dir);
}

static inline void dir_setup(void)
{
	dir_setup_in(NULL);
}

static inline void dir_teardown(void)
{
	nftw(dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Succeeds, or the test ends with the sentence. */
#define ok(call) do { \
	int ret_ = (call); \
	ck_assert_msg(!ret_, "%s: %s: %s", #call, fdry_error_name(ret_), fdry_last_error()); \
} while (0)

/* Fails with this code and a sentence that holds @text. */
#define fails(code, text, call) do { \
	int ret_ = (call); \
	ck_assert_msg(ret_ == -FDRY_E_##code, "%s gave %s: %s", #call, fdry_error_name(ret_), fdry_last_error()); \
	ck_assert_msg(strstr(fdry_last_error(), text) != NULL, "%s says: %s", #call, fdry_last_error()); \
} while (0)

static inline struct fdry_store *store_make(void)
{
	struct fdry_store *s = NULL;

	ok(fdry_store_open(path, FDRY_STORE_CREATE, &s));
	return s;
}

/* The same bytes for the same seed, which do not compress. */
static inline void noise(uint64_t seed, void *to, size_t len)
{
	uint8_t *p = to;
	uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
	size_t i;

	for (i = 0; i < len; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		p[i] = (uint8_t)(x >> 32);
	}
}

static inline struct fdry_oid oid_of(const void *data, size_t len)
{
	struct fdry_oid oid;

	ok(fdry_oid_of(data, len, &oid));
	return oid;
}

static inline struct fdry_oid put(struct fdry_writer *p, enum fdry_object_kind kind,
				  const void *data, size_t len)
{
	struct fdry_oid oid;

	ok(fdry_writer_add_object(p, kind, data, len, NULL, 0, &oid));
	return oid;
}

/* An image of @n chunks of @len bytes of noise from @seed on, under @ref (may be NULL). */
static inline struct fdry_oid seal(struct fdry_store *s, uint64_t seed, size_t n, size_t len, const char *ref)
{
	struct fdry_oid *links = calloc(n, sizeof(*links)), oid;
	uint8_t *data = malloc(len);
	struct fdry_writer *p;
	char text[64];
	size_t i;

	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < n; i++) {
		noise(seed + i, data, len);
		links[i] = put(p, FDRY_OBJECT_CHUNK, data, len);
	}
	snprintf(text, sizeof(text), "image %llu %zu %zu", (unsigned long long)seed, n, len);
	ok(fdry_writer_commit(p, text, strlen(text), links, n, ref, &oid, NULL));
	free(data);
	free(links);
	return oid;
}

/* The object is there, whole, and equal. */
static inline void check_object(struct fdry_reader *g, const struct fdry_oid *oid, const void *want,
				size_t len)
{
	struct fdry_buf b = { 0 };

	ok(fdry_reader_copy(g, oid, &b));
	ck_assert_uint_eq(b.len, len);
	ck_assert(!memcmp(b.data, want, len));
	fdry_buf_release(&b);
}

static inline void count_finding(void *arg, const struct fdry_oid *oid, const char *text)
{
	(void)oid, (void)text;
	++*(unsigned int *)arg;
}

/* Verify finds nothing. */
static inline void check_sound(struct fdry_store *s)
{
	struct fdry_verify_report r;
	unsigned int findings = 0;

	ok(fdry_verify(s, count_finding, &findings, &r));
	ck_assert_uint_eq(findings, 0);
	ck_assert_uint_eq(r.damaged + r.missing + r.dangling_refs + r.crashes, 0);
}

/* Run @suite's only test case list and give main()'s result. */
static inline int run(Suite *suite)
{
	SRunner *sr = srunner_create(suite);
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
