// SPDX-License-Identifier: Apache-2.0
/* Unit tests of semaphores of other APIs on the software driver. */
#include <string.h>
#include <unistd.h>

#include "tests/lib/semaphore.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

static const struct fdry_driver *drv;
static __typeof__(&cuSignalExternalSemaphoresAsync) signal_async;
static __typeof__(&cuWaitExternalSemaphoresAsync) wait_async;
static __typeof__(&cuImportExternalSemaphore) import;
static __typeof__(&cuDestroyExternalSemaphore) destroy;
static __typeof__(&cuStreamQuery) query;
static CUstream stream;

static void setup(void)
{
	drv = test_sim();
	*(void **)&signal_async = test_sim_symbol("cuSignalExternalSemaphoresAsync");
	*(void **)&wait_async = test_sim_symbol("cuWaitExternalSemaphoresAsync");
	*(void **)&import = test_sim_symbol("cuImportExternalSemaphore");
	*(void **)&destroy = test_sim_symbol("cuDestroyExternalSemaphore");
	*(void **)&query = test_sim_symbol("cuStreamQuery");
	ok(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS to_signal(uint64_t value)
{
	return (CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS){ .params.fence.value = value };
}

static CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS to_await(uint64_t value)
{
	return (CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS){ .params.fence.value = value };
}

/* A wait ends when the value is reached, or passed. */
START_TEST(timeline)
{
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = to_signal(9);
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = to_await(5);
	struct test_semaphore s[2];
	CUexternalSemaphore h[2] = { test_semaphore_import(&s[0], true),
				     test_semaphore_import(&s[1], true) };

	ok(wait_async(&h[0], &wait, 1, stream));
	ok(signal_async(&h[1], &signal, 1, stream));
	__atomic_store_n(s[0].value, 4, __ATOMIC_RELEASE);
	usleep(20000);
	ck_assert_int_eq(query(stream), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(*s[1].value, 0);
	__atomic_store_n(s[0].value, 6, __ATOMIC_RELEASE);
	ok(drv->cuStreamSynchronize(stream));
	ck_assert_uint_eq(*s[1].value, 9);
	ok(wait_async(&h[0], &wait, 1, stream));
	ok(drv->cuStreamSynchronize(stream));
	ok(destroy(h[0]));
	ok(destroy(h[1]));
}
END_TEST

/* Each wait needs a signal of its own, whatever the values. */
START_TEST(binary)
{
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = to_signal(0);
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = to_await(7);
	struct test_semaphore s;
	CUexternalSemaphore h = test_semaphore_import(&s, false);

	ok(signal_async(&h, &signal, 1, stream));
	ok(wait_async(&h, &wait, 1, stream));
	ok(wait_async(&h, &wait, 1, stream));
	usleep(20000);
	ck_assert_int_eq(query(stream), CUDA_ERROR_NOT_READY);
	ck_assert_uint_eq(*s.value, 0);
	__atomic_store_n(s.value, 1, __ATOMIC_RELEASE);
	ok(drv->cuStreamSynchronize(stream));
	ck_assert_uint_eq(*s.value, 0);
	ok(destroy(h));
}
END_TEST

START_TEST(mistakes)
{
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = to_signal(1);
	struct test_semaphore s, other;
	CUexternalSemaphore h = test_semaphore_import(&s, true), none = NULL;

	test_semaphore_make(&other, true);
	other.desc.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC;
	ck_assert_int_eq(import(&none, &other.desc), CUDA_ERROR_NOT_SUPPORTED);
	other.desc.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
	other.desc.flags = 1;
	ck_assert_int_eq(import(&none, &other.desc), CUDA_ERROR_INVALID_VALUE);
	other.desc.flags = 0;
	close(other.desc.handle.fd);
	ck_assert_int_eq(import(&none, &other.desc), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(signal_async(&h, &signal, 0, stream), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(signal_async(&none, &signal, 1, stream), CUDA_ERROR_INVALID_HANDLE);
	signal.flags = CUDA_EXTERNAL_SEMAPHORE_SIGNAL_SKIP_NVSCIBUF_MEMSYNC;
	ck_assert_int_eq(signal_async(&h, &signal, 1, stream), CUDA_ERROR_INVALID_VALUE);
	ok(destroy(h));
	ck_assert_int_eq(destroy(h), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(signal_async(&h, &signal, 1, stream), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

/* A captured wait and signal become nodes, which keep their semaphores; an executable graph can get
 * other values, and a node too. */
START_TEST(nodes)
{
	__typeof__(&cuGraphExternalSemaphoresSignalNodeSetParams) node_set;
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = to_signal(2);
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = to_await(1);
	CUDA_EXT_SEM_SIGNAL_NODE_PARAMS p;
	CUDA_EXT_SEM_WAIT_NODE_PARAMS w;
	struct test_semaphore s;
	CUexternalSemaphore h = test_semaphore_import(&s, true);
	CUgraphNode n[2];
	CUgraphExec exec;
	size_t count = 2;
	CUgraph g;

	*(void **)&node_set = test_sim_symbol("cuGraphExternalSemaphoresSignalNodeSetParams");
	ok(drv->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ok(wait_async(&h, &wait, 1, stream));
	ok(signal_async(&h, &signal, 1, stream));
	ok(drv->cuStreamEndCapture(stream, &g));
	ok(drv->cuGraphGetNodes(g, n, &count));
	ck_assert_uint_eq(count, 2);
	ok(drv->cuGraphExternalSemaphoresWaitNodeGetParams(n[0], &w));
	ck_assert_uint_eq(w.numExtSems, 1);
	ck_assert_ptr_eq(w.extSemArray[0], h);
	ck_assert_uint_eq(w.paramsArray[0].params.fence.value, 1);
	ok(drv->cuGraphExternalSemaphoresSignalNodeGetParams(n[1], &p));
	ck_assert_uint_eq(p.paramsArray[0].params.fence.value, 2);
	ck_assert_int_eq(drv->cuGraphExternalSemaphoresSignalNodeGetParams(n[0], &p),
			 CUDA_ERROR_INVALID_VALUE);
	ok(drv->cuGraphInstantiateWithFlags(&exec, g, 0));
	*s.value = 1;
	ok(drv->cuGraphLaunch(exec, stream));
	ok(drv->cuStreamSynchronize(stream));
	ck_assert_uint_eq(*s.value, 2);
	signal.params.fence.value = 7;
	p = (CUDA_EXT_SEM_SIGNAL_NODE_PARAMS){ &h, &signal, 1 };
	ok(drv->cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, n[1], &p));
	ck_assert_int_eq(drv->cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, n[0], &p),
			 CUDA_ERROR_INVALID_VALUE);
	ok(drv->cuGraphLaunch(exec, stream));
	ok(drv->cuStreamSynchronize(stream));
	ck_assert_uint_eq(*s.value, 7);
	signal.params.fence.value = 8;
	ok(node_set(n[1], &p));
	ok(destroy(h));
	ok(drv->cuGraphExecDestroy(exec));
	ok(drv->cuGraphInstantiateWithFlags(&exec, g, 0));
	ok(drv->cuGraphDestroy(g));
	ok(drv->cuGraphLaunch(exec, stream));
	ok(drv->cuStreamSynchronize(stream));
	ck_assert_uint_eq(*s.value, 8);
	ok(drv->cuGraphExecDestroy(exec));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sim_semaphore");
	TCase *tc = tcase_create("semaphores");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, timeline);
	tcase_add_test(tc, binary);
	tcase_add_test(tc, mistakes);
	tcase_add_test(tc, nodes);
	suite_add_tcase(s, tc);
	return test_main(s);
}
