// SPDX-License-Identifier: Apache-2.0
/*
 * objects.c - questions about objects: one transaction each.
 *
 * Lists are copied out of the transaction before the caller's function sees them. So the function
 * may use the store, and no view lasts as long as the caller works.
 */
#include <stdlib.h>

#include "store/internal.h"

int fdry_store_info(struct fdry_store *s, const struct fdry_oid *oid, struct fdry_object_info *ret)
{
	struct fdry_record rec;
	struct fdry_txn t;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = fdry_record_need(&t, oid, &rec);
	if (!err)
		fdry_record_info(oid, &rec, ret);
	fdry_txn_abort(&t);
	return err;
}

static int links_copy(struct fdry_txn *t, const struct fdry_oid *oid, struct fdry_oid **ret,
		      size_t *count)
{
	struct fdry_oid *links;
	struct fdry_record rec;
	int err = fdry_record_need(t, oid, &rec);

	if (err)
		return err;
	links = malloc(rec.links.len + 1);
	if (!links)
		return fdry_nomem();
	memcpy(links, rec.links.data, rec.links.len);
	*ret = links;
	*count = rec.nlinks;
	return 0;
}

int fdry_store_links(struct fdry_store *s, const struct fdry_oid *oid, struct fdry_oid **ret,
		     size_t *count)
{
	struct fdry_txn t;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = links_copy(&t, oid, ret, count);
	fdry_txn_abort(&t);
	return err;
}

/* --- lists --- */

static int info_put(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	struct fdry_object_info info = { 0 };
	char hex[FDRY_OID_HEX_SIZE];

	if (!rec)
		return fdry_fail(FDRY_E_NOENT,
				 "object %s is not in the store; see foundry-store verify",
				 fdry_oid_hex(oid, hex));
	fdry_record_info(oid, rec, &info);
	return fdry_buf_put(arg, &info, sizeof(info));
}

static int infos_pass(const struct fdry_buf *all, fdry_object_fn fn, void *arg)
{
	const struct fdry_object_info *info = (const void *)all->data;
	size_t i;
	int err;

	for (i = 0; i < all->len / sizeof(*info); i++) {
		err = fn(arg, &info[i]);
		if (err)
			return err;
	}
	return 0;
}

static int each_beginning(struct fdry_store *s, const char *digits, fdry_object_fn fn, void *arg)
{
	struct fdry_buf all = { 0 };
	struct fdry_txn t;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = fdry_record_each(&t, digits, info_put, &all);
	fdry_txn_abort(&t);
	err = err ?: infos_pass(&all, fn, arg);
	fdry_buf_release(&all);
	return err;
}

int fdry_store_each(struct fdry_store *s, fdry_object_fn fn, void *arg)
{
	return each_beginning(s, "", fn, arg);
}

int fdry_store_prefix(struct fdry_store *s, const char *digits, fdry_object_fn fn, void *arg)
{
	size_t len = strlen(digits);
	int err = fdry_store_check(s);

	if (err)
		return err;
	if (!len || len > 2 * FDRY_OID_SIZE)
		return fdry_fail(FDRY_E_INVAL,
				 "the beginning of an id has %zu digits; give 1 to %d", len,
				 2 * FDRY_OID_SIZE);
	return each_beginning(s, digits, fn, arg);
}

int fdry_store_reach(struct fdry_store *s, const struct fdry_oid *oid, fdry_object_fn fn, void *arg)
{
	struct fdry_idset seen = { 0 };
	struct fdry_buf all = { 0 };
	struct fdry_txn t;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = fdry_reach(&t, oid, &seen, info_put, &all);
	fdry_txn_abort(&t);
	fdry_idset_release(&seen);
	err = err ?: infos_pass(&all, fn, arg);
	fdry_buf_release(&all);
	return err;
}
