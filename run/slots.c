// SPDX-License-Identifier: Apache-2.0
/* slots.c - make a table, fill and empty its slots; see slots.h. replay.c launches them. */
#include "run/slots.h"

#include <stdlib.h>
#include <string.h>

#include "image/image.h"
#include "lib/opts.h"
#include "lib/config.h"
#include "lib/live.h"
#include "lib/log.h"
#include "arch/stream.h"

/* --- slots and their graphs --- */

static void slot_free(struct fdry_slot *slot)
{
	struct fdry_slot_stream *s = atomic_load_explicit(&slot->streams, memory_order_relaxed),
				*next;

	for (; s; s = next) {
		next = s->next;
		free(s);
	}
	free(slot);
}

/* Note that a slot was removed from the map. Under the lock. */
static void slot_leaves(struct fdry_slots *t, struct fdry_slot *slot)
{
	slot->left = ++t->left;
	slot->leaving = t->leaving;
	t->leaving = slot;
}

static void slot_gone(struct fdry_slots *t, const struct fdry_slot *slot)
{
	struct fdry_slot **p;

	pthread_mutex_lock(&t->lock);
	for (p = &t->leaving; *p != slot; p = &(*p)->leaving)
		;
	*p = slot->leaving;
	pthread_cond_broadcast(&t->gone);
	pthread_mutex_unlock(&t->lock);
}

/* Whether one of the first @left removed slots still exists, with key *@key, or with any key if
 * @key is NULL. Under the lock. */
static bool is_leaving(const struct fdry_slots *t, uint64_t left, const uint64_t *key)
{
	const struct fdry_slot *s;

	for (s = t->leaving; s; s = s->leaving)
		if (s->left <= left && (!key || s->key == *key))
			return true;
	return false;
}

/* Wait until all slots are destroyed that any thread removed before this call. */
static void leaving_wait(struct fdry_slots *t, const uint64_t *key)
{
	uint64_t left;

	pthread_mutex_lock(&t->lock);
	for (left = t->left; is_leaving(t, left, key);)
		pthread_cond_wait(&t->gone, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

/* Wait for the launches of a slot that was removed from the map, and destroy what it owns. The
 * table's context is current. */
static void slot_retire(struct fdry_slots *t, struct fdry_slot *slot)
{
	CUresult exec = CUDA_SUCCESS, graph = CUDA_SUCCESS;

	fdry_slot_wait(t, slot);
	if (slot->owned & FDRY_SLOTS_OWN_EXEC)
		exec = fdry_call_raw(t->drv, cuGraphExecDestroy, slot->exec);
	if (slot->owned & FDRY_SLOTS_OWN_GRAPH)
		graph = fdry_call_raw(t->drv, cuGraphDestroy, slot->graph);
	if (exec || graph)
		fdry_warn("slot %llu: its graph could not be destroyed (%d, %d)",
			  (unsigned long long)slot->key, (int)exec, (int)graph);
	slot_gone(t, slot);
	slot_free(slot);
}

/* Under the lock. */
static void map_leaves(struct fdry_slots *t, struct fdry_slot_map *map)
{
	size_t i;

	for (i = 0; i < fdry_slot_map_places(map); i++)
		if (map->places[i])
			slot_leaves(t, map->places[i]);
}

static void map_retire(struct fdry_slots *t, struct fdry_slot_map *map)
{
	size_t i;

	for (i = 0; i < fdry_slot_map_places(map); i++)
		if (map->places[i])
			slot_retire(t, map->places[i]);
	free(map);
}

/* Publish @map, and return the old map when no reader uses it any more. Under the lock. */
static struct fdry_slot_map *map_exchange(struct fdry_slots *t, struct fdry_slot_map *map)
{
	struct fdry_slot_map *old = atomic_exchange(&t->map, map);

	fdry_rcu_wait(&t->readers);
	return old;
}

/* Whether the table would destroy a graph of @slot while @s uses it, or destroy it twice. The
 * caller may have destroyed a graph that no slot owns, and its handle may name another graph now.
 */
static bool shares(const struct fdry_slot *s, const struct fdry_slot *slot)
{
	/* A slot may be replaced by one that owns the same graph. */
	uint32_t passes = s->key == slot->key ? 0 : slot->owned;

	return (slot->exec && s->exec == slot->exec && (s->owned | passes) & FDRY_SLOTS_OWN_EXEC) ||
	       (slot->graph && s->graph == slot->graph &&
		s->owned & slot->owned & FDRY_SLOTS_OWN_GRAPH);
}

/* Under the lock. */
static int owned_check(const struct fdry_slot_map *map, const struct fdry_slot *slot)
{
	size_t i;

	for (i = 0; i < fdry_slot_map_places(map); i++)
		if (map->places[i] && shares(map->places[i], slot))
			return fdry_fail(FDRY_E_INVAL,
					 "the graph or executable graph is in slot %llu already, "
					 "and the table would destroy it there; "
					 "install another one",
					 (unsigned long long)map->places[i]->key);
	return 0;
}

/* Under the lock. @old gets the former slot, or NULL. */
static int key_set(struct fdry_slots *t, uint64_t key, struct fdry_slot *slot,
		   struct fdry_slot **old)
{
	struct fdry_slot_map *now = atomic_load(&t->map), *map;
	int err = fdry_slot_map_with(now, key, slot, &map);

	if (err)
		return err;
	*old = fdry_slot_map_find(now, key);
	if (*old)
		slot_leaves(t, *old);
	free(map_exchange(t, map));
	return 0;
}

/* --- install --- */

/* Upload and wait, so that a failure of the upload can be returned. */
static int exec_upload(const struct fdry_slots *t, CUgraphExec exec)
{
	CUstream stream;
	int err = fdry_stream_shared(t->drv, FDRY_STREAM_GRAPHS, &stream);

	if (err)
		return err;
	err = fdry_call(t->drv, cuGraphUpload, exec, stream);
	if (err)
		return err;
	return fdry_stream_wait(t->drv, stream);
}

/* Copy @what into the table. The table then owns the graphs that the flags name, unless this fails.
 * The table's context is current. */
static int slot_put(struct fdry_slots *t, const struct fdry_slot *what)
{
	struct fdry_slot *slot = malloc(sizeof(*slot)), *old = NULL;
	int err;

	if (!slot)
		return fdry_nomem();
	memcpy(slot, what, sizeof(*slot));
	if (slot->exec) {
		err = exec_upload(t, slot->exec);
		if (err)
			goto out_free;
	}
	pthread_mutex_lock(&t->lock);
	err = owned_check(atomic_load(&t->map), slot) ?: key_set(t, slot->key, slot, &old);
	pthread_mutex_unlock(&t->lock);
	if (err)
		goto out_free;
	if (old)
		slot_retire(t, old);
	return 0;
out_free:
	free(slot);
	return fdry_fail_at(err, "slot %llu", (unsigned long long)what->key);
}

int fdry_slots_install(struct fdry_slots *t, uint64_t key, CUgraph graph, CUgraphExec exec,
		       uint32_t flags)
{
	struct fdry_slot slot = { .key = key, .graph = graph, .exec = exec, .owned = flags };
	CUstreamCaptureMode mode;
	int err = fdry_slots_check_outside(t) ?: fdry_need(exec);

	if (err)
		return err;
	if (flags & ~(uint32_t)(FDRY_SLOTS_OWN_EXEC | FDRY_SLOTS_OWN_GRAPH) ||
	    (flags & FDRY_SLOTS_OWN_GRAPH && !graph))
		return fdry_fail(
			FDRY_E_INVAL,
			"flags %#x are not flags of a slot, or own a graph and no graph is named",
			flags);
	err = fdry_driver_enter(t->drv, t->ctx, &mode);
	if (err)
		return err;
	err = slot_put(t, &slot);
	fdry_driver_leave(t->drv, &mode);
	return err;
}

/* The table's context is current. */
static int graph_put(struct fdry_slots *t, struct fdry_slot *slot, uint64_t instantiate)
{
	int err = fdry_call(t->drv, cuGraphInstantiateWithFlags, &slot->exec, slot->graph,
			    instantiate);

	if (err)
		return fdry_fail_at(err, "slot %llu", (unsigned long long)slot->key);
	slot->owned |= FDRY_SLOTS_OWN_EXEC;
	err = slot_put(t, slot);
	if (err)
		(void)fdry_call_raw(t->drv, cuGraphExecDestroy, slot->exec);
	return err;
}

int fdry_slots_install_graph(struct fdry_slots *t, uint64_t key, CUgraph graph,
			     uint64_t instantiate, uint32_t flags)
{
	struct fdry_slot slot = { .key = key, .graph = graph, .owned = flags };
	CUstreamCaptureMode mode;
	int err = fdry_slots_check_outside(t) ?: fdry_need(graph);

	if (err)
		return err;
	if (flags & ~(uint32_t)FDRY_SLOTS_OWN_GRAPH)
		return fdry_fail(FDRY_E_INVAL,
				 "flags %#x: only FDRY_SLOTS_OWN_GRAPH is allowed for a graph",
				 flags);
	err = fdry_driver_enter(t->drv, t->ctx, &mode);
	if (err)
		return err;
	err = graph_put(t, &slot, instantiate);
	fdry_driver_leave(t->drv, &mode);
	return err;
}

/* The table's context is current. */
static int capture_end(const struct fdry_slots *t, CUstream stream, CUgraph *ret)
{
	CUstreamCaptureStatus status;
	CUgraph graph = NULL;
	int err;

	/* If the driver cannot report it, try to end the capture: the stream must be usable. */
	if (!fdry_call_raw(t->drv, cuStreamIsCapturing, stream, &status) &&
	    status == CU_STREAM_CAPTURE_STATUS_NONE)
		return fdry_fail(FDRY_E_STATE,
				 "the stream is not capturing; begin a capture first");
	err = fdry_call(t->drv, cuStreamEndCapture, stream, &graph);
	if (err)
		return err;
	if (!graph)
		return fdry_fail(
			FDRY_E_STATE,
			"the capture made no graph, because it was invalidated; capture again");
	*ret = graph;
	return 0;
}

int fdry_slots_capture_end(struct fdry_slots *t, uint64_t key, CUstream stream,
			   uint64_t instantiate)
{
	struct fdry_slot slot = { .key = key, .owned = FDRY_SLOTS_OWN_GRAPH };
	CUstreamCaptureMode mode;
	int err = fdry_slots_check_outside(t);

	if (err)
		return err;
	err = fdry_driver_enter(t->drv, t->ctx, &mode);
	if (err)
		return err;
	err = capture_end(t, stream, &slot.graph);
	if (err)
		goto out_leave;
	err = graph_put(t, &slot, instantiate);
	if (err)
		(void)fdry_call_raw(t->drv, cuGraphDestroy, slot.graph);
out_leave:
	fdry_driver_leave(t->drv, &mode);
	return err;
}

int fdry_slots_install_image(struct fdry_slots *t, uint64_t key, struct fdry_image *img,
			     uint64_t graph)
{
	struct fdry_slot slot = { .key = key, .img = img, .img_key = graph };
	CUstreamCaptureMode mode;
	int err = fdry_slots_check_outside(t);

	if (err)
		return err;
	err = fdry_image_usable(img);
	if (err)
		return err;
	if (img->primary != t->ctx)
		return fdry_fail(FDRY_E_INVAL,
				 "the image is on device %d, and the table is for another device "
				 "or for a context that is not its primary context",
				 img->device);
	err = fdry_image_build(img, graph);
	if (err)
		return err;
	err = fdry_driver_enter(t->drv, t->ctx, &mode);
	if (err)
		return err;
	err = slot_put(t, &slot);
	fdry_driver_leave(t->drv, &mode);
	return err;
}

/* --- invalidate --- */

int fdry_slots_invalidate(struct fdry_slots *t, uint64_t key)
{
	CUstreamCaptureMode mode;
	struct fdry_slot *old = NULL;
	int err = fdry_slots_check_outside(t);

	if (err)
		return err;
	err = fdry_driver_enter(t->drv, t->ctx, &mode);
	if (err)
		return err;
	pthread_mutex_lock(&t->lock);
	if (fdry_slot_map_find(atomic_load(&t->map), key))
		err = key_set(t, key, NULL, &old);
	pthread_mutex_unlock(&t->lock);
	if (err)
		goto out_leave;
	if (old)
		slot_retire(t, old);
	leaving_wait(t, &key);
out_leave:
	fdry_driver_leave(t->drv, &mode);
	return err;
}

int fdry_slots_invalidate_all(struct fdry_slots *t)
{
	CUstreamCaptureMode mode;
	struct fdry_slot_map *old, *empty;
	int err = fdry_slots_check_outside(t);

	if (err)
		return err;
	err = fdry_driver_enter(t->drv, t->ctx, &mode);
	if (err)
		return err;
	empty = fdry_slot_map_new(0);
	if (!empty) {
		err = fdry_nomem();
		goto out_leave;
	}
	pthread_mutex_lock(&t->lock);
	old = map_exchange(t, empty);
	map_leaves(t, old);
	pthread_mutex_unlock(&t->lock);
	map_retire(t, old);
	leaving_wait(t, NULL);
out_leave:
	fdry_driver_leave(t->drv, &mode);
	return err;
}

/* --- the table --- */

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
	int count, err;

	if (!path && fdry_interposer_loaded())
		path = fdry_interposer_loaded()->real_path();
	err = fdry_driver_open(path, &t->drv);
	if (err)
		return err;
	err = fdry_call(t->drv, cuDeviceGetCount, &count);
	if (err)
		return err;
	if (o->device < 0 || o->device >= count)
		return fdry_fail(FDRY_E_NOGPU, "there is no device %d; this process sees %d",
				 o->device, count);
	err = fdry_call(t->drv, cuDeviceGet, &t->device, o->device);
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
	int err = fdry_need(ret);

	if (err)
		return err;
	err = fdry_opts_take(opts, &o, sizeof(o));
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

/* In a forked child, free only memory. */
static void map_free(struct fdry_slot_map *map)
{
	size_t i;

	for (i = 0; i < fdry_slot_map_places(map); i++)
		if (map->places[i])
			slot_free(map->places[i]);
	free(map);
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
		map_free(map);
	} else if (fdry_driver_enter(t->drv, t->ctx, &mode)) {
		map_free(map);
	} else {
		map_leaves(t, map);
		map_retire(t, map);
		fdry_driver_leave(t->drv, &mode);
	}
	table_free(t);
}
