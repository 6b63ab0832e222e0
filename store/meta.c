// SPDX-License-Identifier: Apache-2.0
/*
 * meta.c - the table meta: a few named records that describe the store as a whole (format.h lists
 * them).
 */
#include "store/internal.h"

static struct fdry_span key_span(const char *key)
{
	return (struct fdry_span){ (const uint8_t *)key, strlen(key) };
}

int fdry_meta_get(struct fdry_txn *t, const char *key, struct fdry_span *ret)
{
	return fdry_txn_get(t, FDRY_TABLE_META, key_span(key), ret);
}

int fdry_meta_put(struct fdry_txn *t, const char *key, const void *data, size_t len)
{
	return fdry_txn_put(t, FDRY_TABLE_META, key_span(key), (struct fdry_span){ data, len });
}

int fdry_meta_delete(struct fdry_txn *t, const char *key)
{
	return fdry_txn_delete(t, FDRY_TABLE_META, key_span(key));
}

int fdry_gc_announced(struct fdry_txn *t, bool *ret)
{
	struct fdry_span value = { 0 };
	int err = fdry_meta_get(t, FDRY_META_COLLECTING, &value);

	if (err)
		return err;
	*ret = value.data != NULL;
	return 0;
}
