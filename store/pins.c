// SPDX-License-Identifier: Apache-2.0
/*
 * pins.c - pins that may end again, each under the number of its holder.
 *
 * A pin is a flag of the ref's record. fdry_ref_hold() sets it for a time, and notes the holder in
 * the table meta. The last holder clears the flag. A flag without notes is a pin for good, so
 * fdry_ref_hold() writes nothing then: a store without free space must not refuse it. Notes of a
 * ref without the flag mean nothing, since a program that does not know them has ended all pins.
 * fdry_store_remove() deletes the notes; only refs without the flag are removed otherwise.
 */
#include <string.h>

#include "store/internal.h"

#define KEY_MAX (sizeof(FDRY_META_PIN) + FDRY_REF_KEY_MAX + sizeof(uint64_t))

struct notes {
	uint8_t key[KEY_MAX];
	size_t len;            /* of the key without the holder */
	struct fdry_buf found; /* uint64_t each: the holders */
};

static int note_take(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct notes *n = arg;
	uint64_t holder;

	(void)value;
	if (key.len != n->len + sizeof(holder) || memcmp(key.data, n->key, n->len))
		return FDRY_EACH_STOP;
	holder = fdry_get64(key.data + n->len);
	return fdry_buf_put(&n->found, &holder, sizeof(holder));
}

static int notes_read(struct fdry_txn *t, const struct fdry_ref *ref, struct notes *n)
{
	size_t len = strlen(ref->name) + 1;

	memset(n, 0, sizeof(*n));
	memcpy(n->key, FDRY_META_PIN, sizeof(FDRY_META_PIN));
	memcpy(n->key + sizeof(FDRY_META_PIN), ref->name, len);
	memcpy(n->key + sizeof(FDRY_META_PIN) + len, ref->identity.b, FDRY_OID_SIZE);
	n->len = sizeof(FDRY_META_PIN) + len + FDRY_OID_SIZE;
	return fdry_txn_each(t, FDRY_TABLE_META, (struct fdry_span){ n->key, n->len }, note_take,
			     n);
}

static struct fdry_span key_of(struct notes *n, uint64_t holder)
{
	fdry_set64(n->key + n->len, holder);
	return (struct fdry_span){ n->key, n->len + sizeof(holder) };
}

static int note_put(struct fdry_txn *t, struct notes *n, uint64_t holder)
{
	static const uint8_t one = 1;

	return fdry_txn_put(t, FDRY_TABLE_META, key_of(n, holder), (struct fdry_span){ &one, 1 });
}

static int notes_delete(struct fdry_txn *t, struct notes *n)
{
	const uint64_t *holders = fdry_array(n->found, uint64_t);
	size_t i, count = fdry_array_count(n->found, uint64_t);
	int err = 0;

	for (i = 0; i < count && !err; i++)
		err = fdry_txn_delete(t, FDRY_TABLE_META, key_of(n, holders[i]));
	n->found.len = 0;
	return err;
}

static bool notes_have(const struct notes *n, uint64_t holder)
{
	const uint64_t *holders = fdry_array(n->found, uint64_t);
	size_t i, count = fdry_array_count(n->found, uint64_t);

	for (i = 0; i < count; i++)
		if (holders[i] == holder)
			return true;
	return false;
}

static int flag_set(struct fdry_txn *t, const struct fdry_ref *ref, bool pinned)
{
	struct fdry_ref changed = *ref;

	changed.pinned = pinned;
	return fdry_ref_write(t, &changed);
}

int fdry_pin_set(struct fdry_txn *t, const struct fdry_ref *ref, bool pinned)
{
	struct notes n;
	int err = notes_read(t, ref, &n) ?: notes_delete(t, &n) ?: flag_set(t, ref, pinned);

	fdry_buf_release(&n.found);
	return err;
}

int fdry_pin_forget(struct fdry_txn *t, const struct fdry_ref *ref)
{
	struct notes n;
	int err = notes_read(t, ref, &n) ?: notes_delete(t, &n);

	fdry_buf_release(&n.found);
	return err;
}

static int hold(struct fdry_txn *t, const struct fdry_ref *ref, struct notes *n, uint64_t holder)
{
	if (ref->pinned && (!n->found.len || notes_have(n, holder)))
		return 0;
	if (ref->pinned)
		return note_put(t, n, holder);
	return notes_delete(t, n) ?: note_put(t, n, holder) ?: flag_set(t, ref, true);
}

int fdry_pin_hold(struct fdry_txn *t, const struct fdry_ref *ref, uint64_t holder)
{
	struct notes n;
	int err = notes_read(t, ref, &n) ?: hold(t, ref, &n, holder);

	fdry_buf_release(&n.found);
	return err;
}

static int unhold(struct fdry_txn *t, const struct fdry_ref *ref, struct notes *n, uint64_t holder)
{
	int err;

	if (!ref->pinned || !notes_have(n, holder))
		return 0;
	err = fdry_txn_delete(t, FDRY_TABLE_META, key_of(n, holder));
	if (err || fdry_array_count(n->found, uint64_t) > 1) /* others hold it */
		return err;
	return flag_set(t, ref, false);
}

int fdry_pin_unhold(struct fdry_txn *t, const struct fdry_ref *ref, uint64_t holder)
{
	struct notes n;
	int err = notes_read(t, ref, &n) ?: unhold(t, ref, &n, holder);

	fdry_buf_release(&n.found);
	return err;
}
