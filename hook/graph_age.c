// SPDX-License-Identifier: Apache-2.0
/*
 * graph_age.c - notes the age of graphs: the last array with a used handle that had been made when
 * the graph began.
 *
 * A node with an array's handle means the array that had it when the node's parameters were set.
 * That is never before the node's graph began, unless the graph is a clone: then its nodes are as
 * old as those of its original. So a clone has the age of its original, and a graph that began
 * after an array was made means that array, if the array still exists.
 *
 * Age 0, that of a graph without a note, proves nothing. Only a clone may be older than the note of
 * an earlier graph with its handle says. So every other graph may keep that note, its destruction
 * need not be seen, and programs whose arrays all have handles of their own cause no notes.
 *
 * Locking: one lock around the notes, never held during a call of the driver.
 */
#include "hook/internal.h"
#include "lib/search.h"

#include <stdlib.h>
#include <string.h>

struct note {
	CUgraph graph;
	uint64_t age;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct note *notes; /* by address */
static size_t count;       /* also read without the lock: 0 if there are none */

bool fdry_graph_age_any(void)
{
	return __atomic_load_n(&count, __ATOMIC_RELAXED) != 0;
}

/* NULL: there is none. Lock held. */
static struct note *note_find(CUgraph graph)
{
	size_t at = fdry_lower_bound(i, count, notes[i].graph < graph);

	return at < count && notes[at].graph == graph ? &notes[at] : NULL;
}

/* Without memory there is no note, which proves nothing. Lock held. */
static void note_insert(CUgraph graph, uint64_t age)
{
	size_t at = fdry_lower_bound(i, count, notes[i].graph < graph);
	struct note *more = reallocarray(notes, count + 1, sizeof(*notes));

	if (!more)
		return;
	notes = more;
	memmove(&notes[at + 1], &notes[at], (count - at) * sizeof(*notes));
	notes[at] = (struct note){ graph, age };
	__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
}

/* Lock held. */
static void note_put(CUgraph graph, uint64_t age)
{
	struct note *n = note_find(graph);

	if (n)
		n->age = age;
	else if (age)
		note_insert(graph, age);
}

void fdry_graph_age_begin(CUgraph graph, uint64_t age)
{
	if (!age || fdry_start_is_forked())
		return;
	pthread_mutex_lock(&lock);
	note_put(graph, age);
	pthread_mutex_unlock(&lock);
}

void fdry_graph_age_copy(CUgraph to, CUgraph from)
{
	const struct note *n;

	pthread_mutex_lock(&lock);
	n = note_find(from);
	note_put(to, n ? n->age : 0);
	pthread_mutex_unlock(&lock);
}

void fdry_graph_age_forget(void)
{
	pthread_mutex_lock(&lock);
	__atomic_store_n(&count, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

uint64_t fdry_graph_age(CUgraph graph)
{
	const struct note *n;
	uint64_t ret;

	pthread_mutex_lock(&lock);
	n = note_find(graph);
	ret = n ? n->age : 0;
	pthread_mutex_unlock(&lock);
	return ret;
}
