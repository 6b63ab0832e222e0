/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sass.h - which constants machine code reads.
 *
 * Code refers to the module's constant banks by number and offset, without relocations:
 * bank 3 holds __constant__ variables, bank 4 the addresses of everything else. So the variables
 * that a kernel can reach follow only from its instructions. This decoder reads the few bits that
 * all instructions have in common; an uncertain operand counts as a read of the whole bank.
 */
#ifndef FDRY_GRAPH_SASS_H
#define FDRY_GRAPH_SASS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/buf.h"

#define FDRY_SASS_BANKS 32

/* A read of bytes [@from, @to) of @bank; with @all, of the whole bank. */
struct fdry_sass_read {
	unsigned int bank;
	bool all;
	uint32_t from, to;
};
typedef int (*fdry_sass_read_fn)(void *arg, const struct fdry_sass_read *read);

/* A function's code, and the jumps that its relocations and info records describe. */
struct fdry_sass_code {
	struct fdry_span bytes;  /* .text.K, with every function inside it */
	unsigned int arch;       /* 10 * major + minor */
	const uint32_t *jumps;   /* branch targets that the instructions do not contain */
	uint32_t njumps;
	bool anywhere;           /* branches may lead to any instruction */
};

/* Whether the constant operands of @arch's instructions (10 * major + minor) are known. */
bool fdry_sass_supported(unsigned int arch);

/**
 * fdry_sass_reads() - Report the constants that a function's code may read.
 * @code: its architecture must be supported
 * @fn: called for each reading instruction, in order, for banks of 1 and above; a non-zero
 *	result ends the walk and is returned
 *
 * Errors: FDRY_E_NOSLICE (unknown instructions, or one that is cut off), FDRY_E_NOMEM.
 */
int fdry_sass_reads(const struct fdry_sass_code *code, fdry_sass_read_fn fn,
		    void *arg) __must_check;

/* The number of branches in @code that use a table of targets. */
uint32_t fdry_sass_tables(struct fdry_span code);

#endif
