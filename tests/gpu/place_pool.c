// SPDX-License-Identifier: Apache-2.0
/*
 * Images with stream-ordered memory, placed among a process' own allocations on a GPU: the process
 * makes some of the image's pieces itself, and the load claims the others.
 *
 * It can also run on the software driver: place_pool $BUILD/foundry/sim/libcuda.so.1
 */
#include "tests/lib/gpu_work.h"

#define KEY 1u
#define PIECES 4
#define FAR (8u << 20) /* a place in the last piece */
#define NUMBER 5u      /* that lies there */

static const size_t sizes[PIECES] = { 100, 3u << 20, 3u << 20, 40u << 20 };

static void pieces_make(struct gpu_work *w, int from, int to, CUdeviceptr p[PIECES])
{
	for (; from < to; from++)
		cuda_ok(cuMemAllocAsync, &p[from], sizes[from], w->stream);
	cuda_ok(cuStreamSynchronize, w->stream);
}

static void step_launch(struct gpu_work *w, CUdeviceptr at, uint64_t salt)
{
	uint32_t none = 0;
	void *args[] = { &at, &salt, &none };

	cuda_ok(cuLaunchKernel, w->step, 1, 1, 1, 1, 1, 1, 0, w->stream, args, NULL);
}

static void copy_launch(struct gpu_work *w, CUdeviceptr to, CUdeviceptr from)
{
	cuda_ok(cuMemcpyDtoDAsync_v2, to, from, 8, w->stream);
}

/* A number in the last piece becomes x[0], by way of all pieces. */
static void seal_pool(void *unused)
{
	uint64_t number = NUMBER;
	CUdeviceptr p[PIECES];
	struct gpu_work w;
	CUgraph g;

	(void)unused;
	gpu_work_begin(&w);
	pieces_make(&w, 0, PIECES, p);
	cuda_ok(cuMemcpyHtoD_v2, p[3] + FAR, &number, 8);
	cuda_ok(cuMemsetD8_v2, p[0], 0, sizes[0]);
	cuda_ok(cuStreamBeginCapture_v2, w.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	copy_launch(&w, p[1], p[3] + FAR);
	step_launch(&w, p[1], 1);
	copy_launch(&w, p[2] + 512, p[1]);
	step_launch(&w, p[2] + 512, 2);
	copy_launch(&w, p[0], p[2] + 512);
	step_launch(&w, p[0], 3);
	copy_launch(&w, w.x, p[0]);
	cuda_ok(cuStreamEndCapture, w.stream, &g);
	ok(fdry_capture_graph(w.cap, KEY, "pool", g));
	ok(fdry_capture_seal(w.cap, w.store, "pool", NULL, NULL));
	gpu_work_end(&w);
}

static void number_check(struct fdry_image *img)
{
	const uint64_t zero[64] = { 0 };
	uint64_t x[64];

	ok(fdry_image_write(img, "x", zero, sizeof(zero), NULL));
	ok(fdry_image_launch(img, KEY, NULL));
	ok(fdry_image_read(img, "x", x, sizeof(x), NULL));
	ck_assert_uint_eq(x[0], gpu_stepped(gpu_stepped(gpu_stepped(NUMBER, 1), 2), 3));
}

static bool overlaps(CUdeviceptr a, size_t na, CUdeviceptr b, size_t nb)
{
	return a < b + nb && b < a + na;
}

/* The process has made @mine pieces. While the image is loaded, new pieces lie elsewhere. */
static void loaded_twice(struct gpu_work *w, int mine)
{
	struct fdry_memory none;
	struct fdry_load_opts opts = { .sz = sizeof(opts), .into = w->cap, .keep = &none };
	struct fdry_image *img = NULL;
	CUdeviceptr more[PIECES];
	int round, i;

	for (round = 0; round < 2; round++) {
		ok(fdry_image_load(w->store, "pool", &opts, &img));
		number_check(img);
		pieces_make(w, 0, PIECES, more);
		for (i = 0; i < PIECES; i++)
			cuda_ok(cuMemsetD8_v2, more[i], 0x55, sizes[i]);
		cuda_ok(cuCtxSynchronize);
		number_check(img);
		for (i = 0; i < PIECES; i++)
			cuda_ok(cuMemFreeAsync, more[i], w->stream);
		cuda_ok(cuStreamSynchronize, w->stream);
		fdry_image_unload(img);
	}
	printf("%d of %d pieces made by the process, %d claimed: 4 launches, each number right\n",
	       mine, PIECES, PIECES - mine);
	fflush(stdout);
}

/* Runs in a child, since each process has one capture. After the image, the process gets the other
 * pieces, and none of its own again. */
static void load_pool(void *arg)
{
	int mine = *(int *)arg, i, k;
	CUdeviceptr p[PIECES];
	struct gpu_work w;

	gpu_work_begin(&w);
	pieces_make(&w, 0, mine, p);
	loaded_twice(&w, mine);
	pieces_make(&w, mine, PIECES, p);
	for (i = 0; i < PIECES; i++)
		for (k = 0; k < i; k++)
			ck_assert(!overlaps(p[i], sizes[i], p[k], sizes[k]));
	gpu_work_end(&w);
}

START_TEST(pieces_of_the_process_and_claims)
{
	int mine = _i;

	test_child(seal_pool, NULL);
	test_child(load_pool, &mine);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("place_pool");
	TCase *tc = tcase_create("pool");

	gpu_work_main(argc, argv);
	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, pieces_of_the_process_and_claims, 0, PIECES + 1);
	suite_add_tcase(s, tc);
	return test_main(s);
}
