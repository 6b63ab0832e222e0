// SPDX-License-Identifier: Apache-2.0
/*
 * reader.c - loading: one consistent view, verified copies, and content in place.
 *
 * A session keeps one read transaction open until it ends. So LMDB does not reuse the pages that
 * the session sees, even if a collection deletes their objects. The session notes the images that
 * it resolves in a lease, so that sessions that begin later (other threads of a loader) find them,
 * too.
 *
 * LMDB may have no place for this session in its list of readers: another PID namespace uses the
 * same process id, all places are taken, or lock.mdb cannot be written. Then a read transaction
 * keeps every writer out, so each call of the session begins a short one of its own. The session
 * notes each id in its lease before it looks the object up. Mapped spans stay valid between the
 * calls: uncompressed bytes with pages of their own never move, the lease keeps them from being
 * collected, and the map is pinned. The session copies smaller objects. A session whose objects
 * another thread fetches meanwhile (arrival.c) works in the same way.
 */
#include <stdlib.h>

#include "lib/log.h"
#include "lib/telemetry.h"
#include "store/lease.h"

#define RESOLVE_TRIES 64

/* Bytes that share a page with other entries move when those are written. */
struct copy {
	struct copy *next;
	uint8_t bytes[];
};

struct fdry_reader {
	struct fdry_store *s;
	struct fdry_txn txn;
	bool held;   /* txn is open until the session ends */
	bool used;   /* the caller has used the view, which therefore stays as it is */
	struct fdry_lease *lease; /* NULL: nothing was noted yet */
	struct fdry_verified verified;
	struct fdry_unpacker unpacker;
	struct copy *copies; /* of small objects, if the view is not held */
};

static int lease_need(struct fdry_reader *r)
{
	return r->lease ? 0 : fdry_lease_begin(r->s->env, &r->lease);
}

static void view_close(struct fdry_reader *r)
{
	if (r->held)
		fdry_txn_abort(&r->txn);
	else
		fdry_db_unpin(r->s->env->db);
}

int fdry_reader_begin(struct fdry_store *s, struct fdry_reader **ret)
{
	struct fdry_reader *r;
	int err = fdry_store_check(s);

	if (err)
		return err;
	r = calloc(1, sizeof(*r));
	if (!r)
		return fdry_nomem();
	r->s = s;
	err = fdry_txn_read(s->env->db, &r->txn);
	if (err)
		goto out_free;
	r->held = !r->txn.locked && !s->arrival;
	if (!r->held) {
		fdry_txn_abort(&r->txn);
		err = lease_need(r);
		if (err)
			goto out_free;
		fdry_db_pin(s->env->db);
		if (!s->env->readonly && !s->arrival)
			fdry_info("store %s: no place among LMDB's readers; each read is a "
				  "transaction",
				  s->path);
	}
	*ret = r;
	return 0;
out_free:
	free(r);
	return err;
}

static void view_end(struct fdry_reader *r)
{
	if (!r->held)
		fdry_txn_abort(&r->txn);
}

/* If the view is not held, the object must be noted before it is looked up, or it may go. */
static int view_begin_at(struct fdry_reader *r, const struct fdry_oid *oid)
{
	int err = fdry_store_check(r->s);

	if (!err && r->s->arrival)
		err = fdry_arrival_wait(r->s->arrival, oid);
	if (err || r->held)
		return err;
	err = fdry_lease_note(r->lease, oid, 1);
	return err ? err : fdry_txn_read(r->s->env->db, &r->txn);
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
 * The view began after an image was noted in the lease. Does it show that the image stays? It does
 * if no collection is announced. It also does if a ref names the image, since a collection that is
 * deleting objects at this moment sees the same refs. Otherwise only a look under the writers' lock
 * is certain.
 */
static int view_is_sure(struct fdry_txn *t, const struct fdry_ref *image, bool *ret)
{
	struct named n = { .oid = &image->oid, .found = *image->name };
	bool announced = false;
	int err = fdry_gc_announced(t, &announced);

	if (err)
		return err;
	if (announced && !n.found)
		err = fdry_txn_each(t, FDRY_TABLE_REFS, (struct fdry_span){ 0 }, named_match, &n);
	if (err)
		return err;
	*ret = !announced || n.found;
	return 0;
}

/* Under the writers' lock. */
static int there_for_sure(struct fdry_reader *r, const struct fdry_oid *oid, bool *ret)
{
	struct fdry_record rec;
	struct fdry_txn t;
	int err = fdry_txn_write(r->s->env->db, 0, &t);

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
static int resolve_again(struct fdry_reader *r, const char *name, const struct fdry_buf *images,
			 bool *ret)
{
	const struct fdry_ref *first = (const void *)images->data; /* if several, a ref names all */
	struct fdry_buf now = { 0 };
	bool sure = false;
	struct fdry_txn t;
	int err = fdry_txn_read_latest(r->s->env->db, &t);

	*ret = false;
	if (err)
		return err;
	err = fdry_ref_resolve_all(&t, name, &now);
	if (err)
		goto out_abort;
	*ret = same_images(&now, images);
	if (*ret)
		err = view_is_sure(&t, first, &sure);
out_abort:
	fdry_txn_abort(&t);
	fdry_buf_release(&now);
	if (err == -FDRY_E_NOENT || err == -FDRY_E_AMBIGUOUS)
		return 0; /* the name changed; resolving it in the new view reports that */
	if (err || !*ret || sure || r->s->env->readonly)
		return err;
	return there_for_sure(r, &first->oid, ret);
}

/* Resolve @name in the session's view, and note what it means. */
static int resolve_noted(struct fdry_reader *r, const char *name, struct fdry_buf *ret)
{
	const struct fdry_ref *refs;
	size_t i;
	int err = fdry_ref_resolve_all(&r->txn, name, ret);

	if (err)
		return err;
	refs = (const void *)ret->data;
	for (i = 0; i < ret->len / sizeof(*refs); i++) {
		err = fdry_lease_note(r->lease, &refs[i].oid, 1);
		if (err)
			return err;
	}
	return 0;
}

static int view_renew(struct fdry_reader *r)
{
	struct fdry_txn t;
	int err = fdry_txn_read(r->s->env->db, &t);

	if (err)
		return err;
	fdry_txn_abort(&r->txn);
	r->txn = t;
	return 0;
}

static int resolve_held(struct fdry_reader *r, const char *name, struct fdry_buf *ret)
{
	bool stays = false;
	int i, err = lease_need(r);

	if (err)
		return err;
	for (i = 0; i < RESOLVE_TRIES && !stays; i++) {
		ret->len = 0;
		err = i ? view_renew(r) : 0;
		if (err)
			return err;
		err = resolve_noted(r, name, ret);
		if (err)
			return err;
		err = resolve_again(r, name, ret, &stays);
		if (err || r->used) /* a used view keeps its objects in any case */
			return err;
	}
	return 0;
}

/* The transaction keeps writers out, so no collection deletes anything meanwhile. */
static int resolve_locked(struct fdry_reader *r, const char *name, struct fdry_buf *ret)
{
	int err = fdry_txn_read(r->s->env->db, &r->txn);

	if (err)
		return err;
	err = resolve_noted(r, name, ret);
	fdry_txn_abort(&r->txn);
	return err;
}

int fdry_reader_images(struct fdry_reader *r, const char *name, struct fdry_ref **ret,
		       size_t *count)
{
	struct fdry_buf all = { 0 };
	int err = fdry_store_check(r->s);

	if (err)
		return err;
	if (r->s->arrival)
		return fdry_arrival_refs(r->s->arrival, name, ret, count);
	err = r->held ? resolve_held(r, name, &all) : resolve_locked(r, name, &all);
	if (err) {
		fdry_buf_release(&all);
		return err;
	}
	r->used = true;
	*ret = (struct fdry_ref *)all.data;
	*count = all.len / sizeof(**ret);
	return 0;
}

int fdry_reader_resolve(struct fdry_reader *r, const char *name, struct fdry_oid *ret)
{
	struct fdry_ref *images = NULL;
	size_t count;
	int err = fdry_reader_images(r, name, &images, &count);

	if (err)
		return err;
	*ret = images[0].oid;
	free(images);
	return 0;
}

/* --- reading objects --- */

static void count_read(size_t len)
{
	fdry_count(FDRY_METRIC_STORE_GOT, 1);
	fdry_count(FDRY_METRIC_STORE_GOT_BYTES, len);
}

int fdry_reader_copy(struct fdry_reader *r, const struct fdry_oid *oid, struct fdry_buf *ret)
{
	struct fdry_span manifest;
	int err;

	if (r->s->arrival && fdry_arrival_manifest(r->s->arrival, oid, &manifest))
		return fdry_buf_put(ret, manifest.data, manifest.len);
	err = view_begin_at(r, oid);
	if (err)
		return err;
	err = fdry_object_read(&r->txn, oid, &r->unpacker, ret);
	view_end(r);
	if (err)
		return err;
	count_read(ret->len);
	r->used = true;
	return 0;
}

int fdry_reader_size(struct fdry_reader *r, const struct fdry_oid *oid, uint64_t *ret)
{
	int err = view_begin_at(r, oid);

	if (err)
		return err;
	err = fdry_object_size(&r->txn, oid, ret);
	view_end(r);
	return err;
}

static int span_keep(struct fdry_reader *r, struct fdry_span *span)
{
	struct copy *c;

	if (r->held || span->len > fdry_db_small_max(r->s->env->db))
		return 0;
	c = malloc(sizeof(*c) + span->len);
	if (!c)
		return fdry_nomem();
	if (span->len)
		memcpy(c->bytes, span->data, span->len);
	c->next = r->copies;
	r->copies = c;
	span->data = c->bytes;
	return 0;
}

/* The bytes in place; a copy if the view is not held and they may move. */
static int object_map(struct fdry_reader *r, const struct fdry_oid *oid, struct fdry_span *ret)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_record rec;
	int err = fdry_record_need(&r->txn, oid, &rec);

	if (err)
		return err;
	if (rec.codec == FDRY_CODEC_ZSTD)
		return fdry_fail(FDRY_E_STATE,
				 "object %s is stored compressed and cannot be mapped; copy it out",
				 fdry_oid_hex(oid, hex));
	err = fdry_object_stored(&r->txn, oid, &rec, ret);
	return err ? err : span_keep(r, ret);
}

int fdry_reader_map(struct fdry_reader *r, const struct fdry_oid *oid, struct fdry_span *ret)
{
	struct fdry_span span = { 0 };
	int err = view_begin_at(r, oid);

	if (err)
		return err;
	err = object_map(r, oid, &span);
	view_end(r);
	if (err)
		return err;
	count_read(span.len);
	r->used = true;
	*ret = span;
	return 0;
}

static void copies_free(struct fdry_reader *r)
{
	struct copy *c;

	while ((c = r->copies)) {
		r->copies = c->next;
		free(c);
	}
}

int fdry_reader_verify(struct fdry_reader *r, const struct fdry_oid *oid, struct fdry_span data,
		       bool always, bool *hashed)
{
	bool due;
	int err = fdry_store_check(r->s);

	if (err)
		return err;
	due = !fdry_verified_has(&r->verified, r->s->env, oid) || always;
	if (due) {
		err = fdry_object_verify(oid, data);
		if (err == -FDRY_E_CORRUPT)
			fdry_verified_forget(&r->s->env->dir);
		if (err)
			return err;
		fdry_verified_add(&r->verified, oid);
	}
	if (hashed)
		*hashed = due;
	return 0;
}

void fdry_reader_note_use(struct fdry_reader *r, const struct fdry_oid *image)
{
	if (!fdry_store_check(r->s))
		fdry_atime_note(r->s->env, image);
}

void fdry_reader_end(struct fdry_reader *r)
{
	if (!r)
		return;
	if (!fdry_store_check(r->s)) {
		view_close(r);
		fdry_verified_end(&r->verified, r->s->env);
		fdry_lease_end(r->lease, false);
	} else {
		fdry_lease_forget(r->lease);
	}
	fdry_verified_release(&r->verified);
	fdry_unpacker_release(&r->unpacker);
	copies_free(r);
	free(r);
}
