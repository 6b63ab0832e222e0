// SPDX-License-Identifier: Apache-2.0
/*
 * builder.c - see builder.h.
 *
 * The driver builds under one lock, and two threads that build take longer than one. So of all
 * images' builders one works at a time, in the order in which they started: the graphs of the first
 * image are launchable first. A builder that another thread waits for goes ahead of its turn.
 *
 * A process that exits while a builder is in the driver would take the driver from under
 * it: builders are on a list, and an exit handler, which runs before the driver's own
 * since it was registered later, stops them.
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
	bool joined; /* at the end of the process */
	struct fdry_builder *later; /* in the queue; by its lock, as what follows */
	unsigned int process;       /* of fork_lock.h */
	bool ahead;                 /* it need not wait for its turn */
	sem_t turn;                 /* posted when it may have come */
};

/* Those that are not done, in the order in which they started. */
static struct fdry_builder *queue;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_builder *list;
static pid_t list_pid; /* of the process whose threads they are */

/*
 * The driver builds under a lock that launches need too, and which it may take again before
 * a launch that waits gets it: seen on driver 580, 24 graphs of 1,850 nodes built beside a
 * loop of launches made the worst launch call take 5.7 ms; with a pause after each graph
 * 1.4 to 1.8 ms, and the whole took less time. If nobody launches there is no pause.
 */
#define PAUSE_US 300

static void pause_for_launches(struct fdry_image *img, uint64_t *launches)
{
	uint64_t now = atomic_load_explicit(&img->launches, memory_order_relaxed);

	if (now != *launches)
		usleep(PAUSE_US);
	*launches = now;
}

/* --- whose turn it is --- */

static void queue_add(struct fdry_builder *b)
{
	struct fdry_builder **at = &queue;

	fdry_fork_lock(FDRY_LOCK_BUILDERS);
	b->process = fdry_fork_count();
	if (queue && queue->process != b->process)
		queue = NULL; /* of the parent: none of its threads is here */
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

/* Another thread waits for the builder, and perhaps one whose turn it is waits for that thread. */
static void turn_skip(struct fdry_builder *b)
{
	fdry_fork_lock(FDRY_LOCK_BUILDERS);
	b->ahead = true;
	(void)sem_post(&b->turn);
	fdry_fork_unlock(FDRY_LOCK_BUILDERS);
}

/* --- one builder --- */

/* True: go on with the next. */
static bool graph_build(struct fdry_image *img, uint32_t i)
{
	bool built = false;
	int err;

	if (!fdry_ticket_take_idle(&img->ticket))
		return false;
	err = fdry_exec_build(img, i, &built);
	fdry_ticket_return(&img->ticket);
	if (err)
		fdry_info("in the background: %s", fdry_last_error());
	if (built)
		fdry_image_progress_built(img);
	/* The memory that is left is for launches: each tries again to build its graph. */
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

static void at_exit(void)
{
	struct fdry_builder *b;

	if (list_pid != getpid())
		return;
	pthread_mutex_lock(&list_lock);
	for (b = list; b; b = b->next) {
		fdry_ticket_stop(&b->img->ticket);
		turn_skip(b);
		if (!pthread_equal(
			    b->thread,
			    pthread_self())) /* a caller's progress function may end the process */
			b->joined = !pthread_join(b->thread, NULL);
	}
	pthread_mutex_unlock(&list_lock);
}

/* A child of a fork starts anew: of what is on the list nothing runs there, and the lock may be
 * held for ever. */
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

static void list_remove(struct fdry_builder *b)
{
	struct fdry_builder **at;

	pthread_mutex_lock(&list_lock);
	for (at = &list; *at != b; at = &(*at)->next)
		;
	*at = b->next;
	pthread_mutex_unlock(&list_lock);
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
		fdry_info("no thread is to be had: graphs are built at their first launch");
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
	list_remove(b);
	if (!b->joined)
		(void)pthread_join(b->thread, NULL);
	builder_release(b);
	img->builder = NULL;
}
