// SPDX-License-Identifier: Apache-2.0
/*
 * main.c - foundry-store: looks after a store of images.
 *
 * Commands and options are two tables; a new command is a line here and a file beside it.
 */
#include "api/cmd/cmd.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define BIT(option) (1u << CMD_OPT_##option)
#define EVERYWHERE (BIT(STORE) | BIT(JSON) | BIT(HELP) | BIT(VERSION))

struct command {
	const char *name, *operands, *help;
	int min, max;         /* operands */
	unsigned int options; /* beside those that are everybody's */
	int open;             /* flags of fdry_store_open(); -1: not at all */
	cmd_fn fn;
};

static const struct command commands[] = {
	{ "ls", "", "list refs, or with --objects every object", 0, 0, BIT(OBJECTS), FDRY_STORE_READONLY, cmd_ls },
	{ "show", "IMAGE", "describe an image, or any object", 1, 1, 0, FDRY_STORE_READONLY, cmd_show },
	{ "graph", "IMAGE KEY", "write one of its graphs as text", 2, 2, 0, FDRY_STORE_READONLY, cmd_graph },
	{ "verify", "", "check every object, link and ref", 0, 0, 0, -1, cmd_verify },
	{ "tag", "IMAGE REF", "name an image", 2, 2, 0, 0, cmd_tag },
	{ "rm", "REF...", "remove refs; gc then removes what they kept", 1, 1 << 20, 0, 0, cmd_rm },
	{ "gc", "", "remove what no ref reaches", 0, 0, BIT(DRY_RUN), 0, cmd_gc },
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct {
	int letter;
	const char *name, *arg, *help;
} options[] = {
#define X(letter, NAME, name, arg, help) { letter, name, arg, help },
	CMD_OPTIONS(X)
#undef X
};

int cmd_fail(void)
{
	fprintf(stderr, "foundry-store: %s\n", fdry_last_error());
	return CMD_FAILED;
}

static int usage_error(const char *what, const char *which)
{
	fprintf(stderr, "foundry-store: %s%s%s; see foundry-store --help\n", what, which ? " " : "", which ? which : "");
	return CMD_USAGE;
}

static void help(void)
{
	size_t i;

	printf("usage: foundry-store [OPTION]... COMMAND [OPERAND]...\n\n"
	       "Looks after a store of images: IMAGE is a ref, an id, or the beginning of an image's id.\n\n");
	for (i = 0; i < COMMANDS; i++)
		printf("  %-6s %-10s %s\n", commands[i].name, commands[i].operands, commands[i].help);
	printf("\n");
	for (i = 0; i < CMD_OPT_COUNT; i++)
		printf("  -%c, --%-8s %-4s %s\n", options[i].letter, options[i].name, options[i].arg ? options[i].arg : "",
		       options[i].help);
	printf("\nExit status: 0 all is well, 1 an error, 2 wrong usage, 3 verify found damage.\n");
}

/* getopt's two ways of saying the same list. */
static void options_make(char letters[2 * CMD_OPT_COUNT + 1], struct option longs[CMD_OPT_COUNT + 1])
{
	size_t i, n = 0;

	for (i = 0; i < CMD_OPT_COUNT; i++) {
		letters[n++] = (char)options[i].letter;
		if (options[i].arg)
			letters[n++] = ':';
		longs[i] = (struct option){ options[i].name, options[i].arg ? required_argument : no_argument, NULL,
					    options[i].letter };
	}
	letters[n] = '\0';
	longs[i] = (struct option){ 0 };
}

/* -1, or an exit status. */
static int args_parse(int argc, char **argv, struct cmd_args *a)
{
	char letters[2 * CMD_OPT_COUNT + 1];
	struct option longs[CMD_OPT_COUNT + 1];
	int c, i;

	options_make(letters, longs);
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		for (i = 0; i < CMD_OPT_COUNT && options[i].letter != c; i++)
			;
		if (i == CMD_OPT_COUNT)
			return CMD_USAGE; /* getopt has said why */
		a->given |= 1u << i;
		if (i == CMD_OPT_STORE)
			a->store = optarg;
	}
	a->argc = argc - optind;
	a->argv = argv + optind;
	return -1;
}

static const struct command *command_find(const char *name)
{
	size_t i;

	for (i = 0; i < COMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static int command_check(const struct command *c, const struct cmd_args *a)
{
	int i;

	if (a->argc < c->min)
		return usage_error("too few operands for", c->name);
	if (a->argc > c->max)
		return usage_error("too many operands for", c->name);
	for (i = 0; i < CMD_OPT_COUNT; i++)
		if (a->given & ~(EVERYWHERE | c->options) & 1u << i)
			return usage_error("this option is not one of", c->name);
	return CMD_OK;
}

static int command_run(const struct command *c, const struct cmd_args *a)
{
	struct fdry_store *s = NULL;
	int status;

	if (c->open >= 0 && fdry_store_open(a->store, (unsigned int)c->open, &s))
		return cmd_fail();
	status = c->fn(a, s);
	fdry_store_close(s);
	return status;
}

static int run(struct cmd_args *a)
{
	const struct command *c;
	int status;

	if (cmd_has(a, CMD_OPT_HELP)) {
		help();
		return CMD_OK;
	}
	if (cmd_has(a, CMD_OPT_VERSION)) {
		printf("foundry-store %s\n", FDRY_VERSION);
		return CMD_OK;
	}
	if (!a->argc)
		return usage_error("no command is given", NULL);
	c = command_find(a->argv[0]);
	if (!c)
		return usage_error("there is no command", a->argv[0]);
	a->argc--;
	a->argv++;
	status = command_check(c, a);
	return status ? status : command_run(c, a);
}

int main(int argc, char **argv)
{
	struct cmd_args a = { 0 };
	int status = args_parse(argc, argv, &a);

	if (status < 0)
		status = run(&a);
	if ((fflush(stdout) || ferror(stdout)) && status == CMD_OK) {
		fprintf(stderr, "foundry-store: cannot write the output: %s\n", strerror(errno));
		status = CMD_FAILED;
	}
	return status;
}
