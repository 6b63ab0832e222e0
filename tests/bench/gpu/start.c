// SPDX-License-Identifier: Apache-2.0
/*
 * start.c - the time from a hash to launched graphs, beside the driver's floor (floor.c), in one
 * process.
 *
 *   start [-s STORE] [-r REF,REF,...] [-n ROUNDS] [-k KEY,KEY,...] [-d DRIVER] [-a STEPS]
 *         [-t THREADS]
 *
 * -t bounds the threads of each load.
 *
 * With -a, each round ends after these steps and replays the graphs of -k: "load", "build" the
 * graphs, too, or time the "floor", too. Nothing else is measured.
 *
 * Each round loads the image, launches its first graph, builds the rest, times the driver's
 * own calls for the same nodes and kernels (floor.c), and unloads; it loads once more, with all
 * graphs (FDRY_LOAD_BUILD, all_together), and unloads. Two more loads launch all graphs at once,
 * and these launches build what is not built: one load builds nothing (each), and one builds in the
 * background (behind). In the last round the image is replayed: the graphs of -k one by one, and in
 * turn. Then it is loaded again, to launch its first graph, once it is built, again and again while
 * the others are built in the background.
 * Prints lines "name value value ...", milliseconds, one value a round; of launches p50, p99 and
 * the longest, launch_ of the call alone and step_ of the call and the wait for its end. The last
 * part is a table for each image: times in relation to the driver's own, and the steps of loads
 * with all graphs, each as a median with its spread. The driver's own are its calls for kernels and
 * graphs, and also for the launches of all graphs if the row's name ends with "launched". The last
 * column adds its copy of the content from pinned memory (floor_copy): what a program takes for the
 * same memory, kernels and graphs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "tests/bench/gpu/floor.h"
#include "tests/lib/need.h"

#define ROUNDS_MAX 32
#define LAUNCHES 50
#define LATENCIES_MAX 4096

enum value {
	LOAD,
	MANIFEST,
	MEMORY,
	CONTENT,
	KERNELS,
	FIRST,
	ALL,
	TOGETHER,
	TOGETHER_MANIFEST,
	TOGETHER_MEMORY,
	TOGETHER_KERNELS,
	TOGETHER_CONTENT,
	TOGETHER_BUILD,
	TOGETHER_LOAD,
	TOGETHER_LAUNCH,
	TOGETHER_LAUNCHED,
	EACH_LOAD,
	EACH_LAUNCHED,
	BEHIND_LOAD,
	BEHIND_LAUNCHED,
	BUILD,
	FLOOR_KERNELS,
	FLOOR_GRAPHS,
	FLOOR_LAUNCHES,
	FLOOR_FIRST,
	FLOOR_COPY,
	UNLOAD,
	VALUES
};

static const char *const names[VALUES] = { "load", "manifest", "memory",
					   "content", "kernels", "first_launched",
					   "all_launchable", "all_together",
					   "together_manifest", "together_memory",
					   "together_kernels", "together_content",
					   "together_build", "together_load",
					   "together_launch", "together_launched",
					   "each_load", "each_launched",
					   "behind_load", "behind_launched",
					   "build_rest",
					   "floor_kernels",
					   "floor_graphs", "floor_launches", "floor_first",
					   "floor_copy",
					   "unload" };

struct run {
	const char *ref, *keys, *after;
	struct fdry_store *store;
	struct fdry_load_opts opts;
	int rounds;
	size_t content_bytes;
	double values[VALUES][ROUNDS_MAX];
};

static uint64_t key_at(const struct fdry_image *img, size_t i)
{
	uint64_t key = 0;

	must(fdry_image_graph(img, i, &key, NULL, NULL));
	return key;
}

/* The first graph launched, the rest built: times since @start. */
static void graphs_start(struct run *r, struct fdry_image *img, double start, int round)
{
	double mark;
	size_t i;

	must(fdry_image_filled(img, NULL));
	must(fdry_image_launch(img, key_at(img, 0), NULL));
	mark = fdry_now_ms();
	r->values[FIRST][round] = mark - start;
	for (i = 1; i < fdry_image_graph_count(img); i++)
		must(fdry_image_build(img, key_at(img, i)));
	r->values[BUILD][round] = fdry_elapsed_ms(&mark);
	r->values[ALL][round] = mark - start;
	must(fdry_image_synchronize(img, NULL));
}

static void report_take(struct run *r, struct fdry_image *img, int round)
{
	struct fdry_load_report rep = { .sz = sizeof(rep) };

	must(fdry_image_report(img, &rep));
	r->values[LOAD][round] = rep.total_ms;
	r->values[MANIFEST][round] = rep.manifest_ms;
	r->values[MEMORY][round] = rep.memory_ms;
	r->values[CONTENT][round] = rep.content_ms;
	r->values[KERNELS][round] = rep.kernels_ms;
	r->content_bytes = rep.content_bytes;
	if (!round)
		printf("exec_bytes %llu\n",
		       (unsigned long long)
			       rep.exec_bytes); /* the driver reuses memory that it had before */
}

static void floor_take(struct run *r, struct fdry_image *img, struct floor **f, int round)
{
	CUstreamCaptureMode mode;

	if (!*f)
		must(floor_new(img, f));
	floor_functions(*f, img);
	must(fdry_image_enter(img, &mode));
	must(floor_graph(*f, img, 0, &r->values[FLOOR_FIRST][round]));
	must(floor_graphs(*f, img, &r->values[FLOOR_GRAPHS][round],
			  &r->values[FLOOR_LAUNCHES][round]));
	must(floor_kernels(*f, img, &r->values[FLOOR_KERNELS][round]));
	must(floor_copy(img, r->content_bytes, &r->values[FLOOR_COPY][round]));
	fdry_image_leave(img, &mode);
}

/* Each replay moves the decoder on by a row of its cache, which has an end. */
static void position_reset(struct fdry_image *img)
{
	struct fdry_tensor t;
	uint64_t zeros[64] = { 0 };

	if (!fdry_image_tensor_find(img, "position", &t))
		must(fdry_image_write(img, "position", zeros, (size_t)t.shape[0] * 8, NULL));
}

static double replay(struct fdry_image *img, const uint64_t *keys, int n)
{
	double start = 0;
	int i;

	position_reset(img);
	for (i = -2 * n; i < LAUNCHES * n; i++) {
		if (i == 0) {
			must(fdry_image_synchronize(img, NULL));
			start = fdry_now_ms();
		}
		must(fdry_image_launch(img, keys[(i + 2 * n) % n], NULL));
	}
	must(fdry_image_synchronize(img, NULL));
	return (fdry_now_ms() - start) / (LAUNCHES * n);
}

static void replays(const struct run *r, struct fdry_image *img)
{
	uint64_t keys[16];
	const char *p = r->keys;
	char *end;
	int i, n = 0;

	for (; *p && n < 16; p = *end ? end + 1 : end) {
		keys[n++] = strtoull(p, &end, 10);
		if (end == p)
			exit(2);
	}
	for (i = 0; i < n; i++)
		printf("replay_%llu %.4f %.4f %.4f\n", (unsigned long long)keys[i],
		       replay(img, &keys[i], 1), replay(img, &keys[i], 1),
		       replay(img, &keys[i], 1));
	if (n)
		printf("replay_in_turn %.4f %.4f %.4f\n", replay(img, keys, n),
		       replay(img, keys, n), replay(img, keys, n));
}

/* A load that builds all graphs, and a launch; then the launches of the others. */
static void together(struct run *r, int round)
{
	struct fdry_load_report rep = { .sz = sizeof(rep) };
	struct fdry_load_opts opts = r->opts;
	double start = fdry_now_ms(), mark;
	struct fdry_image *img;
	size_t i;

	opts.flags |= FDRY_LOAD_BUILD;
	must(fdry_image_load(r->store, r->ref, &opts, &img));
	must(fdry_image_filled(img, NULL));
	mark = fdry_now_ms();
	must(fdry_image_launch(img, key_at(img, 0), NULL));
	r->values[TOGETHER_LAUNCH][round] = fdry_elapsed_ms(&mark);
	r->values[TOGETHER][round] = mark - start;
	for (i = 1; i < fdry_image_graph_count(img); i++)
		must(fdry_image_launch(img, key_at(img, i), NULL));
	r->values[TOGETHER_LAUNCHED][round] = fdry_now_ms() - start;
	must(fdry_image_synchronize(img, NULL));
	must(fdry_image_report(img, &rep));
	r->values[TOGETHER_MANIFEST][round] = rep.manifest_ms;
	r->values[TOGETHER_MEMORY][round] = rep.memory_ms;
	r->values[TOGETHER_KERNELS][round] = rep.kernels_ms;
	r->values[TOGETHER_CONTENT][round] = rep.content_ms + rep.check_ms;
	r->values[TOGETHER_BUILD][round] = rep.build_ms;
	r->values[TOGETHER_LOAD][round] = rep.total_ms;
	fdry_image_unload(img);
}

/* A load with @flags, and the launches of all graphs. They build the graphs that are not built. */
static void launched(struct run *r, uint32_t flags, enum value load, enum value all, int round)
{
	struct fdry_load_opts opts = r->opts;
	double start = fdry_now_ms();
	struct fdry_image *img;
	size_t i;

	opts.flags |= flags;
	must(fdry_image_load(r->store, r->ref, &opts, &img));
	must(fdry_image_filled(img, NULL));
	r->values[load][round] = fdry_now_ms() - start;
	for (i = 0; i < fdry_image_graph_count(img); i++)
		must(fdry_image_launch(img, key_at(img, i), NULL));
	r->values[all][round] = fdry_now_ms() - start;
	must(fdry_image_synchronize(img, NULL));
	fdry_image_unload(img);
}

/* How the history of the process changes replays. */
static void history(struct run *r)
{
	struct fdry_image *img;
	struct floor *f = NULL;
	int i;

	for (i = 0; i < r->rounds; i++) {
		must(fdry_image_load(r->store, r->ref, &r->opts, &img));
		must(fdry_image_filled(img, NULL));
		if (*r->after != 'l')
			graphs_start(r, img, fdry_now_ms(), i);
		if (*r->after == 'f')
			floor_take(r, img, &f, i);
		replays(r, img);
		fdry_image_unload(img);
	}
	floor_free(f);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* How long each launch kept its caller, and how long it was until it had ended. */
struct latencies {
	double launch[LATENCIES_MAX], step[LATENCIES_MAX];
};

/* Launch one graph, which is built, until all are, or @n times. */
static int launches(struct fdry_image *img, struct latencies *l, int n)
{
	struct fdry_load_report rep = { .sz = sizeof(rep) };
	uint64_t key = key_at(img, 0);
	double mark;
	int i;

	for (i = 0; i < n; i++) {
		if (i % 100 == 0)
			position_reset(img);
		mark = fdry_now_ms();
		must(fdry_image_launch(img, key, NULL));
		l->launch[i] = fdry_elapsed_ms(&mark);
		must(fdry_image_synchronize(img, NULL));
		l->step[i] = l->launch[i] + fdry_elapsed_ms(&mark);
		must(fdry_image_report(img, &rep));
		if (n == LATENCIES_MAX && rep.all_ms > 0)
			return i + 1;
	}
	return n;
}

static void percentiles_print(const char *what, const char *when, double *ms, int n)
{
	qsort(ms, (size_t)n, sizeof(*ms), by_size);
	printf("%s_%s %.4f %.4f %.4f\n", what, when, ms[n / 2], ms[n * 99 / 100], ms[n - 1]);
}

static void latencies_print(const char *when, struct latencies *l, int n)
{
	percentiles_print("launch", when, l->launch, n);
	percentiles_print("step", when, l->step, n);
}

/* Launches beside the thread that builds, and the same number afterwards. */
static void background(struct run *r)
{
	static struct latencies l;
	struct fdry_load_report rep = { .sz = sizeof(rep) };
	struct fdry_image *img;
	int n;

	r->opts.flags |= FDRY_LOAD_BACKGROUND;
	must(fdry_image_load(r->store, r->ref, &r->opts, &img));
	must(fdry_image_filled(img, NULL));
	must(fdry_image_build(img, key_at(img, 0)));
	n = launches(img, &l, LATENCIES_MAX);
	latencies_print("building", &l, n);
	must(fdry_image_wait(img));
	must(fdry_image_report(img, &rep));
	printf("background_first %.3f\nbackground_all %.3f\nbackground_launches %d\n", rep.first_ms,
	       rep.all_ms, n);
	n = launches(img, &l, n < LATENCIES_MAX ? n : n - 1);
	latencies_print("idle", &l, n);
	fdry_image_unload(img);
}

static void options_take(int argc, char **argv, struct run *r, const char **store)
{
	int opt;

	while ((opt = getopt(argc, argv, "s:r:n:k:d:a:t:")) != -1) {
		switch (opt) {
		case 's': *store = optarg; break;
		case 'r': r->ref = optarg; break;
		case 'n': r->rounds = atoi(optarg); break;
		case 'k': r->keys = optarg; break;
		case 'd': r->opts.driver = optarg; break;
		case 'a': r->after = optarg; break;
		case 't': r->opts.threads = (uint32_t)strtoul(optarg, NULL, 10); break;
		default: exit(2);
		}
	}
	if (r->rounds < 1 || r->rounds > ROUNDS_MAX)
		exit(2);
}

/* The driver and the device's primary context, which a serving process has anyway. */
static void device_hold(const struct run *r)
{
	double mark = fdry_now_ms();
	const struct fdry_driver *drv;
	CUcontext ctx;

	must(fdry_driver_open(r->opts.driver, &drv));
	printf("driver %.3f\n", fdry_elapsed_ms(&mark));
	must(fdry_call(drv, cuDevicePrimaryCtxRetain, &ctx, 0));
	printf("context %.3f\n", fdry_elapsed_ms(&mark));
}

static void values_print(const struct run *r)
{
	int v, i;

	for (v = 0; v < VALUES; v++) {
		printf("%s", names[v]);
		for (i = 0; i < r->rounds; i++)
			printf(" %.3f", r->values[v][i]);
		printf("\n");
	}
}

enum over { ONE, OWN, OWN_AND_COPY };

/* The median, the least and the greatest of @v: over 1, the driver's own calls, or these and its
 * copy of the content. */
static void spread_print(const struct run *r, enum value v, enum over over)
{
	double x[ROUNDS_MAX], own;
	int i;

	for (i = 0; i < r->rounds; i++) {
		own = r->values[FLOOR_KERNELS][i] + r->values[FLOOR_GRAPHS][i];
		if (v == TOGETHER_LAUNCHED || v == EACH_LAUNCHED || v == BEHIND_LAUNCHED)
			own += r->values[FLOOR_LAUNCHES][i];
		if (over == OWN_AND_COPY)
			own += r->values[FLOOR_COPY][i];
		x[i] = r->values[v][i] / (over == ONE ? 1 : own);
	}
	qsort(x, (size_t)r->rounds, sizeof(*x), by_size);
	printf("  %8.3f (%.3f to %.3f)", x[r->rounds / 2], x[0], x[r->rounds - 1]);
}

static void table_print(const struct run *r)
{
	static const enum value rows[] = {
		ALL, TOGETHER, TOGETHER_MANIFEST, TOGETHER_MEMORY, TOGETHER_KERNELS,
		TOGETHER_CONTENT, TOGETHER_BUILD, TOGETHER_LOAD, TOGETHER_LAUNCH,
		TOGETHER_LAUNCHED, EACH_LOAD, EACH_LAUNCHED, BEHIND_LOAD, BEHIND_LAUNCHED,
		FLOOR_KERNELS, FLOOR_GRAPHS, FLOOR_LAUNCHES, FLOOR_COPY
	};
	size_t i;

	printf("table of %s, %.3f GB of content: ms, of the driver's own, and of these and its "
	       "copy of the content\n", r->ref,
	       (double)r->content_bytes / 1e9);
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		printf("  of %-18s", names[rows[i]]);
		spread_print(r, rows[i], ONE);
		spread_print(r, rows[i], OWN);
		spread_print(r, rows[i], OWN_AND_COPY);
		printf("\n");
	}
}

static void image_run(struct run *r)
{
	struct fdry_image *img = NULL;
	struct floor *f = NULL;
	double start;
	int i;

	for (i = 0; i < r->rounds; i++) {
		start = fdry_now_ms();
		must(fdry_image_load(r->store, r->ref, &r->opts, &img));
		graphs_start(r, img, start, i);
		report_take(r, img, i);
		floor_take(r, img, &f, i);
		if (i == r->rounds - 1)
			replays(r, img);
		start = fdry_now_ms();
		fdry_image_unload(img);
		r->values[UNLOAD][i] = fdry_now_ms() - start;
		together(r, i);
		launched(r, 0, EACH_LOAD, EACH_LAUNCHED, i);
		launched(r, FDRY_LOAD_BACKGROUND, BEHIND_LOAD, BEHIND_LAUNCHED, i);
	}
	floor_free(f);
	values_print(r);
	background(r);
	r->opts.flags = 0;
	table_print(r);
}

int main(int argc, char **argv)
{
	struct run r = { .ref = "bench", .keys = "", .rounds = 5, .opts.sz = sizeof(r.opts) };
	const char *store = NULL;
	char *refs, *next;

	options_take(argc, argv, &r, &store);
	must(fdry_store_open(store, 0, &r.store));
	device_hold(&r);
	if (r.after) {
		history(&r);
		fdry_store_close(r.store);
		return 0;
	}
	refs = strdup(r.ref);
	for (r.ref = strtok_r(refs, ",", &next); r.ref; r.ref = strtok_r(NULL, ",", &next))
		image_run(&r);
	free(refs);
	fdry_store_close(r.store);
	return 0;
}
