// SPDX-License-Identifier: Apache-2.0
/*
 * ways_probe.c - calls the driver in the ways that tests/cli/t0100-hook.sh names.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "hook/hook.h"

static void *cuda;

static void *fn(const char *name)
{
	void *p = dlsym(cuda, name);
	if (!p) {
		printf("no %s\n", name);
		exit(3);
	}
	return p;
}

static void *open_it(const char *name, int flags)
{
	void *h = dlopen(name, flags);
	if (!h) {
		printf("%s\n", dlerror());
		exit(3);
	}
	return h;
}

static const struct fdry_hook *table(void)
{
	return ((fdry_hook_table_fn)fn(FDRY_HOOK_SYMBOL))();
}

/* Which library answers, and is it the interposer that was asked? */
static int version(void)
{
	int v = -1, res;

	errno = 77;
	res = ((int (*)(int *))fn("cuDriverGetVersion"))(&v);
	printf("%d %d%s%s\n", res, v, dlsym(cuda, FDRY_HOOK_SYMBOL) ? "" : " directly",
	       errno == 77 ? "" : " errno lost");
	return 0;
}

static int arguments(void)
{
	typedef double quad __attribute__((vector_size(16)));
	int bad = 0, i;

	for (i = 0; i < 2; i++) { /* looked up, then known */
		bad = 2 * bad + ((int (*)(void *, int, int, int, int, int, int, int, void *, void *,
					  void *))fn("cuLaunchKernel"))((void *)1, 2, 3, 4, 5, 6, 7,
									8, (void *)9, (void *)10,
									(void *)11);
		bad = 2 * bad + ((int (*)(void *, double, float, double, float, double, float,
					  double, float))fn("cuTexRefSetMipmapLevelClamp"))(
					(void *)1, 1.5, 2.5f, 3.5, 4.5f, 5.5, 6.5f, 7.5, 8.5f);
		bad = 2 * bad + ((int (*)(quad, quad, quad, quad, quad, quad, quad, quad))fn(
					"cuTexRefSetBorderColor"))((quad){ 0, 1 }, (quad){ 0, 2 },
								   (quad){ 0, 3 }, (quad){ 0, 4 },
								   (quad){ 0, 5 }, (quad){ 0, 6 },
								   (quad){ 0, 7 }, (quad){ 0, 8 });
		bad = 2 * bad + ((int (*)(int, ...))fn("cuParamSetv"))(3, 1.0, 2.0, 3.0);
	}
	printf("%d\n", bad);
	return 0;
}

/* The result of every call without a driver, and the bytes that it writes. */
static int without(void)
{
	const char *name = "x", *text = "x";
	void *p = (void *)1, *q = (void *)1, *addr = (void *)1;
	int v = 5, n = 5, status = 5, dev = 5, r[9];

	r[0] = ((int (*)(unsigned))fn("cuInit"))(0);
	r[1] = ((int (*)(int *))fn("cuDriverGetVersion"))(&v);
	r[2] = ((int (*)(int *))fn("cuDeviceGetCount"))(&n);
	r[3] = ((int (*)(const char *, void **, int, long, int *))fn("cuGetProcAddress_v2"))(
		"cuInit", &p, 12000, 0, &status);
	r[4] = ((int (*)(const char *, void **, int, long))fn("cuGetProcAddress"))("cuInit", &q,
										   12000, 0);
	r[5] = ((int (*)(void *, long))fn("cuMemAlloc_v2"))(&addr, 16);
	r[6] = ((int (*)(void *))fn("cuCtxGetDevice"))(&dev);
	r[7] = ((int (*)(int, const char **))fn("cuGetErrorName"))(100, &name);
	r[8] = ((int (*)(int, const char **))fn("cuGetErrorString"))(1, &text);
	printf("%d %d/%d %d/%d %d/%d %d/%d %d %d %d/%s %d/%s\n", r[0], r[1], v, r[2], n, r[3],
	       p != NULL, r[4], q != NULL, r[5], r[6], r[7], name, r[8], text ? text : "null");
	printf("%s\n", table()->real_path() ? "a path" : table()->last_error());
	return 0;
}

static int lacking(void)
{
	printf("%d ", ((int (*)(void *))fn("cuCtxGetDevice"))(NULL));
	printf("%s\n", table()->last_error());
	return 0;
}

static int late(void)
{
	printf("%d %s\n", table()->late(), table()->last_error());
	return 0;
}

static int begin(void)
{
	printf("%d %s\n", table()->region_begin(1ull << 40, 1 << 30), table()->last_error());
	return 0;
}

static pthread_barrier_t barrier;
static void *first_call(void *arg)
{
	int v = -1;

	pthread_barrier_wait(&barrier);
	if (((int (*)(int *))fn("cuDriverGetVersion"))(&v) || v != 4242)
		*(int *)arg = 1;
	return NULL;
}

/* Threads that all make the process's first call. */
static int threads(void)
{
	pthread_t t[8];
	int bad = 0, i;

	pthread_barrier_init(&barrier, NULL, 8);
	for (i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, first_call, &bad);
	for (i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	printf("%d\n", bad);
	return 0;
}

/* One thread runs a constructor, under the loader's lock, while another one calls.
 */
static void *load_slowly(void *arg)
{
	pthread_barrier_wait(&barrier);
	if (!dlopen(getenv("SLOW"), RTLD_NOW))
		*(int *)arg = 1;
	return NULL;
}

static void *call_meanwhile(void *arg)
{
	int (*fn_version)(int *) = (int (*)(int *))fn("cuDriverGetVersion"), v = -1;

	pthread_barrier_wait(&barrier);
	usleep(100000); /* the constructor sleeps now */
	*(int *)arg |= fn_version(&v) || v != 4242;
	return NULL;
}

static int constructor(void)
{
	pthread_t t[2];
	int bad = 0;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&t[0], NULL, load_slowly, &bad);
	pthread_create(&t[1], NULL, call_meanwhile, &bad);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	printf("%d\n", bad);
	return 0;
}

static const struct { const char *name; int (*run)(void);
} commands[] = {
	{ "version", version }, { "arguments", arguments },
	{ "without", without }, { "lacking", lacking },
	{ "late", late },	{ "begin", begin },
	{ "threads", threads }, { "constructor", constructor },
};

/* probe COMMAND LIBRARY...: load these one after the other; ask the first, or the last that has no
 * path. */
int main(int argc, char **argv)
{
	int i;

	for (i = 2; i < argc; i++) {
		void *h = open_it(argv[i], RTLD_NOW | RTLD_GLOBAL);
		if (!strchr(argv[i], '/') || !cuda)
			cuda = h;
	}
	for (i = 0; i < (int)(sizeof(commands) / sizeof(commands[0])); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run();
	return 2;
}
