// SPDX-License-Identifier: Apache-2.0
/*
 * verify.c - hashing everything again: the parent, which never looks into the store itself.
 *
 * Each stage is a child of its own. Where one crashes, what it was at is damaged, and
 * another goes on behind that place.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fd.h"

#include "store/verify.h"

#define CRASHES_MAX 64
#define PROGRESS_MS 100

struct parent {
	struct fdry_verify v;
	const char *path;
	const struct fdry_verify_how *opts;
	bool found; /* something was wrong */
};

/* --- findings --- */

/* What a child has found it has cancelled itself; a child that crashed has not. */
static void notes_forget(const char *path)
{
	struct fdry_dir d;

	if (fdry_dir_open(path, 0, &d))
		return;
	fdry_verified_forget(&d);
	fdry_dir_close(&d, path, false);
}

static void message_take(struct parent *p, const struct fdry_verify_message *m)
{
	struct fdry_finding f = { .kind = m->kind, .text = m->text };

	if (!p->found)
		notes_forget(p->path);
	p->found = true;
	if (m->has_oid)
		f.oid = &m->oid;
	if (m->has_other)
		f.other = &m->other;
	if (m->has_oid && (m->kind == FDRY_FINDING_DAMAGED || m->kind == FDRY_FINDING_QUARANTINED) &&
	    fdry_idset_add(&p->v.damaged, &m->oid, NULL))
		return; /* out of memory: the ref that it touches goes unnamed */
	p->opts->finding(p->opts->arg, &f);
}

static void tell_progress(struct parent *p)
{
	if (p->opts->progress)
		p->opts->progress(p->opts->arg, __atomic_load_n(&p->v.shared->report.bytes, __ATOMIC_RELAXED),
				  p->v.shared->bytes_total);
}

struct process {
	pid_t pid;
	bool ended;
	int status;
};

/* Whoever reaps all children of the program keeps its status from us. */
static void process_wait(struct process *c, int flags)
{
	pid_t pid = 0;

	while (!c->ended && (pid = waitpid(c->pid, &c->status, flags)) < 0 && errno == EINTR)
		;
	c->ended |= pid != 0;
}

/* To the pipe's end, or until the process has: what another thread forked meanwhile has the pipe open, too. */
static void messages_read(struct parent *p, int fd, struct process *c)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct fdry_verify_message m;
	size_t have = 0;
	ssize_t n;

	for (;;) {
		if (!poll(&pfd, 1, c->ended ? 0 : PROGRESS_MS)) {
			if (c->ended)
				return;
			tell_progress(p);
			process_wait(c, WNOHANG);
			continue;
		}
		n = read(fd, (char *)&m + have, sizeof(m) - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		have += (size_t)n;
		if (have < sizeof(m))
			continue;
		message_take(p, &m);
		have = 0;
	}
}

/* --- children --- */

static int child_fork(struct parent *p, int fds[2], pid_t *ret)
{
	if (fdry_pipe(fds, 0))
		return fdry_fail(FDRY_E_IO, "cannot make a pipe: %s", strerror(errno));
	*ret = fork();
	if (*ret < 0) {
		close(fds[0]);
		close(fds[1]);
		return fdry_fail(FDRY_E_IO, "cannot start a process to verify in: %s", strerror(errno));
	}
	if (!*ret) {
		close(fds[0]);
		p->v.pipe = fds[1];
		fdry_verify_child(&p->v, p->path);
		_exit(0);
	}
	close(fds[1]);
	return 0;
}

/* Of such a signal damage is the reason; any other comes from outside: from who wants memory back, or wants it ended. */
static bool is_crash(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGABRT || sig == SIGFPE || sig == SIGILL;
}

/* Runs one child to its end; @crash: the signal by which it crashed, 0 for none. */
static int child_run(struct parent *p, int *crash)
{
	struct process c = { .pid = -1 };
	int fds[2], err;

	p->v.shared->done = false;
	err = child_fork(p, fds, &c.pid);
	if (err)
		return err;
	messages_read(p, fds[0], &c);
	close(fds[0]);
	process_wait(&c, 0);
	*crash = 0;
	if (!p->v.shared->done)
		*crash = WIFSIGNALED(c.status) ? WTERMSIG(c.status) : SIGABRT;
	if (!*crash || is_crash(*crash))
		return 0;
	return fdry_fail(FDRY_E_IO, "the process that looks into the store %s was ended by signal %d from outside; see whether "
			 "there is memory enough, and verify again", p->path, *crash);
}

static void say_crash(struct parent *p, int sig)
{
	static const char *const doing[] = { "going through the tables", "listing objects", "following refs" };
	struct fdry_verify_shared *sh = p->v.shared;
	struct fdry_verify_message m = { .kind = FDRY_FINDING_PAGES, .oid = sh->at };

	if (sh->inside) {
		m.kind = FDRY_FINDING_DAMAGED;
		m.has_oid = 1;
		sh->report.objects++;
		snprintf(m.text, sizeof(m.text), "its pages are damaged: reading it ended with signal %d", sig);
	} else {
		snprintf(m.text, sizeof(m.text), "pages are damaged: %s ended with signal %d", doing[sh->stage], sig);
	}
	sh->report.crashes++;
	sh->report.damaged++;
	message_take(p, &m);
}

/* Where to go on after a crash: behind the object, or, where the list itself is damaged, some way further. */
static bool crash_skip(struct fdry_verify_shared *sh)
{
	int byte = sh->inside ? FDRY_OID_SIZE - 1 : 0;

	sh->inside = false;
	return sh->stage == FDRY_VERIFY_OBJECTS && sh->report.crashes < CRASHES_MAX && fdry_verify_next(&sh->at, byte);
}

/* Several were at work: which of them it was shows when one goes over it again. */
static bool crash_again(struct fdry_verify_shared *sh)
{
	if (sh->stage != FDRY_VERIFY_OBJECTS || sh->alone)
		return false;
	sh->alone = true;
	return true;
}

static int stage_run(struct parent *p)
{
	bool again = true;
	int crash = 0, err = 0;

	while (again && !err) {
		err = child_run(p, &crash);
		again = !err && crash && crash_again(p->v.shared);
		if (err || !crash || again)
			continue;
		say_crash(p, crash);
		again = crash_skip(p->v.shared);
	}
	if (!err && !crash && p->v.shared->err)
		err = fdry_fail((enum fdry_errcode)-p->v.shared->err, "%s", p->v.shared->text);
	return err;
}

static int verify(const char *path, const struct fdry_verify_how *opts, struct fdry_verify_report *ret)
{
	struct parent p = { .path = path, .opts = opts, .v.threads = opts->threads };
	struct fdry_verify_shared *sh;
	int err = 0;

	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		return fdry_nomem();
	p.v.shared = sh;
	for (sh->stage = FDRY_VERIFY_TABLES; sh->stage < FDRY_VERIFY_STAGES && !err; sh->stage++)
		err = stage_run(&p);
	if (!err) {
		tell_progress(&p);
		*ret = sh->report;
	}
	munmap(sh, sizeof(*sh));
	fdry_idset_release(&p.v.damaged);
	return err;
}

int fdry_store_check_at(const char *path, const struct fdry_verify_how *opts, struct fdry_verify_report *ret)
{
	struct fdry_buf buf = { 0 };
	int err = path ? 0 : fdry_store_default_path(&buf);

	if (!err)
		err = verify(path ? path : (const char *)buf.data, opts, ret);
	fdry_buf_release(&buf);
	return err;
}

/* --- the short forms --- */

struct plain_finding {
	fdry_finding_fn fn;
	void *arg;
};

static void plain_tell(void *arg, const struct fdry_finding *f)
{
	struct plain_finding *p = arg;

	p->fn(p->arg, f->oid, f->text);
}

int fdry_store_verify_at(const char *path, fdry_finding_fn finding, void *arg, struct fdry_verify_report *ret)
{
	struct plain_finding p = { finding, arg };
	struct fdry_verify_how opts = { .finding = plain_tell, .arg = &p };

	return fdry_store_check_at(path, &opts, ret);
}

int fdry_verify(struct fdry_store *s, fdry_finding_fn finding, void *arg, struct fdry_verify_report *ret)
{
	int err = fdry_store_check(s);

	return err ? err : fdry_store_verify_at(s->path, finding, arg, ret);
}
