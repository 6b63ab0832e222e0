// SPDX-License-Identifier: Apache-2.0
/* client.c - the table of libfoundry-registry.so, and what surrounds each of its calls. */
#include "registry/client.h"

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "registry/client/calls.h"

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_state;

static void curl_begin(void)
{
	curl_state = curl_global_init(CURL_GLOBAL_ALL);
}

/* A connection that the other side closed raises SIGPIPE in this thread, which would end a program
 * that does not expect it. */
struct quiet {
	sigset_t before, pipe;
	bool pending;
};

static int begin(struct quiet *q)
{
	sigset_t pending;

	(void)pthread_once(&curl_once, curl_begin);
	if (curl_state)
		return fdry_fail(FDRY_E_NOCLIENT, "libcurl cannot be used: %s",
				 curl_easy_strerror(curl_state));
	sigemptyset(&q->pipe);
	sigaddset(&q->pipe, SIGPIPE);
	sigpending(&pending);
	q->pending = sigismember(&pending, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &q->pipe, &q->before);
	return 0;
}

static void end(struct quiet *q)
{
	struct timespec none = { 0 };

	if (!q->pending)
		(void)sigtimedwait(&q->pipe, NULL, &none);
	pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

static int push(const char *to, const struct fdry_registry_opts *opts,
		const struct fdry_registry_push *in, const struct fdry_registry_caller *caller,
		struct fdry_registry_report *report)
{
	struct quiet q;
	int err = begin(&q);

	if (err)
		return err;
	err = fdry_client_push(to, opts, in, caller, report);
	end(&q);
	return err;
}

static int pull(const char *from, const struct fdry_registry_opts *opts,
		const struct fdry_registry_caller *caller, struct fdry_registry_report *report)
{
	struct quiet q;
	int err = begin(&q);

	if (err)
		return err;
	err = fdry_client_pull(from, opts, caller, report);
	end(&q);
	return err;
}

static int blobs(const char *from, const struct fdry_registry_opts *opts,
		 const struct fdry_registry_blob *list, size_t count,
		 const struct fdry_registry_caller *caller, struct fdry_registry_report *report)
{
	struct quiet q;
	int err = begin(&q);

	if (err)
		return err;
	err = fdry_client_blobs(from, opts, list, count, caller, report);
	end(&q);
	return err;
}

static int repo(const char *name, const struct fdry_repo_call *call,
		struct fdry_repo_report *report)
{
	struct quiet q;
	int err = begin(&q);

	if (err)
		return err;
	err = fdry_client_repo(name, call, report);
	end(&q);
	return err;
}

__attribute__((visibility("default"))) const struct fdry_registry_client fdry_registry_client = {
	.version = FDRY_VERSION,
	.last_error = fdry_last_error,
	.push = push,
	.pull = pull,
	.blobs = blobs,
	.repo = repo,
};
