// SPDX-License-Identifier: Apache-2.0
/* args.c - what was typed, checked against the lists; numbers. */
#include "api/cmd/cmd.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* What getopt gives for an option without a letter: above all characters, and above '?' and ':'. */
#define NO_LETTER 0x100

_Static_assert(CMD_OPT_COUNT <= 64, "options are bits of 64");

int cmd_usage(const struct cmd *c, const char *fmt, ...)
{
	va_list ap;

	fputs("foundry-store: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "; see foundry-store %s%s\n", c ? "help " : "--help", c ? c->name : "");
	return CMD_USAGE;
}

/* getopt's two ways of saying the same list. */
static void options_make(char letters[2 * CMD_OPT_COUNT + 2], struct option longs[CMD_OPT_COUNT + 1])
{
	const struct cmd_option_info *o;
	size_t i, n = 0;

	letters[n++] = ':'; /* the sentences are ours */
	for (i = 0; i < CMD_OPT_COUNT; i++) {
		o = &cmd_options[i];
		if (o->letter) {
			letters[n++] = (char)o->letter;
			if (o->arg)
				letters[n++] = ':';
		}
		longs[i] = (struct option){ o->name, o->arg ? required_argument : no_argument, NULL, NO_LETTER + (int)i };
	}
	letters[n] = '\0';
	longs[i] = (struct option){ 0 };
}

static int option_number(int c)
{
	int i;

	if (c >= NO_LETTER)
		return c - NO_LETTER;
	for (i = 0; i < CMD_OPT_COUNT && cmd_options[i].letter != c; i++)
		;
	return i;
}

/* getopt wants no @c: what was it? */
static int option_bad(int c, char **argv)
{
	const char *word = argv[optind - 1];

	if (c == ':')
		return cmd_usage(NULL, "option %s needs an argument", word);
	if (optopt >= NO_LETTER)
		return cmd_usage(NULL, "option --%s takes no argument", cmd_options[optopt - NO_LETTER].name);
	if (optopt)
		return cmd_usage(NULL, "there is no option -%c", optopt);
	return cmd_usage(NULL, "there is no option %s, or several begin so", word);
}

static int options_parse(int argc, char **argv, struct cmd_args *a)
{
	char letters[2 * CMD_OPT_COUNT + 2];
	struct option longs[CMD_OPT_COUNT + 1];
	int c, i;

	options_make(letters, longs);
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		if (c == '?' || c == ':')
			return option_bad(c, argv);
		i = option_number(c);
		a->given |= 1ull << i;
		a->value[i] = optarg;
	}
	a->store = cmd_value(a, STORE);
	a->argc = argc - optind;
	a->argv = argv + optind;
	return -1;
}

/* What was given and the command does not take. */
static int option_foreign(const struct cmd_args *a)
{
	uint64_t foreign = a->given & ~cmd_options_of(a->cmd);

	if (!foreign)
		return -1;
	return cmd_usage(a->cmd, "%s has no option --%s", a->cmd->name, cmd_options[__builtin_ctzll(foreign)].name);
}

static int operands_check(const struct cmd_args *a)
{
	int min, max;

	cmd_operand_range(a->cmd, &min, &max);
	if (cmd_has(a, HELP))
		return -1;
	if (a->argc < min)
		return cmd_usage(a->cmd, "%s wants %s", a->cmd->name, a->cmd->operands);
	if (a->argc > max)
		return cmd_usage(a->cmd, max ? "%s wants no more than %s" : "%s wants no operands", a->cmd->name,
				 a->cmd->operands);
	return -1;
}

int cmd_args_parse(int argc, char **argv, struct cmd_args *a)
{
	struct cmd_args args = { 0 };
	int status = options_parse(argc, argv, &args);

	if (status >= 0)
		return status;
	if (args.argc) {
		args.cmd = cmd_find(args.argv[0]);
		if (!args.cmd)
			return cmd_usage(NULL, "there is no command %s", args.argv[0]);
		args.argc--;
		args.argv++;
		status = option_foreign(&args);
		if (status < 0)
			status = operands_check(&args);
	} else if (!cmd_has(&args, HELP) && !cmd_has(&args, VERSION)) {
		return cmd_usage(NULL, "no command is given");
	}
	*a = args;
	return status;
}

/* --- numbers --- */

int cmd_parse_number(const char *text, const char *what, uint64_t *ret)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (end == text || *end || errno || *text < '0' || *text > '9')
		return fdry_fail(FDRY_E_INVAL, "'%.80s' is not %s; give a number", text, what);
	*ret = n;
	return 0;
}

int cmd_parse_size(const char *text, const char *what, uint64_t *ret)
{
	static const char units[] = "KMGT";
	const char *unit;
	double x;
	char *end;

	errno = 0;
	x = strtod(text, &end);
	unit = *end ? memchr(units, *end & ~0x20, sizeof(units) - 1) : NULL;
	if (unit)
		end += strcasecmp(end + 1, "iB") ? 1 : 3;
	else if (*end == 'B' && !end[1])
		end++;
	x = unit ? ldexp(x, 10 * (int)(unit - units + 1)) : x;
	if (end == text || *end || errno || *text < '0' || *text > '9' || strpbrk(text, "xX") || !(x < 0x1p63))
		return fdry_fail(FDRY_E_INVAL, "'%.80s' is not %s; give bytes, or a number with K, M, G or T behind it", text, what);
	*ret = (uint64_t)x;
	return 0;
}
