/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - a device of the software driver, its pools, and a stream that can be held back. */
#ifndef FDRY_TESTS_LIB_DEVICE_H
#define FDRY_TESTS_LIB_DEVICE_H

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "foundry/run.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"
#include "tests/lib/drv.h"

#define DEV FDRY_TRANSIENT_DEVICE
#define PIN FDRY_TRANSIENT_PINNED
#define NONE FDRY_STREAM_NONE

extern struct fdry_device *dev;
void device_setup(void);
void device_teardown(void);
struct fdry_transient_stats transient_stats(enum fdry_transient_kind kind);
uint64_t transient_get(enum fdry_transient_kind kind, size_t bytes, CUstream stream);

CUstream stream_get(void);

/* A gate holds a stream's work back until it is opened. */
struct gate {
	pthread_mutex_t lock;
	bool open;
};

void gate_shut(struct gate *g, CUstream stream);
void gate_open(struct gate *g, CUstream stream);

#endif
