// SPDX-License-Identifier: Apache-2.0
/*
 * db_error.c - turns LMDB's error codes into errors of this library.
 */
#include <errno.h>
#include <string.h>

#include "store/db.h"
#include "store/internal.h"
#include "store/space.h"

struct db_error {
	int rc;
	enum fdry_errcode code;
	const char *text;
};

static const struct db_error db_errors[] = {
#define DB_ERROR(rc, code, text) { rc, FDRY_E_##code, text },
#include "store/lmdb_errors.def"
#undef DB_ERROR
};

static bool is_damage(int rc)
{
	return rc == DB_ASSERTED || rc == MDB_CORRUPTED || rc == MDB_PAGE_NOTFOUND ||
	       rc == MDB_PANIC || rc == MDB_BAD_TXN;
}

int fdry_db_fail(const struct fdry_db *db, int rc, const char *doing)
{
	struct stat st;
	size_t i;

	if (is_damage(rc) && db->home)
		fdry_verified_forget(db->home);
	/* LMDB returns this if only a part of a write fitted */
	if (rc == EIO && !fdry_db_stat(db, &st))
		(void)fdry_space_nearly_full(db->dir, (uint64_t)st.st_size, &rc);
	for (i = 0; i < sizeof(db_errors) / sizeof(db_errors[0]); i++)
		if (db_errors[i].rc == rc)
			return fdry_fail(db_errors[i].code, "store %s: cannot %s: %s", db->dir,
					 doing, db_errors[i].text);
	/* LMDB's other error codes do not fit our calls, unless pages are damaged. */
	if (rc >= MDB_KEYEXIST && rc <= MDB_LAST_ERRCODE)
		return fdry_fail(FDRY_E_CORRUPT,
				 "store %s: cannot %s: pages of data.mdb are damaged (%s); "
				 FDRY_DAMAGE_ADVICE,
				 db->dir, doing, mdb_strerror(rc));
	return fdry_fail(FDRY_E_STORE,
			 "store %s: cannot %s: %s; check the disk, then run foundry-store verify",
			 db->dir, doing, strerror(rc));
}
