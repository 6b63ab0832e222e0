// SPDX-License-Identifier: Apache-2.0
/* data_file.c - see data_file.h. */
#include "tests/lib/data_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "store/step.h"
#include "tests/lib/store.h"

#define PAGE 4096

static pid_t parent;
static off_t crashing[2];
static size_t ncrashing;

void data_file_path(char file[400], const char *name)
{
	snprintf(file, 400, "%s/%s", path, name);
}

uint8_t *data_file_read(size_t *len)
{
	char file[400];
	uint8_t *bytes;
	struct stat st;
	int fd;

	data_file_path(file, "data.mdb");
	fd = open(file, O_RDONLY);
	ck_assert(fd >= 0 && !fstat(fd, &st));
	bytes = malloc((size_t)st.st_size);
	ck_assert_int_eq(read(fd, bytes, (size_t)st.st_size), st.st_size);
	close(fd);
	*len = (size_t)st.st_size;
	return bytes;
}

uint8_t *data_file_map(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long at = 0;
	char line[600];

	while (f && !at && fgets(line, sizeof(line), f))
		at = strstr(line, "/data.mdb") ? strtoul(line, NULL, 16) : 0;
	if (f)
		fclose(f);
	return (uint8_t *)at;
}

/* A process that verifies reads the store in children. */
static void pages_hide(enum fdry_step step)
{
	uint8_t *map = step == FDRY_STEP_READ && getpid() != parent ? data_file_map() : NULL;
	size_t i;

	for (i = 0; map && i < ncrashing; i++)
		(void)!mprotect(map + crashing[i] / PAGE * PAGE, PAGE, PROT_NONE);
}

void data_file_crash(const off_t *at, size_t n)
{
	ck_assert_uint_le(n, 2);
	if (n)
		memcpy(crashing, at, n * sizeof(*at));
	ncrashing = n;
	parent = getpid();
	fdry_step_hook = n ? pages_hide : NULL;
}
