// SPDX-License-Identifier: Apache-2.0
/*
 * externals.c - records the fingerprints of external constants, with which a loading program can
 * check that it has filled them with the same bytes.
 *
 * Inputs, outputs and states change from launch to launch, so their fingerprints are not recorded:
 * images of the same program must have equal bytes. The GPU computes the fingerprints of device
 * memory. If it cannot, none is recorded, since reading this memory back would cost more than the
 * rest of the seal.
 */
#include <stdlib.h>

#include "image/capture/capture.h"
#include "image/seal/seal.h"
#include "lib/log.h"
#include "lib/safe_read.h"

static bool is_wanted(const struct fdry_capture_tensor *t)
{
	return t->desc.flags & FDRY_TENSOR_EXTERNAL && t->desc.use == FDRY_USE_CONST && t->extent;
}

/* Compute the fingerprint of host memory, which the program may have freed. */
static int host_print(const struct fdry_capture_tensor *t, struct fdry_fingerprint *ret)
{
	size_t k, n, blocks = fdry_fingerprint_blocks(t->extent);
	struct fdry_fingerprint *values = malloc(blocks * sizeof(*values));
	uint8_t *bytes = malloc(FDRY_FINGERPRINT_BLOCK);
	struct fdry_safe_read reader;
	uint64_t at = 0;
	int err = values && bytes ? fdry_safe_read_init(&reader) : fdry_nomem();

	if (err)
		goto out_free;
	for (k = 0; k < blocks; k++, at += n) {
		n = t->extent - at < FDRY_FINGERPRINT_BLOCK ? (size_t)(t->extent - at)
							    : FDRY_FINGERPRINT_BLOCK;
		err = fdry_safe_read(&reader, t->desc.addr + at, bytes, n);
		if (err)
			goto out_release;
		values[k] = fdry_fingerprint_block(bytes, n);
	}
	*ret = fdry_fingerprint_join(t->extent, values);
out_release:
	fdry_safe_read_release(&reader);
	if (err == -FDRY_E_RANGE)
		err = fdry_fail(FDRY_E_STATE,
				"the host memory of tensor '%s' was freed while the seal ran; keep "
				"it allocated",
				t->desc.name);
out_free:
	free(values);
	free(bytes);
	return err;
}

/* Compute the fingerprints of device memory, in the order of the tensors. Returns false if the GPU
 * cannot. */
static bool device_prints(struct fdry_seal *s, struct fdry_fingerprint_range *ranges,
			  struct fdry_fingerprint *ret)
{
	const struct fdry_capture_tensor *t =
		fdry_array(s->cap->tensors, struct fdry_capture_tensor);
	size_t i, k = 0, n = fdry_array_count(s->cap->tensors, struct fdry_capture_tensor);

	for (i = 0; i < n; i++)
		if (is_wanted(&t[i]) && !(t[i].desc.flags & FDRY_TENSOR_HOST))
			ranges[k++] = (struct fdry_fingerprint_range){ t[i].desc.addr,
								       t[i].extent };
	return fdry_sealed_fingerprints(s->cap, ranges, k, ret);
}

static int prints_put(struct fdry_seal *s, const struct fdry_fingerprint *device)
{
	const struct fdry_capture_tensor *t =
		fdry_array(s->cap->tensors, struct fdry_capture_tensor);
	size_t i, n = fdry_array_count(s->cap->tensors, struct fdry_capture_tensor);
	struct fdry_mf_external_print mf = { 0 };
	int err;

	for (i = 0; i < n; i++) {
		if (!is_wanted(&t[i]))
			continue;
		mf.tensor = (uint32_t)i;
		if (t[i].desc.flags & FDRY_TENSOR_HOST) {
			err = host_print(&t[i], &mf.value);
			if (err)
				return err;
		} else {
			mf.value = *device++;
		}
		err = fdry_buf_put(&s->w.external_prints, &mf, sizeof(mf));
		if (err)
			return err;
	}
	return 0;
}

int fdry_seal_externals(struct fdry_seal *s)
{
	size_t n = fdry_array_count(s->cap->tensors, struct fdry_capture_tensor);
	struct fdry_fingerprint_range *ranges = malloc((n + 1) * sizeof(*ranges));
	struct fdry_fingerprint *found = malloc((n + 1) * sizeof(*found));
	int err = 0;

	if (!ranges || !found) {
		err = fdry_nomem();
		goto out_free;
	}
	if (device_prints(s, ranges, found))
		err = prints_put(s, found);
	else
		fdry_info("the seal records no fingerprints of external tensors: %s",
			  fdry_last_error());
out_free:
	free(ranges);
	free(found);
	return err;
}
