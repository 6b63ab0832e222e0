// SPDX-License-Identifier: Apache-2.0
/* Unit tests of host memory in copies: declared, sealed, loaded elsewhere, refused. */
#include <sys/mman.h>

#include "tests/unit/api.h"

#define PAGE 4096u

/* What a program has besides: pinned vectors in, out, table and state, and one that is not pinned. */
struct host_work {
	struct work w;
	float *in, *out, *table, *state, *plain;
};

static float *pinned(size_t bytes)
{
	void *p;

	cuda_ok(cuMemAllocHost_v2, &p, bytes);
	return p;
}

static void host_tensor(struct work *w, const char *name, const void *at, uint32_t use)
{
	tensor_add(w, name, (CUdeviceptr)(uintptr_t)at, use, FDRY_TENSOR_HOST);
}

/*
 * Graph 1: a = in, b = table, c = a + b, out = c. Graph 2: the same by other calls, of the first half.
 * Graph 3: a = state, state = a + table. Graph 4: a = plain, c = a + b.
 */
static void graphs_capture(struct host_work *h)
{
	struct work *w = &h->w;
	CUDA_MEMCPY2D rows = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = h->in, .srcPitch = 400,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = w->a, .dstPitch = 400,
			       .WidthInBytes = 400, .Height = 5 };

	capture_start(w);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->a, h->in, BYTES, w->stream);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->b, h->table, BYTES, w->stream);
	launch_add(w, w->a, w->b, w->c);
	cuda_ok(cuMemcpyDtoHAsync_v2, h->out, w->c, BYTES, w->stream);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
	capture_start(w);
	cuda_ok(cuMemcpy2DAsync_v2, &rows, w->stream);
	launch_add(w, w->a, w->b, w->c);
	cuda_ok(cuMemcpyAsync, (uintptr_t)h->out, w->c, BYTES / 2, w->stream);
	ok(fdry_capture_graph(w->cap, 2, NULL, capture_stop(w)));
	capture_start(w);
	cuda_ok(cuMemcpyAsync, w->a, (uintptr_t)h->state, BYTES, w->stream);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->b, h->table, BYTES, w->stream);
	launch_add(w, w->a, w->b, w->c);
	cuda_ok(cuMemcpyDtoHAsync_v2, h->state, w->c, BYTES, w->stream);
	ok(fdry_capture_graph(w->cap, 3, NULL, capture_stop(w)));
	capture_start(w);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->a, h->plain, BYTES, w->stream);
	launch_add(w, w->a, w->b, w->c);
	ok(fdry_capture_graph(w->cap, 4, NULL, capture_stop(w)));
}

static void host_make(struct host_work *h, bool swapped)
{
	work_make(&h->w);
	h->in = pinned(swapped ? 5 * BYTES : BYTES);
	h->table = pinned(BYTES);
	if (swapped)
		h->state = pinned(BYTES);
	h->out = pinned(BYTES);
	if (!swapped)
		h->state = pinned(BYTES);
	h->plain = malloc(BYTES);
	vector_fill(h->in, swapped ? 77 : 5);
	vector_fill(h->out, swapped ? 78 : 6);
	vector_fill(h->table, 1000);
	vector_fill(h->state, 2000);
	vector_fill(h->plain, 3000);
	graphs_capture(h);
}

static void tensors_name(struct host_work *h)
{
	host_tensor(&h->w, "in", h->in, FDRY_USE_INPUT);
	host_tensor(&h->w, "out", h->out, FDRY_USE_OUTPUT);
	host_tensor(&h->w, "table", h->table, FDRY_USE_CONST);
	host_tensor(&h->w, "state", h->state, FDRY_USE_STATE);
	host_tensor(&h->w, "plain", h->plain, FDRY_USE_CONST);
	tensor_add(&h->w, "c", h->w.c, FDRY_USE_OUTPUT, 0);
}

static void host_end(struct host_work *h)
{
	free(h->plain);
	work_end(&h->w);
}

static void seal_host(void *id)
{
	struct host_work h;

	host_make(&h, false);
	tensors_name(&h);
	ok(fdry_capture_seal(h.w.cap, h.w.store, "img", id, NULL));
	host_end(&h);
}

static struct fdry_image *load(uint32_t flags)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = flags };
	struct fdry_image *img = NULL;

	ok(fdry_image_load(load_store(), "img", &opts, &img));
	return img;
}

static float *host_of(struct fdry_image *img, const char *name)
{
	struct fdry_tensor t;
	void *p;

	ok(fdry_image_host(img, name, &p));
	ok(fdry_image_tensor_find(img, name, &t));
	ck_assert_uint_eq(t.addr, (uintptr_t)p);
	ck_assert(t.flags & FDRY_TENSOR_HOST);
	return p;
}

/* v[0..n) is a of @a plus b of @b. */
static void sum_check(const float *v, int n, float a, float b)
{
	int i;

	for (i = 0; i < n; i++)
		ck_assert_msg(v[i] == value(i, a) + value(i, b), "[%d] is %g", i, (double)v[i]);
}

/* --- loading --- */

START_TEST(inputs_are_rewritten_before_every_launch)
{
	struct fdry_image *img;
	float v[N], *in, *out;
	int i;

	test_child(seal_host, NULL);
	img = load(0);
	in = host_of(img, "in");
	out = host_of(img, "out");
	ck_assert_uint_eq((uintptr_t)in % 256, 0);
	ok(fdry_image_filled(img, "in"));
	for (i = 0; i < 3; i++) {
		vector_fill(in, (float)(i + 10));
		ok(fdry_image_launch(img, 1, NULL));
		ok(fdry_image_synchronize(img, NULL));
		sum_check(out, N, (float)(i + 10), 1000);
		vector_fill(v, (float)(i + 20));
		ok(fdry_image_write(img, "in", v, BYTES, NULL));
		ok(fdry_image_launch(img, 2, NULL));
		ok(fdry_image_read(img, "out", v, BYTES, NULL));
		sum_check(v, N / 2, (float)(i + 20), 1000);
		sum_check(v + N / 2, 0, 0, 0);
		ck_assert(v[N - 1] == value(N - 1, (float)(i + 10)) + value(N - 1, 1000));
	}
	fdry_image_unload(img);
}
END_TEST

START_TEST(what_each_use_begins_with)
{
	float zeros[N] = { 0 }, poison[N], v[N];
	struct fdry_image *img;

	memset(poison, 0xA5, sizeof(poison));
	test_child(seal_host, NULL);
	img = load(_i ? FDRY_LOAD_POISON : 0);
	ck_assert_mem_eq(host_of(img, "in"), _i ? poison : zeros, BYTES);
	ck_assert_mem_eq(host_of(img, "out"), _i ? poison : zeros, BYTES);
	vector_fill(v, 1000);
	ck_assert_mem_eq(host_of(img, "table"), v, BYTES);
	vector_fill(v, 2000);
	ck_assert_mem_eq(host_of(img, "state"), v, BYTES);
	vector_fill(v, 3000);
	ck_assert_mem_eq(host_of(img, "plain"), v, BYTES);
	fdry_image_unload(img);
}
END_TEST

START_TEST(pageable_memory_comes_back_pinned)
{
	struct fdry_image *img;
	unsigned int type = 0;
	float v[N];

	test_child(seal_host, NULL);
	img = load(FDRY_LOAD_BUILD);
	ck_assert_int_eq(test_sim()->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
							   (uintptr_t)host_of(img, "plain")), CUDA_SUCCESS);
	ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
	ok(fdry_image_filled(img, NULL));
	ok(fdry_image_launch(img, 4, NULL));
	ok(fdry_image_read(img, "c", v, BYTES, NULL));
	sum_check(v, N, 3000, 100); /* b as it was at the seal */
	fdry_image_unload(img);
}
END_TEST

START_TEST(state_goes_on_and_is_restored)
{
	struct fdry_image *img;
	float v[N];
	int i;

	test_child(seal_host, NULL);
	img = load(0);
	ok(fdry_image_filled(img, NULL));
	for (i = 0; i < 2; i++)
		ok(fdry_image_launch(img, 3, NULL));
	ok(fdry_image_read(img, "state", v, BYTES, NULL));
	for (i = 0; i < N; i++)
		ck_assert(v[i] == value(i, 2000) + value(i, 1000) + value(i, 1000));
	memset(host_of(img, "table"), 0xff, BYTES);
	vector_fill(host_of(img, "in"), 5);
	ok(fdry_image_restore(img, NULL));
	vector_fill(v, 2000);
	ck_assert_mem_eq(host_of(img, "state"), v, BYTES);
	vector_fill(v, 1000);
	ck_assert_mem_eq(host_of(img, "table"), v, BYTES);
	vector_fill(v, 5);
	ck_assert_mem_eq(host_of(img, "in"), v, BYTES);
	fdry_image_unload(img);
}
END_TEST

START_TEST(inputs_must_be_filled)
{
	struct fdry_image *img;
	struct fdry_tensor t;
	float v[N];
	void *p;

	test_child(seal_host, NULL);
	img = load(0);
	fails(UNBOUND, "1 external tensor(s) have no content yet, 'in' first", fdry_image_launch(img, 4, NULL));
	fails(STATE, "tensor 'out' is not external", fdry_image_filled(img, "out"));
	fails(STATE, "tensor 'c' lies on the device", fdry_image_host(img, "c", &p));
	fails(NOKEY, "no tensor named 'd'", fdry_image_host(img, "d", &p));
	fails(INVAL, "given no ret", fdry_image_host(img, "in", NULL));
	fails(INVAL, "given no img", fdry_image_host(NULL, "in", &p));
	fails(RANGE, "has 4000 bytes, 8 were given", fdry_image_write(img, "in", v, 8, NULL));
	ok(fdry_image_tensor_find(img, "c", &t));
	vector_fill(v, 9);
	ok(fdry_image_write(img, "c", v, BYTES, NULL));
	ok(fdry_image_copy(img, "in", t.addr, BYTES, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "out", v, BYTES, NULL));
	sum_check(v, N, 9, 1000);
	fdry_image_unload(img);
}
END_TEST

START_TEST(copies_wait_for_a_capture_to_end)
{
	struct fdry_image *img;
	CUstream stream;
	CUgraph graph;
	float v[N];

	test_child(seal_host, NULL);
	img = load(0);
	ck_assert_int_eq(test_sim()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(test_sim()->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	fails(STATE, "the stream captures", fdry_image_write(img, "in", v, BYTES, stream));
	fails(STATE, "the stream captures", fdry_image_read(img, "in", v, BYTES, stream));
	ck_assert_int_eq(test_sim()->cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	fdry_image_unload(img);
}
END_TEST

START_TEST(nothing_is_left_whatever_fails)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_BUILD | FDRY_LOAD_POISON, .threads = 1 };
	struct fdry_image *img;
	unsigned int n, failed = 0;
	char spec[64];
	long before;

	test_child(seal_host, NULL);
	(void)load_store();
	test_sim();
	before = test_sim_live(NULL);
	for (n = 1;; n++) {
		snprintf(spec, sizeof(spec), "%s:%u:%d", _i ? "cuMemHostAlloc" : "cuGraphAddMemcpyNode", n,
			 _i ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
		test_sim_fail(spec);
		if (!fdry_image_load(load_store(), "img", &opts, &img))
			break;
		failed++;
		if (_i)
			ck_assert_ptr_nonnull(strstr(fdry_last_error(), "of pinned host memory, which cannot be had"));
		ck_assert_int_eq(test_sim_live(NULL), before);
	}
	test_sim_fail(NULL);
	ck_assert_uint_eq(failed, _i ? 1 : 9);
	ck_assert_int_eq(test_sim_live("host"), 1);
	fdry_image_unload(img);
	ck_assert_int_eq(test_sim_live(NULL), before);
}
END_TEST

/* --- what is stored --- */

static void seal_elsewhere(void *id)
{
	struct host_work h;

	host_make(&h, true);
	host_tensor(&h.w, "state", h.state, FDRY_USE_STATE);
	host_tensor(&h.w, "plain", h.plain, FDRY_USE_CONST);
	tensor_add(&h.w, "c", h.w.c, FDRY_USE_OUTPUT, 0);
	host_tensor(&h.w, "table", h.table, FDRY_USE_CONST);
	host_tensor(&h.w, "in", h.in, FDRY_USE_INPUT);
	host_tensor(&h.w, "out", h.out, FDRY_USE_OUTPUT);
	ok(fdry_capture_seal(h.w.cap, h.w.store, "img", id, NULL));
	host_end(&h);
}

/* Other addresses, other bytes in inputs and outputs, another order of naming: the same image. */
START_TEST(addresses_are_not_in_an_image)
{
	char *ids = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(ids, MAP_FAILED);
	test_child(seal_host, ids);
	test_child(seal_elsewhere, ids + PAGE);
	ck_assert_str_eq(ids, ids + PAGE);
	munmap(ids, 2 * PAGE);
}
END_TEST

START_TEST(needs_are_what_the_load_takes)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;
	struct fdry_needs *n;

	test_child(seal_host, NULL);
	ok(fdry_image_needs(load_store(), "img", NULL, &n));
	img = load(0);
	ok(fdry_image_report(img, &report));
	ck_assert_uint_eq(n->host_bytes, 4 * 4096 + BYTES);
	ck_assert_uint_eq(n->copied_bytes, report.content_bytes);
	ck_assert_uint_eq(report.content_bytes % 4096, 3 * BYTES % 4096);
	ck_assert_uint_eq(n->nexternals, 1);
	ck_assert_str_eq(n->externals[0].name, "in");
	ck_assert_uint_eq(n->externals[0].addr, 0);
	ck_assert_uint_eq(n->externals[0].bytes, BYTES);
	free(n);
	fdry_image_unload(img);
}
END_TEST

/* Host content is linked, hashed when asked for, and noticed when it is damaged. */
START_TEST(content_is_kept_and_verified)
{
	struct fdry_load_report report = { .sz = sizeof(report) };
	struct fdry_image *img;
	struct fdry_gc_report gc;

	test_child(seal_host, NULL);
	ok(fdry_store_gc(load_store(), false, &gc));
	img = load(FDRY_LOAD_VERIFY);
	ok(fdry_image_report(img, &report));
	ck_assert_uint_eq(report.verified_bytes, report.content_bytes);
	ck_assert(host_of(img, "table")[5] == value(5, 1000));
	fdry_image_unload(img);
}
END_TEST

START_TEST(it_is_described)
{
	char *text;

	test_child(seal_host, NULL);
	ok(fdry_image_describe(load_store(), "img", &text));
	ck_assert_ptr_nonnull(strstr(text, "\nhost segment 0 4000\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nhost segment 4 4000\n"));
	ck_assert_ptr_null(strstr(text, "host segment 5"));
	ck_assert_ptr_nonnull(strstr(text, "\ntensor in F32 input external host 0+0 [1000:1]\n"));
	ck_assert_ptr_nonnull(strstr(text, "\ntensor table F32 const host 4+0 [1000:1]\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nneeds 20384 bytes of pinned host memory\n"));
	free(text);
}
END_TEST

/* Tensors that share bytes: a view of an input in a constant, one across both ends. */
static void seal_overlapping(void *arg)
{
	struct work w;
	char *p, *q;
	int i;

	(void)arg;
	work_make(&w);
	p = (char *)pinned(3u << 20);
	q = (char *)pinned(PAGE);
	for (i = 0; i < 3 << 20; i++)
		p[i] = (char)(i % 251);
	capture_start(&w);
	cuda_ok(cuMemcpyHtoDAsync_v2, w.a, p + 20, 100, w.stream);
	cuda_ok(cuMemcpyHtoDAsync_v2, w.b, p + 2500000, 4, w.stream);
	cuda_ok(cuMemcpyHtoDAsync_v2, w.c, q + 3, 4, w.stream);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	ok(fdry_capture_tensor(w.cap, &(struct fdry_tensor){ .name = "whole", .addr = (uintptr_t)p + 20, .dtype = FDRY_U8,
		.use = FDRY_USE_CONST, .flags = FDRY_TENSOR_HOST, .rank = 1, .shape = { 2500000 }, .stride = { 1 } }));
	ok(fdry_capture_tensor(w.cap, &(struct fdry_tensor){ .name = "hole", .addr = (uintptr_t)p + 1000, .dtype = FDRY_U8,
		.use = FDRY_USE_INPUT, .flags = FDRY_TENSOR_HOST, .rank = 1, .shape = { 24 }, .stride = { 1 } }));
	ok(fdry_capture_tensor(w.cap, &(struct fdry_tensor){ .name = "zz", .addr = (uintptr_t)q + 3, .dtype = FDRY_U8,
		.use = FDRY_USE_STATE, .flags = FDRY_TENSOR_HOST, .rank = 1, .shape = { 4 }, .stride = { 1 } }));
	ok(work_seal(&w, "img"));
	work_end(&w);
}

START_TEST(tensors_that_share_bytes)
{
	struct fdry_image *img;
	unsigned char *whole, *hole;
	char *text;
	int i;

	test_child(seal_overlapping, NULL);
	ok(fdry_image_describe(load_store(), "img", &text));
	ck_assert_ptr_nonnull(strstr(text, "\nhost segment 0 2500004\nhost segment 1 7\nmemory"));
	ck_assert_ptr_nonnull(strstr(text, "\ntensor hole U8 input external host 0+0x3d8 ["));
	ck_assert_ptr_nonnull(strstr(text, "\ntensor whole U8 const host 0+0x4 ["));
	ck_assert_ptr_nonnull(strstr(text, "\ntensor zz U8 state host 1+0x3 ["));
	free(text);
	img = load(0);
	whole = (unsigned char *)host_of(img, "whole");
	hole = (unsigned char *)host_of(img, "hole");
	ck_assert_ptr_eq(hole, whole + 980);
	ck_assert_uint_eq((uintptr_t)whole % 16, 4);
	for (i = 0; i < 2500000 && whole[i] == (i >= 980 && i < 1004 ? 0 : (i + 20) % 251); i++)
		;
	ck_assert_int_eq(i, 2500000);
	ok(fdry_image_filled(img, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	fdry_image_unload(img);
}
END_TEST

/* --- refusals --- */

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

/* Two tensors that together hold what is copied: whose memory touches is chance. */
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
	ck_assert_ptr_eq(mmap(h->out, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), h->out);
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

/* No memory any more; not unmapped, since the next allocation might lie there. */
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
	{ "is pinned host memory that no one host tensor holds; keep it allocated and declare it with fdry_capture_tensor() "
	  "and FDRY_TENSOR_HOST", FDRY_E_REFUSED, not_named },
	{ "graph 1 '': node 0: memcpy: its source, 4000 bytes at 0x", FDRY_E_REFUSED, named_in_part },
	{ "graph 1 '': node 0: memcpy: its source, 4000 bytes at 0x", FDRY_E_REFUSED, named_in_two_halves },
	{ "graph 9 'nine': node 0: memcpy: its destination, 4 bytes at 0x", FDRY_E_REFUSED, pageable_not_named },
	{ "is pageable host memory that no one host tensor holds", FDRY_E_REFUSED, pageable_not_named },
	{ "the host memory of tensor 'out' was freed before the seal; keep it allocated", FDRY_E_STATE, freed },
	{ "the host memory of tensor 'out' was freed before the seal; keep it allocated", FDRY_E_STATE, freed_and_taken_again },
	{ "the host memory of tensor 'registered' was freed before the seal", FDRY_E_STATE, unregistered },
	{ "the host memory of tensor 'mapped' was freed before the seal", FDRY_E_STATE, unmapped },
	{ "graph 9 'nine': node 0: memset: what it sets, 4 bytes at 0x", FDRY_E_REFUSED, memset_of_host },
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
	ck_assert_msg(strstr(fdry_last_error(), r->says), "'%s' does not say '%s'", fdry_last_error(), r->says);
	fails(NOENT, "no ref", fdry_ref_get(kept.w.store, "ref", &oid));
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
	fails(RANGE, "host tensor 't' lies in device memory; name it without FDRY_TENSOR_HOST", fdry_capture_tensor(w->cap, &t));
	t = vector("t", (uintptr_t)kept.in, FDRY_USE_CONST, 0);
	fails(RANGE, "or say FDRY_TENSOR_HOST of host memory", fdry_capture_tensor(w->cap, &t));
	t.flags = FDRY_TENSOR_HOST;
	t.addr += 4;
	fails(RANGE, "reaches beyond the 4000 bytes", fdry_capture_tensor(w->cap, &t));
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
	Suite *s = suite_create("api_host");
	TCase *tc = tcase_create("host");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, inputs_are_rewritten_before_every_launch);
	tcase_add_loop_test(tc, what_each_use_begins_with, 0, 2);
	tcase_add_test(tc, pageable_memory_comes_back_pinned);
	tcase_add_test(tc, state_goes_on_and_is_restored);
	tcase_add_test(tc, inputs_must_be_filled);
	tcase_add_test(tc, copies_wait_for_a_capture_to_end);
	tcase_add_loop_test(tc, nothing_is_left_whatever_fails, 0, 2);
	tcase_add_test(tc, addresses_are_not_in_an_image);
	tcase_add_test(tc, needs_are_what_the_load_takes);
	tcase_add_test(tc, content_is_kept_and_verified);
	tcase_add_test(tc, it_is_described);
	tcase_add_test(tc, tensors_that_share_bytes);
	tcase_add_loop_test(tc, seal_refuses, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(tc, tensors_that_cannot_be);
	suite_add_tcase(s, tc);
	return test_main(s);
}
