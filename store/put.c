// SPDX-License-Identifier: Apache-2.0
/*
 * put.c - sealing: objects first, in transactions of middling size; manifest and ref last.
 *
 * What is put collects in one piece of memory, packed, and goes out in one transaction when there is
 * enough of it: the writers' lock is held for the writing alone, never while a caller
 * hashes or reads its GPU. The session shares the store's lock from begin to end, so that
 * no collection removes what it found there. The last transaction holds what is left, the
 * manifest and the ref, so that a manifest never becomes durable before what it links to.
 */
#include <stdlib.h>

#include "arch/log.h"
#include "store/internal.h"

#define BATCH_BYTES (32u << 20)
#define BATCH_ITEMS 1024
/* Records and tree pages that an item takes beside its bytes. */
#define ITEM_ROOM 8192

struct fdry_put {
	struct fdry_store *s;
	uint64_t changes; /* the store's change counter at the beginning */
	struct fdry_item items[BATCH_ITEMS];
	size_t count;
	uint8_t *batch;   /* their bytes at rest, end to end ... */
	size_t used, room; /* ... and how many, of how many */
	int failed;       /* why what was collected is lost */
	struct fdry_put_stats stats;
};

static int changes_read(struct fdry_store *s, uint64_t *ret)
{
	struct fdry_txn t;
	int err = fdry_txn_read(s->env->db, &t);

	if (err)
		return err;
	err = fdry_ref_changes(&t, ret);
	fdry_txn_abort(&t);
	return err;
}

int fdry_put_begin(struct fdry_store *s, struct fdry_put **ret)
{
	struct fdry_put *p;
	int err = fdry_store_check_write(s);

	if (err)
		return err;
	p = calloc(1, sizeof(*p));
	if (!p)
		return fdry_nomem();
	p->s = s;
	err = fdry_env_share(s->env);
	if (err)
		goto out_free;
	err = changes_read(s, &p->changes);
	if (err)
		goto out_unshare;
	*ret = p;
	return 0;
out_unshare:
	fdry_env_unshare(s->env);
out_free:
	free(p);
	return err;
}

/* --- what waits to be written --- */

static void items_drop(struct fdry_put *p)
{
	while (p->count)
		fdry_item_release(&p->items[--p->count]);
	p->used = 0;
}

static struct fdry_item *item_find(struct fdry_put *p, const struct fdry_oid *oid)
{
	size_t i;

	for (i = 0; i < p->count; i++)
		if (fdry_oid_eq(&p->items[i].oid, oid))
			return &p->items[i];
	return NULL;
}

static uint64_t items_room(const struct fdry_put *p)
{
	uint64_t room = p->used + ITEM_ROOM;
	size_t i;

	for (i = 0; i < p->count; i++)
		room += ITEM_ROOM + p->items[i].links.len;
	return room;
}

static void stats_add(struct fdry_put_stats *st, const struct fdry_item *it, bool is_new)
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
static int items_store(struct fdry_put *p, struct fdry_txn *t, struct fdry_put_stats *st)
{
	bool is_new = false;
	int err = 0;
	size_t i;

	for (i = 0; i < p->count && !err; i++) {
		err = fdry_item_store(t, &p->items[i], &is_new);
		if (!err)
			stats_add(st, &p->items[i], is_new);
	}
	return err;
}

static int flush(struct fdry_put *p)
{
	struct fdry_put_stats st = p->stats;
	struct fdry_txn t;
	int err = fdry_txn_write(p->s->env->db, items_room(p), &t);

	if (!err) {
		err = items_store(p, &t, &st);
		if (err)
			fdry_txn_abort(&t);
		else
			err = fdry_txn_commit(&t);
	}
	if (err)
		p->failed = err;
	else
		p->stats = st;
	items_drop(p);
	return err;
}

/* --- putting --- */

static int put_check(struct fdry_put *p)
{
	int err = fdry_store_check_write(p->s);

	if (!err && p->failed)
		err = fdry_fail(-p->failed, "an earlier put of this session failed (%s) and what it had collected is lost; "
				"end the session and seal again", fdry_error_meaning(p->failed));
	return err;
}

/* Links must lead to what is stored or waits to be. */
static int links_check(struct fdry_put *p, struct fdry_txn *t, const struct fdry_item *it)
{
	struct fdry_record rec;
	struct fdry_oid link;
	uint32_t i;
	int err = 0;

	for (i = 0; i < it->rec.nlinks && !err; i++) {
		link = fdry_record_link(&it->rec, i);
		if (!item_find(p, &link))
			err = fdry_record_need(t, &link, &rec);
	}
	return err ? fdry_fail_at(err, "a link") : 0;
}

static int item_lookup(struct fdry_put *p, struct fdry_item *it, struct fdry_span data, bool *known)
{
	struct fdry_txn t;
	int err = fdry_txn_read(p->s->env->db, &t);

	if (err)
		return err;
	err = fdry_item_known(&t, it, data, known);
	if (!err && !*known)
		err = links_check(p, &t, it);
	fdry_txn_abort(&t);
	return err;
}

/* Room for @len more bytes in the batch; what an object does not fit into is made larger for it. */
static int batch_room(struct fdry_put *p, size_t len)
{
	uint8_t *batch;
	int err = 0;

	if (p->count == BATCH_ITEMS || (p->used && len > p->room - p->used))
		err = flush(p);
	if (err || len <= p->room - p->used)
		return err;
	len = len > BATCH_BYTES ? len : BATCH_BYTES;
	batch = malloc(len);
	if (!batch)
		return fdry_nomem();
	free(p->batch);
	p->batch = batch;
	p->room = len;
	return 0;
}

/* Takes over @it. */
static void item_queue(struct fdry_put *p, struct fdry_item *it, struct fdry_span data)
{
	fdry_item_pack(it, data, p->batch + p->used);
	p->used += it->stored.len;
	p->items[p->count++] = *it;
}

static int put_item(struct fdry_put *p, struct fdry_item *it, struct fdry_span data)
{
	bool known = false;
	int err = 0;

	if (item_find(p, &it->oid))
		err = flush(p); /* then it is the store that tells what is new of it */
	if (!err)
		err = item_lookup(p, it, data, &known);
	if (!err && known)
		stats_add(&p->stats, it, false);
	if (err || known)
		return err;
	err = batch_room(p, fdry_item_room(it));
	if (err)
		return err;
	item_queue(p, it, data);
	*it = (struct fdry_item){ 0 };
	return p->used >= BATCH_BYTES ? flush(p) : 0;
}

int fdry_put_object(struct fdry_put *p, enum fdry_object_kind kind, const void *data, size_t len,
		    const struct fdry_oid *links, size_t nlinks, struct fdry_oid *ret)
{
	struct fdry_span bytes = { data, len };
	struct fdry_item it = { 0 };
	struct fdry_oid oid;
	int err = put_check(p);

	if (!err)
		err = fdry_item_init(&it, kind, bytes, links, nlinks);
	if (err)
		return err;
	oid = it.oid;
	err = put_item(p, &it, bytes);
	fdry_item_release(&it);
	if (!err)
		*ret = oid;
	return err;
}

/* --- committing --- */

/* Two seals under one name: whoever comes second is told, unless both made the same image. */
static int ref_commit(struct fdry_put *p, struct fdry_txn *t, const char *name, const struct fdry_oid *oid)
{
	struct fdry_ref old;
	bool found = false;
	int err = fdry_ref_find(t, name, &found, &old);

	if (err || (found && fdry_oid_eq(&old.oid, oid)))
		return err;
	if (found && old.change > p->changes)
		return fdry_fail(FDRY_E_RACED, "the ref '%s' was set to another image while this one was sealed; "
				 "seal under another name, or again", name);
	return fdry_ref_store(t, name, oid);
}

struct manifest {
	struct fdry_item it;
	struct fdry_span data;
	const char *ref;
};

static int commit_in(struct fdry_put *p, struct fdry_txn *t, struct manifest *m, struct fdry_put_stats *st)
{
	bool is_new = false, known = false;
	int err = items_store(p, t, st);

	if (!err)
		err = fdry_item_check_links(t, &m->it);
	if (!err)
		err = fdry_item_known(t, &m->it, m->data, &known);
	if (!err && !known)
		err = fdry_item_store(t, &m->it, &is_new);
	if (!err)
		stats_add(st, &m->it, is_new);
	if (!err && m->ref)
		err = ref_commit(p, t, m->ref, &m->it.oid);
	return err;
}

static int commit(struct fdry_put *p, struct manifest *m)
{
	uint64_t room = items_room(p) + ITEM_ROOM + m->it.stored.len + m->it.links.len;
	struct fdry_put_stats st = p->stats;
	struct fdry_txn t;
	int err = fdry_txn_write(p->s->env->db, room, &t);

	if (err)
		return err;
	err = commit_in(p, &t, m, &st);
	if (err) {
		fdry_txn_abort(&t);
		return err;
	}
	err = fdry_txn_commit(&t);
	if (!err)
		p->stats = st;
	return err;
}

/* The manifest is packed behind the batch, which it ends. */
static int commit_packed(struct fdry_put *p, struct manifest *m)
{
	int err = batch_room(p, fdry_item_room(&m->it));

	if (err)
		return err;
	fdry_item_pack(&m->it, m->data, p->batch + p->used);
	return commit(p, m);
}

int fdry_put_commit(struct fdry_put *p, const void *manifest, size_t len, const struct fdry_oid *links, size_t nlinks,
		    const char *ref, struct fdry_oid *ret, struct fdry_put_stats *stats)
{
	struct manifest m = { .data = { manifest, len }, .ref = ref };
	int err = put_check(p);

	if (!err && ref)
		err = fdry_ref_check(ref);
	if (!err)
		err = fdry_item_init(&m.it, FDRY_OBJECT_MANIFEST, m.data, links, nlinks);
	if (!err)
		err = commit_packed(p, &m);
	if (!err) {
		*ret = m.it.oid;
		if (stats)
			*stats = p->stats;
	}
	fdry_item_release(&m.it);
	fdry_put_abort(p);
	return err;
}

void fdry_put_abort(struct fdry_put *p)
{
	if (!p)
		return;
	items_drop(p);
	free(p->batch);
	if (!fdry_store_check(p->s))
		fdry_env_unshare(p->s->env);
	free(p);
}
