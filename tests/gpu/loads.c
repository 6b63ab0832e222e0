// SPDX-License-Identifier: Apache-2.0
/*
 * Variables of modules and libraries that launch nothing, on a GPU: a graph uses them by a pointer
 * in an argument or in memory. The program wrote them before the seal.
 *
 * It can also run on the software driver: loads $BUILD/foundry/sim/libcuda.so.1
 */
#include "tests/lib/gpu_work.h"

enum { OF_MODULE = 1, OF_LIBRARY, IN_MEMORY }; /* keys of graphs */

static const char ptx[] =
	".version 7.0\n.target sm_75\n.address_size 64\n"
	".visible .global .align 8 .u64 counter = 7;\n"
	".visible .entry bump(.param .u64 out)\n"
	"{\n\t.reg .b64 %o, %x;\n\tld.param.u64 %o, [out];\n\tcvta.to.global.u64 %o, %o;\n"
	"\tld.global.u64 %x, [counter];\n\tadd.u64 %x, %x, 1;\n\tst.global.u64 [counter], %x;\n"
	"\tst.global.u64 [%o], %x;\n\tret;\n}\n"
	".visible .entry deref(.param .u64 out, .param .u64 cell)\n"
	"{\n\t.reg .b64 %o, %c, %x;\n\tld.param.u64 %o, [out];\n\tld.param.u64 %c, [cell];\n"
	"\tcvta.to.global.u64 %o, %o;\n\tcvta.to.global.u64 %c, %c;\n\tld.global.u64 %c, [%c];\n"
	"\tcvta.to.global.u64 %c, %c;\n\tld.global.u64 %x, [%c];\n\tst.global.u64 [%o], %x;\n"
	"\tret;\n}\n"
	".visible .entry swap(.param .u64 out, .param .u64 with, .param .u64 value)\n"
	"{\n\t.reg .b64 %o, %w, %x, %v;\n\tld.param.u64 %o, [out];\n\tld.param.u64 %w, [with];\n"
	"\tld.param.u64 %v, [value];\n\tcvta.to.global.u64 %o, %o;\n"
	"\tcvta.to.global.u64 %w, %w;\n\tld.volatile.global.u64 %x, [%w];\n"
	"\tst.global.u64 [%o], %x;\n\tst.volatile.global.u64 [%w], %v;\n\tret;\n}\n";

static struct gpu_work w;

static void word_set(CUdeviceptr at, uint64_t word)
{
	cuda_ok(cuMemcpyHtoD_v2, at, &word, sizeof(word));
}

static void graph_add(uint64_t key, CUmodule module, const char *name, uint64_t a, uint64_t b)
{
	void *args[] = { &w.x, &a, &b };
	CUfunction f;
	CUgraph g;

	cuda_ok(cuModuleGetFunction, &f, module, name);
	cuda_ok(cuStreamBeginCapture_v2, w.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuda_ok(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, w.stream, args, NULL);
	cuda_ok(cuStreamEndCapture, w.stream, &g);
	ok(fdry_capture_graph(w.cap, key, name, g));
}

static void seal_loads(void *arg)
{
	struct fdry_seal_report r = { .sz = sizeof(r) };
	CUmodule launched, other;
	CUlibrary library;
	CUdeviceptr counter, cell;
	void *sim = NULL;
	const void *code;
	size_t len, size;

	(void)arg;
	gpu_work_begin(&w);
	if (gpu_work_software())
		sim = test_sim_cubin("variables", &len);
	code = sim ? sim : (const void *)ptx;
	cuda_ok(cuModuleLoadData, &launched, code);
	cuda_ok(cuModuleLoadData, &other, code);
	cuda_ok(cuLibraryLoadData, &library, code, NULL, NULL, 0, NULL, NULL, 0);
	free(sim);
	cuda_ok(cuModuleGetGlobal_v2, &counter, &size, other, "counter");
	word_set(counter, 50);
	graph_add(OF_MODULE, launched, "swap", counter, 500);
	cuda_ok(cuLibraryGetGlobal, &counter, &size, library, "counter");
	word_set(counter, 60);
	graph_add(OF_LIBRARY, launched, "swap", counter, 600);
	cuda_ok(cuMemAlloc_v2, &cell, 8);
	word_set(cell, counter);
	graph_add(IN_MEMORY, launched, "deref", cell, 0);
	ok(fdry_capture_seal(w.cap, w.store, "loads", NULL, &r));
	printf("sealed %llu kernels, of which graphs launch 2\n", (unsigned long long)r.kernels);
	fflush(stdout);
	gpu_work_end(&w);
}

static uint64_t launched(struct fdry_image *img, uint64_t key)
{
	uint64_t x[64];

	ok(fdry_image_launch(img, key, NULL));
	ok(fdry_image_read(img, "x", x, sizeof(x), NULL));
	return x[0];
}

START_TEST(variables_of_loads_that_launch_nothing)
{
	struct fdry_image *img = NULL;
	struct fdry_store *s = NULL;
	int round;

	test_child(seal_loads, NULL);
	ok(fdry_store_open(path, 0, &s));
	ok(fdry_image_load(s, "loads", NULL, &img));
	for (round = 0; round < 2; round++) {
		ck_assert_uint_eq(launched(img, OF_MODULE), 50);
		ck_assert_uint_eq(launched(img, OF_MODULE), 500);
		ck_assert_uint_eq(launched(img, IN_MEMORY), 60);
		ck_assert_uint_eq(launched(img, OF_LIBRARY), 60);
		ck_assert_uint_eq(launched(img, IN_MEMORY), 600);
		ok(fdry_image_restore(img, NULL));
		printf("round %d: five launches, each number right\n", round);
	}
	fdry_image_unload(img);
	fdry_store_close(s);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("loads");
	TCase *tc = tcase_create("loads");

	gpu_work_main(argc, argv);
	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, variables_of_loads_that_launch_nothing);
	suite_add_tcase(s, tc);
	return test_main(s);
}
