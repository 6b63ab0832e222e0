// SPDX-License-Identifier: Apache-2.0
/*
 * limit.c - how large the store may be: by a record in it, or by FOUNDRY_STORE_LIMIT.
 *
 * The environment variable applies to the seals and evictions of this process. While it is set,
 * they ignore the store's own record.
 */
#include "lib/config.h"
#include "lib/opts.h"
#include "store/internal.h"

#define UNSET UINT64_MAX /* the environment variable is not set */

static int record_get(struct fdry_txn *t, uint64_t *ret)
{
	struct fdry_span value;
	const void *p;
	int err = fdry_meta_get(t, FDRY_META_LIMIT, &value);

	if (err)
		return err;
	p = value.data ? fdry_span_at(value, 0, 8) : NULL;
	if (value.data && (!p || value.len != 8))
		return fdry_fail(FDRY_E_CORRUPT,
				 "the record of the store's limit is damaged; set the limit anew");
	*ret = p ? fdry_get64(p) : 0;
	return 0;
}

int fdry_limit_read(struct fdry_txn *t, uint64_t *ret)
{
	uint64_t bytes = UNSET;
	int err = fdry_config_number(FDRY_CONFIG_STORE_LIMIT, &bytes);

	if (err)
		return err;
	if (bytes == UNSET)
		return record_get(t, ret);
	*ret = bytes;
	return 0;
}

int fdry_store_limit(struct fdry_store *store, uint64_t *limit, uint64_t *used)
{
	uint64_t l = 0, u = 0;
	struct fdry_txn t;
	int err = fdry_need(store) ?: fdry_store_read(store, &t);

	if (err)
		return err;
	err = fdry_limit_read(&t, &l) ?: fdry_txn_bytes(&t, &u);
	fdry_txn_abort(&t);
	if (err)
		return err;
	if (limit)
		*limit = l;
	if (used)
		*used = u;
	return 0;
}

int fdry_store_set_limit(struct fdry_store *store, uint64_t bytes)
{
	struct fdry_txn t;
	uint8_t value[8];
	int err = fdry_need(store) ?: fdry_store_check_write(store) ?:
		  fdry_txn_write(store->env->db, sizeof(value), &t);

	if (err)
		return err;
	fdry_set64(value, bytes);
	err = bytes ? fdry_meta_put(&t, FDRY_META_LIMIT, value, sizeof(value))
		    : fdry_meta_delete(&t, FDRY_META_LIMIT);
	return fdry_txn_end(&t, err);
}
