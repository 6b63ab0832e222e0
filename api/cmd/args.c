// SPDX-License-Identifier: Apache-2.0
/* args.c - parses the command line and checks it against the lists; parses numbers. */
#include "api/cmd/cmd.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* getopt returns this for an option without a letter: above all characters, '?' and ':'. */
#define NO_LETTER 0x100

_Static_assert(CMD_OPT_COUNT <= 64, "options are bits of 64");

int cmd_usage(const struct cmd *c, const char *fmt, ...)
{
	char text[FDRY_SENTENCE_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	cmd_error("%.900s; see foundry-store %s%s", text, c ? "help " : "--help", c ? c->name : "");
	return CMD_USAGE;
}

/* The list of options in the two forms that getopt wants. */
static void options_make(char letters[2 * CMD_OPT_COUNT + 2],
			 struct option longs[CMD_OPT_COUNT + 1])
{
	const struct cmd_option_info *o;
	size_t i, n = 0;

	letters[n++] = ':'; /* getopt prints nothing: the messages are ours */
	for (i = 0; i < CMD_OPT_COUNT; i++) {
		o = &cmd_options[i];
		if (o->letter) {
			letters[n++] = (char)o->letter;
			if (o->arg)
				letters[n++] = ':';
		}
		longs[i] = (struct option){ o->name, o->arg ? required_argument : no_argument, NULL,
					    NO_LETTER + (int)i };
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

/* getopt does not know --@name: several options begin with it, or none does. */
static int long_option_bad(const char *name)
{
	int i, n = 0, len = (int)strcspn(name, "=");
	char list[512] = "", typed[64];
	struct cmd_guess g = { .typed = typed };
	size_t at = 0;

	for (i = 0; i < CMD_OPT_COUNT; i++)
		if (!strncmp(cmd_options[i].name, name, (size_t)len))
			at += (size_t)snprintf(list + at, sizeof(list) - at, "%s--%s",
					       n++ ? ", " : "", cmd_options[i].name);
	if (n)
		return cmd_usage(NULL, "option --%.*s is ambiguous: it may be %s", len, name, list);
	snprintf(typed, sizeof(typed), "%.*s", len, name);
	for (i = 0; i < CMD_OPT_COUNT; i++)
		cmd_guess_offer(&g, cmd_options[i].name);
	return cmd_usage(NULL, "there is no option --%s%s", typed, cmd_guess_text(&g, "--"));
}

/* Report why getopt does not accept an option. */
static int option_bad(int c, char **argv)
{
	const struct cmd_option_info *o;

	if (c == ':') {
		o = &cmd_options[option_number(optopt)];
		return optopt < NO_LETTER
			       ? cmd_usage(NULL, "option -%c needs an argument: %s", optopt, o->arg)
			       : cmd_usage(NULL, "option --%s needs an argument: %s", o->name,
					   o->arg);
	}
	if (optopt >= NO_LETTER)
		return cmd_usage(NULL, "option --%s has no argument",
				 cmd_options[optopt - NO_LETTER].name);
	if (optopt)
		return cmd_usage(NULL, "there is no option -%c", optopt);
	return long_option_bad(argv[optind - 1] + 2);
}

static int options_parse(int argc, char **argv, struct cmd_args *a)
{
	char letters[2 * CMD_OPT_COUNT + 2];
	struct option longs[CMD_OPT_COUNT + 1];
	int c, i, status = -1;

	options_make(letters, longs);
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		if (c == '?' || c == ':') { /* the first error counts, but --json may follow */
			status = status < 0 ? option_bad(c, argv) : status;
			continue;
		}
		i = option_number(c);
		a->given |= 1ull << i;
		a->value[i] = optarg;
		if (i != CMD_OPT_FILTER)
			continue;
		if (a->nfilters == CMD_FILTERS_MAX)
			return cmd_usage(NULL, "there are more than %d filters", CMD_FILTERS_MAX);
		a->filters[a->nfilters++] = optarg;
	}
	a->store = cmd_value(a, STORE);
	a->argc = argc - optind;
	a->argv = argv + optind;
	return status;
}

/* Refuse options that the command does not have. */
static int option_foreign(const struct cmd_args *a)
{
	uint64_t foreign = a->given & ~cmd_options_of(a->cmd);

	if (!foreign)
		return -1;
	return cmd_usage(a->cmd, "%s has no option --%s", a->cmd->name,
			 cmd_options[__builtin_ctzll(foreign)].name);
}

/* Other programs have a prune that does what gc does. */
static const char prune_hint[] =
	" of a container registry (gc removes what no name of the store reaches)";

static int operands_check(const struct cmd_args *a)
{
	int min, max;

	cmd_operand_range(a->cmd, &min, &max);
	if (cmd_has(a, HELP))
		return -1;
	if (a->argc < min)
		return cmd_usage(a->cmd, "%s needs %s%s", a->cmd->name, a->cmd->operands,
				 strcmp(a->cmd->name, "prune") ? "" : prune_hint);
	if (a->argc > max)
		return cmd_usage(a->cmd, max ? "%s accepts no more than %s" : "%s has no operands",
				 a->cmd->name, a->cmd->operands);
	return -1;
}

int cmd_args_parse(int argc, char **argv, struct cmd_args *a)
{
	int status;

	*a = (struct cmd_args){ 0 };
	status = options_parse(argc, argv, a);
	if (status >= 0)
		return status;
	if (!a->argc && argc <= 1)
		a->given |= CMD_OPT_BIT(HELP);
	if (!a->argc)
		return cmd_has(a, HELP) || cmd_has(a, VERSION)
			       ? -1
			       : cmd_usage(NULL, "name a command");
	a->cmd = cmd_find(a->argv[0]);
	if (!a->cmd)
		return cmd_unknown(a->argv[0]);
	a->argc--;
	a->argv++;
	status = option_foreign(a);
	return status < 0 ? operands_check(a) : status;
}

/* --- numbers --- */

int cmd_parse_number(const char *text, const char *what, uint64_t *ret)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (end == text || *end || errno || *text < '0' || *text > '9')
		return fdry_fail(FDRY_E_INVAL, "'%.80s' is not %s; write a number", text, what);
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
	if (end == text || *end || errno || *text < '0' || *text > '9' || strpbrk(text, "xX") ||
	    !(x < 0x1p63))
		return fdry_fail(
			FDRY_E_INVAL,
			"'%.80s' is not %s; write bytes, or a number followed by K, M, G or T",
			text, what);
	*ret = (uint64_t)x;
	return 0;
}
