// SPDX-License-Identifier: Apache-2.0
/* budget.c - counts host memory against a limit; see budget.h. */
#include "image/budget.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/config.h"
#include "lib/fd.h"

/* Read the limit in a file of the control group; UINT64_MAX if there is none ("max", or no such
 * file). */
static uint64_t group_limit(const char *path)
{
	char text[32] = "";
	uint64_t n;
	int fd = fdry_open(path, O_RDONLY, 0);
	ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	if (len > 0 && text[len - 1] == '\n')
		text[len - 1] = 0;
	return len > 0 && fdry_parse_number(text, false, &n) ? n : UINT64_MAX;
}

static uint64_t memory_here(void)
{
	static const char *const groups[] = { "/sys/fs/cgroup/memory.max",
					      "/sys/fs/cgroup/memory/memory.limit_in_bytes" };
	uint64_t n = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), limit;
	size_t i;

	for (i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		limit = group_limit(groups[i]);
		if (limit < n)
			n = limit;
	}
	return n;
}

int fdry_budget_init(struct fdry_budget *b)
{
	uint64_t limit = UINT64_MAX;
	int err = fdry_config_number(FDRY_CONFIG_LOAD_MEMORY, &limit);

	if (err)
		return err;
	b->limit = limit == UINT64_MAX ? memory_here() / 2 : limit ? limit : UINT64_MAX;
	atomic_store(&b->taken, 0);
	return 0;
}

static int over(const struct fdry_budget *b, const char *what)
{
	return fdry_fail(FDRY_E_LIMIT,
			 "with %s, the image needs more than %llu bytes of host memory; if that is "
			 "intended, set FOUNDRY_LOAD_MEMORY to more",
			 what, (unsigned long long)b->limit);
}

int fdry_budget_fits(struct fdry_budget *b, uint64_t bytes, const char *what)
{
	uint64_t taken = atomic_load(&b->taken);

	return taken > b->limit || bytes > b->limit - taken ? over(b, what) : 0;
}

int fdry_budget_take(struct fdry_budget *b, uint64_t bytes, const char *what)
{
	uint64_t taken = atomic_load(&b->taken);

	do {
		if (bytes > b->limit - taken)
			return over(b, what);
	} while (!atomic_compare_exchange_weak(&b->taken, &taken, taken + bytes));
	return 0;
}
