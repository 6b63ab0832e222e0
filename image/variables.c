// SPDX-License-Identifier: Apache-2.0
/* variables.c - reads values of module variables and writes them to loaded code. */
#include "image/variables.h"

#include <stdlib.h>
#include <string.h>

#include "arch/stream.h"
#include "image/damage.h"
#include "image/targets.h"

/* Copy a value out of the store. Its size counts before memory is allocated, since a few stored
 * bytes may be very many uncompressed. */
static int value_copy(struct fdry_image *img, struct fdry_reader *reader, uint32_t i)
{
	const struct fdry_mf_variable *v = &img->m.variables[i];
	uint64_t size;
	int err = fdry_reader_size(reader, &v->oid, &size);

	if (err)
		return err;
	if (size != v->size)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "it has %llu bytes, the manifest says %llu; seal the image anew",
				 (unsigned long long)size, (unsigned long long)v->size);
	err = fdry_budget_take(&img->budget, size, "values of variables");
	return err ? err : fdry_reader_copy(reader, &v->oid, &img->values[i]);
}

static int value_read(struct fdry_image *img, struct fdry_reader *reader, uint32_t i)
{
	const struct fdry_mf_variable *v = &img->m.variables[i];
	int err = fdry_damage_noted(img, &v->oid, value_copy(img, reader, i));

	return err ? fdry_fail_at(err, "value of variable %.200s",
				  fdry_manifest_str(&img->m, v->name))
		   : 0;
}

/* A variable that kernels can write, and its bytes when the load was complete. */
struct writable {
	CUdeviceptr addr;
	uint64_t size;
	struct fdry_buf bytes;
};

static int writable_keep(void *arg, CUdeviceptr addr, uint64_t size)
{
	struct fdry_image *img = arg;
	struct writable w = { .addr = addr, .size = size };
	int err = fdry_budget_take(&img->budget, size, "values of variables") ?:
		  fdry_buf_grow(&w.bytes, size, NULL) ?:
		  fdry_call(img->drv, cuMemcpyDtoHAsync_v2, w.bytes.data, addr, size,
			    img->stream) ?:
		  fdry_buf_put(&img->writable, &w, sizeof(w));

	if (err)
		fdry_buf_release(&w.bytes);
	return err;
}

/* --- writing --- */

/* Bytes for all places of a variable. */
struct value {
	struct fdry_image *img;
	struct fdry_span bytes;
};

static int value_write(void *arg, CUdeviceptr addr)
{
	const struct value *v = arg;

	return fdry_call(v->img->drv, cuMemcpyHtoDAsync_v2, addr, v->bytes.data, v->bytes.len,
			 v->img->stream);
}

/* Few bytes, so the processor compares them. */
static int value_compare(void *arg, CUdeviceptr addr)
{
	const struct value *v = arg;
	void *got = malloc(v->bytes.len + 1);
	int err = got ? 0 : fdry_nomem();

	if (err)
		return err;
	err = fdry_call(v->img->drv, cuMemcpyDtoHAsync_v2, got, addr, v->bytes.len,
			v->img->stream) ?:
	      fdry_stream_wait(v->img->drv, v->img->stream);
	if (!err && memcmp(got, v->bytes.data, v->bytes.len))
		err = fdry_fail(FDRY_E_CORRUPT, "other bytes arrived in the device's memory; load "
				"again, and test the memory if that repeats");
	free(got);
	return err;
}

static int values_each(struct fdry_image *img, fdry_place_fn fn)
{
	const struct fdry_mf_variable *v = img->m.variables;
	const struct writable *w = fdry_array(img->writable, struct writable);
	size_t i, n = fdry_array_count(img->writable, struct writable);
	struct value value = { .img = img };
	int err = 0;

	for (i = 0; i < img->m.n_variables && !err; i++, v++) {
		value.bytes = (struct fdry_span){ img->values[i].data, img->values[i].len };
		err = fdry_kernel_bank_each_place(img->bank, &img->m.objects[v->object].oid,
						  fdry_manifest_str(&img->m, v->name), v->offset,
						  value.bytes.len, fn, &value);
	}
	for (i = 0; i < n && !err; i++) {
		value.bytes = (struct fdry_span){ w[i].bytes.data, w[i].size };
		err = fn(&value, w[i].addr);
	}
	return err;
}

int fdry_image_values_write(struct fdry_image *img)
{
	int err;

	if (!img->m.n_variables && !img->writable.len)
		return 0;
	err = values_each(img, value_write);
	return err ? err : values_each(img, value_compare);
}

/* --- loading --- */

static int values_read(struct fdry_image *img, struct fdry_reader *reader)
{
	uint32_t i;
	int err = 0;

	if (!img->m.n_variables)
		return 0;
	img->values = calloc(img->m.n_variables, sizeof(*img->values));
	if (!img->values)
		return fdry_nomem();
	for (i = 0; i < img->m.n_variables && !err; i++)
		err = value_read(img, reader, i);
	return err;
}

int fdry_image_values_load(struct fdry_image *img, struct fdry_reader *reader)
{
	int err = values_read(img, reader);

	if (err)
		return err;
	fdry_image_targets_values(img);
	err = fdry_image_values_write(img);
	if (err)
		return err;
	err = fdry_kernel_bank_writable(img->bank, writable_keep, img);
	return err || !img->writable.len ? err : fdry_stream_wait(img->drv, img->stream);
}

void fdry_image_values_free(struct fdry_image *img)
{
	struct writable *w = fdry_array(img->writable, struct writable);
	size_t i;

	for (i = 0; img->values && i < img->m.n_variables; i++)
		fdry_buf_release(&img->values[i]);
	free(img->values);
	for (i = 0; i < fdry_array_count(img->writable, struct writable); i++)
		fdry_buf_release(&w[i].bytes);
	fdry_buf_release(&img->writable);
}
