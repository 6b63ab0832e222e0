// SPDX-License-Identifier: Apache-2.0
/* Descriptions of the mapping at an address: its bounds, files and anonymous memory, long paths. */
#include <check.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mm/maps.h"
#include "tests/lib/test.h"

#define PAGE 4096ull

int main(void);

static const char *at(uint64_t start, uint64_t end)
{
	static char text[700];

	memset(text, 'x', sizeof(text));
	fdry_maps_describe(start, end, text, sizeof(text));
	return text;
}

/* Five pages, of which the middle one is left. */
static uint64_t lone_page(int prot)
{
	char *p = mmap(NULL, 5 * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	munmap(p, 2 * PAGE);
	munmap(p + 3 * PAGE, 2 * PAGE);
	return (uint64_t)(uintptr_t)p + 2 * PAGE;
}

START_TEST(bounds_are_exact)
{
	uint64_t page = lone_page(_i ? PROT_NONE : PROT_READ);
	char want[64];

	snprintf(want, sizeof(want), "anonymous (%#lx-%#lx)", (unsigned long)page,
		 (unsigned long)(page + PAGE));
	ck_assert_str_eq(at(page, page + 1), want);
	ck_assert_str_eq(at(page - PAGE, page + 1), want);
	ck_assert_str_eq(at(page + PAGE - 1, page + 2 * PAGE), want);
	ck_assert_str_eq(at(page - PAGE, page), "nothing that the kernel lists");
	ck_assert_str_eq(at(page + PAGE, page + 2 * PAGE), "nothing that the kernel lists");
}
END_TEST

START_TEST(a_file_and_the_first_of_two)
{
	uint64_t page = lone_page(PROT_READ);
	char path[4096] = "", want[4200];
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	ck_assert_int_gt(readlink("/proc/self/exe", path, sizeof(path) - 1), 0);
	ck_assert_ptr_ne(mmap((void *)(uintptr_t)(page + PAGE), PAGE, PROT_READ,
			      MAP_PRIVATE | MAP_FIXED, fd, 0),
			 MAP_FAILED);
	snprintf(want, sizeof(want), "%s (%#lx-%#lx)", path, (unsigned long)(page + PAGE),
		 (unsigned long)(page + 2 * PAGE));
	ck_assert_str_eq(at(page + PAGE, page + 2 * PAGE), want);
	snprintf(want, sizeof(want), "anonymous (%#lx-%#lx)", (unsigned long)page,
		 (unsigned long)(page + PAGE));
	ck_assert_str_eq(at(page, page + 2 * PAGE), want);
	close(fd);
}
END_TEST

/* A name that is too long for the caller is truncated, and the next lines are found. */
START_TEST(long_paths)
{
	char part[251] = "", path[1100] = "", here[256];
	const char *text;
	void *p;
	int i, fd;

	ck_assert_ptr_nonnull(getcwd(here, sizeof(here)));
	ck_assert_int_eq(chdir(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"), 0);
	memset(part, '7', sizeof(part) - 1);
	for (i = 0; i < 4; i++) {
		snprintf(path + strlen(path), sizeof(path) - strlen(path), "%s%s", i ? "/" : "",
			 part);
		ck_assert(i == 3 || !mkdir(path, 0700));
	}
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, PAGE), 0);
	p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	close(fd);
	unlink(path);
	for (i = 2; i >= 0; i--) {
		path[(size_t)i * 251 + 250] = '\0';
		rmdir(path);
	}
	text = at((uint64_t)(uintptr_t)p, (uint64_t)(uintptr_t)p + 1);
	ck_assert_ptr_nonnull(strstr(text, "77777777"));
	ck_assert_uint_lt(strlen(text), 700);
	ck_assert_str_eq(at(77, 78), "nothing that the kernel lists");
	ck_assert_int_eq(chdir(here), 0);
}
END_TEST

START_TEST(the_whole_list)
{
	uint64_t page = lone_page(PROT_NONE), code = (uint64_t)(uintptr_t)main;
	struct fdry_maps_range *r;
	bool found = false;
	size_t i, n;

	ck_assert_int_eq(fdry_maps_list(&r, &n), 0);
	for (i = 0; i < n; i++) {
		ck_assert_uint_lt(r[i].start, r[i].end);
		ck_assert(!i || r[i - 1].end < r[i].start);
		found |= code >= r[i].start && code < r[i].end;
		/* Nothing of its neighbours is in it. */
		if (page >= r[i].start && page < r[i].end)
			break;
	}
	ck_assert_uint_lt(i, n);
	ck_assert_uint_eq(r[i].start, page);
	ck_assert_uint_eq(r[i].end, page + PAGE);
	for (; i < n; i++)
		found |= code >= r[i].start && code < r[i].end;
	ck_assert(found);
	free(r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mm_maps");
	TCase *tc = tcase_create("maps");

	tcase_add_loop_test(tc, bounds_are_exact, 0, 2);
	tcase_add_test(tc, a_file_and_the_first_of_two);
	tcase_add_test(tc, long_paths);
	tcase_add_test(tc, the_whole_list);
	suite_add_tcase(s, tc);
	return test_main(s);
}
