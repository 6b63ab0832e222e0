// SPDX-License-Identifier: Apache-2.0
/* slots.c - fill and empty a table's slots; see slots.h. replay.c launches them. */
#include "run/slots.h"

#include <stdlib.h>
#include <string.h>

#include "image/image.h"
#include "lib/opts.h"
#include "lib/config.h"
#include "lib/live.h"
#include "lib/log.h"
#include "arch/stream.h"

/* --- forks: a child cannot use its copy of a table --- */

static atomic_uint forks;
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

static void forked(void)
{
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void forks_watch(void)
{
	(void)pthread_atfork(NULL, NULL, forked);
}

static bool is_forked(const struct fdry_slots *t)
{
	return t->forks != atomic_load_explicit(&forks, memory_order_relaxed);
}

int fdry_slots_check(const struct fdry_slots *t)
{
	int err = fdry_need(t);

	if (err)
		return err;
	err = fdry_live_check(t, "the table of slots");
	if (err)
		return err;
	if (is_forked(t))
		return fdry_fail(FDRY_E_FORKED, "the table was made before fork(), and CUDA does "
						"not work in the child; use it "
						"in the process that made it");
	return 0;
}

int fdry_slots_check_outside(const struct fdry_slots *t)
{
	int err = fdry_slots_check(t);

	if (err)
		return err;
	if (fdry_slots_inside())
		return fdry_fail(FDRY_E_STATE, "this waits for replays to end, and was called from "
					       "within one, by a function that "
					       "profiling or logging calls; do it elsewhere");
	return 0;
}

/* --- maps --- */

static size_t places(const struct fdry_slot_map *map)
{
	return (size_t)1 << map->bits;
}

/* Neighbouring keys, such as batch sizes, spread. */
static size_t place_of(const struct fdry_slot_map *map, uint64_t key)
{
	return (size_t)(key * 0x9E3779B97F4A7C15u >> (64 - map->bits));
}

struct fdry_slot_map *fdry_slot_map_new(size_t count)
{
	struct fdry_slot_map *map;
	unsigned int bits = 2;

	while ((size_t)1 << bits < 2 * count)
		bits++;
	map = calloc(1, sizeof(*map) + sizeof(map->places[0]) * ((size_t)1 << bits));
	if (map)
		map->bits = bits;
	return map;
}

struct fdry_slot *fdry_slot_map_find(const struct fdry_slot_map *map, uint64_t key)
{
	size_t i = place_of(map, key), mask = places(map) - 1;

	while (map->places[i] && map->places[i]->key != key)
		i = (i + 1) & mask;
	return map->places[i];
}

static void map_add(struct fdry_slot_map *map, struct fdry_slot *slot)
{
	size_t i = place_of(map, slot->key), mask = places(map) - 1;

	while (map->places[i])
		i = (i + 1) & mask;
	map->places[i] = slot;
	map->count++;
}

int fdry_slot_map_with(const struct fdry_slot_map *map, uint64_t key, struct fdry_slot *slot,
		       struct fdry_slot_map **ret)
{
	struct fdry_slot_map *copy = fdry_slot_map_new(map->count + 1);
	size_t i;

	if (!copy)
		return fdry_nomem();
	for (i = 0; i < places(map); i++)
		if (map->places[i] && map->places[i]->key != key)
			map_add(copy, map->places[i]);
	if (slot)
		map_add(copy, slot);
	*ret = copy;
	return 0;
}

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

/* Out of the map; under the lock. */
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

/* Whether one of the first @left is still there; @key: of that key, NULL: of any. Under the lock.
 */
static bool is_leaving(const struct fdry_slots *t, uint64_t left, const uint64_t *key)
{
	const struct fdry_slot *s;

	for (s = t->leaving; s; s = s->leaving)
		if (s->left <= left && (!key || s->key == *key))
			return true;
	return false;
}

/* Wait until the slots are gone that other threads have removed before. */
static void leaving_wait(struct fdry_slots *t, const uint64_t *key)
{
	uint64_t left;

	pthread_mutex_lock(&t->lock);
	for (left = t->left; is_leaving(t, left, key);)
		pthread_cond_wait(&t->gone, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

/* What was in a slot, which nobody can find any more: wait, destroy. The table's context is
 * current. */
static void slot_retire(struct fdry_slots *t, struct fdry_slot *slot)
{
	CUresult exec = CUDA_SUCCESS, graph = CUDA_SUCCESS;

	fdry_slot_wait(t, slot);
	if (slot->owned & FDRY_SLOTS_OWN_EXEC)
		exec = fdry_call_raw(t->drv, cuGraphExecDestroy, slot->exec);
	if (slot->owned & FDRY_SLOTS_OWN_GRAPH)
		graph = fdry_call_raw(t->drv, cuGraphDestroy, slot->graph);
	if (exec || graph)
		fdry_warn("slot %llu: what was in it could not be destroyed (%d, %d)",
			  (unsigned long long)slot->key, (int)exec, (int)graph);
	slot_gone(t, slot);
	slot_free(slot);
}

/* Under the lock. */
static void map_leaves(struct fdry_slots *t, struct fdry_slot_map *map)
{
	size_t i;

	for (i = 0; i < places(map); i++)
		if (map->places[i])
			slot_leaves(t, map->places[i]);
}

static void map_retire(struct fdry_slots *t, struct fdry_slot_map *map)
{
	size_t i;

	for (i = 0; i < places(map); i++)
		if (map->places[i])
			slot_retire(t, map->places[i]);
	free(map);
}

/* Publish @map; returns the old one, which no reader has any more. Under the lock. */
static struct fdry_slot_map *map_exchange(struct fdry_slots *t, struct fdry_slot_map *map)
{
	struct fdry_slot_map *old = atomic_exchange(&t->map, map);

	fdry_rcu_wait(&t->readers);
	return old;
}

/* Whether the table would destroy what @slot names while @s has it, or twice. A graph that is not
 * owned may be gone, and its handle another's. */
static bool shares(const struct fdry_slot *s, const struct fdry_slot *slot)
{
	uint32_t passes =
		s->key == slot->key
			? 0
			: slot->owned; /* the new slot may own a graph that the old one did not */

	return (slot->exec && s->exec == slot->exec && (s->owned | passes) & FDRY_SLOTS_OWN_EXEC) ||
	       (slot->graph && s->graph == slot->graph &&
		s->owned & slot->owned & FDRY_SLOTS_OWN_GRAPH);
}

/* Under the lock. */
static int owned_check(const struct fdry_slot_map *map, const struct fdry_slot *slot)
{
	size_t i;

	for (i = 0; i < places(map); i++)
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

/* Wait for the upload as well, to return its failure. */
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

/* The table's context is current. @what is copied; ownership of what it names passes where this
 * succeeds. */
static int slot_put(struct fdry_slots *t, const struct fdry_slot *what)
{
	struct fdry_slot *slot = malloc(sizeof(*slot)), *old = NULL;
	int err = slot ? 0 : fdry_nomem();

	if (err)
		return err;
	memcpy(slot, what, sizeof(*slot));
	if (slot->exec)
		err = exec_upload(t, slot->exec);
	if (!err) {
		pthread_mutex_lock(&t->lock);
		err = owned_check(atomic_load(&t->map), slot);
		if (!err)
			err = key_set(t, slot->key, slot, &old);
		pthread_mutex_unlock(&t->lock);
	}
	if (err)
		free(slot);
	else if (old)
		slot_retire(t, old);
	return err ? fdry_fail_at(err, "slot %llu", (unsigned long long)what->key) : 0;
}

int fdry_slots_install(struct fdry_slots *t, uint64_t key, CUgraph graph, CUgraphExec exec,
		       uint32_t flags)
{
	struct fdry_slot slot = { .key = key, .graph = graph, .exec = exec, .owned = flags };
	CUstreamCaptureMode mode;
	int err = fdry_slots_check_outside(t);

	if (err)
		return err;
	err = fdry_need(exec);
	if (err)
		return err;
	if (flags & ~(uint32_t)(FDRY_SLOTS_OWN_EXEC | FDRY_SLOTS_OWN_GRAPH) ||
	    (flags & FDRY_SLOTS_OWN_GRAPH && !graph))
		return fdry_fail(FDRY_E_INVAL,
				 "flags %#x are not those of a slot, or own a graph and name none",
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
	int err = fdry_slots_check_outside(t);

	if (err)
		return err;
	err = fdry_need(graph);
	if (err)
		return err;
	if (flags & ~(uint32_t)FDRY_SLOTS_OWN_GRAPH)
		return fdry_fail(FDRY_E_INVAL,
				 "flags %#x: only FDRY_SLOTS_OWN_GRAPH can be said of a graph",
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
		return fdry_fail(FDRY_E_STATE, "the stream does not capture, so there is no "
					       "capture to end; begin one first");
	err = fdry_call(t->drv, cuStreamEndCapture, stream, &graph);
	if (err)
		return err;
	if (!graph)
		return fdry_fail(FDRY_E_STATE,
				 "the capture gave no graph; it was invalidated, capture again");
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
	if (!err) {
		err = graph_put(t, &slot, instantiate);
		if (err)
			(void)fdry_call_raw(t->drv, cuGraphDestroy, slot.graph);
	}
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
	err = fdry_image_check(img);
	if (err)
		return err;
	if (img->primary != t->ctx)
		return fdry_fail(
			FDRY_E_INVAL,
			"the image is on device %d, and the table is for another device or "
			"a context of its own",
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

/* Under the lock. */
static int key_remove(struct fdry_slots *t, uint64_t key, struct fdry_slot **old)
{
	struct fdry_slot *slot = fdry_slot_map_find(atomic_load(&t->map), key);

	*old = NULL;
	return slot ? key_set(t, key, NULL, old) : 0;
}

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
	err = key_remove(t, key, &old);
	pthread_mutex_unlock(&t->lock);
	if (!err && old)
		slot_retire(t, old);
	if (!err)
		leaving_wait(t, &key);
	fdry_driver_leave(t->drv, &mode);
	return err;
}

/* Under the lock. */
static int all_remove(struct fdry_slots *t, struct fdry_slot_map **old)
{
	struct fdry_slot_map *empty = fdry_slot_map_new(0);

	if (!empty)
		return fdry_nomem();
	*old = map_exchange(t, empty);
	map_leaves(t, *old);
	return 0;
}

int fdry_slots_invalidate_all(struct fdry_slots *t)
{
	CUstreamCaptureMode mode;
	struct fdry_slot_map *old = NULL;
	int err = fdry_slots_check_outside(t);

	if (err)
		return err;
	err = fdry_driver_enter(t->drv, t->ctx, &mode);
	if (err)
		return err;
	pthread_mutex_lock(&t->lock);
	err = all_remove(t, &old);
	pthread_mutex_unlock(&t->lock);
	if (!err) {
		map_retire(t, old);
		leaving_wait(t, NULL);
	}
	fdry_driver_leave(t->drv, &mode);
	return err;
}

/* --- the table --- */

struct policy {
	bool upload, sync; /* before, and after each launch */
	uint64_t profile;  /* each so many calls; 0: off */
};

/* The environment sets what the options leave open. */
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

	if (!path && fdry_interposer_peek())
		path = fdry_interposer_peek()->real_path();
	err = fdry_driver_open(path, &t->drv);
	if (!err)
		err = fdry_call(t->drv, cuDeviceGetCount, &count);
	if (!err && (o->device < 0 || o->device >= count))
		err = fdry_fail(FDRY_E_NOGPU, "there is no device %d; this process sees %d",
				o->device, count);
	if (!err)
		err = fdry_call(t->drv, cuDeviceGet, &t->device, o->device);
	t->ctx = o->ctx;
	if (err)
		return err;
	if (!o->ctx) {
		err = fdry_call(t->drv, cuDevicePrimaryCtxRetain, &t->ctx, t->device);
		t->retained = !err;
	}
	return err;
}

static void table_free(struct fdry_slots *t)
{
	if (t->retained)
		(void)fdry_call_raw(t->drv, cuDevicePrimaryCtxRelease_v2, t->device);
	if (!is_forked(t)) /* it would wait for threads that are the parent's */
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
	pthread_once(&forks_once, forks_watch);
	t->forks = atomic_load(&forks);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->gone, NULL);
	atomic_store(&t->map, fdry_slot_map_new(0));
	fdry_live_add(t);
	err = table_open(t, &o);
	if (!err) {
		*ret = t;
		return 0;
	}
	if (!fdry_live_end(t, "the table of slots"))
		table_free(t);
	return err;
}

/* In a forked child, free only memory. */
static void map_free(struct fdry_slot_map *map)
{
	size_t i;

	for (i = 0; i < places(map); i++)
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
