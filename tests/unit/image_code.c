// SPDX-License-Identifier: Apache-2.0
/* Unit tests of code in seals: which bytes a kernel comes from, and the attributes of its
 * functions. */
#include "tests/lib/image.h"

/* --- attributes --- */

#define REVERSED \
	20000 /* floats: 80,000 bytes of shared memory, of which a fresh kernel may have 49,152 */

static CUkernel library_kernel(struct work *w, const char *name)
{
	CUlibrary library;
	CUkernel kern;

	cuda_ok(cuLibraryLoadData, &library, w->cubin, NULL, NULL, 0, NULL, NULL, 0);
	cuda_ok(cuLibraryGetKernel, &kern, library, name);
	return kern;
}

static void reverse_add(struct work *w, CUfunction func)
{
	struct fdry_tensor t = {
		.dtype = FDRY_F32, .rank = 1, .shape = { REVERSED }, .stride = { 1 }
	};
	CUdeviceptr x, y;
	int n = REVERSED;
	void *args[] = { &x, &y, &n };

	cuda_ok(cuMemAlloc_v2, &x, REVERSED * 4);
	cuda_ok(cuMemAlloc_v2, &y, REVERSED * 4);
	capture_start(w);
	cuda_ok(cuLaunchKernel, func, 1, 1, 1, 1, 1, 1, REVERSED * 4, w->stream, args, NULL);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
	t.name = "x";
	t.addr = x;
	ok(fdry_capture_tensor(w->cap, &t));
	t.name = "y";
	t.addr = y;
	ok(fdry_capture_tensor(w->cap, &t));
}

static void seal_set_on_the_kernel(void *arg)
{
	struct work w;
	CUkernel kern;

	(void)arg;
	work_make(&w);
	kern = library_kernel(&w, "reverse");
	cuda_ok(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, REVERSED * 4,
		kern, 0);
	reverse_add(&w, (CUfunction)kern);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* Capture a launch of "reverse", whose limit is raised on the function. */
static CUfunction function_make(struct work *w)
{
	CUfunction func;

	work_make(w);
	cuda_ok(cuKernelGetFunction, &func, library_kernel(w, "reverse"));
	cuda_ok(cuFuncSetAttribute, func, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		REVERSED * 4);
	reverse_add(w, func);
	return func;
}

static void seal_set_on_the_function(void *arg)
{
	struct work w;

	(void)arg;
	(void)function_make(&w);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

/* cuDNN lowers the limit for its next launch. A graph keeps the shared memory that it was captured
 * with. The second seal does not read the nodes again. */
static void seal_lowered(void *arg)
{
	CUfunction func;
	struct work w;

	(void)arg;
	func = function_make(&w);
	ok(fdry_capture_graph_fixed(w.cap, 1, 1));
	cuda_ok(cuFuncSetAttribute, func, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0);
	ok(work_seal(&w, "first"));
	ok(work_seal(&w, "img"));
	work_end(&w);
}

static void (*const shared_seals[])(void *) = { seal_set_on_the_kernel, seal_set_on_the_function,
						seal_lowered };

START_TEST(shared_memory_wherever_it_was_set)
{
	static float x[REVERSED], y[REVERSED];
	struct fdry_image *img;
	int i;

	test_child(shared_seals[_i], NULL);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	for (i = 0; i < REVERSED; i++)
		x[i] = (float)i;
	ok(fdry_image_write(img, "x", x, sizeof(x), NULL));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "y", y, sizeof(y), NULL));
	for (i = 0; i < REVERSED; i++)
		ck_assert(y[i] == x[REVERSED - 1 - i]);
	fdry_image_unload(img);
}
END_TEST

static void seal_clusters(void *arg)
{
	struct work w;

	(void)arg;
	work_make(&w);
	cuda_ok(cuFuncSetAttribute, w.vecadd, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2);
	cuda_ok(cuFuncSetAttribute, w.vecadd, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 1);
	cuda_ok(cuFuncSetAttribute, w.vecadd, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1);
	cuda_ok(cuFuncSetAttribute, w.vecadd,
		CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 2);
	cuda_ok(cuFuncSetAttribute, w.vecadd, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
		25);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(cluster_attributes)
{
	struct fdry_image *img;

	test_child(seal_clusters, NULL);
	described_as(" attributes 49152 25 0, vecadd, required_cluster_width 2, "
		     "required_cluster_height 1, "
		     "required_cluster_depth 1, cluster_scheduling_policy 2");
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	image_check(img, 1, 3, 100);
	fdry_image_unload(img);
}
END_TEST

/* --- bytes --- */

/* Load @w's code with @fourth as the fourth number of the table, and return its kernel "lookup". */
static CUfunction lookup_with(struct work *w, uint8_t *buffer, size_t len, float fourth)
{
	static const float table[] = { 1, 2, 4, 8 };
	uint8_t *at;
	CUmodule module;
	CUfunction func;

	memcpy(buffer, w->cubin, len);
	at = memmem(buffer, len, table, sizeof(table));
	ck_assert_ptr_nonnull(at);
	memcpy(at + 12, &fourth, sizeof(fourth));
	cuda_ok(cuModuleLoadData, &module, buffer);
	cuda_ok(cuModuleGetFunction, &func, module, "lookup");
	memset(buffer, 0xEE, len);
	return func;
}

static void lookup_add(struct work *w, CUfunction func, CUdeviceptr index, CUdeviceptr out)
{
	int n = 4;
	void *args[] = { &index, &out, &n };

	cuda_ok(cuLaunchKernel, func, 1, 1, 1, 4, 1, 1, 0, w->stream, args, NULL);
}

/* One buffer, filled twice with code that differs in one number. */
static void seal_from_one_buffer(void *arg)
{
	static const int index[] = { 0, 1, 2, 3 };
	CUfunction first, second;
	uint8_t *buffer;
	size_t len;
	struct work w;

	(void)arg;
	work_make(&w);
	free(test_sim_cubin("kernels", &len));
	buffer = malloc(len);
	first = lookup_with(&w, buffer, len, 16);
	second = lookup_with(&w, buffer, len, 32);
	free(buffer);
	cuda_ok(cuMemcpyHtoD_v2, w.a, index, sizeof(index));
	capture_start(&w);
	lookup_add(&w, first, w.a, w.b);
	lookup_add(&w, second, w.a, w.c);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	tensor_add(&w, "b", w.b, FDRY_USE_OUTPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(a_buffer_used_again_is_other_code)
{
	struct fdry_image *img;
	float v[N];

	test_child(seal_from_one_buffer, NULL);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "b", v, BYTES, NULL));
	ck_assert(v[2] == 4 && v[3] == 16);
	ok(fdry_image_read(img, "c", v, BYTES, NULL));
	ck_assert(v[2] == 4 && v[3] == 32);
	fdry_image_unload(img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_code");
	TCase *tc = tcase_create("code");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, shared_memory_wherever_it_was_set, 0, 3);
	tcase_add_test(tc, cluster_attributes);
	tcase_add_test(tc, a_buffer_used_again_is_other_code);
	suite_add_tcase(s, tc);
	return test_main(s);
}
