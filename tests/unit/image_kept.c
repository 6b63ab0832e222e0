// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of seals that reuse results of the seal before. The image equals that of a seal of all
 * memory, whatever has changed since, and unchanged memory is not read back.
 */
#include <sys/mman.h>

#include "foundry/capture.h"
#include "image/capture/capture.h"
#include "lib/telemetry.h"
#include "mm/maps.h"
#include "tests/lib/image.h"

#define MIB (1ull << 20)
#define BIG (9 * MIB)
#define SCRATCH_BYTES (5 * MIB + 512)
#define STEPS TEST_ROUNDS(32)

static struct work w;
static CUdeviceptr big, scratch, extra;
static uint8_t *mine;
static uint64_t state;

static uint64_t below(uint64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % n;
}

static void begin(void)
{
	uint64_t i;

	work_make(&w);
	capture_start(&w);
	cuda_ok(cuMemAlloc_v2, &scratch, SCRATCH_BYTES);
	launch_add(&w, w.a, w.b, w.c);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	mine = malloc(BIG);
	ck_assert_ptr_nonnull(mine);
	for (i = 0; i < BIG; i++)
		mine[i] = (uint8_t)(1 + (i * 2654435761u >> 13) % 255);
	memset(mine + 3 * MIB, 0, 3 * MIB);
	cuda_ok(cuMemAlloc_v2, &big, BIG);
	cuda_ok(cuMemcpyHtoD_v2, big, mine, BIG);
	extra = 0;
	state = 1;
}

static void end(void)
{
	work_end(&w);
	free(mine);
}

static uint64_t counted(enum fdry_metric_id id)
{
	uint64_t values[FDRY_METRICS];

	fdry_telemetry_read(values);
	return values[id];
}

/* Seal; how many bytes were read back. */
static uint64_t seal_read(char *id, struct fdry_seal_report *r)
{
	uint64_t before = counted(FDRY_METRIC_COPIED_FROM);

	r->sz = sizeof(*r);
	ok(fdry_capture_seal(w.cap, w.store, "img", id, r));
	return counted(FDRY_METRIC_COPIED_FROM) - before;
}

static void forget(void)
{
	fdry_sealed_content_release(&w.cap->sealed);
	fdry_buf_release(&w.cap->sealed.stamps);
}

/* Seal with kept data, without the GPU's fingerprints, and without kept data. All three must give
 * one image. */
static void seal_each_way(void)
{
	struct fdry_seal_report kept, slow, fresh;
	char id[3][FDRY_ID_SIZE];
	uint64_t fallbacks;

	seal_read(id[0], &kept);
	fallbacks = counted(FDRY_METRIC_SEAL_FALLBACKS);
	test_sim_fail("cuLaunchKernel:1+");
	seal_read(id[1], &slow);
	test_sim_fail(NULL);
	ck_assert_uint_gt(counted(FDRY_METRIC_SEAL_FALLBACKS), fallbacks);
	forget();
	seal_read(id[2], &fresh);
	ck_assert_str_eq(id[0], id[2]);
	ck_assert_str_eq(id[1], id[2]);
	ck_assert_uint_eq(kept.content_bytes, fresh.content_bytes);
	ck_assert_uint_eq(kept.zero_bytes, fresh.zero_bytes);
	ck_assert_uint_eq(kept.scratch_bytes, fresh.scratch_bytes);
	ck_assert_uint_eq(slow.zero_bytes, fresh.zero_bytes);
	ck_assert_uint_eq(slow.unchanged_bytes, slow.content_bytes);
}

/* --- changes between two seals --- */

static void bit_flip(CUdeviceptr p, uint64_t len)
{
	uint64_t at = below(len);
	uint8_t byte;

	cuda_ok(cuMemcpyDtoH_v2, &byte, p + at, 1);
	byte ^= (uint8_t)(1u << below(8));
	cuda_ok(cuMemcpyHtoD_v2, p + at, &byte, 1);
}

static void extra_change(void)
{
	if (extra)
		cuda_ok(cuMemFree_v2, extra);
	else
		cuda_ok(cuMemAlloc_v2, &extra, 3 * MIB);
	if (extra && below(2)) { /* freed and allocated again */
		cuda_ok(cuMemAlloc_v2, &extra, 2 * MIB + 4096 * below(4));
		cuda_ok(cuMemsetD8_v2, extra, (unsigned char)(1 + below(3)), MIB);
	} else {
		extra = 0;
	}
}

static void tensor_name(void)
{
	struct fdry_tensor t = { .name = "t", .dtype = FDRY_U8, .use = FDRY_USE_CONST, .rank = 1,
				 .shape = { (int64_t)(MIB + 16 * below(100)) }, .stride = { 1 } };
	char name[32];

	snprintf(name, sizeof(name), "t%llu", (unsigned long long)state);
	t.name = name;
	t.addr = big + 16 * below(6 * MIB / 16);
	ok(fdry_capture_tensor(w.cap, &t));
}

static void change(unsigned int step)
{
	switch (step % 8) {
	case 0:
	case 1:
		bit_flip(big, BIG);
		break;
	case 2:
		bit_flip(scratch, SCRATCH_BYTES);
		break;
	case 3:
		cuda_ok(cuMemsetD8_v2, big + below(8) * MIB, 0, 4096 * (1 + below(200)));
		break;
	case 4:
		cuda_ok(cuMemcpyDtoD_v2, big + below(4) * MIB, big + (4 + below(4)) * MIB, MIB);
		break;
	case 5:
		extra_change();
		break;
	case 6:
		tensor_name();
		break;
	default:
		break; /* nothing */
	}
}

START_TEST(image_is_that_of_a_fresh_seal)
{
	unsigned int i;

	begin();
	state = (uint64_t)_i + 1;
	for (i = 0; i < STEPS; i++) {
		change(i + (unsigned int)below(3));
		seal_each_way();
	}
	end();
}
END_TEST

START_TEST(nothing_is_read_that_did_not_change)
{
	struct fdry_seal_report r;
	char first[FDRY_ID_SIZE], id[FDRY_ID_SIZE];
	uint64_t at, read;

	begin();
	ck_assert_uint_gt(seal_read(first, &r), BIG + SCRATCH_BYTES);
	ck_assert_uint_le(seal_read(id, &r), 64 << 10);
	ck_assert_str_eq(first, id);
	ck_assert_uint_eq(r.unchanged_bytes, r.content_bytes);
	for (at = 0; at < BIG; at += MIB + 4097) {
		bit_flip(big + at, 1);
		read = seal_read(id, &r);
		ck_assert_uint_ge(read, 1);
		ck_assert_uint_le(read, 2 * MIB + (64 << 10));
		ck_assert_str_ne(first, id);
		memcpy(first, id, sizeof(id));
	}
	bit_flip(scratch + SCRATCH_BYTES - 1, 1);
	read = seal_read(id, &r);
	ck_assert_uint_ge(read, MIB);
	ck_assert_uint_le(read, 6 * MIB);
	ck_assert_str_ne(first, id);
	ck_assert_uint_eq(counted(FDRY_METRIC_SEAL_FALLBACKS), 0);
	end();
}
END_TEST

/* An unchanged graph is not hashed again; a store that lost it, or another store, still gets it. */
START_TEST(graph_objects_are_kept)
{
	struct fdry_verify_report found = { .sz = sizeof(found) };
	struct fdry_gc_report gone = { .sz = sizeof(gone) };
	char first[FDRY_ID_SIZE], id[FDRY_ID_SIZE], name[400];
	struct fdry_seal_report r;
	struct fdry_store *other;

	begin();
	ok(fdry_capture_graph_fixed(w.cap, 1, 1));
	seal_read(first, &r);
	ck_assert_uint_gt(r.graph_bytes, 0);
	seal_read(id, &r);
	ck_assert_str_eq(first, id);
	ck_assert_uint_gt(r.graph_bytes, 0);
	ck_assert_uint_gt(r.nodes, 0);
	ok(fdry_store_remove(w.store, "img"));
	ok(fdry_store_gc(w.store, NULL, &gone));
	ck_assert_uint_gt(gone.dead, 0);
	seal_read(id, &r);
	ck_assert_str_eq(first, id);
	snprintf(name, sizeof(name), "%s/other", path);
	ok(fdry_store_open(name, FDRY_STORE_CREATE, &other));
	ok(fdry_capture_seal(w.cap, other, "img", id, NULL));
	ck_assert_str_eq(first, id);
	fdry_store_close(other);
	ok(fdry_store_verify(name, NULL, &found));
	ck_assert_uint_eq(found.faults, 0);
	ok(fdry_store_verify(path, NULL, &found));
	ck_assert_uint_eq(found.faults, 0);
	end();
}
END_TEST

/* --- words that may be pointers --- */

/* Register host memory at an address that the test chooses. */
static void pinned_at(uint64_t addr)
{
	void *p = mmap((void *)(uintptr_t)addr, 4096, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	ck_assert_uint_eq((uintptr_t)p, addr);
	cuda_ok(cuMemHostRegister_v2, p, 4096, 0);
}

static void pinned_end(uint64_t addr)
{
	cuda_ok(cuMemHostUnregister, (void *)(uintptr_t)addr);
	munmap((void *)(uintptr_t)addr, 4096);
}

/* A word becomes a pointer, and then a number again, while no byte of content changes. With @_i,
 * its upper half was that of a mapping before. */
START_TEST(words_are_judged_at_each_seal)
{
	const uint64_t word = 0x123400100000ull;
	char first[FDRY_ID_SIZE], id[FDRY_ID_SIZE];
	struct fdry_seal_report r;
	int round;

	begin();
	cuda_ok(cuMemcpyHtoD_v2, big + 2 * MIB + 64, &word, sizeof(word));
	if (_i)
		pinned_at(word + (64 << 10));
	seal_read(first, &r);
	for (round = 0; round < 3; round++) {
		pinned_at(word);
		fails(REFUSED, "0x123400100000", work_seal(&w, "img"));
		fails(REFUSED, "0x123400100000", work_seal(&w, "img"));
		pinned_end(word);
		seal_read(id, &r);
		ck_assert_str_eq(first, id);
	}
	if (_i)
		pinned_end(word + (64 << 10));
	ck_assert_uint_le(seal_read(id, &r), 64 << 10);
	end();
}
END_TEST

/* Content that consists of addresses is read each time, and only that. */
START_TEST(many_words_are_not_kept)
{
	uint64_t *words, i, read;
	char first[FDRY_ID_SIZE], id[FDRY_ID_SIZE];
	struct fdry_seal_report r;

	begin();
	words = (uint64_t *)(void *)mine;
	for (i = 0; i < MIB / 8; i++)
		words[i] = big + i;
	cuda_ok(cuMemcpyHtoD_v2, big, mine, MIB);
	seal_read(first, &r);
	read = seal_read(id, &r);
	ck_assert_str_eq(first, id);
	ck_assert_uint_ge(read, MIB);
	ck_assert_uint_le(read, 2 * MIB + (64 << 10));
	seal_each_way();
	end();
}
END_TEST

/* Map a new page in the 4 GiB below a mapped one. */
static void *page_below(void)
{
	struct fdry_maps_range *r;
	uint64_t window = 0, last = 0;
	size_t i, n;

	ok(fdry_maps_list(&r, &n));
	for (i = 0; i < n && !window; i++) {
		if (last && r[i].start >> 32 > last + 2)
			window = (r[i].start >> 32) - 1;
		last = (r[i].end - 1) >> 32;
	}
	free(r);
	ck_assert_uint_ne(window, 0);
	return mmap((void *)(uintptr_t)(window << 32), 4096, PROT_READ,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

/* As when the stack of a thread or the heap grows into the next 4 GiB. */
START_TEST(mappings_that_appear_close_by)
{
	char first[FDRY_ID_SIZE], id[FDRY_ID_SIZE];
	struct fdry_seal_report r;
	void *page;

	begin();
	seal_read(first, &r);
	seal_read(id, &r);
	page = page_below();
	ck_assert_ptr_ne(page, MAP_FAILED);
	ck_assert_uint_le(seal_read(id, &r), 64 << 10);
	ck_assert_str_eq(first, id);
	ck_assert(!munmap(page, 4096));
	end();
}
END_TEST

/* --- failures --- */

/* The kernel cannot be loaded, or there is no memory for its table. */
START_TEST(without_the_kernel)
{
	static const char *const calls[] = { "cuModuleLoadDataEx:1+", "cuModuleGetFunction:1+",
					     "cuMemAlloc_v2:1+:2", "cuMemcpyHtoDAsync_v2:1+" };
	char first[FDRY_ID_SIZE], id[FDRY_ID_SIZE];
	struct fdry_seal_report r;

	begin();
	seal_read(first, &r);
	test_sim_fail(calls[_i]);
	ck_assert_uint_gt(seal_read(id, &r), BIG);
	test_sim_fail(NULL);
	ck_assert_str_eq(first, id);
	ck_assert_uint_eq(r.unchanged_bytes, r.content_bytes);
	ck_assert_uint_gt(counted(FDRY_METRIC_SEAL_FALLBACKS), 0);
	ck_assert_uint_le(seal_read(id, &r), 64 << 10);
	ck_assert_str_eq(first, id);
	end();
}
END_TEST

static int access_set(CUdeviceptr p, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, .flags = flags };

	return cuda(cuMemSetAccess, p, 2 * MIB, &access, 1);
}

/* The program maps memory, and removes the device's access after a seal: no kernel may read it,
 * since that would end the context. */
START_TEST(memory_that_is_not_readable)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	char first[FDRY_ID_SIZE], id[FDRY_ID_SIZE];
	CUmemGenericAllocationHandle handle;
	struct fdry_seal_report r;
	uint64_t fallbacks;
	CUdeviceptr p = 0;

	begin();
	cuda_ok(cuMemAddressReserve, &p, 2 * MIB, 0, 0, 0);
	cuda_ok(cuMemCreate, &handle, 2 * MIB, &prop, 0);
	cuda_ok(cuMemMap, p, 2 * MIB, 0, handle, 0);
	ck_assert_int_eq(access_set(p, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), 0);
	cuda_ok(cuMemsetD8_v2, p, 7, 2 * MIB);
	seal_read(first, &r);
	fallbacks = counted(FDRY_METRIC_SEAL_FALLBACKS);
	ck_assert_int_eq(access_set(p, CU_MEM_ACCESS_FLAGS_PROT_NONE), 0);
	ck_assert_int_ne(work_seal(&w, "img"), 0);
	ck_assert_uint_gt(counted(FDRY_METRIC_SEAL_FALLBACKS), fallbacks);
	fallbacks = counted(FDRY_METRIC_SEAL_FALLBACKS);
	ck_assert_int_eq(access_set(p, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), 0);
	ck_assert_uint_le(seal_read(id, &r), 64 << 10);
	ck_assert_str_eq(first, id);
	ck_assert_uint_eq(counted(FDRY_METRIC_SEAL_FALLBACKS), fallbacks);
	end();
}
END_TEST

/* Kept data stays right if a seal fails. */
START_TEST(seal_that_fails_between)
{
	const uint64_t word = (uintptr_t)&w; /* a pointer to the host */
	struct fdry_seal_report r;
	char id[FDRY_ID_SIZE];
	uint64_t keep;

	begin();
	seal_read(id, &r);
	cuda_ok(cuMemcpyDtoH_v2, &keep, big + 8 * MIB, sizeof(keep));
	bit_flip(big + MIB, 1);
	cuda_ok(cuMemcpyHtoD_v2, big + 8 * MIB, &word, sizeof(word));
	cuda_ok(cuMemHostRegister_v2, &w, sizeof(w), 0);
	fails(REFUSED, "which points to", work_seal(&w, "img"));
	cuda_ok(cuMemHostUnregister, &w);
	cuda_ok(cuMemcpyHtoD_v2, big + 8 * MIB, &keep, sizeof(keep));
	seal_each_way();
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_kept");
	TCase *tc = tcase_create("kept");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, image_is_that_of_a_fresh_seal, 0, 3);
	tcase_add_test(tc, nothing_is_read_that_did_not_change);
	tcase_add_test(tc, graph_objects_are_kept);
	if (!TEST_SANITIZED_THREAD) /* which keeps that address to itself */
		tcase_add_loop_test(tc, words_are_judged_at_each_seal, 0, 2);
	tcase_add_test(tc, many_words_are_not_kept);
	if (!TEST_SANITIZED_THREAD)
		tcase_add_test(tc, mappings_that_appear_close_by);
	tcase_add_loop_test(tc, without_the_kernel, 0, 4);
	tcase_add_test(tc, memory_that_is_not_readable);
	tcase_add_test(tc, seal_that_fails_between);
	suite_add_tcase(s, tc);
	return test_main(s);
}
