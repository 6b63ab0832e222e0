// SPDX-License-Identifier: Apache-2.0
/* Unit tests of files that images carry: attached after the seal, read back, kept with the image.
 */
#include "image/manifest.h"
#include "lib/sections.h"
#include "tests/lib/image.h"

#define PIECE (2u << 20)
#define LARGE (2 * PIECE + 5)

static uint8_t large[LARGE];

static const struct fdry_file some[] = {
	{ .name = "triton/b/kernel.so", .data = "code", .len = 4, .flags = FDRY_FILE_EXECUTABLE },
	{ .name = "triton/b/empty" },
	{ .name = "triton/a/large", .data = large, .len = LARGE },
	{ .name = "triton/a/piece", .data = large, .len = PIECE },
	{ .name = "triton/a/again", .data = "code", .len = 4 },
};
#define SOME (sizeof(some) / sizeof(some[0]))

struct found {
	char names[200]; /* with a blank after each */
	unsigned int n, stop; /* stop: the file at which the call ends */
};

static int found_add(void *arg, const struct fdry_file *f)
{
	struct found *found = arg;
	size_t i;

	for (i = 0; i < SOME; i++)
		if (!strcmp(some[i].name, f->name)) {
			ck_assert_uint_eq(f->len, some[i].len);
			ck_assert_uint_eq(f->flags, some[i].flags);
			ck_assert(!f->len || !memcmp(f->data, some[i].data, f->len));
		}
	strcat(strcat(found->names, f->name), " ");
	return ++found->n == found->stop ? 7 : 0;
}

static struct fdry_store *sealed_store(void)
{
	size_t i;

	for (i = 0; i < LARGE; i++)
		large[i] = (uint8_t)(i * 7 + i / 256 + i / PIECE);
	test_child(seal_plain, NULL);
	return load_store();
}

static void found_check(struct fdry_store *s, const char *name)
{
	struct found found = { 0 };

	ok(fdry_image_files(s, name, found_add, &found));
	ck_assert_str_eq(found.names, "triton/a/again triton/a/large triton/a/piece "
				      "triton/b/empty triton/b/kernel.so ");
}

START_TEST(files_are_read_back)
{
	char before[FDRY_ID_SIZE], id[FDRY_ID_SIZE], *text;
	struct found found = { .stop = 2 };
	struct fdry_store *s = sealed_store();
	struct fdry_image *img;

	ok(fdry_image_load(s, "img", NULL, &img));
	fdry_image_id(img, before);
	fdry_image_unload(img);
	ok(fdry_image_files(s, "img", found_add, &found));
	ck_assert_uint_eq(found.n, 0);
	ok(fdry_image_attach(s, "img", some, SOME, id));
	ck_assert_str_ne(id, before);
	found_check(s, "img");
	found_check(s, id);
	ck_assert_int_eq(fdry_image_files(s, "img", found_add, &found), 7);
	ck_assert_uint_eq(found.n, 2);
	ok(fdry_image_describe(s, "img", &text));
	ck_assert_ptr_nonnull(strstr(text, "\nfile 4194309 triton/a/large\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nfile 0 triton/b/empty\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nfile 4 triton/b/kernel.so (executable)\n"));
	free(text);
	ok(fdry_image_load(s, "img", NULL, &img));
	fdry_image_id(img, before);
	ck_assert_str_eq(id, before);
	image_check(img, 1, 1, 100);
	fdry_image_unload(img);
}
END_TEST

START_TEST(a_collection_keeps_them)
{
	struct fdry_store *s = sealed_store();
	struct fdry_verify_report report = { .sz = sizeof(report) };
	struct fdry_gc_report gc = { .sz = sizeof(gc) };

	ok(fdry_image_attach(s, "img", some, SOME, NULL));
	ok(fdry_store_gc(s, NULL, &gc));
	ck_assert_uint_eq(gc.dead, 1); /* the manifest without files */
	found_check(s, "img");
	fdry_store_close(s);
	ok(fdry_store_verify(path, NULL, &report));
	ck_assert_uint_eq(report.faults, 0);
}
END_TEST

START_TEST(equal_files_are_stored_once)
{
	struct fdry_store *s = sealed_store();
	struct fdry_store_stat before, after;

	ok(fdry_store_stat(s, NULL, NULL, &before));
	ok(fdry_image_attach(s, "img", some, SOME, NULL));
	ok(fdry_store_stat(s, NULL, NULL, &after));
	/* the large file's three pieces, "code", the manifest */
	ck_assert_uint_eq(after.kinds[0].objects, before.kinds[0].objects + 5);
	fdry_store_close(s);
}
END_TEST

START_TEST(an_image_of_no_ref_gets_none)
{
	struct fdry_store *s = sealed_store();
	struct found found = { 0 };
	struct fdry_image *img;
	char id[FDRY_ID_SIZE], with[FDRY_ID_SIZE];

	ok(fdry_image_load(s, "img", NULL, &img));
	fdry_image_id(img, id);
	fdry_image_unload(img);
	ok(fdry_image_attach(s, id, some, SOME, with));
	found_check(s, with);
	ok(fdry_image_files(s, "img", found_add, &found));
	ck_assert_uint_eq(found.n, 0);
}
END_TEST

START_TEST(invalid_files_are_refused)
{
	static const char *const names[] = { "", "/a", "a/", "a//b", ".", "a/../b", "../a", "a/.",
					     "a\nb", "a\x7f" };
	struct fdry_store *s = sealed_store();
	struct fdry_file f = { .name = "..a", .data = "x", .len = 1 };
	struct fdry_file twice[] = { f, f };
	char name[1026] = { 0 };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		f.name = names[i];
		fails(BADIMAGE, "file piece 0 has a bad name",
		      fdry_image_attach(s, "img", &f, 1, NULL));
	}
	memset(name, 'n', 1025);
	f.name = name;
	fails(BADIMAGE, "file piece 0 has a bad name", fdry_image_attach(s, "img", &f, 1, NULL));
	f.name = "a";
	f.flags = 2;
	fails(BADIMAGE, "an unknown flag", fdry_image_attach(s, "img", &f, 1, NULL));
	f.flags = 0;
	f.reserved = 1;
	fails(INVAL, "sets a reserved field", fdry_image_attach(s, "img", &f, 1, NULL));
	f.reserved = 0;
	f.len = (1ull << 30) + 1;
	fails(LIMIT, "more than 1 GiB", fdry_image_attach(s, "img", &f, 1, NULL));
	f.data = NULL;
	fails(INVAL, "no name or no data", fdry_image_attach(s, "img", &f, 1, NULL));
	fails(EXISTS, "two files have the name '..a'",
	      fdry_image_attach(s, "img", twice, 2, NULL));
	fails(NOENT, "nobody", fdry_image_attach(s, "nobody", twice, 1, NULL));
	fails(NOENT, "nobody", fdry_image_files(s, "nobody", found_add, NULL));
	fails(INVAL, "NULL", fdry_image_files(s, "img", NULL, NULL));
	name[1024] = 0;
	f = (struct fdry_file){ .name = name };
	ok(fdry_image_attach(s, "img", &f, 1, NULL));
}
END_TEST

static void names_check(struct fdry_store *s, const char *names)
{
	struct found found = { 0 };

	ok(fdry_image_files(s, "img", found_add, &found));
	ck_assert_str_eq(found.names, names);
}

/* An image with the files of both calls; of two with one name, the later one. */
START_TEST(further_files_are_added)
{
	struct fdry_file other = some[2], outer[] = { { .name = "a" }, { .name = "z" } };
	struct fdry_store *s = sealed_store();
	char id[FDRY_ID_SIZE], again[FDRY_ID_SIZE];

	other.data = "another";
	other.len = 7;
	ok(fdry_image_attach(s, "img", &other, 1, NULL));
	ok(fdry_image_attach(s, "img", some + 3, 2, NULL));
	ok(fdry_image_attach(s, "img", some, 3, id));
	found_check(s, "img");
	ok(fdry_image_attach(s, "img", some, SOME, again));
	ck_assert_str_eq(again, id);
	ok(fdry_image_attach(s, "img", outer, 2, NULL));
	names_check(s, "a triton/a/again triton/a/large triton/a/piece triton/b/empty "
		       "triton/b/kernel.so z ");
}
END_TEST

START_TEST(loads_of_it_save_the_time_of_the_capture)
{
	struct fdry_store *s = sealed_store();
	struct fdry_load_stats st;
	struct fdry_image *img;

	ok(fdry_image_attach(s, "img", some, SOME, NULL));
	ok(fdry_store_load_stats_zero(s));
	ok(fdry_image_load(s, "img", NULL, &img));
	fdry_image_unload(img);
	ok(fdry_store_load_stats(s, &st));
	ck_assert_uint_eq(st.hits, 1);
	ck_assert_uint_eq(st.saved_hits, 1);
	ck_assert_uint_eq(st.captures, 0);
}
END_TEST

/* The manifest @from with one more section, as a later version may write it. */
static void section_add(const struct fdry_manifest *from, const struct fdry_buf *bytes,
			struct fdry_buf *ret)
{
	struct fdry_mf_header h = *from->header;
	size_t entries = h.sections * sizeof(struct fdry_section);
	const uint8_t *data = bytes->data + sizeof(h) + entries;
	struct fdry_section e;
	uint64_t word = 42;
	size_t at;

	h.sections++;
	h.size += sizeof(e) + sizeof(word);
	ok(fdry_buf_put(ret, &h, sizeof(h)));
	for (at = 0; at < entries; at += sizeof(e)) {
		memcpy(&e, bytes->data + sizeof(h) + at, sizeof(e));
		e.offset += sizeof(e);
		ok(fdry_buf_put(ret, &e, sizeof(e)));
	}
	e = (struct fdry_section){ .id = FDRY_SECTION_OPTIONAL + 99,
				   .offset = h.size - sizeof(word), .length = sizeof(word) };
	ok(fdry_buf_put(ret, &e, sizeof(e)));
	ok(fdry_buf_put(ret, data, bytes->len - sizeof(h) - entries));
	ok(fdry_buf_put(ret, &word, sizeof(word)));
}

START_TEST(parts_of_a_later_version_are_not_lost)
{
	struct fdry_buf bytes = { 0 }, more = { 0 };
	struct fdry_store *s = sealed_store();
	struct fdry_manifest m;

	image_manifest_read(&bytes, &m);
	section_add(&m, &bytes, &more);
	ok(fdry_manifest_init((struct fdry_span){ more.data, more.len }, &m));
	image_manifest_store(&more, &m, "img");
	fails(VERSION, "parts that this version does not know",
	      fdry_image_attach(s, "img", some, SOME, NULL));
	fdry_buf_release(&bytes);
	fdry_buf_release(&more);
}
END_TEST

/* Such a ref comes with a dump of an earlier version. */
START_TEST(a_ref_with_another_identity_has_one_image)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_store *s = sealed_store();
	struct fdry_ref *refs = NULL;
	struct fdry_manifest m;
	size_t n = 0;

	image_manifest_read(&bytes, &m);
	image_manifest_store(&bytes, &m, "other"); /* without an identity */
	ok(fdry_image_attach(s, "other", some, SOME, NULL));
	ok(fdry_ref_list(s, "other", &refs, &n));
	ck_assert_uint_eq(n, 1);
	found_check(s, "other");
	free(refs);
	fdry_buf_release(&bytes);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_files");
	TCase *tc = tcase_create("files");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, files_are_read_back);
	tcase_add_test(tc, a_collection_keeps_them);
	tcase_add_test(tc, equal_files_are_stored_once);
	tcase_add_test(tc, an_image_of_no_ref_gets_none);
	tcase_add_test(tc, invalid_files_are_refused);
	tcase_add_test(tc, further_files_are_added);
	tcase_add_test(tc, loads_of_it_save_the_time_of_the_capture);
	tcase_add_test(tc, parts_of_a_later_version_are_not_lost);
	tcase_add_test(tc, a_ref_with_another_identity_has_one_image);
	suite_add_tcase(s, tc);
	return test_main(s);
}
