/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sass.h - which constants machine code reads.
 *
 * Code refers to the module's constant banks by number and offset, with no relocation:
 * bank 3 holds __constant__ variables, bank 4 the addresses of everything else. To know
 * which variables a kernel can reach, its instructions have to be looked at. Only that
 * little is decoded which all instructions have in common, and what cannot be told counts
 * as reading the whole bank.
 */
#ifndef FDRY_GRAPH_SASS_H
#define FDRY_GRAPH_SASS_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/buf.h"

#define FDRY_SASS_BANKS 32

/* A read of bytes [@from, @to) of @bank; of all of it where @all. */
struct fdry_sass_read {
	unsigned int bank;
	bool all;
	uint32_t from, to;
};
typedef int (*fdry_sass_read_fn)(void *arg, const struct fdry_sass_read *read);

/* Is the instruction set of @arch (10 * major + minor) one whose constant operands are known? */
bool fdry_sass_known(unsigned int arch);

/**
 * fdry_sass_reads() - Report the constants that a function's code may read.
 * @code: .text.K, with every function inside it
 * @arch: 10 * major + minor; must be known
 * @jumps: offsets in @code that indirect branches lead to, besides what the code itself says
 * @fn: called for each reading instruction, in order, for banks of 1 and above; its
 *	non-zero result ends the walk and is returned
 *
 * Errors: FDRY_E_NOSLICE (code of a size that is no multiple of an instruction), FDRY_E_NOMEM.
 */
int fdry_sass_reads(struct fdry_span code, unsigned int arch, const uint32_t *jumps, uint32_t njumps,
		    fdry_sass_read_fn fn, void *arg) __must_check;

/* How many branches in @code go where a table says. */
uint32_t fdry_sass_tables(struct fdry_span code);

#endif
