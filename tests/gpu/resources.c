// SPDX-License-Identifier: Apache-2.0
/*
 * A device, its pools of memory, streams and events, buffers by handle, and cooperative launches,
 * on a GPU.
 *
 * It can also run on the software driver, which does less work in parallel than a GPU:
 * FDRY_SIM_MEMORY=256M resources $BUILD/foundry/sim/libcuda.so.1
 *
 * While a stream is held back here, nothing is freed, and nothing is requested that a pool does not
 * keep. Both could make the driver wait for all work, and that waits for the end of the test.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>

#include "foundry/run.h"
#include "tests/lib/parts.h"

#define DEV FDRY_TRANSIENT_DEVICE
#define PIN FDRY_TRANSIENT_PINNED
#define NONE FDRY_STREAM_NONE
#define MIB (1ull << 20)
#define KEPT 128 /* streams or events of a kind */

static struct fdry_device *dev;

static struct fdry_transient_stats pool(enum fdry_transient_kind kind)
{
	struct fdry_transient_stats st = { .sz = sizeof(st) };

	ok(fdry_transient_stats(dev, kind, &st));
	return st;
}

static struct fdry_sync_stats syncs(enum fdry_sync_kind kind)
{
	struct fdry_sync_stats st = { .sz = sizeof(st) };

	ok(fdry_sync_stats(dev, kind, &st));
	return st;
}

static uint64_t get(enum fdry_transient_kind kind, size_t bytes, CUstream stream)
{
	uint64_t addr = 0;

	ok(fdry_transient_get(dev, kind, bytes, stream, &addr));
	return addr;
}

static void *sync_get(enum fdry_sync_kind kind)
{
	void *what = NULL;

	ok(fdry_sync_get(dev, kind, &what));
	return what;
}

/* A host function that holds a stream back. */
static void CUDA_CB gate_wait(void *gate)
{
	sem_wait(gate);
}

static bool gate_shut(sem_t *gate, CUstream stream)
{
	return check(!sem_init(gate, 0, 0)) && cu(cuLaunchHostFunc, stream, gate_wait, gate);
}

static void gate_open(sem_t *gate, CUstream stream)
{
	sem_post(gate);
	cu(cuStreamSynchronize, stream);
	sem_destroy(gate);
}

/* --- the device --- */

#define CAP(field, attribute) \
	{ \
#field, offsetof(struct fdry_device_caps, field), CU_DEVICE_ATTRIBUTE_##attribute \
	}

static const struct {
	const char *name;
	size_t at;
	CUdevice_attribute attribute;
} caps[] = {
	CAP(cc_major, COMPUTE_CAPABILITY_MAJOR),
	CAP(cc_minor, COMPUTE_CAPABILITY_MINOR),
	CAP(multiprocessors, MULTIPROCESSOR_COUNT),
	CAP(warp_size, WARP_SIZE),
	CAP(block_threads, MAX_THREADS_PER_BLOCK),
	CAP(block_x, MAX_BLOCK_DIM_X),
	CAP(block_y, MAX_BLOCK_DIM_Y),
	CAP(block_z, MAX_BLOCK_DIM_Z),
	CAP(grid_x, MAX_GRID_DIM_X),
	CAP(grid_y, MAX_GRID_DIM_Y),
	CAP(grid_z, MAX_GRID_DIM_Z),
	CAP(multiprocessor_threads, MAX_THREADS_PER_MULTIPROCESSOR),
	CAP(multiprocessor_blocks, MAX_BLOCKS_PER_MULTIPROCESSOR),
	CAP(block_registers, MAX_REGISTERS_PER_BLOCK),
	CAP(multiprocessor_registers, MAX_REGISTERS_PER_MULTIPROCESSOR),
	CAP(block_shared, MAX_SHARED_MEMORY_PER_BLOCK),
	CAP(block_shared_optin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
	CAP(block_shared_reserved, RESERVED_SHARED_MEMORY_PER_BLOCK),
	CAP(multiprocessor_shared, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
	CAP(constant_memory, TOTAL_CONSTANT_MEMORY),
	CAP(l2_cache, L2_CACHE_SIZE),
	CAP(clock_khz, CLOCK_RATE),
	CAP(memory_clock_khz, MEMORY_CLOCK_RATE),
	CAP(memory_bus_bits, GLOBAL_MEMORY_BUS_WIDTH),
	CAP(copy_engines, ASYNC_ENGINE_COUNT),
	CAP(concurrent_kernels, CONCURRENT_KERNELS),
	CAP(stream_priorities, STREAM_PRIORITIES_SUPPORTED),
	CAP(unified_addressing, UNIFIED_ADDRESSING),
	CAP(managed_memory, MANAGED_MEMORY),
	CAP(map_host_memory, CAN_MAP_HOST_MEMORY),
	CAP(virtual_memory, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
	CAP(memory_pools, MEMORY_POOLS_SUPPORTED),
	CAP(cooperative_launch, COOPERATIVE_LAUNCH),
	CAP(cluster_launch, CLUSTER_LAUNCH),
	CAP(multicast, MULTICAST_SUPPORTED),
	CAP(integrated, INTEGRATED),
	CAP(ecc, ECC_ENABLED),
	CAP(compute_mode, COMPUTE_MODE),
};

static void caps_compare(const struct fdry_device_caps *c)
{
	int32_t have;
	size_t i;
	int want;

	for (i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
		want = 0; /* the result for memory that the driver does not know */
		(void)drv->cuDeviceGetAttribute(&want, caps[i].attribute, 0);
		memcpy(&have, (const char *)c + caps[i].at, sizeof(have));
		if (!check(have == want))
			printf("device: %s is %d, the driver says %d\n", caps[i].name, have, want);
	}
}

static void *warm(void *arg)
{
	CUcontext now = NULL;

	*(bool *)arg = !fdry_device_warm_up(dev) && !drv->cuCtxGetCurrent(&now) && now == ctx;
	return NULL;
}

static void device(void)
{
	struct fdry_device_caps c = { .sz = sizeof(c) };
	struct fdry_device *again = NULL;
	char name[128] = "", text[64];
	int count = 0, version = 0;
	size_t memory = 0;
	pthread_t thread;
	bool warmed = false;

	need(ok(fdry_device_get(0, &again)) && ok(fdry_device_caps(dev, &c)));
	check(again == dev);
	fdry_device_put(again);
	caps_compare(&c);
	cu(cuDeviceGetName, name, (int)sizeof(name), 0);
	cu(cuDeviceTotalMem_v2, &memory, 0);
	cu(cuDriverGetVersion, &version);
	cu(cuDeviceGetCount, &count);
	check(!strcmp(c.name, name) && c.memory == memory && c.driver == version && c.ordinal == 0);
	snprintf(text, sizeof(text), "there is no device %d; this process sees %d", count, count);
	fails(NOGPU, text, fdry_device_get(count, &again));
	pthread_create(&thread, NULL, warm, &warmed);
	pthread_join(thread, NULL);
	check(warmed);
	printf("device: %s, %d.%d, %d multiprocessors, CUDA %d\n", c.name, c.cc_major, c.cc_minor,
	       c.multiprocessors, c.driver);
}

/* --- memory --- */

/* Check the driver's description of an address, and the pool's counters. */
static void memory_of(enum fdry_transient_kind kind)
{
	struct fdry_transient_stats before = pool(kind), st;
	uint64_t a = get(kind, 5000, NONE), b = get(kind, 5000, NONE);
	uint32_t type = 0;

	need(a && b && a != b && check(!(a % 512)));
	cu(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a);
	check(type == (kind == DEV ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
	st = pool(kind);
	check(st.used - before.used == 2 * 5120 && st.used_count - before.used_count == 2 &&
	      st.misses - before.misses == 2);
	ok(fdry_transient_put(dev, kind, a, NONE));
	fails(STALE, "was returned before", fdry_transient_put(dev, kind, a, NONE));
	fails(STALE, "belongs to another pool",
	      fdry_transient_put(dev, kind == DEV ? PIN : DEV, b, NONE));
	check(get(kind, 5120, NONE) == a && pool(kind).hits - before.hits == 1);
	ok(fdry_transient_put(dev, kind, a, NONE));
	ok(fdry_transient_put(dev, kind, b, NONE));
	st = pool(kind);
	check(st.cached - before.cached == 2 * 5120 && st.used == before.used);
	ok(fdry_device_clean_up(dev));
	check(!pool(kind).cached && !pool(kind).cached_count);
}

static void memory(void)
{
	memory_of(DEV);
	memory_of(PIN);
}

/* One piece of each size, all at a time; each is filled to its end, and none has lost its own. */
static void sizes(void)
{
	size_t bytes[40];
	uint64_t a[40];
	unsigned char *host = (void *)(uintptr_t)get(PIN, 4 * MIB, NONE);
	size_t i, wrong = 0, k;

	need(host);
	for (i = 0; i < 40; i++) {
		bytes[i] = ((size_t)1 << (i / 2 + 2)) + i % 3;
		a[i] = get(DEV, bytes[i], NULL);
		need(a[i] && cu(cuMemsetD8Async, a[i], (unsigned char)(i + 1), bytes[i], NULL));
	}
	for (i = 0; i < 40; i++) {
		cu(cuMemcpyDtoHAsync_v2, host, a[i], bytes[i], NULL);
		cu(cuStreamSynchronize, NULL);
		for (k = 0; k < bytes[i]; k++)
			wrong += host[k] != i + 1;
		ok(fdry_transient_put(dev, DEV, a[i], NULL));
	}
	check(!wrong);
	ok(fdry_transient_put(dev, PIN, (uint64_t)(uintptr_t)host, NULL));
}

/* Another stream does not get a buffer that one stream may still use; the same stream does. */
static void across_of(enum fdry_transient_kind kind, CUstream s, CUstream t)
{
	uint64_t a = get(kind, 70000, s), b = get(kind, 70000, t), other;
	sem_t gate;

	need(a && b && a != b);
	ok(fdry_transient_put(dev, kind, b, NONE));
	need(gate_shut(&gate, s));
	ok(fdry_transient_put(dev, kind, a,
			      s)); /* the buffer returned last would be lent first */
	other = get(kind, 70000, t);
	check(other == b);
	check(get(kind, 70000, s) == a);
	ok(fdry_transient_put(dev, kind, a, s));
	gate_open(&gate, s);
	check(get(kind, 70000, t) == a);
	ok(fdry_transient_put(dev, kind, a, t));
	ok(fdry_transient_put(dev, kind, b, t));
}

static void across_streams(void)
{
	CUstream s = sync_get(FDRY_SYNC_STREAM), t = sync_get(FDRY_SYNC_STREAM);
	CUdeviceptr first = part_mem(64);

	need(s && t && first);
	cu(cuMemsetD8Async, first, 1, 64, s);
	across_of(DEV, s, t);
	across_of(PIN, s, t);
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, t));
	cu(cuMemFree_v2, first);
}

static void while_capturing(void)
{
	CUstream s = sync_get(FDRY_SYNC_STREAM);
	uint64_t a = get(DEV, 100, s), r = 77;
	CUgraph graph = NULL;

	need(s && a && cu(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fails(STATE, "is capturing", fdry_transient_get(dev, DEV, 100, s, &r));
	fails(STATE, "is capturing", fdry_transient_put(dev, DEV, a, s));
	fails(STATE, "is capturing", fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
	check(r == 77);
	r = get(DEV, 3 * MIB, NONE); /* others are not kept from it, and the capture lives */
	if (cu(cuStreamEndCapture, s, &graph))
		cu(cuGraphDestroy, graph);
	ok(fdry_transient_put(dev, DEV, r, NONE));
	ok(fdry_transient_put(dev, DEV, a, s));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
}

static void limit_of(enum fdry_transient_kind kind)
{
	uint64_t before = pool(kind).limit, a[4];
	int i;

	check(before == (kind == DEV ? 256 * MIB : 128 * MIB));
	ok(fdry_device_clean_up(dev));
	for (i = 0; i < 4; i++)
		need((a[i] = get(kind, MIB, NONE)));
	ok(fdry_transient_set_limit(dev, kind, 2 * MIB));
	for (i = 0; i < 4; i++)
		ok(fdry_transient_put(dev, kind, a[i], NONE));
	check(pool(kind).cached == 2 * MIB && pool(kind).cached_count == 2);
	check(get(kind, MIB, NONE) == a[3] && get(kind, MIB, NONE) == a[2]);
	ok(fdry_transient_put(dev, kind, a[2], NONE));
	ok(fdry_transient_set_limit(dev, kind, 0));
	check(!pool(kind).cached);
	ok(fdry_transient_put(dev, kind, a[3], NONE));
	check(!pool(kind).cached);
	ok(fdry_transient_set_limit(dev, kind, before));
}

static void limits(void)
{
	limit_of(DEV);
	limit_of(PIN);
}

/* Kept buffers are released for a new request. Other processes may allocate a tenth of the GPU's
 * memory meanwhile, and free half of what the piece has. */
static void none_left(void)
{
	size_t free_bytes = 0, total = 0, now = 0, piece = MIB, most;
	uint64_t limit = pool(DEV).limit, retries = pool(DEV).retries, a, r = 77;

	ok(fdry_device_clean_up(dev));
	need(ok(fdry_transient_set_limit(dev, DEV, UINT64_MAX)) &&
	     cu(cuMemGetInfo_v2, &free_bytes, &total));
	while (4 * piece <= free_bytes)
		piece *= 2;
	most = (size_t)(0.9 * (double)free_bytes) / (piece / 4) *
	       (piece / 4); /* a size of the pool's own, more than is left beside the piece */
	need((a = get(DEV, piece, NONE)) && ok(fdry_transient_put(dev, DEV, a, NONE)));
	cu(cuMemGetInfo_v2, &now, &total);
	check(now <= free_bytes - piece / 2 && pool(DEV).cached == piece); /* others free some */
	printf("none_left: %zu MiB free, %zu kept, %zu asked for\n", free_bytes >> 20, piece >> 20,
	       most >> 20);
	need((a = get(DEV, most, NONE)));
	check(pool(DEV).retries == retries + 1 && !pool(DEV).cached && pool(DEV).used >= most);
	fails(NODEVMEM, "bytes of device memory: ", fdry_transient_get(dev, DEV, most, NONE, &r));
	check(r == 77);
	cu(cuMemsetD8Async, a + most - 64, 1, 64, NULL);
	ok(fdry_transient_put(dev, DEV, a, NULL));
	ok(fdry_transient_set_limit(dev, DEV, 0)); /* it is released after that memset */
	check(!pool(DEV).cached);
	ok(fdry_transient_set_limit(dev, DEV, limit));
	cu(cuMemGetInfo_v2, &now, &total);
	check(now + piece / 8 >= free_bytes);
}

/* --- streams and events --- */

static void come_again(enum fdry_sync_kind kind)
{
	struct fdry_sync_stats before = syncs(kind), st;
	void *a = sync_get(kind), *b = sync_get(kind);

	need(a && b && a != b);
	check(before.limit == KEPT && syncs(kind).used - before.used == 2);
	ok(fdry_sync_put(dev, kind, a));
	fails(STALE, "was returned before", fdry_sync_put(dev, kind, a));
	check(sync_get(kind) == a);
	ok(fdry_sync_put(dev, kind, a));
	ok(fdry_sync_put(dev, kind, b));
	st = syncs(kind);
	check(st.used == before.used && st.again + st.made - before.again - before.made == 3 &&
	      st.kept >= 2);
}

static void events_limit(enum fdry_sync_kind kind)
{
	uint64_t kept = syncs(kind).kept, destroyed = syncs(kind).destroyed;
	void *a[KEPT + 2];
	int i;

	check(kept <= KEPT);
	for (i = 0; i < KEPT + 2; i++)
		need((a[i] = sync_get(kind)));
	for (i = 0; i < KEPT + 2; i++)
		ok(fdry_sync_put(dev, kind, a[i]));
	check(syncs(kind).kept == KEPT && syncs(kind).destroyed == destroyed + 2);
}

static void times(void)
{
	CUresult (*elapsed)(float *, CUevent, CUevent);
	CUstream s = sync_get(FDRY_SYNC_STREAM);
	CUevent a = sync_get(FDRY_SYNC_TIMER), b = sync_get(FDRY_SYNC_TIMER),
		plain = sync_get(FDRY_SYNC_EVENT);
	float ms = -1;

	*(void **)&elapsed = dlsym(drv->handle, "cuEventElapsedTime");
	need(check(elapsed != NULL) && s && a && b && plain);
	cu(cuEventRecord, a, s);
	cu(cuEventRecord, plain, s);
	cu(cuEventRecord, b, s);
	cu(cuStreamSynchronize, s);
	check(!elapsed(&ms, a, b) && ms >= 0);
	check(elapsed(&ms, a, plain) == CUDA_ERROR_INVALID_HANDLE);
	ok(fdry_sync_put(dev, FDRY_SYNC_TIMER, a));
	ok(fdry_sync_put(dev, FDRY_SYNC_TIMER, b));
	fails(STALE, "timing event", fdry_sync_put(dev, FDRY_SYNC_TIMER, plain));
	ok(fdry_sync_put(dev, FDRY_SYNC_EVENT, plain));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
}

static void streams_and_events(void)
{
	CUstream s = sync_get(FDRY_SYNC_STREAM), idle = sync_get(FDRY_SYNC_STREAM);
	sem_t gate;

	come_again(FDRY_SYNC_STREAM);
	come_again(FDRY_SYNC_EVENT);
	come_again(FDRY_SYNC_TIMER);
	times();
	ok(fdry_device_clean_up(dev));
	need(s && idle && ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, idle)) && gate_shut(&gate, s));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
	check(sync_get(FDRY_SYNC_STREAM) == idle); /* though the other was returned last */
	gate_open(&gate, s);
	check(sync_get(FDRY_SYNC_STREAM) == s);
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, s));
	ok(fdry_sync_put(dev, FDRY_SYNC_STREAM, idle));
	events_limit(FDRY_SYNC_EVENT);
	events_limit(FDRY_SYNC_TIMER);
	check(fdry_sync_count(dev) >= 2 * KEPT);
	ok(fdry_device_clean_up(dev));
	check(!fdry_sync_count(dev));
}

/* --- buffers by handle --- */

static void residents(void)
{
	uint32_t in[256], out[256] = { 0 };
	fdry_resident h = 0, again = 0;
	fdry_devptr addr = 0;
	size_t bytes = 0, i;

	for (i = 0; i < 256; i++)
		in[i] = (uint32_t)(i * 2654435761u);
	fails(NOKEY, "ever had", fdry_resident_view(dev, 0, &addr, &bytes));
	need(ok(fdry_resident_new(dev, sizeof(in), &h)) &&
	     ok(fdry_resident_view(dev, h, &addr, &bytes)));
	check(addr && bytes == sizeof(in) && fdry_resident_count(dev) == 1);
	ok(fdry_resident_write(dev, h, 0, in, sizeof(in), NULL));
	ok(fdry_resident_read(dev, h, 40, out, sizeof(in) - 40, NULL));
	check(!memcmp(out, in + 10, sizeof(in) - 40));
	cu(cuMemcpyDtoH_v2, out, addr, sizeof(out));
	check(!memcmp(out, in, sizeof(in)));
	fails(RANGE, "do not fit into a resident buffer of 1024",
	      fdry_resident_read(dev, h, 4, out, sizeof(in), NULL));
	ok(fdry_device_clean_up(dev)); /* it is in use */
	ok(fdry_resident_read(dev, h, 0, out, 4, NULL));
	check(out[0] == in[0]);
	ok(fdry_resident_free(dev, h, NULL));
	fails(STALE, "was freed", fdry_resident_view(dev, h, &addr, &bytes));
	fails(STALE, "was freed", fdry_resident_write(dev, h, 0, in, 4, NULL));
	fails(STALE, "was freed", fdry_resident_free(dev, h, NULL));
	need(ok(fdry_resident_new(dev, 64, &again)));
	check(again != h);
	fails(STALE, "was freed", fdry_resident_read(dev, h, 0, out, 4, NULL));
	ok(fdry_resident_free(dev, again, NULL));
	check(!fdry_resident_count(dev));
}

/* --- cooperative launches --- */

static const char meet_ptx[] = ".version 7.0\n.target sm_60\n.address_size 64\n"
			       /* Each block waits until all have started, and writes their number:
			        *      out[block] = blocks. */
			       ".visible .entry meet(.param .u64 arrived, .param .u64 out)\n"
			       "{\n"
			       "	.reg .u64 %rd<5>; .reg .u32 %r<5>; .reg .pred %p<2>;\n"
			       "	ld.param.u64 %rd1, [arrived]; ld.param.u64 %rd2, [out];\n"
			       "	mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x;\n"
			       "	mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd2, %rd3;\n"
			       "	atom.global.add.u32 %r3, [%rd1], 1;\n"
			       "again:\n"
			       "	ld.volatile.global.u32 %r4, [%rd1];\n"
			       "	setp.lt.u32 %p1, %r4, %r2;\n"
			       "	@%p1 bra again;\n"
			       "	st.global.u32 [%rd4], %r4; ret;\n"
			       "}\n";

/* Load the kernel. The software driver runs blocks one after another, so its kernel does not wait.
 */
static CUfunction meet_load(struct fdry_kernels *k, const char *built)
{
	struct fdry_kernels_source s = { .sz = sizeof(s), .data = meet_ptx,
					 .len = sizeof(meet_ptx) };
	static char text[1 << 20];
	CUfunction f = NULL;
	char path[4096];
	FILE *file;

	if (drv->software) {
		snprintf(path, sizeof(path), "%s/sim/kernels.ptx", built ? built : "build");
		file = fopen(path, "rb");
		if (!check(file != NULL))
			return NULL;
		s.len = fread(text, 1, sizeof(text), file);
		s.data = text;
		fclose(file);
	}
	ok(fdry_kernels_function(k, &s, drv->software ? "nothing" : "meet", &f));
	return f;
}

static void met(CUdeviceptr arrived, CUdeviceptr out, uint32_t blocks)
{
	uint32_t *got = calloc(blocks, 4), i, wrong = 0;

	cu(cuStreamSynchronize, NULL);
	cu(cuMemcpyDtoH_v2, got, out, blocks * 4ull);
	for (i = 0; i < blocks && !drv->software; i++)
		wrong += got[i] != blocks;
	check(!wrong);
	cu(cuMemsetD8Async, arrived, 0, 4, NULL);
	cu(cuMemsetD8Async, out, 0, blocks * 4ull, NULL);
	cu(cuStreamSynchronize, NULL);
	free(got);
}

/* As many blocks as fit at a time, by the driver's word; and one more. */
static void cooperative(void)
{
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o), .block = { 1, 1, 1 },
					      .flags = FDRY_KERNELS_COOPERATIVE };
	struct fdry_device_launch_opts l = { .sz = sizeof(l), .grid = { 1, 1, 1 },
					     .block = { 1, 1, 1 } };
	CUdeviceptr arrived = part_mem(4), out = part_mem(MIB);
	struct fdry_kernels_arg args[] = { { &arrived, 8 }, { &out, 8 } };
	void *params[] = { &arrived, &out };
	struct fdry_kernels *k = NULL;
	int each = 0, sms = 0, can = 0;
	uint32_t most;

	need(arrived && out && ok(fdry_kernels_new(NULL, &k)) &&
	     (l.function = meet_load(k, getenv("BUILD"))));
	cu(cuDeviceGetAttribute, &can, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0);
	cu(cuDeviceGetAttribute, &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
	cu(cuOccupancyMaxActiveBlocksPerMultiprocessor, &each, l.function, 1, 0);
	need(check(can && each > 0 && sms > 0 && (uint64_t)each * (uint64_t)sms <= MIB / 4));
	most = (uint32_t)(each * sms);
	l.params = params;
	l.grid[0] = o.grid[0] = most;
	if (ok(fdry_device_launch_cooperative(dev, &l)))
		met(arrived, out, most);
	if (ok(fdry_kernels_launch(k, l.function, &o, args, drv->software ? 0 : 2)))
		met(arrived, out, most);
	l.grid[0] = o.grid[0] = most + 1;
	fails(UNABLE, "fit at a time", fdry_device_launch_cooperative(dev, &l));
	fails(UNABLE, "at once",
	      fdry_kernels_launch(k, l.function, &o, args, drv->software ? 0 : 2));
	fails(INVAL, "3 were given", fdry_kernels_launch(k, l.function, &o, args, 3));
	cu(cuStreamSynchronize, NULL);
	printf("cooperative: %u blocks met, on %d multiprocessors\n", most, sms);
	fdry_kernels_free(k);
	cu(cuMemFree_v2, arrived);
	cu(cuMemFree_v2, out);
}

/* --- threads --- */

#define THREADS 6
#define TURNS 400
#define BYTES 20000

struct churner {
	pthread_t thread;
	unsigned char own;
	int wrong;
	char why[256];
};

/* Fill the buffer with this thread's number, and return it after the copy that reads it. */
static int turn(struct churner *c, CUstream s)
{
	uint64_t a = 0, host = 0;
	const unsigned char *got;
	int i, err = fdry_transient_get(dev, DEV, BYTES, s, &a) ?:
		     fdry_transient_get(dev, PIN, BYTES, NONE, &host) ?:
		     fdry_call(drv, cuMemsetD8Async, a, c->own, BYTES, s) ?:
		     fdry_call(drv, cuMemcpyDtoHAsync_v2, (void *)(uintptr_t)host, a, BYTES, s) ?:
		     fdry_transient_put(dev, DEV, a, s) ?: fdry_call(drv, cuStreamSynchronize, s);

	if (err)
		return err;
	got = (void *)(uintptr_t)host;
	for (i = 0; i < BYTES; i++)
		c->wrong += got[i] != c->own;
	return fdry_transient_put(dev, PIN, host, NONE);
}

static void *churn(void *arg)
{
	struct churner *c = arg;
	void *s = NULL;
	int i, err = fdry_device_warm_up(dev) ?: fdry_sync_get(dev, FDRY_SYNC_STREAM, &s);

	for (i = 0; i < TURNS && !err; i++) {
		err = turn(c, s);
		if (!err && i % 100 == 99 && c->own == 1)
			err = fdry_device_clean_up(dev);
	}
	err = err ?: fdry_sync_put(dev, FDRY_SYNC_STREAM, s);
	if (err)
		snprintf(c->why, sizeof(c->why), "turn %d: %s", i, fdry_last_error());
	return NULL;
}

static void threads(void)
{
	static struct churner c[THREADS];
	int i;

	for (i = 0; i < THREADS; i++) {
		c[i].own = (unsigned char)(i + 1);
		pthread_create(&c[i].thread, NULL, churn, &c[i]);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(c[i].thread, NULL);
	for (i = 0; i < THREADS; i++)
		if (!check(!c[i].wrong && !*c[i].why))
			printf("threads: %d has %d wrong bytes; %s\n", i, c[i].wrong, c[i].why);
	check(!pool(DEV).used && !pool(PIN).used);
}

int main(int argc, char **argv)
{
	static const struct part parts[] = {
		{ "device", device },
		{ "memory", memory },
		{ "sizes", sizes },
		{ "across_streams", across_streams },
		{ "while_capturing", while_capturing },
		{ "limits", limits },
		{ "none_left", none_left },
		{ "streams_and_events", streams_and_events },
		{ "residents", residents },
		{ "cooperative", cooperative },
		{ "threads", threads },
	};

	if (argc > 1 ? setenv("FOUNDRY_DRIVER", argv[1], 1) : unsetenv("FOUNDRY_DRIVER"))
		return EXIT_FAILURE;
	setenv("CUDA_CACHE_DISABLE", "1", 1); /* nothing to set up for it */
	if (parts_begin(argc > 1 ? argv[1] : NULL) && ok(fdry_device_get(0, &dev)))
		parts_run(parts, sizeof(parts) / sizeof(parts[0]));
	fdry_device_put(dev);
	return gpu_end(checks, failures);
}
