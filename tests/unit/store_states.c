// SPDX-License-Identifier: Apache-2.0
/*
 * Every state of data.mdb that LMDB writes is sound for our checks, and our reader reads it as LMDB
 * does. The states come from random changes, which stay for a while at one end of the keys, or are
 * anywhere.
 */
#include "store/db.h"
#include "store/view.h"
#include "tests/lib/store.h"

#define ROUNDS 60
#define ENTRIES_MAX 1500

static uint64_t seed = 1;

static uint64_t random_below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

/* Keys have numbers, and those of [first, last) may be in the tables. */
static uint64_t first = 1u << 20, last = 1u << 20;
static int shape; /* of the keys */
static enum { APPEND, PREPEND, ANYWHERE, FIRST_GO, LAST_GO, ANY_GO, PHASES } phase;

/* Keys ascend with their numbers, but for shape 0: these lie in no order, as ids do. */
static size_t key_make(uint64_t nr, uint8_t key[FDRY_KEY_MAX])
{
	const size_t lens[] = { 32, FDRY_KEY_MAX, 4 + nr * 2654435761u % (FDRY_KEY_MAX - 3),
				4 + nr * 7919 % 100 };
	uint64_t number = shape ? nr : nr * 2654435761u;
	int i;

	memset(key, 'a', lens[shape]);
	for (i = 0; i < 4; i++)
		key[i] = (uint8_t)(number >> (24 - 8 * i));
	return lens[shape];
}

/* The number of the next change's key. */
static uint64_t number_select(void)
{
	uint64_t among = last - first;

	if (phase == APPEND)
		return last++;
	if (phase == PREPEND)
		return --first;
	if (!among)
		return first;
	if (phase == FIRST_GO)
		return first++;
	return phase == LAST_GO ? --last : first + random_below(among);
}

static void change(struct fdry_txn *t)
{
	static uint8_t value[40000];
	enum fdry_table table = random_below(3) ? FDRY_TABLE_DATA : FDRY_TABLE_OBJECTS;
	uint8_t key[FDRY_KEY_MAX];
	struct fdry_span k = { key, key_make(number_select(), key) };
	size_t len = random_below(4) ? random_below(2100) : random_below(sizeof(value));

	if (phase >= FIRST_GO) {
		ok(fdry_txn_delete(t, FDRY_TABLE_DATA, k));
		ok(fdry_txn_delete(t, FDRY_TABLE_OBJECTS, k));
		return;
	}
	ok(fdry_txn_put(t, table, k, (struct fdry_span){ value, len }));
	if (!random_below(10)) /* LMDB may shorten it in place */
		ok(fdry_txn_put(t, table, k, (struct fdry_span){ value, random_below(len + 1) }));
}

/* A key that may be in the tables, or beside them, or be only the beginning of one. */
static struct fdry_span key_near(uint8_t key[FDRY_KEY_MAX])
{
	size_t len = key_make(first - 20 + random_below(last - first + 40), key);

	if (!random_below(4))
		len = 1 + random_below(len);
	return (struct fdry_span){ key, len };
}

static void find_same(struct fdry_txn *t, enum fdry_table table)
{
	uint8_t key[FDRY_KEY_MAX];
	struct fdry_span got, k = key_near(key);
	MDB_val want_key = val_of(k), want = { 0 };
	int rc = mdb_get(t->txn, t->db->tables[table], &want_key, &want);

	ok(fdry_txn_get(t, table, k, &got));
	ck_assert(rc == MDB_NOTFOUND ? !got.data
				     : !rc && got.data == want.mv_data && got.len == want.mv_size);
}

struct walk {
	MDB_cursor *cursor;
	MDB_val key, value;
	int rc; /* of the cursor */
	uint64_t left; /* entries to look at */
};

static int entry_same(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct walk *w = arg;

	ck_assert(!w->rc && w->key.mv_size == key.len && w->key.mv_data == key.data);
	ck_assert(w->value.mv_size == value.len && w->value.mv_data == value.data);
	if (!--w->left)
		return FDRY_EACH_STOP;
	w->rc = mdb_cursor_get(w->cursor, &w->key, &w->value, MDB_NEXT);
	return 0;
}

static void walk_same(struct fdry_txn *t, enum fdry_table table, struct fdry_span from,
		      uint64_t entries)
{
	struct walk w = { .key = val_of(from), .left = entries };

	ck_assert(!mdb_cursor_open(t->txn, t->db->tables[table], &w.cursor));
	w.rc = mdb_cursor_get(w.cursor, &w.key, &w.value, from.len ? MDB_SET_RANGE : MDB_FIRST);
	ok(fdry_txn_each(t, table, from, entry_same, &w));
	ck_assert(!w.left || w.rc == MDB_NOTFOUND);
	mdb_cursor_close(w.cursor);
}

/* The state is sound, and reads as LMDB reads it: present keys, absent keys, and lists. */
static void state_check(struct fdry_txn *t)
{
	const enum fdry_table tables[] = { FDRY_TABLE_DATA, FDRY_TABLE_OBJECTS };
	uint8_t key[FDRY_KEY_MAX];
	size_t i, k;

	ok(fdry_txn_check(t, true, "write"));
	for (i = 0; i < 2; i++) {
		for (k = 0; k < 20; k++)
			find_same(t, tables[i]);
		walk_same(t, tables[i], (struct fdry_span){ 0 }, UINT64_MAX);
		for (k = 0; k < 3; k++)
			walk_same(t, tables[i], key_near(key), 1 + random_below(50));
	}
}

static void now_check(struct fdry_db *db)
{
	struct fdry_txn t;

	ok(fdry_txn_read(db, &t));
	state_check(&t);
	fdry_txn_abort(&t);
}

/* A copy that LMDB makes, with or without its free pages, is as sound, also after changes. */
static void copy_check(struct fdry_db *db, unsigned int flags)
{
	char folder[400];
	struct fdry_db_opts opts = { .dir = folder, .mode = 0600 };
	struct fdry_db *copy;
	struct fdry_txn t;
	int i;

	snprintf(folder, sizeof(folder), "%s.copy", path);
	ck_assert(!mkdir(folder, 0700) && !mdb_env_copy2(db->env, folder, flags));
	ok(fdry_db_open(&opts, NULL, &copy));
	now_check(copy);
	for (i = 0; i < 3; i++) {
		ok(fdry_txn_write(copy, 1 << 24, &t));
		change(&t);
		ok(fdry_txn_commit(&t));
		now_check(copy);
	}
	fdry_db_close(copy);
	ck_assert(!nftw(folder, rm_one, 8, FTW_DEPTH | FTW_PHYS));
}

/* Entries appended, prepended, put anywhere and deleted, with readers that keep free pages from
 * being used, and copies. */
START_TEST(states_that_lmdb_writes_are_sound)
{
	struct fdry_txn readers[4] = { { 0 } }, t;
	struct fdry_store *s = store_make();
	uint64_t i, round, n;

	shape = _i;
	seed = 88172645463325252u + (uint64_t)_i;
	for (round = 0; round < ROUNDS; round++) {
		phase = random_below(12) ? phase : random_below(PHASES);
		if (last - first > ENTRIES_MAX)
			phase = FIRST_GO + (int)random_below(2);
		s->env->db->sound = s->env->db->heads = (struct fdry_db_state){ 0 };
		fdry_checked_forget(&s->env->dir);
		ok(fdry_txn_write(s->env->db, 1 << 26, &t));
		n = random_below(4) ? random_below(10) : random_below(ENTRIES_MAX / 2);
		for (i = 0; i < n; i++)
			change(&t);
		if (random_below(30))
			ok(fdry_txn_commit(&t));
		else
			fdry_txn_abort(&t);
		i = random_below(8);
		if (i < 4) {
			if (readers[i].txn)
				state_check(&readers[i]);
			fdry_txn_abort(&readers[i]);
			ok(fdry_txn_read(s->env->db, &readers[i]));
		}
		now_check(s->env->db);
		if (!random_below(20))
			copy_check(s->env->db, random_below(3) ? MDB_CP_COMPACT : 0);
	}
	for (i = 0; i < 4; i++)
		fdry_txn_abort(&readers[i]);
	fdry_store_close(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_states");
	TCase *tc = tcase_create("states");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 100);
	tcase_add_loop_test(tc, states_that_lmdb_writes_are_sound, 0, 4);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
