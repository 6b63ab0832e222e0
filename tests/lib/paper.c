// SPDX-License-Identifier: Apache-2.0
/* paper.c - see paper.h. */
#include "tests/lib/paper.h"

struct paper paper;

CUresult paper_call(void)
{
	return ++paper.calls == paper.fail_at ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static void variables_make(struct load *l)
{
	struct fdry_span initial;
	uint32_t i;

	ck_assert_uint_le(l->c->nvariables, VARIABLES_MAX);
	for (i = 0; i < l->c->nvariables; i++) {
		initial = fdry_cubin_initial(l->c, &l->c->variables[i]);
		l->memory[i] = calloc(1, initial.len + 1);
		if (initial.data)
			memcpy(l->memory[i], initial.data, initial.len);
	}
}

/* Relocate into_table = &table[2], as the driver's loader would; the golden data needs no other
 * relocation.
 */
static void addresses_make(struct load *l)
{
	uint32_t i, to = UINT32_MAX;

	for (i = 0; i < l->c->nvariables; i++)
		if (!strcmp(l->c->variables[i].name, "table"))
			to = i;
	for (i = 0; i < l->c->nvariables; i++)
		if (!strcmp(l->c->variables[i].name, "into_table"))
			fdry_set64(l->memory[i], (uint64_t)(uintptr_t)l->memory[to] + 8);
}

static struct load *load_new(struct fdry_span bytes)
{
	struct load *l = calloc(1, sizeof(*l));
	uint32_t i;

	l->bytes = golden_cut(bytes, bytes.len);
	ck_assert_msg(!fdry_cubin_new(l->bytes, &l->c), "%s", fdry_last_error());
	ck_assert_uint_le(l->c->nkernels, KERNELS_MAX);
	for (i = 0; i < l->c->nkernels; i++)
		l->kernels[i] =
			(struct paper_kernel){ l, &l->c->kernels[i], { 49152, -1 }, { 49152, -1 } };
	variables_make(l);
	addresses_make(l);
	l->code.data = l->bytes.data;
	l->code.len = l->bytes.len;
	ck_assert_uint_lt(paper.nloads, LOADS_MAX);
	paper.loads[paper.nloads++] = l;
	return l;
}

struct load *load_file(const char *name)
{
	struct fdry_span bytes = golden_read(name);
	struct load *l = load_new(bytes);

	golden_free(bytes);
	return l;
}

struct paper_kernel *kernel_of(struct load *l, const char *name)
{
	uint32_t i;

	for (i = 0; i < l->c->nkernels; i++)
		if (!strcmp(l->c->kernels[i].name, name))
			return &l->kernels[i];
	ck_abort_msg("no kernel %s", name);
	return NULL;
}

uint8_t *variable_of(struct load *l, const char *name)
{
	uint32_t i;

	for (i = 0; i < l->c->nvariables; i++)
		if (!strcmp(l->c->variables[i].name, name))
			return l->memory[i];
	ck_abort_msg("no variable %s", name);
	return NULL;
}

static CUresult get_attribute(int *ret, CUdevice_attribute attr, CUdevice dev)
{
	CALL();
	ck_assert_int_eq(dev, 0);
	*ret = attr == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
	return CUDA_SUCCESS;
}

static CUresult kernel_library(CUlibrary *ret, CUkernel k)
{
	CALL();
	*ret = (CUlibrary)((struct paper_kernel *)(void *)k)->l;
	return CUDA_SUCCESS;
}

static CUresult kernel_function(CUfunction *ret, CUkernel k)
{
	CALL();
	*ret = (CUfunction)k;
	return CUDA_SUCCESS;
}

static CUresult func_module(CUmodule *ret, CUfunction f)
{
	CALL();
	*ret = (CUmodule)((struct paper_kernel *)(void *)f)->l;
	return CUDA_SUCCESS;
}

static CUresult func_name(const char **ret, CUfunction f)
{
	CALL();
	*ret = ((struct paper_kernel *)(void *)f)->k->name;
	return CUDA_SUCCESS;
}

static int attr_index(CUfunction_attribute attr)
{
#define X(id, name, field, fresh) if (attr == name) return id;
	FDRY_FUNC_ATTRS(X)
#undef X
	ck_abort_msg("attribute %d is none of ours", (int)attr);
	return 0;
}

static CUresult func_get_attr(int *ret, CUfunction_attribute attr, CUfunction f)
{
	CALL();
	*ret = ((struct paper_kernel *)(void *)f)->attrs[attr_index(attr)];
	return CUDA_SUCCESS;
}

static CUresult kernel_get_attr(int *ret, CUfunction_attribute attr, CUkernel k, CUdevice dev)
{
	CALL();
	ck_assert_int_eq(dev, 0);
	*ret = ((struct paper_kernel *)(void *)k)->kernel_attrs[attr_index(attr)];
	return CUDA_SUCCESS;
}

static CUresult func_set_attr(CUfunction f, CUfunction_attribute attr, int value)
{
	CALL();
	((struct paper_kernel *)(void *)f)->attrs[attr_index(attr)] = value;
	return CUDA_SUCCESS;
}

static CUresult func_param(CUfunction f, size_t i, size_t *offset, size_t *size)
{
	const struct fdry_cubin_kernel *k = ((struct paper_kernel *)(void *)f)->k;

	CALL();
	if (i >= k->nparams)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = k->params[i].offset;
	*size = k->params[i].size;
	return CUDA_SUCCESS;
}

static CUresult global(struct load *l, CUdeviceptr *ret, size_t *size, const char *name)
{
	uint32_t i;

	CALL();
	for (i = 0; !paper.hide_names && i < l->c->nvariables; i++)
		if (!strcmp(l->c->variables[i].name, name)) {
			*ret = (CUdeviceptr)(uintptr_t)l->memory[i];
			*size = l->c->variables[i].size;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult library_global(CUdeviceptr *ret, size_t *size, CUlibrary lib, const char *name)
{
	return global((struct load *)(void *)lib, ret, size, name);
}

static CUresult module_global(CUdeviceptr *ret, size_t *size, CUmodule mod, const char *name)
{
	return global((struct load *)(void *)mod, ret, size, name);
}

static CUresult copy_back(void *to, CUdeviceptr from, size_t n)
{
	CALL();
	memcpy(to, (const void *)(uintptr_t)from, n);
	return CUDA_SUCCESS;
}

static CUresult copy_there(CUdeviceptr to, const void *from, size_t n, CUstream stream)
{
	(void)stream;
	CALL();
	memcpy((void *)(uintptr_t)to, from, n);
	return CUDA_SUCCESS;
}

static CUresult module_load(CUmodule *ret, const void *data, unsigned int nj, CUjit_option *jo,
			    void **jv)
{
	const struct fdry_elf_ehdr *h = data;

	CALL();
	ck_assert(!jo && !jv && !nj);
	/* The call has no length: the section headers are the end of a slice, and of a cubin
	 * here. */
	*ret = (CUmodule)load_new(
		(struct fdry_span){ data, h->shoff + h->shnum * sizeof(struct fdry_elf_shdr) });
	return CUDA_SUCCESS;
}

static CUresult module_function(CUfunction *ret, CUmodule mod, const char *name)
{
	struct load *l = (struct load *)(void *)mod;
	uint32_t i;

	CALL();
	for (i = 0; i < l->c->nkernels; i++)
		if (!strcmp(l->c->kernels[i].name, name)) {
			*ret = (CUfunction)&l->kernels[i];
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult module_unload(CUmodule mod)
{
	(void)mod;
	paper.unloaded++;
	return CUDA_SUCCESS;
}

static CUresult link_create(unsigned int n, CUjit_option *o, void **v, CUlinkState *ret)
{
	CALL();
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(o[0], CU_JIT_MAX_REGISTERS);
	ck_assert(v[0] == (void *)32 || v[0] == (void *)64);
	paper.registers = v[0];
	paper.links++;
	*ret = (CUlinkState)&paper;
	return CUDA_SUCCESS;
}

static CUresult link_add(CUlinkState link, CUjitInputType type, void *data, size_t len,
			 const char *name, unsigned int n, CUjit_option *o, void **v)
{
	(void)link;
	(void)name;
	CALL();
	ck_assert(!n && !o && !v);
	ck_assert_int_eq(type, CU_JIT_INPUT_PTX);
	ck_assert_uint_eq(strlen(data) + 1, len);
	return CUDA_SUCCESS;
}

static CUresult link_complete(CUlinkState link, void **ret, size_t *len)
{
	const struct fdry_span *cubin =
		paper.registers == (void *)64 ? &paper.ptx_cubin_64 : &paper.ptx_cubin;

	(void)link;
	CALL();
	*ret = (void *)cubin->data;
	*len = cubin->len;
	return CUDA_SUCCESS;
}

static CUresult link_destroy(CUlinkState link)
{
	(void)link;
	paper.links--;
	return CUDA_SUCCESS;
}

static CUresult ctx_current(CUcontext *ret)
{
	CALL();
	*ret = (CUcontext)&paper;
	return CUDA_SUCCESS;
}

static CUresult ctx_id(CUcontext ctx, unsigned long long *ret)
{
	(void)ctx;
	CALL();
	*ret = paper.context;
	return CUDA_SUCCESS;
}

static CUresult error_name(CUresult res, const char **ret)
{
	(void)res;
	*ret = "an error on paper";
	return CUDA_SUCCESS;
}

void paper_begin(void)
{
	static const struct fdry_driver fns = {
		.version = 13000, .cuCtxGetCurrent = ctx_current, .cuCtxGetId = ctx_id,
		.cuDeviceGetAttribute = get_attribute, .cuKernelGetLibrary = kernel_library,
		.cuKernelGetFunction = kernel_function, .cuFuncGetModule = func_module,
		.cuFuncGetName = func_name, .cuFuncGetAttribute = func_get_attr,
		.cuKernelGetAttribute = kernel_get_attr, .cuFuncSetAttribute = func_set_attr,
		.cuFuncGetParamInfo = func_param,
		.cuLibraryGetGlobal = library_global, .cuModuleGetGlobal_v2 = module_global,
		.cuMemcpyDtoH_v2 = copy_back, .cuMemcpyHtoDAsync_v2 = copy_there,
		.cuModuleLoadDataEx = module_load,
		.cuModuleGetFunction = module_function, .cuModuleUnload = module_unload,
		.cuLinkCreate_v2 = link_create, .cuLinkAddData_v2 = link_add,
		.cuLinkComplete = link_complete, .cuLinkDestroy = link_destroy,
		.cuGetErrorName = error_name,
	};

	memset(&paper, 0, sizeof(paper));
	paper.drv = fns;
}

void paper_end(void)
{
	unsigned int i;
	uint32_t v;

	for (i = 0; i < paper.nloads; i++) {
		for (v = 0; v < paper.loads[i]->c->nvariables; v++)
			free(paper.loads[i]->memory[v]);
		fdry_cubin_free(paper.loads[i]->c);
		golden_free(paper.loads[i]->bytes);
		free(paper.loads[i]);
	}
	paper.nloads = 0;
}

int code_find(void *arg, CUlibrary library, CUmodule module, struct fdry_code_image *ret)
{
	struct load *l = library ? (struct load *)(void *)library : (struct load *)(void *)module;

	ck_assert_ptr_eq(arg, &paper);
	if (!l->code.data)
		return fdry_fail(FDRY_E_NOENT, "never seen");
	*ret = l->code;
	return 0;
}

struct fdry_kernel_set *set_new(void)
{
	struct fdry_kernel_set *set;

	ck_assert_int_eq(fdry_kernel_set_new(&paper.drv, 0, code_find, &paper, &set), 0);
	return set;
}

uint32_t intern(struct fdry_kernel_set *set, struct paper_kernel *k, bool library)
{
	uint32_t i = UINT32_MAX;

	ck_assert_msg(!fdry_kernel_set_intern(set, library ? (CUkernel)k : NULL, (CUfunction)k, &i),
		      "%s", fdry_last_error());
	return i;
}

const struct fdry_kernel *sliced(struct fdry_kernel_set *set, uint32_t i)
{
	const struct fdry_kernel *k = fdry_kernel_set_get(set, i);

	ck_assert_msg(!k->whole, "%s", k->whole_reason);
	return k;
}

void slice(struct fdry_kernel_set *set)
{
	ck_assert_msg(!fdry_kernel_set_slice(set), "%s", fdry_last_error());
}

void slice_refused(struct fdry_kernel_set *set, const char *why, const char *who)
{
	ck_assert_int_eq(fdry_kernel_set_slice(set), -FDRY_E_REFUSED);
	ck_assert_msg(strstr(fdry_last_error(), why) && strstr(fdry_last_error(), who), "%s",
		      fdry_last_error());
}

bool same_object(struct fdry_kernel_set *set, uint32_t a, uint32_t b)
{
	return fdry_oid_eq(&fdry_kernel_set_get(set, a)->object,
			   &fdry_kernel_set_get(set, b)->object);
}

int paper_object_get(void *arg, const struct fdry_oid *oid, struct fdry_span *ret)
{
	struct fdry_kernel_set *set = arg;
	struct fdry_oid at;
	uint32_t i;

	for (i = 0; i < fdry_kernel_set_object_count(set); i++) {
		*ret = fdry_kernel_set_object(set, i, &at);
		if (fdry_oid_eq(&at, oid))
			return 0;
	}
	return fdry_fail(FDRY_E_NOENT, "no such object");
}
