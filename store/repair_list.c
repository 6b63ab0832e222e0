// SPDX-License-Identifier: Apache-2.0
/* repair_list.c - the sources of a repair, in the order in which they are asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/config.h"
#include "lib/file.h"
#include "lib/log.h"
#include "store/internal.h"
#include "store/repair.h"

#define PACKS_DIR "packs" /* beside data.mdb */

static int entry_cmp(const void *a, const void *b)
{
	const struct fdry_source_entry *x = a, *y = b;

	return strcmp(x->path, y->path);
}

/* @path: from malloc(); the list owns it, also after a failure. */
static int path_add(struct fdry_buf *list, char *path, bool named)
{
	struct fdry_source_entry e = { .path = path, .named = named };
	int err = path ? fdry_buf_put(list, &e, sizeof(e)) : fdry_nomem();

	if (err)
		free(path);
	return err;
}

static int name_add(struct fdry_buf *list, const char *dir, const char *name)
{
	char *path;

	return path_add(list, asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path, false);
}

/* Append the files in the directory "packs" of the store, by name. */
static int packs_add(const struct fdry_store *s, struct fdry_buf *list)
{
	size_t first = fdry_array_count(*list, struct fdry_source_entry), n;
	struct fdry_names names;
	const char *name;
	char *dir;
	int err = 0;

	if (fdry_names_open(s->env->dir.fd, PACKS_DIR, 0, &names))
		return 0;
	if (asprintf(&dir, "%s/" PACKS_DIR, s->path) < 0)
		dir = NULL;
	while (dir && !err && (name = fdry_names_next(&names)))
		err = name_add(list, dir, name);
	if (fdry_names_close(&names))
		fdry_warn("some packs in %s/" PACKS_DIR " could not be listed", s->path);
	if (!dir)
		return fdry_nomem();
	free(dir);
	n = fdry_array_count(*list, struct fdry_source_entry);
	if (n > first)
		qsort(fdry_array(*list, struct fdry_source_entry) + first, n - first,
		      sizeof(struct fdry_source_entry), entry_cmp);
	return err;
}

/* Append the paths of FOUNDRY_REPAIR, in their order. */
static int configured_add(struct fdry_buf *list)
{
	const char *paths = NULL;
	size_t n;
	int err = fdry_config_path(FDRY_CONFIG_REPAIR, &paths);

	for (; !err && paths && *paths; paths += n + (paths[n] == ':')) {
		n = strcspn(paths, ":");
		if (n)
			err = path_add(list, strndup(paths, n), false);
	}
	return err;
}

int fdry_source_list_init(struct fdry_buf *list, const struct fdry_store *s,
			  const char *const *named, size_t count, struct fdry_source *last)
{
	struct fdry_source_entry e = { .src = last };
	size_t i;
	int err = 0;

	for (i = 0; i < count && !err; i++)
		err = path_add(list, strdup(named[i]), true);
	err = err ?: packs_add(s, list) ?: configured_add(list);
	if (err || !last)
		return err;
	return fdry_buf_put(list, &e, sizeof(e));
}

int fdry_source_list_open(struct fdry_source_entry *e)
{
	int err;

	if (e->src || e->out)
		return 0;
	err = fdry_source_open(e->path, &e->src);
	if (!err || e->named || err == -FDRY_E_NOMEM)
		return err;
	fdry_source_list_drop(e, fdry_last_error());
	return 0;
}

void fdry_source_list_drop(struct fdry_source_entry *e, const char *why)
{
	fdry_warn("the source %s is left out: %s", e->path, why);
	e->out = true;
}

void fdry_source_list_release(struct fdry_buf *list)
{
	struct fdry_source_entry *e = fdry_array(*list, struct fdry_source_entry);
	size_t i, n = fdry_array_count(*list, struct fdry_source_entry);

	for (i = 0; i < n; i++) {
		if (e[i].path) /* otherwise the source is the caller's */
			fdry_source_close(e[i].src);
		free(e[i].path);
	}
	fdry_buf_release(list);
}
