// SPDX-License-Identifier: Apache-2.0
/*
 * builder.c - builds graphs in the background; see builder.h.
 *
 * The driver builds under one lock, so two threads that build take longer than one. So only one
 * builder of the process works at a time, in the order in which they started, and the graphs of the
 * first image can be launched first. A builder works ahead of its turn if another thread waits for
 * it.
 *
 * If the process exits, the driver must not end while a builder calls it. So builders are on a
 * list, and an exit handler stops them. It runs before the driver's own handler because it was
 * registered later.
 */
#include "image/builder.h"

#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include "image/exec.h"
#include "lib/fork_lock.h"
#include "lib/log.h"
#include "lib/threads.h"

struct fdry_builder {
	struct fdry_builder *next; /* on the list */
	struct fdry_image *img;
	uint32_t count; /* of graphs, in the caller's order */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
	bool joining, joined; /* by the exit handler; the list's lock guards them */
	struct fdry_builder *later; /* the next in the queue; the queue's lock guards it and the
				       fields below */
	unsigned int process;       /* fdry_fork_count() when it started */
	bool ahead;                 /* it does not wait for its turn */
	sem_t turn;                 /* posted when its turn may have come */
};

/* The builders that are not done, in the order in which they started. */
static struct fdry_builder *queue;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t list_joined = PTHREAD_COND_INITIALIZER;
static struct fdry_builder *list;
static pid_t list_pid; /* the process that the threads belong to */

/*
 * The driver builds graphs under a lock that launches need too. It may lock it again before a
 * waiting launch gets it. A pause after each graph lets launches in. On driver 580, 24 graphs of
 * 1,850 nodes were built beside a loop of launches. The slowest launch call took 5.7 ms without the
 * pause and 1.4 to 1.8 ms with it, and building ended sooner, too. The builder pauses only if
 * graphs were launched in the meantime.
 */
#define PAUSE_US 300

static void pause_for_launches(struct fdry_image *img, uint64_t *launches)
{
	uint64_t now = atomic_load_explicit(&img->launches, memory_order_relaxed);

	if (now != *launches)
		usleep(PAUSE_US);
	*launches = now;
}

/* --- turns --- */

static void queue_add(struct fdry_builder *b)
{
	struct fdry_builder **at = &queue;

	fdry_fork_lock(FDRY_LOCK_BUILDERS);
	b->process = fdry_fork_count();
	if (queue && queue->process != b->process)
		queue = NULL; /* builders of the parent, whose threads do not run in this child */
	while (*at)
		at = &(*at)->later;
	*at = b;
	fdry_fork_unlock(FDRY_LOCK_BUILDERS);
}

static void queue_leave(struct fdry_builder *b)
{
	struct fdry_builder **at = &queue;

	fdry_fork_lock(FDRY_LOCK_BUILDERS);
	while (*at != b)
		at = &(*at)->later;
	*at = b->later;
	if (queue)
		(void)sem_post(&queue->turn);
	fdry_fork_unlock(FDRY_LOCK_BUILDERS);
}

static bool turn_has_come(struct fdry_builder *b)
{
	bool come;

	fdry_fork_lock(FDRY_LOCK_BUILDERS);
	come = queue == b || b->ahead;
	fdry_fork_unlock(FDRY_LOCK_BUILDERS);
	return come;
}

static void turn_wait(struct fdry_builder *b)
{
	while (!turn_has_come(b))
		(void)sem_wait(&b->turn);
}

/* Let @b work ahead of its turn, since a thread waits for it, and the builder whose turn it is may
 * wait for that thread. */
static void turn_skip(struct fdry_builder *b)
{
	fdry_fork_lock(FDRY_LOCK_BUILDERS);
	b->ahead = true;
	(void)sem_post(&b->turn);
	fdry_fork_unlock(FDRY_LOCK_BUILDERS);
}

/* --- one builder --- */

/* Build one graph. Returns whether to build the next. */
static bool graph_build(struct fdry_image *img, uint32_t i)
{
	bool built = false;
	int err;

	if (!fdry_ticket_take_idle(&img->ticket))
		return false;
	err = fdry_exec_build(img, i, &built);
	fdry_ticket_return(&img->ticket);
	if (err)
		fdry_info("a graph was not built in the background: %s", fdry_last_error());
	if (built)
		fdry_image_progress_built(img);
	/* The rest of the memory is left to launches, which try again to build their graphs. */
	return err != -FDRY_E_NODEVMEM;
}

static void graphs_build(const struct fdry_builder *b)
{
	struct fdry_image *img = b->img;
	CUstreamCaptureMode mode;
	uint64_t launches = 0;
	uint32_t i;

	if (fdry_image_enter(img, &mode)) {
		fdry_info("nothing is built in the background: %s", fdry_last_error());
		return;
	}
	for (i = 0; i < b->count && graph_build(img, img->order[i]); i++)
		pause_for_launches(img, &launches);
	fdry_image_leave(img, &mode);
}

static void *builder_run(void *arg)
{
	struct fdry_builder *b = arg;

	turn_wait(b);
	graphs_build(b);
	queue_leave(b);
	pthread_mutex_lock(&b->lock);
	b->done = true;
	pthread_cond_broadcast(&b->ended);
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

static void end_wait(struct fdry_builder *b)
{
	pthread_mutex_lock(&b->lock);
	while (!b->done)
		pthread_cond_wait(&b->ended, &b->lock);
	pthread_mutex_unlock(&b->lock);
}

/* --- the list --- */

/* Stop all builders. Returns one that nobody joins yet, or NULL. */
static struct fdry_builder *list_stop(void)
{
	struct fdry_builder *b, *found = NULL;

	for (b = list; b; b = b->next) {
		fdry_ticket_stop(&b->img->ticket);
		turn_skip(b);
		/* It is this thread if a progress function calls exit(). */
		if (!b->joining && !pthread_equal(b->thread, pthread_self()))
			found = b;
	}
	return found;
}

/* A progress function may load and unload other images until it returns. So the list can change
 * while this waits for a thread. */
static void at_exit(void)
{
	struct fdry_builder *b;

	if (list_pid != getpid())
		return;
	pthread_mutex_lock(&list_lock);
	while ((b = list_stop())) {
		b->joining = true;
		pthread_mutex_unlock(&list_lock);
		(void)pthread_join(b->thread, NULL);
		pthread_mutex_lock(&list_lock);
		b->joined = true;
		pthread_cond_broadcast(&list_joined);
	}
	pthread_mutex_unlock(&list_lock);
}

/* list_pid keeps a child of fork() from stopping the parent's builders: their threads do not run
 * there. */
static void list_add(struct fdry_builder *b)
{
	static bool registered;

	pthread_mutex_lock(&list_lock);
	list_pid = getpid();
	if (!registered && !atexit(at_exit))
		registered = true;
	b->next = list;
	list = b;
	pthread_mutex_unlock(&list_lock);
}

/* Remove @b, and wait for its thread if the exit handler does. Returns whether it is joined. */
static bool list_remove(struct fdry_builder *b)
{
	struct fdry_builder **at;
	bool joined;

	pthread_mutex_lock(&list_lock);
	while (b->joining && !b->joined)
		pthread_cond_wait(&list_joined, &list_lock);
	joined = b->joined;
	for (at = &list; *at != b; at = &(*at)->next)
		;
	*at = b->next;
	pthread_mutex_unlock(&list_lock);
	return joined;
}

/* --- */

static void builder_release(struct fdry_builder *b)
{
	sem_destroy(&b->turn);
	pthread_cond_destroy(&b->ended);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

void fdry_builder_start(struct fdry_image *img, uint32_t count)
{
	struct fdry_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return;
	b->img = img;
	b->count = count;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->ended, NULL);
	sem_init(&b->turn, 0, 0);
	queue_add(b);
	if (!fdry_thread_start(&b->thread, "fdry-builder", builder_run, b)) {
		fdry_info("no thread could be started, so graphs are built at their first launch");
		queue_leave(b);
		builder_release(b);
		return;
	}
	list_add(b);
	img->builder = b;
}

void fdry_builder_stop(struct fdry_image *img)
{
	if (!img->builder)
		return;
	fdry_ticket_stop(&img->ticket);
	turn_skip(img->builder);
	end_wait(img->builder);
}

void fdry_builder_wait(struct fdry_image *img)
{
	if (!img->builder)
		return;
	turn_skip(img->builder);
	end_wait(img->builder);
}

void fdry_builder_free(struct fdry_image *img)
{
	struct fdry_builder *b = img->builder;

	if (!b)
		return;
	fdry_builder_stop(img);
	if (!list_remove(b))
		(void)pthread_join(b->thread, NULL);
	builder_release(b);
	img->builder = NULL;
}
