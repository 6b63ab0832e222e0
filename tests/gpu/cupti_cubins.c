// SPDX-License-Identifier: Apache-2.0
/*
 * cupti_cubins.c - checks that the code taken from a fatbin is the code that the driver runs.
 *
 *	cupti_cubins [FILE...]
 *
 * CUPTI, the driver's profiling interface, reports the cubin of every module that is loaded. Each
 * fatbin in the files (shared libraries and fatbins; the golden ones if none is named) is loaded by
 * the driver. The cubin that CUPTI reports is compared, byte for byte, with the one that
 * fdry_devcode_init() selects; for PTX, with the output of the driver's linker.
 */
#include "tests/lib/cupti.h"
#include "tests/lib/devcode.h"
#include "graph/elf.h"

static const struct fdry_driver *drv;
static unsigned int cc;
static struct fdry_buf reported; /* the last module's */
static unsigned int modules;
static struct totals {
	unsigned int fatbins, none, objects, same, code_same, texts, differ;
} t;

static void loaded(void *arg, int domain, uint32_t id, const void *data)
{
	const struct cupti_module *m = cupti_module_of(domain, id, data);

	(void)arg;
	if (!m)
		return;
	modules++;
	reported.len = 0;
	if (fdry_buf_put(&reported, m->cubin, m->size))
		reported.len = 0;
}

/* --- comparing --- */

static const struct fdry_elf_section *section_named(const struct fdry_elf *e, const char *name)
{
	uint32_t i;

	for (i = 1; i < e->nsections; i++)
		if (!strcmp(e->sections[i].name, name))
			return &e->sections[i];
	return NULL;
}

/* Does every section of code occur in the other, byte for byte? */
static bool code_in(const struct fdry_elf *a, const struct fdry_elf *b)
{
	const struct fdry_elf_section *s;
	uint32_t i;

	for (i = 1; i < a->nsections; i++) {
		if (strncmp(a->sections[i].name, ".text.", 6))
			continue;
		s = section_named(b, a->sections[i].name);
		if (!s || s->data.len != a->sections[i].data.len ||
		    memcmp(s->data.data, a->sections[i].data.data, s->data.len))
			return false;
	}
	return true;
}

static bool code_same(struct fdry_span x, struct fdry_span y)
{
	struct fdry_elf a, b;
	bool same;

	if (fdry_elf_init(x, &a))
		return false;
	if (fdry_elf_init(y, &b)) {
		fdry_elf_release(&a);
		return false;
	}
	same = code_in(&a, &b) && code_in(&b, &a);
	fdry_elf_release(&a);
	fdry_elf_release(&b);
	return same;
}

static void compare(const char *file, size_t at, struct fdry_span ours)
{
	struct fdry_span theirs = { reported.data, reported.len };

	if (ours.len == theirs.len && !memcmp(ours.data, theirs.data, ours.len)) {
		t.same++;
	} else if (code_same(ours, theirs)) {
		t.code_same++;
	} else {
		t.differ++;
		printf("FAIL %s: fatbin at %#zx: %zu bytes by us, %zu by CUPTI\n", file, at,
		       ours.len, theirs.len);
	}
}

/* Compare the driver's code for PTX with the code that a seal would read. */
static void compare_ptx(const char *file, size_t at, struct fdry_span text)
{
	char *copy = strndup((const char *)text.data, text.len);
	CUlinkState link;
	size_t size;
	void *cubin;
	int err = copy ? 0 : fdry_nomem();

	err = err ?: fdry_call(drv, cuLinkCreate_v2, 0, NULL, NULL, &link) ?:
	      fdry_call(drv, cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, copy, text.len + 1, "", 0,
			NULL, NULL) ?:
	      fdry_call(drv, cuLinkComplete, link, &cubin, &size);
	if (err) {
		t.differ++;
		printf("FAIL %s: PTX at %#zx: %s\n", file, at, fdry_last_error());
		goto out_free;
	}
	t.texts++;
	compare(file, at, (struct fdry_span){ cubin, size });
	(void)fdry_call_raw(drv, cuLinkDestroy, link);
out_free:
	free(copy);
}

static bool driver_load(const void *fatbin, CUlibrary *lib, CUresult *res)
{
	CUmodule mod;

	modules = 0;
	*res = fdry_call_raw(drv, cuLibraryLoadData, lib, fatbin, NULL, NULL, 0, NULL, NULL, 0);
	if (*res)
		return false;
	*res = fdry_call_raw(drv, cuLibraryGetModule, &mod, *lib);
	return modules == 1 && reported.len;
}

/* Is the code for this GPU an object that must be linked first? Libraries have those for linkers,
 * and no program loads them. */
static bool is_object(struct fdry_span bytes)
{
	struct fdry_fatbin_entry e;
	struct fdry_fatbin_iter it;
	struct fdry_devcode code;
	bool more, object = false;

	if (fdry_fatbin_init(bytes, &it))
		return false;
	while (!fdry_fatbin_next(&it, &e, &more) && more) {
		if (e.kind != FDRY_FATBIN_ELF || e.arch != cc || fdry_fatbin_unpack(&e, &code))
			continue;
		object |= code.bytes.len >= 18 && fdry_get16(code.bytes.data + 16) == FDRY_ET_REL;
		fdry_devcode_release(&code);
	}
	return object;
}

static void fatbin_check(const char *file, struct fdry_span bytes)
{
	static const uint8_t *first;
	static const char *before;
	struct fdry_devcode code;
	CUlibrary lib = NULL;
	CUresult res;
	bool seen;
	int err;

	if (before != file)
		first = bytes.data;
	before = file;
	if (is_object(bytes)) {
		t.objects++;
		return;
	}
	err = fdry_devcode_init(bytes.data, bytes.len, cc, &code);
	seen = driver_load(bytes.data, &lib, &res);
	t.fatbins++;
	if (err == -FDRY_E_NOENT && !seen && res) {
		t.none++;
	} else if (err || !seen) {
		t.differ++;
		printf("FAIL %s: fatbin %zu on: driver %d, modules %u; %s\n", file,
		       (size_t)(bytes.data - first), (int)res, modules,
		       err ? fdry_last_error() : "we pick one");
	} else if (code.kind == FDRY_DEVCODE_PTX) {
		compare_ptx(file, (size_t)(bytes.data - first), code.bytes);
	} else {
		compare(file, (size_t)(bytes.data - first), code.bytes);
	}
	if (lib)
		(void)fdry_call_raw(drv, cuLibraryUnload, lib);
	if (!err)
		fdry_devcode_release(&code);
}

int main(int argc, char **argv)
{
	static const char *const golden[] = { "plain.none", "plain.lz4", "plain.zstd" };
	char path[200];
	int i, ret = 0;

	drv = gpu_driver();
	if (!cupti_subscribe(loaded)) {
		printf("CUPTI is not there, or somebody else has subscribed\n100%%: Checks: 0, "
		       "Failures: 0, Errors: 0\n");
		return EXIT_SUCCESS;
	}
	gpu_context(drv);
	cc = gpu_capability(drv);
	for (i = 0; argc < 2 && i < 3; i++) {
		snprintf(path, sizeof(path), "tests/golden/cubin/%s.fatbin", golden[i]);
		ret |= devcode_file(path, fatbin_check);
	}
	for (i = 1; i < argc; i++)
		ret |= devcode_file(argv[i], fatbin_check);
	printf("fatbins %u and %u of objects: nothing for this GPU %u, equal %u, equal in code %u "
	       "(from PTX %u), differ %u\n",
	       t.fatbins, t.objects, t.none, t.same, t.code_same, t.texts, t.differ);
	return gpu_end(t.fatbins, t.differ) || ret;
}
