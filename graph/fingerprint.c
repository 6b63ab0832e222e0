// SPDX-License-Identifier: Apache-2.0
/*
 * fingerprint.c - runs the fingerprint kernel; see fingerprint.h.
 *
 * A begin copies a table of memory blocks to the device. A launch runs one thread block for each
 * entry of its ranges. The kernel returns 16 bytes for each 64 KiB. The host joins these values
 * into the fingerprints of ranges, before it launches the next ones.
 */
#include "graph/fingerprint.h"

#include <stdlib.h>
#include <string.h>

#include "arch/stream.h"
#include "graph/module.h"
#include "lib/telemetry.h"

#define THREADS FDRY_FINGERPRINT_LANES
#define KERNEL "fdry_fingerprint_blocks"
#define BLOCKS_MAX (1u << 30) /* of a launch */
#define MEMORY_LEAST ((size_t)2 << 20) /* the driver allocates no less */

/* An entry of the table, as the kernel reads it. */
struct part {
	uint64_t addr, len;
};

struct fdry_fingerprinter {
	const struct fdry_driver *drv;
	CUmodule module;    /* NULL: the kernel is another's */
	CUfunction kernel;
	CUdeviceptr memory; /* the table, then the values */
	size_t capacity;    /* bytes of it */
	struct fdry_buf lens;   /* uint64_t each: lengths of the ranges */
	struct fdry_buf parts;  /* of struct part */
	struct fdry_buf values; /* of struct fdry_fingerprint: of the parts that were read */
	struct fdry_buf prints; /* of struct fdry_fingerprint: of the ranges that were read */
	size_t ranges, launched; /* ranges, and parts of these, that were launched */
	size_t joined;           /* parts whose values were joined */
	CUstream stream;
	bool begun; /* work may run on the stream */
};

/* --- the kernel --- */

int fdry_fingerprint_code_of(const struct fdry_driver *drv, CUdevice device, struct fdry_span *ret,
			     bool *ptx)
{
	int major, minor, err;

	err = fdry_call(drv, cuDeviceGetAttribute, &major,
			CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
	if (err)
		return err;
	err = fdry_call(drv, cuDeviceGetAttribute, &minor,
			CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
	if (err)
		return err;
	*ret = fdry_fingerprint_code(drv, (unsigned int)(10 * major + minor), ptx);
	if (ret->len)
		return 0;
	return fdry_fail(FDRY_E_NOFUNC,
			 "there is no fingerprint kernel for compute capability %d.%d", major,
			 minor);
}

int fdry_fingerprinter_load(const struct fdry_driver *drv, struct fdry_span cubin,
			    struct fdry_fingerprinter **ret)
{
	struct fdry_fingerprinter *f = calloc(1, sizeof(*f));
	CUresult res;
	int err;

	if (!f)
		return fdry_nomem();
	f->drv = drv;
	err = fdry_module_load(drv, cubin, &f->module, &res);
	if (err)
		goto out_free;
	err = fdry_call(drv, cuModuleGetFunction, &f->kernel, f->module, KERNEL);
	if (err)
		goto out_free;
	*ret = f;
	return 0;
out_free:
	fdry_fingerprinter_free(f);
	return fdry_fail_at(err, "the fingerprint kernel");
}

int fdry_fingerprinter_share(const struct fdry_fingerprinter *f, struct fdry_fingerprinter **ret)
{
	struct fdry_fingerprinter *other = calloc(1, sizeof(*other));

	if (!other)
		return fdry_nomem();
	other->drv = f->drv;
	other->kernel = f->kernel;
	*ret = other;
	return 0;
}

void fdry_fingerprinter_free(struct fdry_fingerprinter *f)
{
	if (!f)
		return;
	fdry_fingerprinter_cancel(f);
	if (f->memory)
		(void)fdry_call_raw(f->drv, cuMemFree_v2, f->memory);
	if (f->module)
		(void)fdry_call_raw(f->drv, cuModuleUnload, f->module);
	fdry_buf_release(&f->lens);
	fdry_buf_release(&f->parts);
	fdry_buf_release(&f->values);
	fdry_buf_release(&f->prints);
	free(f);
}

/* --- the work --- */

/* Append the blocks of a range to the table at @p, and return its end. */
static struct part *range_cut(struct part *p, const struct fdry_fingerprint_range *r)
{
	uint64_t at, left;

	for (at = 0; at < r->len; at += FDRY_FINGERPRINT_BLOCK) {
		left = r->len - at;
		*p++ = (struct part){ r->addr + at, left < FDRY_FINGERPRINT_BLOCK ?
							    left : FDRY_FINGERPRINT_BLOCK };
	}
	return p;
}

/* The table of the blocks of all ranges. */
static int table_make(struct fdry_fingerprinter *f, const struct fdry_fingerprint_range *ranges,
		      size_t n)
{
	struct part *p;
	uint64_t count = 0;
	void *grown;
	size_t i;
	int err;

	f->lens.len = f->parts.len = f->values.len = f->prints.len = 0;
	f->ranges = f->launched = f->joined = 0;
	for (i = 0; i < n; i++)
		count += fdry_fingerprint_blocks(ranges[i].len);
	if (count > BLOCKS_MAX)
		return fdry_fail(
			FDRY_E_LIMIT,
			"a fingerprint covers at most %u blocks of %u bytes; split the ranges",
			BLOCKS_MAX, FDRY_FINGERPRINT_BLOCK);
	err = fdry_buf_grow(&f->values, (count + 1) * sizeof(struct fdry_fingerprint), NULL) ?:
	      fdry_buf_grow(&f->parts, count * sizeof(*p), &grown);
	f->values.len = 0; /* later calls grow it in place */
	if (err)
		return err;
	p = grown;
	for (i = 0; i < n && !err; i++) {
		p = range_cut(p, &ranges[i]);
		err = fdry_buf_put(&f->lens, &ranges[i].len, sizeof(ranges[i].len));
	}
	return err;
}

static size_t parts_count(const struct fdry_fingerprinter *f)
{
	return f->parts.len / sizeof(struct part);
}

static CUdeviceptr values_at(const struct fdry_fingerprinter *f)
{
	return f->memory + f->parts.len;
}

static int memory_reserve(struct fdry_fingerprinter *f)
{
	size_t need = f->parts.len + parts_count(f) * sizeof(struct fdry_fingerprint);
	int err;

	if (need <= f->capacity)
		return 0;
	if (f->memory)
		(void)fdry_call_raw(f->drv, cuMemFree_v2, f->memory);
	f->memory = 0;
	f->capacity = 0;
	need = need < MEMORY_LEAST ? MEMORY_LEAST : need;
	err = fdry_call(f->drv, cuMemAlloc_v2, &f->memory, need);
	if (err)
		return err;
	f->capacity = need;
	return 0;
}

void fdry_fingerprinter_cancel(struct fdry_fingerprinter *f)
{
	if (f->begun)
		(void)fdry_call_raw(f->drv, cuStreamSynchronize, f->stream);
	f->begun = false;
	f->lens.len = f->parts.len = 0;
}

int fdry_fingerprinter_begin(struct fdry_fingerprinter *f, CUstream stream,
			     const struct fdry_fingerprint_range *ranges, size_t n)
{
	int err;

	if (f->begun)
		return fdry_bug("fingerprints were begun and not waited for");
	f->stream = stream;
	err = table_make(f, ranges, n);
	if (err || !f->parts.len)
		return err;
	err = memory_reserve(f);
	if (err)
		return err;
	f->begun = true;
	fdry_count_copy(TO, f->parts.len);
	err = fdry_call(f->drv, cuMemcpyHtoDAsync_v2, f->memory, f->parts.data, f->parts.len,
			stream);
	if (err)
		fdry_fingerprinter_cancel(f);
	return err;
}

/* Join the values of the ranges that were launched and read. */
static int values_join(struct fdry_fingerprinter *f)
{
	const uint64_t *len = fdry_array(f->lens, uint64_t);
	size_t i = fdry_array_count(f->prints, struct fdry_fingerprint);
	struct fdry_fingerprint print;
	int err;

	for (; i < f->ranges; i++) {
		print = fdry_fingerprint_join(
			len[i], fdry_array(f->values, struct fdry_fingerprint) + f->joined);
		f->joined += fdry_fingerprint_blocks(len[i]);
		err = fdry_buf_put(&f->prints, &print, sizeof(print));
		if (err)
			return err;
	}
	return 0;
}

/* Wait for the values of the parts that were launched, and join them. The copy into pageable memory
 * ends before the call returns. */
static int values_read(struct fdry_fingerprinter *f)
{
	size_t at = f->values.len, len = f->launched * sizeof(struct fdry_fingerprint) - at;
	void *to;
	int err;

	if (!len)
		return values_join(f);
	err = fdry_buf_grow(&f->values, len, &to);
	if (err)
		return err;
	fdry_count_copy(FROM, len);
	err = fdry_call(f->drv, cuMemcpyDtoHAsync_v2, to, values_at(f) + at, len, f->stream) ?:
	      fdry_stream_wait(f->drv, f->stream);
	return err ? err : values_join(f);
}

static int launch(struct fdry_fingerprinter *f, size_t end)
{
	CUdeviceptr table = f->memory + f->launched * sizeof(struct part);
	CUdeviceptr values = values_at(f) + f->launched * sizeof(struct fdry_fingerprint);
	void *args[] = { &table, &values };

	return fdry_call(f->drv, cuLaunchKernel, f->kernel, (unsigned int)(end - f->launched), 1,
			 1, THREADS, 1, 1, 0, f->stream, args, NULL);
}

int fdry_fingerprinter_launch(struct fdry_fingerprinter *f, size_t end)
{
	const uint64_t *len = fdry_array(f->lens, uint64_t);
	size_t i, parts = f->launched;
	int err;

	if (end > fdry_array_count(f->lens, uint64_t))
		return fdry_bug("no fingerprint was begun for range %zu", end);
	if (end <= f->ranges)
		return 0;
	err = values_read(f);
	if (err)
		return err;
	for (i = f->ranges; i < end; i++)
		parts += fdry_fingerprint_blocks(len[i]);
	err = parts > f->launched ? launch(f, parts) : 0;
	if (err)
		return err;
	f->ranges = end;
	f->launched = parts;
	return 0;
}

int fdry_fingerprinter_start(struct fdry_fingerprinter *f, CUstream stream,
			     const struct fdry_fingerprint_range *ranges, size_t n)
{
	int err = fdry_fingerprinter_begin(f, stream, ranges, n);

	if (err)
		return err;
	err = fdry_fingerprinter_launch(f, n);
	if (err)
		fdry_fingerprinter_cancel(f);
	return err;
}

int fdry_fingerprinter_wait(struct fdry_fingerprinter *f, struct fdry_fingerprint *ret)
{
	size_t n = fdry_array_count(f->lens, uint64_t);
	int err = f->ranges == n ? values_read(f)
				 : fdry_bug("%zu of %zu fingerprints were launched", f->ranges, n);

	if (!err && n)
		memcpy(ret, f->prints.data, n * sizeof(*ret));
	if (err)
		fdry_fingerprinter_cancel(f);
	f->begun = false;
	return err;
}
