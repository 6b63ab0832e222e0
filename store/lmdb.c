// SPDX-License-Identifier: Apache-2.0
/*
 * lmdb.c - the only file that knows LMDB; see lmdb.h.
 *
 * What must stay true:
 * - No flag that trades durability or other processes' safety for speed is set
 *   (Documentation/design/store.rst goes through them one by one).
 * - The map is moved only while no transaction of this process is open: a transaction
 *   counts as a user from before it begins until after it ended.
 * - LMDB asserts where it finds pages damaged. Every call that may do so runs in a guard,
 *   so that an assertion comes back as an error; the environment is then only good for
 *   closing.
 */
#include "store/lmdb.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "arch/log.h"

#define READERS_MAX 1024
#define MAP_SIZE_MIN (64ull << 20)
#define MAP_SIZE_LIMIT (1ull << 46)
#define MAP_SLACK (8ull << 20) /* pages of the trees that a transaction touches */
#define KEY_MAX 511            /* LMDB's */
/* A write that failed although this much was free did not fail for want of space. */
#define NEARLY_FULL (16ull << 20)

/* What a guarded call answers where LMDB's assertion failed; no code of LMDB's or errno's. */
#define DB_ASSERTED (-1)

struct fdry_db {
	MDB_env *env;
	MDB_dbi tables[FDRY_TABLE_COUNT];
	pthread_mutex_t lock; /* users, and the map while it moves */
	unsigned int users;   /* transactions and pins of this process */
	uint64_t page_size;
	bool readonly;
	char dir[];
};

static const char *const table_names[] = {
#define X(NAME, name) [FDRY_TABLE_##NAME] = name,
	FDRY_TABLES(X)
#undef X
};

/* --- assertions --- */

struct guard {
	jmp_buf env;
	struct guard *outer;
};

static __thread struct guard *guard;

static void on_assert(MDB_env *env, const char *text)
{
	(void)env;
	fdry_warn("LMDB: %s", text);
	if (guard)
		longjmp(guard->env, 1);
}

#define guarded(call) ({ \
	struct guard guard_ = { .outer = guard }; \
	volatile int rc_ = DB_ASSERTED; \
	guard = &guard_; \
	if (!_setjmp(guard_.env)) \
		rc_ = (call); \
	guard = guard_.outer; \
	rc_; })

/* --- errors --- */

struct db_error {
	int rc;
	enum fdry_errcode code;
	const char *text;
};

static const struct db_error db_errors[] = {
	{ DB_ASSERTED, FDRY_E_CORRUPT, "its pages are damaged; run foundry-store verify" },
	{ MDB_CORRUPTED, FDRY_E_CORRUPT, "its pages are damaged; run foundry-store verify" },
	{ MDB_PAGE_NOTFOUND, FDRY_E_CORRUPT, "a page is missing; run foundry-store verify" },
	{ MDB_PANIC, FDRY_E_CORRUPT, "an earlier fault left it unusable; close it and run foundry-store verify" },
	{ MDB_INVALID, FDRY_E_NOSTORE, "data.mdb is not a store's; name another directory" },
	{ MDB_INCOMPATIBLE, FDRY_E_NOSTORE, "data.mdb belongs to another program; name another directory" },
	{ MDB_VERSION_MISMATCH, FDRY_E_VERSION, "another version of LMDB made it; use a program built with that version" },
	{ MDB_MAP_FULL, FDRY_E_FULL, "its address space is used up; run foundry-store gc" },
	{ MDB_READERS_FULL, FDRY_E_LOCKED, "all 1024 readers' places are taken; end some processes" },
	{ ENOENT, FDRY_E_NOSTORE, "data.mdb is empty; bring it back from a copy, or remove it and seal anew" },
	{ ENOSPC, FDRY_E_FULL, "the disk is full; free space or run foundry-store gc" },
	{ EDQUOT, FDRY_E_FULL, "the disk quota is used up; free space or run foundry-store gc" },
	{ EFBIG, FDRY_E_FULL, "the file size limit is reached; raise it (ulimit -f)" },
	{ EACCES, FDRY_E_PERM, "permission denied; readers need to write lock.mdb too" },
	{ EPERM, FDRY_E_PERM, "permission denied; readers need to write lock.mdb too" },
	{ EROFS, FDRY_E_PERM, "the file system is read-only; mount it writable" },
	{ ENOMEM, FDRY_E_NOMEM, "out of host memory or address space (ulimit -v); free some" },
	{ EAGAIN, FDRY_E_LOCKED, "a process with this one's id uses it from another PID namespace; "
	  "give this one write permission, or another id" },
};

static int file_stat(const struct fdry_db *db, struct stat *ret)
{
	int fd, rc = mdb_env_get_fd(db->env, &fd);

	if (!rc && fstat(fd, ret))
		rc = errno;
	return rc;
}

/* LMDB answers EIO where only a part of what it wrote fitted: the disk, or the limit on files. */
static int full_or_eio(const struct fdry_db *db)
{
	struct rlimit limit;
	struct statvfs vfs;
	struct stat st;

	if (!statvfs(db->dir, &vfs) && (uint64_t)vfs.f_bavail * vfs.f_frsize < NEARLY_FULL)
		return ENOSPC;
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY && !file_stat(db, &st) &&
	    (uint64_t)st.st_size + NEARLY_FULL > limit.rlim_cur)
		return EFBIG;
	return EIO;
}

static int db_fail(const struct fdry_db *db, int rc, const char *doing)
{
	size_t i;

	if (rc == EIO)
		rc = full_or_eio(db);
	for (i = 0; i < sizeof(db_errors) / sizeof(db_errors[0]); i++)
		if (db_errors[i].rc == rc)
			return fdry_fail(db_errors[i].code, "store %s: cannot %s: %s", db->dir, doing, db_errors[i].text);
	return fdry_fail(FDRY_E_STORE, "store %s: cannot %s: %s; check the disk, then run foundry-store verify",
			 db->dir, doing, mdb_strerror(rc));
}

/* --- the map --- */

void fdry_db_pin(struct fdry_db *db)
{
	pthread_mutex_lock(&db->lock);
	db->users++;
	pthread_mutex_unlock(&db->lock);
}

void fdry_db_unpin(struct fdry_db *db)
{
	pthread_mutex_lock(&db->lock);
	db->users--;
	pthread_mutex_unlock(&db->lock);
}

/* Bytes up to the last page in use; not while the map may move. */
static uint64_t used_bytes(const struct fdry_db *db)
{
	MDB_envinfo info;

	mdb_env_info(db->env, &info);
	return (info.me_last_pgno + 1) * db->page_size;
}

/* 0, or LMDB's answer; EBUSY where transactions of ours are in the way. */
static int map_grow(struct fdry_db *db, uint64_t room)
{
	struct stat st = { 0 };
	MDB_envinfo info;
	uint64_t need;
	int rc = file_stat(db, &st);

	if (rc)
		return rc;
	mdb_env_info(db->env, &info);
	need = used_bytes(db) > (uint64_t)st.st_size ? used_bytes(db) : (uint64_t)st.st_size;
	if (__builtin_add_overflow(need, room, &need) || need > MAP_SIZE_LIMIT)
		return MDB_MAP_FULL;
	if (need <= info.me_mapsize)
		return 0;
	return db->users ? EBUSY : mdb_env_set_mapsize(db->env, need + need / 2);
}

/* Make the map hold what other processes have put and @room bytes more; the caller holds no transaction. */
static int map_fit(struct fdry_db *db, uint64_t room)
{
	int rc;

	pthread_mutex_lock(&db->lock);
	rc = map_grow(db, room + room / 8 + MAP_SLACK);
	pthread_mutex_unlock(&db->lock);
	if (rc == EBUSY)
		return fdry_fail(FDRY_E_LOCKED, "store %s: its map has to grow while another thread of this process uses it; "
				 "try again when that is done", db->dir);
	return rc ? db_fail(db, rc, "grow its map") : 0;
}

/* --- transactions --- */

static int txn_begin(struct fdry_db *db, unsigned int flags, struct fdry_txn *ret)
{
	MDB_txn *txn = NULL;
	int rc;

	fdry_db_pin(db);
	rc = guarded(mdb_txn_begin(db->env, NULL, flags, &txn));
	if (rc) {
		fdry_db_unpin(db);
		return rc;
	}
	*ret = (struct fdry_txn){ .db = db, .txn = txn, .exclusive = !(flags & MDB_RDONLY) };
	return 0;
}

/* Begin, and once more where the reason why it failed can be removed. */
static int txn_start(struct fdry_db *db, unsigned int flags, const char *doing, struct fdry_txn *ret)
{
	int dead = 0, err = 0, rc = txn_begin(db, flags, ret);

	if (rc == MDB_MAP_RESIZED) {
		err = map_fit(db, 0);
		rc = err ? 0 : txn_begin(db, flags, ret);
	} else if (rc == MDB_READERS_FULL) {
		mdb_reader_check(db->env, &dead);
		rc = txn_begin(db, flags, ret);
	}
	if (err)
		return err;
	return rc ? db_fail(db, rc, doing) : 0;
}

int fdry_txn_read(struct fdry_db *db, struct fdry_txn *ret)
{
	int rc = txn_begin(db, MDB_RDONLY, ret);

	if (!rc)
		return 0;
	/* A process with our id in another PID namespace has our place among the readers. The
	 * writers' lock does not care about ids: short views under it are right, if slower. */
	if (rc == EAGAIN && !db->readonly)
		return txn_start(db, 0, "read beside a process of the same id", ret);
	return txn_start(db, MDB_RDONLY, "begin to read", ret);
}

int fdry_txn_write(struct fdry_db *db, uint64_t room, struct fdry_txn *ret)
{
	int err = map_fit(db, room);

	return err ? err : txn_start(db, 0, "begin to write", ret);
}

void fdry_txn_abort(struct fdry_txn *t)
{
	if (!t->txn)
		return;
	(void)guarded((mdb_txn_abort(t->txn), 0));
	t->txn = NULL;
	fdry_db_unpin(t->db);
}

/*
 * LMDB does not write pages that were taken and given back within a transaction, so the
 * file may end before its last page; whoever opens it would have to find out that nothing
 * was cut off. A hole at the end says so at once. Only a writer may make the file longer.
 */
static void tail_fill(struct fdry_db *db)
{
	struct stat st = { 0 };
	MDB_txn *txn = NULL;
	int fd = -1;

	if (file_stat(db, &st) || (uint64_t)st.st_size >= used_bytes(db))
		return;
	if (guarded(mdb_txn_begin(db->env, NULL, 0, &txn)))
		return;
	if (!file_stat(db, &st) && (uint64_t)st.st_size < used_bytes(db) && !mdb_env_get_fd(db->env, &fd) &&
	    ftruncate(fd, (off_t)used_bytes(db)))
		fdry_debug("store %s: the end of data.mdb is left open: %s", db->dir, strerror(errno));
	(void)guarded((mdb_txn_abort(txn), 0));
}

int fdry_txn_commit(struct fdry_txn *t)
{
	int rc = guarded(mdb_txn_commit(t->txn));

	if (rc == DB_ASSERTED) { /* LMDB did not come to free it */
		fdry_txn_abort(t);
	} else {
		t->txn = NULL;
		if (!rc && t->exclusive)
			tail_fill(t->db);
		fdry_db_unpin(t->db);
	}
	return rc ? db_fail(t->db, rc, "commit") : 0;
}

/* --- entries --- */

static MDB_val val_of(struct fdry_span s)
{
	return (MDB_val){ .mv_size = s.len, .mv_data = (void *)(uintptr_t)s.data };
}

static struct fdry_span span_of(MDB_val v)
{
	return (struct fdry_span){ v.mv_data, v.mv_size };
}

int fdry_txn_get(struct fdry_txn *t, enum fdry_table table, struct fdry_span key, struct fdry_span *ret)
{
	MDB_val k = val_of(key), v = { 0 };
	int rc = guarded(mdb_get(t->txn, t->db->tables[table], &k, &v));

	if (rc && rc != MDB_NOTFOUND)
		return db_fail(t->db, rc, "read");
	*ret = rc ? (struct fdry_span){ NULL, 0 } : span_of(v);
	return 0;
}

int fdry_txn_put(struct fdry_txn *t, enum fdry_table table, struct fdry_span key, struct fdry_span value)
{
	MDB_val k = val_of(key), v = val_of(value);
	int rc = guarded(mdb_put(t->txn, t->db->tables[table], &k, &v, 0));

	return rc ? db_fail(t->db, rc, "write") : 0;
}

int fdry_txn_delete(struct fdry_txn *t, enum fdry_table table, struct fdry_span key)
{
	MDB_val k = val_of(key);
	int rc = guarded(mdb_del(t->txn, t->db->tables[table], &k, NULL));

	return rc && rc != MDB_NOTFOUND ? db_fail(t->db, rc, "delete") : 0;
}

int fdry_txn_count(struct fdry_txn *t, enum fdry_table table, uint64_t *ret)
{
	MDB_stat st = { 0 };
	int rc = mdb_stat(t->txn, t->db->tables[table], &st);

	if (rc)
		return db_fail(t->db, rc, "count");
	*ret = st.ms_entries;
	return 0;
}

/* --- walking --- */

/* LMDB's head of a page: number, unused, flags, end of the slots, begin of the entries; and what a leaf says. */
#define PAGE_AT_FLAGS 10
#define PAGE_AT_LOWER 12
#define PAGE_AT_UPPER 14
#define PAGE_HEAD 16
#define PAGE_LEAF 2

/* A walk from entry to entry: what must hold from one to the next. */
struct walk {
	const struct fdry_db *db;
	MDB_cursor *cursor;
	MDB_val key, value;
	uint8_t last[KEY_MAX];
	size_t last_len;
	const uint8_t *base; /* where page 0 must lie, as the first page told */
	bool mapped;         /* keys lie in the map, not in a writer's memory */
};

/* In a frame of its own, so that an assertion's jump spoils nobody's variables. */
static __attribute__((noinline)) int walk_step(struct walk *w, MDB_cursor_op op)
{
	return guarded(mdb_cursor_get(w->cursor, &w->key, &w->value, op));
}

/*
 * LMDB believes what pages say of themselves. A key lies in its leaf, whose head is at the
 * page's beginning: what cannot be right there would crash a writer sooner or later.
 */
static bool leaf_is_sound(struct walk *w)
{
	const uint8_t *p = w->key.mv_data, *page;
	uint64_t pgno;
	uint16_t lower, upper;

	page = p - ((uintptr_t)p & (w->db->page_size - 1));
	pgno = fdry_get64(page);
	lower = fdry_get16(page + PAGE_AT_LOWER);
	upper = fdry_get16(page + PAGE_AT_UPPER);
	if (fdry_get16(page + PAGE_AT_FLAGS) != PAGE_LEAF || lower <= PAGE_HEAD || lower & 1 || lower > upper ||
	    upper >= w->db->page_size || p < page + upper)
		return false;
	if (!w->base)
		w->base = page - pgno * w->db->page_size;
	return page == w->base + pgno * w->db->page_size;
}

/* Damaged pages can lead in circles: keys must ascend. */
static bool key_ascends(struct walk *w)
{
	size_t len = w->key.mv_size, n = len < w->last_len ? len : w->last_len;
	int order = len > KEY_MAX ? -1 : memcmp(w->key.mv_data, w->last, n);

	if (order < 0 || (!order && len <= w->last_len && w->last_len))
		return false;
	memcpy(w->last, w->key.mv_data, len);
	w->last_len = len;
	return true;
}

static int walk_run(struct walk *w, MDB_cursor_op first, fdry_entry_fn fn, void *arg)
{
	int err = 0, rc = walk_step(w, first);

	while (!rc && !err) {
		if ((w->mapped && !leaf_is_sound(w)) || !key_ascends(w))
			return db_fail(w->db, MDB_CORRUPTED, "list entries");
		err = fn(arg, span_of(w->key), span_of(w->value));
		if (!err)
			rc = walk_step(w, MDB_NEXT);
	}
	if (err)
		return err == FDRY_EACH_STOP ? 0 : err;
	return rc == MDB_NOTFOUND ? 0 : db_fail(w->db, rc, "list entries");
}

static int cursor_open(struct fdry_txn *t, MDB_dbi table, MDB_cursor **ret)
{
	return guarded(mdb_cursor_open(t->txn, table, ret));
}

int fdry_txn_each(struct fdry_txn *t, enum fdry_table table, struct fdry_span from, fdry_entry_fn fn, void *arg)
{
	struct walk w = { .db = t->db, .key = val_of(from), .mapped = !t->exclusive };
	int err, rc = cursor_open(t, t->db->tables[table], &w.cursor);

	if (rc)
		return db_fail(t->db, rc, "list entries");
	err = walk_run(&w, from.len ? MDB_SET_RANGE : MDB_FIRST, fn, arg);
	mdb_cursor_close(w.cursor);
	return err;
}

/* Keys of free pages are numbers in the machine's byte order, so there is no order to check. */
static int inner_step(struct walk *w)
{
	int rc = walk_step(w, MDB_NEXT);

	return !rc && w->mapped && !leaf_is_sound(w) ? MDB_CORRUPTED : rc;
}

int fdry_txn_each_inner(struct fdry_txn *t, enum fdry_inner inner, fdry_entry_fn fn, void *arg)
{
	struct walk w = { .db = t->db, .mapped = !t->exclusive };
	int err = 0, rc = cursor_open(t, (MDB_dbi)inner, &w.cursor);

	if (rc)
		return db_fail(t->db, rc, "list pages");
	while (!rc && !err) {
		rc = inner_step(&w);
		if (!rc)
			err = fn(arg, span_of(w.key), span_of(w.value));
	}
	mdb_cursor_close(w.cursor);
	return err || rc == MDB_NOTFOUND ? err : db_fail(t->db, rc, "list pages");
}

/* --- opening --- */

static int env_make(const struct fdry_db_opts *o, uint64_t map_size, MDB_env **ret)
{
	unsigned int flags = MDB_NOTLS | (o->readonly ? MDB_RDONLY : 0) | (o->fixed ? MDB_NOLOCK : 0);
	MDB_env *env = NULL;
	int rc = mdb_env_create(&env);

	if (rc)
		return rc;
	mdb_env_set_assert(env, on_assert);
	mdb_env_set_maxdbs(env, FDRY_TABLE_COUNT + 1);
	mdb_env_set_maxreaders(env, READERS_MAX);
	mdb_env_set_mapsize(env, map_size);
	rc = guarded(mdb_env_open(env, o->dir, flags, o->mode));
	if (rc) {
		mdb_env_close(env);
		return rc;
	}
	*ret = env;
	return 0;
}

/* With as much address space as there is to have. */
static int env_open(const struct fdry_db_opts *o, MDB_env **ret)
{
	uint64_t size = o->map_size ? o->map_size : FDRY_MAP_SIZE;
	int rc = env_make(o, size, ret);

	while (rc == ENOMEM && size > MAP_SIZE_MIN) {
		size /= 4;
		rc = env_make(o, size, ret);
	}
	return rc;
}

/* One line of LMDB's list of readers: process id, thread, transaction. */
static int reader_is_ours(const char *line, void *arg)
{
	if (strtol(line, NULL, 10) == getpid())
		*(int *)arg = 1;
	return 0;
}

/*
 * Readers that died keep pages from being used again. LMDB recognises them by their
 * process id, but takes those with our id to be ours: in containers that always start
 * with the same id they would stay for ever. Closing an environment that has read clears
 * every place under its process' id; nobody else can be alive under it if reading worked.
 */
static int readers_clear(const struct fdry_db_opts *o, MDB_env **env)
{
	MDB_txn *txn = NULL;
	int ours = 0, dead = 0;

	if (o->fixed)
		return 0;
	mdb_reader_check(*env, &dead);
	if (dead)
		fdry_info("store %s: cleared %d readers that had died", o->dir, dead);
	mdb_reader_list(*env, reader_is_ours, &ours);
	if (!ours || guarded(mdb_txn_begin(*env, NULL, MDB_RDONLY, &txn)))
		return 0;
	mdb_txn_abort(txn);
	mdb_env_close(*env);
	*env = NULL;
	return env_open(o, env);
}

/* --- the end of the file --- */

int fdry_db_extent(const struct fdry_db *db, struct fdry_extent *ret)
{
	struct stat st = { 0 };
	struct fdry_extent x = { .used_bytes = used_bytes(db), .page_size = db->page_size }; /* before the file, which only grows */
	int rc = file_stat(db, &st);

	if (rc)
		return db_fail(db, rc, "look at its file");
	x.file_bytes = (uint64_t)st.st_size;
	*ret = x;
	return 0;
}

/* A file that was cut short would be a bus error later on. */
static int size_check(struct fdry_db *db, const struct fdry_db_opts *o)
{
	struct fdry_extent x;
	int err = fdry_db_extent(db, &x);

	if (err || x.file_bytes >= x.used_bytes || fdry_tail_is_free(o))
		return err;
	return fdry_fail(FDRY_E_CORRUPT, "store %s is cut short: data.mdb has %llu of %llu bytes; bring it back from a copy, "
			 "or remove it and seal anew", db->dir, (unsigned long long)x.file_bytes,
			 (unsigned long long)x.used_bytes);
}

/* --- opening: tables --- */

/* Opens all tables, or none: MDB_NOTFOUND. @flags: 0 or MDB_CREATE. */
static int tables_open(struct fdry_db *db, MDB_txn *txn, unsigned int flags)
{
	int i, rc = 0;

	for (i = 0; i < FDRY_TABLE_COUNT && !rc; i++)
		rc = guarded(mdb_dbi_open(txn, table_names[i], flags, &db->tables[i]));
	return rc;
}

static bool env_is_empty(MDB_txn *txn)
{
	MDB_stat st = { 0 };
	MDB_dbi root;

	return !mdb_dbi_open(txn, NULL, 0, &root) && !mdb_stat(txn, root, &st) && !st.ms_entries;
}

static int tables_make(struct fdry_db *db, int (*fresh)(struct fdry_txn *t))
{
	struct fdry_txn t;
	int rc, err = fdry_txn_write(db, MAP_SLACK, &t);

	if (err)
		return err;
	rc = tables_open(db, t.txn, 0); /* somebody else may have been faster */
	if (rc == MDB_NOTFOUND) {
		rc = env_is_empty(t.txn) ? tables_open(db, t.txn, MDB_CREATE) : MDB_INCOMPATIBLE;
		err = rc ? 0 : fresh(&t);
	}
	if (rc)
		err = db_fail(db, rc, "make its tables");
	if (!err)
		return fdry_txn_commit(&t);
	fdry_txn_abort(&t);
	return err;
}

static int tables_find(struct fdry_db *db, bool create, int (*fresh)(struct fdry_txn *t))
{
	struct fdry_txn t;
	int rc, err = fdry_txn_read(db, &t);
	bool empty;

	if (err)
		return err;
	rc = tables_open(db, t.txn, 0);
	if (!rc)
		return fdry_txn_commit(&t); /* keeps the tables open */
	empty = env_is_empty(t.txn);
	fdry_txn_abort(&t);
	if (rc != MDB_NOTFOUND)
		return db_fail(db, rc, "open its tables");
	if (!empty)
		return db_fail(db, MDB_INCOMPATIBLE, "open it");
	if (create)
		return tables_make(db, fresh);
	return fdry_fail(FDRY_E_NOSTORE, "store %s is empty: whoever made it was stopped; seal into it, or remove it", db->dir);
}

static int env_ready(struct fdry_db *db, const struct fdry_db_opts *opts)
{
	MDB_stat st = { 0 };
	int rc = env_open(opts, &db->env);

	if (!rc && !opts->bare)
		rc = readers_clear(opts, &db->env);
	if (!rc)
		rc = mdb_env_stat(db->env, &st);
	db->page_size = st.ms_psize;
	return rc ? db_fail(db, rc, "open it") : 0;
}

int fdry_db_open(const struct fdry_db_opts *opts, int (*fresh)(struct fdry_txn *t), struct fdry_db **ret)
{
	size_t dir_len = strlen(opts->dir) + 1;
	struct fdry_db *db = calloc(1, sizeof(*db) + dir_len);
	int err;

	if (!db)
		return fdry_nomem();
	memcpy(db->dir, opts->dir, dir_len);
	pthread_mutex_init(&db->lock, NULL);
	db->readonly = opts->readonly;
	err = env_ready(db, opts);
	if (!err && !opts->bare)
		err = size_check(db, opts);
	if (!err && !opts->bare)
		err = tables_find(db, opts->create && !opts->readonly, fresh);
	if (err) {
		fdry_db_close(db);
		return err;
	}
	*ret = db;
	return 0;
}

void fdry_db_close(struct fdry_db *db)
{
	if (!db)
		return;
	mdb_env_close(db->env);
	fdry_db_forget(db);
}

void fdry_db_forget(struct fdry_db *db)
{
	pthread_mutex_destroy(&db->lock);
	free(db);
}

int fdry_db_file(const struct fdry_db *db, dev_t *dev, ino_t *ino)
{
	struct stat st = { 0 };
	int rc = file_stat(db, &st);

	if (rc)
		return db_fail(db, rc, "look at its file");
	*dev = st.st_dev;
	*ino = st.st_ino;
	return 0;
}
