// SPDX-License-Identifier: Apache-2.0
/*
 * progress.c - a load's progress reported to the caller's function; one call at a time.
 *
 * The function runs in the thread that works on the image, perhaps the only one that ever will: a
 * call from within it that waits for that work would wait for itself. Each thread therefore knows
 * whose functions it is in.
 */
#include "lib/clock.h"
#include "image/image.h"

/* On the stack of the call; the innermost first. */
struct report {
	const struct fdry_image *img;
	const struct report *outer;
};

static __thread const struct report *reports;

static void report(struct fdry_image *img, enum fdry_phase phase, uint64_t done, uint64_t total)
{
	const struct report r = { .img = img, .outer = reports };

	reports = &r;
	img->progress(img->progress_arg, (int)phase, done, total, fdry_now_ms() - img->start_ms);
	reports = r.outer;
}

int fdry_image_check_outside(const struct fdry_image *img)
{
	const struct report *r;
	int err = fdry_image_usable(img);

	if (err)
		return err;
	for (r = reports; r; r = r->outer)
		if (r->img == img)
			return fdry_fail(FDRY_E_STATE,
					 "this call waits for work on the image, and that work "
					 "waits for the image's own progress function, which "
					 "made the call; make it when the function has returned");
	return 0;
}

void fdry_image_progress(struct fdry_image *img, enum fdry_phase phase, uint64_t done,
			 uint64_t total)
{
	if (!img->progress)
		return;
	pthread_mutex_lock(&img->progress_lock);
	report(img, phase, done, total);
	pthread_mutex_unlock(&img->progress_lock);
}

/* Counted where it is reported, so that numbers ascend whichever thread builds. */
void fdry_image_progress_built(struct fdry_image *img)
{
	if (!img->progress)
		return;
	pthread_mutex_lock(&img->progress_lock);
	report(img, FDRY_PHASE_GRAPHS, ++img->built_reported, img->m.n_graphs);
	pthread_mutex_unlock(&img->progress_lock);
}
