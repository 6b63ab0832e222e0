/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - the output of option -o: a file, a pipe, a device or standard output.
 *
 * A file gets its name when it is complete. Until then it has none (O_TMPFILE), so a command that
 * is killed leaves nothing behind. On file systems without O_TMPFILE the file has a temporary name,
 * which is removed if the command is interrupted.
 */
#ifndef FDRY_CMD_OUTPUT_H
#define FDRY_CMD_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "lib/err.h"

struct cmd_output {
	int fd;
	FILE *f;             /* its stream, made when it is asked for */
	const char *path;    /* as the user named it; NULL: standard output */
	bool whole;          /* it gets its name when it is closed */
	char name[PATH_MAX]; /* that name, with links resolved */
	char temp[PATH_MAX]; /* its temporary name; empty: none */
};

/* @path: NULL or "-" for standard output. FDRY_E_PERM, FDRY_E_FULL, FDRY_E_INVAL, FDRY_E_IO. */
int cmd_output_open(const char *path, struct cmd_output *o) __must_check;
/* Returns a stream to print to, which is closed with the output. FDRY_E_NOMEM. */
int cmd_output_stream(struct cmd_output *o) __must_check;
/* @err: the command's result so far. If it is an error, it is returned and the file removed. */
int cmd_output_close(struct cmd_output *o, int err) __must_check;

#endif
