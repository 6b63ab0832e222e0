// SPDX-License-Identifier: Apache-2.0
/*
 * fault.c - counts calls and makes the Nth fail.
 *
 * It has a lock of its own, so a call can fail before it touches the driver, and a test can
 * request failures from any thread.
 */
#include "arch/sim/fault.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define ANY (-1)

struct fault {
	bool armed, onwards;
	int fn;            /* index, or ANY */
	unsigned long nth; /* 1 is the next call */
	CUresult error;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fault fault;
static unsigned long calls[SIM_FNS], calls_all, failed;
static bool started;

/* A number of 1 or more before @end; 0 if there is none. */
static unsigned long number(const char *s, char **end)
{
	unsigned long n;

	if (!isdigit((unsigned char)*s))
		return 0;
	errno = 0;
	n = strtoul(s, end, 10);
	return errno ? 0 : n;
}

static int error_parse(const char *s, struct fault *ret)
{
	char *end;
	unsigned long n;

	if (!*s)
		return 0;
	if (*s++ != ':')
		return -1;
	n = number(s, &end);
	if (!n || n > INT_MAX || *end)
		return -1;
	ret->error = (CUresult)n;
	return 0;
}

static int spec_parse(const char *spec, struct fault *ret)
{
	struct fault f = { .armed = true, .error = CUDA_ERROR_UNKNOWN };
	const char *colon = strchr(spec, ':');
	char *end;

	if (!colon)
		return -1;
	f.fn = colon == spec + 1 && *spec == '*' ? ANY : sim_fn_index(spec, (size_t)(colon - spec));
	if (f.fn != ANY && f.fn < 0)
		return -1;
	f.nth = number(colon + 1, &end);
	if (!f.nth)
		return -1;
	if (*end == '+') {
		f.onwards = true;
		end++;
	}
	if (error_parse(end, &f))
		return -1;
	*ret = f;
	return 0;
}

static int fault_set(const char *spec)
{
	struct fault f = { 0 };
	int ret = 0;

	if (spec && *spec)
		ret = spec_parse(spec, &f);
	fault = f;
	memset(calls, 0, sizeof(calls));
	calls_all = failed = 0;
	return ret;
}

/* Read the request in the environment. If it is malformed, every call fails: a typing error must
 * not let a test pass. */
static bool environment_ok(void)
{
	if (started)
		return true;
	started = !fault_set(getenv("FDRY_SIM_FAIL"));
	return started;
}

static CUresult fault_count(enum sim_fn fn)
{
	unsigned long n;

	if (!environment_ok())
		return CUDA_ERROR_INVALID_VALUE;
	calls[fn]++;
	calls_all++;
	if (!fault.armed || (fault.fn != ANY && fault.fn != (int)fn))
		return CUDA_SUCCESS;
	n = fault.fn == ANY ? calls_all : calls[fn];
	if (n != fault.nth && !(fault.onwards && n > fault.nth))
		return CUDA_SUCCESS;
	failed++;
	return fault.error;
}

CUresult sim_fault(enum sim_fn fn)
{
	CUresult res;

	pthread_mutex_lock(&lock);
	res = fault_count(fn);
	pthread_mutex_unlock(&lock);
	return res;
}

SIM_EXPORT int fdry_sim_fail(const char *spec)
{
	int ret;

	pthread_mutex_lock(&lock);
	started = true;
	ret = fault_set(spec);
	pthread_mutex_unlock(&lock);
	return ret;
}

SIM_EXPORT unsigned long fdry_sim_failed(void)
{
	unsigned long ret;

	pthread_mutex_lock(&lock);
	ret = failed;
	pthread_mutex_unlock(&lock);
	return ret;
}

SIM_EXPORT unsigned long fdry_sim_calls(const char *function)
{
	int fn = function ? sim_fn_index(function, strlen(function)) : ANY;
	unsigned long ret = 0;

	pthread_mutex_lock(&lock);
	if (!function)
		ret = calls_all;
	else if (fn >= 0)
		ret = calls[fn];
	pthread_mutex_unlock(&lock);
	return ret;
}
