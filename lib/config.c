// SPDX-License-Identifier: Apache-2.0
/*
 * config.c - see config.h.
 *
 * The list has the allowed values as text, which people read and this file parses. So a message
 * cannot differ from the check.
 */
#include "lib/config.h"

#include <stdlib.h>
#include <string.h>

/* The list says COUNT, but FDRY_CONFIG_COUNT is the number of variables. */
#define TYPE_FLAG   FDRY_CONFIG_FLAG
#define TYPE_COUNT  FDRY_CONFIG_NUMBER
#define TYPE_SIZE   FDRY_CONFIG_SIZE
#define TYPE_CHOICE FDRY_CONFIG_CHOICE
#define TYPE_FILE   FDRY_CONFIG_FILE
#define TYPE_LIST   FDRY_CONFIG_FILE
#define TYPE_CODE   FDRY_CONFIG_CODE
#define TYPE_DIR    FDRY_CONFIG_DIR
#define TYPE_BASE   FDRY_CONFIG_BASE
#define TYPE_TEXT   FDRY_CONFIG_TEXT

const struct fdry_config_var fdry_config_vars[FDRY_CONFIG_COUNT] = {
#define FDRY_CONFIG(id, name, type, fallback, allowed, meaning) \
	{ name, TYPE_##type, #type, fallback, allowed, meaning },
#include "lib/config.def"
#undef FDRY_CONFIG
};

bool fdry_parse_number(const char *s, bool units, uint64_t *ret)
{
	static const char letters[] = "KMGT";
	const char *letter;
	uint64_t n = 0;
	int shift = 0;

	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n))
			return false;
	letter = units && *s ? strchr(letters, *s) : NULL;
	if (letter) {
		shift = 10 * (int)(letter - letters + 1);
		s++;
	}
	if (*s || n > UINT64_MAX >> shift)
		return false;
	*ret = n << shift;
	return true;
}

/* "0 to 1T" holds @n? */
static bool in_range(const struct fdry_config_var *v, uint64_t n)
{
	const char *to = strstr(v->allowed, " to ");
	bool units = v->type == FDRY_CONFIG_SIZE;
	uint64_t least, most;
	char from[24];

	if (!to || (size_t)(to - v->allowed) >= sizeof(from))
		return false;
	memcpy(from, v->allowed, (size_t)(to - v->allowed));
	from[to - v->allowed] = '\0';
	return fdry_parse_number(from, units, &least) && fdry_parse_number(to + 4, units, &most) &&
	       least <= n && n <= most;
}

/* The index of @s among the words of "this, that or another". */
static bool find_word(const struct fdry_config_var *v, const char *s, uint64_t *ret)
{
	const char *w = v->allowed;
	uint64_t i;
	size_t len;

	for (i = 0; *w; i++) {
		len = strcspn(w, ", ");
		if (len == strlen(s) && !strncmp(w, s, len)) {
			*ret = i;
			return true;
		}
		w += len;
		w += strspn(w, ", ");
		if (!strncmp(w, "or ", 3))
			w += 3;
	}
	return false;
}

static bool parse(const struct fdry_config_var *v, const char *s, uint64_t *ret)
{
	uint64_t n;

	if (v->type == FDRY_CONFIG_CHOICE || v->type == FDRY_CONFIG_FLAG)
		return find_word(v, s, ret);
	if (!fdry_parse_number(s, v->type == FDRY_CONFIG_SIZE, &n) || !in_range(v, n))
		return false;
	*ret = n;
	return true;
}

static const char *value(const struct fdry_config_var *v)
{
	return v->type == FDRY_CONFIG_CODE ? secure_getenv(v->name) : getenv(v->name);
}

static int wrong(const struct fdry_config_var *v, const char *s)
{
	static const char *const what[] = {
		[FDRY_CONFIG_FLAG] = "",
		[FDRY_CONFIG_CHOICE] = "",
		[FDRY_CONFIG_NUMBER] = "a whole number from ",
		[FDRY_CONFIG_SIZE] = "a number of bytes (K, M, G or T may follow) from ",
	};

	return fdry_fail(FDRY_E_ENV, "%s is '%.80s'; set it to %s%s, or unset it", v->name, s,
			 what[v->type], v->allowed);
}

int fdry_config_number(enum fdry_config id, uint64_t *ret)
{
	const struct fdry_config_var *v = &fdry_config_vars[id];
	const char *s = value(v);

	if (!s || !*s)
		s = v->fallback;
	if (!*s || parse(v, s, ret))
		return 0;
	return wrong(v, s);
}

bool fdry_config_try(enum fdry_config id, uint64_t *ret)
{
	const struct fdry_config_var *v = &fdry_config_vars[id];
	const char *s = value(v);

	if (!s || !*s)
		s = v->fallback;
	return *s && parse(v, s, ret);
}

int fdry_config_path(enum fdry_config id, const char **ret)
{
	const struct fdry_config_var *v = &fdry_config_vars[id];
	const char *s = value(v);

	if (s && !*s && v->type == FDRY_CONFIG_DIR)
		return fdry_fail(FDRY_E_ENV, "%s is set but empty; set it to the %s, or unset it",
				 v->name, v->allowed);
	if (s && (v->type == FDRY_CONFIG_BASE ? *s != '/' : !*s))
		s = NULL;
	*ret = s;
	return 0;
}

int fdry_config_cache(enum fdry_config id, const char *name, struct fdry_buf *ret)
{
	const char *path = NULL, *cache = NULL, *home = NULL;
	int err = fdry_config_path(id, &path);

	if (err)
		return err;
	err = fdry_config_path(FDRY_CONFIG_CACHE_HOME, &cache);
	if (err)
		return err;
	err = fdry_config_path(FDRY_CONFIG_HOME, &home);
	if (err)
		return err;
	if (path)
		return fdry_buf_printf(ret, "%s", path);
	if (cache)
		return fdry_buf_printf(ret, "%s/foundry/%s", cache, name);
	if (home)
		return fdry_buf_printf(ret, "%s/.cache/foundry/%s", home, name);
	return fdry_fail(FDRY_E_NOHOME,
			 "no place for the %s is known; set %s, XDG_CACHE_HOME or HOME", name,
			 fdry_config_vars[id].name);
}

int fdry_config_check(enum fdry_config id)
{
	const char *path;
	uint64_t n;

	if (fdry_config_vars[id].type < FDRY_CONFIG_FILE)
		return fdry_config_number(id, &n);
	return fdry_config_path(id, &path);
}
