// SPDX-License-Identifier: Apache-2.0
/* Unit tests of host memory in copies that is refused, when it is named or at the seal. */
#include <pthread.h>
#include <sys/mman.h>

#include "tests/lib/image_host.h"

static struct host_work kept;

static void not_named(struct host_work *h)
{
	(void)h;
}

static void named_in_part(struct host_work *h)
{
	struct fdry_tensor t = vector("in", (uintptr_t)h->in, FDRY_USE_INPUT, FDRY_TENSOR_HOST);

	t.shape[0]--;
	ok(fdry_capture_tensor(h->w.cap, &t));
}

/* Two tensors together hold the copied bytes; their memory is adjacent only by chance. */
static void named_in_two_halves(struct host_work *h)
{
	struct fdry_tensor t = vector("in0", (uintptr_t)h->in, FDRY_USE_INPUT, FDRY_TENSOR_HOST);

	t.shape[0] = N / 2;
	ok(fdry_capture_tensor(h->w.cap, &t));
	t.name = "in1";
	t.addr += BYTES / 2;
	ok(fdry_capture_tensor(h->w.cap, &t));
}

static void pageable_not_named(struct host_work *h)
{
	tensors_name(h);
	capture_start(&h->w);
	cuda_ok(cuMemcpyDtoHAsync_v2, h, h->w.a, 4, h->w.stream);
	ok(fdry_capture_graph(h->w.cap, 9, "nine", capture_stop(&h->w)));
}

static void freed(struct host_work *h)
{
	tensors_name(h);
	cuda_ok(cuMemFreeHost, h->out);
}

static void freed_and_taken_again(struct host_work *h)
{
	void *again;

	tensors_name(h);
	cuda_ok(cuMemFreeHost, h->out);
	ck_assert_ptr_eq(mmap(h->out, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
			 h->out);
	again = h->out;
	cuda_ok(cuMemHostRegister_v2, again, PAGE, 0);
}

static void unregistered(struct host_work *h)
{
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	tensors_name(h);
	cuda_ok(cuMemHostRegister_v2, p, PAGE, 0);
	host_tensor(&h->w, "registered", p, FDRY_USE_CONST);
	cuda_ok(cuMemHostUnregister, p);
}

/* Make the memory inaccessible. It is not unmapped, since the next allocation might get its
 * addresses. */
static void gone(void *page)
{
	ck_assert_int_eq(mprotect(page, PAGE, PROT_NONE), 0);
}

static void unmapped(struct host_work *h)
{
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	tensors_name(h);
	host_tensor(&h->w, "mapped", p, FDRY_USE_CONST);
	gone(p);
}

static void memset_of_host(struct host_work *h)
{
	tensors_name(h);
	capture_start(&h->w);
	cuda_ok(cuMemsetD8Async, (uintptr_t)h->in, 0, 4, h->w.stream);
	ok(fdry_capture_graph(h->w.cap, 9, "nine", capture_stop(&h->w)));
}

static void kernel_of_host(struct host_work *h)
{
	tensors_name(h);
	capture_start(&h->w);
	launch_add(&h->w, h->w.a, (uintptr_t)h->in, h->w.c);
	ok(fdry_capture_graph(h->w.cap, 9, "nine", capture_stop(&h->w)));
}

static void managed_source(struct host_work *h)
{
	CUdeviceptr p;

	tensors_name(h);
	cuda_ok(cuMemAllocManaged, &p, PAGE, CU_MEM_ATTACH_GLOBAL);
	capture_start(&h->w);
	cuda_ok(cuMemcpyHtoDAsync_v2, h->w.a, (void *)(uintptr_t)p, 4, h->w.stream);
	ok(fdry_capture_graph(h->w.cap, 9, "nine", capture_stop(&h->w)));
}

static const struct refusal {
	const char *says;
	int code;
	void (*prepare)(struct host_work *h);
} refusals[] = {
	{ "graph 1 '': node 0: memcpy: its source, 4000 bytes at 0x", FDRY_E_REFUSED, not_named },
	{ "is pinned host memory that no single host tensor holds; keep it allocated and declare "
	  "it with fdry_capture_tensor() "
	  "and FDRY_TENSOR_HOST",
	  FDRY_E_REFUSED, not_named },
	{ "graph 1 '': node 0: memcpy: its source, 4000 bytes at 0x", FDRY_E_REFUSED,
	  named_in_part },
	{ "graph 1 '': node 0: memcpy: its source, 4000 bytes at 0x", FDRY_E_REFUSED,
	  named_in_two_halves },
	{ "graph 9 'nine': node 0: memcpy: its destination, 4 bytes at 0x", FDRY_E_REFUSED,
	  pageable_not_named },
	{ "is pageable host memory that no single host tensor holds", FDRY_E_REFUSED,
	  pageable_not_named },
	{ "the host memory of tensor 'out' was freed before the seal; keep it allocated",
	  FDRY_E_STATE, freed },
	{ "the host memory of tensor 'out' was freed before the seal; keep it allocated",
	  FDRY_E_STATE, freed_and_taken_again },
	{ "the host memory of tensor 'registered' was freed before the seal", FDRY_E_STATE,
	  unregistered },
	{ "the host memory of tensor 'mapped' was freed before the seal", FDRY_E_STATE, unmapped },
	{ "graph 9 'nine': node 0: memset: what it sets, 4 bytes at 0x", FDRY_E_REFUSED,
	  memset_of_host },
	{ "which points to pinned host memory", FDRY_E_REFUSED, kernel_of_host },
	{ "is managed memory; use memory of the region", FDRY_E_REFUSED, managed_source },
};

START_TEST(seal_refuses)
{
	const struct refusal *r = &refusals[_i];
	struct fdry_oid oid;
	int err;

	host_make(&kept, false);
	r->prepare(&kept);
	err = work_seal(&kept.w, "ref");
	ck_assert_msg(err == -r->code, "%s: %s", fdry_error_name(err), fdry_last_error());
	ck_assert_msg(strstr(fdry_last_error(), r->says), "'%s' does not say '%s'",
		      fdry_last_error(), r->says);
	fails(NOENT, "no ref", fdry_ref_get(kept.w.store, "ref", &oid));
}
END_TEST

#define MUCH \
	(32u << 20) /* of content: reading it is so slow that a thread can act meanwhile */

struct meanwhile {
	unsigned long before;
	float **what;
};

static void *free_meanwhile(void *arg)
{
	struct meanwhile *m = arg;
	CUcontext ctx;

	ck_assert_int_eq(cuda(cuDevicePrimaryCtxRetain, &ctx, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda(cuCtxSetCurrent, ctx), CUDA_SUCCESS);
	while (test_sim_calls("cuMemcpyDtoHAsync_v2") == m->before)
		usleep(100);
	cuda_ok(cuMemFreeHost, *m->what);
	return NULL;
}

START_TEST(freed_while_the_seal_runs)
{
	struct meanwhile m = { .what = _i ? &kept.out : &kept.table };
	uint8_t *bytes = malloc(MUCH);
	CUdeviceptr p;
	pthread_t t;
	uint32_t i;

	host_make(&kept, false);
	tensors_name(&kept);
	for (i = 0; i < MUCH; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	cuda_ok(cuMemAlloc_v2, &p, MUCH);
	cuda_ok(cuMemcpyHtoD_v2, p, bytes, MUCH);
	free(bytes);
	m.before = test_sim_calls("cuMemcpyDtoHAsync_v2");
	ck_assert(!pthread_create(&t, NULL, free_meanwhile, &m));
	fails(STATE,
	      _i ? "the host memory of tensor 'out' was freed"
		 : "the host memory of tensor 'table' was freed while",
	      work_seal(&kept.w, "img"));
	ck_assert(!pthread_join(t, NULL));
}
END_TEST

START_TEST(tensors_that_cannot_be)
{
	struct work *w = &kept.w;
	struct fdry_tensor t;
	CUdeviceptr managed;
	char *two;

	host_make(&kept, false);
	t = vector("t", w->a, FDRY_USE_CONST, FDRY_TENSOR_HOST);
	fails(RANGE, "host tensor 't' lies in device memory; name it without FDRY_TENSOR_HOST",
	      fdry_capture_tensor(w->cap, &t));
	t = vector("t", (uintptr_t)kept.in, FDRY_USE_CONST, 0);
	fails(RANGE, "or set FDRY_TENSOR_HOST for host memory", fdry_capture_tensor(w->cap, &t));
	t.flags = FDRY_TENSOR_HOST;
	t.addr += 4;
	fails(RANGE, "ends behind the 4000 bytes", fdry_capture_tensor(w->cap, &t));
	t.addr -= 4;
	t.shape[0] = 0;
	fails(RANGE, "host tensor 't' has no bytes", fdry_capture_tensor(w->cap, &t));
	t.shape[0] = N / 2;
	t.stride[0] = 2;
	ok(fdry_capture_tensor(w->cap, &t));
	t.name = "u";
	t.use = FDRY_USE_INPUT;
	fails(INVAL, "external tensor 'u' has gaps", fdry_capture_tensor(w->cap, &t));
	cuda_ok(cuMemAllocManaged, &managed, PAGE, CU_MEM_ATTACH_GLOBAL);
	t = vector("u", managed, FDRY_USE_CONST, FDRY_TENSOR_HOST);
	fails(RANGE, "lies in managed memory", fdry_capture_tensor(w->cap, &t));
	two = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	gone(two + PAGE);
	t.addr = (uintptr_t)two + 100;
	fails(RANGE, "cannot be read", fdry_capture_tensor(w->cap, &t));
	t.addr = 0;
	fails(RANGE, "cannot be read", fdry_capture_tensor(w->cap, &t));
	t.addr = (uintptr_t)two;
	t.shape[0] = 1ll << 38;
	fails(LIMIT, "more than the limit", fdry_capture_tensor(w->cap, &t));
	ck_assert_int_eq(work_seal(w, NULL), -FDRY_E_REFUSED);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_host_refuse");
	TCase *tc = tcase_create("refuse");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, seal_refuses, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_loop_test(tc, freed_while_the_seal_runs, 0, 2);
	tcase_add_test(tc, tensors_that_cannot_be);
	suite_add_tcase(s, tc);
	return test_main(s);
}
