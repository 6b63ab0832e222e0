// SPDX-License-Identifier: Apache-2.0
/*
 * verify.c - checking everything again: the parent, which never reads the store itself.
 *
 * Each stage runs in a child of its own. If a child crashes, the object that it was reading is
 * damaged, and another child continues behind that object.
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
#include "lib/opts.h"
#include "store/verify.h"

#define CRASHES_MAX 64
#define PROGRESS_MS 100

struct parent {
	struct fdry_verify v;
	struct fdry_verify_opts opts;
	const char *path;
	uint64_t progress; /* the greatest that was reported */
};

/* --- faults --- */

/* A child cancels the notes about the objects that it finds damaged. A child that crashed did not.
 */
static void notes_forget(const char *path)
{
	struct fdry_dir d;

	if (fdry_dir_open(path, 0, &d))
		return;
	fdry_verified_forget(&d);
	fdry_dir_close(&d, path, false);
}

static void fault_report(struct parent *p, const struct fdry_verify_message *m)
{
	char id[FDRY_OID_HEX_SIZE], other[FDRY_OID_HEX_SIZE];
	struct fdry_verify_report *r = &p->v.shared->report;

	if (!r->faults++)
		notes_forget(p->path);
	r->broken += m->kind == FDRY_FAULT_IMAGE;
	/* Without memory for the id, the refs that reach the object are not reported. */
	if (m->has_oid && (m->kind == FDRY_FAULT_DAMAGED || m->kind == FDRY_FAULT_QUARANTINED))
		(void)!fdry_idset_add(&p->v.damaged, &m->oid, NULL);
	if (p->opts.fault)
		p->opts.fault(p->opts.fault_arg, (int)m->kind,
			      m->has_oid ? fdry_oid_hex(&m->oid, id) : NULL,
			      m->has_other ? fdry_oid_hex(&m->other, other) : NULL, m->text);
}

/* After a crash some bytes are checked again; the progress does not go back. */
static void progress_report(struct parent *p)
{
	const struct fdry_verify_shared *sh = p->v.shared;
	uint64_t done = __atomic_load_n(&sh->bytes_done, __ATOMIC_RELAXED);

	p->progress = done > p->progress ? done : p->progress;
	if (p->opts.progress)
		p->opts.progress(p->opts.progress_arg, p->progress, sh->bytes_total);
}

/* --- children --- */

struct process {
	pid_t pid;
	bool ended;
	int status;
};

/* If another thread of the program waits for all children, the status is lost. */
static void process_wait(struct process *c, int flags)
{
	pid_t pid = 0;

	while (!c->ended && (pid = waitpid(c->pid, &c->status, flags)) < 0 && errno == EINTR)
		;
	c->ended |= pid != 0;
}

/* Read to the pipe's end, or until the child ended: a process that another thread forked meanwhile
 * holds the pipe open, too. */
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
			progress_report(p);
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
		fault_report(p, &m);
		have = 0;
	}
}

static int child_fork(struct parent *p, int fds[2], pid_t *ret)
{
	if (fdry_pipe(fds, 0))
		return fdry_fail(FDRY_E_IO, "cannot make a pipe: %s", strerror(errno));
	*ret = fork();
	if (*ret < 0) {
		close(fds[0]);
		close(fds[1]);
		return fdry_fail(FDRY_E_IO, "cannot start a process to verify in: %s",
				 strerror(errno));
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

/* Damage causes these signals. Any other comes from outside: from the system, which is short of
 * memory, or from somebody who ends the verification. */
static bool is_crash(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGABRT || sig == SIGFPE || sig == SIGILL;
}

/* Run one child to its end. @crash: the signal by which it crashed, 0 for none. */
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
	return fdry_fail(FDRY_E_IO,
			 "the process that verifies the store %s was ended by signal %d from "
			 "outside; check whether there is enough memory, and verify again",
			 p->path, *crash);
}

static void crash_report(struct parent *p, int sig)
{
	static const char *const doing[] = { [FDRY_VERIFY_TABLES] = "going through the tables",
					     [FDRY_VERIFY_OBJECTS] = "listing objects",
					     [FDRY_VERIFY_PAGES] = "comparing pages",
					     [FDRY_VERIFY_REFS] = "following refs" };
	struct fdry_verify_shared *sh = p->v.shared;
	struct fdry_verify_message m = { .kind = FDRY_FAULT_PAGES, .oid = sh->at };

	if (sh->inside) {
		m.kind = FDRY_FAULT_DAMAGED;
		m.has_oid = 1;
		sh->report.objects++;
		snprintf(m.text, sizeof(m.text),
			 "its pages are damaged: reading it ended with signal %d", sig);
	} else {
		snprintf(m.text, sizeof(m.text), "pages are damaged: %s ended with signal %d",
			 doing[sh->stage], sig);
	}
	sh->report.crashes++;
	sh->report.damaged++;
	fault_report(p, &m);
}

/* After a crash: continue behind the object or, if the list of objects is damaged, further on. */
static bool crash_skip(struct fdry_verify_shared *sh)
{
	int byte = sh->inside ? FDRY_OID_SIZE - 1 : 0;

	sh->inside = false;
	return sh->stage == FDRY_VERIFY_OBJECTS && sh->report.crashes < CRASHES_MAX &&
	       fdry_verify_next(&sh->at, byte);
}

/* Read the fingerprints in manifests. A manifest that crashes the child is left out, and so are all
 * others after many crashes: the next stage hashes what has no fingerprint, and reports the
 * crashes. */
static int manifests_run(struct parent *p)
{
	struct fdry_verify_shared *sh = p->v.shared;
	int crash = 0, crashes = 0, err;

	if (!(p->opts.flags & FDRY_VERIFY_FAST))
		return 0;
	err = fdry_verify_prints_new(sh->objects_total, &p->v.prints);
	if (err)
		return err;
	do {
		sh->inside = false;
		err = child_run(p, &crash);
		if (err)
			return err;
	} while (crash && sh->inside && ++crashes < CRASHES_MAX &&
		 fdry_verify_next(&sh->at, FDRY_OID_SIZE - 1));
	return !crash && sh->err ? fdry_fail((enum fdry_errcode)-sh->err, "%s", sh->text) : 0;
}

static int stage_run(struct parent *p)
{
	struct fdry_verify_shared *sh = p->v.shared;
	int crash, err;

	if (sh->stage == FDRY_VERIFY_MANIFESTS)
		return manifests_run(p);
	for (;;) {
		err = child_run(p, &crash);
		if (err)
			return err;
		if (!crash)
			return sh->err ? fdry_fail((enum fdry_errcode)-sh->err, "%s", sh->text) : 0;
		if (sh->stage == FDRY_VERIFY_OBJECTS && !sh->alone) {
			/* The next child repeats the objects, at last one by one: one of them
			 * crashed it. */
			sh->alone = sh->small;
			sh->small = true;
			continue;
		}
		crash_report(p, crash);
		if (!crash_skip(sh))
			return 0;
	}
}

int fdry_verify_store(const char *path, const struct fdry_verify_opts *opts,
		      fdry_verify_read_fn read, struct fdry_verify_report *report)
{
	struct parent p = { .v.pipe = -1, .v.read = read };
	struct fdry_verify_shared *sh;
	struct fdry_buf buf = { 0 };
	int err = fdry_store_flags_take(opts, &p.opts, sizeof(p.opts), FDRY_VERIFY_FAST) ?:
		  fdry_report_check(report) ?: fdry_store_locate(path, &buf);

	if (err)
		return err;
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED) {
		err = fdry_nomem();
		goto out_buf;
	}
	p.path = (const char *)buf.data;
	p.v.threads = p.opts.threads;
	p.v.shared = sh;
	for (sh->stage = FDRY_VERIFY_TABLES; sh->stage < FDRY_VERIFY_STAGES && !err; sh->stage++) {
		memset(&sh->at, 0, sizeof(sh->at));
		sh->inside = false;
		err = stage_run(&p);
	}
	if (err)
		goto out_unmap;
	progress_report(&p);
	err = fdry_report_give(&sh->report, sizeof(sh->report), report);
out_unmap:
	fdry_idset_release(&p.v.damaged);
	fdry_verify_prints_free(p.v.prints);
	munmap(sh, sizeof(*sh));
out_buf:
	fdry_buf_release(&buf);
	return err;
}
