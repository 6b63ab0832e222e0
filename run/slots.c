// SPDX-License-Identifier: Apache-2.0
/* slots.c - makes and frees a table of slots; see slots.h. */
#include "run/slots.h"

#include <stdlib.h>
#include <string.h>

#include "image/image.h"
#include "lib/opts.h"
#include "lib/config.h"
#include "lib/live.h"

struct policy {
	bool upload, sync; /* before, and after each launch */
	uint64_t profile;  /* log every Nth call; 0: off */
};

/* Read the policy from the options, and from the environment if they do not set it. */
static int policy_read(const struct fdry_slots_opts *o, struct policy *p)
{
	uint64_t upload = 0, sync = 0, profile = 0;
	int err;

	if (o->upload > FDRY_SLOTS_UPLOAD_ALWAYS || o->sync > FDRY_SLOTS_SYNC_ALWAYS || o->reserved)
		return fdry_fail(
			FDRY_E_OPTS,
			"upload %u, sync %u or a reserved field is not one that this library knows",
			o->upload, o->sync);
	err = fdry_config_number(FDRY_CONFIG_SLOTS_UPLOAD, &upload);
	if (err)
		return err;
	err = fdry_config_number(FDRY_CONFIG_SLOTS_SYNC, &sync);
	if (err)
		return err;
	err = fdry_config_number(FDRY_CONFIG_SLOTS_PROFILE, &profile);
	if (err)
		return err;
	p->upload = o->upload ? o->upload == FDRY_SLOTS_UPLOAD_ALWAYS : upload;
	p->sync = o->sync ? o->sync == FDRY_SLOTS_SYNC_ALWAYS : sync;
	p->profile = profile;
	return 0;
}

static int context_open(struct fdry_slots *t, const struct fdry_slots_opts *o)
{
	const char *path = o->driver;
	int err;

	if (!path && fdry_interposer_loaded())
		path = fdry_interposer_loaded()->real_path();
	err = fdry_driver_open(path, &t->drv);
	if (err)
		return err;
	err = fdry_driver_device(t->drv, o->device, &t->device);
	if (err)
		return err;
	t->ctx = o->ctx;
	if (t->ctx)
		return 0;
	err = fdry_call(t->drv, cuDevicePrimaryCtxRetain, &t->ctx, t->device);
	t->retained = !err;
	return err;
}

static void table_free(struct fdry_slots *t)
{
	if (t->retained)
		(void)fdry_call_raw(t->drv, cuDevicePrimaryCtxRelease_v2, t->device);
	if (t->forks == fdry_slots_forks()) /* in a child, destroying it would wait for threads of
					       the parent */
		pthread_cond_destroy(&t->gone);
	pthread_mutex_destroy(&t->lock);
	fdry_profile_free(atomic_load(&t->profile));
	free(atomic_load(&t->map));
	free(t);
}

static int table_open(struct fdry_slots *t, const struct fdry_slots_opts *o)
{
	struct fdry_slots_profile_opts profile = { .sz = sizeof(profile) };
	struct policy p = { 0 };
	int err = policy_read(o, &p);

	if (err)
		return err;
	if (!atomic_load(&t->map))
		return fdry_nomem();
	err = context_open(t, o);
	if (err)
		return err;
	t->upload = p.upload;
	t->sync = p.sync;
	profile.every = p.profile;
	return p.profile ? fdry_slots_profile(t, &profile) : 0;
}

int fdry_slots_new(const struct fdry_slots_opts *opts, struct fdry_slots **ret)
{
	struct fdry_slots_opts o;
	struct fdry_slots *t;
	int err = fdry_need(ret) ?: fdry_opts_take(opts, &o, sizeof(o));

	if (err)
		return err;
	t = aligned_alloc(_Alignof(struct fdry_slots), sizeof(*t));
	if (!t)
		return fdry_nomem();
	memset(t, 0, sizeof(*t));
	t->forks = fdry_slots_forks();
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->gone, NULL);
	atomic_store(&t->map, fdry_slot_map_new(0));
	fdry_live_add(t);
	err = table_open(t, &o);
	if (err)
		goto out_free;
	*ret = t;
	return 0;
out_free:
	if (!fdry_live_end(t, "the table of slots"))
		table_free(t);
	return err;
}

void fdry_slots_free(struct fdry_slots *t)
{
	struct fdry_slot_map *map;
	CUstreamCaptureMode mode;
	int forked;

	if (!t || fdry_live_check(t, "the table of slots") ||
	    fdry_slots_check_outside(t) == -FDRY_E_STATE)
		return;
	forked = fdry_slots_check(t);
	if (fdry_live_end(t, "the table of slots"))
		return;
	map = atomic_exchange(&t->map, NULL);
	if (forked) {
		t->retained = false;
		fdry_slots_drop(map);
	} else if (fdry_driver_enter(t->drv, t->ctx, &mode)) {
		fdry_slots_drop(map);
	} else {
		fdry_slots_retire(t, map);
		fdry_driver_leave(t->drv, &mode);
	}
	table_free(t);
}
