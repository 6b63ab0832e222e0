// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the public functions that keep or remove images in a store: pins, the limit,
 * eviction, collection, verification and repair. */
#include "foundry.h"
#include "tests/lib/store.h"

#define CHUNK 100000u

static struct fdry_store *s;

static void setup(void)
{
	dir_setup_in("/dev/shm");
	s = store_make();
	seal(s, 1, 1, CHUNK, "a");
	seal(s, 2, 1, CHUNK, "b");
	seal(s, 3, 1, CHUNK, "c");
}

static void teardown(void)
{
	fdry_store_close(s);
	dir_teardown();
}

/* --- reported calls --- */

static struct fdry_buf evicted;

static void note_evicted(void *arg, const char *ref, const char *id, uint64_t used)
{
	ck_assert_ptr_eq(arg, &evicted);
	ck_assert_uint_eq(strlen(id), 64);
	ck_assert_uint_gt(used, 1600000000);
	ok(fdry_buf_printf(&evicted, "%s ", ref));
}

static void told_is(const char *want)
{
	ck_assert_str_eq(evicted.data ? (char *)evicted.data : "", want);
	fdry_buf_release(&evicted);
}

START_TEST(pins_and_limit)
{
	struct fdry_evict_opts o = { .sz = sizeof(o), .flags = FDRY_EVICT_DRY_RUN, .bytes = 1,
				     .evicted = note_evicted,
				     .evicted_arg = &evicted };
	struct fdry_evict_report i = { .sz = sizeof(i) };
	uint64_t limit = 1, used = 0;

	ok(fdry_store_limit(s, &limit, &used));
	ck_assert(!limit && used > 3 * CHUNK);
	ok(fdry_store_pin(s, "a"));
	ok(fdry_store_evict(s, &o, &i));
	told_is("b c ");
	ck_assert_uint_eq(i.images, 2);
	ck_assert(i.before == used && i.after < used && i.after > CHUNK && i.limit == 1 &&
		  !i.objects && !i.collected);
	o.flags = 0;
	ok(fdry_store_unpin(s, "a"));
	ok(fdry_store_pin(s, "b"));
	ok(fdry_store_evict(s, &o, &i));
	told_is("a c ");
	ck_assert(i.images == 2 && i.objects == 4 && i.stored >= 2 * CHUNK && i.collected == 1);
	ok(fdry_store_limit(s, NULL, &used));
	ck_assert_uint_eq(i.after, used);
	ok(fdry_store_set_limit(s, 1 << 20));
	ok(fdry_store_limit(s, &limit, NULL));
	ck_assert_uint_eq(limit, 1 << 20);
	ok(fdry_store_evict(s, NULL, NULL)); /* it fits */
	fails(NOENT, "a", fdry_store_pin(s, "a"));
}
END_TEST

START_TEST(eviction_is_refused)
{
	struct fdry_evict_opts o = { .sz = sizeof(o), .flags = 2 };
	struct fdry_evict_report i = { .sz = 3 };

	fails(STATE, "no limit", fdry_store_evict(s, NULL, NULL));
	fails(OPTS, "flags", fdry_store_evict(s, &o, NULL));
	o = (struct fdry_evict_opts){ .sz = sizeof(o), .reserved = 1 };
	fails(OPTS, "reserved", fdry_store_evict(s, &o, NULL));
	fails(OPTS, "3 bytes", fdry_store_evict(s, NULL, &i));
	fails(INVAL, "NULL", fdry_store_evict(NULL, NULL, NULL));
	fails(INVAL, "NULL", fdry_store_pin(s, NULL));
	fails(INVAL, "NULL", fdry_store_unpin(NULL, "a"));
	fails(INVAL, "NULL", fdry_store_set_limit(NULL, 0));
	fails(INVAL, "NULL", fdry_store_limit(NULL, NULL, NULL));
}
END_TEST

/* --- collecting --- */

static int stop_at_sweep(void *arg, int phase, uint64_t done, uint64_t total)
{
	(void)done, (void)total;
	*(unsigned int *)arg |= 1u << phase;
	return phase == FDRY_GC_SWEEP;
}

START_TEST(collecting)
{
	unsigned int phases = 0;
	struct fdry_gc_opts o = { .sz = sizeof(o), .flags = FDRY_GC_DRY_RUN };
	struct fdry_gc_report i = { .sz = sizeof(i) };

	ok(fdry_store_remove(s, "a"));
	ok(fdry_store_gc(s, &o, &i));
	ck_assert(i.live == 4 && i.dead == 2 && i.dead_bytes > CHUNK && i.dead_stored > CHUNK &&
		  !i.stopped);
	o = (struct fdry_gc_opts){ .sz = sizeof(o), .progress = stop_at_sweep,
					.progress_arg = &phases };
	ok(fdry_store_gc(s, &o, &i));
	ck_assert(i.stopped == 1 && !i.dead);
	ck_assert_uint_eq(phases, 7);
	ok(fdry_store_gc(s, NULL, &i));
	ck_assert(!i.stopped && i.dead == 2);
	o.flags = 4;
	fails(OPTS, "flags", fdry_store_gc(s, &o, NULL));
	fails(INVAL, "NULL", fdry_store_gc(NULL, NULL, NULL));
}
END_TEST

/* --- damage --- */

static unsigned int faults[FDRY_FAULT_PAGES + 1];

static void note_fault(void *arg, int kind, const char *id, const char *other, const char *text)
{
	ck_assert_ptr_null(arg);
	ck_assert(id && strlen(id) == 64 && !other && *text);
	faults[kind]++;
}

static void note_repaired(void *arg, int what, const char *id, const char *ref, const char *text)
{
	(void)arg;
	ck_assert(strlen(id) == 64 && *text);
	ok(fdry_buf_printf(&evicted, "%d%s ", what, ref ? ref : ""));
}

static void note_bytes(void *arg, uint64_t done, uint64_t total)
{
	ck_assert(done <= total || !total);
	++*(unsigned int *)arg;
}

/* Another byte in the chunk that was sealed from @seed. */
static void damage(uint64_t seed)
{
	static uint8_t data[CHUNK];
	char name[320], *all, *at;
	struct stat st;
	FILE *f;

	noise(seed, data, sizeof(data));
	snprintf(name, sizeof(name), "%s/data.mdb", path);
	f = fopen(name, "r+b");
	ck_assert(f && !fstat(fileno(f), &st));
	all = malloc((size_t)st.st_size);
	ck_assert_uint_eq(fread(all, 1, (size_t)st.st_size, f), st.st_size);
	at = memmem(all, (size_t)st.st_size, data, 64);
	ck_assert_ptr_nonnull(at);
	ck_assert(!fseek(f, at - all, SEEK_SET) && fputc(~*at & 0xff, f) != EOF && !fclose(f));
	free(all);
}

START_TEST(damage_is_found_and_repaired)
{
	unsigned int steps = 0;
	struct fdry_verify_opts v = { .sz = sizeof(v), .threads = 1, .fault = note_fault,
				      .progress = note_bytes,
				      .progress_arg = &steps };
	struct fdry_repair_opts o = { .sz = sizeof(o), .flags = FDRY_REPAIR_DRY_RUN,
				      .repaired = note_repaired };
	struct fdry_verify_report i = { .sz = sizeof(i) };
	struct fdry_repair_report r = { .sz = sizeof(r) };
	char other[320];
	const char *source = other;
	struct fdry_store *good = store_make();

	fdry_store_close(good);
	snprintf(other, sizeof(other), "%s/other", dir);
	ok(fdry_store_open(other, FDRY_STORE_CREATE, &good));
	seal(good, 2, 1, CHUNK, NULL);
	fdry_store_close(good);
	ok(fdry_store_verify(path, NULL, &i));
	ck_assert(!i.faults && i.objects == 6 && i.refs == 3 && i.bytes > 3 * CHUNK);
	damage(2);
	ok(fdry_store_verify(path, &v, &i));
	ck_assert(i.faults == 2 && i.damaged == 1 && i.broken == 1 && steps);
	ck_assert(faults[FDRY_FAULT_DAMAGED] == 1 && faults[FDRY_FAULT_IMAGE] == 1);
	ok(fdry_store_repair(path, &source, 1, &o, &r));
	ck_assert(r.damaged == 1 && r.back == 1 && !r.broken);
	told_is("0 ");
	ok(fdry_store_repair(path, NULL, 0, NULL, &r));
	ck_assert(!r.back && r.quarantined == 1 && r.broken == 1);
	ok(fdry_store_verify(path, NULL, &i));
	ck_assert(i.quarantined == 1 && i.faults);
	o.flags = 0;
	ok(fdry_store_repair(path, &source, 1, &o, &r));
	told_is("0 ");
	ck_assert(r.back == 1 && !r.quarantined && !r.lost && !r.broken);
	ok(fdry_store_verify(path, NULL, &i));
	ck_assert(!i.faults);
}
END_TEST

START_TEST(verifying_is_refused)
{
	struct fdry_verify_opts v = { .sz = sizeof(v), .flags = 2 };
	struct fdry_repair_opts o = { .sz = sizeof(o), .flags = 2 };
	const char *sources[] = { "/dev/null", NULL };

	fails(OPTS, "flags", fdry_store_verify(path, &v, NULL));
	fails(INVAL, "empty", fdry_store_verify("", NULL, NULL));
	fails(NOSTORE, "no store", fdry_store_verify("/nowhere/at/all", NULL, NULL));
	fails(OPTS, "flags", fdry_store_repair(path, NULL, 0, &o, NULL));
	fails(INVAL, "NULL", fdry_store_repair(path, NULL, 1, NULL, NULL));
	fails(INVAL, "NULL", fdry_store_repair(path, sources, 2, NULL, NULL));
	fails(INVAL, "empty", fdry_store_repair("", NULL, 0, NULL, NULL));
	damage(1);
	fails(INVAL, "neither a store nor a file", fdry_store_repair(path, sources, 1, NULL, NULL));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api_keep");
	TCase *tc = tcase_create("keep");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, pins_and_limit);
	tcase_add_test(tc, eviction_is_refused);
	tcase_add_test(tc, collecting);
	tcase_add_test(tc, damage_is_found_and_repaired);
	tcase_add_test(tc, verifying_is_refused);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
