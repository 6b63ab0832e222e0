// SPDX-License-Identifier: Apache-2.0
/* image_place.c - see image_place.h. */
#include "tests/lib/image_place.h"

void seal_into(void *unused)
{
	CUdeviceptr gone, big, d;
	struct work w;
	float v[N];

	(void)unused;
	work_make(&w);
	cuda_ok(cuMemAlloc_v2, &gone, BIG);
	cuda_ok(cuMemAlloc_v2, &big, BIG);
	cuda_ok(cuMemAlloc_v2, &d, BYTES);
	cuda_ok(cuMemFree_v2, gone);
	vector_fill(v, 1000);
	cuda_ok(cuMemcpyHtoD_v2, d, v, BYTES);
	cuda_ok(cuMemcpyHtoD_v2, big + BIG - BYTES, v, BYTES);
	graph_add(&w, 1);
	capture_start(&w);
	launch_add(&w, w.a, d, w.c);
	ok(fdry_capture_graph(w.cap, 2, "far", capture_stop(&w)));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	tensor_add(&w, "d", d, FDRY_USE_CONST, 0);
	tensor_add(&w, "end", big + BIG - BYTES, FDRY_USE_CONST, 0);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

void into_begin(struct work *w, int n, float salt)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts), .flags = work_flags,
					  .base = TEST_CAPTURE_BASE, .size = 1ull << 34 };
	CUdeviceptr *p[] = { &w->a, &w->b, &w->c };
	float v[N];
	int i;

	memset(w, 0, sizeof(*w));
	ok(setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1));
	test_hook_load();
	ok(fdry_hook_install(NULL));
	test_hook();
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &w->store));
	ok(fdry_capture_begin(&opts, &w->cap));
	cuda_ok(cuStreamCreate, &w->stream, CU_STREAM_NON_BLOCKING);
	vector_fill(v, salt);
	for (i = 0; i < n && i < 3; i++) {
		cuda_ok(cuMemAlloc_v2, p[i], BYTES);
		cuda_ok(cuMemcpyHtoD_v2, *p[i], v, BYTES);
	}
}

struct fdry_load_opts into(const struct work *w)
{
	return (struct fdry_load_opts){ .sz = sizeof(struct fdry_load_opts), .into = w->cap };
}

void tensor_is(struct fdry_image *img, const char *name, float salt)
{
	float v[N];
	int i;

	ok(fdry_image_read(img, name, v, BYTES, NULL));
	for (i = 0; i < N; i++)
		ck_assert_msg(v[i] == vector_value(i, salt), "%s[%d] is %g", name, i, (double)v[i]);
}

void sum_is(struct fdry_image *img, uint64_t key, float a, float b)
{
	float v[N];
	int i;

	ok(fdry_image_launch(img, key, NULL));
	ok(fdry_image_read(img, "c", v, BYTES, NULL));
	for (i = 0; i < N; i++)
		ck_assert_msg(v[i] == vector_value(i, a) + vector_value(i, b), "c[%d] is %g", i,
			      (double)v[i]);
}
