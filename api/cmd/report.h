/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the parts of the page that describes an image; report.c puts them together. */
#ifndef FDRY_API_CMD_REPORT_H
#define FDRY_API_CMD_REPORT_H

#include "api/cmd/cmd.h"
#include "api/cmd/html.h"
#include "api/cmd/image.h"

#define REPORT_COLOURS 8u /* the kernels with the most nodes have a colour of their own */

struct report_kernel {
	uint32_t index; /* in the manifest */
	uint64_t nodes;
	uint64_t bytes, stored; /* of its object */
	int colour;             /* below REPORT_COLOURS; -1: none of its own */
	char *name;             /* short */
};

struct report_times;

struct report {
	FILE *f;
	struct fdry_store *s;
	struct fdry_reader *reader;
	struct fdry_object_info info;
	struct cmd_sum sums[FDRY_OBJECT_MANIFEST + 1];
	struct fdry_image_times times;
	struct report_times *measured; /* NULL: nothing was measured */
	struct cmd_image im;
	struct report_kernel *kernels; /* by index; NULL if there are none */
	uint32_t *ranked;              /* the same by nodes, the most first */
	uint32_t graphs;
	uint64_t nodes;                /* of all graphs */
	uint64_t titled, drawn; /* nodes of pictures so far: with a text each, and all */
};

/* Count the nodes of each kernel and choose colours. FDRY_E_CORRUPT and others. */
int report_kernels_read(struct report *r) __must_check;
void report_kernels_release(struct report *r);

/* A long list: @shown of its @n rows in sight, more of them folded, up to @most. */
struct report_list {
	const char *what;
	uint32_t n, shown, most;
	/* a table of the rows [@from, @to) of @order */
	void (*table)(const struct report *r, const uint32_t *order, uint32_t from, uint32_t to);
};

void report_list(const struct report *r, const struct report_list *l, const uint32_t *order);

int report_graphs(struct report *r) __must_check;
void report_kernels(struct report *r);
void report_memory(struct report *r);
int report_shared(struct report *r) __must_check;

/* Load image @oid on the GPU and measure its kernels, before anything else is read. Errors of the
 * load and of fdry_image_kernel_times(). */
int report_times_measure(struct report *r, const struct fdry_oid *oid) __must_check;
int report_times(const struct report *r) __must_check;
void report_times_release(struct report *r);

#endif
