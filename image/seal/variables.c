// SPDX-License-Identifier: Apache-2.0
/* variables.c - stores the values of module variables that differ from their code. */
#include "image/seal/seal.h"

/* Check that the value points only to memory that the image holds, like content. */
static int value_check(struct fdry_seal *s, const struct fdry_kernel_value *v)
{
	unsigned int managed = 0;
	int err;

	(void)fdry_call_raw(s->cap->drv, cuPointerGetAttribute, &managed,
			    CU_POINTER_ATTRIBUTE_IS_MANAGED, v->addr);
	if (managed)
		return fdry_fail(FDRY_E_REFUSED,
				 "the module variable %.200s is in managed memory, and its value "
				 "was changed; use a __device__ variable",
				 v->name);
	s->variable = v->name;
	s->variable_addr = v->addr - v->offset;
	s->found.len = 0;
	err = fdry_pointers_look(s, v->addr, v->bytes.data, v->bytes.len);
	s->variable = NULL;
	return err;
}

static int value_search(void *arg, const struct fdry_kernel_value *v)
{
	return value_check(arg, v);
}

int fdry_seal_values_search(struct fdry_seal *s)
{
	return fdry_kernel_set_values(s->kernels, value_search, s);
}

/* Store one part of a value, with zeros in place of pointers to variables. */
static int part_put(struct fdry_seal *s, const struct fdry_kernel_value *v, size_t at,
		    struct fdry_mf_variable *mf)
{
	uint32_t index = (uint32_t)fdry_array_count(s->w.variables, struct fdry_mf_variable);
	struct fdry_buf bytes = { 0 };
	int err = fdry_buf_put(&bytes, v->bytes.data + at, mf->size);

	if (err)
		return err;
	err = fdry_seal_value_pointers(s, index, v->addr - v->offset, v->addr + at, bytes.data,
				       mf->size);
	if (err)
		goto out_release;
	err = fdry_writer_add_object(s->writer, FDRY_OBJECT_CHUNK, bytes.data, mf->size, NULL, 0,
				     &mf->oid);
	if (err)
		goto out_release;
	err = fdry_buf_put(&s->w.variables, mf, sizeof(*mf));
out_release:
	fdry_buf_release(&bytes);
	return err;
}

/* Store the value of a variable. */
static int value_seal(void *arg, const struct fdry_kernel_value *v)
{
	struct fdry_seal *s = arg;
	struct fdry_mf_variable mf = { .object = v->object, .offset = v->offset };
	int err = fdry_manifest_add_str(&s->w, v->name, &mf.name);
	size_t at;

	if (err)
		return err;
	err = value_check(s, v);
	for (at = 0; at < v->bytes.len && !err; at += mf.size, mf.offset += mf.size) {
		mf.size = v->bytes.len - at;
		if (mf.size > FDRY_MF_CHUNK_MAX)
			mf.size = FDRY_MF_CHUNK_MAX;
		err = part_put(s, v, at, &mf);
	}
	return err;
}

int fdry_seal_values(struct fdry_seal *s)
{
	return fdry_kernel_set_values(s->kernels, value_seal, s);
}
