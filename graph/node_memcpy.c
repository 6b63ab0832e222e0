// SPDX-License-Identifier: Apache-2.0
/*
 * node_memcpy.c - memcpy nodes, with one record each. Copies may use device memory of the region
 * and host memory that the image has segments for.
 *
 * A record's addresses include the driver's x, y and z offsets. Fields that the driver ignores
 * (pitches of a single row, slice heights of a single slice) have one fixed value.
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

/* The fault of a record in canonical form, or NULL. */
static const char *memcpy_fault(const struct fdry_graph_memcpy *m)
{
	bool row = m->height == 1 && m->depth == 1;
	uint64_t extent;

	if (!m->width || !m->height || !m->depth)
		return "a size of 0";
	if (m->src_pitch < m->width || m->dst_pitch < m->width ||
	    (row && (m->src_pitch != m->width || m->dst_pitch != m->width)))
		return "a pitch that does not fit its width";
	if (m->src_height < m->height || m->dst_height < m->height ||
	    (m->depth == 1 && (m->src_height != m->height || m->dst_height != m->height)))
		return "a slice height that does not fit its height";
	if (!copy_extent(m, m->src, m->src_pitch, m->src_height, &extent) ||
	    !copy_extent(m, m->dst, m->dst_pitch, m->dst_height, &extent))
		return "a size that does not fit the address space";
	return NULL;
}

static int side_refuse(const struct side *s)
{
	if (s->type == CU_MEMORYTYPE_ARRAY)
		return fdry_fail(FDRY_E_REFUSED,
				 "its %s is a CUDA array, which an image cannot hold; use linear "
				 "device memory",
				 s->name);
	return fdry_fail(FDRY_E_REFUSED,
			 "its %s is memory of type %d, which this version does not know; "
			 "use a newer version",
			 s->name, (int)s->type);
}

/* Add the x, y and z offsets to the address. */
static int side_fold(struct side *s)
{
	uint64_t off;

	if (s->type != CU_MEMORYTYPE_HOST && s->type != CU_MEMORYTYPE_DEVICE &&
	    s->type != CU_MEMORYTYPE_UNIFIED)
		return side_refuse(s);
	if (s->lod)
		return fdry_fail(FDRY_E_REFUSED,
				 "its %s has a level of detail, which only arrays have", s->name);
	if (__builtin_mul_overflow(s->z, s->height, &off) ||
	    __builtin_add_overflow(off, s->y, &off) ||
	    __builtin_mul_overflow(off, s->pitch, &off) ||
	    __builtin_add_overflow(off, s->x, &off) ||
	    __builtin_add_overflow(off, s->addr, &s->addr) || fdry_host_is(s->addr))
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
		p->srcPitch, p->srcHeight, p->srcXInBytes, p->srcY, p->srcZ, p->srcLOD,
	};
	*dst = (struct side){
		"destination", p->dstMemoryType,
		side_addr(p->dstMemoryType, p->dstDevice, p->dstHost),
		p->dstPitch, p->dstHeight, p->dstXInBytes, p->dstY, p->dstZ, p->dstLOD,
	};
	err = side_fold(src);
	return err ? err : side_fold(dst);
}

static struct fdry_graph_memcpy memcpy_canonical(const CUDA_MEMCPY3D *p, const struct side *src,
						 const struct side *dst)
{
	bool row = p->Height == 1 && p->Depth == 1;

	return (struct fdry_graph_memcpy){
		.src = src->addr,
		.src_pitch = row ? p->WidthInBytes : src->pitch,
		.src_height = p->Depth == 1 ? p->Height : src->height,
		.dst = dst->addr,
		.dst_pitch = row ? p->WidthInBytes : dst->pitch,
		.dst_height = p->Depth == 1 ? p->Height : dst->height,
		.width = p->WidthInBytes, .height = p->Height, .depth = p->Depth,
	};
}

static int memcpy_places(struct fdry_read *rd, const CUDA_MEMCPY3D *p, struct fdry_graph_memcpy *m)
{
	uint64_t extent = 0;
	int err;

	copy_extent(m, m->src, m->src_pitch, m->src_height, &extent);
	err = fdry_read_place(rd, "its source", p->srcMemoryType, extent, &m->src);
	if (err)
		return err;
	copy_extent(m, m->dst, m->dst_pitch, m->dst_height, &extent);
	return fdry_read_place(rd, "its destination", p->dstMemoryType, extent, &m->dst);
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
	return memcpy_places(rd, &p, &ret->memcpy);
}

static int memcpy_put(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	return fdry_buf_put(&enc->column[FDRY_GSEC_MEMCPY], &node->memcpy, sizeof(node->memcpy));
}

static void memcpy_at(const struct fdry_graph_view *v, uint32_t i, struct fdry_graph_memcpy *ret)
{
	memcpy(ret, v->section[FDRY_GSEC_MEMCPY] + sizeof(*ret) * (size_t)i, sizeof(*ret));
}

static int host_check(uint32_t i, uint64_t place)
{
	if (fdry_host_is(place) && fdry_host_segment(place) >= FDRY_HOST_SEGMENTS_MAX)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "memcpy node %u names host segment %u, more than the limit of %u",
				 i, fdry_host_segment(place), FDRY_HOST_SEGMENTS_MAX);
	return 0;
}

static int memcpy_check(const struct fdry_graph_view *v)
{
	bool host = v->header.incompat & FDRY_GRAPH_INCOMPAT_HOST, found = false;
	struct fdry_graph_memcpy m;
	const char *fault;
	uint32_t i;
	int err;

	for (i = 0; i < v->header.memcpy_nodes; i++) {
		memcpy_at(v, i, &m);
		fault = memcpy_fault(&m);
		if (fault)
			return fdry_fail(FDRY_E_BADIMAGE, "memcpy node %u has %s", i, fault);
		err = host_check(i, m.src);
		if (err)
			return err;
		err = host_check(i, m.dst);
		if (err)
			return err;
		found |= fdry_host_is(m.src) || fdry_host_is(m.dst);
	}
	if (found != host)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "its copies %s host memory, but its header says otherwise",
				 found ? "use" : "do not use");
	return 0;
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

static void memcpy_get(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	memcpy_at(c->v, c->next[FDRY_NODE_MEMCPY]++, &ret->memcpy);
}

/* The address of a checked place in host memory; NULL for a device address. */
static void *host_pointer(const struct fdry_graph_builder *in, uint64_t place)
{
	if (!fdry_host_is(place))
		return NULL;
	return (void *)(uintptr_t)(in->hosts[fdry_host_segment(place)].addr +
				   fdry_host_offset(place));
}

static int memcpy_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	const struct fdry_graph_memcpy *m = &node->memcpy;
	CUDA_MEMCPY3D p = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = m->src,
		.srcPitch = m->src_pitch,
		.srcHeight = m->src_height,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = m->dst,
		.dstPitch = m->dst_pitch,
		.dstHeight = m->dst_height,
		.WidthInBytes = m->width,
		.Height = m->height,
		.Depth = m->depth,
	};

	p.srcHost = host_pointer(b->in, m->src);
	p.dstHost = host_pointer(b->in, m->dst);
	if (p.srcHost) {
		p.srcMemoryType = CU_MEMORYTYPE_HOST;
		p.srcDevice = 0;
	}
	if (p.dstHost) {
		p.dstMemoryType = CU_MEMORYTYPE_HOST;
		p.dstDevice = 0;
	}
	return fdry_call(b->drv, cuGraphAddMemcpyNode, ret, b->graph, NULL, 0, &p, b->in->ctx);
}

/* --- text --- */

static int place_to_text(const char *name, uint64_t place, struct fdry_buf *ret)
{
	if (fdry_host_is(place))
		return fdry_buf_printf(ret, " %s host %u 0x%" PRIx64, name,
				       fdry_host_segment(place), fdry_host_offset(place));
	return fdry_buf_printf(ret, " %s 0x%" PRIx64, name, place);
}

static int place_from_text(struct fdry_words *w, const char *name, uint64_t *ret)
{
	uint64_t segment = 0, offset = 0;
	int err = fdry_word_expect(w, name);

	if (err)
		return err;
	if (!fdry_word_is(w, "host"))
		return fdry_word_u64(w, name, FDRY_HOST_PLACE - 1, ret);
	err = fdry_word_u64(w, "the host segment", FDRY_HOST_SEGMENTS_MAX - 1, &segment);
	if (err)
		return err;
	err = fdry_word_u64(w, "the offset", FDRY_HOST_SIZE_MAX - 1, &offset);
	if (err)
		return err;
	*ret = fdry_host_place((uint32_t)segment, offset);
	return 0;
}

/* The fields in their order in text. */
#define FIELDS(PLACE, X) \
	PLACE(src) X(src_pitch) X(src_height) PLACE(dst) X(dst_pitch) X(dst_height) \
	X(width) X(height) X(depth)

static int memcpy_to_text(const struct fdry_node *node, struct fdry_buf *ret)
{
	const struct fdry_graph_memcpy *m = &node->memcpy;
	int err;

#define PLACE(field) \
	err = place_to_text(#field, m->field, ret); \
	if (err) \
		return err;
#define X(field) \
	err = fdry_buf_printf(ret, " " #field " %" PRIu64, m->field); \
	if (err) \
		return err;
	FIELDS(PLACE, X)
#undef X
#undef PLACE
	return 0;
}

static int memcpy_from_text(struct fdry_text *t, struct fdry_node *ret)
{
	int err;

#define PLACE(field) \
	err = place_from_text(&t->w, #field, &ret->memcpy.field); \
	if (err) \
		return err;
#define X(field) \
	err = fdry_named_u64(&t->w, #field, &ret->memcpy.field); \
	if (err) \
		return err;
	FIELDS(PLACE, X)
#undef X
#undef PLACE
	return 0;
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
