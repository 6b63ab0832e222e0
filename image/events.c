// SPDX-License-Identifier: Apache-2.0
/* events.c - see events.h. */
#include "image/events.h"

#include <stdlib.h>

/* The event of entry @e, into the list of its graph. */
static int event_place(struct fdry_image *img, const struct fdry_mf_event *e)
{
	struct fdry_image_exec *x = &img->execs[e->graph];
	uint32_t count = x->view.header.events;

	if (e->event >= count)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "graph %llu has %u events, and the manifest names number %u; seal "
				 "the image anew",
				 (unsigned long long)img->m.graphs[e->graph].key, count, e->event);
	if (!x->events)
		x->events = calloc(count, sizeof(*x->events));
	if (!x->events)
		return fdry_nomem();
	x->events[e->event] = img->events[e->number];
	return 0;
}

int fdry_image_events_make(struct fdry_image *img)
{
	const struct fdry_mf_event *e = img->m.events;
	uint32_t i;
	int err;

	if (!img->m.n_events)
		return 0;
	img->events = calloc(img->m.n_events, sizeof(*img->events));
	if (!img->events)
		return fdry_nomem();
	for (i = 0; i < img->m.n_events; i++, e++) {
		if (!img->events[e->number]) {
			err = fdry_call(img->drv, cuEventCreate, &img->events[e->number],
					CU_EVENT_DISABLE_TIMING);
			if (err)
				return err;
		}
		err = event_place(img, e);
		if (err)
			return err;
	}
	return 0;
}

void fdry_image_events_free(struct fdry_image *img)
{
	uint32_t i;

	for (i = 0; img->execs && i < img->m.n_graphs; i++) {
		free(img->execs[i].events);
		img->execs[i].events = NULL;
	}
	for (i = 0; img->events && i < img->m.n_events && img->events[i]; i++)
		(void)fdry_call_raw(img->drv, cuEventDestroy_v2, img->events[i]);
	free(img->events);
	img->events = NULL;
}
