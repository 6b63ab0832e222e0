// SPDX-License-Identifier: Apache-2.0
/*
 * node_memcpy.c - memcpy nodes, with one record each. Copies may use device memory of the region,
 * host memory that the image has segments for, and CUDA arrays that the image has.
 *
 * A record's addresses include the driver's x, y and z offsets. Fields that the driver ignores
 * (pitches of a single row, slice heights of a single slice) have one fixed value. An array has
 * neither pitch nor slice height: their fields hold y and z.
 */
#include <inttypes.h>

#include "graph/build.h"
#include "graph/read.h"
#include "graph/text.h"

/* One side of a copy, as the driver has it. */
struct side {
	const char *name;
	CUmemorytype type;
	uint64_t addr, pitch, height, x, y, z, lod;
	CUarray array;
};

/* The number of bytes from the first to the last that the copy reads or writes at @addr. False if
 * they overflow the address space, or in host memory the segment. */
static bool copy_extent(const struct fdry_graph_memcpy *m, uint64_t addr, uint64_t pitch,
			uint64_t height, uint64_t *ret)
{
	uint64_t rows, limit = FDRY_HOST_PLACE - addr;

	if (fdry_host_is(addr))
		limit = FDRY_HOST_SIZE_MAX - fdry_host_offset(addr);
	return !__builtin_mul_overflow(m->depth - 1, height, &rows) &&
	       !__builtin_add_overflow(rows, m->height - 1, &rows) &&
	       !__builtin_mul_overflow(rows, pitch, ret) &&
	       !__builtin_add_overflow(*ret, m->width, ret) && *ret <= limit;
}

static bool part_fits(uint64_t at, uint64_t size, uint64_t all)
{
	return at <= all && size <= all - at;
}

/* Whether @array has the part that the copy reads or writes, in whole elements. @y, @z: its first
 * row and slice. */
static bool array_holds(const struct fdry_cuarray *array, const struct fdry_graph_memcpy *m,
			uint64_t x, uint64_t y, uint64_t z)
{
	return x % array->element == 0 && m->width % array->element == 0 &&
	       part_fits(x, m->width, array->row) && part_fits(y, m->height, array->rows) &&
	       part_fits(z, m->depth, array->slices);
}

/* The largest array that a record can name a part of. */
static const struct fdry_cuarray largest = {
	.element = 1, .rows = UINT32_MAX, .slices = UINT32_MAX, .row = FDRY_CUARRAY_X_MAX,
};

/* The fault of one side of a record in canonical form, or NULL. */
static const char *side_fault(const struct fdry_graph_memcpy *m, uint64_t place, uint64_t pitch,
			      uint64_t height)
{
	bool row = m->height == 1 && m->depth == 1;
	uint64_t extent;

	if (fdry_cuarray_is(place))
		return array_holds(&largest, m, fdry_cuarray_x(place), pitch, height)
			       ? NULL
			       : "a size that does not fit an array";
	if (pitch < m->width || (row && pitch != m->width))
		return "a pitch that does not fit its width";
	if (height < m->height || (m->depth == 1 && height != m->height))
		return "a slice height that does not fit its height";
	if (!copy_extent(m, place, pitch, height, &extent))
		return "a size that does not fit the address space";
	return NULL;
}

/* The fault of a record in canonical form, or NULL. */
static const char *memcpy_fault(const struct fdry_graph_memcpy *m)
{
	const char *fault;

	if (!m->width || !m->height || !m->depth)
		return "a size of 0";
	fault = side_fault(m, m->src, m->src_pitch, m->src_height);
	return fault ? fault : side_fault(m, m->dst, m->dst_pitch, m->dst_height);
}

/* Let the address be a place in array 0: its number is not known yet. */
static int side_fold_array(struct side *s)
{
	if (s->x >= FDRY_CUARRAY_X_MAX)
		return fdry_fail(FDRY_E_REFUSED, "its %s lies beyond any array", s->name);
	s->addr = fdry_cuarray_place(0, s->x);
	return 0;
}

/* Add the x, y and z offsets to the address. */
static int side_fold(struct side *s)
{
	uint64_t off;

	if (s->type < CU_MEMORYTYPE_HOST || s->type > CU_MEMORYTYPE_UNIFIED)
		return fdry_fail(FDRY_E_REFUSED,
				 "its %s is memory of type %d, which this version does not know; "
				 "use a newer version",
				 s->name, (int)s->type);
	if (s->lod)
		return fdry_fail(FDRY_E_REFUSED,
				 "its %s has a level of detail, which only mipmapped arrays have",
				 s->name);
	if (s->type == CU_MEMORYTYPE_ARRAY)
		return side_fold_array(s);
	if (__builtin_mul_overflow(s->z, s->height, &off) ||
	    __builtin_add_overflow(off, s->y, &off) ||
	    __builtin_mul_overflow(off, s->pitch, &off) ||
	    __builtin_add_overflow(off, s->x, &off) ||
	    __builtin_add_overflow(off, s->addr, &s->addr) || !fdry_place_is_device(s->addr))
		return fdry_fail(FDRY_E_REFUSED, "its %s lies beyond the address space", s->name);
	return 0;
}

/* The driver has two fields for an address; the type of the memory selects one. */
static uint64_t side_addr(CUmemorytype type, CUdeviceptr device, const void *host)
{
	return type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : device;
}

static int sides_fold(const CUDA_MEMCPY3D *p, struct side *src, struct side *dst)
{
	int err;

	*src = (struct side){
		"source", p->srcMemoryType, side_addr(p->srcMemoryType, p->srcDevice, p->srcHost),
		p->srcPitch, p->srcHeight, p->srcXInBytes, p->srcY, p->srcZ, p->srcLOD, p->srcArray,
	};
	*dst = (struct side){
		"destination", p->dstMemoryType,
		side_addr(p->dstMemoryType, p->dstDevice, p->dstHost),
		p->dstPitch, p->dstHeight, p->dstXInBytes, p->dstY, p->dstZ, p->dstLOD, p->dstArray,
	};
	err = side_fold(src);
	return err ? err : side_fold(dst);
}

/* The pitch and slice height of a side in canonical form; of an array y and z. */
static uint64_t side_pitch(const CUDA_MEMCPY3D *p, const struct side *s)
{
	if (s->type == CU_MEMORYTYPE_ARRAY)
		return s->y;
	return p->Height == 1 && p->Depth == 1 ? p->WidthInBytes : s->pitch;
}

static uint64_t side_height(const CUDA_MEMCPY3D *p, const struct side *s)
{
	if (s->type == CU_MEMORYTYPE_ARRAY)
		return s->z;
	return p->Depth == 1 ? p->Height : s->height;
}

static struct fdry_graph_memcpy memcpy_canonical(const CUDA_MEMCPY3D *p, const struct side *src,
						 const struct side *dst)
{
	return (struct fdry_graph_memcpy){
		.src = src->addr,
		.src_pitch = side_pitch(p, src),
		.src_height = side_height(p, src),
		.dst = dst->addr,
		.dst_pitch = side_pitch(p, dst),
		.dst_height = side_height(p, dst),
		.width = p->WidthInBytes, .height = p->Height, .depth = p->Depth,
	};
}

/* Find the array of a side, and check the copy against it: later, a load would refuse what this
 * driver may have accepted. */
static int side_find_array(struct fdry_read *rd, const struct side *s,
			   const struct fdry_graph_memcpy *m, uint64_t *place)
{
	struct fdry_cuarray array;
	uint32_t number = 0;
	int err = fdry_read_array(rd, rd->current, s->array, &number, &array);

	if (err)
		return fdry_fail_at(err, "its %s", s->name);
	if (!array_holds(&array, m, s->x, s->y, s->z))
		return fdry_fail(FDRY_E_REFUSED,
				 "its %s lies beyond the array, or is not of whole elements; "
				 "remove it", s->name);
	*place = fdry_cuarray_place(number, s->x);
	return 0;
}

/* Find the memory of a side; *@place becomes its place. */
static int side_find(struct fdry_read *rd, const struct side *s, const struct fdry_graph_memcpy *m,
		     uint64_t *place)
{
	uint64_t extent = 0;

	if (s->type == CU_MEMORYTYPE_ARRAY)
		return side_find_array(rd, s, m, place);
	copy_extent(m, *place, place == &m->src ? m->src_pitch : m->dst_pitch,
		    place == &m->src ? m->src_height : m->dst_height, &extent);
	return fdry_read_place(rd, place == &m->src ? "its source" : "its destination", s->type,
			       extent, place);
}

static int memcpy_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	struct side src, dst;
	CUDA_MEMCPY3D p;
	const char *fault;
	int err;

	memset(&p, 0, sizeof(p));
	err = fdry_call(rd->drv, cuGraphMemcpyNodeGetParams, handle, &p);
	if (err)
		return err;
	err = sides_fold(&p, &src, &dst);
	if (err)
		return err;
	ret->memcpy = memcpy_canonical(&p, &src, &dst);
	fault = memcpy_fault(&ret->memcpy);
	if (fault)
		return fdry_fail(FDRY_E_REFUSED, "it has %s; remove it or copy with a kernel",
				 fault);
	err = side_find(rd, &src, &ret->memcpy, &ret->memcpy.src);
	return err ? err : side_find(rd, &dst, &ret->memcpy, &ret->memcpy.dst);
}

static int memcpy_put(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	return fdry_buf_put(&enc->column[FDRY_GSEC_MEMCPY], &node->memcpy, sizeof(node->memcpy));
}

static void memcpy_at(const struct fdry_graph_view *v, uint32_t i, struct fdry_graph_memcpy *ret)
{
	memcpy(ret, v->section[FDRY_GSEC_MEMCPY] + sizeof(*ret) * (size_t)i, sizeof(*ret));
}

static int place_check(uint32_t i, uint64_t place)
{
	if (fdry_host_is(place) && fdry_host_segment(place) >= FDRY_HOST_SEGMENTS_MAX)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "memcpy node %u names host segment %u, more than the limit of %u",
				 i, fdry_host_segment(place), FDRY_HOST_SEGMENTS_MAX);
	if (fdry_cuarray_is(place) && fdry_cuarray_number(place) >= FDRY_CUARRAYS_MAX)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "memcpy node %u names array %u, more than the limit of %u", i,
				 fdry_cuarray_number(place), FDRY_CUARRAYS_MAX);
	return 0;
}

/* @found: the features that a reader of the copies must know. */
static int features_check(const struct fdry_graph_view *v, uint32_t found)
{
	static const struct {
		uint32_t bit;
		const char *what;
	} all[] = { { FDRY_GRAPH_INCOMPAT_HOST, "host memory" },
		    { FDRY_GRAPH_INCOMPAT_ARRAYS, "arrays" } };
	size_t i;

	for (i = 0; i < 2; i++)
		if ((v->header.incompat ^ found) & all[i].bit)
			return fdry_fail(FDRY_E_BADIMAGE,
					 "its copies %s %s, but its header says otherwise",
					 found & all[i].bit ? "use" : "do not use", all[i].what);
	return 0;
}

static int memcpy_check(const struct fdry_graph_view *v)
{
	struct fdry_graph_memcpy m;
	const char *fault;
	uint32_t i, found = 0;
	int err;

	for (i = 0; i < v->header.memcpy_nodes; i++) {
		memcpy_at(v, i, &m);
		fault = memcpy_fault(&m);
		if (fault)
			return fdry_fail(FDRY_E_BADIMAGE, "memcpy node %u has %s", i, fault);
		err = place_check(i, m.src);
		if (err)
			return err;
		err = place_check(i, m.dst);
		if (err)
			return err;
		if (fdry_host_is(m.src) || fdry_host_is(m.dst))
			found |= FDRY_GRAPH_INCOMPAT_HOST;
		if (fdry_cuarray_is(m.src) || fdry_cuarray_is(m.dst))
			found |= FDRY_GRAPH_INCOMPAT_ARRAYS;
	}
	return features_check(v, found);
}

static bool side_is_inside(const struct fdry_host_segment *hosts, uint32_t count, uint64_t place,
			   uint64_t bytes)
{
	return !fdry_host_is(place) || fdry_host_holds(hosts, count, place, bytes);
}

int fdry_graph_view_check_hosts(const struct fdry_graph_view *v,
				const struct fdry_host_segment *hosts, uint32_t count)
{
	struct fdry_graph_memcpy m;
	uint64_t src = 0, dst = 0;
	uint32_t i;

	for (i = 0; i < v->header.memcpy_nodes; i++) {
		memcpy_at(v, i, &m);
		copy_extent(&m, m.src, m.src_pitch, m.src_height, &src);
		copy_extent(&m, m.dst, m.dst_pitch, m.dst_height, &dst);
		if (!side_is_inside(hosts, count, m.src, src) ||
		    !side_is_inside(hosts, count, m.dst, dst))
			return fdry_fail(
				FDRY_E_BADIMAGE,
				"memcpy node %u copies beyond the image's %u host segments", i,
				count);
	}
	return 0;
}

static bool side_has_array(const struct fdry_cuarray *arrays, uint32_t count,
			   const struct fdry_graph_memcpy *m, bool src)
{
	uint64_t place = src ? m->src : m->dst;
	uint32_t number = fdry_cuarray_number(place);

	return !fdry_cuarray_is(place) ||
	       (number < count && array_holds(&arrays[number], m, fdry_cuarray_x(place),
					      src ? m->src_pitch : m->dst_pitch,
					      src ? m->src_height : m->dst_height));
}

int fdry_graph_view_check_arrays(const struct fdry_graph_view *v,
				 const struct fdry_cuarray *arrays, uint32_t count)
{
	struct fdry_graph_memcpy m;
	uint32_t i;

	for (i = 0; i < v->header.memcpy_nodes; i++) {
		memcpy_at(v, i, &m);
		if (!side_has_array(arrays, count, &m, true) ||
		    !side_has_array(arrays, count, &m, false))
			return fdry_fail(FDRY_E_BADIMAGE,
					 "memcpy node %u copies beyond the image's %u arrays", i,
					 count);
	}
	return 0;
}

static void memcpy_get(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	memcpy_at(c->v, c->next[FDRY_NODE_MEMCPY]++, &ret->memcpy);
}

/* The address of a checked place in host memory; NULL for another place. */
static void *host_pointer(const struct fdry_graph_builder *in, uint64_t place)
{
	if (!fdry_host_is(place))
		return NULL;
	return (void *)(uintptr_t)(in->hosts[fdry_host_segment(place)].addr +
				   fdry_host_offset(place));
}

static void src_set(const struct fdry_graph_builder *in, const struct fdry_graph_memcpy *m,
		    CUDA_MEMCPY3D *p)
{
	if (fdry_cuarray_is(m->src)) {
		p->srcMemoryType = CU_MEMORYTYPE_ARRAY;
		p->srcArray = in->arrays[fdry_cuarray_number(m->src)].handle;
		p->srcXInBytes = fdry_cuarray_x(m->src);
		p->srcY = m->src_pitch;
		p->srcZ = m->src_height;
		return;
	}
	p->srcHost = host_pointer(in, m->src);
	p->srcMemoryType = p->srcHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	p->srcDevice = p->srcHost ? 0 : m->src;
	p->srcPitch = m->src_pitch;
	p->srcHeight = m->src_height;
}

static void dst_set(const struct fdry_graph_builder *in, const struct fdry_graph_memcpy *m,
		    CUDA_MEMCPY3D *p)
{
	if (fdry_cuarray_is(m->dst)) {
		p->dstMemoryType = CU_MEMORYTYPE_ARRAY;
		p->dstArray = in->arrays[fdry_cuarray_number(m->dst)].handle;
		p->dstXInBytes = fdry_cuarray_x(m->dst);
		p->dstY = m->dst_pitch;
		p->dstZ = m->dst_height;
		return;
	}
	p->dstHost = host_pointer(in, m->dst);
	p->dstMemoryType = p->dstHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	p->dstDevice = p->dstHost ? 0 : m->dst;
	p->dstPitch = m->dst_pitch;
	p->dstHeight = m->dst_height;
}

static int memcpy_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	const struct fdry_graph_memcpy *m = &node->memcpy;
	CUDA_MEMCPY3D p = { .WidthInBytes = m->width, .Height = m->height, .Depth = m->depth };

	src_set(b->in, m, &p);
	dst_set(b->in, m, &p);
	return fdry_call(b->drv, cuGraphAddMemcpyNode, ret, b->graph, NULL, 0, &p, b->in->ctx);
}

/* --- text --- */

/* PLACE, and two numbers, whose names differ in arrays. */
static int side_to_text(const char *name, uint64_t place, uint64_t pitch, uint64_t height,
			struct fdry_buf *ret)
{
	bool array = fdry_cuarray_is(place);
	int err;

	if (fdry_host_is(place))
		err = fdry_buf_printf(ret, " %s host %u 0x%" PRIx64, name,
				      fdry_host_segment(place), fdry_host_offset(place));
	else if (array)
		err = fdry_buf_printf(ret, " %s array %u 0x%" PRIx64, name,
				      fdry_cuarray_number(place), fdry_cuarray_x(place));
	else
		err = fdry_buf_printf(ret, " %s 0x%" PRIx64, name, place);
	return err ? err
		   : fdry_buf_printf(ret, " %s_%s %" PRIu64 " %s_%s %" PRIu64, name,
				     array ? "y" : "pitch", pitch, name, array ? "z" : "height",
				     height);
}

static int place_from_text(struct fdry_words *w, const char *name, uint64_t *ret)
{
	uint64_t number = 0, offset = 0;
	bool host;
	int err = fdry_word_expect(w, name);

	if (err)
		return err;
	host = fdry_word_is(w, "host");
	if (!host && !fdry_word_is(w, "array"))
		return fdry_word_u64(w, name, FDRY_HOST_PLACE - 1, ret);
	err = host ? fdry_word_u64(w, "the host segment", FDRY_HOST_SEGMENTS_MAX - 1, &number)
		   : fdry_word_u64(w, "the array", FDRY_CUARRAYS_MAX - 1, &number);
	if (err)
		return err;
	err = fdry_word_u64(w, "the offset", FDRY_HOST_SIZE_MAX - 1, &offset);
	if (err)
		return err;
	*ret = host ? fdry_host_place((uint32_t)number, offset)
		    : fdry_cuarray_place((uint32_t)number, offset);
	return 0;
}

/* @names: of the place, of pitch and height, and of y and z. */
static int side_from_text(struct fdry_words *w, const char *const names[5], uint64_t *place,
			  uint64_t *pitch, uint64_t *height)
{
	size_t first;
	int err = place_from_text(w, names[0], place);

	if (err)
		return err;
	first = fdry_cuarray_is(*place) ? 3 : 1;
	err = fdry_named_u64(w, names[first], pitch);
	return err ? err : fdry_named_u64(w, names[first + 1], height);
}

static int memcpy_to_text(const struct fdry_node *node, struct fdry_buf *ret)
{
	const struct fdry_graph_memcpy *m = &node->memcpy;
	int err = side_to_text("src", m->src, m->src_pitch, m->src_height, ret);

	if (err)
		return err;
	err = side_to_text("dst", m->dst, m->dst_pitch, m->dst_height, ret);
	if (err)
		return err;
	return fdry_buf_printf(ret, " width %" PRIu64 " height %" PRIu64 " depth %" PRIu64,
			       m->width, m->height, m->depth);
}

#define NAMES(side) \
	(const char *const[]){ side, side "_pitch", side "_height", side "_y", side "_z" }

static int memcpy_from_text(struct fdry_text *t, struct fdry_node *ret)
{
	struct fdry_graph_memcpy *m = &ret->memcpy;
	int err = side_from_text(&t->w, NAMES("src"), &m->src, &m->src_pitch, &m->src_height);

	if (err)
		return err;
	err = side_from_text(&t->w, NAMES("dst"), &m->dst, &m->dst_pitch, &m->dst_height);
	if (err)
		return err;
	err = fdry_named_u64(&t->w, "width", &m->width);
	if (err)
		return err;
	err = fdry_named_u64(&t->w, "height", &m->height);
	return err ? err : fdry_named_u64(&t->w, "depth", &m->depth);
}

const struct fdry_node_ops fdry_node_memcpy_ops = {
	.name = "memcpy",
	.read = memcpy_read,
	.put = memcpy_put,
	.check = memcpy_check,
	.get = memcpy_get,
	.build = memcpy_build,
	.to_text = memcpy_to_text,
	.from_text = memcpy_from_text,
};
