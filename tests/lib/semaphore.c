// SPDX-License-Identifier: Apache-2.0
/* semaphore.c - see semaphore.h. */
#include "tests/lib/semaphore.h"

#include <sys/mman.h>
#include <unistd.h>

#include "lib/file.h"
#include "tests/lib/sim.h"
#include "tests/lib/test.h"

void test_semaphore_make(struct test_semaphore *s, bool timeline)
{
	int fd = fdry_memfd("foundry-semaphore");

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(*s->value)), 0);
	s->value = mmap(NULL, sizeof(*s->value), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(s->value != MAP_FAILED);
	s->desc = (CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC){
		.type = timeline ? CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
				 : CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
		.handle = { .fd = fd },
	};
}

CUexternalSemaphore test_semaphore_import(struct test_semaphore *s, bool timeline)
{
	CUresult (*import)(CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *);
	CUexternalSemaphore ret = NULL;

	*(void **)&import = test_sim_symbol("cuImportExternalSemaphore");
	test_semaphore_make(s, timeline);
	ok(import(&ret, &s->desc));
	return ret;
}
