// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of fast verification: content is compared with the fingerprints in manifests, and
 * content that has none is hashed.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "tests/lib/content.h"
#include "tests/lib/data_file.h"
#include "tests/lib/store.h"

#define CHUNKS 12u
#define LEN 70001u /* a block of fingerprints, and a part of one */
#define MAPPED_LEN 40000u /* of a chunk that is read in the map, not copied from the file */

static struct fdry_store *store;
static struct fdry_oid oids[100];

static struct fdry_oid image_seal(struct content_image c)
{
	struct fdry_oid id;

	c.n = c.n ? c.n : CHUNKS;
	c.len = c.len ? c.len : LEN;
	ok(content_image_seal(store, &c, oids, &id));
	return id;
}

static void setup(void)
{
	dir_setup_in("/dev/shm");
	store = store_make();
}

static void teardown(void)
{
	fdry_store_close(store);
	dir_teardown();
}

/* --- findings of a verification --- */

struct found {
	struct fdry_oid id; /* expected */
	int hits, refs, others;
	const char *words;
};

static void fault(void *arg, int kind, const char *id, const char *other, const char *text)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct found *f = arg;

	(void)other;
	if (kind == FDRY_FAULT_IMAGE)
		f->refs++;
	else if (kind == FDRY_FAULT_DAMAGED && id && !strcmp(id, fdry_oid_hex(&f->id, hex)) &&
		 strstr(text, f->words))
		f->hits++;
	else
		f->others++;
}

static struct fdry_verify_report verify(uint32_t flags, unsigned int threads, struct found *f)
{
	struct fdry_verify_opts opts = { .sz = sizeof(opts), .flags = flags, .threads = threads,
					 .fault = f ? fault : NULL, .fault_arg = f };
	struct fdry_verify_report r = { .sz = sizeof(r) };

	ok(fdry_store_verify(path, &opts, &r));
	return r;
}

/* Check that the findings are the chunk, @hits times, and @refs refs. */
static void finds(uint32_t flags, struct fdry_oid id, const char *words, int hits, int refs)
{
	struct found f = { .id = id, .words = words };
	struct fdry_verify_report r = verify(flags, 0, &f);

	ck_assert_int_eq(f.hits, hits);
	ck_assert_int_eq(f.refs, refs);
	ck_assert_int_eq(f.others, 0);
	ck_assert_uint_eq(r.faults, (uint64_t)(hits + refs));
	ck_assert_uint_eq(r.damaged, (uint64_t)hits);
	ck_assert_uint_eq(r.crashes, 0);
}

/* --- damage --- */

/* The place of chunk @i in data.mdb. */
static off_t chunk_at(int i)
{
	uint8_t bytes[64];
	struct stat st;
	uint8_t *file, *at;
	char name[340];
	off_t ret;
	int fd;

	content_noise((uint64_t)i, bytes, sizeof(bytes));
	snprintf(name, sizeof(name), "%s/data.mdb", path);
	fd = open(name, O_RDONLY);
	ck_assert(fd >= 0 && !fstat(fd, &st));
	file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert(file != MAP_FAILED);
	at = memmem(file, (size_t)st.st_size, bytes, sizeof(bytes));
	ck_assert_ptr_nonnull(at);
	ret = at - file;
	munmap(file, (size_t)st.st_size);
	close(fd);
	return ret;
}

static void flip(off_t at, uint64_t bit)
{
	char name[340];
	uint8_t byte;
	int fd;

	snprintf(name, sizeof(name), "%s/data.mdb", path);
	fd = open(name, O_RDWR);
	ck_assert(fd >= 0 && pread(fd, &byte, 1, at + (off_t)(bit / 8)) == 1);
	byte ^= (uint8_t)(1u << bit % 8);
	ck_assert(pwrite(fd, &byte, 1, at + (off_t)(bit / 8)) == 1);
	close(fd);
}

START_TEST(a_sound_store_is_compared)
{
	struct fdry_verify_report full, fast;

	image_seal((struct content_image){ .ref = "img" });
	full = verify(0, 0, NULL);
	fast = verify(FDRY_VERIFY_FAST, 0, NULL);
	ck_assert_uint_eq(full.compared + full.compared_bytes, 0);
	ck_assert_uint_eq(fast.compared, CHUNKS);
	ck_assert_uint_eq(fast.compared_bytes, (uint64_t)CHUNKS * LEN);
	full.compared = fast.compared;
	full.compared_bytes = fast.compared_bytes;
	ck_assert(!memcmp(&full, &fast, sizeof(full)));
	ck_assert_uint_eq(fast.faults, 0);
	ck_assert_uint_eq(fast.objects, CHUNKS + 1);
	ck_assert_uint_eq(fast.refs, 1);
	fails(OPTS, "flags",
	      fdry_store_verify(path,
				&(struct fdry_verify_opts){ .sz = sizeof(struct fdry_verify_opts),
							    .flags = 2 },
				NULL));
}
END_TEST

START_TEST(flips_are_found)
{
	uint64_t bit;
	off_t at;
	int i;

	image_seal((struct content_image){ .ref = "img" });
	for (i = 0; i < (int)CHUNKS; i++) {
		at = chunk_at(i);
		bit = (uint64_t)i * (LEN * 8 - 1) / (CHUNKS - 1);
		flip(at, bit);
		finds(FDRY_VERIFY_FAST, oids[i], "do not match its id", 1, 1);
		flip(at, bit);
	}
	finds(FDRY_VERIFY_FAST, oids[0], "", 0, 0);
}
END_TEST

/* Whether a session trusts chunk 0 without hashing it. */
static bool trusted(void)
{
	struct fdry_reader *r;
	struct fdry_span bytes;
	bool hashed = false;

	ok(fdry_reader_begin(store, &r));
	ok(fdry_reader_map(r, &oids[0], &bytes));
	ok(fdry_reader_verify(r, &oids[0], bytes, false, &hashed));
	fdry_reader_end(r);
	return !hashed;
}

/* Verified objects are hashed again after a fault, but not after a verification without
 * findings. */
START_TEST(damage_cancels_what_is_remembered)
{
	char name[340];
	struct timespec times[2];
	struct stat st;
	off_t at;

	image_seal((struct content_image){ .ref = "img" });
	(void)trusted();
	ck_assert(trusted());
	(void)verify(FDRY_VERIFY_FAST, 0, NULL);
	ck_assert(trusted());
	at = chunk_at(5);
	snprintf(name, sizeof(name), "%s/verified", path);
	ck_assert(!stat(name, &st));
	times[0] = st.st_mtim;
	flip(at, 99);
	finds(FDRY_VERIFY_FAST, oids[5], "do not match its id", 1, 1);
	ck_assert(!stat(name, &st));
	times[1] = st.st_mtim;
	ck_assert_uint_eq(st.st_size, FDRY_VERIFIED_AT_IDS);
	ck_assert(memcmp(&times[0], &times[1], sizeof(times[0])));
	ck_assert(!trusted());
}
END_TEST

/* --- fingerprints that are wrong, or missing --- */

START_TEST(a_wrong_fingerprint_is_the_fault_of_its_manifest)
{
	struct fdry_oid wrong = image_seal((struct content_image){ .ref = "wrong", .wrong = 3 });
	struct fdry_oid right_chunk = oids[2];
	struct fdry_verify_report r;
	off_t at;

	finds(0, wrong, "", 0, 0);
	finds(FDRY_VERIFY_FAST, wrong, "another fingerprint than the bytes of chunk", 1, 1);
	/* Another manifest is right about the same chunks. */
	image_seal((struct content_image){ .ref = "right" });
	finds(FDRY_VERIFY_FAST, wrong, "another fingerprint than the bytes of chunk", 1, 1);
	/* Both manifests have the same wrong fingerprint for chunk 0. */
	image_seal((struct content_image){ .ref = "too", .wrong = 1, .n = 2 });
	r = verify(FDRY_VERIFY_FAST, 0, NULL);
	ck_assert_uint_eq(r.damaged, 2);
	ck_assert_uint_eq(r.faults, 4);
	/* A damaged chunk is no fault of its manifests. */
	at = chunk_at(2);
	flip(at, 3);
	image_seal((struct content_image){ .ref = "wrong", .n = 1 });
	image_seal((struct content_image){ .ref = "too", .n = 1 });
	ok(fdry_store_gc(store, NULL, NULL));
	finds(FDRY_VERIFY_FAST, right_chunk, "do not match its id", 1, 1);
}
END_TEST

START_TEST(objects_without_a_fingerprint_are_hashed)
{
	struct fdry_verify_report r;

	image_seal((struct content_image){ .ref = "plain", .plain = true });
	seal(store, 1000, 3, 5000, "no-manifest");
	r = verify(FDRY_VERIFY_FAST, 0, NULL);
	ck_assert_uint_eq(r.compared, 0);
	ck_assert_uint_eq(r.faults, 0);
	ck_assert_uint_eq(r.objects, CHUNKS + 1 + 4);
	flip(chunk_at(3), 12345);
	finds(FDRY_VERIFY_FAST, oids[3], "do not match its id", 1, 1);
}
END_TEST

/* --- crashes --- */

START_TEST(verification_continues_behind_a_crash)
{
	struct fdry_verify_report r;
	unsigned int threads;

	image_seal((struct content_image){ .ref = "img", .len = MAPPED_LEN });
	data_file_crash((off_t[]){ chunk_at(2) + 4096, chunk_at(9) + 4096 }, 2);
	for (threads = 1; threads <= 4; threads *= 2) {
		r = verify(FDRY_VERIFY_FAST, threads, NULL);
		ck_assert_uint_eq(r.objects, CHUNKS + 1);
		ck_assert_uint_eq(r.compared, CHUNKS - 2);
		ck_assert_uint_eq(r.crashes, 2);
		ck_assert_uint_eq(r.faults, 3);
	}
	data_file_crash(NULL, 0);
}
END_TEST

/* --- a disk that cannot read --- */

static off_t unreadable; /* a place in data.mdb; 0: none */
static int read_errno;   /* of reads of it */

ssize_t __real_pread(int fd, void *to, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at);

ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at)
{
	if (!unreadable || at > unreadable || unreadable - at >= (off_t)len)
		return __real_pread(fd, to, len, at);
	errno = read_errno;
	return -1;
}

/* The chunk is damaged, also for a repair, which would crash if it read it in the map. Any other
 * error ends the verification, and damages nothing. */
START_TEST(the_disk_cannot_read_a_chunk)
{
	struct fdry_verify_report r = { .sz = sizeof(r) };
	struct fdry_repair_report repaired = { .sz = sizeof(repaired) };
	off_t at;

	image_seal((struct content_image){ .ref = "img" });
	at = chunk_at(4) + 8192;
	data_file_crash(&at, 1);
	unreadable = at;
	read_errno = ENOMEM;
	fails(NOMEM, "out of host memory", fdry_store_verify(path, NULL, &r));
	read_errno = EIO;
	finds(0, oids[4], "the disk cannot read its bytes", 1, 1);
	finds(FDRY_VERIFY_FAST, oids[4], "the disk cannot read its bytes", 1, 1);
	ok(fdry_store_repair(path, NULL, 0, NULL, &repaired));
	ck_assert_uint_eq(repaired.damaged, 1);
	ck_assert_uint_eq(repaired.quarantined, 1);
	unreadable = 0;
	data_file_crash(NULL, 0);
	r = verify(0, 0, NULL);
	ck_assert_uint_eq(r.quarantined, 1);
	ck_assert_uint_eq(r.crashes + r.damaged, 0);
}
END_TEST

struct leaves {
	uint64_t pages[16];
	size_t count;
};

static int leaf_add(void *arg, uint64_t number, bool is_leaf)
{
	struct leaves *l = arg;

	if (is_leaf && l->count < 16)
		l->pages[l->count++] = number;
	return 0;
}

/* The place of the second leaf of a table in data.mdb. */
static off_t leaf_at(enum fdry_table table)
{
	struct leaves l = { .count = 0 };
	struct fdry_tree_fns fns = { .page = leaf_add, .arg = &l };
	struct fdry_damage d;
	struct fdry_txn t;
	off_t ret;
	int err;

	ok(fdry_txn_read(store->env->db, &t));
	d = fdry_tree_each(&t.view.pages, &t.view.tables[table], (struct fdry_span){ 0 }, &fns,
			   &err);
	ck_assert(!d.what && !err && l.count >= 2);
	ret = (off_t)(l.pages[1] * t.view.pages.size);
	fdry_txn_abort(&t);
	return ret;
}

static unsigned int forks;

static void fork_count(void)
{
	forks++;
}

static unsigned int compared_pages; /* faults of that stage */

static void pages_note(void *arg, int kind, const char *id, const char *other, const char *text)
{
	(void)arg, (void)kind, (void)id, (void)other;
	compared_pages += strstr(text, "comparing pages") != NULL;
}

/* A page of a table crashes every child that comes to it. The objects before it are checked, and
 * they are not repeated in a process each. */
START_TEST(a_page_of_a_table_crashes_few_children)
{
	const struct content_image many = { .ref = "img", .n = 3000, .len = 100 };
	const struct fdry_verify_opts opts = { .sz = sizeof(opts), .threads = 2,
					       .fault = pages_note };
	struct fdry_verify_report r = { .sz = sizeof(r) };
	struct fdry_oid id;

	ok(content_image_seal(store, &many, NULL, &id));
	data_file_crash((off_t[]){ leaf_at(_i ? FDRY_TABLE_DATA : FDRY_TABLE_OBJECTS) }, 1);
	ck_assert(!pthread_atfork(NULL, fork_count, NULL));
	ok(fdry_store_verify(path, &opts, &r));
	data_file_crash(NULL, 0);
	ck_assert_uint_ge(r.crashes, 2);
	ck_assert_uint_ge(r.faults, r.crashes);
	ck_assert_uint_eq(compared_pages, 0); /* it was reported with the table */
	ck_assert_uint_ge(r.objects, 2900);
	ck_assert_uint_le(forks, r.crashes + 8);
}
END_TEST

/* The fingerprints of the other manifest are still read. */
START_TEST(a_manifest_may_crash_its_reader)
{
	struct fdry_verify_report r;
	struct fdry_txn t;
	struct fdry_span stored;
	struct fdry_oid bad;
	off_t page;

	image_seal((struct content_image){ .ref = "other", .seed = 500 });
	bad = image_seal((struct content_image){ .ref = "img", .n = 100 });
	ok(fdry_txn_read(store->env->db, &t));
	ok(fdry_txn_get(&t, FDRY_TABLE_DATA, fdry_oid_span(&bad), &stored));
	ck_assert_uint_gt(stored.len, 5000); /* in pages of its own */
	page = stored.data - data_file_map() + 4096;
	fdry_txn_abort(&t);
	data_file_crash(&page, 1);
	r = verify(FDRY_VERIFY_FAST, 2, NULL);
	data_file_crash(NULL, 0);
	ck_assert_uint_eq(r.objects, CHUNKS + 100 + 2);
	ck_assert_uint_eq(r.compared, CHUNKS);
	ck_assert_uint_eq(r.crashes, 1);
	ck_assert_uint_eq(r.faults, 2);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_sound_store_is_compared, flips_are_found, damage_cancels_what_is_remembered,
		a_wrong_fingerprint_is_the_fault_of_its_manifest,
		objects_without_a_fingerprint_are_hashed, verification_continues_behind_a_crash,
		a_manifest_may_crash_its_reader,
	};
	Suite *s = suite_create("verify");
	TCase *tc = tcase_create("verify");
	size_t i;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	tcase_add_test(tc, the_disk_cannot_read_a_chunk);
	tcase_add_loop_test(tc, a_page_of_a_table_crashes_few_children, 0, 2);
	suite_add_tcase(s, tc);
	return test_main(s);
}
