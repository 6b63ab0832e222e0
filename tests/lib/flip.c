// SPDX-License-Identifier: Apache-2.0
/* flip.c - see flip.h. */
#include "tests/lib/flip.h"

#include <fcntl.h>

#include "image/manifest.h"

static int file_open(const char *name)
{
	char file[340];
	int fd;

	snprintf(file, sizeof(file), "%s/%s", path, name);
	fd = open(file, O_RDWR | O_CLOEXEC);
	ck_assert_msg(fd >= 0, "%s: %s", file, strerror(errno));
	return fd;
}

static void notes_read(struct flip_chunk *c)
{
	struct stat st;
	void *to = NULL;
	int fd;

	fd = file_open("verified");
	ck_assert(!fstat(fd, &st));
	ok(fdry_buf_grow(&c->trusted, (size_t)st.st_size, &to));
	ck_assert_int_eq(pread(fd, to, (size_t)st.st_size, 0), st.st_size);
	ck_assert(!close(fd));
}

/* Return the offset in its file of a byte that this process has mapped. */
static off_t file_offset(const void *at)
{
	unsigned long from, to, offset, addr = (unsigned long)(uintptr_t)at;
	FILE *f = fopen("/proc/self/maps", "re");
	off_t found = -1;
	char line[600];

	ck_assert_ptr_nonnull(f);
	while (found < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) == 3 && addr >= from &&
		    addr < to && strstr(line, "data.mdb"))
			found = (off_t)(addr - from + offset);
	ck_assert(!fclose(f));
	ck_assert_int_ge(found, 0);
	return found;
}

static void chunk_open(struct fdry_reader *r, const struct fdry_oid *oid, struct flip_chunk *ret)
{
	struct flip_chunk c = { .data = file_open("data.mdb") };
	struct fdry_span bytes;

	ok(fdry_reader_map(r, oid, &bytes));
	c.at = file_offset(bytes.data);
	c.len = bytes.len;
	notes_read(&c);
	*ret = c;
}

static void manifest_take(struct fdry_reader *r, const char *ref, struct fdry_buf *bytes,
			  struct fdry_manifest *m)
{
	struct fdry_oid id;

	ok(fdry_reader_resolve(r, ref, &id));
	ok(fdry_reader_copy(r, &id, bytes));
	ok(fdry_manifest_init((struct fdry_span){ bytes->data, bytes->len }, m));
}

static const struct fdry_oid *chunk_of(const struct fdry_manifest *m,
				       const struct fdry_mf_tensor *t)
{
	uint32_t i;

	for (i = 0; i < m->n_chunks && !(t->flags & FDRY_TENSOR_HOST); i++)
		if (m->chunks[i].addr + m->chunks[i].size > t->addr)
			return &m->chunks[i].oid;
	for (i = 0; i < m->n_host_chunks && t->flags & FDRY_TENSOR_HOST; i++)
		if (m->host_chunks[i].segment == fdry_host_segment(t->addr) &&
		    m->host_chunks[i].offset + m->host_chunks[i].size > fdry_host_offset(t->addr))
			return &m->host_chunks[i].oid;
	ck_abort_msg("no chunk");
}

void flip_find(struct fdry_store *s, const char *ref, const char *name, struct flip_chunk *ret)
{
	const struct fdry_mf_tensor *t;
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_reader *r;

	ok(fdry_reader_begin(s, &r));
	manifest_take(r, ref, &bytes, &m);
	t = fdry_manifest_tensor(&m, name);
	ck_assert_ptr_nonnull(t);
	chunk_open(r, chunk_of(&m, t), ret);
	fdry_reader_end(r);
	fdry_buf_release(&bytes);
}

bool flip_nth(struct fdry_store *s, const char *ref, uint32_t i, struct flip_chunk *ret)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_reader *r;
	uint32_t others;
	bool there;

	ok(fdry_reader_begin(s, &r));
	manifest_take(r, ref, &bytes, &m);
	others = m.n_chunks + m.n_host_chunks + m.n_pinned_chunks;
	there = i < others + m.n_array_pieces;
	if (i < m.n_chunks)
		chunk_open(r, &m.chunks[i].oid, ret);
	else if (i < m.n_chunks + m.n_host_chunks)
		chunk_open(r, &m.host_chunks[i - m.n_chunks].oid, ret);
	else if (i < others)
		chunk_open(r, &m.pinned_chunks[i - m.n_chunks - m.n_host_chunks].oid, ret);
	else if (there)
		chunk_open(r, &m.array_pieces[i - others].oid, ret);
	fdry_reader_end(r);
	fdry_buf_release(&bytes);
	return there;
}

void flip_bit(const struct flip_chunk *c, uint64_t bit)
{
	uint8_t byte;

	ck_assert_int_eq(pread(c->data, &byte, 1, c->at + (off_t)(bit / 8)), 1);
	byte ^= (uint8_t)(1u << bit % 8);
	ck_assert_int_eq(pwrite(c->data, &byte, 1, c->at + (off_t)(bit / 8)), 1);
}

void flip_trust(const struct flip_chunk *c)
{
	struct stat st;
	int fd = file_open("verified");

	ck_assert(!fstat(c->data, &st));
	fdry_set64(c->trusted.data + FDRY_VERIFIED_AT_CHANGED,
		   (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec);
	ck_assert(!ftruncate(fd, 0));
	ck_assert_int_eq(pwrite(fd, c->trusted.data, c->trusted.len, 0), (ssize_t)c->trusted.len);
	ck_assert(!close(fd));
}

void flip_release(struct flip_chunk *c)
{
	ck_assert(!close(c->data));
	fdry_buf_release(&c->trusted);
}
