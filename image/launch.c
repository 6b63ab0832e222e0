// SPDX-License-Identifier: Apache-2.0
/*
 * launch.c - launches graphs, and restores their memory to its content.
 *
 * A launch of a graph that is built takes no lock, unless the graph draws random numbers.
 */
#include "image/builder.h"
#include "image/check.h"
#include "image/exec.h"
#include "image/image_host.h"
#include "image/overlap.h"
#include "lib/opts.h"
#include "image/private_ctx.h"
#include "image/random.h"
#include "lib/telemetry.h"
#include "image/variables.h"

int fdry_image_build(struct fdry_image *img, uint64_t key)
{
	uint32_t i = 0;
	int err;

	err = fdry_image_usable(img);
	if (err)
		return err;
	err = fdry_exec_index(img, key, &i);
	if (err)
		return err;
	return fdry_exec_need(img, i);
}

int fdry_image_wait(struct fdry_image *img)
{
	uint32_t i;
	int err = fdry_image_check_outside(img);

	if (err)
		return err;
	fdry_builder_wait(img);
	for (i = 0; i < img->m.n_graphs; i++) {
		err = fdry_exec_need(img, img->order[i]);
		if (err)
			return err;
	}
	return 0;
}

int fdry_image_build_stop(struct fdry_image *img)
{
	int err = fdry_image_check_outside(img);

	if (err)
		return err;
	fdry_builder_stop(img);
	return 0;
}

static int unfilled_fail(struct fdry_image *img)
{
	const char *name = "";
	uint32_t i, n;

	pthread_mutex_lock(&img->lock);
	for (i = img->m.n_tensors; i-- > 0;)
		if (img->m.tensors[i].flags & FDRY_TENSOR_EXTERNAL && !img->filled[i])
			name = fdry_manifest_str(&img->m, img->m.tensors[i].name);
	n = atomic_load(&img->unfilled);
	pthread_mutex_unlock(&img->lock);
	return fdry_fail(
		FDRY_E_UNBOUND,
		"%u external tensor(s) have no content yet, '%s' first; write or copy them, "
		"or declare them with fdry_image_filled()",
		n, name);
}

/* Check that memory holds what graphs expect. */
static int memory_check(struct fdry_image *img)
{
	if (atomic_load(&img->partial))
		return fdry_fail(FDRY_E_STATE, "only a part of the content was restored; restore "
					       "it again, or unload the image");
	return atomic_load(&img->unfilled) ? unfilled_fail(img) : 0;
}

static int exec_launch(struct fdry_image *img, const struct fdry_launch *l)
{
	CUgraphExec exec = atomic_load(&img->execs[l->graph].exec);
	int err;

	if (img->overlap && !img->private_ctx)
		return fdry_overlap_launch(img, l);
	err = fdry_random_write(img, l);
	if (err)
		return err;
	return img->private_ctx ? fdry_private_ctx_launch(img, exec, l->stream)
				: fdry_call(img->drv, cuGraphLaunch, exec, l->stream);
}

/* Launch with the primary context current, since the caller's stream belongs to it. */
static int graph_launch(struct fdry_image *img, const struct fdry_launch *l)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter_primary(img, &mode);

	if (err)
		return err;
	err = fdry_image_stream_check(img, l->stream);
	if (err)
		goto out_leave;
	fdry_count(FDRY_METRIC_LAUNCHES_IMAGE, 1);
	atomic_fetch_add_explicit(&img->launches, 1, memory_order_relaxed);
	fdry_random_begin(img, l);
	err = exec_launch(img, l);
	fdry_random_end(img, l, err);
out_leave:
	fdry_image_leave(img, &mode);
	return err;
}

static int launch(struct fdry_image *img, uint64_t key, struct fdry_launch *l)
{
	int err = fdry_exec_index(img, key, &l->graph);

	if (err)
		return err;
	err = fdry_exec_need(img, l->graph);
	if (err)
		return err;
	err = memory_check(img); /* only now, because fdry_exec_need() may have waited for a
				    restore */
	if (err)
		return err;
	return graph_launch(img, l);
}

int fdry_image_launch(struct fdry_image *img, uint64_t key, CUstream stream)
{
	struct fdry_launch l = { .stream = stream };
	int err = fdry_image_usable(img);

	return err ? err : launch(img, key, &l);
}

int fdry_image_launch_rng(struct fdry_image *img, uint64_t key, CUstream stream,
			  const struct fdry_rng_state *states, size_t n)
{
	struct fdry_launch l = { .stream = stream, .states = states };
	int err = fdry_image_usable(img) ?: fdry_need(states);

	if (err)
		return err;
	if (n != img->m.n_generators)
		return fdry_fail(FDRY_E_INVAL,
				 "the image has %u generators, but %zu states were given; "
				 "give one for each",
				 img->m.n_generators, n);
	return launch(img, key, &l);
}

static int content_restore(struct fdry_image *img, struct fdry_reader *reader)
{
	struct fdry_content_sum sum = { 0 };
	struct fdry_content *c;
	uint64_t checked;
	int err = fdry_content_begin(img, reader, 0, &c);

	if (err)
		return err;
	atomic_store(&img->partial, true);
	err = fdry_content_zero(img);
	if (err)
		goto out_end;
	err = fdry_content_copy(c, &sum);
	if (err)
		goto out_end;
	err = fdry_image_hosts_content(img, reader, &sum);
	if (err)
		goto out_end;
	err = fdry_content_check(img, reader, &checked);
	if (err)
		goto out_end;
	err = fdry_image_values_write(img);
	if (err)
		goto out_end;
	atomic_store(&img->partial, false);
out_end:
	fdry_content_end(c);
	return err;
}

static int chunks_find(struct fdry_image *img, struct fdry_reader *reader)
{
	struct fdry_span bytes;
	uint32_t i;
	int err;

	for (i = 0; i < img->m.n_chunks; i++) {
		err = fdry_reader_map(reader, &img->m.chunks[i].oid, &bytes);
		if (err)
			return err;
	}
	for (i = 0; i < img->m.n_host_chunks; i++) {
		err = fdry_reader_map(reader, &img->m.host_chunks[i].oid, &bytes);
		if (err)
			return err;
	}
	return 0;
}

/* Before memory changes, check that the store has everything that a restore needs. It stays there
 * while @reader is open, also for other threads. */
static int content_hold(struct fdry_image *img, struct fdry_reader *reader)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid id;
	int err = fdry_reader_resolve(reader, fdry_oid_hex(&img->id, hex), &id);

	if (err)
		goto out_name;
	err = chunks_find(img, reader);
	if (err)
		goto out_name;
	return 0;
out_name:
	if (err == -FDRY_E_NOENT)
		return fdry_fail(
			FDRY_E_NOENT,
			"image %s cannot be restored: it was removed from the store after it was "
			"loaded; its memory is unchanged, and its graphs can be launched; seal it "
			"anew and load that",
			hex);
	return fdry_fail_at(err, "image %s cannot be restored, and its memory is unchanged", hex);
}

/* Restore all content. The work of the caller's stream has ended. The caller holds the ticket, so
 * no graph is built or launched for the first time in the meantime. */
static int restore_in_session(struct fdry_image *img)
{
	struct fdry_reader *reader;
	int err = fdry_reader_begin(img->store, &reader);

	if (err)
		return err;
	err = content_hold(img, reader);
	if (err)
		goto out_end;
	err = content_restore(img, reader);
out_end:
	fdry_reader_end(reader);
	return err;
}

static int restore_in_context(struct fdry_image *img)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(img, &mode);

	if (err)
		return err;
	err = restore_in_session(img);
	fdry_image_leave(img, &mode);
	return err;
}

int fdry_image_restore(struct fdry_image *img, CUstream stream)
{
	int err = fdry_image_check_outside(img);

	if (err)
		return err;
	fdry_ticket_take(&img->ticket);
	err = fdry_image_synchronize(img, stream);
	if (err)
		goto out_return;
	err = restore_in_context(img);
out_return:
	fdry_ticket_return(&img->ticket);
	return err;
}
