// SPDX-License-Identifier: Apache-2.0
/*
 * claim.c - claims, by which one process at a time does work that several processes would do; see
 * fdry_claim_begin().
 *
 * A claim is flock() on a file .claim-HASH beside LMDB's files. The file is removed when the claim
 * ends; the kernel releases the lock when its holder dies. A process that locks a file which was
 * removed meanwhile tries again. A file that is left over contains no data, and a collection
 * removes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "store/internal.h"

#define NAP_MS 20

struct fdry_claim {
	int dir; /* the store's directory; a descriptor that this claim closes */
	int fd;
	unsigned int forks; /* when it began: in a child there are more */
	char name[32];
};

static int claim_fail(const char *doing)
{
	int e = errno;

	return fdry_fail(fdry_write_code(e),
			 "cannot %s a file (" FDRY_CLAIM_FILE
			 "...) in the store's directory to claim something: %s",
			 doing, fdry_file_text(e));
}

/* @acquired: whether the claim is ours; if not, the file is closed. */
static int claim_try(struct fdry_claim *t, const struct fdry_dir *d, bool *acquired)
{
	int err = 0, rc;

	*acquired = false;
	t->fd = fdry_lockfd_open(d, t->name);
	if (t->fd < 0)
		return errno == ENOMEM ? fdry_nomem() : claim_fail("make");
	rc = fdry_flock(t->fd, LOCK_EX | LOCK_NB);
	if (rc && errno != EWOULDBLOCK)
		err = claim_fail("lock");
	*acquired = !rc && fdry_file_is_named(t->dir, t->name, t->fd);
	if (!*acquired)
		fdry_lockfd_close(t->fd);
	return err;
}

int fdry_wait_nap(const struct fdry_wait *w)
{
	fdry_sleep_ms(NAP_MS);
	if (w->stop && w->stop(w->arg))
		return fdry_fail(FDRY_E_CALLBACK,
				 "the program has ended the wait for another process");
	return 0;
}

static int claim_wait(struct fdry_claim *t, const struct fdry_dir *d, const struct fdry_wait *wait,
		      bool *waited)
{
	uint32_t ms = wait ? wait->ms : 0;
	double begin = fdry_now_ms();
	bool acquired = false;
	int err;

	for (*waited = false;; *waited = true) {
		err = claim_try(t, d, &acquired);
		if (err || acquired)
			return err;
		if (fdry_now_ms() - begin >= ms)
			return fdry_fail(FDRY_E_LOCKED,
					 "another process has not ended its claim within %u ms; "
					 "wait longer, or end it",
					 ms);
		err = fdry_wait_nap(wait);
		if (err)
			return err;
	}
}

static int claim_name(struct fdry_claim *t, const void *key, size_t len)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid oid;
	int err = fdry_oid_of(key, len, &oid);

	if (err)
		return err;
	snprintf(t->name, sizeof(t->name), FDRY_CLAIM_FILE "%.16s", fdry_oid_hex(&oid, hex));
	return 0;
}

int fdry_claim_begin(struct fdry_store *s, const void *key, size_t len,
		     const struct fdry_wait *wait, bool *waited, struct fdry_claim **ret)
{
	struct fdry_claim *t;
	int err = fdry_store_check_write(s);

	if (err)
		return err;
	t = calloc(1, sizeof(*t));
	if (!t)
		return fdry_nomem();
	t->forks = fdry_lockfd_forks();
	err = claim_name(t, key, len);
	if (err)
		goto out_free;
	t->dir = fdry_openat(s->env->dir.fd, ".", O_RDONLY | O_DIRECTORY, 0);
	if (t->dir < 0) {
		err = claim_fail("open the directory of");
		goto out_free;
	}
	err = claim_wait(t, &s->env->dir, wait, waited);
	if (err)
		goto out_close;
	*ret = t;
	return 0;
out_close:
	close(t->dir);
out_free:
	free(t);
	return err;
}

void fdry_claim_end(struct fdry_claim *t)
{
	if (!t)
		return;
	if (t->forks == fdry_lockfd_forks()) {
		(void)unlinkat(t->dir, t->name, 0);
		fdry_lockfd_close(t->fd);
	}
	close(t->dir);
	free(t);
}
