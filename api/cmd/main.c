// SPDX-License-Identifier: Apache-2.0
/* main.c - foundry-store maintains a store of images. commands.def lists its commands, options.def
 * its options. */
#include "api/cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "lib/file.h"

/* A dry run opens the store for reading, so it needs no permission to write. */
static int flags_of(const struct cmd_args *a)
{
	return a->cmd->open >= 0 && cmd_has(a, DRY_RUN) ? FDRY_STORE_READONLY : a->cmd->open;
}

/* True if the command would make a store in this directory: it is missing or empty. */
static bool is_vacant(const char *path)
{
	struct fdry_names names;
	bool vacant = true;
	const char *name;
	int e = fdry_names_open(AT_FDCWD, path, 0, &names);

	if (e)
		return e == ENOENT;
	while ((name = fdry_names_next(&names)))
		vacant &= *name == '.';
	return !fdry_names_close(&names) && vacant;
}

/* @err: why the store cannot be opened. A dry run continues without a store if the command would
 * make it. */
static int without_store(const struct cmd_args *a, int err)
{
	char sentence[FDRY_SENTENCE_MAX];
	struct fdry_buf path = { 0 };
	bool vacant = false;

	if (err != -FDRY_E_NOSTORE || a->cmd->open != FDRY_STORE_CREATE)
		return err;
	snprintf(sentence, sizeof(sentence), "%s", fdry_last_error());
	if (!fdry_store_locate(a->store, &path))
		vacant = is_vacant((const char *)path.data);
	fdry_buf_release(&path);
	return vacant ? 0 : fdry_fail(FDRY_E_NOSTORE, "%s", sentence);
}

/* --- damage that crashes --- */

static pid_t own_pid;

/* LMDB trusts its pages: a page number beyond the file crashes the process. A child that verifies
 * is meant to crash, so it has no handler. */
static void on_crash(int sig)
{
	static const char text[] = "foundry-store: reading the store crashed: pages of data.mdb "
				   "are damaged; foundry-store verify lists them; export the "
				   "images that can still be read and import them into a new "
				   "store, or put a backup in its place\n";

	if (getpid() == own_pid && !fdry_write(STDERR_FILENO, text, sizeof(text) - 1))
		_exit(CMD_DAMAGED);
	signal(sig, SIG_DFL); /* the instruction is executed again and ends the process */
}

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED true
#else
#define SANITIZED false
#endif

static void watch_crashes(void)
{
	if (SANITIZED)
		return; /* verify's own report says more */
	own_pid = getpid();
	signal(SIGBUS, on_crash);
	signal(SIGSEGV, on_crash);
}

static int command_run(const struct cmd_args *a)
{
	struct fdry_store *s = NULL;
	int status, flags, err = 0;

	if (cmd_has(a, HELP)) {
		cmd_help_print(a->cmd);
		return CMD_OK;
	}
	if (cmd_has(a, VERSION)) {
		printf("foundry-store %s\n", FDRY_VERSION);
		return CMD_OK;
	}
	watch_crashes();
	flags = flags_of(a);
	if (flags >= 0)
		err = fdry_store_open(a->store, (unsigned int)flags, &s);
	if (err && cmd_has(a, DRY_RUN))
		err = without_store(a, err);
	if (err)
		return cmd_fail(err);
	status = a->cmd->fn(a, s);
	fdry_store_close(s);
	return status;
}

/* Lost output is an error of every command, unless it has reported another one. */
static int output_end(int status)
{
	int err = cmd_write_check(stdout, "the output");

	return err && !cmd_first_error() ? cmd_fail(err) : status;
}

/*
 * If standard input, output or error is closed, open /dev/null in its place, so that no file that
 * is opened later gets its number. Input is opened for writing and the others for reading: using
 * them still fails.
 */
static void standard_fill(void)
{
	static const int modes[] = { O_WRONLY, O_RDONLY, O_RDONLY };
	int fd;

	for (fd = 0; fd < FDRY_FD_LOW; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			fdry_fd_null(fd, modes[fd]);
}

int main(int argc, char **argv)
{
	struct cmd_args a;
	int status;

	standard_fill();
	signal(SIGPIPE, SIG_IGN); /* "| head" then causes an error, and sessions end in order */
	signal(SIGXFSZ, SIG_IGN); /* likewise if the output exceeds the limit of a file's size */
	status = cmd_args_parse(argc, argv, &a);
	if (status < 0)
		status = command_run(&a);
	if (cmd_has(&a, JSON))
		json_end(status, cmd_first_error());
	return output_end(status);
}
