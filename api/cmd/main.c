// SPDX-License-Identifier: Apache-2.0
/* main.c - foundry-store: looks after a store of images. Commands and options are lists: commands.def, options.def. */
#include "api/cmd/cmd.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* What only says what it would do needs no permission to do it. */
static int flags_of(const struct cmd_args *a)
{
	return !a->cmd->open && cmd_has(a, DRY_RUN) ? FDRY_STORE_READONLY : a->cmd->open;
}

static int command_run(const struct cmd_args *a)
{
	struct fdry_store *s = NULL;
	int status, err = 0, flags = flags_of(a);

	if (flags >= 0)
		err = fdry_store_open(a->store, (unsigned int)flags, &s);
	if (err)
		return cmd_fail(err);
	status = a->cmd->fn(a, s);
	fdry_store_close(s);
	return status;
}

static int run(const struct cmd_args *a)
{
	if (cmd_has(a, HELP)) {
		cmd_help_print(a->cmd);
		return CMD_OK;
	}
	if (cmd_has(a, VERSION)) {
		printf("foundry-store %s\n", FDRY_VERSION);
		return CMD_OK;
	}
	return command_run(a);
}

int main(int argc, char **argv)
{
	struct cmd_args a;
	int status;

	signal(SIGPIPE, SIG_IGN); /* "| head" ends in an error of ours, with sessions ended */
	status = cmd_args_parse(argc, argv, &a);
	if (status < 0)
		status = run(&a);
	if (fflush(stdout) || ferror(stdout)) {
		if (errno != EPIPE)
			fprintf(stderr, "foundry-store: cannot write the output: %s\n", strerror(errno));
		if (status == CMD_OK)
			status = CMD_FAILED;
	}
	return status;
}
