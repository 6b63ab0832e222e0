// SPDX-License-Identifier: Apache-2.0
/* selftest_image.c - replays the graphs of a loaded image as its seal did; see
 * foundry/selftest.h. */
#include <stdio.h>
#include <stdlib.h>

#include "image/image_host.h"
#include "image/replays.h"
#include "image/selftest.h"
#include "image/tensor.h"
#include "lib/clock.h"
#include "lib/opts.h"

struct test {
	struct fdry_image *img;
	struct fdry_selftest t;
	struct fdry_tensor *tensors;
	fdry_selftest_fn fn;
	void *arg;
	struct fdry_selftest_report report;
	char first[512]; /* the first difference */
};

/* Check that the tensor has the size of the seal. */
static int size_check(const struct fdry_image *img, uint32_t i, const struct fdry_tensor *here)
{
	struct fdry_tensor sealed;
	uint64_t a, b;
	int err;

	fdry_manifest_tensor_get(&img->m, &img->m.tensors[i], &sealed);
	err = fdry_tensor_bytes(&sealed, &a) ?: fdry_tensor_bytes(here, &b);
	if (err || a == b)
		return err;
	return fdry_fail(FDRY_E_STATE,
			 "tensor '%s' has %llu bytes here and had %llu at the seal; load the image "
			 "with that size for a self-test",
			 here->name, (unsigned long long)b, (unsigned long long)a);
}

static int tensors_list(struct test *x)
{
	struct fdry_image *img = x->img;
	uint32_t i;
	int err = 0;

	x->tensors = calloc((size_t)img->m.n_tensors + 1, sizeof(*x->tensors));
	if (!x->tensors)
		return fdry_nomem();
	for (i = 0; i < img->m.n_tensors && !err; i++) {
		fdry_image_tensor_get(img, i, &x->tensors[i]);
		err = size_check(img, i, &x->tensors[i]);
	}
	x->t = (struct fdry_selftest){ img->drv, img->m.selftests[0].seed, x->tensors,
				       img->m.n_tensors };
	return err;
}

static void difference_put(struct test *x, const struct fdry_mf_selftest *e)
{
	const struct fdry_mf_graph *g = &x->img->m.graphs[e->graph];
	const struct fdry_tensor *t = &x->tensors[e->tensor];
	char text[sizeof(x->first)];

	snprintf(text, sizeof(text),
		 "graph %llu '%.100s' writes other bytes to %s '%s' than at the seal",
		 (unsigned long long)g->key, fdry_manifest_str(&x->img->m, g->name),
		 t->use == FDRY_USE_STATE ? "state" : "output", t->name);
	if (!x->report.differ++)
		memcpy(x->first, text, sizeof(text));
	if (x->fn)
		x->fn(x->arg, text);
}

static int fill(struct test *x, bool external)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter_primary(x->img, &mode);

	if (err)
		return err;
	err = fdry_selftest_fill(&x->t, external);
	fdry_image_leave(x->img, &mode);
	return err;
}

/* Compare the results of a graph with the @n entries from @e on. */
static int graph_compare(struct test *x, const struct fdry_mf_selftest *e, uint32_t n)
{
	struct fdry_fingerprint print;
	CUstreamCaptureMode mode;
	int err = fdry_image_enter_primary(x->img, &mode);

	if (err)
		return err;
	for (; n && !err; n--, e++) {
		if (e->flags & FDRY_MF_SELFTEST_UNSTABLE) {
			x->report.unstable++;
			continue;
		}
		x->report.outputs++;
		err = fdry_selftest_print(&x->t, e->tensor, &print);
		if (!err && !fdry_fingerprint_eq(print, e->print))
			difference_put(x, e);
	}
	fdry_image_leave(x->img, &mode);
	return err;
}

static int graph_test(struct test *x, const struct fdry_mf_selftest *e, uint32_t n)
{
	struct fdry_image *img = x->img;

	if (e->flags & FDRY_MF_SELFTEST_LEFT_OUT) {
		x->report.left_out++;
		return 0;
	}
	x->report.graphs++;
	return fill(x, false) ?:
	       (img->m.n_generators ? fdry_image_rng_seed(img, NULL, x->t.seed) : 0) ?:
	       fdry_image_launch(img, img->m.graphs[e->graph].key, NULL) ?:
	       fdry_image_synchronize(img, NULL) ?: graph_compare(x, e, n);
}

static int graphs_test(struct test *x)
{
	const struct fdry_manifest *m = &x->img->m;
	uint32_t i, n;
	int err = fill(x, true) ?: fdry_image_filled(x->img, NULL);

	for (i = 0; i < m->n_selftests && !err; i += n) {
		for (n = 1; i + n < m->n_selftests &&
			    m->selftests[i + n].graph == m->selftests[i].graph; n++)
			;
		err = graph_test(x, &m->selftests[i], n);
	}
	return err;
}

int fdry_image_selftest(struct fdry_image *img, fdry_selftest_fn fn, void *arg,
			struct fdry_selftest_report *report)
{
	struct test x = { .img = img, .fn = fn, .arg = arg };
	struct fdry_replays replays;
	double mark = fdry_now_ms();
	int err = fdry_image_check_outside(img) ?: fdry_report_check(report);

	if (err)
		return err;
	if (!img->m.n_selftests)
		return fdry_image_fail(
			img, fdry_fail(FDRY_E_STATE, "the image has no self-test; call "
						     "fdry_capture_selftest() before the seal"));
	err = tensors_list(&x) ?: fdry_replays_begin(img, &replays);
	if (err)
		goto out_free;
	err = fdry_replays_end(&replays, graphs_test(&x));
	x.report.ms = fdry_elapsed_ms(&mark);
	if (err)
		goto out_free;
	err = fdry_report_give(&x.report, sizeof(x.report), report);
	if (err)
		goto out_free;
	if (x.report.differ)
		err = fdry_fail(FDRY_E_CORRUPT, "%s (%llu of %llu results differ)", x.first,
				(unsigned long long)x.report.differ,
				(unsigned long long)x.report.outputs);
out_free:
	free(x.tensors);
	return fdry_image_fail(img, err);
}
