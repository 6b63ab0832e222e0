// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of the places of stores, and of opening them: paths, permissions, foreign and
 * unfinished environments, one environment in a process.
 */
#include "store/path.c"

#include <fcntl.h>
#include <lmdb.h>

#include "store/internal.h"
#include "store/step.h"
#include "tests/lib/store.h"

static void setup(void)
{
	dir_setup();
}

static void teardown(void)
{
	dir_teardown();
}

static void file_path(char file[400], const char *name)
{
	snprintf(file, 400, "%s/%s", path, name);
}

/* --- the default place --- */

static void expect_default(const char *want)
{
	struct fdry_buf b = { 0 };

	ok(fdry_store_locate(NULL, &b));
	ck_assert_str_eq((char *)b.data, want);
	fdry_buf_release(&b);
}

START_TEST(the_default_place)
{
	struct fdry_buf b = { 0 };
	struct fdry_store *s;

	setenv("HOME", "/h", 1);
	setenv("XDG_CACHE_HOME", "/c", 1);
	setenv("FOUNDRY_STORE", "/own", 1);
	expect_default("/own");
	setenv("FOUNDRY_STORE", "relative/own", 1);
	expect_default("relative/own");
	setenv("FOUNDRY_STORE", "", 1);
	fails(ENV, "FOUNDRY_STORE", fdry_store_locate(NULL, &b));
	fails(ENV, "FOUNDRY_STORE", fdry_store_open(NULL, FDRY_STORE_CREATE, &s));
	unsetenv("FOUNDRY_STORE");
	expect_default("/c/foundry/store");
	setenv("XDG_CACHE_HOME", "c", 1);
	expect_default("/h/.cache/foundry/store");
	setenv("XDG_CACHE_HOME", "", 1);
	expect_default("/h/.cache/foundry/store");
	unsetenv("XDG_CACHE_HOME");
	expect_default("/h/.cache/foundry/store");
	setenv("HOME", "", 1);
	fails(NOHOME, "set FOUNDRY_STORE", fdry_store_locate(NULL, &b));
	unsetenv("HOME");
	fails(NOHOME, "set FOUNDRY_STORE", fdry_store_locate(NULL, &b));
	ck_assert_ptr_null(b.data);
}
END_TEST

START_TEST(opens_the_default)
{
	struct fdry_store *s;

	setenv("FOUNDRY_STORE", path, 1);
	ok(fdry_store_open(NULL, FDRY_STORE_CREATE, &s));
	ck_assert_str_eq(fdry_store_path(s), path);
	fdry_store_close(s);
	unsetenv("FOUNDRY_STORE");
}
END_TEST

/* --- making --- */

static mode_t mode_of(const char *file)
{
	struct stat st;

	ck_assert(!stat(file, &st));
	return st.st_mode & 0777;
}

/* Another process makes the store and collects, which removes the folder in which this process
 * makes its own. */
static int somebody_was_faster(struct fdry_txn *t)
{
	char file[400];
	int fd;

	(void)t;
	file_path(file, "data.mdb");
	fd = open(file, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	return fdry_fail(FDRY_E_NOSTORE, "it is gone");
}

static int nobody_was_faster(struct fdry_txn *t)
{
	(void)t;
	return fdry_fail(FDRY_E_NOSTORE, "it is gone");
}

START_TEST(somebody_elses_store_will_do)
{
	struct fdry_dir d;

	ok(fdry_dir_open(path, true, &d));
	fails(NOSTORE, "it is gone", fdry_dir_prepare(&d, path, true, nobody_was_faster));
	ok(fdry_dir_prepare(&d, path, true, somebody_was_faster));
	fdry_dir_close(&d, path, false);
}
END_TEST

START_TEST(a_store_is_made_with_its_directories)
{
	struct fdry_store *s;
	char deep[400], file[500];

	umask(022);
	snprintf(deep, sizeof(deep), "%s/a/b/c/", dir);
	fails(NOSTORE, "there is no store", fdry_store_open(deep, 0, &s));
	ok(fdry_store_open(deep, FDRY_STORE_CREATE, &s));
	fdry_store_close(s);
	ck_assert_uint_eq(mode_of(deep), 0700);
	snprintf(file, sizeof(file), "%sdata.mdb", deep);
	ck_assert_uint_eq(mode_of(file), 0600);
	snprintf(file, sizeof(file), "%slock.mdb", deep);
	ck_assert_uint_eq(mode_of(file), 0600);
	ok(fdry_store_open(deep, 0, &s));
	fdry_store_close(s);
	ok(fdry_store_open(deep, FDRY_STORE_CREATE, &s));
	fdry_store_close(s);
}
END_TEST

START_TEST(bad_flags_and_paths)
{
	struct fdry_store *s;
	char file[400];
	int fd;

	fails(INVAL, "flags", fdry_store_open(path, 1 << 7, &s));
	fails(INVAL, "reading only",
	      fdry_store_open(path, FDRY_STORE_CREATE | FDRY_STORE_READONLY, &s));
	fails(INVAL, "empty", fdry_store_open("", 0, &s));
	ck_assert(!mkdir(path, 0700));
	fails(NOSTORE, "no data.mdb", fdry_store_open(path, 0, &s));
	file_path(file, "somebody's");
	fd = open(file, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	fails(NOSTORE, "not empty", fdry_store_open(path, FDRY_STORE_CREATE, &s));
	fails(NOSTORE, "not a directory", fdry_store_open(file, 0, &s));
	fails(NOSTORE, "not a directory", fdry_store_open(file, FDRY_STORE_CREATE, &s));
}
END_TEST

static pid_t faster;

/* Another process makes the store, and one of the files that appear when it is used. */
static void make_beside(enum fdry_step step)
{
	char file[400];

	if (step != FDRY_STEP_LIST)
		return;
	fdry_step_hook = NULL;
	faster = fork();
	if (!faster) {
		fdry_store_close(store_make());
		file_path(file, "used");
		_exit(close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)));
	}
	ck_assert_int_eq(waitpid(faster, NULL, 0), faster);
}

START_TEST(a_store_made_while_we_look_is_opened)
{
	struct fdry_store *s = NULL;

	fdry_step_hook = make_beside;
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &s));
	ck_assert_int_gt(faster, 0);
	fdry_store_close(s);
}
END_TEST

START_TEST(users_who_may_write_are_checked)
{
	struct fdry_store *s = store_make();

	fdry_store_close(s);
	ck_assert(!chmod(path, 0702));
	fails(PERM, "everybody", fdry_store_open(path, 0, &s));
	fails(PERM, "everybody", fdry_store_open(path, FDRY_STORE_READONLY, &s));
	ck_assert(!chmod(path, 01777));
	fails(PERM, "everybody", fdry_store_open(path, FDRY_STORE_CREATE, &s));
	ck_assert(!chmod(path, 0755));
	ok(fdry_store_open(path, 0, &s));
	fdry_store_close(s);
}
END_TEST

START_TEST(network_file_systems_are_refused)
{
	struct fdry_store *s;

	ck_assert_str_eq(fs_refused(0x6969), "NFS");
	ck_assert_str_eq(fs_refused(0x65735546), "FUSE");
	ck_assert_str_eq(fs_refused(0xff534d42), "CIFS");
	ck_assert_str_eq(fs_refused((unsigned long)(long)(int)0xff534d42), "CIFS");
	ck_assert_ptr_null(fs_refused(0xef53));     /* ext4 */
	ck_assert_ptr_null(fs_refused(0x01021994)); /* tmpfs */
	ck_assert_ptr_null(fs_refused(0x794c7630)); /* overlay */
	setenv("FOUNDRY_STORE_ANY_FS", "yes", 1);
	fails(ENV, "FOUNDRY_STORE_ANY_FS", fdry_store_open(path, FDRY_STORE_CREATE, &s));
	ck_assert_msg(access(path, F_OK), "the directory that was made for it stays");
	setenv("FOUNDRY_STORE_ANY_FS", "1", 1);
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &s));
	fdry_store_close(s);
	unsetenv("FOUNDRY_STORE_ANY_FS");
}
END_TEST

/* --- folders that are no stores --- */

static void raw_env(MDB_env **env, const char *table)
{
	MDB_val k = { 1, "k" }, v = { 1, "v" };
	MDB_txn *txn;
	MDB_dbi dbi;

	ck_assert(!mdb_env_create(env));
	ck_assert(!mdb_env_set_maxdbs(*env, 8));
	ck_assert(!mdb_env_open(*env, path, 0, 0600));
	ck_assert(!mdb_txn_begin(*env, NULL, 0, &txn));
	ck_assert(!mdb_dbi_open(txn, table, MDB_CREATE, &dbi));
	ck_assert(!mdb_put(txn, dbi, &k, &v, 0));
	ck_assert(!mdb_txn_commit(txn));
}

START_TEST(foreign_environments_are_refused)
{
	static const char *const tables[] = { NULL, "theirs", "meta" };
	struct fdry_store *s;
	struct stat a, b;
	char file[400];
	MDB_env *env;
	size_t i;

	for (i = 0; i < 3; i++) {
		ck_assert(!mkdir(path, 0700));
		raw_env(&env, tables[i]);
		mdb_env_close(env);
		file_path(file, "data.mdb");
		ck_assert(!stat(file, &a));
		fails(NOSTORE, "another program", fdry_store_open(path, 0, &s));
		fails(NOSTORE, "another program", fdry_store_open(path, FDRY_STORE_CREATE, &s));
		ck_assert(!stat(file, &b));
		ck_assert_msg(a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
				      a.st_mtim.tv_nsec == b.st_mtim.tv_nsec,
			      "it was written to");
		nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	}
}
END_TEST

static int fresh_nothing(struct fdry_txn *t)
{
	(void)t;
	return 0;
}

static int fresh_version(struct fdry_txn *t)
{
	uint8_t rec[FDRY_FORMAT_SIZE] = FDRY_FORMAT_MAGIC;

	rec[FDRY_FORMAT_AT_VERSION] = FDRY_FORMAT_VERSION + 1;
	return fdry_txn_put(t, FDRY_TABLE_META, (struct fdry_span){ (const uint8_t *)"format", 6 },
			    (struct fdry_span){ rec, sizeof(rec) });
}

static int fresh_old(struct fdry_txn *t)
{
	uint8_t rec[FDRY_FORMAT_SIZE] = FDRY_FORMAT_MAGIC;

	rec[FDRY_FORMAT_AT_VERSION] = FDRY_FORMAT_VERSION - 1;
	return fdry_txn_put(t, FDRY_TABLE_META, (struct fdry_span){ (const uint8_t *)"format", 6 },
			    (struct fdry_span){ rec, sizeof(rec) });
}

static int fresh_feature(struct fdry_txn *t)
{
	uint8_t rec[FDRY_FORMAT_SIZE] = FDRY_FORMAT_MAGIC;

	rec[FDRY_FORMAT_AT_VERSION] = FDRY_FORMAT_VERSION;
	rec[FDRY_FORMAT_AT_INCOMPAT + 7] = 0x80;
	return fdry_txn_put(t, FDRY_TABLE_META, (struct fdry_span){ (const uint8_t *)"format", 6 },
			    (struct fdry_span){ rec, sizeof(rec) });
}

static int fresh_compat(struct fdry_txn *t)
{
	uint8_t rec[FDRY_FORMAT_SIZE] = FDRY_FORMAT_MAGIC;

	rec[FDRY_FORMAT_AT_VERSION] = FDRY_FORMAT_VERSION;
	rec[FDRY_FORMAT_AT_COMPAT] = 1;
	return fdry_txn_put(t, FDRY_TABLE_META, (struct fdry_span){ (const uint8_t *)"format", 6 },
			    (struct fdry_span){ rec, sizeof(rec) });
}

static void make_with(int (*fresh)(struct fdry_txn *t))
{
	struct fdry_db_opts o = { .dir = path, .create = true, .mode = 0600 };
	struct fdry_db *db;

	nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	ck_assert(!mkdir(path, 0700));
	ok(fdry_db_open(&o, fresh, &db));
	fdry_db_close(db);
}

START_TEST(versions_and_features)
{
	struct fdry_store *s;

	make_with(fresh_nothing);
	fails(NOSTORE, "another program", fdry_store_open(path, FDRY_STORE_CREATE, &s));
	make_with(fresh_version);
	fails(VERSION, "version 3", fdry_store_open(path, 0, &s));
	make_with(fresh_old);
	fails(VERSION, "version 1, of an older program", fdry_store_open(path, 0, &s));
	make_with(fresh_feature);
	fails(VERSION, "0x8000000000000000", fdry_store_open(path, 0, &s));
	make_with(fresh_compat);
	ok(fdry_store_open(path, 0, &s));
	fdry_store_close(s);
}
END_TEST

/* The maker was stopped before the first commit: there is an environment without tables, or an
 * empty file. */
START_TEST(unfinished_stores)
{
	struct fdry_store *s;
	char file[400];
	MDB_env *env;
	int fd;

	ck_assert(!mkdir(path, 0700));
	ck_assert(!mdb_env_create(&env));
	ck_assert(!mdb_env_open(env, path, 0, 0600));
	mdb_env_close(env);
	fails(NOSTORE, "is empty", fdry_store_open(path, 0, &s));
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &s));
	fdry_store_close(s);
	ok(fdry_store_open(path, 0, &s));
	fdry_store_close(s);

	file_path(file, "data.mdb");
	fd = open(file, O_WRONLY | O_TRUNC);
	ck_assert_int_ge(fd, 0);
	fails(NOSTORE, "is empty", fdry_store_open(path, 0, &s));
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(write(fd, "neither LMDB's nor ours", 23), 23);
	close(fd);
	fails(NOSTORE, "does not begin as a store's", fdry_store_open(path, 0, &s));
	fails(NOSTORE, "does not begin as a store's", fdry_store_open(path, FDRY_STORE_CREATE, &s));
}
END_TEST

/* --- one environment in a process --- */

START_TEST(one_environment_however_often_it_is_opened)
{
	struct fdry_store *a = store_make(), *b, *c;
	struct fdry_oid oid, got;
	char other[400];

	snprintf(other, sizeof(other), "%s/../store/.", path);
	ok(fdry_store_open(other, 0, &b));
	ck_assert_str_eq(fdry_store_path(b), other);
	ck_assert_ptr_eq(a->env, b->env);
	ok(fdry_store_open(path, FDRY_STORE_READONLY, &c));
	ck_assert_ptr_eq(a->env, c->env);
	oid = seal(b, 1, 1, 100, "r");
	fdry_store_close(b);
	fdry_store_close(NULL);
	ok(fdry_ref_get(a, "r", &got));
	ck_assert(fdry_oid_eq(&oid, &got));
	fdry_store_close(a);
	ok(fdry_ref_get(c, "r", &got));
	fdry_store_close(c);
}
END_TEST

START_TEST(a_reader_writes_nothing)
{
	struct fdry_store *s = store_make();
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_oid oid = seal(s, 1, 1, 100, "r");
	struct fdry_writer *p;

	fdry_store_close(s);
	ok(fdry_store_open(path, FDRY_STORE_READONLY, &s));
	fails(PERM, "reading only", fdry_writer_begin(s, &p));
	fails(PERM, "reading only", fdry_ref_set(s, "q", &oid, NULL));
	fails(PERM, "reading only", fdry_store_remove(s, "r"));
	fails(PERM, "reading only", fdry_store_gc(s, NULL, &r));
	ok(fdry_store_gc(s, &gc_dry_run, &r));
	check_sound(s);
	fdry_store_close(s);
}
END_TEST

START_TEST(a_store_replaced_under_us_is_noticed)
{
	struct fdry_store *s = store_make(), *other;
	char file[400], copy[400];
	int fd;

	file_path(file, "data.mdb");
	file_path(copy, "copy");
	ck_assert(!rename(file, copy) && !rename(copy, file));
	ok(fdry_store_open(path, 0, &other)); /* the same file */
	ck_assert_ptr_eq(other->env, s->env);
	fdry_store_close(other);
	ck_assert(!unlink(file));
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &other)); /* a new one */
	ck_assert_ptr_ne(other->env, s->env);
	fdry_store_close(s);
	ck_assert(!unlink(file));
	fd = open(file, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	fails(NOSTORE, "is empty", fdry_store_open(path, 0, &s));
	fdry_store_close(other);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_open");
	TCase *tc = tcase_create("open");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, the_default_place);
	tcase_add_test(tc, opens_the_default);
	tcase_add_test(tc, somebody_elses_store_will_do);
	tcase_add_test(tc, a_store_is_made_with_its_directories);
	tcase_add_test(tc, bad_flags_and_paths);
	tcase_add_test(tc, a_store_made_while_we_look_is_opened);
	tcase_add_test(tc, users_who_may_write_are_checked);
	tcase_add_test(tc, network_file_systems_are_refused);
	tcase_add_test(tc, foreign_environments_are_refused);
	tcase_add_test(tc, versions_and_features);
	tcase_add_test(tc, unfinished_stores);
	tcase_add_test(tc, one_environment_however_often_it_is_opened);
	tcase_add_test(tc, a_reader_writes_nothing);
	tcase_add_test(tc, a_store_replaced_under_us_is_noticed);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
