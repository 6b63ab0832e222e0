// SPDX-License-Identifier: Apache-2.0
/*
 * power.c - every state that a power cut could leave: the store must keep everything that it
 * reported as done.
 *
 * power [-r ROUNDS] [-o OPS] [-w WORKERS] [-x EXHAUSTIVE] [-n SAMPLES] [-s SEED] [-d DIR] [-b
 * sync|meta|dir]
 *
 * In each round workers (work.h) do OPS operations each, and their changes of files are recorded
 * (record.h). Before every sync of the recording, when most changes are pending, states are made in
 * which some of the pending changes have happened. If there are at most EXHAUSTIVE pending changes,
 * all subsets are made. Otherwise SAMPLES of them are made, including none, all, and all but one.
 * In every other sample, pages are written in parts, by sectors. Each state is opened and checked
 * as after a kill. The next round continues from one of the states, before any repair. -b: a disk
 * that forgets syncs of files, of LMDB's meta pages, or of directories; the test must detect that.
 */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/record.h"

#define UNITS_MAX 65536
#define PLACE "var/cache/store" /* below the root: directories that are made as well */

static struct shared {
	struct work_notes all[WORK_WORKERS_MAX];
	struct work_notes names[WORK_WORKERS_MAX]; /* of the state that is checked */
	struct work_check check;
} *shm;

static struct config {
	uint32_t rounds, ops, workers;
	uint64_t exhaustive, samples, seed;
	enum rec_broken broken;
	const char *where;
} config = { .rounds = 2, .ops = 10, .workers = 2, .exhaustive = 32, .samples = 10, .seed = 1 };

static char base[200], root[256], state[256], next[256];
static uint64_t rng, cuts, states, exhausted;
static struct rec_counts calls;

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

static void dir_clear(const char *path)
{
	nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	if (mkdir(path, 0700))
		perror(path);
}

/* --- recording --- */

static __attribute__((noreturn)) void work_some(uint32_t nr, uint64_t random)
{
	char path[300];
	struct worker w = { .path = path, .all = shm->all, .count = config.workers, .nr = nr,
			    .random = random, .locked_fine = true, .noted = rec_note };
	uint32_t i;
	int err = 0;

	snprintf(path, sizeof(path), "%s/" PLACE, root);
	for (i = 0; i < config.ops && !err; i++)
		err = work_step(&w);
	fdry_store_close(w.s);
	_exit(err != 0);
}

static int record(void)
{
	int status = 0, bad = 0;
	struct rec_counts c;
	pid_t pids[WORK_WORKERS_MAX];
	uint32_t i;

	if (rec_start(root, config.broken))
		return -1;
	for (i = 0; i < config.workers; i++) {
		pids[i] = fork();
		if (!pids[i])
			work_some(i, work_random(&rng));
	}
	for (i = 0; i < config.workers; i++) {
		if (waitpid(pids[i], &status, 0) != pids[i] || status)
			bad = -1;
	}
	rec_stop();
	rec_count(&c);
	calls.calls += c.calls;
	calls.writes += c.writes;
	calls.syncs += c.syncs;
	calls.names += c.names;
	return bad;
}

/* --- one state --- */

static void check_state(void *arg)
{
	char path[300];

	(void)arg;
	snprintf(path, sizeof(path), "%s/" PLACE, state);
	work_check_all(path, shm->names, config.workers, &shm->check);
}

static void state_tell(const struct rec_walk *w, const uint8_t *take)
{
	char text[200];
	size_t i;

	fprintf(stderr,
		"in a state of seed %llu, before call %llu of %llu, with these of the pending "
		"changes:\n",
		(unsigned long long)config.seed, (unsigned long long)w->at,
		(unsigned long long)w->count);
	for (i = 0; i < w->nunits && i < 60; i++) {
		rec_unit_text(w, &w->units[i], text, sizeof(text));
		fprintf(stderr, "  %s %#04x  %s\n",
			take[i] == 0xFF ? "all "
			: take[i]	? "part"
					: "not ",
			take[i], text);
	}
}

/* @keep: the next round begins with this one. */
static int state_check(struct rec_walk *w, const uint8_t *take, bool keep)
{
	uint64_t before = shm->check.faults, random = work_random(&rng), again = random;

	dir_clear(state);
	if (rec_state(w, take, &random, state))
		return -1;
	memcpy(shm->names, w->names, sizeof(shm->names));
	if (!work_in_child(check_state, NULL))
		shm->check.faults++;
	states++;
	if (shm->check.faults != before)
		state_tell(w, take);
	if (!keep)
		return 0;
	dir_clear(next);
	memcpy(shm->all, shm->names, sizeof(shm->all));
	return rec_state(w, take, &again, next);
}

/* --- the states of one cut --- */

static void take_random(const struct rec_walk *w, uint64_t i, uint8_t *take)
{
	bool torn = i & 1;
	size_t k;

	for (k = 0; k < w->nunits; k++) {
		take[k] = work_random(&rng) >> 20 & 1 ? 0xFF : 0;
		if (torn && work_random(&rng) >> 20 & 1)
			take[k] = (uint8_t)(work_random(&rng) >> 30);
	}
}

/* Number @i of the samples: none, all, all but one, any. */
static void take_sample(const struct rec_walk *w, uint64_t i, uint8_t *take)
{
	if (i < 3)
		memset(take, i ? 0xFF : 0, w->nunits);
	if (i == 2 && w->nunits)
		take[work_random(&rng) / 2 % w->nunits] = 0;
	if (i >= 3)
		take_random(w, i, take);
}

static int cut_check(struct rec_walk *w, bool keep)
{
	static uint8_t take[UNITS_MAX];
	uint64_t i, n = config.samples;
	bool all = w->nunits < 40 && 1ull << w->nunits <= config.exhaustive;
	size_t k;
	int err = 0;

	if (w->nunits > UNITS_MAX)
		return -1;
	if (all)
		n = 1ull << w->nunits;
	for (i = 0; i < n && !err && !shm->check.faults; i++) {
		for (k = 0; all && k < w->nunits; k++)
			take[k] = i >> k & 1 ? 0xFF : 0;
		if (!all)
			take_sample(w, i, take);
		err = state_check(w, take, keep && i + 1 == n);
	}
	cuts++;
	exhausted += all;
	return err;
}

/* Choose the cut from which the next round continues. */
static int walk_check(struct rec_walk *w, uint64_t from)
{
	uint64_t i = 0;
	int err = 0;

	while (!err && !shm->check.faults && rec_walk_next(w))
		err = cut_check(w, i++ == from);
	return err;
}

static int round_run(void)
{
	static struct rec_walk w;
	uint32_t i;
	int err;

	if (record()) {
		fprintf(stderr, "fault: a worker failed while it was recorded\n");
		shm->check.faults++;
		return 0;
	}
	dir_clear(next);
	if (rec_walk_start(&w))
		return -1;
	for (i = 0; i < config.workers; i++)
		memcpy(w.names[i].name, shm->names[i].name, sizeof(w.names[i].name));
	memset(shm->all, 0, sizeof(shm->all));
	err = walk_check(&w, work_random(&rng) / 2 % (config.ops * config.workers * 2));
	rec_walk_end(&w);
	return err;
}

/* --- */

static int broken_of(const char *s)
{
	static const char *const names[] = { "", "sync", "meta", "dir" };
	int i;

	for (i = 1; i < 4; i++)
		if (!strcmp(s, names[i]))
			return i;
	return -1;
}

static int options(int argc, char **argv)
{
	uint64_t n;
	int c;

	while ((c = getopt(argc, argv, "r:o:w:x:n:s:d:b:")) != -1) {
		n = c == '?' ? 0 : strtoull(optarg, NULL, 10);
		if (c == 'r')
			config.rounds = (uint32_t)n;
		else if (c == 'o')
			config.ops = (uint32_t)n;
		else if (c == 'w')
			config.workers = (uint32_t)n;
		else if (c == 'x')
			config.exhaustive = n;
		else if (c == 'n')
			config.samples = n;
		else if (c == 's')
			config.seed = n;
		else if (c == 'd')
			config.where = optarg;
		else if (c == 'b' && broken_of(optarg) > 0)
			config.broken = (enum rec_broken)broken_of(optarg);
		else
			return -1;
	}
	return config.workers && config.workers <= WORK_WORKERS_MAX && config.ops ? 0 : -1;
}

static int setup(void)
{
	const char *tmp = getenv("TMPDIR");

	if (!config.where)
		config.where = tmp ? tmp : "/tmp";
	snprintf(base, sizeof(base), "%s/foundry-power-XXXXXX", config.where);
	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shm == MAP_FAILED || !mkdtemp(base))
		return -1;
	snprintf(root, sizeof(root), "%s/root", base);
	snprintf(state, sizeof(state), "%s/state", base);
	snprintf(next, sizeof(next), "%s/next", base);
	dir_clear(root);
	rng = config.seed;
	return 0;
}

/* Prepare the next round: names as they were decided, files as the cut left them. */
static void turn_over(void)
{
	memcpy(shm->names, shm->all, sizeof(shm->names));
	dir_clear(root);
	rmdir(root);
	if (rename(next, root))
		perror(next);
}

int main(int argc, char **argv)
{
	struct work_check *r;
	uint32_t i;
	int err = 0;

	if (options(argc, argv) || setup()) {
		fprintf(stderr, "usage: power [-r rounds] [-o ops] [-w workers] [-x exhaustive] "
				"[-n samples] [-s seed] [-d dir] "
				"[-b sync|meta|dir]\n");
		return 2;
	}
	r = &shm->check;
	for (i = 0; i < config.rounds && !err && !r->faults; i++) {
		if (i)
			turn_over();
		err = round_run();
	}
	printf("%llu calls recorded: %llu writes, %llu syncs, %llu names; %llu cuts, of %llu all "
	       "subsets: %llu states; seed %llu\n",
	       (unsigned long long)calls.calls, (unsigned long long)calls.writes,
	       (unsigned long long)calls.syncs, (unsigned long long)calls.names,
	       (unsigned long long)cuts, (unsigned long long)exhausted, (unsigned long long)states,
	       (unsigned long long)config.seed);
	printf("%llu images and %llu objects loaded and hashed, %llu names were being changed, "
	       "%llu objects collected; %llu faults\n",
	       (unsigned long long)r->images, (unsigned long long)r->objects,
	       (unsigned long long)r->undecided, (unsigned long long)r->collected,
	       (unsigned long long)r->faults);
	nftw(base, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	return err || r->faults;
}
