/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the environment variables that the library reads. Part of foundry.h, whose
 * rules for errors and threads hold here.
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
 * @type: FLAG, COUNT, SIZE (bytes; K, M, G or T may follow), CHOICE, FILE, CODE (of a library; ignored in
 *        set-user-id programs), DIR (may not be empty), BASE (counts as unset where it is relative) or TEXT
 * @fallback: what counts where it is unset; "" where nothing does
 * @allowed: its values: "0 or 1", "0 to 1G", "this, that or another", or what a path leads to
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
 * Errors: FDRY_E_RANGE behind the last, FDRY_E_INVAL.
 */
int fdry_variable_at(size_t i, struct fdry_variable *ret);

/**
 * fdry_variable_check() - Whether what is set now is allowed.
 * @name: of one variable; NULL: all of them
 *
 * The calls that use a variable check it too; this is for a program that wants to know at once.
 * Errors: FDRY_E_ENV (the sentence says what is allowed), FDRY_E_INVAL (no variable has that name).
 */
int fdry_variable_check(const char *name);

#ifdef __cplusplus
}
#endif

#endif
