/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - the parts that the commands of foundry-store share.
 *
 * A command prints its result on standard output and nothing else there. An error is one sentence
 * on standard error. Questions and progress are on standard error too, if it is a terminal. Exit
 * statuses and JSON are part of the interface: see Documentation/man/foundry-store.1 and
 * Documentation/api/store-json.rst.
 *
 * commands.def lists the commands, options.def the options.
 */
#ifndef FDRY_API_CMD_H
#define FDRY_API_CMD_H

#include <stdarg.h>
#include <stdio.h>

#include "store/store.h"

/* X(number, NAME, meaning): frozen. */
#define CMD_EXITS(X) \
	X(0, OK, "success") \
	X(1, FOUND, \
	  "success: verify found damage, repair left some, diff or selftest found a difference") \
	X(2, USAGE, "an option, operand or variable is wrong") \
	X(3, ABSENT, "no store, ref, object or graph of that name, or several of them") \
	X(4, LOCKED, "another process was in the way or faster; try again") \
	X(5, FULL, "the disk or the store is full") \
	X(6, DENIED, "permissions, the medium or a policy do not allow it") \
	X(7, DAMAGED, "damage prevents it; see verify") \
	X(8, DECLINED, "the answer to the question was not yes") \
	X(9, FAILED, "any other error")

enum cmd_exit {
#define X(nr, NAME, meaning) CMD_##NAME = nr,
	CMD_EXITS(X)
#undef X
};

/* X(NAME, headline): groups of commands, as help lists them. */
#define CMD_GROUPS(X) \
	X(LOOK, "Look") \
	X(CHANGE, "Name and remove") \
	X(CARE, "Maintain") \
	X(MOVE, "Copy elsewhere") \
	X(ABOUT, "Other") \
	X(HIDDEN, NULL)

enum cmd_group {
#define X(NAME, headline) CMD_GROUP_##NAME,
	CMD_GROUPS(X)
#undef X
};

/* X(NAME, description): words for operands and arguments in the lists. */
#define CMD_OPERANDS(X) \
	X(IMAGE, "a ref, an id, or the beginning of an image's id (4 digits or more)") \
	X(OBJECT, "an IMAGE, or the id of any object or its beginning") \
	X(REF, "a name: letters, digits and - _ . @ + / =") \
	X(KEY, "the number of a graph, as show lists them") \
	X(DIR, "a directory") \
	X(FILE, "a file; - is standard input or output") \
	X(SOURCE, "the directory of another store, or a pack") \
	X(REGISTRY, "oci://HOST[:PORT]/REPOSITORY[:TAG], or with @sha256:DIGEST at the end") \
	X(REPOSITORIES, "repositories, with commas between them") \
	X(REPOSITORY, "oci://HOST[:PORT]/REPOSITORY") \
	X(TAG, "a tag's name with *, ? and [...] as in a shell") \
	X(PATTERNS, "patterns, with commas between them") \
	X(SIZE, "bytes, optionally followed by K, M, G or T (powers of 1024)") \
	X(N, "a number") \
	X(PATTERN, "a ref's name with *, ? and [...] as in a shell; * also matches slashes") \
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

#define CMD_FILTERS_MAX 16

/* The parsed command line. */
struct cmd_args {
	const struct cmd *cmd;
	const char *store;                /* NULL: the default */
	uint64_t given;                   /* bit n: option n of enum cmd_option */
	const char *value[CMD_OPT_COUNT]; /* each option's last argument, if it has one */
	const char *filters[CMD_FILTERS_MAX]; /* the arguments of each --filter */
	unsigned int nfilters;
	int argc;
	char **argv; /* the words after the command's name */
};

/* A command; returns an exit status. @s is NULL if the command opens no store. It is also NULL in a
 * dry run that finds no store, if the command would make it. */
typedef int (*cmd_fn)(const struct cmd_args *a, struct fdry_store *s);

struct cmd {
	const char *name;
	enum cmd_group group;
	const char *operands;
	int open; /* flags of fdry_store_open(); -1: the store is not opened */
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

/* X(ALIAS, COMMAND): other words for commands, which users of similar programs type. */
#define CMD_ALIASES(X) \
	X("list", "ls") \
	X("inspect", "show")

/* @name may be an alias. Returns NULL if there is no such command. */
const struct cmd *cmd_find(const char *name);
/* Print that there is no such command, with near ones; returns CMD_USAGE. */
int cmd_unknown(const char *name);

/* open.c */

/* Open the store of the command line with flags of fdry_store_open(). @ret is NULL in a dry run if
 * FDRY_STORE_CREATE would make the store. */
int cmd_store_open(const struct cmd_args *a, int flags, struct fdry_store **ret) __must_check;
/* Returns how many operands the command has; @max is INT_MAX if the last one may be repeated. */
void cmd_operand_range(const struct cmd *c, int *min, int *max);
/* Returns the kind of operand @n (from 0), CMD_OPERAND_NONE if there is none. */
enum cmd_operand cmd_operand_at(const struct cmd *c, int n);
/* Returns the kind that a word names: IMAGE for "IMAGE", "[IMAGE]" and "IMAGE..."; CMD_OPERAND_NONE
 * for any other word. */
enum cmd_operand cmd_operand_of(const char *word, size_t len);
/* Returns the options of the command, those of all commands included. */
uint64_t cmd_options_of(const struct cmd *c);

/* --- args.c: options and operands --- */

static inline bool cmd_has_(const struct cmd_args *a, enum cmd_option option)
{
	return a->given >> option & 1;
}
#define cmd_has(a, NAME) cmd_has_(a, CMD_OPT_##NAME)
/* The argument of an option, NULL if the option is not there. */
#define cmd_value(a, NAME) ((a)->value[CMD_OPT_##NAME])

/* Returns -1, or an exit status if the command line is wrong. Writes @a in either case. Without any
 * argument, help is asked for. */
int cmd_args_parse(int argc, char **argv, struct cmd_args *a);
/* Print what is wrong with the command line, in one sentence; returns CMD_USAGE. @c may be NULL. */
int cmd_usage(const struct cmd *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Parse a size ("10", "1.5G", "64MiB"), or a number. @what: what it is, for the message. These two
 * and all functions below that return an error return -FDRY_E_... */
int cmd_parse_size(const char *text, const char *what, uint64_t *ret) __must_check;
int cmd_parse_number(const char *text, const char *what, uint64_t *ret) __must_check;

/* --- help.c --- */

/* Print a command's help; NULL: the help of all. */
void cmd_help_print(const struct cmd *c);

/* --- name.c: resolves a typed name to an id --- */

/* Resolve an OBJECT, or an IMAGE if @images. The error lists the ids if several fit. */
int cmd_resolve(struct fdry_store *s, const char *name, bool images,
		struct fdry_oid *ret) __must_check;

/* --- suggest.c: words that a mistyped word may mean --- */

#define CMD_GUESSES 3
#define CMD_GUESS_PART 100 /* the distance of a word that contains the other */

/* Zeroed at first, then @typed set. */
struct cmd_guess {
	const char *typed;
	unsigned int count;
	struct {
		unsigned int distance;
		char word[FDRY_REF_NAME_MAX + 1];
	} found[CMD_GUESSES]; /* the nearest first */
	char text[CMD_GUESSES * (FDRY_REF_NAME_MAX + 8) + 24];
};
/* Keep the word if it is near. */
void cmd_guess_offer(struct cmd_guess *g, const char *word);
/* Returns " (did you mean A, B or C?)", with @before in front of each word; "" if none is near. */
const char *cmd_guess_text(struct cmd_guess *g, const char *before);
/* Returns @err. If it is FDRY_E_NOENT, add the refs that @name may mean to its message. */
int cmd_suggest_ref(struct fdry_store *s, const char *name, int err) __must_check;

/* --- say.c: prints for users --- */

/* Print a message on standard error. */
void cmd_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Returns the first of these messages; NULL: none was printed. */
const char *cmd_first_error(void);
/* Returns a name, fact or path from outside with everything escaped that is not printable
 * (lib/printable.h). The text lasts for the next eight calls. JSON has escapes of its own. */
const char *cmd_text(const char *s);
/* Print the message of the last error; returns the exit status for @err. */
int cmd_fail(int err);
/* Return an error for a failed write to @path, from errno. */
int cmd_write_failed(const char *path) __must_check;
/* Flush @f, which is written to @path; the same error if this, or an earlier write, failed. */
int cmd_write_check(FILE *f, const char *path) __must_check;
/* Print what was done on standard output; nothing with --quiet or --json. */
void cmd_say(const struct cmd_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Returns whether cmd_confirm() asks: not with --yes, with --dry-run, or without a terminal. */
bool cmd_asks(const struct cmd_args *a);
/*
 * Ask the question, which names what would be removed and its size. Returns true if the answer is
 * yes, or if cmd_asks() is false. On false the command does nothing and returns cmd_declined().
 */
bool cmd_confirm(const struct cmd_args *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int cmd_declined(void);

/* Refs that a question names, as "m/a (1f0c9a2b4d6e), m/b (damaged) and 5 more". Zeroed at first;
 * the caller releases it. */
struct cmd_names {
	struct fdry_buf text;
	uint64_t count;
	int err;
};
/* @id NULL: its record is damaged. */
void cmd_names_add(struct cmd_names *n, const char *name, const char *id);
/* Complete @text, unless this returns an error. */
int cmd_names_end(struct cmd_names *n) __must_check;
void cmd_names_release(struct cmd_names *n);

/* Escape sequences for standard output: "" without a terminal, if TERM is dumb, or NO_COLOR set. */
struct cmd_colours {
	const char *id, *name, *bad, *dim, *added, *removed, *reset;
};
const struct cmd_colours *cmd_colours(void);

/* Progress: a line on standard error, at most ten times a second. Nothing is printed if that is no
 * terminal, or with --quiet. */
struct cmd_progress {
	const char *what;
	uint64_t shown_ms; /* when it was printed last; 0: never */
	uint64_t begun_ms;
	bool on, bytes;    /* @bytes: count bytes, not things */
	char more[96];     /* printed behind the amounts */
};
void cmd_progress_begin(struct cmd_progress *p, const struct cmd_args *a, const char *what,
			bool bytes);
/* @total: 0 if it is not known. */
void cmd_progress_to(struct cmd_progress *p, uint64_t done, uint64_t total);
/* The same as a fdry_step_fn or fdry_bytes_fn. */
void cmd_progress_step(void *p, uint64_t done, uint64_t total);
/* Erase the line until it is printed again, so that other text can be printed. */
void cmd_progress_pause(struct cmd_progress *p);
/* Erase the line. */
void cmd_progress_end(struct cmd_progress *p);

/* --- util.c --- */

/* Split "A,B,C": *@names points at the words, and *@text holds them. The caller frees both, also
 * after an error. FDRY_E_NOMEM. */
int cmd_words_split(const char *list, char **text, const char ***names,
		    size_t *count) __must_check;

/* A sum over objects. */
struct cmd_sum {
	uint64_t objects, bytes, stored;
};
/* Sum the objects that @oid reaches, itself included, by kind; [0] is the total. */
int cmd_reach(struct fdry_store *s, const struct fdry_oid *oid,
	      struct cmd_sum sums[FDRY_OBJECT_MANIFEST + 1]);

/* A size as text: "17 B", "1.5 KiB". */
struct cmd_size {
	char text[24];
};
struct cmd_size cmd_size(uint64_t bytes);
/* Returns "" for 1, "s" for any other number. */
const char *cmd_plural(uint64_t n);

/* --- when.c --- */

/* A time as text. */
struct cmd_when {
	char text[24];
};
/* "3 h ago"; "-" for 0. */
struct cmd_when cmd_age(uint64_t seconds);
/* "2026-11-23T18:33:22Z"; "-" for 0. */
struct cmd_when cmd_date(uint64_t seconds);
/* A duration: "850 ms", "12 s", "3 min", "2 h". */
struct cmd_when cmd_duration(double ms);
/* Parse a time: a duration before now ("90s", "30m", "12h", "7d", "2w"), or a day ("2026-11-23"),
 * its beginning in UTC. */
int cmd_parse_when(const char *text, const char *what, uint64_t *ret) __must_check;

/* --- json.c --- */

/* A document: its open brackets, and whether a value precedes. Zeroed at first, then @f set. */
struct json {
	FILE *f;
	unsigned int depth;
	bool comma;
};
/* @key: NULL outside of an object. */
void json_open(struct json *j, const char *key, char bracket);
/* json_end() writes the last bracket of a document on standard output. */
void json_close(struct json *j, char bracket);
/*
 * Complete the document on standard output of a command that has ended with @status. If there is a
 * message of an error, it becomes the last key. If the command failed before it began a document,
 * the document has this key alone.
 */
void json_end(int status, const char *error);
void json_string(struct json *j, const char *key, const char *value);
void json_number(struct json *j, const char *key, uint64_t value);
void json_bool(struct json *j, const char *key, bool value);
void json_oid(struct json *j, const char *key, const struct fdry_oid *oid);

/* --- init.c --- */

/* The users of the store, as the words after "for". */
struct cmd_owner {
	char text[128];
};
struct cmd_owner cmd_owner(const struct fdry_sharing *sh);
/* Write the same as the object "sharing". */
void cmd_sharing_json(struct json *j, const struct fdry_sharing *sh);

#endif
