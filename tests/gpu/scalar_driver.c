// SPDX-License-Identifier: Apache-2.0
/*
 * Writes by memory operations (cuStreamBatchMemOp) are ordered as copies are. Updates of scalars
 * are one or the other, and rely on that (run/scalar.c).
 *
 * - A write waits for earlier work of other streams, and their later work waits for the write, if
 *   the legacy default stream is one of the two, and not else.
 * - cuMemFree() waits for pending writes, also while a stream captures, or if their stream was
 *   destroyed meanwhile.
 * - Threads that write batches to one stream do not mix them.
 *
 * Lines that begin with "note" are facts about the driver, for people.
 *
 * scalar_driver [DRIVER]: the machine's own driver, or the software driver at this path.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/lib/clock.h"
#include "tests/lib/parts.h"

#define PATIENCE_MS 20 /* an operation that has not run after this time waits */
#define BATCH 32       /* writes of one call */
#define ROUNDS 250
#define WRITERS 2
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum kind { WRITE, COPY, KINDS };
enum gate { HOST, KERNEL, GATES };
enum { LEGACY, THREAD, BLOCKING, OTHER, FREE, STREAMS };

static const char *const kind_names[] = { "write", "copy" };
static const char *const gate_names[] = { "host function", "kernel" };
static const char *const stream_names[] = { "legacy", "per-thread", "blocking",
					    "other blocking", "non-blocking" };

static CUstream streams[STREAMS], reader, capturing;
static CUfunction spin; /* NULL: the driver compiles no text */
static CUdeviceptr cell;
static uint64_t last = 1; /* the value of the last update */

/* Pinned. */
static struct {
	_Atomic uint32_t open; /* ends the long work */
	uint64_t source, early, late;
} *pinned;

/* Opens the gate for a call that waits for the long work itself. */
static struct {
	pthread_mutex_t lock;
	double at; /* ms; 0: never */
	bool rang;
} alarm_ = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const char ptx[] =
	".version 6.3\n.target sm_70\n.address_size 64\n"
	/* waits until *p is not 0 */
	".visible .entry spin(.param .u64 p)\n"
	"{\n"
	"	.reg .b64 %p; .reg .b32 %v; .reg .pred %q;\n"
	"	ld.param.u64 %p, [p]; cvta.to.global.u64 %p, %p;\n"
	"again:	ld.volatile.global.u32 %v, [%p]; setp.eq.u32 %q, %v, 0; @%q bra again;\n"
	"	ret;\n"
	"}\n";

/* --- long work --- */

static void *alarm_run(void *arg)
{
	for (;; usleep(500)) {
		pthread_mutex_lock(&alarm_.lock);
		if (alarm_.at > 0 && now_ms() > alarm_.at) {
			alarm_.rang = true;
			alarm_.at = 0;
			atomic_store(&pinned->open, 1);
		}
		pthread_mutex_unlock(&alarm_.lock);
	}
	return arg;
}

static void gate_close(double ms)
{
	atomic_store(&pinned->open, 0);
	pthread_mutex_lock(&alarm_.lock);
	alarm_.rang = false;
	alarm_.at = now_ms() + ms;
	pthread_mutex_unlock(&alarm_.lock);
}

/* Returns whether the gate was still closed. */
static bool gate_open(void)
{
	bool closed;

	pthread_mutex_lock(&alarm_.lock);
	closed = !alarm_.rang;
	alarm_.at = 0;
	atomic_store(&pinned->open, 1);
	pthread_mutex_unlock(&alarm_.lock);
	return closed;
}

static void host_wait(void *arg)
{
	while (!atomic_load(&pinned->open))
		usleep(100);
	(void)arg;
}

static bool gate_put(enum gate gate, CUstream stream)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)&pinned->open;
	void *args[] = { &at };

	return gate == HOST ? cu(cuLaunchHostFunc, stream, host_wait, NULL)
			    : cu(cuLaunchKernel, spin, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

/* --- updates --- */

static bool update(enum kind kind, CUstream stream, CUdeviceptr to, uint64_t value)
{
	CUstreamBatchMemOpParams op = { .writeValue = {
						.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
						.address = to,
						.value64 = value } };

	pinned->source = value;
	return kind == WRITE ? cu(cuStreamBatchMemOp_v2, stream, 1, &op, 0)
			     : cu(cuMemcpyHtoDAsync_v2, to, &pinned->source, 8, stream);
}

/* What is in memory now: the reader's stream waits for no other. */
static uint64_t peek(CUdeviceptr at)
{
	pinned->early = 0;
	cu(cuMemcpyDtoHAsync_v2, &pinned->early, at, 8, reader);
	cu(cuStreamSynchronize, reader);
	return pinned->early;
}

/* --- the order of streams --- */

static bool is_legacy_pair(int a, int b)
{
	return a != b && a != FREE && b != FREE && (a == LEGACY || b == LEGACY);
}

/* Whether an update of @to waits for earlier work of @from. */
static bool waits_for(enum kind kind, enum gate gate, int from, int to)
{
	double start;
	bool early = false;

	last++;
	gate_close(1000);
	gate_put(gate, streams[from]);
	update(kind, streams[to], cell, last);
	for (start = now_ms(); !early && now_ms() < start + PATIENCE_MS; usleep(200))
		early = peek(cell) == last;
	check(gate_open()); /* no call has waited */
	cu(cuCtxSynchronize);
	check(peek(cell) == last);
	return !early;
}

/* Whether later work of @to waits for the pending update. It copies the value, which must be the
 * new one then. */
static bool later_waits(int to)
{
	double start;
	bool early = false;

	pinned->late = 0;
	cu(cuMemcpyDtoHAsync_v2, &pinned->late, cell, 8, streams[to]);
	for (start = now_ms(); !early && now_ms() < start + PATIENCE_MS; usleep(200))
		early = !drv->cuStreamQuery(streams[to]);
	check(gate_open());
	cu(cuCtxSynchronize);
	check(peek(cell) == last);
	return !early && pinned->late == last;
}

/* Whether it waits for an update that is pending on @from, which waits for @front. */
static bool waited_for_by(enum kind kind, enum gate gate, int front, int from, int to)
{
	last++;
	gate_close(1000);
	gate_put(gate, streams[front]);
	update(kind, streams[from], cell, last);
	return later_waits(to);
}

/* The same for a write that waits by itself, by an operation before it in its batch: nothing else
 * of its stream is pending. The software driver has no such batch. */
static bool batch_waited_for_by(int from, int to)
{
	CUstreamBatchMemOpParams op[2] = {
		{ .waitValue = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
				 .address = (CUdeviceptr)(uintptr_t)&pinned->open,
				 .value = 1,
				 .flags = CU_STREAM_WAIT_VALUE_EQ } },
		{ .writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
				  .address = cell,
				  .value64 = ++last } }
	};

	gate_close(1000);
	cu(cuStreamBatchMemOp_v2, streams[from], 2, op, 0);
	return later_waits(to);
}

static const char *yes(bool is)
{
	return is ? "waits" : "does not wait";
}

static void order_note(const char *what, enum kind kind, const char *gate, int from, int to,
		       bool waits)
{
	printf("note: %-15s %-14s %-15s %-15s %-6s %s\n", what, gate, stream_names[from],
	       stream_names[to], kind_names[kind], yes(waits));
	check(waits == (from == to || is_legacy_pair(from, to)));
}

static void order_earlier(enum gate gate)
{
	static const int pairs[][2] = {
		{ BLOCKING, LEGACY }, { THREAD, LEGACY },   { FREE, LEGACY },
		{ LEGACY, BLOCKING }, { LEGACY, THREAD },   { LEGACY, FREE },
		{ BLOCKING, THREAD }, { BLOCKING, OTHER },  { BLOCKING, FREE },
		{ LEGACY, LEGACY },   { BLOCKING, BLOCKING }, { FREE, FREE },
	};
	size_t i;
	int kind;

	for (i = 0; i < COUNT(pairs); i++)
		for (kind = 0; kind < KINDS; kind++)
			order_note("earlier work", kind, gate_names[gate], pairs[i][0],
				   pairs[i][1],
				   waits_for(kind, gate, pairs[i][0], pairs[i][1]));
}

/* The update waits for work of the other blocking stream, or of the stream itself. */
static void order_later(enum gate gate)
{
	static const int ways[][3] = {
		{ OTHER, LEGACY, BLOCKING }, { OTHER, LEGACY, THREAD },   { OTHER, LEGACY, FREE },
		{ LEGACY, LEGACY, BLOCKING }, { BLOCKING, BLOCKING, LEGACY },
		{ BLOCKING, BLOCKING, OTHER }, { FREE, FREE, LEGACY }, { FREE, FREE, FREE },
	};
	size_t i;
	int kind;

	for (i = 0; i < COUNT(ways); i++)
		for (kind = 0; kind < KINDS; kind++)
			order_note(ways[i][0] == OTHER ? "later, by other" : "later work", kind,
				   gate_names[gate], ways[i][1], ways[i][2],
				   waited_for_by(kind, gate, ways[i][0], ways[i][1], ways[i][2]));
}

static void order(void)
{
	static const int to[] = { BLOCKING, THREAD, FREE };
	size_t i;
	int gate;

	printf("note: %-15s %-14s %-15s %-15s %-6s\n", "what", "long work", "first stream",
	       "second stream", "update");
	for (gate = 0; gate < GATES; gate++) {
		if (gate == KERNEL && !spin)
			continue;
		order_earlier(gate);
		order_later(gate);
	}
	for (i = 0; !drv->software && i < COUNT(to); i++)
		order_note("later, batch", WRITE, "waiting write", LEGACY, to[i],
			   batch_waited_for_by(LEGACY, to[i]));
}

/* --- cuMemFree() --- */

struct freeing {
	const char *capture; /* its mode, in words */
	int mode;            /* -1: nothing captures */
	bool relaxed;        /* the thread frees in relaxed mode, as the library does */
};

static const struct freeing freeings[] = {
	{ "none", -1, true },
	{ "relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, true },
	{ "thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true },
	{ "global", CU_STREAM_CAPTURE_MODE_GLOBAL, true },
	{ "relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, false },
	{ "thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false },
	{ "global", CU_STREAM_CAPTURE_MODE_GLOBAL, false },
};

static CUresult free_in_mode(bool relaxed, CUdeviceptr p)
{
	CUstreamCaptureMode mode = relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
					   : CU_STREAM_CAPTURE_MODE_GLOBAL;
	CUresult res;

	cu(cuThreadExchangeStreamCaptureMode, &mode);
	res = drv->cuMemFree_v2(p);
	cu(cuThreadExchangeStreamCaptureMode, &mode);
	return res;
}

/* Whether new memory at the same place gets the value of the pending update, after zeros. */
static const char *reuse_late(CUdeviceptr old, uint64_t value)
{
	CUdeviceptr p = 0;
	bool late, waits;

	if (!cu(cuMemAlloc_v2, &p, 64))
		return "";
	cu(cuMemsetD8Async, p, 0, 64, reader);
	cu(cuStreamSynchronize, reader);
	waits = !gate_open();
	cu(cuStreamSynchronize, streams[FREE]);
	late = peek(p) == value;
	cu(cuMemFree_v2, p);
	if (late)
		return ", NEW MEMORY GETS THE LATE UPDATE";
	if (waits)
		return ", cuMemAlloc() waits";
	return p == old ? ", new memory at the same address stays zero" : ", new memory elsewhere";
}

/* Free memory with a pending update, while another stream captures. A further block keeps the
 * driver's mapping of both. */
static void free_pending(const struct freeing *f, enum kind kind, enum gate gate)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr keep = part_mem(64), p = part_mem(64);
	const char *reuse = "";
	CUgraph graph = NULL;
	CUresult res, end = CUDA_SUCCESS;
	bool rang;
	double start;

	cu(cuCtxSynchronize);
	gate_close(PATIENCE_MS);
	gate_put(gate, streams[FREE]);
	update(kind, streams[FREE], p, ++last);
	if (f->mode >= 0)
		cu(cuStreamBeginCapture_v2, capturing, (CUstreamCaptureMode)f->mode);
	cu(cuThreadExchangeStreamCaptureMode, &mode);
	start = now_ms();
	res = free_in_mode(f->relaxed, p);
	start = now_ms() - start;
	pthread_mutex_lock(&alarm_.lock);
	rang = alarm_.rang;
	pthread_mutex_unlock(&alarm_.lock);
	if (!res && !rang)
		reuse = reuse_late(p, last);
	gate_open();
	cu(cuStreamSynchronize, streams[FREE]);
	if (f->mode >= 0)
		end = drv->cuStreamEndCapture(capturing, &graph);
	cu(cuThreadExchangeStreamCaptureMode, &mode);
	if (graph)
		cu(cuGraphDestroy, graph);
	if (res)
		cu(cuMemFree_v2, p);
	cu(cuMemFree_v2, keep);
	printf("note: %-14s %-13s %-8s %-6s result %d, %s (%.1f ms), end of capture %d%s\n",
	       gate_names[gate], f->capture, f->relaxed ? "relaxed" : "global", kind_names[kind],
	       (int)res, res ? "refused" : yes(rang), start, (int)end, reuse);
	if (f->relaxed)
		check(!res && !end && rang); /* the library frees so, and breaks no capture */
}

static void frees(void)
{
	size_t i;
	int kind, gate;

	printf("note: %-14s %-13s %-8s %-6s\n", "long work", "capture", "thread", "update");
	for (gate = 0; gate < GATES; gate++)
		for (i = 0; (gate == HOST || spin) && i < COUNT(freeings); i++)
			for (kind = 0; kind < KINDS; kind++)
				free_pending(&freeings[i], kind, gate);
}

/* A stream is destroyed at once, and its work goes on. */
static void free_of_destroyed(enum kind kind)
{
	CUdeviceptr p = part_mem(64);
	CUstream stream;
	CUresult res;
	bool rang;

	if (!cu(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING))
		return;
	gate_close(PATIENCE_MS);
	gate_put(HOST, stream);
	update(kind, stream, p, ++last);
	cu(cuStreamDestroy_v2, stream);
	res = drv->cuMemFree_v2(p);
	rang = !gate_open();
	printf("note: %-14s stream destroyed, %s: result %d, %s\n", gate_names[HOST],
	       kind_names[kind], (int)res, yes(rang));
	check(!res && rang);
}

static void destroyed(void)
{
	int kind;

	for (kind = 0; kind < KINDS; kind++)
		free_of_destroyed(kind);
}

/* --- batches of several threads --- */

struct writer {
	pthread_t thread;
	CUdeviceptr cells, seen; /* seen: what the cells had after each batch */
	uint64_t value;          /* of the first batch */
	CUresult res;
};

static void *writer_run(void *arg)
{
	struct writer *w = arg;
	CUstreamBatchMemOpParams ops[BATCH] = { 0 };
	int round, i;

	w->res = drv->cuCtxSetCurrent(ctx);
	for (round = 0; !w->res && round < ROUNDS; round++) {
		for (i = 0; i < BATCH; i++) {
			ops[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
			ops[i].writeValue.address = w->cells + (size_t)i * 8;
			ops[i].writeValue.value64 = w->value + (uint64_t)round;
		}
		w->res = drv->cuStreamBatchMemOp_v2(streams[FREE], BATCH, ops, 0);
		if (!w->res)
			w->res = drv->cuMemcpyDtoDAsync_v2(w->seen + (size_t)round * BATCH * 8,
							   w->cells, (size_t)BATCH * 8,
							   streams[FREE]);
	}
	return NULL;
}

/* Returns how many of the batches were seen with numbers of another one. */
static int mixed(const uint64_t *seen)
{
	int found = 0, round, i;

	for (round = 0; round < WRITERS * ROUNDS; round++) {
		for (i = 1; i < BATCH && seen[round * BATCH + i] == seen[round * BATCH]; i++)
			;
		found += i < BATCH;
	}
	return found;
}

static void threads(void)
{
	static uint64_t seen[WRITERS * ROUNDS * BATCH];
	struct writer writers[WRITERS] = { 0 };
	CUdeviceptr cells = part_mem((size_t)BATCH * 8), all = part_mem(sizeof(seen));
	int i, found;

	for (i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){
			.cells = cells,
			.seen = all + (size_t)i * ROUNDS * BATCH * 8,
			.value = (uint64_t)i * ROUNDS + 1
		};
		check(!pthread_create(&writers[i].thread, NULL, writer_run, &writers[i]));
	}
	for (i = 0; i < WRITERS; i++)
		check(!pthread_join(writers[i].thread, NULL) && !writers[i].res);
	cu(cuStreamSynchronize, streams[FREE]);
	cu(cuMemcpyDtoH_v2, seen, all, sizeof(seen));
	found = mixed(seen);
	printf("note: %d of %d batches of %d threads are mixed\n", found, WRITERS * ROUNDS,
	       WRITERS);
	check(!found && seen[0]);
	cu(cuMemFree_v2, cells);
	cu(cuMemFree_v2, all);
}

/* --- preparation --- */

/* The first use of a function may wait for other work, so everything is used once before. */
static void warm_up(void)
{
	int i, kind;

	atomic_store(&pinned->open, 1);
	for (i = 0; i < STREAMS; i++)
		for (kind = 0; kind < KINDS; kind++) {
			gate_put(HOST, streams[i]);
			if (spin)
				gate_put(KERNEL, streams[i]);
			update(kind, streams[i], cell, 1);
			cu(cuMemcpyDtoHAsync_v2, &pinned->late, cell, 8, streams[i]);
		}
	peek(cell);
	cu(cuCtxSynchronize);
}

static bool prepare(void)
{
	CUmodule module = NULL;
	pthread_t thread;
	void *p = NULL;

	streams[LEGACY] = CU_STREAM_LEGACY;
	streams[THREAD] = CU_STREAM_PER_THREAD;
	streams[FREE] = part_stream();
	reader = part_stream();
	capturing = part_stream();
	cell = part_mem(64);
	if (!cu(cuStreamCreate, &streams[BLOCKING], CU_STREAM_DEFAULT) ||
	    !cu(cuStreamCreate, &streams[OTHER], CU_STREAM_DEFAULT) ||
	    !cu(cuMemHostAlloc, &p, sizeof(*pinned), CU_MEMHOSTALLOC_DEVICEMAP))
		return false;
	pinned = p;
	if (!drv->software &&
	    (!cu(cuModuleLoadDataEx, &module, ptx, 0, NULL, NULL) ||
	     !cu(cuModuleGetFunction, &spin, module, "spin")))
		return false;
	warm_up();
	return check(!pthread_create(&thread, NULL, alarm_run, NULL));
}

int main(int argc, char **argv)
{
	static const struct part parts[] = {
		{ "order", order },
		{ "frees", frees },
		{ "destroyed", destroyed },
		{ "threads", threads },
	};
	double start;
	int has = 0;

	/* Streams must not share a queue of the GPU: one would wait for the other. */
	check(!setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1));
	if (!parts_begin(argc > 1 ? argv[1] : NULL))
		return gpu_end(checks, failures);
	cu(cuDeviceGetAttribute, &has, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0);
	if (!has) {
		printf("SKIP: the device has no memory operations of 64 bits\n");
		return 77;
	}
	start = now_ms();
	if (prepare())
		parts_run(parts, COUNT(parts));
	printf("note: %.0f ms on %s\n", now_ms() - start,
	       drv->software ? "the software driver" : "a GPU");
	return gpu_end(checks, failures);
}
