// SPDX-License-Identifier: Apache-2.0
/*
 * arrays.c - seals the CUDA arrays that graphs copy from or to.
 *
 * Arrays are numbered in the order of their first use by the graphs. The image has the content of
 * each: no graph need write an array before another reads it. Of a mipmapped array it has the
 * levels that graphs use: a loaded image reads and writes no others.
 */
#include <stdlib.h>

#include "image/array_pieces.h"
#include "image/seal/seal.h"

/* An array that graphs of the seal use, by number. */
struct used {
	struct fdry_cuarray array;
	uint64_t serial;
	uint64_t mipmap; /* of which it is a level; 0: none */
	uint32_t level;
};

static int descriptor_read(const CUDA_ARRAY3D_DESCRIPTOR *d, struct fdry_mf_array *mf)
{
	const char *fault = "a width, height or depth that no array has";

	*mf = (struct fdry_mf_array){ .width = (uint32_t)d->Width,
				      .height = (uint32_t)d->Height,
				      .depth = (uint32_t)d->Depth,
				      .format = (uint32_t)d->Format,
				      .channels = d->NumChannels,
				      .flags = d->Flags };
	if (mf->width == d->Width && mf->height == d->Height && mf->depth == d->Depth)
		fault = fdry_cuarray_fault(mf);
	return fault ? fdry_fail(FDRY_E_REFUSED, "it has %s", fault) : 0;
}

/* Add the level to the manifest, and its mipmapped array unless a level before had it. @mf: of the
 * mipmapped array; becomes that of the level. */
static int level_put(struct fdry_seal *s, const struct fdry_hook_array *a,
		     struct fdry_mf_array *mf)
{
	struct fdry_mf_mipmap m = { .top = *mf, .levels = a->levels };
	struct fdry_mf_mipmap_level l = { .level = a->level };
	const uint64_t *known = fdry_array(s->mipmaps, uint64_t);
	size_t i, n = fdry_array_count(s->mipmaps, uint64_t);
	int err = 0;

	if (m.levels > FDRY_MF_LEVELS_MAX) /* there cannot be more */
		m.levels = FDRY_MF_LEVELS_MAX;
	*mf = fdry_mipmap_level_of(&m, a->level);
	for (i = 0; i < n && known[i] != a->mipmap; i++)
		;
	l.array = (uint32_t)fdry_array_count(s->arrays, struct used);
	l.mipmap = (uint32_t)i;
	if (i == n)
		err = fdry_buf_put(&s->mipmaps, &a->mipmap, sizeof(a->mipmap)) ?:
		      fdry_buf_put(&s->w.mipmaps, &m, sizeof(m));
	return err ? err : fdry_buf_put(&s->w.mipmap_levels, &l, sizeof(l));
}

/* Give a new array the next number. */
static int array_add(struct fdry_seal *s, CUarray handle, const struct fdry_hook_array *a,
		     struct fdry_cuarray *ret)
{
	struct fdry_mf_array mf;
	struct used u;
	int err;

	if (a->ctx != s->cap->ctx)
		return fdry_fail(FDRY_E_REFUSED,
				 "CUDA array %p was made in another context than the capture's; "
				 "make it in the primary context of the device", (void *)handle);
	if (fdry_array_count(s->arrays, struct used) == FDRY_CUARRAYS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "the graphs use more than %u CUDA arrays",
				 FDRY_CUARRAYS_MAX);
	err = descriptor_read(&a->desc, &mf);
	if (!err && a->mipmap)
		err = level_put(s, a, &mf);
	if (err)
		return fdry_fail_at(err, "CUDA array %p", (void *)handle);
	err = fdry_buf_put(&s->w.arrays, &mf, sizeof(mf));
	if (err)
		return err;
	u = (struct used){ .array = fdry_cuarray_of(&mf), .serial = a->serial,
			   .mipmap = a->mipmap, .level = a->level };
	u.array.handle = handle;
	*ret = u.array;
	return fdry_buf_put(&s->arrays, &u, sizeof(u));
}

/* A driver may give a level several handles. */
static bool is_same(const struct used *u, const struct fdry_hook_array *a)
{
	return u->serial == a->serial ||
	       (u->mipmap && u->mipmap == a->mipmap && u->level == a->level);
}

/* Each graph that names an array is asked for: one may mean an older array with the handle. */
int fdry_seal_array(void *arg, CUgraph graph, CUarray handle, uint32_t *number,
		    struct fdry_cuarray *ret)
{
	struct fdry_seal *s = arg;
	const struct fdry_hook *hook = s->cap->hook;
	const struct used *u = fdry_array(s->arrays, struct used);
	size_t i, n = fdry_array_count(s->arrays, struct used);
	struct fdry_hook_array a;
	int err = fdry_interposer_result(hook, hook->array(graph, handle, &a));

	if (err)
		return err;
	for (i = 0; i < n && !is_same(&u[i], &a); i++)
		;
	*number = (uint32_t)i;
	if (i == n)
		return array_add(s, handle, &a, ret);
	*ret = u[i].array;
	return 0;
}

int fdry_seal_arrays_still(const struct fdry_seal *s)
{
	const struct fdry_hook *hook = s->cap->hook;
	const struct used *u = fdry_array(s->arrays, struct used);
	size_t i, n = fdry_array_count(s->arrays, struct used);
	struct fdry_hook_array now;
	int err;

	for (i = 0; i < n; i++) {
		err = fdry_interposer_result(hook, hook->array(NULL, u[i].array.handle, &now));
		if (!err && now.serial == u[i].serial)
			continue;
		return fdry_fail(FDRY_E_STATE,
				 "CUDA array %p was destroyed while the seal ran; keep it",
				 (void *)u[i].array.handle);
	}
	return 0;
}

/* --- content --- */

int fdry_seal_arrays_each(const struct fdry_seal *s,
			  int (*fn)(void *arg, const struct fdry_cuarray *array), void *arg)
{
	const struct used *u = fdry_array(s->arrays, struct used);
	size_t i, n = fdry_array_count(s->arrays, struct used);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = fn(arg, &u[i].array);
	return err;
}

struct storing {
	struct fdry_seal *s;
	uint32_t number; /* of the array */
	uint8_t *bytes;  /* FDRY_MF_CHUNK_MAX of them */
	uint64_t at;     /* of the piece, in the array's bytes */
};

static int piece_put(struct storing *st, const struct fdry_cuarray *a, uint64_t i)
{
	struct fdry_mf_array_piece mf = { .array = st->number, .piece = (uint32_t)i };
	struct fdry_cuarray_piece piece = fdry_cuarray_piece(a, i);
	struct fdry_seal *s = st->s;
	int err = fdry_cuarray_copy(s->cap->drv, a, &piece, NULL, st->bytes, NULL) ?:
		  fdry_call(s->cap->drv, cuStreamSynchronize, NULL);

	if (err)
		return err;
	st->at += piece.bytes;
	if (fdry_seal_is_zero(st->bytes, piece.bytes))
		return 0;
	mf.print = fdry_fingerprint_of(st->bytes, piece.bytes);
	err = fdry_pointers_look(s, st->at - piece.bytes, st->bytes, piece.bytes) ?:
	      fdry_writer_add_object(s->writer, FDRY_OBJECT_CHUNK, st->bytes, piece.bytes, NULL, 0,
				     &mf.oid);
	if (err)
		return err;
	s->report.content_bytes += piece.bytes;
	return fdry_buf_put(&s->w.array_pieces, &mf, sizeof(mf));
}

static int array_put(void *arg, const struct fdry_cuarray *a)
{
	struct storing *st = arg;
	uint64_t i, n = fdry_cuarray_pieces(a);
	int err = 0;

	st->at = 0;
	st->s->array = true;
	for (i = 0; i < n && !err; i++)
		err = piece_put(st, a, i);
	st->s->array = false;
	if (err)
		return fdry_fail_at(err, "content of CUDA array %p", (void *)a->handle);
	st->number++;
	return 0;
}

int fdry_seal_arrays_content(struct fdry_seal *s)
{
	struct storing st = { .s = s };
	int err;

	if (!s->arrays.len)
		return 0;
	st.bytes = malloc(FDRY_MF_CHUNK_MAX);
	err = st.bytes ? fdry_seal_arrays_each(s, array_put, &st) : fdry_nomem();
	free(st.bytes);
	return err;
}
