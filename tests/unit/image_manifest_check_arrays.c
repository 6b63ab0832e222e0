// SPDX-License-Identifier: Apache-2.0
/* Unit tests of manifests whose sections about CUDA arrays are damaged, and of pieces. */
#include <stdlib.h>

#include "image/array_pieces.h"
#include "tests/lib/test.h"

#define BASE 0x500000000000ull
#define put(buf, ...) ok(fdry_buf_put(&(buf), &(__VA_ARGS__), sizeof(__VA_ARGS__)))
#define entry(w, member, type, i) (((type *)(void *)(w)->member.data)[i])
#define DAMAGE(name, ...) static void name(struct fdry_manifest_writer *w) { __VA_ARGS__; }

/* A line; a plane of three pieces; a box of two. */
static void fill_arrays(struct fdry_manifest_writer *w)
{
	w->base = w->end = BASE;
	put(w->arrays, (struct fdry_mf_array){ .width = 100, .format = 2, .channels = 2 });
	put(w->arrays, (struct fdry_mf_array){ .width = 1024, .height = 300, .format = 32,
					       .channels = 4, .flags = 2 });
	put(w->arrays, (struct fdry_mf_array){ .width = 1024, .height = 512, .depth = 6,
					       .format = 8, .channels = 1 });
	put(w->array_pieces, (struct fdry_mf_array_piece){ .array = 0, .oid = { { 1 } } });
	put(w->array_pieces, (struct fdry_mf_array_piece){ .array = 1, .piece = 2,
							   .oid = { { 2 } } });
	put(w->array_pieces, (struct fdry_mf_array_piece){ .array = 2, .piece = 1,
							   .oid = { { 2 } } });
}

START_TEST(arrays_are_found)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };
	struct fdry_manifest m;
	struct fdry_oid *links;
	size_t n;

	fill_arrays(&w);
	ok(fdry_manifest_encode(&w, &b));
	ok(fdry_manifest_init((struct fdry_span){ b.data, b.len }, &m));
	ok(fdry_manifest_links(&m, &links, &n));
	ck_assert_uint_eq(n, 2);
	free(links);
	ck_assert_uint_eq(m.n_arrays, 3);
	ck_assert_uint_eq(m.n_array_pieces, 3);
	ck_assert_uint_eq(fdry_manifest_arrays_bytes(&m),
			  400 + 1024 * 16 * 300 + 1024 * 512 * 6);
	fdry_buf_release(&b);
	fdry_manifest_writer_release(&w);
}
END_TEST

static void piece_is(const struct fdry_mf_array *mf, uint64_t i, struct fdry_cuarray_piece want)
{
	struct fdry_cuarray a = fdry_cuarray_of(mf);
	struct fdry_cuarray_piece p = fdry_cuarray_piece(&a, i);

	ck_assert_uint_eq(p.y, want.y);
	ck_assert_uint_eq(p.z, want.z);
	ck_assert_uint_eq(p.rows, want.rows);
	ck_assert_uint_eq(p.slices, want.slices);
	ck_assert_uint_eq(p.bytes, want.bytes);
}

static uint64_t pieces(const struct fdry_mf_array *mf)
{
	struct fdry_cuarray a = fdry_cuarray_of(mf);

	return fdry_cuarray_pieces(&a);
}

START_TEST(pieces_are_whole_slices_or_rows)
{
	struct fdry_mf_array line = { .width = 131072, .format = 32, .channels = 4 },
			     plane = { .width = 1024, .height = 300, .format = 32, .channels = 4 },
			     box = { .width = 1024, .height = 512, .depth = 6, .format = 8,
				     .channels = 1 },
			     deep = { .width = 1024, .height = 1025, .depth = 3, .format = 32,
				      .channels = 1 };

	ck_assert_ptr_null(fdry_cuarray_fault(&line));
	ck_assert_uint_eq(pieces(&line), 1);
	piece_is(&line, 0, (struct fdry_cuarray_piece){ 0, 0, 1, 1, 2u << 20 });
	ck_assert_uint_eq(pieces(&plane), 3);
	piece_is(&plane, 1, (struct fdry_cuarray_piece){ 128, 0, 128, 1, 2u << 20 });
	piece_is(&plane, 2, (struct fdry_cuarray_piece){ 256, 0, 44, 1, 44u << 14 });
	ck_assert_uint_eq(pieces(&box), 2);
	piece_is(&box, 0, (struct fdry_cuarray_piece){ 0, 0, 512, 4, 2u << 20 });
	piece_is(&box, 1, (struct fdry_cuarray_piece){ 0, 4, 512, 2, 1u << 20 });
	ck_assert_uint_eq(pieces(&deep), 9);
	piece_is(&deep, 4, (struct fdry_cuarray_piece){ 512, 1, 512, 1, 2u << 20 });
	piece_is(&deep, 8, (struct fdry_cuarray_piece){ 1024, 2, 1, 1, 4096 });
}
END_TEST

/* --- mipmapped arrays --- */

/* Levels 1 and 0 of a plane, and level 3 of layers; between them the arrays from above. */
static void fill_mipmaps(struct fdry_manifest_writer *w)
{
	const struct fdry_mf_array plane = { .width = 301, .height = 4, .format = 32,
					     .channels = 1 };
	const struct fdry_mf_array layers = { .width = 9, .depth = 6, .format = 1,
					      .channels = 4, .flags = 1 };
	const struct fdry_mf_mipmap m[] = { { .top = plane, .levels = 2 },
					    { .top = layers, .levels = 32 } };
	const struct fdry_mf_array half = fdry_mipmap_level_of(&m[0], 1);
	const struct fdry_mf_array least = fdry_mipmap_level_of(&m[1], 3);

	fill_arrays(w);
	put(w->arrays, half);
	put(w->arrays, least);
	put(w->arrays, plane);
	put(w->mipmaps, m[0]);
	put(w->mipmaps, m[1]);
	put(w->mipmap_levels, (struct fdry_mf_mipmap_level){ .array = 3, .level = 1 });
	put(w->mipmap_levels, (struct fdry_mf_mipmap_level){ .array = 4, .mipmap = 1,
							     .level = 3 });
	put(w->mipmap_levels, (struct fdry_mf_mipmap_level){ .array = 5 });
}

START_TEST(mipmaps_are_found)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };
	struct fdry_manifest m;

	fill_mipmaps(&w);
	ok(fdry_manifest_encode(&w, &b));
	ok(fdry_manifest_init((struct fdry_span){ b.data, b.len }, &m));
	ck_assert_ptr_null(fdry_manifest_level(&m, 2));
	ck_assert_uint_eq(fdry_manifest_level(&m, 4)->level, 3);
	ck_assert_uint_eq(m.arrays[3].width, 150);
	ck_assert_uint_eq(m.arrays[3].height, 2);
	ck_assert_uint_eq(m.arrays[3].depth, 0);
	ck_assert_uint_eq(m.arrays[4].width, 1);
	ck_assert_uint_eq(m.arrays[4].height, 0);
	ck_assert_uint_eq(m.arrays[4].depth, 6);
	/* All levels count, as many as there can be. */
	ck_assert_uint_eq(fdry_mipmap_levels(&m.mipmaps[0]), 2);
	ck_assert_uint_eq(fdry_mipmap_levels(&m.mipmaps[1]), 4);
	ck_assert_uint_eq(fdry_manifest_arrays_bytes(&m),
			  400 + 1024 * 16 * 300 + 1024 * 512 * 6 + 301 * 4 * 4 + 150 * 4 * 2 +
				  (9 + 4 + 2 + 1) * 4 * 6);
	fdry_buf_release(&b);
	fdry_manifest_writer_release(&w);
}
END_TEST

START_TEST(extents_of_levels)
{
	const struct fdry_mf_mipmap box = { .top = { .width = 10, .height = 5, .depth = 40,
						     .format = 1, .channels = 1 }, .levels = 9 };
	const struct fdry_mf_mipmap cube = { .top = { .width = 8, .height = 8, .depth = 6,
						      .format = 1, .channels = 1, .flags = 4 },
					     .levels = 9 };
	struct fdry_mf_array a = fdry_mipmap_level_of(&box, 3);

	ck_assert_uint_eq(a.width, 1);
	ck_assert_uint_eq(a.height, 1);
	ck_assert_uint_eq(a.depth, 5);
	ck_assert_uint_eq(fdry_mipmap_levels(&box), 6);
	a = fdry_mipmap_level_of(&cube, 2);
	ck_assert_uint_eq(a.width, 2);
	ck_assert_uint_eq(a.depth, 6);
	ck_assert_uint_eq(fdry_mipmap_levels(&cube), 4);
}
END_TEST

#define array(i) entry(w, arrays, struct fdry_mf_array, i)
#define piece(i) entry(w, array_pieces, struct fdry_mf_array_piece, i)
DAMAGE(format, array(1).format = 4)
DAMAGE(channels, array(1).channels = 3)
DAMAGE(flags, array(2).flags = 0x40)
DAMAGE(width, array(0).width = 0)
DAMAGE(height, array(1).height = (1u << 20) + 1)
DAMAGE(depth, array(2).depth = UINT32_MAX)
DAMAGE(row, array(1).width = 131073)
DAMAGE(bytes, array(1) = (struct fdry_mf_array){ .width = 131072, .height = 1u << 20,
						 .format = 32, .channels = 4 })
DAMAGE(piece_array, piece(2).array = 6)
DAMAGE(piece_beyond, piece(0).piece = 1)
DAMAGE(piece_beyond_rows, piece(1).piece = 3)
DAMAGE(piece_twice, piece(2) = piece(1))
DAMAGE(piece_order, piece(2) = piece(0))
DAMAGE(no_array, w->arrays.len = 0)
#define mipmap(i) entry(w, mipmaps, struct fdry_mf_mipmap, i)
#define level(i) entry(w, mipmap_levels, struct fdry_mf_mipmap_level, i)
DAMAGE(mipmap_format, mipmap(1).top.format = 4)
DAMAGE(mipmap_levels, mipmap(1).levels = 33)
DAMAGE(mipmap_no_levels, mipmap(0).levels = 0)
DAMAGE(mipmap_reserved, mipmap(0).reserved = 1)
DAMAGE(level_array, level(2).array = 6)
DAMAGE(level_mipmap, level(2).mipmap = 2)
DAMAGE(level_beyond, level(0).level = 2)
DAMAGE(level_reserved, level(1).reserved = 1)
DAMAGE(level_order, level(2).array = 4)
DAMAGE(level_first, level(0).mipmap = 1; level(1).mipmap = 0)
DAMAGE(level_twice, level(2).level = 1)
DAMAGE(level_extent, array(4).width = 2)
DAMAGE(level_flags, array(4).flags = 0)
DAMAGE(unused_mipmap, w->mipmap_levels.len -= 2 * sizeof(struct fdry_mf_mipmap_level))
DAMAGE(no_levels, w->mipmap_levels.len = 0)
DAMAGE(no_mipmaps, w->mipmaps.len = 0)

static const struct {
	const char *says;
	void (*damage)(struct fdry_manifest_writer *w);
} damages[] = {
	{ "array 1 has a format that this version does not know", format },
	{ "array 1 has a format that this version does not know", channels },
	{ "array 2 has flags that this version does not know", flags },
	{ "array 0 has a width, height or depth that no array has", width },
	{ "array 1 has a width, height or depth that no array has", height },
	{ "array 2 has a width, height or depth that no array has", depth },
	{ "array 1 has rows of more than 2 MiB", row },
	{ "array 1 has more than 1 TiB", bytes },
	{ "piece 2 belongs to no array", piece_array },
	{ "piece 0 lies beyond its array", piece_beyond },
	{ "piece 1 lies beyond its array", piece_beyond_rows },
	{ "piece 2 of an array is out of order", piece_twice },
	{ "piece 2 of an array is out of order", piece_order },
	{ "piece 0 belongs to no array", no_array },
	{ "mipmapped array 1 has a format that this version does not know", mipmap_format },
	{ "mipmapped array 1 has a number of levels that none has", mipmap_levels },
	{ "mipmapped array 0 has a number of levels that none has", mipmap_no_levels },
	{ "mipmapped array 0 has a number of levels that none has", mipmap_reserved },
	{ "level 2 names an array, a mipmapped array or a level", level_array },
	{ "level 2 names an array, a mipmapped array or a level", level_mipmap },
	{ "level 0 names an array, a mipmapped array or a level", level_beyond },
	{ "level 1 names an array, a mipmapped array or a level", level_reserved },
	{ "level 2 of a mipmapped array is out of order", level_order },
	{ "level 0 of a mipmapped array is out of order", level_first },
	{ "level 2 of a mipmapped array is there twice", level_twice },
	{ "array 4 differs from its level of a mipmapped array", level_extent },
	{ "array 4 differs from its level of a mipmapped array", level_flags },
	{ "a mipmapped array has no level that graphs use", unused_mipmap },
	{ "a mipmapped array has no level that graphs use", no_levels },
	{ "level 0 names an array, a mipmapped array or a level", no_mipmaps },
};

START_TEST(damage_is_named)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };

	fill_mipmaps(&w);
	damages[_i].damage(&w);
	fails(BADIMAGE, damages[_i].says, fdry_manifest_encode(&w, &b));
	fdry_manifest_writer_release(&w);
}
END_TEST

START_TEST(too_many_arrays)
{
	struct fdry_manifest_writer w = { .base = BASE, .end = BASE };
	struct fdry_buf b = { 0 };
	uint32_t i;

	for (i = 0; i <= FDRY_CUARRAYS_MAX; i++)
		put(w.arrays, (struct fdry_mf_array){ .width = 1, .format = 1, .channels = 1 });
	fails(LIMIT, "the image has 65537 arrays, and 65536 are allowed",
	      fdry_manifest_encode(&w, &b));
	fdry_manifest_writer_release(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_manifest_check_arrays");
	TCase *tc = tcase_create("arrays");

	tcase_add_test(tc, arrays_are_found);
	tcase_add_test(tc, pieces_are_whole_slices_or_rows);
	tcase_add_loop_test(tc, damage_is_named, 0, sizeof(damages) / sizeof(damages[0]));
	tcase_add_test(tc, mipmaps_are_found);
	tcase_add_test(tc, extents_of_levels);
	tcase_add_test(tc, too_many_arrays);
	suite_add_tcase(s, tc);
	return test_main(s);
}
