/* SPDX-License-Identifier: Apache-2.0 */
/* stored.h - the part that import and pull share: they print each image that they have stored. */
#ifndef FDRY_API_CMD_STORED_H
#define FDRY_API_CMD_STORED_H

#include "api/cmd/cmd.h"

struct cmd_stored {
	const struct cmd_args *a;
	struct json j;
	struct cmd_progress progress;
};
/* Begin the progress of a command named @what. With --json, begin the document and its array of
 * images, which the caller closes. */
void cmd_stored_begin(struct cmd_stored *s, const struct cmd_args *a, const char *what);
/* A fdry_imported_fn, with a struct cmd_stored. */
void cmd_stored_print(void *arg, const char *id, const char *ref, const char *was);

#endif
