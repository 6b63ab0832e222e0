// SPDX-License-Identifier: Apache-2.0
/* log.c - messages to standard error or a callback; see log.h. */
#include "lib/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/config.h"
#include "lib/printable.h"

static const char *const level_names[] = { "error", "warn", "info", "debug" };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int env_level = -1;
static fdry_log_fn sink;
static void *sink_arg;
static _Atomic int sink_level = -1; /* may change while other threads write messages */

static void read_env(void)
{
	uint64_t level;

	/* Calls that open a store or a driver report a value that is not allowed. */
	if (fdry_config_try(FDRY_CONFIG_LOG, &level))
		env_level = (int)level;
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
	char text[1024], line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fdry_printable(line, sizeof(line), text);
	if (sink)
		sink(sink_arg, level, line);
	else
		fprintf(stderr, "foundry: %s: %s\n", level_names[level], line);
	errno = saved;
}
