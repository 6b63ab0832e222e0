// SPDX-License-Identifier: Apache-2.0
/*
 * ways.c - see ways.h.
 *
 * Threads fill pinned blocks from the file, and pass each block to the driver. Every thread has
 * blocks of its own, so they share only the position in the file and the driver. They differ in
 * the way in which bytes get into a block, the number of threads, and the size of blocks. Three
 * ways are of another kind: io_uring with one thread, a map registered with the driver, and a copy
 * out of the map as it is.
 */
#include "tests/bench/gpu/ways.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "lib/clock.h"
#include "tests/lib/need.h"

#define MIB ((uint64_t)1 << 20)
#define HUGE_PAGE (2 * MIB)
#define SIZE_MAX_COPIED (1200 * MIB)
#define THREADS_MAX 16
#define BLOCKS_MAX 64
#define ROUNDS_MAX 16
#define SPOTS 64
#define SPOT 4096u

enum fill {
	MAP,      /* memcpy from a map that was not touched before */
	POPULATE, /* the same, after the kernel filled the piece's page tables at once */
	KEPT,     /* from a map whose pages are present */
	STREAM,   /* from such a map, with stores that bypass the caches */
	STREAM_POPULATE, /* these stores, from a map that is populated piece by piece */
	READ,     /* pread() */
	DIRECT,   /* pread() without the page cache */
	URING,
	REGISTER, /* the driver reads the map itself, registered 64 MiB at a time */
	PAGEABLE, /* the driver copies from the map as it is */
	PINNED,   /* nothing is filled: pinned memory */
	ONLY_MAP, /* as MAP, and nothing is copied to the device */
	ONLY_READ,
	FILLS
};

static const char *const fill_names[FILLS] = { "map",
					       "map, populated",
					       "map, touched",
					       "map, touched, streaming stores",
					       "map, populated, streaming stores",
					       "pread",
					       "pread, O_DIRECT",
					       "io_uring",
					       "map, registered",
					       "map, pageable",
					       "pinned",
					       "map, no device",
					       "pread, no device" };

struct way {
	enum fill fill;
	unsigned int threads, blocks, kib; /* @blocks of each thread, of @kib KiB each */
	unsigned int streams;
	bool late; /* the measured time includes making the blocks */
};

struct block {
	uint8_t *bytes;
	CUevent copied;
	bool in_flight;
	uint64_t at, len; /* io_uring: the piece that is being read */
};

struct run {
	const struct fdry_driver *drv;
	struct way way;
	CUcontext ctx;
	CUstream streams[2];
	CUdeviceptr dev;
	int fd;
	uint64_t size, piece;
	const uint8_t *map;
	uint8_t *memory; /* of all blocks */
	struct block blocks[BLOCKS_MAX];
	_Atomic uint64_t next;
	pthread_barrier_t start;
	double made_ms, unmap_ms; /* to make the blocks, to unmap the file */
};

static void require(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* --- blocks --- */

static unsigned int blocks_of(const struct way *w)
{
	return w->threads * w->blocks;
}

/* All in one mapping of huge pages, registered at once. */
static void blocks_make(struct run *r)
{
	uint64_t at, len = (blocks_of(&r->way) * r->piece + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	double mark = fdry_now_ms();
	unsigned int i;
	uint8_t *map;

	if (!blocks_of(&r->way))
		return;
	map = mmap(NULL, len + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		   0);
	require(map != MAP_FAILED, "mmap");
	r->memory = map + (-(uintptr_t)map & (HUGE_PAGE - 1));
	(void)madvise(r->memory, len, MADV_HUGEPAGE);
	for (at = 0; at < len; at += 4096)
		((volatile uint8_t *)r->memory)[at] = 0;
	must(fdry_call(r->drv, cuMemHostRegister_v2, r->memory, len, 0));
	for (i = 0; i < blocks_of(&r->way); i++) {
		r->blocks[i] = (struct block){ .bytes = r->memory + i * r->piece };
		must(fdry_call(r->drv, cuEventCreate, &r->blocks[i].copied,
			       CU_EVENT_DISABLE_TIMING));
	}
	r->made_ms = fdry_elapsed_ms(&mark);
}

static void blocks_free(struct run *r)
{
	uint64_t len = (blocks_of(&r->way) * r->piece + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	unsigned int i;

	if (!r->memory)
		return;
	for (i = 0; i < blocks_of(&r->way); i++)
		must(fdry_call(r->drv, cuEventDestroy_v2, r->blocks[i].copied));
	must(fdry_call(r->drv, cuMemHostUnregister, r->memory));
	munmap(r->memory, len);
	r->memory = NULL;
}

static void block_wait(struct run *r, struct block *b)
{
	if (b->in_flight)
		must(fdry_call(r->drv, cuEventSynchronize, b->copied));
	b->in_flight = false;
}

static void block_send(struct run *r, struct block *b, uint64_t at, uint64_t len)
{
	CUstream stream = r->streams[at / r->piece % r->way.streams];

	if (r->way.fill >= ONLY_MAP)
		return;
	must(fdry_call(r->drv, cuMemcpyHtoDAsync_v2, r->dev + at, b->bytes, len, stream));
	must(fdry_call(r->drv, cuEventRecord, b->copied, stream));
	b->in_flight = true;
}

/* --- filling --- */

static void stream_copy(uint8_t *to, const uint8_t *from, uint64_t len)
{
#ifdef __SSE2__
	uint64_t i;

	for (i = 0; i + 64 <= len; i += 64) {
		__m128i a = _mm_loadu_si128((const __m128i *)(from + i));
		__m128i b = _mm_loadu_si128((const __m128i *)(from + i + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(from + i + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(from + i + 48));

		_mm_stream_si128((__m128i *)(to + i), a);
		_mm_stream_si128((__m128i *)(to + i + 16), b);
		_mm_stream_si128((__m128i *)(to + i + 32), c);
		_mm_stream_si128((__m128i *)(to + i + 48), d);
	}
	_mm_sfence();
	memcpy(to + i, from + i, len - i);
#else
	memcpy(to, from, len);
#endif
}

static void read_all(int fd, uint8_t *to, uint64_t at, uint64_t len)
{
	ssize_t n;

	for (; len; to += n, at += (uint64_t)n, len -= (uint64_t)n) {
		n = pread(fd, to, len, (off_t)at);
		require(n > 0, "pread");
	}
}

static void block_fill(struct run *r, struct block *b, uint64_t at, uint64_t len)
{
	switch (r->way.fill) {
	case POPULATE:
		(void)madvise((void *)(r->map + at), len, MADV_POPULATE_READ);
		memcpy(b->bytes, r->map + at, len);
		break;
	case STREAM_POPULATE:
		(void)madvise((void *)(r->map + at), len, MADV_POPULATE_READ);
		stream_copy(b->bytes, r->map + at, len);
		break;
	case STREAM: stream_copy(b->bytes, r->map + at, len); break;
	case READ:
	case ONLY_READ:
	case DIRECT: read_all(r->fd, b->bytes, at, len); break;
	case PINNED: break;
	default: memcpy(b->bytes, r->map + at, len);
	}
}

struct thread {
	struct run *r;
	unsigned int nr;
};

static void *thread_run(void *arg)
{
	const struct thread *t = arg;
	struct run *r = t->r;
	unsigned int i = 0;
	uint64_t at, len;
	struct block *b;

	must(fdry_call(r->drv, cuCtxSetCurrent, r->ctx));
	pthread_barrier_wait(&r->start);
	pthread_barrier_wait(&r->start); /* the measured time begins here */
	while ((at = atomic_fetch_add(&r->next, r->piece)) < r->size) {
		len = r->size - at < r->piece ? r->size - at : r->piece;
		b = &r->blocks[t->nr * r->way.blocks + i++ % r->way.blocks];
		block_wait(r, b);
		block_fill(r, b, at, len);
		block_send(r, b, at, len);
	}
	return NULL;
}

static double threads_run(struct run *r)
{
	pthread_t threads[THREADS_MAX];
	struct thread args[THREADS_MAX];
	unsigned int i;
	double mark;

	require(!pthread_barrier_init(&r->start, NULL, r->way.threads + 1), "barrier");
	if (!r->way.late)
		blocks_make(r);
	for (i = 0; i < r->way.threads; i++) {
		args[i] = (struct thread){ r, i };
		require(!pthread_create(&threads[i], NULL, thread_run, &args[i]), "thread");
	}
	pthread_barrier_wait(&r->start);
	mark = fdry_now_ms();
	if (r->way.late)
		blocks_make(r);
	pthread_barrier_wait(&r->start);
	for (i = 0; i < r->way.threads; i++)
		pthread_join(threads[i], NULL);
	must(fdry_call(r->drv, cuCtxSynchronize));
	pthread_barrier_destroy(&r->start);
	return fdry_elapsed_ms(&mark);
}

/* --- io_uring: one thread, and the kernel's workers read --- */

struct uring {
	int fd;
	uint8_t *sq, *cq;
	size_t sq_len, cq_len, sqes_len;
	struct io_uring_sqe *sqes;
	struct io_uring_params p;
};

static bool uring_open(struct uring *u, unsigned int entries)
{
	memset(u, 0, sizeof(*u));
	u->fd = (int)syscall(SYS_io_uring_setup, entries, &u->p);
	if (u->fd < 0)
		return false;
	u->sq_len = u->p.sq_off.array + u->p.sq_entries * sizeof(uint32_t);
	u->cq_len = u->p.cq_off.cqes + u->p.cq_entries * sizeof(struct io_uring_cqe);
	u->sqes_len = u->p.sq_entries * sizeof(struct io_uring_sqe);
	u->sq = mmap(NULL, u->sq_len, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd,
		     IORING_OFF_SQ_RING);
	u->cq = mmap(NULL, u->cq_len, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd,
		     IORING_OFF_CQ_RING);
	u->sqes = mmap(NULL, u->sqes_len, PROT_READ | PROT_WRITE, MAP_SHARED, u->fd,
		       IORING_OFF_SQES);
	require(u->sq != MAP_FAILED && u->cq != MAP_FAILED && u->sqes != MAP_FAILED, "mmap");
	return true;
}

static void uring_close(struct uring *u)
{
	munmap(u->sq, u->sq_len);
	munmap(u->cq, u->cq_len);
	munmap(u->sqes, u->sqes_len);
	close(u->fd);
}

/* Read block @i's piece. */
static void uring_read(struct run *r, struct uring *u, unsigned int i)
{
	uint32_t *tail = (uint32_t *)(u->sq + u->p.sq_off.tail);
	uint32_t mask = u->p.sq_entries - 1, slot = *tail & mask;
	const struct block *b = &r->blocks[i];

	u->sqes[slot] = (struct io_uring_sqe){ .opcode = IORING_OP_READ,
					       .flags = IOSQE_ASYNC,
					       .fd = r->fd,
					       .off = b->at,
					       .addr = (uint64_t)(uintptr_t)b->bytes,
					       .len = (uint32_t)b->len,
					       .user_data = i };
	((uint32_t *)(u->sq + u->p.sq_off.array))[slot] = slot;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	require(syscall(SYS_io_uring_enter, u->fd, 1, 0, 0, NULL, 0) == 1, "io_uring_enter");
}

static bool uring_next(struct run *r, struct uring *u, unsigned int i)
{
	struct block *b = &r->blocks[i];

	b->at = r->next;
	if (b->at >= r->size)
		return false;
	b->len = r->size - b->at < r->piece ? r->size - b->at : r->piece;
	r->next += b->len;
	block_wait(r, b);
	uring_read(r, u, i);
	return true;
}

/* The number of the next block that was read whole. */
static unsigned int uring_wait(const struct run *r, struct uring *u)
{
	uint32_t *head = (uint32_t *)(u->cq + u->p.cq_off.head);
	uint32_t *tail = (uint32_t *)(u->cq + u->p.cq_off.tail);
	const struct io_uring_cqe *cqe =
		(const struct io_uring_cqe *)(u->cq + u->p.cq_off.cqes) +
		(*head & (u->p.cq_entries - 1));
	unsigned int i;

	while (*head == __atomic_load_n(tail, __ATOMIC_ACQUIRE))
		require(syscall(SYS_io_uring_enter, u->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) >=
				0,
			"io_uring_enter");
	i = (unsigned int)cqe->user_data;
	require(cqe->res >= 0 && (uint64_t)cqe->res == r->blocks[i].len, "io_uring");
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return i;
}

/* A block is read again two completions later, so the device has time for it. */
static double uring_run(struct run *r, struct uring *u)
{
	unsigned int i, n = blocks_of(&r->way), flight = 0, free_block[2] = { 0 }, nfree = 0;
	struct block *b;
	double mark;

	blocks_make(r);
	mark = fdry_now_ms();
	for (i = 0; i < n; i++)
		flight += uring_next(r, u, i);
	while (flight) {
		i = uring_wait(r, u);
		b = &r->blocks[i];
		flight--;
		block_send(r, b, b->at, b->len);
		if (nfree == 2) {
			flight += uring_next(r, u, free_block[0]);
			free_block[0] = free_block[1];
			nfree = 1;
		}
		free_block[nfree++] = i;
		while (!flight && nfree && r->next < r->size)
			flight += uring_next(r, u, free_block[--nfree]);
	}
	must(fdry_call(r->drv, cuCtxSynchronize));
	return fdry_elapsed_ms(&mark);
}

/* --- the map itself --- */

static double map_run(struct run *r)
{
	double mark = fdry_now_ms();
	uint64_t at, len;
	void *piece;

	for (at = 0; at < r->size; at += len) {
		len = r->size - at < 64 * MIB ? r->size - at : 64 * MIB;
		piece = (void *)(r->map + at);
		if (r->way.fill == REGISTER &&
		    fdry_call_raw(r->drv, cuMemHostRegister_v2, piece, len,
				  CU_MEMHOSTREGISTER_READ_ONLY))
			return -1;
		must(fdry_call(r->drv, cuMemcpyHtoDAsync_v2, r->dev + at, piece, len,
			       r->streams[0]));
	}
	must(fdry_call(r->drv, cuStreamSynchronize, r->streams[0]));
	for (at = 0; r->way.fill == REGISTER && at < r->size; at += 64 * MIB)
		must(fdry_call(r->drv, cuMemHostUnregister, (void *)(r->map + at)));
	return fdry_elapsed_ms(&mark);
}

/* --- a single way --- */

static void spots_check(struct run *r)
{
	uint8_t here[SPOT], there[SPOT];
	uint64_t at, i;

	for (i = 0; i < SPOTS; i++) {
		at = r->size / SPOTS * i;
		read_all(r->fd, here, at, SPOT);
		must(fdry_call(r->drv, cuMemcpyDtoH_v2, there, r->dev + at, SPOT));
		if (memcmp(here, there, SPOT)) {
			fprintf(stderr, "ways: '%s' has other bytes at %llu\n",
				fill_names[r->way.fill], (unsigned long long)at);
			exit(1);
		}
	}
}

static void map_touch(const struct run *r)
{
	uint64_t at;

	for (at = 0; at < r->size; at += 4096)
		(void)*(const volatile uint8_t *)(r->map + at);
}

/* Return milliseconds, or a negative number if this machine lacks the way. */
static double way_run(struct run *r, const char *file)
{
	struct uring u;
	double mark, ms = -1;

	r->fd = open(file, O_RDONLY | O_CLOEXEC | (r->way.fill == DIRECT ? O_DIRECT : 0));
	if (r->fd < 0)
		return -1;
	r->map = mmap(NULL, r->size, PROT_READ, MAP_SHARED, r->fd, 0);
	require(r->map != MAP_FAILED, "mmap");
	if (r->way.fill == KEPT || r->way.fill == STREAM)
		map_touch(r);
	r->next = 0;
	r->piece = r->way.kib * (uint64_t)1024;
	must(fdry_call(r->drv, cuMemsetD8Async, r->dev, 0xee, r->size, r->streams[0]));
	must(fdry_call(r->drv, cuCtxSynchronize));
	if (r->way.fill == REGISTER || r->way.fill == PAGEABLE) {
		ms = map_run(r);
	} else if (r->way.fill != URING) {
		ms = threads_run(r);
	} else if (uring_open(&u, BLOCKS_MAX)) {
		ms = uring_run(r, &u);
		uring_close(&u);
	}
	blocks_free(r);
	mark = fdry_now_ms();
	munmap((void *)r->map, r->size);
	r->unmap_ms = fdry_elapsed_ms(&mark);
	close(r->fd);
	r->fd = open(file, O_RDONLY | O_CLOEXEC);
	require(r->fd >= 0, file);
	if (ms >= 0 && r->way.fill < PINNED)
		spots_check(r);
	close(r->fd);
	return ms;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void way_print(const struct run *r, double *ms, int rounds, double *pinned_ms)
{
	const struct way *w = &r->way;
	char what[96];

	qsort(ms, (size_t)rounds, sizeof(*ms), by_value);
	snprintf(what, sizeof(what), w->threads ? "%s; %u threads, %u x %u KiB each%s%s" : "%s",
		 fill_names[w->fill], w->threads, w->blocks, w->kib,
		 w->streams > 1 ? ", 2 streams" : "", w->late ? ", made late" : "");
	if (ms[0] < 0) {
		printf("  %-66s not here\n", what);
		return;
	}
	if (w->fill == PINNED && !*pinned_ms)
		*pinned_ms = ms[rounds / 2];
	printf("  %-66s %8.1f (%.1f to %.1f) %6.1f", what, ms[rounds / 2], ms[0], ms[rounds - 1],
	       (double)r->size / ms[rounds / 2] / 1e6);
	if (*pinned_ms)
		printf(" %6.2f", *pinned_ms / ms[rounds / 2]);
	printf("   %.1f %.1f\n", r->made_ms, r->unmap_ms);
	fflush(stdout);
}

static bool run_begin(struct run *r, const struct fdry_driver *drv, const char *file)
{
	struct stat st;

	*r = (struct run){ .drv = drv };
	if (stat(file, &st) || (uint64_t)st.st_size < SPOT * SPOTS)
		return false;
	r->size = (uint64_t)st.st_size & ~(uint64_t)4095;
	if (r->size > SIZE_MAX_COPIED)
		r->size = SIZE_MAX_COPIED;
	must(fdry_call(drv, cuCtxGetCurrent, &r->ctx));
	must(fdry_call(drv, cuMemAlloc_v2, &r->dev, r->size));
	must(fdry_call(drv, cuStreamCreate, &r->streams[0], CU_STREAM_NON_BLOCKING));
	must(fdry_call(drv, cuStreamCreate, &r->streams[1], CU_STREAM_NON_BLOCKING));
	return true;
}

static void run_end(struct run *r)
{
	must(fdry_call(r->drv, cuStreamDestroy_v2, r->streams[0]));
	must(fdry_call(r->drv, cuStreamDestroy_v2, r->streams[1]));
	must(fdry_call(r->drv, cuMemFree_v2, r->dev));
}

static void ways_run(struct run *r, const char *file, const struct way *ways, size_t n, int rounds,
		     bool cold)
{
	double ms[ROUNDS_MAX], pinned_ms = 0;
	size_t i;
	int k;

	for (i = 0; i < n; i++) {
		r->way = ways[i];
		r->made_ms = 0;
		for (k = 0; k < rounds && k < ROUNDS_MAX; k++) {
			if (cold)
				ways_forget(file);
			ms[k] = way_run(r, file);
		}
		way_print(r, ms, rounds, &pinned_ms);
	}
}

/* --- tables --- */

void ways_warm(const struct fdry_driver *drv, const char *file, const char *title, int rounds)
{
	static const struct way ways[] = {
		{ PINNED, 1, 10, 4096, 1, false }, { PINNED, 8, 2, 4096, 1, false },
		{ MAP, 8, 2, 4096, 1, false }, { MAP, 8, 2, 4096, 1, true },
		{ MAP, 16, 1, 4096, 1, false }, { MAP, 12, 2, 2048, 1, false },
		{ POPULATE, 8, 2, 4096, 1, false }, { POPULATE, 12, 2, 2048, 1, false },
		{ KEPT, 8, 2, 4096, 1, false }, { KEPT, 12, 2, 2048, 1, false },
		{ STREAM, 8, 2, 4096, 1, false }, { STREAM, 12, 2, 2048, 1, false },
		{ STREAM_POPULATE, 8, 2, 4096, 1, false },
		{ STREAM_POPULATE, 12, 2, 2048, 1, false }, { READ, 4, 2, 4096, 1, false },
		{ READ, 6, 2, 4096, 1, false }, { READ, 8, 2, 4096, 1, false },
		{ READ, 8, 2, 4096, 1, true }, { READ, 8, 2, 4096, 2, false },
		{ READ, 10, 2, 4096, 1, false }, { READ, 12, 2, 4096, 1, false },
		{ READ, 15, 2, 4096, 1, false }, { READ, 8, 3, 4096, 1, false },
		{ READ, 8, 2, 8192, 1, false }, { READ, 8, 2, 2048, 1, false },
		{ READ, 12, 2, 2048, 1, false }, { READ, 15, 2, 2048, 1, false },
		{ READ, 12, 2, 1024, 1, false }, { READ, 15, 2, 1024, 1, false },
		{ READ, 15, 4, 512, 1, false }, { DIRECT, 8, 2, 4096, 1, false },
		{ URING, 1, 16, 2048, 1, false }, { URING, 1, 16, 1024, 1, false },
		{ REGISTER, 0, 0, 4096, 1, false }, { PAGEABLE, 0, 0, 4096, 1, false },
		{ ONLY_MAP, 8, 2, 4096, 1, false }, { ONLY_MAP, 15, 2, 2048, 1, false },
		{ ONLY_READ, 8, 2, 4096, 1, false }, { ONLY_READ, 15, 2, 2048, 1, false },
		{ ONLY_READ, 1, 2, 4096, 1, false },
	};
	struct run r;

	if (!run_begin(&r, drv, file))
		return;
	printf("%s: ms (least to most), GB/s, of pinned; ms to make blocks, to unmap\n", title);
	ways_run(&r, file, ways, sizeof(ways) / sizeof(*ways), rounds, false);
	run_end(&r);
}

void ways_cold(const struct fdry_driver *drv, const char *file, int rounds)
{
	static const struct way ways[] = {
		{ MAP, 8, 2, 4096, 1, false },     { POPULATE, 8, 2, 4096, 1, false },
		{ POPULATE, 16, 2, 2048, 1, false }, { READ, 8, 2, 4096, 1, false },
		{ READ, 16, 2, 4096, 1, false },   { DIRECT, 8, 2, 4096, 1, false },
		{ DIRECT, 16, 2, 4096, 1, false }, { DIRECT, 16, 4, 1024, 1, false },
		{ URING, 1, 16, 2048, 1, false },
	};
	struct run r;

	if (!run_begin(&r, drv, file))
		return;
	printf("not in the page cache: ms (least to most), GB/s; ms to make blocks, to unmap\n");
	ways_run(&r, file, ways, sizeof(ways) / sizeof(*ways), rounds, true);
	run_end(&r);
}

void ways_forget(const char *file)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)fsync(fd);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

double ways_cat(const char *file)
{
	char command[4200];
	double mark = fdry_now_ms();

	snprintf(command, sizeof(command), "cat '%s' | cat >/dev/null", file);
	require(!system(command), command);
	return fdry_elapsed_ms(&mark);
}
