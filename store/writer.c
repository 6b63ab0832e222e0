// SPDX-License-Identifier: Apache-2.0
/*
 * writer.c - sealing: objects first, in transactions of about 32 MiB; manifest and ref last.
 *
 * Objects collect in one batch of memory, packed. When the batch is large enough, one transaction
 * writes it. So the writers' lock is held only while the batch is written, never while a caller
 * hashes or reads its GPU. The last transaction writes the rest of the batch, the manifest and the
 * ref, so a manifest never becomes durable before the objects that it links to.
 *
 * The session notes every id, and the ids of its links, in its lease before it looks them up. A
 * collection spares the objects of those ids. But a collection that is under way may be deleting an
 * object that the session finds. So the session then puts the object into the batch, and the
 * transaction writes it again if it has been deleted.
 */
#include <stdlib.h>

#include "lib/log.h"
#include "lib/telemetry.h"
#include "store/lease.h"

#define BATCH_BYTES (32u << 20)
#define BATCH_ITEMS 1024
#define BATCH_FIRST (1u << 20) /* most sessions need no more */
/* Bytes of records and tree pages that an item needs besides its own bytes. */
#define ITEM_OVERHEAD 8192

struct fdry_writer {
	struct fdry_store *s;
	struct fdry_lease *lease;
	bool wrote;       /* something is committed */
	uint64_t changes; /* the store's change counter at the beginning */
	uint64_t limit;   /* the store's, 0: none */
	struct fdry_oid identity; /* of the image; zero: none */
	struct fdry_item items[BATCH_ITEMS];
	size_t count;
	uint8_t *batch;   /* their packed bytes, end to end */
	size_t used, capacity; /* bytes of @batch */
	int failed;       /* the error that lost the batch */
	struct fdry_writer_stats stats;
};

/* After a commit: its objects are in the store. */
static void stats_keep(struct fdry_writer *w, const struct fdry_writer_stats *now)
{
	fdry_count(FDRY_METRIC_STORE_PUT, now->objects_new - w->stats.objects_new);
	fdry_count(FDRY_METRIC_STORE_KNOWN, now->objects_known - w->stats.objects_known);
	fdry_count(FDRY_METRIC_STORE_PUT_BYTES, now->bytes_new - w->stats.bytes_new);
	fdry_count(FDRY_METRIC_STORE_STORED_BYTES, now->stored_new - w->stats.stored_new);
	w->stats = *now;
}

static int start_read(struct fdry_store *s, uint64_t *changes, uint64_t *limit)
{
	bool announced = false;
	struct fdry_txn t;
	int err = fdry_txn_read_latest(s->env->db, &t);

	if (err)
		return err;
	err = fdry_gc_announced(&t, &announced) ?: fdry_ref_changes(&t, changes) ?:
	      fdry_limit_read(&t, limit);
	fdry_txn_abort(&t);
	if (err)
		return err;
	if (announced)
		fdry_gc_recover(s->env);
	return 0;
}

int fdry_writer_begin(struct fdry_store *s, struct fdry_writer **ret)
{
	struct fdry_writer *w;
	int err = fdry_store_check_write(s);

	if (err)
		return err;
	w = calloc(1, sizeof(*w));
	if (!w)
		return fdry_nomem();
	w->s = s;
	err = start_read(s, &w->changes, &w->limit);
	if (err)
		goto out_free;
	err = fdry_lease_begin(s->env, &w->lease);
	if (err)
		goto out_free;
	*ret = w;
	return 0;
out_free:
	free(w);
	return err;
}

/* --- the batch --- */

static void items_drop(struct fdry_writer *w)
{
	while (w->count)
		fdry_item_release(&w->items[--w->count]);
	w->used = 0;
}

static struct fdry_item *item_find(struct fdry_writer *w, const struct fdry_oid *oid)
{
	size_t i;

	for (i = 0; i < w->count; i++)
		if (fdry_oid_eq(&w->items[i].oid, oid))
			return &w->items[i];
	return NULL;
}

static uint64_t items_growth(const struct fdry_writer *w)
{
	uint64_t growth = w->used + ITEM_OVERHEAD;
	size_t i;

	for (i = 0; i < w->count; i++)
		growth += ITEM_OVERHEAD + w->items[i].links.len;
	return growth;
}

static void stats_add(struct fdry_writer_stats *st, const struct fdry_item *it, bool is_new)
{
	if (!is_new) {
		st->objects_known++;
		return;
	}
	st->objects_new++;
	st->bytes_new += it->rec.size;
	st->stored_new += it->rec.stored;
}

/* @st: what this transaction adds; it counts after the commit. */
static int items_store(struct fdry_writer *w, struct fdry_txn *t, struct fdry_writer_stats *st)
{
	bool is_new = false;
	size_t i;
	int err;

	for (i = 0; i < w->count; i++) {
		err = fdry_item_store(t, &w->items[i], &is_new);
		if (err)
			return err;
		err = fdry_item_check_links(t, &w->items[i]);
		if (err)
			return err;
		stats_add(st, &w->items[i], is_new);
	}
	return 0;
}

/* A seal, import or pull that is larger than the limit must not begin to evict other images. */
static int limit_check(const struct fdry_writer *w)
{
	uint64_t bytes = w->stats.stored_new + w->used;

	if (!w->limit || bytes <= w->limit)
		return 0;
	return fdry_fail(FDRY_E_FULL,
			 "this write alone takes more than the store may: %llu bytes so far, and "
			 "the limit is %llu; raise it with foundry-store limit",
			 (unsigned long long)bytes, (unsigned long long)w->limit);
}

/* Bytes that the batch will take of the store, by estimate. */
static uint64_t items_cost(const struct fdry_writer *w)
{
	uint64_t cost = 0;
	size_t i;

	for (i = 0; i < w->count; i++)
		cost += fdry_record_cost(&w->items[i].rec);
	return cost;
}

/* --- the transaction --- */

/* The entries that a transaction writes after the batch. All zero: none. */
struct ending {
	struct fdry_item *manifest; /* packed; NULL: none */
	struct fdry_span data;      /* the manifest's bytes */
	const struct fdry_item *more; /* items that add kinds and links to objects in the store */
	size_t nmore;
	struct fdry_writer_image *images;
	size_t count;
};

static uint64_t ending_growth(const struct ending *x)
{
	uint64_t growth = x->count * ITEM_OVERHEAD;
	size_t i;

	if (x->manifest)
		growth += ITEM_OVERHEAD + x->manifest->stored.len + x->manifest->links.len;
	for (i = 0; i < x->nmore; i++)
		growth += 2 * ITEM_OVERHEAD + x->more[i].links.len;
	return growth;
}

static uint64_t ending_cost(const struct ending *x)
{
	uint64_t cost = x->manifest ? fdry_record_cost(&x->manifest->rec) : 0;
	size_t i;

	for (i = 0; i < x->nmore; i++)
		cost += fdry_record_cost(&x->more[i].rec);
	return cost;
}

static int manifest_store(struct fdry_txn *t, const struct ending *x, struct fdry_writer_stats *st)
{
	bool is_new = false, known = false;
	int err = fdry_item_check_links(t, x->manifest) ?:
		  fdry_item_known(t, x->manifest, x->data, &known);

	if (!err && !known)
		err = fdry_item_store(t, x->manifest, &is_new);
	if (err)
		return err;
	stats_add(st, x->manifest, is_new);
	return 0;
}

/* The caller does not have the item's bytes. If another process removed them, the commit fails. */
static int more_store(struct fdry_txn *t, const struct fdry_item *it)
{
	bool bytes = false, all, is_new;
	char hex[FDRY_OID_HEX_SIZE];
	int err = fdry_item_there(t, it, &bytes, &all);

	if (err)
		return err;
	if (!bytes)
		return fdry_fail(FDRY_E_RACED, "object %s was removed meanwhile; try again",
				 fdry_oid_hex(&it->oid, hex));
	err = fdry_item_check_links(t, it);
	return err ? err : fdry_item_store(t, it, &is_new);
}

/* If two seals use one name for different images, the second one fails. */
static int image_name(struct fdry_writer *w, struct fdry_txn *t, struct fdry_writer_image *image)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_record rec;
	struct fdry_ref old;
	bool found = false;
	int err = fdry_record_need(t, &image->oid, &rec);

	if (err)
		return err;
	if (!(rec.kinds & 1u << FDRY_OBJECT_MANIFEST))
		return fdry_fail(FDRY_E_INVAL, "object %s is not an image",
				 fdry_oid_hex(&image->oid, hex));
	if (!image->ref)
		return 0;
	err = fdry_ref_find(t, image->ref, &image->identity, &found, &old);
	if (err)
		return err;
	image->had = found && !fdry_oid_eq(&old.oid, &image->oid);
	if (found && !image->had)
		return 0;
	if (found && old.change > w->changes)
		return fdry_fail(FDRY_E_RACED,
				 "the ref '%s' was set to another image while this one was sealed; "
				 "seal under another name, or again",
				 image->ref);
	if (found)
		image->was = old.oid;
	return fdry_ref_store(t, image->ref, &image->oid, &image->identity);
}

static int write_once(struct fdry_writer *w, const struct ending *x)
{
	struct fdry_writer_stats st = w->stats;
	struct fdry_txn t;
	size_t i;
	int err = fdry_txn_write(w->s->env->db, items_growth(w) + ending_growth(x), &t);

	if (err)
		return err;
	err = items_store(w, &t, &st);
	if (!err && x->manifest)
		err = manifest_store(&t, x, &st);
	for (i = 0; i < x->nmore && !err; i++)
		err = more_store(&t, &x->more[i]);
	for (i = 0; i < x->count && !err; i++)
		err = image_name(w, &t, &x->images[i]);
	err = fdry_txn_end(&t, err);
	if (err)
		return err;
	stats_keep(w, &st);
	w->wrote = true;
	return 0;
}

/* Write the batch and @x in one transaction, or nothing. If the disk is full, make space and try
 * once more. */
static int write_all(struct fdry_writer *w, const struct ending *x)
{
	int err = limit_check(w);

	if (err)
		return err;
	err = write_once(w, x);
	if (err != -FDRY_E_FULL ||
	    !fdry_enospc_relieve(w->s, items_cost(w) + ending_cost(x), w->lease))
		return err;
	err = write_once(w, x);
	if (err == -FDRY_E_FULL)
		fdry_db_trim(w->s->env->db);
	return err;
}

static int flush(struct fdry_writer *w)
{
	const struct ending nothing = { .count = 0 };

	w->failed = write_all(w, &nothing);
	items_drop(w);
	return w->failed;
}

/* --- adding objects --- */

static int writer_check(struct fdry_writer *w)
{
	int err = fdry_store_check_write(w->s);

	if (err || !w->failed)
		return err;
	return fdry_fail(-w->failed,
			 "an earlier put of this session failed (%s) and the objects that it had "
			 "collected are lost; end the session and seal again",
			 fdry_error_meaning(w->failed));
}

/* Links must lead to objects in the store or in the batch. */
static int links_check(struct fdry_writer *w, struct fdry_txn *t, const struct fdry_item *it)
{
	struct fdry_record rec;
	struct fdry_oid link;
	uint32_t i;
	int err;

	for (i = 0; i < it->rec.nlinks; i++) {
		link = fdry_record_link(&it->rec, i);
		err = item_find(w, &link) ? 0 : fdry_record_need(t, &link, &rec);
		if (err)
			return fdry_fail_at(err, "a link");
	}
	return 0;
}

/* From now on the object and those that it links to stay: see fdry_lease_note(). */
static int item_note(struct fdry_writer *w, const struct fdry_item *it)
{
	int err = fdry_lease_note(w->lease, (const void *)it->links.data, it->rec.nlinks);

	return err ? err : fdry_lease_note(w->lease, &it->oid, 1);
}

/* Has the session noted all links before: as ids or links of objects that it put? */
static bool links_are_noted(const struct fdry_writer *w, const struct fdry_item *it)
{
	struct fdry_oid link;
	uint32_t i;

	for (i = 0; i < it->rec.nlinks; i++) {
		link = fdry_record_link(&it->rec, i);
		if (!fdry_lease_has(w->lease, &link))
			return false;
	}
	return true;
}

/* @announced: a collection is announced, which may be deleting the objects that were found. */
static int item_lookup(struct fdry_writer *w, struct fdry_item *it, struct fdry_span data,
		       bool *known, bool *announced)
{
	struct fdry_txn t;
	int err = fdry_txn_read_latest(w->s->env->db, &t);

	if (err)
		return err;
	err = fdry_gc_announced(&t, announced);
	if (err)
		goto out_abort;
	err = fdry_item_known(&t, it, data, known);
	if (!err && !*known)
		err = links_check(w, &t, it);
out_abort:
	fdry_txn_abort(&t);
	return err;
}

/* Let the batch have @len bytes or more. The items stay in it. */
static int batch_grow(struct fdry_writer *w, size_t len)
{
	size_t i, at = 0;
	uint8_t *batch;

	if (!w->used) { /* nothing to copy */
		free(w->batch);
		w->batch = NULL;
		w->capacity = 0;
	}
	batch = realloc(w->batch, len);
	if (!batch)
		return fdry_nomem();
	w->batch = batch;
	w->capacity = len;
	for (i = 0; i < w->count; at += w->items[i++].stored.len)
		w->items[i].stored.data = batch + at;
	return 0;
}

/* Make space for @len more bytes in the batch, which has more than BATCH_BYTES only if one object
 * is larger. */
static int batch_reserve(struct fdry_writer *w, size_t len)
{
	size_t limit = w->capacity > BATCH_BYTES ? w->capacity : BATCH_BYTES, wanted;
	int err;

	if (w->count == BATCH_ITEMS || (w->used && len > limit - w->used)) {
		err = flush(w);
		if (err)
			return err;
	}
	if (w->batch && len <= w->capacity - w->used)
		return 0;
	wanted = w->capacity ? 2 * w->capacity : BATCH_FIRST;
	wanted = wanted < BATCH_BYTES ? wanted : BATCH_BYTES;
	return batch_grow(w, wanted > w->used + len ? wanted : w->used + len);
}

/* Takes over @it. */
static void item_queue(struct fdry_writer *w, struct fdry_item *it, struct fdry_span data)
{
	fdry_item_pack(it, data, w->batch + w->used);
	w->used += it->stored.len;
	w->items[w->count++] = *it;
}

static int item_add(struct fdry_writer *w, struct fdry_item *it, struct fdry_span data)
{
	bool known = false, announced = false, noted;
	int err;

	if (item_find(w, &it->oid)) { /* then the store knows which kinds and links are new */
		err = flush(w);
		if (err)
			return err;
	}
	noted = links_are_noted(w, it);
	err = item_note(w, it);
	if (err)
		return err;
	err = item_lookup(w, it, data, &known, &announced);
	if (err)
		return err;
	if (known && !announced) { /* else it is certain only under the writers' lock */
		fdry_writer_count_known(w, 1);
		return 0;
	}
	err = batch_reserve(w, fdry_item_packed_max(it));
	if (err)
		return err;
	item_queue(w, it, data);
	*it = (struct fdry_item){ 0 };
	return w->used >= BATCH_BYTES || (announced && !noted) ? flush(w) : 0;
}

int fdry_writer_has_item(struct fdry_writer *w, const struct fdry_item *it, bool *bytes, bool *all)
{
	bool announced = false;
	struct fdry_txn t;
	int err = writer_check(w) ?: item_note(w, it) ?:
		  fdry_txn_read_latest(w->s->env->db, &t);

	if (err)
		return err;
	err = fdry_gc_announced(&t, &announced) ?: fdry_item_there(&t, it, bytes, all);
	fdry_txn_abort(&t);
	if (err)
		return err;
	if (announced) /* the collection may be deleting it */
		*bytes = *all = false;
	return 0;
}

int fdry_writer_add_item(struct fdry_writer *w, struct fdry_item *it, struct fdry_span data)
{
	int err = writer_check(w);

	return err ? err : item_add(w, it, data);
}

int fdry_writer_add_object(struct fdry_writer *w, enum fdry_object_kind kind, const void *data,
			   size_t len, const struct fdry_oid *links, size_t nlinks,
			   struct fdry_oid *ret)
{
	struct fdry_span bytes = { data, len };
	struct fdry_item it = { 0 };
	struct fdry_oid oid;
	int err = writer_check(w) ?: fdry_item_init(&it, kind, bytes, links, nlinks);

	if (err)
		return err;
	oid = it.oid;
	err = item_add(w, &it, bytes);
	fdry_item_release(&it);
	if (err)
		return err;
	*ret = oid;
	return 0;
}

int fdry_writer_add_chunk(struct fdry_writer *w, const void *data, size_t len,
			  const struct fdry_oid *oid)
{
	struct fdry_item it = { 0 };
	int err = writer_check(w) ?:
		  fdry_item_init_as(&it, FDRY_OBJECT_CHUNK, len, oid, NULL, 0);

	if (err)
		return err;
	err = item_add(w, &it, (struct fdry_span){ data, len });
	fdry_item_release(&it);
	return err;
}

/* Note the ids of all objects, so that those which are found stay. */
static int objects_note(struct fdry_writer *w, const struct fdry_writer_object *objects, size_t n)
{
	struct fdry_oid ids[256];
	size_t i, k;
	int err = 0;

	for (i = 0; i < n && !err; i += k) {
		for (k = 0; k < sizeof(ids) / sizeof(ids[0]) && i + k < n; k++)
			ids[k] = objects[i + k].oid;
		err = fdry_lease_note(w->lease, ids, k);
	}
	return err;
}

int fdry_writer_find_objects(struct fdry_writer *w, enum fdry_object_kind kind,
			     struct fdry_writer_object *o, size_t n)
{
	bool announced = false, bytes;
	struct fdry_item it = { 0 };
	struct fdry_txn t;
	int err = writer_check(w) ?: objects_note(w, o, n) ?:
		  fdry_txn_read_latest(w->s->env->db, &t);

	if (err)
		return err;
	err = fdry_gc_announced(&t, &announced);
	for (; n && !err; n--, o++) {
		err = fdry_item_init_as(&it, kind, o->size, &o->oid, NULL, 0) ?:
		      fdry_item_there(&t, &it, &bytes, &o->has);
		fdry_item_release(&it);
		o->has &= !announced; /* the collection may be deleting it */
	}
	fdry_txn_abort(&t);
	return err;
}

int fdry_writer_has_object(struct fdry_writer *w, enum fdry_object_kind kind, size_t len,
			   const struct fdry_oid *oid, bool *ret)
{
	struct fdry_writer_object o = { .oid = *oid, .size = len };
	int err = fdry_writer_find_objects(w, kind, &o, 1);

	if (!err && o.has)
		fdry_writer_count_known(w, 1);
	*ret = o.has;
	return err;
}

void fdry_writer_count_known(struct fdry_writer *w, uint64_t objects)
{
	fdry_count(FDRY_METRIC_STORE_KNOWN, objects);
	w->stats.objects_known += objects;
}

/* --- committing --- */

void fdry_writer_set_identity(struct fdry_writer *w, const struct fdry_oid *identity)
{
	w->identity = *identity;
}

/* The images are in the store, and the session has ended. A limit that was set during the session
 * takes effect at the next seal. */
static void sealed(struct fdry_store *s, uint64_t limit, const struct fdry_writer_image *images,
		   size_t count)
{
	struct fdry_oid *oids;
	size_t i;

	for (i = 0; i < count; i++)
		fdry_atime_note_made(s->env, &images[i].oid);
	oids = limit ? malloc(count * sizeof(*oids) + 1) : NULL;
	if (!oids)
		return;
	for (i = 0; i < count; i++)
		oids[i] = images[i].oid;
	fdry_evict_after(s, oids, count);
	free(oids);
}

int fdry_writer_commit(struct fdry_writer *w, const void *manifest, size_t len,
		       const struct fdry_oid *links, size_t nlinks, const char *ref,
		       struct fdry_oid *ret, struct fdry_writer_stats *stats)
{
	struct fdry_writer_image image = { .ref = ref, .identity = w->identity };
	struct fdry_item it = { 0 };
	struct ending x = {
		.manifest = &it, .data = { manifest, len }, .images = &image, .count = 1
	};
	struct fdry_store *s = w->s;
	uint64_t limit = w->limit;
	int err = writer_check(w);

	if (!err && ref)
		err = fdry_ref_check(ref);
	if (err)
		goto out_end;
	err = fdry_item_init(&it, FDRY_OBJECT_MANIFEST, x.data, links, nlinks);
	if (err)
		goto out_end;
	err = batch_reserve(w, fdry_item_packed_max(&it));
	if (err)
		goto out_release;
	err = item_note(w, &it);
	if (err)
		goto out_release;
	fdry_item_pack(&it, x.data, w->batch + w->used);
	image.oid = it.oid;
	err = write_all(w, &x);
	if (err)
		goto out_release;
	*ret = it.oid;
	if (stats)
		*stats = w->stats;
out_release:
	fdry_item_release(&it);
out_end:
	fdry_writer_abort(w);
	if (err)
		return err;
	sealed(s, limit, &image, 1);
	return 0;
}

int fdry_writer_finish(struct fdry_writer *w, struct fdry_writer_image *images, size_t count,
		       const struct fdry_item *more, size_t nmore, struct fdry_writer_stats *stats)
{
	struct ending x = { .images = images, .count = count, .more = more, .nmore = nmore };
	struct fdry_store *s = w->s;
	uint64_t limit = w->limit;
	int err = writer_check(w) ?: write_all(w, &x);

	if (!err)
		*stats = w->stats;
	fdry_writer_abort(w);
	if (err)
		return err;
	sealed(s, limit, images, count);
	return 0;
}

int fdry_writer_flush(struct fdry_writer *w)
{
	int err = writer_check(w);

	return err || !w->count ? err : flush(w);
}

size_t fdry_writer_pending(const struct fdry_writer *w)
{
	return w->count;
}

void fdry_writer_abort(struct fdry_writer *w)
{
	if (!w)
		return;
	items_drop(w);
	free(w->batch);
	if (!fdry_store_check(w->s))
		fdry_lease_end(w->lease, w->wrote);
	else
		fdry_lease_forget(w->lease);
	free(w);
}
