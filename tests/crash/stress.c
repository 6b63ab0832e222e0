// SPDX-License-Identifier: Apache-2.0
/*
 * stress.c - many processes, or many threads of one process, use one store, which is checked at the
 * end.
 *
 * stress [-w WORKERS] [-t] [-T SECONDS] [-s SEED] [-d DIR]
 *
 * The workers are those of work.h. The results that each got for its own names must stay valid
 * while all others seal, tag, remove, load and collect the same objects. -t: threads of one
 * process, half of them with a handle that all share, half with handles of their own, opened and
 * closed.
 */
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/work.h"
#include "tests/lib/clock.h"

static struct shared {
	struct work_notes work[WORK_WORKERS_MAX];
	struct work_check check;
} *shm;

static char dir[200], path[256];
static uint32_t workers = 8;
static uint64_t seed = 1;
static double seconds = 3, until;
static bool threads;

/* 0, or the worker met a fault. */
static int work_until(uint32_t nr, struct fdry_store *shared)
{
	struct worker w = { .path = path, .all = shm->work, .count = workers, .nr = nr,
			    .random = seed * 1000 + nr, .locked_fine = true, .s = shared,
			    .keep = shared != NULL, .forks = !threads };
	int err = 0;

	while (!err && now_s() < until)
		err = work_step(&w);
	if (!shared)
		fdry_store_close(w.s);
	return err;
}

static uint32_t run_processes(void)
{
	pid_t pids[WORK_WORKERS_MAX];
	uint32_t i, bad = 0;
	int status;

	for (i = 0; i < workers; i++) {
		pids[i] = fork();
		if (!pids[i])
			_exit(work_until(i, NULL) != 0);
	}
	for (i = 0; i < workers; i++)
		bad += waitpid(pids[i], &status, 0) != pids[i] || status;
	return bad;
}

struct thread {
	pthread_t id;
	uint32_t nr;
	struct fdry_store *shared;
};

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	return (void *)(uintptr_t)(work_until(t->nr, t->shared) != 0);
}

static uint32_t run_threads(void)
{
	struct thread t[WORK_WORKERS_MAX];
	struct fdry_store *s = NULL;
	uint32_t i, bad = 0;
	void *ret;

	if (fdry_store_open(path, FDRY_STORE_CREATE, &s)) {
		fprintf(stderr, "open: %s\n", fdry_last_error());
		return 1;
	}
	for (i = 0; i < workers; i++) {
		t[i] = (struct thread){ .nr = i, .shared = i & 1 ? s : NULL };
		if (pthread_create(&t[i].id, NULL, thread_main, &t[i]))
			abort();
	}
	for (i = 0; i < workers; i++) {
		pthread_join(t[i].id, &ret);
		bad += ret != NULL;
	}
	fdry_store_close(s);
	return bad;
}

static void check(void *arg)
{
	(void)arg;
	work_check_all(path, shm->work, workers, &shm->check);
}

static void counts_print(void)
{
	uint64_t done, refused, objects = 0;
	uint32_t i;
	int op;

	for (op = WORK_IDLE + 1; op < WORK_OPS_COUNT; op++) {
		for (i = 0, done = refused = 0; i < workers; i++) {
			done += shm->work[i].counts.done[op];
			refused += shm->work[i].counts.refused[op];
			objects += op == WORK_LOAD ? shm->work[i].counts.objects : 0;
		}
		if (done + refused)
			printf("%-8s %8llu done, %6llu refused\n", work_op_names[op],
			       (unsigned long long)done, (unsigned long long)refused);
	}
	printf("%u %s, %.0f s, %llu objects loaded and hashed meanwhile; seed %llu\n", workers,
	       threads ? "threads" : "processes", seconds, (unsigned long long)objects,
	       (unsigned long long)seed);
}

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

static int options(int argc, char **argv, const char **where)
{
	int c;

	while ((c = getopt(argc, argv, "w:tT:s:d:")) != -1) {
		if (c == 'w')
			workers = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 't')
			threads = true;
		else if (c == 'T')
			seconds = strtod(optarg, NULL);
		else if (c == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (c == 'd')
			*where = optarg;
		else
			return -1;
	}
	return workers && workers <= WORK_WORKERS_MAX ? 0 : -1;
}

static int setup(const char *where)
{
	snprintf(dir, sizeof(dir), "%s/foundry-stress-XXXXXX", where);
	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shm == MAP_FAILED || !mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/store", dir);
	until = now_s() + seconds;
	return 0;
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR"), *where = tmp ? tmp : "/tmp";
	struct work_check *r;
	uint32_t bad;

	if (options(argc, argv, &where) || setup(where)) {
		fprintf(stderr,
			"usage: stress [-w workers] [-t] [-T seconds] [-s seed] [-d dir]\n");
		return 2;
	}
	r = &shm->check;
	bad = threads ? run_threads() : run_processes();
	if (!work_in_child(check, NULL))
		bad++;
	counts_print();
	printf("at the end %llu images and %llu objects loaded and hashed, %llu objects collected; "
	       "%llu faults, %u workers failed\n",
	       (unsigned long long)r->images, (unsigned long long)r->objects,
	       (unsigned long long)r->collected, (unsigned long long)r->faults, bad);
	nftw(dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	return bad || r->faults;
}
