/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the environment variables that the library reads. Part of foundry.h and of
 * foundry/run.h. The rules of foundry.h for errors and threads apply.
 */
#ifndef FOUNDRY_CONFIG_H
#define FOUNDRY_CONFIG_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct fdry_variable - One environment variable.
 * @name: such as "FOUNDRY_STORE"
 * @type: FLAG, COUNT, SIZE (bytes; K, M, G or T may follow), CHOICE, FILE, LIST (paths, with :
 *         between them), CODE (a library; ignored in set-user-id programs), DIR (may not be empty),
 *         BASE (counts as unset if it is relative) or TEXT
 * @fallback: the value that is used if it is unset; "" if there is none
 * @allowed: its values: "0 or 1", "0 to 1G", "this, that or another", or the kind of file of a path
 * @meaning: one line
 *
 * All are static strings.
 */
struct fdry_variable {
	const char *name, *type, *fallback, *allowed, *meaning;
};

/**
 * fdry_variable_at() - One entry of the list of variables.
 * @i: from 0
 *
 * Errors: FDRY_E_RANGE past the last one, FDRY_E_INVAL.
 */
int fdry_variable_at(size_t i, struct fdry_variable *ret);

/**
 * fdry_variable_check() - Check the present value of a variable.
 * @name: of one variable; NULL: all of them
 *
 * The calls that use a variable check it as well; this call lets a program check it early.
 * Errors: FDRY_E_ENV (the message says what is allowed), FDRY_E_INVAL (no variable has that name).
 */
int fdry_variable_check(const char *name);

#ifdef __cplusplus
}
#endif

#endif
