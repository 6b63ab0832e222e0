// SPDX-License-Identifier: Apache-2.0
/*
 * gc.c - removing what no ref reaches: mark from the refs, then delete in short transactions.
 *
 * The store's lock is held exclusively, so no seal or load is under way: whatever is not
 * reached now is reached by nobody. Anything that does not add up (a link to what is not
 * there, a damaged record, a table that counts otherwise) ends the collection before it
 * removes anything, since what was lost may be what kept the rest alive. Objects go
 * before what they link to, so that an interrupted collection leaves no half image.
 */
#include <stdlib.h>

#include "arch/log.h"
#include "store/internal.h"

#define BATCH_BYTES (64u << 20)
#define BATCH_ITEMS 1024

struct dead {
	struct fdry_oid oid;
	uint32_t kinds;
	uint64_t stored;
};

struct gc {
	struct fdry_txn t;
	struct fdry_idset live;
	struct fdry_buf dead; /* struct dead each */
	uint64_t walked;
	const char *ref; /* the one that is being followed */
	struct fdry_gc_report report;
};

/* --- mark --- */

static int mark_object(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct gc *gc = arg;

	if (rec)
		return 0;
	return fdry_fail(FDRY_E_CORRUPT, "ref '%s' needs object %s, which is not there; nothing is collected until "
			 "the ref is removed or sealed anew", gc->ref, fdry_oid_hex(oid, hex));
}

static int mark_ref(void *arg, struct fdry_span key, struct fdry_span value)
{
	char name[FDRY_REF_NAME_MAX + 1] = "";
	struct gc *gc = arg;
	struct fdry_ref ref;
	int err = fdry_ref_parse(value, &ref);

	memcpy(name, key.data, key.len < FDRY_REF_NAME_MAX ? key.len : FDRY_REF_NAME_MAX);
	if (err)
		return fdry_fail_at(err, "ref '%s'", name);
	gc->ref = name;
	err = fdry_reach(&gc->t, &ref.oid, &gc->live, mark_object, gc);
	gc->ref = NULL;
	return err;
}

/* --- list the dead --- */

static int dead_put(struct gc *gc, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	struct dead d = { .oid = *oid, .kinds = rec->kinds, .stored = rec->stored };

	gc->report.dead++;
	gc->report.dead_bytes += rec->size;
	gc->report.dead_stored += rec->stored;
	return fdry_buf_put(&gc->dead, &d, sizeof(d));
}

static int walk_object(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct fdry_record rec;
	struct fdry_oid oid;
	struct gc *gc = arg;
	int err = fdry_record_parse(value, &rec);

	if (err || key.len != FDRY_OID_SIZE)
		return err ? err : fdry_fail(FDRY_E_CORRUPT, "an object has a key of %zu bytes; run foundry-store verify", key.len);
	memcpy(oid.b, key.data, FDRY_OID_SIZE);
	gc->walked++;
	if (!fdry_idset_has(&gc->live, &oid))
		return dead_put(gc, &oid, &rec);
	gc->report.live++;
	return 0;
}

/* Bytes without a record: what damage or a program of another version left. */
static int walk_data(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct fdry_record none = { .size = value.len, .stored = value.len }, rec;
	struct fdry_oid oid;
	struct gc *gc = arg;
	bool found = false;
	int err;

	if (key.len != FDRY_OID_SIZE)
		return fdry_fail(FDRY_E_CORRUPT, "an object has a key of %zu bytes; run foundry-store verify", key.len);
	memcpy(oid.b, key.data, FDRY_OID_SIZE);
	err = fdry_record_get(&gc->t, &oid, &found, &rec);
	return err || found ? err : dead_put(gc, &oid, &none);
}

static int walk(struct gc *gc)
{
	struct fdry_span all = { 0 };
	uint64_t count = 0;
	int err = fdry_txn_each(&gc->t, FDRY_TABLE_REFS, all, mark_ref, gc);

	if (!err)
		err = fdry_txn_each(&gc->t, FDRY_TABLE_OBJECTS, all, walk_object, gc);
	if (!err)
		err = fdry_txn_count(&gc->t, FDRY_TABLE_OBJECTS, &count);
	if (!err && count != gc->walked)
		err = fdry_fail(FDRY_E_CORRUPT, "the store counts %llu objects and lists %llu; run foundry-store verify",
				(unsigned long long)count, (unsigned long long)gc->walked);
	return err ? err : fdry_txn_each(&gc->t, FDRY_TABLE_DATA, all, walk_data, gc);
}

/* --- delete --- */

static int dead_cmp(const void *a, const void *b)
{
	const struct dead *x = a, *y = b;

	if (x->kinds != y->kinds)
		return x->kinds > y->kinds ? -1 : 1;
	return memcmp(&x->oid, &y->oid, sizeof(x->oid));
}

/* Deletes the next batch; @ret: how many. */
static int delete_batch(struct fdry_db *db, const struct dead *dead, size_t count, size_t *ret)
{
	struct fdry_txn t;
	uint64_t bytes = 0;
	size_t i;
	int err = fdry_txn_write(db, 0, &t);

	if (err)
		return err;
	for (i = 0; i < count && i < BATCH_ITEMS && bytes < BATCH_BYTES && !err; i++) {
		bytes += dead[i].stored;
		err = fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&dead[i].oid));
		if (!err)
			err = fdry_txn_delete(&t, FDRY_TABLE_DATA, fdry_oid_span(&dead[i].oid));
	}
	if (err) {
		fdry_txn_abort(&t);
		return err;
	}
	*ret = i;
	return fdry_txn_commit(&t);
}

static int delete_all(struct fdry_db *db, struct fdry_buf *list)
{
	struct dead *dead = (void *)list->data;
	size_t count = list->len / sizeof(*dead), done = 0, n = 0;
	int err = 0;

	if (count)
		qsort(dead, count, sizeof(*dead), dead_cmp);
	for (; done < count && !err; done += n)
		err = delete_batch(db, dead + done, count - done, &n);
	return err;
}

/*
 * What a transaction frees, LMDB uses again from the second one after it: with one more
 * commit now, the next seal finds the space even where the disk is full.
 */
static void settle(struct fdry_db *db)
{
	struct fdry_txn t;
	int err = fdry_txn_write(db, 0, &t);

	if (!err) {
		err = fdry_ref_touch(&t);
		if (err)
			fdry_txn_abort(&t);
		else
			err = fdry_txn_commit(&t);
	}
	if (err)
		fdry_debug("the collected space is not ready yet: %s", fdry_last_error());
}

static int collect(struct fdry_store *s, bool dry_run, struct fdry_gc_report *ret)
{
	struct gc gc = { 0 };
	int err = fdry_txn_read(s->env->db, &gc.t);

	if (err)
		return err;
	err = walk(&gc);
	fdry_txn_abort(&gc.t);
	if (!err && !dry_run && gc.dead.len) {
		fdry_seen_forget(s->env);
		err = delete_all(s->env->db, &gc.dead);
		if (!err)
			settle(s->env->db);
	}
	if (!err)
		*ret = gc.report;
	fdry_buf_release(&gc.dead);
	fdry_idset_release(&gc.live);
	return err;
}

int fdry_store_gc(struct fdry_store *s, bool dry_run, struct fdry_gc_report *ret)
{
	int fd = -1, err = dry_run ? fdry_store_check(s) : fdry_store_check_write(s);

	if (err)
		return err;
	err = fdry_env_exclude(s->env, &fd);
	if (err)
		return err;
	err = collect(s, dry_run, ret);
	fdry_env_unexclude(fd);
	return err;
}
