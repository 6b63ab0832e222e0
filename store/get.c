// SPDX-License-Identifier: Apache-2.0
/*
 * get.c - loading: one consistent view, verified copies, and content in place.
 *
 * A session keeps one read transaction for its life, and shares the store's lock, so that
 * neither LMDB nor a collection lets go of what it sees. Where LMDB cannot give this
 * process a place among its readers (its process id is taken in another PID namespace), a
 * transaction would keep every writer out: then each call takes a short one. Mapped spans
 * stay right between them because bytes that are stored plain are never moved, only
 * collected, and because the map is pinned.
 */
#include <stdlib.h>

#include "arch/log.h"
#include "store/internal.h"

struct fdry_get {
	struct fdry_store *s;
	struct fdry_txn txn;
	bool held; /* txn is open from begin to end */
	struct fdry_seen seen;
	struct fdry_unpacker unpacker;
};

static int view_open(struct fdry_get *g)
{
	int err = fdry_txn_read(g->s->env->db, &g->txn);

	if (err)
		return err;
	g->held = !g->txn.exclusive;
	if (g->held)
		return 0;
	fdry_txn_abort(&g->txn);
	fdry_db_pin(g->s->env->db);
	fdry_info("store %s: this process' id is taken in another PID namespace; reading in short turns", g->s->path);
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
	err = fdry_env_share(s->env);
	if (err)
		goto out_free;
	err = view_open(g);
	if (err)
		goto out_unshare;
	*ret = g;
	return 0;
out_unshare:
	fdry_env_unshare(s->env);
out_free:
	free(g);
	return err;
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

int fdry_get_resolve(struct fdry_get *g, const char *name, struct fdry_oid *ret)
{
	int err = turn_begin(g);

	if (err)
		return err;
	err = fdry_ref_resolve(&g->txn, name, ret);
	turn_end(g);
	return err;
}

int fdry_get_object(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_buf *ret)
{
	int err = turn_begin(g);

	if (err)
		return err;
	err = fdry_object_read(&g->txn, oid, &g->unpacker, ret);
	turn_end(g);
	return err;
}

static int object_map(struct fdry_txn *t, const struct fdry_oid *oid, struct fdry_span *ret)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_record rec;
	int err = fdry_record_need(t, oid, &rec);

	if (!err && rec.codec != FDRY_CODEC_PLAIN)
		err = fdry_fail(FDRY_E_STATE, "object %s is stored compressed and cannot be mapped; copy it out",
				fdry_oid_hex(oid, hex));
	return err ? err : fdry_object_stored(t, oid, &rec, ret);
}

int fdry_get_map(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_span *ret)
{
	int err = turn_begin(g);

	if (err)
		return err;
	err = object_map(&g->txn, oid, ret);
	turn_end(g);
	return err;
}

int fdry_get_verify(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_span data, bool always, bool *hashed)
{
	int err = fdry_store_check(g->s);
	bool due;

	if (err)
		return err;
	due = always || !fdry_seen_has(&g->seen, g->s->env, oid);
	if (due) {
		err = fdry_object_verify(oid, data);
		if (err)
			return err;
		fdry_seen_add(&g->seen, oid);
	}
	if (hashed)
		*hashed = due;
	return 0;
}

void fdry_get_end(struct fdry_get *g)
{
	if (!g)
		return;
	if (!fdry_store_check(g->s)) {
		view_close(g);
		fdry_seen_end(&g->seen, g->s->env);
		fdry_env_unshare(g->s->env);
	}
	fdry_seen_release(&g->seen);
	fdry_unpacker_release(&g->unpacker);
	free(g);
}
