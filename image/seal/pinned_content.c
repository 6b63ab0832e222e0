// SPDX-License-Identifier: Apache-2.0
/*
 * pinned_content.c - stores the pinned host memory that graphs use at its own address.
 *
 * Roles are those of device memory: external tensors are external; blocks that still have the stamp
 * of a capture are scratch; the rest is content. Only the bytes from the first to the last block of
 * each cell that is not zero are stored. Cells end at multiples of the address, as those of device
 * memory do, so no pointer is in two of them.
 */
#include <stdlib.h>
#include <string.h>

#include "image/seal/seal.h"
#include "lib/safe_read.h"
#include "lib/search.h"

/* Fewer bytes at the end of an allocation may be equal to the stamp by chance. */
#define STAMPED_MIN 8u

/* An allocation that is being stored. */
struct storing {
	struct fdry_seal *s;
	struct fdry_safe_read reader;
	const struct fdry_alloc *alloc;
	uint64_t at;  /* the next byte */
};

static int role_put(struct storing *st, uint64_t addr, uint64_t size, enum fdry_role role)
{
	struct fdry_mf_pinned_role r = { .addr = addr, .size = size, .role = role }, *last;
	struct fdry_buf *roles = &st->s->pinned.roles;
	size_t n = fdry_array_count(*roles, struct fdry_mf_pinned_role);

	if (role == FDRY_ROLE_SCRATCH)
		st->s->report.scratch_bytes += size;
	else
		st->s->report.external_bytes += size;
	last = n ? &fdry_array(*roles, struct fdry_mf_pinned_role)[n - 1] : NULL;
	if (!last || last->role != role || last->addr + last->size != addr ||
	    addr == st->alloc->addr)
		return fdry_buf_put(roles, &r, sizeof(r));
	last->size += size;
	return 0;
}

static int chunk_put(struct storing *st, uint64_t addr, const uint8_t *bytes, size_t len)
{
	struct fdry_mf_pinned_chunk c = { .addr = addr, .size = len };
	int err;

	c.print = fdry_fingerprint_of(bytes, len);
	err = fdry_writer_add_object(st->s->writer, FDRY_OBJECT_CHUNK, bytes, len, NULL, 0, &c.oid);
	if (err)
		return err;
	st->s->report.content_bytes += len;
	return fdry_buf_put(&st->s->pinned.chunks, &c, sizeof(c));
}

static size_t block_len(const struct storing *st, uint64_t addr, size_t left)
{
	return (size_t)fdry_layout_part(addr - st->alloc->addr, left, FDRY_LAYOUT_BLOCK);
}

/* Store content that has been read, except zeros at its ends. */
static int content_put(struct storing *st, uint64_t addr, const uint8_t *bytes, size_t len)
{
	size_t from = 0, to = 0, at, n;
	int err;

	for (at = 0; at < len; at += n) {
		n = block_len(st, addr + at, len - at);
		if (fdry_seal_is_zero(bytes + at, n))
			continue;
		if (!to)
			from = at;
		to = at + n;
	}
	st->s->report.zero_bytes += len - (to - from);
	if (!to)
		return 0;
	err = fdry_pointers_look(st->s, addr, bytes, len);
	return err ? err : chunk_put(st, addr + from, bytes + from, to - from);
}

/* Divide memory of a capture into scratch and content. */
static int stamped_put(struct storing *st, uint64_t addr, const uint8_t *bytes, size_t len)
{
	size_t from = 0, at, n;
	int err;

	for (at = 0; at < len; at += n) {
		n = block_len(st, addr + at, len - at);
		if (n < STAMPED_MIN || !fdry_layout_stamped(bytes + at, n, addr + at))
			continue;
		err = at > from ? content_put(st, addr + from, bytes + from, at - from) : 0;
		err = err ?: role_put(st, addr + at, n, FDRY_ROLE_SCRATCH);
		if (err)
			return err;
		from = at + n;
	}
	return len > from ? content_put(st, addr + from, bytes + from, len - from) : 0;
}

/* Store the bytes from st->at to @end, which belong to no external tensor. */
static int own_put(struct storing *st, uint64_t end)
{
	uint8_t *bytes = st->s->pinned.chunk;
	size_t len;
	int err;

	for (; st->at < end; st->at += len) {
		len = (size_t)fdry_layout_part(st->at, end - st->at, FDRY_MF_CHUNK_MAX);
		err = fdry_safe_read(&st->reader, st->at, bytes, len);
		if (err == -FDRY_E_RANGE)
			return fdry_fail(FDRY_E_STATE,
					 "the pinned host memory at %#llx cannot be read: it was "
					 "unmapped, and is still registered; keep it mapped",
					 (unsigned long long)st->alloc->addr);
		if (err)
			return err;
		err = st->alloc->capturing ? stamped_put(st, st->at, bytes, len)
					   : content_put(st, st->at, bytes, len);
		if (err)
			return err;
	}
	return 0;
}

/* An external tensor may begin before st->at, or end behind the allocation. */
static int external_put(void *arg, uint64_t addr, uint64_t end)
{
	struct storing *st = arg;
	uint64_t limit = st->alloc->addr + st->alloc->size;
	int err;

	if (end > limit)
		end = limit;
	if (addr > st->at) {
		err = own_put(st, addr);
		if (err)
			return err;
	}
	if (end <= st->at)
		return 0;
	err = role_put(st, st->at, end - st->at, FDRY_ROLE_EXTERNAL);
	st->at = end;
	return err;
}

static int alloc_put(struct storing *st, const struct fdry_alloc *a)
{
	uint64_t end = a->addr + a->size;
	int err;

	st->alloc = a;
	st->at = a->addr;
	err = fdry_seal_host_externals(st->s, a->addr, end, external_put, st);
	return err ? err : own_put(st, end);
}

/* Store all allocations that were found. Content of one may point to others. */
static int allocs_put(struct storing *st)
{
	struct fdry_seal_pinned *p = &st->s->pinned;
	bool again = true;
	size_t i;
	int err;

	while (again) {
		again = false;
		for (i = 0; i < p->n; i++) {
			if (p->state[i] != FDRY_SEAL_PINNED_FOUND)
				continue;
			p->state[i] = FDRY_SEAL_PINNED_STORED;
			again = true;
			err = alloc_put(st, &p->list[i]);
			if (err)
				return err;
		}
	}
	return 0;
}

/* Add entries that begin with an address, in the order of addresses. */
static int sorted_put(struct fdry_buf *entries, size_t size, struct fdry_buf *ret)
{
	if (!entries->len)
		return 0;
	qsort(entries->data, entries->len / size, size, fdry_u64_cmp);
	return fdry_buf_put(ret, entries->data, entries->len);
}

int fdry_seal_pinned_put(struct fdry_seal *s)
{
	struct fdry_seal_pinned *p = &s->pinned;
	size_t i;
	int err;

	if (!p->chunk)
		return 0;
	for (i = 0; i < p->n; i++) {
		struct fdry_mf_pinned mf = { .addr = p->list[i].addr, .size = p->list[i].size };

		if (p->list[i].kind == FDRY_KIND_REGISTERED)
			mf.kind = FDRY_MF_PINNED_REGISTERED;
		err = p->state[i] ? fdry_buf_put(&s->w.pinned, &mf, sizeof(mf)) : 0;
		if (err)
			return err;
	}
	err = sorted_put(&p->roles, sizeof(struct fdry_mf_pinned_role), &s->w.pinned_roles);
	if (err)
		return err;
	err = sorted_put(&p->chunks, sizeof(struct fdry_mf_pinned_chunk), &s->w.pinned_chunks);
	return err ? err : fdry_seal_host_places(s);
}

int fdry_seal_pinned(struct fdry_seal *s)
{
	struct storing st = { .s = s };
	int err;

	if (!s->pinned.n || !memchr(s->pinned.state, FDRY_SEAL_PINNED_FOUND, s->pinned.n))
		return 0;
	s->pinned.chunk = s->pinned.chunk ?: malloc(FDRY_MF_CHUNK_MAX);
	if (!s->pinned.chunk)
		return fdry_nomem();
	err = fdry_safe_read_init(&st.reader);
	if (err)
		return err;
	err = allocs_put(&st);
	fdry_safe_read_release(&st.reader);
	return err;
}
