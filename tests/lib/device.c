// SPDX-License-Identifier: Apache-2.0
/* device.c - see device.h. */
#include "tests/lib/device.h"

struct fdry_device *dev;

void device_setup(void)
{
	ck_assert(!setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	ck_assert(!setenv("CUDA_CACHE_DISABLE", "1", 1)); /* so that the driver's cache of compiled
							     code is not used */
	drv = test_sim();
	ok(fdry_device_get(0, &dev));
}

void device_teardown(void)
{
	long before = test_sim_live("context");

	test_sim_fail(NULL);
	fdry_device_put(dev);
	ck_assert_int_eq(test_sim_live("allocation"), 0);
	ck_assert_int_eq(test_sim_live("host"), 0);
	ck_assert_int_eq(test_sim_live("event"), 0);
	ck_assert_int_eq(test_sim_live("stream"), 0);
	ck_assert_int_eq(test_sim_live("context"), before); /* test_sim() holds it */
}

struct fdry_transient_stats transient_stats(enum fdry_transient_kind kind)
{
	struct fdry_transient_stats st = { .sz = sizeof(st) };

	ok(fdry_transient_stats(dev, kind, &st));
	return st;
}

uint64_t transient_get(enum fdry_transient_kind kind, size_t bytes, CUstream stream)
{
	uint64_t addr = 0;

	ok(fdry_transient_get(dev, kind, bytes, stream, &addr));
	ck_assert(addr && !(addr % 512));
	return addr;
}

CUstream stream_get(void)
{
	void *s = NULL;

	ok(fdry_sync_get(dev, FDRY_SYNC_STREAM, &s));
	return s;
}

static void CUDA_CB gate_wait(void *arg)
{
	struct gate *g = arg;
	bool open = false;

	while (!open) {
		pthread_mutex_lock(&g->lock);
		open = g->open;
		pthread_mutex_unlock(&g->lock);
		usleep(1000);
	}
}

void gate_shut(struct gate *g, CUstream stream)
{
	*g = (struct gate){ .open = false };
	pthread_mutex_init(&g->lock, NULL);
	ck_assert_int_eq(drv->cuLaunchHostFunc(stream, gate_wait, g), CUDA_SUCCESS);
}

void gate_open(struct gate *g, CUstream stream)
{
	pthread_mutex_lock(&g->lock);
	g->open = true;
	pthread_mutex_unlock(&g->lock);
	ck_assert_int_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
}
