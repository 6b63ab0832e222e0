// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of damaged stores: cut short at many places, bits flipped in values and in the heads
 * of pages, entries lost. A store is made once and its bytes are kept. Each trial writes a changed
 * copy and uses it in a child process. A child must never accept wrong bytes and never crash.
 * Verify must find every flipped bit in a value, also if the file is damaged during the
 * verification, which makes it crash.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "tests/lib/data_file.h"
#include "tests/lib/store.h"

/* Sanitizers make processes slow to start, so there are fewer trials, still at different places. */
#if TEST_SANITIZED
#define FLIPS 3
#define CUT_STEP 5
#else
#define FLIPS 12
#define CUT_STEP 1
#endif

#define PAGE 4096
#define CHUNKS 12
#define CHUNK_LEN 10000

static uint8_t *whole;
static size_t whole_len;
static struct fdry_oid oids[CHUNKS + 2]; /* chunks, a kernel, the manifest */

static const char kernel[] =
	"a kernel, a kernel, a kernel, a kernel, a kernel, a kernel, a kernel, a kernel";

static void setup(void)
{
	uint8_t data[CHUNK_LEN];
	struct fdry_store *s;
	struct fdry_writer *p;
	int i;

	dir_setup_in("/dev/shm");
	s = store_make();
	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < CHUNKS; i++) {
		noise(i, data, sizeof(data));
		oids[i] = put(p, FDRY_OBJECT_CHUNK, data, sizeof(data));
	}
	oids[i] = put(p, FDRY_OBJECT_KERNEL, kernel, sizeof(kernel));
	ok(fdry_writer_commit(p, "manifest", 8, oids, CHUNKS + 1, "ref", &oids[CHUNKS + 1], NULL));
	fdry_store_close(s);
	whole = data_file_read(&whole_len);
}

static void teardown(void)
{
	free(whole);
	dir_teardown();
}

static void write_store(const uint8_t *bytes, size_t len)
{
	char file[400];
	int fd;

	data_file_path(file, "lock.mdb");
	unlink(file);
	data_file_path(file, "verified");
	unlink(file);
	data_file_path(file, "data.mdb");
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert(fd >= 0);
	ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
	close(fd);
}

enum { GOOD, REFUSED, WRONG, CRASHED };

/* Read everything. Runs in a child, so it must not use Check. */
static int use(void)
{
	uint8_t data[CHUNK_LEN];
	struct fdry_buf b = { 0 };
	struct fdry_store *s;
	struct fdry_span span;
	struct fdry_oid oid;
	struct fdry_reader *g;
	int i, result = GOOD;

	if (fdry_store_open(path, 0, &s))
		return REFUSED;
	if (fdry_store_resolve(s, "ref", &oid))
		return REFUSED;
	if (!fdry_oid_eq(&oid, &oids[CHUNKS + 1]))
		result = WRONG;
	if (fdry_reader_begin(s, &g))
		return REFUSED;
	for (i = 0; i < CHUNKS + 2 && result != WRONG; i++) {
		b.len = 0;
		if (fdry_reader_copy(g, &oids[i], &b))
			result = REFUSED;
		else if (i < CHUNKS) {
			noise(i, data, sizeof(data));
			if (b.len != sizeof(data) || memcmp(b.data, data, b.len))
				result = WRONG;
		} else if (i == CHUNKS &&
			   (b.len != sizeof(kernel) || memcmp(b.data, kernel, b.len)))
			result = WRONG;
		if (i < CHUNKS && !fdry_reader_map(g, &oids[i], &span) &&
		    !fdry_reader_verify(g, &oids[i], span, true, NULL) &&
		    (span.len != sizeof(data) || memcmp(span.data, data, span.len)))
			result = WRONG;
	}
	fdry_reader_end(g);
	/* Writing reads other parts of the trees and free pages; it may succeed or fail. */
	if (fdry_ref_set(s, "written", &oids[CHUNKS + 1], NULL) || fdry_store_remove(s, "written"))
		result = result == WRONG ? WRONG : REFUSED;
	fdry_store_close(s);
	return result;
}

/* LMDB's assertions must become errors; an abort() of the allocator counts as a crash. */
static bool asserted(const char *log)
{
	char text[4096];
	int fd = open(log, O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	close(fd);
	text[n < 0 ? 0 : n] = '\0';
	return strstr(text, "Assertion '") != NULL;
}

/* The thread sanitizer needs more: before the copy can crash, it marks all bytes of a memcpy()
 * whose length damage may make 4 GiB. */
#if TEST_SANITIZED_THREAD
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#else
#define AnnotateIgnoreReadsBegin(file, line)
#define AnnotateIgnoreReadsEnd(file, line)
#define AnnotateIgnoreWritesBegin(file, line)
#define AnnotateIgnoreWritesEnd(file, line)
#endif

/* A crash ends the child at once: a sanitizer's report would take longer than the trial. */
static int use_or_crash(void)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL };
	int result;
	size_t i;

	for (i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
		signal(crashes[i], SIG_DFL);
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
	result = use();
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
	return result;
}

static int use_in_child(void)
{
	int status = 0, fd;
	char log[400];
	pid_t pid;

	snprintf(log, sizeof(log), "%s/stderr", dir);
	pid = fork();
	if (!pid) {
		fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(fd, 2);
		_exit(use_or_crash());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(!asserted(log), "LMDB's assertion ended the process");
	return WIFEXITED(status) && WEXITSTATUS(status) <= WRONG ? WEXITSTATUS(status) : CRASHED;
}

/* Return verify's number of findings, or -1 if it refuses the whole store. */
static int verify(void)
{
	struct fdry_verify_report r = { .sz = sizeof(r) };
	int err = fdry_store_verify(path, NULL, &r);

	return err ? -1 : (int)r.faults;
}

/* Every page boundary and odd places around it. */
START_TEST(cut_anywhere)
{
	size_t at;
	int got;

	ck_assert_int_eq(use_in_child(), GOOD);
	ck_assert_int_eq(verify(), 0);
	for (at = 0; at < whole_len; at += at % PAGE ? PAGE - at % PAGE
					   : at % 3  ? CUT_STEP * PAGE
						     : 1234) {
		write_store(whole, at);
		got = use_in_child();
		ck_assert_msg(got == REFUSED, "cut at %zu of %zu: %d", at, whole_len, got);
		got = verify();
		ck_assert_msg(got == -1, "cut at %zu of %zu: verify gave %d", at, whole_len, got);
	}
}
END_TEST

/* If the last pages are free, nothing is missing: LMDB itself leaves such files. */
START_TEST(free_pages_at_the_end_may_be_missing)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_extent x;
	struct fdry_store *s;
	uint8_t *longer;
	size_t was = whole_len;

	ok(fdry_store_open(path, 0, &s));
	seal(s, 100, 1, 100 * PAGE, NULL);
	seal(s, 200, 1, 100 * PAGE, NULL);
	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_uint_eq(r.dead, 4);
	fdry_store_close(s);
	free(whole);
	whole = data_file_read(&whole_len);
	longer = whole;
	ck_assert_uint_gt(whole_len, was + 200 * PAGE);
	write_store(longer, whole_len - 20 * PAGE);
	ck_assert_int_eq(use_in_child(), GOOD);
	ck_assert_int_eq(verify(), 0);
	write_store(longer, was - 2 * PAGE);
	ck_assert_int_eq(use_in_child(), REFUSED);
	/* also to a program that does not wait for its children */
	write_store(longer, whole_len - 20 * PAGE);
	signal(SIGCHLD, SIG_IGN);
	ok(fdry_store_open(path, 0, &s));
	fdry_store_close(s);
	signal(SIGCHLD, SIG_DFL);
	/* and the next commit makes it whole again */
	write_store(longer, whole_len - 20 * PAGE);
	ok(fdry_store_open(path, 0, &s));
	ok(fdry_ref_set(s, "other", &oids[CHUNKS + 1], NULL));
	ok(fdry_db_extent(s->env->db, &x));
	ck_assert_uint_ge(x.file_bytes, x.used_bytes);
	fdry_store_close(s);
	free(whole);
	whole = data_file_read(&whole_len);
	ck_assert_int_eq(use_in_child(), GOOD);
}
END_TEST

/* Return the offset of a chunk's bytes in the file. */
static size_t chunk_at(int i)
{
	uint8_t data[CHUNK_LEN];
	uint8_t *p;

	noise(i, data, sizeof(data));
	p = memmem(whole, whole_len, data, sizeof(data));
	ck_assert_ptr_nonnull(p);
	return (size_t)(p - whole);
}

struct named {
	struct fdry_oid oid;
	unsigned int hits, others, refs;
};

static void name_fault(void *arg, int kind, const char *id, const char *other, const char *text)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct named *n = arg;

	(void)kind, (void)other;
	if (strstr(text, "ref 'ref' cannot be loaded"))
		n->refs++;
	else if (id && !strcmp(id, fdry_oid_hex(&n->oid, hex)))
		n->hits++;
	else
		n->others++;
}

/* Any flip in a chunk is found, and named with the ref that it spoils. */
START_TEST(flips_in_values_are_found)
{
	struct named n;
	struct fdry_verify_opts opts = { .sz = sizeof(opts), .fault = name_fault,
					 .fault_arg = &n };
	struct fdry_verify_report r = { .sz = sizeof(r) };
	size_t at;
	int i, k;

	for (i = 0; i < CHUNKS; i += 5)
		for (k = 0; k < 5; k++) {
			at = chunk_at(i) + (size_t)k * (CHUNK_LEN - 1) / 4;
			whole[at] ^= (uint8_t)(1 << k);
			write_store(whole, whole_len);
			ck_assert_int_eq(use_in_child(), REFUSED);
			n = (struct named){ .oid = oids[i] };
			ok(fdry_store_verify(path, &opts, &r));
			ck_assert_uint_eq(n.hits, 1);
			ck_assert_uint_eq(n.refs, 1);
			ck_assert_uint_eq(n.others, 0);
			ck_assert_uint_eq(r.damaged, 1);
			ck_assert_uint_eq(r.objects, CHUNKS + 2);
			ck_assert_uint_eq(r.refs, 1);
			ck_assert_uint_eq(r.dangling, 0);
			whole[at] ^= (uint8_t)(1 << k);
		}
}
END_TEST

static size_t bytes_at(const void *bytes, size_t len)
{
	uint8_t *p = memmem(whole, whole_len, bytes, len);

	ck_assert_ptr_nonnull(p);
	return (size_t)(p - whole);
}

/* Sealing the same image again replaces damaged objects: a chunk, a packed kernel, the manifest. */
START_TEST(sealing_again_heals)
{
	struct fdry_object_info info;
	struct fdry_span stored;
	uint8_t data[CHUNK_LEN];
	struct fdry_store *s;
	struct fdry_writer *p;
	struct fdry_oid oid;
	struct fdry_txn t;
	size_t at[3];
	int i;

	ok(fdry_store_open(path, 0, &s));
	ok(fdry_txn_read(s->env->db, &t));
	ok(fdry_txn_get(&t, FDRY_TABLE_DATA, fdry_oid_span(&oids[CHUNKS]), &stored));
	at[0] = bytes_at(stored.data, stored.len) + stored.len - 4;
	fdry_txn_abort(&t);
	fdry_store_close(s);
	at[1] = chunk_at(3) + 77;
	at[2] = bytes_at("manifest", 8);
	for (i = 0; i < 3; i++)
		whole[at[i]] ^= 0x11;
	write_store(whole, whole_len);
	ck_assert_int_eq(verify(), 4); /* and the ref */

	ok(fdry_store_open(path, 0, &s));
	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < CHUNKS; i++) {
		noise(i, data, sizeof(data));
		put(p, FDRY_OBJECT_CHUNK, data, sizeof(data));
	}
	put(p, FDRY_OBJECT_KERNEL, kernel, sizeof(kernel));
	ok(fdry_writer_commit(p, "manifest", 8, oids, CHUNKS + 1, "ref", &oid, NULL));
	ok(fdry_store_info(s, &oids[CHUNKS], &info));
	ck_assert_uint_lt(info.stored, info.size);
	fdry_store_close(s);
	ck_assert_int_eq(verify(), 0);
	ck_assert_int_eq(use_in_child(), GOOD);
}
END_TEST

static unsigned int outcomes[4];

/* One flip: wrong bytes never pass, and nothing ends the process. */
static void flip(size_t at, int bit, bool always_verify)
{
	int result, found = 1;

	whole[at] ^= (uint8_t)(1 << bit);
	write_store(whole, whole_len);
	result = use_in_child();
	ck_assert_msg(result != WRONG, "wrong bytes passed after a flip of bit %d at %zu", bit, at);
	ck_assert_msg(result != CRASHED, "a flip of bit %d at %zu ended the process", bit, at);
	outcomes[result]++;
	write_store(whole, whole_len); /* using it may have written */
	if (always_verify && result == REFUSED)
		found = verify();
	ck_assert_msg(found, "verify found nothing after a flip of bit %d at %zu", bit, at);
	whole[at] ^= (uint8_t)(1 << bit);
}

/* Invert bits near the beginning of each page, which holds headers and values. */
START_TEST(flips_anywhere)
{
	size_t page;
	int bit;

	for (page = 0; page < whole_len / PAGE; page++)
		for (bit = 0; bit < FLIPS; bit++)
			flip(page * PAGE + 8 + ((size_t)bit * 7 + page) % 40, (bit + (int)page) % 8,
			     false);
	ck_assert_uint_gt(outcomes[REFUSED], 0);
}
END_TEST

/* Flags, end of slots and begin of entries in every leaf. */
START_TEST(flips_in_heads_of_leaves)
{
	size_t page, at;
	int bit;

	for (page = 2; page < whole_len / PAGE; page++)
		for (at = 10; fdry_get16(whole + page * PAGE + 10) == 2 && at < 16; at++)
			for (bit = (int)page % (8 / FLIPS + 1); bit < 8; bit += 8 / FLIPS + 1)
				flip(page * PAGE + at, bit, true);
	ck_assert_uint_gt(outcomes[REFUSED], 0);
}
END_TEST

/* Change the entry count of @table's root: in each page, also old ones, that has the table's name
 * with LMDB's record behind it. */
static void miscount(const char *table)
{
	size_t len = strlen(table), n = 0;
	uint8_t *p = whole;

	while ((p = memmem(p, whole_len - (size_t)(p - whole), table, len))) {
		p += len;
		fdry_set64(p + 32, fdry_get64(p + 32) + 1);
		n++;
	}
	ck_assert_uint_gt(n, 0);
	write_store(whole, whole_len);
}

/* Entries that vanish without a trace but in the count. */
START_TEST(a_wrong_count_is_found)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s;

	miscount("objects");
	ck_assert_int_eq(verify(), 1);
	ok(fdry_store_open(path, 0, &s));
	fails(CORRUPT, "counts", fdry_store_gc(s, NULL, &r));
	fdry_store_close(s);
}
END_TEST

static int ignore_object(void *arg, const struct fdry_object_info *info)
{
	(void)arg, (void)info;
	return 0;
}

/* With keys out of order, as if pages formed a circle, a walk ends and does not loop. */
START_TEST(a_walk_never_goes_back)
{
	struct fdry_store *s;
	uint16_t slots[2];
	size_t page, n = 0;
	uint8_t *p;

	for (page = 2; page < whole_len / PAGE; page++) {
		p = whole + page * PAGE;
		if (fdry_get16(p + 10) != 2 || fdry_get16(p + 12) != 16 + 2 * (CHUNKS + 2) ||
		    fdry_get16(p + 14) < 2000)
			continue; /* not a leaf with records of all objects */
		memcpy(slots, p + 16, sizeof(slots));
		memcpy(p + 16, &slots[1], 2);
		memcpy(p + 18, &slots[0], 2);
		n++;
	}
	ck_assert_uint_gt(n, 0);
	write_store(whole, whole_len);
	ok(fdry_store_open(path, 0, &s));
	fails(CORRUPT, "list entries", fdry_store_each(s, ignore_object, NULL));
	fdry_store_close(s);
	ck_assert_int_gt(verify(), 0);
}
END_TEST

/* Change the entry of an id in a leaf: LMDB's length and flags precede the id, and a record or a
 * page number (flags 1) follows it. */
static bool make_longer(uint8_t *id, uint8_t *value, uint64_t pages)
{
	const uint64_t longer = 100 << 20; /* than the file */

	if (fdry_get16(id - 4) == 1 && fdry_get64(value) < pages)
		fdry_set32(id - 8, (uint32_t)longer);
	else if (fdry_get32(value) == 1u << FDRY_OBJECT_CHUNK &&
		 fdry_get64(value + FDRY_RECORD_AT_SIZE) == CHUNK_LEN) {
		fdry_set64(value + FDRY_RECORD_AT_SIZE, longer);
		fdry_set64(value + FDRY_RECORD_AT_STORED, longer);
	} else
		return false;
	return true;
}

/* Records that lead beyond the file: the other objects are read. */
START_TEST(values_beyond_the_file_are_found)
{
	struct fdry_verify_report r = { .sz = sizeof(r) };
	size_t i, hit = 0;
	uint8_t *p;

	for (i = 0; i < CHUNKS; i += 6)
		for (p = whole;
		     (p = memmem(p, whole_len - (size_t)(p - whole), oids[i].b, FDRY_OID_SIZE));
		     p++)
			hit += make_longer(p, p + FDRY_OID_SIZE, whole_len / PAGE);
	ck_assert_uint_ge(hit, 4);
	write_store(whole, whole_len);
	ok(fdry_store_verify(path, NULL, &r));
	ck_assert_uint_eq(r.objects, CHUNKS + 2);
	ck_assert_uint_eq(r.crashes, 0);
	ck_assert_uint_eq(r.damaged, 3); /* and the table that lists them */
	ck_assert_uint_eq(r.faults, r.damaged + 1);
}
END_TEST

/* Each crash is one fault, and the other objects are read. */
START_TEST(verify_continues_behind_a_crash)
{
	struct fdry_verify_opts opts = { .sz = sizeof(opts) };
	struct fdry_verify_report r = { .sz = sizeof(r) };

	data_file_crash((off_t[]){ (off_t)chunk_at(1) + PAGE, (off_t)chunk_at(7) + PAGE }, 2);
	/* This must hold for any number of threads, also if some hold other objects when one
	 * crashes. */
	for (opts.threads = 1; opts.threads <= 8; opts.threads *= 2) {
		ok(fdry_store_verify(path, &opts, &r));
		ck_assert_uint_eq(r.objects, CHUNKS + 2);
		ck_assert_uint_eq(r.crashes, 2);
		ck_assert_uint_eq(r.damaged, 2);
		ck_assert_uint_eq(r.faults, 3);
	}
	data_file_crash(NULL, 0);
}
END_TEST

/* An entry is lost: from the list of objects, from the bytes, or at a ref's target. */
START_TEST(lost_entries_are_found)
{
	static const struct {
		enum fdry_table table;
		int i;
		uint64_t damaged, missing, dangling;
	} cases[] = {
		{ FDRY_TABLE_DATA, 3, 1, 0, 0 },    /* bytes of a chunk */
		{ FDRY_TABLE_OBJECTS, 3, 1, 1, 1 }, /* record of a chunk; bytes without one */
		{ FDRY_TABLE_OBJECTS, CHUNKS + 1, 1, 0, 1 }, /* record of the manifest */
	};
	struct fdry_verify_report r;
	struct fdry_store *s;
	struct fdry_txn t;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_store(whole, whole_len);
		ok(fdry_store_open(path, 0, &s));
		ok(fdry_txn_write(s->env->db, 0, &t));
		ok(fdry_txn_delete(&t, cases[i].table, fdry_oid_span(&oids[cases[i].i])));
		ok(fdry_txn_commit(&t));
		ok(store_verify(s, &r));
		ck_assert_uint_eq(r.damaged, cases[i].damaged);
		ck_assert_uint_eq(r.missing, cases[i].missing);
		ck_assert_uint_eq(r.dangling, cases[i].dangling);
		ck_assert_uint_eq(r.faults, r.damaged + r.missing + 1); /* and the ref */
		ck_assert_uint_eq(r.broken, 1);
		fdry_store_close(s);
	}
}
END_TEST

/* A record and bytes that fit each other, but not the object's size. */
START_TEST(sizes_that_contradict_each_other_are_found)
{
	struct fdry_record rec;
	struct fdry_reader *g;
	struct fdry_store *s;
	struct fdry_span span;
	struct fdry_txn t;

	write_store(whole, whole_len);
	ok(fdry_store_open(path, 0, &s));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_record_need(&t, &oids[3], &rec));
	rec.stored = 8;
	ok(fdry_record_put(&t, &oids[3], &rec));
	ok(fdry_txn_put(&t, FDRY_TABLE_DATA, fdry_oid_span(&oids[3]),
			(struct fdry_span){ (const void *)"too few", 8 }));
	ok(fdry_txn_commit(&t));
	ok(fdry_reader_begin(s, &g));
	fails(CORRUPT, "sizes contradict", fdry_reader_map(g, &oids[3], &span));
	fdry_reader_end(g);
	fdry_store_close(s);
}
END_TEST

#define LOOSE 1000 /* faults: more than a pipe holds */

static pid_t *looking; /* the process that looks */

static void note_child(void)
{
	*looking = getpid();
}

/* The child waits to write to its pipe when the first fault is read from it. */
static void kill_child(void *arg, int kind, const char *id, const char *other, const char *text)
{
	unsigned int *faults = arg;

	(void)kind, (void)id, (void)other, (void)text;
	if (!(*faults)++)
		ck_assert(*looking > 0 && !kill(*looking, SIGKILL));
}

/* If the child that verifies is killed, that is no finding about the store. */
START_TEST(a_verify_that_is_killed_finds_nothing)
{
	unsigned int faults = 0;
	struct fdry_verify_opts opts = { .sz = sizeof(opts), .fault = kill_child,
					 .fault_arg = &faults };
	struct fdry_store *s;
	struct fdry_oid oid;
	struct fdry_txn t;
	unsigned int i;

	ok(fdry_store_open(path, 0, &s));
	ok(fdry_txn_write(s->env->db, LOOSE * PAGE, &t));
	for (i = 0; i < LOOSE; i++) {
		oid = oid_of(&i, sizeof(i));
		ok(fdry_txn_put(&t, FDRY_TABLE_DATA, fdry_oid_span(&oid),
				(struct fdry_span){ (void *)&i, sizeof(i) }));
	}
	ok(fdry_txn_commit(&t));
	fdry_store_close(s);
	looking = mmap(NULL, sizeof(*looking), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	ck_assert(looking != MAP_FAILED && !pthread_atfork(NULL, NULL, note_child));
	fails(IO, "ended by signal 9", fdry_store_verify(path, &opts, NULL));
	ck_assert_uint_lt(faults, LOOSE);
}
END_TEST

static int held[2]; /* a pipe, open for writing until the test is done */

/* In the child that verifies, fork a process that lives on, as another thread might do. */
static void fork_another(void)
{
	char c;

	if (held[1] < 0 || _Fork())
		return;
	close(held[1]);
	_exit(read(held[0], &c, 1) != 0);
}

/* That process has inherited the pipe for findings, so the pipe never reports its end. */
START_TEST(verify_does_not_wait_for_others)
{
	struct fdry_verify_report r = { .sz = sizeof(r) };

	ck_assert(!pipe(held));
	ck_assert(!pthread_atfork(NULL, NULL, fork_another));
	ok(fdry_store_verify(path, NULL, &r));
	ck_assert_uint_eq(r.faults, 0);
	ck_assert_uint_eq(r.objects, CHUNKS + 2);
	close(held[1]);
	held[1] = -1;
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_damage");
	TCase *tc = tcase_create("damage");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, cut_anywhere);
	tcase_add_test(tc, free_pages_at_the_end_may_be_missing);
	tcase_add_test(tc, flips_in_values_are_found);
	tcase_add_test(tc, sealing_again_heals);
	tcase_add_test(tc, flips_anywhere);
	tcase_add_test(tc, flips_in_heads_of_leaves);
	tcase_add_test(tc, a_wrong_count_is_found);
	tcase_add_test(tc, a_walk_never_goes_back);
	tcase_add_test(tc, values_beyond_the_file_are_found);
	tcase_add_test(tc, verify_continues_behind_a_crash);
	tcase_add_test(tc, lost_entries_are_found);
	tcase_add_test(tc, sizes_that_contradict_each_other_are_found);
	tcase_add_test(tc, a_verify_that_is_killed_finds_nothing);
	tcase_add_test(tc, verify_does_not_wait_for_others);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
