// SPDX-License-Identifier: Apache-2.0
/* helper.c - asks a credential helper; see helper.h. */
#include "registry/client/helper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/fd.h"
#include "registry/client/http.h"

#define ANSWER_MAX (1u << 16)
#define WAIT_MS 30000
#define STOP_MS 200 /* between two questions whether to stop */
#define END_MS 5000 /* for a helper to end after it has closed its standard output */

extern char **environ;

struct helper {
	char program[256];
	pid_t pid;
	int in, out; /* the ends of this process */
};

static int failed(const struct helper *p, const char *what)
{
	return fdry_fail(FDRY_E_ENV,
			 "the credential helper %s %s; log in to the registry again, or "
			 "remove the helper from the configuration",
			 p->program, what);
}

static bool name_fits(const char *name)
{
	return *name && strlen(name) < 200 &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
		       strlen(name);
}

/* The helper's standard input and output are pipes; its standard error is ours. */
static int spawn(struct helper *p, bool *there)
{
	char *argv[] = { p->program, (char[]){ "get" }, NULL };
	posix_spawn_file_actions_t files;
	int to[2] = { -1, -1 }, from[2] = { -1, -1 }, e;

	if (fdry_pipe(to, 0) || fdry_pipe(from, 0)) {
		e = errno;
		goto out_close;
	}
	e = posix_spawn_file_actions_init(&files);
	if (e)
		goto out_close;
	e = posix_spawn_file_actions_adddup2(&files, to[0], STDIN_FILENO) ?:
	    posix_spawn_file_actions_adddup2(&files, from[1], STDOUT_FILENO) ?:
	    posix_spawnp(&p->pid, p->program, &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
out_close:
	if (to[0] >= 0)
		close(to[0]);
	if (from[1] >= 0)
		close(from[1]);
	if (!e) {
		p->in = to[1];
		p->out = from[0];
		return 0;
	}
	if (to[1] >= 0)
		close(to[1]);
	if (from[0] >= 0)
		close(from[0]);
	*there = e != ENOENT;
	return *there ? failed(p, strerror(e)) : 0;
}

/* The host is short enough for the pipe's buffer, so this does not wait. A helper that has ended
 * already answers nothing. */
static void host_send(struct helper *p, const char *host)
{
	sigset_t pipe_set, before;
	struct timespec none = { 0 };

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe_set, &before);
	if (write(p->in, host, strlen(host)) < 0 && errno == EPIPE)
		(void)sigtimedwait(&pipe_set, NULL, &none);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	close(p->in);
}

static int answer_read(struct fdry_http *h, struct helper *p, struct fdry_buf *ret)
{
	double until = fdry_now_ms() + WAIT_MS;
	struct pollfd fd = { .fd = p->out, .events = POLLIN };
	char bytes[4096];
	ssize_t n;
	int left, some, err = 0;

	for (;;) {
		left = (int)(until - fdry_now_ms());
		if (left <= 0)
			return failed(p, "does not answer");
		some = poll(&fd, 1, left < STOP_MS ? left : STOP_MS);
		err = fdry_http_stop_ask(h);
		if (err)
			return err;
		if (!some || (some < 0 && errno == EINTR))
			continue;
		n = read(p->out, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? failed(p, strerror(errno)) : 0;
		if (ret->len + (size_t)n > ANSWER_MAX)
			return failed(p, "answers too much");
		err = fdry_buf_put(ret, bytes, (size_t)n);
		if (err)
			return err;
	}
}

static int end_wait(struct fdry_http *h, struct helper *p, int *status)
{
	double until = fdry_now_ms() + END_MS;
	pid_t ended;
	int err;

	while (!(ended = waitpid(p->pid, status, WNOHANG)) || (ended < 0 && errno == EINTR)) {
		if (fdry_now_ms() > until)
			return failed(p, "does not end");
		err = fdry_http_stop_ask(h);
		if (err)
			return err;
		fdry_sleep_ms(1);
	}
	return 0;
}

static void kill_and_wait(struct helper *p)
{
	kill(p->pid, SIGKILL);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* A helper that has no credentials says so on standard output and fails. */
static bool says_none(const struct fdry_buf *answer)
{
	static const char none[] = "credentials not found";

	return memmem(answer->data, answer->len, none, sizeof(none) - 1);
}

int fdry_creds_helper(struct fdry_http *h, const char *name, struct fdry_buf *ret, bool *there)
{
	struct helper p = { .in = -1, .out = -1 };
	double silent_ms = fdry_now_ms() - h->heard_ms;
	int status = 0, err;

	snprintf(p.program, sizeof(p.program), "docker-credential-%.200s", name);
	if (!name_fits(name))
		return failed(&p, "has a name that is not allowed");
	*there = true;
	err = spawn(&p, there);
	if (err || !*there)
		return err;
	host_send(&p, h->name.host);
	err = answer_read(h, &p, ret);
	close(p.out);
	err = err ?: end_wait(h, &p, &status);
	if (err) {
		kill_and_wait(&p);
		return err;
	}
	h->heard_ms = fdry_now_ms() - silent_ms; /* the registry was not asked meanwhile */
	if (!status)
		return 0;
	if (!ret->len || !says_none(ret))
		return failed(&p, "failed");
	ret->len = 0;
	return 0;
}
