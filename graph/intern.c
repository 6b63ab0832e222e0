// SPDX-License-Identifier: Apache-2.0
/*
 * intern.c - open addressing over the bytes of records; see intern.h.
 *
 * At most half of the slots are in use, so a probe always ends. Hashes never reach the output.
 */
#include "graph/intern.h"

#include <stdlib.h>

#define SLOTS_MIN 64u

static uint64_t record_hash(const uint8_t *p, size_t len)
{
	uint64_t h = 0x9e3779b97f4a7c15u ^ len;

	for (; len >= 8; p += 8, len -= 8) {
		h = (h ^ fdry_get64(p)) * 0xff51afd7ed558ccdu;
		h ^= h >> 32;
	}
	for (; len; p++, len--)
		h = (h ^ *p) * 0x100000001b3u;
	return h ^ h >> 29;
}

static struct fdry_span record_at(const struct fdry_intern *t, uint32_t index)
{
	uint32_t from = index ? fdry_get32(t->ends.data + 4 * (size_t)(index - 1)) : 0;
	uint32_t end = fdry_get32(t->ends.data + 4 * (size_t)index);

	return (struct fdry_span){ t->bytes.data + from, end - from };
}

/* Most records have 8 bytes, since they are words or handles. */
static bool record_is(struct fdry_span s, const void *rec, size_t len)
{
	if (s.len != len)
		return false;
	return len == 8 ? fdry_get64(s.data) == fdry_get64(rec) : !memcmp(s.data, rec, len);
}

/* The slot that holds the record, or the free slot for it. */
static uint32_t *slot_of(const struct fdry_intern *t, const void *rec, size_t len)
{
	uint64_t i = record_hash(rec, len);
	struct fdry_span s;

	for (;; i++) {
		uint32_t *slot = &t->slots[i & (t->nslots - 1)];

		if (!*slot)
			return slot;
		s = record_at(t, *slot - 1);
		if (record_is(s, rec, len))
			return slot;
	}
}

static int slots_grow(struct fdry_intern *t)
{
	uint32_t i, n = t->nslots ? t->nslots * 2 : SLOTS_MIN, *slots;
	struct fdry_span s;

	slots = n ? calloc(n, sizeof(*slots)) : NULL;
	if (!slots)
		return fdry_nomem();
	free(t->slots);
	t->slots = slots;
	t->nslots = n;
	for (i = 0; i < t->count; i++) {
		s = record_at(t, i);
		*slot_of(t, s.data, s.len) = i + 1;
	}
	return 0;
}

static int record_append(struct fdry_intern *t, const void *rec, size_t len)
{
	size_t before = t->bytes.len;
	int ret;

	if (len > UINT32_MAX - before)
		return fdry_fail(FDRY_E_LIMIT,
				 "distinct records take more than 4 GiB; split the graph");
	ret = fdry_buf_put(&t->bytes, rec, len);
	if (ret)
		return ret;
	ret = fdry_buf_put_u32(&t->ends, (uint32_t)t->bytes.len);
	if (ret)
		t->bytes.len = before;
	return ret;
}

bool fdry_intern_find(const struct fdry_intern *t, const void *rec, size_t len, uint32_t *index)
{
	uint32_t slot = t->nslots ? *slot_of(t, rec, len) : 0;

	if (slot)
		*index = slot - 1;
	return slot != 0;
}

int fdry_intern(struct fdry_intern *t, const void *rec, size_t len, uint32_t *index, bool *is_new)
{
	int err;

	if (fdry_intern_find(t, rec, len, index)) {
		if (is_new)
			*is_new = false;
		return 0;
	}
	if (t->count >= t->nslots / 2) {
		err = slots_grow(t);
		if (err)
			return err;
	}
	err = record_append(t, rec, len);
	if (err)
		return err;
	*index = t->count++;
	*slot_of(t, rec, len) = *index + 1;
	if (is_new)
		*is_new = true;
	return 0;
}

void fdry_intern_release(struct fdry_intern *t)
{
	fdry_buf_release(&t->bytes);
	fdry_buf_release(&t->ends);
	free(t->slots);
	memset(t, 0, sizeof(*t));
}
