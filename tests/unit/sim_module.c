// SPDX-License-Identifier: Apache-2.0
/* The software driver: device code, kernels and their parameters, launches. */
#include <elf.h>
#include <string.h>

#include "tests/lib/sim.h"
#include "tests/lib/test.h"

#define N 1000

static const struct fdry_driver *drv;
static unsigned char *cubin;
static size_t cubin_len;

static void setup(void)
{
	drv = test_sim();
	cubin = test_sim_cubin("kernels", &cubin_len);
}

static void teardown(void)
{
	free(cubin);
}

static CUlibrary library(void)
{
	CUlibrary lib;

	ok(drv->cuLibraryLoadData(&lib, cubin, NULL, NULL, 0, NULL, NULL, 0));
	return lib;
}

static CUmodule module(void)
{
	CUmodule mod;

	ok(drv->cuModuleLoadDataEx(&mod, cubin, 0, NULL, NULL));
	return mod;
}

static CUfunction function(CUmodule mod, const char *name)
{
	CUfunction f;

	ok(drv->cuModuleGetFunction(&f, mod, name));
	return f;
}

static CUkernel kernel(CUlibrary lib, const char *name)
{
	CUkernel k;

	ok(drv->cuLibraryGetKernel(&k, lib, name));
	return k;
}

static CUdeviceptr device(const void *data, size_t size)
{
	CUdeviceptr p;

	ok(drv->cuMemAlloc_v2(&p, size));
	if (data)
		ok(drv->cuMemcpyHtoD_v2(p, data, size));
	return p;
}

static CUresult launch(CUfunction f, unsigned int grid, unsigned int block, void **params)
{
	return drv->cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, NULL, params, NULL);
}

/* Run vecadd and compare with a plain sum. */
static void vecadd(CUfunction f)
{
	float a[N], b[N], c[N];
	CUdeviceptr da, db, dc;
	int i, n = N;
	void *params[] = { &da, &db, &dc, &n };

	for (i = 0; i < N; i++) {
		a[i] = (float)i / 3;
		b[i] = (float)(N - i) * 0.7f;
	}
	da = device(a, sizeof(a));
	db = device(b, sizeof(b));
	dc = device(NULL, sizeof(c));
	ok(launch(f, (N + 127) / 128, 128, params));
	ok(drv->cuMemcpyDtoH_v2(c, dc, sizeof(c)));
	for (i = 0; i < N; i++)
		ck_assert_msg(c[i] == a[i] + b[i], "%d: %g", i, (double)c[i]);
}

START_TEST(vecadd_by_module_library_and_kernel)
{
	CUlibrary lib = library();
	CUfunction f;

	vecadd(function(module(), "vecadd"));
	vecadd((CUfunction)kernel(lib, "vecadd"));
	ok(drv->cuKernelGetFunction(&f, kernel(lib, "vecadd")));
	vecadd(f);
}
END_TEST

START_TEST(every_parameter_arrives)
{
	char a = -5, h = 99;
	short b = -1234;
	char c[3] = { 1, 2, 3 };
	long long d = -123456789012345;
	struct {
		double d;
		short s;
	} e = { 2.5, 77 };
	unsigned char f = 200;
	float g = 0.25f;
	CUdeviceptr out = device(NULL, 9 * sizeof(double));
	void *params[] = { &a, &b, c, &d, &e, &f, &out, &g, &h };
	static const double want[9] = { -5, -1234, 321, -123456789012345, 2.5, 77, 200, 0.25, 99 };
	static const size_t layout[9][2] = { { 0, 1 },	{ 2, 2 },  { 4, 3 },  { 8, 8 }, { 16, 16 },
					     { 32, 1 }, { 40, 8 }, { 48, 4 }, { 52, 1 } };
	CUfunction fn = function(module(), "odd");
	size_t i, offset, size;
	double got[9];

	ok(launch(fn, 1, 1, params));
	ok(drv->cuMemcpyDtoH_v2(got, out, sizeof(got)));
	for (i = 0; i < 9; i++) {
		ck_assert_msg(got[i] == want[i], "%zu: %g", i, got[i]);
		ok(drv->cuFuncGetParamInfo(fn, i, &offset, &size));
		ck_assert_uint_eq(offset, layout[i][0]);
		ck_assert_uint_eq(size, layout[i][1]);
	}
	is(CUDA_ERROR_INVALID_VALUE, drv->cuFuncGetParamInfo(fn, 9, &offset, &size));
	params[4] = NULL;
	is(CUDA_ERROR_INVALID_VALUE, launch(fn, 1, 1, params));
	is(CUDA_ERROR_INVALID_VALUE, launch(fn, 1, 1, NULL));
}
END_TEST

START_TEST(packed_parameters)
{
	CUdeviceptr p = device(NULL, 64);
	struct {
		CUdeviceptr dst;
		uint32_t value;
		uint64_t n;
	} args = { p, 0xabcdef01, 5 };
	size_t size = sizeof(args);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };
	CUfunction f = function(module(), "fill");
	void *params[] = { &args.dst, &args.value, &args.n };
	uint32_t got[5] = { 0 };

	ok(drv->cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
	ok(drv->cuMemcpyDtoH_v2(got, p, sizeof(got)));
	ck_assert_uint_eq(got[0], 0xabcdef01);
	ck_assert_uint_eq(got[4], 0xabcdef01);
	is(CUDA_ERROR_INVALID_VALUE,
	   drv->cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, params, extra));
}
END_TEST

/* A buffer may be shorter than the parameters; the rest has no defined value. */
START_TEST(packed_parameters_not_all)
{
	struct {
		uint64_t dst, words;
		uint64_t w[6];
	} args = { device(NULL, 64), 6, { 1, 2, 3, 4, 5, 6 } };
	size_t size = 5 * 8;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };
	CUfunction f = function(module(), "words");
	uint64_t got[6] = { 0 };

	ok(drv->cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
	ok(drv->cuMemcpyDtoH_v2(got, args.dst, sizeof(got)));
	ck_assert_mem_eq(got, args.w, 3 * 8);
	ck_assert_uint_eq(got[3], 0xa5a5a5a5a5a5a5a5);
	ck_assert_uint_eq(got[5], 0xa5a5a5a5a5a5a5a5);
	size = 0;
	is(CUDA_ERROR_INVALID_VALUE,
	   drv->cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
	size = 32761;
	is(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
	   drv->cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
}
END_TEST

START_TEST(shared_memory)
{
	float x[N], sum = 0, back[N];
	CUdeviceptr dx, dy;
	CUfunction f;
	CUmodule mod = module();
	int i, n = N, value;
	void *params[] = { &dx, &dy, &n };

	for (i = 0; i < N; i++)
		x[i] = (float)(i % 7);
	dx = device(x, sizeof(x));
	dy = device(NULL, sizeof(x));
	f = function(mod, "reduce");
	ok(drv->cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f));
	ck_assert_int_eq(value, 1024);
	ok(launch(f, 1, 256, params));
	ok(drv->cuMemcpyDtoH_v2(back, dy, 4));
	for (i = 0; i < N; i++)
		sum += x[i];
	ck_assert_msg(back[0] == sum, "%g", (double)back[0]);
	f = function(mod, "reverse");
	ok(drv->cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, sizeof(x), NULL, params, NULL));
	ok(drv->cuMemcpyDtoH_v2(back, dy, sizeof(back)));
	for (i = 0; i < N; i++)
		ck_assert(back[i] == x[N - 1 - i]);
}
END_TEST

START_TEST(limits_of_a_launch)
{
	CUmodule mod = module();
	CUfunction f = function(mod, "nothing"), g;
	int value;

	ok(launch(f, 1, 1024, NULL));
	is(CUDA_ERROR_INVALID_VALUE, launch(f, 1, 1025, NULL));
	is(CUDA_ERROR_INVALID_VALUE, launch(f, 0, 1, NULL));
	is(CUDA_ERROR_INVALID_VALUE,
	   drv->cuLaunchKernel(f, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	is(CUDA_ERROR_INVALID_VALUE,
	   drv->cuLaunchKernel(f, 1, 1, 1, 32, 32, 2, 0, NULL, NULL, NULL));
	ok(drv->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 48 << 10, NULL, NULL, NULL));
	is(CUDA_ERROR_INVALID_VALUE,
	   drv->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, (48 << 10) + 1, NULL, NULL, NULL));
	ok(drv->cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
	ok(drv->cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f));
	ck_assert_int_eq(value, 100 << 10);
	ok(drv->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 100 << 10, NULL, NULL, NULL));
	is(CUDA_ERROR_INVALID_VALUE,
	   drv->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 101 << 10, NULL, NULL, NULL));
	is(CUDA_ERROR_INVALID_VALUE,
	   drv->cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
	ok(drv->cuModuleGetFunction(&g, mod, "reduce")); /* has 1 KiB of its own */
	is(CUDA_ERROR_INVALID_VALUE,
	   drv->cuFuncSetAttribute(g, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10));
	ok(drv->cuFuncSetAttribute(g, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 226 << 10));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NUM_REGS, 8));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, f));
}
END_TEST

static CUresult launch_ex(CUfunction f, unsigned int grid, CUlaunchAttribute *attr)
{
	CUlaunchConfig c = { .gridDimX = grid, .gridDimY = 4, .gridDimZ = 1, .blockDimX = 32,
			     .blockDimY = 1, .blockDimZ = 1, .attrs = attr, .numAttrs = 1 };

	return drv->cuLaunchKernelEx(&c, f, NULL, NULL);
}

START_TEST(attributes_of_a_launch)
{
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION };
	CUlibrary lib = library();
	CUkernel k = kernel(lib, "nothing");
	CUfunction f;

	ok(drv->cuKernelGetFunction(&f, k));
	attr.value.clusterDim.x = 8;
	attr.value.clusterDim.y = attr.value.clusterDim.z = 1;
	ok(launch_ex(f, 16, &attr));
	is(CUDA_ERROR_INVALID_CLUSTER_SIZE, launch_ex(f, 12, &attr));
	attr.value.clusterDim.x = 1u << 30;
	attr.value.clusterDim.y = 4; /* 2^32 in all */
	is(CUDA_ERROR_INVALID_CLUSTER_SIZE, launch_ex(f, 1u << 30, &attr));
	attr.value.clusterDim.y = 1;
	attr.value.clusterDim.x = 16;
	is(CUDA_ERROR_INVALID_CLUSTER_SIZE, launch_ex(f, 16, &attr));
	ok(drv->cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, k, 0));
	ok(launch_ex((CUfunction)k, 16, &attr));
	is(CUDA_ERROR_INVALID_CLUSTER_SIZE, launch_ex(f, 16, &attr));
	ok(drv->cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	ok(launch_ex(f, 16, &attr));
	attr = (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
				    .value = { .cooperative = 1 } };
	ok(launch_ex(f, 32, &attr));
	is(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, launch_ex(f, 33, &attr));
	attr.id = (CUlaunchAttributeID)99;
	is(CUDA_ERROR_INVALID_VALUE, launch_ex(f, 1, &attr));
}
END_TEST

static int count(CUfunction f)
{
	CUdeviceptr out = device(NULL, 4);
	void *params[] = { &out };
	int n;

	ok(launch(f, 1, 1, params));
	ok(drv->cuMemcpyDtoH_v2(&n, out, 4));
	ok(drv->cuMemFree_v2(out));
	return n;
}

START_TEST(each_load_has_its_variables)
{
	CUmodule a = module(), b = module();
	CUlibrary lib = library();
	CUdeviceptr p, q;
	size_t size;
	int n = 7;

	ck_assert_int_eq(count(function(a, "count")), 42);
	ck_assert_int_eq(count(function(a, "count")), 43);
	ck_assert_int_eq(count(function(b, "count")), 42);
	ck_assert_int_eq(count((CUfunction)kernel(lib, "count")), 42);
	ok(drv->cuModuleGetGlobal_v2(&p, &size, a, "counter"));
	ck_assert_uint_eq(size, 4);
	ok(drv->cuModuleGetGlobal_v2(&q, NULL, b, "counter"));
	ck_assert_uint_ne(p, q);
	ok(drv->cuMemcpyHtoD_v2(p, &n, 4));
	ck_assert_int_eq(count(function(a, "count")), 8);
	ok(drv->cuLibraryGetGlobal(&p, &size, lib, "table"));
	ck_assert_uint_eq(size, 64);
	is(CUDA_ERROR_NOT_FOUND, drv->cuModuleGetGlobal_v2(&p, &size, a, "nothing"));
	is(CUDA_ERROR_NOT_FOUND, drv->cuModuleGetGlobal_v2(&p, &size, a, "fdry_sim_module"));
}
END_TEST

/* Another context of the library has variables of its own; so has the same one after a reset. */
START_TEST(each_context_has_its_variables)
{
	CUlibrary lib = library();
	CUfunction k = (CUfunction)kernel(lib, "count");
	CUcontext ctx, first;
	CUresult (*create)(CUcontext *, unsigned int, CUdevice), (*destroy)(CUcontext);

	*(void **)&create = test_sim_symbol("cuCtxCreate_v2");
	*(void **)&destroy = test_sim_symbol("cuCtxDestroy_v2");
	ck_assert_int_eq(count(k), 42);
	ok(drv->cuCtxGetCurrent(&first));
	ok(create(&ctx, 0, 0));
	ck_assert_int_eq(count(k), 42);
	ok(destroy(ctx));
	ck_assert_int_eq(count(k), 43);
	ok(drv->cuDevicePrimaryCtxRelease_v2(0));
	ok(drv->cuDevicePrimaryCtxRetain(&ctx, 0));
	ck_assert_ptr_ne(ctx, first);
	ok(drv->cuCtxSetCurrent(ctx));
	ck_assert_int_eq(count(k), 42);
}
END_TEST

START_TEST(handles_lead_back)
{
	CUlibrary lib = library(), lib_back;
	CUkernel k = kernel(lib, "saxpy");
	CUmodule mod, mod_back;
	CUfunction f, g;
	const char *name;
	size_t offset, size;

	ok(drv->cuKernelGetLibrary(&lib_back, k));
	ck_assert_ptr_eq(lib, lib_back);
	ok(drv->cuKernelGetName(&name, k));
	ck_assert_str_eq(name, "saxpy");
	ok(drv->cuKernelGetParamInfo(k, 1, &offset, &size));
	ck_assert_uint_eq(offset, 8);
	ok(drv->cuLibraryGetModule(&mod, lib));
	ok(drv->cuKernelGetFunction(&f, k));
	ok(drv->cuFuncGetName(&name, f));
	ck_assert_str_eq(name, "saxpy");
	ok(drv->cuFuncGetModule(&mod_back, f));
	ck_assert_ptr_eq(mod, mod_back);
	ok(drv->cuModuleGetFunction(&g, mod, "saxpy"));
	ck_assert_ptr_eq(f, g);
	is(CUDA_ERROR_NOT_FOUND, drv->cuLibraryGetKernel(&k, lib, "none"));
	is(CUDA_ERROR_NOT_FOUND, drv->cuModuleGetFunction(&f, mod, "none"));
}
END_TEST

START_TEST(stale_handles)
{
	CUlibrary lib = library();
	CUkernel k = kernel(lib, "nothing");
	CUmodule mod = module();
	CUfunction f = function(mod, "nothing"), g;
	const char *name;
	CUdeviceptr p;
	size_t size;

	ok(drv->cuKernelGetFunction(&g, k));
	ok(drv->cuModuleGetGlobal_v2(&p, &size, mod, "counter"));
	ok(drv->cuLibraryUnload(lib));
	ok(drv->cuModuleUnload(mod));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuLibraryUnload(lib));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuModuleUnload(mod));
	is(CUDA_ERROR_INVALID_HANDLE, launch(f, 1, 1, NULL));
	is(CUDA_ERROR_INVALID_HANDLE, launch(g, 1, 1, NULL));
	is(CUDA_ERROR_INVALID_HANDLE, launch((CUfunction)k, 1, 1, NULL));
	is(CUDA_ERROR_INVALID_HANDLE, launch(NULL, 1, 1, NULL));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuKernelGetName(&name, k));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuFuncGetName(&name, (CUfunction)(uintptr_t)&name));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuMemsetD8Async(p, 0, size, NULL));
	ck_assert_int_eq(test_sim_live("module"), 0);
	ck_assert_int_eq(test_sim_live("function"), 0);
}
END_TEST

/* Objects that a running launch uses stay until it has ended. */
START_TEST(unloading_waits)
{
	CUmodule mod = module();
	CUdeviceptr x = device(NULL, 8);
	uint64_t salt = 3;
	uint32_t spins = 20000000;
	void *params[] = { &x, &salt, &spins };

	ok(launch(function(mod, "step"), 1, 1, params));
	ok(drv->cuModuleUnload(mod));
	ok(drv->cuStreamSynchronize(NULL));
	ok(drv->cuMemFree_v2(x));
}
END_TEST

static CUresult load(const void *image)
{
	CUlibrary lib;

	return drv->cuLibraryLoadData(&lib, image, NULL, NULL, 0, NULL, NULL, 0);
}

START_TEST(images_that_are_none)
{
	char log[200] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)(uintptr_t)sizeof(log) };
	unsigned char garbage[256];
	Elf64_Ehdr *e = (Elf64_Ehdr *)(void *)cubin;
	CUmodule mod;

	memset(garbage, 0xa7, sizeof(garbage));
	is(CUDA_ERROR_INVALID_IMAGE, load(garbage));
	is(CUDA_ERROR_INVALID_VALUE, load(NULL));
	is(CUDA_ERROR_INVALID_PTX,
	   drv->cuModuleLoadDataEx(&mod, "// PTX\n.version 8.0\n.target sm_90\n", 2, options,
				   values));
	ck_assert_ptr_nonnull(strstr(log, "PTX"));
	e->e_machine = 190;
	is(CUDA_ERROR_NO_BINARY_FOR_GPU, load(cubin));
	free(cubin);
	cubin = test_sim_cubin("kernels", &cubin_len);
	e = (Elf64_Ehdr *)(void *)cubin;
	e->e_shnum = 0;
	is(CUDA_ERROR_INVALID_IMAGE, load(cubin));
	ck_assert_int_eq(test_sim_live("library"), 0);
}
END_TEST

START_TEST(fatbins)
{
	struct {
		uint32_t magic;
		uint16_t version, head_size;
		uint64_t size;
		uint16_t kind, entry_version;
		uint32_t entry_head;
		uint64_t entry_size;
		uint32_t rest[12];
	} head = { 0xba55ed50, 1, 16, 64 + cubin_len, 2, 0x101, 64, cubin_len, { 0 } };
	unsigned char *fat = malloc(sizeof(head) + cubin_len);
	struct {
		uint32_t magic, version;
		const void *data, *more;
	} wrapper = { 0x466243b1, 1, fat, NULL };

	ck_assert_uint_eq(sizeof(head), 80);
	memcpy(fat, &head, sizeof(head));
	memcpy(fat + sizeof(head), cubin, cubin_len);
	ok(load(fat));
	ok(load(&wrapper));
	((uint16_t *)(void *)fat)[8] = 1; /* PTX only */
	is(CUDA_ERROR_NO_BINARY_FOR_GPU, load(fat));
	free(fat);
}
END_TEST

START_TEST(linking_one_object)
{
	CUlinkState link;
	void *data;
	size_t size;

	ok(drv->cuLinkCreate_v2(0, NULL, NULL, &link));
	is(CUDA_ERROR_INVALID_VALUE, drv->cuLinkComplete(link, &data, &size));
	is(CUDA_ERROR_INVALID_PTX,
	   drv->cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, cubin, cubin_len, "x", 0, NULL, NULL));
	is(CUDA_ERROR_INVALID_IMAGE, drv->cuLinkAddData_v2(link, CU_JIT_INPUT_CUBIN, cubin,
							   cubin_len - 1, "x", 0, NULL, NULL));
	ok(drv->cuLinkAddData_v2(link, CU_JIT_INPUT_CUBIN, cubin, cubin_len, "x", 0, NULL, NULL));
	ok(drv->cuLinkComplete(link, &data, &size));
	ck_assert_uint_eq(size, cubin_len);
	ck_assert_mem_eq(data, cubin, size);
	ok(drv->cuLinkDestroy(link));
	is(CUDA_ERROR_INVALID_HANDLE, drv->cuLinkDestroy(link));
}
END_TEST

START_TEST(ptx_with_its_result)
{
	size_t len, size;
	char *ptx = test_sim_ptx("kernels", &len), *bare = malloc(len);
	CUlinkState link;
	CUlibrary lib;
	CUmodule mod;
	void *data;

	memcpy(bare, ptx, len);
	ok(drv->cuModuleLoadDataEx(&mod, ptx, 0, NULL, NULL));
	ok(drv->cuLibraryLoadData(&lib, ptx, NULL, NULL, 0, NULL, NULL, 0));
	ok(drv->cuLinkCreate_v2(0, NULL, NULL, &link));
	ok(drv->cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, bare, len, "x", 0, NULL,
				 NULL)); /* no NUL */
	ok(drv->cuLinkComplete(link, &data, &size));
	ck_assert_uint_eq(size, cubin_len);
	ck_assert_mem_eq(data, cubin, size);
	ok(drv->cuLinkDestroy(link));
	ptx[len / 2] = '\0';
	is(CUDA_ERROR_INVALID_PTX, drv->cuModuleLoadDataEx(&mod, ptx, 0, NULL, NULL));
	free(ptx);
	free(bare);
	vecadd(function(mod, "vecadd"));
	vecadd((CUfunction)kernel(lib, "vecadd"));
}
END_TEST

/* The caller may free an image after the load, unless it promised to keep it. */
START_TEST(the_image_is_copied)
{
	CUlibrary lib = library();
	CUcontext ctx;
	CUresult (*create)(CUcontext *, unsigned int, CUdevice);

	memset(cubin, 0, cubin_len);
	*(void **)&create = test_sim_symbol("cuCtxCreate_v2");
	vecadd((CUfunction)kernel(lib, "vecadd"));
	ok(create(&ctx, 0, 0));
	vecadd((CUfunction)kernel(lib, "vecadd"));
}
END_TEST

START_TEST(a_bad_address_breaks_the_context)
{
	CUdeviceptr p = 0x1000, q;
	uint32_t value = 1;
	size_t n = 4;
	void *params[] = { &p, &value, &n };

	ok(launch(function(module(), "fill"), 1, 32, params));
	is(CUDA_ERROR_ILLEGAL_ADDRESS, drv->cuCtxSynchronize());
	is(CUDA_ERROR_ILLEGAL_ADDRESS, drv->cuMemAlloc_v2(&q, 8));
	ok(drv->cuDevicePrimaryCtxRelease_v2(0));
	ck_assert_int_eq(test_sim_live("context"), 0);
}
END_TEST

/* Each function of the table is exported, in both variants if it has two. */
START_TEST(all_of_the_table)
{
	static const char *const symbols[] = {
#define FDRY_DRIVER_FN(symbol, name, since) #symbol,
#include "arch/driver.def"
#undef FDRY_DRIVER_FN
	};
	size_t i;

	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		ck_assert_msg(dlsym(drv->handle, symbols[i]), "%s is missing", symbols[i]);
#define FDRY_DRIVER_FN(symbol, name, since) \
	ck_assert_ptr_eq((void *)drv->symbol, dlsym(drv->handle, #symbol));
#include "arch/driver.def"
#undef FDRY_DRIVER_FN
	ck_assert_ptr_nonnull(dlsym(drv->handle, "cuLaunchKernel_ptsz"));
	ck_assert_ptr_nonnull(dlsym(drv->handle, "cuMemcpyHtoD_v2_ptds"));
}
END_TEST

/* A call that is to fail does so before it looks at its arguments. */
START_TEST(every_function_can_fail)
{
	static const char *const symbols[] = {
#define SIM_FN(symbol, name, since, kind) KIND_##kind(#symbol)
#define KIND_PLAIN(text) text,
#define KIND_PTSZ(text) text,
#define KIND_PTDS(text) text,
#define KIND_EARLY(text) text,
#define KIND_QUIET(text)
#include "arch/sim/entry.def"
#undef SIM_FN
	};
	CUresult (*call)(void *, void *, void *, void *, void *, void *, void *, void *, void *,
			 void *, void *);
	char spec[128];
	size_t i;

	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		snprintf(spec, sizeof(spec), "%s:1:716", symbols[i]);
		test_sim_fail(spec);
		*(void **)&call = test_sim_symbol(symbols[i]);
		ck_assert_msg(call(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
				   NULL) == CUDA_ERROR_MISALIGNED_ADDRESS,
			      "%s does not fail", symbols[i]);
		ck_assert_uint_eq(test_sim_calls(symbols[i]), 1);
	}
	ck_assert_uint_gt(i, 200);
}
END_TEST

static CUdriverProcAddressQueryResult asked(const char *name, int version, void **fn)
{
	CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	CUdriverProcAddressQueryResult status;

	*(void **)&get = test_sim_symbol("cuGetProcAddress_v2");
	ok(get(name, fn, version, CU_GET_PROC_ADDRESS_DEFAULT, &status));
	return status;
}

START_TEST(functions_by_name_and_version)
{
	CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	void *old, *new, *none = &old;

	ck_assert_int_eq(asked("cuGraphGetEdges", 12000, &old),
			 CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	ck_assert_ptr_null(old);
	ck_assert_int_eq(asked("cuCtxGetDevice", 12080, &old), CU_GET_PROC_ADDRESS_SUCCESS);
	ck_assert_int_eq(asked("cuCtxGetDevice", 13000, &new), CU_GET_PROC_ADDRESS_SUCCESS);
	ck_assert_ptr_ne(old, new);
	ck_assert_int_eq(asked("cuMemAlloc_v2", 13000, &none),
			 CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	ck_assert_ptr_null(none);
	*(void **)&get = test_sim_symbol("cuGetProcAddress_v2");
	is(CUDA_ERROR_INVALID_VALUE, get("cuMemAlloc", &none, 14000, 0, NULL));
	is(CUDA_ERROR_INVALID_VALUE, get("cuMemAlloc", &none, 13000, 1 << 9, NULL));
	setenv("FDRY_SIM_DRIVER_VERSION", "12000", 1);
	ck_assert_int_eq(asked("cuCtxGetId", 12000, &old), CU_GET_PROC_ADDRESS_SUCCESS);
	ck_assert_int_eq(asked("cuKernelGetName", 12000, &old),
			 CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}
END_TEST

START_TEST(textures_are_small_integers)
{
	CUDA_RESOURCE_DESC desc = { .resType = CU_RESOURCE_TYPE_LINEAR };
	CUDA_TEXTURE_DESC texture = { 0 };
	CUresult (*create)(CUtexObject *, const CUDA_RESOURCE_DESC *, const CUDA_TEXTURE_DESC *,
			   const void *);
	CUresult (*destroy)(CUtexObject), (*get)(CUDA_RESOURCE_DESC *, CUtexObject);
	CUtexObject t, u;

	*(void **)&create = test_sim_symbol("cuTexObjectCreate");
	*(void **)&destroy = test_sim_symbol("cuTexObjectDestroy");
	*(void **)&get = test_sim_symbol("cuTexObjectGetResourceDesc");
	ok(create(&t, &desc, &texture, NULL));
	ok(create(&u, &desc, &texture, NULL));
	ck_assert_uint_lt(t, 100);
	ck_assert_int_eq(test_sim_live("texture"), 2);
	ok(destroy(t));
	is(CUDA_ERROR_INVALID_VALUE, get(&desc, t));
	ok(get(&desc, u));
	is(CUDA_ERROR_INVALID_VALUE, destroy(t));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sim_module");
	TCase *tc = tcase_create("code");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, vecadd_by_module_library_and_kernel);
	tcase_add_test(tc, every_parameter_arrives);
	tcase_add_test(tc, packed_parameters);
	tcase_add_test(tc, packed_parameters_not_all);
	tcase_add_test(tc, shared_memory);
	tcase_add_test(tc, limits_of_a_launch);
	tcase_add_test(tc, attributes_of_a_launch);
	tcase_add_test(tc, each_load_has_its_variables);
	tcase_add_test(tc, each_context_has_its_variables);
	tcase_add_test(tc, handles_lead_back);
	tcase_add_test(tc, stale_handles);
	tcase_add_test(tc, unloading_waits);
	tcase_add_test(tc, images_that_are_none);
	tcase_add_test(tc, fatbins);
	tcase_add_test(tc, linking_one_object);
	tcase_add_test(tc, ptx_with_its_result);
	tcase_add_test(tc, the_image_is_copied);
	tcase_add_test(tc, a_bad_address_breaks_the_context);
	tcase_add_test(tc, all_of_the_table);
	tcase_add_test(tc, every_function_can_fail);
	tcase_add_test(tc, functions_by_name_and_version);
	tcase_add_test(tc, textures_are_small_integers);
	suite_add_tcase(s, tc);
	return test_main(s);
}
