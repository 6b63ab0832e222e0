// SPDX-License-Identifier: Apache-2.0
/* long.c - the server behind tests of very many cases; see long.h. */
#include "tests/long/long.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"

#define FAULTS_MAX 20 /* the number of faults after which a test ends */

char long_dir[256];
bool long_alone;

static uint64_t state; /* of the case's numbers */

/* Results that processes of cases report to the server. */
static struct shared {
	uint64_t at; /* the case that runs, or the next */
	uint64_t ends[LONG_ENDS];
	uint64_t faults;
} *shm;

static void give_up(const char *what, const char *path)
{
	fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
	_exit(3);
}

/* --- numbers --- */

uint64_t long_random(void)
{
	uint64_t x = state += 0x9E3779B97F4A7C15u;

	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
	x = (x ^ x >> 27) * 0x94D049BB133111EBu;
	return x ^ x >> 31;
}

uint64_t long_below(uint64_t n)
{
	return long_random() % n;
}

static void random_begin(uint64_t seed, uint64_t nr)
{
	state = seed;
	state = long_random() ^ nr * 0xD1342543DE82EF95u;
}

/* --- Check's assertions --- */

static void call(void *fn)
{
	(*(void (**)(void))fn)();
}

void long_checked(void (*fn)(void))
{
	if (!test_checks_hold(call, &fn)) {
		fflush(stdout);
		_exit(3);
	}
}

/* --- files --- */

uint8_t *long_read_file(const char *path, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *data;

	if (fd < 0 || fstat(fd, &st))
		give_up("open", path);
	data = malloc((size_t)st.st_size + 1);
	if (!data || read(fd, data, (size_t)st.st_size) != st.st_size)
		give_up("read", path);
	close(fd);
	*len = (size_t)st.st_size;
	return data;
}

void long_write_file(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, len) != (ssize_t)len || close(fd))
		give_up("write", path);
}

static int remove_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

void long_remove(const char *path)
{
	(void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void long_write_store(const char *path, const void *data, size_t len)
{
	char name[300];

	long_remove(path);
	if (mkdir(path, 0700))
		give_up("make", path);
	snprintf(name, sizeof(name), "%s/data.mdb", path);
	long_write_file(name, data, len);
}

/* --- the server --- */

void long_limit(uint32_t seconds)
{
	struct itimerval t = { .it_value.tv_sec = seconds };

	setitimer(ITIMER_PROF, &t, NULL);
	alarm(10 * seconds);
}

/* A signal of long_limit(). */
static bool timed_out(int signal)
{
	return signal == SIGALRM || signal == SIGPROF;
}

/* Wait for a child. Returns false after a signal or a status other than 0, and describes it in
 * @how. */
static bool ended_well(pid_t pid, char how[64])
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		snprintf(how, 64, timed_out(WTERMSIG(status)) ? "hung" : "was ended by signal %d",
			 WTERMSIG(status));
	else
		snprintf(how, 64, "ended with status %d", WEXITSTATUS(status));
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

static void cases_run(const struct long_test *t, uint64_t seed, uint64_t end)
{
	int got;

	if (t->begin)
		t->begin();
	for (; shm->at < end; shm->at++) {
		long_limit(t->seconds);
		random_begin(seed, shm->at);
		got = t->run(shm->at);
		if (got == LONG_FAULT) {
			shm->faults++;
			dprintf(STDERR_FILENO,
				"%s: FAULT in case %llu; to see it: -s %llu -c %llu\n", t->name,
				(unsigned long long)shm->at, (unsigned long long)seed,
				(unsigned long long)shm->at);
		} else {
			shm->ends[got]++;
		}
	}
	_exit(0);
}

static void prepare(const struct long_test *t)
{
	char how[64];
	pid_t pid;

	if (!t->prepare)
		return;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		t->prepare();
		_exit(0);
	}
	if (!ended_well(pid, how)) {
		fprintf(stderr, "%s: what prepares it %s\n", t->name, how);
		long_remove(long_dir);
		exit(1);
	}
}

static void serve(const struct long_test *t, uint64_t seed, uint64_t first, uint64_t end)
{
	uint64_t until;
	char how[64];
	pid_t pid;

	for (shm->at = first; shm->at < end && shm->faults < FAULTS_MAX;) {
		until = shm->at + t->together < end ? shm->at + t->together : end;
		fflush(NULL);
		pid = fork();
		if (!pid)
			cases_run(t, seed, until);
		if (pid > 0 && ended_well(pid, how))
			continue;
		shm->faults++;
		fprintf(stderr, "%s: FAULT: case %llu %s; to see it: -s %llu -c %llu\n", t->name,
			(unsigned long long)shm->at, how, (unsigned long long)seed,
			(unsigned long long)shm->at);
		shm->at++;
	}
}

static uint64_t number(const char *text, uint64_t otherwise)
{
	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void dir_make(const char *in)
{
	snprintf(long_dir, sizeof(long_dir), "%s/foundry-long-XXXXXX", in);
	if (!mkdtemp(long_dir))
		give_up("make", long_dir);
}

static void report(const struct long_test *t, uint64_t seed, uint64_t cases)
{
	int i;

	fprintf(stderr, "%s: %llu cases, seed %llu:", t->name, (unsigned long long)cases,
		(unsigned long long)seed);
	for (i = 0; i < LONG_ENDS && t->ends[i]; i++)
		fprintf(stderr, " %llu %s%s", (unsigned long long)shm->ends[i], t->ends[i],
			i + 1 < LONG_ENDS && t->ends[i + 1] ? "," : "\n");
	printf("%d%%: Checks: %llu, Failures: %llu, Errors: 0\n", shm->faults ? 0 : 100,
	       (unsigned long long)cases, (unsigned long long)shm->faults);
}

int long_main(int argc, char **argv, const struct long_test *t)
{
	uint64_t percent = number(getenv("LONG"), 0), seed = number(getenv("SEED"), 1), first = 0;
	uint64_t cases = percent ? t->all * percent / 100 : t->sample;
	const char *in = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
	uint64_t known = 0;
	int opt, i;

	while ((opt = getopt(argc, argv, "n:s:c:d:")) != -1)
		switch (opt) {
		case 'n': cases = number(optarg, 0); break;
		case 's': seed = number(optarg, 0); break;
		case 'c': first = number(optarg, 0), cases = 1, long_alone = true; break;
		case 'd': in = optarg; break;
		default: return 2;
		}
	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shm == MAP_FAILED)
		give_up("map", "memory");
	dir_make(in);
	prepare(t);
	for (i = 0; i < LONG_KNOWN && t->known[i].seed && !long_alone; i++, known++)
		serve(t, t->known[i].seed, t->known[i].nr, t->known[i].nr + 1);
	serve(t, seed, first, first + cases);
	long_remove(long_dir);
	report(t, seed, shm->at - first + known);
	return shm->faults != 0;
}
