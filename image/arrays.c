// SPDX-License-Identifier: Apache-2.0
/* arrays.c - makes and fills the CUDA arrays of an image; see arrays.h. */
#include "image/arrays.h"

#include <stdlib.h>

#include "arch/stream.h"
#include "image/array_pieces.h"
#include "image/check.h"

int fdry_image_arrays_plan(struct fdry_image *img)
{
	uint32_t i;

	if (!img->m.n_arrays)
		return 0;
	img->arrays = calloc(img->m.n_arrays, sizeof(*img->arrays));
	img->mipmaps = calloc(img->m.n_mipmaps + 1u, sizeof(*img->mipmaps));
	if (!img->arrays || !img->mipmaps)
		return fdry_nomem();
	for (i = 0; i < img->m.n_arrays; i++)
		img->arrays[i] = fdry_cuarray_of(&img->m.arrays[i]);
	return 0;
}

static CUDA_ARRAY3D_DESCRIPTOR descriptor_of(const struct fdry_mf_array *a)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = a->width, .Height = a->height, .Depth = a->depth };

	d.Format = (CUarray_format)a->format;
	d.NumChannels = a->channels;
	d.Flags = a->flags;
	return d;
}

static int mipmaps_make(struct fdry_image *img)
{
	const struct fdry_mf_mipmap *p = img->m.mipmaps;
	CUDA_ARRAY3D_DESCRIPTOR d;
	uint32_t i;
	int err;

	for (i = 0; i < img->m.n_mipmaps; i++, p++) {
		d = descriptor_of(&p->top);
		err = fdry_call(img->drv, cuMipmappedArrayCreate, &img->mipmaps[i], &d, p->levels);
		if (err)
			return fdry_fail_at(err, "mipmapped array %u", i);
	}
	return 0;
}

/* Make an array, or find it in its mipmapped array. */
static int array_make(struct fdry_image *img, uint32_t i)
{
	const struct fdry_mf_mipmap_level *l = fdry_manifest_level(&img->m, i);
	CUDA_ARRAY3D_DESCRIPTOR d = descriptor_of(&img->m.arrays[i]);
	CUarray *ret = &img->arrays[i].handle;

	return l ? fdry_call(img->drv, cuMipmappedArrayGetLevel, ret, img->mipmaps[l->mipmap],
			     l->level)
		 : fdry_call(img->drv, cuArray3DCreate_v2, ret, &d);
}

int fdry_image_arrays_make(struct fdry_image *img)
{
	int err = mipmaps_make(img);
	uint32_t i;

	for (i = 0; i < img->m.n_arrays && !err; i++) {
		err = array_make(img, i);
		if (err)
			return fdry_fail_at(err, "array %u", i);
	}
	return err;
}

static int piece_write(struct fdry_image *img, struct fdry_reader *reader,
		       const struct fdry_mf_array_piece *mf, struct fdry_content_sum *sum)
{
	const struct fdry_cuarray *a = &img->arrays[mf->array];
	struct fdry_cuarray_piece piece = fdry_cuarray_piece(a, mf->piece);
	struct fdry_span bytes = { .len = piece.bytes };
	int err = fdry_chunk_map(img, reader, &mf->oid, sum, &bytes) ?:
		  fdry_chunk_check(img, reader, &mf->oid, bytes, mf->print) ?:
		  fdry_cuarray_copy(img->drv, a, &piece, bytes.data, NULL, img->stream);

	if (err)
		return fdry_fail_at(err, "content of array %u, from row %llu of slice %llu",
				    mf->array, (unsigned long long)piece.y,
				    (unsigned long long)piece.z);
	sum->checked += piece.bytes;
	return 0;
}

/* Write all pieces of array @i. @next: the next entry of the manifest. */
static int array_write(struct fdry_image *img, struct fdry_reader *reader, uint32_t i,
		       const struct fdry_mf_array_piece **next, const void *zeros,
		       struct fdry_content_sum *sum)
{
	const struct fdry_mf_array_piece *end = img->m.array_pieces + img->m.n_array_pieces;
	const struct fdry_cuarray *a = &img->arrays[i];
	struct fdry_cuarray_piece piece;
	uint64_t k, n = fdry_cuarray_pieces(a);
	int err = 0;

	for (k = 0; k < n && !err; k++) {
		if (*next < end && (*next)->array == i && (*next)->piece == k) {
			err = piece_write(img, reader, (*next)++, sum);
			continue;
		}
		piece = fdry_cuarray_piece(a, k);
		err = fdry_cuarray_copy(img->drv, a, &piece, zeros, NULL, img->stream);
	}
	return err;
}

/* The driver reads pageable memory during the call, or before the wait. */
int fdry_image_arrays_content(struct fdry_image *img, struct fdry_reader *reader,
			      struct fdry_content_sum *sum)
{
	const struct fdry_mf_array_piece *next = img->m.array_pieces;
	void *zeros;
	uint32_t i;
	int err = 0, waited;

	if (!img->m.n_arrays)
		return 0;
	zeros = calloc(1, FDRY_MF_CHUNK_MAX);
	if (!zeros)
		return fdry_nomem();
	for (i = 0; i < img->m.n_arrays && !err; i++)
		err = array_write(img, reader, i, &next, zeros, sum);
	if (err) /* the message stays that of the failure */
		(void)fdry_call_raw(img->drv, cuStreamSynchronize, img->stream);
	waited = err ? 0 : fdry_stream_wait(img->drv, img->stream);
	free(zeros);
	return err ? err : waited;
}

void fdry_image_arrays_free(struct fdry_image *img)
{
	uint32_t i;

	for (i = 0; img->arrays && i < img->m.n_arrays; i++) {
		if (img->arrays[i].handle && !fdry_manifest_level(&img->m, i))
			(void)fdry_call_raw(img->drv, cuArrayDestroy, img->arrays[i].handle);
		img->arrays[i].handle = NULL;
	}
	for (i = 0; img->mipmaps && i < img->m.n_mipmaps; i++) {
		if (img->mipmaps[i])
			(void)fdry_call_raw(img->drv, cuMipmappedArrayDestroy, img->mipmaps[i]);
		img->mipmaps[i] = NULL;
	}
}
