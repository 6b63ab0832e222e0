/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - foundry-store: what its commands share.
 *
 * A command prints what was asked for on standard output and nothing else there; an error
 * is one sentence on standard error. Exit statuses are part of the interface.
 */
#ifndef FDRY_API_CMD_H
#define FDRY_API_CMD_H

#include <stdio.h>

#include "store/store.h"

enum cmd_exit {
	CMD_OK = 0,
	CMD_FAILED = 1,  /* the sentence says why */
	CMD_USAGE = 2,
	CMD_DAMAGED = 3, /* verify found something */
};

/* CMD_OPTION(letter or 0, NAME, long name, argument or NULL, help); the first ones are everybody's. */
#define CMD_OPTIONS(X) \
	X('s', STORE, "store", "DIR", "the store (else FOUNDRY_STORE, else the user's cache)") \
	X('j', JSON, "json", NULL, "print JSON") \
	X('h', HELP, "help", NULL, "print this") \
	X('V', VERSION, "version", NULL, "print the version") \
	X('o', OBJECTS, "objects", NULL, "ls: every object instead of refs") \
	X('n', DRY_RUN, "dry-run", NULL, "gc: say what would go, remove nothing")

enum cmd_option {
#define X(letter, NAME, name, arg, help) CMD_OPT_##NAME,
	CMD_OPTIONS(X)
#undef X
	CMD_OPT_COUNT
};

/* What the command line asks for. */
struct cmd_args {
	const char *store; /* NULL: the default */
	unsigned int given; /* bit n: option n of enum cmd_option */
	int argc;
	char **argv; /* what follows the command's name */
};

static inline bool cmd_has(const struct cmd_args *a, enum cmd_option option)
{
	return a->given & 1u << option;
}

/* A command: @s is NULL for those that do not want the store opened. Gives an exit status. */
typedef int (*cmd_fn)(const struct cmd_args *a, struct fdry_store *s);

int cmd_ls(const struct cmd_args *a, struct fdry_store *s);
int cmd_show(const struct cmd_args *a, struct fdry_store *s);
int cmd_graph(const struct cmd_args *a, struct fdry_store *s);
int cmd_verify(const struct cmd_args *a, struct fdry_store *s);
int cmd_tag(const struct cmd_args *a, struct fdry_store *s);
int cmd_rm(const struct cmd_args *a, struct fdry_store *s);
int cmd_gc(const struct cmd_args *a, struct fdry_store *s);

/* Say the last error's sentence; CMD_FAILED. */
int cmd_fail(void);

/* Objects counted. */
struct cmd_sum {
	uint64_t objects, bytes, stored;
};
/* What @oid reaches, itself included, by kind number; [0] is the total. Gives an error of ours. */
int cmd_reach(struct fdry_store *s, const struct fdry_oid *oid, struct cmd_sum sums[FDRY_OBJECT_MANIFEST + 1]);

/* "17 B", "1.5 KiB": for people. */
struct cmd_size {
	char text[24];
};
struct cmd_size cmd_size(uint64_t bytes);
/* "" for one, "s" for any other number. */
const char *cmd_plural(uint64_t n);

/* --- json.c --- */

/* What is open and whether something stands before. Zero it, and set @f. */
struct json {
	FILE *f;
	unsigned int depth;
	bool comma;
};
/* Inside an object every value has a key; elsewhere it is NULL. */
void json_open(struct json *j, const char *key, char bracket);
void json_close(struct json *j, char bracket);
void json_string(struct json *j, const char *key, const char *value);
void json_number(struct json *j, const char *key, uint64_t value);
void json_bool(struct json *j, const char *key, bool value);
void json_oid(struct json *j, const char *key, const struct fdry_oid *oid);

#endif
