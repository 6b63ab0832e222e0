// SPDX-License-Identifier: Apache-2.0
/* Unit tests of CUDA arrays on the software driver: descriptors, copies, and copies in graphs. */
#include "tests/lib/sim_cu.h"

#define ROW 40u /* bytes of a row of the box: 10 elements of 4 bytes */
#define ROWS 6u
#define SLICES 5u

static CUarray array_new(CUDA_ARRAY3D_DESCRIPTOR d)
{
	CUarray a;

	ok(CU(cuArray3DCreate)(&a, &d));
	return a;
}

static CUDA_ARRAY3D_DESCRIPTOR box(void)
{
	return (CUDA_ARRAY3D_DESCRIPTOR){ .Width = 10, .Height = ROWS, .Depth = SLICES,
					  .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4 };
}

static uint8_t byte_of(size_t i, unsigned int salt)
{
	return (uint8_t)(i * 7 + i / 251 + salt);
}

/* The whole box, between the array and packed host memory. */
static CUDA_MEMCPY3D whole(CUarray a, uint8_t *host, bool to_array)
{
	CUDA_MEMCPY3D p = { .WidthInBytes = ROW, .Height = ROWS, .Depth = SLICES };

	if (to_array) {
		p.srcMemoryType = CU_MEMORYTYPE_HOST;
		p.srcHost = host;
		p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		p.dstArray = a;
	} else {
		p.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		p.srcArray = a;
		p.dstMemoryType = CU_MEMORYTYPE_HOST;
		p.dstHost = host;
	}
	return p;
}

static CUarray box_filled(unsigned int salt)
{
	uint8_t host[ROW * ROWS * SLICES];
	CUarray a = array_new(box());
	CUDA_MEMCPY3D p = whole(a, host, true);
	size_t i;

	for (i = 0; i < sizeof(host); i++)
		host[i] = byte_of(i, salt);
	ok(CU(cuMemcpy3D)(&p));
	return a;
}

START_TEST(descriptors)
{
	CUDA_ARRAY_DESCRIPTOR flat = { 100, 0, CU_AD_FORMAT_HALF, 2 }, got;
	CUDA_ARRAY3D_DESCRIPTOR got3, d = box();
	CUarray a, b = array_new(d);

	ok(CU(cuArrayCreate)(&a, &flat));
	ck_assert_int_eq(test_sim_live("array"), 2);
	ok(CU(cuArrayGetDescriptor)(&got, a));
	ck_assert_mem_eq(&got, &flat, sizeof(got));
	ok(CU(cuArray3DGetDescriptor)(&got3, b));
	ck_assert_mem_eq(&got3, &d, sizeof(d));
	ok(CU(cuArrayDestroy)(a));
	ck_assert_int_eq(CU(cuArrayDestroy)(a), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(CU(cuArrayGetDescriptor)(&got, a), CUDA_ERROR_INVALID_HANDLE);
	ok(CU(cuArrayCreate)(&a, &flat));
	ok(CU(cuArrayDestroy)(a));
	ok(CU(cuArrayDestroy)(b));
	ck_assert_int_eq(test_sim_live("array"), 0);
}
END_TEST

START_TEST(descriptors_that_are_refused)
{
	static const CUDA_ARRAY3D_DESCRIPTOR bad[] = {
		{ .Width = 0, .Format = 1, .NumChannels = 1 },
		{ .Width = 8, .Format = 1, .NumChannels = 3 },
		{ .Width = 8, .Format = 7, .NumChannels = 1 },
		{ .Width = 8, .Depth = 2, .Format = 1, .NumChannels = 1 },
		{ .Width = 131073, .Format = 1, .NumChannels = 1 },
		{ .Width = 8, .Height = 65537, .Format = 1, .NumChannels = 1 },
		{ .Width = 8, .Height = 8, .Depth = 16385, .Format = 1, .NumChannels = 1 },
		{ .Width = 8, .Height = 8, .Format = 1, .NumChannels = 1,
		  .Flags = CUDA_ARRAY3D_LAYERED },
		{ .Width = 8, .Height = 8, .Depth = 5, .Format = 1, .NumChannels = 1,
		  .Flags = CUDA_ARRAY3D_CUBEMAP },
		{ .Width = 8, .Height = 8, .Format = 1, .NumChannels = 1,
		  .Flags = CUDA_ARRAY3D_SPARSE },
	};
	CUarray a;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_int_eq(CU(cuArray3DCreate)(&a, &bad[i]), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(test_sim_live("array"), 0);
}
END_TEST

/* Memory is counted, and freed with the context. */
START_TEST(memory)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 16384, .Height = 16384, .Depth = 16384,
				      .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4 };
	size_t before, after;
	CUcontext ctx;
	CUarray a;

	ck_assert_int_eq(CU(cuArray3DCreate)(&a, &d), CUDA_ERROR_OUT_OF_MEMORY);
	ok(CU(cuMemGetInfo)(&before, &after));
	ok(CU(cuCtxCreate)(&ctx, NULL, 0, fx.dev));
	a = box_filled(1);
	ok(CU(cuCtxDestroy)(ctx));
	ck_assert_int_eq(test_sim_live("array"), 0);
	ok(CU(cuMemGetInfo)(&after, NULL));
	ck_assert_uint_eq(before, after);
}
END_TEST

/* A part of a box to pitched device memory, and back to another place. */
START_TEST(parts)
{
	CUarray a = box_filled(3);
	uint8_t host[ROW * ROWS * SLICES];
	CUDA_MEMCPY3D out = { .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a,
			      .srcXInBytes = 8, .srcY = 2, .srcZ = 1, .srcPitch = 1,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstPitch = 64,
			      .dstHeight = 4, .WidthInBytes = 16, .Height = 3, .Depth = 2 },
		      in = out, all = whole(a, host, false);
	CUdeviceptr mem;
	size_t i, x, y, z;

	ok(CU(cuMemAlloc)(&mem, 4096));
	out.dstDevice = mem;
	ok(CU(cuMemcpy3DAsync)(&out, fx.stream));
	in.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	in.srcDevice = mem;
	in.srcXInBytes = in.srcY = in.srcZ = 0;
	in.srcPitch = 64;
	in.srcHeight = 4;
	in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	in.dstArray = a;
	in.dstXInBytes = 24, in.dstY = 3, in.dstZ = 3;
	in.dstPitch = in.dstHeight = 0;
	ok(CU(cuMemcpy3DAsync)(&in, fx.stream));
	ok(CU(cuStreamSynchronize)(fx.stream));
	ok(CU(cuMemcpy3D)(&all));
	for (i = 0; i < sizeof(host); i++) {
		x = i % ROW, y = i / ROW % ROWS, z = i / ROW / ROWS;
		if (x >= 24 && y >= 3 && z >= 3)
			x -= 16, y -= 1, z -= 2;
		ck_assert_uint_eq(host[i], byte_of((z * ROWS + y) * ROW + x, 3));
	}
	ok(CU(cuMemFree)(mem));
	ok(CU(cuArrayDestroy)(a));
}
END_TEST

/* The copies of rows. */
START_TEST(rows)
{
	CUDA_ARRAY_DESCRIPTOR flat = { 64, 0, CU_AD_FORMAT_UNSIGNED_INT16, 1 };
	uint8_t in[64], out[64] = { 0 };
	CUdeviceptr mem;
	CUarray a, b;
	size_t i;

	for (i = 0; i < sizeof(in); i++)
		in[i] = byte_of(i, 9);
	ok(CU(cuMemAlloc)(&mem, 64));
	ok(CU(cuArrayCreate)(&a, &flat));
	ok(CU(cuArrayCreate)(&b, &flat));
	ok(CU(cuMemcpyHtoA)(a, 10, in, 64));
	ok(CU(cuMemcpyAtoA)(b, 2, a, 10, 64));
	ok(CU(cuMemcpyAtoD)(mem, b, 2, 64));
	ok(CU(cuMemcpyDtoA)(a, 64, mem, 64));
	ok(CU(cuMemcpyAtoH)(out, a, 64, 64));
	ck_assert_mem_eq(in, out, 64);
	ok(CU(cuMemcpyHtoAAsync)(b, 0, in + 32, 32, fx.stream));
	ok(CU(cuMemcpyAtoHAsync)(out, b, 0, 32, fx.stream));
	ok(CU(cuStreamSynchronize)(fx.stream));
	ck_assert_mem_eq(in + 32, out, 32);
	ck_assert_int_eq(CU(cuMemcpyAtoH)(out, a, 66, 64), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(CU(cuMemcpyAtoH)(out, a, 1, 2), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(CU(cuMemcpyAtoH)(out, a, 2, 1), CUDA_ERROR_INVALID_VALUE);
	ok(CU(cuMemFree)(mem));
	ok(CU(cuArrayDestroy)(a));
	ok(CU(cuArrayDestroy)(b));
}
END_TEST

static void copies_refused(bool to_array)
{
	uint8_t host[ROW * ROWS * SLICES];
	CUarray a = box_filled(1), b;
	CUDA_MEMCPY3D good = whole(a, host, to_array), p;
	CUDA_ARRAY_DESCRIPTOR flat = { 10, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1 };

#define REFUSED(change) \
	p = good; \
	change; \
	ck_assert_int_eq(CU(cuMemcpy3D)(&p), CUDA_ERROR_INVALID_VALUE)
	REFUSED(p.WidthInBytes = 44);
	REFUSED(p.WidthInBytes = 38);
	REFUSED(p.Height = ROWS + 1);
	REFUSED(p.Depth = SLICES + 1);
	REFUSED(p.srcXInBytes = p.dstXInBytes = 4);
	REFUSED(p.srcY = p.dstY = 1);
	REFUSED(p.srcZ = p.dstZ = 1);
	REFUSED(p.srcZ = p.dstZ = SIZE_MAX);
	REFUSED(p.srcLOD = 1);
	ok(CU(cuArrayCreate)(&b, &flat));
	REFUSED(p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		p.srcArray = a; p.dstArray = b; p.Height = p.Depth = 1; p.WidthInBytes = 4);
	ok(CU(cuArrayDestroy)(b));
	ok(CU(cuArrayDestroy)(a));
	REFUSED((void)0);
#undef REFUSED
}

START_TEST(copies_that_are_refused)
{
	copies_refused(true);
	copies_refused(false);
}
END_TEST

/* A graph writes an array and reads it, also after its parameters changed. */
START_TEST(nodes)
{
	CUarray a = box_filled(1), b = box_filled(2);
	CUDA_MEMCPY3D in = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at(0),
			     .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a, .dstXInBytes = 8,
			     .dstY = 1, .WidthInBytes = 8, .Height = 1, .Depth = 1 },
		      out = { .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a,
			      .srcXInBytes = 8, .srcY = 1, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstDevice = at(1), .WidthInBytes = 8, .Height = 1, .Depth = 1 },
		      got;
	CUgraph g = graph_new();
	CUgraphNode n, m;
	CUgraphExec x;

	ok(CU(cuGraphAddMemcpyNode)(&n, g, NULL, 0, &in, fx.ctx));
	ok(CU(cuGraphAddMemcpyNode)(&m, g, &n, 1, &out, fx.ctx));
	ok(CU(cuGraphMemcpyNodeGetParams)(m, &got));
	ck_assert_mem_eq(&got, &out, sizeof(got));
	number_set(0, 77);
	ck_assert_uint_eq(graph_value(g, 1), 77);
	in.dstArray = out.srcArray = b;
	ok(CU(cuGraphMemcpyNodeSetParams)(n, &in));
	ok(CU(cuGraphMemcpyNodeSetParams)(m, &out));
	x = exec_new(g);
	ok(CU(cuArrayDestroy)(a));
	number_set(0, 78);
	ck_assert_uint_eq(exec_value(x, 1), 78);
	in.dstArray = a;
	ck_assert_int_eq(CU(cuGraphMemcpyNodeSetParams)(n, &in), CUDA_ERROR_INVALID_VALUE);
	ok(CU(cuGraphExecDestroy)(x));
	ok(CU(cuGraphDestroy)(g));
	ok(CU(cuArrayDestroy)(b));
}
END_TEST

/* A copy whose array was destroyed breaks the context. */
START_TEST(array_that_is_gone)
{
	CUarray a = box_filled(1);
	CUDA_MEMCPY3D out = { .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = at(1),
			      .WidthInBytes = 8, .Height = 1, .Depth = 1 };
	CUgraph g = graph_new();
	CUgraphNode n;
	CUgraphExec x;

	ok(CU(cuGraphAddMemcpyNode)(&n, g, NULL, 0, &out, fx.ctx));
	x = exec_new(g);
	ok(CU(cuArrayDestroy)(a));
	ok(CU(cuGraphLaunch)(x, fx.stream));
	ck_assert_int_eq(CU(cuStreamSynchronize)(fx.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	exit(0); /* the fixture could not end */
}
END_TEST

/* Levels are arrays with half the extents of the one before, as many as there can be. */
START_TEST(levels)
{
	CUDA_ARRAY3D_DESCRIPTOR d = box(), got;
	CUmipmappedArray m, n;
	CUarray a[4], again;
	unsigned int i;
	size_t before, after;

	ok(CU(cuMemGetInfo)(&before, &after));
	ok(CU(cuMipmappedArrayCreate)(&m, &d, 100));
	for (i = 0; i < 4; i++) {
		ok(CU(cuMipmappedArrayGetLevel)(&a[i], m, i));
		ok(CU(cuMipmappedArrayGetLevel)(&again, m, i));
		ck_assert_ptr_eq(a[i], again);
		ok(CU(cuArray3DGetDescriptor)(&got, a[i]));
		ck_assert_mem_eq(&got, &d, sizeof(d));
		d.Width /= 2;
		d.Height = d.Height > 1 ? d.Height / 2 : 1;
		d.Depth = d.Depth > 1 ? d.Depth / 2 : 1;
	}
	ck_assert_int_eq(CU(cuMipmappedArrayGetLevel)(&again, m, 4), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(CU(cuArrayDestroy)(a[1]), CUDA_ERROR_INVALID_HANDLE);
	d = box();
	d.Flags = CUDA_ARRAY3D_LAYERED;
	ok(CU(cuMipmappedArrayCreate)(&n, &d, 3));
	ok(CU(cuMipmappedArrayGetLevel)(&again, n, 2));
	ok(CU(cuArray3DGetDescriptor)(&got, again));
	ck_assert_uint_eq(got.Width, 2);
	ck_assert_uint_eq(got.Height, 1);
	ck_assert_uint_eq(got.Depth, SLICES);
	ck_assert_int_eq(CU(cuMipmappedArrayGetLevel)(&again, n, 3), CUDA_ERROR_INVALID_VALUE);
	ok(CU(cuMipmappedArrayDestroy)(n));
	ok(CU(cuMipmappedArrayCreate)(&n, &d, 0));
	ck_assert_int_eq(CU(cuMipmappedArrayGetLevel)(&again, n, 1), CUDA_ERROR_INVALID_VALUE);
	ok(CU(cuMipmappedArrayDestroy)(n));
	ok(CU(cuMipmappedArrayDestroy)(m));
	ck_assert_int_eq(CU(cuMipmappedArrayDestroy)(m), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(CU(cuMipmappedArrayGetLevel)(&again, m, 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(CU(cuArray3DGetDescriptor)(&got, a[0]), CUDA_ERROR_INVALID_HANDLE);
	d.Width = 0;
	ck_assert_int_eq(CU(cuMipmappedArrayCreate)(&n, &d, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(test_sim_live("array"), 0);
	ck_assert_int_eq(test_sim_live("mipmap"), 0);
	ok(CU(cuMemGetInfo)(&after, NULL));
	ck_assert_uint_eq(before, after);
}
END_TEST

/* A level that finds no memory leaves nothing, nor does a context. */
START_TEST(levels_that_end)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 16384, .Height = 16384, .Depth = 16384,
				      .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4 };
	CUmipmappedArray m;
	CUcontext ctx;

	ck_assert_int_eq(CU(cuMipmappedArrayCreate)(&m, &d, 2), CUDA_ERROR_OUT_OF_MEMORY);
	d = box();
	ok(CU(cuCtxCreate)(&ctx, NULL, 0, fx.dev));
	ok(CU(cuMipmappedArrayCreate)(&m, &d, 2));
	ck_assert_int_eq(test_sim_live("array"), 2);
	ok(CU(cuCtxDestroy)(ctx));
	ck_assert_int_eq(test_sim_live("array"), 0);
	ck_assert_int_eq(test_sim_live("mipmap"), 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		descriptors, descriptors_that_are_refused, memory, parts, rows,
		copies_that_are_refused, nodes, array_that_is_gone,
		levels, levels_that_end,
	};

	return cu_main("sim_array", tests, sizeof(tests) / sizeof(tests[0]));
}
