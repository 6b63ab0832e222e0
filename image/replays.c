// SPDX-License-Identifier: Apache-2.0
/* replays.c - replays that leave no trace; see replays.h. */
#include "image/replays.h"

#include <stdlib.h>

static int states_get(const struct fdry_replays *r)
{
	const struct fdry_manifest *m = &r->img->m;
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->n_generators && !err; i++)
		err = fdry_image_rng_state(r->img, fdry_manifest_str(m, m->generators[i].name),
					   &r->states[i]);
	return err;
}

static int states_set(const struct fdry_replays *r)
{
	const struct fdry_manifest *m = &r->img->m;
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->n_generators && !err; i++)
		err = fdry_image_rng_set_state(r->img, fdry_manifest_str(m, m->generators[i].name),
					       &r->states[i]);
	return err;
}

static void externals_forget(struct fdry_image *img)
{
	uint32_t i, n = 0;

	pthread_mutex_lock(&img->lock);
	for (i = 0; i < img->m.n_tensors; i++) {
		n += img->m.tensors[i].flags & FDRY_TENSOR_EXTERNAL;
		img->filled[i] = 0;
	}
	atomic_store(&img->unfilled, n);
	pthread_mutex_unlock(&img->lock);
}

int fdry_replays_begin(struct fdry_image *img, struct fdry_replays *ret)
{
	struct fdry_replays r = { .img = img };
	int err;

	if (img->place_hook)
		return fdry_fail(FDRY_E_STATE, "the image lies among the allocations of a capture; "
					       "load it by itself to replay its graphs");
	r.states = calloc((size_t)img->m.n_generators + 1, sizeof(*r.states));
	if (!r.states)
		return fdry_nomem();
	err = states_get(&r) ?: fdry_image_restore(img, NULL);
	if (err)
		free(r.states);
	else
		*ret = r;
	return err;
}

int fdry_replays_end(struct fdry_replays *r, int err)
{
	struct fdry_saved_err saved_err = { 0 };
	int undone;

	if (err)
		fdry_saved_err_set(&saved_err, err);
	externals_forget(r->img);
	undone = fdry_image_restore(r->img, NULL) ?: states_set(r);
	free(r->states);
	if (undone)
		return undone;
	return err ? fdry_saved_err_restore(&saved_err) : 0;
}
