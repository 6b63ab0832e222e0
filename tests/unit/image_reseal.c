// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of seals that follow each other in one capture. Unchanged memory is neither hashed nor
 * stored again. The image has memory as it is at the seal, even if memory or the store changed in
 * between.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "foundry/capture.h"
#include "image/manifest.h"
#include "tests/lib/image.h"

#define MIB (1ull << 20)
#define BIG (15 * MIB) /* some pieces of a seal, and a part of one */

static struct work w;
static CUdeviceptr big;
static uint8_t *mine; /* the memory's expected content */

static void big_write(uint64_t at, uint64_t len)
{
	cuda_ok(cuMemcpyHtoD_v2, big + at, mine + at, len);
}

/* Numbers that are no pointers, with zeros in two places. */
static void begin(void)
{
	uint64_t i;

	work_make(&w);
	graph_add(&w, 1);
	mine = malloc(BIG);
	ck_assert_ptr_nonnull(mine);
	for (i = 0; i < BIG; i++)
		mine[i] = (uint8_t)(1 + (i * 2654435761u >> 13) % 255);
	memset(mine + 5 * MIB, 0, 3 * MIB);
	memset(mine + 10 * MIB, 0, 100000);
	cuda_ok(cuMemAlloc_v2, &big, BIG);
	big_write(0, BIG);
}

static void end(void)
{
	work_end(&w);
	free(mine);
}

/* Check that the image has the current memory, and that each object of the store matches its id. */
static void image_is_memory(struct fdry_store *store)
{
	struct fdry_buf bytes = { 0 }, chunk = { 0 };
	uint8_t *seen = calloc(1, BIG);
	struct fdry_fingerprint print;
	struct fdry_manifest m;
	struct fdry_reader *reader;
	struct fdry_oid id;
	uint32_t i;

	ck_assert_ptr_nonnull(seen);
	ok(fdry_store_resolve(store, "img", &id));
	ok(fdry_reader_begin(store, &reader));
	ok(fdry_reader_copy(reader, &id, &bytes));
	ok(fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m));
	ck_assert_uint_eq(m.n_fingerprints, m.n_chunks);
	for (i = 0; i < m.n_chunks; i++) {
		if (m.chunks[i].addr - big >= BIG)
			continue;
		chunk.len = 0;
		ok(fdry_reader_copy(reader, &m.chunks[i].oid, &chunk));
		ck_assert_uint_eq(chunk.len, m.chunks[i].size);
		print = fdry_fingerprint_of(chunk.data, chunk.len);
		ck_assert(fdry_fingerprint_eq(print, m.fingerprints[i]));
		memcpy(seen + (m.chunks[i].addr - big), chunk.data, chunk.len);
	}
	ck_assert(!memcmp(seen, mine, BIG));
	fdry_reader_end(reader);
	fdry_buf_release(&chunk);
	fdry_buf_release(&bytes);
	free(seen);
}

/* Seal; how many bytes of content were not known before. */
static uint64_t reseal(struct fdry_store *store)
{
	struct fdry_seal_report r = { .sz = sizeof(r) };

	ok(fdry_capture_seal(w.cap, store, "img", NULL, &r));
	image_is_memory(store);
	ck_assert_uint_ge(r.content_bytes, BIG - 6 * MIB);
	ck_assert_uint_le(r.unchanged_bytes, r.content_bytes);
	return r.content_bytes - r.unchanged_bytes;
}

START_TEST(a_seal_knows_what_did_not_change)
{
	struct fdry_seal_report r = { .sz = sizeof(r) }, s = { .sz = sizeof(s) };
	char first[FDRY_ID_SIZE], again[FDRY_ID_SIZE];

	begin();
	ck_assert_uint_ge(reseal(w.store), BIG - 4 * MIB);
	ok(fdry_capture_seal(w.cap, w.store, "img", first, &r));
	ck_assert_uint_eq(reseal(w.store), 0);
	ok(fdry_capture_seal(w.cap, w.store, "img", again, &s));
	ck_assert_str_eq(first, again);
	ck_assert_uint_eq(r.whole_bytes, s.whole_bytes);
	ck_assert_uint_gt(s.whole_bytes, 0);
	end();
}
END_TEST

/* Change single bytes, at both ends of chunks and in zeros, by kernels and by copies from the
 * host. */
START_TEST(every_byte_that_changes_is_sealed)
{
	static const uint64_t at[] = {
		0, 2 * MIB - 1, 2 * MIB, 6 * MIB, 10 * MIB + 50000, BIG - 1
	};
	uint64_t i;

	begin();
	reseal(w.store);
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		mine[at[i]] ^= 0x5a;
		big_write(at[i], 1);
		ck_assert_uint_le(reseal(w.store), 4 * MIB);
	}
	memset(mine + 10 * MIB, 0, 2 * MIB); /* content becomes zero, */
	big_write(10 * MIB, 2 * MIB);
	reseal(w.store);
	cuda_ok(cuMemsetD8_v2, big + 12 * MIB, 0x33, 3 * MIB); /* and other content */
	memset(mine + 12 * MIB, 0x33, 3 * MIB);
	ck_assert_uint_le(reseal(w.store), 6 * MIB);
	memmove(mine + 8 * MIB, mine + 2 * MIB, 2 * MIB); /* the content of another chunk */
	big_write(8 * MIB, 2 * MIB);
	reseal(w.store);
	ck_assert_uint_eq(reseal(w.store), 0);
	end();
}
END_TEST

/* Code is kept from seal to seal. Code that only a dropped graph used is no longer counted. */
START_TEST(code_of_other_graphs_is_not_counted)
{
	struct fdry_seal_report one = { .sz = sizeof(one) }, two = { .sz = sizeof(two) },
				again = { .sz = sizeof(again) };
	float factor = 1.0f;
	int n = 64;
	void *args[] = { &w.a, &factor, &n };
	CUfunction other;
	CUmodule module;
	void *cubin;
	size_t len;

	begin();
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, &one));
	cubin = test_sim_cubin("kernels", &len);
	cuda_ok(cuModuleLoadData, &module, cubin); /* equal code, loaded once more */
	cuda_ok(cuModuleGetFunction, &other, module, "scale");
	capture_start(&w);
	cuda_ok(cuLaunchKernel, other, 1, 1, 1, 64, 1, 1, 0, w.stream, args, NULL);
	ok(fdry_capture_graph(w.cap, 2, "scale", capture_stop(&w)));
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, &two));
	ck_assert_uint_eq(two.kernels, 2);
	ck_assert_uint_eq(two.whole_bytes, one.whole_bytes);
	ok(fdry_capture_graph_remove(w.cap, 2));
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, &again));
	ck_assert_uint_eq(again.kernels, 1);
	ck_assert_uint_eq(again.whole_bytes, one.whole_bytes);
	free(cubin);
	end();
}
END_TEST

/* Other cells: a tensor that is named between two seals is cut out. */
START_TEST(content_that_is_cut_anew)
{
	struct fdry_tensor t = { .name = "t", .dtype = FDRY_U8, .use = FDRY_USE_CONST, .rank = 1,
				 .shape = { 3 * MIB }, .stride = { 1 } };

	begin();
	reseal(w.store);
	t.addr = big + MIB / 2;
	ok(fdry_capture_tensor(w.cap, &t));
	reseal(w.store);
	ck_assert_uint_eq(reseal(w.store), 0);
	end();
}
END_TEST

/* Chunks of host memory are hashed again only if their bytes, their place or the store changed. */
START_TEST(host_memory_that_did_not_change)
{
	struct fdry_tensor t = { .name = "h", .dtype = FDRY_U8, .use = FDRY_USE_CONST, .rank = 1,
				 .shape = { 5 * MIB }, .stride = { 1 },
				 .flags = FDRY_TENSOR_HOST };
	struct fdry_seal_report r = { .sz = sizeof(r) };
	struct fdry_gc_report gone = { .sz = sizeof(gone) };
	char first[FDRY_ID_SIZE], id[FDRY_ID_SIZE];
	uint64_t device;
	uint8_t *host;

	begin();
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, &r));
	device = r.content_bytes;
	host = malloc(5 * MIB);
	ck_assert_ptr_nonnull(host);
	memset(host, 0x77, MIB);
	memset(host + MIB, 0x78, 4 * MIB);
	t.addr = (uintptr_t)host;
	ok(fdry_capture_tensor(w.cap, &t));
	ok(fdry_capture_seal(w.cap, w.store, "img", first, &r));
	ck_assert_uint_eq(r.content_bytes, device + 5 * MIB);
	ck_assert_uint_eq(r.unchanged_bytes, device);
	ok(fdry_capture_seal(w.cap, w.store, "img", id, &r));
	ck_assert_uint_eq(r.unchanged_bytes, r.content_bytes);
	ck_assert_str_eq(id, first);
	host[3 * MIB] ^= 1;
	ok(fdry_capture_seal(w.cap, w.store, "img", id, &r));
	ck_assert_uint_lt(r.unchanged_bytes, r.content_bytes);
	ck_assert_uint_ge(r.unchanged_bytes, device + 3 * MIB);
	ck_assert_str_ne(id, first);
	host[3 * MIB] ^= 1;
	ok(fdry_capture_seal(w.cap, w.store, "img", id, &r));
	ck_assert_uint_lt(r.unchanged_bytes, r.content_bytes);
	ck_assert_str_eq(id, first);
	ok(fdry_store_remove(w.store, "img"));
	ok(fdry_store_gc(w.store, NULL, &gone));
	ok(fdry_capture_seal(w.cap, w.store, "img", id, &r));
	ck_assert_uint_eq(r.unchanged_bytes, 0);
	ck_assert_str_eq(id, first);
	end();
	free(host);
}
END_TEST

START_TEST(another_store_gets_all_of_it)
{
	struct fdry_store *other;
	char name[400];

	begin();
	reseal(w.store);
	snprintf(name, sizeof(name), "%s/other", path);
	ok(fdry_store_open(name, FDRY_STORE_CREATE, &other));
	ck_assert_uint_ge(reseal(other), BIG - 4 * MIB);
	ck_assert_uint_eq(reseal(other), 0);
	fdry_store_close(other);
	end();
}
END_TEST

/* The store lost content between two seals: it is stored again. */
START_TEST(lost_content_is_stored_again)
{
	struct fdry_gc_report gone = { .sz = sizeof(gone) };

	begin();
	reseal(w.store);
	ok(fdry_store_remove(w.store, "img"));
	ok(fdry_store_gc(w.store, NULL, &gone));
	ck_assert_uint_gt(reseal(w.store), 0);
	ck_assert_uint_eq(reseal(w.store), 0);
	end();
}
END_TEST

/* A seal does not read stored objects. A verify or a load finds damage in the store, and
 * the image is refused until it is repaired. */
START_TEST(damage_in_the_store_is_found_later)
{
	struct fdry_verify_report found = { .sz = sizeof(found) };
	struct fdry_seal_report r = { .sz = sizeof(r) };
	char file[400];
	struct stat st;
	uint8_t *map, *at;
	int fd;

	begin();
	reseal(w.store);
	snprintf(file, sizeof(file), "%s/data.mdb", path);
	fd = open(file, O_RDWR);
	ck_assert(fd >= 0 && !fstat(fd, &st));
	map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	at = memmem(map, (size_t)st.st_size, mine + 8 * MIB + 777, 64);
	ck_assert_ptr_nonnull(at);
	at[5] ^= 1;
	munmap(map, (size_t)st.st_size);
	close(fd);
	ok(fdry_capture_seal(w.cap, w.store, "img", NULL, &r));
	ck_assert_uint_eq(r.unchanged_bytes, r.content_bytes);
	ok(fdry_store_verify(path, NULL, &found));
	ck_assert_uint_eq(found.damaged, 1);
	ck_assert_uint_eq(found.broken, 1);
	end();
}
END_TEST

/* --- graphs that a program promises not to change --- */

/* Seal, and seal again with nothing kept of these graphs. Check that both ids are equal, and write
 * the id.
 */
static void seal_like_fresh(const uint64_t *keys, size_t n, char *id)
{
	char fresh[FDRY_ID_SIZE];
	size_t i;

	ok(fdry_capture_seal(w.cap, w.store, "img", id, NULL));
	for (i = 0; i < n; i++)
		ok(fdry_capture_graph_fixed(w.cap, keys[i], 1));
	ok(fdry_capture_seal(w.cap, w.store, "img", fresh, NULL));
	ck_assert_str_eq(id, fresh);
}

/* A kernel of its own, as graph @key. */
static CUgraph scale_add(uint64_t key, CUdeviceptr p, float factor)
{
	int n = N;
	void *args[] = { &p, &factor, &n };
	CUgraph graph;

	capture_start(&w);
	cuda_ok(cuLaunchKernel, w.scale, 1, 1, 1, 64, 1, 1, 0, w.stream, args, NULL);
	graph = capture_stop(&w);
	ok(fdry_capture_graph(w.cap, key, "scale", graph));
	return graph;
}

static void factor_set(CUgraph graph, float factor)
{
	CUDA_KERNEL_NODE_PARAMS p;
	CUgraphNode node;
	size_t one = 1;
	int n = N;
	void *args[] = { &w.a, &factor, &n };

	cuda_ok(cuGraphGetNodes, graph, &node, &one);
	cuda_ok(cuGraphKernelNodeGetParams_v2, node, &p);
	p.kernelParams = args;
	cuda_ok(cuGraphKernelNodeSetParams_v2, node, &p);
}

/* The program has the handle: it promised nothing, or it ended its promise. */
START_TEST(graphs_that_change)
{
	char id[FDRY_ID_SIZE], before[FDRY_ID_SIZE];
	CUgraph graph;
	int i;

	work_make(&w);
	graph = scale_add(1, w.a, 2);
	for (i = 0; i < 3; i++) {
		ok(fdry_capture_seal(w.cap, w.store, "img", before, NULL));
		if (_i) {
			ok(fdry_capture_graph_fixed(w.cap, 1, 1));
			ok(fdry_capture_seal(w.cap, w.store, "img", id, NULL));
			ck_assert_str_eq(id, before);
			ok(fdry_capture_graph_fixed(w.cap, 1, 0));
		}
		factor_set(graph, 3.0f + (float)i);
		ok(fdry_capture_seal(w.cap, w.store, "img", id, NULL));
		ck_assert_str_ne(id, before);
	}
	fails(NOKEY, "no graph with key 2", fdry_capture_graph_fixed(w.cap, 2, 1));
	work_end(&w);
}
END_TEST

/* A promise ends with fdry_capture_graph_remove(): another graph with the same handle and the same
 * nodes, under the same key, is read. */
START_TEST(graph_that_was_made_again)
{
	static const uint64_t key[] = { 1 };
	char id[FDRY_ID_SIZE], before[FDRY_ID_SIZE];
	CUgraph graph;

	work_make(&w);
	graph = scale_add(1, w.a, 2);
	ok(fdry_capture_graph_fixed(w.cap, 1, 1));
	seal_like_fresh(key, 1, before);
	ok(fdry_capture_graph_remove(w.cap, 1));
	factor_set(graph, 3);
	ok(fdry_capture_graph(w.cap, 1, "scale", graph));
	ok(fdry_capture_graph_fixed(w.cap, 1, 1));
	seal_like_fresh(key, 1, id);
	ck_assert_str_ne(id, before);
	work_end(&w);
}
END_TEST

/* Attributes that a program sets on a kernel between two seals are in the second image. */
START_TEST(kernels_that_change)
{
	static const uint64_t keys[] = { 1, 2 };
	char id[FDRY_ID_SIZE], before[FDRY_ID_SIZE];
	int shared;

	work_make(&w);
	graph_add(&w, 1);
	scale_add(2, w.a, 2);
	ok(fdry_capture_graph_fixed(w.cap, 1, 1));
	ok(fdry_capture_graph_fixed(w.cap, 2, 1));
	seal_like_fresh(keys, 2, before);
	cuda_ok(cuFuncGetAttribute, &shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		w.scale);
	cuda_ok(cuFuncSetAttribute, w.scale, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096);
	seal_like_fresh(keys, 2, id);
	ck_assert_str_ne(id, before);
	cuda_ok(cuFuncSetAttribute, w.scale, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		shared);
	seal_like_fresh(keys, 2, id);
	ck_assert_str_eq(id, before);
	work_end(&w);
}
END_TEST

/* Kernels are numbered in the order of first use: without graph 1 the kernel of graph 2 is the
 * first. */
START_TEST(graphs_that_are_dropped)
{
	static const uint64_t keys[] = { 2, 3 };
	char id[FDRY_ID_SIZE];

	work_make(&w);
	graph_add(&w, 1);
	scale_add(2, w.a, 2);
	graph_add(&w, 3);
	ok(fdry_capture_graph_fixed(w.cap, 2, 1));
	ok(fdry_capture_graph_fixed(w.cap, 3, 1));
	ok(work_seal(&w, "img"));
	ok(fdry_capture_graph_remove(w.cap, 1));
	seal_like_fresh(keys, 2, id);
	work_end(&w);
}
END_TEST

/* A seal that leaves out graphs is like one of a capture that never had them. */
START_TEST(graphs_that_are_left_out)
{
	static const uint64_t keys[] = { 1, 2, 3 }, two[] = { 2 };
	char all[FDRY_ID_SIZE], alone[FDRY_ID_SIZE], id[FDRY_ID_SIZE];
	struct fdry_seal_report r = { .sz = sizeof(r) };

	work_make(&w);
	graph_add(&w, 1);
	scale_add(2, w.a, 2);
	graph_add(&w, 3);
	if (_i) {
		ok(fdry_capture_graph_fixed(w.cap, 2, 1));
		ok(fdry_capture_graph_fixed(w.cap, 3, 1));
	}
	ok(fdry_capture_seal(w.cap, w.store, "img", all, NULL));
	fails(NOKEY, "no graph with key 4", fdry_capture_graph_skip(w.cap, 4, 1));
	ok(fdry_capture_graph_skip(w.cap, 1, 1));
	ok(fdry_capture_graph_skip(w.cap, 3, 1));
	ok(fdry_capture_seal(w.cap, w.store, "img", alone, &r));
	ck_assert_uint_eq(r.graphs, 1);
	ck_assert_uint_eq(r.kernels, 1);
	ok(fdry_capture_graph_skip(w.cap, 2, 1));
	fails(STATE, "fdry_capture_graph_skip() left out all", work_seal(&w, "img"));
	ok(fdry_capture_graph_skip(w.cap, 1, 0));
	ok(fdry_capture_graph_skip(w.cap, 2, 0));
	ok(fdry_capture_graph_skip(w.cap, 3, 0));
	ok(fdry_capture_seal(w.cap, w.store, "img", id, &r));
	ck_assert_str_eq(id, all);
	ck_assert_uint_eq(r.graphs, 3);
	seal_like_fresh(keys, 3, id);
	ok(fdry_capture_graph_remove(w.cap, 1));
	ok(fdry_capture_graph_remove(w.cap, 3));
	seal_like_fresh(two, 1, id);
	ck_assert_str_eq(id, alone);
	work_end(&w);
}
END_TEST

static const uint64_t two_keys[] = { 1, 2 };

/* Seal graphs 1 and 2 with a promise that they stay. Graph 2 uses memory that is returned. */
static CUdeviceptr two_begin(char *id)
{
	CUdeviceptr p;

	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &p, 4 * MIB);
	scale_add(2, p, 2);
	ok(fdry_capture_graph_fixed(w.cap, 1, 1));
	ok(fdry_capture_graph_fixed(w.cap, 2, 1));
	seal_like_fresh(two_keys, 2, id);
	return p;
}

/* When the memory @p is back, the graphs are the image @before again. */
static void two_end(CUdeviceptr p, const char *before)
{
	char id[FDRY_ID_SIZE];
	CUdeviceptr again;

	cuda_ok(cuMemAlloc_v2, &again, 4 * MIB);
	ck_assert_uint_eq(again, p);
	seal_like_fresh(two_keys, 2, id);
	ck_assert_str_eq(id, before);
	work_end(&w);
}

/* If only a graph that is left out uses memory, the memory may be freed. When the graph is sealed
 * again, its words are checked, though the last seal did not have them. */
START_TEST(memory_of_a_graph_that_is_left_out)
{
	char before[FDRY_ID_SIZE];
	CUdeviceptr p;

	p = two_begin(before);
	ok(fdry_capture_graph_skip(w.cap, 2, 1));
	ok(fdry_capture_graph_fixed(w.cap, 1, 1)); /* so that no graph needs the words of graph 2 */
	ok(work_seal(&w, "img"));
	cuda_ok(cuMemFree_v2, p);
	ok(work_seal(&w, "img"));
	ok(fdry_capture_graph_skip(w.cap, 2, 0));
	fails(REFUSED, "memory of the region that was freed", work_seal(&w, "img"));
	two_end(p, before);
}
END_TEST

/* Memory that a graph uses is freed: the seal is refused as it is without a promise, and works when
 * the memory is back. */
START_TEST(memory_that_is_freed)
{
	char before[FDRY_ID_SIZE];
	CUdeviceptr p;

	p = two_begin(before);
	cuda_ok(cuMemFree_v2, p);
	fails(REFUSED,
	      "graph 2 'scale': node 0: kernel: kernel scale: byte 0 of its parameter 0 is",
	      work_seal(&w, "img"));
	fails(REFUSED, "memory of the region that was freed", work_seal(&w, "img"));
	two_end(p, before);
}
END_TEST

/* A seal that fails half way has read graph 2 and not graph 3: the next seal still asks about the
 * words of graph 2. */
START_TEST(seal_that_failed_between)
{
	CUdeviceptr p;

	work_make(&w);
	graph_add(&w, 1);
	ok(fdry_capture_graph_fixed(w.cap, 1, 1));
	ok(work_seal(&w, "img"));
	cuda_ok(cuMemAlloc_v2, &p, 4 * MIB);
	scale_add(2, p, 2);
	scale_add(3, w.before, 2);
	ok(fdry_capture_graph_fixed(w.cap, 2, 1));
	fails(REFUSED, "graph 3", work_seal(&w, "img"));
	ok(fdry_capture_graph_remove(w.cap, 3));
	cuda_ok(cuMemFree_v2, p);
	fails(REFUSED,
	      "graph 2 'scale': node 0: kernel: kernel scale: byte 0 of its parameter 0 is",
	      work_seal(&w, "img"));
	work_end(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_reseal");
	TCase *tc = tcase_create("reseal");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_seal_knows_what_did_not_change);
	tcase_add_test(tc, every_byte_that_changes_is_sealed);
	tcase_add_test(tc, code_of_other_graphs_is_not_counted);
	tcase_add_test(tc, content_that_is_cut_anew);
	tcase_add_test(tc, host_memory_that_did_not_change);
	tcase_add_test(tc, another_store_gets_all_of_it);
	tcase_add_test(tc, lost_content_is_stored_again);
	tcase_add_test(tc, damage_in_the_store_is_found_later);
	tcase_add_loop_test(tc, graphs_that_change, 0, 2);
	tcase_add_test(tc, graph_that_was_made_again);
	tcase_add_test(tc, kernels_that_change);
	tcase_add_test(tc, graphs_that_are_dropped);
	tcase_add_loop_test(tc, graphs_that_are_left_out, 0, 2);
	tcase_add_test(tc, memory_of_a_graph_that_is_left_out);
	tcase_add_test(tc, memory_that_is_freed);
	tcase_add_test(tc, seal_that_failed_between);
	suite_add_tcase(s, tc);
	return test_main(s);
}
