// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_slice.c - makes the kernel objects of a kernel set.
 *
 * Kernels of one cubin that reach a common writable variable stay in one object. Every other kernel
 * gets an object of its own. If the slicer refuses, the kernels keep the whole cubin, and the
 * kernel table records the slicer's reason. What is found of a code and its kernels stays with the
 * code, so that later sets need not slice it again (fdry_kernel_set_adopt()).
 */
#include <stdlib.h>
#include <string.h>

#include "graph/kernel_set.h"
#include "graph/module.h"
#include "graph/code_reach.h"
#include "graph/slice.h"

#define REASON_MAX 199u /* bytes of the slicer's reason */

/* One kernel of a cubin. */
struct part {
	struct fdry_set_entry *e;
	uint32_t kernel; /* index in the cubin */
	uint32_t group;  /* index of the first part that must stay in the same object */
	struct fdry_code_reach reach; /* trimmed; the code owns it */
};

struct parts {
	struct fdry_kernel_set *set;
	struct fdry_set_code *code;
	struct part *p;
	uint32_t n;
};

static struct fdry_set_code *code_of(const struct fdry_kernel_set *set,
				     const struct fdry_set_entry *e)
{
	return &((struct fdry_set_code *)set->codes.data)[e->code];
}

static struct fdry_set_entry *entry_of(const struct fdry_kernel_set *set, uint32_t i)
{
	return ((struct fdry_set_entry **)set->entries.data)[i];
}

/* --- objects --- */

/* Add an object unless the set has it. */
static int object_put(struct fdry_kernel_set *set, struct fdry_span bytes,
		      const struct fdry_oid *oid)
{
	const struct fdry_set_object *o = (struct fdry_set_object *)set->objects.data;
	struct fdry_set_object add = { .oid = *oid, .bytes = bytes };
	uint32_t i, n = fdry_kernel_set_object_count(set);

	for (i = 0; i < n; i++)
		if (fdry_oid_eq(&o[i].oid, oid))
			return 0;
	return fdry_buf_put(&set->objects, &add, sizeof(add));
}

/* The id of an object. A seal never stores code that a load refuses. */
static int object_check(const struct fdry_kernel_set *set, struct fdry_span bytes,
			struct fdry_oid *ret)
{
	int err = fdry_module_check(set->drv, bytes);

	return err ? err : fdry_oid_of(bytes.data, bytes.len, ret);
}

static int entry_whole(struct fdry_kernel_set *set, struct fdry_set_entry *e, const char *reason)
{
	struct fdry_set_code *code = code_of(set, e);
	char *copy;
	int err = code->checked ? 0 : object_check(set, code->bytes, &code->oid);

	if (err)
		return err;
	code->checked = true;
	err = object_put(set, code->bytes, &code->oid);
	if (err)
		return err;
	copy = strdup(reason);
	if (!copy)
		return fdry_nomem();
	free((char *)e->k.whole_reason);
	e->k.whole_reason = copy;
	e->k.whole = true;
	e->k.object = code->oid;
	return 0;
}

/* --- one cubin's kernels --- */

/* Whether both kernels reach a variable that one of them could write. */
static bool shares_written(const struct fdry_cubin *c, const struct fdry_code_reach *a,
			   const struct fdry_code_reach *b)
{
	uint32_t i;

	for (i = 0; i < c->nvariables; i++)
		if (a->variables[i] && b->variables[i] && !c->variables[i].constant &&
		    !c->variables[i].literal)
			return true;
	return false;
}

static void group_join(struct parts *ps, uint32_t a, uint32_t b)
{
	uint32_t i, from = ps->p[a].group, to = ps->p[b].group, low = from < to ? from : to;

	for (i = 0; i < ps->n; i++)
		if (ps->p[i].group == from || ps->p[i].group == to)
			ps->p[i].group = low;
}

/* Refuse kernels of two loads of a module: each load has its own variables, and one object has one
 * set of them. */
static int group_loads(const struct parts *ps, uint32_t a, uint32_t b)
{
	const struct fdry_set_owner *x = (const struct fdry_set_owner *)ps->p[a].e->owners.data;
	const struct fdry_set_owner *y = (const struct fdry_set_owner *)ps->p[b].e->owners.data;
	size_t i, n = ps->p[b].e->owners.len / sizeof(*y);

	for (i = 0; i < n; i++)
		if (x->module != y[i].module)
			return fdry_fail(FDRY_E_REFUSED,
					 "kernel %.200s: its module was loaded twice, and each "
					 "load has its own "
					 "variables, which kernels write; load it once",
					 ps->p[b].e->k.name);
	return 0;
}

/* Refuse a kernel with two sets of attributes: it would be loaded twice, and each load has its own
 * variables. */
static int group_attrs(const struct parts *ps, uint32_t a, uint32_t b)
{
	if (a == b || ps->p[a].kernel != ps->p[b].kernel)
		return 0;
	return fdry_fail(
		FDRY_E_REFUSED,
		"kernel %.200s: it is launched as a kernel and as a function, which have different "
		"attributes, and it writes variables of its module; set the same attributes on "
		"both",
		ps->p[a].e->k.name);
}

static int parts_group(struct parts *ps)
{
	uint32_t i, j;
	int err;

	for (i = 0; i < ps->n; i++)
		for (j = 0; j <= i; j++) {
			if (!shares_written(ps->code->cubin, &ps->p[i].reach, &ps->p[j].reach))
				continue;
			err = group_loads(ps, i, j);
			if (err)
				return err;
			err = group_attrs(ps, i, j);
			if (err)
				return err;
			group_join(ps, i, j);
		}
	return 0;
}

/* What a kernel reaches, found once for a code. */
static int reach_get(struct fdry_set_code *code, uint32_t kernel, struct fdry_code_reach *ret)
{
	const struct fdry_set_reach *r = (const struct fdry_set_reach *)code->reaches.data;
	struct fdry_set_reach add = { .kernel = kernel };
	size_t i, n = code->reaches.len / sizeof(*r);
	int err;

	for (i = 0; i < n; i++)
		if (r[i].kernel == kernel) {
			*ret = r[i].reach;
			return 0;
		}
	err = fdry_code_reach_init(code->cubin, &kernel, 1, &add.reach);
	if (err)
		return err;
	fdry_code_reach_trim(&add.reach);
	err = fdry_buf_put(&code->reaches, &add, sizeof(add));
	if (err)
		fdry_code_reach_release(&add.reach);
	else
		*ret = add.reach;
	return err;
}

static int part_add(struct parts *ps, struct fdry_set_entry *e)
{
	const struct fdry_cubin *c = ps->code->cubin;
	const struct fdry_cubin_kernel *k = fdry_cubin_kernel_find(c, e->k.name);
	struct part *p = &ps->p[ps->n];
	int err;

	if (!k)
		return fdry_bug("kernel %.200s is not in its cubin", e->k.name);
	p->e = e;
	p->kernel = (uint32_t)(k - c->kernels);
	p->group = ps->n;
	err = reach_get(ps->code, p->kernel, &p->reach);
	if (err)
		return fdry_fail_at(err, "kernel %.200s", e->k.name);
	ps->n++;
	if (p->reach.refused[0])
		return fdry_fail(FDRY_E_REFUSED,
				 "kernel %.200s %s, which cannot be restored exactly; do not "
				 "capture it",
				 e->k.name, p->reach.refused);
	return 0;
}

/* The slice of @kernels, or FDRY_E_NOSLICE. */
static int slice_make(const struct fdry_cubin *c, const uint32_t *kernels, uint32_t n,
		      struct fdry_buf *ret)
{
	struct fdry_code_reach all;
	int err = fdry_code_reach_init(c, kernels, n, &all);

	if (err)
		return err;
	err = fdry_slice(&all, ret);
	fdry_code_reach_release(&all);
	return err;
}

static int slice_new(const struct parts *ps, const uint32_t *kernels, uint32_t n,
		     struct fdry_set_slice *s)
{
	int err = fdry_buf_put(&s->kernels, kernels, n * sizeof(*kernels));

	if (err)
		return err;
	err = slice_make(ps->code->cubin, kernels, n, &s->bytes);
	if (err == -FDRY_E_NOSLICE) {
		s->whole_reason = strndup(fdry_last_error(), REASON_MAX);
		return s->whole_reason ? 0 : fdry_nomem();
	}
	if (err)
		return err;
	return object_check(ps->set, (struct fdry_span){ s->bytes.data, s->bytes.len }, &s->oid);
}

/* The slice of @kernels, made once for a code. *ret is valid until the next call. */
static int slice_get(const struct parts *ps, const uint32_t *kernels, uint32_t n,
		     const struct fdry_set_slice **ret)
{
	struct fdry_buf *slices = &ps->code->slices;
	const struct fdry_set_slice *s = (const struct fdry_set_slice *)slices->data;
	size_t i, count = slices->len / sizeof(*s), len = n * sizeof(*kernels);
	struct fdry_set_slice add = { 0 };
	int err;

	for (i = 0; i < count; i++)
		if (s[i].kernels.len == len && !memcmp(s[i].kernels.data, kernels, len))
			break;
	if (i == count) {
		err = slice_new(ps, kernels, n, &add) ?: fdry_buf_put(slices, &add, sizeof(add));
		if (err) {
			fdry_buf_release(&add.kernels);
			fdry_buf_release(&add.bytes);
			free(add.whole_reason);
			return err;
		}
	}
	*ret = (const struct fdry_set_slice *)slices->data + i;
	return 0;
}

static int group_whole(struct parts *ps, uint32_t group, const char *reason)
{
	uint32_t i;
	int err;

	for (i = 0; i < ps->n; i++) {
		if (ps->p[i].group != group)
			continue;
		err = entry_whole(ps->set, ps->p[i].e, reason);
		if (err)
			return err;
	}
	return 0;
}

static int group_slice(struct parts *ps, uint32_t group, uint32_t *kernels)
{
	const struct fdry_set_slice *s;
	uint32_t i, n = 0;
	int err;

	for (i = group; i < ps->n; i++)
		if (ps->p[i].group == group)
			kernels[n++] = ps->p[i].kernel;
	err = slice_get(ps, kernels, n, &s);
	if (err)
		return fdry_fail_at(err, "kernel %.200s", ps->p[group].e->k.name);
	if (s->whole_reason)
		return group_whole(ps, group, s->whole_reason);
	err = object_put(ps->set, (struct fdry_span){ s->bytes.data, s->bytes.len }, &s->oid);
	for (i = group; i < ps->n; i++)
		if (ps->p[i].group == group)
			ps->p[i].e->k.object = s->oid;
	return err;
}

static int parts_slice(struct parts *ps)
{
	uint32_t *kernels = calloc(ps->n, sizeof(*kernels)), i;
	int err = kernels ? parts_group(ps) : fdry_nomem();

	for (i = 0; !err && i < ps->n; i++)
		if (ps->p[i].group == i)
			err = group_slice(ps, i, kernels);
	for (i = 0; !err && i < ps->n; i++) {
		err = fdry_set_variables_read(ps->set, ps->p[i].e, &ps->p[i].reach);
		if (err)
			err = fdry_fail_at(err, "kernel %.200s", ps->p[i].e->k.name);
	}
	free(kernels);
	return err;
}

static bool same_code(const struct fdry_kernel_set *set, uint32_t i, uint32_t j)
{
	return code_of(set, entry_of(set, i))->first == code_of(set, entry_of(set, j))->first;
}

/* Slice all kernels of one cubin; @first is the first of them. */
static int cubin_slice(struct fdry_kernel_set *set, uint32_t first)
{
	struct parts ps = { .set = set, .code = code_of(set, entry_of(set, first)) };
	uint32_t i, n = fdry_kernel_set_count(set);
	int err;

	ps.p = calloc(n - first, sizeof(*ps.p));
	if (!ps.p)
		return fdry_nomem();
	for (i = first; i < n; i++) {
		err = same_code(set, first, i) ? part_add(&ps, entry_of(set, i)) : 0;
		if (err)
			goto out_free;
	}
	err = parts_slice(&ps);
out_free:
	free(ps.p);
	return err;
}

/* Refuse kernels that a load would refuse. */
static int attrs_check(const struct fdry_kernel_set *set)
{
	uint32_t i, n = fdry_kernel_set_count(set);
	struct fdry_kernel *k = calloc((size_t)n + 1, sizeof(*k));
	int err;

	if (!k)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		k[i] = entry_of(set, i)->k;
	err = fdry_kernel_attrs_check(k, n);
	free(k);
	return err;
}

int fdry_kernel_set_slice(struct fdry_kernel_set *set)
{
	uint32_t i, j, n = fdry_kernel_set_count(set);
	struct fdry_set_entry *e;
	int err;

	fdry_set_variables_clear(set);
	for (i = 0; i < n; i++) {
		e = entry_of(set, i);
		for (j = 0; j < i && !same_code(set, j, i); j++)
			;
		if (code_of(set, e)->cubin) {
			err = j == i ? cubin_slice(set, i) : 0;
		} else {
			err = entry_whole(set, e, "software driver object") ?:
			      fdry_set_host_variables_read(set, e);
		}
		if (err)
			return err;
	}
	return attrs_check(set);
}
