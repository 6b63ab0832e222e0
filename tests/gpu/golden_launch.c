// SPDX-License-Identifier: Apache-2.0
/*
 * golden_launch.c - checks that kernels run from slices as they run from whole cubins.
 *
 * Every kernel of tests/golden/cubin that takes a buffer and numbers is launched several times from
 * the whole cubin and from a slice, each freshly loaded, on equal input. The buffers must be equal
 * afterwards. Kernels that share a variable are sliced together and launched in turn.
 */
#include <string.h>

#include "graph/slice.h"
#include "tests/lib/gpu.h"
#include "tests/lib/need.h"

#define WORDS 4096u /* of the buffer */
#define ROUNDS 8    /* launches, with numbers from 0 up */

struct job {
	const char *file;       /* without the ending ".90.cubin" or ".80.cubin" */
	const char *kernels[3]; /* launched in turn */
	unsigned int ints;      /* numbers behind the buffer */
	unsigned int threads, blocks, shared;
	bool hopper;            /* needs compute capability 9 */
};

static const struct job jobs[] = {
	{ "plain", { "none" }, 0, 32, 1, 0, false },
	{ "vars", { "bump" }, 0, 1, 1, 0, false },
	{ "vars", { "bump_by" }, 1, 1, 1, 0, false },
	{ "vars", { "bump_by", "bump", "bump_by" }, 1, 1, 1, 0, false },
	{ "vars", { "lookup" }, 1, 32, 1, 0, false },
	{ "vars", { "affine" }, 1, 32, 1, 0, false },
	{ "vars", { "own_static" }, 0, 1, 1, 0, false },
	{ "vars", { "copy" }, 0, 32, 1, 0, false },
	{ "vars", { "alone" }, 0, 32, 1, 0, false },
	{ "calls", { "direct" }, 1, 32, 1, 0, false },
	{ "calls", { "indirect" }, 2, 32, 1, 0, false },
	{ "calls", { "jump" }, 1, 32, 1, 0, false },
	{ "calls", { "divide" }, 2, 32, 1, 0, false },
	{ "shared", { "reverse" }, 0, 64, 1, 0, false },
	{ "shared", { "dynamic" }, 0, 32, 1, 128, false }, /* more threads would race */
	{ "shared", { "local" }, 1, 32, 1, 0, false },
	{ "shared", { "cluster" }, 0, 32, 4, 0, true },
	{ "syscalls", { "checks" }, 1, 32, 1, 0, false },
	{ "syscalls", { "checks_too", "checks" }, 1, 32, 1, 0, false },
	{ "syscalls", { "quiet" }, 0, 32, 1, 0, false },
	{ "linked", { "bump", "bump_by" }, 1, 1, 1, 0, true },
	{ "linked", { "lookup" }, 1, 32, 1, 0, true },
	{ "linked", { "affine" }, 1, 32, 1, 0, true },
	{ "linked", { "direct" }, 1, 32, 1, 0, true },
	{ "linked", { "jump" }, 1, 32, 1, 0, true },
	{ "linked", { "divide" }, 2, 32, 1, 0, true },
	{ "linked", { "checks" }, 1, 32, 1, 0, true },
};

static const struct fdry_driver *drv;
static unsigned int cc;
static CUdeviceptr buffer;

static struct fdry_buf file_read(const struct job *j)
{
	struct fdry_buf b = { 0 };
	char path[200];
	void *to;
	long len;
	FILE *f;

	snprintf(path, sizeof(path), "tests/golden/cubin/%s.%u.cubin", j->file,
		 cc / 10 == 8 ? 80 : 90);
	f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END) || (len = ftell(f)) <= 0) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	rewind(f);
	must(fdry_buf_grow(&b, (size_t)len, &to));
	if (fread(to, 1, (size_t)len, f) != (size_t)len)
		exit(EXIT_FAILURE);
	fclose(f);
	return b;
}

/* A number that is used as one of four, eight or so, or divides, must not be 0. */
static int number(unsigned int round)
{
	return (int)round + 1;
}

static void launch(const struct job *j, CUlibrary lib, const char *name, unsigned int round)
{
	int value = number(round), second = number(round + 1);
	/* divide() reads 64 bits: two adjacent numbers, the second as the upper half */
	long long wide = 3 + (long long)round;
	void *args[3] = { &buffer, strcmp(name, "divide") ? (void *)&value : (void *)&wide,
			  &second };
	CUfunction func;
	CUkernel kern;

	if (!strcmp(name, "checks_too") && value == 7)
		value = 70; /* its assertion fails for 7 */
	if (!strcmp(name, "jump"))
		value = (int)round; /* every case, and none */
	must(fdry_call(drv, cuLibraryGetKernel, &kern, lib, name));
	must(fdry_call(drv, cuKernelGetFunction, &func, kern));
	must(fdry_call(drv, cuLaunchKernel, func, j->blocks, 1, 1, j->threads, 1, 1, j->shared,
		       NULL, args, NULL));
	must(fdry_call(drv, cuCtxSynchronize));
}

/* Write the buffer's content after all launches of the code in @bytes to @result. */
static void run(const struct job *j, struct fdry_span bytes, uint32_t *result)
{
	unsigned int round, k;
	CUlibrary lib;

	for (k = 0; k < WORDS; k++)
		result[k] = k * 2654435761u >> 3;
	must(fdry_call(drv, cuMemcpyHtoD_v2, buffer, result, WORDS * sizeof(*result)));
	must(fdry_call(drv, cuLibraryLoadData, &lib, bytes.data, NULL, NULL, 0, NULL, NULL, 0));
	for (round = 0; round < ROUNDS; round++)
		for (k = 0; k < 3 && j->kernels[k]; k++)
			launch(j, lib, j->kernels[k], round);
	must(fdry_call(drv, cuMemcpyDtoH_v2, result, buffer, WORDS * sizeof(*result)));
	must(fdry_call(drv, cuLibraryUnload, lib));
}

static struct fdry_buf slice(const struct job *j, const struct fdry_buf *whole)
{
	struct fdry_span bytes = { whole->data, whole->len };
	const struct fdry_cubin_kernel *k;
	struct fdry_buf b = { 0 };
	struct fdry_cubin *c;
	struct fdry_code_reach r;
	uint32_t kernels[3], n;

	must(fdry_cubin_new(bytes, &c));
	for (n = 0; n < 3 && j->kernels[n]; n++) {
		k = fdry_cubin_kernel_find(c, j->kernels[n]);
		if (!k)
			exit(EXIT_FAILURE);
		kernels[n] = (uint32_t)(k - c->kernels);
	}
	must(fdry_code_reach_init(c, kernels, n, &r));
	must(fdry_slice(&r, &b));
	fdry_code_reach_release(&r);
	fdry_cubin_free(c);
	return b;
}

static bool job_check(const struct job *j)
{
	static uint32_t a[WORDS], b[WORDS];
	struct fdry_buf whole = file_read(j), part = slice(j, &whole);
	bool differ;

	run(j, (struct fdry_span){ whole.data, whole.len }, a);
	run(j, (struct fdry_span){ part.data, part.len }, b);
	differ = memcmp(a, b, sizeof(a)) != 0;
	printf("%s %s %s: %zu of %zu bytes\n", differ ? "FAIL" : "ok", j->file, j->kernels[0],
	       part.len, whole.len);
	fdry_buf_release(&whole);
	fdry_buf_release(&part);
	return differ;
}

int main(void)
{
	unsigned int checks = 0, differ = 0;
	size_t i;

	drv = gpu_driver();
	gpu_context(drv);
	cc = gpu_capability(drv);
	must(fdry_call(drv, cuMemAlloc_v2, &buffer, WORDS * sizeof(uint32_t)));
	if (cc / 10 != 8 && cc / 10 != 9) {
		printf("SKIP: the golden cubins are for compute capabilities 8 and 9\n");
		return 77;
	}
	for (i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
		if (jobs[i].hopper && cc / 10 != 9)
			continue;
		checks++;
		differ += job_check(&jobs[i]);
	}
	return gpu_end(checks, differ);
}
