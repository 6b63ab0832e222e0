// SPDX-License-Identifier: Apache-2.0
/* Unit tests of pinned host memory that graphs use at its own address: sealed, loaded in another
 * process, restored, refused. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image/manifest.h"
#include "mm/host_area.h"
#include "tests/lib/flip.h"
#include "tests/lib/image_host.h"
#include "tests/lib/image_place.h"

/* The addresses of the capturing process, which the loading process sees, too. */
static struct shared {
	uint64_t in, out, list, leaf, idle, late, own;
} *at;

static void shared_make(void)
{
	work_flags = FDRY_CAPTURE_PINNED;
	at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
}

static uint64_t addr_of(const void *p)
{
	return (uintptr_t)p;
}

static float *floats(uint64_t addr)
{
	return (float *)(uintptr_t)addr;
}

static void sum_check(const float *v, float a, float b)
{
	int i;

	for (i = 0; i < N; i++)
		ck_assert_msg(v[i] == vector_value(i, a) + vector_value(i, b), "[%d] is %g", i,
			      (double)v[i]);
}

/* Graph 1: out = in + b, by a kernel. Graph 2: a = in, by a copy; out = 0, by a memset;
 * c = a + b. */
static void graphs_capture(struct work *w, uint64_t in, uint64_t out)
{
	capture_start(w);
	launch_add(w, in, w->b, out);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
	capture_start(w);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->a, floats(in), BYTES, w->stream);
	cuda_ok(cuMemsetD32Async, out, 0, N, w->stream);
	launch_add(w, w->a, w->b, w->c);
	ok(fdry_capture_graph(w->cap, 2, NULL, capture_stop(w)));
}

/* Allocate in, out and idle, and fill them. */
static void pinned_make(struct work *w)
{
	work_make(w);
	at->in = addr_of(pinned(BYTES));
	at->idle = addr_of(pinned(5u << 20));
	at->out = addr_of(pinned(BYTES));
	vector_fill(floats(at->in), 7);
	vector_fill(floats(at->out), 8);
}

static void seal_pinned(void *unused)
{
	struct work w;

	(void)unused;
	pinned_make(&w);
	graphs_capture(&w, at->in, at->out);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, NULL));
	work_end(&w);
}

/* The only content that is not zero lies in pinned memory. */
static void seal_pinned_alone(void *unused)
{
	struct work w;

	(void)unused;
	pinned_make(&w);
	cuda_ok(cuMemsetD8_v2, w.a, 0, BYTES);
	cuda_ok(cuMemsetD8_v2, w.b, 0, BYTES);
	graphs_capture(&w, at->in, at->out);
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, NULL));
	work_end(&w);
}

/* A registry is for others, and no tensor can declare pinned memory as constant. */
START_TEST(a_push_asks_for_private)
{
	const char *const name = "img";

	shared_make();
	test_child(seal_pinned_alone, NULL);
	fails(PERM, "bytes that no tensor declares constant, the first at 0x",
	      fdry_store_push(load_store(), &name, 1, "oci://127.0.0.1:9/x:y", NULL, NULL));
}
END_TEST

static bool is_mapped(uint64_t addr)
{
	return test_is_mapped((void *)(uintptr_t)addr);
}

START_TEST(kernels_and_copies_use_it)
{
	struct fdry_image *img;
	float v[N];
	int i;

	shared_make();
	test_child(seal_pinned, NULL);
	ck_assert_uint_eq(at->in, fdry_host_area_base(work_base, false));
	img = load_with(_i ? FDRY_LOAD_POISON : 0);
	vector_fill(v, 7);
	ck_assert_mem_eq(floats(at->in), v, BYTES);
	vector_fill(v, 8);
	ck_assert_mem_eq(floats(at->out), v, BYTES);
	ck_assert(!is_mapped(at->idle));
	for (i = 0; i < 3; i++) {
		vector_fill(floats(at->in), (float)i);
		ok(fdry_image_launch(img, 1, NULL));
		ok(fdry_image_synchronize(img, NULL));
		sum_check(floats(at->out), (float)i, 100);
		ok(fdry_image_launch(img, 2, NULL));
		ok(fdry_image_read(img, "c", v, BYTES, NULL));
		sum_check(v, (float)i, 100);
		ck_assert(floats(at->out)[N - 1] == 0);
	}
	ok(fdry_image_restore(img, NULL));
	vector_fill(v, 7);
	ck_assert_mem_eq(floats(at->in), v, BYTES);
	vector_fill(v, 8);
	ck_assert_mem_eq(floats(at->out), v, BYTES);
	fdry_image_unload(img);
	ck_assert(!is_mapped(at->in));
	img = load_with(0);
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_synchronize(img, NULL));
	sum_check(floats(at->out), 7, 100);
	fdry_image_unload(img);
}
END_TEST

START_TEST(descriptions_name_it)
{
	struct fdry_requirements *r;
	char *text, want[128];

	shared_make();
	test_child(seal_pinned, NULL);
	ok(fdry_image_describe(load_store(), "img", &text));
	snprintf(want, sizeof(want), "\npinned %#llx 4000 allocated\n",
		 (unsigned long long)at->out);
	ck_assert_msg(strstr(text, want), "%s", text);
	ck_assert_msg(strstr(text, "\npinned memory 8000 (8000 of it in 2 chunks)\n"), "%s", text);
	free(text);
	ok(fdry_image_requirements(load_store(), "img", NULL, &r));
	ck_assert_uint_eq(r->host_bytes, 8000);
	free(r);
}
END_TEST

START_TEST(it_is_registered_and_not_inherited)
{
	struct fdry_image *img;
	size_t size = 0;
	long before;
	int status;

	shared_make();
	test_child(seal_pinned, NULL);
	test_sim();
	fdry_image_unload(load_with(0)); /* makes a stream that stays */
	before = live_objects();
	img = load_with(0);
	ck_assert_int_eq(test_sim()->cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
							   at->in + 40),
			 CUDA_SUCCESS);
	ck_assert_uint_eq(size, BYTES);
	if (!fork())
		_exit(is_mapped(at->in));
	wait(&status);
	ck_assert_int_eq(status, 0);
	fdry_image_unload(img);
	ck_assert_int_eq(live_objects(), before);
}
END_TEST

/* --- content that points to pinned memory --- */

static void seal_list(void *unused)
{
	struct work w;

	(void)unused;
	work_make(&w);
	at->leaf = addr_of(pinned(BYTES));
	at->list = addr_of(pinned(64));
	at->idle = addr_of(pinned(64));
	vector_fill(floats(at->leaf), 3);
	*(uint64_t *)(uintptr_t)at->list = at->leaf + 16;
	cuda_ok(cuMemcpyHtoD_v2, w.b + 8, &at->list, 8);
	graph_add(&w, 1);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, NULL));
	work_end(&w);
}

START_TEST(pointers_in_content)
{
	struct fdry_image *img;
	float v[N];

	shared_make();
	test_child(seal_list, NULL);
	img = load_with(0);
	ck_assert_uint_eq(*(uint64_t *)(uintptr_t)at->list, at->leaf + 16);
	vector_fill(v, 3);
	ck_assert_mem_eq(floats(at->leaf), v, BYTES);
	ck_assert(!is_mapped(at->idle));
	fdry_image_unload(img);
}
END_TEST

/* --- roles --- */

#define LATE (24u << 10)

/* in: an input; out: an output; late: allocated by the capture, and written in its second block. */
static void seal_roles(void *unused)
{
	struct work w;
	void *late;

	(void)unused;
	pinned_make(&w);
	capture_start(&w);
	cuda_ok(cuMemAllocHost_v2, &late, LATE);
	at->late = addr_of(late);
	launch_add(&w, at->in, w.b, at->late + 8192);
	launch_add(&w, at->late + 8192, w.b, at->out);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	capture_start(&w);
	cuda_ok(cuMemcpyHtoDAsync_v2, w.a, floats(at->in), BYTES, w.stream);
	ok(fdry_capture_graph(w.cap, 2, NULL, capture_stop(&w)));
	memset((char *)late + 4096, 0x11, 4096);
	host_tensor(&w, "in", floats(at->in), FDRY_USE_INPUT);
	host_tensor(&w, "out", floats(at->out), FDRY_USE_OUTPUT);
	tensor_add(&w, "a", w.a, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, NULL));
	work_end(&w);
}

START_TEST(declared_tensors_keep_their_address)
{
	struct fdry_image *img;
	uint8_t poison[4096];
	void *in, *out;
	float v[N];

	shared_make();
	test_child(seal_roles, NULL);
	img = load_with(FDRY_LOAD_POISON);
	ok(fdry_image_host(img, "in", &in));
	ok(fdry_image_host(img, "out", &out));
	ck_assert_uint_eq(addr_of(in), at->in);
	ck_assert_uint_eq(addr_of(out), at->out);
	memset(poison, 0xA5, sizeof(poison));
	ck_assert_mem_eq(in, poison, BYTES);
	ck_assert_mem_eq(floats(at->late), poison, 4096);
	ck_assert_mem_eq(floats(at->late + 8192), poison, 4096);
	memset(poison, 0x11, sizeof(poison));
	ck_assert_mem_eq(floats(at->late + 4096), poison, 4096);
	fails(UNBOUND, "in", fdry_image_launch(img, 1, NULL));
	vector_fill(v, 20);
	ok(fdry_image_write(img, "in", v, BYTES, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_launch(img, 2, NULL));
	ok(fdry_image_read(img, "a", v, BYTES, NULL));
	ck_assert_mem_eq(v, floats(at->in), BYTES);
	ck_assert(floats(at->out)[5] ==
		  vector_value(5, 20) + vector_value(5, 100) + vector_value(5, 100));
	fdry_image_unload(img);
}
END_TEST

/* Few bytes may have the stamp's value by chance, so they are content. */
static void seal_few(void *unused)
{
	struct work w;
	void *few;

	(void)unused;
	work_make(&w);
	capture_start(&w);
	cuda_ok(cuMemAllocHost_v2, &few, 1);
	at->late = addr_of(few);
	cuda_ok(cuMemcpyHtoDAsync_v2, w.a, few, 1, w.stream);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	*(uint8_t *)few = (uint8_t)FDRY_STAMP;
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, NULL));
	work_end(&w);
}

START_TEST(few_bytes_are_content)
{
	struct fdry_image *img;

	shared_make();
	test_child(seal_few, NULL);
	img = load_with(0);
	ck_assert_uint_eq(*(uint8_t *)(uintptr_t)at->late, (uint8_t)FDRY_STAMP);
	fdry_image_unload(img);
}
END_TEST

/* --- memory that the program registers --- */

static void seal_registered(void *unused)
{
	struct work w;
	char *own;

	(void)unused;
	work_make(&w);
	/* The loading process has no memory there, unlike at addresses that the kernel chooses. */
	own = mmap(floats(fdry_host_area_base(work_base, false) - (4ull << 30)), 8192,
		   PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	at->own = addr_of(own) + 48;
	cuda_ok(cuMemHostRegister_v2, own + 48, BYTES, 0);
	cuda_ok(cuMemHostRegister_v2, own + 48 + BYTES, 100, 0); /* in the same page */
	cuda_ok(cuMemHostRegister_v2, own + 4096 + 800, 8, 0);
	vector_fill(floats(at->own), 9);
	memset(own + 48 + BYTES, 0x22, 100);
	capture_start(&w);
	launch_add(&w, at->own, w.b, w.c);
	cuda_ok(cuMemcpyDtoHAsync_v2, own + 48 + BYTES, w.b, 100, w.stream);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, NULL));
	work_end(&w);
}

START_TEST(registered_memory_keeps_its_address)
{
	struct fdry_image *img;
	float v[N];

	shared_make();
	test_child(seal_registered, NULL);
	img = load_with(0);
	ck_assert_uint_eq(*(uint8_t *)(uintptr_t)(at->own + BYTES + 99), 0x22);
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "c", v, BYTES, NULL));
	sum_check(v, 9, 100);
	ck_assert_uint_ne(*(uint8_t *)(uintptr_t)(at->own + BYTES + 99), 0x22);
	fdry_image_unload(img);
	ck_assert(!is_mapped(at->own));
}
END_TEST

/* Addresses that the driver still uses must not be mapped again. */
START_TEST(memory_that_stays_registered)
{
	struct fdry_image *img;

	shared_make();
	test_child(seal_pinned, NULL);
	img = load_with(0);
	test_sim_fail("cuMemHostUnregister:1");
	fdry_image_unload(img);
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	ck_assert(is_mapped(at->in));
}
END_TEST

/* --- damage --- */

START_TEST(damaged_content_is_found)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct flip_chunk chunk, next;
	struct fdry_image *img;
	uint32_t i = 0;

	shared_make();
	test_child(seal_pinned, NULL);
	img = load_with(0);
	ok(fdry_image_report(img, &report));
	ck_assert_uint_ge(report.checked_bytes, 2 * BYTES);
	while (flip_nth(load_store(), "img", i + 1, &next)) {
		flip_release(&next);
		i++;
	}
	ck_assert(flip_nth(load_store(), "img", i, &chunk)); /* the last is that of out */
	flip_bit(&chunk, 99);
	flip_trust(&chunk);
	fails(CORRUPT, "is damaged in the store", fdry_image_restore(img, NULL));
	fdry_image_unload(img);
	img = NULL;
	fails(CORRUPT, "content of pinned host memory at",
	      fdry_image_load(load_store(), "img", NULL, &img));
	ck_assert(!is_mapped(at->in));
	flip_bit(&chunk, 99);
	flip_trust(&chunk);
	img = load_with(0);
	fdry_image_unload(img);
	flip_release(&chunk);
}
END_TEST

/* --- in the region of a live capture --- */

/* The process makes none of the allocations: they are claimed. A second image shares them. */
START_TEST(claimed_in_a_capture)
{
	struct fdry_image *img = NULL, *again = NULL;
	struct fdry_load_opts o;
	struct work w;

	shared_make();
	test_child(seal_pinned, NULL);
	into_begin(&w, 0, 0);
	o = into(&w);
	ok(fdry_image_load(w.store, "img", &o, &img));
	ck_assert(addr_of(pinned(BYTES)) > at->out);
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_synchronize(img, NULL));
	sum_check(floats(at->out), 7, 100);
	ok(fdry_image_load(w.store, "img", &o, &again));
	fdry_image_unload(img);
	ok(fdry_image_launch(again, 1, NULL));
	ok(fdry_image_synchronize(again, NULL));
	sum_check(floats(at->out), 7, 100);
	fdry_image_unload(again);
	ck_assert_int_eq(cuda(cuMemFreeHost, floats(at->out)), CUDA_ERROR_INVALID_VALUE);
	fdry_store_close(w.store);
	fdry_capture_end(w.cap);
}
END_TEST

/* The process makes the same allocations itself, and they are its own. */
START_TEST(kept_in_a_capture)
{
	struct fdry_memory none = { 0, 0 };
	struct fdry_image *img = NULL;
	struct fdry_load_opts o;
	struct work w;
	float *in, v[N];

	shared_make();
	test_child(seal_pinned, NULL);
	into_begin(&w, 0, 0);
	in = pinned(BYTES);
	ck_assert_uint_eq(addr_of(in), at->in);
	vector_fill(in, 50);
	memcpy(v, in, BYTES);
	o = into(&w);
	ok(fdry_image_load(w.store, "img", &o, &img));
	ck_assert_mem_eq(in, v, BYTES);
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_synchronize(img, NULL));
	sum_check(floats(at->out), 50, 100);
	fdry_image_unload(img);
	ck_assert_mem_eq(in, v, BYTES);
	o.keep = &none; /* the program keeps no memory, so the load writes all */
	ok(fdry_image_load(w.store, "img", &o, &img));
	vector_fill(v, 7);
	ck_assert_mem_eq(in, v, BYTES);
	fdry_image_unload(img);
	cuda_ok(cuMemFreeHost, in);
	fdry_store_close(w.store);
	fdry_capture_end(w.cap);
}
END_TEST

START_TEST(another_allocation_in_the_way)
{
	struct fdry_image *img = NULL;
	struct fdry_load_opts o;
	struct work w;

	shared_make();
	test_child(seal_pinned, NULL);
	into_begin(&w, 0, 0);
	pinned(BYTES + 8);
	o = into(&w);
	fails(LAYOUT, "4008 bytes of pinned memory at 0x",
	      fdry_image_load(w.store, "img", &o, &img));
	fdry_store_close(w.store);
	fdry_capture_end(w.cap);
}
END_TEST

/* --- refusals --- */

START_TEST(addresses_in_use)
{
	struct fdry_image *img = NULL;
	long before;
	void *p;

	shared_make();
	test_child(seal_pinned, NULL);
	before = live_before();
	p = mmap((void *)(uintptr_t)at->out, 4096, PROT_READ,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	ck_assert_uint_eq(addr_of(p), at->out);
	fails(TAKEN, "bytes of host addresses at 0x",
	      fdry_image_load(load_store(), "img", NULL, &img));
	ck_assert_int_eq(live_objects(), before);
	ck_assert(!is_mapped(at->in));
	munmap(p, 4096);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	fdry_image_unload(img);
}
END_TEST

START_TEST(no_pinned_memory_left)
{
	struct fdry_image *img = NULL;
	long before;

	shared_make();
	test_child(seal_pinned, NULL);
	before = live_before();
	test_sim_fail(_i ? "cuMemHostRegister_v2:2:2" : "cuMemHostRegister_v2:1:2");
	fails(NOMEM, "the driver cannot pin 4000 bytes of host memory",
	      fdry_image_load(load_store(), "img", NULL, &img));
	ck_assert_int_eq(live_objects(), before);
	ck_assert(!is_mapped(at->in));
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	fdry_image_unload(img);
}
END_TEST

static void refused(struct work *w, const char *text)
{
	fails(REFUSED, text, fdry_capture_seal(w->cap, w->store, "img", NULL, NULL));
}

START_TEST(freed_memory_is_refused)
{
	struct work w;

	shared_make();
	pinned_make(&w);
	graphs_capture(&w, at->in, at->out);
	cuda_ok(cuMemFreeHost, floats(at->in));
	refused(&w, "pinned host memory that was freed");
	work_end(&w);
}
END_TEST

/* Memory that the driver allocated outside of the capture has no fixed address. */
START_TEST(other_pinned_memory_is_refused)
{
	struct work w;
	float *p;

	work_flags = FDRY_CAPTURE_PINNED;
	work_make(&w);
	ok(fdry_capture_pause(w.cap));
	p = pinned(BYTES);
	ok(fdry_capture_resume(w.cap));
	graphs_capture(&w, addr_of(p), w.a);
	refused(&w, "points to pinned host memory");
	cuda_ok(cuMemFreeHost, p);
	work_end(&w);
}
END_TEST

/* Without the option, everything is as before. */
START_TEST(without_the_option)
{
	struct work w;
	float *p;

	work_make(&w);
	p = pinned(BYTES);
	ck_assert_uint_ge(addr_of(p) - fdry_host_area_base(work_base, false),
			  2 * FDRY_HOST_AREA_SIZE);
	graphs_capture(&w, addr_of(p), w.a);
	refused(&w, "points to pinned host memory, which only a capture with FDRY_CAPTURE_PINNED");
	work_end(&w);
}
END_TEST

START_TEST(managed_memory_is_refused)
{
	CUdeviceptr p;
	struct work w;

	work_make(&w);
	cuda_ok(cuMemAllocManaged, &p, BYTES, CU_MEM_ATTACH_GLOBAL);
	graphs_capture(&w, p, w.a);
	refused(&w, "managed memory");
	cuda_ok(cuMemFree_v2, p);
	work_end(&w);
}
END_TEST

/* Registered memory may begin anywhere. The seal reads it in parts, and no pointer is in two of
 * them. */
START_TEST(pointers_at_all_places)
{
	const size_t len = FDRY_MF_CHUNK_MAX + 4096;
	const size_t places[] = { 8, FDRY_MF_CHUNK_MAX, len - 8 };
	CUdeviceptr outside;
	struct work w;
	size_t i;
	char *own;

	work_flags = FDRY_CAPTURE_PINNED;
	work_make(&w);
	own = mmap(NULL, 2 * len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cuda_ok(cuMemHostRegister_v2, own + 4, len, 0);
	cuda_ok(cuMemAllocManaged, &outside, BYTES, CU_MEM_ATTACH_GLOBAL);
	graphs_capture(&w, addr_of(own + 4), w.a);
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		memset(own, 0, len);
		memcpy(own + places[i], &outside, sizeof(outside));
		refused(&w, "managed memory");
	}
	cuda_ok(cuMemHostUnregister, own + 4);
	cuda_ok(cuMemFree_v2, outside);
	work_end(&w);
}
END_TEST

/* --- the image --- */

/* Sections without entries are left out, so an image without pinned memory is as before. */
START_TEST(memory_that_no_graph_uses)
{
	struct fdry_requirements *r;
	struct work w;
	char *text;

	work_flags = FDRY_CAPTURE_PINNED;
	work_make(&w);
	vector_fill(pinned(BYTES), 5);
	graph_add(&w, 1);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, NULL));
	ok(fdry_image_describe(w.store, "img", &text));
	ck_assert_ptr_null(strstr(text, "pinned"));
	free(text);
	ok(fdry_image_requirements(w.store, "img", NULL, &r));
	ck_assert_uint_eq(r->host_bytes, 0);
	free(r);
	work_end(&w);
}
END_TEST

static void id_of_pinned(void *id)
{
	struct work w;

	pinned_make(&w);
	graphs_capture(&w, at->in, at->out);
	ok(fdry_capture_seal(w.cap, w.store, "img", id, NULL));
	work_end(&w);
}

START_TEST(equal_work_gives_equal_images)
{
	char *ids;

	shared_make();
	ids = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	test_child(id_of_pinned, ids);
	test_child(id_of_pinned, ids + 2048);
	ck_assert_str_eq(ids, ids + 2048);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image_image_pinned");
	TCase *tc = tcase_create("pinned memory");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_test(tc, a_push_asks_for_private);
	tcase_add_loop_test(tc, kernels_and_copies_use_it, 0, 2);
	tcase_add_test(tc, descriptions_name_it);
	tcase_add_test(tc, it_is_registered_and_not_inherited);
	tcase_add_test(tc, pointers_in_content);
	tcase_add_test(tc, declared_tensors_keep_their_address);
	tcase_add_test(tc, few_bytes_are_content);
	tcase_add_test(tc, registered_memory_keeps_its_address);
	tcase_add_test(tc, memory_that_stays_registered);
	tcase_add_test(tc, damaged_content_is_found);
	tcase_add_test(tc, claimed_in_a_capture);
	tcase_add_test(tc, kept_in_a_capture);
	tcase_add_test(tc, another_allocation_in_the_way);
	tcase_add_test(tc, addresses_in_use);
	tcase_add_loop_test(tc, no_pinned_memory_left, 0, 2);
	tcase_add_test(tc, freed_memory_is_refused);
	tcase_add_test(tc, other_pinned_memory_is_refused);
	tcase_add_test(tc, without_the_option);
	tcase_add_test(tc, managed_memory_is_refused);
	tcase_add_test(tc, pointers_at_all_places);
	tcase_add_test(tc, memory_that_no_graph_uses);
	tcase_add_test(tc, equal_work_gives_equal_images);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
