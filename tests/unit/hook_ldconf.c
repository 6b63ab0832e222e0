// SPDX-License-Identifier: Apache-2.0
/* Unit tests of reading ld.so.conf: comments, spaces, includes by pattern, loops, early end. */
#include "hook/ldconf.c"
#include "tests/lib/test.h"

#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/fdry-ldconf-XXXXXX";
static char seen[4096];

static void put(const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static bool note(void *stop, const char *dir)
{
	strcat(strcat(seen, dir), ";");
	return stop && !strcmp(stop, dir);
}

static const char *walk(const char *stop)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/ld.so.conf", root);
	*seen = '\0';
	ck_assert_int_eq(fdry_ldconf_each(path, note, (void *)stop), stop != NULL);
	return seen;
}

static void setup(void)
{
	char path[512];

	strcpy(root + strlen(root) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(path, sizeof(path), "%s/ld.so.conf.d", root);
	ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void teardown(void)
{
	static const char *const names[] = { "ld.so.conf", "ld.so.conf.d/a.conf",
					     "ld.so.conf.d/b.conf", "ld.so.conf.d", "" };
	char path[512];
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, names[i]);
		remove(path);
	}
}

START_TEST(lines)
{
	put("ld.so.conf", "# comment\n/one\n  /two \t# more\n\nrelative/dir\nhwcap 1 "
			  "nosegneg\n/old=libc5\n/last");
	ck_assert_str_eq(walk(NULL), "/one;/two;/old;/last;");
}
END_TEST

START_TEST(includes)
{
	put("ld.so.conf",
	    "/first\ninclude ld.so.conf.d/*.conf\n/after\nincluded\ninclude /nowhere/*.conf\n");
	put("ld.so.conf.d/a.conf", "/a\n");
	put("ld.so.conf.d/b.conf", "/b1\n/b2\n");
	ck_assert_str_eq(walk(NULL), "/first;/a;/b1;/b2;/after;");
	ck_assert_str_eq(walk("/b1"), "/first;/a;/b1;");
}
END_TEST

START_TEST(loops_end)
{
	put("ld.so.conf", "/x\ninclude ld.so.conf\n");
	ck_assert_str_eq(walk(NULL), "/x;/x;/x;/x;/x;/x;/x;/x;");
}
END_TEST

START_TEST(no_file)
{
	ck_assert_str_eq(walk(NULL), "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hook_ldconf");
	TCase *tc = tcase_create("ldconf");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, lines);
	tcase_add_test(tc, includes);
	tcase_add_test(tc, loops_end);
	tcase_add_test(tc, no_file);
	suite_add_tcase(s, tc);
	return test_main(s);
}
