// SPDX-License-Identifier: Apache-2.0
/*
 * selftest.c - replays the graphs during a seal, and records fingerprints of their outputs.
 *
 * The whole sequence of graphs runs twice from one state of memory, each time with another pattern
 * in scratch. An output with two values is marked as unstable. Everything that a graph can write is
 * saved before and put back afterwards, also after an error: content and external memory of the
 * region, host tensors, pinned memory, arrays, and variables of the kernels' modules. Scratch gets
 * its stamp again. The replays use the driver behind the interposer, so the program's frameworks,
 * and the state of their generators, do not notice.
 *
 * A graph is recorded as left out if a node of it acts outside of the image, or could wait for
 * ever. A message names the graph and the reason.
 */
#include <stdlib.h>
#include <string.h>

#include "arch/stream.h"
#include "image/array_pieces.h"
#include "image/seal/seal.h"
#include "image/selftest.h"
#include "image/tensor.h"
#include "lib/log.h"
#include "lib/threads.h"

#define PIECE ((size_t)4 << 20)
#define RUNS 2u

/* Memory as it was before the replays. */
struct saved {
	uint64_t addr;
	bool host;
	struct fdry_cuarray array; /* without a handle: other memory */
	struct fdry_buf bytes;
};

struct test {
	struct fdry_seal *s;
	struct fdry_selftest t;
	struct fdry_buf tensors;     /* of struct fdry_tensor, in the order of the manifest */
	struct fdry_buf saved;       /* of struct saved */
	CUgraphExec *execs;          /* by graph; NULL: it is left out */
	size_t ngraphs;
	CUstream stream;
	struct fdry_buf prints[RUNS]; /* of struct fdry_fingerprint: graphs, then outputs */
};

/* --- saving and putting back --- */

static int device_save(struct test *x, uint64_t addr, uint64_t size)
{
	struct saved save = { .addr = addr };
	uint64_t at, n;
	int err = fdry_buf_grow(&save.bytes, size, NULL);

	for (at = 0; at < size && !err; at += n) {
		n = size - at < PIECE ? size - at : PIECE;
		err = fdry_call(x->s->cap->drv, cuMemcpyDtoH_v2, save.bytes.data + at, addr + at,
				n);
	}
	if (!err)
		err = fdry_buf_put(&x->saved, &save, sizeof(save));
	if (err)
		fdry_buf_release(&save.bytes);
	return err;
}

static int variable_save(void *arg, CUdeviceptr addr, uint64_t size)
{
	return device_save(arg, addr, size);
}

static int host_save(struct test *x, uint64_t addr, uint64_t size)
{
	struct saved save = { .addr = addr, .host = true };
	int err = fdry_buf_put(&save.bytes, (const void *)(uintptr_t)addr, size);

	if (!err)
		err = fdry_buf_put(&x->saved, &save, sizeof(save));
	if (err)
		fdry_buf_release(&save.bytes);
	return err;
}

static int region_save(struct test *x)
{
	const struct fdry_layout_range *r =
		fdry_array(x->s->layout.ranges, struct fdry_layout_range);
	size_t i, n = fdry_array_count(x->s->layout.ranges, struct fdry_layout_range);
	int err = 0;

	for (i = 0; i < n && !err; i++)
		if (r[i].role != FDRY_ROLE_SCRATCH)
			err = device_save(x, r[i].addr, r[i].size);
	return err;
}

static int hosts_save(struct test *x)
{
	const struct fdry_tensor *d = fdry_array(x->tensors, struct fdry_tensor);
	const struct fdry_seal_pinned *p = &x->s->pinned;
	uint64_t bytes;
	size_t i;
	int err = 0;

	for (i = 0; i < x->t.n && !err; i++)
		if (d[i].flags & FDRY_TENSOR_HOST)
			err = fdry_tensor_extent(&d[i], &bytes) ?:
			      host_save(x, d[i].addr, bytes);
	for (i = 0; i < p->n && !err; i++)
		if (p->state[i] != FDRY_SEAL_PINNED_UNUSED)
			err = host_save(x, p->list[i].addr, p->list[i].size);
	return err;
}

/* Copy a whole array from or to its saved bytes, piece by piece. */
static int array_copy(const struct test *x, const struct saved *save, bool back)
{
	const struct fdry_cuarray *a = &save->array;
	uint8_t *bytes = save->bytes.data;
	struct fdry_cuarray_piece piece;
	uint64_t i, n = fdry_cuarray_pieces(a);
	int err = 0;

	for (i = 0; i < n && !err; i++, bytes += piece.bytes) {
		piece = fdry_cuarray_piece(a, i);
		err = fdry_cuarray_copy(x->s->cap->drv, a, &piece, back ? bytes : NULL,
					back ? NULL : bytes, x->stream);
	}
	if (err) /* earlier pieces may be under way; the message stays that of the failure */
		(void)fdry_call_raw(x->s->cap->drv, cuStreamSynchronize, x->stream);
	return err ? err : fdry_call(x->s->cap->drv, cuStreamSynchronize, x->stream);
}

static int array_save(void *arg, const struct fdry_cuarray *a)
{
	struct saved save = { .array = *a };
	struct test *x = arg;
	int err = fdry_buf_grow(&save.bytes, fdry_cuarray_bytes(a), NULL) ?:
		  array_copy(x, &save, false) ?: fdry_buf_put(&x->saved, &save, sizeof(save));

	if (err)
		fdry_buf_release(&save.bytes);
	return err;
}

static int all_save(struct test *x)
{
	return region_save(x) ?: hosts_save(x) ?: fdry_seal_arrays_each(x->s, array_save, x) ?:
	       fdry_kernel_set_variables(x->s->kernels, variable_save, x);
}

/* Memory of the host that is unchanged may be read-only. */
static int saved_put(const struct test *x, const struct saved *save)
{
	uint64_t at, n;
	int err = 0;

	if (save->array.handle)
		return array_copy(x, save, true);
	if (save->host) {
		if (save->bytes.len &&
		    memcmp((void *)(uintptr_t)save->addr, save->bytes.data, save->bytes.len))
			memcpy((void *)(uintptr_t)save->addr, save->bytes.data, save->bytes.len);
		return 0;
	}
	for (at = 0; at < save->bytes.len && !err; at += n) {
		n = save->bytes.len - at < PIECE ? save->bytes.len - at : PIECE;
		err = fdry_call(x->s->cap->drv, cuMemcpyHtoD_v2, save->addr + at,
				save->bytes.data + at, n);
	}
	return err;
}

static int byte_fill(const struct test *x, uint64_t addr, uint32_t pattern)
{
	return fdry_call(x->s->cap->drv, cuMemsetD8Async, addr,
			 (uint8_t)(pattern >> 8 * (addr % 4)), 1, x->stream);
}

/* Fill @n bytes with a pattern whose first byte lies at a multiple of 4. */
static int pattern_fill(const struct test *x, uint64_t addr, uint64_t n, uint32_t pattern)
{
	uint64_t end = addr + n, words;
	int err = 0;

	for (; addr < end && addr % 4 && !err; addr++)
		err = byte_fill(x, addr, pattern);
	words = (end - addr) / 4;
	if (words && !err)
		err = fdry_call(x->s->cap->drv, cuMemsetD32Async, addr, pattern, words, x->stream);
	for (addr += 4 * words; addr < end && !err; addr++)
		err = byte_fill(x, addr, pattern);
	return err;
}

/* Fill scratch, which may begin and end anywhere if an external tensor lies beside it. */
static int scratch_fill(const struct test *x, uint32_t pattern)
{
	const struct fdry_layout_range *r =
		fdry_array(x->s->layout.ranges, struct fdry_layout_range);
	size_t i, n = fdry_array_count(x->s->layout.ranges, struct fdry_layout_range);
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		if (r[i].role == FDRY_ROLE_SCRATCH)
			err = pattern_fill(x, r[i].addr, r[i].size, pattern);
	}
	return err ? err : fdry_call(x->s->cap->drv, cuStreamSynchronize, x->stream);
}

/* Put all memory back, even if a part fails. */
static int put_back(const struct test *x)
{
	const struct saved *save = fdry_array(x->saved, struct saved);
	size_t i, n = fdry_array_count(x->saved, struct saved);
	int err = 0, result;

	for (i = 0; i < n; i++) {
		result = saved_put(x, &save[i]);
		err = err ? err : result;
	}
	result = scratch_fill(x, FDRY_STAMP);
	err = err ? err : result;
	result = fdry_call(x->s->cap->drv, cuCtxSynchronize);
	err = err ? err : result;
	return err ? fdry_fail_at(err, "memory has the values of a self-test; end this program")
		   : 0;
}

/* --- graphs --- */

/* Why a node of @type cannot be replayed; NULL if it can. */
static const char *type_reason(CUgraphNodeType type)
{
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
	case CU_GRAPH_NODE_TYPE_MEMCPY:
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_EMPTY: /* allocation and free nodes, too: see hook/graph_memory.c */
	case CU_GRAPH_NODE_TYPE_GRAPH:
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return NULL;
	case CU_GRAPH_NODE_TYPE_HOST:
		return "a host node, which calls a function of the program";
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return "an event, which orders other work of the program";
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return "a semaphore, which orders other work of the program";
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return "a conditional node, and the driver allows one executable of its graph";
	default:
		return "a node of another kind than self-tests replay";
	}
}

/* Set @why if one of the operations waits. The others write memory, which is put back. */
static int memops_check(const struct fdry_driver *drv, CUgraphNode node, const char **why)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS p;
	unsigned int i;
	int err = fdry_call(drv, cuGraphBatchMemOpNodeGetParams, node, &p);

	for (i = 0; !err && i < p.count; i++)
		if (p.paramArray[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
		    p.paramArray[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
			*why = "a memory operation that waits for a value";
	return err;
}

static int graph_check(const struct fdry_driver *drv, CUgraph graph, const char **why);

static int node_check(const struct fdry_driver *drv, CUgraphNode node, const char **why)
{
	CUgraphNodeType type;
	CUgraph child;
	int err = fdry_call(drv, cuGraphNodeGetType, node, &type);

	if (err)
		return err;
	*why = type_reason(type);
	if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
		return memops_check(drv, node, why);
	if (type != CU_GRAPH_NODE_TYPE_GRAPH)
		return 0;
	return fdry_call(drv, cuGraphChildGraphNodeGetGraph, node, &child) ?:
	       graph_check(drv, child, why);
}

/* @why: the first reason for which the graph cannot be replayed, or NULL. */
static int graph_check(const struct fdry_driver *drv, CUgraph graph, const char **why)
{
	CUgraphNode *nodes;
	size_t i, n = 0;
	int err = fdry_call(drv, cuGraphGetNodes, graph, NULL, &n);

	*why = NULL;
	if (err || !n)
		return err;
	nodes = calloc(n, sizeof(*nodes));
	err = nodes ? fdry_call(drv, cuGraphGetNodes, graph, nodes, &n) : fdry_nomem();
	for (i = 0; i < n && !err && !*why; i++)
		err = node_check(drv, nodes[i], why);
	free(nodes);
	return err;
}

static int graphs_make(struct test *x)
{
	struct fdry_capture_graph **g = fdry_array(x->s->graphs, struct fdry_capture_graph *);
	const struct fdry_driver *drv = x->s->cap->drv;
	const char *why;
	size_t i;
	int err = 0;

	x->execs = calloc(x->ngraphs, sizeof(CUgraphExec));
	if (!x->execs)
		return fdry_nomem();
	for (i = 0; i < x->ngraphs && !err; i++) {
		err = graph_check(drv, g[i]->graph, &why);
		if (!err && why)
			fdry_warn("the self-test leaves out graph %llu '%.100s': it has %s",
				  (unsigned long long)g[i]->key, g[i]->name, why);
		else if (!err)
			err = fdry_call(drv, cuGraphInstantiateWithFlags, &x->execs[i],
					g[i]->graph, 0);
	}
	return err;
}

/* Write the state from which the graph draws, as a load does before a launch. */
static int rng_write(const struct test *x, uint64_t key)
{
	const struct fdry_capture_rng_use *u =
		fdry_array(x->s->rng_uses, struct fdry_capture_rng_use);
	size_t i, n = fdry_array_count(x->s->rng_uses, struct fdry_capture_rng_use);
	const uint64_t zero = 0;
	int err = 0;

	for (i = 0; i < n && !err; i++)
		if (u[i].key == key)
			err = fdry_call(x->t.drv, cuMemcpyHtoD_v2, u[i].desc.seed, &x->t.seed,
					sizeof(x->t.seed)) ?:
			      fdry_call(x->t.drv, cuMemcpyHtoD_v2, u[i].desc.offset, &zero,
					sizeof(zero));
	return err ? err : fdry_call(x->t.drv, cuCtxSynchronize);
}

static int graph_replay(const struct test *x, size_t graph, struct fdry_buf *prints)
{
	struct fdry_capture_graph **g = fdry_array(x->s->graphs, struct fdry_capture_graph *);
	struct fdry_fingerprint print;
	size_t i;
	int err;

	fdry_stream_note_launch();
	err = fdry_selftest_fill(&x->t, false) ?: rng_write(x, g[graph]->key) ?:
	      fdry_call(x->t.drv, cuGraphLaunch, x->execs[graph], x->stream) ?:
	      fdry_call(x->t.drv, cuCtxSynchronize);
	for (i = 0; i < x->t.n && !err; i++)
		if (fdry_selftest_compares(&x->t.tensors[i]))
			err = fdry_selftest_print(&x->t, i, &print) ?:
			      fdry_buf_put(prints, &print, sizeof(print));
	return err ? fdry_fail_at(err, "the self-test of graph %llu '%s'",
				  (unsigned long long)g[graph]->key, g[graph]->name) : 0;
}

/* Replay all graphs, with another pattern in scratch than the other run. */
static int run(struct test *x, unsigned int number)
{
	size_t i;
	int err = scratch_fill(x, number ? 0x5A5A5A5Au : 0xA5A5A5A5u) ?:
		  fdry_selftest_fill(&x->t, true);

	for (i = 0; i < x->ngraphs && !err; i++)
		if (x->execs[i])
			err = graph_replay(x, i, &x->prints[number]);
	return err;
}

/* Run, and put memory back in any case. */
static int run_undone(struct test *x, unsigned int number)
{
	struct fdry_saved_err saved_err = { 0 };
	int err = run(x, number), undone;

	if (err)
		fdry_saved_err_set(&saved_err, err);
	undone = put_back(x);
	if (undone)
		return undone;
	return err ? fdry_saved_err_restore(&saved_err) : 0;
}

/* --- the results --- */

static int graph_record(const struct test *x, size_t graph, const struct fdry_fingerprint **a,
			const struct fdry_fingerprint **b)
{
	struct fdry_mf_selftest mf = { .graph = (uint32_t)graph, .seed = x->t.seed };
	size_t i;
	int err = 0;

	if (!x->execs[graph]) {
		mf.tensor = UINT32_MAX;
		mf.flags = FDRY_MF_SELFTEST_LEFT_OUT;
		return fdry_buf_put(&x->s->w.selftests, &mf, sizeof(mf));
	}
	for (i = 0; i < x->t.n && !err; i++) {
		if (!fdry_selftest_compares(&x->t.tensors[i]))
			continue;
		mf.tensor = (uint32_t)i;
		mf.print = (struct fdry_fingerprint){ 0 };
		mf.flags = fdry_fingerprint_eq(**a, **b) ? 0 : FDRY_MF_SELFTEST_UNSTABLE;
		if (!mf.flags)
			mf.print = **a;
		++*a;
		++*b;
		err = fdry_buf_put(&x->s->w.selftests, &mf, sizeof(mf));
	}
	return err;
}

static int record(const struct test *x)
{
	const struct fdry_fingerprint *a = fdry_array(x->prints[0], struct fdry_fingerprint);
	const struct fdry_fingerprint *b = fdry_array(x->prints[1], struct fdry_fingerprint);
	size_t i;
	int err = 0;

	for (i = 0; i < x->ngraphs && !err; i++)
		err = graph_record(x, i, &a, &b);
	return err;
}

/* --- all of it --- */

/* List the tensors. A load that tests cannot know the bytes of an external constant on the host,
 * and such memory of the program may be read-only, so nothing may fill it. */
static int tensors_list(struct test *x)
{
	const struct fdry_capture_tensor *t =
		fdry_array(x->s->cap->tensors, struct fdry_capture_tensor);
	size_t i, n = fdry_array_count(x->s->cap->tensors, struct fdry_capture_tensor), outputs = 0;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		if (t[i].desc.flags & FDRY_TENSOR_HOST && t[i].desc.flags & FDRY_TENSOR_EXTERNAL &&
		    t[i].desc.use != FDRY_USE_INPUT)
			return fdry_fail(FDRY_E_REFUSED,
					 "a self-test cannot fill tensor '%s', which is external, "
					 "in host memory and no input; seal without a self-test",
					 t[i].desc.name);
		outputs += fdry_selftest_compares(&t[i].desc);
		err = fdry_buf_put(&x->tensors, &t[i].desc, sizeof(t[i].desc));
	}
	x->t.tensors = fdry_array(x->tensors, struct fdry_tensor);
	x->t.n = n;
	if (err || outputs)
		return err;
	return fdry_fail(FDRY_E_STATE, "a self-test has nothing to compare; name an output with "
				       "fdry_capture_tensor()");
}

static void test_release(struct test *x)
{
	struct saved *save = fdry_array(x->saved, struct saved);
	size_t i;

	for (i = 0; i < fdry_array_count(x->saved, struct saved); i++)
		fdry_buf_release(&save[i].bytes);
	for (i = 0; x->execs && i < x->ngraphs; i++)
		if (x->execs[i])
			(void)fdry_call_raw(x->t.drv, cuGraphExecDestroy, x->execs[i]);
	if (x->stream)
		(void)fdry_call_raw(x->t.drv, cuStreamDestroy_v2, x->stream);
	for (i = 0; i < RUNS; i++)
		fdry_buf_release(&x->prints[i]);
	free(x->execs);
	fdry_buf_release(&x->saved);
	fdry_buf_release(&x->tensors);
}

int fdry_seal_selftest(struct fdry_seal *s)
{
	struct test x = { .s = s,
			  .t = { .drv = s->cap->drv, .seed = s->cap->selftest },
			  .ngraphs = fdry_array_count(s->graphs, struct fdry_capture_graph *) };
	int err;

	if (!x.t.seed)
		return 0;
	err = tensors_list(&x) ?: fdry_call(x.t.drv, cuStreamCreate, &x.stream,
					    CU_STREAM_NON_BLOCKING) ?:
	      graphs_make(&x) ?: all_save(&x) ?: run_undone(&x, 0) ?: run_undone(&x, 1) ?:
	      record(&x);
	test_release(&x);
	fdry_seal_spent(s, selftest);
	return err;
}

int fdry_capture_selftest(struct fdry_capture *cap, uint64_t seed)
{
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	cap->selftest = seed;
	pthread_mutex_unlock(&cap->lock);
	return 0;
}
