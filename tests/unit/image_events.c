// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of events that several graphs of an image use, as NCCL's graphs do. Each graph waits
 * for the event and records it, so launches on different streams run one after the other.
 */
#include "tests/lib/image.h"

enum { ALONE = 1, SLOW, QUICK };

#define SPINS 20000000u

struct events {
	struct work w;
	CUfunction step;
	struct fdry_tensor x;
	CUevent shared, own;
};

static CUgraphNode step_add(struct events *e, CUgraph g, const CUgraphNode *after, uint64_t salt,
			    uint32_t spins)
{
	void *args[] = { &e->x.addr, &salt, &spins };
	CUDA_KERNEL_NODE_PARAMS p = { .func = e->step, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
				      .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
				      .kernelParams = args };
	CUgraphNode n;

	cuda_ok(cuGraphAddKernelNode_v2, &n, g, after, after != NULL, &p);
	return n;
}

/* Wait for the event, a step, record the event. */
static void graph_make(struct events *e, uint64_t key, CUevent event, uint32_t spins)
{
	CUgraphNode n;
	CUgraph g;

	cuda_ok(cuGraphCreate, &g, 0);
	cuda_ok(cuGraphAddEventWaitNode, &n, g, NULL, 0, event);
	n = step_add(e, g, &n, key, spins);
	cuda_ok(cuGraphAddEventRecordNode, &n, g, &n, 1, event);
	ok(fdry_capture_graph(e->w.cap, key, NULL, g));
	ok(fdry_capture_graph_fixed(e->w.cap, key, key != SLOW));
}

static void seal_events(void *arg)
{
	struct events e;

	(void)arg;
	work_make(&e.w);
	e.x = (struct fdry_tensor){ .name = "x", .dtype = FDRY_U64, .use = FDRY_USE_STATE };
	cuda_ok(cuMemAlloc_v2, &e.x.addr, 64);
	cuda_ok(cuMemsetD8_v2, e.x.addr, 0, 64);
	cuda_ok(cuModuleGetFunction, &e.step, e.w.module, "step");
	cuda_ok(cuEventCreate, &e.shared, CU_EVENT_DISABLE_TIMING);
	cuda_ok(cuEventCreate, &e.own, CU_EVENT_DISABLE_TIMING);
	graph_make(&e, ALONE, e.own, 0);
	graph_make(&e, SLOW, e.shared, SPINS);
	graph_make(&e, QUICK, e.shared, 0);
	ok(fdry_capture_tensor(e.w.cap, &e.x));
	ok(work_seal(&e.w, "img"));
	ok(work_seal(&e.w, "again")); /* the kept data of the graphs holds their events */
	work_end(&e.w);
}

START_TEST(launches_keep_their_order)
{
	const char *const refs[] = { "img", "again" };
	const struct fdry_driver *drv;
	struct fdry_image *img;
	CUstream a, b;
	uint64_t x;

	test_child(seal_events, NULL);
	img = load_image(refs[_i], NULL);
	drv = test_sim();
	ck_assert_int_eq(drv->cuStreamCreate(&a, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuStreamCreate(&b, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ok(fdry_image_launch(img, SLOW, a));
	ok(fdry_image_launch(img, QUICK, b));
	ck_assert_int_eq(drv->cuStreamSynchronize(b), CUDA_SUCCESS);
	ok(fdry_image_read(img, "x", &x, sizeof(x), b));
	ck_assert_uint_eq(x, step_result(step_result(0, SLOW, SPINS), QUICK, 0));
	ck_assert_int_eq(drv->cuStreamDestroy_v2(a), CUDA_SUCCESS);
	ck_assert_int_eq(drv->cuStreamDestroy_v2(b), CUDA_SUCCESS);
	fdry_image_unload(img);
}
END_TEST

/* One event for two graphs, one for the third, and none is left over. */
START_TEST(events_are_counted)
{
	struct fdry_image *img;
	uint64_t key;
	long before;

	test_child(seal_events, NULL);
	(void)load_store();
	test_sim();
	fdry_image_unload(load_image("img", NULL));
	before = test_sim_live("event");
	img = load_image("img", NULL);
	for (key = ALONE; key <= QUICK; key++)
		ok(fdry_image_launch(img, key, NULL));
	ck_assert_int_eq(test_sim_live("event"), before + 2);
	fdry_image_unload(img);
	ck_assert_int_eq(test_sim_live("event"), before);
}
END_TEST

START_TEST(events_are_described)
{
	char *text = NULL;

	test_child(seal_events, NULL);
	ok(fdry_image_describe(load_store(), "img", &text));
	ck_assert_ptr_nonnull(strstr(text, "graph 2 has event 0 in common, as number 0\n"
					   "graph 3 has event 0 in common, as number 0\n"));
	ck_assert_ptr_null(strstr(text, "graph 1 has event"));
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_events");
	TCase *tc = tcase_create("events");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_loop_test(tc, launches_keep_their_order, 0, 2);
	tcase_add_test(tc, events_are_counted);
	tcase_add_test(tc, events_are_described);
	suite_add_tcase(s, tc);
	return test_main(s);
}
