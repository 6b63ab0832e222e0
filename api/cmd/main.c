// SPDX-License-Identifier: Apache-2.0
/* main.c - foundry-store maintains a store of images. commands.def lists its commands, options.def
 * its options. */
#include "api/cmd/cmd.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "lib/file.h"

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
	int status, err = 0;

	if (cmd_has(a, HELP)) {
		cmd_help_print(a->cmd);
		return CMD_OK;
	}
	if (cmd_has(a, VERSION)) {
		printf("foundry-store %s\n", FDRY_VERSION);
		return CMD_OK;
	}
	watch_crashes();
	if (a->cmd->open >= 0)
		err = cmd_store_open(a, a->cmd->open, &s);
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
