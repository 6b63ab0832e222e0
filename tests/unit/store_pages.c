// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of damaged pages of LMDB, each kind made by hand in the pages that a view sees: the
 * store refuses to read, or refuses to write, and names the page. Nothing crashes, and a page that
 * is in use is never taken for a free one.
 *
 * Conversely, everything that LMDB itself writes is accepted.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "store/db.h"
#include "store/view.h"
#include "tests/lib/data_file.h"
#include "tests/lib/store.h"

#define PAGE 4096
#define OBJECTS 400 /* enough for two levels of pages */
#define CHUNK_LEN 10000
#define NOBODY FDRY_TABLE_COUNT /* the tree of free pages */

static uint8_t *whole, *sound; /* the file, and as it was */
static size_t whole_len;
static struct fdry_oid oids[OBJECTS];
static struct fdry_view view; /* of @whole: the latest */
static uint8_t *meta;         /* its page */

/* The results of a child process. */
static struct {
	char error[512];
	int crash;
} *shared;

static void whole_write(void)
{
	static const char *const beside[] = { "lock.mdb", "verified", "checked" };
	char file[400];
	size_t i;
	int fd;

	for (i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		data_file_path(file, beside[i]);
		unlink(file);
	}
	data_file_path(file, "data.mdb");
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_eq(write(fd, whole, whole_len), (ssize_t)whole_len);
	close(fd);
}

/* Trees of the later meta page. */
static void view_read(void)
{
	static const char *const names[] = {
#define X(NAME, name) name,
		FDRY_TABLES(X)
#undef X
	};
	struct fdry_page_node node;
	struct fdry_damage d;
	bool found;
	int i;

	meta = fdry_get64(whole + FDRY_META_AT_TXN) > fdry_get64(whole + PAGE + FDRY_META_AT_TXN)
		       ? whole
		       : whole + PAGE;
	view = (struct fdry_view){ .pages = { whole, whole_len / PAGE, PAGE },
				   .last = fdry_get64(meta + FDRY_META_AT_LAST),
				   .free.numbers = true, .roots.roots = true };
	ck_assert_ptr_null(fdry_tree_parse(&view.pages, meta + FDRY_META_AT_FREE, &view.free));
	ck_assert_ptr_null(fdry_tree_parse(&view.pages, meta + FDRY_META_AT_ROOTS, &view.roots));
	for (i = 0; i < FDRY_TABLE_COUNT; i++) {
		d = fdry_tree_find(&view.pages, &view.roots,
				   (struct fdry_span){ (const uint8_t *)names[i],
						       strlen(names[i]) },
				   true, &node, &found);
		ck_assert(!d.what && found);
		ck_assert_ptr_null(
			fdry_tree_parse(&view.pages, node.value.data, &view.tables[i]));
	}
}

static void setup(void)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	uint8_t bytes[CHUNK_LEN];
	struct fdry_store *s;
	struct fdry_writer *p;
	struct fdry_oid oid;
	int i;

	dir_setup_in("/dev/shm");
	s = store_make();
	seal(s, 5000, 20, 3 * CHUNK_LEN, "goes");
	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < OBJECTS; i++) {
		noise((uint64_t)i, bytes, sizeof(bytes));
		oids[i] = put(p, FDRY_OBJECT_CHUNK, bytes, i % 4 ? 100 : sizeof(bytes));
	}
	ok(fdry_writer_commit(p, "manifest", 8, oids, OBJECTS, "ref", &oid, NULL));
	ok(fdry_store_remove(s, "goes"));
	ok(fdry_store_gc(s, NULL, &r)); /* leaves free pages */
	fdry_store_close(s);
	whole = data_file_read(&whole_len);
	view_read();
	ck_assert_uint_ge(view.tables[FDRY_TABLE_OBJECTS].depth, 2);
	ck_assert_uint_gt(view.free.entries, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ck_assert(shared != MAP_FAILED);
	sound = malloc(whole_len);
	memcpy(sound, whole, whole_len);
}

static void teardown(void)
{
	munmap(shared, sizeof(*shared));
	free(whole);
	free(sound);
	dir_teardown();
}

/* --- using a damaged store --- */

static int object_next(void *arg, const struct fdry_object_info *info)
{
	(void)arg, (void)info;
	return 0;
}

static int all_read(struct fdry_store *s)
{
	static const uint8_t none[FDRY_OID_SIZE];
	struct fdry_buf b = { 0 };
	struct fdry_object_info info;
	struct fdry_reader *g;
	struct fdry_oid oid;
	int i, err = fdry_reader_begin(s, &g);

	if (err)
		return err;
	for (i = 0; i < OBJECTS && !err; i++) {
		b.len = 0;
		err = fdry_reader_copy(g, &oids[i], &b);
	}
	fdry_reader_end(g);
	fdry_buf_release(&b);
	err = err ?: fdry_store_each(s, object_next, NULL);
	if (err)
		return err;
	memcpy(oid.b, none, sizeof(none));
	return fdry_store_info(s, &oid, &info) == -FDRY_E_CORRUPT ? -FDRY_E_CORRUPT : 0;
}

/* Delete an object, and its data if @both; else replace its data. */
static int object_drop(struct fdry_txn *t, int i, bool both)
{
	static uint8_t value[CHUNK_LEN];
	struct fdry_span id = fdry_oid_span(&oids[i]);

	return fdry_txn_delete(t, FDRY_TABLE_OBJECTS, id)
		       ?: (both ? fdry_txn_delete(t, FDRY_TABLE_DATA, id)
				: fdry_txn_put(t, FDRY_TABLE_DATA, id,
					       (struct fdry_span){ value, sizeof(value) }));
}

/* Objects are deleted and replaced in every leaf, so that pages are merged and used again. */
static int all_write(struct fdry_store *s)
{
	struct fdry_txn t;
	int i, round, err = 0;

	for (round = 0; round < 4 && !err; round++) {
		err = fdry_txn_write(s->env->db, 1 << 20, &t);
		if (err)
			return err;
		for (i = round; i < OBJECTS && !err; i += 4)
			err = object_drop(&t, i, i % 3);
		err = fdry_txn_end(&t, err);
	}
	return err;
}

static void use(bool write)
{
	struct fdry_store *s;
	int err = fdry_store_open(path, 0, &s) ?: (write ? all_write(s) : all_read(s));

	snprintf(shared->error, sizeof(shared->error), "%s", err ? fdry_last_error() : "");
}

static void use_in_child(bool write)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE };
	int status = 0, fd;
	pid_t pid;
	size_t i;

	whole_write();
	memset(shared, 0, sizeof(*shared));
	pid = fork();
	if (!pid) {
		fd = open("/dev/null", O_WRONLY);
		dup2(fd, 2);
		for (i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
			signal(crashes[i], SIG_DFL);
		alarm(60);
		use(write);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	shared->crash = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* --- pages --- */

static uint8_t *page_at(uint64_t number)
{
	return whole + number * PAGE;
}

static struct fdry_tree *tree_of(int table)
{
	return table == NOBODY ? &view.free : &view.tables[table];
}

/* Return the page @level levels above the leaves of a table, on the path of the last keys. */
static uint8_t *page_of(int table, int level)
{
	const struct fdry_tree *tree = tree_of(table);
	uint64_t number = tree->root;
	struct fdry_page_node node;
	struct fdry_page p;
	int at;

	for (at = tree->depth - 1; at > level; at--) {
		ck_assert_ptr_null(fdry_page_open(&view.pages, tree, number, false, &p));
		ck_assert_ptr_null(fdry_page_node(&p, p.count - 1, &node));
		number = node.child;
	}
	return page_at(number);
}

/* The last node of a page. */
static uint8_t *node_of(uint8_t *page)
{
	uint32_t n = (fdry_get16(page + FDRY_PAGE_AT_LOWER) - FDRY_PAGE_HEAD) / 2u;

	return page + fdry_get16(page + FDRY_PAGE_AT_SLOTS + 2 * (n - 1));
}

static int is_big(void *arg, const struct fdry_page_node *node)
{
	if (node->big)
		*(struct fdry_page_node *)arg = *node;
	return node->big ? FDRY_EACH_STOP : 0;
}

/* An object with its own pages. */
static struct fdry_page_node big_value(void)
{
	struct fdry_page_node ret = { .big = 0 };
	struct fdry_tree_fns fns = { .entry = is_big, .arg = &ret };
	struct fdry_damage d;
	int err;

	d = fdry_tree_each(&view.pages, tree_of(FDRY_TABLE_DATA), (struct fdry_span){ 0 }, &fns,
			   &err);
	ck_assert(!d.what && ret.big);
	return ret;
}

/* --- places in the pages --- */

static uint8_t *page_0(void) { return whole; }
static uint8_t *page_1(void) { return whole + PAGE; }
static uint8_t *latest(void) { return meta; }

/* The record of a table's tree. */
static uint8_t *record_of(const char *name)
{
	struct fdry_span key = { (const uint8_t *)name, strlen(name) };
	struct fdry_page_node node;
	struct fdry_damage d;
	bool found;

	d = fdry_tree_find(&view.pages, &view.roots, key, true, &node, &found);
	ck_assert(!d.what && found);
	return whole + (node.value.data - whole);
}

static uint8_t *objects(void) { return record_of("objects"); }
static uint8_t *data(void) { return record_of("data"); }
static uint8_t *data_node(void) { return data() - strlen("data") - FDRY_NODE_HEAD; }
static uint8_t *branch(void) { return page_of(FDRY_TABLE_OBJECTS, 1); }
static uint8_t *branch_node(void) { return node_of(branch()); }
static uint8_t *leaf(void) { return page_of(FDRY_TABLE_DATA, 0); }
static uint8_t *leaf_node(void) { return node_of(leaf()); }
static uint8_t *big_head(void) { return page_at(big_value().big); }
static uint8_t *free_node(void) { return node_of(page_of(NOBODY, 0)); }

static uint8_t *big_node(void)
{
	return whole + (big_value().key.data - whole) - FDRY_NODE_HEAD;
}

static uint8_t *free_list(void)
{
	uint8_t *value = free_node() + FDRY_NODE_HEAD + 8;

	if (fdry_get16(free_node() + 4) & FDRY_NODE_BIG)
		value = page_at(fdry_get64(value)) + FDRY_PAGE_HEAD;
	ck_assert_uint_gt(fdry_get64(value), 1);
	return value;
}

/* --- kinds of damage --- */

#define LEN 0         /* in a node: of its value, u32 */
#define FLAGS 4       /* u16 */
#define KEY_LEN 6     /* u16 */
#define KEY FDRY_NODE_HEAD
#define BIG (KEY + FDRY_OID_SIZE) /* the number of a value's first page */
#define ROOT FDRY_TREE_AT_ROOT
#define TREE_FLAGS FDRY_TREE_AT_FLAGS
#define SLOTS FDRY_PAGE_AT_SLOTS

static void older_is_later(void)
{
	uint8_t *older = meta == whole ? whole + PAGE : whole;

	fdry_set64(older + FDRY_META_AT_TXN, fdry_get64(older + FDRY_META_AT_TXN) + 1024);
}

static void table_is_other(void) { memcpy(objects(), data(), FDRY_TREE_SIZE); }

static void child_set(uint64_t nr) { fdry_set32(branch_node(), (uint32_t)nr); }
static void child_circle(void) { child_set(tree_of(FDRY_TABLE_OBJECTS)->root); }
static void child_of_other(void) { child_set(fdry_get64(leaf())); }
static void child_twice(void) { child_set(fdry_get32(branch() + fdry_get16(branch() + SLOTS))); }
static void separator_wrong(void) { branch_node()[KEY] ^= 0x80; }

static void number_wrong(void) { leaf()[0] ^= 1; }
static void leaf_zeroed(void) { memset(leaf(), 0, PAGE); }
static void slots_equal(void) { memcpy(leaf() + SLOTS, leaf() + SLOTS + 2, 2); }
static void keys_swapped(void)
{
	uint8_t *p = page_of(FDRY_TABLE_OBJECTS, 0) + SLOTS, slot[2];

	memcpy(slot, p, 2);
	memcpy(p, p + 2, 2);
	memcpy(p + 2, slot, 2);
}

static void big_is_live(void) { fdry_set64(big_node() + BIG, fdry_get64(leaf())); }
static void free_value(void) { fdry_set64(free_list() + 8, big_value().big); }
static void free_twice(void) { memcpy(free_list() + 8, free_list() + 16, 8); }
static void free_leaf(void)
{
	uint8_t *list = free_list();
	uint64_t i, n = fdry_get64(list), live = fdry_get64(leaf());

	for (i = 1; i < n && fdry_get64(list + 8 * i) > live; i++)
		;
	fdry_set64(list + 8 * i, live); /* still in order */
}

enum { READ = 1, WRITE = 2, BOTH = 3 };

static const struct kind {
	const char *name, *text; /* of the error */
	int use;                 /* in which the damage shows */
	/* write @value, of @bytes bytes, at offset @off of the address, or call a function */
	uint8_t *(*at)(void);
	size_t off;
	uint64_t value;
	int bytes;
	void (*make)(void);
} kinds[] = {
#define POKE(name, at, off, bytes, value, use, text) \
	{ name, text, use, at, off, value, bytes, NULL }
#define MAKE(name, fn, use, text) { name, text, use, NULL, 0, 0, 0, fn }
	POKE("page size 0", page_0, FDRY_META_AT_FREE, 4, 0, BOTH, "page 0 of data.mdb is damaged"),
	POKE("page size 4097", page_0, FDRY_META_AT_FREE, 4, 4097, BOTH, "impossible size"),
	POKE("another page size", page_1, FDRY_META_AT_FREE, 4, 8192, BOTH, "another size"),
	POKE("a last page far away", latest, FDRY_META_AT_LAST, 8, 1ull << 50, BOTH,
	     "impossible number of pages"),
	MAKE("an old state that is the latest", older_is_later, BOTH, "not consecutive"),
	POKE("roots beyond the file", latest, FDRY_META_AT_ROOTS + ROOT, 8, 1 << 30, BOTH,
	     "the root of a tree is wrong"),
	POKE("roots with duplicates", latest, FDRY_META_AT_ROOTS + TREE_FLAGS, 2, 4, BOTH,
	     "unknown flags"),
	POKE("free pages with duplicates", latest, FDRY_META_AT_FREE + TREE_FLAGS, 2, 12, BOTH,
	     "unknown flags"),
	POKE("free pages beyond the file", latest, FDRY_META_AT_FREE + ROOT, 8, 1 << 30, BOTH,
	     "the root of a tree is wrong"),
	POKE("a table beyond the file", objects, ROOT, 8, 1 << 30, BOTH, "root of a tree is wrong"),
	POKE("a table too deep", objects, FDRY_TREE_AT_DEPTH, 2, 60, BOTH,
	     "the root of a tree is wrong"),
	POKE("a table too shallow", objects, FDRY_TREE_AT_DEPTH, 2, 1, BOTH,
	     "its tree has another depth"),
	POKE("a table with duplicates", data, TREE_FLAGS, 2, 4, BOTH, "unknown flags"),
	MAKE("a table that is another", table_is_other, WRITE, "it is used twice"),
	POKE("a wrong count of pages", data, FDRY_TREE_AT_LEAVES, 8, 1 << 20, WRITE,
	     "counts other pages"),
	POKE("a wrong count of values' pages", data, FDRY_TREE_AT_OVERFLOW, 8, 5, WRITE,
	     "counts other pages of values"),
	POKE("a table's record too short", data_node, LEN, 4, 8, BOTH, "its entries overlap"),
	POKE("a child beyond the file", branch_node, LEN, 4, 1 << 30, BOTH, "no such page"),
	POKE("a child that is a meta page", branch_node, LEN, 4, 1, BOTH, "no such page"),
	MAKE("a branch that is its own child", child_circle, BOTH, "its tree has another depth"),
	MAKE("a child of another table", child_of_other, BOTH, "is damaged"),
	MAKE("a child twice", child_twice, BOTH, "its keys are out of order"),
	MAKE("a wrong separator", separator_wrong, BOTH, "its keys are out of order"),
	POKE("a leaf that is dirty", leaf, FDRY_PAGE_AT_FLAGS, 2, 0x12, BOTH, "no page of a tree"),
	POKE("a leaf of fixed keys", leaf, FDRY_PAGE_AT_FLAGS, 2, 0x22, BOTH, "no page of a tree"),
	POKE("a leaf that is a branch", leaf, FDRY_PAGE_AT_FLAGS, 2, 1, BOTH, "another depth"),
	POKE("slots without end", leaf, FDRY_PAGE_AT_LOWER, 2, 0xfff0, BOTH, "its head is wrong"),
	POKE("no slots", leaf, FDRY_PAGE_AT_LOWER, 2, FDRY_PAGE_HEAD, BOTH, "its head is wrong"),
	POKE("entries behind the page", leaf, FDRY_PAGE_AT_UPPER, 2, 0xfff0, BOTH,
	     "its head is wrong"),
	MAKE("another page's number", number_wrong, BOTH, "the number of another page"),
	MAKE("a leaf of zeros", leaf_zeroed, BOTH, "it is no page of a tree"),
	POKE("a slot behind the page", leaf, SLOTS, 2, 0xfff0, BOTH,
	     "an entry lies outside of the page"),
	MAKE("two slots that are equal", slots_equal, WRITE, "is damaged"),
	POKE("a key too long", leaf_node, KEY_LEN, 2, 0xffff, BOTH, "a key is longer"),
	POKE("a key without bytes", leaf_node, KEY_LEN, 2, 0, BOTH, "a key has a wrong length"),
	POKE("a value too long", leaf_node, LEN, 4, 0x7fffffff, BOTH, "is damaged"),
	POKE("a value that is a tree", leaf_node, FLAGS, 2, FDRY_NODE_TREE, BOTH, "unknown kind"),
	POKE("a value that is a page", leaf_node, FLAGS, 2, 4, BOTH, "unknown kind"),
	MAKE("keys out of order", keys_swapped, BOTH, "its keys are out of order"),
	POKE("a value beyond the file", big_node, BIG, 8, 1 << 30, BOTH, "reaches beyond the file"),
	POKE("a value of 4 GiB", big_node, LEN, 4, 0xfffffff0, BOTH, "reaches beyond the file"),
	MAKE("a value in a page of a tree", big_is_live, WRITE, "is damaged"),
	POKE("a value with too many pages", big_head, FDRY_PAGE_AT_RUN, 4, 40, WRITE, "is damaged"),
	POKE("a value with endless pages", big_head, FDRY_PAGE_AT_RUN, 4, 0x7fffffff, WRITE,
	     "its head is wrong"),
	POKE("a value that is dirty", big_head, FDRY_PAGE_AT_FLAGS, 2, 0x14, WRITE,
	     "its head is wrong"),
	POKE("a free list that is too long", free_list, 0, 8, 1 << 20, WRITE,
	     "longer than its space"),
	MAKE("a free page that a value has", free_value, WRITE, "is damaged"),
	MAKE("a free page that is a leaf", free_leaf, WRITE, "it is free and in use"),
	MAKE("a page that is free twice", free_twice, WRITE, "out of order"),
	POKE("a free page beyond the file", free_list, 8, 8, 1ull << 40, WRITE, "is not there"),
	POKE("a free list of the future", free_node, KEY, 8, 1ull << 40, WRITE,
	     "from a later transaction"),
	POKE("a free list with a short key", free_node, KEY_LEN, 2, 4, WRITE,
	     "a key has a wrong length"),
#undef POKE
#undef MAKE
};

static void damage(const struct kind *k)
{
	if (k->make)
		k->make();
	else
		memcpy(k->at() + k->off, &k->value, (size_t)k->bytes);
}

START_TEST(without_damage_all_works)
{
	int write;

	memcpy(whole, sound, whole_len);
	for (write = 0; write < 2; write++) {
		use_in_child(write);
		ck_assert_msg(!shared->crash && !*shared->error, "%s", shared->error);
	}
}
END_TEST

START_TEST(damage_is_refused)
{
	const struct kind *k = &kinds[_i];
	int write;

	memcpy(whole, sound, whole_len);
	damage(k);
	for (write = 0; write < 2; write++) {
		use_in_child(write);
		ck_assert_msg(!shared->crash, "%s, %s: ended by signal %d", k->name,
			      write ? "written" : "read", shared->crash);
		if (k->use & (write ? WRITE : READ))
			ck_assert_msg(strstr(shared->error, k->text), "%s, %s: %s", k->name,
				      write ? "written" : "read", shared->error);
	}
}
END_TEST

/* The meta pages of an open store are not trusted more than at its opening. */
START_TEST(a_page_size_that_changes_is_refused)
{
	static const uint32_t sizes[] = { 0, 2 * PAGE };
	char file[400];
	struct fdry_store *s;
	struct fdry_txn t;
	int fd;

	memcpy(whole, sound, whole_len);
	whole_write();
	ok(fdry_store_open(path, 0, &s));
	data_file_path(file, "data.mdb");
	fd = open(file, O_WRONLY);
	ck_assert_int_eq(pwrite(fd, &sizes[_i], sizeof(sizes[_i]),
				meta - whole + FDRY_META_AT_FREE),
			 (ssize_t)sizeof(sizes[_i]));
	close(fd);
	ck_assert_int_eq(fdry_txn_read(s->env->db, &t), -FDRY_E_CORRUPT);
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "another size"));
	fdry_store_close(s);
}
END_TEST

/* Verify also finds damage that only a writer would use. */
START_TEST(verify_finds_it)
{
	struct fdry_verify_report r = { .sz = sizeof(r) };
	int err;

	memcpy(whole, sound, whole_len);
	damage(&kinds[_i]);
	whole_write();
	err = fdry_store_verify(path, NULL, &r);
	ck_assert_msg(err == -FDRY_E_CORRUPT || (!err && r.faults > 0 && !r.crashes),
		      "%s: %d, %llu faults, %llu crashes", kinds[_i].name, err,
		      (unsigned long long)r.faults, (unsigned long long)r.crashes);
}
END_TEST

/* --- checks that were made before --- */

static void change(struct fdry_txn *t, uint8_t number)
{
	static const uint8_t value[3000];
	uint8_t key[FDRY_OID_SIZE] = { number };

	ok(fdry_txn_put(t, FDRY_TABLE_DATA, (struct fdry_span){ key, sizeof(key) },
			(struct fdry_span){ value, sizeof(value) }));
}

/* The file's memory. Each page is written once, since the first write through a map changes the
 * file's times and later ones do not. */
static uint8_t *file_map(size_t *len)
{
	char file[400];
	struct stat st;
	uint8_t *map;
	size_t i;
	int fd;

	data_file_path(file, "data.mdb");
	fd = open(file, O_RDWR);
	ck_assert(fd >= 0 && !fstat(fd, &st));
	*len = (size_t)st.st_size;
	map = mmap(NULL, *len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(map != MAP_FAILED);
	close(fd);
	for (i = 0; i < *len; i += PAGE)
		*(volatile uint8_t *)&map[i] = map[i];
	return map;
}

static void note_change(void)
{
	char file[400], byte;
	int fd;

	data_file_path(file, "checked");
	fd = open(file, O_RDWR);
	ck_assert_int_eq(pread(fd, &byte, 1, FDRY_CHECKED_AT_FINGERPRINT), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, FDRY_CHECKED_AT_FINGERPRINT), 1);
	close(fd);
}

/* Open a new handle, which knows nothing of earlier ones, like another process. */
static struct fdry_store *store_again(struct fdry_store *s)
{
	fdry_store_close(s);
	ok(fdry_store_open(path, 0, &s));
	return s;
}

/* Other processes do not repeat a process' check: damage without a trace passes, unless the note is
 * void. */
START_TEST(a_check_counts_for_other_processes)
{
	struct fdry_store *s = NULL;
	struct fdry_txn t;
	size_t map_len;
	uint8_t *map;
	int i, err;

	memcpy(whole, sound, whole_len);
	whole_write();
	map = file_map(&map_len);
	ok(fdry_store_open(path, 0, &s));
	for (i = 0; i < 3; i++) {
		ok(fdry_txn_write(s->env->db, 1 << 20, &t));
		change(&t, (uint8_t)i);
		ok(fdry_txn_commit(&t));
		s = store_again(s); /* the note was carried on */
	}
	free(whole);
	whole = data_file_read(&whole_len);
	view_read();
	free_twice();
	memcpy(map, whole, map_len < whole_len ? map_len : whole_len);
	munmap(map, map_len);
	if (_i == 1)
		note_change();
	if (_i == 2)
		fdry_checked_forget(&s->env->dir);
	if (_i == 3)
		fdry_verified_forget(&s->env->dir);
	err = fdry_txn_write(s->env->db, 1 << 20, &t);
	if (!err)
		fdry_txn_abort(&t);
	ck_assert_int_eq(err, _i ? -FDRY_E_CORRUPT : 0);
	fdry_store_close(s);
}
END_TEST

/* LMDB shortens a value in place if the same transaction stored it. */
static void put_shortened(struct fdry_txn *t, uint8_t number)
{
	static const uint8_t value[8 * PAGE];
	uint8_t key[FDRY_OID_SIZE] = { 0xff, 0xff, number };
	struct fdry_span k = { key, sizeof(key) };

	ok(fdry_txn_put(t, FDRY_TABLE_DATA, k, (struct fdry_span){ value, sizeof(value) }));
	ok(fdry_txn_put(t, FDRY_TABLE_DATA, k, (struct fdry_span){ value, 2 * PAGE }));
}

static int delete_shortened(struct fdry_txn *t, uint8_t number)
{
	uint8_t key[FDRY_OID_SIZE] = { 0xff, 0xff, number };

	return fdry_txn_delete(t, FDRY_TABLE_DATA, (struct fdry_span){ key, sizeof(key) });
}

/* If a value has a longer run than it needs, its change checks the first pages of all values, once
 * per handle. Damage without a trace passes after that, but not in a new handle. */
START_TEST(heads_of_values_are_checked_once)
{
	struct fdry_store *s = NULL;
	struct fdry_txn t;
	size_t map_len;
	uint8_t *map;
	int i, err;

	memcpy(whole, sound, whole_len);
	whole_write();
	ok(fdry_store_open(path, 0, &s));
	ok(fdry_txn_write(s->env->db, 1 << 20, &t));
	for (i = 0; i < 3; i++)
		put_shortened(&t, (uint8_t)i);
	ok(fdry_txn_commit(&t));
	map = file_map(&map_len);
	ok(fdry_txn_write(s->env->db, 1 << 20, &t));
	ok(delete_shortened(&t, 0));
	free(whole);
	whole = data_file_read(&whole_len);
	view_read();
	fdry_set32(map + (big_head() - whole) + FDRY_PAGE_AT_RUN, 40);
	munmap(map, map_len);
	ok(delete_shortened(&t, 1));
	ok(fdry_txn_commit(&t));
	if (_i)
		s = store_again(s);
	ok(fdry_txn_write(s->env->db, 1 << 20, &t));
	err = delete_shortened(&t, 2);
	ck_assert_int_eq(err, _i ? -FDRY_E_CORRUPT : 0);
	fdry_txn_abort(&t);
	fdry_store_close(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_pages");
	TCase *tc = tcase_create("pages");

	tcase_add_unchecked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, without_damage_all_works);
	tcase_add_loop_test(tc, damage_is_refused, 0, sizeof(kinds) / sizeof(kinds[0]));
	tcase_add_loop_test(tc, a_page_size_that_changes_is_refused, 0, 2);
	tcase_add_loop_test(tc, a_check_counts_for_other_processes, 0, 4);
	tcase_add_loop_test(tc, heads_of_values_are_checked_once, 0, 2);
	tcase_add_loop_test(tc, verify_finds_it, 0, sizeof(kinds) / sizeof(kinds[0]));
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
