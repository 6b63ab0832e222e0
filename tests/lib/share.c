// SPDX-License-Identifier: Apache-2.0
/* share.c - see share.h. */
#include "tests/lib/share.h"

int share_wait(pid_t pid)
{
	int status = 0;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "a child was ended by signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

int share_child(int (*fn)(void *arg), void *arg)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(fn(arg));
	return share_wait(pid);
}

int become(uid_t uid, bool member)
{
	gid_t groups[] = { GROUP };

	if (setgroups(member, groups) || setgid(uid) || setuid(uid))
		return NOT_ALLOWED;
	return 0;
}

int share_say(int where)
{
	fprintf(stderr, "child %d: %d: %s\n", (int)getpid(), where, fdry_last_error());
	return where;
}

bool share_refused(int err, enum fdry_errcode want, const char *text)
{
	if (err == -(int)want && strstr(fdry_last_error(), text))
		return true;
	fprintf(stderr, "child %d: got %s: %s\n", (int)getpid(), fdry_error_name(err),
		fdry_last_error());
	return false;
}

int share_seal(struct fdry_store *s, uint64_t seed, size_t n, size_t len, const char *ref)
{
	struct fdry_oid *links = calloc(n, sizeof(*links)), oid;
	uint8_t *data = malloc(len);
	struct fdry_writer *p = NULL;
	char text[64];
	size_t i;
	int err = fdry_writer_begin(s, &p);

	for (i = 0; i < n && !err; i++) {
		noise(seed + i, data, len);
		err = fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, len, NULL, 0, &links[i]);
	}
	snprintf(text, sizeof(text), "image %llu %zu %zu", (unsigned long long)seed, n, len);
	if (err)
		fdry_writer_abort(p);
	else
		err = fdry_writer_commit(p, text, strlen(text), links, n, ref, &oid, NULL);
	free(links);
	free(data);
	return err;
}

int share_load(struct fdry_store *s, uint64_t seed, size_t n, size_t len, const char *ref)
{
	uint8_t *data = malloc(len);
	struct fdry_oid image, oid;
	struct fdry_span span;
	struct fdry_reader *g;
	size_t i;
	int err = fdry_reader_begin(s, &g);

	if (err) {
		free(data);
		return err;
	}
	err = fdry_reader_resolve(g, ref, &image);
	for (i = 0; i < n && !err; i++) {
		noise(seed + i, data, len);
		err = fdry_oid_of(data, len, &oid) ?: fdry_reader_map(g, &oid, &span) ?:
		      fdry_reader_verify(g, &oid, span, false, NULL);
		if (!err && (span.len != len || memcmp(span.data, data, len)))
			err = -FDRY_E_CORRUPT;
	}
	if (!err)
		fdry_reader_note_use(g, &image);
	fdry_reader_end(g);
	free(data);
	return err;
}

static int write_text(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done ? 0 : -1;
}

int unshare_as_root(int flags)
{
	char map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (!uid)
		return unshare(flags);
	if (unshare(flags | CLONE_NEWUSER) || write_text("/proc/self/setgroups", "deny"))
		return -1;
	snprintf(map, sizeof(map), "0 %u 1", (unsigned int)uid);
	if (write_text("/proc/self/uid_map", map))
		return -1;
	snprintf(map, sizeof(map), "0 %u 1", (unsigned int)gid);
	return write_text("/proc/self/gid_map", map);
}

int own_mounts(void)
{
	if (unshare_as_root(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return NOT_ALLOWED;
	return 0;
}
