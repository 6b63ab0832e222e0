/* SPDX-License-Identifier: Apache-2.0 */
/* registry.h - the parts that push and pull share. */
#ifndef FDRY_API_CMD_REGISTRY_H
#define FDRY_API_CMD_REGISTRY_H

#include "api/cmd/cmd.h"
#include "foundry.h"

/* A fdry_registry_progress_fn, with a struct cmd_progress. */
void cmd_registry_watch(void *progress, const struct fdry_registry_progress *p);
/* Print what was moved; @verb: "pushed". */
void cmd_registry_say(const struct cmd_args *a, const char *verb,
		      const struct fdry_registry_report *r);
/* The report's members, without brackets. */
void cmd_registry_json(struct json *j, const struct fdry_registry_report *r);

#endif
