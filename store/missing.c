// SPDX-License-Identifier: Apache-2.0
/* missing.c - whether an image is complete in the store. */
#include "store/internal.h"

struct look {
	struct fdry_txn *t;
	struct fdry_complete *ret;
};

/* Bytes that were removed as damaged, or are not there, are missing as well. */
static int visit(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	struct look *l = arg;
	struct fdry_span stored;
	int err;

	l->ret->objects++;
	if (!rec) {
		l->ret->missing++;
		return 0;
	}
	l->ret->bytes += rec->size;
	err = fdry_object_stored(l->t, oid, rec, &stored);
	if (err == -FDRY_E_CORRUPT || err == -FDRY_E_NOENT) {
		l->ret->missing++;
		return 0;
	}
	return err;
}

int fdry_store_complete(struct fdry_store *s, const struct fdry_oid *image,
			struct fdry_complete *ret)
{
	struct fdry_complete c = { 0 };
	struct fdry_idset seen = { 0 };
	struct fdry_txn t;
	struct look l = { &t, &c };
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = fdry_reach(&t, image, &seen, visit, &l);
	fdry_txn_abort(&t);
	fdry_idset_release(&seen);
	if (!err)
		*ret = c;
	return err;
}
