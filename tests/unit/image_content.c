// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of how content is cut into chunks: each named tensor has chunks of its own, so that
 * equal tensors are stored once.
 */
#include "image/manifest.h"
#include "tests/lib/image.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

static CUdeviceptr memory(size_t size)
{
	CUdeviceptr p;

	cuda_ok(cuMemAlloc_v2, &p, size);
	return p;
}

static void noise_put(CUdeviceptr at, uint64_t seed, size_t len)
{
	uint8_t *bytes = malloc(len);

	noise(seed, bytes, len);
	cuda_ok(cuMemcpyHtoD_v2, at, bytes, len);
	free(bytes);
}

static void named(struct work *w, const char *name, CUdeviceptr addr, size_t bytes, uint32_t flags)
{
	struct fdry_tensor t = { .name = name, .addr = addr, .dtype = FDRY_U8,
				 .use = FDRY_USE_CONST, .flags = flags, .rank = 1,
				 .shape = { (int64_t)bytes }, .stride = { 1 } };

	ok(fdry_capture_tensor(w->cap, &t));
}

/* A seal's result for a capture's memory. */
struct sealed {
	struct fdry_buf bytes;
	struct fdry_manifest m;
	struct fdry_seal_report report;
};

static void seal_take(struct work *w, struct sealed *s)
{
	struct fdry_reader *reader;
	struct fdry_oid id;

	*s = (struct sealed){ .report.sz = sizeof(s->report) };
	ok(fdry_capture_seal(w->cap, w->store, "img", NULL, &s->report));
	ok(fdry_store_resolve(w->store, "img", &id));
	ok(fdry_reader_begin(w->store, &reader));
	ok(fdry_reader_copy(reader, &id, &s->bytes));
	ok(fdry_manifest_init((struct fdry_span){ s->bytes.data, s->bytes.len }, &s->m));
	fdry_reader_end(reader);
}

/* The chunks from @from on, up to @to; @sizes ends with 0. */
static void check_chunks(const struct sealed *s, uint64_t from, uint64_t to, const uint64_t *sizes)
{
	uint64_t at = from;
	uint32_t i;

	for (i = 0; i < s->m.n_chunks; i++) {
		const struct fdry_mf_chunk *c = &s->m.chunks[i];

		if (c->addr < from || c->addr >= to)
			continue;
		ck_assert_msg(c->addr == at, "a chunk begins at %#llx, not at %#llx",
			      (unsigned long long)(c->addr - from),
			      (unsigned long long)(at - from));
		ck_assert_msg(c->size == *sizes, "the chunk at %#llx has %llu bytes, not %llu",
			      (unsigned long long)(at - from), (unsigned long long)c->size,
			      (unsigned long long)*sizes);
		at += c->size;
		sizes++;
	}
	ck_assert_uint_eq(*sizes, 0);
	ck_assert_uint_eq(at, to);
}

#define CHECK_CHUNKS(s, from, to, ...) \
	check_chunks(s, from, to, (const uint64_t[]){ __VA_ARGS__, 0 })

/* 8 MiB of noise, at a multiple of 2 MiB. */
static CUdeviceptr start(struct work *w)
{
	CUdeviceptr p;

	work_make(w);
	graph_add(w, 1);
	p = memory(10 * MIB);
	p = (p + 2 * MIB - 1) & ~(2 * MIB - 1);
	noise_put(p, 1, 8 * MIB);
	return p;
}

static void end(struct work *w, struct sealed *s)
{
	fdry_buf_release(&s->bytes);
	work_end(w);
}

START_TEST(memory_without_names)
{
	struct sealed s;
	struct work w;
	CUdeviceptr p = start(&w);

	seal_take(&w, &s);
	CHECK_CHUNKS(&s, p, p + 8 * MIB, 2 * MIB, 2 * MIB, 2 * MIB, 2 * MIB);
	end(&w, &s);
}
END_TEST

START_TEST(tensor_is_cut_out)
{
	struct sealed s;
	struct work w;
	CUdeviceptr p = start(&w);

	named(&w, "t", p + 1536, 3 * MIB + 16, 0);
	seal_take(&w, &s);
	CHECK_CHUNKS(&s, p, p + 8 * MIB, 1536, 2 * MIB, MIB + 16, MIB - 1536 - 16, 2 * MIB,
		     2 * MIB);
	end(&w, &s);
}
END_TEST

/* No chunk reaches over the border of two that follow each other. */
START_TEST(tensors_that_touch)
{
	struct sealed s;
	struct work w;
	CUdeviceptr p = start(&w);

	named(&w, "second", p + 100 * KIB, 64 * KIB, 0);
	named(&w, "first", p + 4096, 96 * KIB, 0);
	seal_take(&w, &s);
	CHECK_CHUNKS(&s, p, p + 8 * MIB, 4096, 96 * KIB, 64 * KIB, 2 * MIB - 164 * KIB, 2 * MIB,
		     2 * MIB, 2 * MIB);
	end(&w, &s);
}
END_TEST

/* Such tensors are too small, or begin or end at a place where a word could be in two chunks. */
START_TEST(tensors_that_are_not_cut_out)
{
	static const struct {
		uint64_t at, size;
	} cases[] = { { 512, 64 * KIB - 16 }, { 520, 64 * KIB + 8 }, { 512, 64 * KIB + 8 } };
	struct sealed s;
	struct work w;
	CUdeviceptr p = start(&w);

	named(&w, "t", p + cases[_i].at, cases[_i].size, 0);
	seal_take(&w, &s);
	CHECK_CHUNKS(&s, p, p + 8 * MIB, 2 * MIB, 2 * MIB, 2 * MIB, 2 * MIB);
	end(&w, &s);
}
END_TEST

/* The first of tensors that share bytes counts, and the largest of those that begin together. Views
 * cut nothing. */
START_TEST(tensors_that_share_bytes)
{
	struct sealed s;
	struct work w;
	CUdeviceptr p = start(&w);

	named(&w, "a-view", p + 4096, 128 * KIB, 0);
	named(&w, "inside", p + 64 * KIB, 64 * KIB, 0);
	named(&w, "t", p + 4096, MIB, 0);
	named(&w, "over-its-end", p + MIB, 512 * KIB, 0);
	named(&w, "behind", p + MIB + 4096, 64 * KIB, 0);
	seal_take(&w, &s);
	CHECK_CHUNKS(&s, p, p + 8 * MIB, 4096, MIB, 64 * KIB, 960 * KIB - 4096, 2 * MIB, 2 * MIB,
		     2 * MIB);
	end(&w, &s);
}
END_TEST

/* No chunk has external memory; memory behind it is cut as usual. */
START_TEST(external_tensor_between)
{
	struct sealed s;
	struct work w;
	CUdeviceptr p = start(&w);

	named(&w, "e", p + 2 * MIB, 2 * MIB, FDRY_TENSOR_EXTERNAL);
	named(&w, "t", p + 4 * MIB, 128 * KIB, 0);
	seal_take(&w, &s);
	CHECK_CHUNKS(&s, p, p + 2 * MIB, 2 * MIB);
	CHECK_CHUNKS(&s, p + 4 * MIB, p + 8 * MIB, 128 * KIB, 2 * MIB - 128 * KIB, 2 * MIB);
	end(&w, &s);
}
END_TEST

START_TEST(description_says_what_content_is_of)
{
	const uint64_t in_tensors = 128 * KIB + 64;
	char *text, line[200];
	struct sealed s;
	struct work w;
	CUdeviceptr p = start(&w);

	named(&w, "e", p + 2 * MIB, 2 * MIB, FDRY_TENSOR_EXTERNAL);
	named(&w, "t", p + 4 * MIB, 128 * KIB, 0);
	named(&w, "view", p + 4 * MIB + 64, 128 * KIB, 0);
	seal_take(&w, &s);
	ok(fdry_image_describe(w.store, "img", &text));
	snprintf(line, sizeof(line), "\ncontent of tensors %llu, of other memory %llu\n",
		 (unsigned long long)in_tensors,
		 (unsigned long long)(s.report.content_bytes - in_tensors));
	ck_assert_msg(strstr(text, line), "%s: no line %s", text, line);
	snprintf(line, sizeof(line), "\ncontent in no tensor %#llx %llu of %llu\n",
		 (unsigned long long)p, (unsigned long long)(6 * MIB - in_tensors), 10 * MIB);
	ck_assert_msg(strstr(text, line), "%s: no line %s", text, line);
	free(text);
	end(&w, &s);
}
END_TEST

/* Zeros are counted from the tensor's beginning, and do not join its last block to the next memory.
 */
START_TEST(zeros_in_a_tensor)
{
	struct sealed s;
	struct work w;
	CUdeviceptr p = start(&w), t = p + 2 * MIB + 512;

	named(&w, "t", t, MIB, 0);
	cuda_ok(cuMemsetD8_v2, t + 4096, 0, 64 * KIB); /* exactly the tensor's blocks */
	cuda_ok(cuMemsetD8_v2, t + MIB - 4096, 0, 4096 + 512);    /* also beyond its last byte */
	seal_take(&w, &s);
	CHECK_CHUNKS(&s, t, t + 4096, 4096);
	CHECK_CHUNKS(&s, t + 4096 + 64 * KIB, t + MIB - 4096, MIB - 8192 - 64 * KIB);
	ck_assert_uint_eq(s.report.zero_bytes + s.report.content_bytes, 10 * MIB + 12 * KIB);
	end(&w, &s);
}
END_TEST

/* The chunks from @from on are those from @other on. */
static void check_equal(const struct sealed *s, uint64_t from, uint64_t other, uint64_t len)
{
	const struct fdry_mf_chunk *c = s->m.chunks, *a = c, *b = c, *behind = c + s->m.n_chunks;
	size_t n = 0;

	for (; a < behind && a->addr < from; a++)
		;
	for (; b < behind && b->addr < other; b++)
		;
	for (; a < behind && a->addr < from + len; a++, b++, n++) {
		ck_assert(b < behind);
		ck_assert_uint_eq(a->addr - from, b->addr - other);
		ck_assert_uint_eq(a->size, b->size);
		ck_assert(fdry_oid_eq(&a->oid, &b->oid));
	}
	ck_assert_uint_gt(n, 8);
}

/* More than one piece of reading, with zeros in it, at two addresses that have little in common. */
#define LARGE (17 * MIB + 4096 + 16)

START_TEST(equal_tensors_are_stored_once)
{
	struct sealed s;
	struct work w;
	CUdeviceptr p, q;

	work_make(&w);
	graph_add(&w, 1);
	p = memory(LARGE);
	noise_put(p, 1, LARGE);
	cuda_ok(cuMemsetD8_v2, p + 3 * MIB + 700, 0, 200000);
	named(&w, "t", p, LARGE, 0);
	seal_take(&w, &s);
	ck_assert_uint_gt(s.report.objects_new, 10);
	fdry_buf_release(&s.bytes);
	q = memory(LARGE + MIB) + 123 * 512;
	cuda_ok(cuMemcpyDtoD_v2, q, p, LARGE);
	named(&w, "u", q, LARGE, 0);
	seal_take(&w, &s);
	/* The manifest, and no chunk. */
	ck_assert_uint_eq(s.report.objects_new, 1);
	check_equal(&s, p, q, LARGE);
	end(&w, &s);
}
END_TEST

static void seal_named(void *arg)
{
	struct sealed s;
	struct work w;
	CUdeviceptr p = start(&w);

	(void)arg;
	cuda_ok(cuMemsetD8_v2, p + MIB, 0, MIB + 3 * KIB);
	named(&w, "all", p, 40 * KIB, 0);
	named(&w, "t", p + 1536, 3 * MIB + 16, 0);
	named(&w, "u", p + 4 * MIB - 16, MIB, 0);
	named(&w, "whole", p, 8 * MIB - 8, 0);
	seal_take(&w, &s);
	end(&w, &s);
}

START_TEST(content_comes_back)
{
	uint8_t *want = malloc(8 * MIB), *got = malloc(8 * MIB);
	struct fdry_image *img;
	int i;

	noise(1, want, 8 * MIB);
	memset(want + MIB, 0, MIB + 3 * KIB);
	test_child(seal_named, NULL);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	for (i = 0; i < 2; i++) {
		memset(got, 0x5A, 8 * MIB);
		ok(fdry_image_read(img, "whole", got, 8 * MIB - 8, NULL));
		ck_assert(!memcmp(got, want, 8 * MIB - 8));
		memset(got, 0x5A, 8 * MIB);
		ok(fdry_image_write(img, "whole", got, 8 * MIB - 8, NULL));
		ok(fdry_image_restore(img, NULL));
	}
	fdry_image_unload(img);
	free(want);
	free(got);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_content");
	TCase *tc = tcase_create("content");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, memory_without_names);
	tcase_add_test(tc, tensor_is_cut_out);
	tcase_add_test(tc, tensors_that_touch);
	tcase_add_loop_test(tc, tensors_that_are_not_cut_out, 0, 3);
	tcase_add_test(tc, tensors_that_share_bytes);
	tcase_add_test(tc, external_tensor_between);
	tcase_add_test(tc, description_says_what_content_is_of);
	tcase_add_test(tc, zeros_in_a_tensor);
	tcase_add_test(tc, equal_tensors_are_stored_once);
	tcase_add_test(tc, content_comes_back);
	suite_add_tcase(s, tc);
	return test_main(s);
}
