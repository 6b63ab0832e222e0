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
	err = fdry_pointers_look(s, v->addr, v->bytes.data, v->bytes.len);
	s->variable = NULL;
	return err;
}

/* Store the value of a variable. */
static int value_seal(void *arg, const struct fdry_kernel_value *v)
{
	struct fdry_seal *s = arg;
	struct fdry_mf_variable mf = { .object = v->object, .offset = v->offset };
	int err = fdry_manifest_add_str(&s->w, v->name, &mf.name) ?: value_check(s, v);
	size_t at;

	if (err)
		return err;
	for (at = 0; at < v->bytes.len; at += mf.size, mf.offset += mf.size) {
		mf.size = v->bytes.len - at;
		if (mf.size > FDRY_MF_CHUNK_MAX)
			mf.size = FDRY_MF_CHUNK_MAX;
		err = fdry_writer_add_object(s->writer, FDRY_OBJECT_CHUNK, v->bytes.data + at,
					     mf.size, NULL, 0, &mf.oid) ?:
		      fdry_buf_put(&s->w.variables, &mf, sizeof(mf));
		if (err)
			return err;
	}
	return 0;
}

int fdry_seal_values(struct fdry_seal *s)
{
	return fdry_kernel_set_values(s->kernels, value_seal, s);
}
