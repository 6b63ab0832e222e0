// SPDX-License-Identifier: Apache-2.0
/*
 * pointers.c - finds words of content that point to memory which an image does not hold.
 *
 * A program may store a pointer in memory, for example to a module variable. In another process
 * that pointer is invalid, like one in a kernel's arguments. Content has no types, so every word at
 * a multiple of 8 is checked, in three steps. First: can the word be an address? Its upper half
 * must be between 1 and 2^15 - 1: no finite bf16, fp16 or fp8 number, no normal fp32 number and no
 * count below 2^32 has such bits. Second: does the process have a mapping at that address? Third:
 * does the driver have memory there?
 *
 * A word that passes may still be a number. The seal is refused if a number would rarely have that
 * value: if the word points into a small allocation, like those of variables; if it is a multiple
 * of 256, like addresses of allocations; or if another such word is close to it and points to a
 * place close by. Other words that pass are only counted in the report. In a module variable, which
 * is small beside content, every word that passes refuses the seal.
 *
 * A pointer to a variable of a kernel's module is kept: a load writes the address that the variable
 * has then (targets.c). That would change a number, so the word must pass these tests, too; if it
 * fails them, it is refused. Tensors have types: one that does not hold 64-bit integers or plain
 * bytes has no pointers, and a load changes none of its words.
 *
 * A word between the bounds of the device's heap (heap.c) is refused unless the driver knows it as
 * other memory; no mapping of the process tells whether it is an address.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "image/seal/seal.h"

#define HALVES FDRY_SEALED_HALVES /* the number of upper halves of addresses, which have 47 bits */
#define SMALL (1ull << 20)   /* bytes of a small allocation */
#define ROUND 256u
#define CLOSE 64u            /* bytes between two words that belong together */
#define BLOCK 64u            /* words that are checked together */
#define CACHE 4096u

struct fdry_pointers {
	const struct fdry_seal_maps *maps;
	uint64_t base, end; /* of the region */
	struct fdry_heap heap; /* of the device */
	/* A bit for each upper half with a mapping; after fdry_pointers_remember(), for each upper
	 * half that is searched for. */
	uint64_t halves[HALVES / 64];
	uint64_t numbers[CACHE];      /* words that are no pointers, by hash */
	uint64_t at, word;            /* the address and value of the last word that was only
					 counted */
};

static void half_mark(struct fdry_pointers *p, uint64_t first, uint64_t last)
{
	uint64_t half;

	for (half = first; half <= last && half < HALVES; half++)
		p->halves[half / 64] |= 1ull << half % 64;
}

bool fdry_pointers_remember(struct fdry_pointers *p, const uint64_t *before)
{
	bool grew = false;
	uint64_t first;
	size_t i;

	for (i = 0; i < HALVES / 64; i++) {
		grew |= (p->halves[i] & ~before[i]) != 0;
		p->halves[i] = before[i];
	}
	if (!grew)
		return false;
	for (i = 0; i < p->maps->n; i++) {
		first = p->maps->list[i].start >> 32;
		half_mark(p, first - (first > 0), ((p->maps->list[i].end - 1) >> 32) + 1);
	}
	half_mark(p, p->base >> 32, p->end >> 32);
	fdry_pointers_heap(p, &p->heap);
	return true;
}

void fdry_pointers_heap(struct fdry_pointers *p, const struct fdry_heap *heap)
{
	if (heap->start == heap->end)
		return;
	p->heap = *heap;
	half_mark(p, heap->start >> 32, heap->end >> 32);
	memset(p->numbers, 0, sizeof(p->numbers));
}

void fdry_pointers_halves(const struct fdry_pointers *p, uint64_t *ret)
{
	memcpy(ret, p->halves, sizeof(p->halves));
}

int fdry_pointers_new(const struct fdry_seal_maps *maps, const struct fdry_layout *l,
		      struct fdry_pointers **ret)
{
	struct fdry_pointers *p = calloc(1, sizeof(*p));
	size_t i;

	if (!p)
		return fdry_nomem();
	p->maps = maps;
	p->base = l->base;
	p->end = l->base + l->size;
	half_mark(p, p->base >> 32, p->end >> 32);
	for (i = 0; i < maps->n; i++)
		half_mark(p, maps->list[i].start >> 32, (maps->list[i].end - 1) >> 32);
	*ret = p;
	return 0;
}

void fdry_pointers_free(struct fdry_pointers *p)
{
	free(p);
}

/* Is the word one of few numbers, or is another such word close to it? */
static bool is_special(const struct fdry_pointers *p, uint64_t at, uint64_t word)
{
	return word % ROUND == 0 || (p->word >> 32 == word >> 32 && at - p->at <= CLOSE);
}

/* Is it unlikely that a number has this value by chance? */
static bool is_meant(const struct fdry_seal *s, uint64_t at, uint64_t word)
{
	CUdeviceptr start = 0;
	size_t size = 0;

	if (is_special(s->pointers, at, word))
		return true;
	return word % 4 == 0 &&
	       !fdry_call_raw(s->cap->drv, cuMemGetAddressRange_v2, &start, &size, word) &&
	       size <= SMALL;
}

/* The tensor that holds the byte at @at, or "". */
static const char *tensor_at(const struct fdry_seal *s, uint64_t at)
{
	const struct fdry_capture_tensor *t =
		fdry_array(s->cap->tensors, struct fdry_capture_tensor);
	size_t i;

	for (i = 0; i < fdry_array_count(s->cap->tensors, struct fdry_capture_tensor); i++)
		if (at >= t[i].desc.addr && at - t[i].desc.addr < t[i].extent)
			return t[i].desc.name;
	return "";
}

/* What to do about a pointer in memory of the program. */
static const char *advice(enum fdry_where where)
{
	return where == FDRY_WHERE_HEAP
		       ? "let a kernel free the block, and clear the word before the seal"
		       : "keep such pointers out of memory which the image holds, or make that "
			 "memory an external tensor, which the loader fills";
}

static int refuse(const struct fdry_seal *s, uint64_t at, uint64_t word, enum fdry_where where,
		  const char *what)
{
	const struct fdry_alloc *a = fdry_layout_find(&s->layout, at);
	const char *tensor = tensor_at(s, at);
	uint64_t start = a ? a->addr : at; /* no allocation: host memory */

	if (s->variable)
		return fdry_fail(FDRY_E_REFUSED,
				 "the word at byte %" PRIu64
				 " of the module variable %.200s is 0x%" PRIx64
				 ", which points to %s; keep such pointers out of variables",
				 at - s->variable_addr, s->variable, word, what);
	if (s->array)
		return fdry_fail(FDRY_E_REFUSED,
				 "the word at byte %" PRIu64 " is 0x%" PRIx64
				 ", which points to %s; keep such pointers out of arrays",
				 at, word, what);
	return fdry_fail(FDRY_E_REFUSED,
			 "the word at byte %" PRIu64 " of the %s at 0x%" PRIx64
			 "%s%s%s is 0x%" PRIx64 ", which points "
			 "to %s; %s",
			 at - start, a ? "allocation" : "host memory", start,
			 *tensor ? " (tensor '" : "", tensor, *tensor ? "')" : "", word, what,
			 advice(where));
}

/* Does the word point to memory that a load restores at the same address, or to a block of the seal
 * itself? The region also contains memory that the program mapped and that no image can hold. */
static bool is_own(const struct fdry_seal *s, uint64_t word)
{
	if (word - s->layout.base < s->layout.size)
		return !fdry_layout_shared(&s->layout, word);
	return fdry_mem_reader_holds(s->reader, word);
}

static bool holds_pointers(uint32_t dtype)
{
	return dtype == FDRY_I64 || dtype == FDRY_U64 || dtype == FDRY_BYTES;
}

/* Does a tensor whose type has no pointers hold the word at @at? */
static bool is_data(const struct fdry_seal *s, uint64_t at)
{
	const struct fdry_capture_tensor *t =
		fdry_array(s->cap->tensors, struct fdry_capture_tensor);
	size_t i, n = fdry_array_count(s->cap->tensors, struct fdry_capture_tensor);

	for (i = 0; i < n; i++)
		if (!holds_pointers(t[i].desc.dtype) && at + 8 > t[i].desc.addr &&
		    at < t[i].desc.addr + t[i].extent)
			return true;
	return false;
}

/* Can a load write an address at @at? Not into host memory, and not into data. */
static bool may_change(const struct fdry_seal *s, uint64_t at, uint64_t word)
{
	return s->variable ||
	       (!s->array && word % 4 == 0 && fdry_layout_find(&s->layout, at) && !is_data(s, at));
}

/* Note a word that points to a variable of a kernel's module: a load writes the address that the
 * variable has then. A number may well have the address of a byte of a large variable. */
static int variable_look(struct fdry_seal *s, uint64_t at, uint64_t word, bool *ret)
{
	struct fdry_sealed_word found = { .at = at, .word = word };
	CUdeviceptr start;
	uint64_t size;
	int err = fdry_kernel_set_point(s->kernels, word, &start, &size);

	*ret = start;
	if (err || !start)
		return err;
	if (!s->variable && size > SMALL && !is_special(s->pointers, at, word))
		return refuse(s, at, word, FDRY_WHERE_VARIABLE,
			      "a place in a large module variable, or may be a number");
	return fdry_buf_put(&s->found, &found, sizeof(found));
}

/* Judge a word that may be an address. The process has a mapping there. */
static int word_look(struct fdry_seal *s, uint64_t at, uint64_t word)
{
	struct fdry_pointers *p = s->pointers;
	uint64_t *number = &p->numbers[word * 0x9E3779B97F4A7C15ull >> 52];
	enum fdry_where where = FDRY_WHERE_NOTHING;
	const char *what = "";
	bool found = false;
	int err;

	if (*number == word)
		return 0;
	err = fdry_seal_ptr(s, word, 0, &where, &what);
	if (err)
		return err;
	if (where == FDRY_WHERE_NOTHING || where == FDRY_WHERE_REGION) {
		*number = word;
		return 0;
	}
	if (where == FDRY_WHERE_VARIABLE && may_change(s, at, word))
		err = variable_look(s, at, word, &found);
	if (err || found)
		return err;
	if (where == FDRY_WHERE_HEAP && !s->variable && is_data(s, at))
		return 0;
	/* No number has the address of a known function by chance. One may point into the heap, but
	 * few programs use it, so every such word is refused. */
	if (s->variable || where == FDRY_WHERE_HEAP ||
	    fdry_kernel_set_function(s->kernels, word) || is_meant(s, at, word))
		return refuse(s, at, word, where, what);
	p->at = at;
	p->word = word;
	s->report.pointer_words++;
	return 0;
}

static bool is_candidate(uint64_t word)
{
	return (uint32_t)(word >> 32) - 1 < HALVES - 1;
}

static bool has_half(const struct fdry_pointers *p, uint64_t word)
{
	return p->halves[(word >> 32) / 64] & 1ull << (word >> 32) % 64;
}

static int block_find(const struct fdry_seal *s, uint64_t at, const uint8_t *bytes, size_t n,
		      struct fdry_buf *words)
{
	struct fdry_sealed_word w = { .at = at };
	size_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++, w.at += 8) {
		w.word = fdry_get64(bytes + 8 * i);
		if (is_candidate(w.word) && has_half(s->pointers, w.word))
			err = fdry_buf_put(words, &w, sizeof(w));
	}
	return err;
}

/* Most content has no candidate: this checks a whole block without a branch. */
static bool block_has(const uint8_t *bytes)
{
	unsigned int i, any = 0;

	for (i = 0; i < BLOCK; i++)
		any |= is_candidate(fdry_get64(bytes + 8 * i));
	return any;
}

int fdry_pointers_find(const struct fdry_seal *s, uint64_t addr, const uint8_t *bytes, size_t len,
		       struct fdry_buf *words)
{
	size_t skip = -addr & 7, left, n;
	int err = 0;

	if (len < skip)
		return 0;
	addr += skip;
	bytes += skip;
	for (left = (len - skip) / 8; left && !err; left -= n, addr += 8 * n, bytes += 8 * n) {
		n = left < BLOCK ? left : BLOCK;
		if (n < BLOCK || block_has(bytes))
			err = block_find(s, addr, bytes, n, words);
	}
	return err;
}

int fdry_pointers_judge(struct fdry_seal *s, const struct fdry_sealed_word *w, size_t n)
{
	int err = 0;

	for (; n && !err; n--, w++)
		if (!is_own(s, w->word) &&
		    (fdry_seal_heap_may_hold(s, w->word) || fdry_seal_mapped(s, w->word)))
			err = word_look(s, w->at, w->word);
	return err;
}

int fdry_pointers_look(struct fdry_seal *s, uint64_t addr, const uint8_t *bytes, size_t len)
{
	struct fdry_buf words = { 0 };
	int err = fdry_pointers_find(s, addr, bytes, len, &words)
			  ?: fdry_pointers_judge(s, fdry_array(words, struct fdry_sealed_word),
						 fdry_array_count(words, struct fdry_sealed_word));

	fdry_buf_release(&words);
	return err;
}
