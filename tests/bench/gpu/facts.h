/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.h - what the host did while something was measured, to explain a time that differs.
 *
 * Facts that the kernel does not report are left out.
 */
#ifndef FDRY_TESTS_BENCH_GPU_FACTS_H
#define FDRY_TESTS_BENCH_GPU_FACTS_H

#include <stdint.h>
#include <sys/resource.h>

struct facts {
	struct rusage used;
	unsigned int cpu, node;
	int64_t pressure_us;  /* some thread of the host waited for a processor */
	int64_t throttled_us; /* the control group had used up its time */
	int64_t stolen;       /* hundredths of a second that the hypervisor used otherwise */
};

void facts_begin(struct facts *f);
/* Print one line with what happened since then, and the NUMA nodes of a sample of @file's pages. */
void facts_print(const struct facts *f, const char *file);

#endif
