// SPDX-License-Identifier: Apache-2.0
/*
 * shared_fingerprinter.c - see shared_fingerprinter.h.
 *
 * The list's lock is never held across a driver call: an entry is in the list before its kernel is
 * loaded. Its own lock guards that and all use of the fingerprinter. A second thread that needs the
 * kernel waits there, and tries again itself if the first one failed. The driver's number
 * identifies a context, since the handle of a destroyed context may be reused.
 */
#include "image/shared_fingerprinter.h"

#include <pthread.h>
#include <stdlib.h>

struct fdry_shared_fingerprinter {
	struct fdry_shared_fingerprinter *next;
	const struct fdry_driver *drv;
	unsigned long long ctx_id;
	unsigned int process;
	uint32_t users;               /* by the list's lock, as all above */
	pthread_mutex_t lock;         /* held from a start to its wait */
	struct fdry_fingerprinter *f; /* NULL: not made yet */
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdry_shared_fingerprinter *list;

/* --- fork: the child must find the lock free, and no fingerprinter of the parent's --- */

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static unsigned int process; /* changes with each fork in the child */

static void before_fork(void)
{
	pthread_mutex_lock(&list_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&list_lock);
}

static void after_fork_child(void)
{
	process++;
	pthread_mutex_unlock(&list_lock);
}

static void fork_prepare(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork_child);
}

static void lock_list(void)
{
	(void)pthread_once(&fork_once, fork_prepare);
	pthread_mutex_lock(&list_lock);
}

/* --- references --- */

/* With the lock: one more user of the context's entry, or a new entry; NULL: no memory. */
static struct fdry_shared_fingerprinter *entry_use(const struct fdry_driver *drv,
						   unsigned long long ctx_id)
{
	struct fdry_shared_fingerprinter *s;

	for (s = list; s; s = s->next) {
		if (s->drv == drv && s->ctx_id == ctx_id && s->process == process) {
			s->users++;
			return s;
		}
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	*s = (struct fdry_shared_fingerprinter){
		.next = list, .drv = drv, .ctx_id = ctx_id, .process = process, .users = 1
	};
	pthread_mutex_init(&s->lock, NULL);
	list = s;
	return s;
}

int fdry_shared_fingerprinter_get(const struct fdry_driver *drv, CUdevice device,
				  struct fdry_shared_fingerprinter **ret)
{
	struct fdry_shared_fingerprinter *s;
	unsigned long long ctx_id;
	CUcontext ctx;
	int err = fdry_call(drv, cuCtxGetCurrent, &ctx);

	if (err)
		return err;
	err = fdry_call(drv, cuCtxGetId, ctx, &ctx_id);
	if (err)
		return err;
	lock_list();
	s = entry_use(drv, ctx_id);
	pthread_mutex_unlock(&list_lock);
	if (!s)
		return fdry_nomem();
	pthread_mutex_lock(&s->lock);
	if (!s->f)
		err = fdry_fingerprinter_new(drv, device, &s->f);
	pthread_mutex_unlock(&s->lock);
	if (err)
		fdry_shared_fingerprinter_put(s);
	else
		*ret = s;
	return err;
}

void fdry_shared_fingerprinter_put(struct fdry_shared_fingerprinter *s)
{
	struct fdry_shared_fingerprinter **at;
	bool last;

	if (!s)
		return;
	lock_list();
	last = !--s->users;
	if (last) {
		for (at = &list; *at != s; at = &(*at)->next)
			;
		*at = s->next;
	}
	pthread_mutex_unlock(&list_lock);
	if (!last)
		return;
	fdry_fingerprinter_free(s->f);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* --- the work --- */

int fdry_shared_fingerprinter_run(struct fdry_shared_fingerprinter *s, CUstream stream,
				  const struct fdry_fingerprint_range *ranges, size_t n,
				  struct fdry_fingerprint *ret)
{
	int err;

	pthread_mutex_lock(&s->lock);
	err = fdry_fingerprinter_start(s->f, stream, ranges, n);
	if (!err)
		err = fdry_fingerprinter_wait(s->f, ret);
	pthread_mutex_unlock(&s->lock);
	return err;
}
