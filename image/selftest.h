/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest.h - the inputs and outputs of a self-test: foundry/selftest.h describes it.
 *
 * A seal and a load run the same steps. They fill external tensors, then before each graph its
 * inputs, with values that follow from a seed; they launch the graph; they compute a fingerprint
 * of each output. Nothing here depends on the addresses of the tensors.
 *
 * Context: that of the tensors' memory is current, and no work is in flight.
 */
#ifndef FDRY_IMAGE_SELFTEST_H
#define FDRY_IMAGE_SELFTEST_H

#include "arch/driver.h"
#include "foundry.h"
#include "lib/fingerprint.h"

struct fdry_selftest {
	const struct fdry_driver *drv;
	uint64_t seed;
	const struct fdry_tensor *tensors; /* with their addresses in this process */
	size_t n;
};

/* Whether a self-test compares the tensor: it is an output, or state that the image holds. */
bool fdry_selftest_compares(const struct fdry_tensor *t);

/* Fill inputs, or with @external all external tensors, and wait for it. An input that is neither
 * external nor of floating point keeps its bytes: other numbers may be no valid indices. */
int fdry_selftest_fill(const struct fdry_selftest *t, bool external) __must_check;

/* Compute the fingerprint of the elements of tensor @i, row by row. */
int fdry_selftest_print(const struct fdry_selftest *t, size_t i,
			struct fdry_fingerprint *ret) __must_check;

#endif
