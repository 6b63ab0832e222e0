// SPDX-License-Identifier: Apache-2.0
/*
 * verify_prints.c - a table of the fingerprints of chunks that manifests record, in memory that the
 * parent and its children share.
 *
 * One child reads the manifests and adds their fingerprints; the next child looks them up.
 * Manifests that record the same fingerprint of a chunk share an entry. If they record different
 * ones, each has an entry: at most one of them is right.
 */
#include <sys/mman.h>

#include "store/verify.h"

#define CAP_MIN 1024u

static size_t bytes_of(size_t cap)
{
	return sizeof(struct fdry_verify_prints) + cap * sizeof(struct fdry_verify_print);
}

int fdry_verify_prints_new(uint64_t objects, struct fdry_verify_prints **ret)
{
	struct fdry_verify_prints *p;
	size_t cap = CAP_MIN;

	while (cap / 2 < objects)
		cap *= 2;
	p = mmap(NULL, bytes_of(cap), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return fdry_nomem();
	p->cap = cap;
	*ret = p;
	return 0;
}

void fdry_verify_prints_free(struct fdry_verify_prints *p)
{
	if (p)
		munmap(p, bytes_of(p->cap));
}

/* The entry at or behind slot @i that is free or belongs to @oid. One slot in four is free. */
static struct fdry_verify_print *entry_at(struct fdry_verify_prints *p, size_t i,
					  const struct fdry_oid *oid)
{
	for (i &= p->cap - 1; p->slots[i].used && !fdry_oid_eq(&p->slots[i].oid, oid);)
		i = (i + 1) & (p->cap - 1);
	return &p->slots[i];
}

static size_t slot_of(const struct fdry_oid *oid)
{
	return (size_t)fdry_get64(oid->b);
}

struct fdry_verify_print *fdry_verify_prints_add(struct fdry_verify_prints *p,
						 const struct fdry_oid *oid,
						 struct fdry_fingerprint value)
{
	struct fdry_verify_print *e = entry_at(p, slot_of(oid), oid);

	while (e->used) {
		if (fdry_fingerprint_eq(e->value, value))
			return e;
		e = entry_at(p, (size_t)(e - p->slots) + 1, oid);
	}
	if (p->count >= p->cap / 4 * 3)
		return NULL; /* objects added since the count are hashed */
	*e = (struct fdry_verify_print){ .oid = *oid, .value = value, .used = true };
	p->count++;
	return e;
}

struct fdry_verify_print *fdry_verify_prints_next(struct fdry_verify_prints *p,
						  const struct fdry_oid *oid,
						  const struct fdry_verify_print *before)
{
	size_t from = before ? (size_t)(before - p->slots) + 1 : slot_of(oid);
	struct fdry_verify_print *e = entry_at(p, from, oid);

	return e->used ? e : NULL;
}
