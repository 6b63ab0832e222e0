// SPDX-License-Identifier: Apache-2.0
/* Unit tests of packs: images are imported whole or not at all, and equal images give equal
 * packs. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <zstd.h>

#include "tests/lib/pack_stores.h"

/* --- reading and writing the pack's bytes --- */

static struct {
	size_t done;          /* bytes read or written through the pack's descriptor */
	size_t step;          /* bytes at once; 0: as many as the call wants */
	size_t stop;          /* with @fail: the byte at which calls fail */
	bool fail;
	void (*hook)(void);   /* before each call */
} flow;

static void flow_reset(void)
{
	memset(&flow, 0, sizeof(flow));
}

/* Returns whether a call on the pack's descriptor may continue; @len: for how many bytes. */
static bool flow_begin(size_t *len)
{
	if (flow.hook)
		flow.hook();
	if (flow.fail && flow.done == flow.stop)
		return false;
	if (flow.step && *len > flow.step)
		*len = flow.step;
	if (flow.fail && *len > flow.stop - flow.done)
		*len = flow.stop - flow.done;
	return true;
}

static ssize_t flow_end(ssize_t n)
{
	flow.done += n > 0 ? (size_t)n : 0;
	return n;
}

/* In place of the C library's, in this program. */
#pragma GCC visibility push(default)
ssize_t read(int fd, void *data, size_t len)
{
	static __typeof__(&read) real;

	if (!real)
		real = (__typeof__(&read))dlsym(RTLD_NEXT, "read");
	if (fd < 0 || fd != pack_fd)
		return real(fd, data, len);
	if (!flow_begin(&len)) {
		errno = EIO;
		return -1;
	}
	return flow_end(real(fd, data, len));
}

ssize_t write(int fd, const void *data, size_t len)
{
	static __typeof__(&write) real;

	if (!real)
		real = (__typeof__(&write))dlsym(RTLD_NEXT, "write");
	if (fd < 0 || fd != pack_fd)
		return real(fd, data, len);
	if (!flow_begin(&len)) {
		errno = ENOSPC;
		return -1;
	}
	return flow_end(real(fd, data, len));
}
#pragma GCC visibility pop

static void check_equal(const struct mem *a, const struct mem *b)
{
	ck_assert_uint_eq(a->b.len, b->b.len);
	ck_assert(!memcmp(a->b.data, b->b.data, a->b.len));
}

START_TEST(images_travel)
{
	struct fdry_pack_report out, in;
	struct mem m = export_to_mem(from, image_names, 2, NULL, &out), again;
	struct fdry_oid was = see(from), is;

	ck_assert_uint_eq(out.images, 2);
	ck_assert_uint_eq(out.objects, 14);
	ck_assert_uint_eq(out.packed, m.b.len);
	ck_assert_uint_gt(out.bytes, 6 * CHUNK + 4 * 3000);
	ck_assert_uint_lt(out.packed, 4 * CHUNK + 14 * 32 * 8 + 4 * 400);
	ok(import_mem(to, &m, NULL, &in));
	ck_assert_uint_eq(in.objects_new, 14);
	ck_assert_uint_eq(in.bytes_new, out.bytes);
	ck_assert_uint_eq(in.packed, out.packed);
	ck_assert_uint_eq(in.images, 2);
	ck_assert_str_eq(in.id, out.id);
	ck_assert_uint_eq(m.at, m.b.len);
	is = see(to);
	ck_assert(fdry_oid_eq(&was, &is));
	check_sound(to);
	again = export_to_mem(to, image_names, 2, NULL, NULL);
	check_equal(&m, &again);
	fdry_buf_release(&m.b);
	fdry_buf_release(&again.b);
}
END_TEST

/* As another release of zstd might have stored it. */
static void repack(struct fdry_store *s, const struct fdry_oid *oid)
{
	struct fdry_unpacker u = { 0 };
	struct fdry_buf bytes = { 0 };
	uint8_t rec[4096], packed[8192];
	struct fdry_span value;
	struct fdry_txn t;
	size_t n;

	ok(fdry_txn_write(s->env->db, 1 << 20, &t));
	ok(fdry_object_read(&t, oid, &u, &bytes));
	ok(fdry_txn_get(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(oid), &value));
	memcpy(rec, value.data, value.len);
	n = ZSTD_compress(packed, sizeof(packed), bytes.data, bytes.len, 1);
	ck_assert_uint_ne(n, fdry_get64(rec + FDRY_RECORD_AT_STORED));
	fdry_set64(rec + FDRY_RECORD_AT_STORED, n);
	ok(fdry_txn_put(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(oid),
			(struct fdry_span){ rec, value.len }));
	ok(fdry_txn_put(&t, FDRY_TABLE_DATA, fdry_oid_span(oid), (struct fdry_span){ packed, n }));
	ok(fdry_txn_commit(&t));
	fdry_unpacker_release(&u);
	fdry_buf_release(&bytes);
}

START_TEST(equal_images_give_equal_packs)
{
	struct fdry_export_opts one = { .sz = sizeof(one), .threads = 1 },
				four = { .sz = sizeof(four), .threads = 4 };
	const char *many[] = { image_names[1], image_names[0], image_names[1] };
	struct mem m = export_to_mem(from, image_names, 2, &one, NULL), other;
	char text[4000];
	struct fdry_oid kernel;

	seal_mixed(to, 3, CHUNK, "another");
	ck_assert(!memcmp(&images[1], (struct fdry_oid[]){ seal_mixed(to, 2, CHUNK, "two/b") },
			  32));
	seal_mixed(to, 1, CHUNK, "one");
	kernel = oid_of(text, prose(2, text, sizeof(text)));
	repack(to, &kernel);
	check_sound(to);
	other = export_to_mem(to, many, 3, &four, NULL);
	check_equal(&m, &other);
	fdry_buf_release(&m.b);
	fdry_buf_release(&other.b);
}
END_TEST

/* A name with two images is exported as such, and imported beside the name's images for other
 * identities. */
START_TEST(identities_travel)
{
	const struct fdry_oid ids[] = { oid_of("a", 1), oid_of("b", 1), oid_of("c", 1) };
	struct fdry_oid third = seal_mixed(to, 3, CHUNK, NULL);
	const char *name = "pair";
	struct fdry_pack_report r;
	struct fdry_ref *refs;
	struct mem m;
	size_t i, n;

	for (i = 0; i < 2; i++)
		ok(fdry_ref_set(from, name, &images[i], &ids[i]));
	m = export_to_mem(from, &name, 1, NULL, &r);
	ck_assert_uint_eq(r.images, 2);
	ok(fdry_ref_set(to, "pair", &third, &ids[2]));
	ok(fdry_ref_set(to, "pair", &third, &ids[0]));
	ok(import_mem(to, &m, NULL, &r));
	ok(fdry_ref_list(to, "pair", &refs, &n));
	ck_assert_uint_eq(n, 3);
	for (i = 0; i < n; i++)
		ck_assert(fdry_oid_eq(&refs[i].oid,
				      fdry_oid_eq(&refs[i].identity, &ids[0])	? &images[0]
				      : fdry_oid_eq(&refs[i].identity, &ids[1]) ? &images[1]
										: &third));
	free(refs);
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(a_plain_pack_means_the_same)
{
	struct fdry_export_opts plain = { .sz = sizeof(plain), .flags = FDRY_EXPORT_PLAIN };
	struct fdry_pack_report packed, flat;
	struct mem m = export_to_mem(from, image_names, 2, NULL, &packed),
		   p = export_to_mem(from, image_names, 2, &plain, &flat);

	ck_assert_str_eq(packed.id, flat.id);
	ck_assert_uint_gt(flat.packed, flat.bytes);
	ck_assert_uint_lt(packed.packed, packed.bytes);
	ok(import_mem(to, &p, NULL, &flat));
	check_sound(to);
	fdry_buf_release(&p.b);
	p = export_to_mem(to, image_names, 2, NULL, NULL);
	check_equal(&m, &p);
	fdry_buf_release(&m.b);
	fdry_buf_release(&p.b);
}
END_TEST

START_TEST(bytes_may_come_one_by_one)
{
	struct mem m = export_to_mem(from, image_names, 1, NULL, NULL);
	struct fdry_pack_report r;

	ok(fdry_buf_put(&m.b, "what follows", 12));
	flow.step = 1;
	ok(import_mem(to, &m, NULL, &r));
	ck_assert_uint_eq(m.at, m.b.len - 12); /* these bytes are not part of the pack */
	check_sound(to);
	fdry_buf_release(&m.b);
}
END_TEST

/* --- objects that exist already --- */

START_TEST(existing_objects_are_skipped)
{
	struct mem m = export_to_mem(from, image_names, 2, NULL, NULL);
	struct fdry_pack_report r;
	size_t i;

	seal_mixed(to, 2, CHUNK, NULL);
	ok(import_mem(to, &m, NULL, &r));
	ck_assert_uint_eq(r.objects, 14);
	ck_assert_uint_eq(r.objects_new, 7);
	ok(import_mem(to, &m, NULL, &r));
	ck_assert_uint_eq(r.objects_new, 0);
	ck_assert_uint_eq(r.bytes_new, 0);
	/* The bodies are not even looked at. */
	for (i = m.b.len - FDRY_PACK_END_SIZE - 20; i < m.b.len - FDRY_PACK_END_SIZE; i++)
		m.b.data[i] ^= 0xff;
	ok(import_mem(to, &m, NULL, &r));
	check_sound(to);
	fdry_buf_release(&m.b);
}
END_TEST

/* Bytes that are a chunk here and, with a link, a kernel there. */
START_TEST(kinds_of_a_pack_wait_for_its_end)
{
	struct fdry_oid links[2], oid, before, after;
	struct fdry_object_info info;
	struct fdry_pack_report r;
	struct fdry_writer *p;
	struct mem m;
	size_t len;

	ok(fdry_writer_begin(to, &p));
	links[0] = put(p, FDRY_OBJECT_CHUNK, "same", 4);
	ok(fdry_writer_commit(p, "x", 1, links, 1, "x", &oid, NULL));
	ok(fdry_writer_begin(from, &p));
	links[0] = put(p, FDRY_OBJECT_KERNEL, "other", 5);
	ok(fdry_writer_add_object(p, FDRY_OBJECT_KERNEL, "same", 4, links, 1, &links[1]));
	ok(fdry_writer_commit(p, "y", 1, &links[1], 1, "y", &oid, NULL));
	m = export_to_mem(from, (const char *[]){ "y" }, 1, NULL, NULL);
	before = see(to);
	len = m.b.len;
	m.b.len--;
	fails(BADIMAGE, "ends early", import_mem(to, &m, NULL, &r));
	after = see(to);
	ck_assert(fdry_oid_eq(&before, &after));
	m.b.len = len;
	ok(import_mem(to, &m, NULL, &r));
	ok(fdry_store_info(to, &links[1], &info));
	ck_assert_uint_eq(info.kinds, 1u << FDRY_OBJECT_CHUNK | 1u << FDRY_OBJECT_KERNEL);
	ck_assert_uint_eq(info.nlinks, 1);
	check_sound(to);
	fdry_buf_release(&m.b);
}
END_TEST

/* --- incomplete packs --- */

START_TEST(every_cut_is_found_and_leaves_nothing)
{
	struct mem m = export_to_mem(from, image_names, 1, NULL, NULL);
	size_t len = m.b.len, cut;
	struct fdry_oid before, all, is;
	struct fdry_pack_report r;
	struct fdry_gc_report gc = { .sz = sizeof(gc) };

	seal_mixed(to, 9, 100, "kept");
	before = see(to);
	all = see_all(to);
	for (cut = 0; cut < len; cut += cut < 300 || cut > len - 300 ? 1 : 97) {
		m.b.len = cut;
		fails(BADIMAGE, "ends early", import_mem(to, &m, NULL, &r));
		is = see(to);
		ck_assert(fdry_oid_eq(&before, &is));
	}
	ok(fdry_store_gc(to, NULL, &gc));
	is = see_all(to);
	ck_assert(fdry_oid_eq(&all, &is));
	m.b.len = len;
	ok(import_mem(to, &m, NULL, &r));
	check_sound(to);
	fdry_buf_release(&m.b);
}
END_TEST

/* An inverted bit may only pass if it does not change the content: a frame can encode the same
 * bytes differently. */
START_TEST(every_flip_is_found)
{
	struct fdry_import_opts dry = { .sz = sizeof(dry), .flags = FDRY_IMPORT_DRY_RUN,
					.threads = 1 };
	struct fdry_pack_report want, r;
	struct mem m = export_to_mem(from, image_names, 1, NULL, &want);
	unsigned int passed = 0;
	size_t i;
	int err;

	for (i = 0; i < m.b.len; i += TEST_EACH(5)) {
		m.b.data[i] ^= (uint8_t)(1u << i % 8);
		err = import_mem(to, &m, &dry, &r);
		ck_assert_msg(err || !strcmp(r.id, want.id), "byte %zu", i);
		passed += !err;
		m.b.data[i] ^= (uint8_t)(1u << i % 8);
	}
	ck_assert_uint_le(passed, 16);
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(a_dry_run_writes_nothing)
{
	struct fdry_import_opts dry = { .sz = sizeof(dry), .flags = FDRY_IMPORT_DRY_RUN };
	struct mem m = export_to_mem(from, image_names, 2, NULL, NULL);
	struct fdry_oid before = see_all(to), is;
	struct fdry_pack_report r;

	ok(import_mem(to, &m, &dry, &r));
	ck_assert_uint_eq(r.objects_new, 14);
	ck_assert_uint_eq(r.bytes_new, r.bytes);
	is = see_all(to);
	ck_assert(fdry_oid_eq(&before, &is));
	ok(import_mem(NULL, &m, &dry, &r)); /* for a store that does not exist yet */
	ck_assert_uint_eq(r.objects_new, 14);
	fails(INVAL, "no store", import_mem(NULL, &m, NULL, &r));
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(all_images_are_exported)
{
	struct fdry_export_opts all = { .sz = sizeof(all), .flags = FDRY_EXPORT_ALL };
	struct mem m = export_to_mem(from, image_names, 2, NULL, NULL),
		   a = export_to_mem(from, NULL, 0, &all, NULL);

	check_equal(&m, &a);
	fails(INVAL, "no names", export_mem(from, image_names, 2, &all, &a, NULL));
	fails(NOENT, "no refs", export_mem(to, NULL, 0, &all, &a, NULL));
	fdry_buf_release(&a.b);
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(nothing_damaged_is_exported)
{
	struct fdry_pack_report r;
	struct fdry_oid kernel;
	struct mem m = { 0 };
	struct fdry_txn t;
	char text[4000];

	kernel = oid_of(text, prose(2, text, sizeof(text)));
	ok(fdry_txn_write(from->env->db, 1 << 20, &t));
	ok(fdry_txn_put(&t, FDRY_TABLE_DATA, fdry_oid_span(&kernel),
			(struct fdry_span){ (uint8_t *)text, 100 }));
	ok(fdry_txn_commit(&t));
	fails(CORRUPT, "damaged", export_mem(from, image_names, 1, NULL, &m, &r));
	fails(BADIMAGE, "ends early", import_mem(to, &m, NULL, &r));
	m.b.len = 0;
	ok(export_mem(from, &image_names[1], 1, NULL, &m, &r));
	ok(fdry_txn_write(from->env->db, 1 << 20, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&kernel)));
	ok(fdry_txn_commit(&t));
	m.b.len = 0;
	fails(NOENT, "no object", export_mem(from, image_names, 1, NULL, &m, &r));
	ck_assert_uint_eq(m.b.len, 0);
	fdry_buf_release(&m.b);
}
END_TEST

/* A pack lacks an object that its images need, and is otherwise right. */
START_TEST(needed_objects_must_exist)
{
	struct fdry_pack_report r;
	uint8_t head[FDRY_PACK_HEAD] = FDRY_PACK_MAGIC, image[FDRY_PACK_IMAGE_HEAD] = { 0 },
		o[FDRY_PACK_OBJECT_HEAD + 33] = { 0 };
	uint8_t end[FDRY_PACK_END_SIZE] = FDRY_PACK_END_MAGIC;
	struct fdry_oid id = oid_of("m", 1), leaf = oid_of("leaf", 4);
	struct mem m = { 0 };
	struct fdry_writer *p;

	head[FDRY_PACK_AT_VERSION] = head[FDRY_PACK_AT_IMAGES] = head[FDRY_PACK_AT_OBJECTS] =
		head[FDRY_PACK_AT_BYTES] = 1;
	memcpy(image, &id, sizeof(id));
	memcpy(o, &id, sizeof(id));
	o[FDRY_PACK_OBJECT_AT_KINDS] = 1 << FDRY_OBJECT_MANIFEST;
	o[FDRY_PACK_OBJECT_AT_LINKS] = o[FDRY_PACK_OBJECT_AT_SIZE] = 1;
	memcpy(o + FDRY_PACK_OBJECT_HEAD, &leaf, sizeof(leaf));
	o[sizeof(o) - 1] = 'm';
	ok(fdry_buf_put(&m.b, head, sizeof(head)));
	ok(fdry_buf_put(&m.b, image, sizeof(image)));
	ok(fdry_buf_put(&m.b, o, sizeof(o) - 1));
	id = oid_of(m.b.data, m.b.len);
	m.b.data[FDRY_PACK_HEAD + FDRY_PACK_IMAGE_HEAD + FDRY_PACK_OBJECT_AT_BODY] =
		1; /* which is no part of the id */
	ok(fdry_buf_put(&m.b, "m", 1));
	memcpy(end + FDRY_PACK_END_AT_ID, &id, sizeof(id));
	ok(fdry_buf_put(&m.b, end, sizeof(end)));
	fails(NOENT, "a link", import_mem(to, &m, NULL, &r));
	ok(fdry_writer_begin(to, &p));
	put(p, FDRY_OBJECT_CHUNK, "leaf", 4);
	ok(fdry_writer_finish(p, NULL, 0, NULL, 0, &(struct fdry_writer_stats){ 0 }));
	ok(import_mem(to, &m, NULL, &r));
	check_sound(to);
	fdry_buf_release(&m.b);
}
END_TEST

/* --- refs --- */

START_TEST(names_travel_if_asked)
{
	struct fdry_export_opts no_refs = { .sz = sizeof(no_refs), .flags = FDRY_EXPORT_NO_REFS };
	struct fdry_import_opts nameless = { .sz = sizeof(nameless),
					     .flags = FDRY_IMPORT_NO_REFS };
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_pack_report r;
	struct fdry_oid oid;
	struct mem m = export_to_mem(from, image_names, 1, &no_refs, NULL), by_id;

	by_id = export_to_mem(from, (const char *[]){ fdry_oid_hex(&images[0], hex) }, 1, NULL,
			      NULL);
	check_equal(&m, &by_id);
	fdry_buf_release(&by_id.b);
	ok(import_mem(to, &m, NULL, &r));
	fails(NOENT, "no ref", fdry_ref_get(to, "one", &oid));
	fdry_buf_release(&m.b);
	m = export_to_mem(from, image_names, 2, NULL, NULL);
	ok(import_mem(to, &m, &nameless, &r));
	fails(NOENT, "no ref", fdry_ref_get(to, "one", &oid));
	ok(import_mem(to, &m, NULL, &r));
	ok(fdry_ref_get(to, "one", &oid));
	ck_assert(fdry_oid_eq(&oid, &images[0]));
	fdry_buf_release(&m.b);
}
END_TEST

struct seen {
	unsigned int n, had;
	char was[FDRY_ID_SIZE];
};

static void note_image(void *arg, const char *id, const char *ref, const char *was)
{
	struct seen *seen = arg;

	ck_assert_uint_eq(strlen(id), 64);
	ck_assert_ptr_nonnull(ref);
	seen->n++;
	if (!was)
		return;
	seen->had++;
	snprintf(seen->was, sizeof(seen->was), "%s", was);
	ck_assert_str_eq(ref, "one");
}

START_TEST(a_ref_that_changes_is_reported)
{
	struct mem m = export_to_mem(from, image_names, 2, NULL, NULL);
	struct fdry_oid old = seal_mixed(to, 5, 100, "one");
	struct seen seen = { 0 };
	struct fdry_import_opts opts = { .sz = sizeof(opts), .image = note_image,
					 .image_arg = &seen };
	char hex[FDRY_OID_HEX_SIZE];

	ok(import_mem(to, &m, &opts, NULL));
	ck_assert_uint_eq(seen.n, 2);
	ck_assert_uint_eq(seen.had, 1);
	ck_assert_str_eq(seen.was, fdry_oid_hex(&old, hex));
	fdry_buf_release(&m.b);
}
END_TEST

static void set_meanwhile(void)
{
	if (flow.done > 1000)
		flow.hook = NULL, seal_mixed(to, 6, 100, "one");
}

START_TEST(the_second_writer_gets_an_error)
{
	struct mem m = export_to_mem(from, image_names, 2, NULL, NULL);
	struct fdry_pack_report r;
	struct fdry_oid oid, mine = seal_mixed(from, 6, 100, NULL);

	flow_reset();
	flow.hook = set_meanwhile;
	fails(RACED, "one", import_mem(to, &m, NULL, &r));
	ok(fdry_ref_get(to, "one", &oid));
	ck_assert(fdry_oid_eq(&oid, &mine));
	fails(NOENT, "two/b", fdry_ref_get(to, "two/b", &oid));
	ok(import_mem(to, &m, NULL, &r));
	fdry_buf_release(&m.b);
}
END_TEST

/* --- collections during an import --- */

static unsigned int collected;

/* At each write: remove everything that nothing holds. */
static void collect_at_write(void)
{
	struct fdry_gc_report gc = { .sz = sizeof(gc) };

	if (!flow.done)
		ok(fdry_store_remove(from, "one"));
	ok(fdry_store_gc(from, NULL, &gc));
	collected += (unsigned int)gc.dead;
}

START_TEST(a_collection_leaves_what_is_exported)
{
	struct fdry_gc_report gc = { .sz = sizeof(gc) };
	struct mem m;

	seal_mixed(from, 7, CHUNK, NULL);
	flow.hook = collect_at_write;
	m = export_to_mem(from, image_names, 1, NULL, NULL);
	flow_reset();
	ck_assert_uint_eq(collected, 7); /* of the image that has no name */
	ok(import_mem(to, &m, NULL, NULL));
	check_sound(to);
	ok(fdry_store_gc(from, NULL, &gc));
	ck_assert_uint_eq(gc.dead, 7); /* when the export is over */
	fdry_buf_release(&m.b);
}
END_TEST

static void collect_at_read(void)
{
	struct fdry_gc_report gc = { .sz = sizeof(gc) };

	ok(fdry_store_gc(to, NULL, &gc));
}

START_TEST(a_collection_leaves_what_is_imported)
{
	struct mem m = export_to_mem(from, image_names, 2, NULL, NULL);

	seal_mixed(to, 2, CHUNK, NULL); /* known at the look-up, and held only by the import */
	flow.step = 700;
	flow.hook = collect_at_read;
	ok(import_mem(to, &m, NULL, NULL));
	check_sound(to);
	fdry_buf_release(&m.b);
}
END_TEST

/* --- ends that fail --- */

START_TEST(ends_may_fail_anywhere)
{
	struct mem m = export_to_mem(from, image_names, 1, NULL, NULL), half = { .at = 0 };
	size_t stop;

	for (stop = 0; stop < m.b.len - FDRY_PACK_END_SIZE; stop += 61) {
		half.b.len = 0;
		flow_reset();
		flow.fail = true;
		flow.stop = stop;
		fails(FULL, "cannot write the pack",
		      export_mem(from, image_names, 1, NULL, &half, NULL));
		ck_assert_uint_eq(half.b.len, stop);
		flow.done = 0;
		fails(IO, "cannot read the pack", import_mem(to, &m, NULL, NULL));
		ck_assert_uint_eq(m.at, stop);
	}
	fdry_buf_release(&half.b);
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(wrong_arguments_are_refused)
{
	struct fdry_pack_report r;
	struct mem m = { 0 };
	struct fdry_oid chunk;
	char zero[CHUNK], hex[FDRY_OID_HEX_SIZE];
	const char *wrong = "a//b";

	fails(INVAL, "no image", export_mem(from, image_names, 0, NULL, &m, &r));
	fails(NAME, "not a ref's name", export_mem(from, &wrong, 1, NULL, &m, &r));
	memset(zero, 1, sizeof(zero));
	chunk = oid_of(zero, sizeof(zero));
	wrong = fdry_oid_hex(&chunk, hex);
	fails(INVAL, "not an image", export_mem(from, &wrong, 1, NULL, &m, &r));
	ok(fdry_buf_put(&m.b, zero, sizeof(zero)));
	fails(BADIMAGE, "not a pack", import_mem(to, &m, NULL, &r));
	fdry_buf_release(&m.b);
	m = export_to_mem(from, image_names, 1, NULL, NULL);
	m.b.data[FDRY_PACK_AT_VERSION]++;
	fails(VERSION, "version 2", import_mem(to, &m, NULL, &r));
	m.b.data[FDRY_PACK_AT_VERSION]--;
	m.b.data[FDRY_PACK_AT_INCOMPAT]++;
	fails(VERSION, "features 0x1", import_mem(to, &m, NULL, &r));
	fdry_buf_release(&m.b);
}
END_TEST

/* --- pipes --- */

static void *export_to_pipe(void *arg)
{
	int fd = *(int *)arg;
	int err = fdry_store_export(from, image_names, 2, fd, NULL, NULL);

	close(fd);
	return (void *)(intptr_t)err;
}

START_TEST(a_pipe_is_enough)
{
	pthread_t writer;
	void *err;
	int fds[2];

	signal(SIGPIPE, SIG_IGN);
	ck_assert(!pipe(fds));
	ck_assert(!pthread_create(&writer, NULL, export_to_pipe, &fds[1]));
	ok(fdry_store_import(to, fds[0], NULL, NULL));
	pthread_join(writer, &err);
	ck_assert_ptr_null(err);
	close(fds[0]);
	check_sound(to);
	ck_assert(!pipe(fds));
	close(fds[0]);
	ck_assert_int_eq((intptr_t)export_to_pipe(&fds[1]), -FDRY_E_IO);
}
END_TEST

/* An import does not read bodies of objects that the store has. It still detects a truncated
 * file. */
START_TEST(a_file_is_read_for_what_is_missing)
{
	struct fdry_pack_report written, r;
	struct mem m = export_to_mem(from, image_names, 2, NULL, &written);
	int i;

	flow_reset();
	ok(import_mem(to, &m, NULL, &r));
	ck_assert_uint_eq(flow.done, written.packed);
	flow_reset();
	ok(import_mem(to, &m, NULL, &r));
	ck_assert_uint_eq(r.objects_new, 0);
	ck_assert_uint_eq(r.packed, written.packed);
	ck_assert_str_eq(r.id, written.id);
	ck_assert_uint_lt(flow.done, written.packed / 2);
	ck_assert_uint_eq(m.at, written.packed);
	for (i = 0; i < 2; i++) {
		m.b.len = i ? written.packed / 2 : written.packed - 1;
		fails(BADIMAGE, "cut short", import_mem(to, &m, NULL, &r));
	}
	check_sound(to);
	fdry_buf_release(&m.b);
}
END_TEST

/* More than a window, and one that is larger than it; memory does not grow with the pack. */
START_TEST(long_packs_go_through_a_window)
{
	struct fdry_pack_report r;
	struct fdry_oid links[60], oid;
	uint8_t *data = malloc(80 << 20);
	struct fdry_writer *p;
	struct mem m;
	int i;

	ok(fdry_writer_begin(from, &p));
	memset(data, 0, 80 << 20);
	for (i = 0; i < 60; i++) {
		memcpy(data, &i, sizeof(i));
		links[i] = put(p, FDRY_OBJECT_CHUNK, data, i == 30 ? 80 << 20 : 2 << 20);
	}
	ok(fdry_writer_commit(p, "m", 1, links, 60, "long", &oid, NULL));
	m = export_to_mem(from, (const char *[]){ "long" }, 1, NULL, &r);
	ck_assert_uint_lt(r.packed, 1 << 20);
	ok(import_mem(to, &m, NULL, &r));
	ck_assert_uint_eq(r.objects_new, 61);
	check_sound(to);
	fdry_buf_release(&m.b);
	free(data);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_pack");
	TCase *tc = tcase_create("pack");

	tcase_add_checked_fixture(tc, pack_setup, pack_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, images_travel);
	tcase_add_test(tc, equal_images_give_equal_packs);
	tcase_add_test(tc, identities_travel);
	tcase_add_test(tc, a_plain_pack_means_the_same);
	tcase_add_test(tc, bytes_may_come_one_by_one);
	tcase_add_test(tc, existing_objects_are_skipped);
	tcase_add_test(tc, kinds_of_a_pack_wait_for_its_end);
	tcase_add_test(tc, every_cut_is_found_and_leaves_nothing);
	tcase_add_test(tc, every_flip_is_found);
	tcase_add_test(tc, a_dry_run_writes_nothing);
	tcase_add_test(tc, all_images_are_exported);
	tcase_add_test(tc, nothing_damaged_is_exported);
	tcase_add_test(tc, needed_objects_must_exist);
	tcase_add_test(tc, names_travel_if_asked);
	tcase_add_test(tc, a_ref_that_changes_is_reported);
	tcase_add_test(tc, the_second_writer_gets_an_error);
	tcase_add_test(tc, a_collection_leaves_what_is_exported);
	tcase_add_test(tc, a_collection_leaves_what_is_imported);
	tcase_add_test(tc, ends_may_fail_anywhere);
	tcase_add_test(tc, wrong_arguments_are_refused);
	tcase_add_test(tc, a_pipe_is_enough);
	tcase_add_test(tc, a_file_is_read_for_what_is_missing);
	tcase_add_test(tc, long_packs_go_through_a_window);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
