// SPDX-License-Identifier: Apache-2.0
/* output.c - the file of option -o; see output.h. */
#include "api/cmd/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/cmd/cmd.h"
#include "lib/file.h"

static int output_fail(const struct cmd_output *o, int e)
{
	errno = e;
	return cmd_write_failed(o->path);
}

/* --- interrupted --- */

static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
static char doomed[PATH_MAX]; /* changed only while the signals have their default actions */

static void interrupted(int sig)
{
	(void)unlink(doomed);
	signal(sig, SIG_DFL);
	raise(sig);
}

/* Signals that are ignored, as under nohup, stay ignored. */
static void watch(const char *temp)
{
	struct sigaction act = { .sa_handler = interrupted }, old;
	size_t i;

	snprintf(doomed, sizeof(doomed), "%s", temp);
	for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (!sigaction(ends[i], NULL, &old) && old.sa_handler == SIG_DFL)
			sigaction(ends[i], &act, NULL);
}

static void unwatch(void)
{
	struct sigaction old;
	size_t i;

	for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (!sigaction(ends[i], NULL, &old) && old.sa_handler == interrupted)
			signal(ends[i], SIG_DFL);
}

/* --- opening --- */

/* Follow links: the file that a link leads to is replaced, not the link. */
static int name_find(struct cmd_output *o)
{
	char *real = realpath(o->path, NULL);
	const char *name = real ? real : o->path;
	int e = 0;

	if (strlen(name) >= sizeof(o->name) - FDRY_TEMP_DIGITS - 2)
		e = ENAMETOOLONG;
	else
		strcpy(o->name, name);
	free(real);
	return e;
}

static int temp_name(struct cmd_output *o)
{
	char prefix[PATH_MAX];

	snprintf(prefix, sizeof(prefix), "%s.", o->name);
	return fdry_temp_name(prefix, o->temp, sizeof(o->temp));
}

/* Needs /proc, through which the file gets its name in the end. */
static int nameless_open(const char *name)
{
	const char *slash = strrchr(name, '/');
	char dir[PATH_MAX], proc[64];
	int fd;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - name) + 1 : 1, slash ? name : ".");
	fd = fdry_open(dir, O_TMPFILE | O_RDWR, 0666);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	if (fd < 0 || !access(proc, F_OK))
		return fd;
	close(fd);
	return -1;
}

static int named_open(struct cmd_output *o)
{
	int e = temp_name(o);

	if (e)
		return e;
	watch(o->temp);
	o->fd = fdry_open(o->temp, O_RDWR | O_CREAT | O_EXCL, 0666);
	if (o->fd >= 0)
		return 0;
	e = errno;
	unwatch();
	return e;
}

static int whole_open(struct cmd_output *o)
{
	int e = name_find(o);

	if (e)
		return output_fail(o, e);
	o->whole = true;
	o->fd = nameless_open(o->name);
	e = o->fd < 0 ? named_open(o) : 0;
	return e ? output_fail(o, e) : 0;
}

int cmd_output_open(const char *path, struct cmd_output *o)
{
	struct stat st;

	*o = (struct cmd_output){ .fd = STDOUT_FILENO };
	if (!path || !strcmp(path, "-"))
		return 0;
	o->path = path;
	if (stat(path, &st) || S_ISREG(st.st_mode))
		return whole_open(o);
	o->fd = fdry_open(path, O_WRONLY, 0);
	return o->fd < 0 ? output_fail(o, errno) : 0;
}

int cmd_output_stream(struct cmd_output *o)
{
	o->f = o->path ? fdopen(o->fd, "w") : stdout;
	return o->f ? 0 : fdry_nomem();
}

/* --- closing --- */

/* A file without a name cannot replace another directly: it gets a temporary name first. */
static int nameless_name(struct cmd_output *o)
{
	char proc[64];
	int e;

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", o->fd);
	if (!linkat(AT_FDCWD, proc, AT_FDCWD, o->name, AT_SYMLINK_FOLLOW))
		return 0;
	if (errno != EEXIST)
		return errno;
	e = temp_name(o);
	if (e)
		return e;
	watch(o->temp);
	return linkat(AT_FDCWD, proc, AT_FDCWD, o->temp, AT_SYMLINK_FOLLOW) ? errno : 0;
}

/* Returns 0 or errno. */
static int whole_name(struct cmd_output *o)
{
	int e = fsync(o->fd) ? errno : 0;

	if (!e && !*o->temp)
		e = nameless_name(o);
	if (!e && *o->temp && rename(o->temp, o->name))
		e = errno;
	return e;
}

int cmd_output_close(struct cmd_output *o, int err)
{
	int e = 0;

	errno = EIO; /* if the errno of an earlier failure is lost */
	if (o->f && (fflush(o->f) || ferror(o->f)))
		e = errno;
	if (!o->path)
		return err; /* main.c checks standard output */
	if (!err && !e && o->whole)
		e = whole_name(o);
	if ((err || e) && *o->temp)
		(void)unlink(o->temp);
	if (*o->temp)
		unwatch();
	if ((o->f ? fclose(o->f) : close(o->fd)) && !e)
		e = errno;
	return err || !e ? err : output_fail(o, e);
}
