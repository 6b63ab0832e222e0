// SPDX-License-Identifier: Apache-2.0
/* Unit tests of graphs that draw random numbers: sequences, failures, threads, refused seals.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "tests/lib/image.h"

#define DRAWN 16 /* numbers that a kernel draws */
#define LAUNCHES 100

/* The state that the kernel "draw" of tests/sim/kernels.c receives. */
struct draw_state {
	CUdeviceptr seed, offset;
	uint32_t within;
	char captured;
	char gap[3]; /* which a compiler may leave as it was */
};

/* Compute the kernel's result. */
static uint64_t drawn(uint64_t seed, uint64_t offset, uint64_t i)
{
	uint64_t z = seed + (offset * 1000003 + i + 1) * 0x9E3779B97F4A7C15u;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

/* A work with cells: g[0] and g[1] of one generator, g[2] and g[3] of another; out, two times
 * DRAWN. */
struct drawing {
	struct work w;
	CUfunction draw, tally;
	CUdeviceptr g[4], out;
};

static void drawing_make(struct drawing *d)
{
	struct fdry_tensor out = { .name = "out", .dtype = FDRY_U64, .use = FDRY_USE_OUTPUT,
				   .rank = 1, .shape = { 2 * DRAWN }, .stride = { 1 } };
	int i;

	work_make(&d->w);
	for (i = 0; i < 4; i++)
		cuda_ok(cuMemAlloc_v2, &d->g[i], 8);
	cuda_ok(cuMemAlloc_v2, &out.addr, 16 * DRAWN);
	cuda_ok(cuModuleGetFunction, &d->draw, d->w.module, "draw");
	cuda_ok(cuModuleGetFunction, &d->tally, d->w.module, "tally");
	for (i = 0; i < 4; i++)
		cuda_ok(cuMemsetD8Async, d->g[i], 0x77, 8, d->w.stream);
	cuda_ok(cuMemsetD8Async, out.addr, 0, 16 * DRAWN, d->w.stream);
	cuda_ok(cuStreamSynchronize, d->w.stream);
	ok(fdry_capture_tensor(d->w.cap, &out));
	d->out = out.addr;
}

static void kernel_add(struct drawing *d, CUfunction kernel, int cells, uint32_t within, int half)
{
	struct draw_state state = {
		.seed = d->g[cells], .offset = d->g[cells + 1], .within = within, .captured = 1
	};
	CUdeviceptr out = d->out + (CUdeviceptr)half * 8 * DRAWN;
	int n = DRAWN;
	void *args[] = { &out, &state, &n };

	cuda_ok(cuLaunchKernel, kernel, 1, 1, 1, DRAWN, 1, 1, 0, d->w.stream, args, NULL);
}

static void draw_add(struct drawing *d, int cells, uint32_t within, int half)
{
	kernel_add(d, d->draw, cells, within, half);
}

static struct fdry_rng_use draw_of(const struct drawing *d, const char *name, int cells,
				   uint64_t increment)
{
	return (struct fdry_rng_use){ name, d->g[cells], d->g[cells + 1], increment };
}

/* Draw once from "g", and end the capture as graph 1. */
static void once_add(struct drawing *d)
{
	struct fdry_rng_use draw = draw_of(d, "g", 0, 4);

	draw_add(d, 0, 0, 0);
	ok(fdry_capture_graph(d->w.cap, 1, "once", capture_stop(&d->w)));
	ok(fdry_capture_rng_use(d->w.cap, 1, &draw));
}

/*
 * Graph 1 draws twice from "g", 4 apart, in all 8; graph 2 once from "g" with the same cells, 4;
 * graph 3 from "g" and "h", whose cells are its own; graph 4 draws nothing; graph 5 adds up numbers
 * that it draws from "g".
 */
static void drawing_seal(void *arg)
{
	static struct drawing d;
	struct fdry_rng_use draw;

	(void)arg;
	drawing_make(&d);
	capture_start(&d.w);
	draw_add(&d, 0, 0, 0);
	draw_add(&d, 0, 4, 1);
	ok(fdry_capture_graph(d.w.cap, 1, "twice", capture_stop(&d.w)));
	ok(fdry_capture_rng(d.w.cap, 1));
	draw = draw_of(&d, "g", 0, 8);
	ok(fdry_capture_rng_use(d.w.cap, 1, &draw));
	capture_start(&d.w);
	draw_add(&d, 0, 0, 0);
	ok(fdry_capture_graph(d.w.cap, 2, "once", capture_stop(&d.w)));
	draw.increment = 4;
	ok(fdry_capture_rng_use(d.w.cap, 2, &draw));
	capture_start(&d.w);
	draw_add(&d, 2, 0, 0);
	draw_add(&d, 0, 0, 1);
	ok(fdry_capture_graph(d.w.cap, 3, "both", capture_stop(&d.w)));
	draw = draw_of(&d, "h", 2, 12);
	ok(fdry_capture_rng_use(d.w.cap, 3, &draw));
	draw = draw_of(&d, "g", 0, 4);
	ok(fdry_capture_rng_use(d.w.cap, 3, &draw));
	graph_add(&d.w, 4);
	capture_start(&d.w);
	kernel_add(&d, d.tally, 0, 0, 0);
	ok(fdry_capture_graph(d.w.cap, 5, "tally", capture_stop(&d.w)));
	ok(fdry_capture_rng_use(d.w.cap, 5, &draw));
	ok(work_seal(&d.w, "img"));
	work_end(&d.w);
}

static void half_is(struct fdry_image *img, int half, uint64_t seed, uint64_t offset)
{
	uint64_t v[2 * DRAWN];
	uint64_t i;

	ok(fdry_image_read(img, "out", v, sizeof(v), NULL));
	for (i = 0; i < DRAWN; i++)
		ck_assert_msg(v[half * DRAWN + i] == drawn(seed, offset, i),
			      "number %d of half %d is not that of seed %#llx, offset %llu", (int)i,
			      half, (unsigned long long)seed, (unsigned long long)offset);
}

static void state_is(struct fdry_image *img, const char *name, uint64_t seed, uint64_t offset)
{
	struct fdry_rng_state s = { 0 };

	ok(fdry_image_rng_state(img, name, &s));
	ck_assert_uint_eq(s.seed, seed);
	ck_assert_uint_eq(s.offset, offset);
}

/* --- sequences --- */

/* Launch graphs that share a generator in turns, with seeds between: in the primary context, in a
 * context of the image's own, and with the check for overlap. */
START_TEST(a_hundred_launches)
{
	static const uint32_t flags[] = { 0, FDRY_LOAD_OWN_CONTEXT, FDRY_LOAD_CHECK_OVERLAP };
	uint64_t seed = FDRY_RNG_SEED, g = 0;
	struct fdry_image *img;
	int i;

	test_child(drawing_seal, NULL);
	img = load_with(flags[_i]);
	for (i = 0; i < LAUNCHES; i++) {
		if (i % 37 == 36) {
			seed = 0xfedcba9876543210u + (uint64_t)i;
			ok(fdry_image_rng_seed(img, i % 2 ? "g" : NULL, seed));
			g = 0;
		}
		ok(fdry_image_launch(img, 1, NULL));
		half_is(img, 0, seed, g);
		half_is(img, 1, seed, g + 4);
		g += 8;
		ok(fdry_image_launch(img, 2, NULL));
		half_is(img, 0, seed, g);
		g += 4;
		ok(fdry_image_launch(img, 3, NULL));
		half_is(img, 1, seed, g);
		g += 4;
		state_is(img, "g", seed, g);
	}
	fdry_image_unload(img);
}
END_TEST

/* A hundred launches without waits each draw their own numbers. */
START_TEST(launches_faster_than_the_stream)
{
	struct fdry_image *img;
	CUstream stream = NULL;
	CUresult (*query)(CUstream);
	int i;

	test_child(drawing_seal, NULL);
	img = load_with(0);
	test_sim();
	*(void **)&query = test_sim_symbol("cuStreamQuery");
	ok(fdry_image_rng_seed(img, NULL, 5));
	for (i = 0; i < LAUNCHES; i++)
		ok(fdry_image_launch(img, 2, stream));
	half_is(img, 0, 5, 4 * (LAUNCHES - 1));
	state_is(img, "g", 5, 4 * LAUNCHES);
	state_is(img, "h", 5, 0);
	ck_assert_int_eq(query(stream), CUDA_SUCCESS);
	fdry_image_unload(img);
}
END_TEST

static void CUDA_CB wait_for(void *sem)
{
	sem_wait(sem);
}

/* Make a stream whose work waits for @go, if that is not NULL. */
static CUstream stream_make(sem_t *go)
{
	CUstream s;

	ck_assert_int_eq(test_sim()->cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	if (go) {
		ck_assert(!sem_init(go, 0, 0));
		ck_assert_int_eq(test_sim()->cuLaunchHostFunc(s, wait_for, go), CUDA_SUCCESS);
	}
	return s;
}

/* Check that graph 5 was launched @launches times, and each launch added numbers of its own. Reads
 * after the work of @stream.
 */
static void sums_are(struct fdry_image *img, CUstream stream, uint64_t launches)
{
	uint64_t v[2 * DRAWN], want, i, k;

	ok(fdry_image_read(img, "out", v, sizeof(v), stream));
	for (i = 0; i < DRAWN; i++) {
		for (want = 0, k = 0; k < launches; k++)
			want += drawn(FDRY_RNG_SEED, 4 * k, i);
		ck_assert_uint_eq(v[i], want);
	}
}

/* On streams that nothing orders, launches of one graph follow each other, and so do its
 * numbers. */
START_TEST(streams_wait_for_each_other)
{
	static const uint32_t flags[] = { 0, FDRY_LOAD_OWN_CONTEXT, FDRY_LOAD_CHECK_OVERLAP };
	struct fdry_image *img;
	CUstream a, b;
	sem_t go;

	test_child(drawing_seal, NULL);
	img = load_with(flags[_i]);
	a = stream_make(&go);
	b = stream_make(NULL);
	ok(fdry_image_launch(img, 5, a));
	ok(fdry_image_launch(img, 5, b));
	usleep(20000);
	sem_post(&go);
	ok(fdry_image_launch(img, 5, a));
	ok(fdry_image_synchronize(img, b));
	sums_are(img, a, 3);
	fdry_image_unload(img);
}
END_TEST

/* A new stream may have the handle of a destroyed stream whose launch still runs. It must wait like
 * any other stream. */
START_TEST(a_handle_that_comes_again)
{
	struct fdry_image *img;
	CUstream a, b;
	sem_t go;

	test_child(drawing_seal, NULL);
	img = load_with(FDRY_LOAD_BUILD);
	a = stream_make(&go);
	ok(fdry_image_launch(img, 5, a));
	ck_assert_int_eq(test_sim()->cuStreamDestroy_v2(a), CUDA_SUCCESS);
	b = stream_make(NULL);
	ck_assert_ptr_eq(a, b);
	ok(fdry_image_launch(img, 5, b));
	usleep(20000);
	sem_post(&go);
	sums_are(img, b, 2);
	fdry_image_unload(img);
}
END_TEST

/* If a stream failed to wait, the next launch does not wait for that stream. */
START_TEST(a_wait_that_fails)
{
	struct fdry_image *img;
	CUstream a, b;
	sem_t go;

	test_child(drawing_seal, NULL);
	img = load_with(0);
	a = stream_make(&go);
	b = stream_make(NULL);
	ok(fdry_image_launch(img, 5, a));
	test_sim_fail("cuStreamWaitEvent:1");
	fails(DRIVER, "cuStreamWaitEvent", fdry_image_launch(img, 5, b));
	test_sim_fail(NULL);
	ok(fdry_image_launch(img, 5, b));
	usleep(20000);
	sem_post(&go);
	sums_are(img, b, 2);
	fdry_image_unload(img);
}
END_TEST

START_TEST(states_are_set_and_wrap)
{
	const struct fdry_rng_state last = { 1ull << 63 | 9, UINT64_MAX - 3 };
	struct fdry_image *img;

	test_child(drawing_seal, NULL);
	img = load_with(0);
	state_is(img, "h", FDRY_RNG_SEED, 0);
	ok(fdry_image_rng_set_state(img, "g", &last));
	ok(fdry_image_launch(img, 1, NULL));
	half_is(img, 0, last.seed, last.offset);
	half_is(img, 1, last.seed, 0);
	state_is(img, "g", last.seed, 4);
	ok(fdry_image_rng_advance(img, "g", 100));
	ok(fdry_image_launch(img, 2, NULL));
	half_is(img, 0, last.seed, 104);
	ok(fdry_image_launch(img, 4, NULL));
	state_is(img, "g", last.seed, 108);
	ok(fdry_image_restore(img, NULL));
	state_is(img, "g", last.seed, 108);
	fdry_image_unload(img);
}
END_TEST

START_TEST(states_of_the_callers)
{
	struct fdry_rng_state s[2] = { { 3, 40 }, { 4, 80 } };
	struct fdry_image *img;

	test_child(drawing_seal, NULL);
	img = load_with(0);
	ok(fdry_image_launch_rng(img, 3, NULL, s, 2));
	half_is(img, 0, 4, 80);
	half_is(img, 1, 3, 40);
	state_is(img, "g", FDRY_RNG_SEED, 0);
	fails(INVAL, "the image has 2 generators, but 1 states were given",
	      fdry_image_launch_rng(img, 3, NULL, s, 1));
	fails(INVAL, "NULL", fdry_image_launch_rng(img, 3, NULL, NULL, 2));
	fdry_image_unload(img);
}
END_TEST

START_TEST(descriptions_of_generators)
{
	struct fdry_image *img;
	const char *name = NULL;
	struct fdry_rng_use d = { 0 };
	struct fdry_rng_state s;

	test_child(drawing_seal, NULL);
	img = load_with(0);
	ck_assert_uint_eq(fdry_image_rng_count(img), 2);
	ok(fdry_image_rng(img, 1, &name));
	ck_assert_str_eq(name, "h");
	ok(fdry_image_rng_use(img, 3, 1, &d));
	ck_assert_str_eq(d.generator, "h");
	ck_assert_uint_eq(d.increment, 12);
	fails(NOKEY, "2 generators", fdry_image_rng_use(img, 3, 2, &d));
	fails(NOKEY, "0 generators", fdry_image_rng_use(img, 4, 0, &d));
	fails(NOKEY, "no graph with key 9", fdry_image_rng_use(img, 9, 0, &d));
	fails(NOKEY, "number 2 was asked for", fdry_image_rng(img, 2, &name));
	fails(NOKEY, "no generator 'x'", fdry_image_rng_seed(img, "x", 1));
	fails(NOKEY, "no generator 'x'", fdry_image_rng_state(img, "x", &s));
	described_as("graph 1 draws 8 from 'g', seed at 0x");
	fdry_image_unload(img);
}
END_TEST

/* --- failures --- */

/* The N-th of the writes, and the launch. */
START_TEST(a_launch_that_fails_draws_nothing)
{
	static const char *const specs[] = { "cuMemsetD32Async:1", "cuMemsetD32Async:2",
					     "cuMemsetD32Async:4", "cuGraphLaunch:1" };
	struct fdry_image *img;

	test_child(drawing_seal, NULL);
	img = load_with(0);
	test_sim();
	ok(fdry_image_launch(img, 2, NULL));
	test_sim_fail(specs[_i]);
	ck_assert_int_ne(fdry_image_launch(img, 2, NULL), 0);
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	state_is(img, "g", FDRY_RNG_SEED, 4);
	ok(fdry_image_launch(img, 2, NULL));
	half_is(img, 0, FDRY_RNG_SEED, 4);
	fails(NOKEY, "key 9", fdry_image_launch(img, 9, NULL));
	state_is(img, "g", FDRY_RNG_SEED, 8);
	fdry_image_unload(img);
}
END_TEST

/* A call after the launch fails: the graph runs and draws, so the caller learns that the launch was
 * made. */
START_TEST(a_launch_that_was_made_draws)
{
	static const struct {
		uint32_t flags;
		const char *spec;
	} ways[] = {
		{ FDRY_LOAD_OWN_CONTEXT, "cuEventRecord:2" },
		{ FDRY_LOAD_OWN_CONTEXT, "cuStreamWaitEvent:3" },
		{ FDRY_LOAD_CHECK_OVERLAP, "cuEventRecord:1" },
	};
	struct fdry_image *img;

	test_child(drawing_seal, NULL);
	img = load_with(ways[_i].flags);
	test_sim();
	ok(fdry_image_launch(img, 2, NULL));
	test_sim_fail(ways[_i].spec);
	ok(fdry_image_launch(img, 2, NULL));
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	half_is(img, 0, FDRY_RNG_SEED, 4);
	state_is(img, "g", FDRY_RNG_SEED, 8);
	ok(fdry_image_launch(img, 2, NULL));
	half_is(img, 0, FDRY_RNG_SEED, 8);
	fdry_image_unload(img);
}
END_TEST

struct launcher {
	struct fdry_image *img;
	uint64_t key; /* 0: 1 to 3 in turns */
	int launches; /* of each thread */
	pthread_barrier_t all;
	_Atomic int errors;
};

static void *launch_many(void *arg)
{
	struct launcher *l = arg;
	int i;

	pthread_barrier_wait(&l->all);
	for (i = 0; i < l->launches; i++)
		if (fdry_image_launch(l->img, l->key ? l->key : 1 + (uint64_t)(i % 3), NULL))
			l->errors++;
	return NULL;
}

static void launch_by_four(struct launcher *l)
{
	pthread_t t[4];
	int i;

	pthread_barrier_init(&l->all, NULL, 4);
	for (i = 0; i < 4; i++)
		ck_assert(!pthread_create(&t[i], NULL, launch_many, l));
	for (i = 0; i < 4; i++)
		ck_assert(!pthread_join(t[i], NULL));
	pthread_barrier_destroy(&l->all);
	ck_assert_int_eq(l->errors, 0);
}

/* No number is drawn twice or left out: no thread writes its cells between another thread's write
 * and its launch. */
START_TEST(threads_draw_their_own)
{
	struct launcher l = { .key = 5, .launches = 10 * LAUNCHES };
	uint64_t v[2 * DRAWN], sum;
	uint64_t i, k;

	test_child(drawing_seal, NULL);
	l.img = load_with(FDRY_LOAD_BUILD);
	launch_by_four(&l);
	ok(fdry_image_read(l.img, "out", v, sizeof(v), NULL));
	for (i = 0; i < DRAWN; i++) {
		for (sum = 0, k = 0; k < 40 * LAUNCHES; k++)
			sum += drawn(FDRY_RNG_SEED, 4 * k, i);
		ck_assert_uint_eq(v[i], sum);
	}
	fdry_image_unload(l.img);
}
END_TEST

/* Every launch counts once. */
START_TEST(many_threads)
{
	struct launcher l = { .launches = LAUNCHES };
	uint64_t g = 0;
	int i;

	test_child(drawing_seal, NULL);
	l.img = load_with(FDRY_LOAD_BUILD);
	launch_by_four(&l);
	for (i = 0; i < LAUNCHES; i++)
		g += i % 3 ? 4 : 8;
	state_is(l.img, "g", FDRY_RNG_SEED, 4 * g);
	state_is(l.img, "h", FDRY_RNG_SEED, 4ull * 12 * (LAUNCHES / 3));
	fdry_image_unload(l.img);
}
END_TEST

/* --- the capturing side --- */

static void refusals(void *arg)
{
	static struct drawing d;
	struct fdry_rng_use draw;
	CUdeviceptr freed;

	(void)arg;
	drawing_make(&d);
	cuda_ok(cuMemAlloc_v2, &freed, 4096);
	draw = draw_of(&d, "g", 0, 4);
	fails(NOKEY, "no graph with key 1", fdry_capture_rng_use(d.w.cap, 1, &draw));
	capture_start(&d.w);
	draw_add(&d, 0, 0, 0);
	ok(fdry_capture_graph(d.w.cap, 1, "once", capture_stop(&d.w)));
	draw.generator = "a b";
	fails(NAME, "a b", fdry_capture_rng_use(d.w.cap, 1, &draw));
	draw = draw_of(&d, "g", 0, 4);
	draw.seed += 4;
	fails(RANGE, "seed at", fdry_capture_rng_use(d.w.cap, 1, &draw));
	draw = draw_of(&d, "g", 0, 4);
	draw.offset = d.w.before;
	fails(RANGE, "offset at", fdry_capture_rng_use(d.w.cap, 1, &draw));
	draw.offset = draw.seed;
	fails(INVAL, "the same address", fdry_capture_rng_use(d.w.cap, 1, &draw));
	ok(fdry_capture_rng(d.w.cap, 1));
	fails(REFUSED, "graph 1 'once': it draws random numbers", work_seal(&d.w, "img"));
	draw.seed = freed;
	draw.offset = d.g[1];
	ok(fdry_capture_rng_use(d.w.cap, 1, &draw));
	fails(EXISTS, "declared before", fdry_capture_rng_use(d.w.cap, 1, &draw));
	draw.generator = "k";
	draw.seed = d.g[0];
	fails(EXISTS, "share a slot in graph 1", fdry_capture_rng_use(d.w.cap, 1, &draw));
	fails(REFUSED, "no kernel has as an argument the address of the seed of generator 'g'",
	      work_seal(&d.w, "img"));
	cuda_ok(cuMemFree_v2, freed);
	fails(STATE, "of the seed of generator 'g' was freed", work_seal(&d.w, "img"));
	work_end(&d.w);
}

START_TEST(wrong_uses_are_refused)
{
	test_child(refusals, NULL);
}
END_TEST

/* A copy in the graph that writes the seed. */
static void touched(void *arg)
{
	static struct drawing d;

	(void)arg;
	drawing_make(&d);
	capture_start(&d.w);
	if (arg)
		cuda_ok(cuMemsetD8Async, d.g[1], 1, 4, d.w.stream);
	else
		cuda_ok(cuMemcpyDtoDAsync_v2, d.g[0], d.w.a, 8, d.w.stream);
	once_add(&d);
	fails(REFUSED, "copies or sets the state of generator 'g'", work_seal(&d.w, "img"));
	work_end(&d.w);
}

/* The image has no bytes there. */
static void outside(void *arg)
{
	struct fdry_tensor t = { .name = "state", .dtype = FDRY_U64,
				 .flags = FDRY_TENSOR_EXTERNAL };
	static struct drawing d;

	(void)arg;
	drawing_make(&d);
	capture_start(&d.w);
	once_add(&d);
	t.addr = d.g[1];
	ok(fdry_capture_tensor(d.w.cap, &t));
	fails(REFUSED, "graph 1: the offset of generator 'g' is in an external tensor",
	      work_seal(&d.w, "img"));
	work_end(&d.w);
}

START_TEST(cells_in_an_external_tensor)
{
	test_child(outside, NULL);
}
END_TEST

START_TEST(cells_that_the_graph_writes)
{
	test_child(touched, _i ? "set" : NULL);
}
END_TEST

/* The search finds cells that kernels of child graphs read, too. */
static void search_children(void *arg)
{
	static struct drawing d;
	struct fdry_rng_slot cells[16];
	size_t i, n = 0, found = 0;
	CUgraph inner, outer;
	CUgraphNode node;

	(void)arg;
	drawing_make(&d);
	capture_start(&d.w);
	draw_add(&d, 0, 0, 0);
	inner = capture_stop(&d.w);
	for (i = 0; i < 2; i++, inner = outer) {
		cuda_ok(cuGraphCreate, &outer, 0);
		cuda_ok(cuGraphAddChildGraphNode, &node, outer, NULL, 0, inner);
		cuda_ok(cuGraphDestroy, inner);
	}
	ok(fdry_capture_graph(d.w.cap, 1, "child", inner));
	ok(fdry_capture_rng_slots(d.w.cap, 1, cells, 16, &n));
	ck_assert_uint_eq(n, 3); /* seed, offset, out */
	for (i = 0; i < n; i++)
		found += cells[i].addr == d.g[0] || cells[i].addr == d.g[1];
	ck_assert_uint_eq(found, 2);
	work_end(&d.w);
}

/* Test the search that finds a framework's cells. */
static void search(void *arg)
{
	static struct drawing d;
	struct fdry_rng_slot cells[16];
	size_t i, n = 0, seeds = 0;

	(void)arg;
	drawing_make(&d);
	capture_start(&d.w);
	draw_add(&d, 0, 0, 0);
	draw_add(&d, 0, 4, 0);
	ok(fdry_capture_graph(d.w.cap, 1, "once", capture_stop(&d.w)));
	capture_start(&d.w);
	cuda_ok(cuMemcpyDtoDAsync_v2, d.w.b + 12, d.w.a + 20, 8, d.w.stream);
	cuda_ok(cuMemsetD8Async, d.w.b + 67, 1, 4, d.w.stream);
	ok(fdry_capture_graph(d.w.cap, 3, "copies", capture_stop(&d.w)));
	ok(fdry_capture_rng_slots(d.w.cap, 3, cells, 16, &n));
	ck_assert_uint_eq(n, 3);
	ck_assert_uint_eq(cells[0].addr, d.w.a + 16);
	ck_assert_uint_eq(cells[1].addr, d.w.b + 8);
	ck_assert_uint_eq(cells[2].addr, d.w.b + 64);
	ok(fdry_capture_rng_slots(d.w.cap, 1, cells, 16, &n));
	ck_assert_uint_eq(n, 3); /* seed, offset, out */
	for (i = 0; i < n; i++) {
		ck_assert(!i || cells[i].addr > cells[i - 1].addr);
		seeds += cells[i].addr == d.g[0];
		if (cells[i].addr == d.g[0] || cells[i].addr == d.g[1])
			ck_assert_uint_eq(cells[i].value, 0x7777777777777777u);
		else
			ck_assert_uint_eq(cells[i].addr, d.out);
	}
	ck_assert_uint_eq(seeds, 1);
	n = 0;
	ok(fdry_capture_rng_slots(d.w.cap, 1, NULL, 0, &n));
	ck_assert_uint_eq(n, 3);
	fails(NOKEY, "key 2", fdry_capture_rng_slots(d.w.cap, 2, cells, 16, &n));
	capture_start(&d.w);
	fails(STATE, "capturing", fdry_capture_rng_slots(d.w.cap, 1, cells, 16, &n));
	(void)capture_stop(&d.w);
	work_end(&d.w);
}

/* The image lacks a generator that only a skipped graph uses, and its cells may be gone. */
static void seal_without(void *arg)
{
	static struct drawing d;
	struct fdry_rng_use draw;
	int i;

	(void)arg;
	drawing_make(&d);
	for (i = 0; i < 2; i++) {
		capture_start(&d.w);
		draw_add(&d, 2 * i, 0, 0);
		ok(fdry_capture_graph(d.w.cap, 1 + (uint64_t)i, "once", capture_stop(&d.w)));
		draw = draw_of(&d, i ? "h" : "g", 2 * i, 4);
		ok(fdry_capture_rng_use(d.w.cap, 1 + (uint64_t)i, &draw));
	}
	ok(fdry_capture_graph_skip(d.w.cap, 2, 1));
	cuda_ok(cuMemFree_v2, d.g[3]);
	ok(work_seal(&d.w, "img"));
	ok(fdry_capture_graph_skip(d.w.cap, 2, 0));
	fails(STATE, "offset of generator 'h' was freed before the seal", work_seal(&d.w, "img"));
	work_end(&d.w);
}

START_TEST(draws_of_a_graph_that_is_left_out)
{
	struct fdry_image *img;

	test_child(seal_without, NULL);
	img = load_with(0);
	ck_assert_uint_eq(fdry_image_rng_count(img), 1);
	ok(fdry_image_rng_seed(img, "g", 7));
	ok(fdry_image_launch(img, 1, NULL));
	half_is(img, 0, 7, 0);
	fdry_image_unload(img);
}
END_TEST

START_TEST(cells_are_found)
{
	test_child(_i ? search_children : search, NULL);
}
END_TEST

/* The image is the same for any values in the cells. */
static void seal_with(void *id)
{
	static struct drawing d;
	char *text = id;

	drawing_make(&d);
	capture_start(&d.w);
	once_add(&d);
	cuda_ok(cuMemsetD8Async, d.g[0], (unsigned char)text[0], 8, d.w.stream);
	cuda_ok(cuStreamSynchronize, d.w.stream);
	ok(fdry_capture_seal(d.w.cap, d.w.store, text[0] == 'a' ? "a" : "b", NULL, NULL));
	work_end(&d.w);
}

START_TEST(cells_have_no_content)
{
	struct fdry_image *a = NULL, *b = NULL;
	char ids[2][FDRY_ID_SIZE];

	test_child(seal_with, "a");
	test_child(seal_with, "b");
	ok(fdry_image_load(load_store(), "a", NULL, &a));
	fdry_image_id(a, ids[0]);
	fdry_image_unload(a);
	ok(fdry_image_load(load_store(), "b", NULL, &b));
	fdry_image_id(b, ids[1]);
	fdry_image_unload(b);
	ck_assert_str_eq(ids[0], ids[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_random");
	TCase *t = tcase_create("random");

	tcase_add_checked_fixture(t, dir_setup, dir_teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_hundred_launches, 0, 3);
	tcase_add_test(t, launches_faster_than_the_stream);
	tcase_add_loop_test(t, streams_wait_for_each_other, 0, 3);
	tcase_add_test(t, a_handle_that_comes_again);
	tcase_add_test(t, a_wait_that_fails);
	tcase_add_test(t, states_are_set_and_wrap);
	tcase_add_test(t, states_of_the_callers);
	tcase_add_test(t, descriptions_of_generators);
	tcase_add_loop_test(t, a_launch_that_fails_draws_nothing, 0, 4);
	tcase_add_loop_test(t, a_launch_that_was_made_draws, 0, 3);
	tcase_add_test(t, many_threads);
	tcase_add_test(t, threads_draw_their_own);
	tcase_add_test(t, wrong_uses_are_refused);
	tcase_add_loop_test(t, cells_that_the_graph_writes, 0, 2);
	tcase_add_test(t, cells_in_an_external_tensor);
	tcase_add_test(t, draws_of_a_graph_that_is_left_out);
	tcase_add_loop_test(t, cells_are_found, 0, 2);
	tcase_add_test(t, cells_have_no_content);
	suite_add_tcase(s, t);
	return test_main(s);
}
