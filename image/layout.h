/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - what each byte of a region's live memory is to an image.
 *
 * Made from the ledger, the external tensors and, for memory that was allocated while a
 * stream captured, the bytes themselves: such a block is scratch if every byte still
 * has the stamp that it got when it was mapped, content if not.
 */
#ifndef FDRY_IMAGE_LAYOUT_H
#define FDRY_IMAGE_LAYOUT_H

#include "image/capture/capture.h"
#include "lib/buf.h"
#include "mm/region.h"

/* A block of a capturing allocation is looked at as a whole. */
#define FDRY_LAYOUT_BLOCK 4096u

struct fdry_layout_range {
	uint64_t addr;
	uint64_t size;
	enum fdry_role role;
};

struct fdry_layout {
	uint64_t base, size; /* the region */
	uint64_t used;       /* one past the last address that was ever handed out, */
	uint64_t aside, aside_used; /* except for those of the aside area, which are these */
	uint64_t end;        /* one past the last live allocation */
	struct fdry_alloc *ledger;
	size_t n_ledger;
	struct fdry_buf ranges; /* of struct fdry_layout_range: ascending, apart, neighbours of one
				   role joined */
};

/* Reads device memory; the context must be current and the device idle. */
struct fdry_mem_reader;

int fdry_layout_make(struct fdry_capture *cap, struct fdry_mem_reader *reader,
		     struct fdry_layout *ret) __must_check;
void fdry_layout_release(struct fdry_layout *l);

/* FDRY_E_STATE if memory was allocated or freed since the layout was made. */
int fdry_layout_still(const struct fdry_layout *l, const struct fdry_capture *cap) __must_check;

/* The live allocation that holds the byte at @addr; NULL if there is none. */
const struct fdry_alloc *fdry_layout_find(const struct fdry_layout *l, uint64_t addr);

/* Whether the byte at @addr is memory that the program mapped twice, shared or imported: live, and
 * in no image. */
bool fdry_layout_shared(const struct fdry_layout *l, uint64_t addr);

/* Whether every one of @bytes bytes at @addr is live. */
bool fdry_layout_holds(const struct fdry_layout *l, uint64_t addr, uint64_t bytes);

/* Whether @addr points into live memory, or, as in C, one past the end of an allocation:
 * unless what followed that was freed, since then it may have been meant. */
bool fdry_layout_points(const struct fdry_layout *l, uint64_t addr);

/* --- reading device memory in pieces, through blocks of pinned memory --- */

#define FDRY_MEM_READ_PIECE ((size_t)4 << 20)

/* @blocks: how many pieces may be in use at the same time, at least 2. */
int fdry_mem_reader_new(const struct fdry_driver *drv, unsigned int blocks,
			struct fdry_mem_reader **ret) __must_check;
void fdry_mem_reader_free(struct fdry_mem_reader *r);
/* Whether @addr lies in one of the blocks: memory that the program has nothing to do with. */
bool fdry_mem_reader_holds(const struct fdry_mem_reader *r, uint64_t addr);

/* Hand memory to @fn in order, in pieces that end at multiples of their size. */
typedef int (*fdry_mem_fn)(void *arg, uint64_t addr, const uint8_t *bytes, size_t len);
int fdry_mem_read(struct fdry_mem_reader *r, uint64_t addr, uint64_t len, fdry_mem_fn fn,
		  void *arg) __must_check;

/*
 * One piece: start its copy, wait for its bytes, end it. Any number of threads at a time, each with
 * the device's context current; one that finds no free block waits for another to end.
 */
struct fdry_mem_block;
int fdry_mem_start(struct fdry_mem_reader *r, uint64_t addr, size_t len,
		   struct fdry_mem_block **ret) __must_check;
int fdry_mem_wait(struct fdry_mem_reader *r, struct fdry_mem_block *b,
		  const uint8_t **ret) __must_check;
void fdry_mem_end(struct fdry_mem_reader *r, struct fdry_mem_block *b);

#endif
