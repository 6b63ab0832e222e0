// SPDX-License-Identifier: Apache-2.0
/* slot_install.c - fills the slots of a table with graphs, captures and graphs of images. */
#include "run/slots.h"

#include <stdlib.h>
#include <string.h>

#include "image/image.h"
#include "lib/opts.h"
#include "arch/stream.h"

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
	err = owned_check(atomic_load(&t->map), slot) ?: fdry_slot_set(t, slot->key, slot, &old);
	pthread_mutex_unlock(&t->lock);
	if (err)
		goto out_free;
	if (old)
		fdry_slot_retire(t, old);
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
