/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - a device of the software driver, its pools, and a stream that can be held back. */
#ifndef FDRY_TESTS_UNIT_DEVICE_H
#define FDRY_TESTS_UNIT_DEVICE_H

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "foundry.h"
#include "tests/unit/sim.h"

#define ok(call) ck_assert_msg(!(call), "%s", fdry_last_error())
#define fails(code, text, call) do { \
	ck_assert_int_eq(call, -FDRY_E_##code); \
	ck_assert_msg(strstr(fdry_last_error(), text), "\"%s\" in \"%s\"", text, fdry_last_error()); \
} while (0)
#define DEV FDRY_TRANSIENT_DEVICE
#define PIN FDRY_TRANSIENT_PINNED
#define NONE FDRY_STREAM_NONE

static const struct fdry_driver *drv;
static struct fdry_device *dev;

static inline void device_setup(void)
{
	ck_assert(!setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	ck_assert(!setenv("CUDA_CACHE_DISABLE", "1", 1)); /* nothing to set up */
	drv = test_sim();
	ok(fdry_device_get(0, &dev));
}

static inline void device_teardown(void)
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

static inline struct fdry_transient_stats stats(enum fdry_transient_kind kind)
{
	struct fdry_transient_stats st = { .sz = sizeof(st) };

	ok(fdry_transient_stats(dev, kind, &st));
	return st;
}

static inline uint64_t get(enum fdry_transient_kind kind, size_t bytes, CUstream stream)
{
	uint64_t addr = 0;

	ok(fdry_transient_get(dev, kind, bytes, stream, &addr));
	ck_assert(addr && !(addr % 512));
	return addr;
}

static inline CUstream stream_get(void)
{
	void *s = NULL;

	ok(fdry_sync_get(dev, FDRY_SYNC_STREAM, &s));
	return s;
}

/* A stream that stands still until it is let go. */
struct gate {
	pthread_mutex_t lock;
	bool open;
};

static inline void CUDA_CB gate_wait(void *arg)
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

static inline void gate_shut(struct gate *g, CUstream stream)
{
	*g = (struct gate){ .open = false };
	pthread_mutex_init(&g->lock, NULL);
	ck_assert_int_eq(drv->cuLaunchHostFunc(stream, gate_wait, g), CUDA_SUCCESS);
}

static inline void gate_open(struct gate *g, CUstream stream)
{
	pthread_mutex_lock(&g->lock);
	g->open = true;
	pthread_mutex_unlock(&g->lock);
	ck_assert_int_eq(drv->cuStreamSynchronize(stream), CUDA_SUCCESS);
}

#endif
