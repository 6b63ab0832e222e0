// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of images whose graphs copy from and to CUDA arrays: sealed by one process, loaded by
 * another, which compares every byte.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/array_pieces.h"
#include "image/manifest.h"
#include "tests/lib/flip.h"
#include "tests/lib/image.h"

/* An array, and a part of it of at most BYTES bytes, which graphs write and read. */
struct shape {
	CUDA_ARRAY3D_DESCRIPTOR desc;
	size_t element;
	size_t x, y, z, width, height, depth;
};

#define U8 CU_AD_FORMAT_UNSIGNED_INT8

static const struct shape shapes[] = {
	{ { 100, 0, 0, CU_AD_FORMAT_UNSIGNED_INT16, 2, 0 }, 4, 0, 0, 0, 400, 1, 1 },
	{ { 100, 0, 0, CU_AD_FORMAT_SIGNED_INT8, 1, 0 }, 1, 17, 0, 0, 61, 1, 1 },
	{ { 65, 9, 0, CU_AD_FORMAT_FLOAT, 1, 0 }, 4, 12, 2, 0, 200, 5, 1 },
	{ { 33, 7, 5, U8, 4, 0 }, 4, 4, 1, 2, 100, 6, 3 },
	{ { 20, 6, 4, CU_AD_FORMAT_HALF, 2, CUDA_ARRAY3D_LAYERED }, 4, 0, 0, 1, 80, 6, 3 },
	{ { 16, 0, 3, CU_AD_FORMAT_SIGNED_INT32, 4, CUDA_ARRAY3D_LAYERED }, 16,
	  32, 0, 1, 96, 1, 2 },
	/* Its pieces have 128 rows. */
	{ { 1024, 300, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_SURFACE_LDST }, 16,
	  1600, 126, 0, 800, 5, 1 },
	/* Its pieces have 4 slices. */
	{ { 256, 1024, 6, CU_AD_FORMAT_UNSIGNED_INT16, 1, 0 }, 2, 500, 1020, 3, 12, 4, 3 },
	{ { 16, 16, 0, U8, 1, 0 }, 1, 2, 3, 0, 12, 4, 1 }, /* zero */
};

#define SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))
#define ZERO (SHAPES - 1)
#define BIG 6
/* Keys of graphs: @i writes a to a part of array @i; READ + @i reads the part into c. */
#define READ 100
#define ACROSS 200 /* copies from array 3 to array 4 */
#define CHILD 201  /* has a child graph that reads array 2 */

static size_t row_of(int i)
{
	return shapes[i].desc.Width * shapes[i].element;
}

static size_t rows_of(int i)
{
	return shapes[i].desc.Height ? shapes[i].desc.Height : 1;
}

static size_t bytes_of(int i)
{
	return row_of(i) * rows_of(i) * (shapes[i].desc.Depth ? shapes[i].desc.Depth : 1);
}

static size_t part_of(int i)
{
	return shapes[i].width * shapes[i].height * shapes[i].depth;
}

/* The byte of array @i at @at, as sealed. In the big one, the second piece is zero. */
static uint8_t sealed_byte(int i, size_t at)
{
	if (i == ZERO || (i == BIG && at >= 2u << 20 && at < 4u << 20))
		return 0;
	return (uint8_t)(at * (13 + 2 * (size_t)i) + at / 257 + 1);
}

static void array_fill(int i, CUarray a)
{
	uint8_t *host = malloc(bytes_of(i));
	CUDA_MEMCPY3D p = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = row_of(i),
		.srcHeight = rows_of(i), .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a,
		.WidthInBytes = row_of(i), .Height = rows_of(i),
		.Depth = bytes_of(i) / row_of(i) / rows_of(i),
	};
	size_t at;

	ck_assert_ptr_nonnull(host);
	for (at = 0; at < bytes_of(i); at++)
		host[at] = sealed_byte(i, at);
	cuda_ok(cuMemcpy3D_v2, &p);
	free(host);
}

static CUarray array_make(int i)
{
	const CUDA_ARRAY3D_DESCRIPTOR *d = &shapes[i].desc;
	CUDA_ARRAY_DESCRIPTOR flat = { d->Width, d->Height, d->Format, d->NumChannels };
	CUarray a;

	if (d->Depth || d->Flags)
		cuda_ok(cuArray3DCreate_v2, &a, d);
	else
		cuda_ok(cuArrayCreate_v2, &a, &flat);
	array_fill(i, a);
	return a;
}

static CUDA_MEMCPY3D to_array(int i, CUarray a, CUdeviceptr from)
{
	const struct shape *s = &shapes[i];

	return (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .srcPitch = s->width,
		.srcHeight = s->height, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a,
		.dstXInBytes = s->x, .dstY = s->y, .dstZ = s->z, .dstPitch = 7, .dstHeight = 9,
		.WidthInBytes = s->width, .Height = s->height, .Depth = s->depth,
	};
}

static CUDA_MEMCPY3D from_array(int i, CUarray a, CUdeviceptr to)
{
	const struct shape *s = &shapes[i];

	return (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a, .srcXInBytes = s->x,
		.srcY = s->y, .srcZ = s->z, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to,
		.dstPitch = s->width, .dstHeight = s->height, .WidthInBytes = s->width,
		.Height = s->height, .Depth = s->depth,
	};
}

static CUgraph copy_captured(struct work *w, CUDA_MEMCPY3D p)
{
	capture_start(w);
	cuda_ok(cuMemcpy3DAsync_v2, &p, w->stream);
	return capture_stop(w);
}

static void copy_add(struct work *w, uint64_t key, CUDA_MEMCPY3D p)
{
	ok(fdry_capture_graph(w->cap, key, NULL, copy_captured(w, p)));
}

static void begin(struct work *w)
{
	work_make(w);
	tensor_add(w, "a", w->a, FDRY_USE_INPUT, 0);
	tensor_add(w, "c", w->c, FDRY_USE_OUTPUT, 0);
}

static void across_add(struct work *w, CUarray from, CUarray to)
{
	CUDA_MEMCPY3D p = { .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = from,
			    .srcXInBytes = 4, .srcY = 1, .srcZ = 2,
			    .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = to, .dstZ = 1,
			    .WidthInBytes = 80, .Height = 6, .Depth = 3 };
	CUgraph g;
	CUgraphNode n;

	cuda_ok(cuGraphCreate, &g, 0);
	cuda_ok(cuGraphAddMemcpyNode, &n, g, NULL, 0, &p, NULL);
	ok(fdry_capture_graph(w->cap, ACROSS, NULL, g));
}

static void child_add(struct work *w, CUarray from)
{
	CUgraph g;
	CUgraphNode n;

	cuda_ok(cuGraphCreate, &g, 0);
	cuda_ok(cuGraphAddChildGraphNode, &n, g, NULL, 0,
		copy_captured(w, from_array(2, from, w->c)));
	ok(fdry_capture_graph(w->cap, CHILD, NULL, g));
}

static void arrays_capture(struct work *w, CUarray a[SHAPES])
{
	int i;

	begin(w);
	/* Another order than that of the graphs, which number them. */
	for (i = SHAPES; i--;)
		a[i] = array_make(i);
	for (i = 0; i < SHAPES; i++) {
		copy_add(w, (uint64_t)i, to_array(i, a[i], w->a));
		copy_add(w, READ + (uint64_t)i, from_array(i, a[i], w->c));
	}
	across_add(w, a[3], a[4]);
	child_add(w, a[2]);
}

static void seal_arrays(void *id)
{
	CUarray a[SHAPES];
	struct work w;

	arrays_capture(&w, a);
	ok(fdry_capture_seal(w.cap, w.store, "img", id, NULL));
	work_end(&w);
}

/* --- the loading process --- */

static void in_fill(uint8_t in[BYTES], int salt)
{
	size_t at;

	for (at = 0; at < BYTES; at++)
		in[at] = (uint8_t)(at * 31 + at / 249 + (size_t)salt);
}

/* The part of array @i has its sealed bytes. */
static void sealed_check(struct fdry_image *img, int i, uint64_t key)
{
	const struct shape *s = &shapes[i];
	uint8_t out[BYTES];
	size_t at, x, y, z;

	launch_into_c(img, key, out);
	for (at = 0; at < part_of(i); at++) {
		x = at % s->width + s->x;
		y = at / s->width % s->height + s->y;
		z = at / s->width / s->height + s->z;
		ck_assert_msg(out[at] == sealed_byte(i, (z * rows_of(i) + y) * row_of(i) + x),
			      "array %d: byte %zu is %#x", i, at, out[at]);
	}
	ck_assert(part_of(i) == BYTES || out[part_of(i)] == 0xcc);
}

/* Each graph writes, and another reads what it wrote. */
static void written_check(struct fdry_image *img, int i, int salt)
{
	uint8_t in[BYTES], out[BYTES];

	in_fill(in, salt);
	ok(fdry_image_write(img, "a", in, BYTES, NULL));
	ok(fdry_image_launch(img, (uint64_t)i, NULL));
	launch_into_c(img, READ + (uint64_t)i, out);
	ck_assert_mem_eq(in, out, part_of(i));
}

static const uint32_t loads[] = { 0, FDRY_LOAD_BUILD, FDRY_LOAD_OWN_CONTEXT,
				  FDRY_LOAD_CHECK_AT_LAUNCH | FDRY_LOAD_POISON };

START_TEST(both_directions)
{
	struct fdry_image *img;
	int i;

	test_child(seal_arrays, NULL);
	img = load_with(loads[_i]);
	ck_assert_int_eq(test_sim_live("array"), SHAPES);
	for (i = 0; i < SHAPES; i++)
		sealed_check(img, i, READ + (uint64_t)i);
	sealed_check(img, 2, CHILD);
	for (i = 0; i < SHAPES; i++)
		written_check(img, i, i);
	ok(fdry_image_restore(img, NULL));
	for (i = 0; i < SHAPES; i++)
		sealed_check(img, i, READ + (uint64_t)i);
	fdry_image_unload(img);
	ck_assert_int_eq(test_sim_live("array"), 0);
}
END_TEST

START_TEST(from_array_to_array)
{
	uint8_t out[BYTES];
	struct fdry_image *img;
	size_t at, from;

	test_child(seal_arrays, NULL);
	img = load_with(0);
	ok(fdry_image_launch(img, ACROSS, NULL));
	launch_into_c(img, READ + 4, out);
	for (at = 0; at < 80 * 6 * 3; at++) {
		from = ((at / 480 + 2) * 7 + at / 80 % 6 + 1) * 132 + at % 80 + 4;
		ck_assert_uint_eq(out[at], sealed_byte(3, from));
	}
	fdry_image_unload(img);
}
END_TEST

/* An image has its arrays twice if it is loaded again after an unload. */
START_TEST(loads_leave_nothing)
{
	struct fdry_image *img;
	long before;
	int i;

	test_child(seal_arrays, NULL);
	load_store();
	test_sim();
	before = live_before();
	for (i = 0; i < 3; i++) {
		img = load_with(0);
		sealed_check(img, 3, READ + 3);
		fdry_image_unload(img);
		ck_assert_int_eq(live_objects(), before);
	}
}
END_TEST

/* --- failures --- */

static void load_fails(const char *spec)
{
	struct fdry_image *img = NULL;
	long before = live_before();

	test_sim_fail(spec);
	ck_assert_int_lt(fdry_image_load(load_store(), "img", NULL, &img), 0);
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	ck_assert_ptr_null(img);
	ck_assert_int_eq(test_sim_live("array"), 0);
	ck_assert_int_eq(live_objects(), before);
}

START_TEST(failed_loads_leave_nothing)
{
	struct fdry_image *img;
	char spec[64];
	int i;

	test_child(seal_arrays, NULL);
	load_store();
	test_sim();
	for (i = 1; i <= SHAPES; i++) {
		snprintf(spec, sizeof(spec), "cuArray3DCreate_v2:%d", i);
		load_fails(spec);
	}
	for (i = 1; i <= SHAPES + 3; i++) {
		snprintf(spec, sizeof(spec), "cuMemcpy3DAsync_v2:%d", i);
		load_fails(spec);
	}
	test_sim_fail("cuArray3DCreate_v2:1");
	fails(DRIVER, "array 0: cuArray3DCreate",
	      fdry_image_load(load_store(), "img", NULL, &img));
	test_sim_fail(NULL);
	img = load_with(0);
	sealed_check(img, 0, READ);
	fdry_image_unload(img);
}
END_TEST

/* After a failed restore no graph runs, until a restore succeeds. */
START_TEST(failed_restores)
{
	struct fdry_image *img;

	test_child(seal_arrays, NULL);
	img = load_with(0);
	written_check(img, 2, 5);
	test_sim_fail("cuMemcpy3DAsync_v2:3");
	ck_assert_int_eq(fdry_image_restore(img, NULL), -FDRY_E_DRIVER);
	test_sim_fail(NULL);
	fails(STATE, "only a part of the content was restored", fdry_image_launch(img, READ, NULL));
	ok(fdry_image_restore(img, NULL));
	sealed_check(img, 2, READ + 2);
	fdry_image_unload(img);
}
END_TEST

/* An array that is smaller than its graphs need, and a piece of another size. */
START_TEST(manifests_that_do_not_fit)
{
	struct fdry_image *img = NULL;
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_mf_array *a;

	test_child(seal_arrays, NULL);
	image_manifest_read(&bytes, &m);
	ck_assert_uint_eq(m.n_arrays, SHAPES);
	ck_assert_uint_eq(m.n_array_pieces, SHAPES - 1 + 2 - 1 + 1);
	a = image_manifest_at(&bytes, m.arrays);
	a[ZERO].height = 6;
	image_manifest_store(&bytes, &m, "low");
	fails(BADIMAGE, "memcpy node 0 copies beyond the image's 9 arrays",
	      fdry_image_load(load_store(), "low", NULL, &img));
	image_manifest_read(&bytes, &m);
	a = image_manifest_at(&bytes, m.arrays);
	a[2].height = 10;
	image_manifest_store(&bytes, &m, "high");
	fails(BADIMAGE, "content of array 2, from row 0 of slice 0: it has 2340 bytes",
	      fdry_image_load(load_store(), "high", NULL, &img));
	ck_assert_ptr_null(img);
}
END_TEST

/* Change a byte of an array's content in the store. */
static void content_damage(void)
{
	uint8_t *file, *at, want[200];
	char name[340];
	struct stat st;
	size_t i;
	int fd;

	for (i = 0; i < sizeof(want); i++)
		want[i] = sealed_byte(2, i);
	snprintf(name, sizeof(name), "%s/data.mdb", path);
	fd = open(name, O_RDWR);
	ck_assert(fd >= 0 && !fstat(fd, &st));
	file = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(file != MAP_FAILED);
	at = memmem(file, (size_t)st.st_size, want, sizeof(want));
	ck_assert_ptr_nonnull(at);
	at[100] ^= 1;
	munmap(file, (size_t)st.st_size);
	close(fd);
}

START_TEST(damaged_content_is_named)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_VERIFY };
	struct fdry_image *img = NULL;

	test_child(seal_arrays, NULL);
	ok(fdry_store_gc(load_store(), NULL, NULL));
	content_damage();
	fails(CORRUPT, "content of array 2, from row 0 of slice 0",
	      fdry_image_load(load_store(), "img", &opts, &img));
	ck_assert_ptr_null(img);
}
END_TEST

/* A load compares content with its fingerprints also after it was verified once. */
START_TEST(damage_after_a_load_is_found)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img = NULL;
	struct flip_chunk trusted;

	test_child(seal_arrays, NULL);
	ok(fdry_store_gc(load_store(), NULL, NULL));
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	ok(fdry_image_report(img, &report));
	ck_assert_uint_ge(report.checked_bytes, bytes_of(2));
	fdry_image_unload(img);
	ck_assert(flip_nth(load_store(), "img", 0, &trusted));
	content_damage();
	flip_trust(&trusted);
	fails(CORRUPT, "content of array 2, from row 0 of slice 0: chunk",
	      fdry_image_load(load_store(), "img", NULL, &img));
	flip_release(&trusted);
}
END_TEST

START_TEST(arrays_are_described)
{
	struct fdry_requirements *n;
	size_t bytes = 0;
	int i;

	test_child(seal_arrays, NULL);
	described_as("\narray 4 width 20 height 6 depth 4 format 16 channels 2 flags 0x1\n");
	described_as("bytes of device memory for CUDA arrays\n");
	for (i = 0; i < SHAPES; i++)
		bytes += bytes_of(i);
	ok(fdry_image_requirements(load_store(), "img", NULL, &n));
	ck_assert_uint_eq(n->array_bytes, bytes);
	free(n);
}
END_TEST

/* --- seals --- */

/* A copy of a refused array, then of another one: the seal names it. */
static void refused(struct work *w, CUarray a, const char *why)
{
	copy_add(w, READ, from_array(0, a, w->c));
	fails(REFUSED, why, work_seal(w, "img"));
	ok(fdry_capture_graph_remove(w->cap, READ));
}

static void seal_refused(void *arg)
{
	CUarray a, b, foreign;
	CUcontext ctx;
	struct work w;
	uint64_t word;
	CUgraph g;

	(void)arg;
	begin(&w);
	ok(fdry_capture_pause(w.cap));
	a = array_make(0);
	ok(fdry_capture_resume(w.cap));
	refused(&w, a, "graph 100 '': node 0: memcpy: its source: CUDA array 0x");
	refused(&w, a, "was made before the capture began, while it was paused, or on another");
	ok(((__typeof__(&cuArray3DCreate_v2))test_sim_symbol("cuArray3DCreate_v2"))(
		&foreign, &shapes[0].desc));
	refused(&w, foreign, "was not made by cuArrayCreate() or cuArray3DCreate()");
	cuda_ok(cuCtxCreate_v4, &ctx, NULL, 0, 0);
	b = array_make(0);
	cuda_ok(cuCtxPopCurrent_v2, &ctx);
	refused(&w, b, "was made in another context than the capture's");
	a = array_make(0);
	g = copy_captured(&w, from_array(0, a, w.c));
	cuda_ok(cuArrayDestroy, a);
	ok(fdry_capture_graph(w.cap, READ, NULL, g));
	fails(REFUSED, "its source: CUDA array 0x", work_seal(&w, "img"));
	fails(REFUSED, "was destroyed; keep it until the seal", work_seal(&w, "img"));
	b = array_make(0);
	ck_assert_ptr_eq(a, b);
	fails(REFUSED, "has the handle of an array that was destroyed, and the graph may have "
	      "begun before it was made", work_seal(&w, "img"));
	/* One graph's proof is none for another, in whichever order they are read. */
	copy_add(&w, 0, to_array(0, b, w.a));
	fails(REFUSED, "graph 100 '': node 0: memcpy: its source: CUDA array 0x",
	      work_seal(&w, "img"));
	ok(fdry_capture_graph_fixed(w.cap, 0, 1));
	fails(REFUSED, "has the handle of an array that was destroyed", work_seal(&w, "img"));
	ok(fdry_capture_graph_remove(w.cap, 0));
	ok(fdry_capture_graph_remove(w.cap, READ));
	/* Content that points to memory outside of the image. */
	a = array_make(0);
	word = w.before;
	cuda_ok(cuMemcpyHtoA_v2, a, 16, &word, sizeof(word));
	refused(&w, a, "the word at byte 16 is 0x");
	work_end(&w);
}

START_TEST(refused_by_name)
{
	test_child(seal_refused, NULL);
}
END_TEST

/* Arrays with handles of destroyed ones, and graphs that began after them; then another array. */
static void seal_again(void *id)
{
	CUarray a[SHAPES], old;
	struct work w;

	arrays_capture(&w, a);
	ok(fdry_capture_graph_remove(w.cap, READ + 1));
	ok(fdry_capture_graph_remove(w.cap, 1));
	old = a[1];
	cuda_ok(cuArrayDestroy, a[1]);
	a[1] = array_make(1);
	ck_assert_ptr_eq(a[1], old);
	copy_add(&w, 1, to_array(1, a[1], w.a));
	copy_add(&w, READ + 1, from_array(1, a[1], w.c));
	ok(fdry_capture_graph_fixed(w.cap, READ + 1, 1));
	ok(fdry_capture_seal(w.cap, w.store, "img", id, NULL));
	/* Nor does what a seal kept of a graph prove anything about a later array. */
	cuda_ok(cuArrayDestroy, a[1]);
	a[1] = array_make(1);
	ck_assert_ptr_eq(a[1], old);
	ok(fdry_capture_graph_remove(w.cap, 1));
	copy_add(&w, 1, to_array(1, a[1], w.a));
	fails(REFUSED, "graph 101 '': node 0: memcpy: its source: CUDA array 0x",
	      work_seal(&w, "no"));
	work_end(&w);
}

START_TEST(handles_of_arrays_come_back)
{
	struct fdry_image *img;
	int i;

	test_child(seal_again, NULL);
	img = load_with(0);
	ck_assert_int_eq(test_sim_live("array"), SHAPES);
	for (i = 0; i < SHAPES; i++) {
		sealed_check(img, i, READ + (uint64_t)i);
		written_check(img, i, i);
	}
	fdry_image_unload(img);
}
END_TEST

/* Graphs that did not change are not read again, unless their arrays get other numbers. */
static void seal_twice(void *arg)
{
	char id[4][FDRY_ID_SIZE];
	CUarray a[SHAPES];
	struct work w;
	int i;

	(void)arg;
	arrays_capture(&w, a);
	for (i = 0; i < SHAPES; i++)
		ok(fdry_capture_graph_fixed(w.cap, READ + (uint64_t)i, 1));
	ok(fdry_capture_seal(w.cap, w.store, "img", id[0], NULL));
	ok(fdry_capture_seal(w.cap, w.store, "img", id[1], NULL));
	ck_assert_str_eq(id[0], id[1]);
	ok(fdry_capture_graph_skip(w.cap, 0, 1));
	ok(fdry_capture_graph_skip(w.cap, READ, 1));
	ok(fdry_capture_seal(w.cap, w.store, "fewer", id[2], NULL));
	ck_assert_str_ne(id[0], id[2]);
	ok(fdry_capture_graph_skip(w.cap, 0, 0));
	ok(fdry_capture_graph_skip(w.cap, READ, 0));
	ok(fdry_capture_seal(w.cap, w.store, "img", id[3], NULL));
	ck_assert_str_eq(id[0], id[3]);
	cuda_ok(cuArrayDestroy, a[1]);
	fails(REFUSED, "graph 1 '': node 0: memcpy: its destination: CUDA array 0x",
	      work_seal(&w, "img"));
	ok(fdry_capture_graph_skip(w.cap, 1, 1));
	fails(REFUSED, "graph 101 '': node 0: memcpy: its source: CUDA array 0x",
	      work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(seals_in_turn)
{
	struct fdry_image *img = NULL;

	test_child(seal_twice, NULL);
	ok(fdry_image_load(load_store(), "fewer", NULL, &img));
	sealed_check(img, 1, READ + 1);
	sealed_check(img, BIG, READ + BIG);
	fdry_image_unload(img);
}
END_TEST

/* A self-test replays the graphs and puts the arrays back. */
static void seal_tested(void *arg)
{
	char id[2][FDRY_ID_SIZE];
	CUarray a[SHAPES];
	struct work w;

	(void)arg;
	arrays_capture(&w, a);
	ok(fdry_capture_seal(w.cap, w.store, "one", id[0], NULL));
	ok(fdry_capture_selftest(w.cap, 5));
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, NULL));
	ok(fdry_capture_selftest(w.cap, 0));
	ok(fdry_capture_seal(w.cap, w.store, "three", id[1], NULL));
	ck_assert_str_eq(id[0], id[1]);
	work_end(&w);
}

START_TEST(selftests)
{
	struct fdry_selftest_report r = { .sz = sizeof(r) };
	struct fdry_image *img;

	test_child(seal_tested, NULL);
	img = load_with(0);
	ok(fdry_image_selftest(img, NULL, NULL, &r));
	ck_assert_uint_eq(r.differ, 0);
	ck_assert_uint_gt(r.outputs, 0);
	sealed_check(img, 3, READ + 3);
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_arrays");
	TCase *tc = tcase_create("arrays");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_loop_test(tc, both_directions, 0, (int)(sizeof(loads) / sizeof(loads[0])));
	tcase_add_test(tc, from_array_to_array);
	tcase_add_test(tc, loads_leave_nothing);
	tcase_add_test(tc, failed_loads_leave_nothing);
	tcase_add_test(tc, failed_restores);
	tcase_add_test(tc, manifests_that_do_not_fit);
	tcase_add_test(tc, damaged_content_is_named);
	tcase_add_test(tc, damage_after_a_load_is_found);
	tcase_add_test(tc, arrays_are_described);
	tcase_add_test(tc, refused_by_name);
	tcase_add_test(tc, handles_of_arrays_come_back);
	tcase_add_test(tc, seals_in_turn);
	tcase_add_test(tc, selftests);
	suite_add_tcase(s, tc);
	return test_main(s);
}
