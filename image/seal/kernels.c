// SPDX-License-Identifier: Apache-2.0
/*
 * kernels.c - stores the kernel objects of a seal, and makes the manifest's table of kernels.
 */
#include <stdlib.h>
#include <string.h>

#include "image/seal/seal.h"

/* Add those attributes of the next kernel for which its manifest entry has no field. */
static int attrs_add(struct fdry_seal *s, const struct fdry_kernel *k)
{
	struct fdry_mf_attr mf = { .kernel = (uint32_t)fdry_array_count(s->w.kernels,
									struct fdry_mf_kernel) };
	int err = 0;

	for (mf.id = FDRY_MF_KERNEL_ATTRS; mf.id < FDRY_FUNC_ATTR_COUNT && !err; mf.id++) {
		mf.value = k->attrs[mf.id];

		if (mf.value)
			err = fdry_buf_put(&s->w.attrs, &mf, sizeof(mf));
	}
	return err;
}

static int kernel_add(struct fdry_seal *s, const struct fdry_kernel *k)
{
	struct fdry_mf_kernel mf = { .param_count = k->nparams, .param_bytes = k->param_bytes };
	const struct fdry_mf_object *o = fdry_array(s->w.objects, struct fdry_mf_object);
	uint32_t i, n = (uint32_t)fdry_array_count(s->w.objects, struct fdry_mf_object);
	int err;

	for (i = 0; i < n && !fdry_oid_eq(&o[i].oid, &k->object); i++)
		;
	if (i == n)
		return fdry_bug("kernel %s has an object that is not in its set", k->name);
	mf.object = i;
	mf.param_first = (uint32_t)fdry_array_count(s->w.params, struct fdry_mf_param);
	memcpy(mf.attrs, k->attrs, FDRY_MF_KERNEL_ATTRS * sizeof(k->attrs[0]));
	err = fdry_manifest_add_str(&s->w, k->name, &mf.name);
	if (err)
		return err;
	err = fdry_manifest_add_str(&s->w, k->whole && k->whole_reason ? k->whole_reason : "",
				    &mf.whole_reason);
	if (err)
		return err;
	err = fdry_buf_put(&s->w.params, k->params, k->nparams * sizeof(*k->params));
	if (err)
		return err;
	err = attrs_add(s, k);
	if (err)
		return err;
	s->report.kernels++;
	s->report.kernels_whole += k->whole;
	return fdry_buf_put(&s->w.kernels, &mf, sizeof(mf));
}

_Static_assert(sizeof(struct fdry_param) == sizeof(struct fdry_mf_param),
	       "parameters are copied as they are");

/* Store kernel object @i. If the store has it already, it is not hashed again. */
static int kernel_object_put(struct fdry_seal *s, uint32_t i,
			     const struct fdry_writer_object *known)
{
	struct fdry_mf_object o;
	struct fdry_span bytes = fdry_kernel_set_object(s->kernels, i, &o.oid);
	struct fdry_oid oid;
	int err;

	if (known->has) {
		fdry_writer_count_known(s->writer, 1);
	} else {
		err = fdry_writer_add_object(s->writer, FDRY_OBJECT_KERNEL, bytes.data, bytes.len,
					     NULL, 0, &oid);
		if (err)
			return err;
		if (!fdry_oid_eq(&oid, &o.oid))
			return fdry_bug("a kernel object's id is not its hash");
	}
	s->report.kernel_bytes += bytes.len;
	return fdry_buf_put(&s->w.objects, &o, sizeof(o));
}

static int kernel_objects_seal(struct fdry_seal *s)
{
	uint32_t i, n = fdry_kernel_set_object_count(s->kernels);
	struct fdry_writer_object *known = calloc(n + 1ul, sizeof(*known));
	int err;

	if (!known)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		known[i].size = fdry_kernel_set_object(s->kernels, i, &known[i].oid).len;
	err = fdry_writer_find_objects(s->writer, FDRY_OBJECT_KERNEL, known, n);
	for (i = 0; i < n && !err; i++)
		err = kernel_object_put(s, i, &known[i]);
	free(known);
	return err;
}

/* The values of variables may have pointers to further variables, which become part of objects. */
int fdry_seal_kernels(struct fdry_seal *s)
{
	int err;

	do {
		err = fdry_kernel_set_slice(s->kernels);
		fdry_seal_spent(s, slices);
		if (err)
			return err;
		err = fdry_seal_heap(s) ?: fdry_seal_values_search(s);
		fdry_seal_spent(s, kernels);
		if (err)
			return err;
	} while (fdry_kernel_set_pointed_more(s->kernels));
	err = fdry_seal_functions(s);
	fdry_seal_spent(s, kernels);
	return err;
}

/* Content may point to further variables, their values to further pinned memory, and its content to
 * variables again. */
static int pointed_follow(struct fdry_seal *s)
{
	int err = 0;

	while (!err && fdry_kernel_set_pointed_more(s->kernels))
		err = fdry_seal_kernels(s) ?: fdry_seal_pinned(s);
	return err ? err : fdry_seal_pinned_put(s);
}

int fdry_seal_kernels_put(struct fdry_seal *s)
{
	uint32_t i;
	int err = pointed_follow(s) ?: kernel_objects_seal(s);

	if (err)
		return err;
	for (i = 0; i < fdry_kernel_set_count(s->kernels); i++) {
		err = kernel_add(s, fdry_kernel_set_get(s->kernels, i));
		if (err)
			return err;
	}
	err = fdry_seal_values(s) ?: fdry_seal_targets(s);
	if (err)
		return err;
	s->report.whole_bytes = fdry_kernel_set_whole_bytes(s->kernels);
	fdry_seal_spent(s, kernels);
	return 0;
}
