// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_slice.c - makes the kernel objects of a kernel set.
 *
 * Kernels of one cubin that reach a common writable variable stay in one object, and so do those
 * that reach a variable to which pointers point, and all if one calls functions through pointers.
 * Every other kernel gets an object of its own. If a module was loaded several times, each load's
 * variables get an object of their own, too, but constants do only if they differ. If the slicer
 * refuses, the kernels keep the whole cubin, and the kernel table records the reason. Later sets
 * get the slices of a code with it (fdry_kernel_set_adopt()).
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

/* What a slice has. */
struct wanted {
	struct fdry_buf kernels; /* u32 each: indices in the cubin; none: all of the code */
	struct fdry_buf roots;   /* u32 each: variables that they may reach by pointers alone */
	uint32_t copy;
};

/* How pointers concern a variable. */
enum root {
	ROOT_NONE,
	ROOT_BEFORE, /* they may point to its end */
	ROOT_POINTED,
};

struct parts {
	struct fdry_kernel_set *set;
	struct fdry_set_code *code;
	CUmodule load; /* the load of the kernels; NULL: it does not matter */
	struct part *p;
	uint32_t n;
	uint8_t *roots; /* enum root, by variable of the cubin */
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

static struct fdry_span span_of(const struct fdry_buf *b)
{
	return (struct fdry_span){ b->data, b->len };
}

/* --- objects --- */

#define COPIES_MAX 1024u /* loads of the same code with variables of their own */

static struct fdry_set_object *object_find(const struct fdry_kernel_set *set,
					   const struct fdry_oid *oid)
{
	struct fdry_set_object *o = (struct fdry_set_object *)set->objects.data;
	uint32_t i, n = fdry_kernel_set_object_count(set);

	for (i = 0; i < n; i++)
		if (fdry_oid_eq(&o[i].oid, oid))
			return &o[i];
	return NULL;
}

/* Add an object unless the set has it. @own: kernels can write its variables, or pointers point to
 * them. */
static int object_put(struct fdry_kernel_set *set, struct fdry_span bytes,
		      const struct fdry_oid *oid, CUmodule load, bool own)
{
	struct fdry_set_object add = { .oid = *oid, .load = load, .own = own, .bytes = bytes };

	struct fdry_set_object *o = object_find(set, oid);

	if (!o)
		return fdry_buf_put(&set->objects, &add, sizeof(add));
	o->own |= own;
	return 0;
}

/* Make the bytes of another object with the same code. The driver reads code as far as its headers
 * say, so it ignores bytes behind the end. */
static int copy_mark(struct fdry_buf *bytes, uint32_t copy)
{
	static const char mark[8] = "FDRYCOPY";

	return !copy ? 0
		     : fdry_buf_put(bytes, mark, sizeof(mark)) ?: fdry_buf_put_u64(bytes, copy);
}

static int copies_fail(const struct fdry_set_entry *e)
{
	return fdry_fail(FDRY_E_LIMIT,
			 "kernel %.200s: its module was loaded more than %u times, and each load "
			 "has its own variables, which kernels write or pointers point to; load it "
			 "less often",
			 e->k.name, COPIES_MAX);
}

/* The id of an object. A seal never stores code that a load refuses. */
static int object_check(const struct fdry_kernel_set *set, struct fdry_span bytes,
			struct fdry_oid *ret)
{
	int err = fdry_module_check(set->drv, bytes);

	return err ? err : fdry_oid_of(bytes.data, bytes.len, ret);
}

/* The slice of @kernels with the variables @roots, or FDRY_E_NOSLICE. */
static int slice_make(const struct fdry_cubin *c, const struct fdry_buf *kernels,
		      const struct fdry_buf *roots, struct fdry_buf *ret)
{
	struct fdry_code_reach all;
	int err = fdry_code_reach_init(c, fdry_array(*kernels, uint32_t),
				       (uint32_t)fdry_array_count(*kernels, uint32_t), &all);

	if (err)
		return err;
	err = fdry_code_reach_variables(&all, fdry_array(*roots, uint32_t),
					(uint32_t)fdry_array_count(*roots, uint32_t))
		      ?: fdry_slice(&all, ret);
	fdry_code_reach_release(&all);
	return err;
}

static int slice_new(const struct fdry_kernel_set *set, const struct fdry_set_code *code,
		     const struct wanted *w, struct fdry_set_slice *s)
{
	int err = fdry_buf_put(&s->kernels, w->kernels.data, w->kernels.len) ?:
		  fdry_buf_put(&s->roots, w->roots.data, w->roots.len);

	if (err)
		return err;
	err = w->kernels.len
		      ? slice_make(code->cubin, &w->kernels, &w->roots, &s->bytes)
		      : fdry_buf_put(&s->bytes, code->bytes.data, code->bytes.len);
	if (err == -FDRY_E_NOSLICE) {
		s->whole_reason = strndup(fdry_last_error(), REASON_MAX);
		return s->whole_reason ? 0 : fdry_nomem();
	}
	if (err)
		return err;
	return copy_mark(&s->bytes, s->copy) ?:
	       object_check(set, span_of(&s->bytes), &s->oid);
}

static bool list_same(const struct fdry_buf *a, const struct fdry_buf *b)
{
	return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len));
}

/* A slice, made once for a code. *ret is valid until the next call. */
static int slice_get(const struct fdry_kernel_set *set, struct fdry_set_code *code,
		     const struct wanted *w, const struct fdry_set_slice **ret)
{
	struct fdry_buf *slices = &code->slices;
	const struct fdry_set_slice *s = (const struct fdry_set_slice *)slices->data;
	size_t i, count = slices->len / sizeof(*s);
	struct fdry_set_slice add = { .copy = w->copy };
	int err;

	for (i = 0; i < count; i++)
		if (list_same(&s[i].kernels, &w->kernels) && list_same(&s[i].roots, &w->roots) &&
		    s[i].copy == w->copy)
			break;
	if (i == count) {
		err = slice_new(set, code, w, &add) ?:
		      fdry_buf_put(slices, &add, sizeof(add));
		if (err) {
			fdry_set_slice_release(&add);
			return err;
		}
	}
	*ret = (const struct fdry_set_slice *)slices->data + i;
	return 0;
}

/* --- one cubin's kernels --- */

/* Whether both kernels reach a variable that one of them could write, or that pointers concern. Or
 * one of them calls functions through pointers, which the other may have stored: their code would
 * read the constants of another load. */
static bool stay_together(const struct parts *ps, uint32_t x, uint32_t y)
{
	const struct fdry_cubin_variable *v = ps->code->cubin->variables;
	const struct part *a = &ps->p[x], *b = &ps->p[y];
	uint32_t i;

	if (a->reach.pointers || b->reach.pointers)
		return true;
	for (i = 0; i < ps->code->cubin->nvariables; i++)
		if (a->reach.variables[i] && b->reach.variables[i] &&
		    (ps->roots[i] || (!v[i].constant && !v[i].literal)))
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

/* Refuse a kernel with two sets of attributes: it would be loaded twice, and each load has its own
 * variables. */
static int group_attrs(const struct parts *ps, uint32_t a, uint32_t b)
{
	if (a == b || ps->p[a].kernel != ps->p[b].kernel)
		return 0;
	return fdry_fail(
		FDRY_E_REFUSED,
		"kernel %.200s: it is launched as a kernel and as a function, which have different "
		"attributes, and it writes variables of its module, pointers point to them, or "
		"kernels call functions through pointers; set the same attributes on both",
		ps->p[a].e->k.name);
}

static int parts_group(struct parts *ps)
{
	uint32_t i, j;
	int err;

	for (i = 0; i < ps->n; i++)
		for (j = 0; j <= i; j++) {
			if (!stay_together(ps, i, j))
				continue;
			err = group_attrs(ps, i, j);
			if (err)
				return err;
			group_join(ps, i, j);
		}
	return 0;
}

/* Whether @v begins where @before ends, in the same section. */
static bool follows(const struct fdry_cubin_variable *v, const struct fdry_cubin_variable *before)
{
	return before->section == v->section && before->offset + before->size == v->offset;
}

/* The first kernel that reaches variable @i; UINT32_MAX: none. */
static uint32_t first_of(const struct parts *ps, uint32_t i)
{
	uint32_t k;

	for (k = 0; k < ps->n && !ps->p[k].reach.variables[i]; k++)
		;
	return k < ps->n ? k : UINT32_MAX;
}

/* The kernel whose object has variable @i, to which pointers point. */
static uint32_t root_part(const struct parts *ps, uint32_t i)
{
	uint32_t k = first_of(ps, i);

	return k == UINT32_MAX ? 0 : k;
}

/* Keep each variable that pointers point to in one object with the variable that ends there. */
static void roots_join(struct parts *ps)
{
	const struct fdry_cubin_variable *v = ps->code->cubin->variables;
	uint32_t i, k, n = ps->code->cubin->nvariables, part;

	for (i = 0; i < n; i++)
		for (k = 0; k < n && ps->roots[i] == ROOT_POINTED; k++) {
			part = first_of(ps, k);
			if (part != UINT32_MAX && follows(&v[i], &v[k]))
				group_join(ps, root_part(ps, i), part);
		}
}

static int roots_mark(struct parts *ps)
{
	const struct fdry_cubin *c = ps->code->cubin;
	const struct fdry_set_pointed *p = fdry_array(ps->set->pointed, struct fdry_set_pointed);
	size_t j, n = fdry_array_count(ps->set->pointed, struct fdry_set_pointed);
	uint32_t i, k;

	ps->roots = calloc((size_t)c->nvariables + 1, 1);
	if (!ps->roots)
		return fdry_nomem();
	for (j = 0; j < n; j++)
		if (fdry_set_is_of(&p[j].known, ps->code->first, ps->load))
			ps->roots[p[j].known.index] = ROOT_POINTED;
	for (i = 0; i < c->nvariables; i++)
		for (k = 0; k < c->nvariables && ps->roots[i] == ROOT_POINTED; k++)
			if (!ps->roots[k] && follows(&c->variables[i], &c->variables[k]))
				ps->roots[k] = ROOT_BEFORE;
	return 0;
}

/* Find the parts that a kernel reaches, once for a code. */
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
	e->k.prints = p->reach.prints;
	e->k.allocates = p->reach.allocates;
	if (p->reach.refused[0])
		return fdry_fail(FDRY_E_REFUSED,
				 "kernel %.200s %s, which cannot be restored exactly; do not "
				 "capture it",
				 e->k.name, p->reach.refused);
	return 0;
}

/* List the kernels of a group, and the variables that only pointers may lead its kernels to. */
static int group_list(const struct parts *ps, uint32_t group, struct wanted *w)
{
	uint32_t i;
	int err = 0;

	w->kernels.len = w->roots.len = w->copy = 0;
	for (i = group; i < ps->n && !err; i++)
		if (ps->p[i].group == group)
			err = fdry_buf_put_u32(&w->kernels, ps->p[i].kernel);
	for (i = 0; i < ps->code->cubin->nvariables && !err; i++)
		if (ps->roots[i] == ROOT_POINTED && ps->p[root_part(ps, i)].group == group)
			err = fdry_buf_put_u32(&w->roots, i);
	return err;
}

/* How the kernels of a group use variables. */
enum use { USE_NONE, USE_CONSTANTS, USE_OWN /* kernels can write them, or pointers lead there */ };

static enum use group_use(const struct parts *ps, uint32_t group, const struct wanted *w)
{
	const struct fdry_cubin *c = ps->code->cubin;
	enum use ret = w->roots.len ? USE_OWN : USE_NONE;
	uint32_t i, k;

	for (i = group; i < ps->n; i++)
		for (k = 0; k < c->nvariables && ps->p[i].group == group; k++) {
			if (!ps->p[i].reach.variables[k] || c->variables[k].literal ||
			    !c->variables[k].size)
				continue;
			if (!c->variables[k].constant)
				return USE_OWN;
			ret = ret ?: USE_CONSTANTS;
		}
	return ret;
}

/* Whether the group cannot use the object @oid, since it has the variables of another load, and not
 * only constants with equal values. */
static int group_refuses(const struct parts *ps, uint32_t group, const struct fdry_oid *oid,
			 enum use use, bool *ret)
{
	const struct fdry_set_object *o = use ? object_find(ps->set, oid) : NULL;
	bool same = use == USE_CONSTANTS && o && !o->own;
	uint32_t i;
	int err = 0;

	*ret = o && o->load != ps->load;
	for (i = group; i < ps->n && *ret && same && !err; i++)
		if (ps->p[i].group == group)
			err = fdry_set_values_same(ps->set, ps->p[i].e, &ps->p[i].reach, o->load,
						   &same);
	*ret &= !same;
	return err;
}

/* --- whole code --- */

/* The first copy of the whole code that the group can use. */
static int whole_find(const struct parts *ps, uint32_t group, enum use use, struct fdry_span *bytes,
		      struct fdry_oid *ret)
{
	const struct fdry_set_slice *s;
	struct wanted all = { 0 };
	bool others;
	int err = ps->code->checked ? 0 : object_check(ps->set, ps->code->bytes, &ps->code->oid);

	if (err)
		return err;
	ps->code->checked = true;
	*bytes = ps->code->bytes;
	*ret = ps->code->oid;
	for (;;) {
		err = group_refuses(ps, group, ret, use, &others);
		if (err || !others)
			return err;
		if (++all.copy == COPIES_MAX)
			return copies_fail(ps->p[group].e);
		err = slice_get(ps->set, ps->code, &all, &s);
		if (err)
			return err;
		*bytes = span_of(&s->bytes);
		*ret = s->oid;
	}
}

static int entry_whole(struct fdry_set_entry *e, const struct fdry_oid *object, const char *reason)
{
	char *copy = strdup(reason);

	if (!copy)
		return fdry_nomem();
	free((char *)e->k.whole_reason);
	e->k.whole_reason = copy;
	e->k.whole = true;
	e->k.object = *object;
	return 0;
}

/* The groups of a cubin that keep the whole code share an object, also with groups of other loads
 * that have equal constants. */
static int group_whole(struct parts *ps, uint32_t group, enum use use, const char *reason)
{
	struct fdry_span bytes;
	struct fdry_oid oid;
	uint32_t i;
	int err = whole_find(ps, group, use, &bytes, &oid) ?:
		  object_put(ps->set, bytes, &oid, ps->load, use == USE_OWN);

	for (i = group; i < ps->n && !err; i++)
		if (ps->p[i].group == group)
			err = entry_whole(ps->p[i].e, &oid, reason);
	return err;
}

static int group_slice(struct parts *ps, uint32_t group, struct wanted *w)
{
	const struct fdry_set_slice *s;
	bool others = true;
	enum use use;
	uint32_t i;
	int err = group_list(ps, group, w);

	if (err)
		return err;
	use = group_use(ps, group, w);
	for (; others; w->copy++) {
		if (w->copy == COPIES_MAX)
			return copies_fail(ps->p[group].e);
		err = slice_get(ps->set, ps->code, w, &s);
		if (err)
			return fdry_fail_at(err, "kernel %.200s", ps->p[group].e->k.name);
		if (s->whole_reason)
			return group_whole(ps, group, use, s->whole_reason);
		err = group_refuses(ps, group, &s->oid, use, &others);
		if (err)
			return fdry_fail_at(err, "kernel %.200s", ps->p[group].e->k.name);
	}
	err = object_put(ps->set, span_of(&s->bytes), &s->oid, use ? ps->load : NULL,
			 use == USE_OWN);
	for (i = group; i < ps->n; i++)
		if (ps->p[i].group == group)
			ps->p[i].e->k.object = s->oid;
	return err;
}

/* Read the variables that the kernels reach, and those that pointers point to. */
static int parts_read(struct parts *ps)
{
	struct fdry_set_pointed *p = fdry_array(ps->set->pointed, struct fdry_set_pointed);
	size_t j, n = fdry_array_count(ps->set->pointed, struct fdry_set_pointed);
	uint32_t i;
	int err;

	for (i = 0; i < ps->n; i++) {
		err = fdry_set_variables_read(ps->set, ps->p[i].e, &ps->p[i].reach);
		if (err)
			return fdry_fail_at(err, "kernel %.200s", ps->p[i].e->k.name);
	}
	for (j = 0; j < n; j++) {
		if (!fdry_set_is_of(&p[j].known, ps->code->first, ps->load))
			continue;
		p[j].object = ps->p[root_part(ps, p[j].known.index)].e->k.object;
		err = fdry_set_pointed_read(ps->set, &p[j]);
		if (err)
			return err;
	}
	return 0;
}

static int parts_slice(struct parts *ps)
{
	struct wanted w = { 0 };
	uint32_t i;
	int err = roots_mark(ps);

	if (err)
		return err;
	err = parts_group(ps);
	if (err)
		return err;
	roots_join(ps);
	for (i = 0; i < ps->n && !err; i++)
		if (ps->p[i].group == i)
			err = group_slice(ps, i, &w);
	fdry_buf_release(&w.kernels);
	fdry_buf_release(&w.roots);
	return err ? err : parts_read(ps);
}

/* Are both kernels of one cubin and, if each load of it has variables of its own, of one load? */
static bool same_code(const struct fdry_kernel_set *set, uint32_t i, uint32_t j)
{
	const struct fdry_set_entry *a = entry_of(set, i), *b = entry_of(set, j);

	return code_of(set, a)->first == code_of(set, b)->first &&
	       fdry_set_load(set, a) == fdry_set_load(set, b);
}

/* Slice all kernels of one cubin, or of one load of it; @first is the first of them. */
static int cubin_slice(struct fdry_kernel_set *set, uint32_t first)
{
	struct parts ps = { .set = set,
			    .code = code_of(set, entry_of(set, first)),
			    .load = fdry_set_load(set, entry_of(set, first)) };
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
	free(ps.roots);
	return err;
}

/* Read the variables of the software driver's object that pointers point to. */
static int host_pointed_read(struct fdry_kernel_set *set, const struct fdry_set_entry *e)
{
	struct fdry_set_pointed *p = fdry_array(set->pointed, struct fdry_set_pointed);
	size_t j, n = fdry_array_count(set->pointed, struct fdry_set_pointed);
	int err;

	for (j = 0; j < n; j++) {
		if (!fdry_set_is_of(&p[j].known, code_of(set, e)->first, fdry_set_load(set, e)))
			continue;
		p[j].object = e->k.object;
		err = fdry_set_pointed_read(set, &p[j]);
		if (err)
			return err;
	}
	return 0;
}

/* Refuse a kernel with two sets of attributes in @object, whose variable @name pointers point to:
 * the object would be loaded twice. */
static int object_loads_check(const struct fdry_kernel_set *set, const struct fdry_oid *object,
			      const char *name)
{
	uint32_t a, b, n = fdry_kernel_set_count(set);
	const struct fdry_kernel *x, *y;

	for (a = 0; a < n; a++) {
		x = &entry_of(set, a)->k;
		for (b = 0; b < a && fdry_oid_eq(&x->object, object); b++) {
			y = &entry_of(set, b)->k;
			if (fdry_oid_eq(&y->object, object) && !strcmp(x->name, y->name))
				return fdry_fail(FDRY_E_REFUSED,
						 "kernel %.200s is launched with two sets of "
						 "attributes, so its code is loaded twice, and "
						 "pointers point to its variable %.200s; launch it "
						 "with one set",
						 x->name, name);
		}
	}
	return 0;
}

static int pointed_check(const struct fdry_kernel_set *set)
{
	const struct fdry_set_pointed *p = fdry_array(set->pointed, struct fdry_set_pointed);
	size_t i, n = fdry_array_count(set->pointed, struct fdry_set_pointed);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = object_loads_check(set, &p[i].object, p[i].known.variable.name);
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

/* The driver compares a node's shared memory with the limit when the node is added. */
static void shared_allow(struct fdry_set_entry *e)
{
	int32_t *limit = &e->k.attrs[FDRY_FUNC_ATTR_MAX_SHARED];

	if (e->shared > (uint32_t)*limit)
		*limit = (int32_t)e->shared;
}

/* An object of the software driver is never sliced; each load has its own. */
static int host_whole(struct fdry_kernel_set *set, struct fdry_set_entry *e)
{
	struct part p = { .e = e };
	struct parts ps = { .set = set, .code = code_of(set, e), .load = fdry_set_load(set, e),
			    .p = &p, .n = 1 };

	return group_whole(&ps, 0, USE_OWN, "software driver object") ?:
	       fdry_set_host_variables_read(set, e) ?: host_pointed_read(set, e);
}

int fdry_kernel_set_slice(struct fdry_kernel_set *set)
{
	uint32_t i, j, n = fdry_kernel_set_count(set);
	struct fdry_set_entry *e;
	int err;

	fdry_set_variables_clear(set);
	set->objects.len = 0;
	set->pointed_more = false;
	for (i = 0; i < n; i++) {
		e = entry_of(set, i);
		shared_allow(e);
		for (j = 0; j < i && !same_code(set, j, i); j++)
			;
		if (!code_of(set, e)->cubin)
			err = host_whole(set, e);
		else
			err = j == i ? cubin_slice(set, i) : 0;
		if (err)
			return err;
	}
	return pointed_check(set) ?: attrs_check(set) ?: fdry_set_functions_sort(set);
}
