// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_manifest.c - untrusted manifests: as bytes, and a good one with bytes replaced. A manifest
 * that opens must have a text of printable lines, links, and tensors that lie in its memory. The
 * first byte of the input selects how the rest is used.
 */
#include "image/describe.c"

#include <stdlib.h>

#include "image/array_pieces.h"
#include "image/image_host.h"
#include "image/tensor.h"
#include "lib/printable.h"
#include "mm/region.h"

#define BASE 0x500000000000ull
#define PIN 0x40000000000ull

static void must(int ok)
{
	if (!ok)
		abort();
}

#define put(buf, ...) must(!fdry_buf_put(&(buf), &(__VA_ARGS__), sizeof(__VA_ARGS__)))

static uint32_t str(struct fdry_manifest_writer *w, const char *s)
{
	uint32_t off = 0;

	must(!fdry_manifest_add_str(w, s, &off));
	return off;
}

/* One entry of everything. */
static struct fdry_buf good(void)
{
	struct fdry_manifest_writer w = { .base = BASE, .end = BASE + 0x400000 };
	struct fdry_buf b = { 0 };

	put(w.facts, (struct fdry_mf_fact){ str(&w, "model"), str(&w, "m") });
	put(w.limits, (struct fdry_mf_limit){ .limit = 0, .value = 1024 });
	put(w.segments, (struct fdry_mf_segment){ BASE, 0x200000, FDRY_ROLE_CONTENT, 0 });
	put(w.segments,
	    (struct fdry_mf_segment){ BASE + 0x200000, 0x200000, FDRY_ROLE_EXTERNAL, 0 });
	put(w.chunks, (struct fdry_mf_chunk){ .addr = BASE, .size = 4096 });
	put(w.tensors, (struct fdry_mf_tensor){ .name = str(&w, "e"), .dtype = FDRY_F32, .rank = 2,
						.addr = BASE + 0x200000,
						.flags = FDRY_TENSOR_EXTERNAL, .shape = { 3, 5 },
						.stride = { 5, 1 } });
	put(w.tensors, (struct fdry_mf_tensor){ .name = str(&w, "h"), .dtype = FDRY_U8,
						.use = FDRY_USE_STATE, .rank = 1,
						.addr = fdry_host_place(0, 8),
						.flags = FDRY_TENSOR_HOST, .shape = { 4992 },
						.stride = { 1 } });
	put(w.graphs, (struct fdry_mf_graph){ .key = 8, .name = str(&w, "eight"), .nodes = 20 });
	put(w.kernels,
	    (struct fdry_mf_kernel){ .name = str(&w, "k"), .param_count = 1, .param_bytes = 8 });
	put(w.params, (struct fdry_mf_param){ 0, 8 });
	put(w.objects, (struct fdry_mf_object){ .oid = { { 5 } } });
	put(w.targets, (struct fdry_mf_target){ .object = 0, .name = str(&w, "t"), .size = 64 });
	put(w.arg_pointers, (struct fdry_mf_arg_pointer){ .node = 3, .at = 8, .offset = 63 });
	put(w.content_pointers, (struct fdry_mf_content_pointer){ .addr = BASE + 4088 });
	put(w.attrs, (struct fdry_mf_attr){ .kernel = 0, .id = FDRY_MF_KERNEL_ATTRS, .value = 2 });
	put(w.variables, (struct fdry_mf_variable){ .name = str(&w, "v"), .offset = 8, .size = 4 });
	put(w.files, (struct fdry_mf_file){ .name = str(&w, "a/b"), .size = 4 });
	put(w.events, (struct fdry_mf_event){ .graph = 0, .event = 1, .number = 0 });
	put(w.hosts, (struct fdry_mf_host){ .size = 5000, .align = 256 });
	put(w.host_chunks, (struct fdry_mf_host_chunk){ .segment = 0, .offset = 8, .size = 4992 });
	put(w.pinned, (struct fdry_mf_pinned){ .addr = PIN, .size = 8192 });
	put(w.pinned, (struct fdry_mf_pinned){ .addr = PIN + 65536,
					       .size = 5000,
					       .kind = FDRY_MF_PINNED_REGISTERED });
	put(w.pinned_roles, (struct fdry_mf_pinned_role){ .addr = PIN + 4096,
							  .size = 4096,
							  .role = FDRY_ROLE_SCRATCH });
	put(w.pinned_chunks, (struct fdry_mf_pinned_chunk){ .addr = PIN, .size = 4096 });
	put(w.host_places, (struct fdry_mf_host_place){ .segment = 0, .addr = PIN + 65536 });
	put(w.arrays, (struct fdry_mf_array){ .width = 100, .format = 32, .channels = 1 });
	put(w.arrays, (struct fdry_mf_array){ .width = 1024, .height = 300, .depth = 2, .format = 1,
					      .channels = 4, .flags = 1 });
	put(w.arrays, (struct fdry_mf_array){ .width = 5, .height = 1, .format = 2,
					      .channels = 2 });
	put(w.array_pieces, (struct fdry_mf_array_piece){ .array = 1, .piece = 1 });
	put(w.mipmaps, (struct fdry_mf_mipmap){ .top = { .width = 21, .height = 3, .format = 2,
							 .channels = 2 }, .levels = 3 });
	put(w.mipmap_levels, (struct fdry_mf_mipmap_level){ .array = 2, .level = 2 });
	put(w.fingerprints, (struct fdry_fingerprint){ 3, 4 });
	put(w.host_fingerprints, (struct fdry_fingerprint){ 1, 2 });
	put(w.external_prints, (struct fdry_mf_external_print){ .tensor = 0, .value = { 5, 6 } });
	put(w.selftests, (struct fdry_mf_selftest){ .tensor = 1, .seed = 1, .print = { 7, 8 } });
	must(!fdry_manifest_encode(&w, &b));
	fdry_manifest_writer_release(&w);
	return b;
}

static void hosts_walk(const struct fdry_manifest *m)
{
	struct fdry_host_segment *hosts = calloc(m->n_hosts + 1u, sizeof(*hosts));
	uint64_t bytes, i;

	must(hosts != NULL);
	bytes = fdry_manifest_hosts_place(m, 1 << 20, hosts);
	for (i = 0; i < m->n_hosts; i++)
		must(fdry_manifest_host_place(m, (uint32_t)i) ||
		     hosts[i].addr - (1 << 20) + m->hosts[i].size <= bytes);
	for (i = 0; i < m->n_host_chunks; i++)
		must(m->host_chunks[i].segment < m->n_hosts &&
		     m->host_chunks[i].offset + m->host_chunks[i].size <=
			     m->hosts[m->host_chunks[i].segment].size);
	for (i = 0; i < m->n_tensors; i++)
		must(!(m->tensors[i].flags & FDRY_TENSOR_HOST) ==
			     !fdry_host_is(m->tensors[i].addr) &&
		     (!fdry_host_is(m->tensors[i].addr) ||
		      fdry_host_segment(m->tensors[i].addr) < m->n_hosts));
	free(hosts);
}

/* A load writes only into the pages of pinned allocations. */
static void pinned_walk(const struct fdry_manifest *m)
{
	uint32_t i, s;

	for (i = 0; i < m->n_pinned; i++)
		must(m->pinned[i].addr >= 4096 && m->pinned[i].size &&
		     m->pinned[i].addr + m->pinned[i].size <= 1ull << 47 &&
		     (!i || m->pinned[i - 1].addr + m->pinned[i - 1].size <= m->pinned[i].addr));
	for (i = 0; i < m->n_pinned_roles; i++)
		must(fdry_manifest_pinned(m, m->pinned_roles[i].addr, m->pinned_roles[i].size) !=
		     NULL);
	for (i = 0; i < m->n_pinned_chunks; i++)
		must(fdry_manifest_pinned(m, m->pinned_chunks[i].addr, m->pinned_chunks[i].size) !=
		     NULL);
	for (i = 0; i < m->n_host_places; i++) {
		s = m->host_places[i].segment;
		must(s < m->n_hosts && fdry_manifest_host_place(m, s) == m->host_places[i].addr);
		must(fdry_manifest_pinned(m, m->host_places[i].addr + m->hosts[s].size - 1, 1) !=
		     NULL);
	}
}

/* A load writes each piece inside its array, and all pieces are the whole array. */
static void arrays_walk(const struct fdry_manifest *m)
{
	struct fdry_cuarray_piece p;
	struct fdry_cuarray a;
	uint64_t k, n, sum;
	uint32_t i;

	for (i = 0; i < m->n_arrays; i++) {
		a = fdry_cuarray_of(&m->arrays[i]);
		must(a.element && a.row && a.rows && a.slices);
		n = fdry_cuarray_pieces(&a);
		must(n && n <= UINT32_MAX);
		for (k = 0, sum = 0; k < n && n < 4096; k++, sum += p.bytes) {
			p = fdry_cuarray_piece(&a, k);
			must(p.bytes && p.bytes <= FDRY_MF_CHUNK_MAX);
			must(p.y + p.rows <= a.rows && p.z + p.slices <= a.slices);
			must((p.z * a.rows + p.y) * a.row == sum);
		}
		must(n >= 4096 || sum == fdry_cuarray_bytes(&a));
	}
	for (i = 0; i < m->n_mipmap_levels; i++) {
		must(m->mipmap_levels[i].array < m->n_arrays);
		must(m->mipmap_levels[i].mipmap < m->n_mipmaps);
		must(fdry_manifest_level(m, m->mipmap_levels[i].array) == &m->mipmap_levels[i]);
		must(m->mipmap_levels[i].level < m->mipmaps[m->mipmap_levels[i].mipmap].levels);
	}
	for (i = 0; i < m->n_array_pieces; i++) {
		must(m->array_pieces[i].array < m->n_arrays);
		a = fdry_cuarray_of(&m->arrays[m->array_pieces[i].array]);
		must(m->array_pieces[i].piece < fdry_cuarray_pieces(&a));
	}
}

static void text_check(const struct fdry_buf *text)
{
	uint32_t c = 0;
	size_t i, n;

	for (i = 0; i < text->len; i += n) {
		n = fdry_utf8_next(text->data + i, text->len - i, &c);
		must(n && (c == '\n' || fdry_is_printable(c)));
	}
}

/* The first of its object is its own first. */
static void firsts_check(const struct fdry_manifest *m)
{
	uint32_t *first, i;

	must(!fdry_manifest_graphs_first(m, &first));
	for (i = 0; i < m->n_graphs; i++)
		must(first[i] <= i && first[first[i]] == first[i] &&
		     fdry_oid_eq(&m->graphs[i].oid, &m->graphs[first[i]].oid));
	free(first);
}

/* Check the properties that fdry_image_check() relies on. */
static void externals_check(const struct fdry_manifest *m)
{
	struct fdry_tensor t;
	uint64_t bytes;
	uint32_t i;

	for (i = 0; i < m->n_external_prints; i++) {
		must(m->external_prints[i].tensor < m->n_tensors);
		must(!i || m->external_prints[i - 1].tensor < m->external_prints[i].tensor);
		fdry_manifest_tensor_get(m, &m->tensors[m->external_prints[i].tensor], &t);
		must(t.flags & FDRY_TENSOR_EXTERNAL && !fdry_tensor_extent(&t, &bytes) && bytes);
	}
}

/* Check the properties that fdry_image_selftest() relies on. */
static void selftests_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_selftest *e = m->selftests;
	uint32_t i;

	for (i = 0; i < m->n_selftests; i++, e++) {
		must(e->graph < m->n_graphs && e->seed == m->selftests[0].seed && e->seed);
		must(!i || e[-1].graph < e->graph ||
		     (e[-1].graph == e->graph && e[-1].tensor < e->tensor));
		must(e->flags & FDRY_MF_SELFTEST_LEFT_OUT || e->tensor < m->n_tensors);
	}
}

/* Returns whether the bytes are a manifest. */
static bool try_bytes(struct fdry_span s)
{
	uint64_t *aligned = malloc(s.len + 8);
	struct fdry_buf text = { 0 };
	struct fdry_manifest m;
	struct fdry_oid *links = NULL;
	bool opens;
	size_t n;

	must(aligned != NULL);
	memcpy(aligned, s.data, s.len);
	opens = !fdry_manifest_init((struct fdry_span){ (uint8_t *)aligned, s.len }, &m);
	if (opens) {
		must(!manifest_text(&m, &text) && !fdry_manifest_links(&m, &links, &n));
		text_check(&text);
		firsts_check(&m);
		must(!m.n_fingerprints || m.n_fingerprints == m.n_chunks);
		must(!m.n_host_fingerprints || m.n_host_fingerprints == m.n_host_chunks);
		hosts_walk(&m);
		pinned_walk(&m);
		arrays_walk(&m);
		externals_check(&m);
		selftests_check(&m);
		free(links);
		fdry_buf_release(&text);
	}
	free(aligned);
	return opens;
}

/* Each three bytes are a patch: its offset and its value. Without one the manifest is good. */
static void try_patches(struct fdry_span patches)
{
	struct fdry_buf b = good();
	bool opens;
	size_t i;

	for (i = 0; i + 3 <= patches.len; i += 3)
		b.data[fdry_get16(patches.data + i) % b.len] = patches.data[i + 2];
	opens = try_bytes((struct fdry_span){ b.data, b.len });
	must(opens || patches.len >= 3);
	fdry_buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fdry_span rest = { data + 1, len - 1 };

	if (!len)
		return 0;
	if (data[0] & 1)
		(void)try_bytes(rest);
	else
		try_patches(rest);
	return 0;
}
