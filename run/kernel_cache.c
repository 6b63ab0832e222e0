// SPDX-License-Identifier: Apache-2.0
/* kernel_cache.c - checks, counters, trace and log of a cache of kernels; see kernel_cache.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/ptx.h"
#include "lib/live.h"
#include "lib/log.h"
#include "lib/opts.h"
#include "run/kernel_cache.h"

#define EXCERPT_SIZE 640 /* of the compiler's log in a message */

int fdry_kernels_check(const struct fdry_kernels *k)
{
	int err = fdry_need(k) ?: fdry_live_check(k, "the cache of kernels");

	if (err)
		return err;
	if (k->pid != getpid())
		return fdry_fail(FDRY_E_FORKED,
				 "the cache of kernels was made before fork(), and CUDA does not "
				 "work in the child; make one in the process that uses it");
	return 0;
}

void fdry_kernels_trace(const struct fdry_kernels *k, const char *title, const char *stage,
			double ms, uint64_t bytes)
{
	if (k->trace)
		fdry_log_write(FDRY_LOG_INFO, "compile: %s: %s, %.3f ms, %llu bytes", title, stage,
			       ms, (unsigned long long)bytes);
}

/* --- counters --- */

size_t fdry_kernels_count(struct fdry_kernels *k)
{
	size_t n;

	if (fdry_kernels_check(k))
		return 0;
	pthread_mutex_lock(&k->lock);
	n = k->count;
	pthread_mutex_unlock(&k->lock);
	return n;
}

int fdry_kernels_stats(struct fdry_kernels *k, struct fdry_kernels_stats *ret)
{
	struct fdry_kernels_stats stats;
	int err = fdry_kernels_check(k) ?: fdry_need(ret);

	if (err)
		return err;
	pthread_mutex_lock(&k->lock);
	stats = k->stats;
	stats.modules = k->count;
	stats.bytes = k->bytes;
	pthread_mutex_unlock(&k->lock);
	return fdry_report_give(&stats, sizeof(stats), ret);
}

int fdry_kernels_stats_reset(struct fdry_kernels *k)
{
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	pthread_mutex_lock(&k->lock);
	memset(&k->stats, 0, sizeof(k->stats));
	pthread_mutex_unlock(&k->lock);
	return 0;
}

int fdry_kernels_target(struct fdry_kernels *k, struct fdry_kernels_target *ret)
{
	struct fdry_kernels_target t = { 0 };
	int err = fdry_kernels_check(k) ?: fdry_need(ret);

	if (err)
		return err;
	snprintf(t.arch, sizeof(t.arch), "%s", k->arch);
	if (fdry_target_has_exact(k->cc))
		snprintf(t.exact, sizeof(t.exact), "sm_%ua", k->cc);
	t.cc = k->cc;
	t.driver = k->drv->version;
	t.ptx = fdry_ptx_of_driver(k->drv->version);
	return fdry_report_give(&t, sizeof(t), ret);
}

/* --- the log --- */

/* The beginning of the log, in one line. */
static void excerpt_make(const char *log, char excerpt[EXCERPT_SIZE])
{
	size_t n = 0;
	bool gap = false;

	for (; *log && n < EXCERPT_SIZE - 8; log++) {
		if (*log == '\n' || *log == '\r' || *log == '\t' || *log == ' ') {
			gap = n > 0;
			continue;
		}
		if (gap)
			excerpt[n++] = ' ';
		gap = false;
		excerpt[n++] = *log;
	}
	excerpt[n] = 0;
	if (*log)
		snprintf(excerpt + n, 8, " ...");
}

int fdry_kernels_refused(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			 enum fdry_errcode code, const char *what, const char *log)
{
	char excerpt[EXCERPT_SIZE];
	char *copy = strdup(log); /* NULL if memory is out: then only the message remains */

	excerpt_make(log, excerpt);
	pthread_mutex_lock(&k->lock);
	free(k->log);
	k->log = copy;
	pthread_mutex_unlock(&k->lock);
	return fdry_fail(code, "%s refuses %s for %s: %s; fdry_kernels_log() has all %zu bytes",
			 what, u->title, u->target, *excerpt ? excerpt : "it does not say why",
			 strlen(log));
}

int fdry_kernels_log(struct fdry_kernels *k, char *text, size_t len, size_t *need)
{
	const char *log;
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	if (len)
		err = fdry_need(text);
	if (err)
		return err;
	pthread_mutex_lock(&k->lock);
	log = k->log ? k->log : "";
	if (len)
		snprintf(text, len, "%s", log);
	if (need)
		*need = strlen(log) + 1;
	pthread_mutex_unlock(&k->lock);
	return 0;
}
