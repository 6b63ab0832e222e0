// SPDX-License-Identifier: Apache-2.0
/*
 * restore.c - copies content from the store again, and compares content at its first use.
 *
 * With FDRY_LOAD_CHECK_AT_LAUNCH, content is compared when it is first used. The thread that has
 * the ticket does that; others wait for it. Afterwards a use costs one look at @content of the
 * image, as it does for any image.
 *
 * If objects are damaged in the store, the thread returns the ticket and asks other places for
 * them, since a registry may take long to answer. Meanwhile other threads can build graphs, and
 * launch them if memory is unchanged. Threads that need the content wait for the end of the repair
 * without the ticket, so each of them can be stopped. Then the thread restores again.
 */
#include "image/arrays.h"
#include "image/check.h"
#include "image/damage.h"
#include "image/image_host.h"
#include "image/image_pinned.h"
#include "image/targets.h"
#include "image/variables.h"
#include "lib/clock.h"
#include "lib/config.h"

#define NAP_MS 10 /* between two looks whether a repair has ended */

static int content_restore(struct fdry_image *img, struct fdry_reader *reader, bool hosts)
{
	struct fdry_content_check *check = NULL;
	struct fdry_content_sum sum = { 0 };
	struct fdry_content *c = NULL;
	uint64_t checked;
	int err = fdry_check_prepare(img);

	if (err)
		return err;
	err = fdry_content_begin(img, reader, 0, &c);
	if (err)
		goto out_end;
	atomic_store(&img->content, FDRY_CONTENT_PARTIAL);
	err = fdry_content_zero(img);
	if (err)
		goto out_end;
	err = fdry_content_copy(c, &sum, &check);
	if (err)
		goto out_end;
	err = hosts ? fdry_image_pinned_content(img, reader, &sum) : 0;
	if (err)
		goto out_end;
	err = hosts ? fdry_image_hosts_content(img, reader, &sum) : 0;
	if (err)
		goto out_end;
	err = fdry_image_arrays_content(img, reader, &sum);
	if (err)
		goto out_end;
	err = fdry_content_check_end(check, &checked);
	if (err)
		goto out_end;
	err = fdry_image_targets_content(img) ?: fdry_image_values_write(img);
	if (err)
		goto out_end;
	atomic_store(&img->content, FDRY_CONTENT_WHOLE);
out_end:
	fdry_content_check_free(check);
	fdry_content_end(c);
	return fdry_image_fail(img, err);
}

/* A damaged chunk is noted, and its error kept if it is the first one. Any other error ends the
 * search. */
static int chunk_find(struct fdry_image *img, struct fdry_reader *reader,
		      const struct fdry_oid *oid, struct fdry_saved_err *damage)
{
	struct fdry_span bytes;
	int err = fdry_reader_map(reader, oid, &bytes);

	if (err != -FDRY_E_CORRUPT)
		return err;
	if (!damage->err)
		fdry_saved_err_set(damage, err);
	fdry_damage_note(img, oid);
	return 0;
}

/* Find all damaged chunks, so that one repair asks for all of them. */
static int chunks_find(struct fdry_image *img, struct fdry_reader *reader)
{
	struct fdry_saved_err damage = { 0 };
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_chunks && !err; i++)
		err = chunk_find(img, reader, &img->m.chunks[i].oid, &damage);
	for (i = 0; i < img->m.n_host_chunks && !err; i++)
		err = chunk_find(img, reader, &img->m.host_chunks[i].oid, &damage);
	for (i = 0; i < img->m.n_pinned_chunks && !err; i++)
		err = chunk_find(img, reader, &img->m.pinned_chunks[i].oid, &damage);
	for (i = 0; i < img->m.n_array_pieces && !err; i++)
		err = chunk_find(img, reader, &img->m.array_pieces[i].oid, &damage);
	return err || !damage.err ? err : fdry_saved_err_restore(&damage);
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

/* Restore content; false @hosts: on the device alone. The work of the caller's stream has ended.
 * The caller holds the ticket, so no graph is built or launched for the first time in the
 * meantime. */
static int restore_in_session(struct fdry_image *img, bool hosts)
{
	struct fdry_reader *reader;
	int err = fdry_reader_begin(img->store, &reader);

	if (err)
		return err;
	err = content_hold(img, reader);
	if (err)
		goto out_end;
	err = content_restore(img, reader, hosts);
out_end:
	fdry_reader_end(reader);
	return err;
}

static int restore_in_context(struct fdry_image *img, bool hosts)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(img, &mode);

	if (err)
		return err;
	err = restore_in_session(img, hosts);
	fdry_image_leave(img, &mode);
	return err;
}

/* --- repairs of the store --- */

/* After FDRY_E_CORRUPT, with the ticket, which other threads may have meanwhile; none of them notes
 * damage. A registry may be silent for FOUNDRY_REGISTRY_TIMEOUT, counted over all repetitions. */
static int repair(struct fdry_image *img)
{
	struct fdry_wait wait = { .stop = fdry_image_stop_ask, .arg = img };
	struct fdry_buf damaged = img->damaged;
	uint64_t seconds;
	int err;

	if (fdry_config_try(FDRY_CONFIG_REGISTRY_TIMEOUT, &seconds))
		wait.ms = (uint32_t)seconds * 1000;
	img->damaged = (struct fdry_buf){ 0 };
	img->repairing = true;
	fdry_ticket_return(&img->ticket);
	err = fdry_damage_repair(img->store, img->name, &wait, &damaged);
	fdry_ticket_take(&img->ticket);
	img->repairing = false;
	fdry_buf_release(&damaged);
	return err;
}

/* Take the ticket when no other thread repairs. False @restores: a use, which does not wait if the
 * content is known to be wrong. */
static int ticket_take(struct fdry_image *img, bool restores)
{
	for (;;) {
		fdry_ticket_take(&img->ticket);
		if (!img->repairing ||
		    (!restores && atomic_load(&img->content) == FDRY_CONTENT_WRONG))
			return 0;
		fdry_ticket_return(&img->ticket);
		if (fdry_image_stop_ask(img))
			return fdry_image_fail(
				img, fdry_fail(FDRY_E_CALLBACK,
					       "the program has ended the wait for another thread, "
					       "which brings damaged objects back; call again"));
		fdry_sleep_ms(NAP_MS);
	}
}

/* --- restoring --- */

/* With the ticket. Begins again if the store could be repaired, behind the launches that came on
 * the stream meanwhile. NULL: restore the device alone, and wait for no stream. */
static int restore(struct fdry_image *img, const CUstream *stream)
{
	unsigned int repairs = 0;
	int err;

	do {
		fdry_buf_release(&img->damaged);
		err = stream ? fdry_image_synchronize(img, *stream) : 0;
		if (err)
			return err;
		err = restore_in_context(img, stream);
		if (err != -FDRY_E_CORRUPT || repairs++ == FDRY_REPAIRS_MAX)
			return err;
		err = repair(img);
	} while (!err);
	return err;
}

int fdry_image_restore(struct fdry_image *img, CUstream stream)
{
	int err = fdry_image_check_outside(img) ?: ticket_take(img, true);

	if (err)
		return err;
	err = restore(img, &stream);
	fdry_ticket_return(&img->ticket);
	return err;
}

int fdry_image_stop_set(struct fdry_image *img, fdry_stop_fn stop, void *arg)
{
	int err = fdry_image_usable(img);

	if (err)
		return err;
	pthread_mutex_lock(&img->lock);
	img->stop = stop;
	img->stop_arg = arg;
	pthread_mutex_unlock(&img->lock);
	return 0;
}

/* --- content that is compared when it is first used --- */

void fdry_content_delay(struct fdry_image *img)
{
	if (img->m.n_fingerprints)
		atomic_store(&img->content, FDRY_CONTENT_DUE);
}

static int compare_in_session(struct fdry_image *img, uint64_t *bytes)
{
	struct fdry_reader *reader;
	int err = fdry_check_prepare(img) ?: fdry_reader_begin(img->store, &reader);

	if (err)
		return err;
	fdry_buf_release(&img->damaged);
	err = fdry_content_check(img, reader, bytes);
	fdry_reader_end(reader);
	return fdry_image_fail(img, err);
}

static int compare(struct fdry_image *img, uint64_t *bytes)
{
	CUstreamCaptureMode mode;
	int err = fdry_image_enter(img, &mode);

	if (err)
		return err;
	err = compare_in_session(img, bytes);
	fdry_image_leave(img, &mode);
	return err;
}

/* With the ticket: compare, and copy content again if damage in the store was repaired. */
static int content_compare(struct fdry_image *img)
{
	double mark = fdry_now_ms();
	uint64_t bytes = 0;
	int err = compare(img, &bytes);

	if (err == -FDRY_E_CORRUPT)
		err = repair(img) ?: restore(img, NULL);
	pthread_mutex_lock(&img->lock);
	img->report.checked_bytes += bytes;
	img->report.check_ms += fdry_elapsed_ms(&mark);
	pthread_mutex_unlock(&img->lock);
	return err;
}

static int pointers_write(struct fdry_image *img)
{
	CUstreamCaptureMode mode;
	int err;

	if (!img->m.n_content_pointers)
		return 0;
	err = fdry_image_enter(img, &mode);
	if (err)
		return err;
	err = fdry_image_targets_content(img);
	fdry_image_leave(img, &mode);
	return err;
}

/* If the content differs, each later use returns that error. After any other error, the next use
 * compares again. */
static int content_due(struct fdry_image *img)
{
	int err = content_compare(img) ?: pointers_write(img);

	if (!err) {
		atomic_store(&img->content, FDRY_CONTENT_WHOLE);
		return 0;
	}
	if (err != -FDRY_E_CORRUPT && err != -FDRY_E_BADIMAGE)
		return err;
	fdry_saved_err_set(&img->content_err, err);
	atomic_store(&img->content, FDRY_CONTENT_WRONG);
	return err;
}

static int content_use(struct fdry_image *img)
{
	switch (atomic_load(&img->content)) {
	case FDRY_CONTENT_DUE:
		return content_due(img);
	case FDRY_CONTENT_WRONG:
		return fdry_saved_err_restore(&img->content_err);
	case FDRY_CONTENT_PARTIAL:
		return fdry_fail(FDRY_E_STATE, "only a part of the content was restored; restore "
					       "it again, or unload the image");
	default:
		return 0;
	}
}

int fdry_content_use(struct fdry_image *img)
{
	int err;

	if (atomic_load(&img->content) == FDRY_CONTENT_WHOLE)
		return 0;
	err = fdry_image_check_outside(img) ?: ticket_take(img, false);
	if (err)
		return err;
	err = content_use(img);
	fdry_ticket_return(&img->ticket);
	return err;
}

int fdry_image_check_content(struct fdry_image *img)
{
	int err = fdry_image_usable(img);

	return err ? err : fdry_content_use(img);
}
