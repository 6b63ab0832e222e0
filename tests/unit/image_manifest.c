// SPDX-License-Identifier: Apache-2.0
/* Unit tests of manifests: canonical bytes, every check of the reader, look-ups. */
#include "image/describe.c"

#include <stdlib.h>
#include <string.h>

#include "image/manifest.h"
#include "graph/kernel.h"
#include "mm/region.h"
#include "tests/lib/test.h"

#define BASE 0x500000000000ull

static uint32_t str(struct fdry_manifest_writer *w, const char *s)
{
	uint32_t off = 0;

	ok(fdry_manifest_add_str(w, s, &off));
	return off;
}

#define put(buf, ...) \
	ok(fdry_buf_put(&(buf), &(__VA_ARGS__), sizeof(__VA_ARGS__)))

static struct fdry_oid oid(uint8_t b)
{
	struct fdry_oid o;

	memset(&o, b, sizeof(o));
	return o;
}

static void fill(struct fdry_manifest_writer *w)
{
	w->base = BASE;
	w->end = BASE + 0x600000;
	put(w->facts, (struct fdry_mf_fact){ str(w, "arch"), str(w, "sm_90") });
	put(w->facts, (struct fdry_mf_fact){ str(w, "model"), str(w, "m") });
	put(w->limits, (struct fdry_mf_limit){ .limit = 0, .value = 1024 });
	put(w->segments, (struct fdry_mf_segment){ BASE, 0x200000, FDRY_ROLE_CONTENT, 0 });
	put(w->segments, (struct fdry_mf_segment){ BASE + 0x200000, 0x1000, FDRY_ROLE_SCRATCH, 0 });
	put(w->segments,
	    (struct fdry_mf_segment){ BASE + 0x400000, 0x200000, FDRY_ROLE_EXTERNAL, 0 });
	put(w->chunks, (struct fdry_mf_chunk){ BASE, 4096, oid(1) });
	put(w->chunks, (struct fdry_mf_chunk){ BASE + 8192, 100, oid(2) });
	put(w->tensors, (struct fdry_mf_tensor){ .name = str(w, "in"), .dtype = FDRY_F32, .rank = 2,
						 .addr = BASE, .shape = { 3, 5 },
						 .stride = { 5, 1 } });
	put(w->tensors, (struct fdry_mf_tensor){ .name = str(w, "out"), .dtype = FDRY_I64,
						 .use = FDRY_USE_OUTPUT,
						 .addr = BASE + 64 });
	put(w->graphs, (struct fdry_mf_graph){ 1, str(w, ""), 10, oid(3) });
	put(w->graphs, (struct fdry_mf_graph){ 8, str(w, "eight"), 20, oid(4) });
	put(w->kernels, (struct fdry_mf_kernel){ .name = str(w, "k"), .param_count = 2,
						 .param_bytes = 12,
						 .whole_reason = str(w, "because") });
	put(w->params, (struct fdry_mf_param){ 0, 8 });
	put(w->params, (struct fdry_mf_param){ 8, 4 });
	put(w->objects, (struct fdry_mf_object){ oid(5) });
}

static struct fdry_buf made(void)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };

	fill(&w);
	ok(fdry_manifest_encode(&w, &b));
	fdry_manifest_writer_release(&w);
	return b;
}

static int open_it(const struct fdry_buf *b, struct fdry_manifest *m)
{
	return fdry_manifest_init((struct fdry_span){ b->data, b->len }, m);
}

START_TEST(a_written_manifest_can_be_read)
{
	struct fdry_buf b = made();
	struct fdry_manifest m;
	struct fdry_tensor t;

	ok(open_it(&b, &m));
	ck_assert_uint_eq(m.header->base, BASE);
	ck_assert_uint_eq(m.n_segments, 3);
	ck_assert_str_eq(fdry_manifest_fact(&m, "arch"), "sm_90");
	ck_assert_str_eq(fdry_manifest_fact(&m, "model"), "m");
	ck_assert_ptr_null(fdry_manifest_fact(&m, "nothing"));
	ck_assert_uint_eq(fdry_manifest_graph(&m, 8)->nodes, 20);
	ck_assert_ptr_null(fdry_manifest_graph(&m, 2));
	ck_assert_ptr_null(fdry_manifest_tensor(&m, "inn"));
	fdry_manifest_tensor_get(&m, fdry_manifest_tensor(&m, "in"), &t);
	ck_assert_str_eq(t.name, "in");
	ck_assert_int_eq(t.shape[1], 5);
	ck_assert_str_eq(fdry_manifest_str(&m, m.kernels[0].whole_reason), "because");
	fdry_buf_release(&b);
}
END_TEST

/* The bytes are frozen: a change here is a change of the format. */
START_TEST(golden_bytes)
{
	struct fdry_buf b = made(), again = made();
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid id;

	ck_assert_uint_eq(b.len, again.len);
	ck_assert_mem_eq(b.data, again.data, b.len);
	ok(fdry_oid_of(b.data, b.len, &id));
	ck_assert_str_eq(fdry_oid_hex(&id, hex),
			 "54ec80e232596ae0579a2e08dcb1e177037b8aea5450aaf9c21ed8513c3a2015");
	fdry_buf_release(&b);
	fdry_buf_release(&again);
}
END_TEST

/* Check the id and the 7 links of the manifest that @fill_it makes. Returns its bytes, which @m
 * reads. */
static struct fdry_buf golden_check(void (*fill_it)(struct fdry_manifest_writer *w),
				    const char *want, struct fdry_manifest *m)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_oid id, *links;
	struct fdry_buf b = { 0 };
	char hex[FDRY_OID_HEX_SIZE];
	size_t n;

	fill_it(&w);
	ok(fdry_manifest_encode(&w, &b));
	ok(fdry_oid_of(b.data, b.len, &id));
	ck_assert_str_eq(fdry_oid_hex(&id, hex), want);
	ok(open_it(&b, m));
	ok(fdry_manifest_links(m, &links, &n));
	ck_assert_uint_eq(n, 7);
	free(links);
	fdry_manifest_writer_release(&w);
	return b;
}

/* The same with host memory: an input, and a constant in a segment of its own. */
static void fill_hosts(struct fdry_manifest_writer *w)
{
	fill(w);
	put(w->hosts, (struct fdry_mf_host){ .size = 5000, .align = 256 });
	put(w->hosts, (struct fdry_mf_host){ .size = 3ull << 20, .align = 4096 });
	put(w->host_chunks,
	    (struct fdry_mf_host_chunk){ .segment = 1, .size = 2 << 20, .oid = oid(6) });
	put(w->host_chunks,
	    (struct fdry_mf_host_chunk){
		    .segment = 1, .offset = 2 << 20, .size = 1 << 20, .oid = oid(7) });
	put(w->tensors, (struct fdry_mf_tensor){ .name = str(w, "p"), .dtype = FDRY_U8, .rank = 1,
						 .addr = fdry_host_place(0, 8),
						 .flags = FDRY_TENSOR_HOST | FDRY_TENSOR_EXTERNAL,
						 .shape = { 4992 }, .stride = { 1 } });
	put(w->tensors, (struct fdry_mf_tensor){ .name = str(w, "q"), .dtype = FDRY_U8,
						 .use = FDRY_USE_CONST, .rank = 1,
						 .flags = FDRY_TENSOR_HOST,
						 .addr = fdry_host_place(1, 0),
						 .shape = { 3 << 20 }, .stride = { 1 } });
}

START_TEST(golden_bytes_with_hosts)
{
	struct fdry_manifest m;
	struct fdry_buf text = { 0 }, b = golden_check(
		fill_hosts, "8c1b6fa9af5710ef9f1caebf95b1c776360eed09249596981e374956000e8227",
		&m);

	ok(manifest_text(&m, &text));
	ck_assert_ptr_nonnull(strstr((char *)text.data, "host segment 1 3145728\n"));
	ck_assert_ptr_nonnull(
		strstr((char *)text.data, "tensor p U8 input external host 0+0x8 [4992:1]\n"));
	fdry_buf_release(&text);
	fdry_buf_release(&b);
}
END_TEST

START_TEST(empty_is_valid)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };
	struct fdry_manifest m;

	ok(fdry_manifest_encode(&w, &b));
	ck_assert_uint_eq(b.len, 64);
	ok(open_it(&b, &m));
	ck_assert_uint_eq(m.n_graphs, 0);
	ck_assert_ptr_null(fdry_manifest_graph(&m, 0));
	fdry_buf_release(&b);
}
END_TEST

START_TEST(links_are_a_set)
{
	struct fdry_buf b = made();
	struct fdry_manifest m;
	struct fdry_oid *links;
	size_t n, i;

	ok(open_it(&b, &m));
	ok(fdry_manifest_links(&m, &links, &n));
	ck_assert_uint_eq(n, 5);
	for (i = 0; i < n; i++)
		ck_assert_uint_eq(links[i].b[0], i + 1);
	free(links);
	fdry_buf_release(&b);
}
END_TEST

/* A change of one entry of one section, and the reader's message. */
struct damage {
	const char *says;
	int code;
	void (*do_it)(struct fdry_manifest_writer *w);
};

/* Make 2^64 elements, each of which has an index. */
static void elements_around(struct fdry_mf_tensor *t)
{
	t->shape[0] = t->shape[1] = t->stride[0] = 1ll << 32;
}

#define entry(w, member, type, i) (((type *)(w)->member.data)[i])
#define DAMAGE(name, body) static void name(struct fdry_manifest_writer *w) { body; }
DAMAGE(segment_overlaps, entry(w, segments, struct fdry_mf_segment, 1).addr -= 1)
DAMAGE(segment_leaves, entry(w, segments, struct fdry_mf_segment, 2).size += 1)
DAMAGE(segment_wraps, entry(w, segments, struct fdry_mf_segment, 2).size = UINT64_MAX)
DAMAGE(segment_role, entry(w, segments, struct fdry_mf_segment, 0).role = 3)
DAMAGE(chunk_in_scratch, entry(w, chunks, struct fdry_mf_chunk, 1).addr = BASE + 0x200000)
DAMAGE(chunk_over_end, entry(w, chunks, struct fdry_mf_chunk, 1).addr = BASE + 0x200000 - 50)
DAMAGE(chunk_too_large, entry(w, chunks, struct fdry_mf_chunk, 0).size = FDRY_MF_CHUNK_MAX + 1)
DAMAGE(chunk_order, entry(w, chunks, struct fdry_mf_chunk, 1).addr = BASE + 4095)
DAMAGE(tensor_order, entry(w, tensors, struct fdry_mf_tensor, 1).name =
			     entry(w, tensors, struct fdry_mf_tensor, 0).name)
DAMAGE(tensor_leaves, entry(w, tensors, struct fdry_mf_tensor, 0).shape[0] = 1 << 20)
DAMAGE(tensor_negative, entry(w, tensors, struct fdry_mf_tensor, 0).stride[0] = -5)
DAMAGE(tensor_overflow, entry(w, tensors, struct fdry_mf_tensor, 0).stride[0] = INT64_MAX)
DAMAGE(tensor_around, elements_around(&entry(w, tensors, struct fdry_mf_tensor, 0)))
DAMAGE(tensor_dtype, entry(w, tensors, struct fdry_mf_tensor, 0).dtype = 99)
DAMAGE(tensor_rank, entry(w, tensors, struct fdry_mf_tensor, 0).rank = 9)
DAMAGE(tensor_beyond, entry(w, tensors, struct fdry_mf_tensor, 0).shape[2] = 1)
DAMAGE(tensor_below, entry(w, tensors, struct fdry_mf_tensor, 0).addr = BASE - 64)
DAMAGE(graph_order, entry(w, graphs, struct fdry_mf_graph, 1).key = 1)
DAMAGE(graph_name, entry(w, graphs, struct fdry_mf_graph, 1).name += 1)
DAMAGE(kernel_object, entry(w, kernels, struct fdry_mf_kernel, 0).object = 1)
DAMAGE(kernel_params, entry(w, kernels, struct fdry_mf_kernel, 0).param_count = 3)
DAMAGE(kernel_params_wrap, entry(w, kernels, struct fdry_mf_kernel, 0).param_first = UINT32_MAX)
DAMAGE(kernel_reserved, entry(w, kernels, struct fdry_mf_kernel, 0).attrs[3] = 1)
static void attr_put(struct fdry_manifest_writer *w, uint32_t kernel, uint32_t id, int32_t value,
		     uint32_t reserved)
{
	put(w->attrs, (struct fdry_mf_attr){ kernel, id, value, reserved });
}

DAMAGE(attr_kernel, attr_put(w, 1, 3, 1, 0))
DAMAGE(attr_inline, attr_put(w, 0, 2, 1, 0))
DAMAGE(attr_zero, attr_put(w, 0, 3, 0, 0))
DAMAGE(attr_reserved, attr_put(w, 0, 3, 1, 1))
DAMAGE(attr_twice, attr_put(w, 0, 3, 1, 0); attr_put(w, 0, 3, 1, 0))
DAMAGE(attr_order, attr_put(w, 0, 4, 1, 0); attr_put(w, 0, 3, 1, 0))
DAMAGE(attr_unknown, attr_put(w, 0, FDRY_FUNC_ATTR_COUNT, 1, 0))
DAMAGE(fact_order,
	entry(w, facts, struct fdry_mf_fact, 1).key = entry(w, facts, struct fdry_mf_fact, 0).key)
DAMAGE(fact_string, entry(w, facts, struct fdry_mf_fact, 1).value = 1u << 30)
DAMAGE(limit_unknown, entry(w, limits, struct fdry_mf_limit, 0).limit = 3)
DAMAGE(limit_reserved, entry(w, limits, struct fdry_mf_limit, 0).reserved = 1)
DAMAGE(strings_open, w->strings.data[w->strings.len - 1] = 'x')
DAMAGE(partial_entry, w->graphs.len -= 8)
DAMAGE(region_askew, w->base += 4096)
DAMAGE(tensor_in_a_hole, entry(w, tensors, struct fdry_mf_tensor, 0).addr = BASE + 0x300000)
DAMAGE(tensor_into_a_hole, entry(w, tensors, struct fdry_mf_tensor, 0).addr = BASE + 0x201000 - 8)
DAMAGE(tensor_up_to_a_hole, entry(w, tensors, struct fdry_mf_tensor, 0).addr = BASE + 0x201000 - 59)
DAMAGE(tensor_external_in_content,
	entry(w, tensors, struct fdry_mf_tensor, 0).flags = FDRY_TENSOR_EXTERNAL)
DAMAGE(tensor_external_half_in_scratch,
	entry(w, tensors, struct fdry_mf_tensor, 0).flags = FDRY_TENSOR_EXTERNAL;
	entry(w, tensors, struct fdry_mf_tensor, 0).addr = BASE + 0x400000 - 8;
	entry(w, segments, struct fdry_mf_segment, 1).size = 0x200000)
DAMAGE(region_backward, w->end = BASE - 1)
DAMAGE(region_around, w->end = UINT64_MAX)
DAMAGE(region_over_the_end, w->end = (1ull << 63) + 1)

static const struct damage damages[] = {
	{ "segment 1 overlaps", FDRY_E_BADIMAGE, segment_overlaps },
	{ "segment 2 overlaps or leaves", FDRY_E_BADIMAGE, segment_leaves },
	{ "segment 2 overlaps or leaves", FDRY_E_BADIMAGE, segment_wraps },
	{ "segment 0 has an unknown role", FDRY_E_BADIMAGE, segment_role },
	{ "chunk 1 does not lie in content", FDRY_E_BADIMAGE, chunk_in_scratch },
	{ "chunk 1 does not lie in content", FDRY_E_BADIMAGE, chunk_over_end },
	{ "chunk 0 is out of order or of a bad size", FDRY_E_BADIMAGE, chunk_too_large },
	{ "chunk 1 is out of order or of a bad size", FDRY_E_BADIMAGE, chunk_order },
	{ "tensor 1 is out of order", FDRY_E_BADIMAGE, tensor_order },
	{ "tensor 0 leaves the region", FDRY_E_BADIMAGE, tensor_leaves },
	{ "tensor 0: tensor 'in' has a negative size or stride", FDRY_E_BADIMAGE, tensor_negative },
	{ "tensor 0: tensor 'in' is larger than the address space", FDRY_E_BADIMAGE,
	  tensor_overflow },
	{ "tensor 0: tensor 'in' is larger than the address space", FDRY_E_BADIMAGE,
	  tensor_around },
	{ "tensor 0: tensor 'in' has an unknown type", FDRY_E_BADIMAGE, tensor_dtype },
	{ "tensor 0: tensor 'in' has an unknown type, use, flag or a rank", FDRY_E_BADIMAGE,
	  tensor_rank },
	{ "tensor 0 has dimensions beyond its rank", FDRY_E_BADIMAGE, tensor_beyond },
	{ "tensor 0 leaves the region", FDRY_E_BADIMAGE, tensor_below },
	{ "graph 1 is out of order", FDRY_E_BADIMAGE, graph_order },
	{ "graph 1 is out of order or has a bad name", FDRY_E_BADIMAGE, graph_name },
	{ "kernel 0 names a missing object or string", FDRY_E_BADIMAGE, kernel_object },
	{ "kernel 0 names missing parameters", FDRY_E_BADIMAGE, kernel_params },
	{ "kernel 0 names missing parameters", FDRY_E_BADIMAGE, kernel_params_wrap },
	{ "kernel 0 names a missing object or string", FDRY_E_BADIMAGE, kernel_reserved },
	{ "function attribute 0 belongs to no kernel", FDRY_E_BADIMAGE, attr_kernel },
	{ "function attribute 0 belongs to no kernel, or has a bad id or value", FDRY_E_BADIMAGE,
	  attr_inline },
	{ "function attribute 0 belongs to no kernel, or has a bad id or value", FDRY_E_BADIMAGE,
	  attr_zero },
	{ "function attribute 0 belongs to no kernel, or has a bad id or value", FDRY_E_BADIMAGE,
	  attr_reserved },
	{ "function attribute 1 is out of order", FDRY_E_BADIMAGE, attr_twice },
	{ "function attribute 1 is out of order", FDRY_E_BADIMAGE, attr_order },
	{ "relies on a function attribute 7", FDRY_E_VERSION, attr_unknown },
	{ "fact 1 is out of order", FDRY_E_BADIMAGE, fact_order },
	{ "fact 1 has no key or value", FDRY_E_BADIMAGE, fact_string },
	{ "limit 0 is out of order", FDRY_E_BADIMAGE, limit_reserved },
	{ "a limit 3 of the context", FDRY_E_VERSION, limit_unknown },
	{ "the strings are not terminated", FDRY_E_BADIMAGE, strings_open },
	{ "section graphs has a partial entry", FDRY_E_BADIMAGE, partial_entry },
	{ "its region does not begin at a multiple", FDRY_E_BADIMAGE, region_askew },
	{ "tensor 0 does not lie in memory", FDRY_E_BADIMAGE, tensor_in_a_hole },
	{ "tensor 0 does not lie in memory", FDRY_E_BADIMAGE, tensor_into_a_hole },
	{ "tensor 0 does not lie in memory", FDRY_E_BADIMAGE, tensor_up_to_a_hole },
	{ "tensor 0 does not lie in memory of its kind", FDRY_E_BADIMAGE,
	  tensor_external_in_content },
	{ "tensor 0 does not lie in memory of its kind", FDRY_E_BADIMAGE,
	  tensor_external_half_in_scratch },
	{ "its region ends before it begins", FDRY_E_BADIMAGE, region_backward },
	{ "its region ends beyond the address space", FDRY_E_BADIMAGE, region_around },
	{ "its region ends beyond the address space", FDRY_E_BADIMAGE, region_over_the_end },
};

/* Check that the damage is reported. */
static void damage_check(void (*filler)(struct fdry_manifest_writer *), const struct damage *d)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };

	filler(&w);
	d->do_it(&w);
	ck_assert_int_eq(fdry_manifest_encode(&w, &b), -d->code);
	ck_assert_msg(strstr(fdry_last_error(), d->says), "'%s' does not say '%s'",
		      fdry_last_error(), d->says);
	ck_assert_ptr_null(b.data);
	fdry_manifest_writer_release(&w);
}

/* The same with values of variables: two of one object, one of them in two parts. */
static void fill_variables(struct fdry_manifest_writer *w)
{
	fill(w);
	put(w->variables, (struct fdry_mf_variable){ .name = str(w, "lut"), .offset = 8,
						     .size = 2 << 20, .oid = oid(8) });
	put(w->variables, (struct fdry_mf_variable){ .name = str(w, "lut"), .offset = 8 + (2 << 20),
						     .size = 1, .oid = oid(9) });
	put(w->variables,
	    (struct fdry_mf_variable){ .name = str(w, "table"), .size = 4, .oid = oid(9) });
}

START_TEST(golden_bytes_with_variables)
{
	struct fdry_manifest m;
	struct fdry_buf b = golden_check(
		fill_variables, "3d648b0177242c73cbd4f81239e2c5bd6672cdfff73e72b5f8a3650b7825ab84",
		&m);

	ck_assert(fdry_manifest_has_values(&m, 0));
	ck_assert(!fdry_manifest_has_values(&m, 1));
	fdry_buf_release(&b);
}
END_TEST

#define variable(i) entry(w, variables, struct fdry_mf_variable, i)
DAMAGE(variable_object, variable(2).object = 1)
DAMAGE(variable_name, variable(0).name = 0)
DAMAGE(variable_half_name, variable(0).name += 1)
DAMAGE(variable_empty, variable(2).size = 0)
DAMAGE(variable_large, variable(0).size += 1)
DAMAGE(variable_far, variable(2).offset = 1ull << 32)
DAMAGE(variable_overlaps, variable(1).offset -= 1)
DAMAGE(variable_order, variable(2).name = variable(0).name)

static const struct damage variable_damages[] = {
	{ "variable 2 has no object or no name", FDRY_E_BADIMAGE, variable_object },
	{ "variable 0 has no object or no name", FDRY_E_BADIMAGE, variable_name },
	{ "variable 0 has no object or no name", FDRY_E_BADIMAGE, variable_half_name },
	{ "variable 2 has a bad size", FDRY_E_BADIMAGE, variable_empty },
	{ "variable 0 has a bad size", FDRY_E_BADIMAGE, variable_large },
	{ "variable 2 has a bad size", FDRY_E_BADIMAGE, variable_far },
	{ "variable 1 is out of order", FDRY_E_BADIMAGE, variable_overlaps },
	{ "variable 2 is out of order", FDRY_E_BADIMAGE, variable_order },
};

/* The same with files: one of two pieces, and an empty one. */
static void fill_files(struct fdry_manifest_writer *w)
{
	fill(w);
	put(w->files, (struct fdry_mf_file){ .name = str(w, "a/b"), .flags = 1, .size = 2 << 20,
					     .oid = oid(8) });
	put(w->files, (struct fdry_mf_file){ .name = str(w, "a/b"), .flags = 1, .offset = 2 << 20,
					     .size = 1, .oid = oid(9) });
	put(w->files, (struct fdry_mf_file){ .name = str(w, "a/c") });
}

#define file(i) entry(w, files, struct fdry_mf_file, i)
DAMAGE(file_name, file(2).name = 0)
DAMAGE(file_half_name, file(2).name += 1)
DAMAGE(file_climbs, file(2).name = str(w, "b/../../c"))
DAMAGE(file_absolute, file(2).name = str(w, "/c"))
DAMAGE(file_flag, file(2).flags = 2)
DAMAGE(file_flags_differ, file(1).flags = 0)
DAMAGE(file_large, file(0).size += 1)
DAMAGE(file_short, file(0).size -= 1)
DAMAGE(file_gap, file(1).offset += 1)
DAMAGE(file_begins_late, file(2).offset = 2 << 20)
DAMAGE(file_order, file(2).name = str(w, "a/a"))
DAMAGE(file_ends_empty, (file(1).size = 0, file(1).oid = file(2).oid))
DAMAGE(file_empty_object, file(2).oid = oid(9))

/* Far more bytes than objects: 513 pieces, all of one object. */
static void file_repeats(struct fdry_manifest_writer *w)
{
	uint64_t i;

	for (i = 0; i < 513; i++)
		put(w->files, (struct fdry_mf_file){ .name = str(w, "b"), .size = 2 << 20,
						     .offset = i << 21, .oid = oid(8) });
}

static const struct damage file_damages[] = {
	{ "file piece 2 has a bad name", FDRY_E_BADIMAGE, file_name },
	{ "file piece 2 has a bad name", FDRY_E_BADIMAGE, file_half_name },
	{ "file piece 2 has a bad name", FDRY_E_BADIMAGE, file_climbs },
	{ "file piece 2 has a bad name", FDRY_E_BADIMAGE, file_absolute },
	{ "file piece 2 has a bad size or an unknown flag", FDRY_E_BADIMAGE, file_flag },
	{ "file piece 1 is out of order", FDRY_E_BADIMAGE, file_flags_differ },
	{ "file piece 0 has a bad size", FDRY_E_BADIMAGE, file_large },
	{ "file piece 1 is out of order", FDRY_E_BADIMAGE, file_short },
	{ "file piece 1 is out of order", FDRY_E_BADIMAGE, file_gap },
	{ "file piece 2 is out of order", FDRY_E_BADIMAGE, file_begins_late },
	{ "file piece 2 is out of order", FDRY_E_BADIMAGE, file_order },
	{ "file piece 1 is out of order", FDRY_E_BADIMAGE, file_ends_empty },
	{ "file piece 2 is empty and has an object", FDRY_E_BADIMAGE, file_empty_object },
	{ "files have more than 1 GiB", FDRY_E_LIMIT, file_repeats },
};

START_TEST(every_file_field_is_checked)
{
	damage_check(fill_files, &file_damages[_i]);
}
END_TEST

START_TEST(golden_bytes_with_files)
{
	struct fdry_manifest m;
	struct fdry_buf b = golden_check(
		fill_files, "45f818f63afe9f322728d2af76ce6b49ed5d049875fccaa14dab9341a0dd8770",
		&m);

	ck_assert_uint_eq(m.n_files, 3);
	fdry_buf_release(&b);
}
END_TEST

/* The same with events that both graphs use. */
static void fill_events(struct fdry_manifest_writer *w)
{
	fill(w);
	put(w->events, (struct fdry_mf_event){ .graph = 0, .event = 3, .number = 0 });
	put(w->events, (struct fdry_mf_event){ .graph = 0, .event = 5, .number = 1 });
	put(w->events, (struct fdry_mf_event){ .graph = 1, .event = 0, .number = 1 });
	put(w->events, (struct fdry_mf_event){ .graph = 1, .event = 1, .number = 0 });
}

#define event(i) entry(w, events, struct fdry_mf_event, i)
DAMAGE(event_none, (void)w)
DAMAGE(event_graph, event(3).graph = 2)
DAMAGE(event_large, event(3).event = 1 << 15)
DAMAGE(event_reserved, event(2).reserved = 1)
DAMAGE(event_twice, event(1).event = 3)
DAMAGE(event_order, event(1).graph = 1)
DAMAGE(event_number, event(0).number = 1)
DAMAGE(event_far, event(2).number = 3)

static const struct damage event_damages[] = {
	{ "", 0, event_none },
	{ "shared event 3 belongs to no graph or is none", FDRY_E_BADIMAGE, event_graph },
	{ "shared event 3 belongs to no graph or is none", FDRY_E_BADIMAGE, event_large },
	{ "shared event 2 belongs to no graph or is none", FDRY_E_BADIMAGE, event_reserved },
	{ "shared event 1 is out of order", FDRY_E_BADIMAGE, event_twice },
	{ "shared event 2 is out of order", FDRY_E_BADIMAGE, event_order },
	{ "shared event 0 has the number 1, and at most 0", FDRY_E_BADIMAGE, event_number },
	{ "shared event 2 has the number 3, and at most 2", FDRY_E_BADIMAGE, event_far },
};

START_TEST(every_event_field_is_checked)
{
	const struct damage *d = &event_damages[_i];
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };

	fill_events(&w);
	d->do_it(&w);
	ck_assert_int_eq(fdry_manifest_encode(&w, &b), -d->code);
	if (d->code)
		ck_assert_msg(strstr(fdry_last_error(), d->says), "'%s' does not say '%s'",
			      fdry_last_error(), d->says);
	fdry_buf_release(&b);
	fdry_manifest_writer_release(&w);
}
END_TEST

#define host(i) entry(w, hosts, struct fdry_mf_host, i)
#define host_chunk(i) entry(w, host_chunks, struct fdry_mf_host_chunk, i)
#define tensor(i) entry(w, tensors, struct fdry_mf_tensor, i)
DAMAGE(host_empty, host(0).size = 0)
DAMAGE(host_large, host(1).size = FDRY_HOST_SIZE_MAX + 1)
DAMAGE(host_small, host(1).size -= 1)
DAMAGE(host_reserved, host(0).reserved = 1)
DAMAGE(host_unaligned, host(0).align = 0)
DAMAGE(host_askew, host(0).align = 24)
DAMAGE(host_align, host(0).align = 8192)
DAMAGE(host_chunk_empty, host_chunk(0).size = 0)
DAMAGE(host_chunk_large, host_chunk(0).size = FDRY_MF_CHUNK_MAX + 1)
DAMAGE(host_chunk_reserved, host_chunk(0).reserved = 1)
DAMAGE(host_chunk_nowhere, host_chunk(1).segment = 2)
DAMAGE(host_chunk_far, host_chunk(1).segment = UINT32_MAX)
DAMAGE(host_chunk_beyond, host_chunk(1).offset = 3 << 20)
DAMAGE(host_chunk_over, host_chunk(1).offset += 1)
DAMAGE(host_chunk_wraps, host_chunk(1).offset = UINT64_MAX)
DAMAGE(host_chunk_overlaps, host_chunk(1).offset -= 1)
DAMAGE(host_chunk_order, host_chunk(1).segment = 0; host_chunk(1).offset = 0;
	host_chunk(1).size = 1)
DAMAGE(fingerprint_alone, put(w->fingerprints, (struct fdry_fingerprint){ 1, 2 }))
DAMAGE(host_fingerprint_alone, put(w->host_fingerprints, (struct fdry_fingerprint){ 1, 2 }))
DAMAGE(host_fingerprint_more, put(w->host_fingerprints, (struct fdry_fingerprint){ 1, 2 });
	put(w->host_fingerprints, (struct fdry_fingerprint){ 1, 2 });
	put(w->host_fingerprints, (struct fdry_fingerprint){ 1, 2 }))
#define external_print(t, r) \
	put(w->external_prints, ((struct fdry_mf_external_print){ .tensor = (t), .reserved = (r) }))
DAMAGE(external_print_beyond, external_print(99, 0))
DAMAGE(external_print_reserved, external_print(2, 1))
DAMAGE(external_print_inside, external_print(0, 0))
DAMAGE(external_print_twice, external_print(2, 0); external_print(2, 0))
DAMAGE(external_print_empty, external_print(2, 0); tensor(2).shape[0] = 0)
DAMAGE(host_tensor_on_device, tensor(2).addr = BASE + 0x400000)
DAMAGE(host_tensor_nowhere, tensor(2).addr = fdry_host_place(2, 8))
DAMAGE(host_tensor_over, tensor(2).addr = fdry_host_place(0, 9))
DAMAGE(host_tensor_without_flag, tensor(2).flags = FDRY_TENSOR_EXTERNAL)
DAMAGE(host_input_with_bytes, tensor(2).flags = FDRY_TENSOR_HOST)
DAMAGE(device_tensor_with_flag, tensor(0).flags = FDRY_TENSOR_HOST | FDRY_TENSOR_EXTERNAL)
DAMAGE(tensor_flag, tensor(0).flags = 1 << 2)

static const struct damage host_damages[] = {
	{ "host segment 0 has a bad size", FDRY_E_BADIMAGE, host_empty },
	{ "host segment 1 has a bad size", FDRY_E_BADIMAGE, host_large },
	{ "host chunk 1 does not lie in a host segment", FDRY_E_BADIMAGE, host_small },
	{ "host segment 0 has a bad size", FDRY_E_BADIMAGE, host_reserved },
	{ "host segment 0 has an alignment of 0", FDRY_E_BADIMAGE, host_unaligned },
	{ "host segment 0 has an alignment of 24", FDRY_E_BADIMAGE, host_askew },
	{ "host segment 0 has an alignment of 8192", FDRY_E_BADIMAGE, host_align },
	{ "host chunk 0 does not lie", FDRY_E_BADIMAGE, host_chunk_empty },
	{ "host chunk 0 does not lie", FDRY_E_BADIMAGE, host_chunk_large },
	{ "host chunk 0 does not lie", FDRY_E_BADIMAGE, host_chunk_reserved },
	{ "host chunk 1 does not lie", FDRY_E_BADIMAGE, host_chunk_nowhere },
	{ "host chunk 1 does not lie", FDRY_E_BADIMAGE, host_chunk_far },
	{ "host chunk 1 does not lie", FDRY_E_BADIMAGE, host_chunk_beyond },
	{ "host chunk 1 does not lie", FDRY_E_BADIMAGE, host_chunk_over },
	{ "host chunk 1 does not lie", FDRY_E_BADIMAGE, host_chunk_wraps },
	{ "host chunk 1 is out of order", FDRY_E_BADIMAGE, host_chunk_overlaps },
	{ "host chunk 1 is out of order", FDRY_E_BADIMAGE, host_chunk_order },
	{ "fingerprint 0 is not that of an external", FDRY_E_BADIMAGE, external_print_beyond },
	{ "fingerprint 0 is not that of an external", FDRY_E_BADIMAGE, external_print_reserved },
	{ "fingerprint 0 is not that of an external", FDRY_E_BADIMAGE, external_print_inside },
	{ "fingerprint 1 is not that of an external", FDRY_E_BADIMAGE, external_print_twice },
	{ "fingerprint 0 is not that of an external", FDRY_E_BADIMAGE, external_print_empty },
	{ "1 fingerprints for 2 chunks", FDRY_E_BADIMAGE, fingerprint_alone },
	{ "1 fingerprints for 2 host chunks", FDRY_E_BADIMAGE, host_fingerprint_alone },
	{ "3 fingerprints for 2 host chunks", FDRY_E_BADIMAGE, host_fingerprint_more },
	{ "tensor 2 does not lie in a host segment", FDRY_E_BADIMAGE, host_tensor_on_device },
	{ "tensor 2 does not lie in a host segment", FDRY_E_BADIMAGE, host_tensor_nowhere },
	{ "tensor 2 does not lie in a host segment", FDRY_E_BADIMAGE, host_tensor_over },
	{ "tensor 2 leaves the region", FDRY_E_BADIMAGE, host_tensor_without_flag },
	{ "tensor 2 is an input in host memory and not external", FDRY_E_BADIMAGE,
	  host_input_with_bytes },
	{ "tensor 0 does not lie in a host segment", FDRY_E_BADIMAGE, device_tensor_with_flag },
	{ "tensor 0: tensor 'in' has an unknown type, use, flag", FDRY_E_BADIMAGE, tensor_flag },
};

START_TEST(every_host_field_is_checked)
{
	damage_check(fill_hosts, &host_damages[_i]);
}
END_TEST

START_TEST(every_variable_field_is_checked)
{
	damage_check(fill_variables, &variable_damages[_i]);
}
END_TEST

/* Add an external tensor of 4 MiB with a capacity of 8 MiB, and content right behind it. */
static void fill_capacity(struct fdry_manifest_writer *w)
{
	const uint64_t block = 2 << 20;

	w->base = BASE;
	w->end = BASE + 5 * block;
	put(w->segments, (struct fdry_mf_segment){
				 .addr = BASE, .size = 2 * block, .role = FDRY_ROLE_EXTERNAL });
	put(w->segments, (struct fdry_mf_segment){ .addr = BASE + 4 * block, .size = block,
						   .role = FDRY_ROLE_CONTENT });
	put(w->tensors, (struct fdry_mf_tensor){ .name = str(w, "kv"), .dtype = FDRY_U8,
						 .use = FDRY_USE_STATE, .rank = 1, .addr = BASE,
						 .flags = FDRY_TENSOR_EXTERNAL,
						 .shape = { 2 * block }, .stride = { 1 } });
	put(w->tensors, (struct fdry_mf_tensor){ .name = str(w, "w"), .dtype = FDRY_U8,
						 .use = FDRY_USE_CONST, .rank = 1,
						 .addr = BASE + 4 * block, .shape = { block },
						 .stride = { 1 } });
	put(w->capacities, (struct fdry_mf_capacity){ .tensor = 0, .max = 4 * block });
}

#define capacity(i) entry(w, capacities, struct fdry_mf_capacity, i)
#define segment(i) entry(w, segments, struct fdry_mf_segment, i)
DAMAGE(capacity_of_nothing, capacity(0).tensor = 2)
DAMAGE(capacity_reserved, capacity(0).reserved = 1)
DAMAGE(capacity_of_content, capacity(0).tensor = 1)
DAMAGE(capacity_not_larger, capacity(0).max = 4 << 20)
DAMAGE(capacity_askew, capacity(0).max -= 4096)
DAMAGE(capacity_over_another, capacity(0).max += 2 << 20)
DAMAGE(capacity_beyond_the_end, capacity(0).max = 1ull << 40)
DAMAGE(capacity_wraps, capacity(0).max = -2ull << 20)
DAMAGE(capacity_behind_part, tensor(0).shape[0] -= 2 << 20)
DAMAGE(capacity_of_an_odd_size, tensor(0).shape[0] -= 1; segment(0).size -= 1)
DAMAGE(capacity_of_an_odd_place, tensor(0).addr += 4096; tensor(0).shape[0] -= 2 << 20;
	segment(0).size -= (2 << 20) - 4096)
DAMAGE(capacity_of_rank_0, tensor(0).rank = 0; tensor(0).shape[0] = tensor(0).stride[0] = 0)
DAMAGE(capacity_with_gaps, tensor(0).stride[0] = 2; tensor(0).shape[0] /= 2)
DAMAGE(capacity_twice, struct fdry_mf_capacity r = capacity(0); put(w->capacities, r))

static void (*const capacity_damages[])(struct fdry_manifest_writer *w) = {
	capacity_of_nothing, capacity_reserved, capacity_of_content, capacity_not_larger,
	capacity_askew, capacity_over_another, capacity_beyond_the_end, capacity_wraps,
	capacity_behind_part, capacity_of_an_odd_size, capacity_of_an_odd_place, capacity_of_rank_0,
	capacity_with_gaps, capacity_twice,
};
#define CAPACITY_DAMAGES (sizeof(capacity_damages) / sizeof(capacity_damages[0]))

/* The last one of the loop is not damaged. */
START_TEST(every_capacity_field_is_checked)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };
	struct fdry_manifest m;
	int err;

	fill_capacity(&w);
	if ((size_t)_i < CAPACITY_DAMAGES)
		capacity_damages[_i](&w);
	err = fdry_manifest_encode(&w, &b);
	if ((size_t)_i == CAPACITY_DAMAGES) {
		ok(err);
		ok(open_it(&b, &m));
		ck_assert_uint_eq(m.n_capacities, 1);
		ck_assert_uint_eq(m.capacities[0].max, 8 << 20);
	} else {
		ck_assert_int_eq(err, -FDRY_E_BADIMAGE);
		ck_assert_msg(strstr(fdry_last_error(), "capacity ") != NULL, "%s",
			      fdry_last_error());
	}
	fdry_buf_release(&b);
	fdry_manifest_writer_release(&w);
}
END_TEST

START_TEST(every_field_is_checked)
{
	const struct damage *d = &damages[_i];
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };

	fill(&w);
	d->do_it(&w);
	ck_assert_int_eq(fdry_manifest_encode(&w, &b), -d->code);
	ck_assert_msg(strstr(fdry_last_error(), d->says), "'%s' does not say '%s'",
		      fdry_last_error(), d->says);
	ck_assert_ptr_null(b.data);
	fdry_manifest_writer_release(&w);
}
END_TEST

/* The header and the directory, by offset. */
static const struct { size_t at; uint8_t to; int code; const char *says; } bytes[] = {
	{ 0, 'X', FDRY_E_BADIMAGE, "not an image manifest" },
	{ 8, 2, FDRY_E_VERSION, "format version 2" },
	{ 12, 200, FDRY_E_BADIMAGE, "200 sections" },
	{ 16, 1, FDRY_E_VERSION, "features 0x1" },
	{ 24, 0, FDRY_E_BADIMAGE, "its header says" },
	{ 48, 1, FDRY_E_BADIMAGE, "a reserved field is set" },
	{ 64, 77, FDRY_E_VERSION, "section 77" },
	{ 68, 1, FDRY_E_BADIMAGE, "damaged manifest: reserved bytes of section 1 are not zero" },
	{ 72, 0, FDRY_E_BADIMAGE, "damaged manifest: section 1 begins at" },
	{ 80, 0, FDRY_E_BADIMAGE, "section 1 has a length of 0" },
};

START_TEST(header_and_directory_are_checked)
{
	struct fdry_buf b = made();
	struct fdry_manifest m;

	ck_assert_uint_ne(b.data[bytes[_i].at], bytes[_i].to);
	b.data[bytes[_i].at] = bytes[_i].to;
	ck_assert_int_eq(open_it(&b, &m), -bytes[_i].code);
	ck_assert_msg(strstr(fdry_last_error(), bytes[_i].says), "'%s' does not say '%s'",
		      fdry_last_error(), bytes[_i].says);
	fdry_buf_release(&b);
}
END_TEST

START_TEST(every_length_and_every_bit)
{
	struct fdry_buf b = made();
	struct fdry_manifest m;
	uint8_t *copy;
	size_t i;

	for (i = 0; i < b.len; i++) {
		/* An exact allocation, so that a sanitizer sees a read past the end. */
		copy = malloc(i ? i : 1);
		memcpy(copy, b.data, i);
		ck_assert_int_ne(fdry_manifest_init((struct fdry_span){ copy, i }, &m), 0);
		free(copy);
	}
	for (i = 0; i < b.len * 8; i++) {
		b.data[i / 8] ^= (uint8_t)(1 << i % 8);
		if (!open_it(&b, &m))
			(void)fdry_manifest_tensor(&m, "in");
		b.data[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	ok(open_it(&b, &m));
	fdry_buf_release(&b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_manifest");
	TCase *tc = tcase_create("manifest");

	tcase_add_test(tc, a_written_manifest_can_be_read);
	tcase_add_test(tc, golden_bytes);
	tcase_add_test(tc, golden_bytes_with_hosts);
	tcase_add_loop_test(tc, every_capacity_field_is_checked, 0, CAPACITY_DAMAGES + 1);
	tcase_add_test(tc, empty_is_valid);
	tcase_add_test(tc, links_are_a_set);
	tcase_add_loop_test(tc, every_host_field_is_checked, 0,
			    sizeof(host_damages) / sizeof(host_damages[0]));
	tcase_add_test(tc, golden_bytes_with_variables);
	tcase_add_test(tc, golden_bytes_with_files);
	tcase_add_loop_test(tc, every_file_field_is_checked, 0,
			    sizeof(file_damages) / sizeof(file_damages[0]));
	tcase_add_loop_test(tc, every_event_field_is_checked, 0,
			    sizeof(event_damages) / sizeof(event_damages[0]));
	tcase_add_loop_test(tc, every_variable_field_is_checked, 0,
			    sizeof(variable_damages) / sizeof(variable_damages[0]));
	tcase_add_loop_test(tc, every_field_is_checked, 0, sizeof(damages) / sizeof(damages[0]));
	tcase_add_loop_test(tc, header_and_directory_are_checked, 0,
			    sizeof(bytes) / sizeof(bytes[0]));
	tcase_add_test(tc, every_length_and_every_bit);
	suite_add_tcase(s, tc);
	return test_main(s);
}
