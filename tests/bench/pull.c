// SPDX-License-Identifier: Apache-2.0
/*
 * pull.c - the time from an empty store to the first launch, with a registry behind a slow network:
 * pulling and then loading, beside a load that fetches what it needs. Software driver.
 *
 * pull [MB_PER_S [GRAPHS [MIB]]]
 *
 * An image of GRAPHS graphs and MIB MiB of content lies in a docker-registry of its own, which
 * FOUNDRY_TEST_REGISTRY names or PATH finds. All connections to it pass through this program, which
 * lets MB_PER_S through. Each way runs in a process of its own and builds all graphs. Milliseconds
 * since the process opened the store, the least of three first launches; "last chunk" is when all
 * content is in device memory and compared.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch/driver.h"
#include "foundry.h"
#include "lib/clock.h"
#include "tests/lib/need.h"
#include "tests/lib/workload.h"

#define GRAPHS_MAX 1024
#define PIECE 65536

static char folder[PATH_MAX];
static unsigned int rate = 200, graphs = 64, mib = 128;
static struct workload w = {
	.base = 0x200000000000ull, .size = 1ull << 36, .kernels = 45, .nodes = 200
};
static uint16_t registry_port, slow_port;

static const char *path_in(const char *name)
{
	static char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

/* --- the image --- */

static struct fdry_registry_report image_push(struct fdry_store *store)
{
	struct fdry_registry_opts opts = { .sz = sizeof(opts), .flags = FDRY_REGISTRY_PRIVATE };
	struct fdry_registry_report r = { .sz = sizeof(r) };
	const char *name = "model";
	char to[64];

	snprintf(to, sizeof(to), "oci+http://127.0.0.1:%u/images:model", registry_port);
	need(fdry_store_push(store, &name, 1, to, &opts, &r), "fdry_store_push");
	return r;
}

static void image_make(double *bytes)
{
	struct fdry_registry_report r;
	struct fdry_store *store;
	unsigned int i;

	w.blocks = mib / 2;
	workload_begin(&w);
	workload_functions(&w);
	need(fdry_store_open(path_in("from"), FDRY_STORE_CREATE, &store), "fdry_store_open");
	for (i = 1; i <= graphs; i++)
		need(fdry_capture_graph(w.cap, i, "graph", workload_graph(&w, i)),
		     "fdry_capture_graph");
	need(fdry_capture_seal(w.cap, store, "model", NULL, NULL), "fdry_capture_seal");
	r = image_push(store);
	bytes[0] = (double)r.bytes;
	bytes[1] = (double)r.objects;
}

/* --- the network --- */

/* Bytes from the registry wait until the rate allows them. */
static void rate_wait(size_t bytes)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static double free_ms; /* when the line is free again */
	double now = fdry_now_ms(), wait;

	pthread_mutex_lock(&lock);
	if (free_ms < now)
		free_ms = now;
	wait = free_ms - now;
	free_ms += (double)bytes / (rate * 1e3);
	pthread_mutex_unlock(&lock);
	if (wait >= 1)
		fdry_sleep_ms((unsigned int)wait);
}

static bool pass(int from, int to, bool limited)
{
	char bytes[PIECE], *at = bytes;
	ssize_t n = read(from, bytes, sizeof(bytes)), k;

	if (n <= 0)
		return false;
	if (limited)
		rate_wait((size_t)n);
	for (; n > 0; n -= k, at += k) {
		k = write(to, at, (size_t)n);
		if (k <= 0)
			return false;
	}
	return true;
}

static int registry_connect(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(registry_port),
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && !connect(fd, (void *)&to, sizeof(to)))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static void *connection_run(void *arg)
{
	struct pollfd p[2] = { { .fd = (int)(intptr_t)arg, .events = POLLIN },
			       { .fd = registry_connect(), .events = POLLIN } };
	bool open = p[1].fd >= 0;

	while (open && poll(p, 2, -1) > 0) {
		if (p[0].revents)
			open = pass(p[0].fd, p[1].fd, false);
		if (open && p[1].revents)
			open = pass(p[1].fd, p[0].fd, true);
	}
	close(p[0].fd);
	if (p[1].fd >= 0)
		close(p[1].fd);
	return NULL;
}

static void *network_run(void *arg)
{
	int fd, listening = (int)(intptr_t)arg;
	pthread_t thread;

	while ((fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		if (pthread_create(&thread, NULL, connection_run, (void *)(intptr_t)fd))
			close(fd);
		else
			(void)pthread_detach(thread);
	}
	return NULL;
}

/* A socket on a free port of the loopback interface. */
static int port_open(uint16_t *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (void *)&at, sizeof(at)) || listen(fd, 64) ||
	    getsockname(fd, (void *)&at, &len)) {
		perror("pull: a port on the loopback interface");
		exit(EXIT_FAILURE);
	}
	*port = ntohs(at.sin_port);
	return fd;
}

/* --- the registry --- */

static pid_t registry_pid;

static void config_write(void)
{
	FILE *f = fopen(path_in("registry.yml"), "w");

	need(f ? 0 : -1, "registry.yml");
	fprintf(f, "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\n"
		   "storage:\n  filesystem:\n    rootdirectory: %s/data\n"
		   "http:\n  addr: 127.0.0.1:%u\n", folder, registry_port);
	fclose(f);
}

/* False if there is no such program. */
static bool registry_start(void)
{
	const char *named = getenv("FOUNDRY_TEST_REGISTRY");
	const char *program = named ? named : "docker-registry";
	int fd = port_open(&registry_port), i, status;

	close(fd);
	config_write();
	registry_pid = fork();
	if (!registry_pid) {
		setenv("OTEL_TRACES_EXPORTER", "none", 1);
		(void)!freopen(path_in("registry.log"), "w", stderr);
		execlp(program, program, "serve", path_in("registry.yml"), (char *)NULL);
		_exit(127);
	}
	for (i = 0; i < 200; i++) {
		fdry_sleep_ms(50);
		fd = registry_connect();
		if (fd >= 0) {
			close(fd);
			return true;
		}
		if (waitpid(registry_pid, &status, WNOHANG) == registry_pid)
			break;
	}
	registry_pid = 0;
	return false;
}

/* --- the two ways --- */

enum { MANIFEST, KERNELS_LOADED, BUILT, CHUNKS, LAUNCHED, FIGURES };

struct seen {
	double start, *ms;
};

static void on_progress(void *arg, int phase, uint64_t done, uint64_t total, double unused)
{
	static const int figure[] = { [FDRY_PHASE_MANIFEST] = MANIFEST + 1,
				      [FDRY_PHASE_KERNELS] = KERNELS_LOADED + 1,
				      [FDRY_PHASE_GRAPHS] = BUILT + 1,
				      [FDRY_PHASE_CONTENT] = CHUNKS + 1 };
	struct seen *seen = arg;

	(void)unused;
	if (done == total && phase <= FDRY_PHASE_GRAPHS && figure[phase])
		seen->ms[figure[phase] - 1] = fdry_now_ms() - seen->start;
}

static struct fdry_store *store_new(void)
{
	char command[3 * PATH_MAX];
	struct fdry_store *store;

	snprintf(command, sizeof(command), "rm -rf '%s'", path_in("to"));
	need(system(command), command);
	need(fdry_store_open(path_in("to"), FDRY_STORE_CREATE, &store), "fdry_store_open");
	return store;
}

static void load_and_launch(struct fdry_store *store, struct seen *seen)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_BUILD,
				       .progress = on_progress, .progress_arg = seen };
	struct fdry_image *img;

	need(fdry_image_load(store, "model", &opts, &img), "fdry_image_load");
	need(fdry_image_launch(img, 1, NULL), "fdry_image_launch");
	need(fdry_image_synchronize(img, NULL), "fdry_image_synchronize");
	seen->ms[LAUNCHED] = fdry_now_ms() - seen->start;
}

static void pull_then_load(double *ms)
{
	struct fdry_store *store = store_new();
	struct seen seen = { fdry_now_ms(), ms };
	char from[64];

	snprintf(from, sizeof(from), "oci+http://127.0.0.1:%u/images:model", slow_port);
	need(fdry_store_pull(store, from, NULL, NULL), "fdry_store_pull");
	load_and_launch(store, &seen);
}

static void load_through(double *ms)
{
	struct fdry_store *store = store_new();
	struct seen seen = { fdry_now_ms(), ms };
	char from[64];

	snprintf(from, sizeof(from), "oci+http://127.0.0.1:%u/images", slow_port);
	need(setenv("FOUNDRY_REGISTRY", from, 1), from);
	load_and_launch(store, &seen);
}

static void load_stored(double *ms)
{
	struct fdry_store *store;
	struct seen seen = { fdry_now_ms(), ms };

	need(fdry_store_open(path_in("to"), 0, &store), "fdry_store_open");
	load_and_launch(store, &seen);
}

/* --- processes --- */

static void show(const char *name, void (*fn)(double *ms))
{
	double best[FIGURES] = { 0 }, ms[FIGURES];
	int i;

	for (i = 0; i < 3; i++) {
		workload_run(fn, ms, FIGURES);
		if (!i || ms[LAUNCHED] < best[LAUNCHED])
			memcpy(best, ms, sizeof(best));
	}
	printf("%-20s %9.1f %9.1f %9.1f %11.1f %13.1f\n", name, best[MANIFEST],
	       best[KERNELS_LOADED], best[BUILT], best[CHUNKS], best[LAUNCHED]);
	fflush(stdout);
}

static pid_t owner;

static void leave(void)
{
	char command[2 * PATH_MAX];

	if (getpid() != owner)
		return;
	if (registry_pid > 0)
		kill(registry_pid, SIGKILL);
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	(void)!system(command);
}

static unsigned int number(const char *text, unsigned int most)
{
	unsigned long n = strtoul(text, NULL, 10);

	if (!n || n > most) {
		fprintf(stderr, "pull: '%s' is no number from 1 to %u\n", text, most);
		exit(EXIT_FAILURE);
	}
	return (unsigned int)n;
}

static void environment_set(void)
{
	char path[PATH_MAX + 64];

	workload_init(&w);
	snprintf(path, sizeof(path), "%s/libfoundry-registry.so.0.2", w.build);
	need(setenv("FOUNDRY_REGISTRY_LIBRARY", path, 1), path);
	snprintf(folder, PATH_MAX, "%s/fdry-pull-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	need(mkdtemp(folder) ? 0 : -1, folder);
	owner = getpid();
	atexit(leave);
	signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv)
{
	double made[FIGURES];
	pthread_t network;
	int fd;

	if (argc > 1)
		rate = number(argv[1], 100000);
	if (argc > 2)
		graphs = number(argv[2], GRAPHS_MAX);
	if (argc > 3)
		mib = number(argv[3], 4096);
	environment_set();
	if (!registry_start()) {
		printf("SKIP: no docker-registry\n");
		return EXIT_SUCCESS;
	}
	workload_run(image_make, made, FIGURES);
	fd = port_open(&slow_port);
	need(pthread_create(&network, NULL, network_run, (void *)(intptr_t)fd), "a thread");
	printf("%u graphs of %u nodes, %u kernels; %.0f objects, %.1f MB at %u MB/s\n", graphs,
	       w.nodes, w.kernels, made[1], made[0] / 1e6, rate);
	printf("%-20s %9s %9s %9s %11s %13s\n", "", "manifest", "kernels", "built", "last chunk",
	       "first launch");
	fflush(stdout);
	show("pull, then load", pull_then_load);
	show("load through", load_through);
	show("load from the store", load_stored);
	return EXIT_SUCCESS;
}
