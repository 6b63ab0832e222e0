// SPDX-License-Identifier: Apache-2.0
/*
 * files.c - files that an image carries, such as compiled kernels in the caches of an engine.
 *
 * A load ignores them. They are attached to a sealed image: a program knows only after the seal
 * which files its start has used. The result is another image with the same sections, which takes
 * the name. Each file is stored in pieces of FDRY_MF_CHUNK_MAX bytes, so equal files are stored
 * once.
 */
#include <stdlib.h>
#include <string.h>

#include "foundry.h"
#include "image/identity.h"
#include "image/manifest.h"
#include "lib/opts.h"
#include "store/store.h"

static int file_cmp(const void *a, const void *b)
{
	return strcmp((*(const struct fdry_file *const *)a)->name,
		      (*(const struct fdry_file *const *)b)->name);
}

/* Sort pointers to the files by name, which must differ. The caller frees @ret. */
static int files_sort(const struct fdry_file *files, size_t n, const struct fdry_file ***ret)
{
	const struct fdry_file **sorted;
	uint64_t bytes = 0;
	size_t i;
	int err;

	for (i = 0; i < n; i++) {
		if (!files[i].name || (!files[i].data && files[i].len) || files[i].reserved)
			return fdry_fail(
				FDRY_E_INVAL,
				"file %zu has no name or no data, or sets a reserved field", i);
		if (files[i].len > FDRY_MF_FILES_MAX - bytes)
			return fdry_fail(FDRY_E_LIMIT, "the files have more than 1 GiB");
		bytes += files[i].len;
	}
	sorted = calloc(n + 1, sizeof(*sorted));
	if (!sorted)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		sorted[i] = &files[i];
	qsort(sorted, n, sizeof(*sorted), file_cmp);
	for (i = 1; i < n; i++)
		if (!strcmp(sorted[i - 1]->name, sorted[i]->name)) {
			err = fdry_fail(FDRY_E_EXISTS, "two files have the name '%.200s'",
					sorted[i]->name);
			free(sorted);
			return err;
		}
	*ret = sorted;
	return 0;
}

static int file_put(struct fdry_writer *writer, const struct fdry_file *f,
		    struct fdry_manifest_writer *w)
{
	struct fdry_mf_file mf = { .flags = f->flags };
	int err = fdry_manifest_add_str(w, f->name, &mf.name);

	if (err)
		return err;
	do {
		mf.size = f->len - mf.offset;
		if (mf.size > FDRY_MF_CHUNK_MAX)
			mf.size = FDRY_MF_CHUNK_MAX;
		if (mf.size)
			err = fdry_writer_add_object(writer, FDRY_OBJECT_CHUNK,
						     (const char *)f->data + mf.offset, mf.size,
						     NULL, 0, &mf.oid);
		if (err)
			return err;
		err = fdry_buf_put(&w->files, &mf, sizeof(mf));
		if (err)
			return err;
		mf.offset += mf.size;
	} while (mf.offset < f->len);
	return 0;
}

/* Copy the sections of @m. */
static int sections_copy(const struct fdry_manifest *m, struct fdry_manifest_writer *w)
{
	int err = 0;

	if (m->has_unknown)
		return fdry_fail(FDRY_E_VERSION,
				 "the image has parts that this version does not know, and a copy "
				 "would lack; attach the files with the version that sealed it");
	w->base = m->header->base;
	w->end = m->header->end;
#define X(id, NAME, member, type) \
	if (!err && m->n_##member) \
		err = fdry_buf_put(&w->member, m->member, m->n_##member * sizeof(type));
	FDRY_MF_SECTIONS(X)
#undef X
	return err;
}

/* Write the files of @m and the new ones to @w, by ascending name. A new one replaces another. */
static int files_merge(struct fdry_writer *writer, const struct fdry_manifest *m,
		       const struct fdry_file **files, struct fdry_manifest_writer *w)
{
	uint32_t i = 0, next;
	int err = 0, order;

	w->files.len = 0;
	while (!err && (i < m->n_files || *files)) {
		for (next = i + 1; next < m->n_files && m->files[next].offset; next++)
			;
		order = i >= m->n_files ? 1 : !*files ? -1 :
			strcmp(fdry_manifest_str(m, m->files[i].name), (*files)->name);
		if (order < 0)
			err = fdry_buf_put(&w->files, m->files + i, (next - i) * sizeof(*m->files));
		else
			err = file_put(writer, *files++, w);
		if (order <= 0)
			i = next;
	}
	return err;
}

/* Find the image @name, the newest if there are several, and read its manifest. */
static int image_read(struct fdry_store *s, const char *name, struct fdry_ref *ref,
		      struct fdry_buf *bytes)
{
	struct fdry_ref *refs = NULL;
	struct fdry_reader *reader;
	size_t n = 0;
	int err = fdry_reader_begin(s, &reader);

	if (err)
		return err;
	err = fdry_reader_images(reader, name, &refs, &n);
	if (err)
		goto out_end;
	*ref = refs[0];
	err = fdry_reader_copy(reader, &ref->oid, bytes);
	free(refs);
out_end:
	fdry_reader_end(reader);
	return err;
}

/* @ref: the image that the new one replaces. */
static int commit(struct fdry_writer *writer, struct fdry_manifest_writer *w,
		  const struct fdry_ref *ref, struct fdry_oid *ret)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_oid identity, *links;
	size_t n;
	int err = fdry_identity_encode(w, &bytes, &identity, &links, &n);

	if (err) {
		fdry_writer_abort(writer);
		return err;
	}
	/* A ref that came in a dump or a pack may state another identity. */
	fdry_writer_set_identity(writer, ref->name[0] ? &ref->identity : &identity);
	err = fdry_writer_commit(writer, bytes.data, bytes.len, links, n,
				 ref->name[0] ? ref->name : NULL, ret, NULL);
	free(links);
	fdry_buf_release(&bytes);
	return err;
}

/* Ends the session of @writer, also on failure. */
static int attach(struct fdry_store *s, struct fdry_writer *writer, const char *name,
		  const struct fdry_file **files, struct fdry_oid *ret)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_ref ref;
	int err = image_read(s, name, &ref, &bytes);

	if (err)
		goto out_abort;
	err = fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m);
	if (err)
		goto out_abort;
	err = sections_copy(&m, &w) ?: files_merge(writer, &m, files, &w);
	if (err)
		goto out_abort;
	err = commit(writer, &w, &ref, ret);
	if (!err)
		fdry_store_note_same_capture(s, ret, &ref.oid);
	goto out_release;
out_abort:
	fdry_writer_abort(writer);
out_release:
	fdry_manifest_writer_release(&w);
	fdry_buf_release(&bytes);
	return err;
}

int fdry_image_attach(struct fdry_store *store, const char *name, const struct fdry_file *files,
		      size_t nfiles, char *id)
{
	const struct fdry_file **sorted = NULL;
	struct fdry_writer *writer;
	struct fdry_oid oid;
	int err = fdry_need(store) ?: fdry_need(name) ?: fdry_need(files);

	if (err)
		return err;
	err = files_sort(files, nfiles, &sorted);
	if (err)
		return err;
	err = fdry_writer_begin(store, &writer);
	if (err)
		goto out_free;
	err = attach(store, writer, name, sorted, &oid);
	if (err) {
		err = fdry_fail_at(err, "image '%.100s'", name);
		goto out_free;
	}
	if (id)
		fdry_oid_hex(&oid, id);
out_free:
	free(sorted);
	return err;
}

/* Append the piece @f. Its object may be larger than the manifest states, which limits the size. */
static int piece_read(struct fdry_reader *reader, const struct fdry_mf_file *f,
		      struct fdry_buf *bytes)
{
	uint64_t size;
	int err = fdry_reader_size(reader, &f->oid, &size);

	if (err)
		return err;
	if (size != f->size)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "a piece has %llu bytes, the manifest says %llu; seal the image "
				 "anew",
				 (unsigned long long)size, (unsigned long long)f->size);
	return fdry_reader_copy(reader, &f->oid, bytes);
}

/* Read the file whose pieces begin at entry @i, and call @fn with it. */
static int file_call(struct fdry_reader *reader, const struct fdry_manifest *m, uint32_t i,
		     fdry_file_fn fn, void *arg)
{
	struct fdry_file file = { .name = fdry_manifest_str(m, m->files[i].name),
				  .flags = m->files[i].flags };
	struct fdry_buf bytes = { 0 };
	int err = 0;

	do
		if (m->files[i].size)
			err = piece_read(reader, &m->files[i], &bytes);
	while (!err && ++i < m->n_files && m->files[i].offset);
	file.data = bytes.data;
	file.len = bytes.len;
	err = err ? fdry_fail_at(err, "file '%.200s'", file.name) : fn(arg, &file);
	fdry_buf_release(&bytes);
	return err;
}

static int files_call(struct fdry_reader *reader, const char *name, fdry_file_fn fn, void *arg)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_oid id;
	uint32_t i;
	int err = fdry_reader_resolve(reader, name, &id);

	if (err)
		return err;
	err = fdry_reader_copy(reader, &id, &bytes);
	if (err)
		goto out_release;
	err = fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m);
	for (i = 0; !err && i < m.n_files; i++)
		if (!m.files[i].offset)
			err = file_call(reader, &m, i, fn, arg);
out_release:
	fdry_buf_release(&bytes);
	return err;
}

int fdry_image_files(struct fdry_store *store, const char *name, fdry_file_fn fn, void *arg)
{
	struct fdry_reader *reader;
	int err = fdry_need(store) ?: fdry_need(name) ?: fdry_need(fn);

	if (err)
		return err;
	err = fdry_reader_begin(store, &reader);
	if (err)
		return err;
	err = files_call(reader, name, fn, arg);
	fdry_reader_end(reader);
	return err;
}
