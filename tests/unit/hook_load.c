// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of the interposer's notes of device code, with the software driver. Code that was
 * loaded in each of the ways is kept, and can be loaded and run again after the caller's copy is
 * freed.
 */
#include "tests/lib/hook.h"
#include "tests/lib/test.h"

#include <elf.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static void *cubin;
static size_t cubin_len;

static void setup(void)
{
	test_hook();
	cubin = test_sim_cubin("kernels", &cubin_len);
}

/* Overwrite the caller's bytes, as if it had freed them. */
static void poison(void *data, size_t len)
{
	memset(data, 0x5A, len);
	free(data);
}

/* @image holds a kernel "fill" that works. */
static void runs(const void *image)
{
	uint32_t value = 0xABCD, got = 0;
	CUdeviceptr p;
	size_t n = 4;
	void *params[] = { &p, &value, &n };
	CUfunction f;
	CUmodule m;

	cuda_ok(cuModuleLoadData, &m, image);
	cuda_ok(cuModuleGetFunction, &f, m, "fill");
	cuda_ok(cuMemAlloc_v2, &p, 16);
	cuda_ok(cuLaunchKernel, f, 1, 1, 1, 4, 1, 1, 0, NULL, params, NULL);
	cuda_ok(cuMemcpyDtoH_v2, &got, p + 12, 4);
	ck_assert_uint_eq(got, value);
	cuda_ok(cuMemFree_v2, p);
	cuda_ok(cuModuleUnload, m);
}

static struct fdry_code found(CUlibrary library, CUmodule module, enum fdry_code_kind kind)
{
	struct fdry_code c;

	ck_assert_msg(!hook->code_find(library, module, &c), "%s", hook->last_error());
	ck_assert_int_eq(c.kind, kind);
	ck_assert_ptr_eq(c.library, library);
	ck_assert_ptr_eq(c.module, module);
	return c;
}

static void found_cubin(CUlibrary library, CUmodule module)
{
	struct fdry_code c = found(library, module, FDRY_CODE_ELF);
	size_t len;
	void *again = test_sim_cubin("kernels", &len);

	ck_assert_uint_eq(c.len, len);
	ck_assert_mem_eq(c.data, again, len);
	free(again);
	runs(c.data);
}

START_TEST(objects_in_memory)
{
	CUjit_option option = CU_JIT_OPTIMIZATION_LEVEL;
	void *value = (void *)2;
	struct fdry_code c;
	CUmodule m, n;
	CUlibrary l;

	cuda_ok(cuModuleLoadData, &m, cubin);
	cuda_ok(cuModuleLoadDataEx, &n, cubin, 1, &option, &value);
	cuda_ok(cuLibraryLoadData, &l, cubin, NULL, NULL, 0, NULL, NULL, 0);
	poison(cubin, cubin_len);
	found_cubin(NULL, m);
	found_cubin(NULL, n);
	found_cubin(l, NULL);
	c = found(NULL, n, FDRY_CODE_ELF);
	ck_assert_uint_eq(c.njit, 1);
	ck_assert_int_eq(c.jit[0], CU_JIT_OPTIMIZATION_LEVEL);
	ck_assert_ptr_eq(c.jit_values[0], value);
	/* also after they are unloaded */
	cuda_ok(cuModuleUnload, m);
	cuda_ok(cuLibraryUnload, l);
	found_cubin(NULL, m);
	found_cubin(l, NULL);
}
END_TEST

/* Make a cubin of the same kernels with a megabyte of other bytes before its section table. */
static void *make_large(size_t *len)
{
	Elf64_Ehdr eh;
	char *ret;
	size_t table;

	memcpy(&eh, cubin, sizeof(eh));
	table = (size_t)eh.e_shnum * eh.e_shentsize;
	*len = (1 << 20) + table;
	ret = calloc(1, *len);
	memcpy(ret, cubin, cubin_len);
	memset(ret + cubin_len, 0x77, (1 << 20) - cubin_len);
	memcpy(ret + (1 << 20), (char *)cubin + eh.e_shoff, table);
	eh.e_shoff = 1 << 20;
	memcpy(ret, &eh, sizeof(eh));
	return ret;
}

static void found_large(CUlibrary library, CUmodule module)
{
	struct fdry_code c = found(library, module, FDRY_CODE_ELF);
	size_t len;
	void *again = make_large(&len);

	ck_assert_uint_eq(c.len, len);
	ck_assert(!memcmp(c.data, again, len));
	free(again);
	runs(c.data);
}

/* Large objects are copied while the driver loads them, which is slow. */
START_TEST(large_objects)
{
	size_t len;
	char *large = make_large(&len);
	CUmodule m, n;
	CUlibrary l;

	cuda_ok(cuModuleLoadData, &m, large);
	cuda_ok(cuModuleLoadDataEx, &n, large, 0, NULL, NULL);
	cuda_ok(cuLibraryLoadData, &l, large, NULL, NULL, 0, NULL, NULL, 0);
	test_sim_fail("cuModuleLoadData:1");
	ck_assert_int_ne(cuda(cuModuleLoadData, &m, large), CUDA_SUCCESS);
	test_sim_fail("");
	poison(large, len);
	found_large(NULL, m);
	found_large(NULL, n);
	found_large(l, NULL);
}
END_TEST

/* A fatbin with the cubin as its only entry. */
static uint8_t *make_fatbin(size_t *len)
{
	uint8_t *f = calloc(1, 16 + 64 + cubin_len);

	*len = 16 + 64 + cubin_len;
	memcpy(f, "\x50\xED\x55\xBA\1\0\x10\0", 8);
	memcpy(f + 8, &(uint64_t){ 64 + cubin_len }, 8);
	memcpy(f + 16, "\2\0\1\1\x40\0\0\0", 8);
	memcpy(f + 24, &(uint64_t){ cubin_len }, 8);
	memcpy(f + 16 + 28, &(uint32_t){ 90 }, 4);
	memcpy(f + 16 + 64, cubin, cubin_len);
	return f;
}

START_TEST(fatbins)
{
	struct {
		uint32_t magic, version;
		const void *data, *more;
	} *w = calloc(1, sizeof(*w)), got;
	struct fdry_code c;
	uint8_t *fatbin;
	CUlibrary l, v;
	CUmodule m, n;
	size_t len;

	fatbin = make_fatbin(&len);
	w->magic = 0x466243b1;
	w->version = 2;
	w->data = fatbin;
	w->more = w;
	cuda_ok(cuModuleLoadFatBinary, &m, fatbin);
	cuda_ok(cuModuleLoadData, &n, fatbin);
	cuda_ok(cuLibraryLoadData, &l, w, NULL, NULL, 0, NULL, NULL, 0);
	cuda_ok(cuLibraryLoadData, &v, fatbin, NULL, NULL, 0, NULL, NULL, 0);
	poison(fatbin, len);
	poison(w, sizeof(*w));
	fatbin = make_fatbin(&len);
	c = found(NULL, m, FDRY_CODE_FATBIN);
	ck_assert_uint_eq(c.len, len);
	ck_assert_mem_eq(c.data, fatbin, len);
	runs(c.data);
	c = found(NULL, n, FDRY_CODE_FATBIN);
	ck_assert_uint_eq(c.len, len);
	c = found(v, NULL, FDRY_CODE_FATBIN);
	ck_assert_uint_eq(c.len, len);
	c = found(l, NULL, FDRY_CODE_WRAPPER);
	ck_assert_uint_eq(c.len, 0);
	memcpy(&got, c.data, sizeof(got));
	ck_assert_uint_eq(got.version, 2);
	ck_assert_ptr_null(got.more);
	ck_assert_mem_eq(got.data, fatbin, len);
	free(fatbin);
	runs(c.data);
}
END_TEST

START_TEST(files)
{
	char path[] = "/tmp/fdry-hook-XXXXXX";
	int fd = mkstemp(path);
	CUlibrary l;
	CUmodule m;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, cubin, cubin_len), (ssize_t)cubin_len);
	close(fd);
	cuda_ok(cuModuleLoad, &m, path);
	cuda_ok(cuLibraryLoadFromFile, &l, path, NULL, NULL, 0, NULL, NULL, 0);
	unlink(path);
	found_cubin(NULL, m);
	found_cubin(l, NULL);
	ck_assert_int_eq(cuda(cuModuleLoad, &m, path), CUDA_ERROR_FILE_NOT_FOUND);
}
END_TEST

static char *file_of_code(const char *folder, const char *name)
{
	char *path = NULL;
	FILE *f;

	ck_assert_int_gt(asprintf(&path, "%s/%s", folder, name), 0);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(cubin, 1, cubin_len, f), cubin_len);
	fclose(f);
	return path;
}

/* How often @path is in the list of files, which is in order. */
static unsigned int listed(const char *path)
{
	const char *at, *before = "";
	char *paths = NULL;
	unsigned int n = 0;
	size_t len = 0;

	ck_assert_int_eq(hook->code_files(&paths, &len), 0);
	for (at = paths; at < paths + len; at += strlen(at) + 1) {
		ck_assert_int_lt(strcmp(before, at), 0);
		before = at;
		n += !strcmp(at, path);
	}
	free(paths);
	return n;
}

START_TEST(paths_of_files)
{
	char folder[] = "/tmp/fdry-hook-XXXXXX", *one, *two, *unread, *link = NULL;
	CUlibrary l;
	CUmodule m;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	one = file_of_code(folder, "1");
	two = file_of_code(folder, "2");
	unread = file_of_code(folder, "3");
	ck_assert_int_gt(asprintf(&link, "%s/link", folder), 0);
	ck_assert_int_eq(symlink(one, link), 0);
	ck_assert_uint_eq(listed(one), 0);
	cuda_ok(cuLibraryLoadFromFile, &l, two, NULL, NULL, 0, NULL, NULL, 0);
	cuda_ok(cuModuleLoad, &m, link);
	cuda_ok(cuModuleLoad, &m, one);
	ck_assert_uint_eq(listed(one), 1);
	ck_assert_uint_eq(listed(two), 1);
	ck_assert_uint_eq(listed(unread), 0);
	ck_assert_uint_eq(listed(link), 0);
	unlink(one);
	unlink(two);
	unlink(unread);
	unlink(link);
	rmdir(folder);
	free(one);
	free(two);
	free(unread);
	free(link);
}
END_TEST

START_TEST(the_linkers_output)
{
	CUlinkState link;
	CUmodule m;
	void *out;
	size_t len;

	cuda_ok(cuLinkCreate_v2, 0, NULL, NULL, &link);
	cuda_ok(cuLinkAddData_v2, link, CU_JIT_INPUT_CUBIN, cubin, cubin_len, "kernels", 0, NULL,
		NULL);
	cuda_ok(cuLinkComplete, link, &out, &len);
	cuda_ok(cuModuleLoadData, &m, out);
	cuda_ok(cuLinkDestroy, link);
	found_cubin(NULL, m);
}
END_TEST

START_TEST(a_librarys_module)
{
	struct fdry_code c;
	CUlibrary l;
	CUmodule m;

	cuda_ok(cuLibraryLoadData, &l, cubin, NULL, NULL, 0, NULL, NULL, 0);
	cuda_ok(cuLibraryGetModule, &m, l);
	ck_assert_int_eq(hook->code_find(NULL, m, &c), 0);
	ck_assert_ptr_eq(c.library, l);
	ck_assert_uint_eq(c.len, cubin_len);
}
END_TEST

START_TEST(code_that_fails_to_load_is_not_noted)
{
	struct fdry_code c = { .len = 7 };
	CUmodule m = (CUmodule)0x1234;
	char bad[128] = { 0x7f, 'E', 'L', 'F' };

	ck_assert_int_ne(cuda(cuModuleLoadData, &m, bad), CUDA_SUCCESS);
	test_sim_fail("cuModuleLoadData:1");
	ck_assert_int_ne(cuda(cuModuleLoadData, &m, cubin), CUDA_SUCCESS);
	ck_assert_int_eq(hook->code_find(NULL, m, &c), -FDRY_E_NOENT);
	ck_assert_uint_eq(c.len, 7);
}
END_TEST

static CUcontext context;
static CUmodule loaded[4][50];

static void *load_many(void *arg)
{
	CUmodule *m = arg;
	int i;

	cuda_ok(cuCtxSetCurrent, context);
	for (i = 0; i < 50; i++) {
		cuda_ok(cuModuleLoadData, &m[i], cubin);
		found(NULL, m[i], FDRY_CODE_ELF);
	}
	return NULL;
}

START_TEST(threads_that_load)
{
	pthread_t t[4];
	int i, k;

	cuda_ok(cuCtxGetCurrent, &context);
	for (i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, load_many, loaded[i]);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < 4; i++)
		for (k = 0; k < 50; k++)
			ck_assert_uint_eq(found(NULL, loaded[i][k], FDRY_CODE_ELF).len, cubin_len);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_load");
	TCase *tc = tcase_create("load");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, objects_in_memory);
	tcase_add_test(tc, large_objects);
	tcase_add_test(tc, fatbins);
	tcase_add_test(tc, files);
	tcase_add_test(tc, paths_of_files);
	tcase_add_test(tc, the_linkers_output);
	tcase_add_test(tc, a_librarys_module);
	tcase_add_test(tc, code_that_fails_to_load_is_not_noted);
	tcase_add_test(tc, threads_that_load);
	suite_add_tcase(s, tc);
	return test_main(s);
}
