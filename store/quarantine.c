// SPDX-License-Identifier: Apache-2.0
/*
 * quarantine.c - removing damaged bytes that no source can replace.
 *
 * The record stays, with kinds, links and size; its codec says that there are no bytes. So objects
 * that it links to stay alive, errors can name the object, and putting the same object again
 * restores its bytes.
 */
#include "store/internal.h"

/* Is the object there and damaged? */
static int is_damaged(struct fdry_txn *t, const struct fdry_oid *oid, bool *record_ret, bool *ret)
{
	struct fdry_unpacker u = { 0 };
	struct fdry_buf scratch = { 0 };
	struct fdry_record rec;
	bool found = false;
	int err = fdry_record_get(t, oid, &found, &rec);

	*record_ret = !err;
	if (!err && found && rec.codec != FDRY_CODEC_NONE)
		err = fdry_object_check(t, oid, &rec, &u, &scratch);
	fdry_unpacker_release(&u);
	fdry_buf_release(&scratch);
	*ret = err == -FDRY_E_CORRUPT;
	return *ret ? 0 : err;
}

int fdry_quarantine(struct fdry_txn *t, const struct fdry_oid *oid)
{
	struct fdry_buf links = { 0 };
	struct fdry_record rec;
	bool damaged = false, has_record = false;
	int err = is_damaged(t, oid, &has_record, &damaged);

	if (err || !damaged)
		return err;
	if (!has_record)
		return fdry_txn_delete(t, FDRY_TABLE_OBJECTS, fdry_oid_span(oid)) ?:
		       fdry_txn_delete(t, FDRY_TABLE_DATA, fdry_oid_span(oid));
	err = fdry_record_need(t, oid, &rec);
	if (err)
		return err;
	err = fdry_buf_put(&links, rec.links.data, rec.links.len); /* a put may move the record */
	if (err)
		return err;
	rec.codec = FDRY_CODEC_NONE;
	rec.stored = 0;
	rec.links = (struct fdry_span){ links.data, links.len };
	err = fdry_record_put(t, oid, &rec) ?:
	      fdry_txn_delete(t, FDRY_TABLE_DATA, fdry_oid_span(oid));
	fdry_buf_release(&links);
	return err;
}
