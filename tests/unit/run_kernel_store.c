// SPDX-License-Identifier: Apache-2.0
/* Unit tests of compiled code in a store: other processes, collections, damage, stores that cannot
 * be written. */
#include "tests/lib/kernels.h"
#include "tests/lib/test.h"

/* --- in the store --- */

/* In one process, get vecadd from PTX and from source, and check the counters. */
static void use_store(uint64_t ptx_compilations, uint64_t source_compilations, uint64_t store_hits)
{
	struct fdry_kernels_source p = ptx_source(), s = cuda_source();
	struct fdry_store *store = store_make();
	struct fdry_kernels *k = kernels_open(store);
	struct fdry_kernels_stats st;
	CUfunction f = NULL;

	ok(fdry_kernels_function(k, &p, "vecadd", &f));
	vecadd_check(k, f);
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	vecadd_check(k, f);
	st = stats_of(k);
	ck_assert_uint_eq(st.ptx_compilations, ptx_compilations);
	ck_assert_uint_eq(st.source_compilations, source_compilations);
	ck_assert_uint_eq(st.store_hits, store_hits);
	ck_assert_uint_eq(st.store_saves, ptx_compilations + source_compilations);
	ck_assert_uint_eq(st.store_damaged + st.store_errors, 0);
	fdry_kernels_free(k);
	fdry_store_close(store);
}

static void compiles(void)
{
	use_store(1, 1, 0);
}

static void finds(void)
{
	use_store(0, 0, 2);
}

START_TEST(another_process_does_not_compile)
{
	in_child(compiles);
	in_child(finds);
	in_child(finds);
}
END_TEST

static void collect(void)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s = store_make();

	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_uint_eq(r.dead, 0);
	fdry_store_close(s);
}

static void forget(void)
{
	struct fdry_gc_report r = { .sz = sizeof(r) };
	struct fdry_store *s = store_make();
	struct fdry_ref *refs;
	struct fdry_oid id;
	char name[300], hex[FDRY_OID_HEX_SIZE];
	size_t n;

	id = oid_of(ptx, ptx_len); /* kernels/CONTENT */
	snprintf(name, sizeof(name), "kernels/%s", fdry_oid_hex(&id, hex));
	ok(fdry_ref_list(s, name, &refs, &n));
	ck_assert_uint_eq(n, 1);
	free(refs);
	ok(fdry_store_remove(s, name));
	ok(fdry_store_gc(s, NULL, &r));
	ck_assert_uint_eq(r.dead, 1); /* the manifest: its object is the source's, too */
	fdry_store_close(s);
}

static void compiles_ptx_again(void)
{
	use_store(1, 0, 1);
}

START_TEST(a_collection_keeps_what_refs_name)
{
	in_child(compiles);
	in_child(collect);
	in_child(finds);
	in_child(forget);
	in_child(compiles_ptx_again);
	in_child(finds);
}
END_TEST

static void other_nvrtc(void)
{
	ck_assert(!setenv("FAKE_NVRTC_MINOR", "1", 1));
	use_store(0, 1, 1);
}

static void other_driver(void)
{
	ck_assert(!setenv("FDRY_SIM_DRIVER_VERSION", "12080", 1));
	use_store(1, 1, 0);
}

START_TEST(another_compiler_is_another_key)
{
	in_child(compiles);
	in_child(other_nvrtc);
	in_child(other_driver);
	in_child(finds); /* both stay under the name */
}
END_TEST

/* The object of both is the cubin: other bytes under its id. */
static void damage(void)
{
	struct fdry_store *s = store_make();
	struct fdry_oid id = oid_of(cubin, cubin_len);
	struct fdry_object_info info;
	uint8_t *noise_of;
	struct fdry_txn t;

	ok(fdry_store_info(s, &id, &info));
	noise_of = malloc(info.stored);
	noise(7, noise_of, info.stored);
	ok(fdry_txn_write(s->env->db, info.stored, &t));
	ok(fdry_txn_put(&t, FDRY_TABLE_DATA, fdry_oid_span(&id),
			(struct fdry_span){ noise_of, info.stored }));
	ok(fdry_txn_commit(&t));
	free(noise_of);
	fdry_store_close(s);
}

/* The code is compiled again and replaced: damaged code is never loaded. */
static void mends(void)
{
	struct fdry_kernels_source p = ptx_source();
	struct fdry_store *store = store_make();
	struct fdry_kernels *k = kernels_open(store);
	CUfunction f = NULL;

	ok(fdry_kernels_function(k, &p, "vecadd", &f));
	vecadd_check(k, f);
	ck_assert_uint_eq(stats_of(k).ptx_compilations, 1);
	ck_assert_uint_eq(stats_of(k).store_damaged, 1);
	ck_assert_uint_eq(stats_of(k).store_saves, 1);
	fdry_kernels_free(k);
	fdry_store_close(store);
}

START_TEST(damage_is_compiled_anew)
{
	in_child(compiles);
	in_child(damage);
	in_child(mends);
	in_child(finds);
}
END_TEST

/* Store an image with the key's identity whose code no driver accepts. */
static void usurp(void)
{
	struct fdry_store *s = store_make();
	struct fdry_ref *refs;
	struct fdry_oid id = oid_of(ptx, ptx_len), other;
	char name[300], hex[FDRY_OID_HEX_SIZE];
	struct fdry_writer *p;
	size_t n;

	snprintf(name, sizeof(name), "kernels/%s", fdry_oid_hex(&id, hex));
	ok(fdry_ref_list(s, name, &refs, &n));
	ck_assert_uint_eq(n, 1);
	ok(fdry_writer_begin(s, &p));
	fdry_writer_set_identity(p, &refs[0].identity);
	ok(fdry_writer_commit(p, "no manifest", 11, NULL, 0, name, &other, NULL));
	free(refs);
	fdry_store_close(s);
}

static void name_of(const void *data, size_t len, char name[300])
{
	struct fdry_oid id = oid_of(data, len);
	char hex[FDRY_OID_HEX_SIZE];

	snprintf(name, 300, "kernels/%s", fdry_oid_hex(&id, hex));
}

/* Store the code compiled from source under the name and identity of the PTX. */
static void swap(void)
{
	struct fdry_store *s = store_make();
	struct fdry_ref *of_ptx, *of_source;
	char name[300], other[300];
	size_t n;

	name_of(ptx, ptx_len, name);
	name_of(cuda_text, strlen(cuda_text), other);
	ok(fdry_ref_list(s, name, &of_ptx, &n));
	ok(fdry_ref_list(s, other, &of_source, &n));
	ok(fdry_ref_set(s, name, &of_source->oid, &of_ptx->identity));
	free(of_ptx);
	free(of_source);
	fdry_store_close(s);
}

START_TEST(an_image_of_another_key_is_not_believed)
{
	in_child(compiles);
	in_child(swap);
	in_child(mends);
	in_child(finds);
}
END_TEST

START_TEST(another_image_under_the_ref_is_not_believed)
{
	in_child(compiles);
	in_child(usurp);
	in_child(mends);
	in_child(finds);
}
END_TEST

static void readonly(void)
{
	struct fdry_kernels_source p = ptx_source(), s = cuda_source();
	struct fdry_store *store;
	struct fdry_kernels *k;
	CUfunction f = NULL;

	ok(fdry_store_open(path, FDRY_STORE_READONLY, &store));
	k = kernels_open(store);
	ok(fdry_kernels_function(k, &p, "vecadd", &f));
	s.version = "never seen";
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	vecadd_check(k, f);
	ck_assert_uint_eq(stats_of(k).store_hits, 1);
	ck_assert_uint_eq(stats_of(k).source_compilations, 1);
	ck_assert_uint_eq(stats_of(k).store_saves, 0);
	ck_assert_uint_eq(stats_of(k).store_errors, 1);
	fdry_kernels_free(k);
	fdry_store_close(store);
}

START_TEST(a_store_that_cannot_be_written_is_read)
{
	in_child(compiles);
	in_child(readonly);
}
END_TEST

static void with_includes(void)
{
	static const char *const texts[] = {
		"#include \"mine.h\"\n#pragma object kernels\n",
		"#inc\\\nlude \"mine.h\"\n#pragma object kernels\n", /* over the ends of lines */
		"#i\\\r\nnclud\\ \t\ne \"mine.h\"\n#pragma object kernels\n",
		"const char *at = __FILE__;\n#pragma object kernels\n",
		"const char *on = __DATE__ __TIME__;\n#pragma object kernels\n"
	};
	struct fdry_store *store = store_make();
	struct fdry_kernels *k = kernels_open(store);
	struct fdry_kernels_source s;
	CUfunction f = NULL;
	int i;

	for (i = 0; i < 5; i++) {
		s = code_of(texts[i], strlen(texts[i]));
		s.form = FDRY_KERNELS_SOURCE;
		ok(fdry_kernels_function(k, &s, "vecadd", &f));
		ck_assert_uint_eq(stats_of(k).store_saves + stats_of(k).store_misses, 0);
	}
	s.version = "mine.h as of today";
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	ck_assert_uint_eq(stats_of(k).store_saves, 1);
	fdry_kernels_free(k);
	fdry_store_close(store);
}

START_TEST(source_that_includes_is_saved_with_a_version_alone)
{
	in_child(with_includes);
}
END_TEST

/* Many processes at once, of which one compiles. */
START_TEST(processes_at_once_compile_once)
{
	char log[400];
	struct stat st;
	pid_t pids[6];
	int i, status;

	snprintf(log, sizeof(log), "%s/compilations", dir);
	ck_assert(!setenv("FAKE_NVRTC_LOG", log, 1));
	fdry_store_close(store_make());
	for (i = 0; i < 6; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			struct fdry_kernels_source s = cuda_source();
			struct fdry_store *store = store_make();
			struct fdry_kernels *k = kernels_open(store);
			CUfunction f;

			ok(fdry_kernels_function(k, &s, "vecadd", &f));
			fdry_kernels_free(k);
			_exit(0);
		}
	}
	for (i = 0; i < 6; i++) {
		ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
		ck_assert_int_eq(status, 0);
	}
	ck_assert(!stat(log, &st));
	ck_assert_int_eq(st.st_size, strlen("compiled\n"));
}
END_TEST

/* --- when calls fail --- */

START_TEST(failing_calls_leave_nothing)
{
	struct fdry_kernels_source p = ptx_source();
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o), .flags = FDRY_KERNELS_COOPERATIVE };
	struct fdry_kernels_opts ko = { .sz = sizeof(ko) };
	struct fdry_kernels *k;
	unsigned long failed = 1;
	CUfunction f = NULL;
	char spec[32];
	long stays = 0;
	int n, ret, bad = 0;

	test_sim_open();
	ko.store = store_make();
	for (n = 1; failed; n++) {
		snprintf(spec, sizeof(spec), "*:%d", n);
		test_sim_fail(spec);
		k = NULL;
		p.version = spec; /* another key each time */
		ret = fdry_kernels_new(&ko, &k) ?: fdry_kernels_function(k, &p, "nothing", &f) ?:
		      fdry_kernels_launch(k, f, &o, NULL, 0);
		failed = test_sim_failed();
		test_sim_fail(NULL);
		bad += ret != 0;
		if (k && ret) { /* it works again */
			ok(fdry_kernels_function(k, &p, "nothing", &f));
			ok(fdry_kernels_launch(k, f, &o, NULL, 0));
		}
		fdry_kernels_free(k);
		if (!ret)
			stays = test_sim_live(NULL); /* it was a clean-up that failed */
		ck_assert_msg(test_sim_live(NULL) == stays,
			      "the %dth call failed and %ld objects stayed", n,
			      test_sim_live(NULL));
	}
	ck_assert_int_gt(bad, 12);
	ck_assert_int_le(stays, 1); /* of cuLinkDestroy */
	fdry_store_close(ko.store);
}
END_TEST

/* If the driver refuses the stored code, it is compiled again. */
START_TEST(code_that_the_driver_refuses_is_compiled_again)
{
	struct fdry_kernels_source p = ptx_source();
	struct fdry_store *store = store_make();
	struct fdry_kernels *k = kernels_open(store);
	CUfunction f = NULL;

	ok(fdry_kernels_function(k, &p, "vecadd", &f));
	ok(fdry_kernels_clear(k));
	ok(fdry_kernels_stats_reset(k));
	test_sim_fail("cuModuleLoadDataEx:1:209");
	ok(fdry_kernels_function(k, &p, "vecadd", &f));
	ck_assert_uint_eq(test_sim_failed(), 1);
	test_sim_fail(NULL);
	vecadd_check(k, f);
	ck_assert_uint_eq(stats_of(k).store_damaged, 1);
	fdry_kernels_free(k);
	fdry_store_close(store);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_kernel_store");
	TCase *tc = tcase_create("kernels");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, kernels_setup, kernels_teardown);
	tcase_add_test(tc, another_process_does_not_compile);
	tcase_add_test(tc, a_collection_keeps_what_refs_name);
	tcase_add_test(tc, another_compiler_is_another_key);
	tcase_add_test(tc, damage_is_compiled_anew);
	tcase_add_test(tc, an_image_of_another_key_is_not_believed);
	tcase_add_test(tc, another_image_under_the_ref_is_not_believed);
	tcase_add_test(tc, a_store_that_cannot_be_written_is_read);
	tcase_add_test(tc, source_that_includes_is_saved_with_a_version_alone);
	tcase_add_test(tc, processes_at_once_compile_once);
	tcase_add_test(tc, failing_calls_leave_nothing);
	tcase_add_test(tc, code_that_the_driver_refuses_is_compiled_again);
	suite_add_tcase(s, tc);
	return test_main(s);
}
