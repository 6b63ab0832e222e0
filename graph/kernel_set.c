// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_set.c - the kernels that graphs launch, interned while the graphs are read.
 *
 * A node has a CUkernel, a CUfunction or both. The interposer, which sees every load of code in the
 * process, reports the data that their library or module was loaded from. The code for this device
 * is found in that data once, and PTX is linked once. Handles with equal code, name and attributes
 * are one kernel, unless they belong to two loads that have variables of their own. The set records
 * the library or module of every handle, to read these variables.
 */
#include "graph/code_vars.h"
#include "graph/kernel_set.h"

#include <stdlib.h>
#include <string.h>

/* Bytes that are kept for another set: of code, and of slices. Kernels that share a variable have a
 * slice for each group of them that a set had, so their slices add up from set to set. */
#define CODES_MAX (512ull << 20)
#define SLICES_MAX (256ull << 20)

static uint32_t handle_hash(const void *p)
{
	return (uint32_t)((uintptr_t)p >> 4) * 2654435761u;
}

/* The slot of a handle, or the free slot for it. */
static struct fdry_set_handle *handle_slot(const struct fdry_kernel_set *set, const void *p)
{
	uint32_t mask = set->nslots - 1, i = handle_hash(p) & mask;

	while (set->slots[i].handle && set->slots[i].handle != p)
		i = (i + 1) & mask;
	return &set->slots[i];
}

static int handles_grow(struct fdry_kernel_set *set)
{
	struct fdry_kernel_set bigger = { .nslots = set->nslots ? 2 * set->nslots : 256 };
	uint32_t i;

	if (set->nhandles * 2 < set->nslots)
		return 0;
	bigger.slots = calloc(bigger.nslots, sizeof(*bigger.slots));
	if (!bigger.slots)
		return fdry_nomem();
	for (i = 0; i < set->nslots; i++)
		if (set->slots[i].handle)
			*handle_slot(&bigger, set->slots[i].handle) = set->slots[i];
	free(set->slots);
	set->slots = bigger.slots;
	set->nslots = bigger.nslots;
	return 0;
}

static int handle_put(struct fdry_kernel_set *set, const void *p, uint32_t index)
{
	int err = handles_grow(set);

	if (err)
		return err;
	*handle_slot(set, p) = (struct fdry_set_handle){ p, index };
	set->nhandles++;
	return 0;
}

/* --- the driver's data of a kernel --- */

struct found {
	CUkernel kern;
	CUfunction func;
	CUlibrary library;
	CUmodule module;
	const char *name;
	int32_t attrs[FDRY_FUNC_ATTR_COUNT];
	struct fdry_buf params; /* of struct fdry_param */
	uint32_t param_bytes;
};

static int owner_find(const struct fdry_driver *drv, struct found *f)
{
	int err;

	if (f->kern) {
		err = fdry_call(drv, cuKernelGetLibrary, &f->library, f->kern);
		if (err)
			return err;
	}
	if (!f->func) {
		err = fdry_call(drv, cuKernelGetFunction, &f->func, f->kern);
		if (err)
			return err;
	}
	err = fdry_call(drv, cuFuncGetModule, &f->module, f->func);
	return err ? err : fdry_call(drv, cuFuncGetName, &f->name, f->func);
}

struct attr {
	CUfunction_attribute attr;
	int32_t fresh;
};

static const struct attr attrs[FDRY_FUNC_ATTR_COUNT] = {
#define X(id, attr, name, fresh) [id] = { attr, fresh },
	FDRY_FUNC_ATTRS(X)
#undef X
};

/*
 * A program sets an attribute on the kernel, on the context's function, or on both. A node does not
 * show which of them it launches. So the value that was set counts. If both were set, the
 * function's value counts, as in a launch. For shared memory the larger value counts, since it is a
 * limit.
 */
static int32_t attr_select(const struct attr *a, int32_t func, int32_t kern)
{
	if (a == &attrs[FDRY_FUNC_ATTR_MAX_SHARED])
		return func > kern ? func : kern;
	return func != a->fresh ? func : kern;
}

static int attrs_get(const struct fdry_kernel_set *set, struct found *f)
{
	int32_t kern;
	size_t i;
	int err;

	for (i = 0; i < FDRY_FUNC_ATTR_COUNT; i++) {
		err = fdry_call(set->drv, cuFuncGetAttribute, &f->attrs[i], attrs[i].attr, f->func);
		if (err)
			return err;
		if (!f->kern)
			continue;
		err = fdry_call(set->drv, cuKernelGetAttribute, &kern, attrs[i].attr, f->kern,
				set->dev);
		if (err)
			return err;
		f->attrs[i] = attr_select(&attrs[i], f->attrs[i], kern);
	}
	return 0;
}

static int params_get(const struct fdry_driver *drv, struct found *f)
{
	struct fdry_param p;
	size_t offset, size, i;
	CUresult res;
	int err;

	for (i = 0; i <= FDRY_KERNEL_PARAMS_MAX; i++) {
		res = fdry_call_raw(drv, cuFuncGetParamInfo, f->func, i, &offset, &size);
		if (res == CUDA_ERROR_INVALID_VALUE)
			return 0; /* one past the last */
		if (res)
			return fdry_driver_result(drv, FDRY_DRV_cuFuncGetParamInfo, res);
		if (!size || offset < f->param_bytes || offset + size > FDRY_KERNEL_PARAM_BYTES_MAX)
			return fdry_fail(FDRY_E_REFUSED,
					 "the driver reports parameter %zu at offset %zu with %zu "
					 "bytes, which is impossible",
					 i, offset, size);
		p = (struct fdry_param){ (uint16_t)offset, (uint16_t)size };
		err = fdry_buf_put(&f->params, &p, sizeof(p));
		if (err)
			return err;
		f->param_bytes = (uint32_t)(offset + size);
	}
	return fdry_fail(FDRY_E_REFUSED, "it has more than %u parameters", FDRY_KERNEL_PARAMS_MAX);
}

/* --- code --- */

static int ptx_compile(const struct fdry_driver *drv, CUlinkState link, const struct fdry_buf *text,
		       struct fdry_buf *ret)
{
	void *cubin;
	size_t len;

	return fdry_call(drv, cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, text->data, text->len,
			 "ptx", 0, NULL, NULL) ?:
	       fdry_call(drv, cuLinkComplete, link, &cubin, &len) ?:
	       fdry_buf_put(ret, cubin, len);
}

/* The cubin that the driver makes of PTX, with the options of its load. */
static int ptx_link(const struct fdry_driver *drv, const struct fdry_code_image *image,
		    struct fdry_span ptx, struct fdry_buf *ret)
{
	struct fdry_buf text = { 0 }, values = { 0 }; /* copies, since the driver writes into some
							 values */
	CUlinkState link;
	int err;

	err = fdry_buf_put(&text, ptx.data, ptx.len);
	if (err)
		goto out_release;
	err = fdry_buf_put(&text, "", 1); /* the length includes the terminating NUL */
	if (err)
		goto out_release;
	err = fdry_buf_put(&values, image->jit_values, image->njit * sizeof(*image->jit_values));
	if (err)
		goto out_release;
	err = fdry_call(drv, cuLinkCreate_v2, image->njit, (CUjit_option *)image->jit,
			(void **)(void *)values.data, &link);
	if (err)
		goto out_release;
	err = ptx_compile(drv, link, &text, ret);
	(void)fdry_call_raw(drv, cuLinkDestroy, link);
out_release:
	fdry_buf_release(&text);
	fdry_buf_release(&values);
	return err;
}

static int code_resolve(struct fdry_kernel_set *set, const struct fdry_code_image *image,
			struct fdry_set_code *code)
{
	int err;

	err = fdry_devcode_init(image->data, image->len, set->cc, &code->found);
	if (err)
		return err;
	code->bytes = code->found.bytes;
	if (code->found.kind == FDRY_DEVCODE_PTX) {
		err = ptx_link(set->drv, image, code->bytes, &code->linked);
		code->bytes = (struct fdry_span){ code->linked.data, code->linked.len };
	}
	if (err)
		return err;
	if (code->found.kind != FDRY_DEVCODE_HOST)
		return fdry_cubin_new(code->bytes, &code->cubin);
	return 0;
}

void fdry_set_slice_release(struct fdry_set_slice *s)
{
	fdry_buf_release(&s->kernels);
	fdry_buf_release(&s->roots);
	fdry_buf_release(&s->bytes);
	free(s->whole_reason);
}

static void slices_release(struct fdry_set_code *code)
{
	struct fdry_set_slice *s = (struct fdry_set_slice *)code->slices.data;
	size_t i;

	for (i = 0; i < code->slices.len / sizeof(*s); i++)
		fdry_set_slice_release(&s[i]);
	fdry_buf_release(&code->slices);
}

static uint64_t slices_bytes(const struct fdry_set_code *code)
{
	const struct fdry_set_slice *s = (const struct fdry_set_slice *)code->slices.data;
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < code->slices.len / sizeof(*s); i++)
		sum += s[i].bytes.len;
	return sum;
}

static void code_release(struct fdry_set_code *code)
{
	struct fdry_set_reach *r = (struct fdry_set_reach *)code->reaches.data;
	size_t i;

	for (i = 0; i < code->reaches.len / sizeof(*r); i++)
		fdry_code_reach_release(&r[i].reach);
	fdry_buf_release(&code->reaches);
	slices_release(code);
	fdry_cubin_free(code->cubin);
	fdry_buf_release(&code->linked);
	fdry_devcode_release(&code->found);
}

/* PTX is compiled with the options, so equal bytes with other options are other code. */
static bool image_same(const struct fdry_code_image *a, const struct fdry_code_image *b)
{
	uint32_t i;

	if (a->data != b->data || a->len != b->len || a->njit != b->njit)
		return false;
	for (i = 0; i < a->njit; i++)
		if (a->jit[i] != b->jit[i] || a->jit_values[i] != b->jit_values[i])
			return false;
	return true;
}

/* The index of the first code with the bytes of @code, or @n. Cubins have tens of megabytes, but
 * most differ in length. */
static uint32_t code_first(const struct fdry_set_code *codes, uint32_t n,
			   const struct fdry_set_code *code)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (codes[i].first == i && codes[i].bytes.len == code->bytes.len &&
		    !memcmp(codes[i].bytes.data, code->bytes.data, code->bytes.len))
			break;
	return i;
}

static int variables_find(struct fdry_set_code *code)
{
	const struct fdry_cubin *c = code->cubin;
	struct fdry_buf variables = { 0 };
	uint32_t i;
	int err;

	for (i = 0; c && i < c->nvariables; i++)
		code->variables |= !c->variables[i].literal && c->variables[i].size;
	if (c)
		return 0;
	err = fdry_code_vars_host(code->bytes, &variables, NULL);
	code->variables = variables.len != 0;
	fdry_buf_release(&variables);
	return err;
}

static int code_get(struct fdry_kernel_set *set, const struct found *f, uint32_t *ret)
{
	struct fdry_set_code *codes = (struct fdry_set_code *)set->codes.data, add = { 0 };
	struct fdry_code_image image = { 0 };
	uint32_t i, n = fdry_set_ncodes(set);
	int err;

	err = set->find(set->find_arg, f->library, f->module, &image);
	if (err == -FDRY_E_NOENT)
		return fdry_fail(FDRY_E_REFUSED, "its code was loaded before the interposer was in "
						 "place, or without it; import foundry first");
	if (err)
		return err;
	for (i = 0; i < n; i++) {
		if (!image_same(&codes[i].image, &image))
			continue;
		codes[i].used = true;
		*ret = i;
		return 0;
	}
	add.used = true;
	add.image = image;
	err = code_resolve(set, &image, &add);
	if (err)
		goto out_release;
	err = variables_find(&add);
	if (err)
		goto out_release;
	add.first = code_first(codes, n, &add);
	err = fdry_buf_put(&set->codes, &add, sizeof(add));
	if (err)
		goto out_release;
	*ret = n;
	return 0;
out_release:
	code_release(&add);
	return err;
}

/* Check that the driver and the code agree on the parameters, which define the layout of every
 * node's arguments. */
static int code_check(const struct fdry_set_code *code, const struct found *f)
{
	size_t n = f->params.len / sizeof(struct fdry_param);
	const struct fdry_cubin_kernel *k;

	if (!code->cubin)
		return 0;
	k = fdry_cubin_kernel_find(code->cubin, f->name);
	if (!k)
		return fdry_fail(FDRY_E_REFUSED,
				 "the code that it was loaded from has no such kernel, or several");
	if (k->nparams != n || f->param_bytes > k->param_bytes)
		return fdry_fail(
			FDRY_E_REFUSED,
			"the driver reports %zu parameters in %u bytes, but its code has %u in %u",
			n, f->param_bytes, k->nparams, k->param_bytes);
	if (n && memcmp(k->params, f->params.data, f->params.len))
		return fdry_fail(
			FDRY_E_REFUSED,
			"the driver reports other offsets of its parameters than its code has");
	return 0;
}

/* --- interning --- */

/* The kernels of two loads are two if each load has variables of its own. */
static bool entry_same(const struct fdry_kernel_set *set, const struct fdry_set_entry *e,
		       const struct found *f, uint32_t code)
{
	const struct fdry_set_code *codes = (const struct fdry_set_code *)set->codes.data;

	return !strcmp(e->k.name, f->name) && codes[e->code].first == codes[code].first &&
	       !memcmp(e->k.attrs, f->attrs, sizeof(f->attrs)) &&
	       (!codes[code].variables || fdry_set_load(set, e) == f->module);
}

static int entry_new(struct fdry_kernel_set *set, const struct found *f, uint32_t code,
		     uint32_t *ret)
{
	struct fdry_set_entry *e;
	int err;

	e = calloc(1, sizeof(*e) + f->params.len);
	if (!e)
		return fdry_nomem();
	e->code = code;
	e->k.name = strdup(f->name);
	e->k.nparams = (uint32_t)(f->params.len / sizeof(struct fdry_param));
	e->k.param_bytes = f->param_bytes;
	e->k.params = e->params;
	memcpy(e->k.attrs, f->attrs, sizeof(f->attrs));
	if (f->params.len)
		memcpy(e->params, f->params.data, f->params.len);
	err = e->k.name ? fdry_buf_put(&set->entries, &e, sizeof(e)) : fdry_nomem();
	if (err) {
		free((char *)e->k.name);
		free(e);
		return err;
	}
	*ret = fdry_kernel_set_count(set) - 1;
	return 0;
}

static int entry_get(struct fdry_kernel_set *set, const struct found *f, uint32_t code,
		     uint32_t *ret)
{
	struct fdry_set_owner owner = { f->library, f->module, code };
	struct fdry_set_entry **all = (struct fdry_set_entry **)set->entries.data;
	uint32_t i = 0, n = fdry_kernel_set_count(set);
	int err;

	while (i < n && !entry_same(set, all[i], f, code))
		i++;
	err = i < n ? 0 : entry_new(set, f, code, &i);
	if (err)
		return err;
	all = (struct fdry_set_entry **)set->entries.data; /* entry_new() may have moved them */
	err = fdry_buf_put(&all[i]->owners, &owner, sizeof(owner));
	if (err)
		return err;
	*ret = i;
	return 0;
}

static int found_intern(struct fdry_kernel_set *set, struct found *f, uint32_t *ret)
{
	uint32_t code = 0;
	int err;

	err = attrs_get(set, f);
	if (err)
		return err;
	err = params_get(set->drv, f);
	if (err)
		return err;
	err = code_get(set, f, &code);
	if (err)
		return err;
	err = code_check(&((struct fdry_set_code *)set->codes.data)[code], f);
	return err ? err : entry_get(set, f, code, ret);
}

int fdry_kernel_set_intern(struct fdry_kernel_set *set, CUkernel kern, CUfunction func,
			   uint32_t *index)
{
	struct found f = { .kern = kern, .func = func };
	const void *handle = kern ? (const void *)kern : (const void *)func;
	struct fdry_set_handle *slot;
	uint32_t i;
	int err;

	if (!handle)
		return fdry_fail(FDRY_E_REFUSED, "a kernel node has neither kernel nor function");
	slot = set->nslots ? handle_slot(set, handle) : NULL;
	if (slot && slot->handle) {
		*index = slot->index;
		return 0;
	}
	err = owner_find(set->drv, &f);
	if (err)
		return err;
	err = found_intern(set, &f, &i) ?: handle_put(set, handle, i);
	if (err)
		fdry_fail_at(err, "kernel %.200s", f.name);
	else
		*index = i;
	fdry_buf_release(&f.params);
	return err;
}

void fdry_kernel_set_allow_shared(struct fdry_kernel_set *set, uint32_t index, uint32_t bytes)
{
	struct fdry_set_entry *e = ((struct fdry_set_entry **)set->entries.data)[index];

	if (e->shared < bytes)
		e->shared = bytes;
}

int fdry_kernel_set_print(const struct fdry_kernel_set *set, uint32_t index, struct fdry_buf *ret)
{
	const struct fdry_set_entry *e = ((struct fdry_set_entry **)set->entries.data)[index];
	const struct fdry_code_image *code =
		&((const struct fdry_set_code *)set->codes.data)[e->code].image;
	/* The interposer keeps the bytes for the life of the process, so this address never belongs
	 * to other code. */
	const uint64_t head[] = { index,
				  (uintptr_t)code->data,
				  code->len,
				  (uintptr_t)code->jit_values,
				  e->k.param_bytes,
				  e->k.nparams };

	return fdry_buf_put(ret, head, sizeof(head)) ?:
	       fdry_buf_put(ret, e->k.attrs, sizeof(e->k.attrs)) ?:
	       fdry_buf_put(ret, e->params, e->k.nparams * sizeof(*e->params)) ?:
	       fdry_buf_put(ret, e->k.name, strlen(e->k.name) + 1);
}

/* --- the set --- */

int fdry_kernel_set_new(const struct fdry_driver *drv, CUdevice dev, fdry_code_find_fn find,
			void *arg, struct fdry_kernel_set **ret)
{
	struct fdry_kernel_set *set;
	int major, minor, err;

	err = fdry_call(drv, cuDeviceGetAttribute, &major,
			CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
	if (err)
		return err;
	err = fdry_call(drv, cuDeviceGetAttribute, &minor,
			CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
	if (err)
		return err;
	set = calloc(1, sizeof(*set));
	if (!set)
		return fdry_nomem();
	set->drv = drv;
	set->dev = dev;
	set->cc = (unsigned int)(10 * major + minor);
	set->find = find;
	set->find_arg = arg;
	*ret = set;
	return 0;
}

void fdry_kernel_codes_release(struct fdry_buf *codes)
{
	struct fdry_set_code *c = (struct fdry_set_code *)codes->data;
	size_t i;

	for (i = 0; i < codes->len / sizeof(*c); i++)
		code_release(&c[i]);
	fdry_buf_release(codes);
}

void fdry_kernel_set_adopt(struct fdry_kernel_set *set, struct fdry_buf *codes)
{
	uint32_t i;

	set->codes = *codes;
	*codes = (struct fdry_buf){ 0 };
	for (i = 0; i < fdry_set_ncodes(set); i++)
		((struct fdry_set_code *)set->codes.data)[i].used = false;
}

void fdry_kernel_set_yield(struct fdry_kernel_set *set, struct fdry_buf *codes)
{
	struct fdry_set_code *c = (struct fdry_set_code *)set->codes.data;
	uint64_t bytes = 0, slices = 0;
	uint32_t i;

	for (i = 0; i < fdry_set_ncodes(set); i++) {
		bytes += c[i].bytes.len;
		slices += slices_bytes(&c[i]);
	}
	if (bytes > CODES_MAX)
		return;
	for (i = 0; i < fdry_set_ncodes(set) && slices > SLICES_MAX; i++)
		slices_release(&c[i]);
	*codes = set->codes;
	set->codes = (struct fdry_buf){ 0 };
}

void fdry_kernel_set_free(struct fdry_kernel_set *set)
{
	struct fdry_set_entry **e;
	uint32_t i;

	if (!set)
		return;
	e = (struct fdry_set_entry **)set->entries.data;
	for (i = 0; i < fdry_kernel_set_count(set); i++) {
		free((char *)e[i]->k.name);
		free((char *)e[i]->k.whole_reason);
		fdry_buf_release(&e[i]->owners);
		free(e[i]);
	}
	fdry_kernel_codes_release(&set->codes);
	fdry_set_variables_clear(set);
	fdry_buf_release(&set->variables);
	fdry_buf_release(&set->functions);
	fdry_buf_release(&set->known);
	fdry_buf_release(&set->pointed);
	fdry_buf_release(&set->entries);
	fdry_buf_release(&set->objects);
	free(set->slots);
	free(set);
}

const struct fdry_kernel *fdry_kernel_set_get(const struct fdry_kernel_set *set, uint32_t index)
{
	return &((struct fdry_set_entry **)set->entries.data)[index]->k;
}

uint32_t fdry_kernel_set_count(const struct fdry_kernel_set *set)
{
	return (uint32_t)(set->entries.len / sizeof(struct fdry_set_entry *));
}

uint32_t fdry_kernel_set_object_count(const struct fdry_kernel_set *set)
{
	return (uint32_t)(set->objects.len / sizeof(struct fdry_set_object));
}

struct fdry_span fdry_kernel_set_object(const struct fdry_kernel_set *set, uint32_t i,
					struct fdry_oid *ret)
{
	const struct fdry_set_object *o = &((const struct fdry_set_object *)set->objects.data)[i];

	*ret = o->oid;
	return o->bytes;
}

/* Whether it is the first of the used codes with these bytes. */
static bool code_counts(const struct fdry_set_code *codes, uint32_t i)
{
	uint32_t k;

	for (k = codes[i].first; k < i; k++)
		if (codes[k].used && codes[k].first == codes[i].first)
			return false;
	return codes[i].used;
}

uint64_t fdry_kernel_set_whole_bytes(const struct fdry_kernel_set *set)
{
	const struct fdry_set_code *c = (const struct fdry_set_code *)set->codes.data;
	uint32_t i, n = fdry_set_ncodes(set);
	uint64_t sum = 0;

	for (i = 0; i < n; i++)
		sum += code_counts(c, i) ? c[i].bytes.len : 0;
	return sum;
}
