// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of permissions: modes of all of a store's files for every umask, a group's store used
 * by several users, inconsistent permissions, directories of other users.
 */
#include "tests/lib/share.h"

static void setup(void)
{
	dir_setup_in("/dev/shm");
	ck_assert(!chmod(dir, 0755)); /* for users that are not its owner */
}

static void teardown(void)
{
	umask(022);
	dir_teardown();
}

static mode_t mode_of(const char *name)
{
	char file[500];
	struct stat st;

	snprintf(file, sizeof(file), "%s/%s", path, name);
	ck_assert_msg(!stat(file, &st), "%s: %s", file, strerror(errno));
	return st.st_mode & 07777;
}

static void chmod_in(const char *name, mode_t mode)
{
	char file[500];

	snprintf(file, sizeof(file), "%s/%s", path, name);
	ck_assert(!chmod(file, mode));
}

/* --- modes --- */

static mode_t want_file, want_dir;
static gid_t want_gid;
static unsigned int files_seen;

static int check_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	mode_t want = type == FTW_D ? want_dir | (want_dir & 0020 ? S_ISGID : 0) : want_file;

	if (!f->level)
		want = want_dir;
	ck_assert_msg((st->st_mode & 07777) == want, "%s has mode %04o", p, st->st_mode & 07777);
	ck_assert_msg(st->st_gid == want_gid, "%s has group %u", p, st->st_gid);
	files_seen++;
	return 0;
}

static void check_modes(mode_t directory, mode_t file, gid_t gid, unsigned int least)
{
	want_dir = directory;
	want_file = file;
	want_gid = gid;
	files_seen = 0;
	ck_assert(!nftw(path, check_one, 16, FTW_PHYS));
	ck_assert_uint_ge(files_seen, least);
}

/* Everything that a store makes is there at the same time: both of LMDB's files, leases, a claim,
 * the notes. */
static void check_made_under(mode_t mask, unsigned int flags, mode_t directory, mode_t file)
{
	struct fdry_claim *claim;
	struct fdry_store *s;
	struct fdry_writer *p;
	struct stat st;
	bool waited;

	umask(mask);
	ok(fdry_store_open(path, FDRY_STORE_CREATE | flags, &s));
	ok(share_seal(s, 1, 3, 1000, "r"));
	ok(share_load(s, 1, 3, 1000, "r"));
	ok(fdry_claim_begin(s, "key", 3, NULL, &waited, &claim));
	ok(fdry_writer_begin(s, &p));
	ck_assert(!stat(path, &st));
	ck_assert_uint_eq(st.st_uid, geteuid());
	check_modes(directory, file, st.st_gid, 8);
	fdry_writer_abort(p);
	fdry_claim_end(claim);
	check_sound(s);
	fdry_store_close(s);
	umask(022);
	nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

START_TEST(private_whatever_the_umask)
{
	check_made_under(022, 0, 0700, 0600);
	check_made_under(0, 0, 0700, 0600);
	check_made_under(0777, 0, 0700, 0600);
}
END_TEST

START_TEST(a_groups_whatever_the_umask)
{
	check_made_under(022, FDRY_STORE_GROUP, 02770, 0660);
	check_made_under(0, FDRY_STORE_GROUP, 02770, 0660);
	check_made_under(0777, FDRY_STORE_GROUP, 02770, 0660);
}
END_TEST

/* A note that is shortened is another file. */
START_TEST(a_shortened_note_keeps_its_mode)
{
	struct fdry_oid oid = oid_of("x", 1);
	struct fdry_store *s;
	struct stat st;
	char file[400];
	int i;

	umask(077);
	ok(fdry_store_open(path, FDRY_STORE_CREATE | FDRY_STORE_GROUP, &s));
	snprintf(file, sizeof(file), "%s/used", path);
	for (i = 0; i < 20000 && (!i || st.st_size > 1000 || i < 100); i++) {
		fdry_atime_note(s->env, &oid);
		ck_assert(!stat(file, &st));
	}
	ck_assert_int_lt(i, 20000);
	ck_assert_uint_eq(st.st_mode & 07777, 0660);
	fdry_store_close(s);
}
END_TEST

START_TEST(parents_let_the_group_through)
{
	struct fdry_store *s;
	char deep[400];
	struct stat st;

	umask(077);
	snprintf(deep, sizeof(deep), "%s/a/b", path);
	ok(fdry_store_open(deep, FDRY_STORE_CREATE | FDRY_STORE_GROUP, &s));
	fdry_store_close(s);
	ck_assert(!stat(path, &st));
	ck_assert_uint_eq(st.st_mode & 07777, 02750);
	ck_assert_uint_eq(mode_of("a"), 02750);
	ck_assert_uint_eq(mode_of("a/b"), 02770);
}
END_TEST

START_TEST(directories_that_become_a_groups_store)
{
	struct fdry_store *s = store_make();
	struct fdry_sharing sh;

	fails(INVAL, "FDRY_STORE_CREATE", fdry_store_open(path, FDRY_STORE_GROUP, &s));
	fails(PERM, "its owner alone",
	      fdry_store_open(path, FDRY_STORE_CREATE | FDRY_STORE_GROUP, &s));
	ok(fdry_store_sharing(s, &sh));
	ck_assert(!sh.group && !sh.fixed && !sh.readonly);
	ck_assert_uint_eq(sh.mode, 0700);
	ck_assert_uint_eq(sh.uid, geteuid());
	fdry_store_close(s);
	ck_assert_uint_eq(mode_of("."), 0700);
	nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);

	/* an empty directory, made before; then again, which finds it made */
	ck_assert(!mkdir(path, 0700));
	ok(fdry_store_open(path, FDRY_STORE_CREATE | FDRY_STORE_GROUP, &s));
	fdry_store_close(s);
	ok(fdry_store_open(path, FDRY_STORE_CREATE | FDRY_STORE_GROUP, &s));
	ok(fdry_store_sharing(s, &sh));
	ck_assert(sh.group);
	ck_assert_uint_eq(sh.mode, 02770);
	fdry_store_close(s);
	nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);

	/* the mode itself shows a directory shared with the group */
	ck_assert(!mkdir(path, 0700) && !chmod(path, 0770));
	s = store_make();
	ok(fdry_store_sharing(s, &sh));
	ck_assert(sh.group);
	ck_assert_uint_eq(mode_of("data.mdb"), 0660);
	ck_assert_uint_eq(mode_of("lock.mdb"), 0660);
	fdry_store_close(s);
}
END_TEST

/* --- rights that do not fit together --- */

START_TEST(members_with_different_rights_are_refused)
{
	static const char *const files[] = { "data.mdb", "lock.mdb" };
	struct fdry_store *s;
	size_t i;

	ok(fdry_store_open(path, FDRY_STORE_CREATE | FDRY_STORE_GROUP, &s));
	fdry_store_close(s);
	for (i = 0; i < 2; i++) {
		chmod_in(files[i], 0640);
		fails(PERM, "would differ in rights", fdry_store_open(path, 0, &s));
		fails(PERM, files[i], fdry_store_open(path, FDRY_STORE_READONLY, &s));
		chmod_in(files[i], 0666);
		fails(PERM, "written by everybody", fdry_store_open(path, 0, &s));
		chmod_in(files[i], 0664);
		ok(fdry_store_open(path, 0, &s));
		fdry_store_close(s);
	}
	ck_assert(!chmod(path, 03770));
	fails(PERM, "chmod -t", fdry_store_open(path, 0, &s));
	ck_assert(!chmod(path, 0700));
	fails(PERM, "the directory cannot", fdry_store_open(path, 0, &s));
}
END_TEST

/* Two directories whose data.mdb is one file have two locks for it. */
START_TEST(files_must_be_plain)
{
	static const char *const files[] = { "data.mdb", "lock.mdb" };
	char from[500], to[500];
	struct fdry_store *s;
	size_t i;

	for (i = 0; i < 2; i++) {
		fdry_store_close(store_make());
		snprintf(from, sizeof(from), "%s/%s", path, files[i]);
		snprintf(to, sizeof(to), "%s/elsewhere", dir);
		ck_assert(!rename(from, to) && !symlink(to, from));
		fails(NOSTORE, "not a plain file", fdry_store_open(path, 0, &s));
		fails(NOSTORE, "not a plain file", fdry_store_open(path, FDRY_STORE_READONLY, &s));
		ck_assert(!unlink(from) && !mkfifo(from, 0600));
		fails(NOSTORE, "not a plain file", fdry_store_open(path, FDRY_STORE_CREATE, &s));
		nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	}
}
END_TEST

START_TEST(hard_links_are_refused)
{
	char from[500], to[500], folder[400];
	struct fdry_store *s;

	fdry_store_close(store_make());
	snprintf(from, sizeof(from), "%s/data.mdb", path);
	snprintf(to, sizeof(to), "%s/copy", dir);
	ck_assert(!link(from, to));
	fails(STATE, "hard links", fdry_store_open(path, 0, &s));
	ck_assert(!unlink(to));
	/* as a process leaves it that dies while it makes the store */
	snprintf(folder, sizeof(folder), "%s/.new-0123456789abcdef", path);
	snprintf(to, sizeof(to), "%s/data.mdb", folder);
	ck_assert(!mkdir(folder, 0700) && !link(from, to));
	ok(fdry_store_open(path, 0, &s));
	fdry_store_close(s);
	ck_assert(access(folder, F_OK));
}
END_TEST

/* --- several users, if this process is root --- */

static int maker_makes(void *arg)
{
	unsigned int *flags = arg;
	struct fdry_store *s;

	umask(077);
	if (*flags ? setgroups(0, NULL) || setgid(GROUP) || setuid(MAKER) : become(MAKER, true))
		return NOT_ALLOWED; /* a new directory gets the group that the process has at that
				       moment */
	if (fdry_store_open(path, FDRY_STORE_CREATE | *flags, &s) ||
	    share_seal(s, 1, 3, 1000, "maker"))
		return share_say(1);
	fdry_store_close(s);
	return 0;
}

/* Seal, load, collect and claim in a store that others use. */
static int member_uses(void *arg)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_claim *claim;
	struct fdry_store *s;
	bool waited;

	(void)arg;
	umask(077);
	if (become(MEMBER, true))
		return NOT_ALLOWED;
	if (fdry_store_open(path, 0, &s) || share_load(s, 1, 3, 1000, "maker") ||
	    share_seal(s, 10, 3, 1000, "member"))
		return share_say(1);
	if (share_seal(s, 20, 3, 1000, NULL) || fdry_store_gc(s, NULL, &r) || r.dead != 4)
		return share_say(2);
	if (fdry_claim_begin(s, "k", 1, &(struct fdry_wait){ .ms = 1000 }, &waited, &claim) ||
	    share_load(s, 10, 3, 1000, "member"))
		return share_say(3);
	fdry_claim_end(claim);
	fdry_store_close(s);
	return 0;
}

/* The reverse, while the member has a session open: its lease can be read. */
static int maker_uses(void *arg)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s;

	(void)arg;
	umask(077);
	if (become(MAKER, true))
		return NOT_ALLOWED;
	if (fdry_store_open(path, 0, &s) || share_load(s, 10, 3, 1000, "member") ||
	    share_seal(s, 30, 2, 1000, "maker"))
		return share_say(1);
	if (fdry_store_gc(s, NULL, &r) || r.live != 7 + 1 || r.dead != 4 || r.leases != 1)
		return share_say(2);
	fdry_store_close(s);
	return 0;
}

static int member_holds(void *arg)
{
	int *pipes = arg;
	struct fdry_store *s;
	struct fdry_writer *p;
	struct fdry_oid oid;
	char c;

	umask(077);
	if (become(MEMBER, true))
		return NOT_ALLOWED;
	if (fdry_store_open(path, 0, &s) || fdry_writer_begin(s, &p) ||
	    fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, "held", 4, NULL, 0, &oid) ||
	    fdry_writer_flush(p))
		return share_say(1);
	if (write(pipes[1], "x", 1) != 1 || read(pipes[2], &c, 1) != 1)
		return share_say(2);
	if (fdry_writer_commit(p, "m", 1, &oid, 1, "held", &oid, NULL))
		return share_say(3);
	fdry_store_close(s);
	return 0;
}

static int stranger_tries(void *arg)
{
	struct fdry_store *s;

	(void)arg;
	if (become(STRANGER, false))
		return NOT_ALLOWED;
	if (!share_refused(fdry_store_open(path, 0, &s), FDRY_E_PERM, path) ||
	    !share_refused(fdry_store_open(path, FDRY_STORE_READONLY, &s), FDRY_E_PERM, path) ||
	    !share_refused(fdry_store_open(path, FDRY_STORE_CREATE, &s), FDRY_E_PERM, path))
		return 1;
	return 0;
}

/* One session stays open while the other member collects. */
static void members_meet(void)
{
	int pipes[4];
	pid_t holder;
	char c;

	ck_assert(!pipe(pipes) && !pipe(pipes + 2));
	holder = fork();
	if (!holder)
		_exit(member_holds(pipes));
	ck_assert_int_eq(read(pipes[0], &c, 1), 1);
	ck_assert_int_eq(share_child(maker_uses, NULL), 0);
	ck_assert_int_eq(write(pipes[3], "x", 1), 1);
	ck_assert_int_eq(share_wait(holder), 0);
}

static void users_share(unsigned int flags)
{
	ck_assert_int_eq(share_child(maker_makes, &flags), 0);
	ck_assert_int_eq(share_child(member_uses, NULL), 0);
	members_meet();
	ck_assert_int_eq(share_child(stranger_tries, NULL), 0);
	check_modes(mode_of("."), 0660, GROUP, 4);
}

START_TEST(users_of_a_group)
{
	if (geteuid())
		return; /* the modes above are all that can be seen */
	ck_assert(!chmod(dir, 0777));
	users_share(FDRY_STORE_GROUP);
	ck_assert_uint_eq(mode_of("."), 02770);
}
END_TEST

/* Without the setgid bit, files still get the group. */
START_TEST(users_of_a_prepared_directory)
{
	if (geteuid())
		return;
	ck_assert(!mkdir(path, 0700) && !chown(path, 0, GROUP) && !chmod(path, 0770));
	users_share(0);
	ck_assert_uint_eq(mode_of("."), 0770);
}
END_TEST

/* --- owners --- */

static int opens_anothers(void *arg)
{
	struct fdry_store *s;

	(void)arg;
	if (become(STRANGER, false))
		return NOT_ALLOWED;
	if (!share_refused(fdry_store_open(path, FDRY_STORE_READONLY, &s), FDRY_E_PERM,
			   "belongs to user 54321"))
		return 1;
	return setenv("FOUNDRY_STORE_ANY_OWNER", "maybe", 1) ||
	       !share_refused(fdry_store_open(path, FDRY_STORE_READONLY, &s), FDRY_E_ENV,
			      "FOUNDRY_STORE_ANY_OWNER");
}

START_TEST(somebody_elses_directory)
{
	unsigned int flags = 0;
	struct fdry_store *s;

	if (geteuid())
		return;
	ck_assert(!chmod(dir, 0777));
	ck_assert_int_eq(share_child(maker_makes, &flags), 0);
	ck_assert(!chmod(path, 0755));
	chmod_in("data.mdb", 0644);
	ck_assert_int_eq(share_child(opens_anothers, NULL), 0);
	fails(PERM, "belongs to user 54321", fdry_store_open(path, 0, &s)); /* root, too */
	setenv("FOUNDRY_STORE_ANY_OWNER", "1", 1);
	ok(fdry_store_open(path, 0, &s));
	unsetenv("FOUNDRY_STORE_ANY_OWNER");
	fdry_store_close(s);
}
END_TEST

/* If root is not mapped in a namespace, root's files have no known owner there. */
static int in_own_namespace(void *arg)
{
	struct fdry_store *s;

	(void)arg;
	if (!geteuid() && become(STRANGER, false))
		return NOT_ALLOWED;
	if (!share_refused(fdry_store_open("/", FDRY_STORE_READONLY, &s), FDRY_E_NOSTORE,
			   "not a store"))
		return 1;
	if (unshare_as_root(0))
		return NOT_ALLOWED;
	return !share_refused(fdry_store_open("/", FDRY_STORE_READONLY, &s), FDRY_E_PERM,
			      "belongs to user 65534");
}

START_TEST(users_of_other_namespaces)
{
	int rc = share_child(in_own_namespace, NULL);

	ck_assert(!rc || rc == NOT_ALLOWED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_perm");
	TCase *tc = tcase_create("share");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, private_whatever_the_umask);
	tcase_add_test(tc, a_groups_whatever_the_umask);
	tcase_add_test(tc, a_shortened_note_keeps_its_mode);
	tcase_add_test(tc, parents_let_the_group_through);
	tcase_add_test(tc, directories_that_become_a_groups_store);
	tcase_add_test(tc, members_with_different_rights_are_refused);
	tcase_add_test(tc, files_must_be_plain);
	tcase_add_test(tc, hard_links_are_refused);
	tcase_add_test(tc, users_of_a_group);
	tcase_add_test(tc, users_of_a_prepared_directory);
	tcase_add_test(tc, somebody_elses_directory);
	tcase_add_test(tc, users_of_other_namespaces);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
