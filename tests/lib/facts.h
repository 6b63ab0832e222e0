/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.h - code of programs that print facts about the machine's driver: its functions, kernels
 * that set conditions, and sections that run in processes of their own, since some of them may
 * break the context.
 */
#ifndef FDRY_TESTS_LIB_FACTS_H
#define FDRY_TESTS_LIB_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <cuda.h>

#define NOTE(...) printf("note: " __VA_ARGS__)
#define CHECK(cond) facts_check(cond, #cond, __LINE__)
/* A function of the driver that the library's table need not have. */
#define API(f) ((__typeof__(&f))facts_symbol(#f))
#define MUST(f, ...) facts_must(API(f)(__VA_ARGS__), #f)

struct facts {
	CUcontext ctx;
	CUstream stream;
	CUdeviceptr mem; /* 64 words of 4 bytes */
	CUfunction add, set, down;
};
extern struct facts facts;

struct facts_section {
	const char *name;
	void (*run)(void);
};
/* main() of such a program: run each section in a process, or the one that @argv names. */
int facts_main(int argc, char **argv, const struct facts_section *sections, size_t n);

void facts_check(bool good, const char *what, int line);
void facts_must(CUresult res, const char *what);
void *facts_symbol(const char *name);

CUgraph facts_graph_new(void);
CUgraphNode facts_kernel(CUgraph g, const CUgraphNode *dep, CUfunction f, void **args);
/* A node that adds @n to word @i. */
CUgraphNode facts_add(CUgraph g, const CUgraphNode *dep, unsigned int i, uint32_t n);
/* A node that sets @h to word @i; @down: which it counts down before. */
CUgraphNode facts_cond_set(CUgraph g, const CUgraphNode *dep, CUgraphConditionalHandle h,
			   unsigned int i, bool down);
CUresult facts_any_add(CUgraph g, const CUgraphNode *dep, CUgraphNodeParams *p, CUgraphNode *ret);
size_t facts_nodes_of(CUgraph g, CUgraphNode *nodes, size_t max);
void facts_words_set(const uint32_t *w, size_t n);
uint32_t facts_word(unsigned int i);
/* Instantiate, destroy the graph if @gone, launch @times, destroy. The first error. */
CUresult facts_run(CUgraph g, unsigned int times, bool gone);

#endif
