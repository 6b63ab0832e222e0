// SPDX-License-Identifier: Apache-2.0
/*
 * external.c - compares external tensors, which the caller fills, with their content at the seal.
 *
 * The seal records the fingerprint of each external constant (seal/externals.c). It covers the
 * tensor's bytes, in the size that the tensor had then.
 */
#include <stdlib.h>

#include "image/check.h"
#include "image/image_host.h"
#include "image/tensor.h"
#include "lib/clock.h"
#include "lib/opts.h"
#include "lib/search.h"

struct external {
	const struct fdry_mf_external_print *want;
	struct fdry_tensor t; /* with its address and size in this process */
	uint64_t bytes;
};

struct externals {
	struct fdry_image *img;
	struct fdry_buf device, host; /* of struct external */
	struct fdry_check_report report;
};

/* --- selecting tensors --- */

static const struct fdry_mf_external_print *print_of(const struct fdry_manifest *m, uint32_t tensor)
{
	uint32_t k = (uint32_t)fdry_lower_bound(i, m->n_external_prints,
						m->external_prints[i].tensor < tensor);

	return k < m->n_external_prints && m->external_prints[k].tensor == tensor
		       ? &m->external_prints[k]
		       : NULL;
}

static int sealed_bytes(const struct fdry_image *img, uint32_t i, uint64_t *ret)
{
	struct fdry_tensor t;

	fdry_manifest_tensor_get(&img->m, &img->m.tensors[i], &t);
	return fdry_tensor_extent(&t, ret);
}

static int unrecorded_fail(const struct fdry_tensor *t)
{
	return fdry_fail(FDRY_E_STATE,
			 "the content of tensor '%s' at the seal is not recorded: %s", t->name,
			 t->use == FDRY_USE_CONST
				 ? "an older version sealed the image, or the GPU could not read "
				   "this memory; seal the image anew"
				 : "it is no constant, and only constants stay the same");
}

static int filled_check(struct fdry_image *img, uint32_t i, const char *name)
{
	bool filled;

	pthread_mutex_lock(&img->lock);
	filled = img->filled[i];
	pthread_mutex_unlock(&img->lock);
	if (filled)
		return 0;
	return fdry_fail(FDRY_E_UNBOUND,
			 "external tensor '%s' has no content yet; write or copy it, or declare it "
			 "with fdry_image_filled()",
			 name);
}

/* Add external tensor @i. FDRY_E_STATE if it cannot be compared. */
static int external_add(struct externals *x, uint32_t i)
{
	struct external e = { .want = print_of(&x->img->m, i) };
	uint64_t sealed;
	int err;

	fdry_image_tensor_get(x->img, i, &e.t);
	err = fdry_tensor_extent(&e.t, &e.bytes) ?: sealed_bytes(x->img, i, &sealed);
	if (err)
		return err;
	if (!sealed && !e.bytes)
		return 0; /* an empty tensor cannot differ */
	if (!e.want)
		return unrecorded_fail(&e.t);
	if (e.bytes != sealed)
		return fdry_fail(FDRY_E_STATE,
				 "tensor '%s' has %llu bytes here and had %llu at the seal, so the "
				 "two cannot be compared; load it with that size",
				 e.t.name, (unsigned long long)e.bytes,
				 (unsigned long long)sealed);
	err = filled_check(x->img, i, e.t.name);
	if (err)
		return err;
	x->report.tensors++;
	x->report.bytes += e.bytes;
	return fdry_buf_put(e.t.flags & FDRY_TENSOR_HOST ? &x->host : &x->device, &e, sizeof(e));
}

static int named_add(struct externals *x, const char *name)
{
	const struct fdry_manifest *m = &x->img->m;
	const struct fdry_mf_tensor *t = fdry_manifest_tensor(m, name);

	if (!t)
		return fdry_fail(
			FDRY_E_NOKEY,
			"the image has no tensor named '%.80s'; fdry_image_describe() lists them",
			name);
	if (!(t->flags & FDRY_TENSOR_EXTERNAL))
		return fdry_fail(FDRY_E_STATE,
				 "tensor '%s' is not external: the image itself fills it, and the "
				 "load compares it",
				 name);
	return external_add(x, (uint32_t)(t - m->tensors));
}

static int all_add(struct externals *x)
{
	const struct fdry_manifest *m = &x->img->m;
	uint32_t i;
	int err;

	for (i = 0; i < m->n_tensors; i++) {
		if (!(m->tensors[i].flags & FDRY_TENSOR_EXTERNAL) ||
		    m->tensors[i].use != FDRY_USE_CONST)
			continue;
		err = external_add(x, i);
		if (err == -FDRY_E_STATE)
			x->report.skipped++;
		else if (err)
			return err;
	}
	return x->report.skipped && !x->report.tensors ? -FDRY_E_STATE : 0;
}

/* --- comparing --- */

/* Count @e if it differs, and name the first tensor that does. */
static void found_put(struct externals *x, const struct external *e, struct fdry_fingerprint found,
		      const char **differs)
{
	if (fdry_fingerprint_eq(found, e->want->value))
		return;
	x->report.differ++;
	if (!*differs || strcmp(e->t.name, *differs) < 0)
		*differs = e->t.name;
}

static int device_compare(struct externals *x, const char **differs)
{
	const struct external *e = (const void *)x->device.data;
	size_t i, n = x->device.len / sizeof(*e);
	struct fdry_fingerprint_range *ranges = malloc((n + 1) * sizeof(*ranges));
	struct fdry_fingerprint *found = malloc((n + 1) * sizeof(*found));
	CUstreamCaptureMode mode;
	int err = ranges && found ? fdry_image_enter(x->img, &mode) : fdry_nomem();

	if (err)
		goto out_free;
	for (i = 0; i < n; i++)
		ranges[i] = (struct fdry_fingerprint_range){ e[i].t.addr, e[i].bytes };
	fdry_ticket_take(&x->img->ticket);
	err = fdry_check_prepare(x->img) ?: fdry_image_fingerprints(x->img, ranges, n, found);
	fdry_ticket_return(&x->img->ticket);
	fdry_image_leave(x->img, &mode);
	for (i = 0; i < n && !err; i++)
		found_put(x, &e[i], found[i], differs);
out_free:
	free(ranges);
	free(found);
	return err;
}

static int compare(struct externals *x)
{
	const struct external *e = (const void *)x->host.data;
	size_t i, n = x->host.len / sizeof(*e);
	const char *differs = NULL;
	int err = x->device.len ? device_compare(x, &differs) : 0;

	if (err)
		return err;
	for (i = 0; i < n; i++)
		found_put(x, &e[i],
			  fdry_fingerprint_of((const void *)(uintptr_t)e[i].t.addr, e[i].bytes),
			  &differs);
	if (!differs)
		return 0;
	return fdry_fail(FDRY_E_CORRUPT,
			 "external tensor '%s' has other bytes than at the seal (%llu of %llu "
			 "compared tensors differ); fill it from the source that the sealing "
			 "program used, or seal the image anew",
			 differs, (unsigned long long)x->report.differ,
			 (unsigned long long)x->report.tensors);
}

int fdry_image_check(struct fdry_image *img, const char *name, CUstream stream,
		     struct fdry_check_report *report)
{
	struct externals x = { .img = img };
	double mark = fdry_now_ms();
	int err = fdry_image_check_outside(img) ?: fdry_report_check(report);

	if (err)
		return err;
	err = fdry_image_synchronize(img, stream) ?: fdry_content_use(img);
	if (err)
		return err;
	err = name ? named_add(&x, name) : all_add(&x);
	if (err)
		goto out_release;
	err = compare(&x);
	x.report.ms = fdry_elapsed_ms(&mark);
	if ((!err || err == -FDRY_E_CORRUPT) &&
	    fdry_report_give(&x.report, sizeof(x.report), report))
		err = -FDRY_E_OPTS;
out_release:
	fdry_buf_release(&x.device);
	fdry_buf_release(&x.host);
	return fdry_image_fail(img, err);
}
