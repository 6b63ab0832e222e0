/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - errors, the version, debug messages. Part of foundry.h and of foundry/run.h.
 */
#ifndef FOUNDRY_ERROR_H
#define FOUNDRY_ERROR_H

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FDRY_VERSION_MAJOR 0
#define FDRY_VERSION_MINOR 2
#define FDRY_VERSION_PATCH 0

/* The last failure of this thread in one sentence; "" if there was none. Never NULL; valid until
 * the thread's next failure. */
const char *fdry_last_error(void);
/* "FDRY_E_NOENT" for a code of either sign; a static string. */
const char *fdry_error_name(int code);
/* The general meaning of the code; a static string. */
const char *fdry_error_meaning(int code);
/* The errno value of the code's class. */
int fdry_error_errno(int code);
/* "0.2.0"; a static string. */
const char *fdry_version(void);
/* Pass log messages of @level and more severe ones to @fn, whatever FOUNDRY_LOG is set to. With
 * NULL, messages go to standard error again, as FOUNDRY_LOG selects them. Call it before other
 * threads use the library. */
void fdry_log_set(fdry_log_fn fn, void *arg, int level);

#ifdef __cplusplus
}
#endif

#endif
