/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - foundry-store: what its commands share.
 *
 * A command prints what was asked for on standard output and nothing else there; an error
 * is one sentence on standard error, questions and progress are there too, and only where it
 * is a terminal. Exit statuses and JSON are part of the interface: see
 * Documentation/man/foundry-store.1 and Documentation/api/store-json.rst.
 *
 * Commands and options are the lists commands.def and options.def.
 */
#ifndef FDRY_API_CMD_H
#define FDRY_API_CMD_H

#include <stdarg.h>
#include <stdio.h>

#include "store/store.h"

/* CMD_EXIT(number, NAME, meaning): frozen. */
#define CMD_EXITS(X) \
	X(0, OK, "it is done, and all is well") \
	X(1, FOUND, "it is done: verify found damage, diff a difference") \
	X(2, USAGE, "an option, operand or variable is wrong") \
	X(3, ABSENT, "no store, ref, object or graph of that name, or several") \
	X(4, LOCKED, "another process was in the way or faster; try again") \
	X(5, FULL, "the disk or the store is full") \
	X(6, DENIED, "permissions or the medium do not allow it") \
	X(7, DAMAGED, "damage keeps it from being done; see verify") \
	X(8, DECLINED, "the question was not answered with yes") \
	X(9, FAILED, "any other error")

enum cmd_exit {
#define X(nr, NAME, meaning) CMD_##NAME = nr,
	CMD_EXITS(X)
#undef X
};

/* CMD_GROUP(NAME, headline): of commands, as help lists them. */
#define CMD_GROUPS(X) \
	X(LOOK, "Look") \
	X(CHANGE, "Name and remove") \
	X(CARE, "Look after") \
	X(MOVE, "Carry elsewhere") \
	X(ABOUT, "Other") \
	X(HIDDEN, NULL)

enum cmd_group {
#define X(NAME, headline) CMD_GROUP_##NAME,
	CMD_GROUPS(X)
#undef X
};

/* CMD_OPERAND(NAME, what it is): words of the lists' operands and arguments. */
#define CMD_OPERANDS(X) \
	X(IMAGE, "a ref, an id, or the beginning of an image's id (4 digits or more)") \
	X(OBJECT, "an IMAGE, or the id of any object or its beginning") \
	X(REF, "a name: letters, digits and - _ . @ + / =") \
	X(KEY, "the number of a graph, as show lists them") \
	X(DIR, "a directory") \
	X(FILE, "a file; - is standard input or output") \
	X(SOURCE, "the directory of another store, or a pack") \
	X(SIZE, "bytes; with K, M, G or T binary ones") \
	X(N, "a number") \
	X(PATTERN, "a ref's name with *, ? and [...] as in a shell, where * also means slashes") \
	X(COMMAND, "a command's name") \
	X(WORD, "any word")

enum cmd_operand {
#define X(NAME, what) CMD_OPERAND_##NAME,
	CMD_OPERANDS(X)
#undef X
	CMD_OPERAND_NONE
};

enum cmd_option {
#define OPTION(letter, NAME, name, arg, help) CMD_OPT_##NAME,
#include "api/cmd/options.def"
#undef OPTION
	CMD_OPT_COUNT
};
#define CMD_OPT_BIT(NAME) (1ull << CMD_OPT_##NAME)
#define CMD_EVERYWHERE \
	(CMD_OPT_BIT(STORE) | CMD_OPT_BIT(JSON) | CMD_OPT_BIT(QUIET) | CMD_OPT_BIT(HELP) | \
	 CMD_OPT_BIT(VERSION))

struct cmd_option_info {
	int letter; /* 0: none */
	const char *name, *arg, *help;
};
extern const struct cmd_option_info cmd_options[CMD_OPT_COUNT];

struct cmd;

/* What the command line asks for. */
struct cmd_args {
	const struct cmd *cmd;
	const char *store;                /* NULL: the default */
	uint64_t given;                   /* bit n: option n of enum cmd_option */
	const char *value[CMD_OPT_COUNT]; /* the last argument of those that take one */
	int argc;
	char **argv; /* what follows the command's name */
};

/* A command: @s is NULL for those that do not want the store opened, and in a dry run where there
 * is none yet and the command would make it. Gives an exit status. */
typedef int (*cmd_fn)(const struct cmd_args *a, struct fdry_store *s);

struct cmd {
	const char *name;
	enum cmd_group group;
	const char *operands;
	int open; /* flags of fdry_store_open(); -1: not at all */
	uint64_t options; /* beside CMD_EVERYWHERE */
	const char *summary;
	cmd_fn fn;
};
extern const struct cmd cmd_list[];
extern const size_t cmd_count;

#define COMMAND(NAME, name, group, operands, open, options, summary) \
	int cmd_##NAME(const struct cmd_args *a, struct fdry_store *s);
#include "api/cmd/commands.def"
#undef COMMAND

/* --- table.c --- */

/* NULL where there is none. */
const struct cmd *cmd_find(const char *name);
/* How many operands it takes; @max is INT_MAX where the last may be repeated. */
void cmd_operand_range(const struct cmd *c, int *min, int *max);
/* What operand number @n (from 0) is, CMD_OPERAND_NONE where there is none. */
enum cmd_operand cmd_operand_at(const struct cmd *c, int n);
/* The word's operand: IMAGE for "IMAGE", "[IMAGE]" and "IMAGE..."; CMD_OPERAND_NONE where it is no
 * such word. */
enum cmd_operand cmd_operand_of(const char *word, size_t len);
/* The options that it takes. */
uint64_t cmd_options_of(const struct cmd *c);

/* --- args.c: options and operands --- */

static inline bool cmd_has_(const struct cmd_args *a, enum cmd_option option)
{
	return a->given >> option & 1;
}
#define cmd_has(a, NAME) cmd_has_(a, CMD_OPT_##NAME)
/* The argument of an option that was given, else NULL. */
#define cmd_value(a, NAME) ((a)->value[CMD_OPT_##NAME])

/* Gives -1, or an exit status. Writes @a in either case. */
int cmd_args_parse(int argc, char **argv, struct cmd_args *a);
/* Wrong usage, in one sentence: CMD_USAGE. @c may be NULL. */
int cmd_usage(const struct cmd *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "10", "1.5G", "64MiB" of bytes; a number. Errors of ours that name @what. */
int cmd_parse_size(const char *text, const char *what, uint64_t *ret) __must_check;
int cmd_parse_number(const char *text, const char *what, uint64_t *ret) __must_check;

/* --- help.c --- */

/* A command's help; NULL: of all. */
void cmd_help_print(const struct cmd *c);

/* --- name.c: from what a person types to an id --- */

/* An OBJECT, or where @images an IMAGE. Says itself what several ids fit; gives an error of ours.
 */
int cmd_resolve(struct fdry_store *s, const char *name, bool images,
		struct fdry_oid *ret) __must_check;

/* --- say.c: what goes to people --- */

/* Say a sentence on standard error. */
void cmd_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The first sentence that was said so; NULL: none. */
const char *cmd_first_error(void);
/* A name, fact or path of somebody else's as text that a terminal only shows (lib/printable.h). Of
 * the last eight calls. Not for JSON, which has escapes of its own. */
const char *cmd_text(const char *s);
/* Formatted text, each line of it printable; a name that can hold a newline goes through cmd_text()
 * first. */
void cmd_vprint(FILE *f, const char *fmt, va_list ap);
/* Say the last error's sentence; the exit status that belongs to @err, an error of ours. */
int cmd_fail(int err);
/* Writing @path failed, with errno: an error of ours that says so. */
int cmd_write_failed(const char *path) __must_check;
/* Flush @f, which is written to @path: the same if it, or writing before, failed. */
int cmd_write_check(FILE *f, const char *path) __must_check;
/* An account of what was done, on standard output; nothing with --quiet or --json. */
void cmd_say(const struct cmd_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Whether cmd_confirm() asks: not with --yes, with --dry-run, or without a terminal. */
bool cmd_asks(const struct cmd_args *a);
/*
 * Ask whether to do what the sentence says, which names what would go and how much that is. True
 * without asking. The command that gets false does nothing and returns cmd_declined().
 */
bool cmd_confirm(const struct cmd_args *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int cmd_declined(void);

/* Refs to name in a question, as "m/a (1f0c9a2b4d6e), m/b (damaged) and 5 more". Zero it; release
 * it. */
struct cmd_names {
	struct fdry_buf text;
	uint64_t count;
	int err;
};
/* @id NULL: its record is damaged. */
void cmd_names_add(struct cmd_names *n, const char *name, const char *id);
/* @text is complete now, unless this gives an error of ours. */
int cmd_names_end(struct cmd_names *n) __must_check;
void cmd_names_release(struct cmd_names *n);

/* Escape sequences for standard output: "" where it is no terminal, TERM is dumb or NO_COLOR is
 * set. */
struct cmd_colours {
	const char *id, *name, *bad, *dim, *added, *removed, *reset;
};
const struct cmd_colours *cmd_colours(void);

/* How far something is: a line on standard error, ten times a second at most; nothing where that is
 * no terminal, or with --quiet. */
struct cmd_progress {
	const char *what;
	uint64_t shown_ms; /* when; 0: never */
	bool on, bytes;    /* of bytes, not of things */
};
void cmd_progress_begin(struct cmd_progress *p, const struct cmd_args *a, const char *what,
			bool bytes);
/* @total 0: not known. */
void cmd_progress_to(struct cmd_progress *p, uint64_t done, uint64_t total);
/* The same as a function of fdry_step_fn. */
void cmd_progress_step(void *p, uint64_t done, uint64_t total);
/* Takes the line away until it is shown again, so that something else can be printed. */
void cmd_progress_pause(struct cmd_progress *p);
/* Takes the line away. */
void cmd_progress_end(struct cmd_progress *p);

/* --- util.c --- */

/* Objects counted. */
struct cmd_sum {
	uint64_t objects, bytes, stored;
};
/* What @oid reaches, itself included, by kind number; [0] is the total. Gives an error of ours. */
int cmd_reach(struct fdry_store *s, const struct fdry_oid *oid,
	      struct cmd_sum sums[FDRY_OBJECT_MANIFEST + 1]);

/* "17 B", "1.5 KiB": for people. */
struct cmd_size {
	char text[24];
};
struct cmd_size cmd_size(uint64_t bytes);
/* "" for one, "s" for any other number. */
const char *cmd_plural(uint64_t n);

/* --- json.c --- */

/* A document: what is open, and whether something stands before. Zero it, and set @f. */
struct json {
	FILE *f;
	unsigned int depth;
	bool comma;
};
/* Inside an object every value has a key; elsewhere it is NULL. */
void json_open(struct json *j, const char *key, char bracket);
/* The last bracket of a document on standard output is left to json_end(). */
void json_close(struct json *j, char bracket);
/*
 * The command has ended with @status: complete its document on standard output. An error, of which
 * there is a sentence, is its last key; a command that failed before it began one gets a document
 * of that key alone.
 */
void json_end(int status, const char *error);
void json_string(struct json *j, const char *key, const char *value);
void json_number(struct json *j, const char *key, uint64_t value);
void json_bool(struct json *j, const char *key, bool value);
void json_oid(struct json *j, const char *key, const struct fdry_oid *oid);

/* --- init.c --- */

/* Who may use the store, as the words behind "for". */
struct cmd_owner {
	char text[128];
};
struct cmd_owner cmd_owner(const struct fdry_sharing *sh);
/* The same as the object "sharing". */
void cmd_sharing_json(struct json *j, const struct fdry_sharing *sh);

#endif
