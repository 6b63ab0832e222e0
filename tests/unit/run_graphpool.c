// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the pools that graphs share, and of the blocks that they are cut into. */
#include "run/blocks.h"
#include "tests/lib/run_vectors.h"

START_TEST(pool_ids)
{
	struct fdry_graphpool *p, *q, *own, *again;
	struct fdry_graphpool_id x, y, z, none = { 77, 77 };
	struct fdry_cudagraph *g;

	vectors();
	p = pool_new();
	q = pool_new();
	g = cudagraph_new();
	ok(fdry_cudagraph_pool(g, &own));
	ok(fdry_graphpool_id(p, &x));
	ok(fdry_graphpool_id(q, &y));
	ok(fdry_graphpool_id(own, &z));
	ck_assert(x.hi || x.lo);
	ck_assert(!x.hi && !y.hi && !z.lo && x.lo != y.lo && z.hi);
	ok(fdry_graphpool_get(&x, &again));
	ck_assert_ptr_eq(again, p);
	fdry_graphpool_put(p);
	ok(fdry_graphpool_get(&x, &p)); /* the other reference keeps it */
	fdry_graphpool_put(p);
	fdry_graphpool_put(again);
	fails(NOKEY, "there is no pool", fdry_graphpool_get(&x, &p));
	fails(NOKEY, "(77, 77)", fdry_graphpool_get(&none, &p));
	fails(INVAL, "no pool", fdry_graphpool_id(NULL, &x));
	fdry_graphpool_put(q);
	fdry_graphpool_put(NULL);
	fdry_cudagraph_free(g);
	vectors_end();
}
END_TEST

START_TEST(sealed_pools_refuse)
{
	struct fdry_cudagraph_begin_opts o;
	struct fdry_graphpool *p;
	struct fdry_cudagraph *g;
	fdry_devptr addr = 7;
	uint32_t sealed = 9;

	vectors();
	p = pool_new();
	g = cudagraph_new();
	o = begin_opts(NULL, p, 0);
	ok(fdry_graphpool_sealed(p, &sealed));
	ck_assert_uint_eq(sealed, 0);
	ok(fdry_graphpool_seal(p));
	ok(fdry_graphpool_sealed(p, &sealed));
	ck_assert_uint_eq(sealed, 1);
	fails(STATE, "is sealed", fdry_cudagraph_begin(g, &o));
	fails(STATE, "is sealed", fdry_graphpool_mem_alloc(p, 16, &addr));
	ck_assert_uint_eq(addr, 7);
	ck_assert_ptr_null(fdry_stream_current());
	ok(fdry_graphpool_unseal(p));
	ok(fdry_graphpool_mem_alloc(p, 16, &addr));
	ok(fdry_cudagraph_begin(g, &o));
	ok(fdry_graphpool_seal(p)); /* in a capture: no more memory is allocated */
	fails(STATE, "is sealed", fdry_graphpool_mem_alloc(p, 16, &addr));
	ok(fdry_cudagraph_end(g));
	fdry_cudagraph_free(g);
	fdry_graphpool_put(p);
	vectors_end();
}
END_TEST

/* The next graph of the pool reuses memory that one graph freed; other allocations do not. */
START_TEST(pools_are_shared)
{
	struct fdry_graphpool_info info = { .sz = sizeof(info) };
	struct fdry_cudagraph_begin_opts o;
	struct fdry_graphpool *p;
	struct fdry_cudagraph *g[2];
	fdry_devptr first, second, outside, after;
	int i;

	vectors();
	p = pool_new();
	o = begin_opts(NULL, p, FDRY_CUDAGRAPH_MODE_GLOBAL);
	for (i = 0; i < 2; i++) {
		g[i] = cudagraph_new();
		ok(fdry_cudagraph_begin(g[i], &o));
		ok(fdry_graphpool_mem_alloc(p, BYTES, i ? &second : &first));
		add(fdry_stream_current(), a, b, i ? second : first);
		add(fdry_stream_current(), i ? second : first, b, c);
		ok(fdry_graphpool_mem_free(p, i ? second : first));
		ok(fdry_cudagraph_end(g[i]));
		ok(fdry_cudagraph_instantiate(g[i], 0));
	}
	ck_assert_uint_eq(first, second);
	ok(fdry_graphpool_mem_alloc(p, BYTES, &outside));
	ck_assert_uint_ne(outside, first);
	ok(fdry_graphpool_info(p, &info));
	ck_assert_uint_eq(info.graphs, 2);
	ck_assert_uint_eq(info.used_bytes, 512);
	fails(STATE, "2 graph(s) use the pool", fdry_graphpool_trim(p));
	for (i = 0; i < 2; i++) {
		floats_set(c, 0);
		ok(fdry_cudagraph_launch(g[i], NULL));
		floats_are(c, 5, NULL);
		fdry_cudagraph_free(g[i]);
	}
	ok(fdry_graphpool_mem_alloc(p, BYTES, &after)); /* no graph can use it any more */
	ck_assert_uint_eq(after, first);
	ok(fdry_graphpool_mem_free(p, after));
	ok(fdry_graphpool_trim(p));
	ok(fdry_graphpool_info(p, &info));
	ck_assert_uint_eq(info.reserved_bytes, 2 << 20); /* one allocation is left in it */
	ok(fdry_graphpool_mem_free(p, outside));
	fails(RANGE, "no allocation", fdry_graphpool_mem_free(p, outside));
	ok(fdry_graphpool_trim(p));
	ok(fdry_graphpool_info(p, &info));
	ck_assert_uint_eq(info.reserved_bytes, 0);
	fails(RANGE, "0 bytes", fdry_graphpool_mem_alloc(p, 0, &after));
	fails(RANGE, "bytes", fdry_graphpool_mem_alloc(p, UINT64_MAX, &after));
	fails(NODEVMEM, "", fdry_graphpool_mem_alloc(p, 1ull << 40, &after));
	fdry_graphpool_put(p);
	vectors_end();
}
END_TEST

/* A buffer that a capture used lives as long as the graph, and longer while the pool has other
 * owners. */
START_TEST(buffers_outlive)
{
	struct fdry_cudagraph_begin_opts o;
	struct fdry_graphpool *p;
	struct fdry_cudagraph *g;
	fdry_devptr buf;

	vectors();
	p = pool_new();
	g = cudagraph_new();
	o = begin_opts(NULL, p, 0);
	ok(fdry_cudagraph_begin(g, &o));
	ok(fdry_graphpool_mem_alloc(p, BYTES, &buf));
	add(fdry_stream_current(), a, b, buf);
	ok(fdry_cudagraph_end(g));
	ok(fdry_cudagraph_instantiate(g, 0));
	fdry_graphpool_put(p); /* the graph has it still */
	ok(fdry_cudagraph_launch(g, NULL));
	floats_are(buf, 3, NULL);
	ok(fdry_cudagraph_pool(g, &p));
	ck_assert_int_eq(test_sim_live("allocation"), 4);
	ok(fdry_cudagraph_reset(g));
	ck_assert_int_eq(test_sim_live("allocation"), 3);
	fdry_cudagraph_free(g);
	vectors_end();
}
END_TEST

START_TEST(one_capture_a_pool)
{
	struct fdry_cudagraph_begin_opts o;
	struct fdry_graphpool *p;
	struct fdry_cudagraph *g, *other;
	CUstream s;

	vectors();
	s = stream_new();
	p = pool_new();
	g = cudagraph_new();
	other = cudagraph_new();
	o = begin_opts(NULL, p, 0);
	ok(fdry_cudagraph_begin(g, &o));
	o = begin_opts(s, p, 0);
	fails(STATE, "another capture uses the pool", fdry_cudagraph_begin(other, &o));
	fails(STATE, "one of which captures", fdry_graphpool_trim(p));
	o = begin_opts(s, NULL, 0);
	ok(fdry_cudagraph_begin(other, &o)); /* with its own */
	ok(fdry_cudagraph_end(g));
	ok(fdry_cudagraph_reset(other)); /* ends it */
	fails(STATE, "no capture is in progress", fdry_cudagraph_end(other));
	fdry_cudagraph_free(g);
	fdry_cudagraph_free(other);
	fdry_graphpool_put(p);
	cu(cuStreamDestroy_v2, s);
	vectors_end();
}
END_TEST

/* Random sizes, freed in random order: no two overlap, and in the end it is one block again. */
START_TEST(blocks_never_overlap)
{
	struct fdry_blocks k = { 0 };
	uint64_t at[100] = { 0 }, size[100], state = 1, addr;
	int i, j, n;

	ok(fdry_blocks_add(&k, 1 << 20, 1 << 20));
	ok(fdry_blocks_add(&k, 2 << 20, 1 << 20)); /* adjacent blocks are never joined */
	for (i = 0; i < 5000; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		n = (int)(state >> 33) % 100;
		if (at[n]) {
			ck_assert(fdry_blocks_free(&k, at[n], state >> 63));
			ck_assert(!fdry_blocks_free(&k, at[n], false));
			at[n] = 0;
			continue;
		}
		size[n] = ((state >> 40) % 64 + 1) * 512;
		ok(fdry_blocks_alloc(&k, size[n], true, &addr));
		for (j = 0; addr && j < 100; j++)
			ck_assert(!at[j] || addr + size[n] <= at[j] || at[j] + size[j] <= addr);
		ck_assert(!addr || addr + size[n] <= 2 << 20 || addr >= 2 << 20);
		at[n] = addr;
	}
	for (i = 0; i < 100; i++)
		if (at[i])
			ck_assert(fdry_blocks_free(&k, at[i], true));
	ck_assert_uint_eq(k.used, 0);
	ok(fdry_blocks_alloc(&k, 1 << 20, false, &addr));
	ck_assert_uint_eq(addr, 0); /* all of it is touched */
	fdry_blocks_untouch(&k);
	ok(fdry_blocks_alloc(&k, 1 << 20, false, &addr));
	ck_assert_uint_ne(addr, 0);
	ck_assert_uint_ne(fdry_blocks_remove(&k, false), addr);
	ck_assert_uint_eq(fdry_blocks_remove(&k, false), 0);
	ck_assert_uint_eq(fdry_blocks_remove(&k, true), addr);
	ck_assert_uint_eq(k.reserved, 0);
	ck_assert_ptr_null(k.first);
}
END_TEST

int main(void)
{
	static const TTest *tests[6];
	size_t n = 0;

	tests[n++] = pool_ids;
	tests[n++] = sealed_pools_refuse;
	tests[n++] = pools_are_shared;
	tests[n++] = buffers_outlive;
	tests[n++] = one_capture_a_pool;
	tests[n++] = blocks_never_overlap;
	return test_list("run_graphpool", tests, n);
}
