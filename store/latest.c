// SPDX-License-Identifier: Apache-2.0
/*
 * latest.c - reading what was committed last, also by a writer that died.
 *
 * A committing writer puts the meta page into the file and then the transaction's number where readers
 * look for it. If it dies in between, readers go on seeing the state before, until the next writer
 * begins, who repairs the number. What they see is whole; but a decision made by it is wrong.
 */
#include "store/lmdb.h"

int fdry_txn_read_latest(struct fdry_db *db, struct fdry_txn *ret)
{
	int err = fdry_txn_read(db, ret);
	struct fdry_txn t;

	if (err || !fdry_txn_is_behind(ret))
		return err;
	fdry_txn_abort(ret);
	err = fdry_txn_write(db, 0, &t);
	if (err)
		return err;
	fdry_txn_abort(&t);
	return fdry_txn_read(db, ret);
}
