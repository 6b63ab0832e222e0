/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - declarations that the files of the software driver share.
 *
 * The software driver is a libcuda.so.1 that runs on any machine: device memory is host
 * memory, a kernel is a C function, a stream is a queue with a thread. It is
 * an object of its own and shares no code with the library: it fails like a driver, with
 * a CUresult, and prints nothing.
 *
 * Locking: one lock for the whole driver, as in the real one. SIM_ENTER() holds it until the
 * exported function returns; callers of the functions below hold it unless the comment says
 * otherwise. Threads of streams run operations without it. Waiting (sim_fence_wait() and its
 * callers) releases it during the wait, so objects found before must be found again, or held by a
 * reference.
 *
 * Handles are numbers, not addresses, and are never reused, except for those of handle.c. So the
 * driver always recognises a handle that was destroyed or is not its own, and code that uses a
 * handle as a pointer crashes at once.
 */
#ifndef FDRY_ARCH_SIM_SIM_H
#define FDRY_ARCH_SIM_SIM_H

/* This object exports the functions of cuda.h that it defines. */
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define SIM_DRIVER /* kernel.h: no device code here */
#include "arch/sim/kernel.h"

/* Old versions of functions that programs look up by name and cuda.h no longer declares. */
#undef cuGetProcAddress
#undef cuEventElapsedTime
SIM_EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags);
SIM_EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);
SIM_EXPORT CUresult cuCtxCreate_v2(CUcontext *ret, unsigned int flags, CUdevice dev);
SIM_EXPORT CUresult cuCtxCreate_v3(CUcontext *ret, CUexecAffinityParam *params, int count,
				   unsigned int flags, CUdevice dev);

/* entry.c: the exported functions; counts their calls and makes them fail */

enum sim_fn {
#define SIM_FN(symbol, name, since, kind) SIM_FN_##symbol,
#include "arch/sim/entry.def"
#undef SIM_FN
	SIM_FNS
};

CUresult sim_enter(enum sim_fn fn); /* without the lock */
void sim_lock(void);
void sim_unlock(void);
pthread_mutex_t *sim_mutex(void); /* the lock itself, to wait with */
static inline void sim_leave(const int *held)
{
	(void)held;
	sim_unlock();
}

/* First line of every exported function: counts the call, makes it fail on request, checks that
 * cuInit was called, and holds the lock until the function returns. */
#define SIM_ENTER(fn)                                                \
	do {                                                         \
		CUresult enter_ = sim_enter(SIM_FN_##fn);            \
		if (enter_)                                          \
			return enter_;                               \
		sim_lock();                                          \
	} while (0);                                                 \
	const int held_ __attribute__((cleanup(sim_leave), unused)) = 0

/* Return the result of @call unless it is CUDA_SUCCESS. */
#define SIM_TRY(call)                      \
	do {                               \
		CUresult try_ = (call);    \
		if (try_)                  \
			return try_;       \
	} while (0)


/* handle.c: objects with handles */

#define SIM_TYPES(X) \
	X(CTX, context) X(STREAM, stream) X(EVENT, event) X(MODULE, module) X(LIBRARY, library) \
	X(KERNEL, kernel) X(FUNC, function) X(MEM, memory) X(LINK, link) X(TEXTURE, texture) \
	X(SURFACE, surface) X(GRAPH, graph) X(NODE, node) X(EXEC, exec) X(USEROBJ, userobject) \
	X(POOL, mempool) X(EXTERNAL, external) X(SEMAPHORE, semaphore) X(ARRAY, array) \
	X(MIPMAP, mipmap)

enum sim_type {
#define X(upper, lower) SIM_##upper,
	SIM_TYPES(X)
#undef X
	SIM_TYPE_COUNT
};

/* First member of everything that has a handle. */
struct sim_obj {
	enum sim_type type;
	int refs;                         /* the handle's one, and one for each user */
	uint64_t id;                      /* the handle as a number; 0 once closed */
	void (*release)(struct sim_obj *); /* frees the whole object at the last put */
};

/* Assign a handle and the first reference to @obj; @release may be NULL for free().
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_obj_open(struct sim_obj *obj, enum sim_type type, void (*release)(struct sim_obj *));
/* Invalidate the handle, and drop its reference. */
void sim_obj_close(struct sim_obj *obj);
struct sim_obj *sim_obj_get(struct sim_obj *obj);
void sim_obj_put(struct sim_obj *obj); /* NULL is fine */
/* The object of a handle; NULL if the handle has another type or none. Valid while the lock is
 * held. */
void *sim_obj_find(uint64_t id, enum sim_type type);
/* Objects of a type that have a handle. */
unsigned long sim_obj_count(enum sim_type type);

#define SIM_HANDLE(type, object) ((type)(uintptr_t)(object)->obj.id)
#define sim_find(handle, type) sim_obj_find((uintptr_t)(handle), type)

/* device.c */

#define SIM_DEVICES_MAX 16
#define SIM_SM_COUNT 4
#define SIM_THREADS_MAX 1024 /* of a block */
#define SIM_BLOCK_X_MAX 1024
#define SIM_BLOCK_Y_MAX 1024
#define SIM_BLOCK_Z_MAX 64
#define SIM_GRID_X_MAX 2147483647
#define SIM_GRID_Y_MAX 65535
#define SIM_GRID_Z_MAX 65535
#define SIM_THREADS_SM 2048
#define SIM_BLOCKS_SM 32
#define SIM_SHARED_DEFAULT 49152 /* bytes a block may have without the attribute */
#define SIM_SHARED_MAX 232448    /* with it */
#define SIM_SHARED_SM 233472
#define SIM_CLUSTER_MAX 8        /* blocks, portable */
#define SIM_CLUSTER_NON_PORTABLE_MAX 16
#define SIM_PRIORITY_LEAST 0
#define SIM_PRIORITY_GREATEST (-5)

CUresult sim_device_init(void); /* reads the environment once; NO_DEVICE, INVALID_VALUE */
int sim_device_cc(void); /* compute capability as 10 * major + minor */
size_t sim_device_memory(void);
bool sim_device_ok(CUdevice dev);

/* context.c */

struct sim_ctx {
	struct sim_obj obj;
	CUdevice dev;
	unsigned int flags;
	bool primary;
	unsigned int retained; /* how often it was retained, if it is a primary context */
	CUresult error;        /* of the kernel or copy that broke it, sticky */
	uint64_t handle;       /* stays when the context is closed */
	unsigned long long nr; /* cuCtxGetId */
	size_t limits[CU_LIMIT_MAX];
	struct sim_stream *legacy; /* the NULL stream */
	struct sim_module *modules;
	uint64_t peers[SIM_DEVICES_MAX]; /* handles of contexts whose memory it may use; 0: free */
};

/* The current context of this thread; INVALID_CONTEXT if there is none, CONTEXT_IS_DESTROYED, or
 * its sticky error. */
CUresult sim_ctx_current(struct sim_ctx **ret);
/* The context of a handle; NULL means the current one. */
CUresult sim_ctx_find(CUcontext handle, struct sim_ctx **ret);
/* Break @ctx: every later call in it returns @error. */
void sim_ctx_break(struct sim_ctx *ctx, CUresult error);

/* memory.c: every range of memory that the driver knows */

enum sim_mem_kind {
	SIM_MEM_DEVICE,     /* cuMemAlloc */
	SIM_MEM_MANAGED,    /* cuMemAllocManaged: nothing ever moves */
	SIM_MEM_MAPPED,     /* cuMemMap */
	SIM_MEM_PINNED,     /* cuMemAllocHost, cuMemHostAlloc */
	SIM_MEM_REGISTERED, /* cuMemHostRegister */
	SIM_MEM_MODULE,     /* a module's variable */
	SIM_MEM_GRAPH,      /* of a graph's allocation node */
};

struct sim_range {
	CUdeviceptr start;
	size_t size;       /* as requested */
	size_t extent;       /* as mapped */
	enum sim_mem_kind kind;
	CUdevice dev;
	uint64_t ctx;      /* the context's handle, 0: none */
	uint64_t id;       /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
	bool read, write;  /* access of kernels and copies, set by cuMemSetAccess */
	unsigned int peers_read, peers_write; /* SIM_MEM_MAPPED: of other devices, a bit each */
	unsigned int flags; /* of cuMemHostAlloc or cuMemHostRegister */
	struct sim_mem *mem; /* SIM_MEM_MAPPED: the memory that is mapped here */
	uint64_t pool;       /* SIM_MEM_DEVICE: its pool, 0: none */
	int exported;        /* the same: the file that it is in, plus 1; 0: none */
	bool imported, ipc;  /* the same: of another process; cuIpcCloseMemHandle frees @ipc */
};

/* Enter a range (@range->id is set here). ALREADY_MAPPED if it overlaps another one. */
CUresult sim_range_add(const struct sim_range *range);
void sim_range_remove(CUdeviceptr start);
/* The range that holds @addr, or NULL; valid while the lock is held and no range is added or
 * removed. */
struct sim_range *sim_range_find(CUdeviceptr addr);
/* The range that holds or follows @addr, or NULL. */
struct sim_range *sim_range_from(CUdeviceptr addr);
/* Whether the device may read (or write) all of [@addr, @addr + @size), which may span adjacent
 * ranges. */
bool sim_range_ok(CUdeviceptr addr, size_t size, bool write);
unsigned long sim_range_count(unsigned int kinds); /* a bit for each kind that counts */
static inline bool sim_range_host(const struct sim_range *r)
{
	return r->kind == SIM_MEM_PINNED || r->kind == SIM_MEM_REGISTERED;
}

/* Count @size bytes as used on @dev: OUT_OF_MEMORY if its memory does not suffice. */
CUresult sim_memory_charge(CUdevice dev, size_t size);
void sim_memory_uncharge(CUdevice dev, size_t size);
/* Fill fresh memory, which must not be zero: all of it, or if it is large, its beginning and some
 * pages. */
#define SIM_POISON 0xdb
void sim_memory_poison(void *p, size_t size);
/* The next page to poison after the one at @at; beyond @size after the last. */
size_t sim_poison_next(size_t size, size_t at);
/* Fresh poisoned memory at any address; NULL if there is none. */
void *sim_memory_map(size_t size);

/* alloc.c */
/* cuMemAlloc, and cuMemFree without waiting for streams. */
CUresult sim_alloc(struct sim_ctx *ctx, size_t size, CUdeviceptr *ret);
bool sim_alloc_is(CUdeviceptr addr);
void sim_alloc_free(CUdeviceptr addr);

/* mempool.c */
/* Allocate from a pool (NULL: the device's current one), and count an allocation as freed. */
CUresult sim_pool_alloc(struct sim_ctx *ctx, CUmemoryPool pool, size_t size, CUdeviceptr *ret);
void sim_pool_freed(const struct sim_range *r);

/* array.c */

struct sim_array {
	struct sim_obj obj;
	struct sim_array *next;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	CUdevice dev;
	uint64_t ctx;         /* the context's handle */
	unsigned char *bytes; /* row by row */
	size_t element, row;  /* bytes of an element, of a row */
	size_t rows, slices;  /* at least 1 */
	bool level;           /* it belongs to a mipmapped array */
};

const struct sim_array *sim_array_find(CUarray handle); /* NULL: there is none */
/* Whether an array can have this descriptor. */
bool sim_array_desc_ok(const CUDA_ARRAY3D_DESCRIPTOR *d);
CUresult sim_array_new(struct sim_ctx *ctx, const CUDA_ARRAY3D_DESCRIPTOR *desc,
		       struct sim_array **ret);
void sim_array_close(struct sim_array *a);

/* vmm.c */
/* The reservation that holds @addr. */
bool sim_reservation_find(CUdeviceptr addr, CUdeviceptr *start, size_t *size);
unsigned long sim_reservation_count(void);

/* The parts of a context. */
CUresult sim_ctx_streams_init(struct sim_ctx *ctx);
void sim_ctx_streams_release(struct sim_ctx *ctx);
void sim_events_release(struct sim_ctx *ctx);
void sim_modules_release(struct sim_ctx *ctx);
void sim_memory_release(struct sim_ctx *ctx);
void sim_mipmaps_release(struct sim_ctx *ctx);
void sim_arrays_release(struct sim_ctx *ctx);

/* memnode.c */
/* cuMemFree of live memory that a graph allocated; false if @addr is no such memory. */
bool sim_gmem_free(CUdeviceptr addr);

/* op.c: operations of streams and graph nodes */

struct sim_func;
struct sim_event;
struct sim_fence;

enum sim_op_kind {
	SIM_OP_NONE,
	SIM_OP_KERNEL,
	SIM_OP_MEMCPY,
	SIM_OP_MEMSET,
	SIM_OP_MEMOPS,
	SIM_OP_SEMAS_SIGNAL,
	SIM_OP_SEMAS_WAIT,
	SIM_OP_EVENT_RECORD,
	SIM_OP_EVENT_WAIT,
	SIM_OP_HOST,
	SIM_OP_CALL,
};

/* A launch that passed all checks. The attributes and argument bytes are owned. */
struct sim_launch {
	struct sim_func *func; /* held */
	CUkernel kern;         /* set if the launch named a CUkernel, not a CUfunction */
	unsigned int grid[3], block[3];
	unsigned int shared;   /* dynamic shared memory, bytes */
	CUlaunchAttribute *attrs;
	unsigned int nattrs;
	void *args;            /* the parameter buffer, laid out as the device sees it */
	size_t args_size;      /* as passed; a packed buffer may be shorter or longer */
	bool packed;           /* came as a packed buffer in `extra` */
};

struct sim_copy {
	CUDA_MEMCPY3D p;
	CUcontext ctx;
	void *staged; /* owned copy of pageable source bytes; the source then points into it */
};

/* Memory operations in this order. The list is owned. */
struct sim_memops {
	unsigned int count;
	CUstreamBatchMemOpParams *list;
	CUcontext ctx;
};

union sim_sema_params {
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal;
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait;
};

/* Semaphores that are signalled, or waited for, in this order. The arrays are owned. */
struct sim_sema;
struct sim_semas {
	unsigned int count;
	struct sim_sema **list; /* held */
	CUexternalSemaphore *handles;
	union sim_sema_params *params;
};

/* Event operations. @fence is held: this record signals it, or this wait waits for it. NULL: the
 * event's fence when the operation runs (event nodes of graphs). */
struct sim_event_op {
	struct sim_event *event; /* held */
	struct sim_fence *fence;
	bool external; /* CU_EVENT_..._EXTERNAL: a node if it is captured */
};

/* A function of the driver that runs on a stream's thread, without the lock. Graph launches use
 * it. */
struct sim_call {
	CUresult (*run)(void *data, struct sim_ctx *ctx);
	void (*release)(void *data); /* called once, with the lock, run or not */
	void *data;
};

struct sim_op {
	enum sim_op_kind kind;
	union {
		struct sim_launch launch;
		struct sim_copy copy;
		CUDA_MEMSET_NODE_PARAMS set;
		struct sim_memops memops;
		struct sim_semas semas;
		struct sim_event_op event;
		CUDA_HOST_NODE_PARAMS host;
		struct sim_call call;
	};
};

/* Run @op on the calling thread, WITHOUT the lock. Returns its fault, such as ILLEGAL_ADDRESS. */
CUresult sim_op_run(const struct sim_op *op, struct sim_ctx *ctx);
/* The conditions that kernels set which this thread runs from now on; NULL: none. */
void sim_op_conditions(unsigned int *values, size_t count);
/* Whether this thread is in a host function of a stream, which may not call the driver. */
bool sim_op_in_callback(void);
/* A deep copy. SIM_OP_CALL cannot be copied. */
CUresult sim_op_copy(const struct sim_op *op, struct sim_op *ret);
void sim_op_release(struct sim_op *op); /* makes it SIM_OP_NONE */

/* semaphore.c */

/* @params: of @kind, @count of them. */
CUresult sim_semas_make(enum sim_op_kind kind, const CUexternalSemaphore *handles,
			const void *params, unsigned int count, struct sim_op *ret);
CUresult sim_semas_run(const struct sim_op *op);
CUresult sim_semas_copy(const struct sim_op *op, struct sim_op *ret);
void sim_semas_release(struct sim_semas *m);

/* copy.c */

/* One side of a copy. */
struct sim_plane {
	CUdeviceptr base; /* of the first byte that is copied; 0: the array was destroyed */
	size_t pitch;     /* bytes from row to row */
	size_t rows;      /* rows from slice to slice */
};

/* The memory of a copy. */
struct sim_plane sim_copy_src(const CUDA_MEMCPY3D *p);
struct sim_plane sim_copy_dst(const CUDA_MEMCPY3D *p);
static inline void *sim_plane_row(const struct sim_plane *plane, size_t y, size_t z)
{
	return (void *)(uintptr_t)(plane->base + (z * plane->rows + y) * plane->pitch);
}

/* The checks of cuMemcpy3D and cuGraphAddMemcpyNode; of cuMemset* and cuGraphAddMemsetNode. */
CUresult sim_copy_check(const CUDA_MEMCPY3D *p);
CUresult sim_set_check(const CUDA_MEMSET_NODE_PARAMS *p);

/* launch.c */

/* The parameters of a launch, before they are checked. */
struct sim_launch_args {
	CUfunction func; /* or a CUkernel, cast */
	unsigned int grid[3], block[3];
	unsigned int shared;
	const CUlaunchAttribute *attrs;
	unsigned int nattrs;
	void **params; /* one pointer a parameter, or ... */
	void **extra;  /* ... a packed buffer */
};

/* Check a launch in @ctx and make it an operation (kind KERNEL) with a copy of the arguments. */
CUresult sim_launch_make(struct sim_ctx *ctx, const struct sim_launch_args *args,
			 struct sim_op *ret);

/* module.c: code */

/* Attributes of a function or kernel that can be set: X(suffix of the CUfunction_attribute, member,
 * least, most). */
#define SIM_FUNC_ATTRS(X)                                                       \
	X(MAX_DYNAMIC_SHARED_SIZE_BYTES, max_dynamic_shared, 0, SIM_SHARED_MAX) \
	X(PREFERRED_SHARED_MEMORY_CARVEOUT, carveout, -1, 100)                  \
	X(REQUIRED_CLUSTER_WIDTH, cluster_width, 0, SIM_CLUSTER_NON_PORTABLE_MAX)   \
	X(REQUIRED_CLUSTER_HEIGHT, cluster_height, 0, SIM_CLUSTER_NON_PORTABLE_MAX) \
	X(REQUIRED_CLUSTER_DEPTH, cluster_depth, 0, SIM_CLUSTER_NON_PORTABLE_MAX)   \
	X(NON_PORTABLE_CLUSTER_SIZE_ALLOWED, non_portable_cluster, 0, 1)        \
	X(CLUSTER_SCHEDULING_POLICY_PREFERENCE, cluster_policy, 0, 2)

struct sim_func_attrs {
#define X(id, member, least, most) int member;
	SIM_FUNC_ATTRS(X)
#undef X
	bool set; /* a call has set one of them */
};

/* A kernel in one context; CUfunction. */
struct sim_func {
	struct sim_obj obj;
	struct sim_module *module; /* NULL once that is unloaded */
	struct sim_ctx *ctx;
	struct sim_code *code; /* held; owns the record and the kernel's code */
	const struct sim_kernel_record *record;
	struct sim_func_attrs attrs;
};

/* The function behind a CUfunction, or behind a CUkernel in @ctx (@kern_ret then gets it, else
 * NULL). */
CUresult sim_func_find(CUfunction handle, struct sim_ctx *ctx, struct sim_func **ret,
		       CUkernel *kern_ret);

/* stream.c */

/* One point in time, which is done or not done yet. */
struct sim_fence {
	int refs;
	bool done;
	struct timespec when; /* CLOCK_MONOTONIC, valid once done */
};

struct sim_fence *sim_fence_new(void); /* NULL: out of memory */
struct sim_fence *sim_fence_get(struct sim_fence *f);
void sim_fence_put(struct sim_fence *f); /* NULL is fine */
void sim_fence_signal(struct sim_fence *f);
void sim_fence_wait(struct sim_fence *f); /* releases the lock while it waits; hold a reference */

struct sim_capture; /* simulated capture: capture.c */

struct sim_stream {
	struct sim_obj obj;
	struct sim_ctx *ctx; /* held */
	struct sim_stream *next;
	unsigned int flags;
	int priority;
	unsigned long long nr;       /* cuStreamGetId */
	struct sim_capture *capture; /* set while the stream captures; owned by capture.c */
	void *capture_data;          /* capture.c's, per stream */
	struct sim_fence *tail;      /* of the newest operation, held; NULL: none yet */
	struct sim_task *first, **last;
	pthread_cond_t work;
	pid_t per_thread; /* the thread whose default stream it is */
	bool started, stopping;
};

/* The stream of a handle; NULL and CU_STREAM_LEGACY mean the current context's legacy
 * stream, CU_STREAM_PER_THREAD this thread's own. INVALID_HANDLE, or as sim_ctx_current(). */
CUresult sim_stream_find(CUstream handle, struct sim_stream **ret);
/* Submit @op, which is consumed also on failure, to sim_capture_op() if the stream captures, else
 * to its thread. @done, if not NULL, gets a held fence that is signalled when @op has run; it gets
 * NULL if @op was captured. */
CUresult sim_stream_submit(struct sim_stream *s, struct sim_op *op, struct sim_fence **done);
/* Wait for all submitted work; releases the lock while it waits. */
CUresult sim_stream_wait(struct sim_stream *s);
/* Wait for the submitted work of all streams of a context, or of all streams. */
CUresult sim_ctx_wait(struct sim_ctx *ctx);
CUresult sim_device_wait(void);
/* Whether the work of the legacy stream and of this stream is ordered. */
static inline bool sim_stream_blocking(const struct sim_stream *s)
{
	return !(s->flags & CU_STREAM_NON_BLOCKING);
}

/* event.c */

struct sim_event {
	struct sim_obj obj;
	struct sim_event *next;
	struct sim_ctx *ctx; /* NULL once it is destroyed */
	unsigned int flags;
	struct sim_fence *fence;     /* of the last record, held; NULL: never recorded */
	struct sim_capture
		*capture; /* recorded last in a stream that captures; owned by capture.c */
	void *capture_data;          /* capture.c's, per event */
};

CUresult sim_event_find(CUevent handle, struct sim_event **ret); /* INVALID_HANDLE */
/* Begin a new record: the event is pending from now until the returned (held) fence is signalled.
 * NULL: out of memory. */
struct sim_fence *sim_event_arm(struct sim_event *ev);

/* record.c: calls into capture */

/* An operation submitted to a stream with ->capture set; consumes it. Handles EVENT_RECORD and
 * EVENT_WAIT too. */
CUresult sim_capture_op(struct sim_stream *s, struct sim_op *op);
/* cuStreamWaitEvent by a stream that does not capture on an event with ->capture set: the stream
 * joins. */
CUresult sim_capture_join(struct sim_stream *s, struct sim_event *ev);
/* Every function that is unsafe during a capture (allocation, synchronous copies, synchronisation
 * of a context, ...) calls this first. CUDA_SUCCESS, or STREAM_CAPTURE_UNSUPPORTED, and the capture
 * is invalidated. */
CUresult sim_unsafe(void);
/* The result of synchronising, querying or destroying a stream with ->capture set, or of launching
 * a graph into it. */
CUresult sim_capture_sync(struct sim_stream *s);
/* The result of synchronising a context. It fails in every mode while one of its streams
 * captures. */
CUresult sim_capture_sync_ctx(const struct sim_ctx *ctx);
/* The result of querying or synchronising an event with ->capture set. */
CUresult sim_capture_event(struct sim_event *ev);
/* Check work for the legacy stream of @ctx: STREAM_CAPTURE_IMPLICIT while one of its blocking
 * streams captures. */
CUresult sim_capture_legacy(struct sim_ctx *ctx);
/* Forget a stream (which may be capturing), an event or a context that will be destroyed. */
void sim_capture_stream_gone(struct sim_stream *s);
void sim_capture_event_gone(struct sim_event *ev);
void sim_capture_ctx_gone(struct sim_ctx *ctx);

#endif
