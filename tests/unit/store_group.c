// SPDX-License-Identifier: Apache-2.0
/* Unit tests of groups: all ranks get the same answer, also if some come late or die. */
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <utime.h>

#include "tests/lib/store.h"

#define RANKS 5u
#define LONG_MS 20000
#define ROUNDS 40

static int group_files(void)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int n = 0;

	while ((e = readdir(d)))
		n += !strncmp(e->d_name, ".group-", 7);
	closedir(d);
	return n;
}

static struct fdry_store *store_get(void)
{
	struct fdry_store *s;

	ok(fdry_store_open(path, FDRY_STORE_CREATE, &s));
	return s;
}

/* The answer of one rank, whose record is its number. */
static int meet(struct fdry_store *s, const char *name, uint32_t rank, uint32_t wait_ms)
{
	const struct fdry_group g = { .name = name, .rank = rank, .ranks = RANKS, .len = 4,
				      .wait = { .ms = wait_ms } };
	uint32_t all[RANKS], i;
	int err = fdry_group_meet(s, &g, &rank, all);

	for (i = 0; !err && i < RANKS; i++)
		ck_assert_uint_eq(all[i], i);
	return err;
}

/* Start a rank in a process of its own, @delay_us later. Its exit status is its error code. */
static pid_t rank_start(const char *name, uint32_t rank, unsigned int delay_us, uint32_t wait_ms)
{
	struct fdry_store *s;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid)
		return pid;
	if (fdry_store_open(path, 0, &s))
		_exit(255);
	usleep(delay_us);
	_exit(meet(s, name, rank, wait_ms) ? 1 : 0);
}

static int rank_end(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(all_ranks_get_all_records)
{
	pid_t pids[RANKS];
	uint32_t i, round;

	fdry_store_close(store_get());
	for (round = 0; round < 2; round++) { /* a group that has met leaves its name free */
		for (i = 0; i < RANKS; i++)
			pids[i] = rank_start("start", i, i * 20000, LONG_MS);
		for (i = 0; i < RANKS; i++)
			ck_assert_int_eq(rank_end(pids[i]), 0);
		ck_assert_int_eq(group_files(), 0);
	}
}
END_TEST

START_TEST(a_rank_that_does_not_come)
{
	struct fdry_store *s = store_get();
	pid_t pids[RANKS];
	uint32_t i;

	for (i = 1; i < RANKS; i++)
		pids[i] = rank_start("start", i, 0, 300);
	for (i = 1; i < RANKS; i++)
		ck_assert_int_eq(rank_end(pids[i]), 1);
	/* It comes later, and gets the same answer at once. */
	fails(LOCKED, "4 of 5 ranks of the group 'start' came within", meet(s, "start", 0, 300));
	fdry_store_close(s);
}
END_TEST

/* The last rank comes when the time of the others is about over. */
START_TEST(all_ranks_get_one_answer)
{
	unsigned int met = 0;
	pid_t pids[RANKS];
	uint32_t i, round, no;
	char name[32];

	fdry_store_close(store_get());
	for (round = 0; round < ROUNDS; round++) {
		snprintf(name, sizeof(name), "start%u", round);
		for (i = 0; i < RANKS; i++)
			pids[i] = rank_start(name, i, i ? 0 : 50000 + round * 1000, 70);
		for (i = no = 0; i < RANKS; i++)
			no += (uint32_t)rank_end(pids[i]);
		ck_assert_msg(no == 0 || no == RANKS, "round %u: %u of %u say no", round, no,
			      RANKS);
		met += !no;
	}
	ck_assert_msg(met > 0 && met < ROUNDS, "%u of %u groups met", met, ROUNDS);
}
END_TEST

START_TEST(a_rank_that_dies_after_it_came)
{
	pid_t pids[RANKS];
	uint32_t i;

	fdry_store_close(store_get());
	pids[0] = rank_start("start", 0, 0, LONG_MS);
	while (!group_files())
		usleep(1000);
	usleep(100000);
	kill(pids[0], SIGKILL);
	ck_assert_int_eq(waitpid(pids[0], NULL, 0), pids[0]);
	for (i = 1; i < RANKS; i++)
		pids[i] = rank_start("start", i, 0, LONG_MS);
	for (i = 1; i < RANKS; i++)
		ck_assert_int_eq(rank_end(pids[i]), 0);
	ck_assert_int_eq(group_files(), 1);
}
END_TEST

START_TEST(a_rank_whose_program_ends_the_wait)
{
	int naps = 0;
	const struct fdry_group g = { .name = "start", .rank = 0, .ranks = RANKS, .len = 4,
				      .wait = { LONG_MS, test_third_nap, &naps } };
	struct fdry_store *s = store_get();
	pid_t other = rank_start("start", 1, 0, LONG_MS);
	uint32_t all[RANKS] = { 0 };

	while (!group_files())
		usleep(1000);
	fails(CALLBACK, "has ended the wait", fdry_group_meet(s, &g, all, all));
	ck_assert_int_eq(naps, 3);
	ck_assert_int_eq(rank_end(other), 1);
	fdry_store_close(s);
}
END_TEST

START_TEST(ranks_that_cannot_be)
{
	const struct fdry_group other = { .name = "start", .rank = 1, .ranks = 2, .len = 4,
					  .wait = { .ms = 1 } };
	struct fdry_store *s = store_get();
	uint32_t all[2];

	fails(LOCKED, "1 of 5 ranks", meet(s, "start", 0, 1));
	fails(INVAL, "has 5 ranks elsewhere, and 2 here", fdry_group_meet(s, &other, all, all));
	fails(LOCKED, "1 of 5 ranks", meet(s, "start", 0, 1));
	fdry_store_close(s);
}
END_TEST

START_TEST(a_rank_that_comes_twice)
{
	struct fdry_store *s = store_get();
	pid_t pid = rank_start("start", 0, 0, 1000);

	while (!group_files())
		usleep(1000);
	usleep(100000);
	fails(EXISTS, "rank 0 of the group 'start' was there before", meet(s, "start", 0, 1000));
	ck_assert_int_eq(rank_end(pid), 1);
	fdry_store_close(s);
}
END_TEST

START_TEST(old_files_are_swept)
{
	const struct utimbuf old = { 1, 1 };
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s = store_get();
	char command[4200], file[4200];
	FILE *f;

	fails(LOCKED, "1 of 5", meet(s, "one", 0, 1));
	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_int_eq(group_files(), 1);
	snprintf(command, sizeof(command), "ls -d %s/.group-*", path);
	f = popen(command, "r");
	ck_assert_ptr_nonnull(fgets(file, sizeof(file), f));
	pclose(f);
	file[strcspn(file, "\n")] = '\0';
	ck_assert_int_eq(utime(file, &old), 0);
	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_int_eq(group_files(), 0);
	fdry_store_close(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_group");
	TCase *tc = tcase_create("group");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, all_ranks_get_all_records);
	tcase_add_test(tc, a_rank_that_does_not_come);
	tcase_add_test(tc, all_ranks_get_one_answer);
	tcase_add_test(tc, a_rank_that_dies_after_it_came);
	tcase_add_test(tc, a_rank_whose_program_ends_the_wait);
	tcase_add_test(tc, ranks_that_cannot_be);
	tcase_add_test(tc, a_rank_that_comes_twice);
	tcase_add_test(tc, old_files_are_swept);
	suite_add_tcase(s, tc);
	return test_main(s);
}
