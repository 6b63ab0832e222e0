// SPDX-License-Identifier: Apache-2.0
/*
 * fatbin_choice.c - checks which of a fatbin's entries the driver runs.
 *
 * It makes fatbins of cubins and PTX that each return another number. The driver loads them (as a
 * library, inside a wrapper, as a module) and runs its choice. That is compared with the choice of
 * fdry_devcode_init(), which may refuse to choose between two equal texts, or a relocatable object.
 */
#include <stdbool.h>

#include "tests/lib/devcode.h"

#define MARK 0x5a5a0000u
#define ENTRIES_MAX 6

static const struct fdry_driver *drv;
static unsigned int cc, checks, failures;
static CUdeviceptr out;

/* An entry: 8, 9, a: cubins for sm_80, sm_90, sm_90a; e: sm_90a, not flagged as such; o: a
 * relocatable object for sm_90; p, q, r: PTX for 80, 90, 90a. */
static const char *const fatbins[] = {
	"8", "9", "a", "p", "q", "r", "9a", "a9", "99", "aa", "pq", "qp", "pp",
	"qq", "qr", "rq", "rr", "9q", "q9", "9r", "r9", "aq", "qa", "ar", "ra", "8q",
	"q8", "8r", "8pq", "9ar", "r9a", "89apqr", "rqpa98", "e", "9e", "e9", "ae", "ea", "999",
	"a9a", "9a9", "o", "o9", "9o", "oa", "oq", "qo", "op", "o8p",
};

static const char *file_of(char what)
{
	return what == '8'   ? "tests/golden/cubin/who.80.cubin"
	       : what == '9' ? "tests/golden/cubin/who.90.cubin"
	       : what == 'o' ? "tests/golden/cubin/who.rel.cubin"
			     : "tests/golden/cubin/who.90a.cubin";
}

struct made {
	struct fdry_buf b;
	unsigned int n;
};

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, fdry_last_error());
	exit(EXIT_FAILURE);
}

static void put(struct fdry_buf *b, const void *p, size_t n)
{
	if (fdry_buf_put(b, p, n))
		die("memory");
}

static void file_put(struct fdry_buf *b, const char *path, uint32_t mark)
{
	static const uint32_t was = MARK | 0xc1;
	uint8_t bytes[16384], *at;
	FILE *f = fopen(path, "rb");
	size_t n = f ? fread(bytes, 1, sizeof(bytes), f) : 0;

	at = n ? memmem(bytes, n, &was, sizeof(was)) : NULL;
	if (!at || fclose(f))
		die(path);
	memcpy(at, &mark, sizeof(mark));
	put(b, bytes, n);
}

static void ptx_put(struct fdry_buf *b, const char *target, uint32_t mark)
{
	char text[600] = { 0 };
	int n = snprintf(text, sizeof(text),
			 ".version 8.0\n.target %s\n.address_size 64\n.visible .entry who(.param "
			 ".u64 p)\n{\n"
			 ".reg .b32 %%r<2>;\n.reg .b64 %%d<3>;\nld.param.u64 %%d1, "
			 "[p];\ncvta.to.global.u64 %%d2, %%d1;\n"
			 "mov.u32 %%r1, %u;\nst.global.u32 [%%d2], %%r1;\nret;\n}\n",
			 target, mark);

	put(b, text, ((size_t)n + 8) / 8 * 8);
}

static void entry_put(struct made *m, char what)
{
	static const char ptx[] = "pqr", *const targets[] = { "sm_80", "sm_90", "sm_90a" };
	const char *p = strchr(ptx, what);
	uint32_t arch = what == '8' || what == 'p' ? 80 : 90, mark = MARK | ++m->n;
	size_t at = m->b.len, header = p ? 80 : 64;
	uint8_t h[80] = { 0 };

	if (p) { /* the place of compiler options */
		h[16 + 4] = 64;
		h[64] = 72;
	}
	put(&m->b, h, header);
	if (p)
		ptx_put(&m->b, targets[p - ptx], mark);
	else
		file_put(&m->b, file_of(what), mark);
	fdry_set16(m->b.data + at, p ? FDRY_FATBIN_PTX : FDRY_FATBIN_ELF);
	fdry_set16(m->b.data + at + 2, 0x101);
	fdry_set32(m->b.data + at + 4, (uint32_t)header);
	fdry_set64(m->b.data + at + 8, m->b.len - at - header);
	fdry_set16(m->b.data + at + 24, p ? 0 : 8);
	fdry_set16(m->b.data + at + 26, p ? 8 : 1);
	fdry_set32(m->b.data + at + 28, arch);
	fdry_set64(m->b.data + at + 40,
		   0x11 | (what == 'a' || what == 'r' ? FDRY_FATBIN_EXACT : 0));
}

static struct made make(const char *entries)
{
	static const uint8_t header[16] = { 0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0 };
	struct made m = { .n = 0 };

	put(&m.b, header, sizeof(header));
	while (*entries)
		entry_put(&m, *entries++);
	fdry_set64(m.b.data + 8, m.b.len - sizeof(header));
	return m;
}

/* --- the driver's choice --- */

static int run(CUfunction f)
{
	void *params[] = { &out };
	uint32_t said = 0;
	CUresult r = fdry_call_raw(drv, cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);

	if (!r)
		r = fdry_call_raw(drv, cuMemcpyDtoH_v2, &said, out, sizeof(said));
	return r ? -(int)r : (int)(said ^ MARK);
}

static int library_run(const void *image)
{
	CUlibrary lib;
	CUfunction f;
	CUkernel k;
	CUresult r =
		fdry_call_raw(drv, cuLibraryLoadData, &lib, image, NULL, NULL, 0, NULL, NULL, 0);
	int ret;

	if (r)
		return -(int)r;
	r = fdry_call_raw(drv, cuLibraryGetKernel, &k, lib, "who");
	if (!r)
		r = fdry_call_raw(drv, cuKernelGetFunction, &f, k);
	ret = r ? -(int)r : run(f);
	(void)fdry_call_raw(drv, cuLibraryUnload, lib);
	return ret;
}

static int module_run(const void *image)
{
	CUmodule mod;
	CUfunction f;
	CUresult r = fdry_call_raw(drv, cuModuleLoadDataEx, &mod, image, 0, NULL, NULL);
	int ret;

	if (r)
		return -(int)r;
	r = fdry_call_raw(drv, cuModuleGetFunction, &f, mod, "who");
	ret = r ? -(int)r : run(f);
	(void)fdry_call_raw(drv, cuModuleUnload, mod);
	return ret;
}

/* --- the library's choice --- */

static int picked(const struct made *m)
{
	struct fdry_devcode code;
	char text[24];
	uint32_t i, mark, found = 0;
	int err = fdry_devcode_init(m->b.data, m->b.len, cc, &code);

	if (err)
		return err;
	for (i = 1; i <= m->n; i++) {
		mark = MARK | i;
		snprintf(text, sizeof(text), "%%r1, %u;", mark);
		if (code.kind == FDRY_DEVCODE_PTX
			    ? memmem(code.bytes.data, code.bytes.len, text, strlen(text))
			    : memmem(code.bytes.data, code.bytes.len, &mark, sizeof(mark)))
			found = i;
	}
	fdry_devcode_release(&code);
	return (int)found;
}

/* May the library refuse this fatbin, because it has the same text more than once, or an object
 * that the driver links? */
static bool may_refuse(const char *entries)
{
	return strchr(entries, 'o') ||
	       (strchr("pqr", entries[0]) &&
		strspn(entries, (char[2]){ entries[0] }) == strlen(entries) && entries[1]);
}

static void fatbin_check(const char *entries)
{
	struct {
		uint32_t magic, version;
		const void *data, *more;
	} w = { FDRY_FATBIN_WRAPPER_MAGIC, 1, NULL, NULL };
	struct made m = make(entries);
	int us = picked(&m), says[3];
	bool same;

	w.data = m.b.data;
	says[0] = library_run(m.b.data);
	says[1] = library_run(&w);
	says[2] = module_run(m.b.data);
	same = says[0] == says[1] && says[0] == says[2] &&
	       (us == -FDRY_E_BADCODE ? may_refuse(entries)
		: us > 0 ? us == says[0]
				      : says[0] == -CUDA_ERROR_NO_BINARY_FOR_GPU);
	checks++;
	failures += !same;
	printf("%-8s library %d, wrapped %d, module %d; we pick %d%s\n", entries, says[0], says[1],
	       says[2], us, same ? "" : "  DIFFERS");
	fdry_buf_release(&m.b);
}

int main(void)
{
	size_t i;

	drv = gpu_driver();
	gpu_context(drv);
	cc = gpu_capability(drv);
	if (fdry_call(drv, cuMemAlloc_v2, &out, sizeof(uint32_t)))
		die("memory");
	if (cc != 90) {
		printf("SKIP: the golden cubins are for compute capability 9.0\n");
		return 77;
	}
	for (i = 0; i < sizeof(fatbins) / sizeof(fatbins[0]); i++)
		fatbin_check(fatbins[i]);
	return gpu_end(checks, failures);
}
