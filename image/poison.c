// SPDX-License-Identifier: Apache-2.0
/*
 * poison.c - fills memory whose content a load does not restore, to show reads of it.
 */
#include "image/poison.h"

#include "arch/stream.h"
#include "image/place.h"

static int poison_fill(void *arg, uint64_t addr, uint64_t size)
{
	struct fdry_image *img = arg;

	return fdry_call(img->drv, cuMemsetD8Async, addr, FDRY_POISON, size, img->stream);
}

int fdry_image_poison(struct fdry_image *img, const struct fdry_plan *plan)
{
	const struct fdry_mf_segment *s = img->m.segments;
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_segments; i++) {
		if (s[i].role != FDRY_ROLE_CONTENT)
			err = fdry_placement_pieces(img, s[i].addr, fdry_plan_segment(plan, &s[i]),
						    poison_fill, img);
		if (err)
			return err;
	}
	return fdry_stream_wait(img->drv, img->stream);
}
