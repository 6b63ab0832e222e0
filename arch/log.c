// SPDX-License-Identifier: Apache-2.0
/* log.c - where debug messages go; see log.h. */
#include "arch/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[] = { "error", "warn", "info", "debug" };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int env_level = -1;
static fdry_log_fn sink;
static void *sink_arg;
static int sink_level = -1;

static void read_env(void)
{
	const char *s = getenv("FOUNDRY_LOG");
	int i;

	for (i = 0; s && i <= FDRY_LOG_DEBUG; i++)
		if (!strcmp(s, level_names[i]))
			env_level = i;
}

void fdry_log_set(fdry_log_fn fn, void *arg, int level)
{
	sink = fn;
	sink_arg = arg;
	sink_level = level;
}

int fdry_log_enabled(int level)
{
	pthread_once(&once, read_env);
	return level <= (sink ? sink_level : env_level);
}

void fdry_log_write(int level, const char *fmt, ...)
{
	int saved = errno;
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (sink)
		sink(sink_arg, level, line);
	else
		fprintf(stderr, "foundry: %s: %s\n", level_names[level], line);
	errno = saved;
}
