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

#include "lib/buf.h"

#define FDRY_SASS_BANKS 32

/* A read of bytes [@from, @to) of @bank; of all of it where @all. */
struct fdry_sass_read {
	unsigned int bank;
	bool all;
	uint32_t from, to;
};
typedef int (*fdry_sass_read_fn)(void *arg, const struct fdry_sass_read *read);

/* A function's code, and what is known about it from elsewhere. */
struct fdry_sass_code {
	struct fdry_span bytes;  /* .text.K, with every function inside it */
	unsigned int arch;       /* 10 * major + minor */
	const uint32_t *jumps;   /* offsets that branches may lead to, besides what the code itself says */
	uint32_t njumps;
	bool anywhere;           /* branches may lead to any instruction */
};

/* Is the instruction set of @arch (10 * major + minor) one whose constant operands are known? */
bool fdry_sass_supported(unsigned int arch);

/**
 * fdry_sass_reads() - Report the constants that a function's code may read.
 * @code: for an instruction set that is known
 * @fn: called for each reading instruction, in order, for banks of 1 and above; its
 *	non-zero result ends the walk and is returned
 *
 * Errors: FDRY_E_NOSLICE (instructions are not known, or half of one), FDRY_E_NOMEM.
 */
int fdry_sass_reads(const struct fdry_sass_code *code, fdry_sass_read_fn fn, void *arg) __must_check;

/* How many branches in @code go where a table says. */
uint32_t fdry_sass_tables(struct fdry_span code);

#endif
