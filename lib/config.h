/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the environment variables of config.def, read and checked in one place.
 *
 * Nothing is kept: each call asks the environment anew, so a value counts when it is first
 * needed. No other file of the library calls getenv(); a test holds that.
 * All of these may be called from any thread, as long as none changes the environment.
 */
#ifndef FDRY_LIB_CONFIG_H
#define FDRY_LIB_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/buf.h"
#include "lib/err.h"

enum fdry_config {
#define FDRY_CONFIG(id, name, type, fallback, allowed, meaning) FDRY_CONFIG_##id,
#include "lib/config.def"
#undef FDRY_CONFIG
	FDRY_CONFIG_COUNT
};

enum fdry_config_type {
	FDRY_CONFIG_FLAG, FDRY_CONFIG_NUMBER, FDRY_CONFIG_SIZE, FDRY_CONFIG_CHOICE,
	FDRY_CONFIG_FILE, FDRY_CONFIG_CODE, FDRY_CONFIG_DIR, FDRY_CONFIG_BASE, FDRY_CONFIG_TEXT
};

/* One line of config.def. */
struct fdry_config_var {
	const char *name;
	enum fdry_config_type type;
	const char *type_name; /* "FLAG" */
	const char *fallback;  /* "" where there is none */
	const char *allowed;
	const char *meaning;
};

extern const struct fdry_config_var fdry_config_vars[FDRY_CONFIG_COUNT];

/**
 * fdry_config_number() - The value of a FLAG, COUNT, SIZE or CHOICE.
 * @ret: 0 or 1; the number; bytes; which of the allowed words, from 0
 *
 * Unset or empty: the default of the list; @ret is left alone where the list has none.
 * Errors: FDRY_E_ENV with a sentence that says what is allowed.
 */
int fdry_config_number(enum fdry_config id, uint64_t *ret) __must_check;
/* The same where nobody can be told: false, and @ret untouched, where the value is not allowed or there is none. */
bool fdry_config_try(enum fdry_config id, uint64_t *ret);

/**
 * fdry_config_path() - The value of a FILE, CODE, DIR, BASE or TEXT.
 * @ret: points into the environment; NULL where it counts as unset (the default is the caller's to apply)
 *
 * Errors: FDRY_E_ENV where it may not be empty and is.
 */
int fdry_config_path(enum fdry_config id, const char **ret) __must_check;

/**
 * fdry_config_cache() - Where something that is kept for later runs lies.
 * @own: a DIR that names the very place, such as FDRY_CONFIG_STORE
 * @name: the place in the cache folder where @own is unset, such as "store"
 * @ret: the path is appended, with a terminator that is not counted
 *
 * @own, else $XDG_CACHE_HOME/foundry/@name, else $HOME/.cache/foundry/@name; never a temporary directory.
 * Errors: FDRY_E_ENV (@own is empty), FDRY_E_NOHOME (none is set; the sentence says what to set), FDRY_E_NOMEM.
 */
int fdry_config_cache(enum fdry_config own, const char *name, struct fdry_buf *ret) __must_check;

/* Whether the value of one variable is allowed: 0 or -FDRY_E_ENV. */
int fdry_config_check(enum fdry_config id);

/* Reads "12", "16K", "1G": a whole number, where @units K, M, G or T may follow. False for anything else. */
bool fdry_parse_number(const char *s, bool units, uint64_t *ret);

#endif
