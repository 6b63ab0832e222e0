// SPDX-License-Identifier: Apache-2.0
/*
 * pack_import.c - importing a pack into a store; see pack.h.
 *
 * The calling thread reads and writes objects in the pack's order; workers decompress and check
 * them. The lease of the writer keeps all objects until the end. Objects that the store had before
 * stay unchanged until the last transaction: the kinds and links that a pack adds to them are kept
 * in memory until then.
 */
#include <stdlib.h>

#include "lib/opts.h"
#include "lib/workqueue.h"
#include "store/internal.h"
#include "store/pack.h"

#define WINDOW_BYTES (64u << 20)
#define WINDOW_JOBS 256
#define MORE_BYTES (64u << 20) /* of kinds and links that are kept for the last transaction */

struct importer;
struct in_job {
	struct fdry_work work;
	struct fdry_saved_err saved_err;
	struct importer *im;
	struct fdry_pack_object o;
	struct fdry_buf links, body, plain;
};

struct importer {
	struct fdry_writer *writer; /* NULL in a dry run */
	struct fdry_store *s; /* NULL in a dry run without a store */
	struct fdry_import_opts opts;
	struct fdry_pack_reader r;
	struct fdry_pack_report report;
	struct fdry_buf more; /* struct fdry_item each */
	uint64_t more_bytes;
	struct fdry_workqueue queue;
	struct fdry_unpacker unpackers[FDRY_WORKERS_MAX];
	struct in_job jobs[WINDOW_JOBS]; /* a ring: @first to @last, by their count */
	uint64_t first, last, window;
};

/* --- one object --- */

static int job_work(struct fdry_work *work, unsigned int worker)
{
	struct in_job *j = (struct in_job *)work;
	struct fdry_span body = { j->body.data, j->body.len };

	return fdry_pack_unpack(&j->o, body, &j->im->unpackers[worker], &j->plain);
}

static void job_release(struct in_job *j)
{
	fdry_buf_release(&j->links);
	fdry_buf_release(&j->body);
	fdry_buf_release(&j->plain);
}

/* Takes over @links. */
static struct fdry_item item_of(const struct fdry_pack_object *o, struct fdry_buf *links)
{
	struct fdry_item it = { .oid = o->oid,
				.links = *links,
				.rec = {
					.kinds = o->kinds, .size = o->size, .nlinks = o->nlinks } };

	it.rec.links = (struct fdry_span){ it.links.data, it.links.len };
	*links = (struct fdry_buf){ 0 };
	return it;
}

/* Count a new object in a dry run. */
static void count_new(struct importer *im, const struct in_job *j)
{
	im->report.objects_new++;
	im->report.bytes_new += j->o.size;
}

static int job_put(struct importer *im, struct in_job *j)
{
	struct fdry_item it = item_of(&j->o, &j->links);
	int err;

	if (j->o.codec == FDRY_CODEC_ZSTD)
		it.frame = (struct fdry_span){ j->body.data, j->body.len };
	err = fdry_writer_add_item(im->writer, &it,
				   (struct fdry_span){ j->plain.data, j->plain.len });
	fdry_item_release(&it);
	return err;
}

static void progress(const struct importer *im)
{
	if (im->opts.progress)
		im->opts.progress(im->opts.progress_arg, im->r.bytes_read - im->window,
				  im->r.bytes);
}

/* Put the oldest object of the window. */
static int window_put(struct importer *im)
{
	struct in_job *j = &im->jobs[im->first++ % WINDOW_JOBS];
	int err = fdry_workqueue_wait(&im->queue, &j->work);

	if (err)
		goto out_release;
	if (im->writer)
		err = job_put(im, j);
	else
		count_new(im, j);
out_release:
	im->window -= j->o.size;
	job_release(j);
	if (err)
		return err;
	progress(im);
	return 0;
}

static int window_add(struct importer *im, const struct fdry_pack_object *o, struct fdry_buf *links)
{
	struct in_job *j;
	int err = 0;

	while (!err && im->first < im->last &&
	       (im->last - im->first == WINDOW_JOBS || im->window + o->size > WINDOW_BYTES))
		err = window_put(im);
	if (err)
		return err;
	j = &im->jobs[im->last % WINDOW_JOBS];
	*j = (struct in_job){ .work.fn = job_work, .im = im, .o = *o, .links = *links };
	*links = (struct fdry_buf){ 0 };
	err = fdry_pack_body(&im->r, o, &j->body);
	if (err) {
		job_release(j);
		return err;
	}
	im->last++;
	im->window += o->size;
	j->work.saved_err = &j->saved_err;
	fdry_workqueue_add(&im->queue, &j->work);
	return 0;
}

/* --- objects that the store has already --- */

static int lookup(struct importer *im, const struct fdry_item *it, bool *bytes, bool *all)
{
	struct fdry_txn t;
	int err;

	if (!im->s)
		return 0;
	if (im->writer)
		return fdry_writer_has_item(im->writer, it, bytes, all);
	err = fdry_txn_read(im->s->env->db, &t);
	if (err)
		return err;
	err = fdry_item_there(&t, it, bytes, all);
	fdry_txn_abort(&t);
	return err;
}

/* Keep the kinds and links that are new for an existing object. Takes over the item. */
static int more_add(struct importer *im, struct fdry_item *it)
{
	int err;

	im->more_bytes += sizeof(*it) + it->links.len;
	if (im->more_bytes > MORE_BYTES)
		return fdry_fail(FDRY_E_LIMIT, "the pack has other kinds or links for more objects "
					       "of this store than an import keeps in mind; import "
					       "it into a store of its own");
	err = fdry_buf_put(&im->more, it, sizeof(*it));
	if (err)
		return err;
	*it = (struct fdry_item){ 0 };
	return 0;
}

static int known_skip(struct importer *im, const struct fdry_pack_object *o, struct fdry_item *it,
		      bool all)
{
	int err = fdry_pack_skip(&im->r, o);

	if (err)
		return err;
	if (!all && im->writer)
		err = more_add(im, it);
	if (err)
		return err;
	progress(im);
	return 0;
}

static int object_import(struct importer *im)
{
	struct fdry_buf links = { 0 };
	struct fdry_pack_object o;
	bool bytes = false, all = false;
	struct fdry_item it;
	int err = fdry_pack_next(&im->r, &o, &links);

	if (err) {
		fdry_buf_release(&links);
		return err;
	}
	it = item_of(&o, &links);
	err = lookup(im, &it, &bytes, &all);
	if (!err)
		err = bytes ? known_skip(im, &o, &it, all) : window_add(im, &o, &it.links);
	fdry_item_release(&it);
	return err;
}

/* --- all of it --- */

static int objects_import(struct importer *im)
{
	struct fdry_oid id;
	uint64_t i;
	int err = 0;

	for (i = 0; i < im->r.objects && !err; i++)
		err = object_import(im);
	while (!err && im->first < im->last)
		err = window_put(im);
	if (err)
		return err;
	err = fdry_pack_end(&im->r, &id);
	if (err)
		return err;
	fdry_oid_hex(&id, im->report.id);
	im->report.images = im->r.nimages;
	im->report.objects = im->r.objects;
	im->report.bytes = im->r.bytes;
	im->report.packed = im->r.packed;
	return 0;
}

static int finish(struct importer *im, struct fdry_writer_image *images)
{
	bool no_refs = im->opts.flags & FDRY_IMPORT_NO_REFS;
	struct fdry_writer_stats st = { 0 };
	struct fdry_writer *writer = im->writer;
	size_t i;
	int err;

	for (i = 0; i < im->r.nimages; i++)
		images[i] = (struct fdry_writer_image){
			.oid = im->r.images[i].oid,
			.identity = im->r.images[i].identity,
			.ref = no_refs ? NULL : im->r.images[i].name,
		};
	if (!writer)
		return 0;
	im->writer = NULL;
	err = fdry_writer_finish(writer, images, im->r.nimages, (void *)im->more.data,
				 im->more.len / sizeof(struct fdry_item), &st);
	im->report.objects_new = st.objects_new;
	im->report.bytes_new = st.bytes_new;
	im->report.stored_new = st.stored_new;
	return err;
}

static void images_report(const struct importer *im, const struct fdry_writer_image *images)
{
	char id[FDRY_OID_HEX_SIZE], was[FDRY_OID_HEX_SIZE];
	size_t i;

	for (i = 0; im->opts.image && i < im->r.nimages; i++)
		im->opts.image(im->opts.image_arg, fdry_oid_hex(&images[i].oid, id), images[i].ref,
			       images[i].had ? fdry_oid_hex(&images[i].was, was) : NULL);
}

static int pack_import(struct importer *im)
{
	struct fdry_writer_image *images = calloc(im->r.nimages, sizeof(*images));
	int err = 0;

	if (!images)
		return fdry_nomem();
	if (!(im->opts.flags & FDRY_IMPORT_DRY_RUN))
		err = fdry_writer_begin(im->s, &im->writer);
	if (err)
		goto out_free;
	err = objects_import(im);
	if (err)
		goto out_free;
	err = finish(im, images);
	if (err)
		goto out_free;
	images_report(im, images);
out_free:
	free(images);
	return err;
}

static void importer_release(struct importer *im)
{
	struct fdry_item *more = (void *)im->more.data;
	size_t i;

	fdry_workqueue_release(&im->queue);
	for (; im->first < im->last; im->first++)
		job_release(&im->jobs[im->first % WINDOW_JOBS]);
	for (i = 0; i < im->more.len / sizeof(*more); i++)
		fdry_item_release(&more[i]);
	for (i = 0; i < FDRY_WORKERS_MAX; i++)
		fdry_unpacker_release(&im->unpackers[i]);
	fdry_buf_release(&im->more);
	fdry_writer_abort(im->writer);
	free(im);
}

/* Nothing closes the store until fdry_store_idle(). */
static int store_use(struct importer *im)
{
	bool dry_run = im->opts.flags & FDRY_IMPORT_DRY_RUN;
	int err = 0;

	if (!im->s)
		return dry_run ? 0 : fdry_need_fail("fdry_store_import", "store");
	if (!dry_run)
		err = fdry_store_check_write(im->s);
	return err ? err : fdry_store_busy(im->s);
}

int fdry_pack_import(struct fdry_store *store, struct fdry_pack_reader *head, int fd,
		     const struct fdry_import_opts *opts, struct fdry_pack_report *report)
{
	static const struct fdry_workqueue_opts queue = { .name = "fdry-import", .help_all = true };
	struct importer *im;
	int err = fdry_report_check(report);

	if (err)
		return err;
	im = calloc(1, sizeof(*im));
	if (!im)
		return fdry_nomem();
	im->s = store;
	fdry_workqueue_init(&im->queue, &queue);
	err = fdry_store_flags_take(opts, &im->opts, sizeof(im->opts),
				    FDRY_IMPORT_DRY_RUN | FDRY_IMPORT_NO_REFS) ?:
	      store_use(im);
	if (err)
		goto out_release;
	if (head) {
		im->r = *head;
		*head = (struct fdry_pack_reader){ .fd = -1 };
	} else {
		err = fdry_pack_open(&im->r, fd);
		if (err)
			goto out_idle;
	}
	fdry_workqueue_start(&im->queue, fdry_worker_threads(im->opts.threads));
	err = pack_import(im) ?: fdry_report_give(&im->report, sizeof(im->report), report);
	fdry_pack_reader_release(&im->r);
out_idle:
	if (store)
		fdry_store_idle(store);
out_release:
	importer_release(im);
	return err;
}

int fdry_store_import(struct fdry_store *store, int fd, const struct fdry_import_opts *opts,
		      struct fdry_pack_report *report)
{
	return fdry_pack_import(store, NULL, fd, opts, report);
}
