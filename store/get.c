// SPDX-License-Identifier: Apache-2.0
/*
 * get.c - loading: one consistent view, verified copies, and content in place.
 *
 * A session keeps one read transaction for its life, so that LMDB lets go of nothing that
 * it sees, whatever a collection deletes. What it resolves it notes in a lease, so that
 * sessions that begin later (a loader's other threads) find it too.
 *
 * If LMDB cannot give this session a place among its readers (its process id is taken in another PID namespace, all
 * places are taken, or they cannot be written) a transaction keeps every writer out:
 * then each call takes a short one. Whatever is asked for is noted in the lease first. Mapped spans stay right
 * between the turns because bytes that are stored plain and have pages of their own are never moved, only
 * collected, and because the map is pinned; of smaller ones the session keeps copies.
 */
#include <stdlib.h>

#include "lib/log.h"
#include "lib/telemetry.h"
#include "store/lease.h"

#define RESOLVE_TRIES 64

/* Bytes that lie beside others in a page, which moves when these are written. */
struct copy {
	struct copy *next;
	uint8_t bytes[];
};

struct fdry_get {
	struct fdry_store *s;
	struct fdry_txn txn;
	bool held;   /* txn is open from begin to end */
	bool used;   /* something came out of the view: it stays */
	struct fdry_lease *lease; /* NULL: nothing to note yet */
	struct fdry_verified verified;
	struct fdry_unpacker unpacker;
	struct copy *copies; /* for spans, where the view is not held */
};

static int lease_need(struct fdry_get *g)
{
	return g->lease ? 0 : fdry_lease_begin(g->s->env, &g->lease);
}

static int view_open(struct fdry_get *g)
{
	int err = fdry_txn_read(g->s->env->db, &g->txn);

	if (err)
		return err;
	g->held = !g->txn.turn;
	if (g->held)
		return 0;
	fdry_txn_abort(&g->txn);
	err = lease_need(g);
	if (err)
		return err;
	fdry_db_pin(g->s->env->db);
	if (!g->s->env->readonly)
		fdry_info("store %s: no place among LMDB's readers; reading in short turns", g->s->path);
	return 0;
}

static void view_close(struct fdry_get *g)
{
	if (g->held)
		fdry_txn_abort(&g->txn);
	else
		fdry_db_unpin(g->s->env->db);
}

int fdry_get_begin(struct fdry_store *s, struct fdry_get **ret)
{
	struct fdry_get *g;
	int err = fdry_store_check(s);

	if (err)
		return err;
	g = calloc(1, sizeof(*g));
	if (!g)
		return fdry_nomem();
	g->s = s;
	err = view_open(g);
	if (err) {
		fdry_lease_end(g->lease, false);
		free(g);
		return err;
	}
	*ret = g;
	return 0;
}

static int turn_begin(struct fdry_get *g)
{
	int err = fdry_store_check(g->s);

	return err || g->held ? err : fdry_txn_read(g->s->env->db, &g->txn);
}

static void turn_end(struct fdry_get *g)
{
	if (!g->held)
		fdry_txn_abort(&g->txn);
}

/* Without a view that is held, an object stays because it was noted before it was looked up. */
static int turn_begin_at(struct fdry_get *g, const struct fdry_oid *oid)
{
	int err = fdry_store_check(g->s);

	if (!err && !g->held)
		err = fdry_lease_note(g->lease, oid, 1);
	return err ? err : turn_begin(g);
}

/* --- resolving --- */

struct named {
	const struct fdry_oid *oid;
	bool found;
};

static int named_match(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct named *n = arg;
	struct fdry_ref ref;
	int err = fdry_ref_parse(value, &ref);

	(void)key;
	if (err)
		return err;
	n->found = fdry_oid_eq(&ref.oid, n->oid);
	return n->found ? FDRY_EACH_STOP : 0;
}

/*
 * Does a view that began after an image was noted show that it stays? It does where no
 * collection is announced, and where a ref names it: whoever deletes at that moment sees
 * the same refs. Else only the writers' lock tells.
 */
static int view_tells(struct fdry_txn *t, const struct fdry_ref *image, bool *ret)
{
	struct named n = { .oid = &image->oid, .found = *image->name };
	bool announced = false;
	int err = fdry_gc_announced(t, &announced);

	if (!err && announced && !n.found)
		err = fdry_txn_each(t, FDRY_TABLE_REFS, (struct fdry_span){ 0 }, named_match, &n);
	if (!err)
		*ret = !announced || n.found;
	return err;
}

static int there_for_sure(struct fdry_get *g, const struct fdry_oid *oid, bool *ret)
{
	struct fdry_record rec;
	struct fdry_txn t;
	int err = fdry_txn_write(g->s->env->db, 0, &t);

	if (err)
		return err;
	err = fdry_record_get(&t, oid, ret, &rec);
	fdry_txn_abort(&t);
	return err;
}

/* Lists of struct fdry_ref. */
static bool same_images(const struct fdry_buf *a, const struct fdry_buf *b)
{
	const struct fdry_ref *x = (const void *)a->data, *y = (const void *)b->data;
	size_t i, n = a->len / sizeof(*x);

	for (i = 0; a->len == b->len && i < n && fdry_oid_eq(&x[i].oid, &y[i].oid); i++)
		;
	return a->len == b->len && i == n;
}

/* In a new view: does @name still mean @images, and do they stay? */
static int resolve_again(struct fdry_get *g, const char *name, const struct fdry_buf *images, bool *ret)
{
	const struct fdry_ref *first = (const void *)images->data;
	struct fdry_buf now = { 0 };
	bool told = false;
	struct fdry_txn t;
	int err = fdry_txn_read_latest(g->s->env->db, &t);

	if (err)
		return err;
	err = fdry_ref_resolve_all(&t, name, &now);
	*ret = !err && same_images(&now, images);
	if (*ret)
		err = view_tells(&t, first, &told); /* several are a ref's */
	fdry_txn_abort(&t);
	fdry_buf_release(&now);
	if (err == -FDRY_E_NOENT || err == -FDRY_E_AMBIGUOUS)
		return 0; /* gone: the new view will say so */
	if (!err && *ret && !told)
		err = g->s->env->readonly ? 0 : there_for_sure(g, &first->oid, ret);
	return err;
}

static int images_note(struct fdry_get *g, const struct fdry_buf *images)
{
	const struct fdry_ref *refs = (const void *)images->data;
	size_t i;
	int err = 0;

	for (i = 0; i < images->len / sizeof(*refs) && !err; i++)
		err = fdry_lease_note(g->lease, &refs[i].oid, 1);
	return err;
}

static int view_renew(struct fdry_get *g)
{
	struct fdry_txn t;
	int err = fdry_txn_read(g->s->env->db, &t);

	if (err)
		return err;
	fdry_txn_abort(&g->txn);
	g->txn = t;
	return 0;
}

static int resolve_held(struct fdry_get *g, const char *name, struct fdry_buf *ret)
{
	bool stays = false;
	int i, err = lease_need(g);

	for (i = 0; i < RESOLVE_TRIES && !err && !stays; i++) {
		ret->len = 0;
		if (i)
			err = view_renew(g);
		if (!err)
			err = fdry_ref_resolve_all(&g->txn, name, ret);
		if (!err)
			err = images_note(g, ret);
		if (!err)
			err = resolve_again(g, name, ret, &stays);
		if (g->used) /* this session has them in any case */
			break;
	}
	return err;
}

/* While writers are kept out no collection can come between. */
static int resolve_in_turn(struct fdry_get *g, const char *name, struct fdry_buf *ret)
{
	int err = turn_begin(g);

	if (err)
		return err;
	err = fdry_ref_resolve_all(&g->txn, name, ret);
	if (!err)
		err = images_note(g, ret);
	turn_end(g);
	return err;
}

int fdry_get_images(struct fdry_get *g, const char *name, struct fdry_ref **ret, size_t *count)
{
	struct fdry_buf all = { 0 };
	int err = fdry_store_check(g->s);

	if (!err)
		err = g->held ? resolve_held(g, name, &all) : resolve_in_turn(g, name, &all);
	if (err) {
		fdry_buf_release(&all);
		return err;
	}
	g->used = true;
	*ret = (struct fdry_ref *)all.data;
	*count = all.len / sizeof(**ret);
	return 0;
}

int fdry_get_resolve(struct fdry_get *g, const char *name, struct fdry_oid *ret)
{
	struct fdry_ref *images = NULL;
	size_t count;
	int err = fdry_get_images(g, name, &images, &count);

	if (err)
		return err;
	*ret = images[0].oid;
	free(images);
	return 0;
}

/* --- getting --- */

static void count_got(size_t len)
{
	fdry_count(FDRY_METRIC_STORE_GOT, 1);
	fdry_count(FDRY_METRIC_STORE_GOT_BYTES, len);
}

int fdry_get_object(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_buf *ret)
{
	int err = turn_begin_at(g, oid);

	if (err)
		return err;
	err = fdry_object_read(&g->txn, oid, &g->unpacker, ret);
	turn_end(g);
	if (!err)
		count_got(ret->len);
	g->used |= !err;
	return err;
}

int fdry_get_size(struct fdry_get *g, const struct fdry_oid *oid, uint64_t *ret)
{
	int err = turn_begin_at(g, oid);

	if (err)
		return err;
	err = fdry_object_size(&g->txn, oid, ret);
	turn_end(g);
	return err;
}

static int object_map(struct fdry_txn *t, const struct fdry_oid *oid, struct fdry_span *ret)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_record rec;
	int err = fdry_record_need(t, oid, &rec);

	if (!err && rec.codec == FDRY_CODEC_ZSTD)
		err = fdry_fail(FDRY_E_STATE, "object %s is stored compressed and cannot be mapped; copy it out",
				fdry_oid_hex(oid, hex));
	return err ? err : fdry_object_stored(t, oid, &rec, ret);
}

static int span_keep(struct fdry_get *g, struct fdry_span *span)
{
	struct copy *c;

	if (g->held || span->len > fdry_db_small_max(g->s->env->db))
		return 0;
	c = malloc(sizeof(*c) + span->len);
	if (!c)
		return fdry_nomem();
	if (span->len)
		memcpy(c->bytes, span->data, span->len);
	c->next = g->copies;
	g->copies = c;
	span->data = c->bytes;
	return 0;
}

int fdry_get_map(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_span *ret)
{
	struct fdry_span span = { 0 };
	int err = turn_begin_at(g, oid);

	if (err)
		return err;
	err = object_map(&g->txn, oid, &span);
	if (!err)
		err = span_keep(g, &span);
	turn_end(g);
	if (err)
		return err;
	count_got(span.len);
	g->used = true;
	*ret = span;
	return 0;
}

static void copies_free(struct fdry_get *g)
{
	struct copy *c;

	while ((c = g->copies)) {
		g->copies = c->next;
		free(c);
	}
}

int fdry_get_verify(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_span data, bool always, bool *hashed)
{
	int err = fdry_store_check(g->s);
	bool due;

	if (err)
		return err;
	due = !fdry_verified_has(&g->verified, g->s->env, oid) || always;
	if (due) {
		err = fdry_object_verify(oid, data);
		if (err == -FDRY_E_CORRUPT)
			fdry_verified_forget(&g->s->env->dir);
		if (err)
			return err;
		fdry_verified_add(&g->verified, oid);
	}
	if (hashed)
		*hashed = due;
	return 0;
}

void fdry_get_used(struct fdry_get *g, const struct fdry_oid *image)
{
	if (!fdry_store_check(g->s))
		fdry_atime_note(g->s->env, image);
}

void fdry_get_end(struct fdry_get *g)
{
	if (!g)
		return;
	if (!fdry_store_check(g->s)) {
		view_close(g);
		fdry_verified_end(&g->verified, g->s->env);
		fdry_lease_end(g->lease, false);
	} else {
		fdry_lease_forget(g->lease);
	}
	fdry_verified_release(&g->verified);
	fdry_unpacker_release(&g->unpacker);
	copies_free(g);
	free(g);
}
