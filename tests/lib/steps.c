// SPDX-License-Identifier: Apache-2.0
/* steps.c - see steps.h. */
#include "tests/lib/steps.h"

struct actor actors[ACTORS];
static uint8_t stacks[ACTORS][STACK] __attribute__((aligned(64)));
static ucontext_t scheduler;
unsigned int nactors;
static struct actor *current, *holder;

static void on_step(enum fdry_step step)
{
	struct actor *a = current;

	if (!a)
		return;
	a->steps++;
	a->wants = step == FDRY_STEP_WRITE;
	if (step == FDRY_STEP_WRITE_DONE)
		holder = NULL;
	swapcontext(&a->context, &scheduler);
	if (step == FDRY_STEP_WRITE)
		holder = a;
	a->wants = false;
}

static void actor_main(void)
{
	current->fn(current->arg);
	current->done = true;
	swapcontext(&current->context, &scheduler);
}

void actor_add(void (*fn)(void *arg), void *arg)
{
	struct actor *a = &actors[nactors];

	*a = (struct actor){ .fn = fn, .arg = arg };
	getcontext(&a->context);
	a->context.uc_stack.ss_sp = stacks[nactors++];
	a->context.uc_stack.ss_size = STACK;
	makecontext(&a->context, actor_main, 0);
}

static bool may_go(const struct actor *a)
{
	return !a->done && !(a->wants && holder && holder != a);
}

/* --- choices --- */
struct choice {
	uint8_t taken, of;  /* the number of the chosen actor, and the number of actors */
	uint8_t preempts;   /* the number of preemptions before this choice */
	bool going;         /* choice 0 lets the same actor continue */
};

static struct choice choices[DEPTH];
static unsigned int nchoices, given, preempts_max;

/* List the actors that may run, with the last one first. */
static unsigned int who_may(struct actor *last, struct actor *ret[ACTORS])
{
	unsigned int i, n = 0;

	if (last && may_go(last))
		ret[n++] = last;
	for (i = 0; i < nactors; i++)
		if (&actors[i] != last && may_go(&actors[i]))
			ret[n++] = &actors[i];
	return n;
}

static struct actor *choose(struct actor *last)
{
	struct choice *c = &choices[nchoices], *before = nchoices ? c - 1 : NULL;
	struct actor *may[ACTORS];
	unsigned int n = who_may(last, may);

	if (!n)
		return NULL;
	ck_assert_uint_lt(nchoices, DEPTH);
	c->going = last && may[0] == last;
	c->preempts = before ? (uint8_t)(before->preempts + (before->going && before->taken)) : 0;
	if (nchoices >= given)
		c->taken = 0;
	c->of = (uint8_t)(c->going && c->preempts == preempts_max ? 1 : n);
	ck_assert_uint_lt(c->taken, c->of);
	nchoices++;
	return may[c->taken];
}

bool choices_next(void)
{
	while (nchoices && choices[nchoices - 1].taken + 1 >= choices[nchoices - 1].of)
		nchoices--;
	if (!nchoices)
		return false;
	choices[nchoices - 1].taken++;
	given = nchoices;
	return true;
}

char trace[DEPTH + 1];

bool go(struct actor *crash, unsigned int crash_step, void (*die)(void))
{
	struct actor *a = NULL;
	bool died = false;

	nchoices = 0;
	holder = NULL;
	fdry_step_hook = on_step;
	while ((a = choose(a))) {
		trace[nchoices - 1] = (char)('0' + (a - actors));
		trace[nchoices] = '\0';
		current = a;
		swapcontext(&scheduler, &a->context);
		current = NULL;
		if (a != crash || a->done || died || a->steps < crash_step || holder == a)
			continue;
		died = a->done = true; /* its transaction would be undone: then it is as if it had
					  died before */
		die();
	}
	fdry_step_hook = NULL;
	ck_assert_msg(!holder, "the writers' lock is left");
	return died;
}

unsigned int more(void)
{
	return getenv("STEPS_MORE") ? (unsigned int)atoi(getenv("STEPS_MORE")) : 0;
}

void explore_begin(unsigned int preempts)
{
	preempts_max = preempts + more();
	given = nchoices = 0;
}
