/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - a capturing and a loading process for unit tests, on the software driver. A capture
 * keeps its addresses, so another process must load the image: test_child() runs a function in one.
 * Neither may call CUDA before the fork.
 */
#ifndef FDRY_TESTS_LIB_IMAGE_H
#define FDRY_TESTS_LIB_IMAGE_H

#include <string.h>

#include "foundry.h"
#include "mm/va_cache.h"
#include "tests/lib/hook.h"
#include "tests/lib/store.h"

struct fdry_manifest;

#define N 1000
#define BYTES (N * sizeof(float))

/* A base that is free under every sanitizer; the default base is not. */
#define TEST_CAPTURE_BASE (TEST_BASE + (1ull << 32))

/* The state of a capturing program: vectors, code, a stream, and the capture. A test that does not
 * end it must keep it static, so that leak checkers see it. */
struct work {
	struct fdry_capture *cap;
	struct fdry_store *store;
	CUstream stream;
	CUmodule module;
	CUfunction vecadd, count, scale;
	void *cubin;
	CUdeviceptr a, b, c, before; /* before: from before the capture began */
};

float vector_value(int i, float salt);
void vector_fill(float *v, float salt);
extern CUdeviceptr work_base; /* the base of the next work's region */
extern int work_device; /* its ordinal */
extern uint32_t work_flags; /* of enum fdry_capture_flags */

/* Return the number of live objects of the software driver, without addresses that stay reserved
 * for unloaded images. */
long live_objects(void);

/* The same, called before work that must release all it makes. */
long live_before(void);

/* Make the device's primary context current. */
void device_use(int ordinal);

/* Load the interposer, make a store, begin a capture, allocate a, b and c, and fill a and b. */
void work_make(struct work *w);

/* End the work that work_make() began. */
void work_end(struct work *w);
void capture_start(struct work *w);

CUgraph capture_stop(struct work *w);

void launch_add(struct work *w, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c);

/* Launch a kernel that sets the number at @x to the step_result() of it. A large @spins makes it
 * slow. */
void launch_step(struct work *w, CUdeviceptr x, uint64_t salt, uint32_t spins);
/* Return @x after @spins + 1 times x = x * 6364136223846793005 + salt. */
uint64_t step_result(uint64_t x, uint64_t salt, uint32_t spins);

/* Capture c = a + b as graph @key. */
void graph_add(struct work *w, uint64_t key);
struct fdry_tensor vector(const char *name, CUdeviceptr addr, uint32_t use, uint32_t flags);
void tensor_add(struct work *w, const char *name, CUdeviceptr addr, uint32_t use, uint32_t flags);
/* Seal, and check the audit of the image. */
int work_seal(struct work *w, const char *ref);
/* Check that the audit which image @id has stored is the one that its graphs and content give. */
void audit_check(struct fdry_store *store, const char *id);
void seal_plain(void *id);
void seal_external(void *id);

/* Open the store for loads, which need no interposer. A test uses one handle, which stays open. */
struct fdry_store *load_store(void);
/* Load an image of that store. @opts: NULL for the defaults. */
struct fdry_image *load_image(const char *ref, const struct fdry_load_opts *opts);
/* Load its image "img" with flags of enum fdry_load_flags. */
struct fdry_image *load_with(uint32_t flags);
/* Check that the description of its image "img" has @text. */
void described_as(const char *text);
/* Read the manifest of "img" in the store into @bytes; @m points into it. */
void image_manifest_read(struct fdry_buf *bytes, struct fdry_manifest *m);
/* A section of the manifest that image_manifest_read() has read, to change it. */
void *image_manifest_at(const struct fdry_buf *bytes, const void *section);
/* Store the manifest, which may have been changed, as another image, and release @bytes. */
void image_manifest_store(struct fdry_buf *bytes, const struct fdry_manifest *m, const char *ref);

/* Changes a byte of device memory when a load has copied its content, and compares it next: the
 * progress function of a load, and its argument. @done: it has changed it. */
struct meddle {
	uint64_t addr;
	bool done;
};
void meddle(void *arg, int phase, uint64_t done, uint64_t total, double ms);

/* Launch a graph that writes a part of c, and read c. The other bytes of c are 0xcc. */
void launch_into_c(struct fdry_image *img, uint64_t key, uint8_t c[BYTES]);

/* Check that the image's c is a + b for the vectors of @a_salt and @b_salt. */
void image_check(struct fdry_image *img, uint64_t key, float a_salt, float b_salt);

#endif
