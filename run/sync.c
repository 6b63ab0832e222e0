// SPDX-License-Identifier: Apache-2.0
/* sync.c - streams and events that are kept and used again; see foundry/run/pool.h. */
#include <stdlib.h>

#include "lib/opts.h"
#include "run/device.h"
#include "lib/config.h"

static const char *const names[] = { "stream", "event", "timing event" };

int fdry_syncs_init(struct fdry_syncs *s, struct fdry_device *dev, enum fdry_sync_kind kind)
{
	s->dev = dev;
	s->kind = kind;
	s->stats.sz = sizeof(s->stats);
	pthread_mutex_init(&s->lock, NULL);
	return fdry_config_number(FDRY_CONFIG_POOL_KEPT, &s->stats.limit);
}

static int sync_make(const struct fdry_syncs *s, void **ret)
{
	unsigned int flags =
		s->kind == FDRY_SYNC_TIMER ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;

	if (s->kind == FDRY_SYNC_STREAM)
		return fdry_call(s->dev->drv, cuStreamCreate, (CUstream *)ret,
				 CU_STREAM_NON_BLOCKING);
	return fdry_call(s->dev->drv, cuEventCreate, (CUevent *)ret, flags);
}

static void sync_destroy(const struct fdry_syncs *s, void *what)
{
	if (s->kind == FDRY_SYNC_STREAM)
		(void)fdry_call_raw(s->dev->drv, cuStreamDestroy_v2, what);
	else
		(void)fdry_call_raw(s->dev->drv, cuEventDestroy_v2, what);
}

/* An event may be recorded again at any time; new work on a stream waits for its earlier work. */
static bool sync_ready(const struct fdry_syncs *s, void *what)
{
	return s->kind != FDRY_SYNC_STREAM ||
	       fdry_call_raw(s->dev->drv, cuStreamQuery, what) == CUDA_SUCCESS;
}

/* Remove a kept stream or event that is ready; NULL if there is none. The lock is held. */
static void *kept_take(struct fdry_syncs *s)
{
	uint64_t i = s->stats.kept;
	void *what;

	while (i-- > 0) {
		what = s->kept[i];
		if (!sync_ready(s, what))
			continue;
		s->kept[i] = s->kept[--s->stats.kept];
		s->stats.again++;
		return what;
	}
	return NULL;
}

static int get_locked(struct fdry_syncs *s, void **ret)
{
	int err = fdry_map_reserve(&s->used);

	if (err)
		return err;
	*ret = kept_take(s);
	if (!*ret) {
		err = sync_make(s, ret);
		if (err)
			return err;
		s->stats.made++;
	}
	fdry_map_put(&s->used, (uint64_t)(uintptr_t)*ret, *ret);
	s->stats.used++;
	return 0;
}

int fdry_syncs_get(struct fdry_syncs *s, void **ret)
{
	void *got = NULL;
	int err;

	pthread_mutex_lock(&s->lock);
	err = get_locked(s, &got);
	pthread_mutex_unlock(&s->lock);
	if (err)
		return err;
	*ret = got;
	return 0;
}

/* Keep @what; false if there is no space. The lock is held. */
static bool keep(struct fdry_syncs *s, void *what)
{
	if (s->stats.kept >= s->stats.limit)
		return false;
	if (!s->kept)
		s->kept = calloc(s->stats.limit, sizeof(*s->kept));
	if (!s->kept)
		return false;
	s->kept[s->stats.kept++] = what;
	return true;
}

int fdry_syncs_put(struct fdry_syncs *s, void *what)
{
	bool known, kept;

	pthread_mutex_lock(&s->lock);
	known = fdry_map_take(&s->used, (uint64_t)(uintptr_t)what);
	kept = known && keep(s, what);
	s->stats.used -= known;
	s->stats.destroyed += known && !kept;
	pthread_mutex_unlock(&s->lock);
	if (!known)
		return fdry_fail(FDRY_E_STALE,
				 "the %s %p is not in use: it was returned before, or belongs to "
				 "another pool; return it once, to its own pool",
				 names[s->kind], what);
	if (!kept)
		sync_destroy(s, what);
	return 0;
}

void fdry_syncs_trim(struct fdry_syncs *s)
{
	pthread_mutex_lock(&s->lock);
	s->stats.destroyed += s->stats.kept;
	while (s->stats.kept)
		sync_destroy(s, s->kept[--s->stats.kept]);
	pthread_mutex_unlock(&s->lock);
}

void fdry_syncs_release(struct fdry_syncs *s)
{
	fdry_syncs_trim(s);
	fdry_map_release(&s->used);
	free(s->kept);
	pthread_mutex_destroy(&s->lock);
}

/* --- the public functions --- */

static int kind_check(const struct fdry_device *dev, enum fdry_sync_kind kind)
{
	return fdry_device_check_kind(dev, (int)kind, FDRY_SYNC_KINDS,
				      "stream or event; use one of enum fdry_sync_kind");
}

int fdry_sync_get(struct fdry_device *dev, enum fdry_sync_kind kind, void **ret)
{
	CUstreamCaptureMode mode;
	int err = kind_check(dev, kind) ?: fdry_need(ret);

	if (err)
		return err;
	err = fdry_device_enter(dev, &mode);
	if (err)
		return err;
	err = fdry_syncs_get(&dev->syncs[kind], ret);
	fdry_device_leave(dev, &mode);
	return err;
}

static int in_use(struct fdry_syncs *s, void *what)
{
	bool known;

	pthread_mutex_lock(&s->lock);
	known = fdry_map_get(&s->used, (uint64_t)(uintptr_t)what);
	pthread_mutex_unlock(&s->lock);
	return known;
}

int fdry_sync_put(struct fdry_device *dev, enum fdry_sync_kind kind, void *what)
{
	CUstreamCaptureMode mode;
	int err = kind_check(dev, kind) ?: fdry_need(what);

	if (err)
		return err;
	err = fdry_device_enter(dev, &mode);
	if (err)
		return err;
	if (kind == FDRY_SYNC_STREAM && in_use(&dev->syncs[kind], what))
		err = fdry_device_not_capturing(dev, what,
						"end the capture before you return the stream");
	if (err)
		goto out_leave;
	err = fdry_syncs_put(&dev->syncs[kind], what);
out_leave:
	fdry_device_leave(dev, &mode);
	return err;
}

int fdry_sync_stats(struct fdry_device *dev, enum fdry_sync_kind kind,
		    struct fdry_sync_stats *ret)
{
	struct fdry_syncs *s;
	int err = kind_check(dev, kind) ?: fdry_need(ret);

	if (err)
		return err;
	s = &dev->syncs[kind];
	pthread_mutex_lock(&s->lock);
	err = fdry_report_give(&s->stats, sizeof(s->stats), ret);
	pthread_mutex_unlock(&s->lock);
	return err;
}

size_t fdry_sync_count(struct fdry_device *dev)
{
	struct fdry_sync_stats st = { .sz = sizeof(st) };
	size_t n = 0;
	int i;

	for (i = 0; i < FDRY_SYNC_KINDS; i++)
		n += fdry_sync_stats(dev, (enum fdry_sync_kind)i, &st) ? 0 : st.kept;
	return n;
}
