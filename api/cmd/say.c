// SPDX-License-Identifier: Apache-2.0
/*
 * say.c - prints for users: errors, questions, progress, colours.
 *
 * Questions and progress appear only on a terminal: a script must neither hang nor find control
 * characters in its log.
 */
#include "api/cmd/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/printable.h"

const char *cmd_text(const char *s)
{
	static struct fdry_buf ring[8];
	static unsigned int next;
	struct fdry_buf *b = &ring[next++ % 8];

	b->len = 0;
	return fdry_buf_printable(b, s) ? "?" : (const char *)b->data;
}

/* --- errors --- */

static const struct {
	enum fdry_errcode code;
	enum cmd_exit status;
} statuses[] = {
	{ FDRY_E_INVAL, CMD_USAGE },	  { FDRY_E_NAME, CMD_USAGE },
	{ FDRY_E_ENV, CMD_USAGE },	  { FDRY_E_NOHOME, CMD_USAGE },
	{ FDRY_E_NOENT, CMD_ABSENT },	  { FDRY_E_NOKEY, CMD_ABSENT },
	{ FDRY_E_NOSTORE, CMD_ABSENT },	  { FDRY_E_AMBIGUOUS, CMD_ABSENT },
	{ FDRY_E_LOCKED, CMD_LOCKED },	  { FDRY_E_RACED, CMD_LOCKED },
	{ FDRY_E_STALE, CMD_LOCKED },	  { FDRY_E_FULL, CMD_FULL },
	{ FDRY_E_PERM, CMD_DENIED },	  { FDRY_E_CORRUPT, CMD_DAMAGED },
	{ FDRY_E_BADIMAGE, CMD_DAMAGED }, { FDRY_E_UNSIGNED, CMD_DENIED },
};

/* If there are several errors, as rm reports one for each ref, the first determines the exit status
 * and is the one in the JSON. */
static char first_error[FDRY_SENTENCE_MAX];
/* A pipe whose reader has ended, such as head, needs no message. */
static bool reader_gone;

static void error_note(const char *text)
{
	if (!*first_error)
		snprintf(first_error, sizeof(first_error), "%s", text);
}

void cmd_error(const char *fmt, ...)
{
	char text[FDRY_SENTENCE_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	error_note(text);
	if (reader_gone)
		return;
	fprintf(stderr, "foundry-store: %s\n", cmd_text(text));
}

const char *cmd_first_error(void)
{
	return *first_error ? first_error : NULL;
}

int cmd_fail(int err)
{
	size_t i;

	cmd_error("%s", fdry_last_error());
	for (i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (err == -(int)statuses[i].code)
			return statuses[i].status;
	return CMD_FAILED;
}

int cmd_write_failed(const char *path)
{
	enum fdry_errcode code = FDRY_E_IO;

	switch (errno) {
	case EPIPE:
		reader_gone = true;
		break;
	case EACCES:
	case EPERM:
	case EROFS:
		code = FDRY_E_PERM;
		break;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		code = FDRY_E_FULL;
		break;
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
		code = FDRY_E_INVAL;
		break;
	}
	return fdry_fail(code, "cannot write %s: %s", path, strerror(errno));
}

int cmd_write_check(FILE *f, const char *path)
{
	errno = EIO; /* if the errno of an earlier failure is lost */
	return fflush(f) || ferror(f) ? cmd_write_failed(path) : 0;
}

/* Print formatted text, each line made printable. A name that may contain a newline must pass
 * through cmd_text() first. */
static void vprint(FILE *f, const char *fmt, va_list ap)
{
	char *text = NULL, *line, *end;

	if (vasprintf(&text, fmt, ap) < 0)
		return;
	for (line = text; *line; line = end) {
		end = line + strcspn(line, "\n");
		if (*end) {
			*end++ = 0;
			fprintf(f, "%s\n", cmd_text(line));
		} else {
			fputs(cmd_text(line), f);
		}
	}
	free(text);
}

void cmd_say(const struct cmd_args *a, const char *fmt, ...)
{
	va_list ap;

	if (cmd_has(a, QUIET) || cmd_has(a, JSON))
		return;
	va_start(ap, fmt);
	vprint(stdout, fmt, ap);
	va_end(ap);
}

/* --- questions --- */

bool cmd_asks(const struct cmd_args *a)
{
	return !cmd_has(a, YES) && !cmd_has(a, DRY_RUN) && isatty(STDIN_FILENO) &&
	       isatty(STDERR_FILENO);
}

bool cmd_confirm(const struct cmd_args *a, const char *fmt, ...)
{
	char answer[16] = "";
	va_list ap;

	if (!cmd_asks(a))
		return true;
	va_start(ap, fmt);
	vprint(stderr, fmt, ap);
	va_end(ap);
	fputs(" [y/N] ", stderr);
	if (!fgets(answer, sizeof(answer), stdin))
		fputc('\n', stderr);
	return !strcasecmp(answer, "y\n") || !strcasecmp(answer, "yes\n");
}

int cmd_declined(void)
{
	error_note("the answer was not yes; nothing was done");
	return CMD_DECLINED;
}

#define NAMES_SHOWN 10

void cmd_names_add(struct cmd_names *n, const char *name, const char *id)
{
	if (n->count++ < NAMES_SHOWN && !n->err)
		n->err = fdry_buf_printf(&n->text, "%s%s (%.12s)", n->count > 1 ? ", " : "", name,
					 id ? id : "damaged");
}

int cmd_names_end(struct cmd_names *n)
{
	if (n->count > NAMES_SHOWN && !n->err)
		n->err = fdry_buf_printf(&n->text, " and %llu more",
					 (unsigned long long)(n->count - NAMES_SHOWN));
	return n->err;
}

void cmd_names_release(struct cmd_names *n)
{
	fdry_buf_release(&n->text);
}

/* --- colours --- */

const struct cmd_colours *cmd_colours(void)
{
	static const struct cmd_colours none = { "", "", "", "", "", "", "" };
	static const struct cmd_colours some = { "\33[33m", "\33[32m", "\33[31m", "\33[2m",
						 "\33[32m", "\33[31m", "\33[0m" };
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") ? &some
										     : &none;
}

/* --- progress --- */

#define RATE_AFTER_MS 1000

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void cmd_progress_begin(struct cmd_progress *p, const struct cmd_args *a, const char *what,
			bool bytes)
{
	const char *term = getenv("TERM");

	*p = (struct cmd_progress){ .what = what, .bytes = bytes, .begun_ms = now_ms() };
	p->on = isatty(STDERR_FILENO) && !cmd_has(a, QUIET) && term && strcmp(term, "dumb");
}

static struct cmd_size amount(const struct cmd_progress *p, uint64_t n)
{
	struct cmd_size s;

	if (p->bytes)
		return cmd_size(n);
	snprintf(s.text, sizeof(s.text), "%llu", (unsigned long long)n);
	return s;
}

static void progress_bar(uint64_t done, uint64_t total)
{
	static const char full[] = "##############################",
			  none[] = "..............................";
	int width = (int)sizeof(full) - 1,
	    n = total ? (int)((double)done / (double)total * width) : 0;

	n = n > width ? width : n;
	fprintf(stderr, " [%.*s%.*s]", n, full, width - n, none);
}

/* The mean rate, and the time that the rest needs at it, after the first second. */
static void progress_rate(const struct cmd_progress *p, uint64_t now, uint64_t done,
			  uint64_t total)
{
	double ms = (double)(now - p->begun_ms), rate = (double)done / ms;

	if (ms < RATE_AFTER_MS || !done)
		return;
	fprintf(stderr, ", %s/s", amount(p, (uint64_t)(rate * 1e3)).text);
	if (total > done)
		fprintf(stderr, ", %s left", cmd_duration((double)(total - done) / rate).text);
}

void cmd_progress_to(struct cmd_progress *p, uint64_t done, uint64_t total)
{
	uint64_t now;

	if (!p->on)
		return;
	now = now_ms();
	if (p->shown_ms && now - p->shown_ms < 100)
		return;
	p->shown_ms = now;
	fprintf(stderr, "\r%s", p->what);
	if (total)
		progress_bar(done, total);
	fprintf(stderr, " %s", amount(p, done).text);
	if (total)
		fprintf(stderr, " of %s", amount(p, total).text);
	progress_rate(p, now, done, total);
	fprintf(stderr, "%s\33[K", p->more);
}

void cmd_progress_step(void *p, uint64_t done, uint64_t total)
{
	cmd_progress_to(p, done, total);
}

void cmd_progress_pause(struct cmd_progress *p)
{
	if (p->on && p->shown_ms)
		fputs("\r\33[K", stderr);
	p->shown_ms = 0;
}

void cmd_progress_end(struct cmd_progress *p)
{
	cmd_progress_pause(p);
	p->on = false;
}
