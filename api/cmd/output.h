/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - what -o names: a file that appears when it is whole, a pipe or device, or standard
 * output.
 *
 * Until then the file has no name (O_TMPFILE), so that nothing is left of a command that is killed.
 * On file systems that cannot do that it has another name, which goes away if the command is
 * interrupted.
 */
#ifndef FDRY_CMD_OUTPUT_H
#define FDRY_CMD_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "lib/err.h"

struct cmd_output {
	int fd;
	FILE *f;             /* a stream of it, once asked for */
	const char *path;    /* as the user named it; NULL: standard output */
	bool whole;          /* it gets its name at the end */
	char name[PATH_MAX]; /* that name, links followed */
	char temp[PATH_MAX]; /* its name until then; empty: none */
};

/* @path: NULL or "-" for standard output. FDRY_E_PERM, FDRY_E_FULL, FDRY_E_INVAL, FDRY_E_IO. */
int cmd_output_open(const char *path, struct cmd_output *o) __must_check;
/* To print into; closed with the output. FDRY_E_NOMEM. */
int cmd_output_stream(struct cmd_output *o) __must_check;
/* @err: what came of it so far, which is returned; a file that is not whole goes away. */
int cmd_output_close(struct cmd_output *o, int err) __must_check;

#endif
