// SPDX-License-Identifier: Apache-2.0
/*
 * pinned.c - finds the pinned host memory that graphs use at its own address.
 *
 * The interposer lists the capture's pinned memory. The image gets the allocations that something
 * points to: an argument of a kernel, a copy or memset of memory that no tensor declares, a word of
 * content. The content of such an allocation may point to others, which the image then gets, too.
 * So the buffers that a program only loads data through are left out. pinned_content.c stores them.
 */
#include <stdlib.h>

#include "image/seal/seal.h"
#include "lib/search.h"

/* Whether the driver still has the registered memory as it was noted. */
static bool is_there(const struct fdry_seal *s, const struct fdry_alloc *a)
{
	CUdeviceptr start = 0;
	size_t size = 0;

	return !fdry_call_raw(s->cap->drv, cuPointerGetAttribute, &start,
			      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a->addr) &&
	       !fdry_call_raw(s->cap->drv, cuPointerGetAttribute, &size,
			      CU_POINTER_ATTRIBUTE_RANGE_SIZE, a->addr) &&
	       start == a->addr && size == a->size;
}

int fdry_seal_pinned_list(struct fdry_seal *s)
{
	struct fdry_seal_pinned *p = &s->pinned;
	size_t i, n = 0;
	int err;

	err = fdry_interposer_result(s->cap->hook, s->cap->hook->pinned_ledger(&p->list, &p->n));
	if (err)
		return err;
	for (i = 0; i < p->n; i++)
		if (p->list[i].kind == FDRY_KIND_PINNED || is_there(s, &p->list[i]))
			p->list[n++] = p->list[i];
	p->n = n;
	p->state = calloc(n + 1, 1);
	return p->state ? 0 : fdry_nomem();
}

void fdry_seal_pinned_release(struct fdry_seal *s)
{
	struct fdry_seal_pinned *p = &s->pinned;

	fdry_buf_release(&p->roles);
	fdry_buf_release(&p->chunks);
	free(p->chunk);
	free(p->state);
	free(p->list);
}

/* The position of the last allocation that begins at or below @addr; -1 if there is none. */
static ssize_t below(const struct fdry_seal_pinned *p, uint64_t addr)
{
	return (ssize_t)fdry_lower_bound(i, p->n, p->list[i].addr <= addr) - 1;
}

bool fdry_seal_pinned_lists(const struct fdry_seal *s, uint64_t addr)
{
	const struct fdry_seal_pinned *p = &s->pinned;
	ssize_t i = below(p, addr);

	return i >= 0 && addr - p->list[i].addr < p->list[i].size;
}

bool fdry_seal_pinned_holds(const struct fdry_seal *s, uint64_t addr)
{
	return fdry_seal_pinned_lists(s, addr) &&
	       s->pinned.state[below(&s->pinned, addr)] != FDRY_SEAL_PINNED_UNUSED;
}

bool fdry_seal_pinned_ptr(struct fdry_seal *s, uint64_t addr, uint64_t bytes, enum fdry_where *ret,
			  const char **what)
{
	struct fdry_seal_pinned *p = &s->pinned;
	ssize_t i = below(p, addr);
	uint64_t at;

	if (i >= 0) {
		at = addr - p->list[i].addr;
		if (at <= p->list[i].size && bytes <= p->list[i].size - at) {
			if (p->state[i] == FDRY_SEAL_PINNED_UNUSED)
				p->state[i] = FDRY_SEAL_PINNED_FOUND;
			*ret = FDRY_WHERE_REGION;
			return true;
		}
	}
	if (!s->cap->hook->pinned_used(addr))
		return false;
	*ret = FDRY_WHERE_FREED;
	*what = "pinned host memory that was freed";
	return true;
}

int fdry_seal_pinned_still(const struct fdry_seal *s)
{
	const struct fdry_seal_pinned *p = &s->pinned;
	struct fdry_alloc *now;
	size_t i, k = 0, n;
	int err;

	err = fdry_interposer_result(s->cap->hook, s->cap->hook->pinned_ledger(&now, &n));
	if (err)
		return err;
	for (i = 0; i < p->n && !err; i++) {
		while (k < n && now[k].addr < p->list[i].addr)
			k++;
		if (p->state[i] && (k == n || now[k].addr != p->list[i].addr ||
				    now[k].serial != p->list[i].serial))
			err = fdry_fail(FDRY_E_STATE,
					"pinned host memory at %#llx was freed while the seal ran; "
					"keep it allocated",
					(unsigned long long)p->list[i].addr);
	}
	free(now);
	return err;
}
