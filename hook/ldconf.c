// SPDX-License-Identifier: Apache-2.0
/*
 * ldconf.c - lists the folders in ld.so.conf.
 *
 * A line has one folder. "#" begins a comment. "include PATTERN" reads other files, relative to the
 * file with that line. "hwcap" lines and old "folder=TYPE" suffixes are ignored. A file that cannot
 * be read has no folders.
 */
#include "lib/fd.h"
#include "hook/internal.h"

#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 8

struct walk {
	bool (*fn)(void *arg, const char *dir);
	void *arg;
	int depth;
};

static bool walk_file(struct walk *w, const char *file);

static bool walk_include(struct walk *w, const char *file, const char *pattern)
{
	const char *slash = strrchr(file, '/');
	int len = *pattern != '/' && slash ? (int)(slash - file) + 1 : 0;
	char full[PATH_MAX];
	bool found = false, entered;
	glob_t g;
	size_t i;
	int rc;

	if (snprintf(full, sizeof(full), "%.*s%s", len, file, pattern) >= (int)sizeof(full))
		return false;
	entered = fdry_fd_enter();
	rc = glob(full, 0, NULL, &g);
	fdry_fd_leave(entered);
	if (rc)
		return false;
	for (i = 0; i < g.gl_pathc && !found; i++)
		found = walk_file(w, g.gl_pathv[i]);
	globfree(&g);
	return found;
}

/* Remove the comment and surrounding space from @line. */
static char *trimmed(char *line)
{
	char *end;

	line[strcspn(line, "#\n")] = '\0';
	while (isspace((unsigned char)*line))
		line++;
	end = line + strlen(line);
	while (end > line && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return line;
}

static bool walk_line(struct walk *w, const char *file, char *line)
{
	line = trimmed(line);
	if (!strncmp(line, "include", 7) && isspace((unsigned char)line[7]))
		return walk_include(w, file, line + 8 + strspn(line + 8, " \t"));
	line[strcspn(line, "=")] = '\0';
	return *line == '/' && w->fn(w->arg, line);
}

static bool walk_file(struct walk *w, const char *file)
{
	FILE *f = w->depth < DEPTH_MAX ? fdry_fopen_read(file) : NULL;
	bool found = false;
	char *line = NULL;
	size_t cap = 0;

	if (!f)
		return false;
	w->depth++;
	while (!found && getline(&line, &cap, f) >= 0)
		found = walk_line(w, file, line);
	w->depth--;
	free(line);
	fclose(f);
	return found;
}

bool fdry_ldconf_each(const char *file, bool (*fn)(void *arg, const char *dir), void *arg)
{
	struct walk w = { fn, arg, 0 };

	return walk_file(&w, file);
}
