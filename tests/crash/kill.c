// SPDX-License-Identifier: Apache-2.0
/*
 * kill.c - SIGKILL at any moment, under load: the store must keep everything that it reported as
 * done.
 *
 * kill [-n KILLS] [-w WORKERS] [-s SEED] [-d DIR] [-r] [-e]
 *
 * Several processes work on one store (work.h). One after the other is killed: either by itself,
 * inside the Nth call from now that changes a file, after a part of the call's data was written; or
 * from outside, at any moment during an operation. Then the victim's names are checked while the
 * others work. After some kills all stop, and the whole store is checked. The operations and calls
 * in which victims died are counted. -e: workers note success before the operation succeeds; the
 * test must detect that.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/crash/io.h"
#include "tests/crash/work.h"
#include "tests/lib/test.h"

#define WORKERS_MAX 16
#define ROUND 25 /* kills between two checks of all */
#define AIM_MAX 40
#define PAGE 4096

/* PHASE(NAME, text): inside which call. */
#define PHASES(X) \
	X(CODE, "no call") \
	X(PAGES, "pages") X(META, "meta page") X(SYNC, "sync") X(SIZE, "size") \
		X(FILE, "other file") X(NAME, "names")

enum phase {
#define X(NAME, text) PHASE_##NAME,
	PHASES(X)
#undef X
	PHASE_COUNT
};

static const char *const phase_names[] = {
#define X(NAME, text) [PHASE_##NAME] = text,
	PHASES(X)
#undef X
};

struct victim {
	_Atomic uint32_t phase;
	_Atomic int32_t countdown; /* calls until it ends itself; 0: it does not */
	_Atomic uint32_t part;     /* of 256: how much of the last call is done */
	_Atomic uint32_t parked;
	pid_t pid;
};

static struct shared {
	struct work_notes work[WORKERS_MAX];
	struct victim victim[WORKERS_MAX];
	struct work_check check;
	_Atomic uint32_t park;
	dev_t dev;
} *shm;

static char dir[200], path[256];
static uint32_t workers = 3;
static uint64_t seed = 1, rng;
static bool early, real; /* real: worker 0 seals captures */
static uint64_t table[WORK_OPS_COUNT][PHASE_COUNT], outside, launched;

/* --- in a worker: its position and its end --- */

static struct victim *self;

static enum phase phase_of_write(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	char link[32], name[300];
	ssize_t n;

	if (flags >= 0 && flags & O_DSYNC)
		return PHASE_META;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, name, sizeof(name) - 1);
	name[n > 0 ? n : 0] = '\0';
	return strstr(name, "/data.mdb") ? PHASE_PAGES : PHASE_FILE;
}

/* The store's files are the only ones of that kind that a worker writes. */
static bool is_stores(int fd)
{
	struct stat st;

	return fd > 2 && !fstat(fd, &st) && st.st_dev == shm->dev &&
	       (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
}

/* PHASE_CODE: not a call that changes the store's files. */
static enum phase phase_of(const struct io_call *c)
{
	switch (c->op) {
	case IO_WRITE:
		return is_stores(c->fd) ? phase_of_write(c->fd) : PHASE_CODE;
	case IO_SYNC:
		return is_stores(c->fd) ? PHASE_SYNC : PHASE_CODE;
	case IO_TRUNCATE:
		return is_stores(c->fd) ? PHASE_SIZE : PHASE_CODE;
	case IO_OPEN:
		return c->flags & O_CREAT && !c->existed ? PHASE_NAME : PHASE_CODE;
	case IO_MAP:
		return PHASE_CODE;
	default:
		return PHASE_NAME;
	}
}

/* Write only the first pages, as if the kernel had stopped there: it checks for signals between two
 * pages. */
static void write_part(const struct io_call *c, uint32_t part)
{
	int64_t at = c->at >= 0 ? c->at : syscall(SYS_lseek, c->fd, 0, SEEK_CUR);
	size_t left = c->len * part / 256, n;
	int i;

	if (left < c->len)
		left = left > (size_t)at % PAGE ? left - ((size_t)at + left) % PAGE : 0;
	for (i = 0; i < c->niov && left; i++) {
		n = c->iov[i].iov_len < left ? c->iov[i].iov_len : left;
		if (io_write_unseen(c->fd, c->iov[i].iov_base, n, at))
			return;
		at += (int64_t)n;
		left -= n;
	}
}

static void enter(struct io_call *c)
{
	enum phase phase = phase_of(c);

	if (phase == PHASE_CODE)
		return;
	atomic_store(&self->phase, phase);
	if (!atomic_load(&self->countdown) || atomic_fetch_sub(&self->countdown, 1) != 1)
		return;
	if (c->op == IO_WRITE)
		write_part(c, atomic_load(&self->part));
	else if (c->op == IO_SYNC && atomic_load(&self->part) > 128)
		syscall(SYS_fsync, c->fd);
	syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
}

static void leave(struct io_call *c, long ret)
{
	(void)c, (void)ret;
	atomic_store(&self->phase, PHASE_CODE);
}

static const struct io_hooks hooks = { enter, leave };

/* The process that a repair forks to read the store is not killed. */
static void forked(void)
{
	io_hooks = NULL;
}

/* Note the success before the change, in the wrong order: the test must detect that. */
static void note_early(struct worker *w, uint32_t name)
{
	struct work_name *n = &w->all[w->nr].name[name];

	if (atomic_load(&n->intent) != INTENT_SET)
		return;
	n->reported = n->wanted;
	n->there = true;
	atomic_store(&n->intent, INTENT_NONE);
}

static int real_step(struct worker *w)
{
	int err;

	atomic_store(&w->all[w->nr].op, WORK_REAL);
	err = work_real_seal(w);
	atomic_store(&w->all[w->nr].op, WORK_IDLE);
	w->all[w->nr].counts.done[WORK_REAL] += !err;
	return err;
}

static void park(struct worker *w)
{
	fdry_store_close(w->s);
	w->s = NULL;
	atomic_store(&self->parked, 1);
	while (atomic_load(&shm->park))
		usleep(300);
	atomic_store(&self->parked, 0);
}

static void work_for_ever(void *arg)
{
	struct worker *w = arg;
	int err = 0;

	if (w->real)
		work_real_begin(path);
	io_hooks = &hooks;
	pthread_atfork(NULL, NULL, forked);
	while (!err) {
		if (atomic_load(&shm->park))
			park(w);
		err = w->real && work_random(&w->random) >> 40 & 1 ? real_step(w) : work_step(w);
	}
}

static __attribute__((noreturn)) void worker_main(uint32_t nr, uint64_t random)
{
	struct worker w = { .path = path, .all = shm->work, .count = workers, .nr = nr,
			    .random = random, .locked_fine = true, .forks = true,
			    .real = real && nr == 0, .noted = early ? note_early : NULL };

	self = &shm->victim[nr];
	if (w.real)
		(void)!test_checks_hold(work_for_ever, &w);
	else
		work_for_ever(&w);
	_exit(1);
}

/* --- the driver --- */

static void worker_start(uint32_t nr)
{
	struct victim *v = &shm->victim[nr];
	pid_t pid;

	atomic_store(&v->countdown, 0);
	atomic_store(&v->phase, PHASE_CODE);
	atomic_store(&v->parked, 0);
	atomic_store(&shm->work[nr].op, WORK_IDLE);
	pid = fork();
	if (!pid)
		worker_main(nr, work_random(&rng));
	v->pid = pid;
}

static bool reaped(struct victim *v, int options, int *status)
{
	pid_t pid;

	do
		pid = waitpid(v->pid, status, options);
	while (pid < 0 && errno == EINTR);
	return pid == v->pid;
}

/* The worker kills itself inside a call; if it makes no such call, it is killed from outside after
 * a while. */
static void kill_aimed(struct victim *v, int *status)
{
	static const uint32_t parts[] = { 0, 256, 64, 128, 192 };
	int i;

	atomic_store(&v->part, parts[work_random(&rng) / 2 % 5]);
	atomic_store(&v->countdown, (int32_t)(1 + work_random(&rng) / 2 % AIM_MAX));
	for (i = 0; i < 20000; i++) {
		if (reaped(v, WNOHANG, status))
			return;
		usleep(200);
	}
	kill(v->pid, SIGKILL);
	reaped(v, 0, status);
}

static void kill_outside(uint32_t nr, int *status)
{
	struct victim *v = &shm->victim[nr];
	int i;

	usleep((useconds_t)(work_random(&rng) / 2 % 8000));
	for (i = 0; i < 100000 && atomic_load(&shm->work[nr].op) == WORK_IDLE; i++)
		;
	kill(v->pid, SIGKILL);
	reaped(v, 0, status);
}

static void check_one(void *arg)
{
	uint32_t nr = *(uint32_t *)arg;

	work_check_names(path, shm->work, nr, nr + 1, &shm->check);
}

static void check_all(void *arg)
{
	(void)arg;
	work_check_all(path, shm->work, workers, &shm->check);
}

static void launch_real(void *arg)
{
	char ref[32];

	(void)arg;
	work_name(ref, 0, WORK_NAMES - 1);
	work_real_check(path, ref);
}

static void check_real(void *arg)
{
	if (!test_checks_hold(launch_real, arg))
		_exit(1);
}

static void as_child(void (*fn)(void *arg), void *arg)
{
	if (!work_in_child(fn, arg))
		shm->check.faults++;
}

static void kill_one(uint64_t i)
{
	uint32_t nr = (uint32_t)(work_random(&rng) / 2 % workers), op;
	struct victim *v = &shm->victim[nr];
	int status = 0;

	if (i & 1)
		kill_outside(nr, &status);
	else
		kill_aimed(v, &status);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		fprintf(stderr, "fault: worker %u ended by itself with status %#x\n", nr, status);
		shm->check.faults++;
	}
	op = atomic_load(&shm->work[nr].op);
	if (op == WORK_IDLE)
		outside++;
	else
		table[op][atomic_load(&v->phase)]++;
	as_child(check_one, &nr);
	worker_start(nr);
}

static void stop_and_check(void)
{
	uint32_t i;

	atomic_store(&shm->park, 1);
	for (i = 0; i < workers; i++)
		while (!atomic_load(&shm->victim[i].parked) && !kill(shm->victim[i].pid, 0) &&
		       waitpid(shm->victim[i].pid, NULL, WNOHANG) == 0)
			usleep(200);
	as_child(check_all, NULL);
	if (real && shm->work[0].name[WORK_NAMES - 1].there) {
		as_child(check_real, NULL);
		launched++;
	}
	atomic_store(&shm->park, 0);
}

static void table_print(uint64_t kills)
{
	uint64_t sum, all = 0;
	int op, phase;

	printf("\n%-10s", "inside");
	for (phase = 0; phase < PHASE_COUNT; phase++)
		printf(" %10s", phase_names[phase]);
	printf(" %10s\n", "all");
	for (op = WORK_IDLE + 1; op < WORK_OPS_COUNT; op++) {
		printf("%-10s", work_op_names[op]);
		for (phase = 0, sum = 0; phase < PHASE_COUNT; phase++) {
			printf(" %10llu", (unsigned long long)table[op][phase]);
			sum += table[op][phase];
		}
		printf(" %10llu\n", (unsigned long long)sum);
		all += sum;
	}
	printf("%llu kills, %llu of them inside an operation; seed %llu\n",
	       (unsigned long long)kills, (unsigned long long)all, (unsigned long long)seed);
}

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

static int options(int argc, char **argv, uint64_t *kills, const char **where)
{
	int c;

	while ((c = getopt(argc, argv, "n:w:s:d:er")) != -1) {
		if (c == 'n')
			*kills = strtoull(optarg, NULL, 10);
		else if (c == 'w')
			workers = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (c == 'd')
			*where = optarg;
		else if (c == 'e')
			early = true;
		else if (c == 'r')
			real = true;
		else
			return -1;
	}
	return workers && workers <= WORKERS_MAX ? 0 : -1;
}

static int setup(const char *where)
{
	struct stat st;

	snprintf(dir, sizeof(dir), "%s/foundry-kill-XXXXXX", where);
	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shm == MAP_FAILED || !mkdtemp(dir) || stat(dir, &st))
		return -1;
	shm->dev = st.st_dev;
	snprintf(path, sizeof(path), "%s/store", dir);
	rng = seed;
	return 0;
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR"), *where = tmp ? tmp : "/tmp";
	struct work_check *r;
	uint64_t kills = 150, i;

	if (options(argc, argv, &kills, &where) || setup(where)) {
		fprintf(stderr,
			"usage: kill [-n kills] [-w workers] [-s seed] [-d dir] [-r] [-e]\n");
		return 2;
	}
	r = &shm->check;
	for (i = 0; i < workers; i++)
		worker_start((uint32_t)i);
	for (i = 1; i <= kills && !r->faults; i++) {
		kill_one(i);
		if (i % ROUND == 0 || i == kills)
			stop_and_check();
	}
	for (i = 0; i < workers; i++) {
		kill(shm->victim[i].pid, SIGKILL);
		waitpid(shm->victim[i].pid, NULL, 0);
	}
	table_print(kills);
	printf("%llu images and %llu objects loaded and hashed, %llu names were being changed, "
	       "%llu objects collected; %llu faults\n",
	       (unsigned long long)r->images, (unsigned long long)r->objects,
	       (unsigned long long)r->undecided, (unsigned long long)r->collected,
	       (unsigned long long)r->faults);
	if (real)
		printf("%llu times a capture was loaded and launched\n",
		       (unsigned long long)launched);
	nftw(dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
	return r->faults != 0;
}
