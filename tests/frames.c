// SPDX-License-Identifier: Apache-2.0
/*
 * frames.c - counts frames and returns of calls; preloaded by tests/frames.
 *
 * The compiler's -finstrument-functions calls the two functions below. FRAMES_OF names exported
 * functions, each followed by a space; FRAMES_OF=main counts the whole program. Counts are of one
 * thread: the one that made the call. For each call that ends, FRAMES_OUT gets a line: the name,
 * the most frames at once, the most at a call of the software driver, the number of returns, and
 * the addresses of the deepest frames as OBJECT+OFFSET. Functions of the driver do not count.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX 256
#define PLAIN __attribute__((no_instrument_function))

void __cyg_profile_func_enter(void *fn, void *site);
void __cyg_profile_func_exit(void *fn, void *site);

static __thread void *stack[MAX], *deepest[MAX];
static __thread size_t depth, most, driver_most, in_driver;
static __thread unsigned long returns;
static __thread char name[64]; /* of the call that is counted; empty: none */

PLAIN static void count_begin(void *fn)
{
	const char *of = getenv("FRAMES_OF");
	char word[sizeof(name) + 1];
	Dl_info at;

	if (!of)
		return;
	if (!strcmp(of, "main")) {
		if (gettid() == getpid())
			strcpy(name, of);
		return;
	}
	if (!dladdr(fn, &at) || at.dli_saddr != fn)
		return;
	snprintf(word, sizeof(word), "%s ", at.dli_sname);
	if (strstr(of, word))
		snprintf(name, sizeof(name), "%s", at.dli_sname);
}

PLAIN static void count_end(void)
{
	FILE *f = fopen(getenv("FRAMES_OUT"), "a");
	Dl_info at;
	size_t i;

	if (!f)
		abort();
	fprintf(f, "%s %zu %zu %lu", name, most, driver_most, returns);
	for (i = 0; i < most; i++)
		if (dladdr(deepest[i], &at))
			fprintf(f, " %s+%#zx", at.dli_fname,
				(size_t)((char *)deepest[i] - (char *)at.dli_fbase));
	fputc('\n', f);
	fclose(f);
	name[0] = '\0';
	most = driver_most = returns = 0;
}

PLAIN static bool of_driver(void *fn)
{
	Dl_info at;

	return dladdr(fn, &at) && strstr(at.dli_fname, "/sim/");
}

PLAIN void __cyg_profile_func_enter(void *fn, void *site)
{
	(void)site;
	if (!name[0])
		count_begin(fn);
	if (!name[0])
		return;
	if (of_driver(fn)) {
		if (!in_driver++ && depth > driver_most)
			driver_most = depth;
		return;
	}
	if (depth == MAX)
		abort();
	stack[depth++] = fn;
	if (depth > most) {
		most = depth;
		memcpy(deepest, stack, depth * sizeof(*stack));
	}
}

PLAIN void __cyg_profile_func_exit(void *fn, void *site)
{
	(void)site;
	if (!depth)
		return;
	if (of_driver(fn)) {
		in_driver--;
		return;
	}
	returns++;
	if (!--depth)
		count_end();
}
