/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - what a transaction sees, read from LMDB's pages without LMDB; for the files that include
 * db.h.
 */
#ifndef FDRY_STORE_VIEW_H
#define FDRY_STORE_VIEW_H

#include "store/lmdb.h"

struct fdry_db;

/* Before LMDB opens data.mdb: are the numbers in its meta pages possible? LMDB
 * itself refuses a page that is no meta page. */
int fdry_metas_check(const struct fdry_db *db) __must_check;

/* The meta page was replaced by a later one meanwhile: begin the transaction again. */
#define FDRY_VIEW_AGAIN 1
/* Read the meta page and the roots of the tables that @t sees into its view. */
int fdry_view_begin(struct fdry_txn *t) __must_check;

/* Before a value is replaced or deleted, check that it has the number of pages that its first page
 * states. See fdry_txn_check(). */
int fdry_view_check_value(const struct fdry_txn *t, enum fdry_table table,
			  struct fdry_span key) __must_check;

/* FDRY_E_CORRUPT: a page is damaged; @doing: "read". */
int fdry_damage_fail(const struct fdry_db *db, struct fdry_damage d, const char *doing);

#endif
