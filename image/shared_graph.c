// SPDX-License-Identifier: Apache-2.0
/* shared_graph.c - a table of graph objects by id; see shared_graph.h. */
#include "image/shared_graph.h"

#include <stdlib.h>
#include <string.h>

#include "lib/fork_lock.h"

#define BUCKETS 1024u

/* A child of fork() unloads its copies of images, too. */
static struct fdry_shared_graph *graphs[BUCKETS];

/* Find the pointer to graph @oid, or to the end of its bucket. Needs the lock. */
static struct fdry_shared_graph **graph_at(const struct fdry_oid *oid)
{
	struct fdry_shared_graph **p = &graphs[fdry_get32(oid->b) % BUCKETS];

	while (*p && !fdry_oid_eq(&(*p)->oid, oid))
		p = &(*p)->next;
	return p;
}

struct fdry_shared_graph *fdry_shared_graph_get(const struct fdry_oid *oid)
{
	struct fdry_shared_graph *g;

	fdry_fork_lock(FDRY_LOCK_GRAPHS);
	g = *graph_at(oid);
	if (g)
		g->users++;
	fdry_fork_unlock(FDRY_LOCK_GRAPHS);
	return g;
}

static void graph_free(struct fdry_shared_graph *g)
{
	fdry_buf_release(&g->bytes);
	free(g);
}

static int graph_new(const struct fdry_oid *oid, struct fdry_buf *bytes,
		     struct fdry_shared_graph **ret)
{
	struct fdry_shared_graph *g = calloc(1, sizeof(*g));
	int err;

	if (!g) {
		fdry_buf_release(bytes);
		return fdry_nomem();
	}
	*g = (struct fdry_shared_graph){ .oid = *oid, .users = 1, .bytes = *bytes };
	memset(bytes, 0, sizeof(*bytes));
	err = fdry_graph_view_init((struct fdry_span){ g->bytes.data, g->bytes.len }, &g->view);
	if (err)
		graph_free(g);
	else
		*ret = g;
	return err;
}

int fdry_shared_graph_add(const struct fdry_oid *oid, struct fdry_buf *bytes,
			  struct fdry_shared_graph **ret)
{
	struct fdry_shared_graph *g = NULL, **at;
	int err = graph_new(oid, bytes, &g);

	if (err)
		return err;
	fdry_fork_lock(FDRY_LOCK_GRAPHS);
	at = graph_at(oid);
	*ret = *at ? *at : g;
	if (*at)
		(*at)->users++; /* another load has added it in the meantime */
	else
		*at = g;
	fdry_fork_unlock(FDRY_LOCK_GRAPHS);
	if (*ret != g)
		graph_free(g);
	return 0;
}

void fdry_shared_graph_put(struct fdry_shared_graph *g)
{
	bool last;

	if (!g)
		return;
	fdry_fork_lock(FDRY_LOCK_GRAPHS);
	last = !--g->users;
	if (last)
		*graph_at(&g->oid) = g->next;
	fdry_fork_unlock(FDRY_LOCK_GRAPHS);
	if (last)
		graph_free(g);
}
