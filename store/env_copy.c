// SPDX-License-Identifier: Apache-2.0
/* env_copy.c - copies an environment's pages that are in use to another file. */
#include <errno.h>
#include <unistd.h>

#include "store/db.h"
#include "store/internal.h"

/* LMDB copies in a thread of its own. */
static int copy_fail(const struct fdry_db *db, int rc)
{
	if (rc != EAGAIN)
		return fdry_db_fail(db, rc, "copy");
	return fdry_fail(FDRY_E_NOMEM,
			 "store %s: cannot copy: no thread can be started; raise the limit of "
			 "processes (ulimit -u)",
			 db->dir);
}

int fdry_env_copy(const char *dir, const struct fdry_dir *entered, int fd)
{
	const struct fdry_db_opts o = {
		.dir = dir, .entered = entered, .readonly = true, .fixed = true,
	};
	struct fdry_db *db = fdry_db_new(&o);
	struct fdry_xfsz x;
	int rc, err;

	if (!db)
		return fdry_nomem();
	rc = fdry_env_open(&o, db);
	if (rc) {
		err = fdry_db_fail(db, rc, "read");
		goto out_free;
	}
	fdry_xfsz_hold(&x);
	rc = guarded(mdb_env_copyfd2(db->env, fd, MDB_CP_COMPACT));
	fdry_xfsz_release(&x);
	err = rc ? copy_fail(db, rc) : 0;
	mdb_env_close(db->env);
out_free:
	fdry_db_free(db);
	return err;
}
