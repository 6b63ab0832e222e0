// SPDX-License-Identifier: Apache-2.0
/* array_pieces.c - see array_pieces.h. */
#include "image/array_pieces.h"

#include "lib/search.h"

/* The flags that an array keeps: others belong to other APIs, or have no memory of their own. */
#define FLAGS (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | \
	       CUDA_ARRAY3D_TEXTURE_GATHER)

/* The bytes of an element; 0: the format or the channels are not known. */
static uint32_t element_of(uint32_t format, uint32_t channels)
{
	if (channels != 1 && channels != 2 && channels != 4)
		return 0;
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2 * channels;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4 * channels;
	default:
		return 0;
	}
}

struct fdry_cuarray fdry_cuarray_of(const struct fdry_mf_array *a)
{
	uint32_t element = element_of(a->format, a->channels);

	return (struct fdry_cuarray){ .element = element,
				      .row = (uint64_t)a->width * element,
				      .rows = a->height ? a->height : 1,
				      .slices = a->depth ? a->depth : 1 };
}

const char *fdry_cuarray_fault(const struct fdry_mf_array *a)
{
	struct fdry_cuarray shape = fdry_cuarray_of(a);

	if (!shape.element)
		return "a format that this version does not know";
	if (a->flags & ~(uint32_t)FLAGS)
		return "flags that this version does not know, as of a sparse array or of one for "
		       "another API";
	if (!a->width || a->height > FDRY_MF_EXTENT_MAX || a->depth > FDRY_MF_EXTENT_MAX)
		return "a width, height or depth that no array has";
	if (shape.row > FDRY_MF_CHUNK_MAX)
		return "rows of more than 2 MiB";
	if (fdry_cuarray_bytes(&shape) > FDRY_MF_ARRAY_MAX)
		return "more than 1 TiB";
	return NULL;
}

/* The rows of a piece, if slices are cut; 0: a piece has whole slices. */
static uint64_t piece_rows(const struct fdry_cuarray *a)
{
	return a->row * a->rows > FDRY_MF_CHUNK_MAX ? FDRY_MF_CHUNK_MAX / a->row : 0;
}

static uint64_t parts(uint64_t all, uint64_t part)
{
	return (all + part - 1) / part;
}

uint64_t fdry_cuarray_pieces(const struct fdry_cuarray *a)
{
	uint64_t rows = piece_rows(a);

	return rows ? a->slices * parts(a->rows, rows)
		    : parts(a->slices, FDRY_MF_CHUNK_MAX / (a->row * a->rows));
}

struct fdry_cuarray_piece fdry_cuarray_piece(const struct fdry_cuarray *a, uint64_t i)
{
	struct fdry_cuarray_piece p = { .rows = piece_rows(a), .slices = 1 };
	uint64_t count;

	if (p.rows) {
		count = parts(a->rows, p.rows);
		p.z = i / count;
		p.y = i % count * p.rows;
		if (p.rows > a->rows - p.y)
			p.rows = a->rows - p.y;
	} else {
		p.rows = a->rows;
		p.slices = FDRY_MF_CHUNK_MAX / (a->row * a->rows);
		p.z = i * p.slices;
		if (p.slices > a->slices - p.z)
			p.slices = a->slices - p.z;
	}
	p.bytes = a->row * p.rows * p.slices;
	return p;
}

int fdry_cuarray_copy(const struct fdry_driver *drv, const struct fdry_cuarray *a,
		      const struct fdry_cuarray_piece *piece, const void *from, void *to,
		      CUstream stream)
{
	CUDA_MEMCPY3D p = { .WidthInBytes = a->row, .Height = piece->rows, .Depth = piece->slices };

	if (from) {
		p.srcMemoryType = CU_MEMORYTYPE_HOST;
		p.srcHost = from;
		p.srcPitch = a->row;
		p.srcHeight = piece->rows;
		p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		p.dstArray = a->handle;
		p.dstY = piece->y;
		p.dstZ = piece->z;
	} else {
		p.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		p.srcArray = a->handle;
		p.srcY = piece->y;
		p.srcZ = piece->z;
		p.dstMemoryType = CU_MEMORYTYPE_HOST;
		p.dstHost = to;
		p.dstPitch = a->row;
		p.dstHeight = piece->rows;
	}
	return fdry_call(drv, cuMemcpy3DAsync_v2, &p, stream);
}

/* --- levels of mipmapped arrays --- */

/* Whether depth counts slices, and not layers or faces. */
static bool has_slices(const struct fdry_mf_array *a)
{
	return !(a->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP));
}

static uint32_t extent_of(uint32_t extent, uint32_t level)
{
	return extent && !(extent >> level) ? 1 : extent >> level;
}

struct fdry_mf_array fdry_mipmap_level_of(const struct fdry_mf_mipmap *m, uint32_t level)
{
	struct fdry_mf_array a = m->top;

	a.width = extent_of(a.width, level);
	a.height = extent_of(a.height, level);
	if (has_slices(&a))
		a.depth = extent_of(a.depth, level);
	return a;
}

uint32_t fdry_mipmap_levels(const struct fdry_mf_mipmap *m)
{
	uint32_t extents = m->top.width | m->top.height | (has_slices(&m->top) ? m->top.depth : 0);
	uint32_t most = 32 - (uint32_t)__builtin_clz(extents | 1);

	return m->levels < most ? m->levels : most;
}

const struct fdry_mf_mipmap_level *fdry_manifest_level(const struct fdry_manifest *m,
						       uint32_t array)
{
	const struct fdry_mf_mipmap_level *l = m->mipmap_levels;
	size_t at = fdry_lower_bound(i, m->n_mipmap_levels, l[i].array < array);

	return at < m->n_mipmap_levels && l[at].array == array ? &l[at] : NULL;
}

static uint64_t bytes_of(const struct fdry_mf_array *mf)
{
	struct fdry_cuarray a = fdry_cuarray_of(mf);

	return fdry_cuarray_bytes(&a);
}

/* Cannot overflow: there are at most 2^16 arrays and 2^21 levels, of 2^40 bytes each. */
uint64_t fdry_manifest_arrays_bytes(const struct fdry_manifest *m)
{
	struct fdry_mf_array a;
	uint64_t sum = 0;
	uint32_t i, k;

	for (i = 0; i < m->n_arrays; i++)
		if (!fdry_manifest_level(m, i))
			sum += bytes_of(&m->arrays[i]);
	for (i = 0; i < m->n_mipmaps; i++)
		for (k = 0; k < fdry_mipmap_levels(&m->mipmaps[i]); k++) {
			a = fdry_mipmap_level_of(&m->mipmaps[i], k);
			sum += bytes_of(&a);
		}
	return sum;
}
