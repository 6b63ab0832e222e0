// SPDX-License-Identifier: Apache-2.0
/*
 * writer.c - sealing: objects first, in transactions of middling size; manifest and ref last.
 *
 * What is put collects in one piece of memory, packed, and goes out in one transaction when there
 * is enough of it: the writers' lock is held for the writing alone, never while a caller hashes or
 * reads its GPU. The last transaction holds what is left, the manifest and the ref, so that a
 * manifest never becomes durable before what it links to.
 *
 * Every id goes into the session's lease before it is looked up, and so do its links: a
 * collection passes them over. What is found while one is under way may be going that
 * moment; then it waits with the rest, and is written again unless it is still there.
 */
#include <stdlib.h>

#include "lib/log.h"
#include "lib/telemetry.h"
#include "store/lease.h"

#define BATCH_BYTES (32u << 20)
#define BATCH_ITEMS 1024
/* Records and tree pages that an item takes beside its bytes. */
#define ITEM_OVERHEAD 8192

struct fdry_writer {
	struct fdry_store *s;
	struct fdry_lease *lease;
	bool wrote;       /* something is committed */
	uint64_t changes; /* the store's change counter at the beginning */
	uint64_t limit;   /* the store's, 0: none */
	struct fdry_oid identity; /* of the image; zero: not said */
	struct fdry_item items[BATCH_ITEMS];
	size_t count;
	uint8_t *batch;   /* their bytes at rest, end to end ... */
	size_t used, capacity; /* ... and how many, of how many */
	int failed;       /* why what was collected is lost */
	struct fdry_writer_stats stats;
};

/* What a transaction has put is there for good. */
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
	err = fdry_gc_announced(&t, &announced);
	if (!err)
		err = fdry_ref_changes(&t, changes);
	if (!err)
		err = fdry_limit_get(&t, limit);
	fdry_txn_abort(&t);
	if (!err && announced)
		fdry_gc_recover(s->env);
	return err;
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
	if (!err)
		err = fdry_lease_begin(s->env, &w->lease);
	if (err) {
		free(w);
		return err;
	}
	*ret = w;
	return 0;
}

struct fdry_lease *fdry_writer_lease(struct fdry_writer *w)
{
	return w->lease;
}

/* --- what waits to be written --- */

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

/* @st: what this transaction adds, once it is committed. */
static int items_store(struct fdry_writer *w, struct fdry_txn *t, struct fdry_writer_stats *st)
{
	bool is_new = false;
	int err = 0;
	size_t i;

	for (i = 0; i < w->count && !err; i++) {
		err = fdry_item_store(t, &w->items[i], &is_new);
		if (!err)
			err = fdry_item_check_links(t, &w->items[i]);
		if (!err)
			stats_add(st, &w->items[i], is_new);
	}
	return err;
}

/* What can never fit does not begin to push out the rest. */
static int limit_check(const struct fdry_writer *w)
{
	uint64_t bytes = w->stats.stored_new + w->used;

	if (!w->limit || bytes <= w->limit)
		return 0;
	return fdry_fail(FDRY_E_FULL,
			 "this seal alone takes more than the store may: %llu bytes so far, and "
			 "the limit is %llu; raise it with foundry-store limit",
			 (unsigned long long)bytes, (unsigned long long)w->limit);
}

/* What the batch will take. */
static uint64_t items_cost(const struct fdry_writer *w)
{
	uint64_t cost = 0;
	size_t i;

	for (i = 0; i < w->count; i++)
		cost += fdry_record_cost(&w->items[i].rec);
	return cost;
}

/* The last transaction of the session, or one before it: what it does, and for how many bytes of
 * pages at most. */
typedef int (*write_fn)(struct fdry_writer *w, void *arg, struct fdry_txn *t,
			struct fdry_writer_stats *st);

static int write_once(struct fdry_writer *w, uint64_t growth, write_fn fn, void *arg)
{
	struct fdry_writer_stats st = w->stats;
	struct fdry_txn t;
	int err = fdry_txn_write(w->s->env->db, growth, &t);

	if (err)
		return err;
	err = fn(w, arg, &t, &st);
	if (err) {
		fdry_txn_abort(&t);
		return err;
	}
	err = fdry_txn_commit(&t);
	if (!err)
		stats_keep(w, &st);
	w->wrote |= !err;
	return err;
}

/* In one transaction, or not at all; where the disk is full once more when room was made, if that
 * can be. */
static int write_all(struct fdry_writer *w, uint64_t growth, uint64_t cost, write_fn fn, void *arg)
{
	int err = limit_check(w);

	if (err)
		return err;
	err = write_once(w, growth, fn, arg);
	if (err != -FDRY_E_FULL || !fdry_enospc_relieve(w->s, cost, w->lease))
		return err;
	err = write_once(w, growth, fn, arg);
	if (err == -FDRY_E_FULL)
		fdry_db_trim(w->s->env->db);
	return err;
}

static int flush_in(struct fdry_writer *w, void *arg, struct fdry_txn *t,
		    struct fdry_writer_stats *st)
{
	(void)arg;
	return items_store(w, t, st);
}

static int flush(struct fdry_writer *w)
{
	int err = write_all(w, items_growth(w), items_cost(w), flush_in, NULL);

	if (err)
		w->failed = err;
	items_drop(w);
	return err;
}

/* --- putting --- */

static int writer_check(struct fdry_writer *w)
{
	int err = fdry_store_check_write(w->s);

	if (!err && w->failed)
		err = fdry_fail(-w->failed,
				"an earlier put of this session failed (%s) and what it had "
				"collected is lost; end the session and seal again",
				fdry_error_meaning(w->failed));
	return err;
}

/* Links must lead to what is stored or waits to be. */
static int links_check(struct fdry_writer *w, struct fdry_txn *t, const struct fdry_item *it)
{
	struct fdry_record rec;
	struct fdry_oid link;
	uint32_t i;
	int err = 0;

	for (i = 0; i < it->rec.nlinks && !err; i++) {
		link = fdry_record_link(&it->rec, i);
		if (!item_find(w, &link))
			err = fdry_record_need(t, &link, &rec);
	}
	return err ? fdry_fail_at(err, "a link") : 0;
}

/* From here on it stays, and so does what it links to: see fdry_lease_note(). */
static int item_note(struct fdry_writer *w, const struct fdry_item *it)
{
	int err = fdry_lease_note(w->lease, (const void *)it->links.data, it->rec.nlinks);

	return err ? err : fdry_lease_note(w->lease, &it->oid, 1);
}

/* What the session's own puts brought, or what it linked to before, it was told of. */
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

/* @announced: a collection is, so that what was found may be going. */
static int item_lookup(struct fdry_writer *w, struct fdry_item *it, struct fdry_span data,
		       bool *known, bool *announced)
{
	struct fdry_txn t;
	int err = fdry_txn_read_latest(w->s->env->db, &t);

	if (err)
		return err;
	err = fdry_gc_announced(&t, announced);
	if (!err)
		err = fdry_item_known(&t, it, data, known);
	if (!err && !*known)
		err = links_check(w, &t, it);
	fdry_txn_abort(&t);
	return err;
}

/* Room for @len more bytes in the batch; what an object does not fit into is made larger for it. */
static int batch_reserve(struct fdry_writer *w, size_t len)
{
	uint8_t *batch;
	int err = 0;

	if (w->count == BATCH_ITEMS || (w->used && len > w->capacity - w->used))
		err = flush(w);
	if (err || len <= w->capacity - w->used)
		return err;
	len = len > BATCH_BYTES ? len : BATCH_BYTES;
	batch = malloc(len);
	if (!batch)
		return fdry_nomem();
	free(w->batch);
	w->batch = batch;
	w->capacity = len;
	return 0;
}

/* Takes over @it. */
static void item_queue(struct fdry_writer *w, struct fdry_item *it, struct fdry_span data)
{
	/* An empty object in an empty batch takes no place; there is no offset from a NULL
	 * pointer. */
	fdry_item_pack(it, data, w->batch ? w->batch + w->used : NULL);
	w->used += it->stored.len;
	w->items[w->count++] = *it;
}

static int item_add(struct fdry_writer *w, struct fdry_item *it, struct fdry_span data)
{
	bool known = false, announced = false, noted;
	int err = 0;

	if (item_find(w, &it->oid))
		err = flush(w); /* then it is the store that tells what is new of it */
	noted = links_are_noted(w, it);
	if (!err)
		err = item_note(w, it);
	if (!err)
		err = item_lookup(w, it, data, &known, &announced);
	known &= !announced; /* only the writers' lock tells whether it stays */
	if (!err && known) {
		fdry_count(FDRY_METRIC_STORE_KNOWN, 1);
		stats_add(&w->stats, it, false);
	}
	if (err || known)
		return err;
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
	int err = writer_check(w);

	if (!err)
		err = item_note(w, it);
	if (!err)
		err = fdry_txn_read_latest(w->s->env->db, &t);
	if (err)
		return err;
	err = fdry_gc_announced(&t, &announced);
	if (!err)
		err = fdry_item_there(&t, it, bytes, all);
	fdry_txn_abort(&t);
	if (!err && announced) /* it may be going */
		*bytes = *all = false;
	return err;
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
	int err = writer_check(w);

	if (!err)
		err = fdry_item_init(&it, kind, bytes, links, nlinks);
	if (err)
		return err;
	oid = it.oid;
	err = item_add(w, &it, bytes);
	fdry_item_release(&it);
	if (!err)
		*ret = oid;
	return err;
}

int fdry_writer_add_chunk(struct fdry_writer *w, const void *data, size_t len,
			  const struct fdry_oid *oid)
{
	struct fdry_item it = { 0 };
	int err = writer_check(w);

	if (!err)
		err = fdry_item_init_as(&it, FDRY_OBJECT_CHUNK, len, oid, NULL, 0);
	if (err)
		return err;
	err = item_add(w, &it, (struct fdry_span){ data, len });
	fdry_item_release(&it);
	return err;
}

int fdry_writer_has_chunk(struct fdry_writer *w, size_t len, const struct fdry_oid *oid, bool *ret)
{
	bool bytes = false, all = false;
	struct fdry_item it = { 0 };
	int err = fdry_item_init_as(&it, FDRY_OBJECT_CHUNK, len, oid, NULL, 0);

	if (err)
		return err;
	err = fdry_writer_has_item(w, &it, &bytes, &all);
	if (!err && all) {
		fdry_count(FDRY_METRIC_STORE_KNOWN, 1);
		stats_add(&w->stats, &it, false);
	}
	fdry_item_release(&it);
	*ret = all;
	return err;
}

/* --- committing --- */

void fdry_writer_set_identity(struct fdry_writer *w, const struct fdry_oid *identity)
{
	w->identity = *identity;
}

/* Two seals under one name: whoever comes second is told, unless both made the same image. */
static int ref_commit(struct fdry_writer *w, struct fdry_txn *t, const char *name,
		      const struct fdry_oid *oid)
{
	struct fdry_ref old;
	bool found = false;
	int err = fdry_ref_find(t, name, &w->identity, &found, &old);

	if (err || (found && fdry_oid_eq(&old.oid, oid)))
		return err;
	if (found && old.change > w->changes)
		return fdry_fail(FDRY_E_RACED,
				 "the ref '%s' was set to another image while this one was sealed; "
				 "seal under another name, or again",
				 name);
	return fdry_ref_store(t, name, oid, &w->identity);
}

struct manifest {
	struct fdry_item it;
	struct fdry_span data;
	const char *ref;
};

static int commit_in(struct fdry_writer *w, void *arg, struct fdry_txn *t,
		     struct fdry_writer_stats *st)
{
	bool is_new = false, known = false;
	struct manifest *m = arg;
	int err = items_store(w, t, st);

	if (!err)
		err = fdry_item_check_links(t, &m->it);
	if (!err)
		err = fdry_item_known(t, &m->it, m->data, &known);
	if (!err && !known)
		err = fdry_item_store(t, &m->it, &is_new);
	if (!err)
		stats_add(st, &m->it, is_new);
	if (!err && m->ref)
		err = ref_commit(w, t, m->ref, &m->it.oid);
	return err;
}

static int commit(struct fdry_writer *w, struct manifest *m)
{
	uint64_t growth = items_growth(w) + ITEM_OVERHEAD + m->it.stored.len + m->it.links.len;

	return write_all(w, growth, items_cost(w) + fdry_record_cost(&m->it.rec), commit_in, m);
}

/* The manifest is packed behind the batch, which it ends. */
static int commit_packed(struct fdry_writer *w, struct manifest *m)
{
	int err = batch_reserve(w, fdry_item_packed_max(&m->it));

	if (!err)
		err = item_note(w, &m->it);
	if (err)
		return err;
	fdry_item_pack(&m->it, m->data, w->batch + w->used);
	return commit(w, m);
}

/* The images are there, and the session is over. A limit that came meanwhile counts from the next
 * seal on. */
static void sealed(struct fdry_store *s, uint64_t limit, const struct fdry_oid *images,
		   size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		fdry_atime_note(s->env, &images[i]);
	if (limit)
		fdry_evict_after(s, images, count);
}

int fdry_writer_commit(struct fdry_writer *w, const void *manifest, size_t len,
		       const struct fdry_oid *links, size_t nlinks, const char *ref,
		       struct fdry_oid *ret, struct fdry_writer_stats *stats)
{
	struct manifest m = { .data = { manifest, len }, .ref = ref };
	struct fdry_store *s = w->s;
	uint64_t limit = w->limit;
	int err = writer_check(w);

	if (!err && ref)
		err = fdry_ref_check(ref);
	if (!err)
		err = fdry_item_init(&m.it, FDRY_OBJECT_MANIFEST, m.data, links, nlinks);
	if (!err)
		err = commit_packed(w, &m);
	if (!err) {
		*ret = m.it.oid;
		if (stats)
			*stats = w->stats;
	}
	fdry_item_release(&m.it);
	fdry_writer_abort(w);
	if (!err)
		sealed(s, limit, ret, 1);
	return err;
}

/* --- committing several --- */

static int image_name(struct fdry_writer *w, struct fdry_txn *t, struct fdry_writer_image *image)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_record rec;
	struct fdry_ref old;
	bool found = false;
	int err = fdry_record_need(t, &image->oid, &rec);

	if (!err && !(rec.kinds & 1u << FDRY_OBJECT_MANIFEST))
		err = fdry_fail(FDRY_E_INVAL, "object %s is not an image",
				fdry_oid_hex(&image->oid, hex));
	if (err || !image->ref)
		return err;
	err = fdry_ref_find(t, image->ref, &image->identity, &found, &old);
	if (err)
		return err;
	image->had = found && !fdry_oid_eq(&old.oid, &image->oid);
	if (image->had)
		image->was = old.oid;
	w->identity = image->identity;
	return ref_commit(w, t, image->ref, &image->oid);
}

/* The bytes are not at hand: whoever took them away meanwhile has won. */
static int more_check(struct fdry_txn *t, const struct fdry_item *it)
{
	char hex[FDRY_OID_HEX_SIZE];
	bool bytes = false, all;
	int err = fdry_item_there(t, it, &bytes, &all);

	if (err || bytes)
		return err ? err : fdry_item_check_links(t, it);
	return fdry_fail(FDRY_E_RACED, "object %s was there and is gone; try again",
			 fdry_oid_hex(&it->oid, hex));
}

static int more_store(struct fdry_txn *t, const struct fdry_item *more, size_t count)
{
	bool is_new;
	size_t i;
	int err = 0;

	for (i = 0; i < count && !err; i++) {
		err = more_check(t, &more[i]);
		if (!err)
			err = fdry_item_store(t, &more[i], &is_new);
	}
	return err;
}

static uint64_t finish_growth(const struct fdry_writer *w, const struct fdry_item *more,
			      size_t nmore, size_t count)
{
	uint64_t growth = items_growth(w) + count * ITEM_OVERHEAD;

	while (nmore)
		growth += 2 * ITEM_OVERHEAD + more[--nmore].links.len;
	return growth;
}

static void all_sealed(struct fdry_store *s, uint64_t limit, const struct fdry_writer_image *images,
		       size_t count)
{
	struct fdry_oid *oids = malloc(count * sizeof(*oids) + 1);
	size_t i;

	for (i = 0; oids && i < count; i++)
		oids[i] = images[i].oid;
	if (oids)
		sealed(s, limit, oids, count);
	free(oids);
}

struct ending {
	struct fdry_writer_image *images;
	size_t count;
	const struct fdry_item *more;
	size_t nmore;
};

static int finish_in(struct fdry_writer *w, void *arg, struct fdry_txn *t,
		     struct fdry_writer_stats *st)
{
	struct ending *e = arg;
	size_t i;
	int err = items_store(w, t, st);

	if (!err)
		err = more_store(t, e->more, e->nmore);
	for (i = 0; i < e->count && !err; i++)
		err = image_name(w, t, &e->images[i]);
	return err;
}

int fdry_writer_finish(struct fdry_writer *w, struct fdry_writer_image *images, size_t count,
		       const struct fdry_item *more, size_t nmore, struct fdry_writer_stats *stats)
{
	struct ending e = { .images = images, .count = count, .more = more, .nmore = nmore };
	uint64_t growth = finish_growth(w, more, nmore, count), cost = items_cost(w),
		 limit = w->limit;
	struct fdry_store *s = w->s;
	size_t i;
	int err = writer_check(w);

	for (i = 0; i < nmore; i++)
		cost += fdry_record_cost(&more[i].rec);
	if (!err)
		err = write_all(w, growth, cost, finish_in, &e);
	if (!err)
		*stats = w->stats;
	fdry_writer_abort(w);
	if (!err)
		all_sealed(s, limit, images, count);
	return err;
}

int fdry_writer_flush(struct fdry_writer *w)
{
	int err = writer_check(w);

	return err || !w->count ? err : flush(w);
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
