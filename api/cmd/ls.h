/* SPDX-License-Identifier: Apache-2.0 */
/* ls.h - the rows of ls, their filters, and lines that a template describes. */
#ifndef FDRY_API_CMD_LS_H
#define FDRY_API_CMD_LS_H

#include "api/cmd/cmd.h"
#include "api/cmd/image.h"

/* A ref. */
struct row {
	char name[FDRY_REF_NAME_MAX + 1];
	struct fdry_oid oid;
	struct fdry_sum all, unique;
	uint64_t graphs, nodes;
	uint64_t change;
	struct fdry_image_times times;
	char arch[16];
	bool broken, pinned;
	size_t line; /* of --format: where its line begins */
};

/* Check the words of --filter; returns -1, or an exit status. */
int ls_filters_check(const struct cmd_args *a);
/* @m: NULL if the manifest cannot be read. */
bool ls_filters_match(const struct cmd_args *a, const struct row *r, const struct fdry_manifest *m);

/* Check the template of --format; returns -1, or an exit status. */
int ls_format_check(const struct cmd_args *a);
/* Append the line of a row, with a newline. Text from outside is made printable. FDRY_E_NOMEM. */
int ls_format_row(const char *format, const struct row *r, const struct fdry_manifest *m,
		  struct fdry_buf *ret) __must_check;

#endif
