// SPDX-License-Identifier: Apache-2.0
/*
 * slice_check.c - checks that the driver reports the same for a slice as for the whole cubin.
 *
 *	slice_check [-n N] [FILE...]
 *
 * Takes every cubin for this GPU out of the files (shared libraries, fatbins, cubins; the golden
 * ones if none is named), slices each of its kernels alone (N of each cubin, evenly chosen; 0:
 * all), loads slice and whole, and compares registers, memory sizes, limits and parameters. Prints
 * differences and a table of totals; fails on any difference. Slices with data of their module
 * (strings of assertions, tables) are counted separately, because such data costs time when a
 * kernel is first requested.
 */

#include "tests/lib/clock.h"
#include "tests/lib/devcode.h"
#include "graph/slice.h"

#define REASONS_MAX 64

struct reason {
	char text[160];
	unsigned long count;
};

/* Slices that have something in common. */
struct sum {
	unsigned long n;
	double load_ms, function_ms;
};

static struct totals {
	unsigned long cubins, kernels, sliced, whole, refused, failed;
	unsigned long variables, variables_named, literals, literals_named;
	unsigned long const_smaller;
	unsigned long left_out; /* slices without data, of cubins with */
	double whole_bytes, slice_bytes, whole_ms;
	struct sum slices, data, plain;
	struct reason reasons[REASONS_MAX];
	unsigned int nreasons;
} t;

static const struct fdry_driver *drv;
static unsigned int cc, per_cubin;

static void reason_add(const char *text)
{
	unsigned int i;

	for (i = 0;
	     i < t.nreasons && strncmp(t.reasons[i].text, text, sizeof(t.reasons[i].text) - 1); i++)
		;
	if (i == REASONS_MAX)
		return;
	if (i == t.nreasons)
		snprintf(t.reasons[t.nreasons++].text, sizeof(t.reasons[0].text), "%s", text);
	t.reasons[i].count++;
}

static void failed(const char *file, const char *kernel, const char *what)
{
	t.failed++;
	printf("FAIL %s: %.150s: %s\n", file, kernel, what);
}

/* --- the driver's view --- */

static const struct {
	CUfunction_attribute attr;
	const char *name;
} attrs[] = {
	{ CU_FUNC_ATTRIBUTE_NUM_REGS, "registers" },
	{ CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, "shared memory" },
	{ CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, "local memory" },
	{ CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, "threads per block" },
	{ CU_FUNC_ATTRIBUTE_BINARY_VERSION, "binary version" },
	{ CU_FUNC_ATTRIBUTE_PTX_VERSION, "PTX version" },
	{ CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, "dynamic shared memory" },
	{ CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, "cluster width" },
	{ CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, "cluster height" },
	{ CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, "cluster depth" },
};

static const char *attrs_differ(CUfunction a, CUfunction b)
{
	static char text[200];
	int x, y;
	size_t i;

	for (i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++) {
		x = y = -1;
		if (fdry_call_raw(drv, cuFuncGetAttribute, &x, attrs[i].attr, a) !=
		    fdry_call_raw(drv, cuFuncGetAttribute, &y, attrs[i].attr, b) || x != y) {
			snprintf(text, sizeof(text), "%s: %d in the cubin, %d in the slice",
				 attrs[i].name, x, y);
			return text;
		}
	}
	/* Constants of the module that the kernel does not read are left out. */
	fdry_call_raw(drv, cuFuncGetAttribute, &x, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, a);
	fdry_call_raw(drv, cuFuncGetAttribute, &y, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, b);
	t.const_smaller += y < x;
	return y > x ? "constant memory grew" : NULL;
}

static const char *params_differ(CUfunction a, CUfunction b)
{
	size_t i, x, y, p, q;
	CUresult r, s;

	for (i = 0; i <= FDRY_KERNEL_PARAMS_MAX; i++) {
		x = y = p = q = 0;
		r = fdry_call_raw(drv, cuFuncGetParamInfo, a, i, &x, &p);
		s = fdry_call_raw(drv, cuFuncGetParamInfo, b, i, &y, &q);
		if (r != s || (!r && (x != y || p != q)))
			return "parameters";
		if (r)
			return r == CUDA_ERROR_INVALID_VALUE ? NULL : "the parameter query failed";
	}
	return "parameters without end";
}

static int function_get(CUlibrary lib, const char *name, CUfunction *ret)
{
	CUkernel k;
	int err = fdry_call(drv, cuLibraryGetKernel, &k, lib, name);

	return err ? err : fdry_call(drv, cuKernelGetFunction, ret, k);
}

static int load(struct fdry_span bytes, CUlibrary *ret)
{
	return fdry_call(drv, cuLibraryLoadData, ret, bytes.data, NULL, NULL, 0, NULL, NULL, 0);
}

static bool has_data(const struct fdry_cubin *c, const struct fdry_code_reach *r)
{
	uint32_t i;

	for (i = 1; i < c->elf.nsections; i++)
		if (c->sections[i].kind == FDRY_SECTION_DATA && (!r || r->sections[i]))
			return true;
	return false;
}

static void sum_add(struct sum *s, double load_ms, double function_ms)
{
	s->n++;
	s->load_ms += load_ms;
	s->function_ms += function_ms;
}

static void times_add(const struct fdry_code_reach *r, double load_ms, double function_ms)
{
	bool data = has_data(r->cubin, r);

	sum_add(&t.slices, load_ms, function_ms);
	sum_add(data ? &t.data : &t.plain, load_ms, function_ms);
	t.left_out += !data && has_data(r->cubin, NULL);
}

static void slice_compare(const char *file, const struct fdry_code_reach *r, const char *name,
			  CUfunction whole, struct fdry_span slice)
{
	const char *differ;
	CUfunction func;
	CUlibrary lib;
	double start = now_ms(), load_ms;

	if (load(slice, &lib)) {
		failed(file, name, fdry_last_error());
		return;
	}
	load_ms = now_ms() - start;
	start = now_ms();
	if (function_get(lib, name, &func)) {
		failed(file, name, fdry_last_error());
	} else {
		times_add(r, load_ms, now_ms() - start);
		differ = attrs_differ(whole, func);
		if (!differ)
			differ = params_differ(whole, func);
		if (differ)
			failed(file, name, differ);
	}
	(void)fdry_call_raw(drv, cuLibraryUnload, lib);
}

/* Can the variables that a kernel reaches be read by their names? */
static void variables_count(const struct fdry_code_reach *r, CUlibrary lib)
{
	const struct fdry_cubin_variable *v;
	CUdeviceptr addr;
	size_t size;
	uint32_t i;
	bool named;

	for (i = 0; i < r->cubin->nvariables; i++) {
		v = &r->cubin->variables[i];
		if (!r->variables[i])
			continue;
		named = !fdry_call_raw(drv, cuLibraryGetGlobal, &addr, &size, lib, v->name) &&
			size == v->size;
		*(v->literal ? &t.literals : &t.variables) += 1;
		*(v->literal ? &t.literals_named : &t.variables_named) += named;
	}
}

static void kernel_check(const char *file, const struct fdry_cubin *c, uint32_t k, CUlibrary lib)
{
	const char *name = c->kernels[k].name;
	struct fdry_buf slice = { 0 };
	struct fdry_code_reach r;
	CUfunction whole;
	int err;

	t.kernels++;
	if (function_get(lib, name, &whole) || fdry_code_reach_init(c, &k, 1, &r)) {
		failed(file, name, fdry_last_error());
		return;
	}
	variables_count(&r, lib);
	if (r.refused[0])
		t.refused++;
	err = fdry_slice(&r, &slice);
	if (err == -FDRY_E_NOSLICE) {
		t.whole++;
		reason_add(fdry_last_error());
	} else if (err) {
		failed(file, name, fdry_last_error());
	} else {
		t.sliced++;
		t.slice_bytes += (double)slice.len;
		slice_compare(file, &r, name, whole, (struct fdry_span){ slice.data, slice.len });
	}
	fdry_buf_release(&slice);
	fdry_code_reach_release(&r);
}

static void cubin_check(const char *file, struct fdry_span bytes)
{
	struct fdry_cubin *c;
	uint32_t k, step;
	CUlibrary lib;
	double start;

	if (fdry_cubin_new(bytes, &c)) {
		failed(file, "cubin", fdry_last_error());
		return;
	}
	start = now_ms();
	if (c->nkernels && load(bytes, &lib)) {
		failed(file, "cubin", fdry_last_error());
	} else if (c->nkernels) {
		t.whole_ms += now_ms() - start;
		t.whole_bytes += (double)bytes.len;
		t.cubins++;
		step = per_cubin && c->nkernels > per_cubin ? c->nkernels / per_cubin : 1;
		for (k = 0; k < c->nkernels; k += step)
			kernel_check(file, c, k, lib);
		(void)fdry_call_raw(drv, cuLibraryUnload, lib);
	}
	fdry_cubin_free(c);
}

/* --- files --- */

static void code_check(const char *file, struct fdry_span bytes)
{
	struct fdry_devcode code;
	int err;

	if (fdry_elf_machine(bytes) == FDRY_EM_CUDA &&
	    ((const struct fdry_elf_ehdr *)(const void *)bytes.data)->type != FDRY_ET_EXEC)
		return; /* a relocatable object */
	err = fdry_devcode_init(bytes.data, bytes.len, cc, &code);
	if (err == -FDRY_E_NOENT)
		return;
	if (err) {
		failed(file, "fatbin", fdry_last_error());
		return;
	}
	if (code.kind == FDRY_DEVCODE_CUBIN)
		cubin_check(file, code.bytes);
	fdry_devcode_release(&code);
}

/* The golden cubins that this GPU can run, and one fatbin. */
static int golden_check(void)
{
	static const char *const names[] = { "plain", "vars", "calls", "shared", "syscalls" };
	char path[200];
	int ret = 0;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "tests/golden/cubin/%s.%u.cubin", names[i],
			 cc >= 90 ? 90 : 80);
		ret |= devcode_file(path, code_check);
	}
	if (cc >= 90)
		ret |= devcode_file("tests/golden/cubin/linked.90.cubin", code_check) |
		       devcode_file("tests/golden/cubin/axpy.triton.cubin", code_check);
	return ret | devcode_file("tests/golden/cubin/plain.zstd.fatbin", code_check);
}

static void sum_print(const char *name, const struct sum *s)
{
	printf("  %-17s %6lu: %.3f ms to load, %.3f ms for the function\n", name, s->n,
	       s->n ? s->load_ms / (double)s->n : 0.0, s->n ? s->function_ms / (double)s->n : 0.0);
}

static void report(void)
{
	unsigned int i;

	printf("cubins %lu, kernels %lu: sliced %lu (%.2f %%), whole %lu, would be refused %lu, "
	       "failed %lu\n",
	       t.cubins, t.kernels, t.sliced,
	       t.kernels ? 100.0 * (double)t.sliced / (double)t.kernels : 0.0, t.whole, t.refused,
	       t.failed);
	printf("bytes: %.1f MB whole, %.1f MB in slices (%.1f KB each)\n", t.whole_bytes / 1e6,
	       t.slice_bytes / 1e6, t.sliced ? t.slice_bytes / 1e3 / (double)t.sliced : 0.0);
	printf("loading: %.3f ms a cubin\n", t.cubins ? t.whole_ms / (double)t.cubins : 0.0);
	sum_print("slices", &t.slices);
	sum_print("with module data", &t.data);
	sum_print("without", &t.plain);
	printf("  %lu of those without are of cubins with\n", t.left_out);
	printf("variables reached: %lu, found by name %lu; strings: %lu, found by name %lu; "
	       "constant memory smaller: %lu\n",
	       t.variables, t.variables_named, t.literals, t.literals_named, t.const_smaller);
	for (i = 0; i < t.nreasons; i++)
		printf("whole %lu: %s\n", t.reasons[i].count, t.reasons[i].text);
}

int main(int argc, char **argv)
{
	int i = 1, ret = 0;

	drv = gpu_driver();
	gpu_context(drv);
	cc = gpu_capability(drv);
	if (argc > 2 && !strcmp(argv[1], "-n")) {
		per_cubin = (unsigned int)strtoul(argv[2], NULL, 0);
		i = 3;
	}
	if (i >= argc && cc / 10 != 8 && cc / 10 != 9) {
		printf("SKIP: the golden cubins are for compute capabilities 8 and 9\n");
		return 77;
	}
	if (i >= argc)
		ret = golden_check();
	for (; i < argc; i++)
		ret |= devcode_file(argv[i], code_check);
	report();
	return gpu_end(t.kernels, t.failed) || ret;
}
