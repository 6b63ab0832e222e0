// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of running out of host memory: every allocation during parsing, reading and building
 * of graphs fails in turn, and nothing may leak. Sanitizers have their own allocator, so under them
 * no allocation fails.
 */
#include "tests/replace/graph_fixture.h"
#include "tests/lib/sim.h"

/* In this thread: the number of the allocation that fails (0: none), of allocations so far, and of
 * those not freed. Volatile, since compilers believe that allocating changes no variable. */
static __thread volatile unsigned long fail_at, allocations;
static __thread volatile long alive;

#if !TEST_SANITIZED /* whose allocators are their own */
/* The C library's own, under the names by which it can be reached from here. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

static bool refuse(void)
{
	return ++allocations == fail_at;
}

void *malloc(size_t size)
{
	void *p = refuse() ? NULL : __libc_malloc(size);

	alive += p != NULL;
	return p;
}

void *calloc(size_t n, size_t size)
{
	void *p = refuse() ? NULL : __libc_calloc(n, size);

	alive += p != NULL;
	return p;
}

void *realloc(void *old, size_t size)
{
	void *p = refuse() ? NULL : __libc_realloc(old, size);

	alive += p && !old;
	return p;
}

void free(void *p)
{
	alive -= p != NULL;
	__libc_free(p);
}
#endif

/* Run @step with its n-th allocation failing, for every n. @alone: only we allocate, so all of it
 * must be freed. */
static void every_allocation(int (*step)(void), bool alone)
{
	unsigned long n, made;
	long left;
	int err;

	ok(step()); /* afterwards the driver has all that it keeps for ever */
	for (n = 1;; n++) {
		left = alive;
		allocations = 0;
		fail_at = n;
		err = step();
		made = allocations;
		left = alive - left;
		fail_at = 0;
		if (made < n)
			break;
		ck_assert_msg(err == -FDRY_E_NOMEM || (!alone && err == -FDRY_E_NODEVMEM),
			      "allocation %lu: %s", n, fdry_error_name(err));
		if (alone)
			ck_assert_msg(!left, "allocation %lu leaves %ld behind", n, left);
		else
			ck_assert_msg(test_sim_live("graph") <= 1,
				      "allocation %lu leaves a graph behind", n);
	}
	ok(err);
#if !TEST_SANITIZED /* whose allocators are their own */
	ck_assert_uint_gt(n, 3);
#endif
}

static struct fdry_buf text, object;
static CUgraph graph;

/* No checks of Check's within a step: they allocate. */
static int finished(int err, struct fdry_buf *out)
{
	bool touched = err && out->data;

	fdry_buf_release(out);
	return touched ? -FDRY_E_BUG : err;
}

static int parse(void)
{
	struct fdry_buf out = { 0 };
	int err = fdry_graph_from_text(span_of(&text), &out);

	return finished(err, &out);
}

static int print(void)
{
	struct fdry_graph_view v;
	struct fdry_buf out = { 0 };
	int err = fdry_graph_view_init(span_of(&object), &v) ?:
		  fdry_graph_to_text(&v, NULL, 0, &out);

	return finished(err, &out);
}

static int read_graph(void)
{
	struct fdry_buf out = { 0 };
	int err = graph_read(graph, &out);

	return finished(err, &out);
}

static int build_graph(void)
{
	struct fdry_graph_view v;
	struct fdry_graph_built b = { 0 };
	int err = fdry_graph_view_init(span_of(&object), &v) ?:
		  fdry_graph_build(&gf.builder, &v, &b) ?:
		  graph_built_check(&gf.drv, &v, &b, gf.reader.conditional);

	fdry_graph_built_release(&gf.drv, &b);
	return err;
}

START_TEST(text_to_object)
{
	text = golden_file("all-kinds", ".txt");
	every_allocation(parse, true);
	fdry_buf_release(&text);
}
END_TEST

START_TEST(optional_sections)
{
	text = golden_file("optional", ".txt");
	every_allocation(parse, true);
	fdry_buf_release(&text);
}
END_TEST

START_TEST(object_to_text)
{
	object = golden_object("all-kinds");
	every_allocation(print, true);
	fdry_buf_release(&object);
}
END_TEST

START_TEST(reading)
{
	graph = graph_of_all();
	every_allocation(read_graph, false);
	ok(gf.drv.cuGraphDestroy(graph));
}
END_TEST

START_TEST(building)
{
	graph = graph_of_all();
	object = graph_object(graph);
	every_allocation(build_graph, false);
	fdry_buf_release(&object);
	ok(gf.drv.cuGraphDestroy(graph));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_nomem");
	TCase *codec = tcase_create("codec"), *driver = tcase_create("driver");

	tcase_add_test(codec, text_to_object);
	tcase_add_test(codec, optional_sections);
	tcase_add_test(codec, object_to_text);
	suite_add_tcase(s, codec);
	tcase_add_checked_fixture(driver, graph_fixture_open, graph_fixture_close);
	tcase_add_test(driver, reading);
	tcase_add_test(driver, building);
	suite_add_tcase(s, driver);
	return test_main(s);
}
