// SPDX-License-Identifier: Apache-2.0
/* Unit tests of kernels without graphs: the cache in memory, errors, source, launches, the trace.
 */
#include <sys/mman.h>

#include "tests/lib/kernels.h"
#include "tests/lib/test.h"

/* --- in memory --- */

START_TEST(code_of_each_kind_becomes_a_function)
{
	struct fdry_kernels_source forms[] = { code_of(ptx, ptx_len), code_of(ptx, ptx_len + 1),
					       code_of(cubin, cubin_len), cuda_source() };
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL;
	size_t i;

	for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		ok(fdry_kernels_function(k, &forms[i], "vecadd", &f));
		vecadd_check(k, f);
	}
	ck_assert_uint_eq(fdry_kernels_count(k), 3); /* the terminator makes no difference */
	ck_assert_uint_eq(stats_of(k).ptx_compilations, 1);
	ck_assert_uint_eq(stats_of(k).source_compilations, 1);
	ck_assert_uint_eq(stats_of(k).bytes, 3 * cubin_len);
	fdry_kernels_free(k);
}
END_TEST

START_TEST(code_is_loaded_once)
{
	struct fdry_kernels_source s = ptx_source();
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f[3] = { NULL };
	struct fdry_kernels_stats st;

	ok(fdry_kernels_function(k, &s, "vecadd", &f[0]));
	ok(fdry_kernels_function(k, &s, "vecadd", &f[1]));
	ok(fdry_kernels_function(k, &s, "scale", &f[2]));
	ok(fdry_kernels_function(k, &s, NULL, NULL));
	ck_assert_ptr_eq(f[0], f[1]);
	ck_assert_ptr_ne(f[0], f[2]);
	st = stats_of(k);
	ck_assert_uint_eq(st.misses, 1);
	ck_assert_uint_eq(st.hits, 3);
	ck_assert_uint_eq(st.modules, 1);
	ck_assert(st.compile_ms > 0 && st.load_ms > 0);
	ok(fdry_kernels_stats_reset(k));
	st = stats_of(k);
	ck_assert_uint_eq(st.hits + st.misses + st.ptx_compilations, 0);
	ck_assert_uint_eq(st.modules, 1); /* resetting unloads nothing */
	fdry_kernels_free(k);
}
END_TEST

START_TEST(the_key_is_of_everything_that_matters)
{
	static const char *const options[] = { "-O1" };
	struct fdry_kernels_source s = ptx_source(), other[4];
	struct fdry_kernels_key key, differs;
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL, found = NULL;
	int i;

	for (i = 0; i < 4; i++)
		other[i] = s;
	other[0].options = options;
	other[0].noptions = 1;
	other[1].version = "2";
	other[2] = cuda_source();
	other[3].len--; /* a newline less */
	ok(fdry_kernels_key(k, &s, &key));
	for (i = 0; i < 4; i++) {
		ok(fdry_kernels_key(k, &other[i], &differs));
		ck_assert(memcmp(&key, &differs, sizeof(key)));
	}
	s.name = "a name";
	ok(fdry_kernels_key(k, &s, &differs));
	ck_assert(!memcmp(&key, &differs, sizeof(key))); /* for messages alone */
	fails(NOKEY, "request it by its source", fdry_kernels_find(k, &key, "vecadd", &found));
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	ok(fdry_kernels_find(k, &key, "vecadd", &found));
	ck_assert_ptr_eq(f, found);
	ok(fdry_kernels_find(k, &key, "scale", &found));
	ck_assert_ptr_ne(f, found);
	fails(NOENT, "no kernel 'nobody'", fdry_kernels_find(k, &key, "nobody", &found));
	fdry_kernels_free(k);
}
END_TEST

START_TEST(clearing_unloads)
{
	struct fdry_kernels_source s = ptx_source();
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o) };
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL;

	ok(fdry_kernels_function(k, &s, "nothing", &f));
	ok(fdry_kernels_launch(k, f, &o, NULL, 0));
	ck_assert_int_eq(test_sim_live("module"), 1);
	ok(fdry_kernels_clear(k));
	ck_assert_int_eq(test_sim_live("module"), 0);
	ck_assert_uint_eq(fdry_kernels_count(k), 0);
	fails(NOKEY, "request it again", fdry_kernels_launch(k, f, &o, NULL, 0));
	ok(fdry_kernels_function(k, &s, "nothing", &f));
	ck_assert_uint_eq(stats_of(k).ptx_compilations, 2); /* there is no store */
	fdry_kernels_free(k);
	ck_assert_int_eq(test_sim_live(NULL), 0);
}
END_TEST

/* --- refused --- */

START_TEST(messages_of_the_compiler_are_reported)
{
	static const char bad[] =
		".version 8.0\n.target sm_90\n.address_size 64\n.entry broken {\n";
	static const char lines[] = "int a;\nsyntax error\n\nsyntax error\n";
	struct fdry_kernels_source s = code_of(bad, sizeof(bad)),
				   many = code_of(lines, sizeof(lines));
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL;
	char log[512];
	size_t need = 0;

	ok(fdry_kernels_log(k, NULL, 0, &need));
	ck_assert_uint_eq(need, 1);
	s.name = "bad.ptx";
	fails(COMPILE, "the driver's compiler refuses 'bad.ptx' for sm_90: ",
	      fdry_kernels_function(k, &s, "broken", &f));
	ok(fdry_kernels_log(k, log, sizeof(log), &need));
	ck_assert_uint_eq(need, strlen(log) + 1);
	ck_assert_uint_gt(need, 10);
	ck_assert(strstr(fdry_last_error(), log) != NULL);
	many.form = FDRY_KERNELS_SOURCE;
	fails(COMPILE, "source(2): error: a syntax error stands here source(4): error",
	      fdry_kernels_function(k, &many, "x", &f));
	ok(fdry_kernels_log(k, log, sizeof(log), NULL));
	ck_assert_str_eq(log, "source(2): error: a syntax error stands here\nsource(4): error: a "
			      "syntax error stands here\n");
	ck_assert_uint_eq(stats_of(k).failures, 2);
	ck_assert_uint_eq(fdry_kernels_count(k), 0);
	fails(COMPILE, "bad.ptx", fdry_kernels_function(k, &s, "broken", &f));
	ck_assert_uint_eq(stats_of(k).ptx_compilations, 2); /* a failure is not kept */
	fdry_kernels_free(k);
}
END_TEST

START_TEST(a_long_log_is_cut_in_the_sentence_alone)
{
	struct fdry_kernels *k = kernels_open(NULL);
	struct fdry_kernels_source s;
	char *text = calloc(1, 6000), *log;
	CUfunction f = NULL;
	size_t need = 0;
	int i;

	for (i = 0; i < 400; i++)
		strcat(text, "syntax error\n");
	s = code_of(text, strlen(text));
	s.form = FDRY_KERNELS_SOURCE;
	fails(COMPILE, " ...; fdry_kernels_log() has all ", fdry_kernels_function(k, &s, "x", &f));
	ok(fdry_kernels_log(k, NULL, 0, &need));
	ck_assert_uint_gt(need, 400 * 40);
	log = malloc(need);
	ok(fdry_kernels_log(k, log, need, NULL));
	ck_assert(strstr(log, "source(400): ") != NULL);
	free(log);
	free(text);
	fdry_kernels_free(k);
}
END_TEST

#define HEAD(version, target) ".version " version "\n.target " target "\n.address_size 64\n"

static const struct {
	const char *head;
	int code;
	const char *says[2];
} heads[] = {
	{ HEAD("99.0", "sm_90"),
	  FDRY_E_UNABLE,
	  { "PTX version 99.0", "this driver, of CUDA 13.0" } },
	{ HEAD("9.1", "sm_90"), FDRY_E_UNABLE, { "of CUDA 13.1", "write .version 9.0" } },
	{ HEAD("9.0", "sm_100"), FDRY_E_UNABLE, { "is for sm_100", "device 0 is sm_90" } },
	{ HEAD("9.0", "sm_100a"), FDRY_E_UNABLE, { "exactly that architecture", "is sm_90" } },
	{ HEAD("9.0", "sm_80a, debug"), FDRY_E_UNABLE, { "is for sm_80a", "exactly" } },
	{ HEAD("9.0", "sm_100f"), FDRY_E_UNABLE, { "family", "sm_90" } },
	{ "// .version 99.0\n/* .target sm_100 */ " HEAD("9.0", "sm_90a"),
	  FDRY_E_COMPILE,
	  { "refuses", "sm_90" } },
	{ HEAD("8.0", "sm_52, texmode_independent"), FDRY_E_COMPILE, { "refuses", "sm_90" } },
	{ "nonsense .version", FDRY_E_COMPILE, { "refuses", "" } },
	{ "/* without an end .version", FDRY_E_COMPILE, { "refuses", "" } },
};

START_TEST(the_head_of_ptx_is_read)
{
	struct fdry_kernels_source s = code_of(heads[_i].head, strlen(heads[_i].head));
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL;
	int ret = fdry_kernels_function(k, &s, "x", &f);

	ck_assert_msg(ret == -heads[_i].code, "%s: %s", fdry_error_name(ret), fdry_last_error());
	ck_assert_msg(strstr(fdry_last_error(), heads[_i].says[0]) &&
			      strstr(fdry_last_error(), heads[_i].says[1]),
		      "it says: %s", fdry_last_error());
	fdry_kernels_free(k);
}
END_TEST

START_TEST(the_target_is_one_that_loads)
{
	struct fdry_kernels_target t = { .sz = sizeof(t) };
	struct fdry_kernels *k = kernels_open(NULL);

	ok(fdry_kernels_target(k, &t));
	ck_assert_str_eq(t.arch, "sm_90");
	ck_assert_str_eq(t.exact, "sm_90a");
	ck_assert_uint_eq(t.cc, 90);
	ck_assert_uint_eq(t.ptx, 90);
	ck_assert_int_eq(t.driver, 13000);
	fdry_kernels_free(k);
}
END_TEST

START_TEST(arguments_of_the_calls_are_checked)
{
	static const char *const odd[] = { "-O9" }, *const two[] = { "a\nb" },
				 *const arch[] = { "-arch=sm_90" },
				 *const regs[] = { "--maxrregcount=32", "-O2",
						   "--generate-line-info" },
				 *const many[] = { "--maxrregcount=999" };
	struct fdry_kernels_source s = ptx_source();
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL;

	fails(INVAL, "no k", fdry_kernels_function(NULL, &s, "x", &f));
	fails(INVAL, "the pointer for the function is NULL",
	      fdry_kernels_function(k, &s, "x", NULL));
	fails(INVAL, "no source", fdry_kernels_function(k, NULL, "x", &f));
	fails(NOENT, "no kernel 'x'", fdry_kernels_function(k, &s, "x", &f));
	s.noptions = 1;
	fails(INVAL, "options is NULL", fdry_kernels_function(k, &s, "vecadd", &f));
	s.options = odd;
	fails(INVAL, "no option '-O9'", fdry_kernels_function(k, &s, "vecadd", &f));
	s.options = many;
	fails(INVAL, "no option '--maxrregcount=999'", fdry_kernels_function(k, &s, "vecadd", &f));
	s.options = regs;
	s.noptions = 3;
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	s = code_of(cubin, cubin_len);
	s.options = regs;
	s.noptions = 1;
	fails(INVAL, "not compiled", fdry_kernels_function(k, &s, "vecadd", &f));
	s = ptx_source();
	s.target = "sm_90";
	fails(INVAL, "only source can have a target", fdry_kernels_function(k, &s, "vecadd", &f));
	s = cuda_source();
	s.options = arch;
	s.noptions = 1;
	fails(INVAL, "set the member target instead", fdry_kernels_function(k, &s, "vecadd", &f));
	s.options = two;
	fails(INVAL, "several lines", fdry_kernels_function(k, &s, "vecadd", &f));
	s = code_of("abc", 3);
	fails(BADCODE, "is empty", fdry_kernels_function(k, &s, "vecadd", &f));
	s = code_of("neither of them", 15);
	fails(BADCODE, "neither a fatbin", fdry_kernels_function(k, &s, "vecadd", &f));
	s.form = 7;
	fails(OPTS, "form is 7", fdry_kernels_function(k, &s, "vecadd", &f));
	fdry_kernels_free(k);
	fdry_kernels_free(NULL);
}
END_TEST

/* A driver gets no length, and reads on if bytes of a cubin are missing: here into memory
 * that is none. */
START_TEST(a_cubin_that_is_cut_off)
{
	const size_t lens[] = { 64, 100, cubin_len / 2, cubin_len - 1 },
		     extent = (cubin_len / 4096 + 1) * 4096;
	uint8_t *map = mmap(NULL, extent + 4096, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct fdry_kernels *k = kernels_open(NULL);
	struct fdry_kernels_source s;
	CUfunction f = NULL;
	size_t i;

	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert(!mprotect(map + extent, 4096, PROT_NONE));
	for (i = 0; i < 4; i++) {
		s = code_of(memcpy(map + extent - lens[i], cubin, lens[i]), lens[i]);
		s.name = "cut.cubin";
		fails(BADCODE, "'cut.cubin'", fdry_kernels_function(k, &s, "vecadd", &f));
	}
	s = code_of(memcpy(map + extent - cubin_len, cubin, cubin_len), cubin_len);
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	vecadd_check(k, f);
	fdry_kernels_free(k);
	ck_assert(!munmap(map, extent + 4096));
}
END_TEST

static void use_in_child(void *k)
{
	struct fdry_kernels_source s = ptx_source();
	CUfunction f;

	fails(FORKED, "before fork()", fdry_kernels_function(k, &s, "vecadd", &f));
	fdry_kernels_free(k); /* is fine, and does nothing */
}

START_TEST(a_forked_child_gets_an_error)
{
	struct fdry_kernels *k = kernels_open(NULL);
	int status;
	pid_t pid = fork();

	if (!pid) {
		use_in_child(k);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	fdry_kernels_free(k);
}
END_TEST

/* --- source --- */

START_TEST(source_is_compiled_once)
{
	static const char *const options[] = { "-DX=1" }, *const nonsense[] = { "--nonsense" };
	struct fdry_kernels_source s = cuda_source();
	struct fdry_kernels *k = kernels_open(NULL);
	struct fdry_kernels_stats st;
	CUfunction f = NULL;
	char log[128];

	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	ok(fdry_kernels_function(k, &s, "scale", &f));
	s.target = "sm_90a";
	ok(fdry_kernels_function(k, &s, "vecadd", &f)); /* another target */
	s.target = "compute_80";
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	vecadd_check(k, f);
	s.options = options;
	s.noptions = 1;
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	st = stats_of(k);
	ck_assert_uint_eq(st.source_compilations, 4);
	ck_assert_uint_eq(st.ptx_compilations, 2);
	ck_assert_uint_eq(st.source_hits, 1);
	ck_assert_uint_eq(st.source_misses, 4);
	s.options = nonsense;
	fails(INVAL, "unrecognized option --nonsense found",
	      fdry_kernels_function(k, &s, "vecadd", &f));
	ok(fdry_kernels_log(k, log, sizeof(log), NULL));
	ck_assert_str_eq(log, "nvrtc: error: unrecognized option --nonsense found\n");
	s.noptions = 0;
	s.target = "sm_100";
	fails(UNABLE, "is for sm_100", fdry_kernels_function(k, &s, "vecadd", &f));
	s.target = "sm_80";
	fails(UNABLE, "compile for compute_80", fdry_kernels_function(k, &s, "vecadd", &f));
	s.target = "gfx90";
	fails(INVAL, "is not a target", fdry_kernels_function(k, &s, "vecadd", &f));
	fdry_kernels_free(k);
}
END_TEST

START_TEST(a_target_that_nvrtc_knows_is_chosen)
{
	struct fdry_kernels_source s = cuda_source();
	struct fdry_kernels *k;
	CUfunction f = NULL;

	ck_assert(!setenv("FAKE_NVRTC_ARCHS", "75 80 86", 1)); /* older than the device */
	k = kernels_open(NULL);
	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	vecadd_check(k, f);
	ck_assert_uint_eq(stats_of(k).ptx_compilations, 1); /* so the driver has the last word */
	fdry_kernels_free(k);
	ck_assert(!setenv("FAKE_NVRTC_ARCHS", "100 120", 1));
	k = kernels_open(NULL);
	fails(UNABLE, "for sm_100 and above", fdry_kernels_function(k, &s, "vecadd", &f));
	fdry_kernels_free(k);
}
END_TEST

START_TEST(without_nvrtc_the_error_says_so)
{
	struct fdry_kernels_source s = cuda_source(), p = ptx_source();
	struct fdry_kernels *k;
	CUfunction f = NULL;

	ck_assert(!setenv("FOUNDRY_NVRTC", "/nowhere/libnvrtc.so", 1));
	k = kernels_open(NULL);
	fails(NONVRTC, "set FOUNDRY_NVRTC", fdry_kernels_function(k, &s, "vecadd", &f));
	ok(fdry_kernels_function(k, &p, "vecadd", &f)); /* which needs none */
	fdry_kernels_free(k);
	ck_assert(!setenv("FOUNDRY_NVRTC", test_built("foundry/sim/libcuda.so.1"), 1));
	k = kernels_open(NULL);
	fails(NONVRTC, "it lacks nvrtcVersion", fdry_kernels_function(k, &s, "vecadd", &f));
	fdry_kernels_free(k);
}
END_TEST

/* --- launching --- */

START_TEST(arguments_of_a_launch_are_counted)
{
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o) };
	struct fdry_kernels_source s = ptx_source();
	struct fdry_kernels *k = kernels_open(NULL);
	CUdeviceptr p = 0;
	int n = 0;
	struct fdry_kernels_arg args[] = { ARG(p), ARG(p), ARG(p), ARG(n), ARG(n) };
	CUfunction f = NULL;

	ok(fdry_kernels_function(k, &s, "vecadd", &f));
	fails(INVAL, "'vecadd' takes 4 arguments and 5 were given",
	      fdry_kernels_launch(k, f, &o, args, 5));
	fails(INVAL, "takes 4 arguments and 0 were given", fdry_kernels_launch(k, f, &o, NULL, 0));
	fails(INVAL, "are NULL", fdry_kernels_launch(k, f, &o, NULL, 4));
	args[2].size = 4;
	fails(INVAL, "argument 2 of the kernel 'vecadd' has 8 bytes and 4 were given",
	      fdry_kernels_launch(k, f, &o, args, 4));
	args[2] = (struct fdry_kernels_arg){ NULL, 8 };
	fails(INVAL, "argument 2", fdry_kernels_launch(k, f, &o, args, 4));
	args[2] = args[1];
	ok(fdry_kernels_launch(k, f, &o, args, 4)); /* n is 0, so nothing is touched */
	o.flags = 8;
	fails(OPTS, "launch flags 0x8", fdry_kernels_launch(k, f, &o, args, 4));
	o.flags = 0;
	o.shared = 1u << 30;
	fails(DRIVER, "1073741824 bytes of dynamic shared memory",
	      fdry_kernels_launch(k, f, &o, args, 4));
	o.shared = 100u << 10;
	ok(fdry_kernels_launch(k, f, &o, args, 4));
	fails(NOKEY, "does not belong to this cache", fdry_kernels_launch(k, NULL, &o, args, 4));
	fdry_kernels_free(k);
}
END_TEST

static CUresult CUDAAPI endless(CUfunction f, size_t i, size_t *offset, size_t *size)
{
	(void)f;
	*offset = i;
	*size = 1;
	return i < 5000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Otherwise a part of the parameters would count as all of them, and the driver would read bytes
 * that the caller did not pass. */
START_TEST(more_parameters_than_are_known)
{
	struct fdry_driver *drv = (struct fdry_driver *)test_sim();
	struct fdry_kernels_source s = ptx_source();
	struct fdry_kernels *k = kernels_open(NULL);
	CUfunction f = NULL;

	drv->cuFuncGetParamInfo = endless;
	fails(UNABLE, "more than 4096 parameters", fdry_kernels_function(k, &s, "vecadd", &f));
	ck_assert_ptr_null(f);
	fdry_kernels_free(k);
}
END_TEST

static int allowed(CUfunction f)
{
	int bytes = 0;

	ck_assert_int_eq(test_sim()->cuFuncGetAttribute(
				 &bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f),
			 CUDA_SUCCESS);
	return bytes;
}

/* A function with static shared memory has a lower limit from the beginning. The limit of a
 * function that other threads launch is never lowered. */
START_TEST(shared_memory_is_allowed_as_needed)
{
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o) };
	struct fdry_kernels_source s = ptx_source();
	struct fdry_kernels *k = kernels_open(NULL);
	float x[4] = { 1, 2, 3, 4 }, sum = 0;
	CUdeviceptr in, out;
	CUfunction f = NULL;
	int n = 4;
	struct fdry_kernels_arg args[] = { ARG(in), ARG(out), ARG(n) };

	ok(fdry_kernels_function(k, &s, "reduce", &f));
	ck_assert_int_eq(allowed(f), 47 << 10);
	ck_assert_int_eq(test_sim()->cuMemAlloc_v2(&in, sizeof(x)), CUDA_SUCCESS);
	ck_assert_int_eq(test_sim()->cuMemAlloc_v2(&out, sizeof(sum)), CUDA_SUCCESS);
	ck_assert_int_eq(test_sim()->cuMemcpyHtoD_v2(in, x, sizeof(x)), CUDA_SUCCESS);
	o.shared = 48u << 10;
	ok(fdry_kernels_launch(k, f, &o, args, 3));
	ck_assert_int_eq(allowed(f), 48 << 10);
	o.shared = 100u << 10;
	ok(fdry_kernels_launch(k, f, &o, args, 3));
	o.shared = 60u << 10;
	ok(fdry_kernels_launch(k, f, &o, args, 3));
	ck_assert_int_eq(allowed(f), 100 << 10);
	ck_assert_int_eq(test_sim()->cuMemcpyDtoH_v2(&sum, out, sizeof(sum)), CUDA_SUCCESS);
	ck_assert(sum == 10);
	fdry_kernels_free(k);
}
END_TEST

static void cooperative_check(const char *cc, int code, uint64_t grid, const char *says)
{
	struct fdry_kernels_launch_opts o = { .sz = sizeof(o),
					      .grid = { (uint32_t)grid, (uint32_t)(grid >> 32), 4 },
					      .block = { 64 }, .flags = FDRY_KERNELS_COOPERATIVE };
	struct fdry_kernels_source s = code_of(cubin, cubin_len);
	struct fdry_kernels *k;
	CUfunction f = NULL;
	int ret;

	ck_assert(!setenv("FDRY_SIM_CC", cc, 1));
	k = kernels_open(NULL);
	ok(fdry_kernels_function(k, &s, "nothing", &f));
	ret = fdry_kernels_launch(k, f, &o, NULL, 0);
	ck_assert_msg(ret == -code, "%s: %s", fdry_error_name(ret), fdry_last_error());
	ck_assert_msg(strstr(fdry_last_error(), says) != NULL, "it says: %s", fdry_last_error());
	fdry_kernels_free(k);
}

START_TEST(a_cooperative_launch_needs_a_device_that_can)
{
	cooperative_check("5.2", FDRY_E_UNABLE, 2,
			  "device 0 cannot launch 'nothing' cooperatively: compute capability 5.2");
}
END_TEST

START_TEST(and_a_grid_that_fits)
{
	cooperative_check("9.0", 0, 2, "");
	cooperative_check("9.0", FDRY_E_UNABLE, 1u << 28,
			  "with 1073741824 blocks of 64 threads: device 0 holds ");
	cooperative_check(
		"9.0", FDRY_E_INVAL, 1ull << 63 | 1u << 31,
		"a grid of 2147483648 x 2147483648 x 4 blocks is larger than any device allows");
}
END_TEST

/* --- the trace --- */

static char heard[4096];

static void hear(void *arg, int level, const char *text)
{
	(void)arg;
	ck_assert_int_eq(level, FDRY_LOG_INFO);
	snprintf(heard + strlen(heard), sizeof(heard) - strlen(heard), "%s\n", text);
}

START_TEST(stages_are_traced)
{
	struct fdry_kernels_source p = ptx_source();
	struct fdry_store *store = store_make();
	struct fdry_kernels *k;
	CUfunction f = NULL;

	fdry_log_set(hear, NULL, FDRY_LOG_ERROR);
	ck_assert(!setenv("FOUNDRY_TRACE", "compile", 1));
	k = kernels_open(store);
	p.name = "kernels.ptx";
	ok(fdry_kernels_function(k, &p, "vecadd", &f));
	ck_assert_msg(strstr(heard, "compile: 'kernels.ptx': not in the store, ") &&
			      strstr(heard, "ptx to cubin, ") &&
			      strstr(heard, "saved in the store, ") &&
			      strstr(heard, ": loaded, ") && strstr(heard, " ms, "),
		      "%s", heard);
	fdry_kernels_free(k);
	fdry_log_set(NULL, NULL, 0);
	ck_assert(!setenv("FOUNDRY_TRACE", "everything", 1));
	k = NULL;
	fails(ENV, "FOUNDRY_TRACE is 'everything'; set it to compile", fdry_kernels_new(NULL, &k));
	ck_assert_ptr_null(k);
	fdry_store_close(store);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_kernel");
	TCase *tc = tcase_create("kernels");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, kernels_setup, kernels_teardown);
	tcase_add_test(tc, code_of_each_kind_becomes_a_function);
	tcase_add_test(tc, code_is_loaded_once);
	tcase_add_test(tc, the_key_is_of_everything_that_matters);
	tcase_add_test(tc, clearing_unloads);
	tcase_add_test(tc, messages_of_the_compiler_are_reported);
	tcase_add_test(tc, a_long_log_is_cut_in_the_sentence_alone);
	tcase_add_loop_test(tc, the_head_of_ptx_is_read, 0, sizeof(heads) / sizeof(heads[0]));
	tcase_add_test(tc, the_target_is_one_that_loads);
	tcase_add_test(tc, arguments_of_the_calls_are_checked);
	tcase_add_test(tc, a_cubin_that_is_cut_off);
	tcase_add_test(tc, a_forked_child_gets_an_error);
	tcase_add_test(tc, source_is_compiled_once);
	tcase_add_test(tc, a_target_that_nvrtc_knows_is_chosen);
	tcase_add_test(tc, without_nvrtc_the_error_says_so);
	tcase_add_test(tc, arguments_of_a_launch_are_counted);
	tcase_add_test(tc, more_parameters_than_are_known);
	tcase_add_test(tc, shared_memory_is_allowed_as_needed);
	tcase_add_test(tc, a_cooperative_launch_needs_a_device_that_can);
	tcase_add_test(tc, and_a_grid_that_fits);
	tcase_add_test(tc, stages_are_traced);
	suite_add_tcase(s, tc);
	return test_main(s);
}
