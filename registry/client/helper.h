/* SPDX-License-Identifier: Apache-2.0 */
/* helper.h - credential helpers: programs docker-credential-NAME that keep passwords. */
#ifndef FDRY_REGISTRY_HELPER_H
#define FDRY_REGISTRY_HELPER_H

#include <stdbool.h>

#include "lib/buf.h"

struct fdry_http;

/* Ask docker-credential-@name, found in PATH, for the host of the session; append its answer. If
 * the helper has no credentials, nothing is appended. @there: PATH has it. FDRY_E_ENV if it cannot
 * be run, fails, takes longer than half a minute, or closes its standard output and does not end;
 * FDRY_E_CALLBACK. */
int fdry_creds_helper(struct fdry_http *h, const char *name, struct fdry_buf *ret,
		      bool *there) __must_check;

#endif
