// SPDX-License-Identifier: Apache-2.0
/*
 * shared_fingerprinter.c - a list of fingerprinters by context; see shared_fingerprinter.h.
 *
 * The list's lock is never held across a driver call. So an entry enters the list before its kernel
 * is loaded. The entry's own lock is held while the kernel is loaded. A second thread that needs
 * the kernel waits at that lock, and tries again itself if the first thread failed. A context is
 * identified by the driver's number, since the handle of a destroyed context may be reused.
 */
#include "image/shared_fingerprinter.h"

#include <pthread.h>
#include <stdlib.h>

#include "image/fingerprint_kernel.h"

#include "lib/fork_lock.h"

struct fdry_shared_fingerprinter {
	struct fdry_shared_fingerprinter *next;
	const struct fdry_driver *drv;
	unsigned long long ctx_id;
	unsigned int process;         /* of fork_lock.h: a child uses none of its parent's */
	uint32_t users;               /* the list's lock protects it and all fields above */
	pthread_mutex_t lock;         /* guards the fields below */
	struct fdry_fingerprinter *f; /* NULL: not made yet */
	bool taken;                   /* @f computes for someone */
	CUdevice device;
	struct fdry_buf compiled; /* its kernel's cubin, until a store keeps it */
};

static struct fdry_shared_fingerprinter *list;

/* --- references --- */

/* Add a user to the context's entry, or add an entry; NULL: out of memory. Needs the list's
 * lock. */
static struct fdry_shared_fingerprinter *entry_use(const struct fdry_driver *drv,
						   unsigned long long ctx_id)
{
	struct fdry_shared_fingerprinter *s;

	for (s = list; s; s = s->next) {
		if (s->drv == drv && s->ctx_id == ctx_id && s->process == fdry_fork_count()) {
			s->users++;
			return s;
		}
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	*s = (struct fdry_shared_fingerprinter){
		.next = list, .drv = drv, .ctx_id = ctx_id, .process = fdry_fork_count(), .users = 1
	};
	pthread_mutex_init(&s->lock, NULL);
	list = s;
	return s;
}

int fdry_shared_fingerprinter_get(const struct fdry_driver *drv, CUdevice device,
				  struct fdry_store *store,
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
	fdry_fork_lock(FDRY_LOCK_FINGERPRINTERS);
	s = entry_use(drv, ctx_id);
	fdry_fork_unlock(FDRY_LOCK_FINGERPRINTERS);
	if (!s)
		return fdry_nomem();
	pthread_mutex_lock(&s->lock);
	s->device = device;
	s->compiled.len = s->f ? s->compiled.len : 0;
	if (!s->f)
		err = fdry_fingerprint_kernel_load(drv, device, store, &s->compiled, &s->f);
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
	fdry_fork_lock(FDRY_LOCK_FINGERPRINTERS);
	last = !--s->users;
	if (last) {
		for (at = &list; *at != s; at = &(*at)->next)
			;
		*at = s->next;
	}
	fdry_fork_unlock(FDRY_LOCK_FINGERPRINTERS);
	if (!last)
		return;
	fdry_fingerprinter_free(s->f);
	fdry_buf_release(&s->compiled);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void fdry_shared_fingerprinter_keep(struct fdry_shared_fingerprinter *s, struct fdry_store *store)
{
	struct fdry_buf compiled;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	compiled = s->compiled;
	s->compiled = (struct fdry_buf){ 0 };
	pthread_mutex_unlock(&s->lock);
	if (compiled.len)
		fdry_fingerprint_kernel_keep(s->drv, s->device, store,
					     (struct fdry_span){ compiled.data, compiled.len });
	fdry_buf_release(&compiled);
}

/* --- the work --- */

int fdry_shared_fingerprinter_take(struct fdry_shared_fingerprinter *s,
				   struct fdry_fingerprinter **ret)
{
	bool was_taken;

	pthread_mutex_lock(&s->lock);
	was_taken = s->taken;
	s->taken = true;
	pthread_mutex_unlock(&s->lock);
	if (was_taken)
		return fdry_fingerprinter_share(s->f, ret);
	*ret = s->f;
	return 0;
}

void fdry_shared_fingerprinter_return(struct fdry_shared_fingerprinter *s,
				      struct fdry_fingerprinter *f)
{
	if (f != s->f) {
		fdry_fingerprinter_free(f);
		return;
	}
	fdry_fingerprinter_cancel(f);
	pthread_mutex_lock(&s->lock);
	s->taken = false;
	pthread_mutex_unlock(&s->lock);
}

int fdry_shared_fingerprinter_run(struct fdry_shared_fingerprinter *s, CUstream stream,
				  const struct fdry_fingerprint_range *ranges, size_t n,
				  struct fdry_fingerprint *ret)
{
	struct fdry_fingerprinter *f;
	int err = fdry_shared_fingerprinter_take(s, &f);

	if (err)
		return err;
	err = fdry_fingerprinter_start(f, stream, ranges, n) ?: fdry_fingerprinter_wait(f, ret);
	fdry_shared_fingerprinter_return(s, f);
	return err;
}
