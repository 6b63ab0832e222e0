/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the environment variables of config.def, read and checked in one place.
 *
 * Each call reads the environment anew, so a value takes effect when it is first needed. No other
 * file of the library calls getenv(); a test checks that. Any thread may call these functions, as
 * long as no thread changes the environment.
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
	const char *fallback;  /* "" if there is none */
	const char *allowed;
	const char *meaning;
};

extern const struct fdry_config_var fdry_config_vars[FDRY_CONFIG_COUNT];

/**
 * fdry_config_number() - The value of a FLAG, COUNT, SIZE or CHOICE.
 * @ret: 0 or 1; the number; bytes; which of the allowed words, from 0
 *
 * Unset or empty: the default of the list. If the list has no default, @ret is unchanged.
 * Errors: FDRY_E_ENV with a message that says what is allowed.
 */
int fdry_config_number(enum fdry_config id, uint64_t *ret) __must_check;
/* The same without an error. False, with @ret unchanged, if the value is not allowed or there is
 * none. */
bool fdry_config_try(enum fdry_config id, uint64_t *ret);

/**
 * fdry_config_path() - The value of a FILE, CODE, DIR, BASE or TEXT.
 * @ret: points into the environment; NULL if unset (the caller applies the default)
 *
 * Errors: FDRY_E_ENV if it is empty and must not be.
 */
int fdry_config_path(enum fdry_config id, const char **ret) __must_check;

/**
 * fdry_config_cache() - The path of data that is kept for later runs.
 * @id: a DIR that names the path itself, such as FDRY_CONFIG_STORE
 * @name: its name in the cache folder if that is unset, such as "store"
 * @ret: the path is appended, with a terminator that is not counted
 *
 * The value of @id, else $XDG_CACHE_HOME/foundry/@name, else $HOME/.cache/foundry/@name; never a
 * temporary directory. Errors: FDRY_E_ENV (@id is empty), FDRY_E_NOHOME (none is set; the message
 * says what to set), FDRY_E_NOMEM.
 */
int fdry_config_cache(enum fdry_config id, const char *name, struct fdry_buf *ret) __must_check;

/* Check the value of one variable: 0 or -FDRY_E_ENV. */
int fdry_config_check(enum fdry_config id);

/* Reads "12", "16K", "1G": a whole number. K, M, G or T may follow if @units. False for any other
 * text. */
bool fdry_parse_number(const char *s, bool units, uint64_t *ret);

#endif
