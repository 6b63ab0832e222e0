// SPDX-License-Identifier: Apache-2.0
/*
 * seen.c - which mapped objects were verified since the machine was started.
 *
 * A file beside the environment, replaced as a whole by rename. It is only a note: where
 * it is missing, damaged, of another boot or of another file, objects are hashed once
 * more. What it cannot tell is damage that came to the disk after the hashing.
 */
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arch/log.h"
#include "store/internal.h"

#define SEEN_FILE "verified"
#define SEEN_COUNT_MAX (1u << 24)

/* The kernel's boot id, "9f3c...-....", as 16 bytes. */
static bool boot_id(uint8_t ret[16])
{
	char text[64] = "", pair[3] = "";
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	size_t i, n = 0;
	char *end;

	if (f && !fgets(text, sizeof(text), f))
		*text = '\0';
	if (f)
		fclose(f);
	for (i = 0; text[i] && n < 16; i++) {
		if (text[i] == '-')
			continue;
		pair[0] = text[i];
		pair[1] = text[++i];
		ret[n++] = (uint8_t)strtoul(pair, &end, 16);
		if (end != pair + 2)
			return false;
	}
	return n == 16;
}

/* What the file must begin with to count, but for the number of ids. */
static bool header_make(const struct fdry_env *env, uint8_t head[FDRY_SEEN_AT_IDS])
{
	dev_t dev;
	ino_t ino;

	memset(head, 0, FDRY_SEEN_AT_IDS);
	memcpy(head, FDRY_SEEN_MAGIC, 8);
	fdry_set32(head + FDRY_SEEN_AT_VERSION, FDRY_SEEN_VERSION);
	memcpy(head + FDRY_SEEN_AT_STORE, env->id, FDRY_FORMAT_ID_SIZE);
	if (!boot_id(head + FDRY_SEEN_AT_BOOT) || fdry_db_file(env->db, &dev, &ino))
		return false;
	fdry_set64(head + FDRY_SEEN_AT_DEV, dev);
	fdry_set64(head + FDRY_SEEN_AT_INO, ino);
	return true;
}

static bool read_all(int fd, void *to, size_t len)
{
	uint8_t *p = to;
	ssize_t n;

	while (len) {
		n = read(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static bool write_all(int fd, const void *from, size_t len)
{
	const uint8_t *p = from;
	ssize_t n;

	while (len) {
		n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

/* Append the ids of an open file to @ret. */
static void ids_read(int fd, const uint8_t want[FDRY_SEEN_AT_IDS], struct fdry_buf *ret)
{
	uint8_t head[FDRY_SEEN_AT_IDS];
	size_t before = ret->len;
	struct stat st;
	uint64_t count;
	void *p = NULL;

	if (fstat(fd, &st) || !read_all(fd, head, sizeof(head)))
		return;
	count = fdry_get64(head + FDRY_SEEN_AT_COUNT);
	fdry_set64(head + FDRY_SEEN_AT_COUNT, 0);
	if (memcmp(head, want, sizeof(head)) || count > SEEN_COUNT_MAX ||
	    (uint64_t)st.st_size != FDRY_SEEN_AT_IDS + count * FDRY_OID_SIZE)
		return;
	if (fdry_buf_grow(ret, count * FDRY_OID_SIZE, &p) || !read_all(fd, p, count * FDRY_OID_SIZE))
		ret->len = before;
}

static void file_read(const struct fdry_env *env, const uint8_t want[FDRY_SEEN_AT_IDS], struct fdry_buf *ret)
{
	int fd = openat(env->dir.fd, SEEN_FILE, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	ids_read(fd, want, ret);
	close(fd);
}

static int oid_cmp(const void *a, const void *b)
{
	return memcmp(a, b, FDRY_OID_SIZE);
}

bool fdry_seen_has(struct fdry_seen *seen, struct fdry_env *env, const struct fdry_oid *oid)
{
	uint8_t want[FDRY_SEEN_AT_IDS];

	if (!seen->loaded && header_make(env, want))
		file_read(env, want, &seen->old);
	seen->loaded = true;
	return seen->old.len &&
	       bsearch(oid, seen->old.data, seen->old.len / FDRY_OID_SIZE, FDRY_OID_SIZE, oid_cmp);
}

void fdry_seen_add(struct fdry_seen *seen, const struct fdry_oid *oid)
{
	if (fdry_buf_put(&seen->added, oid, sizeof(*oid)))
		fdry_debug("an object that was verified is not noted: %s", fdry_last_error());
}

/* Ascending, none twice. */
static void ids_sort(struct fdry_buf *ids)
{
	size_t i, n = ids->len / FDRY_OID_SIZE, out = 0;

	if (!n)
		return;
	qsort(ids->data, n, FDRY_OID_SIZE, oid_cmp);
	for (i = 1; i < n; i++)
		if (oid_cmp(ids->data + i * FDRY_OID_SIZE, ids->data + out * FDRY_OID_SIZE))
			memmove(ids->data + ++out * FDRY_OID_SIZE, ids->data + i * FDRY_OID_SIZE, FDRY_OID_SIZE);
	ids->len = (out + 1) * FDRY_OID_SIZE;
}

static int temp_open(const struct fdry_env *env, char name[64])
{
	int fd, i;

	for (i = 0; i < 8; i++) {
		if (fdry_temp_name(FDRY_SEEN_TEMP, name, 64))
			return -1;
		fd = openat(env->dir.fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, env->dir.file_mode);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
	return -1;
}

static void file_write(const struct fdry_env *env, const uint8_t head[FDRY_SEEN_AT_IDS], const struct fdry_buf *ids)
{
	char name[64];
	bool ok;
	int fd = temp_open(env, name);

	if (fd < 0) {
		fdry_debug("no note of what was verified: %s", strerror(errno));
		return;
	}
	ok = !fdry_file_adopt(&env->dir, fd) && write_all(fd, head, FDRY_SEEN_AT_IDS) && write_all(fd, ids->data, ids->len);
	ok = !close(fd) && ok && !renameat(env->dir.fd, name, env->dir.fd, SEEN_FILE);
	if (!ok) {
		fdry_debug("no note of what was verified: %s", strerror(errno));
		(void)unlinkat(env->dir.fd, name, 0);
	}
}

void fdry_seen_end(struct fdry_seen *seen, struct fdry_env *env)
{
	uint8_t head[FDRY_SEEN_AT_IDS];
	struct fdry_buf ids = { 0 };

	if (!seen->added.len || env->dir.fixed || !header_make(env, head))
		return;
	file_read(env, head, &ids); /* others may have added some */
	if (!fdry_buf_put(&ids, seen->added.data, seen->added.len)) {
		ids_sort(&ids);
		fdry_set64(head + FDRY_SEEN_AT_COUNT, ids.len / FDRY_OID_SIZE);
		file_write(env, head, &ids);
	}
	fdry_buf_release(&ids);
}

void fdry_seen_release(struct fdry_seen *seen)
{
	fdry_buf_release(&seen->old);
	fdry_buf_release(&seen->added);
}

void fdry_seen_forget(struct fdry_env *env)
{
	int fd = openat(env->dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (!strcmp(e->d_name, SEEN_FILE) || !strncmp(e->d_name, FDRY_SEEN_TEMP, strlen(FDRY_SEEN_TEMP)))
			(void)unlinkat(env->dir.fd, e->d_name, 0);
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
}
