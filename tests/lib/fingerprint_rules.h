/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint_rules.h - tests that the kernel computes the same fingerprints as the processor, on
 * the software driver (graph_fingerprint.c) and on a GPU (tests/gpu/fingerprint.c).
 *
 * The program sets drv, and makes a context of device 0 current.
 */
#ifndef FDRY_TESTS_LIB_FINGERPRINT_RULES_H
#define FDRY_TESTS_LIB_FINGERPRINT_RULES_H

#include <check.h>

#include "graph/fingerprint.h"

#define FINGERPRINT_FIXTURE_BYTES ((size_t)9 << 20)

struct fingerprint_fixture {
	struct fdry_fingerprinter *f;
	CUstream stream;
	CUdeviceptr memory;
	uint8_t *bytes; /* the memory's content */
};

/* Allocate memory of 144 blocks, fill it, and make a fingerprinter. */
void fingerprint_fixture_begin(struct fingerprint_fixture *b);
void fingerprint_fixture_end(struct fingerprint_fixture *b);

void fingerprint_rules_add(TCase *tc);

/* The fingerprinter of the current context; its kernel is the library's cubin, or compiled. */
int fingerprinter_new(const struct fdry_driver *driver, CUdevice device,
		      struct fdry_fingerprinter **ret);

#endif
