// SPDX-License-Identifier: Apache-2.0
/*
 * code_files.c - the files from which the program has loaded code by their paths.
 *
 * Programs that compile kernels keep them in files, and load these when they need them. An image
 * that carries the files spares another host the compilation.
 */
#include "hook/internal.h"

#include <limits.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *paths; /* of tsearch(): without links, each once */

static int path_cmp(const void *a, const void *b)
{
	return strcmp(a, b);
}

void fdry_code_file_add(const char *path)
{
	char *real = realpath(path, NULL), **node;

	if (!real)
		return;
	pthread_mutex_lock(&lock);
	node = tsearch(real, &paths, path_cmp);
	pthread_mutex_unlock(&lock);
	if (!node || *node != real)
		free(real);
}

/* The list that twalk() fills, which passes no argument; lock held. */
static struct {
	struct fdry_buf b;
	int err;
} list;

static void path_put(const void *node, VISIT order, int depth)
{
	const char *path = *(char *const *)node;

	(void)depth;
	if (!list.err && (order == postorder || order == leaf))
		list.err = fdry_buf_put(&list.b, path, strlen(path) + 1);
}

int fdry_hook_code_files(char **ret, size_t *len)
{
	int err;

	pthread_mutex_lock(&lock);
	memset(&list, 0, sizeof(list));
	twalk(paths, path_put);
	err = list.err;
	if (err) {
		fdry_buf_release(&list.b);
	} else {
		*ret = (char *)list.b.data;
		*len = list.b.len;
	}
	pthread_mutex_unlock(&lock);
	return err;
}
