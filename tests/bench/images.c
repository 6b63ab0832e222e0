// SPDX-License-Identifier: Apache-2.0
/*
 * images.c - the cost of loading many images of one workload into one region, beside one image of
 * the whole workload, on the software driver. A program that saves its graphs one by one makes many
 * images: image i holds graph i and all memory, and the last one holds all graphs.
 *
 * images [IMAGES [KERNELS [NODES]]]
 *
 * Every graph has NODES nodes, which launch KERNELS kernels of as many objects. Each way runs in a
 * process of its own and ends when every graph was launched once. Milliseconds, the least of three;
 * "objects" is what was read, in KiB.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch/driver.h"
#include "foundry.h"
#include "lib/clock.h"
#include "tests/lib/need.h"
#include "tests/lib/workload.h"

#define IMAGES_MAX 256

static char store_path[PATH_MAX];
static unsigned int images = 64;
static struct workload w = {
	.base = 0x200000000000ull, .size = 1ull << 34, .kernels = 45, .nodes = 200, .blocks = 64
};

static void save(double *ms)
{
	struct fdry_store *store;
	char ref[32];
	unsigned int i;

	(void)ms;
	workload_begin(&w);
	workload_functions(&w);
	need(fdry_store_open(store_path, FDRY_STORE_CREATE, &store), store_path);
	for (i = 1; i <= images; i++) {
		need(fdry_capture_graph(w.cap, i, "graph", workload_graph(&w, i)),
		     "fdry_capture_graph");
		snprintf(ref, sizeof(ref), "image%u", i);
		need(fdry_capture_seal(w.cap, store, ref, NULL, NULL), ref);
		need(fdry_capture_graph_skip(w.cap, i, 1), "fdry_capture_graph_skip");
	}
	for (i = 1; i <= images; i++)
		need(fdry_capture_graph_skip(w.cap, i, 0), "fdry_capture_graph_skip");
	need(fdry_capture_seal(w.cap, store, "all", NULL, NULL), "all");
}

/* --- loading --- */

enum { TOTAL, LOAD, KERNELS, CONTENT, OBJECTS, FIGURES };

/* Load an image, and launch its graphs @first to @last. */
static void load(struct fdry_store *store, const char *ref, unsigned int first, unsigned int last,
		 double *ms)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .into = w.cap };
	struct fdry_load_report r = { .sz = sizeof(r) };
	struct fdry_image *img;

	need(fdry_image_load(store, ref, &opts, &img), ref);
	for (; first <= last; first++)
		need(fdry_image_launch(img, first, w.stream), "fdry_image_launch");
	need(fdry_call(w.drv, cuStreamSynchronize, w.stream), "cuStreamSynchronize");
	need(fdry_image_report(img, &r), "fdry_image_report");
	ms[LOAD] += r.total_ms;
	ms[KERNELS] += r.kernels_ms;
	ms[CONTENT] += r.content_ms;
	ms[OBJECTS] += (double)r.object_bytes / 1024;
}

static void one(double *ms)
{
	struct fdry_store *store;
	double mark;

	workload_begin(&w);
	mark = fdry_now_ms();
	need(fdry_store_open(store_path, 0, &store), store_path);
	load(store, "all", 1, images, ms);
	ms[TOTAL] = fdry_now_ms() - mark;
}

static void turn(double *ms)
{
	struct fdry_store *store;
	unsigned int i;
	char ref[32];
	double mark;

	workload_begin(&w);
	mark = fdry_now_ms();
	need(fdry_store_open(store_path, 0, &store), store_path);
	for (i = 1; i <= images; i++) {
		snprintf(ref, sizeof(ref), "image%u", i);
		load(store, ref, i, i, ms);
	}
	ms[TOTAL] = fdry_now_ms() - mark;
}

/* --- processes --- */

static double show(const char *name, void (*fn)(double *ms))
{
	double best[FIGURES] = { 0 }, ms[FIGURES];
	int i;

	for (i = 0; i < 3; i++) {
		workload_run(fn, ms, FIGURES);
		if (!i || ms[TOTAL] < best[TOTAL])
			memcpy(best, ms, sizeof(best));
	}
	printf("%-8s ready %8.1f  loads %8.1f  kernels %8.1f  content %8.1f  objects %8.0f\n", name,
	       best[TOTAL], best[LOAD], best[KERNELS], best[CONTENT], best[OBJECTS]);
	fflush(stdout);
	return best[TOTAL];
}

static pid_t owner; /* of the store: not a child */

static void store_remove(void)
{
	char command[PATH_MAX + 32];

	if (getpid() != owner)
		return;
	snprintf(command, sizeof(command), "rm -rf '%s'", store_path);
	(void)!system(command);
}

static unsigned int number(const char *text, unsigned int most)
{
	unsigned long n = strtoul(text, NULL, 10);

	if (!n || n > most) {
		fprintf(stderr, "images: '%s' is no number from 1 to %u\n", text, most);
		exit(EXIT_FAILURE);
	}
	return (unsigned int)n;
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	double ms[FIGURES], together;

	if (argc > 1)
		images = number(argv[1], IMAGES_MAX);
	if (argc > 2)
		w.kernels = number(argv[2], WORKLOAD_KERNELS_MAX);
	if (argc > 3)
		w.nodes = number(argv[3], 1u << 20);
	workload_init(&w);
	snprintf(store_path, sizeof(store_path), "%s/fdry-images-XXXXXX", tmp ? tmp : "/tmp");
	need(mkdtemp(store_path) ? 0 : -1, store_path);
	owner = getpid();
	atexit(store_remove);
	workload_run(save, ms, FIGURES);
	printf("%u images, %u kernels, %u nodes a graph\n", images, w.kernels, w.nodes);
	fflush(stdout);
	together = show("one", one);
	printf("in turn / one: %.2f\n", show("in turn", turn) / together);
	return EXIT_SUCCESS;
}
