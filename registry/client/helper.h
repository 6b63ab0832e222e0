/* SPDX-License-Identifier: Apache-2.0 */
/* helper.h - credential helpers: programs docker-credential-NAME that keep passwords. */
#ifndef FDRY_REGISTRY_HELPER_H
#define FDRY_REGISTRY_HELPER_H

#include <stdbool.h>

#include "lib/buf.h"

/* Ask docker-credential-@name, found in PATH, for @host; append its answer. If the helper has no
 * credentials, nothing is appended. @there: PATH has it. FDRY_E_ENV if it cannot be run, fails,
 * takes longer than half a minute, or closes its standard output and does not end. */
int fdry_creds_helper(const char *name, const char *host, struct fdry_buf *ret,
		      bool *there) __must_check;

#endif
