// SPDX-License-Identifier: Apache-2.0
/*
 * The cost of the interposer for a process that never calls CUDA: the time from the start of a
 * program to its end, without and with LD_PRELOAD of the interposer and its twin. Both take turns,
 * so that they run under the same conditions.
 *
 * interposer [RUNS]
 */
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/clock.h"

extern char **environ;

#define ENV_MAX 4096

static char preload[2 * PATH_MAX + 128];
static char *plain[ENV_MAX + 2], *covered[ENV_MAX + 2];

/* The interposer's folder is ../../foundry/hook, relative to this program. */
static int environments(void)
{
	char self[PATH_MAX], hook[PATH_MAX + 32];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int i, n = 0;

	if (len < 0)
		return -1;
	self[len] = '\0';
	for (i = 0; i < 3; i++)
		*strrchr(self, '/') = '\0';
	snprintf(hook, sizeof(hook), "%s/foundry/hook", self);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/libcuda.so.1 %s/libcuda.so", hook, hook);
	for (i = 0; environ[i] && n < ENV_MAX; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11))
			plain[n] = covered[n] = environ[i], n++;
	covered[n] = preload;
	return access(strchr(preload, '/'), F_OK) && access(hook, F_OK);
}

static double run_ms(char **argv, char **env)
{
	double start = now_ms();
	int status;
	pid_t pid;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, env) || waitpid(pid, &status, 0) < 0 ||
	    status) {
		fprintf(stderr, "%s cannot be run\n", argv[0]);
		exit(1);
	}
	return now_ms() - start;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const char *name, char **argv, int runs)
{
	double *t[2] = { calloc((size_t)runs, sizeof(double)),
			 calloc((size_t)runs, sizeof(double)) };
	int i, k;

	for (i = 0; i < runs && t[0] && t[1]; i++) {
		t[0][i] = run_ms(argv, plain);
		t[1][i] = run_ms(argv, covered);
	}
	for (k = 0; k < 2 && t[0] && t[1]; k++)
		qsort(t[k], (size_t)runs, sizeof(double), by_size);
	if (t[0] && t[1])
		printf("%-16s %8.3f %8.3f %8.3f   %8.3f %8.3f %8.3f   %+.3f\n", name,
		       t[0][runs / 10], t[0][runs / 2], t[0][runs * 9 / 10], t[1][runs / 10],
		       t[1][runs / 2], t[1][runs * 9 / 10], t[1][runs / 2] - t[0][runs / 2]);
	free(t[0]);
	free(t[1]);
}

/* Return the path of Python itself: "python3" may be a script that starts many programs first. */
static char *python_path(void)
{
	static char path[PATH_MAX];
	FILE *f = popen("python3 -c 'import sys; print(sys.executable)'", "r");

	if (!f || !fgets(path, sizeof(path), f))
		snprintf(path, sizeof(path), "python3");
	path[strcspn(path, "\n")] = '\0';
	if (f)
		pclose(f);
	return path;
}

int main(int argc, char **argv)
{
	static char *nothing[] = { "/bin/true", NULL }, *python[] = { NULL, "-c", "pass", NULL };
	int runs = argc > 1 ? atoi(argv[1]) : 200;

	if (runs < 1 || environments()) {
		fprintf(stderr, "interposer [RUNS]\n");
		return 1;
	}
	printf("start to end, ms     without the interposer            LD_PRELOAD of it           "
	       "median more\n");
	printf("%-16s %8s %8s %8s   %8s %8s %8s\n", "", "p10", "median", "p90", "p10", "median",
	       "p90");
	python[0] = python_path();
	measure("/bin/true", nothing, runs);
	measure("python3 -c pass", python, (runs + 4) / 5);
	return 0;
}
