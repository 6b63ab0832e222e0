// SPDX-License-Identifier: Apache-2.0
/*
 * resident.c - buffers by handle; see foundry/run/pool.h.
 *
 * A handle is a slot's number and the generation of its buffer. The generation grows when a buffer
 * is freed. A slot whose generations are used up is not used again. So no handle ever names a
 * second buffer.
 */
#include <stdlib.h>

#include "lib/opts.h"
#include "run/device.h"
#include "arch/stream.h"
#include "lib/telemetry.h"
#include "lib/threads.h"

#define SLOTS_MAX (1u << 24)

static fdry_resident handle_of(const struct fdry_residents *r, uint32_t i)
{
	return (fdry_resident)r->slots[i].generation << 32 | (i + 1);
}

/* The slot of a handle. The lock is held. */
static int slot_find(const struct fdry_residents *r, fdry_resident handle,
		     struct fdry_resident_slot **ret)
{
	uint32_t i = (uint32_t)handle - 1, generation = (uint32_t)(handle >> 32);
	struct fdry_resident_slot *s = i < r->n ? &r->slots[i] : NULL;

	if (s && s->addr && s->generation == generation) {
		*ret = s;
		return 0;
	}
	if (s && generation && generation < s->generation)
		return fdry_fail(FDRY_E_STALE,
				 "the resident buffer %#llx was freed; make another one",
				 (unsigned long long)handle);
	return fdry_fail(
		FDRY_E_NOKEY,
		"no resident buffer of this device ever had the handle %#llx; use a handle "
		"that fdry_resident_new() returned, with its device",
		(unsigned long long)handle);
}

static int slots_grow(struct fdry_residents *r)
{
	uint32_t capacity = r->capacity ? 2 * r->capacity : 64;
	struct fdry_resident_slot *more;

	if (r->n < r->capacity)
		return 0;
	if (capacity > SLOTS_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "there are %u resident buffers, the limit; free some", r->n);
	more = realloc(r->slots, capacity * sizeof(*more));
	if (!more)
		return fdry_nomem();
	r->slots = more;
	r->capacity = capacity;
	return 0;
}

/* A free slot's index. The lock is held. */
static int slot_reserve(struct fdry_residents *r, uint32_t *ret)
{
	int err;

	if (r->first_free) {
		*ret = r->first_free - 1;
		r->first_free = r->slots[*ret].next_free;
		return 0;
	}
	err = slots_grow(r);
	if (err)
		return err;
	*ret = r->n++;
	r->slots[*ret] = (struct fdry_resident_slot){ .generation = 1 };
	return 0;
}

/* @last: the generation of the former buffer. The lock is held. */
static void slot_free(struct fdry_residents *r, uint32_t i, uint32_t last)
{
	if (last == UINT32_MAX)
		return;
	r->slots[i].next_free = r->first_free;
	r->first_free = i + 1;
}

int fdry_resident_new(struct fdry_device *dev, size_t bytes, fdry_resident *ret)
{
	struct fdry_saved_err saved_err = { 0 };
	struct fdry_residents *r;
	uint64_t addr = 0;
	uint32_t i;
	int err = fdry_need(ret);

	if (err)
		return err;
	err = fdry_transient_get(dev, FDRY_TRANSIENT_DEVICE, bytes, FDRY_STREAM_NONE, &addr);
	if (err)
		return err;
	r = &dev->residents;
	pthread_mutex_lock(&r->lock);
	err = slot_reserve(r, &i);
	if (err)
		goto out_put;
	r->slots[i].addr = addr;
	r->slots[i].bytes = bytes;
	r->count++;
	*ret = handle_of(r, i);
	pthread_mutex_unlock(&r->lock);
	fdry_gauge(FDRY_METRIC_RESIDENT, 1);
	fdry_gauge(FDRY_METRIC_RESIDENT_BYTES, (int64_t)bytes);
	return 0;
out_put:
	pthread_mutex_unlock(&r->lock);
	fdry_saved_err_set(&saved_err, err);
	(void)fdry_transient_put(dev, FDRY_TRANSIENT_DEVICE, addr, FDRY_STREAM_NONE);
	return fdry_saved_err_restore(&saved_err);
}

/* Lock the buffers and find a slot. The caller unlocks, unless this fails. */
static int slot_lock(struct fdry_residents *r, fdry_resident handle,
		     struct fdry_resident_slot **ret)
{
	int err;

	pthread_mutex_lock(&r->lock);
	err = slot_find(r, handle, ret);
	if (err)
		pthread_mutex_unlock(&r->lock);
	return err;
}

int fdry_resident_view(struct fdry_device *dev, fdry_resident handle, fdry_devptr *addr,
		       size_t *bytes)
{
	struct fdry_resident_slot *s;
	int err = fdry_device_check(dev) ?: slot_lock(&dev->residents, handle, &s);

	if (err)
		return err;
	if (addr)
		*addr = s->addr;
	if (bytes)
		*bytes = s->bytes;
	pthread_mutex_unlock(&dev->residents.lock);
	return 0;
}

/* Invalidate a handle, and wait for copies in progress, because the memory may get another use
 * next. @i: its slot's index. @was: the slot's content. No other thread gets the slot before
 * slot_left(). */
static int slot_leave(struct fdry_residents *r, fdry_resident handle, uint32_t *i,
		      struct fdry_resident_slot *was)
{
	struct fdry_resident_slot *s;
	int err = slot_lock(r, handle, &s);

	if (err)
		return err;
	*i = (uint32_t)(s - r->slots);
	*was = *s;
	s->addr = 0;
	s->generation += s->generation != UINT32_MAX;
	r->count--;
	while (r->slots[*i].copies)
		pthread_cond_wait(&r->idle, &r->lock);
	was->copies = 0;
	pthread_mutex_unlock(&r->lock);
	return 0;
}

/* Free the slot, or if the put failed, restore it. */
static void slot_left(struct fdry_residents *r, uint32_t i, const struct fdry_resident_slot *was,
		      bool gone)
{
	pthread_mutex_lock(&r->lock);
	if (gone) {
		slot_free(r, i, was->generation);
	} else {
		r->slots[i] = *was;
		r->count++;
	}
	pthread_mutex_unlock(&r->lock);
}

int fdry_resident_free(struct fdry_device *dev, fdry_resident handle, CUstream stream)
{
	struct fdry_resident_slot was;
	uint32_t i;
	int err = fdry_device_check(dev);

	if (err || !handle)
		return err;
	err = slot_leave(&dev->residents, handle, &i, &was);
	if (err)
		return err;
	err = fdry_transient_put(dev, FDRY_TRANSIENT_DEVICE, was.addr, stream);
	slot_left(&dev->residents, i, &was, !err);
	if (err)
		return err;
	fdry_gauge(FDRY_METRIC_RESIDENT, -1);
	fdry_gauge(FDRY_METRIC_RESIDENT_BYTES, -(int64_t)was.bytes);
	return 0;
}

/* --- copies --- */

static int part_check(const struct fdry_resident_slot *s, size_t offset, const void *host,
		      size_t len)
{
	if (offset > s->bytes || len > s->bytes - offset)
		return fdry_fail(FDRY_E_RANGE,
				 "%zu bytes at %zu do not fit into a resident buffer of %zu", len,
				 offset, s->bytes);
	if (len && !host)
		return fdry_fail(FDRY_E_INVAL, "the host memory is NULL; pass %zu bytes", len);
	return 0;
}

/* Find the address of @len bytes at @offset. No thread frees the buffer until copy_end(). */
static int copy_begin(struct fdry_device *dev, fdry_resident handle, size_t offset,
		      const void *host, size_t len, CUdeviceptr *ret)
{
	struct fdry_resident_slot *s;
	int err = fdry_device_check(dev) ?: slot_lock(&dev->residents, handle, &s);

	if (err)
		return err;
	err = part_check(s, offset, host, len);
	if (err)
		goto out_unlock;
	s->copies++;
	*ret = s->addr + offset;
out_unlock:
	pthread_mutex_unlock(&dev->residents.lock);
	return err;
}

static void copy_end(struct fdry_device *dev, fdry_resident handle)
{
	struct fdry_residents *r = &dev->residents;

	pthread_mutex_lock(&r->lock);
	if (!--r->slots[(uint32_t)handle - 1].copies)
		pthread_cond_broadcast(&r->idle);
	pthread_mutex_unlock(&r->lock);
}

/* Between enter and leave. On a capturing stream, the copy would become a node of the graph, and
 * the wait for it would invalidate the capture. */
static int copy_stream(const struct fdry_device *dev, CUstream *stream)
{
	if (*stream == FDRY_STREAM_NONE)
		return fdry_stream_shared(dev->drv, FDRY_STREAM_MEMORY, stream);
	return fdry_device_not_capturing(dev, *stream,
					 "copy on another stream, or when the capture has ended");
}

/* Copy to the device if @to is true, which only reads @host; else copy from it. */
static int copy_at(struct fdry_device *dev, CUdeviceptr addr, void *host, size_t len,
		   CUstream stream, bool to)
{
	CUstreamCaptureMode mode;
	int err = fdry_device_enter(dev, &mode);

	if (err)
		return err;
	err = copy_stream(dev, &stream);
	if (err)
		goto out_leave;
	if (len && to) {
		fdry_count_copy(TO, len);
		err = fdry_call(dev->drv, cuMemcpyHtoDAsync_v2, addr, host, len, stream);
	} else if (len) {
		fdry_count_copy(FROM, len);
		err = fdry_call(dev->drv, cuMemcpyDtoHAsync_v2, host, addr, len, stream);
	}
	if (err)
		goto out_leave;
	err = fdry_stream_wait(dev->drv, stream);
out_leave:
	fdry_device_leave(dev, &mode);
	return err;
}

static int copy(struct fdry_device *dev, fdry_resident handle, size_t offset, void *host,
		size_t len, CUstream stream, bool to)
{
	CUdeviceptr addr = 0;
	int err = copy_begin(dev, handle, offset, host, len, &addr);

	if (err)
		return err;
	err = copy_at(dev, addr, host, len, stream, to);
	copy_end(dev, handle);
	return err;
}

int fdry_resident_write(struct fdry_device *dev, fdry_resident handle, size_t offset,
			const void *data, size_t len, CUstream stream)
{
	return copy(dev, handle, offset, (void *)data, len, stream, true);
}

int fdry_resident_read(struct fdry_device *dev, fdry_resident handle, size_t offset, void *data,
		       size_t len, CUstream stream)
{
	return copy(dev, handle, offset, data, len, stream, false);
}

size_t fdry_resident_count(struct fdry_device *dev)
{
	size_t n;

	if (fdry_device_check(dev))
		return 0;
	pthread_mutex_lock(&dev->residents.lock);
	n = dev->residents.count;
	pthread_mutex_unlock(&dev->residents.lock);
	return n;
}

void fdry_residents_release(struct fdry_residents *r)
{
	uint32_t i;

	for (i = 0; i < r->n; i++)
		if (r->slots[i].addr)
			fdry_gauge(FDRY_METRIC_RESIDENT_BYTES, -(int64_t)r->slots[i].bytes);
	fdry_gauge(FDRY_METRIC_RESIDENT, -(int64_t)r->count);
	free(r->slots);
	pthread_mutex_destroy(&r->lock);
}
