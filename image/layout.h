/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - the role of each byte of a region's live memory: content, scratch or external.
 *
 * The role follows from the ledger, which lists the allocations, and from the external tensors.
 * Memory that was allocated while a stream captured was filled with a stamp. There, a block is
 * scratch if all its bytes still have the stamp, since nothing has written it; otherwise it is
 * content.
 */
#ifndef FDRY_IMAGE_LAYOUT_H
#define FDRY_IMAGE_LAYOUT_H

#include "image/capture/capture.h"
#include "lib/buf.h"
#include "mm/region.h"

/* The size of a block of memory that was allocated during a capture. */
#define FDRY_LAYOUT_BLOCK 4096u

struct fdry_layout_range {
	uint64_t addr;
	uint64_t size;
	enum fdry_role role;
};

struct fdry_layout {
	uint64_t base, size; /* the region */
	uint64_t used;       /* one past the last address ever allocated in the region */
	uint64_t aside, aside_used; /* the aside area's base, and the same of it as used */
	uint64_t end;        /* one past the last live allocation */
	struct fdry_alloc *ledger;
	size_t n_ledger;
	struct fdry_buf ranges; /* struct fdry_layout_range each: ascending, without overlap;
				   neighbours of one role are joined */
};

/* Reads device memory. Its context must be current, and the device idle. */
struct fdry_mem_reader;

int fdry_layout_make(struct fdry_capture *cap, struct fdry_mem_reader *reader,
		     struct fdry_layout *ret) __must_check;
void fdry_layout_release(struct fdry_layout *l);

/* FDRY_E_STATE if memory was allocated or freed since the layout was made. */
int fdry_layout_still(const struct fdry_layout *l, const struct fdry_capture *cap) __must_check;

/* The live allocation that holds the byte at @addr; NULL if there is none. */
const struct fdry_alloc *fdry_layout_find(const struct fdry_layout *l, uint64_t addr);

/* Whether the byte at @addr is live memory that the program mapped twice, shared or imported. No
 * image holds such memory. */
bool fdry_layout_shared(const struct fdry_layout *l, uint64_t addr);

/* Whether all @bytes bytes at @addr are live. */
bool fdry_layout_holds(const struct fdry_layout *l, uint64_t addr, uint64_t bytes);

/* Whether @addr points into live memory or, as in C, one past the end of an allocation. The latter
 * does not count if an allocation began there and was freed: the pointer may point to that. */
bool fdry_layout_points(const struct fdry_layout *l, uint64_t addr);

/* Bytes from @at to the next multiple of @multiple, at most @len. */
static inline uint64_t fdry_layout_part(uint64_t at, uint64_t len, uint64_t multiple)
{
	uint64_t left = multiple - at % multiple;

	return left < len ? left : len;
}

/* Whether @len bytes, read at @addr, still have the stamp of a capture. */
bool fdry_layout_stamped(const uint8_t *bytes, size_t len, uint64_t addr);

/* --- reading device memory in pieces, through blocks of pinned memory --- */

#define FDRY_MEM_READ_PIECE ((size_t)4 << 20)

/* @blocks: the most pieces in use at the same time, at least 2. */
int fdry_mem_reader_new(const struct fdry_driver *drv, unsigned int blocks,
			struct fdry_mem_reader **ret) __must_check;
void fdry_mem_reader_free(struct fdry_mem_reader *r);
/* Whether @addr lies in one of the reader's blocks, which are not memory of the program. */
bool fdry_mem_reader_holds(const struct fdry_mem_reader *r, uint64_t addr);

/* Read memory and pass it to @fn in order, in pieces that end at multiples of
 * FDRY_MEM_READ_PIECE. */
typedef int (*fdry_mem_fn)(void *arg, uint64_t addr, const uint8_t *bytes, size_t len);
int fdry_mem_read(struct fdry_mem_reader *r, uint64_t addr, uint64_t len, fdry_mem_fn fn,
		  void *arg) __must_check;

/*
 * Read one piece: start its copy, wait for its bytes, end it. Any number of threads may do this at
 * a time, each with the device's context current. If no block is free, a thread waits until another
 * ends.
 */
struct fdry_mem_block;
int fdry_mem_start(struct fdry_mem_reader *r, uint64_t addr, size_t len,
		   struct fdry_mem_block **ret) __must_check;
int fdry_mem_wait(struct fdry_mem_reader *r, struct fdry_mem_block *b,
		  const uint8_t **ret) __must_check;
void fdry_mem_end(struct fdry_mem_reader *r, struct fdry_mem_block *b);

#endif
