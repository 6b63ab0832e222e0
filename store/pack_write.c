// SPDX-License-Identifier: Apache-2.0
/*
 * pack_write.c - exporting images from a store into one stream; see pack.h.
 *
 * First one view of the store lists the objects, every object after the objects that it links to.
 * Then workers read, check and compress objects, each in its own short transaction, and the calling
 * thread writes them in the order of the list. Records may change meanwhile (kinds and links are
 * added): an object that differs from the list ends the export. A lease keeps all objects from
 * being collected.
 */
#include <stdlib.h>
#include <zstd.h>

#include "lib/fd.h"
#include "lib/opts.h"
#include "lib/workqueue.h"
#include "store/lease.h"
#include "store/pack.h"

/* Parts of the format: with other levels, equal images would give different packs. */
#define LEVEL 9
#define LEVEL_CHUNK 1

#define WINDOW_BYTES (64u << 20)
#define WINDOW_JOBS 256

struct entry {
	struct fdry_oid oid;
	uint32_t kinds, nlinks;
	uint64_t size;
};

struct packer;
struct out_job {
	struct fdry_work work;
	struct fdry_saved_err saved_err;
	struct packer *p;
	const struct entry *e;
	struct fdry_buf out; /* head, links, body */
};

/* Memory that a worker keeps from one object to the next. */
struct tools {
	struct fdry_unpacker unpacker;
	ZSTD_CCtx *ctx;
	struct fdry_buf plain;
};

struct packer {
	struct fdry_store *s;
	struct fdry_export_opts opts;
	int fd;
	struct fdry_hash hash;
	struct fdry_buf refs;           /* struct fdry_ref each; hold the names */
	struct fdry_pack_image *images; /* sorted, none twice */
	size_t nimages;
	struct fdry_buf entries;
	struct fdry_pack_report report;
	struct fdry_workqueue queue;
	struct tools tools[FDRY_WORKERS_MAX];
	struct out_job jobs[WINDOW_JOBS]; /* a ring: @first to @last, by their count */
	uint64_t first, last, window;
	uint64_t done;                    /* bytes of objects that were written */
};

/* --- images --- */

/* List the images that @name means: all of a ref, or that of an id; NULL: those of all refs. */
static int name_resolve(struct packer *p, const char *name)
{
	struct fdry_txn t;
	int err = fdry_store_read(p->s, &t);

	if (err)
		return err;
	err = name ? fdry_ref_resolve_all(&t, name, &p->refs) : fdry_ref_images(&t, NULL, &p->refs);
	fdry_txn_abort(&t);
	return err;
}

static int names_resolve(struct packer *p, const char *const *names, size_t count)
{
	size_t i;
	int err = 0;

	if (p->opts.flags & FDRY_EXPORT_ALL) {
		if (count)
			return fdry_fail(FDRY_E_INVAL, "an export of all images takes no names");
		err = name_resolve(p, NULL);
		if (err || p->refs.len)
			return err;
		return fdry_fail(FDRY_E_NOENT,
				 "the store %s has no refs; seal an image there first", p->s->path);
	}
	if (!count)
		return fdry_fail(FDRY_E_INVAL, "there is no image to export; name one");
	err = fdry_need(names);
	for (i = 0; i < count && !err; i++)
		err = fdry_need(names[i]) ?: name_resolve(p, names[i]);
	return err;
}

static int image_cmp(const void *a, const void *b)
{
	return fdry_pack_image_cmp(a, b);
}

static int images_choose(struct packer *p, const char *const *names, size_t count)
{
	const struct fdry_ref *ref;
	size_t i, n;
	int err = names_resolve(p, names, count);

	if (err)
		return err;
	ref = (const void *)p->refs.data;
	n = p->refs.len / sizeof(*ref);
	if (n > FDRY_PACK_IMAGES_MAX)
		return fdry_fail(FDRY_E_LIMIT, "a pack holds %u images at most, not %zu",
				 FDRY_PACK_IMAGES_MAX, n);
	p->images = calloc(n, sizeof(*p->images));
	if (!p->images)
		return fdry_nomem();
	for (i = 0; i < n; i++) {
		p->images[i].oid = ref[i].oid;
		if (!ref[i].name[0] || p->opts.flags & FDRY_EXPORT_NO_REFS)
			continue;
		p->images[i].name = ref[i].name;
		p->images[i].identity = ref[i].identity;
	}
	qsort(p->images, n, sizeof(*p->images), image_cmp);
	for (i = 0; i < n; i++)
		if (!i || image_cmp(&p->images[i], &p->images[p->nimages - 1]))
			p->images[p->nimages++] = p->images[i];
	p->report.images = p->nimages;
	return 0;
}

/* --- their objects --- */

struct frame {
	struct fdry_oid oid;
	struct fdry_record rec;
	uint32_t next; /* link to follow */
};

struct walk {
	struct packer *p;
	struct fdry_txn t;
	struct fdry_idset seen;
	struct fdry_buf stack;
};

static int walk_push(struct walk *w, const struct fdry_oid *oid)
{
	struct frame f = { .oid = *oid };
	bool is_new = false;
	int err = fdry_idset_add(&w->seen, oid, &is_new);

	if (err || !is_new)
		return err;
	err = fdry_record_need(&w->t, oid, &f.rec);
	return err ? err : fdry_buf_put(&w->stack, &f, sizeof(f));
}

/* One step: follow the next link of the object on top, or list the object once all its links are
 * done. */
static int walk_step(struct walk *w)
{
	struct frame *f = (void *)(w->stack.data + w->stack.len - sizeof(*f));
	struct entry e = {
		.oid = f->oid, .kinds = f->rec.kinds, .nlinks = f->rec.nlinks, .size = f->rec.size
	};
	struct fdry_oid link;

	if (f->next < f->rec.nlinks) {
		link = fdry_record_link(&f->rec, f->next++);
		return walk_push(w, &link);
	}
	w->stack.len -= sizeof(*f);
	w->p->report.objects++;
	w->p->report.bytes += e.size;
	return fdry_buf_put(&w->p->entries, &e, sizeof(e));
}

static int walk_image(struct walk *w, const struct fdry_oid *oid)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_record rec;
	int err = fdry_record_need(&w->t, oid, &rec);

	if (err)
		return err;
	if (!(rec.kinds & 1u << FDRY_OBJECT_MANIFEST))
		return fdry_fail(FDRY_E_INVAL,
				 "object %s is not an image; only images can be exported",
				 fdry_oid_hex(oid, hex));
	err = walk_push(w, oid);
	while (!err && w->stack.len)
		err = walk_step(w);
	return err;
}

static int plan(struct packer *p)
{
	struct walk w = { .p = p };
	size_t i;
	int err = fdry_txn_read(p->s->env->db, &w.t);

	if (err)
		return err;
	for (i = 0; i < p->nimages && !err; i++)
		err = walk_image(&w, &p->images[i].oid);
	fdry_txn_abort(&w.t);
	fdry_buf_release(&w.stack);
	fdry_idset_release(&w.seen);
	return err;
}

/* While a collection is under way, only a look under the writers' lock is certain. */
static int images_there(struct packer *p)
{
	struct fdry_record rec;
	struct fdry_txn t;
	size_t i;
	int err = fdry_txn_write(p->s->env->db, 0, &t);

	if (err)
		return err;
	for (i = 0; i < p->nimages && !err; i++)
		err = fdry_record_need(&t, &p->images[i].oid, &rec);
	fdry_txn_abort(&t);
	return err;
}

/* Keep the images, and all that they reach, from being collected as long as the lease lasts. */
static int images_hold(struct packer *p, struct fdry_lease *lease)
{
	bool announced = false;
	struct fdry_txn t;
	size_t i;
	int err = 0;

	for (i = 0; i < p->nimages && !err; i++)
		err = fdry_lease_note(lease, &p->images[i].oid, 1);
	if (err)
		return err;
	err = fdry_txn_read_latest(p->s->env->db, &t);
	if (err)
		return err;
	err = fdry_gc_announced(&t, &announced);
	fdry_txn_abort(&t);
	return err || !announced || p->s->env->readonly ? err : images_there(p);
}

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

static int emit_head(struct packer *p)
{
	uint8_t head[FDRY_PACK_HEAD] = { 0 };

	memcpy(head, FDRY_PACK_MAGIC, FDRY_PACK_MAGIC_SIZE);
	fdry_set32(head + FDRY_PACK_AT_VERSION, FDRY_PACK_VERSION);
	fdry_set32(head + FDRY_PACK_AT_IMAGES, (uint32_t)p->nimages);
	fdry_set64(head + FDRY_PACK_AT_OBJECTS, p->report.objects);
	fdry_set64(head + FDRY_PACK_AT_BYTES, p->report.bytes);
	return emit_hashed(p, head, sizeof(head));
}

static int emit_image(struct packer *p, const struct fdry_pack_image *image)
{
	uint8_t rec[FDRY_PACK_IMAGE_HEAD + FDRY_REF_NAME_MAX] = { 0 };
	size_t len = image->name ? strlen(image->name) : 0;

	memcpy(rec, image->oid.b, FDRY_OID_SIZE);
	memcpy(rec + FDRY_PACK_IMAGE_AT_IDENTITY, image->identity.b, FDRY_OID_SIZE);
	fdry_set16(rec + FDRY_PACK_IMAGE_AT_LEN, (uint16_t)len);
	if (len)
		memcpy(rec + FDRY_PACK_IMAGE_HEAD, image->name, len);
	return emit_hashed(p, rec, FDRY_PACK_IMAGE_HEAD + len);
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

static int changed(const struct fdry_oid *oid)
{
	char hex[FDRY_OID_HEX_SIZE];

	return fdry_fail(FDRY_E_RACED,
			 "object %s got another kind or link while it was exported; export again",
			 fdry_oid_hex(oid, hex));
}

/* Head and links into @out, with no codec yet; the object's bytes into @plain. */
static int object_fetch(struct fdry_txn *t, const struct entry *e, struct tools *tools,
			struct fdry_buf *out)
{
	struct fdry_record rec;
	uint8_t *head = NULL;
	void *p = NULL;
	int err = fdry_record_need(t, &e->oid, &rec);

	if (err)
		return err;
	if (rec.kinds != e->kinds || rec.nlinks != e->nlinks || rec.size != e->size)
		return changed(&e->oid);
	err = fdry_buf_grow(out, FDRY_PACK_OBJECT_HEAD, &p);
	if (err)
		return err;
	head = p;
	memcpy(head, e->oid.b, FDRY_OID_SIZE);
	fdry_set16(head + FDRY_PACK_OBJECT_AT_KINDS, (uint16_t)e->kinds);
	fdry_set32(head + FDRY_PACK_OBJECT_AT_LINKS, e->nlinks);
	fdry_set64(head + FDRY_PACK_OBJECT_AT_SIZE, e->size);
	err = fdry_buf_put(out, rec.links.data, rec.links.len);
	return err ? err : fdry_object_read(t, &e->oid, &tools->unpacker, &tools->plain);
}

/* Append the body to @out, compressed where that makes it smaller; @codec_ret: whether it is. */
static int body_pack(const struct entry *e, struct tools *tools, struct fdry_buf *out,
		     enum fdry_codec *codec_ret)
{
	int level = e->kinds & 1u << FDRY_OBJECT_CHUNK ? LEVEL_CHUNK : LEVEL;
	size_t before = out->len, capacity = ZSTD_compressBound(tools->plain.len), n;
	void *to = NULL;
	int err = fdry_buf_grow(out, capacity, &to);

	if (!err && !tools->ctx)
		tools->ctx = ZSTD_createCCtx();
	if (err || !tools->ctx)
		return err ? err : fdry_nomem();
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
	int err = fdry_txn_read(j->p->s->env->db, &t);

	if (err)
		return err;
	tools->plain.len = 0;
	err = object_fetch(&t, j->e, tools, &j->out);
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

static int window_add(struct packer *p, const struct entry *e)
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
	const struct entry *e = (const void *)p->entries.data;
	size_t i, n = p->entries.len / sizeof(*e);
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
	fdry_buf_release(&p->entries);
	fdry_buf_release(&p->refs);
	free(p->images);
	free(p);
}

static int export_all(struct packer *p)
{
	size_t i;
	int err = plan(p) ?: emit_head(p);

	for (i = 0; i < p->nimages && !err; i++)
		err = emit_image(p, &p->images[i]);
	return err ?: emit_objects(p) ?: emit_end(p);
}

int fdry_store_export(struct fdry_store *store, const char *const *names, size_t count, int fd,
		      const struct fdry_export_opts *opts, struct fdry_pack_report *report)
{
	static const struct fdry_workqueue_opts queue = { .name = "fdry-export", .help_all = true };
	const uint32_t known = FDRY_EXPORT_PLAIN | FDRY_EXPORT_NO_REFS | FDRY_EXPORT_ALL;
	struct fdry_lease *lease = NULL;
	struct packer *p;
	int err = fdry_need(store) ?: fdry_report_check(report);

	if (err)
		return err;
	p = calloc(1, sizeof(*p));
	if (!p)
		return fdry_nomem();
	p->s = store;
	p->fd = fd;
	fdry_workqueue_init(&p->queue, &queue);
	err = fdry_store_flags_take(opts, &p->opts, sizeof(p->opts), known) ?:
	      fdry_store_busy(store);
	if (err)
		goto out_release;
	err = images_choose(p, names, count) ?: fdry_lease_begin(store->env, &lease);
	if (err)
		goto out_idle;
	fdry_workqueue_start(&p->queue, fdry_worker_threads(p->opts.threads));
	err = images_hold(p, lease) ?: export_all(p);
	fdry_lease_end(lease, false);
	if (!err)
		err = fdry_report_give(&p->report, sizeof(p->report), report);
out_idle:
	fdry_store_idle(store);
out_release:
	packer_release(p);
	return err;
}
