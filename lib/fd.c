// SPDX-License-Identifier: Apache-2.0
/* fd.c - making descriptors, never as number 0, 1 or 2; see fd.h. */
#include "lib/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILLER "/"
#define TRIES 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned int users; /* threads between enter and leave that found a number missing */
static bool filled[FDRY_FD_LOW];

/* A filler counts as closed: poll() returns POLLNVAL for descriptors that are open with O_PATH. */

static bool low_are_open(void)
{
	struct pollfd low[FDRY_FD_LOW] = { { .fd = 0 }, { .fd = 1 }, { .fd = 2 } };
	int i;

	if (poll(low, FDRY_FD_LOW, 0) < 0)
		return false;
	for (i = 0; i < FDRY_FD_LOW; i++)
		if (low[i].revents & POLLNVAL)
			return false;
	return true;
}

/* The kernel assigns the lowest free number. */
static void fill(void)
{
	int i, fd = -1;

	for (i = 0;
	     i <= FDRY_FD_LOW && (fd = open(FILLER, O_PATH | O_CLOEXEC)) >= 0 && fd < FDRY_FD_LOW;
	     i++)
		filled[fd] = true;
	if (fd >= FDRY_FD_LOW)
		close(fd);
}

/* Another thread may have replaced the filler by a file of its own. */
static bool is_filler(int fd)
{
	struct stat st, filler;
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && flags & O_PATH && !fstat(fd, &st) && !stat(FILLER, &filler) &&
	       st.st_dev == filler.st_dev && st.st_ino == filler.st_ino;
}

static void clear(void)
{
	int fd;

	for (fd = 0; fd < FDRY_FD_LOW; fd++) {
		if (filled[fd] && is_filler(fd))
			close(fd);
		filled[fd] = false;
	}
}

/* --- fork --- */

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* Threads that had entered do not exist in the child. */
static void after_fork_child(void)
{
	users = 0;
	clear();
	pthread_mutex_unlock(&lock);
}

static void handlers_register(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_child);
}

void fdry_fd_watch_forks(void)
{
	pthread_once(&once, handlers_register);
}

/* --- entering --- */

bool fdry_fd_enter(void)
{
	int saved = errno;

	if (low_are_open()) {
		errno = saved;
		return false;
	}
	fdry_fd_watch_forks();
	pthread_mutex_lock(&lock);
	users++;
	fill();
	pthread_mutex_unlock(&lock);
	errno = saved;
	return true;
}

void fdry_fd_leave(bool entered)
{
	int saved = errno;

	if (!entered)
		return;
	pthread_mutex_lock(&lock);
	if (!--users)
		clear();
	pthread_mutex_unlock(&lock);
	errno = saved;
}

void fdry_fd_low_get(struct fdry_fd_low *ret)
{
	struct stat st;
	int fd;

	memset(ret, 0, sizeof(*ret));
	for (fd = 0; fd < FDRY_FD_LOW; fd++)
		if (!fstat(fd, &st)) {
			ret->dev[fd] = st.st_dev;
			ret->ino[fd] = st.st_ino;
		}
}

bool fdry_fd_low_same(const struct fdry_fd_low *was)
{
	struct fdry_fd_low now;

	fdry_fd_low_get(&now);
	return !memcmp(&now, was, sizeof(now));
}

void fdry_fd_null(int fd, int flags)
{
	int got = open("/dev/null", flags);

	if (got >= 0 && got != fd)
		close(got);
}

/* --- making --- */

/*
 * Another thread may have closed a low number at this moment, so that our new descriptor got it.
 * That one stays open while another is opened. Then it is closed, unless the thread has replaced it
 * by dup2(), which clears O_CLOEXEC.
 */
static void low_close(int fd)
{
	if (fcntl(fd, F_GETFD) == FD_CLOEXEC)
		close(fd);
}

struct making {
	/* Makes @count descriptors; -1 and errno after a failure. */
	int (*make)(struct making *m, int ret[2]);
	int count;
	int dir;
	const char *name;
	int flags;
	mode_t mode;
};

static bool is_low(const struct making *m, const int fds[2])
{
	return fds[0] < FDRY_FD_LOW || (m->count == 2 && fds[1] < FDRY_FD_LOW);
}

/* A failure leaves @ret unchanged. */
static int make_above(struct making *m, int ret[2])
{
	int fds[2 * TRIES], saved, i, rc, n = 0;
	bool entered = fdry_fd_enter();

	do {
		rc = m->make(m, fds + n);
		n += rc ? 0 : m->count;
	} while (!rc && is_low(m, fds + n - m->count) && n < TRIES);
	if (rc)
		goto out_close;
	if (is_low(m, fds + n - m->count)) {
		errno = EBUSY;
		rc = -1;
		goto out_close;
	}
	for (i = m->count; i; i--)
		ret[i - 1] = fds[--n];
out_close:
	saved = errno;
	for (i = 0; i < n; i++)
		if (fds[i] < FDRY_FD_LOW)
			low_close(fds[i]);
		else
			close(fds[i]);
	errno = saved;
	fdry_fd_leave(entered);
	return rc;
}

static int make_open(struct making *m, int ret[2])
{
	*ret = openat(m->dir, m->name, m->flags | O_CLOEXEC, m->mode);
	if (*ret >= 0)
		m->flags &= ~(O_CREAT | O_EXCL); /* the file exists from now on */
	return *ret < 0 ? -1 : 0;
}

static int make_memfd(struct making *m, int ret[2])
{
	*ret = memfd_create(m->name, MFD_CLOEXEC);
	return *ret < 0 ? -1 : 0;
}

static int make_pipe(struct making *m, int ret[2])
{
	return pipe2(ret, m->flags | O_CLOEXEC);
}

int fdry_openat(int dir, const char *name, int flags, mode_t mode)
{
	struct making m = {
		.make = make_open,
		.count = 1,
		.dir = dir,
		.name = name,
		.flags = flags,
		.mode = mode,
	};
	int fd[2];

	return make_above(&m, fd) ? -1 : *fd;
}

int fdry_open(const char *path, int flags, mode_t mode)
{
	return fdry_openat(AT_FDCWD, path, flags, mode);
}

int fdry_memfd(const char *name)
{
	struct making m = { .make = make_memfd, .count = 1, .name = name };
	int fd[2];

	return make_above(&m, fd) ? -1 : *fd;
}

int fdry_pipe(int ret[2], int flags)
{
	struct making m = { .make = make_pipe, .count = 2, .flags = flags };

	return make_above(&m, ret);
}

int fdry_dup(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, FDRY_FD_LOW);
}

static FILE *stream(int fd, const char *mode)
{
	FILE *f = fd < 0 ? NULL : fdopen(fd, mode);
	int saved = errno;

	if (!f && fd >= 0)
		close(fd);
	errno = saved;
	return f;
}

FILE *fdry_fopen_read(const char *path)
{
	return stream(fdry_open(path, O_RDONLY, 0), "r");
}

FILE *fdry_fopen_write(const char *path)
{
	return stream(fdry_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), "w");
}
