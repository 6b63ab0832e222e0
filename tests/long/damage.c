// SPDX-License-Identifier: Apache-2.0
/*
 * damage.c - a store whose data file is damaged in one of many ways, then loaded.
 *
 * A bit flipped anywhere or in the heads of the trees, the file cut, pages zeroed, put in other
 * places or back to what they were some transactions ago. A load must be refused or give the
 * numbers that were sealed. Some cases also verify the store, or repair it from one that is whole:
 * what a repair reports as sound must load.
 */
#include "tests/lib/image.h"

#include "tests/long/long.h"

#define PAGE 4096
#define LARGE (600u << 10)

enum { EQUAL, REFUSED, LATE, REPAIRED, LOST };

static uint8_t *whole, *old;
static size_t whole_len, old_len;
static char place[300], source[300], name[300];

static const char *file_of(const char *what)
{
	snprintf(name, sizeof(name), "%s/%s", long_dir, what);
	return name;
}

/* --- the store --- */

static void keep_as(const char *what)
{
	char data[320];
	uint8_t *bytes;
	size_t len;

	snprintf(data, sizeof(data), "%s/data.mdb", path);
	bytes = long_read_file(data, &len);
	long_write_file(file_of(what), bytes, len);
	free(bytes);
}

/* Seal two images with compressible and incompressible content. Keep the file from before the
 * second, and remove names, so that there are free pages. */
static void seal_images(void)
{
	static uint8_t bytes[LARGE];
	static struct work w;
	struct fdry_tensor t = { .name = "large", .dtype = FDRY_U8, .use = FDRY_USE_CONST,
				 .rank = 1, .shape = { LARGE }, .stride = { 1 } };
	struct fdry_gc_report r = { .sz = sizeof(r) };
	CUdeviceptr large;
	int i;

	snprintf(path, sizeof(path), "%s/store", long_dir);
	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &large, LARGE);
	noise(9, bytes, LARGE / 2);
	cuda_ok(cuMemcpyHtoD_v2, large, bytes, LARGE);
	t.addr = large;
	ok(fdry_capture_tensor(w.cap, &t));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	for (i = 0; i < 6; i++) {
		seal(w.store, (uint64_t)i * 10, 4, 9000 + (size_t)i * 3000,
		     i % 2 ? "stays" : "goes");
		if (i == 4)
			ok(work_seal(&w, "img"));
	}
	fdry_store_close(w.store);
	keep_as("old");
	ok(fdry_store_open(path, 0, &w.store));
	ok(fdry_store_remove(w.store, "goes"));
	ok(fdry_store_gc(w.store, NULL, &r));
	noise(10, bytes, 1000);
	cuda_ok(cuMemcpyHtoD_v2, large, bytes, LARGE);
	ok(work_seal(&w, "img"));
	ok(fdry_image_tag(w.store, "img", "again"));
	fdry_store_close(w.store);
	keep_as("whole");
}

static void make(void)
{
	long_checked(seal_images);
}

static void begin(void)
{
	if (setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1))
		_exit(3);
	whole = long_read_file(file_of("whole"), &whole_len);
	old = long_read_file(file_of("old"), &old_len);
	snprintf(place, sizeof(place), "%s/damaged", long_dir);
	snprintf(source, sizeof(source), "%s/store", long_dir);
}

/* --- damage --- */

/* A page with the head of a branch, a leaf or a meta page. */
static size_t tree_page(const uint8_t *bytes, size_t len)
{
	size_t pages = len / PAGE, at = long_below(pages), i;

	for (i = 0; i < pages; i++, at = (at + 1) % pages)
		if (fdry_get64(bytes + at * PAGE) == at &&
		    fdry_get16(bytes + at * PAGE + 10) & 0x0b &&
		    !(fdry_get16(bytes + at * PAGE + 10) & ~0x1f))
			return at;
	return 0;
}

static void page_copy(uint8_t *to, size_t page, const uint8_t *from, size_t len, size_t from_page)
{
	if ((page + 1) * PAGE <= whole_len && (from_page + 1) * PAGE <= len)
		memcpy(to + page * PAGE, from + from_page * PAGE, PAGE);
}

static void pages_damage(uint8_t *b)
{
	size_t page = long_below(2) ? tree_page(b, whole_len) : long_below(whole_len / PAGE), other,
	       n;

	switch (long_below(5)) {
	case 0:
		memset(b + page * PAGE, long_below(2) ? 0 : 0xff, PAGE);
		break;
	case 1:
		page_copy(b, page, old, old_len, page);
		break;
	case 2:
		for (n = 2 + long_below(12); n; n--) {
			page = long_below(2) ? tree_page(b, whole_len)
					     : long_below(whole_len / PAGE);
			page_copy(b, page, old, old_len, page);
		}
		break;
	case 3:
		other = tree_page(b, whole_len);
		page_copy(b, page, whole, whole_len, other);
		if (long_below(2))
			memcpy(b + page * PAGE, &page, 8); /* a page begins with its own number */
		break;
	default:
		for (n = 1 + long_below(8); n; n--)
			b[page * PAGE + long_below(64)] = (uint8_t)long_random();
	}
}

/* Returns the file's new length. */
static size_t damage(uint8_t *b)
{
	switch (long_below(10)) {
	case 0:
		return long_below(4) ? whole_len / PAGE * long_below(PAGE) / PAGE * PAGE
				     : long_below(whole_len);
	case 1:
	case 2:
	case 3:
		pages_damage(b);
		break;
	case 4:
	case 5:
		b[tree_page(b, whole_len) * PAGE + long_below(PAGE)] ^=
			(uint8_t)(1 << long_below(8));
		break;
	default:
		b[long_below(whole_len)] ^= (uint8_t)(1 << long_below(8));
	}
	return whole_len;
}

/* --- using the damaged store --- */

static bool numbers_right(struct fdry_image *img, int *end)
{
	static uint8_t bytes[LARGE], want[LARGE];
	float a[N], c[N];
	int i;

	vector_fill(a, 3);
	*end = LATE;
	if (fdry_image_write(img, "a", a, BYTES, NULL) || fdry_image_launch(img, 1, NULL) ||
	    fdry_image_read(img, "c", c, BYTES, NULL) ||
	    fdry_image_read(img, "large", bytes, LARGE, NULL))
		return true;
	*end = EQUAL;
	for (i = 0; i < N; i++)
		if (c[i] != vector_value(i, 3) + vector_value(i, 100))
			return false;
	noise(9, want, LARGE / 2);
	noise(10, want, 1000);
	return !memcmp(bytes, want, LARGE);
}

static int load(const char *ref)
{
	struct fdry_image *img;
	struct fdry_store *s;
	int end = REFUSED;

	if (fdry_store_open(place, 0, &s))
		return REFUSED;
	if (!fdry_image_load(s, ref, NULL, &img)) {
		if (!numbers_right(img, &end)) {
			fprintf(stderr, "the load of a damaged store gave wrong bytes\n");
			end = LONG_FAULT;
		}
		fdry_image_unload(img);
	}
	fdry_store_close(s);
	return end;
}

/* Not in a process that has loaded. */
static int repair_and_load(void)
{
	struct fdry_repair_opts o = { .sz = sizeof(o) };
	struct fdry_repair_report r = { .sz = sizeof(r) };
	const char *sources[] = { source };
	int end;

	if (fdry_store_repair(place, sources, 1, &o, &r) || r.lost || r.broken)
		return LOST;
	end = load("img");
	if (end == EQUAL)
		return REPAIRED;
	if (end == REFUSED)
		fprintf(stderr, "a repair reported no loss, and the image does not load: %s\n",
			fdry_last_error());
	return end == REFUSED ? LONG_FAULT : end;
}

static int run_case(uint64_t nr)
{
	uint8_t *b = malloc(whole_len);
	size_t len;

	(void)nr;
	if (!b)
		_exit(3);
	memcpy(b, whole, whole_len);
	len = damage(b);
	long_write_store(place, b, len);
	free(b);
	if (!long_below(32))
		return repair_and_load();
	if (!long_below(32))
		(void)!fdry_store_verify(place, NULL, NULL);
	return load(long_below(2) ? "img" : "again");
}

int main(int argc, char **argv)
{
	/* A process must not remember facts of one damaged store for the next. */
	const struct long_test t = { .name = "damage", .sample = 200, .all = 64640, .together = 1,
				     .seconds = 60, .prepare = make, .begin = begin,
				     .run = run_case,
				     .ends = { "equal", "refused", "refused after the load",
					       "repaired", "lost" },
				     /* LMDB died of these */
				     .known = { { 28, 192 }, { 29, 292 }, { 50, 535 } } };

	return long_main(argc, argv, &t);
}
