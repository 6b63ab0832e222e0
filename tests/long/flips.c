// SPDX-License-Identifier: Apache-2.0
/*
 * flips.c - content that changes in the store's file after it was verified, then loaded.
 *
 * Half of the cases flip every bit of a small image's content, one in each case. The others damage
 * a chunk of a larger image, with host memory, in one of several ways; some of them one of a huge
 * image, whose content is compared in several groups (image/check.c). The notes of verified objects
 * stay valid, so no load hashes the content. If the chunk's bytes have changed, the load must be
 * refused, or repaired from a pack in the store and give the bytes that were sealed.
 */
#include <fcntl.h>

#include "tests/lib/flip.h"
#include "tests/lib/image_host.h"
#include "tests/long/long.h"

#define SMALL 64u
#define LARGE (5u << 20)
#define HUGE (136u << 20)
#define HUGE_EVERY 256u /* cases */
#define SECTOR 512u
#define SMALL_BITS 102400u /* of all content of the small image */
#define STRIDE 7919u /* a prime: a sample has bits of all places, and all cases have each once */

enum { EQUAL, REFUSED, REPAIRED };
enum kind { SMALL_IMAGE, LARGE_IMAGE, HUGE_IMAGE, KINDS };

static const char *const kinds[KINDS] = { "small", "large", "huge" };
static struct fdry_store *store[KINDS];
static bool with_pack;

static void path_set(enum kind kind)
{
	snprintf(path, sizeof(path), "%s/%s", long_dir, kinds[kind]);
}

/* --- the images --- */

static void content_put(struct work *w, const char *name, size_t size, uint64_t seed)
{
	struct fdry_tensor t = { .name = name, .dtype = FDRY_U8, .use = FDRY_USE_CONST, .rank = 1,
				 .shape = { (int64_t)size }, .stride = { 1 } };
	static uint8_t bytes[HUGE];
	CUdeviceptr at;

	cuda_ok(cuMemAlloc_v2, &at, size);
	noise(seed, bytes, size);
	cuda_ok(cuMemcpyHtoD_v2, at, bytes, size);
	t.addr = at;
	ok(fdry_capture_tensor(w->cap, &t));
}

static void seal_small(void)
{
	static struct work w;

	path_set(SMALL_IMAGE);
	work_make(&w);
	graph_add(&w, 1);
	content_put(&w, "content", SMALL, 1);
	ok(work_seal(&w, "img"));
	work_end(&w);
}

static void seal_more(enum kind kind, size_t size)
{
	static struct host_work h;

	path_set(kind);
	host_make(&h, false);
	tensors_name(&h);
	content_put(&h.w, "content", size, 2);
	ok(work_seal(&h.w, "img"));
	host_end(&h);
}

static void seal_large(void)
{
	seal_more(LARGE_IMAGE, LARGE);
}

static void seal_huge(void)
{
	seal_more(HUGE_IMAGE, HUGE);
}

static void pack_write(enum kind kind)
{
	const char *const img = "img";
	struct fdry_store *s = NULL;
	char name[340];
	int fd;

	path_set(kind);
	snprintf(name, sizeof(name), "%s/packs", path);
	ck_assert(!mkdir(name, 0700));
	snprintf(name, sizeof(name), "%s/pack.%s", long_dir, kinds[kind]);
	fd = open(name, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ok(fdry_store_open(path, 0, &s));
	ok(fdry_store_export(s, &img, 1, fd, NULL, NULL));
	fdry_store_close(s);
	ck_assert(!close(fd));
}

static void packs_write(void)
{
	pack_write(LARGE_IMAGE);
	pack_write(HUGE_IMAGE);
}

static void make(void)
{
	void (*const steps[])(void) = { seal_small, seal_large, seal_huge, packs_write };
	int i, status = 1;
	pid_t pid;

	for (i = 0; i < 4; i++) { /* a process captures once */
		pid = fork();
		if (!pid) {
			long_checked(steps[i]);
			_exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			_exit(3);
	}
}

/* --- a load --- */

/* Tensors that a load fills, with the bytes that were sealed. */
static struct wanted {
	const char *name;
	size_t size;
	uint8_t *bytes;
} wanted[KINDS][5] = {
	{ { .name = "content", .size = SMALL } },
	{ { .name = "content", .size = LARGE },
	  { .name = "table", .size = BYTES },
	  { .name = "state", .size = BYTES },
	  { .name = "plain", .size = BYTES } },
	{ { .name = "content", .size = HUGE },
	  { .name = "table", .size = BYTES },
	  { .name = "state", .size = BYTES },
	  { .name = "plain", .size = BYTES } },
};

static void wanted_make(enum kind kind)
{
	struct wanted *t;

	for (t = wanted[kind]; t->name; t++) {
		t->bytes = malloc(t->size);
		ck_assert_ptr_nonnull(t->bytes);
	}
	t = wanted[kind];
	noise(kind == SMALL_IMAGE ? 1 : 2, t[0].bytes, t[0].size);
	if (kind == SMALL_IMAGE)
		return;
	vector_fill((float *)t[1].bytes, 1000);
	vector_fill((float *)t[2].bytes, 2000);
	vector_fill((float *)t[3].bytes, 3000);
}

static bool bytes_right(struct fdry_image *img, enum kind kind)
{
	static uint8_t bytes[HUGE];
	const struct wanted *t;

	for (t = wanted[kind]; t->name; t++) {
		ok(fdry_image_read(img, t->name, bytes, t->size, NULL));
		if (memcmp(bytes, t->bytes, t->size))
			return false;
	}
	return true;
}

static int load(enum kind kind)
{
	struct fdry_image *img = NULL;
	bool right;
	int err = fdry_image_load(store[kind], "img", NULL, &img);

	if (err == -FDRY_E_CORRUPT)
		return REFUSED;
	ok(err);
	right = bytes_right(img, kind);
	fdry_image_unload(img);
	if (right)
		return EQUAL;
	fprintf(stderr, "a load gave wrong bytes\n");
	return LONG_FAULT;
}

/* Find bit @bit of all content of the small image: its chunk, and the bit of that. */
static bool bit_find(uint64_t *bit, struct flip_chunk *chunk)
{
	uint32_t i;

	for (i = 0; flip_nth(store[SMALL_IMAGE], "img", i, chunk); i++) {
		if (*bit < chunk->len * 8)
			return true;
		*bit -= chunk->len * 8;
		flip_release(chunk);
	}
	return false;
}

static void first_load(enum kind kind)
{
	path_set(kind);
	wanted_make(kind);
	ok(fdry_store_open(path, 0, &store[kind]));
	ck_assert_int_eq(load(kind), EQUAL); /* which verifies the content */
}

static void first_loads(void)
{
	uint64_t beyond = SMALL_BITS, last = SMALL_BITS - 1;
	struct flip_chunk chunk;

	first_load(SMALL_IMAGE);
	ck_assert(bit_find(&last, &chunk));
	flip_release(&chunk);
	ck_assert(!bit_find(&beyond, &chunk));
}

static void begin(void)
{
	if (setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1))
		_exit(3);
	long_checked(first_loads);
}

/* --- the larger images --- */

/* The changes undo themselves when they are made again. */
struct change {
	uint64_t bit[8];
	size_t bits;
	uint8_t *was; /* bytes that were overwritten, or NULL */
	uint64_t at;
	size_t len;
};

static void bytes_write(const struct flip_chunk *c, uint64_t at, const void *bytes, size_t len)
{
	ck_assert_int_eq(pwrite(c->data, bytes, len, c->at + (off_t)at), (ssize_t)len);
}

static void bytes_read(const struct flip_chunk *c, uint64_t at, void *to, size_t len)
{
	ck_assert_int_eq(pread(c->data, to, len, c->at + (off_t)at), (ssize_t)len);
}

/* A sector of zeros, of another place, or the rest of the chunk moved by a few bytes. */
static void range_change(const struct flip_chunk *c, struct change *h)
{
	uint8_t *now;

	h->at = long_below(c->len / SECTOR + 1) * SECTOR;
	h->at = h->at < c->len ? h->at : 0;
	h->len = long_below(4) ? SECTOR : c->len;
	if (h->len > c->len - h->at)
		h->len = c->len - h->at;
	h->was = malloc(h->len);
	now = calloc(1, h->len);
	ck_assert(h->was && now);
	bytes_read(c, h->at, h->was, h->len);
	switch (long_below(3)) {
	case 0:
		break;
	case 1:
		bytes_read(c, long_below(c->len - h->len + 1), now, h->len);
		break;
	default:
		memcpy(now + 1, h->was, h->len - 1);
	}
	bytes_write(c, h->at, now, h->len);
	free(now);
}

static void change(const struct flip_chunk *c, struct change *h)
{
	*h = (struct change){ 0 };
	if (!long_below(3)) {
		range_change(c, h);
		return;
	}
	for (; h->bits < 1 + long_below(8); h->bits++) {
		h->bit[h->bits] = long_below(c->len * 8);
		flip_bit(c, h->bit[h->bits]);
	}
}

static void change_undo(const struct flip_chunk *c, struct change *h)
{
	while (h->bits)
		flip_bit(c, h->bit[--h->bits]);
	if (h->was)
		bytes_write(c, h->at, h->was, h->len);
	free(h->was);
}

/* Some of the cases of a repaired kind have a pack in the store. */
static void pack_place(enum kind kind, bool there)
{
	char from[340], to[340];

	snprintf(from, sizeof(from), "%s/pack.%s", long_dir, kinds[kind]);
	snprintf(to, sizeof(to), "%s/%s/packs/one", long_dir, kinds[kind]);
	(void)unlink(to);
	ck_assert(!there || !link(from, to));
	with_pack = there;
}

static uint64_t case_nr;

static uint8_t *chunk_bytes(const struct flip_chunk *c)
{
	uint8_t *bytes = malloc(c->len);

	ck_assert_ptr_nonnull(bytes);
	bytes_read(c, 0, bytes, c->len);
	return bytes;
}

/* Returns whether its bytes are others than @before now. */
static bool chunk_changed(const struct flip_chunk *c, const uint8_t *before, struct change *h)
{
	uint8_t *after;
	bool changed;

	change(c, h);
	after = chunk_bytes(c);
	changed = memcmp(before, after, c->len) != 0;
	free(after);
	return changed;
}

/* Chunk @nr of the image, which a pack has repaired. Its bytes have another place now. */
static bool chunk_whole(enum kind kind, uint32_t nr, const uint8_t *bytes, size_t len)
{
	struct flip_chunk chunk;
	uint8_t *found;
	bool whole;

	ck_assert(flip_nth(store[kind], "img", nr, &chunk));
	ck_assert_uint_eq(chunk.len, len);
	found = chunk_bytes(&chunk);
	whole = !memcmp(found, bytes, len);
	free(found);
	flip_release(&chunk);
	return whole;
}

/* Returns the outcome of a load, or LONG_FAULT if a chunk that has @changed, or has not, must have
 * another one. */
static int judged(int end, bool changed, bool pack)
{
	if (changed && !pack && end == EQUAL) {
		fprintf(stderr, "a load did not notice that a chunk had changed\n");
		return LONG_FAULT;
	}
	if (end == REFUSED && (!changed || pack)) {
		fprintf(stderr, "%s: %s\n", changed ? "a pack in the store did not repair it" :
						     "a load of an unchanged chunk failed",
			fdry_last_error());
		return LONG_FAULT;
	}
	return changed && end == EQUAL ? REPAIRED : end;
}

/* Sometimes the image is loaded without a change, too. */
static int case_more(enum kind kind)
{
	struct flip_chunk chunk;
	struct change h;
	uint8_t *before;
	bool changed;
	uint32_t n = 0, nr;
	int end;

	if (!store[kind])
		first_load(kind);
	path_set(kind);
	while (flip_nth(store[kind], "img", n, &chunk)) {
		flip_release(&chunk);
		n++;
	}
	pack_place(kind, !long_below(8));
	nr = (uint32_t)long_below(n);
	ck_assert(flip_nth(store[kind], "img", nr, &chunk));
	before = chunk_bytes(&chunk);
	changed = chunk_changed(&chunk, before, &h);
	flip_trust(&chunk);
	end = judged(load(kind), changed, with_pack);
	/* After a repair, the chunk's bytes have another place in the file. */
	if (!with_pack)
		change_undo(&chunk, &h);
	else
		free(h.was);
	flip_trust(&chunk);
	if (end == REPAIRED && !chunk_whole(kind, nr, before, chunk.len)) {
		fprintf(stderr, "a load did not notice that a chunk had changed\n");
		end = LONG_FAULT;
	}
	flip_release(&chunk);
	free(before);
	if (case_nr % 8 == 1 && load(kind) != EQUAL) {
		fprintf(stderr, "the undamaged image does not load: %s\n", fdry_last_error());
		return LONG_FAULT;
	}
	return end;
}

static int case_small(uint64_t bit)
{
	struct flip_chunk chunk;
	int end;

	path_set(SMALL_IMAGE);
	ck_assert(bit_find(&bit, &chunk));
	flip_bit(&chunk, bit);
	flip_trust(&chunk);
	end = load(SMALL_IMAGE);
	flip_bit(&chunk, bit);
	flip_trust(&chunk);
	flip_release(&chunk);
	return judged(end, true, false);
}

static int case_end;

static void case_run(void)
{
	if (case_nr % 2)
		case_end = case_more(case_nr % HUGE_EVERY == 1 ? HUGE_IMAGE : LARGE_IMAGE);
	else
		case_end = case_small(case_nr / 2 * STRIDE % SMALL_BITS);
}

static int run_case(uint64_t nr)
{
	case_nr = nr;
	long_checked(case_run);
	return case_end;
}

int main(int argc, char **argv)
{
	const struct long_test t = { .name = "flips", .sample = 80, .all = 2 * SMALL_BITS,
				     .together = 40, .seconds = 60, .prepare = make,
				     .begin = begin, .run = run_case,
				     .ends = { "equal", "refused", "repaired" } };

	return long_main(argc, argv, &t);
}
