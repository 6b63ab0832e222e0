// SPDX-License-Identifier: Apache-2.0
/*
 * unload.c - frees an image, also after a failed load.
 *
 * It undoes the steps of load.c that were made, in reverse order. In a child of fork() it makes no
 * driver calls, since the driver does not work there.
 */
#include <stdlib.h>
#include <unistd.h>

#include "arch/stream.h"
#include "image/arrays.h"
#include "image/builder.h"
#include "image/check.h"
#include "image/context.h"
#include "image/exec.h"
#include "image/functions.h"
#include "image/image_host.h"
#include "image/image_pinned.h"
#include "image/overlap.h"
#include "image/place.h"
#include "image/private_ctx.h"
#include "image/random.h"
#include "image/semaphores.h"
#include "image/staging.h"
#include "image/targets.h"
#include "image/variables.h"
#include "lib/live.h"

static void device_release(struct fdry_image *img)
{
	CUstreamCaptureMode mode;

	if (fdry_image_enter(img, &mode))
		return;
	/* Without a launch, do not wait, since that would break captures in the context. */
	if (atomic_load(&img->launches))
		(void)fdry_call_raw(img->drv, cuCtxSynchronize);
	fdry_execs_destroy(img);
	fdry_overlap_free(img);
	fdry_random_event_free(img);
	fdry_image_arrays_free(img);
	fdry_private_ctx_free(img);
	fdry_kernel_bank_free(img->bank);
	fdry_check_end(img);
	fdry_staging_free(img);
	fdry_region_free_to_cache(img->region);
	fdry_image_pinned_free(img);
	fdry_placement_release(img);
	fdry_image_hosts_free(img);
	fdry_image_leave(img, &mode);
	fdry_context_end(img);
}

void fdry_image_unload(struct fdry_image *img)
{
	uint32_t i;

	if (!img || fdry_live_check(img, "the image"))
		return;
	if (img->pid == getpid() && fdry_image_check_outside(img))
		return;
	if (fdry_live_end(img, "the image"))
		return;
	if (img->pid == getpid()) {
		fdry_builder_free(img);
		if (img->ctx) {
			fdry_placed_remove(&img->placed);
			device_release(img);
		}
	}
	for (i = 0; img->execs && i < img->m.n_graphs; i++)
		fdry_shared_graph_put(img->execs[i].graph);
	if (img->drv)
		fdry_driver_close(img->drv);
	fdry_store_close(img->store);
	fdry_image_targets_free(img);
	fdry_buf_release(&img->bytes);
	if (img->pid == getpid()) /* in a child it would wait for the parent's threads */
		fdry_ticket_release(&img->ticket);
	pthread_mutex_destroy(&img->progress_lock);
	pthread_mutex_destroy(&img->lock);
	pthread_mutex_destroy(&img->staging_lock);
	free(img->hosts);
	free(img->arrays);
	free(img->mipmaps);
	fdry_buf_release(&img->pinned_pages);
	free(img->pinned);
	fdry_functions_release(&img->functions);
	fdry_semaphores_release(&img->semaphores);
	fdry_image_values_free(img);
	free(img->kernels);
	free(img->execs);
	free(img->order);
	fdry_buf_release(&img->capacities);
	fdry_random_free(img);
	free(img->filled);
	fdry_buf_release(&img->damaged);
	free(img);
}
