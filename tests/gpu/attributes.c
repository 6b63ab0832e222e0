// SPDX-License-Identifier: Apache-2.0
/*
 * Attributes of kernel nodes that the driver accepts and does not report: a process seals nodes
 * with scheduling by NVLink's use, and this one counts the nodes for which a load sets it again. A
 * preferred cluster size must be refused by the driver or by the seal.
 *
 * It can also run on the software driver: attributes $BUILD/foundry/sim/libcuda.so.1
 */
#include "tests/lib/gpu_work.h"

#define NVLINK CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING
#define PREFERRED CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
#define KEY 1u

static struct gpu_work w;

/* A launch with @n attributes. */
static CUresult step_launch(CUlaunchAttribute *a, unsigned int n, uint64_t salt)
{
	CUlaunchConfig c = { .gridDimX = n == 1 ? 1 : 2, .gridDimY = 1, .gridDimZ = 1,
			     .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .hStream = w.stream,
			     .attrs = a, .numAttrs = n };
	uint32_t spins = 0;
	void *args[] = { &w.x, &salt, &spins };

	return cuda(cuLaunchKernelEx, &c, w.step, args, NULL);
}

/* x = x * constant + salt, four times: launched with the attribute, launched without, a node that
 * gets it by a call, and one that gets it and loses it. */
static CUgraph nvlink_graph(void)
{
	CUlaunchAttributeValue v = { .nvlinkUtilCentricScheduling = 1 };
	CUgraphNode n[4];
	size_t count = 4;
	CUgraph g = NULL;
	int i;

	cuda_ok(cuStreamBeginCapture_v2, w.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	for (i = 0; i < 4; i++) {
		CUlaunchAttribute a = { .id = NVLINK };

		a.value.nvlinkUtilCentricScheduling = !i;
		ck_assert_int_eq(step_launch(&a, 1, (uint64_t)i + 1), CUDA_SUCCESS);
	}
	cuda_ok(cuStreamEndCapture, w.stream, &g);
	cuda_ok(cuGraphGetNodes, g, n, &count);
	ck_assert_uint_eq(count, 4);
	cuda_ok(cuGraphKernelNodeSetAttribute, n[2], NVLINK, &v);
	cuda_ok(cuGraphKernelNodeSetAttribute, n[3], NVLINK, &v);
	v.nvlinkUtilCentricScheduling = 0;
	cuda_ok(cuGraphKernelNodeSetAttribute, n[3], NVLINK, &v);
	v.nvlinkUtilCentricScheduling = 7;
	printf("note: the driver answers %d for the attribute of a node that has it, value %d\n",
	       (int)cuda(cuGraphKernelNodeGetAttribute, n[0], NVLINK, &v),
	       v.nvlinkUtilCentricScheduling);
	return g;
}

static void seal_nvlink(void *arg)
{
	(void)arg;
	gpu_work_begin(&w);
	ok(fdry_capture_graph(w.cap, KEY, "nvlink", nvlink_graph()));
	ok(fdry_capture_seal(w.cap, w.store, "nvlink", NULL, NULL));
	fflush(stdout);
}

static void refuse_preferred(void *arg)
{
	CUlaunchAttribute a[2] = { { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION },
				   { .id = PREFERRED } };
	CUgraph g = NULL;
	CUresult res;

	(void)arg;
	gpu_work_begin(&w);
	a[0].value.clusterDim.x = a[0].value.clusterDim.y = a[0].value.clusterDim.z = 1;
	a[1].value.preferredClusterDim.x = 2;
	a[1].value.preferredClusterDim.y = a[1].value.preferredClusterDim.z = 1;
	cuda_ok(cuStreamBeginCapture_v2, w.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	res = step_launch(a, 2, 1);
	printf("note: a captured launch with a preferred cluster size: %d\n", (int)res);
	if (res) {
		(void)cuda(cuStreamEndCapture, w.stream, &g);
		fflush(stdout);
		return;
	}
	cuda_ok(cuStreamEndCapture, w.stream, &g);
	ok(fdry_capture_graph(w.cap, KEY, NULL, g));
	fails(REFUSED, "preferred_cluster_dimension", fdry_capture_seal(w.cap, w.store, "no", NULL,
									NULL));
	printf("note: the seal says: %s\n", fdry_last_error());
	fflush(stdout);
}

/* --- the loading process --- */

static CUresult (*set_attribute)(CUgraphNode, CUkernelNodeAttrID, const CUkernelNodeAttrValue *);
static unsigned int set, failed;

static CUresult counting(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *v)
{
	CUresult res = set_attribute(node, id, v);

	if (id == NVLINK && v->nvlinkUtilCentricScheduling == 1) {
		set++;
		failed += res != CUDA_SUCCESS;
	}
	return res;
}

START_TEST(nvlink_is_set_again)
{
	const struct fdry_driver *drv;
	struct fdry_image *img = NULL;
	struct fdry_store *s = NULL;
	uint64_t x[64], want = 0;
	unsigned int i;

	test_child(seal_nvlink, NULL);
	ok(fdry_driver_open(NULL, &drv));
	set_attribute = drv->cuGraphKernelNodeSetAttribute;
	((struct fdry_driver *)drv)->cuGraphKernelNodeSetAttribute = counting;
	ok(fdry_store_open(path, 0, &s));
	ok(fdry_image_load(s, "nvlink", NULL, &img));
	ok(fdry_image_launch(img, KEY, NULL));
	ok(fdry_image_read(img, "x", x, sizeof(x), NULL));
	for (i = 0; i < 4; i++)
		want = gpu_stepped(want, i + 1);
	ck_assert_uint_eq(x[0], want);
	printf("set again for %u of 4 nodes, refused for %u\n", set, failed);
	ck_assert_uint_eq(set, 2);
	ck_assert_uint_eq(failed, 0);
	fdry_image_unload(img);
	fdry_store_close(s);
}
END_TEST

START_TEST(preferred_clusters_are_refused)
{
	test_child(refuse_preferred, NULL);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("attributes");
	TCase *tc = tcase_create("attributes");

	gpu_work_main(argc, argv);
	tcase_add_unchecked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_test(tc, preferred_clusters_are_refused);
	tcase_add_test(tc, nvlink_is_set_again);
	suite_add_tcase(s, tc);
	return test_main(s);
}
