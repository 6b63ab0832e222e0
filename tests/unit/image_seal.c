// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of memory in seals: which addresses are live, which memory is scratch, content or
 * external, how content is cut, and that memory must not change during the seal.
 */
#include <pthread.h>

#include "image/manifest.h"
#include "tests/lib/image.h"

/* --- addresses --- */

static CUdeviceptr memory(size_t size)
{
	CUdeviceptr p;

	cuda_ok(cuMemAlloc_v2, &p, size);
	return p;
}

/* Seal a graph whose kernel has @p as argument, and return the seal's result. */
static int seal_with_pointer(struct work *w, CUdeviceptr p)
{
	capture_start(w);
	launch_add(w, w->a, p, w->c);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
	return work_seal(w, NULL);
}

START_TEST(end_of_the_last_allocation)
{
	struct work w;

	work_make(&w);
	ok(seal_with_pointer(&w, w.c + 4096));
	work_end(&w);
}
END_TEST

/* A large allocation begins at the next multiple of 2 MiB: the gap before it was never
 * allocated. */
START_TEST(end_in_front_of_a_gap)
{
	struct work w;

	work_make(&w);
	ck_assert_uint_gt(memory(4 << 20), w.c + 4096);
	ok(seal_with_pointer(&w, w.c + 4096));
	work_end(&w);
}
END_TEST

/* b begins at the end of a: the pointer could mean either of them. */
START_TEST(end_where_memory_was_freed)
{
	struct work w;

	work_make(&w);
	cuda_ok(cuMemFree_v2, w.b);
	fails(REFUSED, "memory of the region that was freed", seal_with_pointer(&w, w.b));
	work_end(&w);
}
END_TEST

START_TEST(end_where_the_last_was_freed)
{
	struct work w;

	work_make(&w);
	cuda_ok(cuMemFree_v2, memory(BYTES));
	fails(REFUSED, "memory of the region that was freed", seal_with_pointer(&w, w.c + 4096));
	work_end(&w);
}
END_TEST

static const struct fdry_capture_opts with_aside = { .sz = sizeof(with_aside),
						     .base = TEST_CAPTURE_BASE + (1ull << 35),
						     .size = 1ull << 34,
						     .aside = 1ull << 34 };

/* The work of work_make() in a region with an aside area. */
static void aside_make(struct work *w)
{
	work_make(w);
	fdry_capture_end(w->cap);
	ok(fdry_capture_begin(&with_aside, &w->cap));
	w->a = memory(BYTES);
	w->b = memory(BYTES);
	w->c = memory(BYTES);
}

/* A seal distinguishes freed memory of an aside area from memory that was never allocated. */
START_TEST(freed_aside)
{
	struct work w;
	CUdeviceptr p;

	aside_make(&w);
	ok(fdry_capture_aside(w.cap, 1));
	p = memory(BYTES);
	ok(fdry_capture_aside(w.cap, 0));
	cuda_ok(cuMemFree_v2, p);
	if (_i)
		fails(REFUSED, "memory of the region that was freed", seal_with_pointer(&w, p + 8));
	else
		ok(seal_with_pointer(&w, with_aside.base + with_aside.size - 4096));
	work_end(&w);
}
END_TEST

/* The end of the last allocation of the region, or of the aside area: a pointer there means the
 * allocation, unless memory behind it was freed. */
START_TEST(end_beside_an_aside_area)
{
	bool aside = _i & 1, freed = _i & 2;
	struct work w;
	CUdeviceptr p;

	aside_make(&w);
	ok(fdry_capture_aside(w.cap, 1));
	p = memory(BYTES);
	ok(fdry_capture_aside(w.cap, aside));
	if (freed)
		cuda_ok(cuMemFree_v2, memory(BYTES));
	ok(fdry_capture_aside(w.cap, 0));
	p = (aside ? p : w.c) + 4096;
	if (freed)
		fails(REFUSED, "memory of the region that was freed", seal_with_pointer(&w, p));
	else
		ok(seal_with_pointer(&w, p));
	work_end(&w);
}
END_TEST

START_TEST(freed_and_set_back)
{
	struct work w;
	uint64_t offset;
	CUdeviceptr p;

	work_make(&w);
	ok(fdry_capture_offset(w.cap, &offset));
	p = memory(BYTES);
	cuda_ok(cuMemFree_v2, p);
	ok(fdry_capture_set_offset(w.cap, offset));
	fails(REFUSED, "memory of the region that was freed", seal_with_pointer(&w, p + 8));
	work_end(&w);
}
END_TEST

/* Behind all allocations that the region ever made, a number cannot be a pointer. */
START_TEST(numbers_that_look_like_addresses)
{
	struct work w;

	work_make(&w);
	ok(seal_with_pointer(&w, w.c + (64 << 20)));
	work_end(&w);
}
END_TEST

static void set_captured(struct work *w, CUdeviceptr p, size_t words)
{
	capture_start(w);
	cuda_ok(cuMemsetD32Async, p, 1, words, w->stream);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
}

START_TEST(range_over_several_allocations)
{
	struct work w;

	work_make(&w);
	set_captured(&w, w.a, 3 * 1024);
	ok(work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

/* Both ends of the memset's range are live, its middle is not. */
START_TEST(range_over_freed_memory)
{
	struct work w;

	work_make(&w);
	set_captured(&w, w.a, 3 * 1024);
	cuda_ok(cuMemFree_v2, w.b);
	fails(REFUSED, "memory of the region that was freed", work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

START_TEST(range_that_begins_at_an_end)
{
	struct work w;

	work_make(&w);
	set_captured(&w, w.b, 1);
	cuda_ok(cuMemFree_v2, w.b);
	fails(REFUSED, "memory of the region that was freed", work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

START_TEST(tensor_in_other_memory_of_the_same_address)
{
	struct work w;
	uint64_t offset;
	CUdeviceptr p;

	work_make(&w);
	graph_add(&w, 1);
	ok(fdry_capture_offset(w.cap, &offset));
	p = memory(BYTES);
	tensor_add(&w, "t", p, FDRY_USE_INPUT, 0);
	ok(work_seal(&w, NULL));
	cuda_ok(cuMemFree_v2, p);
	ok(fdry_capture_set_offset(w.cap, offset));
	ck_assert_uint_eq(memory(BYTES), p);
	fails(STATE, "the memory of tensor 't' was freed", work_seal(&w, NULL));
	work_end(&w);
}
END_TEST

/* --- roles --- */

struct want {
	uint64_t addr, size; /* from the region's base, bytes */
	uint32_t role;
};

/* The manifest of a seal; release @bytes. */
static void seal_manifest(struct work *w, struct fdry_buf *bytes, struct fdry_manifest *m)
{
	struct fdry_reader *reader;
	struct fdry_oid id;

	ok(work_seal(w, "img"));
	ok(fdry_store_resolve(w->store, "img", &id));
	ok(fdry_reader_begin(w->store, &reader));
	ok(fdry_reader_copy(reader, &id, bytes));
	ok(fdry_manifest_init((struct fdry_span){ bytes->data, bytes->len }, m));
	fdry_reader_end(reader);
}

static void check_segments(struct work *w, const struct want *want, uint32_t n)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	uint32_t i;

	seal_manifest(w, &bytes, &m);
	for (i = 0; i < n && i < m.n_segments; i++) {
		ck_assert_msg(m.segments[i].addr - m.header->base == want[i].addr,
			      "segment %u begins at %#llx", i,
			      (unsigned long long)(m.segments[i].addr - m.header->base));
		ck_assert_msg(m.segments[i].size == want[i].size, "segment %u has %llu bytes", i,
			      (unsigned long long)m.segments[i].size);
		ck_assert_msg(m.segments[i].role == want[i].role, "segment %u is %u", i,
			      m.segments[i].role);
	}
	ck_assert_uint_eq(m.n_segments, n);
	fdry_buf_release(&bytes);
}

#define check_roles(w, ...) \
	check_segments(w, (const struct want[]){ __VA_ARGS__ }, \
		       sizeof((const struct want[]){ __VA_ARGS__ }) / sizeof(struct want))
#define CONTENT FDRY_ROLE_CONTENT
#define SCRATCH FDRY_ROLE_SCRATCH
#define EXTERNAL FDRY_ROLE_EXTERNAL

/* @size bytes allocated while the work's stream captures; follows a, b and c, at 12288. */
static CUdeviceptr scratch(struct work *w, size_t size)
{
	CUdeviceptr p;

	capture_start(w);
	p = memory(size);
	launch_add(w, w->a, w->b, w->c);
	ok(fdry_capture_graph(w->cap, 1, NULL, capture_stop(w)));
	ck_assert_uint_eq(p, TEST_CAPTURE_BASE + 12288);
	return p;
}

static void set_byte(CUdeviceptr p, uint8_t b)
{
	cuda_ok(cuMemcpyHtoD_v2, p, &b, 1);
}

START_TEST(untouched_is_scratch)
{
	struct work w;

	work_make(&w);
	scratch(&w, 5 * 4096 + 512);
	check_roles(&w, { 0, 12288, CONTENT }, { 12288, 5 * 4096 + 512, SCRATCH });
	work_end(&w);
}
END_TEST

/* Touch one byte on either side of a border of blocks, and the last byte. */
START_TEST(touched_blocks_are_content)
{
	struct work w;
	CUdeviceptr p;

	work_make(&w);
	p = scratch(&w, 8 * 4096 + 512);
	set_byte(p + 2 * 4096 - 1, 1);
	check_roles(&w, { 0, 12288, CONTENT }, { 12288, 4096, SCRATCH },
		    { 12288 + 4096, 4096, CONTENT }, { 12288 + 8192, 6 * 4096 + 512, SCRATCH });
	set_byte(p + 2 * 4096, 1);
	set_byte(p + 8 * 4096 + 511, 1);
	check_roles(&w, { 0, 12288, CONTENT }, { 12288, 4096, SCRATCH },
		    { 12288 + 4096, 8192, CONTENT }, { 12288 + 12288, 5 * 4096, SCRATCH },
		    { 12288 + 8 * 4096, 512, CONTENT });
	work_end(&w);
}
END_TEST

/* A byte equal to the stamp's leaves no trace. Any other value, at any place of a word, does. */
START_TEST(every_byte_of_the_stamp_counts)
{
	struct work w;
	CUdeviceptr p;
	uint8_t b;

	work_make(&w);
	p = scratch(&w, 4096);
	cuda_ok(cuMemcpyDtoH_v2, &b, p + 100 + _i, 1);
	set_byte(p + 100 + _i, b);
	check_roles(&w, { 0, 12288, CONTENT }, { 12288, 4096, SCRATCH });
	set_byte(p + 100 + _i, b ^ 0x80);
	check_roles(&w, { 0, 12288 + 4096, CONTENT });
	work_end(&w);
}
END_TEST

/* A block full of something that repeats as the stamp does. */
START_TEST(other_patterns_are_content)
{
	struct work w;
	CUdeviceptr p;

	work_make(&w);
	p = scratch(&w, 8192);
	cuda_ok(cuMemsetD32_v2, p, FDRY_STAMP ^ 1u << 8 * _i, 1024);
	check_roles(&w, { 0, 12288 + 4096, CONTENT }, { 12288 + 4096, 4096, SCRATCH });
	work_end(&w);
}
END_TEST

/* Blocks begin at multiples of their size, wherever an allocation begins. */
START_TEST(blocks_of_an_allocation_between_two)
{
	struct work w;
	CUdeviceptr p;

	work_make(&w);
	memory(512);
	capture_start(&w);
	p = memory(4 * 4096);
	launch_add(&w, w.a, w.b, w.c);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	ck_assert_uint_eq(p, TEST_CAPTURE_BASE + 12288 + 512);
	set_byte(p + 4096 - 512 - 1, 1);
	check_roles(&w, { 0, 12288 + 4096, CONTENT }, { 12288 + 4096, 3 * 4096 + 512, SCRATCH });
	set_byte(p + 2 * 4096 - 512, 1);
	check_roles(&w, { 0, 12288 + 4096, CONTENT }, { 12288 + 4096, 4096, SCRATCH },
		    { 12288 + 2 * 4096, 4096, CONTENT }, { 12288 + 3 * 4096, 4096 + 512, SCRATCH });
	work_end(&w);
}
END_TEST

/* Small allocations share a block; each is looked at for itself. */
START_TEST(blocks_shared_by_allocations)
{
	struct work w;
	CUdeviceptr p, q;

	work_make(&w);
	capture_start(&w);
	p = memory(512);
	q = memory(1024);
	memory(512);
	launch_add(&w, w.a, w.b, w.c);
	ok(fdry_capture_graph(w.cap, 1, NULL, capture_stop(&w)));
	ck_assert_uint_eq(q, p + 512);
	set_byte(q + 1023, 1);
	check_roles(&w, { 0, 12288, CONTENT }, { 12288, 512, SCRATCH },
		    { 12288 + 512, 1024, CONTENT }, { 12288 + 1536, 512, SCRATCH });
	work_end(&w);
}
END_TEST

/* The memory around external tensors inside scratch is treated as usual. */
START_TEST(externals_inside_scratch)
{
	struct work w;
	CUdeviceptr p;

	work_make(&w);
	p = scratch(&w, 4 * 4096);
	tensor_add(&w, "x", p + 100, FDRY_USE_INPUT, FDRY_TENSOR_EXTERNAL);    /* 100 to 4100 */
	tensor_add(&w, "view", p + 200, FDRY_USE_INPUT, FDRY_TENSOR_EXTERNAL); /* 200 to 4200 */
	tensor_add(&w, "last", p + 4 * 4096 - BYTES, FDRY_USE_INPUT, FDRY_TENSOR_EXTERNAL);
	set_byte(p + 50, 1);   /* content in front of it */
	set_byte(p + 3000, 1); /* in it: not looked at */
	check_roles(&w, { 0, 12288 + 100, CONTENT }, { 12288 + 100, 4100, EXTERNAL },
		    { 12288 + 4200, 4 * 4096 - 4000 - 4200, SCRATCH },
		    { 12288 + 4 * 4096 - 4000, 4000, EXTERNAL });
	work_end(&w);
}
END_TEST

START_TEST(external_over_content)
{
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	tensor_add(&w, "b", w.b, FDRY_USE_INPUT, FDRY_TENSOR_EXTERNAL);
	check_roles(&w, { 0, 4096, CONTENT }, { 4096, 4000, EXTERNAL },
		    { 8096, 96 + 4096, CONTENT });
	work_end(&w);
}
END_TEST

/* --- content --- */

#define BIG (19 * 1048576 + 1536) /* more than one piece of reading */

/* Runs of zeros and of noise, of lengths around those that matter. */
static uint8_t *pattern(void)
{
	static const size_t runs[] = { 1, 511, 4095, 4096, 4097, 8192, 65535,
				       65536, 65537, 70000, 131072, 2097152, 2097153, 3000000 };
	const size_t n = sizeof(runs) / sizeof(runs[0]);
	uint8_t *bytes = calloc(1, BIG);
	size_t at = 0, i, len;

	for (i = 0; at < BIG; i++, at += len) {
		len = runs[(i * 5 + i / n) % n];
		if (len > BIG - at)
			len = BIG - at;
		if (i & 1)
			noise(i, bytes + at, len);
	}
	return bytes;
}

static void seal_pattern(void *arg)
{
	struct fdry_seal_report report = { .sz = sizeof(report) };
	struct fdry_tensor t = {
		.name = "big", .dtype = FDRY_U8, .rank = 1, .shape = { BIG }, .stride = { 1 }
	};
	uint8_t *bytes = pattern();
	struct fdry_buf manifest = { 0 };
	struct fdry_manifest m;
	struct work w;
	uint32_t i;

	(void)arg;
	work_make(&w);
	graph_add(&w, 1);
	t.addr = memory(BIG);
	cuda_ok(cuMemcpyHtoD_v2, t.addr, bytes, BIG);
	ok(fdry_capture_tensor(w.cap, &t));
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, &report));
	ck_assert_uint_gt(report.zero_bytes, 4000000);
	ck_assert_uint_gt(report.content_bytes, 4000000);
	/* Alone, the large allocation fills whole blocks of 2 MiB; the other three share one. */
	ck_assert_uint_eq(report.zero_bytes + report.content_bytes, 20 * 1048576 + 12288);
	seal_manifest(&w, &manifest, &m);
	for (i = 0; i < m.n_chunks; i++)
		ck_assert_uint_eq(m.chunks[i].addr >> 21,
				  (m.chunks[i].addr + m.chunks[i].size - 1) >> 21);
	fdry_buf_release(&manifest);
	work_end(&w);
	free(bytes);
}

/* Few zeros between content are stored; zeros behind it are not. */
START_TEST(zeros_around_content)
{
	struct fdry_seal_report report = { .sz = sizeof(report) };
	struct work w;
	CUdeviceptr p;

	work_make(&w); /* a and b have content, c has none */
	graph_add(&w, 1);
	p = memory(128 << 10);
	set_byte(p + 5000, 1);
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, &report));
	ck_assert_uint_eq(report.content_bytes, 12288 + 8192);
	ck_assert_uint_eq(report.zero_bytes, (128 << 10) - 8192);
	set_byte(p + (128 << 10) - 4097, 1); /* few zeros follow it */
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, &report));
	ck_assert_uint_eq(report.content_bytes, 12288 + 8192 + 4096);
	ck_assert_uint_eq(report.zero_bytes, (128 << 10) - 8192 - 4096);
	work_end(&w);
}
END_TEST

START_TEST(content_comes_back_whatever_it_is)
{
	uint8_t *want = pattern(), *got = malloc(BIG);
	struct fdry_image *img;

	test_child(seal_pattern, NULL);
	ok(fdry_image_load(load_store(), "img", NULL, &img));
	ok(fdry_image_read(img, "big", got, BIG, NULL));
	ck_assert(!memcmp(got, want, BIG));
	memset(got, 0x5A, BIG);
	ok(fdry_image_write(img, "big", got, BIG, NULL));
	ok(fdry_image_restore(img, NULL));
	ok(fdry_image_read(img, "big", got, BIG, NULL));
	ck_assert(!memcmp(got, want, BIG));
	fdry_image_unload(img);
	free(want);
	free(got);
}
END_TEST

/* --- changes during a seal --- */

struct beside {
	struct work *w;
	CUgraphExec exec; /* NULL: allocate instead */
	bool free;        /* each allocation, which is larger than the last one */
	_Atomic bool started, stop;
};

static void *work_beside(void *arg)
{
	struct beside *b = arg;
	size_t size = 512;
	CUdeviceptr p;
	CUcontext ctx;

	ck_assert_int_eq(cuda(cuDevicePrimaryCtxRetain, &ctx, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda(cuCtxSetCurrent, ctx), CUDA_SUCCESS);
	while (!b->stop) {
		if (b->exec)
			cuda_ok(cuGraphLaunch, b->exec, b->w->stream);
		else
			cuda_ok(cuMemAlloc_v2, &p, size);
		if (b->free) {
			cuda_ok(cuMemFree_v2, p);
			size += 512;
		}
		b->started = true;
		usleep(500);
	}
	return NULL;
}

/* Seal so much memory that the thread can act during the seal. */
static void check_beside(struct beside *b, const char *says)
{
	uint8_t *bytes = pattern();
	pthread_t thread;
	int err;

	cuda_ok(cuMemcpyHtoD_v2, memory(BIG), bytes, BIG);
	ck_assert(!pthread_create(&thread, NULL, work_beside, b));
	while (!b->started)
		usleep(100);
	err = work_seal(b->w, "img");
	b->stop = true;
	pthread_join(thread, NULL);
	ck_assert_msg(err == -FDRY_E_STATE && strstr(fdry_last_error(), says), "%d: %s", err,
		      fdry_last_error());
	ok(work_seal(b->w, "img"));
	free(bytes);
}

START_TEST(memory_allocated_meanwhile)
{
	struct work w;
	struct beside b = { .w = &w };

	work_make(&w);
	graph_add(&w, 1);
	check_beside(&b, "device memory was allocated or freed during the seal");
	work_end(&w);
}
END_TEST

/* Memory that was allocated and freed again has no entry in the ledger. The seal notices it all the
 * same, in an aside area, too. */
START_TEST(memory_allocated_and_freed_meanwhile)
{
	struct work w;
	struct beside b = { .w = &w, .free = true };

	aside_make(&w);
	graph_add(&w, 1);
	ok(fdry_capture_aside(w.cap, _i));
	check_beside(&b, "device memory was allocated or freed during the seal");
	work_end(&w);
}
END_TEST

START_TEST(graphs_launched_meanwhile)
{
	struct work w;
	struct beside b = { .w = &w };
	CUgraph graph;

	work_make(&w);
	capture_start(&w);
	launch_add(&w, w.a, w.b, w.c);
	graph = capture_stop(&w);
	ok(fdry_capture_graph(w.cap, 1, NULL, graph));
	cuda_ok(cuGraphInstantiateWithFlags, &b.exec, graph, 0);
	check_beside(&b, "graphs were launched while the seal ran");
	work_end(&w);
}
END_TEST

/* --- out-parameters of calls that fail --- */

START_TEST(out_parameters_are_untouched_on_failure)
{
	struct fdry_seal_report report = { .sz = sizeof(report), .nodes = 77, .total_ms = 5 };
	char id[FDRY_ID_SIZE] = "nothing yet";
	struct work w;

	work_make(&w);
	ck_assert_int_eq(fdry_capture_seal(w.cap, w.store, "img", id, &report), -FDRY_E_STATE);
	ck_assert_uint_eq(report.nodes, 77);
	ck_assert(report.total_ms == 5);
	ck_assert_str_eq(id, "nothing yet");
	report.sz = 3;
	graph_add(&w, 1);
	fails(OPTS, "3 bytes", fdry_capture_seal(w.cap, w.store, "img", id, &report));
	report.sz = sizeof(report);
	ok(fdry_capture_seal(w.cap, w.store, "img", id, &report));
	ck_assert_uint_eq(report.nodes, 1);
	ck_assert_uint_eq(report.graphs, 1);
	ck_assert_uint_eq(report.kernels, 1);
	ck_assert_uint_gt(report.total_ms, 0);
	ck_assert(report.total_ms >=
		  report.graphs_ms + report.kernels_ms + report.content_ms + report.commit_ms);
	work_end(&w);
}
END_TEST

/* --- progress --- */

struct reports {
	struct work *w;
	int phase;      /* the last phase */
	unsigned phases; /* a bit for each phase that was complete */
	uint64_t bytes; /* of content */
	double ms;
};

static void report_note(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	struct reports *r = arg;
	uint64_t offset;

	ck_assert_int_ge(phase, r->phase);
	ck_assert(ms >= r->ms);
	ck_assert_uint_le(done, total);
	if (done == total)
		r->phases |= 1u << phase;
	if (phase == FDRY_SEAL_CONTENT)
		r->bytes = done;
	r->phase = phase;
	r->ms = ms;
	fails(STATE, "waits for its progress function", fdry_capture_offset(r->w->cap, &offset));
	fails(STATE, "waits for its progress function",
	      fdry_capture_progress(r->w->cap, NULL, NULL));
	fdry_capture_end(r->w->cap);
}

/* Each phase is reported in its order, up to its end. */
START_TEST(progress_is_reported)
{
	struct reports r = { .phase = 0 };
	struct fdry_seal_report report = { .sz = sizeof(report) };
	struct work w;
	uint64_t first;

	work_make(&w);
	r.w = &w;
	graph_add(&w, 1);
	ok(fdry_capture_progress(w.cap, report_note, &r));
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, &report));
	ck_assert_uint_eq(r.phases, 0x1f);
	ck_assert_uint_eq(r.bytes, report.content_bytes + report.zero_bytes);
	ck_assert(r.ms > 0 && r.ms <= report.total_ms);
	/* The second seal keeps the content of the first, and counts it. */
	first = r.bytes;
	r = (struct reports){ .w = &w };
	ok(work_seal(&w, "img"));
	ck_assert_uint_eq(r.phases, 0x1f);
	ck_assert_uint_eq(r.bytes, first);
	ok(fdry_capture_progress(w.cap, NULL, NULL));
	r = (struct reports){ .w = &w };
	ok(work_seal(&w, "img"));
	ck_assert_uint_eq(r.phases, 0);
	fails(INVAL, "given no cap", fdry_capture_progress(NULL, report_note, &r));
	work_end(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_seal");
	TCase *tc = tcase_create("seal");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, end_of_the_last_allocation);
	tcase_add_test(tc, end_in_front_of_a_gap);
	tcase_add_test(tc, end_where_memory_was_freed);
	tcase_add_test(tc, end_where_the_last_was_freed);
	tcase_add_loop_test(tc, freed_aside, 0, 2);
	tcase_add_loop_test(tc, end_beside_an_aside_area, 0, 4);
	tcase_add_test(tc, freed_and_set_back);
	tcase_add_test(tc, numbers_that_look_like_addresses);
	tcase_add_test(tc, range_over_several_allocations);
	tcase_add_test(tc, range_over_freed_memory);
	tcase_add_test(tc, range_that_begins_at_an_end);
	tcase_add_test(tc, tensor_in_other_memory_of_the_same_address);
	tcase_add_test(tc, untouched_is_scratch);
	tcase_add_test(tc, touched_blocks_are_content);
	tcase_add_loop_test(tc, every_byte_of_the_stamp_counts, 0, 4);
	tcase_add_loop_test(tc, other_patterns_are_content, 0, 4);
	tcase_add_test(tc, blocks_of_an_allocation_between_two);
	tcase_add_test(tc, blocks_shared_by_allocations);
	tcase_add_test(tc, externals_inside_scratch);
	tcase_add_test(tc, external_over_content);
	tcase_add_test(tc, zeros_around_content);
	tcase_add_test(tc, content_comes_back_whatever_it_is);
	tcase_add_test(tc, memory_allocated_meanwhile);
	tcase_add_loop_test(tc, memory_allocated_and_freed_meanwhile, 0, 2);
	tcase_add_test(tc, graphs_launched_meanwhile);
	tcase_add_test(tc, out_parameters_are_untouched_on_failure);
	tcase_add_test(tc, progress_is_reported);
	suite_add_tcase(s, tc);
	return test_main(s);
}
