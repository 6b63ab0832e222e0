// SPDX-License-Identifier: Apache-2.0
/* table.c - the tables of commands and options, and look-up of their words. */
#include "api/cmd/cmd.h"

#include <limits.h>
#include <string.h>

#define OPEN_NONE (-1)
#define OPEN_READ FDRY_STORE_READONLY
#define OPEN_WRITE 0

#define PYTHON "python3 -m foundry " /* the commands of the Python package */
#define OPT(NAME) CMD_OPT_BIT(NAME)

const struct cmd cmd_list[] = {
#define COMMAND(NAME, name, group, operands, open, options, summary) \
	{ name, CMD_GROUP_##group, operands, OPEN_##open, options, summary, cmd_##NAME },
#include "api/cmd/commands.def"
#undef COMMAND
};
const size_t cmd_count = sizeof(cmd_list) / sizeof(cmd_list[0]);

const struct cmd_option_info cmd_options[CMD_OPT_COUNT] = {
#define OPTION(letter, NAME, name, arg, help) { letter, name, arg, help },
#include "api/cmd/options.def"
#undef OPTION
};

static const char *const operands[] = {
#define X(NAME, what) #NAME,
	CMD_OPERANDS(X)
#undef X
};

static const struct {
	const char *alias, *name;
} aliases[] = {
#define X(alias, name) { alias, name },
	CMD_ALIASES(X)
#undef X
};
#define ALIASES (sizeof(aliases) / sizeof(aliases[0]))

const struct cmd *cmd_find(const char *name)
{
	size_t i;

	for (i = 0; i < ALIASES; i++)
		if (!strcmp(aliases[i].alias, name))
			name = aliases[i].name;
	for (i = 0; i < cmd_count; i++)
		if (!strcmp(cmd_list[i].name, name))
			return &cmd_list[i];
	return NULL;
}

int cmd_unknown(const char *name)
{
	struct cmd_guess g = { .typed = name };
	size_t i;

	if (!strcmp(name, "doctor") || !strcmp(name, "run"))
		return cmd_usage(NULL, "there is no command %s (did you mean " PYTHON "%s?)", name,
				 name);
	for (i = 0; i < cmd_count; i++)
		if (cmd_list[i].group != CMD_GROUP_HIDDEN)
			cmd_guess_offer(&g, cmd_list[i].name);
	for (i = 0; i < ALIASES; i++)
		cmd_guess_offer(&g, aliases[i].alias);
	return cmd_usage(NULL, "there is no command %.200s%s", name, cmd_guess_text(&g, ""));
}

enum cmd_operand cmd_operand_of(const char *word, size_t len)
{
	int i;

	for (; len && *word == '['; word++)
		len--;
	len = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") < len
		      ? strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
		      : len;
	for (i = 0; i < CMD_OPERAND_NONE; i++)
		if (strlen(operands[i]) == len && !strncmp(operands[i], word, len))
			break;
	return (enum cmd_operand)i;
}

/* Returns the next word of a command's operands, NULL at the end. */
static const char *next_word(const char **at, size_t *len)
{
	const char *word = *at + strspn(*at, " ");

	*len = strcspn(word, " ");
	*at = word + *len;
	return *len ? word : NULL;
}

static bool repeats(const char *word, size_t len)
{
	return memmem(word, len, "...", 3) != NULL;
}

void cmd_operand_range(const struct cmd *c, int *min, int *max)
{
	const char *word, *at = c->operands;
	size_t len;

	*min = *max = 0;
	while ((word = next_word(&at, &len))) {
		*min += *word != '[';
		*max = repeats(word, len) ? INT_MAX : *max + 1;
	}
}

enum cmd_operand cmd_operand_at(const struct cmd *c, int n)
{
	const char *word, *at = c->operands;
	size_t len;
	int i = 0;

	while ((word = next_word(&at, &len)))
		if (i++ == n || repeats(word, len))
			return cmd_operand_of(word, len);
	return CMD_OPERAND_NONE;
}

uint64_t cmd_options_of(const struct cmd *c)
{
	return CMD_EVERYWHERE | c->options;
}
