// SPDX-License-Identifier: Apache-2.0
/*
 * content.c - how fast content reaches the GPU, beside what pinned memory does and what the disk gives.
 *
 *   content [-s STORE] [-r REF] [-n ROUNDS]
 *
 * Prints lines "name value value ...", GB/s, one value a round: a copy out of pinned memory; a
 * load whose content was verified before; one that verifies; one whose store is not in the
 * page cache; and a read of the same file by as many threads as there are processors.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/clock.h"
#include "api/foundry.h"
#include "arch/driver.h"

#define PINNED (1ull << 30)
#define PIECE (8u << 20)
#define THREADS_MAX 64

static void check(int err)
{
	if (!err)
		return;
	fprintf(stderr, "content: %s\n", fdry_last_error());
	exit(1);
}

static double pinned(const struct fdry_driver *drv)
{
	CUdeviceptr dev = 0;
	double mark;
	void *host = NULL;
	int i;

	check(fdry_call(drv, cuMemAllocHost_v2, &host, PINNED));
	memset(host, 1, PINNED);
	check(fdry_call(drv, cuMemAlloc_v2, &dev, PINNED));
	check(fdry_call(drv, cuMemcpyHtoDAsync_v2, dev, host, PINNED, NULL));
	check(fdry_call(drv, cuStreamSynchronize, NULL));
	mark = fdry_now_ms();
	for (i = 0; i < 4; i++)
		check(fdry_call(drv, cuMemcpyHtoDAsync_v2, dev, host, PINNED, NULL));
	check(fdry_call(drv, cuStreamSynchronize, NULL));
	mark = fdry_lap_ms(&mark);
	check(fdry_call(drv, cuMemFree_v2, dev));
	check(fdry_call(drv, cuMemFreeHost, host));
	return 4.0 * PINNED / mark / 1e6;
}

static double load(struct fdry_store *store, const char *ref, uint32_t flags)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = flags };
	struct fdry_load_report rep = { .sz = sizeof(rep) };
	struct fdry_image *img;

	check(fdry_image_load(store, ref, &opts, &img));
	check(fdry_image_report(img, &rep));
	fdry_image_unload(img);
	return (double)rep.content_bytes / rep.content_ms / 1e6;
}

/* Take the file out of the page cache; what is dirty or mapped stays. */
static void forget(const char *file)
{
	int fd = open(file, O_RDONLY);

	if (fd < 0)
		return;
	(void)fsync(fd);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

static struct {
	int fd;
	uint64_t size;
	_Atomic uint64_t next;
} readers;

static void *reader(void *arg)
{
	char *buf = malloc(PIECE);
	uint64_t at;

	while (buf && (at = atomic_fetch_add(&readers.next, PIECE)) < readers.size)
		if (pread(readers.fd, buf, PIECE, (off_t)at) < 0)
			break;
	free(buf);
	return arg;
}

static double disk(const char *file)
{
	long i, n = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[THREADS_MAX];
	double mark = fdry_now_ms();
	struct stat st;

	readers.fd = open(file, O_RDONLY);
	if (readers.fd < 0 || fstat(readers.fd, &st))
		return 0;
	readers.size = (uint64_t)st.st_size;
	readers.next = 0;
	n = n > THREADS_MAX ? THREADS_MAX : n;
	for (i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, reader, NULL))
			exit(1);
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	close(readers.fd);
	return (double)st.st_blocks * 512 / fdry_lap_ms(&mark) / 1e6;
}

static double cold(const char *dir, const char *ref, const char *file)
{
	struct fdry_store *store;
	double speed;

	forget(file);
	check(fdry_store_open(dir, 0, &store));
	speed = load(store, ref, 0);
	fdry_store_close(store);
	return speed;
}

static double cold_disk(const char *file)
{
	forget(file);
	return disk(file);
}

static double warm(const char *dir, const char *ref, uint32_t flags)
{
	struct fdry_store *store;
	double speed;

	check(fdry_store_open(dir, 0, &store));
	speed = load(store, ref, flags);
	fdry_store_close(store);
	return speed;
}

int main(int argc, char **argv)
{
	const char *dir = getenv("FOUNDRY_STORE"), *ref = "bench";
	const struct fdry_driver *drv;
	double v[5][16];
	char file[4096];
	int opt, i, j, rounds = 3;
	CUcontext ctx;

	while ((opt = getopt(argc, argv, "s:r:n:")) != -1) {
		switch (opt) {
		case 's': dir = optarg; break;
		case 'r': ref = optarg; break;
		case 'n': rounds = atoi(optarg); break;
		default: return 2;
		}
	}
	if (!dir || rounds < 1 || rounds > 16)
		return 2;
	snprintf(file, sizeof(file), "%s/data.mdb", dir);
	check(fdry_driver_open(NULL, &drv));
	check(fdry_call(drv, cuDevicePrimaryCtxRetain, &ctx, 0));
	check(fdry_call(drv, cuCtxSetCurrent, ctx));
	(void)warm(dir, ref, FDRY_LOAD_VERIFY);
	for (i = 0; i < rounds; i++) {
		v[0][i] = pinned(drv);
		v[1][i] = warm(dir, ref, 0);
		v[2][i] = warm(dir, ref, FDRY_LOAD_VERIFY);
		v[3][i] = cold(dir, ref, file);
		v[4][i] = cold_disk(file);
	}
	for (j = 0; j < 5; j++) {
		printf("%s", ((const char *[]){ "pinned", "warm", "warm_verified", "cold", "disk" })[j]);
		for (i = 0; i < rounds; i++)
			printf(" %.2f", v[j][i]);
		printf("\n");
	}
	return 0;
}
