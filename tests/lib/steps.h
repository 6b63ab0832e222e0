/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps.h - coroutines that take turns at the store's steps, in every order.
 *
 * A test adds actors and calls go(); then choices_next() returns whether there is another order to
 * try, and the test repeats everything from the same state.
 */
#ifndef FDRY_TESTS_LIB_STEPS_H
#define FDRY_TESTS_LIB_STEPS_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#include "store/step.h"

#define ACTORS 4
#define STACK (256 << 10)
#define DEPTH 1000

struct actor {
	void (*fn)(void *arg);
	void *arg;
	ucontext_t context;
	bool done, wants; /* wants: it waits for the writers' lock */
	unsigned int steps;
};

extern struct actor actors[ACTORS];
extern unsigned int nactors;
void actor_add(void (*fn)(void *arg), void *arg);

/* The next list of choices; false when there is none. */
bool choices_next(void);

/* Print the data that reproduce the fault. */
extern char trace[DEPTH + 1];

/* @crash: the actor that dies at its step @crash_step; NULL for none. Returns whether it died. */
bool go(struct actor *crash, unsigned int crash_step, void (*die)(void));
unsigned int more(void);

/* Begin with the first of all orders that have at most @preempts preemptions. */
void explore_begin(unsigned int preempts);

#endif
