// SPDX-License-Identifier: Apache-2.0
/* progress.c - what is told a caller who asked to hear of a load's progress; one call at a time. */
#include "api/clock.h"
#include "api/image.h"

void fdry_image_tell(struct fdry_image *img, enum fdry_phase phase, uint64_t done, uint64_t total)
{
	if (!img->progress)
		return;
	pthread_mutex_lock(&img->telling);
	img->progress(img->progress_arg, (int)phase, done, total, fdry_now_ms() - img->start_ms);
	pthread_mutex_unlock(&img->telling);
}

/* Counted where it is told, so that numbers ascend whoever builds. */
void fdry_image_tell_built(struct fdry_image *img)
{
	if (!img->progress)
		return;
	pthread_mutex_lock(&img->telling);
	img->progress(img->progress_arg, FDRY_PHASE_GRAPHS, ++img->told, img->m.n_graphs, fdry_now_ms() - img->start_ms);
	pthread_mutex_unlock(&img->telling);
}
