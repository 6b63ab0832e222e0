// SPDX-License-Identifier: Apache-2.0
/*
 * seal.c - the one place where an image is put together.
 *
 * Phases, in this order: look at what is alive, read the graphs (which interns kernels),
 * slice the kernels, lay out memory, store content, store manifest and ref. Objects go to
 * the store as they are made, the manifest last: a seal that fails leaves objects that
 * nothing refers to, for gc. The capture is locked throughout.
 */
#include <stdlib.h>
#include <string.h>

#include "api/capture.h"
#include "api/clock.h"
#include "api/identity.h"
#include "api/layout.h"
#include "api/manifest.h"
#include "api/opts.h"
#include "graph/graph.h"
#include "store/store.h"

/* Zeros shorter than this inside content are kept, so that content stays in few pieces. */
#define ZERO_RUN_MIN (64u << 10)
#define CONTENT_BLOCK 4096u

struct seal {
	struct fdry_capture *cap;
	struct fdry_put *put;
	struct fdry_kernel_set *kernels;
	struct fdry_mem_reader *reader;
	struct fdry_layout layout;
	uint64_t cursor; /* one past the last address ever handed out */
	struct fdry_manifest_writer w;
	struct fdry_seal_report report;
};

/* --- what is alive --- */

static int live_check(struct seal *s)
{
	struct fdry_hook_live live;

	s->cap->hook->live(&live);
	if (live.captures)
		return fdry_fail(FDRY_E_STATE, "%llu stream(s) are capturing; end every capture before the seal", (unsigned long long)live.captures);
	if (live.textures || live.surfaces)
		return fdry_fail(FDRY_E_REFUSED, "%llu texture and %llu surface objects are alive, and a graph's arguments may hold them; "
				 "destroy them before the seal", (unsigned long long)live.textures, (unsigned long long)live.surfaces);
	if (live.unwrapped)
		return fdry_fail(FDRY_E_REFUSED, "the driver gave the program %llu function(s) in a version that the stand-in does not know, so it may not "
				 "have seen all; use a newer Foundry", (unsigned long long)live.unwrapped);
	return 0;
}

static int random_check(struct seal *s)
{
	const struct fdry_capture_graph *g = fdry_array(s->cap->graphs, struct fdry_capture_graph);
	size_t i;

	if (!s->cap->graphs.len)
		return fdry_fail(FDRY_E_STATE, "there is no graph to seal; add one with fdry_capture_graph()");
	for (i = 0; i < fdry_array_count(s->cap->graphs, struct fdry_capture_graph); i++)
		if (g[i].random)
			return fdry_fail(FDRY_E_REFUSED, "graph %llu '%s' draws random numbers, whose generator an image cannot hold; "
					 "draw them outside of the graph", (unsigned long long)g[i].key, g[i].name);
	return 0;
}

/* --- graphs --- */

static int outside_name(struct seal *s, CUdeviceptr addr, unsigned int type, const char **what)
{
	unsigned int managed = 0;

	(void)fdry_call_raw(s->cap->drv, cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, addr);
	if (managed)
		*what = "managed memory";
	else if (type == CU_MEMORYTYPE_HOST)
		*what = "host memory";
	else
		*what = "device memory outside the capture's region: a module variable, memory from before fdry_capture_begin(), "
			"or of an allocator other than cuMemAlloc";
	return 0;
}

static int where(void *arg, CUdeviceptr addr, enum fdry_where *ret, const char **what)
{
	struct seal *s = arg;
	const struct fdry_driver *drv = s->cap->drv;
	unsigned int type = 0;
	CUresult res;

	if (addr >= s->layout.base && addr < s->cursor) {
		*ret = fdry_layout_find(&s->layout, addr) ? FDRY_WHERE_REGION : FDRY_WHERE_OUTSIDE;
		*what = "memory of the region that was freed";
		return 0;
	}
	res = fdry_call_raw(drv, cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr);
	if (res == CUDA_ERROR_INVALID_VALUE) {
		*ret = FDRY_WHERE_NOTHING;
		return 0;
	}
	if (res != CUDA_SUCCESS)
		return fdry_driver_result(drv, FDRY_DRV_cuPointerGetAttribute, res);
	*ret = FDRY_WHERE_OUTSIDE;
	return outside_name(s, addr, type, what);
}

static int graph_cmp(const void *a, const void *b)
{
	uint64_t x = ((const struct fdry_capture_graph *)a)->key, y = ((const struct fdry_capture_graph *)b)->key;

	return (x > y) - (x < y);
}

static int graph_put(struct seal *s, const struct fdry_capture_graph *g, struct fdry_span bytes)
{
	struct fdry_mf_graph mf = { .key = g->key };
	struct fdry_graph_view view;
	int err;

	err = fdry_graph_view_open(bytes, &view);
	if (!err)
		err = fdry_put_object(s->put, FDRY_OBJECT_GRAPH, bytes.data, bytes.len, NULL, 0, &mf.oid);
	if (!err)
		err = fdry_manifest_add_str(&s->w, g->name, &mf.name);
	if (err)
		return err;
	mf.nodes = view.header.nodes;
	s->report.graphs++;
	s->report.nodes += mf.nodes;
	s->report.graph_bytes += bytes.len;
	return fdry_buf_put(&s->w.graphs, &mf, sizeof(mf));
}

static int graphs_seal(struct seal *s)
{
	struct fdry_graph_reader rd = { s->cap->drv, s->kernels, where, s };
	struct fdry_capture_graph *g = fdry_array(s->cap->graphs, struct fdry_capture_graph);
	size_t i, n = fdry_array_count(s->cap->graphs, struct fdry_capture_graph);
	int err = 0;

	qsort(g, n, sizeof(*g), graph_cmp);
	for (i = 0; i < n && !err; i++) {
		struct fdry_buf bytes = { 0 };

		err = fdry_graph_read(&rd, g[i].graph, &bytes);
		if (!err)
			err = graph_put(s, &g[i], (struct fdry_span){ bytes.data, bytes.len });
		if (err)
			fdry_fail_at(err, "graph %llu '%s'", (unsigned long long)g[i].key, g[i].name);
		fdry_buf_release(&bytes);
	}
	return err;
}

/* --- kernels --- */

static int kernel_add(struct seal *s, const struct fdry_kernel *k)
{
	struct fdry_mf_kernel mf = { .param_count = k->nparams, .param_bytes = k->param_bytes };
	const struct fdry_mf_object *o = fdry_array(s->w.objects, struct fdry_mf_object);
	uint32_t i, n = (uint32_t)fdry_array_count(s->w.objects, struct fdry_mf_object);
	int err;

	for (i = 0; i < n && !fdry_oid_eq(&o[i].oid, &k->object); i++)
		;
	if (i == n)
		return fdry_bug("kernel %s has an object that is not in its set", k->name);
	mf.object = i;
	mf.param_first = (uint32_t)fdry_array_count(s->w.params, struct fdry_mf_param);
	memcpy(mf.attrs, k->attrs, sizeof(k->attrs));
	err = fdry_manifest_add_str(&s->w, k->name, &mf.name);
	if (!err)
		err = fdry_manifest_add_str(&s->w, k->whole && k->whole_reason ? k->whole_reason : "", &mf.whole_reason);
	if (!err)
		err = fdry_buf_put(&s->w.params, k->params, k->nparams * sizeof(*k->params));
	s->report.kernels++;
	s->report.kernels_whole += k->whole;
	return err ? err : fdry_buf_put(&s->w.kernels, &mf, sizeof(mf));
}

_Static_assert(sizeof(struct fdry_param) == sizeof(struct fdry_mf_param), "parameters are copied as they are");

static int kernels_seal(struct seal *s)
{
	struct fdry_mf_object o;
	struct fdry_span bytes;
	struct fdry_oid oid;
	uint32_t i;
	int err;

	err = fdry_kernel_set_slice(s->kernels);
	for (i = 0; !err && i < fdry_kernel_set_object_count(s->kernels); i++) {
		bytes = fdry_kernel_set_object(s->kernels, i, &o.oid);
		err = fdry_put_object(s->put, FDRY_OBJECT_KERNEL, bytes.data, bytes.len, NULL, 0, &oid);
		if (!err && !fdry_oid_eq(&oid, &o.oid))
			err = fdry_bug("a kernel object's id is not its hash");
		if (!err)
			err = fdry_buf_put(&s->w.objects, &o, sizeof(o));
		s->report.kernel_bytes += bytes.len;
	}
	for (i = 0; !err && i < fdry_kernel_set_count(s->kernels); i++)
		err = kernel_add(s, fdry_kernel_set_get(s->kernels, i));
	s->report.whole_bytes = fdry_kernel_set_whole_bytes(s->kernels);
	return err;
}

/* --- memory --- */

static bool is_zero(const uint8_t *p, size_t len)
{
	return !len || (!p[0] && !memcmp(p, p + 1, len - 1));
}

/* Bytes from @addr to the end of its content block, at most @len. */
static size_t block_len(uint64_t addr, size_t len)
{
	uint64_t room = CONTENT_BLOCK - addr % CONTENT_BLOCK;

	return room < len ? (size_t)room : len;
}

static size_t zero_run(uint64_t addr, const uint8_t *bytes, size_t len)
{
	size_t at = 0, n;

	for (; at < len; at += n) {
		n = block_len(addr + at, len - at);
		if (!is_zero(bytes + at, n))
			break;
	}
	return at;
}

/* How much of what begins with a block that is not zero goes into one chunk. */
static size_t chunk_run(uint64_t addr, const uint8_t *bytes, size_t len)
{
	uint64_t room = FDRY_MF_CHUNK_MAX - addr % FDRY_MF_CHUNK_MAX;
	size_t at, zeros;

	if (len > room)
		len = (size_t)room;
	for (at = block_len(addr, len); at < len; at += block_len(addr + at, len - at)) {
		zeros = zero_run(addr + at, bytes + at, len - at);
		if (zeros >= ZERO_RUN_MIN || at + zeros == len)
			return zeros ? at : len;
		at += zeros;
	}
	return len;
}

static int content_piece(void *arg, uint64_t addr, const uint8_t *bytes, size_t len)
{
	struct seal *s = arg;
	size_t n;
	int err = 0;

	while (len && !err) {
		struct fdry_mf_chunk c = { .addr = addr };

		n = zero_run(addr, bytes, len);
		if (n) {
			s->report.zero_bytes += n;
		} else {
			n = chunk_run(addr, bytes, len);
			c.size = n;
			err = fdry_put_object(s->put, FDRY_OBJECT_CHUNK, bytes, n, NULL, 0, &c.oid);
			if (!err)
				err = fdry_buf_put(&s->w.chunks, &c, sizeof(c));
			s->report.content_bytes += n;
		}
		addr += n;
		bytes += n;
		len -= n;
	}
	return err;
}

static int content_seal(struct seal *s)
{
	const struct fdry_layout_range *r = fdry_array(s->layout.ranges, struct fdry_layout_range);
	size_t i, n = fdry_array_count(s->layout.ranges, struct fdry_layout_range);
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		struct fdry_mf_segment seg = { r[i].addr, r[i].size, r[i].role, 0 };

		err = fdry_buf_put(&s->w.segments, &seg, sizeof(seg));
		if (r[i].role == FDRY_ROLE_SCRATCH)
			s->report.scratch_bytes += r[i].size;
		else if (r[i].role == FDRY_ROLE_EXTERNAL)
			s->report.external_bytes += r[i].size;
		else if (!err)
			err = fdry_mem_read(s->reader, r[i].addr, r[i].size, content_piece, s);
	}
	s->w.base = s->layout.base;
	s->w.end = s->layout.end;
	return err;
}

/* --- names, facts, limits --- */

static int tensor_cmp(const void *a, const void *b)
{
	return strcmp(((const struct fdry_capture_tensor *)a)->desc.name, ((const struct fdry_capture_tensor *)b)->desc.name);
}

static int tensors_seal(struct seal *s)
{
	struct fdry_capture_tensor *t = fdry_array(s->cap->tensors, struct fdry_capture_tensor);
	size_t i, n = fdry_array_count(s->cap->tensors, struct fdry_capture_tensor);
	int err = 0;

	if (n)
		qsort(t, n, sizeof(*t), tensor_cmp);
	for (i = 0; i < n && !err; i++) {
		const struct fdry_tensor *d = &t[i].desc;
		struct fdry_mf_tensor mf = { .dtype = d->dtype, .use = d->use, .flags = d->flags, .rank = d->rank, .addr = d->addr };
		const struct fdry_alloc *a = fdry_layout_find(&s->layout, d->addr);

		if (!a || d->addr + t[i].extent > a->addr + a->size)
			return fdry_fail(FDRY_E_STATE, "the memory of tensor '%s' was freed before the seal; keep it alive", d->name);
		memcpy(mf.shape, d->shape, sizeof(mf.shape));
		memcpy(mf.stride, d->stride, sizeof(mf.stride));
		err = fdry_manifest_add_str(&s->w, d->name, &mf.name);
		if (!err)
			err = fdry_buf_put(&s->w.tensors, &mf, sizeof(mf));
	}
	return err;
}

static int fact_cmp(const void *a, const void *b)
{
	return strcmp(((const struct fdry_fact *)a)->key, ((const struct fdry_fact *)b)->key);
}

static int facts_put(struct seal *s, struct fdry_fact *facts, size_t n)
{
	struct fdry_mf_fact mf;
	size_t i;
	int err = 0;

	qsort(facts, n, sizeof(*facts), fact_cmp);
	for (i = 0; i < n && !err; i++) {
		err = fdry_manifest_add_str(&s->w, facts[i].key, &mf.key);
		if (!err)
			err = fdry_manifest_add_str(&s->w, facts[i].value, &mf.value);
		if (!err)
			err = fdry_buf_put(&s->w.facts, &mf, sizeof(mf));
	}
	return err;
}

static int facts_seal(struct seal *s)
{
	const struct fdry_capture_fact *f = fdry_array(s->cap->facts, struct fdry_capture_fact);
	size_t i, n = fdry_array_count(s->cap->facts, struct fdry_capture_fact);
	struct fdry_identity id;
	struct fdry_fact *facts;
	int err;

	err = fdry_identity_of(s->cap->drv, s->cap->device, &id);
	if (err)
		return err;
	facts = calloc(n + FDRY_IDENTITY_FACTS, sizeof(*facts));
	if (!facts)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		facts[i] = (struct fdry_fact){ f[i].key, f[i].value };
	for (i = 0; i < FDRY_IDENTITY_FACTS; i++)
		facts[n + i] = (struct fdry_fact){ id.fact[i].key, id.fact[i].value };
	err = facts_put(s, facts, n + FDRY_IDENTITY_FACTS);
	free(facts);
	return err;
}

static int limits_seal(struct seal *s)
{
	struct fdry_mf_limit mf = { .limit = CU_LIMIT_STACK_SIZE };
	size_t value;
	int err = fdry_call(s->cap->drv, cuCtxGetLimit, &value, CU_LIMIT_STACK_SIZE);

	if (err)
		return err;
	mf.value = value;
	return fdry_buf_put(&s->w.limits, &mf, sizeof(mf));
}

/* --- the whole --- */

static int commit(struct seal *s, const char *ref, struct fdry_oid *ret)
{
	struct fdry_put *put = s->put;
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_oid *links;
	struct fdry_put_stats stats = { 0 };
	size_t n;
	int err;

	err = fdry_manifest_encode(&s->w, &bytes);
	if (err)
		return err;
	s->report.manifest_bytes = bytes.len;
	err = fdry_manifest_open((struct fdry_span){ bytes.data, bytes.len }, &m);
	if (!err)
		err = fdry_manifest_links(&m, &links, &n);
	if (err)
		goto out_release;
	s->put = NULL; /* the commit ends the session, also when it fails */
	err = fdry_put_commit(put, bytes.data, bytes.len, links, n, ref, ret, &stats);
	s->report.objects_new = stats.objects_new;
	s->report.objects_known = stats.objects_known;
	s->report.stored_new = stats.stored_new;
	free(links);
out_release:
	fdry_buf_release(&bytes);
	return err;
}

static int phases(struct seal *s, const char *ref, struct fdry_oid *ret)
{
	double start = fdry_now_ms(), mark = start;
	int err;

	err = fdry_layout_make(s->cap, s->reader, &s->layout);
	if (!err)
		err = fdry_capture_offset(s->cap, &s->cursor);
	if (err)
		return err;
	s->cursor += s->layout.base;
	fdry_lap_ms(&mark);
	err = graphs_seal(s);
	s->report.graphs_ms = fdry_lap_ms(&mark);
	if (!err)
		err = kernels_seal(s);
	s->report.kernels_ms = fdry_lap_ms(&mark);
	if (!err)
		err = content_seal(s);
	s->report.content_ms = fdry_lap_ms(&mark);
	if (!err)
		err = tensors_seal(s);
	if (!err)
		err = facts_seal(s);
	if (!err)
		err = limits_seal(s);
	if (!err)
		err = commit(s, ref, ret);
	s->report.commit_ms = fdry_lap_ms(&mark);
	s->report.total_ms = mark - start;
	return err;
}

static int code_find(void *arg, CUlibrary library, CUmodule module, struct fdry_code_image *ret)
{
	struct fdry_capture *cap = arg;
	struct fdry_code code;
	int err = cap->hook->code_find(library, module, &code);

	if (err)
		return fdry_standin_result(cap->hook, err);
	if (code.jit_symbols)
		return fdry_fail(FDRY_E_REFUSED, "the code was linked with symbols of the program's own, which cannot be brought back");
	*ret = (struct fdry_code_image){ code.data, code.len, code.njit, code.jit, code.jit_values };
	return 0;
}

static int seal_run(struct seal *s, struct fdry_store *store, const char *ref, struct fdry_oid *ret)
{
	const struct fdry_driver *drv = s->cap->drv;
	int err;

	err = fdry_call(drv, cuCtxSynchronize);
	if (!err)
		err = fdry_mem_reader_new(drv, &s->reader);
	if (!err)
		err = fdry_kernel_set_new(drv, s->cap->device, code_find, s->cap, &s->kernels);
	if (!err)
		err = fdry_put_begin(store, &s->put);
	if (!err)
		err = phases(s, ref, ret);
	fdry_put_abort(s->put);
	fdry_kernel_set_free(s->kernels);
	fdry_mem_reader_free(s->reader);
	fdry_layout_release(&s->layout);
	fdry_manifest_writer_release(&s->w);
	return err;
}

static int seal_in_context(struct seal *s, struct fdry_store *store, const char *ref, struct fdry_oid *ret)
{
	const struct fdry_driver *drv = s->cap->drv;
	CUcontext popped;
	int err;

	err = live_check(s);
	if (!err)
		err = random_check(s);
	if (!err)
		err = fdry_call(drv, cuCtxPushCurrent_v2, s->cap->ctx);
	if (err)
		return err;
	err = seal_run(s, store, ref, ret);
	(void)fdry_call_raw(drv, cuCtxPopCurrent_v2, &popped);
	return err;
}

int fdry_capture_seal(struct fdry_capture *cap, struct fdry_store *store, const char *ref, char *id, struct fdry_seal_report *report)
{
	struct seal s = { .cap = cap };
	struct fdry_oid oid;
	int err;

	/* What the caller got wrong is found before anything is done. */
	err = fdry_report_give(&s.report, sizeof(s.report), report);
	if (!err && ref)
		err = fdry_ref_check(ref);
	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	err = seal_in_context(&s, store, ref, &oid);
	pthread_mutex_unlock(&cap->lock);
	if (!err)
		err = fdry_report_give(&s.report, sizeof(s.report), report);
	if (!err && id)
		fdry_oid_hex(&oid, id);
	return err;
}
