// SPDX-License-Identifier: Apache-2.0
/* facts.c - what the host did while something was measured; see facts.h. */
#include "tests/bench/gpu/facts.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SAMPLES 256u
#define NODES_MAX 8

/* The number after @key in a file of the kernel, skipping @skip numbers; -1: there is none. */
static int64_t number(const char *path, const char *key, int skip)
{
	FILE *f = fopen(path, "r");
	char text[4096] = "", *p;
	long long v = -1;
	int n = 0;

	if (!f)
		return -1;
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	p = strstr(text, key);
	for (p = p ? p + strlen(key) : NULL; p && skip >= 0; skip--, p += n)
		if (sscanf(p, "%lld%n", &v, &n) != 1)
			return -1;
	return v;
}

void facts_begin(struct facts *f)
{
	memset(f, 0, sizeof(*f));
	getrusage(RUSAGE_SELF, &f->used);
	(void)syscall(SYS_getcpu, &f->cpu, &f->node, NULL);
	f->pressure_us = number("/proc/pressure/cpu", "total=", 0);
	f->throttled_us = number("/sys/fs/cgroup/cpu.stat", "throttled_usec ", 0);
	f->stolen = number("/proc/stat", "cpu ", 7);
}

static double ms(const struct timeval *begin, const struct timeval *end)
{
	return (double)(end->tv_sec - begin->tv_sec) * 1e3 +
	       (double)(end->tv_usec - begin->tv_usec) * 1e-3;
}

/* In which NUMA nodes the pages lie that are in the page cache. */
static void pages_print(const char *file)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC), status[SAMPLES], i;
	unsigned int count[NODES_MAX] = { 0 }, other = 0;
	void *pages[SAMPLES];
	volatile const char *p;
	struct stat st;

	if (fd < 0)
		return;
	p = fstat(fd, &st) ? MAP_FAILED
			   : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return;
	for (i = 0; i < (int)SAMPLES; i++) {
		pages[i] = (void *)(p + (uint64_t)st.st_size / SAMPLES * (uint64_t)i / 4096 * 4096);
		(void)*(volatile const char *)pages[i];
	}
	if (!syscall(SYS_move_pages, 0, (unsigned long)SAMPLES, pages, NULL, status, 0)) {
		for (i = 0; i < (int)SAMPLES; i++) {
			if (status[i] >= 0 && status[i] < NODES_MAX)
				count[status[i]]++;
			else
				other++;
		}
		printf("; pages in nodes");
		for (i = 0; i < NODES_MAX; i++)
			if (count[i])
				printf(" %d: %u %%", i, count[i] * 100 / SAMPLES);
		if (other)
			printf(" unknown: %u %%", other * 100 / SAMPLES);
	}
	munmap((void *)p, (size_t)st.st_size);
}

void facts_print(const struct facts *f, const char *file)
{
	struct facts now;

	facts_begin(&now);
	printf("processor %u of node %u, then %u of %u; faults %ld + %ld of the disk; switches "
	       "%ld + %ld forced; user %.1f ms, system %.1f ms",
	       f->cpu, f->node, now.cpu, now.node, now.used.ru_minflt - f->used.ru_minflt,
	       now.used.ru_majflt - f->used.ru_majflt, now.used.ru_nvcsw - f->used.ru_nvcsw,
	       now.used.ru_nivcsw - f->used.ru_nivcsw, ms(&f->used.ru_utime, &now.used.ru_utime),
	       ms(&f->used.ru_stime, &now.used.ru_stime));
	if (now.pressure_us >= 0)
		printf("; waited for processors %.1f ms",
		       (double)(now.pressure_us - f->pressure_us) * 1e-3);
	if (now.throttled_us >= 0)
		printf("; throttled %.1f ms", (double)(now.throttled_us - f->throttled_us) * 1e-3);
	if (now.stolen >= 0)
		printf("; stolen %lld0 ms", (long long)(now.stolen - f->stolen));
	pages_print(file);
	printf("\n");
}
