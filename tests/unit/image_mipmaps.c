// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of images whose graphs copy from and to levels of mipmapped arrays: sealed by one
 * process, loaded by another, which compares every byte.
 */
#include "image/manifest.h"
#include "tests/lib/image.h"

#define READ 100   /* graph READ + i reads part i into c; graph i writes a to it */
#define MIPMAPS 3

static const struct mipmap {
	CUDA_ARRAY3D_DESCRIPTOR desc;
	size_t element;
	unsigned int levels;
} mipmaps[MIPMAPS] = {
	{ { 64, 12, 0, CU_AD_FORMAT_FLOAT, 1, 0 }, 4, 5 },
	{ { 20, 6, 4, CU_AD_FORMAT_HALF, 2, CUDA_ARRAY3D_LAYERED }, 4, 3 },
	{ { 33, 7, 10, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0 }, 4, 100 },
};

/* The levels that graphs use; part NONE is an array of its own, as large as level 0. */
#define NONE 2
static const struct part {
	int mipmap;
	unsigned int level;
	size_t width, height, depth; /* of the level */
} parts[] = {
	{ 0, 2, 16, 3, 1 }, { 1, 1, 10, 3, 4 }, { 1, 0, 20, 6, 4 }, { 0, 4, 4, 1, 1 },
	{ 2, 5, 1, 1, 1 }, { 2, 2, 8, 1, 2 }, { 1, 0, 20, 6, 4 },
};
#define PARTS ((int)(sizeof(parts) / sizeof(parts[0])))

static size_t bytes_of(int i)
{
	return parts[i].width * parts[i].height * parts[i].depth * mipmaps[parts[i].mipmap].element;
}

static uint8_t sealed_byte(int i, size_t at)
{
	return (uint8_t)(at * 7 + at / 251 + 31 * (size_t)i + 1);
}

static CUDA_MEMCPY3D from_part(int i, CUarray a)
{
	size_t row = parts[i].width * mipmaps[parts[i].mipmap].element;

	return (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a, .dstPitch = row,
		.dstHeight = parts[i].height, .WidthInBytes = row, .Height = parts[i].height,
		.Depth = parts[i].depth,
	};
}

static CUDA_MEMCPY3D to_part(int i, CUarray a)
{
	CUDA_MEMCPY3D p = from_part(i, a);

	p.srcPitch = p.dstPitch;
	p.srcHeight = p.dstHeight;
	p.srcArray = NULL;
	p.dstArray = a;
	p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	return p;
}

static void part_fill(int i, CUarray a)
{
	CUDA_MEMCPY3D p = to_part(i, a);
	uint8_t host[4096];
	size_t at;

	for (at = 0; at < bytes_of(i); at++)
		host[at] = sealed_byte(i, at);
	p.srcMemoryType = CU_MEMORYTYPE_HOST;
	p.srcHost = host;
	cuda_ok(cuMemcpy3D_v2, &p);
}

static void copy_add(struct work *w, uint64_t key, CUDA_MEMCPY3D p)
{
	capture_start(w);
	cuda_ok(cuMemcpy3DAsync_v2, &p, w->stream);
	ok(fdry_capture_graph(w->cap, key, NULL, capture_stop(w)));
}

static void read_add(struct work *w, int i, CUarray a)
{
	CUDA_MEMCPY3D p = from_part(i, a);

	p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	p.dstDevice = w->c;
	copy_add(w, READ + (uint64_t)i, p);
}

static void graphs_add(struct work *w, int i, CUarray a)
{
	CUDA_MEMCPY3D p = to_part(i, a);

	p.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	p.srcDevice = w->a;
	copy_add(w, (uint64_t)i, p);
	read_add(w, i, a);
}

static void begin(struct work *w)
{
	work_make(w);
	tensor_add(w, "a", w->a, FDRY_USE_INPUT, 0);
	tensor_add(w, "c", w->c, FDRY_USE_OUTPUT, 0);
}

static CUmipmappedArray mipmap_new(int i)
{
	CUmipmappedArray m;

	cuda_ok(cuMipmappedArrayCreate, &m, &mipmaps[i].desc, mipmaps[i].levels);
	return m;
}

static CUarray level_of(CUmipmappedArray m, unsigned int level)
{
	CUarray a;

	cuda_ok(cuMipmappedArrayGetLevel, &a, m, level);
	return a;
}

static void parts_capture(struct work *w, CUmipmappedArray m[MIPMAPS], CUarray a[PARTS])
{
	int i;

	begin(w);
	for (i = MIPMAPS; i--;)
		m[i] = mipmap_new(i);
	for (i = 0; i < PARTS; i++) {
		if (i == NONE)
			cuda_ok(cuArray3DCreate_v2, &a[i], &mipmaps[parts[i].mipmap].desc);
		else
			a[i] = level_of(m[parts[i].mipmap], parts[i].level);
		part_fill(i, a[i]);
		graphs_add(w, i, a[i]);
	}
}

static void seal_parts(void *id)
{
	CUmipmappedArray m[MIPMAPS];
	CUarray a[PARTS];
	struct work w;

	parts_capture(&w, m, a);
	ok(fdry_capture_seal(w.cap, w.store, "img", id, NULL));
	work_end(&w);
}

/* --- the loading process --- */

static void sealed_check(struct fdry_image *img)
{
	uint8_t out[BYTES];
	size_t at;
	int i;

	for (i = 0; i < PARTS; i++) {
		launch_into_c(img, READ + (uint64_t)i, out);
		for (at = 0; at < BYTES; at++)
			ck_assert_msg(out[at] == (at < bytes_of(i) ? sealed_byte(i, at) : 0xcc),
				      "part %d: byte %zu is %#x", i, at, out[at]);
	}
}

/* All levels have bytes of their own. */
static void written_check(struct fdry_image *img)
{
	uint8_t in[BYTES], out[BYTES];
	int i;

	for (i = 0; i < PARTS; i++) {
		memset(in, 0x40 + i, BYTES);
		ok(fdry_image_write(img, "a", in, BYTES, NULL));
		ok(fdry_image_launch(img, (uint64_t)i, NULL));
	}
	for (i = 0; i < PARTS; i++) {
		launch_into_c(img, READ + (uint64_t)i, out);
		memset(in, 0x40 + i, BYTES);
		ck_assert_mem_eq(in, out, bytes_of(i));
	}
}

static const uint32_t loads[] = { 0, FDRY_LOAD_BUILD, FDRY_LOAD_OWN_CONTEXT };

START_TEST(levels_come_back)
{
	struct fdry_image *img;

	test_child(seal_parts, NULL);
	img = load_with(loads[_i]);
	ck_assert_int_eq(test_sim_live("mipmap"), MIPMAPS);
	ck_assert_int_eq(test_sim_live("array"), 5 + 3 + 6 + 1);
	sealed_check(img);
	written_check(img);
	ok(fdry_image_restore(img, NULL));
	sealed_check(img);
	fdry_image_unload(img);
	ck_assert_int_eq(test_sim_live("mipmap"), 0);
	ck_assert_int_eq(test_sim_live("array"), 0);
}
END_TEST

START_TEST(failed_loads_leave_nothing)
{
	static const char *const fail[] = { "cuMipmappedArrayCreate:1", "cuMipmappedArrayCreate:3",
					    "cuMipmappedArrayGetLevel:1", "cuArray3DCreate_v2:1",
					    "cuMipmappedArrayGetLevel:6" };
	struct fdry_image *img = NULL;
	long before;

	test_child(seal_parts, NULL);
	load_store();
	test_sim();
	before = live_before();
	test_sim_fail(fail[_i]);
	fails(DRIVER, _i < 2 ? "mipmapped array " : "array ",
	      fdry_image_load(load_store(), "img", NULL, &img));
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	ck_assert_ptr_null(img);
	ck_assert_int_eq(live_objects(), before);
	img = load_with(0);
	sealed_check(img);
	fdry_image_unload(img);
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

START_TEST(mipmaps_are_described)
{
	struct fdry_requirements *n;
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;

	test_child(seal_parts, NULL);
	image_manifest_read(&bytes, &m);
	ck_assert_uint_eq(m.n_arrays, PARTS);
	ck_assert_uint_eq(m.n_mipmaps, MIPMAPS);
	ck_assert_uint_eq(m.n_mipmap_levels, PARTS - 1);
	ck_assert_uint_eq(m.n_array_pieces, PARTS);
	fdry_buf_release(&bytes);
	described_as("\narray 1 width 10 height 3 depth 4 format 16 "
		     "channels 2 flags 0x1 level 1 of mipmap 1\n");
	described_as("\narray 2 width 20 height 6 depth 4 format 16 channels 2 flags 0x1\n");
	described_as("\nmipmap 2 width 33 height 7 depth 10 format 1 "
		     "channels 4 flags 0 levels 32\n");
	ok(fdry_image_requirements(load_store(), "img", NULL, &n));
	ck_assert_uint_eq(n->array_bytes,
			  4 * (64 * 12 + 32 * 6 + 16 * 3 + 8 + 4) +
				  4 * 4 * (20 * 6 + 10 * 3 + 5) + 4 * 4 * 20 * 6 +
				  4 * (33 * 7 * 10 + 16 * 3 * 5 + 8 * 2 + 4 + 2 + 1));
	free(n);
}
END_TEST

/* --- seals --- */

static void refused(struct work *w, int i, CUarray a, const char *why)
{
	read_add(w, i, a);
	fails(REFUSED, why, work_seal(w, "img"));
	ok(fdry_capture_graph_remove(w->cap, READ + (uint64_t)i));
}

static void seal_refused(void *arg)
{
	CUmipmappedArray m;
	struct work w;
	CUarray a;

	(void)arg;
	begin(&w);
	ok(fdry_capture_pause(w.cap));
	m = mipmap_new(0);
	ok(fdry_capture_resume(w.cap));
	a = level_of(m, 2); /* the mipmapped array counts, not the question */
	refused(&w, 0, a, "was made before the capture began, while it was paused, or on another");
	m = mipmap_new(0);
	a = level_of(m, 2);
	read_add(&w, 0, a);
	ok(work_seal(&w, "img"));
	cuda_ok(cuMipmappedArrayDestroy, m);
	fails(REFUSED, "graph 100 '': node 0: memcpy: its source: CUDA array 0x",
	      work_seal(&w, "img"));
	fails(REFUSED, "was destroyed; keep it until the seal", work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(refused_by_name)
{
	test_child(seal_refused, NULL);
}
END_TEST

/* Seals in turn, some of them without a part; then a self-test. */
static void seal_in_turn(void *arg)
{
	char id[3][FDRY_ID_SIZE];
	CUmipmappedArray m[MIPMAPS];
	CUarray a[PARTS];
	struct work w;

	(void)arg;
	parts_capture(&w, m, a);
	ok(fdry_capture_graph_fixed(w.cap, READ + 1, 1));
	ok(fdry_capture_seal(w.cap, w.store, "img", id[0], NULL));
	ok(fdry_capture_graph_skip(w.cap, 0, 1));
	ok(fdry_capture_graph_skip(w.cap, READ, 1));
	ok(fdry_capture_seal(w.cap, w.store, "fewer", id[1], NULL));
	ck_assert_str_ne(id[0], id[1]);
	ok(fdry_capture_graph_skip(w.cap, 0, 0));
	ok(fdry_capture_graph_skip(w.cap, READ, 0));
	ok(fdry_capture_seal(w.cap, w.store, "img", id[2], NULL));
	ck_assert_str_eq(id[0], id[2]);
	ok(fdry_capture_selftest(w.cap, 5));
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, NULL));
	work_end(&w);
}

START_TEST(seals_in_turn)
{
	struct fdry_selftest_report r = { .sz = sizeof(r) };
	struct fdry_image *img;

	test_child(seal_in_turn, NULL);
	img = load_with(0);
	ok(fdry_image_selftest(img, NULL, NULL, &r));
	ck_assert_uint_eq(r.differ, 0);
	sealed_check(img);
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_mipmaps");
	TCase *tc = tcase_create("mipmaps");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_loop_test(tc, levels_come_back, 0, (int)(sizeof(loads) / sizeof(loads[0])));
	tcase_add_loop_test(tc, failed_loads_leave_nothing, 0, 5);
	tcase_add_test(tc, mipmaps_are_described);
	tcase_add_test(tc, refused_by_name);
	tcase_add_test(tc, seals_in_turn);
	suite_add_tcase(s, tc);
	return test_main(s);
}
