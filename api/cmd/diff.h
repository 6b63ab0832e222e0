/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - foundry-store diff: the declarations that its files share.
 *
 * Each part of an image (facts, tensors, graphs and so on) is compared entry by entry. A
 * difference is printed at once, as text or JSON, and counted.
 */
#ifndef FDRY_API_CMD_DIFF_H
#define FDRY_API_CMD_DIFF_H

#include "api/cmd/cmd.h"
#include "api/cmd/image.h"

struct diff_kernels {
	uint32_t *sorted; /* indices, by name, object, attributes and parameters */
	uint32_t *rank;   /* of each kernel; equal kernels have equal ranks on both sides */
};

struct diff {
	const struct cmd_args *a;
	struct fdry_reader *reader;
	struct cmd_image im[2];
	struct diff_kernels kernels[2];
	const char *part; /* compared now; its headline precedes its first difference */
	bool headed;
	struct json j;
	uint64_t count;
};

enum diff_what { DIFF_REMOVED, DIFF_ADDED, DIFF_CHANGED };
/* Report a difference. @a and @b: the entry on each side; "": that side has none. In JSON the
 * caller may add keys before diff_end(). */
void diff_begin(struct diff *d, enum diff_what what, const char *name, const char *a,
		const char *b);
void diff_number(struct diff *d, const char *key, uint64_t value);
/* Print one more line in the text; nothing in JSON. */
void diff_more(struct diff *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void diff_end(struct diff *d);

/* Compare two lists by ascending key: @order compares a's @i with b's @j. @found is called for
 * each entry, with -1 for the side that has none. */
struct diff_list {
	const char *part;
	uint32_t n[2];
	int (*order)(const struct diff *d, uint32_t i, uint32_t j);
	int (*found)(struct diff *d, int64_t i, int64_t j);
};
int diff_list(struct diff *d, const struct diff_list *l) __must_check;

/* --- diff_kernels.c: matches the kernels of both sides, before graphs are compared --- */
int diff_kernels_rank(struct diff *d) __must_check;
void diff_kernels_release(struct diff *d);
int diff_kernels(struct diff *d) __must_check;

/* --- diff_content.c --- */
int diff_content(struct diff *d) __must_check;

/* --- diff_graphs.c --- */
int diff_graphs(struct diff *d) __must_check;

#endif
