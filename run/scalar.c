// SPDX-License-Identifier: Apache-2.0
/*
 * scalar.c - numbers in device memory, updated in a stream's order; see foundry/run/scalars.h.
 *
 * An update of a few scalars is one call for stream memory operations, which hold the values. Other
 * updates are copies from a ring of slots in pinned memory, each with an event. The driver copies
 * from there without waiting, and a slot is used again after its event. Each scalar has 8 bytes, so
 * that one copy updates any run of them. See Documentation/design/running.rst.
 */
#include "foundry/run/scalars.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "foundry/run.h"
#include "lib/opts.h"
#include "run/primary.h"
#include "lib/live.h"
#include "arch/stream.h"

#define SLOTS 64u
#define WIDTH sizeof(union fdry_scalars_value)
/* More scalars are copied: each operation adds 54 ns to a call of 0.74 us, and a copy takes 3. */
#define WRITES_MAX 32u

struct slot {
	uint8_t *bytes;
	CUevent done;
	bool busy; /* no thread has waited for @done since its use */
};

struct fdry_scalars {
	struct fdry_primary on;
	pthread_mutex_t lock; /* guards the ring; one update at a time */
	fdry_devptr addr;
	bool owns_memory;     /* the struct owns the memory at @addr */
	_Atomic bool writes;  /* by memory operations; none of them failed */
	uint32_t count;
	uint32_t next;
	void *block;          /* pinned */
	struct slot slots[SLOTS];
	uint32_t dtypes[];
};

static int scalars_check(const struct fdry_scalars *s)
{
	int err = s ? fdry_live_check(s, "the array of scalars")
		    : fdry_fail(FDRY_E_INVAL,
				"no scalars were given (NULL); fdry_scalars_new() makes some");

	return err ? err : fdry_primary_check(&s->on, "the scalars");
}

/* --- memory --- */

static int opts_check(const struct fdry_scalars_opts *o)
{
	uint32_t i;

	if (!o->count || o->count > FDRY_SCALARS_MAX || !o->dtypes)
		return fdry_fail(FDRY_E_INVAL,
				 "%u scalars cannot be made%s; ask for 1 to %d, each with its type",
				 o->count, o->dtypes ? "" : " without types", FDRY_SCALARS_MAX);
	if (o->addr % WIDTH)
		return fdry_fail(FDRY_E_INVAL, "scalars cannot lie at %#llx; use a multiple of %zu",
				 o->addr, WIDTH);
	for (i = 0; i < o->count; i++)
		if (!fdry_dtype_size(o->dtypes[i]) || fdry_dtype_size(o->dtypes[i]) > WIDTH)
			return fdry_fail(FDRY_E_INVAL,
					 "type %u of scalar %u has %zu bytes; use a type of enum "
					 "fdry_dtype with 1, 2, 4 or 8",
					 o->dtypes[i], i, fdry_dtype_size(o->dtypes[i]));
	if (o->flags)
		return fdry_fail(FDRY_E_OPTS,
				 "scalars have no flags %#llx; use a newer library, or clear them",
				 (unsigned long long)o->flags);
	return 0;
}

/* In the context. */
static void ring_drop(struct fdry_scalars *s)
{
	uint32_t i;

	for (i = 0; i < SLOTS; i++) {
		if (s->slots[i].busy)
			(void)fdry_call_raw(s->on.drv, cuEventSynchronize, s->slots[i].done);
		if (s->slots[i].done)
			(void)fdry_call_raw(s->on.drv, cuEventDestroy_v2, s->slots[i].done);
	}
	if (s->block)
		(void)fdry_call_raw(s->on.drv, cuMemFreeHost, s->block);
	if (s->owns_memory)
		(void)fdry_call_raw(s->on.drv, cuMemFree_v2, s->addr);
}

static int ring_make(struct fdry_scalars *s)
{
	size_t each = s->count * WIDTH;
	void *block;
	uint32_t i;
	int err = fdry_call(s->on.drv, cuMemHostAlloc, &block, SLOTS * each,
			    CU_MEMHOSTALLOC_PORTABLE);

	if (err)
		return err;
	s->block = block;
	for (i = 0; i < SLOTS; i++) {
		s->slots[i].bytes = (uint8_t *)block + i * each;
		err = fdry_call(s->on.drv, cuEventCreate, &s->slots[i].done,
				CU_EVENT_DISABLE_TIMING);
		if (err) {
			s->slots[i].done = NULL;
			return err;
		}
	}
	return 0;
}

/* Whether the device has memory operations of 64 bits. Drivers before CUDA 12 do not know the
 * attribute. */
static bool has_writes(const struct fdry_scalars *s)
{
	int has = 0;

	return !fdry_call_raw(s->on.drv, cuDeviceGetAttribute, &has,
			      CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, s->on.device) &&
	       has;
}

static int memory_make(struct fdry_scalars *s)
{
	CUdeviceptr addr;
	int err;

	if (s->addr)
		return 0;
	atomic_store(&s->writes, has_writes(s));
	err = fdry_call(s->on.drv, cuMemAlloc_v2, &addr, s->count * WIDTH);
	if (err)
		return err;
	s->addr = addr;
	s->owns_memory = true;
	return 0;
}

/* --- updates --- */

/* Wait until the slot is free again. */
static int slot_wait(struct fdry_scalars *s, struct slot *t)
{
	int err = t->busy ? fdry_event_wait(s->on.drv, t->done) : 0;

	if (err)
		return err;
	t->busy = false;
	return 0;
}

/* Write each value, and zeros after it. Other bytes of the caller's union are ignored. */
static void values_fill(const struct fdry_scalars *s, uint32_t first, uint32_t count,
			const union fdry_scalars_value *values, uint8_t *to)
{
	uint32_t i;

	memset(to, 0, count * WIDTH);
	for (i = 0; values && i < count; i++)
		memcpy(to + i * WIDTH, values[i].bytes, fdry_dtype_size(s->dtypes[first + i]));
}

/* Copy from a slot. A slot is used only if the copy was enqueued. In the context, the lock held. */
static int ring_copy(struct fdry_scalars *s, struct slot *t, CUdeviceptr to, size_t len,
		     CUstream stream)
{
	int err = fdry_call(s->on.drv, cuMemcpyHtoDAsync_v2, to, t->bytes, len, stream);

	if (err)
		return err;
	fdry_count_copy(TO, len);
	s->next = (s->next + 1) % SLOTS;
	if (!fdry_call_raw(s->on.drv, cuEventRecord, t->done, stream)) {
		t->busy = true;
		return 0;
	}
	/* Without the event, nothing shows when the slot is free. So wait. */
	return fdry_stream_wait(s->on.drv, stream);
}

/* Write up to WRITES_MAX values by memory operations. One call enqueues all, so no work of another
 * thread comes between them, and the lock keeps other updates out. Returns false if the driver
 * refuses the call: the caller then copies the same values, whether or not some were enqueued. */
static bool values_write(struct fdry_scalars *s, uint32_t first, uint32_t count,
			 const union fdry_scalars_value *values, CUstream stream)
{
	CUstreamBatchMemOpParams ops[WRITES_MAX];
	CUresult res;
	uint32_t i;

	memset(ops, 0, count * sizeof(*ops));
	for (i = 0; i < count; i++) {
		ops[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
		ops[i].writeValue.address = s->addr + (first + i) * WIDTH;
		if (values)
			memcpy(&ops[i].writeValue.value64, values[i].bytes,
			       fdry_dtype_size(s->dtypes[first + i]));
	}
	pthread_mutex_lock(&s->lock);
	res = fdry_call_raw(s->on.drv, cuStreamBatchMemOp_v2, stream, count, ops, 0);
	pthread_mutex_unlock(&s->lock);
	if (res) {
		atomic_store(&s->writes, false);
		return false;
	}
	fdry_count_copy(TO, count * WIDTH);
	return true;
}

static int values_copy(struct fdry_scalars *s, uint32_t first, uint32_t count,
		       const union fdry_scalars_value *values, CUstream stream)
{
	struct slot *t;
	int err;

	pthread_mutex_lock(&s->lock);
	t = &s->slots[s->next];
	err = slot_wait(s, t);
	if (err)
		goto out_unlock;
	values_fill(s, first, count, values, t->bytes);
	err = ring_copy(s, t, s->addr + first * WIDTH, count * WIDTH, stream);
out_unlock:
	pthread_mutex_unlock(&s->lock);
	return err;
}

static int update(struct fdry_scalars *s, uint32_t first, uint32_t count,
		  const union fdry_scalars_value *values, CUstream stream)
{
	/* Not in the caller's memory, which may be managed, and which fdry_scalars_free() leaves
	 * only after all updates. cuMemFree() waits for those of our own. */
	if (atomic_load(&s->writes) && s->owns_memory && count <= WRITES_MAX &&
	    values_write(s, first, count, values, stream))
		return 0;
	return values_copy(s, first, count, values, stream);
}

int fdry_scalars_update(struct fdry_scalars *s, uint32_t first, uint32_t count,
			const union fdry_scalars_value *values, CUstream stream)
{
	CUstreamCaptureMode mode;
	int err = scalars_check(s) ?: fdry_need(values);

	if (err)
		return err;
	if (!count || first >= s->count || count > s->count - first)
		return fdry_fail(
			FDRY_E_RANGE,
			"%u scalars from number %u on were asked for, but there are %u in all",
			count, first, s->count);
	err = fdry_primary_enter(&s->on, &mode);
	if (err)
		return err;
	err = fdry_primary_stream(&s->on, stream, "an update");
	if (err)
		goto out_leave;
	err = update(s, first, count, values, stream);
out_leave:
	fdry_primary_leave(&s->on, &mode);
	return err;
}

/* --- new and free --- */

static int first_values(struct fdry_scalars *s, const struct fdry_scalars_opts *o)
{
	CUstream stream;
	int err;

	if (!s->owns_memory && !o->values)
		return 0;
	err = fdry_stream_shared(s->on.drv, FDRY_STREAM_MEMORY, &stream);
	if (err)
		return err;
	err = update(s, 0, s->count, o->values, stream);
	if (err)
		return err;
	return fdry_stream_wait(s->on.drv, stream);
}

static int scalars_make(struct fdry_scalars *s, const struct fdry_scalars_opts *o)
{
	CUstreamCaptureMode mode;
	int err = fdry_primary_enter(&s->on, &mode);

	if (err)
		return err;
	err = memory_make(s);
	if (err)
		goto out_drop;
	err = ring_make(s);
	if (err)
		goto out_drop;
	err = first_values(s, o);
	if (err)
		goto out_drop;
	fdry_primary_leave(&s->on, &mode);
	return 0;
out_drop:
	ring_drop(s);
	fdry_primary_leave(&s->on, &mode);
	return err;
}

int fdry_scalars_new(const struct fdry_scalars_opts *opts, struct fdry_scalars **ret)
{
	struct fdry_scalars_opts o;
	struct fdry_scalars *s;
	int err = fdry_need(ret) ?: fdry_opts_take(opts, &o, sizeof(o));

	if (err)
		return err;
	err = opts_check(&o);
	if (err)
		return err;
	s = calloc(1, sizeof(*s) + o.count * sizeof(s->dtypes[0]));
	if (!s)
		return fdry_nomem();
	s->count = o.count;
	s->addr = o.addr;
	memcpy(s->dtypes, o.dtypes, o.count * sizeof(s->dtypes[0]));
	pthread_mutex_init(&s->lock, NULL);
	err = fdry_primary_init(o.driver, o.device, &s->on);
	if (err)
		goto out_free;
	err = scalars_make(s, &o);
	if (err)
		goto out_close;
	fdry_live_add(s);
	*ret = s;
	return 0;

out_close:
	fdry_primary_release(&s->on);
out_free:
	pthread_mutex_destroy(&s->lock);
	free(s);
	return err;
}

void fdry_scalars_free(struct fdry_scalars *s)
{
	CUstreamCaptureMode mode;

	if (!s || fdry_live_end(s, "the array of scalars"))
		return;
	if (!fdry_primary_check(&s->on, "the scalars") && !fdry_primary_enter(&s->on, &mode)) {
		ring_drop(s);
		fdry_primary_leave(&s->on, &mode);
	}
	fdry_primary_release(&s->on);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static int index_check(const struct fdry_scalars *s, uint32_t i)
{
	int err = scalars_check(s);

	if (err)
		return err;
	if (i >= s->count)
		return fdry_fail(FDRY_E_RANGE, "there is no scalar %u; use a number below %u", i,
				 s->count);
	return 0;
}

int fdry_scalars_addr(const struct fdry_scalars *s, uint32_t i, fdry_devptr *ret)
{
	int err = index_check(s, i) ?: fdry_need(ret);

	if (err)
		return err;
	*ret = s->addr + i * WIDTH;
	return 0;
}

size_t fdry_scalars_count(const struct fdry_scalars *s)
{
	return s ? s->count : 0;
}

int fdry_scalars_dtype(const struct fdry_scalars *s, uint32_t i, uint32_t *ret)
{
	int err = index_check(s, i) ?: fdry_need(ret);

	if (err)
		return err;
	*ret = s->dtypes[i];
	return 0;
}

/* In the context. */
static int scalar_read(struct fdry_scalars *s, uint32_t i, union fdry_scalars_value *ret,
		       CUstream stream)
{
	union fdry_scalars_value value = { 0 };
	size_t size = fdry_dtype_size(s->dtypes[i]);
	int err = fdry_primary_stream(&s->on, stream, "a read");

	if (err)
		return err;
	err = fdry_call(s->on.drv, cuMemcpyDtoHAsync_v2, value.bytes, s->addr + i * WIDTH, size,
			stream);
	if (err)
		return err;
	fdry_count_copy(FROM, size);
	err = fdry_stream_wait(s->on.drv, stream);
	if (err)
		return err;
	*ret = value;
	return 0;
}

int fdry_scalars_read(struct fdry_scalars *s, uint32_t i, union fdry_scalars_value *ret,
		      CUstream stream)
{
	CUstreamCaptureMode mode;
	int err = index_check(s, i) ?: fdry_need(ret);

	if (err)
		return err;
	err = fdry_primary_enter(&s->on, &mode);
	if (err)
		return err;
	err = scalar_read(s, i, ret, stream);
	fdry_primary_leave(&s->on, &mode);
	return err;
}
