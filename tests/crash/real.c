// SPDX-License-Identifier: Apache-2.0
/* real.c - captures on the software driver, sealed again and again, and loaded; see work.h. */
#include "tests/lib/image.h"

#include "tests/crash/work.h"

static struct work capture;
void work_real_begin(const char *store)
{
	snprintf(path, sizeof(path), "%s", store);
	work_make(&capture);
	graph_add(&capture, 1);
	tensor_add(&capture, "a", capture.a, FDRY_USE_INPUT, 0);
	tensor_add(&capture, "b", capture.b, FDRY_USE_CONST, 0);
	tensor_add(&capture, "c", capture.c, FDRY_USE_OUTPUT, 0);
}

int work_real_seal(struct worker *w)
{
	char ref[32], id[FDRY_OID_HEX_SIZE];
	struct fdry_oid oid;
	float v[N];
	int err;

	vector_fill(v, (float)(work_random(&w->random) >> 40 & 0xFFFF));
	cuda_ok(cuMemcpyHtoD_v2, capture.b, v, BYTES);
	work_name(ref, w->nr, WORK_NAMES - 1);
	work_intend(w, WORK_NAMES - 1, INTENT_ANY, NULL);
	err = fdry_capture_seal(capture.cap, capture.store, ref, id, NULL) ?:
	      fdry_oid_parse(id, &oid);
	if (err) {
		fprintf(stderr, "worker %u: capture: %s\n", w->nr, fdry_last_error());
		work_refused(w, WORK_NAMES - 1);
		return err;
	}
	work_reported(w, WORK_NAMES - 1, true, &oid);
	return 0;
}

/* c is a + b, whatever b holds. */
static void launch_check(struct fdry_image *img)
{
	float a[N], b[N], c[N];
	int i;

	vector_fill(a, 3);
	memset(c, 0xFF, sizeof(c));
	ok(fdry_image_write(img, "a", a, BYTES, NULL));
	ok(fdry_image_write(img, "c", c, BYTES, NULL));
	ok(fdry_image_launch(img, 1, NULL));
	ok(fdry_image_read(img, "b", b, BYTES, NULL));
	ok(fdry_image_read(img, "c", c, BYTES, NULL));
	for (i = 0; i < N; i++)
		if (c[i] != a[i] + b[i])
			ck_abort_msg("c[%d] is %g, not %g", i, (double)c[i], (double)(a[i] + b[i]));
}

void work_real_check(const char *store, const char *ref)
{
	struct fdry_image *img = NULL;

	snprintf(path, sizeof(path), "%s", store);
	ok(fdry_image_load(load_store(), ref, NULL, &img));
	launch_check(img);
	fdry_image_unload(img);
}
