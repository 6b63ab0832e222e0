// SPDX-License-Identifier: Apache-2.0
/* Unit tests of limits: notes of the last use, reports of dry runs, which refs eviction removes and
 * keeps, and its cost for a seal. */
#include <sys/mman.h>

#include "store/step.h"
#include "tests/lib/store_fixture.h"

#define CHUNK 100000u

static bool there(const char *name)
{
	struct fdry_oid oid;
	int err = fdry_ref_get(s, name, &oid);

	ck_assert(!err || err == -FDRY_E_NOENT);
	return !err;
}

static uint64_t in_use(void)
{
	uint64_t used;

	ok(fdry_store_limit(s, NULL, &used));
	return used;
}

/* Record a use of the image, as a load does. */
static void load(const char *name)
{
	struct fdry_oid oid;
	struct fdry_reader *g;

	ok(fdry_reader_begin(s, &g));
	ok(fdry_reader_resolve(g, name, &oid));
	fdry_reader_note_use(g, &oid);
	fdry_reader_end(g);
}

static void note_evicted(void *arg, const char *ref, const char *id, uint64_t used)
{
	(void)id, (void)used;
	ok(fdry_buf_printf(arg, "%s ", ref));
}

/* Evict to @limit (0: the store's own), and check that exactly the names @want are evicted, in that
 * order. */
static struct fdry_evict_report evict(uint64_t limit, bool dry_run, const char *want)
{
	struct fdry_buf names = { 0 };
	struct fdry_evict_opts o = { .sz = sizeof(o), .bytes = limit, .evicted = note_evicted,
				     .evicted_arg = &names };
	struct fdry_evict_report r = { .sz = sizeof(r) };

	o.flags = dry_run ? FDRY_EVICT_DRY_RUN : 0;
	ok(fdry_store_evict(s, &o, &r));
	ck_assert_str_eq(names.data ? (char *)names.data : "", want);
	fdry_buf_release(&names);
	return r;
}

START_TEST(a_limit_is_kept)
{
	uint64_t limit = 1, used = 0;

	ok(fdry_store_limit(s, &limit, &used));
	ck_assert_uint_eq(limit, 0);
	ck_assert_uint_gt(used, 0);
	ok(fdry_store_set_limit(s, 12345678901ull));
	fdry_store_close(s);
	ok(fdry_store_open(path, FDRY_STORE_READONLY, &s));
	ok(fdry_store_limit(s, &limit, NULL));
	ck_assert_uint_eq(limit, 12345678901ull);
	fails(PERM, "reading only", fdry_store_set_limit(s, 0));
	fdry_store_close(s);
	s = store_make();
	ok(fdry_store_set_limit(s, 0));
	ok(fdry_store_limit(s, &limit, NULL));
	ck_assert_uint_eq(limit, 0);
}
END_TEST

START_TEST(the_image_used_longest_ago_is_evicted_first)
{
	struct fdry_evict_report r;
	uint64_t one, all;

	seal(s, 1, 1, CHUNK, "a");
	one = in_use();
	seal(s, 2, 1, CHUNK, "b");
	seal(s, 3, 1, CHUNK, "c");
	all = in_use();
	load("a"); /* b, c, a */
	evict(all, true, "");
	r = evict(all - 1, true, "b ");
	ck_assert(there("b")); /* it was a dry run */
	ck_assert_uint_eq(r.images, 1);
	ck_assert_uint_le(r.after, all - CHUNK / 2);
	evict(one + CHUNK / 2, true, "b c ");
	r = evict(all - 1, false, "b ");
	ck_assert(r.collected);
	ck_assert(!there("b") && there("a") && there("c"));
	ck_assert_uint_eq(r.before, all);
	ck_assert_uint_eq(r.after, in_use());
	ck_assert_uint_le(r.after, all - CHUNK);
	load("c"); /* a, c */
	evict(r.after - 1, false, "a ");
	evict(1, false, "c ");
	check_sound(s);
}
END_TEST

START_TEST(pinned_and_kept_stay)
{
	struct fdry_evict_opts o = { .sz = sizeof(o), .bytes = 1 };
	struct fdry_evict_bounds bounds = { .nkeep = 1 };
	struct fdry_evict_report r;
	struct fdry_oid kept;

	seal(s, 1, 1, CHUNK, "pinned");
	kept = seal(s, 2, 1, CHUNK, "kept");
	seal(s, 3, 1, CHUNK, "goes");
	ok(fdry_store_pin(s, "pinned"));
	bounds.keep = &kept;
	ok(fdry_evict(s, &o, &bounds, &r));
	ck_assert_uint_eq(r.images, 1);
	ck_assert(there("pinned") && there("kept") && !there("goes"));
	ck_assert_uint_gt(r.after, 2 * CHUNK);
	ok(fdry_store_unpin(s, "pinned"));
	evict(1, false, "pinned kept ");
}
END_TEST

/* Shared bytes count once, and an image whose eviction frees nothing is not evicted. */
START_TEST(shared_bytes_count_once)
{
	struct fdry_oid oid;
	uint64_t all;

	seal(s, 1, 4, CHUNK, "base");
	seal(s, 1, 5, CHUNK, "more"); /* one chunk of its own */
	oid = seal(s, 50, 1, CHUNK, "else");
	ok(fdry_ref_set(s, "alias", &oid, NULL));
	all = in_use();
	load("base");
	load("else"); /* more, base, else: base's chunks are more's too */
	evict(all - CHUNK / 2, false, "more ");
	ck_assert_uint_gt(in_use(), 5 * CHUNK);
	evict(3 * CHUNK, false, "base ");
	ck_assert(there("alias") && there("else"));
	check_sound(s);
}
END_TEST

/* After the first image that does not fit, no older image is kept because it is small ... */
START_TEST(images_older_than_an_evicted_one_are_evicted)
{
	struct fdry_evict_report r;
	uint64_t one;

	seal(s, 1, 1, CHUNK, "small");
	one = in_use();
	seal(s, 2, 6, CHUNK, "large");
	seal(s, 10, 1, CHUNK, "latest");
	r = evict(one + 3 * CHUNK, true, "small large "); /* small would fit beside the latest */
	ck_assert_uint_lt(r.after, one + CHUNK);
}
END_TEST

/* ... but one is kept if it adds nothing to the images that stay. */
START_TEST(an_image_that_adds_nothing_stays)
{
	struct fdry_oid oid = seal(s, 1, 1, CHUNK, "pinned");

	ok(fdry_store_pin(s, "pinned"));
	ok(fdry_ref_set(s, "alias", &oid, NULL));
	seal(s, 2, 1, CHUNK, "goes");
	evict(1, false, "goes ");
	ck_assert(there("pinned") && there("alias"));
}
END_TEST

/* Pages in use may be smaller than a plan's sum of bytes: the plan must become smaller by the
 * requested bytes, independent of the pages. */
START_TEST(room_is_made_where_everything_fits)
{
	struct fdry_evict_opts o = { .sz = sizeof(o) };
	struct fdry_evict_bounds bounds = { .free = 1 };
	struct fdry_evict_report r;

	seal(s, 1, 1, CHUNK, "oldest");
	seal(s, 2, 1, CHUNK, "latest");
	ok(fdry_evict(s, &o, &bounds, &r));
	ck_assert_uint_le(r.before, r.limit);
	ck_assert_uint_eq(r.images, 1);
	ck_assert(r.collected);
	ck_assert_uint_lt(r.after, r.before - CHUNK);
	ck_assert(!there("oldest") && there("latest"));
}
END_TEST

static void hold(struct fdry_idset *held, uint64_t seed)
{
	static uint8_t data[CHUNK];
	struct fdry_oid oid;

	noise(seed, data, sizeof(data));
	oid = oid_of(data, sizeof(data));
	ok(fdry_idset_add(held, &oid, NULL));
}

/* Return the images whose eviction would make space for half a chunk. */
static struct fdry_evict_report evict_for_half(const struct fdry_idset *held)
{
	struct fdry_evict_opts o = { .sz = sizeof(o), .flags = FDRY_EVICT_DRY_RUN };
	struct fdry_evict_bounds bounds = { .free = CHUNK / 2, .held = held };
	struct fdry_evict_report r;

	ok(fdry_evict(s, &o, &bounds, &r));
	ck_assert_uint_le(r.after, r.limit);
	return r;
}

/* Objects that a session put change nothing. Evicting an image whose objects the session found
 * frees no space: another is evicted, too. */
START_TEST(objects_of_sessions_count_and_stay)
{
	struct fdry_idset held = { 0 };
	struct fdry_evict_report r;
	static uint8_t data[CHUNK];
	struct fdry_writer *p;

	seal(s, 1, 1, CHUNK, "a");
	seal(s, 2, 1, CHUNK, "b");
	seal(s, 3, 1, CHUNK, "c");
	ok(fdry_writer_begin(s, &p));
	noise(50, data, sizeof(data));
	put(p, FDRY_OBJECT_CHUNK, data, sizeof(data));
	ok(fdry_writer_flush(p));
	ck_assert_uint_eq(evict_for_half(&held).images, 1);
	hold(&held, 50);
	ck_assert_uint_eq(evict_for_half(&held).images, 1);
	hold(&held, 1);
	r = evict_for_half(&held);
	ck_assert_uint_eq(r.images, 2);
	ck_assert_uint_gt(r.after, 3 * CHUNK);
	fdry_writer_abort(p);
	fdry_idset_release(&held);
}
END_TEST

START_TEST(garbage_is_collected_before_anything_else)
{
	struct fdry_evict_report r;
	uint64_t all;

	seal(s, 1, 1, CHUNK, "a");
	seal(s, 2, 5, CHUNK, "gone");
	ok(fdry_store_remove(s, "gone"));
	all = in_use();
	r = evict(all - 1, false, "");
	ck_assert_uint_eq(r.objects, 6);
	ck_assert_uint_lt(in_use(), all - 5 * CHUNK);
	ck_assert(there("a"));
	fails(STATE, "no limit", fdry_store_evict(s, NULL, NULL));
}
END_TEST

/* If a collection would refuse, an eviction would free no space. */
START_TEST(nothing_is_evicted_that_cannot_be_collected)
{
	struct fdry_evict_opts o = { .sz = sizeof(o), .bytes = 2 * CHUNK };
	static uint8_t data[CHUNK];
	struct fdry_oid oid;
	struct fdry_txn t;

	seal(s, 1, 1, CHUNK, "a");
	seal(s, 2, 1, CHUNK, "b");
	seal(s, 3, 1, CHUNK, "c");
	noise(3, data, sizeof(data));
	oid = oid_of(data, sizeof(data));
	ok(fdry_txn_write(s->env->db, 0, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&oid)));
	ok(fdry_txn_commit(&t));
	fails(CORRUPT, "nothing more is collected", fdry_store_evict(s, &o, NULL));
	o.flags = FDRY_EVICT_DRY_RUN;
	fails(CORRUPT, "nothing more is collected", fdry_store_evict(s, &o, NULL));
	ok(fdry_store_set_limit(s, 2 * CHUNK));
	seal(s, 4, 1, CHUNK, "d");
	ck_assert(there("a") && there("b") && there("c") && there("d"));
	ok(fdry_store_remove(s, "c"));
	evict(0, false, "a b ");
}
END_TEST

/* The third seal passes the limit. The image that was just sealed is never evicted. */
START_TEST(a_seal_evicts_at_its_end)
{
	uint64_t one;

	seal(s, 1, 1, CHUNK, "a");
	one = in_use();
	ok(fdry_store_set_limit(s, one + CHUNK * 3 / 2));
	seal(s, 2, 1, CHUNK, "b");
	ck_assert(there("a") && there("b"));
	load("a");
	seal(s, 3, 1, CHUNK, "c");
	ck_assert(there("a") && !there("b") && there("c"));
	ck_assert_uint_le(in_use(), one + CHUNK * 3 / 2);
	ok(fdry_store_set_limit(s, CHUNK + CHUNK / 2));
	seal(s, 4, 1, CHUNK, "d");
	ck_assert(!there("a") && !there("c") && there("d"));
	ok(fdry_store_pin(s, "d"));
	seal(s, 5, 1, CHUNK, "e"); /* over the limit, and nothing may be evicted */
	ck_assert(there("d") && there("e"));
	check_sound(s);
}
END_TEST

/* An image that the store can never hold evicts no other image. */
START_TEST(an_image_larger_than_the_limit_fails)
{
	struct fdry_oid oid, other = seal(s, 1, 1, CHUNK, "a");
	static uint8_t data[8u << 20];
	struct fdry_writer *p;
	size_t i;
	int err = 0;

	ok(fdry_store_set_limit(s, 48u << 20));
	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < 16 && !err; i++) {
		noise(i, data, sizeof(data));
		err = fdry_writer_add_object(p, FDRY_OBJECT_CHUNK, data, sizeof(data), NULL, 0,
					     &oid);
	}
	fails(FULL, "this write alone takes more", err);
	fdry_writer_abort(p);
	ck_assert(there("a"));
	ok(fdry_store_set_limit(s, CHUNK));
	ok(fdry_writer_begin(s, &p));
	noise(77, data, 2 * CHUNK);
	oid = put(p, FDRY_OBJECT_CHUNK, data, 2 * CHUNK);
	fails(FULL, "alone takes more", fdry_writer_commit(p, "m", 1, &oid, 1, "b", &oid, NULL));
	ck_assert(there("a") && !there("b"));
	ok(fdry_ref_get(s, "a", &oid));
	ck_assert(fdry_oid_eq(&oid, &other));
	check_sound(s);
}
END_TEST

/* --- the file used --- */

static void used_path(char to[320])
{
	snprintf(to, 320, "%s/used", path);
}

static const char shortened[] = "sum 1 700 0 0 0 0 0\n";
static ino_t shortened_ino;

/* Another process shortens the file just before this one locks it. */
static void used_replace(enum fdry_step step)
{
	char name[320], temp[330];
	struct stat st;
	FILE *f;

	if (step != FDRY_STEP_SHORTEN)
		return;
	used_path(name);
	snprintf(temp, sizeof(temp), "%s.other", name);
	f = fopen(temp, "w");
	ck_assert(f && fputs(shortened, f) >= 0 && !fclose(f));
	ck_assert(!rename(temp, name) && !stat(name, &st));
	shortened_ino = st.st_ino;
}

/* A process that has the old file locks out nobody, so it must leave the new one alone. */
START_TEST(a_file_that_was_replaced_is_not_shortened_again)
{
	struct fdry_load_stats stats;
	struct fdry_buf text = { 0 }, all = { 0 };
	struct stat before, after;
	char name[320], line[80];
	FILE *f;
	int i;

	used_path(name);
	f = fopen(name, "w");
	ck_assert_ptr_nonnull(f);
	for (i = 0; i < 20000; i++)
		fprintf(f, "%064x %010d\n", i % 7, i);
	ck_assert(!fclose(f));
	ck_assert(!stat(name, &before));
	ck_assert_int_gt(before.st_size, 1 << 20);
	fdry_step_hook = used_replace;
	snprintf(line, sizeof(line), "%064x %010d\n", 1, 1);
	ck_assert_int_eq(fdry_atime_append(s->env, line), 0);
	fdry_step_hook = NULL;
	ck_assert(!stat(name, &after));
	ck_assert_uint_eq(after.st_ino, shortened_ino);
	ok(fdry_atime_text(s->env, &text));
	ck_assert(text.len == sizeof(shortened) - 1 && !memcmp(text.data, shortened, text.len));
	ok(fdry_atime_parse(&text, &all));
	fdry_load_stats_sum(&text, &all, &stats);
	ck_assert_uint_eq(stats.hits, 700);
	/* The next process finds the new file, which it may shorten. */
	ck_assert_int_eq(fdry_atime_append(s->env, line), 0);
	fdry_buf_release(&text);
	fdry_buf_release(&all);
}
END_TEST

START_TEST(bad_lines_do_not_count)
{
	struct fdry_oid a = seal(s, 1, 1, 10, "a"), b = seal(s, 2, 1, 10, "b");
	static const char *const bad[] = {
		"\n",
		"x\n",
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeX 0000000001\n",
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef 00000000x1\n",
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef-0000000001\n",
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef 00000000011\n",
		"0123456789abcdef", /* incomplete, and it spoils the next one */
	};
	const struct fdry_atime *ua, *ub;
	struct fdry_buf all = { 0 };
	char name[320];
	size_t i;
	FILE *f;

	used_path(name);
	f = fopen(name, "a");
	ck_assert_ptr_nonnull(f);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		fputs(bad[i], f);
	fclose(f);
	load("b"); /* the incomplete line also removes this one */
	load("a");
	ok(fdry_atime_read(s->env, &all));
	ck_assert_uint_eq(all.len, 2 * sizeof(struct fdry_atime));
	ua = fdry_atime_find(&all, &a);
	ub = fdry_atime_find(&all, &b);
	ck_assert(ua && ub);
	ck_assert_uint_gt(ua->order, ub->order);
	ck_assert_uint_ge(ua->time, 1);
	a = oid_of("nobody", 6);
	ck_assert_ptr_null(fdry_atime_find(&all, &a));
	fdry_buf_release(&all);
}
END_TEST

START_TEST(the_file_does_not_grow_for_ever)
{
	struct fdry_oid a = seal(s, 1, 1, 10, "a"), b = seal(s, 2, 1, 10, "b"), many;
	struct fdry_buf all = { 0 };
	char name[320];
	struct stat st;
	unsigned int i;
	off_t largest = 0;

	used_path(name);
	for (i = 0; i < 40000; i++) {
		many = i % 3 ? a : oid_of(&i, sizeof(i));
		fdry_atime_note(s->env, &many);
		ck_assert(!stat(name, &st));
		largest = st.st_size > largest ? st.st_size : largest;
	}
	fdry_atime_note(s->env, &b);
	ck_assert_int_lt(largest, (1 << 20) + 200);
	ok(fdry_atime_read(s->env, &all));
	ck_assert_uint_gt(all.len / sizeof(struct fdry_atime),
			  4000); /* of the latest ids most are still there */
	ck_assert_uint_gt(fdry_atime_find(&all, &b)->order, fdry_atime_find(&all, &a)->order);
	i = 39999;
	many = oid_of(&i, sizeof(i));
	ck_assert_ptr_nonnull(fdry_atime_find(&all, &many));
	fdry_buf_release(&all);
}
END_TEST

/* Many processes append one line each time: every line is whole. */
START_TEST(processes_note_at_once)
{
	struct fdry_buf all = { 0 };
	struct fdry_oid oid;
	unsigned int i, k;
	int status;
	pid_t pid;

	for (k = 0; k < 4; k++) {
		pid = fork();
		if (pid)
			continue;
		ok(fdry_store_open(path, FDRY_STORE_READONLY, &s));
		for (i = 0; i < 500; i++) {
			uint32_t nr = k << 16 | i;

			oid = oid_of(&nr, sizeof(nr));
			fdry_atime_note(s->env, &oid);
		}
		_exit(0);
	}
	while (wait(&status) > 0)
		ck_assert_int_eq(status, 0);
	ok(fdry_atime_read(s->env, &all));
	ck_assert_uint_eq(all.len / sizeof(struct fdry_atime), 2000);
	fdry_buf_release(&all);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_evict");
	TCase *tc = tcase_create("evict");

	tcase_add_checked_fixture(tc, store_setup, store_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_limit_is_kept);
	tcase_add_test(tc, the_image_used_longest_ago_is_evicted_first);
	tcase_add_test(tc, pinned_and_kept_stay);
	tcase_add_test(tc, shared_bytes_count_once);
	tcase_add_test(tc, images_older_than_an_evicted_one_are_evicted);
	tcase_add_test(tc, an_image_that_adds_nothing_stays);
	tcase_add_test(tc, room_is_made_where_everything_fits);
	tcase_add_test(tc, objects_of_sessions_count_and_stay);
	tcase_add_test(tc, garbage_is_collected_before_anything_else);
	tcase_add_test(tc, nothing_is_evicted_that_cannot_be_collected);
	tcase_add_test(tc, a_seal_evicts_at_its_end);
	tcase_add_test(tc, an_image_larger_than_the_limit_fails);
	tcase_add_test(tc, a_file_that_was_replaced_is_not_shortened_again);
	tcase_add_test(tc, bad_lines_do_not_count);
	tcase_add_test(tc, the_file_does_not_grow_for_ever);
	tcase_add_test(tc, processes_note_at_once);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
