// SPDX-License-Identifier: Apache-2.0
/*
 * pack_write.c - exporting images from a store into one stream; see pack.h.
 *
 * pack_plan.c lists the objects. Then workers read, check and compress objects, each in its own
 * short transaction, and the calling thread writes them in the order of the list. Records may
 * change meanwhile (kinds and links are added): an object that differs from the list ends the
 * export. A lease keeps all objects from being collected.
 */
#include <stdlib.h>
#include <zstd.h>

#include "lib/fd.h"
#include "lib/opts.h"
#include "lib/workqueue.h"
#include "store/internal.h"
#include "store/pack.h"

/* Parts of the format: with other levels, equal images would give different packs. */
#define LEVEL 9
#define LEVEL_CHUNK 1

#define WINDOW_BYTES (64u << 20)
#define WINDOW_JOBS 256

struct packer;
struct out_job {
	struct fdry_work work;
	struct fdry_saved_err saved_err;
	struct packer *p;
	const struct fdry_pack_entry *e;
	struct fdry_buf out; /* head, links, body */
};

/* Memory that a worker keeps from one object to the next. */
struct tools {
	struct fdry_unpacker unpacker;
	ZSTD_CCtx *ctx;
	struct fdry_buf plain;
};

struct packer {
	struct fdry_export_opts opts;
	int fd;
	struct fdry_hash hash;
	struct fdry_pack_plan plan;
	struct fdry_pack_report report;
	struct fdry_workqueue queue;
	struct tools tools[FDRY_WORKERS_MAX];
	struct out_job jobs[WINDOW_JOBS]; /* a ring: @first to @last, by their count */
	uint64_t first, last, window;
	uint64_t done;                    /* bytes of objects that were written */
};

/* --- bytes out --- */

static int emit(struct packer *p, const void *data, size_t len)
{
	int e = fdry_write(p->fd, data, len);

	if (e)
		return fdry_fail(fdry_write_code(e), "cannot write the pack: %s", strerror(e));
	p->report.packed += len;
	return 0;
}

static int emit_hashed(struct packer *p, const void *data, size_t len)
{
	int err = fdry_hash_update(&p->hash, data, len);

	return err ? err : emit(p, data, len);
}

static int emit_images(struct packer *p)
{
	struct fdry_buf bytes = { 0 };
	int err = fdry_pack_put_images(&p->plan, &bytes) ?: emit_hashed(p, bytes.data, bytes.len);

	fdry_buf_release(&bytes);
	return err;
}

static int emit_end(struct packer *p)
{
	uint8_t end[FDRY_PACK_END_SIZE] = { 0 };
	struct fdry_oid id;
	int err = fdry_hash_final(&p->hash, &id);

	if (err)
		return err;
	fdry_oid_hex(&id, p->report.id);
	memcpy(end, FDRY_PACK_END_MAGIC, FDRY_PACK_MAGIC_SIZE);
	memcpy(end + FDRY_PACK_END_AT_ID, id.b, FDRY_OID_SIZE);
	return emit(p, end, sizeof(end));
}

/* --- one object, on a worker --- */

/* Append the body to @out, compressed where that makes it smaller; @codec_ret: whether it is. */
static int body_pack(const struct fdry_pack_entry *e, struct tools *tools, struct fdry_buf *out,
		     enum fdry_codec *codec_ret)
{
	int level = e->kinds & 1u << FDRY_OBJECT_CHUNK ? LEVEL_CHUNK : LEVEL;
	size_t before = out->len, capacity = ZSTD_compressBound(tools->plain.len), n;
	void *to = NULL;
	int err = fdry_buf_grow(out, capacity, &to);

	if (err)
		return err;
	if (!tools->ctx && !(tools->ctx = ZSTD_createCCtx()))
		return fdry_nomem();
	n = ZSTD_compressCCtx(tools->ctx, to, capacity, tools->plain.data, tools->plain.len, level);
	out->len = before;
	if (ZSTD_isError(n) || n >= tools->plain.len) {
		*codec_ret = FDRY_CODEC_PLAIN;
		return fdry_buf_put(out, tools->plain.data, tools->plain.len);
	}
	out->len += n;
	*codec_ret = FDRY_CODEC_ZSTD;
	return 0;
}

static int object_work(struct fdry_work *work, unsigned int worker)
{
	struct out_job *j = (struct out_job *)work;
	struct tools *tools = &j->p->tools[worker];
	size_t links = (size_t)j->e->nlinks * FDRY_OID_SIZE;
	enum fdry_codec codec = FDRY_CODEC_PLAIN;
	struct fdry_txn t;
	int err = fdry_txn_read(j->p->plan.s->env->db, &t);

	if (err)
		return err;
	tools->plain.len = 0;
	err = fdry_pack_put_head(&t, j->e, &j->out) ?:
	      fdry_object_read(&t, &j->e->oid, &tools->unpacker, &tools->plain);
	fdry_txn_abort(&t);
	if (err)
		return err;
	err = j->p->opts.flags & FDRY_EXPORT_PLAIN
		      ? fdry_buf_put(&j->out, tools->plain.data, tools->plain.len)
		      : body_pack(j->e, tools, &j->out, &codec);
	if (err)
		return err;
	j->out.data[FDRY_PACK_OBJECT_AT_CODEC] = codec;
	fdry_set64(j->out.data + FDRY_PACK_OBJECT_AT_BODY,
		   j->out.len - FDRY_PACK_OBJECT_HEAD - links);
	return 0;
}

/* --- all objects --- */

/* Codec and length of the body are not part of the pack's id, which must not depend on the
 * compressor. */
static int object_hash(struct packer *p, const struct out_job *j)
{
	uint8_t head[FDRY_PACK_OBJECT_HEAD];
	int err;

	memcpy(head, j->out.data, sizeof(head));
	head[FDRY_PACK_OBJECT_AT_CODEC] = 0;
	fdry_set64(head + FDRY_PACK_OBJECT_AT_BODY, 0);
	err = fdry_hash_update(&p->hash, head, sizeof(head));
	return err ? err
		   : fdry_hash_update(&p->hash, j->out.data + sizeof(head),
				      (size_t)j->e->nlinks * FDRY_OID_SIZE);
}

/* Write the oldest object of the window. */
static int window_write(struct packer *p)
{
	struct out_job *j = &p->jobs[p->first++ % WINDOW_JOBS];
	int err = fdry_workqueue_wait(&p->queue, &j->work) ?: object_hash(p, j) ?:
		  emit(p, j->out.data, j->out.len);

	fdry_buf_release(&j->out);
	p->window -= j->e->size;
	p->done += j->e->size;
	if (err)
		return err;
	if (p->opts.progress)
		p->opts.progress(p->opts.progress_arg, p->done, p->report.bytes);
	return 0;
}

static int window_add(struct packer *p, const struct fdry_pack_entry *e)
{
	struct out_job *j;
	int err = 0;

	while (!err && p->first < p->last &&
	       (p->last - p->first == WINDOW_JOBS || p->window + e->size > WINDOW_BYTES))
		err = window_write(p);
	if (err)
		return err;
	j = &p->jobs[p->last++ % WINDOW_JOBS];
	*j = (struct out_job){ .work.fn = object_work, .p = p, .e = e };
	p->window += e->size;
	j->work.saved_err = &j->saved_err;
	fdry_workqueue_add(&p->queue, &j->work);
	return 0;
}

static int emit_objects(struct packer *p)
{
	const struct fdry_pack_entry *e = (const void *)p->plan.entries.data;
	size_t i, n = fdry_pack_plan_count(&p->plan);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = window_add(p, &e[i]);
	while (!err && p->first < p->last)
		err = window_write(p);
	return err;
}

static void packer_release(struct packer *p)
{
	unsigned int i;

	fdry_workqueue_release(&p->queue);
	for (; p->first < p->last; p->first++)
		fdry_buf_release(&p->jobs[p->first % WINDOW_JOBS].out);
	for (i = 0; i < FDRY_WORKERS_MAX; i++) {
		fdry_unpacker_release(&p->tools[i].unpacker);
		ZSTD_freeCCtx(p->tools[i].ctx);
		fdry_buf_release(&p->tools[i].plain);
	}
	fdry_hash_release(&p->hash);
	fdry_pack_plan_release(&p->plan);
	free(p);
}

static int export_all(struct packer *p)
{
	p->report.images = p->plan.nimages;
	p->report.objects = fdry_pack_plan_count(&p->plan);
	p->report.bytes = p->plan.bytes;
	return emit_images(p) ?: emit_objects(p) ?: emit_end(p);
}

int fdry_store_export(struct fdry_store *store, const char *const *names, size_t count, int fd,
		      const struct fdry_export_opts *opts, struct fdry_pack_report *report)
{
	static const struct fdry_workqueue_opts queue = { .name = "fdry-export", .help_all = true };
	const uint32_t known = FDRY_EXPORT_PLAIN | FDRY_EXPORT_NO_REFS | FDRY_EXPORT_ALL;
	struct packer *p;
	int err = fdry_need(store) ?: fdry_report_check(report);

	if (err)
		return err;
	p = calloc(1, sizeof(*p));
	if (!p)
		return fdry_nomem();
	p->plan.s = store;
	p->fd = fd;
	fdry_workqueue_init(&p->queue, &queue);
	err = fdry_store_flags_take(opts, &p->opts, sizeof(p->opts), known) ?:
	      fdry_store_busy(store);
	if (err)
		goto out_release;
	p->plan.flags = p->opts.flags;
	err = fdry_pack_plan_init(&p->plan, names, count);
	if (err)
		goto out_idle;
	fdry_workqueue_start(&p->queue, fdry_worker_threads(p->opts.threads));
	err = export_all(p) ?: fdry_report_give(&p->report, sizeof(p->report), report);
out_idle:
	fdry_store_idle(store);
out_release:
	packer_release(p);
	return err;
}
