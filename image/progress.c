// SPDX-License-Identifier: Apache-2.0
/*
 * progress.c - reports a load's progress to the caller's function; one call at a time.
 *
 * The function runs in a thread that works on the image. If it made a call that waits for that
 * work, the call would wait for itself. So each thread keeps a list of the progress functions that
 * it runs, and such calls are refused. The function that may stop a repair is on that list, too.
 */
#include "lib/clock.h"
#include "image/image.h"

/* One running function of this thread. The list begins with the innermost; its entries lie
 * on the stack. */
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

int fdry_image_stop_ask(void *arg)
{
	struct fdry_image *img = arg;
	const struct report r = { .img = img, .outer = reports };
	fdry_stop_fn stop;
	void *stop_arg;
	int ret;

	pthread_mutex_lock(&img->lock);
	stop = img->stop;
	stop_arg = img->stop_arg;
	pthread_mutex_unlock(&img->lock);
	if (!stop)
		return 0;
	reports = &r;
	ret = stop(stop_arg);
	reports = r.outer;
	return ret;
}

bool fdry_image_progress_runs(void)
{
	return reports;
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
					 "waits for the image's own progress function or stop "
					 "function, which made the call; make it when the function "
					 "has returned");
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

/* The count is taken under the lock, so the reported numbers ascend, whichever threads build. */
void fdry_image_progress_built(struct fdry_image *img)
{
	if (!img->progress)
		return;
	pthread_mutex_lock(&img->progress_lock);
	report(img, FDRY_PHASE_GRAPHS, ++img->built_reported, img->m.n_graphs);
	pthread_mutex_unlock(&img->progress_lock);
}
