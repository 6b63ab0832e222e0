// SPDX-License-Identifier: Apache-2.0
/*
 * object.c - one object: its record and its stored bytes, both checked when they are read.
 *
 * A record (kinds, sizes, links) is stored apart from the bytes. So listing and collecting never
 * touch content, and a new kind or link moves no bytes: uncompressed bytes stay in place until a
 * collection removes them. Mapped spans rely on that.
 */
#include <stdlib.h>
#include <zstd.h>

#include "store/internal.h"

/* Kernels and graphs are sealed once and read often: spend time on packing them. */
#define ZSTD_LEVEL 9
/* Bytes of a plain object that are copied from the file; others are read in the map. A chunk of a
 * seal has at most 2 MiB. */
#define COPIED_MIN (64u << 10)
#define COPIED_MAX (8u << 20)

static const char *const kind_names[] = {
#define X(nr, NAME, name) [nr] = name,
	FDRY_OBJECT_KINDS(X)
#undef X
};
#define KINDS (sizeof(kind_names) / sizeof(kind_names[0]))

const char *fdry_object_kind_name(enum fdry_object_kind kind)
{
	return (size_t)kind < KINDS && kind_names[kind] ? kind_names[kind] : "?";
}

static bool kind_valid(enum fdry_object_kind kind)
{
	return (size_t)kind < KINDS && kind_names[kind];
}

/* --- records --- */

int fdry_record_parse(struct fdry_span value, struct fdry_record *ret)
{
	const uint8_t *p = fdry_span_at(value, 0, FDRY_RECORD_AT_LINKS);
	struct fdry_record r;

	if (!p)
		goto bad;
	r.kinds = fdry_get16(p + FDRY_RECORD_AT_KINDS);
	r.codec = p[FDRY_RECORD_AT_CODEC];
	r.nlinks = fdry_get32(p + FDRY_RECORD_AT_NLINKS);
	r.size = fdry_get64(p + FDRY_RECORD_AT_SIZE);
	r.stored = fdry_get64(p + FDRY_RECORD_AT_STORED);
	if (!r.kinds || p[FDRY_RECORD_AT_FLAGS] || fdry_get64(p + FDRY_RECORD_AT_ZERO))
		goto bad;
	if (r.size > FDRY_OBJECT_SIZE_MAX || r.stored > r.size || r.nlinks > FDRY_OBJECT_LINKS_MAX)
		goto bad;
	r.links = (struct fdry_span){ value.data + FDRY_RECORD_AT_LINKS,
				      value.len - FDRY_RECORD_AT_LINKS };
	if (r.links.len != (size_t)r.nlinks * FDRY_OID_SIZE)
		goto bad;
	*ret = r;
	return 0;
bad:
	return fdry_fail(FDRY_E_CORRUPT, "an object's record is damaged; run foundry-store repair "
					 "with a source that has it, or seal anew the images that "
					 "need it");
}

int fdry_oid_of_key(struct fdry_span key, struct fdry_oid *ret)
{
	if (key.len != FDRY_OID_SIZE)
		return fdry_fail(FDRY_E_CORRUPT,
				 "an object has a key of %zu bytes, so the table of objects is "
				 "damaged; " FDRY_DAMAGE_ADVICE,
				 key.len);
	memcpy(ret->b, key.data, FDRY_OID_SIZE);
	return 0;
}

int fdry_record_parse_entry(struct fdry_span key, struct fdry_span value, struct fdry_oid *oid,
			    struct fdry_record *ret)
{
	int err = fdry_record_parse(value, ret);

	return err ? err : fdry_oid_of_key(key, oid);
}

struct prefix {
	const char *digits;
	size_t len;
	fdry_record_fn fn;
	void *arg;
};

static int prefix_match(void *arg, struct fdry_span key, struct fdry_span value)
{
	const struct prefix *p = arg;
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_record rec;
	struct fdry_oid oid;
	int err = fdry_record_parse_entry(key, value, &oid, &rec);

	if (err)
		return err;
	if (p->len && strncmp(fdry_oid_hex(&oid, hex), p->digits, p->len))
		return FDRY_EACH_STOP;
	return p->fn(p->arg, &oid, &rec);
}

int fdry_record_each(struct fdry_txn *t, const char *digits, fdry_record_fn fn, void *arg)
{
	struct prefix p = { .digits = digits, .len = strlen(digits), .fn = fn, .arg = arg };
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid from;
	int err;

	memset(hex, '0', sizeof(hex) - 1);
	hex[sizeof(hex) - 1] = '\0';
	memcpy(hex, digits, p.len);
	err = fdry_oid_parse(hex, &from);
	if (err)
		return err;
	return fdry_txn_each(t, FDRY_TABLE_OBJECTS,
			     p.len ? fdry_oid_span(&from) : (struct fdry_span){ 0 }, prefix_match,
			     &p);
}

int fdry_record_get(struct fdry_txn *t, const struct fdry_oid *oid, bool *found,
		    struct fdry_record *ret)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_span value;
	int err = fdry_txn_get(t, FDRY_TABLE_OBJECTS, fdry_oid_span(oid), &value);

	if (!err && value.data)
		err = fdry_record_parse(value, ret);
	if (err)
		return fdry_fail_at(err, "object %s", fdry_oid_hex(oid, hex));
	*found = value.data != NULL;
	return 0;
}

int fdry_record_need(struct fdry_txn *t, const struct fdry_oid *oid, struct fdry_record *ret)
{
	char hex[FDRY_OID_HEX_SIZE];
	bool found = false;
	int err = fdry_record_get(t, oid, &found, ret);

	if (err || found)
		return err;
	return fdry_fail(FDRY_E_NOENT, "there is no object %s in the store; see foundry-store ls",
			 fdry_oid_hex(oid, hex));
}

struct fdry_oid fdry_record_link(const struct fdry_record *r, uint32_t i)
{
	struct fdry_oid oid;

	memcpy(oid.b, r->links.data + (size_t)i * FDRY_OID_SIZE, FDRY_OID_SIZE);
	return oid;
}

void fdry_record_info(const struct fdry_oid *oid, const struct fdry_record *r,
		      struct fdry_object_info *ret)
{
	ret->oid = *oid;
	ret->kind = (enum fdry_object_kind)(31 - __builtin_clz(r->kinds));
	ret->kinds = r->kinds;
	ret->nlinks = r->nlinks;
	ret->size = r->size;
	ret->stored = r->stored;
}

int fdry_record_put(struct fdry_txn *t, const struct fdry_oid *oid, const struct fdry_record *r)
{
	struct fdry_buf buf = { 0 };
	void *p = NULL;
	uint8_t *rec;
	int err = fdry_buf_grow(&buf, FDRY_RECORD_AT_LINKS, &p);

	if (err)
		goto out_release;
	rec = p;
	fdry_set16(rec + FDRY_RECORD_AT_KINDS, (uint16_t)r->kinds);
	rec[FDRY_RECORD_AT_CODEC] = (uint8_t)r->codec;
	fdry_set32(rec + FDRY_RECORD_AT_NLINKS, r->nlinks);
	fdry_set64(rec + FDRY_RECORD_AT_SIZE, r->size);
	fdry_set64(rec + FDRY_RECORD_AT_STORED, r->stored);
	err = fdry_buf_put(&buf, r->links.data, r->links.len);
	if (err)
		goto out_release;
	err = fdry_txn_put(t, FDRY_TABLE_OBJECTS, fdry_oid_span(oid),
			   (struct fdry_span){ buf.data, buf.len });
out_release:
	fdry_buf_release(&buf);
	return err;
}

/* --- reading --- */

static int corrupt(const struct fdry_oid *oid, const char *what)
{
	char hex[FDRY_OID_HEX_SIZE];

	return fdry_fail(FDRY_E_CORRUPT,
			 "object %s is damaged: %s; run foundry-store repair with a source that "
			 "has it, or seal anew the images that need it",
			 fdry_oid_hex(oid, hex), what);
}

static int quarantined(const struct fdry_oid *oid)
{
	char hex[FDRY_OID_HEX_SIZE];

	return fdry_fail(FDRY_E_CORRUPT,
			 "object %s was damaged and is in quarantine; run foundry-store repair "
			 "with a source that has it, or seal anew the images that need it",
			 fdry_oid_hex(oid, hex));
}

/* Check the sizes of a record before memory is allocated for them. */
static int sizes_check(const struct fdry_oid *oid, const struct fdry_record *r,
		       struct fdry_span stored)
{
	if (r->codec != FDRY_CODEC_PLAIN && r->codec != FDRY_CODEC_ZSTD)
		return fdry_fail(FDRY_E_VERSION,
				 "an object is stored by codec %u, which this program does not "
				 "know; use a newer one",
				 r->codec);
	if (r->size != (r->codec == FDRY_CODEC_ZSTD
				? ZSTD_getFrameContentSize(stored.data, stored.len)
				: r->stored))
		return corrupt(oid, "its sizes contradict each other");
	return 0;
}

int fdry_object_stored(struct fdry_txn *t, const struct fdry_oid *oid, const struct fdry_record *r,
		       struct fdry_span *ret)
{
	struct fdry_span value;
	int err;

	if (r->codec == FDRY_CODEC_NONE)
		return quarantined(oid);
	err = fdry_txn_get(t, FDRY_TABLE_DATA, fdry_oid_span(oid), &value);
	if (err)
		return err;
	if (!value.data)
		return corrupt(oid, "its bytes are missing");
	if (value.len != r->stored)
		return corrupt(oid, "its length is wrong");
	err = sizes_check(oid, r, value);
	if (err)
		return err;
	*ret = value;
	return 0;
}

int fdry_object_verify(const struct fdry_oid *oid, struct fdry_span data)
{
	struct fdry_oid is;
	int err = fdry_oid_of(data.data, data.len, &is);

	if (err)
		return err;
	if (!fdry_oid_eq(oid, &is))
		return corrupt(oid, "its bytes do not match its id");
	return 0;
}

void fdry_unpacker_release(struct fdry_unpacker *u)
{
	ZSTD_freeDCtx(u->ctx);
	u->ctx = NULL;
}

static int object_unpack(const struct fdry_oid *oid, const struct fdry_record *r,
			 struct fdry_span stored, struct fdry_unpacker *u, void *to)
{
	size_t n;

	if (r->codec == FDRY_CODEC_PLAIN) {
		memcpy(to, stored.data, stored.len);
		return 0;
	}
	if (!u->ctx)
		u->ctx = ZSTD_createDCtx();
	if (!u->ctx)
		return fdry_nomem();
	n = ZSTD_decompressDCtx(u->ctx, to, r->size, stored.data, stored.len);
	return ZSTD_isError(n) || n != r->size ? corrupt(oid, "it cannot be decompressed") : 0;
}

int fdry_object_size(struct fdry_txn *t, const struct fdry_oid *oid, uint64_t *ret)
{
	struct fdry_span stored;
	struct fdry_record rec;
	int err = fdry_record_need(t, oid, &rec);

	if (err)
		return err;
	err = fdry_object_stored(t, oid, &rec, &stored);
	if (err)
		return err;
	*ret = rec.size;
	return 0;
}

int fdry_object_read(struct fdry_txn *t, const struct fdry_oid *oid, struct fdry_unpacker *u,
		     struct fdry_buf *ret)
{
	size_t before = ret->len;
	struct fdry_span stored;
	struct fdry_record rec;
	void *to = NULL;
	int err = fdry_record_need(t, oid, &rec);

	if (err)
		goto out_damaged;
	err = fdry_object_stored(t, oid, &rec, &stored);
	if (err)
		goto out_damaged;
	err = fdry_buf_grow(ret, rec.size, &to);
	if (err)
		return err;
	err = object_unpack(oid, &rec, stored, u, to);
	if (err)
		goto out_shrink;
	err = fdry_object_verify(oid, (struct fdry_span){ to, rec.size });
	if (err)
		goto out_shrink;
	return 0;
out_shrink:
	ret->len = before;
out_damaged:
	if (err == -FDRY_E_CORRUPT)
		fdry_txn_damaged(t);
	return err;
}

int fdry_object_plain(struct fdry_txn *t, const struct fdry_oid *oid, const struct fdry_record *r,
		      struct fdry_buf *scratch, struct fdry_span *ret)
{
	void *to = NULL;
	int err = fdry_object_stored(t, oid, r, ret);

	if (err || ret->len < COPIED_MIN || ret->len > COPIED_MAX || !fdry_txn_in_file(t, *ret))
		return err;
	if (scratch->len < ret->len)
		err = fdry_buf_grow(scratch, ret->len - scratch->len, &to);
	err = err ?: fdry_txn_copy(t, *ret, scratch->data);
	ret->data = scratch->data;
	return err == -FDRY_E_CORRUPT ? corrupt(oid, "the disk cannot read its bytes") : err;
}

int fdry_object_check(struct fdry_txn *t, const struct fdry_oid *oid, const struct fdry_record *r,
		      struct fdry_unpacker *u, struct fdry_buf *scratch)
{
	struct fdry_span bytes;
	int err;

	if (r->codec != FDRY_CODEC_PLAIN) {
		scratch->len = 0;
		return fdry_object_read(t, oid, u, scratch);
	}
	err = fdry_object_plain(t, oid, r, scratch, &bytes) ?: fdry_object_verify(oid, bytes);
	if (err == -FDRY_E_CORRUPT)
		fdry_txn_damaged(t);
	return err;
}

/* --- writing --- */

static int item_check(enum fdry_object_kind kind, size_t len, size_t nlinks)
{
	if (!kind_valid(kind))
		return fdry_fail(FDRY_E_INVAL, "%d is not a kind of object", (int)kind);
	if (len > FDRY_OBJECT_SIZE_MAX)
		return fdry_fail(
			FDRY_E_LIMIT,
			"an object of %zu bytes exceeds the limit of %u; cut it into smaller ones",
			len, FDRY_OBJECT_SIZE_MAX);
	if (nlinks > FDRY_OBJECT_LINKS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "an object with %zu links exceeds the limit of %u",
				 nlinks, FDRY_OBJECT_LINKS_MAX);
	return 0;
}

int fdry_item_init_as(struct fdry_item *it, enum fdry_object_kind kind, size_t len,
		      const struct fdry_oid *oid, const struct fdry_oid *links, size_t nlinks)
{
	int err = item_check(kind, len, nlinks);

	if (err)
		return err;
	*it = (struct fdry_item){ .oid = *oid, .rec = { .kinds = 1u << kind, .size = len } };
	err = fdry_buf_put(&it->links, links, nlinks * FDRY_OID_SIZE);
	if (err) {
		fdry_item_release(it);
		return err;
	}
	fdry_oids_sort(&it->links);
	it->rec.links = (struct fdry_span){ it->links.data, it->links.len };
	it->rec.nlinks = (uint32_t)(it->links.len / FDRY_OID_SIZE);
	return 0;
}

int fdry_item_init(struct fdry_item *it, enum fdry_object_kind kind, struct fdry_span data,
		   const struct fdry_oid *links, size_t nlinks)
{
	struct fdry_oid oid;
	int err = item_check(kind, data.len, nlinks);

	if (err)
		return err;
	err = fdry_oid_of(data.data, data.len, &oid);
	return err ? err : fdry_item_init_as(it, kind, data.len, &oid, links, nlinks);
}

void fdry_item_release(struct fdry_item *it)
{
	fdry_buf_release(&it->links);
}

static bool wants_plain(const struct fdry_record *r)
{
	return r->kinds & 1u << FDRY_OBJECT_CHUNK;
}

size_t fdry_item_packed_max(const struct fdry_item *it)
{
	return wants_plain(&it->rec) ? it->rec.size : ZSTD_compressBound(it->rec.size);
}

void fdry_item_pack(struct fdry_item *it, struct fdry_span data, void *to)
{
	size_t n = data.len;

	if (!wants_plain(&it->rec) && it->frame.len)
		memcpy(to, it->frame.data, n = it->frame.len);
	else if (!wants_plain(&it->rec))
		n = ZSTD_compress(to, ZSTD_compressBound(data.len), data.data, data.len,
				  ZSTD_LEVEL);
	if (!ZSTD_isError(n) && n < data.len) {
		it->rec.codec = FDRY_CODEC_ZSTD;
	} else {
		n = data.len;
		it->rec.codec = FDRY_CODEC_PLAIN;
		if (n)
			memcpy(to, data.data, n);
	}
	it->rec.stored = n;
	it->stored = (struct fdry_span){ to, n };
}

/* Both are sorted. */
static bool links_contain(struct fdry_span all, struct fdry_span some)
{
	size_t i = 0, j;

	for (j = 0; j < some.len; j += FDRY_OID_SIZE, i += FDRY_OID_SIZE) {
		while (i < all.len && fdry_oid_cmp(all.data + i, some.data + j) < 0)
			i += FDRY_OID_SIZE;
		if (i >= all.len || fdry_oid_cmp(all.data + i, some.data + j))
			return false;
	}
	return true;
}

/* Does the store have the bytes, in the form that @it needs? */
static int data_known(struct fdry_txn *t, const struct fdry_item *it, const struct fdry_record *rec,
		      bool *ret)
{
	struct fdry_span value;
	int err = fdry_txn_get(t, FDRY_TABLE_DATA, fdry_oid_span(&it->oid), &value);

	if (err)
		return err;
	*ret = value.data && value.len == rec->stored && rec->size == it->rec.size &&
	       (rec->codec == FDRY_CODEC_PLAIN || !wants_plain(&it->rec));
	return 0;
}

/* Are the stored bytes still equal to @data? Putting an object again repairs damage. */
static int data_equal(struct fdry_txn *t, const struct fdry_item *it, const struct fdry_record *rec,
		      struct fdry_span data, bool *ret)
{
	struct fdry_unpacker u = { 0 };
	struct fdry_buf copy = { 0 };
	struct fdry_span stored;
	int err;

	if (rec->codec == FDRY_CODEC_PLAIN) {
		err = fdry_object_stored(t, &it->oid, rec, &stored);
		*ret = !err && (!data.len || !memcmp(stored.data, data.data, data.len));
	} else {
		err = fdry_object_read(t, &it->oid, &u, &copy);
		*ret = !err;
	}
	fdry_unpacker_release(&u);
	fdry_buf_release(&copy);
	return err == -FDRY_E_CORRUPT ? 0 : err;
}

/* Compare the item with the store's record of it, if there is one: @bytes as fdry_item_there(),
 * @covered: whether the record has all kinds and links. */
static int item_compare(struct fdry_txn *t, const struct fdry_item *it, struct fdry_record *rec,
			bool *bytes, bool *covered)
{
	bool found = false;
	int err = fdry_record_get(t, &it->oid, &found, rec);

	*bytes = *covered = false;
	if (err || !found)
		return err;
	*covered = !(it->rec.kinds & ~rec->kinds) && links_contain(rec->links, it->rec.links);
	return data_known(t, it, rec, bytes);
}

int fdry_item_known(struct fdry_txn *t, struct fdry_item *it, struct fdry_span data, bool *ret)
{
	struct fdry_record rec;
	bool known, covered;
	int err = item_compare(t, it, &rec, &known, &covered);

	if (err)
		return err;
	if (known) {
		err = data_equal(t, it, &rec, data, &known);
		if (err)
			return err;
		it->rewrite = !known;
	}
	*ret = known && covered;
	return 0;
}

int fdry_item_there(struct fdry_txn *t, const struct fdry_item *it, bool *bytes, bool *all)
{
	struct fdry_record rec;
	bool known, covered;
	int err = item_compare(t, it, &rec, &known, &covered);

	if (err)
		return err;
	*bytes = known;
	*all = known && covered;
	return 0;
}

int fdry_item_check_links(struct fdry_txn *t, const struct fdry_item *it)
{
	struct fdry_record rec;
	struct fdry_oid oid;
	uint32_t i;
	int err;

	for (i = 0; i < it->rec.nlinks; i++) {
		oid = fdry_record_link(&it->rec, i);
		err = fdry_record_need(t, &oid, &rec);
		if (err)
			return fdry_fail_at(err, "a link");
	}
	return 0;
}

static int links_limit(const struct fdry_item *it, size_t n)
{
	char hex[FDRY_OID_HEX_SIZE];

	if (n <= FDRY_OBJECT_LINKS_MAX)
		return 0;
	return fdry_fail(
		FDRY_E_LIMIT,
		"object %s would have %zu links together with those in the store, and may have %u",
		fdry_oid_hex(&it->oid, hex), n, FDRY_OBJECT_LINKS_MAX);
}

/* Add the kinds and links of @it to the record of an existing object. */
static int record_merge(struct fdry_txn *t, const struct fdry_item *it,
			const struct fdry_record *old, bool data)
{
	struct fdry_record rec = data ? *old : it->rec;
	struct fdry_buf links = { 0 };
	int err = fdry_buf_put(&links, old->links.data, old->links.len);

	if (err)
		goto out_release;
	err = fdry_buf_put(&links, it->rec.links.data, it->rec.links.len);
	if (err)
		goto out_release;
	fdry_oids_sort(&links);
	err = links_limit(it, links.len / FDRY_OID_SIZE);
	if (err)
		goto out_release;
	rec.kinds = old->kinds | it->rec.kinds;
	rec.links = (struct fdry_span){ links.data, links.len };
	rec.nlinks = (uint32_t)(links.len / FDRY_OID_SIZE);
	err = fdry_record_put(t, &it->oid, &rec);
out_release:
	fdry_buf_release(&links);
	return err;
}

int fdry_item_store(struct fdry_txn *t, const struct fdry_item *it, bool *is_new)
{
	struct fdry_record old;
	bool found = false, data = false;
	int err = fdry_record_get(t, &it->oid, &found, &old);

	if (err)
		return err;
	err = found ? data_known(t, it, &old, &data) : 0;
	if (err)
		return err;
	data = data && !it->rewrite;
	/* The record first: merging reads the old one in place, and a put may move it. */
	err = found ? record_merge(t, it, &old, data) : fdry_record_put(t, &it->oid, &it->rec);
	if (err)
		return err;
	err = data ? 0 : fdry_txn_put(t, FDRY_TABLE_DATA, fdry_oid_span(&it->oid), it->stored);
	if (err)
		return err;
	*is_new = !found;
	return 0;
}
