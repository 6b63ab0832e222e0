// SPDX-License-Identifier: Apache-2.0
/*
 * overlap.c - orders launches for the check; see overlap.h.
 *
 * Each accepted launch is ordered after the one before it: by its stream, by the driver if it
 * launches the same graph, or because the check found it so. So the event after the last launch
 * follows all launches.
 */
#include "image/overlap.h"

#include <stdlib.h>

#include "lib/config.h"
#include "arch/stream.h"

struct fdry_overlap {
	pthread_mutex_t lock;
	bool launched;   /* a launch may be in flight, and the fields below describe it */
	uint32_t graph;  /* the graph of the last launch */
	unsigned long long stream; /* the number of its stream */
	CUevent ended;   /* recorded after it */
	CUevent here;    /* recorded after the earlier work of a stream */
};

int fdry_overlap_asked(bool *ret)
{
	uint64_t word = UINT64_MAX;
	int err = fdry_config_number(FDRY_CONFIG_DEBUG, &word);

	if (err)
		return err;
	*ret = word != UINT64_MAX; /* the setting has only one word */
	return 0;
}

int fdry_overlap_new(struct fdry_image *img)
{
	struct fdry_overlap *o = calloc(1, sizeof(*o));
	int err;

	if (!o)
		return fdry_nomem();
	pthread_mutex_init(&o->lock, NULL);
	img->overlap = o;
	err = fdry_call(img->drv, cuEventCreate, &o->ended, CU_EVENT_DISABLE_TIMING);
	return err ? err : fdry_call(img->drv, cuEventCreate, &o->here, CU_EVENT_DISABLE_TIMING);
}

static int in_flight(const struct fdry_image *img, CUevent event, bool *ret)
{
	CUresult res = fdry_call_raw(img->drv, cuEventQuery, event);

	*ret = res == CUDA_ERROR_NOT_READY;
	return *ret ? 0 : fdry_driver_result(img->drv, FDRY_DRV_cuEventQuery, res);
}

static int overlap_fail(const struct fdry_image *img, uint32_t before, uint32_t now)
{
	const struct fdry_mf_graph *b = &img->m.graphs[before], *n = &img->m.graphs[now];

	return fdry_fail(FDRY_E_STATE,
			 "graph %llu '%.60s' is in flight on another stream, and nothing orders "
			 "graph %llu '%.60s' after it; they share memory: use one stream, or let "
			 "the second wait for an event of the first",
			 (unsigned long long)b->key, fdry_manifest_str(&img->m, b->name),
			 (unsigned long long)n->key, fdry_manifest_str(&img->m, n->name));
}

static int order_check(const struct fdry_image *img, const struct fdry_overlap *o,
		       const struct fdry_launch *l, unsigned long long stream)
{
	bool busy = false;
	int err;

	if (!o->launched || o->stream == stream || o->graph == l->graph)
		return 0;
	err = fdry_call(img->drv, cuEventRecord, o->here, l->stream);
	if (err)
		return err;
	err = fdry_event_wait(img->drv, o->here);
	if (err)
		return err;
	err = in_flight(img, o->ended, &busy);
	if (err)
		return err;
	return busy ? overlap_fail(img, o->graph, l->graph) : 0;
}

/* Note that @l was launched. If its event cannot be recorded, wait for the launch, so that nothing
 * is in flight. */
static int launched(const struct fdry_image *img, struct fdry_overlap *o,
		    const struct fdry_launch *l, unsigned long long stream)
{
	int err = fdry_call(img->drv, cuEventRecord, o->ended, l->stream);

	o->launched = !err;
	o->graph = l->graph;
	o->stream = stream;
	return err ? fdry_stream_wait(img->drv, l->stream) : 0;
}

int fdry_overlap_launch(struct fdry_image *img, const struct fdry_launch *l)
{
	struct fdry_overlap *o = img->overlap;
	unsigned long long stream = 0;
	int err;

	pthread_mutex_lock(&o->lock);
	err = fdry_stream_number(img->drv, l->stream, &stream);
	if (err)
		goto out_unlock;
	err = order_check(img, o, l, stream);
	if (err)
		goto out_unlock;
	err = fdry_random_write(img, l);
	if (err)
		goto out_unlock;
	err = fdry_call(img->drv, cuGraphLaunch, l->exec, l->stream);
	if (err)
		goto out_unlock;
	err = launched(img, o, l, stream);
out_unlock:
	pthread_mutex_unlock(&o->lock);
	return err;
}

void fdry_overlap_free(struct fdry_image *img)
{
	struct fdry_overlap *o = img->overlap;

	if (!o)
		return;
	if (o->ended)
		(void)fdry_call_raw(img->drv, cuEventDestroy_v2, o->ended);
	if (o->here)
		(void)fdry_call_raw(img->drv, cuEventDestroy_v2, o->here);
	pthread_mutex_destroy(&o->lock);
	free(o);
	img->overlap = NULL;
}
