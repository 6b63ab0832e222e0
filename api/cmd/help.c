// SPDX-License-Identifier: Apache-2.0
/* help.c - prints the lists of commands and options, for users and for tests. */
#include "api/cmd/cmd.h"

#include <string.h>

#include "lib/config.h"

static void print_options(uint64_t which)
{
	const struct cmd_option_info *o;
	char left[64];
	size_t i;

	for (i = 0; i < CMD_OPT_COUNT; i++) {
		if (!(which >> i & 1))
			continue;
		o = &cmd_options[i];
		snprintf(left, sizeof(left), "--%s%s%s", o->name, o->arg ? " " : "",
			 o->arg ? o->arg : "");
		if (o->letter)
			printf("  -%c, %-20s %s\n", o->letter, left, o->help);
		else
			printf("      %-20s %s\n", left, o->help);
	}
}

static void print_group(enum cmd_group group, const char *headline)
{
	char left[64];
	size_t i;

	if (!headline)
		return;
	for (i = 0; i < cmd_count; i++) {
		if (cmd_list[i].group != group)
			continue;
		if (headline)
			printf("%s:\n", headline);
		headline = NULL;
		snprintf(left, sizeof(left), "%s %s", cmd_list[i].name, cmd_list[i].operands);
		printf("  %-24s %s\n", left, cmd_list[i].summary);
	}
}

static void help_aliases(void)
{
	printf("\nOther names:");
#define X(alias, name) printf("  %s (%s)", alias, name);
	CMD_ALIASES(X)
#undef X
	printf("\n");
}

static void help_all(void)
{
	printf("usage: foundry-store [OPTION]... COMMAND [OPERAND]...\n\n"
	       "Maintain a store of images.\n\n");
#define X(NAME, headline) print_group(CMD_GROUP_##NAME, headline);
	CMD_GROUPS(X)
#undef X
	help_aliases();
	printf("\nOptions of all commands (foundry-store help COMMAND has a command's own):\n");
	print_options(CMD_EVERYWHERE);
	printf("\nEnvironment variables: foundry-store help environment\n"
	       "To see what works on this machine: python3 -m foundry doctor\n\nExit status:\n");
#define X(nr, NAME, meaning) printf("  %d  %s\n", nr, meaning);
	CMD_EXITS(X)
#undef X
}

static bool takes_operand(const struct cmd *c, enum cmd_operand operand)
{
	int n;

	for (n = 0; n < 8; n++)
		if (cmd_operand_at(c, n) == operand)
			return true;
	return false;
}

static void help_one(const struct cmd *c)
{
	printf("usage: foundry-store %s%s%s%s\n\n%c%s.\n", c->name,
	       c->options ? " [OPTION]..." : "", *c->operands ? " " : "", c->operands,
	       c->summary[0] - ('a' <= c->summary[0] && c->summary[0] <= 'z' ? 32 : 0),
	       c->summary + 1);
	if (*c->operands)
		printf("\n");
#define X(NAME, what) if (takes_operand(c, CMD_OPERAND_##NAME)) printf("  %-7s %s\n", #NAME, what);
	CMD_OPERANDS(X)
#undef X
	if (c->options)
		printf("\nOptions:\n");
	print_options(c->options);
	printf("\nOptions of all commands:\n");
	print_options(CMD_EVERYWHERE);
	printf("\nMore: man foundry-store\n");
}

void cmd_help_print(const struct cmd *c)
{
	if (c)
		help_one(c);
	else
		help_all();
}

static int help_environment(void)
{
	const struct fdry_config_var *v;

	for (v = fdry_config_vars; v < fdry_config_vars + FDRY_CONFIG_COUNT; v++) {
		printf("%s\n    %s.\n    Allowed: %s.", v->name, v->meaning, v->allowed);
		printf(*v->fallback ? " Default: %s.\n" : "\n", v->fallback);
	}
	return CMD_OK;
}

int cmd_help(const struct cmd_args *a, struct fdry_store *s)
{
	const struct cmd *c = a->argc ? cmd_find(a->argv[0]) : NULL;

	(void)s;
	if (a->argc && !strcmp(a->argv[0], "environment"))
		return help_environment();
	if (a->argc && !c)
		return cmd_unknown(a->argv[0]);
	cmd_help_print(c);
	return CMD_OK;
}

static void table_command(const struct cmd *c)
{
	size_t i;

	printf("command %s%s%s\n", c->name, *c->operands ? " " : "", c->operands);
	for (i = 0; i < CMD_OPT_COUNT; i++)
		if (c->options >> i & 1)
			printf("takes %s --%s\n", c->name, cmd_options[i].name);
}

/* "command tag IMAGE REF", "takes ls --objects", "option -s --store DIR", "alias list ls", "exit
 * 0". */
int cmd_table(const struct cmd_args *a, struct fdry_store *s)
{
	const struct cmd_option_info *o;
	size_t i;

	(void)a;
	(void)s;
	for (i = 0; i < cmd_count; i++)
		if (cmd_list[i].group != CMD_GROUP_HIDDEN)
			table_command(&cmd_list[i]);
	for (i = 0; i < CMD_OPT_COUNT; i++) {
		o = &cmd_options[i];
		printf("option -%c --%s %s\n", o->letter ? o->letter : '-', o->name,
		       o->arg ? o->arg : "");
	}
#define X(alias, name) printf("alias %s %s\n", alias, name);
	CMD_ALIASES(X)
#undef X
#define X(nr, NAME, meaning) printf("exit %d\n", nr);
	CMD_EXITS(X)
#undef X
	return CMD_OK;
}
