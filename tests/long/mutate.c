// SPDX-License-Identifier: Apache-2.0
/*
 * mutate.c - loads images whose manifests and graphs were changed and hashed anew. The hashes of
 * such an image are right, so only the checks of its parts can refuse it. It is refused, or it
 * loads, builds its graphs, reads, writes and restores. No step may crash, hang or use more memory
 * than the process may have. To be run under sanitizers (make check-long does).
 */
#include <sys/resource.h>

#include "image/manifest.h"
#include "graph/codec.h"
#include "tests/lib/image.h"

#include "tests/long/long.h"

#define GRAPHS 5
#define READ_MAX (16u << 20)
/* address space of a case's process without a sanitizer. With one, host memory is limited instead,
 * since sanitizers reserve many addresses: 16 processes may share a machine of 24 GiB */
#define MEMORY_MAX (6ull << 30)
#define HOST_MAX (256ull << 20)

enum { UNREADABLE, NOT_STORED, NOT_LOADED, NOT_BUILT, USED };

static struct fdry_buf manifest, graphs[GRAPHS];
static struct fdry_store *s;
static char good[300];
static uint64_t base;

/* --- the image: every part that a manifest has --- */

static void host_part(struct work *w)
{
	float *h;

	cuda_ok(cuMemAllocHost_v2, (void **)&h, 2 * BYTES);
	memset(h, 1, 2 * BYTES);
	capture_start(w);
	cuda_ok(cuMemcpyHtoDAsync_v2, w->a, h, BYTES, w->stream);
	launch_add(w, w->a, w->b, w->c);
	cuda_ok(cuMemsetD32Async, w->a, 7, 100, w->stream);
	cuda_ok(cuMemcpyDtoDAsync_v2, w->a, w->c, 400, w->stream);
	cuda_ok(cuMemcpyDtoHAsync_v2, (char *)h + BYTES, w->c, BYTES, w->stream);
	ok(fdry_capture_graph(w->cap, 7, "host", capture_stop(w)));
	tensor_add(w, "hin", (uintptr_t)h, FDRY_USE_INPUT, FDRY_TENSOR_HOST);
	tensor_add(w, "hout", (uintptr_t)h + BYTES, FDRY_USE_STATE, FDRY_TENSOR_HOST);
}

/* A graph that waits for the event and records it. The last parameter of its first kernel is not
 * passed; the second kernel reads a variable. */
static void event_graph(struct work *w, uint64_t key, CUevent event)
{
	CUdeviceptr args[] = { w->a, w->b, w->c };
	size_t size = sizeof(args);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };
	void *params[] = { &w->c };
	CUDA_KERNEL_NODE_PARAMS k = { .func = w->vecadd, .gridDimX = 1, .gridDimY = 1,
				      .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
				      .blockDimZ = 1, .extra = extra };
	CUgraphNode n;
	CUgraph g;

	cuda_ok(cuGraphCreate, &g, 0);
	cuda_ok(cuGraphAddEventWaitNode, &n, g, NULL, 0, event);
	cuda_ok(cuGraphAddKernelNode_v2, &n, g, &n, 1, &k);
	k.func = w->count;
	k.extra = NULL;
	k.kernelParams = params;
	cuda_ok(cuGraphAddKernelNode_v2, &n, g, &n, 1, &k);
	cuda_ok(cuGraphAddEventRecordNode, &n, g, &n, 1, event);
	ok(fdry_capture_graph(w->cap, key, "event", g));
}

/* Two graphs with one event, and a variable that the program wrote. */
static void event_part(struct work *w)
{
	CUdeviceptr counter;
	CUevent event;
	size_t size;
	int value = 77;

	cuda_ok(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
	event_graph(w, 2, event);
	event_graph(w, 3, event);
	cuda_ok(cuModuleGetGlobal_v2, &counter, &size, w->module, "counter");
	cuda_ok(cuMemcpyHtoD_v2, counter, &value, sizeof(value));
}

static void seal_image(void)
{
	static struct work w;
	struct fdry_tensor t;
	CUdeviceptr kv;

	snprintf(path, sizeof(path), "%s/good", long_dir);
	work_make(&w);
	graph_add(&w, 1);
	host_part(&w);
	event_part(&w);
	capture_start(&w);
	launch_add(&w, w.a, w.b, w.c);
	launch_add(&w, w.c, w.b, w.c);
	ok(fdry_capture_graph(w.cap, 9, "twice", capture_stop(&w)));
	cuda_ok(cuMemAlloc_v2, &kv, 2ull << 20);
	t = (struct fdry_tensor){ .name = "kv", .addr = kv, .dtype = FDRY_F32,
				  .use = FDRY_USE_STATE, .flags = FDRY_TENSOR_EXTERNAL, .rank = 2,
				  .shape = { 2, 1 << 18 }, .stride = { 1 << 18, 1 } };
	ok(fdry_capture_tensor(w.cap, &t));
	ok(fdry_capture_capacity(w.cap, "kv", 32ull << 20));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	t = (struct fdry_tensor){ .name = "columns", .addr = w.b, .dtype = FDRY_F32,
				  .use = FDRY_USE_STATE, .rank = 2, .shape = { 20, 9 },
				  .stride = { 40, 2 } };
	ok(fdry_capture_tensor(w.cap, &t));
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_fact(w.cap, "model", "adder"));
	ok(work_seal(&w, "img"));
	fdry_store_close(w.store);
}

static void make(void)
{
	long_checked(seal_image);
}

static void must(int err)
{
	if (err) {
		fprintf(stderr, "%s\n", fdry_last_error());
		_exit(3);
	}
}

/* A process has a store of its own, which its cases fill. */
static void begin(void)
{
	struct rlimit r = { MEMORY_MAX, MEMORY_MAX };
	struct fdry_manifest m;
	struct fdry_oid id;
	struct fdry_reader *g;
	uint32_t i;

	if (setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1) ||
	    (!TEST_SANITIZED && setrlimit(RLIMIT_DATA, &r)))
		_exit(3);
	snprintf(good, sizeof(good), "%s/good/data.mdb", long_dir);
	snprintf(path, sizeof(path), "%s/store", long_dir);
	{
		size_t len;
		uint8_t *bytes = long_read_file(good, &len);

		long_write_store(path, bytes, len);
		free(bytes);
	}
	must(fdry_store_open(path, 0, &s));
	must(fdry_reader_begin(s, &g));
	must(fdry_store_resolve(s, "img", &id));
	must(fdry_reader_copy(g, &id, &manifest));
	must(fdry_manifest_init((struct fdry_span){ manifest.data, manifest.len }, &m));
	base = m.header->base;
	for (i = 0; i < m.n_graphs && i < GRAPHS; i++)
		must(fdry_reader_copy(g, &m.graphs[i].oid, &graphs[i]));
	fdry_reader_end(g);
}

/* --- mutations --- */

/* Return a number of the kinds that often cause faults. */
static uint64_t odd_number(void)
{
	static const uint64_t known[] = { 0, 1, 2, 3, 4,
					  7, 8, 16, 0xff, 0x100,
					  0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff,
					  0x100000000, 0x200000, 0x1fffff, INT64_MAX, 1ull << 63,
					  UINT64_MAX };

	switch (long_below(4)) {
	case 0:
		return known[long_below(sizeof(known) / sizeof(known[0]))];
	case 1:
		return base + (long_below(0x400000) & ~7ull);
	case 2:
		return long_below(64);
	default:
		return -long_below(4096);
	}
}

static void mutate_once(uint8_t *b, size_t len, size_t from)
{
	size_t at = from + long_below(len - from), other = from + long_below(len - from),
	       width = long_below(2) ? 8 : 4;
	uint64_t x;

	if (long_below(3)) {
		at &= ~(width - 1);
		other &= ~(width - 1);
	}
	if (at + 8 > len || other + 8 > len)
		return;
	switch (long_below(6)) {
	case 0:
	case 1:
		x = odd_number();
		memcpy(b + at, &x, width);
		break;
	case 2:
		b[at] = (uint8_t)long_random();
		break;
	case 3:
		b[at] ^= (uint8_t)(1 << long_below(8));
		break;
	case 4:
		memmove(b + at, b + other, width);
		break;
	default:
		memcpy(&x, b + at, 8);
		x += long_below(17) - 8;
		memcpy(b + at, &x, 8);
	}
}

static void mutate(struct fdry_buf *b, size_t from)
{
	uint64_t n = 1 + long_below(3);

	while (n--)
		mutate_once(b->data, b->len, from);
}

/* --- using the changed image --- */

static int image_use(struct fdry_image *img)
{
	struct fdry_tensor t;
	size_t i;
	uint64_t key, bytes;
	uint32_t d;
	int end = USED;
	void *p;

	must(fdry_image_filled(img, NULL));
	for (i = 0; i < fdry_image_graph_count(img); i++)
		if (fdry_image_graph(img, i, &key, NULL, NULL) || fdry_image_build(img, key))
			end = NOT_BUILT;
	for (i = 0; i < fdry_image_tensor_count(img); i++) {
		must(fdry_image_tensor(img, i, &t));
		bytes = fdry_dtype_size(t.dtype);
		for (d = 0; d < t.rank; d++)
			if (__builtin_mul_overflow(bytes, (uint64_t)t.shape[d], &bytes))
				bytes = UINT64_MAX;
		if (bytes > READ_MAX)
			continue;
		p = malloc(bytes + 1);
		if (p && !fdry_image_read(img, t.name, p, bytes, NULL))
			(void)!fdry_image_write(img, t.name, p, bytes, NULL);
		free(p);
	}
	(void)!fdry_image_restore(img, NULL);
	return end;
}

static int load(const struct fdry_oid *id)
{
	struct fdry_load_opts o = { .sz = sizeof(o) };
	char hex[FDRY_OID_HEX_SIZE], *text = NULL;
	struct fdry_image *img;
	int end;

	fdry_oid_hex(id, hex);
	if (!fdry_image_describe(s, hex, &text))
		free(text);
	if (!long_below(4))
		o.flags |= FDRY_LOAD_POISON;
	if (!long_below(3))
		o.flags |= FDRY_LOAD_OWN_CONTEXT;
	if (fdry_image_load(s, hex, &o, &img))
		return NOT_LOADED;
	end = image_use(img);
	fdry_image_unload(img);
	return end;
}

/* A load may fill all host memory of an image. */
static bool is_too_large(const struct fdry_manifest *m)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; TEST_SANITIZED && i < m->n_hosts && bytes <= HOST_MAX; i++)
		bytes += m->hosts[i].size;
	for (i = 0; TEST_SANITIZED && i < m->n_pinned && bytes <= HOST_MAX; i++)
		bytes += m->pinned[i].size;
	return bytes > HOST_MAX;
}

static int put_and_load(const struct fdry_manifest *m, struct fdry_span bytes,
			const struct fdry_buf *graph)
{
	struct fdry_oid *links = NULL, id;
	struct fdry_writer *p = NULL;
	size_t n;
	int err = fdry_manifest_links(m, &links, &n) ?: fdry_writer_begin(s, &p);

	if (!err && graph)
		err = fdry_writer_add_object(p, FDRY_OBJECT_GRAPH, graph->data, graph->len, NULL, 0,
					     &id);
	if (err && p)
		fdry_writer_abort(p);
	else if (!err)
		err = fdry_writer_commit(p, bytes.data, bytes.len, links, n, "fuzz", &id, NULL);
	free(links);
	if (err)
		return NOT_STORED;
	return is_too_large(m) ? NOT_LOADED : load(&id);
}

/* The manifest names the changed graph. */
static int graph_case(struct fdry_buf *m)
{
	uint32_t i = (uint32_t)long_below(GRAPHS);
	struct fdry_graph_view view;
	struct fdry_manifest mv;
	struct fdry_buf g = { 0 };
	int end = UNREADABLE;

	must(fdry_buf_put(&g, graphs[i].data, graphs[i].len));
	mutate(&g, 64);
	if (!fdry_graph_view_init((struct fdry_span){ g.data, g.len }, &view)) {
		must(fdry_manifest_init((struct fdry_span){ m->data, m->len }, &mv));
		must(fdry_oid_of(g.data, g.len,
				 &((struct fdry_mf_graph *)(uintptr_t)mv.graphs)[i].oid));
		((struct fdry_mf_graph *)(uintptr_t)mv.graphs)[i].nodes = view.header.nodes;
		end = put_and_load(&mv, (struct fdry_span){ m->data, m->len }, &g);
	}
	fdry_buf_release(&g);
	return end;
}

static int run_case(uint64_t nr)
{
	struct fdry_buf m = { 0 };
	struct fdry_manifest mv;
	int end = UNREADABLE;

	(void)nr;
	must(fdry_buf_put(&m, manifest.data, manifest.len));
	if (!long_below(3)) {
		end = graph_case(&m);
	} else {
		mutate(&m, 32);
		if (!fdry_manifest_init((struct fdry_span){ m.data, m.len }, &mv))
			end = put_and_load(&mv, (struct fdry_span){ m.data, m.len }, NULL);
	}
	fdry_buf_release(&m);
	return end;
}

int main(int argc, char **argv)
{
	const struct long_test t = { .name = "mutate", .sample = 1500, .all = 1850000,
				     .together = 1000, .seconds = 60, .prepare = make,
				     .begin = begin, .run = run_case,
				     .ends = { "unreadable", "not stored", "not loaded",
					       "not built", "used" } };

	return long_main(argc, argv, &t);
}
