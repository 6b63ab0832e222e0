// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of the audit that an image stores: the number of words in arguments and content by
 * target. work_seal() compares each with the one that is made from the image.
 */
#include "image/audit.h"
#include "tests/lib/image.h"

static void word_set(CUdeviceptr at, uint64_t word)
{
	cuda_ok(cuMemcpyHtoD_v2, at, &word, sizeof(word));
}

/* --- seals --- */

static const uint64_t none[] = { 0, 1, 0xffffffff, 0x7ffffffffffull, UINT64_MAX };

struct image {
	struct fdry_buf bytes;
	struct fdry_manifest m;
};

static void image_read(struct image *im)
{
	*im = (struct image){ 0 };
	image_manifest_read(&im->bytes, &im->m);
}

/* One graph of c = a + b, whose memory is content; an allocation of 4,096 bytes was freed. */
static void seal_words(void *arg)
{
	CUdeviceptr freed, behind;
	struct work w;
	size_t i;

	(void)arg;
	work_make(&w);
	graph_add(&w, 7);
	cuda_ok(cuMemsetD8_v2, w.a, 0, BYTES);
	cuda_ok(cuMemsetD8_v2, w.b, 0, BYTES);
	cuda_ok(cuMemAlloc_v2, &freed, 2 << 20);
	cuda_ok(cuMemAlloc_v2, &behind, 4096);
	cuda_ok(cuMemFree_v2, freed);
	word_set(w.b, w.a);
	word_set(w.b + 8, w.c + 12);
	word_set(w.b + 24, behind + 4096); /* one past the end of the last memory */
	word_set(w.b + 48, freed + 512);
	word_set(w.b + 80, behind + 4097);
	for (i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		word_set(w.a + 8 * i, none[i]);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(words_are_counted)
{
	const struct fdry_mf_audit *a;
	uint64_t words = 0;
	struct image im;
	uint32_t i;

	test_child(seal_words, NULL);
	image_read(&im);
	ck_assert_uint_eq(im.m.n_audits, 2);
	a = &im.m.audits[1];
	ck_assert_uint_eq(a->graph, FDRY_MF_AUDIT_CONTENT);
	ck_assert_uint_eq(a->inside, 3);
	ck_assert_uint_eq(a->outside, 1);
	ck_assert_uint_eq(a->variables + a->host, 0);
	for (i = 0; i < im.m.n_segments; i++)
		words += im.m.segments[i].size / 8;
	ck_assert_uint_eq(a->none, words - 4);
	ck_assert_uint_eq(im.m.n_audit_words, 1);
	ck_assert_uint_eq(im.m.audit_words[0].at % 4096, 48);
	/* Three vectors; the number of their elements has 4 bytes. */
	ck_assert_uint_eq(im.m.audits[0].inside, 3);
	ck_assert_uint_eq(im.m.audits[0].outside + im.m.audits[0].none, 0);
	fdry_buf_release(&im.bytes);
}
END_TEST

/* Content that a seal does not read again is counted again: other memory may be freed since. */
START_TEST(content_that_is_kept)
{
	CUdeviceptr table, target;
	struct work w;
	int i;

	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &table, 8 << 20);
	cuda_ok(cuMemAlloc_v2, &target, 4 << 20);
	for (i = 0; i < 20; i++)
		word_set(table + (400 << 10) * i, target + 8 * i);
	ok(work_seal(&w, NULL));
	ok(work_seal(&w, NULL));
	cuda_ok(cuMemFree_v2, target);
	ok(work_seal(&w, NULL));
	graph_add(&w, 2);
	word_set(table + 8, w.a);
	ok(work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

/* A cell with more words than a capture remembers is read by each seal. */
START_TEST(many_pointers)
{
	uint64_t *words = malloc(1 << 20);
	CUdeviceptr table;
	struct work w;
	size_t i;

	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &table, 1 << 20);
	for (i = 0; i < (1 << 20) / 8; i++)
		words[i] = table + 8 * i;
	cuda_ok(cuMemcpyHtoD_v2, table, words, 1 << 20);
	ok(work_seal(&w, NULL));
	ok(work_seal(&w, NULL));
	work_end(&w);
	free(words);
}
END_TEST

/* Pinned memory is in the image because words point to it: in content, and in arguments. */
static void seal_pinned(void *arg)
{
	uint64_t *host, *other;
	struct work w;

	(void)arg;
	work_flags = FDRY_CAPTURE_PINNED;
	work_make(&w);
	cuda_ok(cuMemAllocHost_v2, (void **)&host, 4096);
	cuda_ok(cuMemAllocHost_v2, (void **)&other, 4096);
	memset(host, 0, 4096);
	memset(other, 0, 4096);
	capture_start(&w);
	launch_add(&w, w.a, (CUdeviceptr)(uintptr_t)host, w.c);
	ok(fdry_capture_graph(w.cap, 1, "add", capture_stop(&w)));
	word_set(w.b + 8, (uint64_t)(uintptr_t)other + 8);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(pinned_memory)
{
	struct image im;

	/* The thread sanitizer leaves no place for areas of pinned memory. */
	if (TEST_SANITIZED_THREAD)
		return;
	test_child(seal_pinned, NULL);
	image_read(&im);
	ck_assert_uint_eq(im.m.n_pinned, 2);
	ck_assert_uint_eq(im.m.audits[0].host, 1);
	ck_assert_uint_eq(im.m.audits[0].inside, 2);
	ck_assert_uint_eq(im.m.audits[1].host, 1);
	fdry_buf_release(&im.bytes);
}
END_TEST

/* --- manifests --- */

#define BASE 0x500000000000ull
#define put(buf, ...) ok(fdry_buf_put(&(buf), &(__VA_ARGS__), sizeof(__VA_ARGS__)))
#define entry(i) fdry_array(w->audits, struct fdry_mf_audit)[i]
#define word(i) fdry_array(w->audit_words, struct fdry_mf_audit_word)[i]
#define DAMAGE(name, body) static void name(struct fdry_manifest_writer *w) { body; }

/* Two graphs of three nodes; two words point outside. */
static void manifest_fill(struct fdry_manifest_writer *w)
{
	w->base = BASE;
	w->end = BASE + 8192;
	put(w->segments, ((struct fdry_mf_segment){ BASE, 4096, 0, 0 }));
	put(w->graphs, ((struct fdry_mf_graph){ .key = 1, .nodes = 3 }));
	put(w->graphs, ((struct fdry_mf_graph){ .key = 2, .nodes = 3 }));
	put(w->audits, ((struct fdry_mf_audit){ .graph = 0, .inside = 3 }));
	put(w->audits, ((struct fdry_mf_audit){ .graph = 1, .outside = 1 }));
	put(w->audits, ((struct fdry_mf_audit){ .graph = FDRY_MF_AUDIT_CONTENT, .outside = 1 }));
	put(w->audit_words, ((struct fdry_mf_audit_word){ 1, 2, 8, BASE + 5000 }));
	put(w->audit_words, ((struct fdry_mf_audit_word){ FDRY_MF_AUDIT_CONTENT, 0, BASE + 8,
							  BASE + 8000 }));
}

DAMAGE(nothing, (void)w)
DAMAGE(no_audit, w->audits.len = w->audit_words.len = 0)
DAMAGE(an_entry_less, w->audits.len -= sizeof(struct fdry_mf_audit))
DAMAGE(only_words, w->audits.len = 0)
DAMAGE(a_graph_twice, entry(1).graph = 0)
DAMAGE(no_content, entry(2).graph = 2)
DAMAGE(reserved, entry(0).reserved = 1)
DAMAGE(a_word_less, w->audit_words.len -= sizeof(struct fdry_mf_audit_word))
DAMAGE(more_counted, entry(0).outside = UINT64_MAX)
DAMAGE(no_such_graph, word(0).graph = 2)
DAMAGE(no_such_node, word(0).node = 3)
DAMAGE(a_node_of_content, word(1).node = 1)
DAMAGE(an_odd_place, word(0).at = 12)
DAMAGE(below, word(0).word = BASE - 1)
DAMAGE(above, word(1).word = BASE + 8193)
DAMAGE(order, word(1) = word(0); word(1).at = 0)
DAMAGE(twice, word(1) = word(0))

static const struct {
	void (*damage)(struct fdry_manifest_writer *w);
	const char *says; /* NULL: it is valid */
} damages[] = {
	{ nothing, NULL },
	{ no_audit, NULL },
	{ an_entry_less, "the audit has not one entry for each graph" },
	{ only_words, "the audit does not list the words" },
	{ a_graph_twice, "entry 1 of the audit" },
	{ no_content, "entry 2 of the audit" },
	{ reserved, "entry 0 of the audit" },
	{ a_word_less, "the audit does not list the words" },
	{ more_counted, "the audit does not list the words" },
	{ no_such_graph, "word 0 of the audit" },
	{ no_such_node, "word 0 of the audit" },
	{ a_node_of_content, "word 1 of the audit" },
	{ an_odd_place, "word 0 of the audit" },
	{ below, "word 0 of the audit" },
	{ above, "word 1 of the audit" },
	{ order, "word 1 of the audit" },
	{ twice, "word 1 of the audit" },
};

START_TEST(every_field_is_checked)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };

	manifest_fill(&w);
	damages[_i].damage(&w);
	if (damages[_i].says)
		fails(BADIMAGE, damages[_i].says, fdry_manifest_encode(&w, &b));
	else
		ok(fdry_manifest_encode(&w, &b));
	fdry_buf_release(&b);
	fdry_manifest_writer_release(&w);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		words_are_counted, content_that_is_kept, many_pointers, pinned_memory,
	};
	Suite *s = suite_create("image_audit");
	TCase *tc = tcase_create("audit");
	size_t i;

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	tcase_add_loop_test(tc, every_field_is_checked, 0, sizeof(damages) / sizeof(damages[0]));
	suite_add_tcase(s, tc);
	return test_main(s);
}
