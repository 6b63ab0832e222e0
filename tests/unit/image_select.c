// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of names with several images: a load selects the image for its GPU and its facts.
 * Every image adds another b to a, so a result identifies the image that was loaded.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "tests/lib/image.h"

/* An image to seal, or a machine and facts to load for, with the expected result. */
struct job {
	const char *cc;   /* compute capability */
	const char *rank; /* a fact; NULL: not stated */
	const char *name;
	float salt;       /* of b */
	int err;          /* the load's result ... */
	const char *says; /* ... and a part of its message */
	char id[FDRY_ID_SIZE];
};

static struct job *shared; /* shared with children: the ids that they sealed */

static void setup(void)
{
	dir_setup();
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
}

static void seal_job(void *arg)
{
	struct job *j = arg;
	struct work w;
	float v[N];

	ok(setenv("FDRY_SIM_CC", j->cc, 1));
	work_make(&w);
	vector_fill(v, j->salt);
	cuda_ok(cuMemcpyHtoD_v2, w.b, v, BYTES);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	if (j->rank)
		ok(fdry_capture_fact(w.cap, "rank", j->rank));
	ok(fdry_capture_seal(w.cap, w.store, j->name ? j->name : "img", j->id, NULL));
	work_end(&w);
}

static void load_job(void *arg)
{
	const struct job *j = arg;
	struct fdry_fact fact = { "rank", j->rank };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .facts = &fact,
				       .nfacts = j->rank != NULL };
	struct fdry_image *img = NULL;
	struct fdry_store *s;
	char id[FDRY_ID_SIZE];
	int err;

	ok(setenv("FDRY_SIM_CC", j->cc, 1));
	s = load_store();
	err = fdry_image_load(s, j->name ? j->name : "img", &opts, &img);
	ck_assert_msg(err == j->err, "%s: %s", fdry_error_name(err), fdry_last_error());
	if (err) {
		ck_assert_msg(strstr(fdry_last_error(), j->says), "it says: %s", fdry_last_error());
		return;
	}
	image_check(img, 1, 3, j->salt);
	if (j->id[0]) {
		fdry_image_id(img, id);
		ck_assert_str_eq(id, j->id);
	}
	fdry_image_unload(img);
}

static void seal_all(const struct job *jobs, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		shared[i] = jobs[i];
		test_child(seal_job, &shared[i]);
	}
}

static void load_all(struct job *jobs, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		test_child(load_job, &jobs[i]);
}

START_TEST(a_load_selects_the_image_for_its_gpu)
{
	static const struct job seals[] = { { .cc = "9.0", .salt = 10 },
					    { .cc = "8.0", .salt = 20 } };
	struct job loads[] = {
		{ .cc = "9.0", .salt = 10 },
		{ .cc = "8.0", .salt = 20 },
		{ .cc = "7.5", .err = -FDRY_E_IDENTITY,
		  .says = "image 'img': none of 2 images was made for this" },
		{ .cc = "7.5", .err = -FDRY_E_IDENTITY,
		  .says = "has fdry.gpu.arch 'sm_90' ('sm_75' here)" },
		{ .cc = "7.5", .err = -FDRY_E_IDENTITY,
		  .says = "has fdry.gpu.arch 'sm_80' ('sm_75' here)" },
	};

	seal_all(seals, 2);
	memcpy(loads[0].id, shared[0].id, FDRY_ID_SIZE);
	memcpy(loads[1].id, shared[1].id, FDRY_ID_SIZE);
	load_all(loads, 5);
}
END_TEST

START_TEST(a_new_seal_replaces_the_image_of_its_gpu)
{
	static const struct job seals[] = {
		{ .cc = "9.0", .salt = 10 },
		{ .cc = "8.0", .salt = 20 },
		{ .cc = "9.0", .salt = 30 },
	};
	struct job loads[] = { { .cc = "9.0", .salt = 30 }, { .cc = "8.0", .salt = 20 } };
	struct fdry_ref *refs;
	size_t count;

	seal_all(seals, 3);
	load_all(loads, 2);
	ok(fdry_ref_list(load_store(), "img", &refs, &count));
	ck_assert_uint_eq(count, 2);
	free(refs);
}
END_TEST

/* If the loader's facts fit several images, the load chooses the one that was sealed last. */
START_TEST(facts_decide_and_then_the_newest)
{
	static const struct job seals[] = {
		{ .cc = "9.0", .rank = "0", .salt = 10 }, { .cc = "9.0", .rank = "1", .salt = 20 },
		{ .cc = "8.0", .rank = "1", .salt = 30 },
	};
	struct job loads[] = {
		{ .cc = "9.0", .rank = "0", .salt = 10 },
		{ .cc = "9.0", .rank = "1", .salt = 20 },
		{ .cc = "8.0", .rank = "1", .salt = 30 },
		{ .cc = "9.0", .salt = 20 },
		{ .cc = "8.0", .salt = 30 },
		/* the facts leave one image, so the message is that of a single image */
		{ .cc = "8.0", .rank = "0", .err = -FDRY_E_IDENTITY,
		  .says = "another GPU architecture: sm_90 there, sm_80 here" },
		{ .cc = "9.0", .rank = "2", .err = -FDRY_E_IDENTITY,
		  .says = "has rank '0' ('2' here)" },
	};

	seal_all(seals, 3);
	load_all(loads, 7);
}
END_TEST

/* If facts alone exclude all images, no driver is used: the caller may still fork. */
START_TEST(facts_are_compared_without_a_driver)
{
	static const struct job seals[] = {
		{ .cc = "9.0", .rank = "0", .salt = 10 }, { .cc = "9.0", .rank = "1", .salt = 20 },
	};
	struct fdry_fact fact = { "rank", "2" };
	struct fdry_load_opts opts = {
		.sz = sizeof(opts), .facts = &fact, .nfacts = 1, .driver = "/nowhere/libcuda.so.1"
	};
	struct fdry_requirements *needs = NULL;
	struct fdry_image *img;

	seal_all(seals, 2);
	fails(IDENTITY, "none of 2", fdry_image_load(load_store(), "img", &opts, &img));
	fails(IDENTITY, "none of 2", fdry_image_requirements(load_store(), "img", &opts, &needs));
	fact.value = "1";
	fails(NODRIVER, "", fdry_image_load(load_store(), "img", &opts, &img));
	ok(fdry_image_requirements(load_store(), "img", &opts, &needs));
	free(needs);
	opts.nfacts = 0; /* two remain, and only the device can decide */
	fails(NODRIVER, "", fdry_image_load(load_store(), "img", &opts, &img));
}
END_TEST

static void damage(struct fdry_store *s, const char *id)
{
	struct fdry_txn t;
	struct fdry_oid oid;

	ok(fdry_oid_parse(id, &oid));
	ok(fdry_txn_write(s->env->db, 4096, &t));
	ok(fdry_txn_delete(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&oid)));
	ok(fdry_txn_commit(&t));
}

/* A broken image of another identity does not prevent a load. */
START_TEST(a_broken_image_is_passed_over)
{
	static const struct job seals[] = { { .cc = "9.0", .salt = 10 },
					    { .cc = "8.0", .salt = 20 } };
	struct job fits = { .cc = "9.0", .salt = 10 };
	struct job other = { .cc = "8.0", .err = -FDRY_E_NOENT, .says = "cannot be read" };
	struct fdry_store *s;

	seal_all(seals, 2);
	ok(fdry_store_open(path, 0, &s));
	damage(s, shared[1].id);
	fdry_store_close(s);
	test_child(load_job, &fits);
	test_child(load_job, &other);
}
END_TEST

/* Of two damaged images, a source has one, which is the one that is loaded. */
START_TEST(one_of_the_damaged_images_comes_back)
{
	static const struct job seals[] = { { .cc = "9.0", .salt = 10 },
					    { .cc = "8.0", .salt = 20 } };
	struct job loads[] = { { .cc = "9.0", .salt = 10 },
			       { .cc = "8.0", .salt = 20, .err = -FDRY_E_CORRUPT,
				 .says = "see foundry-store verify" } };
	char pack[sizeof(dir) + 20];
	const char *one = shared[0].id;
	struct fdry_store *s;
	struct fdry_oid oid;
	int fd, i;

	seal_all(seals, 2);
	snprintf(pack, sizeof(pack), "%s/pack", dir);
	fd = open(pack, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ok(fdry_store_open(path, 0, &s));
	ok(fdry_store_export(s, &one, 1, fd, NULL, NULL));
	ck_assert(!close(fd) && !setenv("FOUNDRY_REPAIR", pack, 1));
	for (i = 0; i < 2; i++) {
		ok(fdry_oid_parse(shared[i].id, &oid));
		spoil_data(s, &oid);
	}
	fdry_store_close(s);
	load_all(loads, 2);
}
END_TEST

START_TEST(tagging_keeps_identities)
{
	static const struct job seals[] = {
		{ .cc = "9.0", .salt = 10 },
		{ .cc = "8.0", .salt = 20 },
		{ .cc = "9.0", .name = "new", .salt = 30 },
	};
	struct job loads[] = {
		{ .cc = "9.0", .name = "copy", .salt = 30 },
		{ .cc = "8.0", .name = "copy", .salt = 20 },
		{ .cc = "9.0", .name = "one", .salt = 10 },
		{ .cc = "8.0", .name = "one", .err = -FDRY_E_IDENTITY, .says = "sm_90 there" },
	};
	struct fdry_store *s;
	char sel[FDRY_ID_SIZE + 8];

	seal_all(seals, 3);
	ok(fdry_store_open(path, 0, &s));
	ok(fdry_image_tag(s, "img", "copy"));       /* both of them ... */
	ok(fdry_image_tag(s, "new", "copy"));       /* ... and in place of one another */
	snprintf(sel, sizeof(sel), "img:%.10s", shared[0].id);
	ok(fdry_image_tag(s, sel, "one"));
	fails(NOENT, "no ref", fdry_image_tag(s, "nobody", "x"));
	fails(NAME, "'a b'", fdry_image_tag(s, "img", "a b"));
	fails(INVAL, "NULL", fdry_image_tag(s, NULL, "x"));
	fdry_store_close(s);
	load_all(loads, 4);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image_select");
	TCase *tc = tcase_create("pick");

	tcase_add_checked_fixture(tc, setup, dir_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_load_selects_the_image_for_its_gpu);
	tcase_add_test(tc, a_new_seal_replaces_the_image_of_its_gpu);
	tcase_add_test(tc, facts_decide_and_then_the_newest);
	tcase_add_test(tc, facts_are_compared_without_a_driver);
	tcase_add_test(tc, a_broken_image_is_passed_over);
	tcase_add_test(tc, one_of_the_damaged_images_comes_back);
	tcase_add_test(tc, tagging_keeps_identities);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
