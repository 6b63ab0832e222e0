// SPDX-License-Identifier: Apache-2.0
/*
 * graph_rules_arrays.c - the tests of graph_rules.h for copies from and to CUDA arrays. The texts
 * below must be equal on every driver.
 */
#include "tests/lib/graph_rules.h"

#include <dlfcn.h>

#include "tests/replace/graph_fixture.h"

#define LINE 0 /* numbers of arrays */
#define PLANE 1
#define BOX 2
#define LAYERS 3
#define LEVEL 4 /* level 1 of a mipmapped array of 3 levels */
#define ARRAYS 5
#define MEM 65536u /* bytes of the fixture's memory */
#define HALF (MEM / 2) /* copies read the first half and write the second */

static const CUDA_ARRAY3D_DESCRIPTOR descs[ARRAYS] = {
	{ .Width = 1000, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1 },
	{ .Width = 65, .Height = 9, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2 },
	{ .Width = 17, .Height = 7, .Depth = 5, .Format = CU_AD_FORMAT_UNSIGNED_INT16,
	  .NumChannels = 4 },
	{ .Width = 24, .Height = 6, .Depth = 4, .Format = CU_AD_FORMAT_HALF, .NumChannels = 2,
	  .Flags = CUDA_ARRAY3D_LAYERED },
	{ .Width = 20, .Height = 7, .Depth = 3, .Format = CU_AD_FORMAT_UNSIGNED_INT8,
	  .NumChannels = 2 },
};

static const uint32_t elements[ARRAYS] = { 1, 8, 8, 4, 2 };

static CUmipmappedArray mipmaps[2];

/* Those of the capture, and those of the load. */
static struct fdry_cuarray arrays[ARRAYS], moved[ARRAYS];

static int array_find(void *arg, CUgraph graph, CUarray array, uint32_t *number,
		      struct fdry_cuarray *ret)
{
	uint32_t i;

	(void)arg;
	(void)graph;
	for (i = 0; i < 2 * ARRAYS; i++) {
		*number = i % ARRAYS;
		*ret = i < ARRAYS ? arrays[i] : moved[i - ARRAYS];
		if (ret->handle == array)
			return 0;
	}
	return fdry_fail(FDRY_E_REFUSED, "CUDA array %p is none of them", (void *)array);
}

/* The extents of a level are rounded down. */
static void level_make(CUarray *ret, CUmipmappedArray *mipmap)
{
	CUDA_ARRAY3D_DESCRIPTOR d = descs[LEVEL];

	d.Width = 2 * d.Width + 1;
	d.Height = 2 * d.Height + 1;
	d.Depth = 2 * d.Depth;
	ok(gf.drv.cuMipmappedArrayCreate(mipmap, &d, 3));
	ok(gf.drv.cuMipmappedArrayGetLevel(ret, *mipmap, 1));
}

/* @mipmap: becomes that of the level. */
static void arrays_make(struct fdry_cuarray all[ARRAYS], CUmipmappedArray *mipmap)
{
	uint32_t i;

	for (i = 0; i < ARRAYS; i++) {
		all[i] = (struct fdry_cuarray){
			.element = elements[i],
			.row = descs[i].Width * elements[i],
			.rows = descs[i].Height ? (uint32_t)descs[i].Height : 1,
			.slices = descs[i].Depth ? (uint32_t)descs[i].Depth : 1,
		};
		if (i == LEVEL)
			level_make(&all[i].handle, mipmap);
		else
			ok(gf.drv.cuArray3DCreate_v2(&all[i].handle, &descs[i]));
	}
}

static void begin(void)
{
	arrays_make(arrays, &mipmaps[0]);
	arrays_make(moved, &mipmaps[1]);
	gf.reader.array = array_find;
	gf.builder.arrays = moved;
	gf.builder.narrays = ARRAYS;
}

static void end(void)
{
	uint32_t i;

	for (i = 0; i < LEVEL; i++) {
		ok(gf.drv.cuArrayDestroy(arrays[i].handle));
		ok(gf.drv.cuArrayDestroy(moved[i].handle));
	}
	ok(gf.drv.cuMipmappedArrayDestroy(mipmaps[0]));
	ok(gf.drv.cuMipmappedArrayDestroy(mipmaps[1]));
}

static CUDA_MEMCPY3D to_array(uint32_t i, CUdeviceptr from)
{
	return (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from,
				.srcPitch = arrays[i].row, .srcHeight = arrays[i].rows,
				.dstMemoryType = CU_MEMORYTYPE_ARRAY,
				.dstArray = arrays[i].handle, .WidthInBytes = arrays[i].row,
				.Height = arrays[i].rows, .Depth = arrays[i].slices };
}

static CUDA_MEMCPY3D from_array(uint32_t i, CUdeviceptr to)
{
	return (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_ARRAY,
				.srcArray = arrays[i].handle,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to,
				.dstPitch = arrays[i].row, .dstHeight = arrays[i].rows,
				.WidthInBytes = arrays[i].row, .Height = arrays[i].rows,
				.Depth = arrays[i].slices };
}

/* A part of array @i, which begins at a byte, a row and a slice. */
static void part_set(CUDA_MEMCPY3D *p, uint32_t i)
{
	p->WidthInBytes -= 2 * elements[i];
	p->srcXInBytes = p->srcMemoryType == CU_MEMORYTYPE_ARRAY ? elements[i] : 0;
	p->dstXInBytes = p->dstMemoryType == CU_MEMORYTYPE_ARRAY ? elements[i] : 0;
	if (arrays[i].rows > 1) {
		p->Height -= 2;
		p->srcY = p->srcMemoryType == CU_MEMORYTYPE_ARRAY;
		p->dstY = p->dstMemoryType == CU_MEMORYTYPE_ARRAY ? 2 : 0;
	}
	if (arrays[i].slices > 1) {
		p->Depth -= 2;
		p->srcZ = p->srcMemoryType == CU_MEMORYTYPE_ARRAY ? 2 : 0;
		p->dstZ = p->dstMemoryType == CU_MEMORYTYPE_ARRAY;
	}
}

/* Write a whole array, then a part of it; read all of it. */
static CUgraph graph_with_array(uint32_t i)
{
	CUDA_MEMCPY3D part = to_array(i, gf.mem + 16384);
	CUgraph g = graph_make();
	CUgraphNode n = memcpy_add(g, NULL, to_array(i, gf.mem));

	part_set(&part, i);
	n = memcpy_add(g, &n, part);
	memcpy_add(g, &n, from_array(i, gf.mem + HALF));
	return g;
}

/* The built graph uses other arrays, and does the same. */
START_TEST(arrays_elsewhere)
{
	begin();
	round_trip(graph_with_array((uint32_t)_i));
	end();
}
END_TEST

static size_t size_of(uint32_t i)
{
	return (size_t)arrays[i].row * arrays[i].rows * arrays[i].slices;
}

/* The bytes of an array lie row by row, slice by slice. */
START_TEST(arrays_keep_their_bytes)
{
	static uint8_t mem[MEM], want[16384];
	uint32_t i = (uint32_t)_i;
	size_t at, x, y, z;
	CUgraph g;

	begin();
	g = graph_with_array(i);
	run_on_seed(g, mem);
	ok(gf.drv.cuGraphDestroy(g));
	for (at = 0; at < size_of(i); at++) {
		x = at % arrays[i].row;
		y = at / arrays[i].row % arrays[i].rows;
		z = at / arrays[i].row / arrays[i].rows;
		want[at] = mem[at];
		if (x < elements[i] || x >= arrays[i].row - elements[i] ||
		    (arrays[i].rows > 1 && y < 2) ||
		    (arrays[i].slices > 1 && (z < 1 || z > arrays[i].slices - 2)))
			continue;
		x -= elements[i];
		y -= arrays[i].rows > 1 ? 2 : 0;
		z -= arrays[i].slices > 1;
		want[at] = mem[16384 + (z * arrays[i].rows + y) * arrays[i].row + x];
	}
	ck_assert_mem_eq(mem + HALF, want, size_of(i));
	end();
}
END_TEST

START_TEST(arrays_by_number)
{
	CUgraph g = graph_make();
	CUDA_MEMCPY3D in, out;
	CUgraphNode n;

	begin();
	in = to_array(BOX, gf.mem);
	part_set(&in, BOX);
	n = memcpy_add(g, NULL, in);
	out = from_array(LINE, gf.mem + 512);
	out.srcXInBytes = 10;
	out.WidthInBytes = 100;
	memcpy_add(g, &n, out);
	reads_as(g, "node 0 memcpy src 0x500000000000 src_pitch 136 src_height 7 dst array 2 0x8 "
		 "dst_y 2 dst_z 1 width 120 height 5 depth 3\n"
		 "node 1 memcpy src array 0 0xa src_y 0 src_z 0 dst 0x500000000200 dst_pitch 100 "
		 "dst_height 1 width 100 height 1 depth 1\nedge 0 1\n");
	end();
}
END_TEST

/* Captured copies, which the driver may record with other fields than those of the call. */
START_TEST(arrays_as_captured)
{
	CUDA_MEMCPY3D in, out, p;
	CUgraphNode n[2];
	size_t count = 2;
	CUgraph g;

	begin();
	in = to_array(PLANE, gf.mem);
	out = from_array(PLANE, gf.mem + HALF);
	part_set(&in, PLANE);
	part_set(&out, PLANE);
	ok(gf.drv.cuStreamBeginCapture_v2(gf.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(gf.drv.cuMemcpy3DAsync_v2(&in, gf.stream));
	ok(gf.drv.cuMemcpy3DAsync_v2(&out, gf.stream));
	ok(gf.drv.cuStreamEndCapture(gf.stream, &g));
	ok(gf.drv.cuGraphGetNodes(g, n, &count));
	ck_assert_uint_eq(count, 2);
	ok(gf.drv.cuGraphMemcpyNodeGetParams(n[0], &p));
	ck_assert_int_eq(p.dstMemoryType, CU_MEMORYTYPE_ARRAY);
	ck_assert_ptr_eq(p.dstArray, arrays[PLANE].handle);
	ck_assert_uint_eq(p.dstXInBytes, 8);
	ck_assert_uint_eq(p.dstY, 2);
	ck_assert_uint_eq(p.dstZ, 0);
	ok(gf.drv.cuGraphMemcpyNodeGetParams(n[1], &p));
	ck_assert_int_eq(p.srcMemoryType, CU_MEMORYTYPE_ARRAY);
	ck_assert_ptr_eq(p.srcArray, arrays[PLANE].handle);
	ck_assert_uint_eq(p.srcXInBytes, 8);
	ck_assert_uint_eq(p.srcY, 1);
	round_trip(g);
	end();
}
END_TEST

/* From one array to another, and between an array and host memory. */
START_TEST(arrays_and_other_places)
{
	CUgraph g = graph_make();
	CUDA_MEMCPY3D p;
	CUgraphNode n;

	begin();
	n = memcpy_add(g, NULL, to_array(PLANE, gf.mem));
	n = memcpy_add(g, &n, to_array(BOX, gf.mem + 8192));
	p = from_array(PLANE, 0);
	p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	p.dstArray = arrays[BOX].handle;
	p.srcXInBytes = 16, p.srcY = 1, p.dstXInBytes = 8, p.dstY = 2, p.dstZ = 3;
	p.WidthInBytes = 80, p.Height = 4, p.Depth = 1;
	n = memcpy_add(g, &n, p);
	p = to_array(LINE, 0);
	p.srcMemoryType = CU_MEMORYTYPE_HOST;
	p.srcHost = (void *)(uintptr_t)gf.hosts[0].addr;
	p.srcDevice = 0;
	n = memcpy_add(g, &n, p);
	p = from_array(LINE, 0);
	p.dstMemoryType = CU_MEMORYTYPE_HOST;
	p.dstHost = (void *)(uintptr_t)gf.hosts[1].addr;
	p.WidthInBytes = p.dstPitch = gf.hosts[1].size;
	n = memcpy_add(g, &n, p);
	n = memcpy_add(g, &n, from_array(LINE, gf.mem + HALF));
	memcpy_add(g, &n, from_array(BOX, gf.mem + HALF + 1024));
	memset((void *)(uintptr_t)gf.hosts[0].addr, 5, 1000);
	memset((void *)(uintptr_t)gf.moved[0].addr, 5, 1000);
	round_trip(g);
	ck_assert_uint_eq(*(uint8_t *)(uintptr_t)(gf.moved[1].addr + gf.moved[1].size - 1), 5);
	end();
}
END_TEST

/* The driver refuses a node that copies beyond its array. */
START_TEST(copies_beyond_an_array)
{
	CUgraph g = graph_make();
	CUDA_MEMCPY3D good, p;
	CUgraphNode n;

	begin();
	good = _i ? to_array(BOX, gf.mem) : from_array(BOX, gf.mem);
#define REFUSED(change) \
	p = good; \
	change; \
	ck_assert_int_eq(gf.drv.cuGraphAddMemcpyNode(&n, g, NULL, 0, &p, gf.ctx), \
			 CUDA_ERROR_INVALID_VALUE)
	REFUSED(p.srcXInBytes = _i ? 0 : 8; p.dstXInBytes = _i ? 8 : 0);
	REFUSED(p.srcY = !_i; p.dstY = (size_t)_i);
	REFUSED(p.srcZ = !_i; p.dstZ = (size_t)_i);
	REFUSED(p.Depth = 6);
#undef REFUSED
	ok(gf.drv.cuGraphDestroy(g));
	end();
}
END_TEST

/* A load with fewer or smaller arrays than the graph needs is refused. */
START_TEST(arrays_that_are_not_there)
{
	struct fdry_graph_built b = { 0 };
	struct fdry_graph_view v;
	struct fdry_buf object;
	CUgraph g;

	begin();
	g = graph_with_array(BOX);
	object = graph_object(g);
	ok(fdry_graph_view_init(span_of(&object), &v));
	gf.builder.narrays = BOX;
	fails(BADIMAGE, "memcpy node 0 copies beyond the image's 2 arrays",
	      fdry_graph_build(&gf.builder, &v, &b));
	gf.builder.narrays = ARRAYS;
	moved[BOX].slices--;
	fails(BADIMAGE, "memcpy node 0 copies beyond the image's 5 arrays",
	      fdry_graph_build(&gf.builder, &v, &b));
	ck_assert_ptr_null(b.graph);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(g));
	end();
}
END_TEST

/* The reader refuses an array that it does not know, and one that is smaller than the copy. */
START_TEST(arrays_that_are_not_known)
{
	struct fdry_cuarray other[ARRAYS];
	CUmipmappedArray mipmap;
	CUDA_MEMCPY3D p;
	CUgraph g;
	uint32_t i;

	begin();
	arrays_make(other, &mipmap);
	g = graph_make();
	p = to_array(BOX, gf.mem);
	p.dstArray = other[BOX].handle;
	memcpy_add(g, NULL, p);
	graph_refused(g, "node 0: memcpy: its destination: CUDA array");
	g = graph_with_array(BOX);
	arrays[BOX].rows--;
	graph_refused(g, "node 0: memcpy: its destination lies beyond the array");
	for (i = 0; i < LEVEL; i++)
		ok(gf.drv.cuArrayDestroy(other[i].handle));
	ok(gf.drv.cuMipmappedArrayDestroy(mipmap));
	end();
}
END_TEST

static CUresult descriptor_get(CUDA_ARRAY3D_DESCRIPTOR *ret, CUarray array)
{
	CUresult (*get)(CUDA_ARRAY3D_DESCRIPTOR *, CUarray);

	*(void **)&get = dlsym(gf.drv.handle, "cuArray3DGetDescriptor_v2");
	return get(ret, array);
}

START_TEST(descriptors_come_back)
{
	CUDA_ARRAY3D_DESCRIPTOR d;

	begin();
	ok(descriptor_get(&d, arrays[_i].handle));
	ck_assert_uint_eq(d.Width, descs[_i].Width);
	ck_assert_uint_eq(d.Height, descs[_i].Height);
	ck_assert_uint_eq(d.Depth, descs[_i].Depth);
	ck_assert_int_eq(d.Format, descs[_i].Format);
	ck_assert_uint_eq(d.NumChannels, descs[_i].NumChannels);
	ck_assert_uint_eq(d.Flags, descs[_i].Flags);
	end();
}
END_TEST

static CUarray level_get(CUmipmappedArray m, unsigned int level)
{
	CUarray a = NULL;

	ok(gf.drv.cuMipmappedArrayGetLevel(&a, m, level));
	return a;
}

/* The driver makes as many levels as there can be, which keep their handles. */
START_TEST(levels_of_a_mipmap)
{
	CUDA_ARRAY3D_DESCRIPTOR d = descs[LAYERS], got;
	CUmipmappedArray m;
	CUarray a[5], more;
	unsigned int i, k;

	ok(gf.drv.cuMipmappedArrayCreate(&m, &d, 30));
	for (i = 0; i < 5; i++) {
		a[i] = level_get(m, i);
		for (k = 0; k < i; k++)
			ck_assert_ptr_ne(a[k], a[i]);
		ok(descriptor_get(&got, a[i]));
		ck_assert_uint_eq(got.Width, d.Width);
		ck_assert_uint_eq(got.Height, d.Height);
		ck_assert_uint_eq(got.Depth, descs[LAYERS].Depth);
		ck_assert_int_eq(got.Format, d.Format);
		ck_assert_uint_eq(got.NumChannels, d.NumChannels);
		ck_assert_uint_eq(got.Flags, d.Flags);
		d.Width = d.Width > 1 ? d.Width / 2 : 1;
		d.Height = d.Height > 1 ? d.Height / 2 : 1;
	}
	ck_assert_int_eq(gf.drv.cuMipmappedArrayGetLevel(&more, m, 5), CUDA_ERROR_INVALID_VALUE);
	for (i = 0; i < 5; i++)
		ck_assert_ptr_eq(level_get(m, i), a[i]);
	ok(gf.drv.cuMipmappedArrayDestroy(m));
	ok(gf.drv.cuMipmappedArrayCreate(&m, &descs[LINE], 0));
	level_get(m, 0);
	ck_assert_int_eq(gf.drv.cuMipmappedArrayGetLevel(&more, m, 1), CUDA_ERROR_INVALID_VALUE);
	ok(gf.drv.cuMipmappedArrayDestroy(m));
}
END_TEST

void graph_rules_arrays_add(TCase *tc)
{
	tcase_add_loop_test(tc, arrays_elsewhere, 0, ARRAYS);
	tcase_add_loop_test(tc, arrays_keep_their_bytes, 0, ARRAYS);
	tcase_add_test(tc, arrays_by_number);
	tcase_add_test(tc, arrays_as_captured);
	tcase_add_test(tc, arrays_and_other_places);
	tcase_add_loop_test(tc, copies_beyond_an_array, 0, 2);
	tcase_add_test(tc, arrays_that_are_not_there);
	tcase_add_test(tc, arrays_that_are_not_known);
	tcase_add_loop_test(tc, descriptors_come_back, 0, ARRAYS);
	tcase_add_test(tc, levels_of_a_mipmap);
}
