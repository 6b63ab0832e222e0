// SPDX-License-Identifier: Apache-2.0
/*
 * pack_read.c - reading a pack from front to back; see pack.h.
 *
 * Nothing in a pack is trusted. Every field is checked against its limit before memory is allocated
 * for it; memory grows only with the bytes that were read; reserved bytes must be zero; the counts
 * in the head must be right. The bytes of an object must match its id.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "store/internal.h"
#include "store/pack.h"

static const uint32_t kinds_known = 0
#define X(nr, NAME, name) | 1u << nr
	FDRY_OBJECT_KINDS(X)
#undef X
	;

#define STEP (1u << 20) /* bytes to allocate and read at a time */

static int bad(const char *what)
{
	return fdry_fail(FDRY_E_BADIMAGE, "the pack is damaged: %s; export it again", what);
}

static int cut_short(void)
{
	return fdry_fail(
		FDRY_E_BADIMAGE,
		"the pack ends early: it was cut short or its writer was stopped; export it again");
}

static int kinds_unknown(uint32_t kinds)
{
	return fdry_fail(FDRY_E_VERSION,
			 "an object of the pack is of kinds %#x, which this program does not know; "
			 "use a newer one",
			 kinds);
}

static bool is_zero(const uint8_t *p, size_t len)
{
	while (len && !*p)
		p++, len--;
	return !len;
}

/* --- bytes in --- */

static int read_bytes(struct fdry_pack_reader *r, void *to, size_t len)
{
	const void *in_list = fdry_span_at(r->list, 0, len);
	uint8_t *p = to;
	ssize_t n;

	if (r->is_list) {
		if (!in_list)
			return cut_short();
		memcpy(to, in_list, len);
		r->list.data += len;
		r->list.len -= len;
		return 0;
	}
	while (len) {
		n = read(r->fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fdry_fail(FDRY_E_IO, "cannot read the pack: %s", strerror(errno));
		if (!n)
			return cut_short();
		p += n;
		len -= (size_t)n;
		r->packed += (size_t)n;
	}
	return 0;
}

static int read_hashed(struct fdry_pack_reader *r, void *to, size_t len)
{
	int err = read_bytes(r, to, len);

	return err ? err : fdry_hash_update(&r->hash, to, len);
}

/* Append @len bytes; on failure @ret may have some of them. */
static int read_buf(struct fdry_pack_reader *r, uint64_t len, struct fdry_buf *ret)
{
	void *p = NULL;
	size_t n;
	int err;

	for (; len; len -= n) {
		n = len < STEP ? (size_t)len : STEP;
		err = fdry_buf_grow(ret, n, &p) ?: read_bytes(r, p, n);
		if (err)
			return err;
	}
	return 0;
}

/* --- head and images --- */

static int head_parse(struct fdry_pack_reader *r, struct fdry_span head)
{
	const uint8_t *p = fdry_span_at(head, 0, FDRY_PACK_HEAD);
	uint32_t version;

	if (!p || memcmp(p, FDRY_PACK_MAGIC, FDRY_PACK_MAGIC_SIZE))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "this is not a pack; give a file that foundry-store export wrote");
	version = fdry_get32(p + FDRY_PACK_AT_VERSION);
	if (version != FDRY_PACK_VERSION || fdry_get64(p + FDRY_PACK_AT_INCOMPAT))
		return fdry_fail(FDRY_E_VERSION,
				 "the pack has format version %u and features %#llx, this program "
				 "knows %u and none; use a newer one",
				 version, (unsigned long long)fdry_get64(p + FDRY_PACK_AT_INCOMPAT),
				 FDRY_PACK_VERSION);
	if (fdry_get32(p + FDRY_PACK_AT_VERSION + 4) || fdry_get32(p + FDRY_PACK_AT_IMAGES + 4) ||
	    fdry_get64(p + FDRY_PACK_AT_ZERO))
		return bad("reserved bytes of its head are not zero");
	r->nimages = fdry_get32(p + FDRY_PACK_AT_IMAGES);
	r->objects = fdry_get64(p + FDRY_PACK_AT_OBJECTS);
	r->bytes = fdry_get64(p + FDRY_PACK_AT_BYTES);
	if (!r->nimages || r->nimages > FDRY_PACK_IMAGES_MAX ||
	    r->objects > UINT64_MAX / FDRY_OBJECT_SIZE_MAX ||
	    r->bytes > r->objects * FDRY_OBJECT_SIZE_MAX)
		return bad("the counts of its head are impossible");
	return 0;
}

/* The name is appended to a buffer that may move, so images_name() sets the pointers later. */
static int image_read(struct fdry_pack_reader *r, struct fdry_pack_image *image)
{
	uint8_t head[FDRY_PACK_IMAGE_HEAD];
	char name[FDRY_REF_NAME_MAX + 1] = "";
	uint16_t len;
	int err = read_hashed(r, head, sizeof(head));

	if (err)
		return err;
	len = fdry_get16(head + FDRY_PACK_IMAGE_AT_LEN);
	if (len > FDRY_REF_NAME_MAX ||
	    !is_zero(head + FDRY_PACK_IMAGE_AT_ZERO,
		     FDRY_PACK_IMAGE_AT_IDENTITY - FDRY_PACK_IMAGE_AT_ZERO) ||
	    (!len && !is_zero(head + FDRY_PACK_IMAGE_AT_IDENTITY, FDRY_OID_SIZE)))
		return bad("the head of an image is impossible");
	err = read_hashed(r, name, len);
	if (err)
		return err;
	if (len && strlen(name) != len)
		return bad("an image's name has a zero byte");
	err = len ? fdry_ref_check(name) : 0;
	if (err)
		return err;
	memcpy(image->oid.b, head, FDRY_OID_SIZE);
	memcpy(image->identity.b, head + FDRY_PACK_IMAGE_AT_IDENTITY, FDRY_OID_SIZE);
	return fdry_buf_put(&r->names, name, len + 1u);
}

int fdry_pack_image_cmp(const struct fdry_pack_image *a, const struct fdry_pack_image *b)
{
	int order = memcmp(&a->oid, &b->oid, sizeof(a->oid));

	if (!order)
		order = strcmp(a->name ? a->name : "", b->name ? b->name : "");
	return order ? order : memcmp(&a->identity, &b->identity, sizeof(a->identity));
}

/* The buffer holds the names one after the other, each with its terminator; an empty name means
 * none. */
static int images_name(struct fdry_pack_reader *r)
{
	const char *name = (const char *)r->names.data;
	uint32_t i;

	for (i = 0; i < r->nimages; i++, name += strlen(name) + 1) {
		r->images[i].name = *name ? name : NULL;
		if (i && fdry_pack_image_cmp(&r->images[i - 1], &r->images[i]) >= 0)
			return bad("its images are not in order");
	}
	return 0;
}

static int images_read(struct fdry_pack_reader *r)
{
	uint32_t i;
	int err = 0;

	r->images = calloc(r->nimages, sizeof(*r->images));
	if (!r->images)
		return fdry_nomem();
	for (i = 0; i < r->nimages && !err; i++)
		err = image_read(r, &r->images[i]);
	return err ? err : images_name(r);
}

static int reader_open(struct fdry_pack_reader *r)
{
	uint8_t head[FDRY_PACK_HEAD];
	int err = read_hashed(r, head, sizeof(head)) ?:
	      head_parse(r, (struct fdry_span){ head, sizeof(head) }) ?: images_read(r);
	if (err)
		fdry_pack_reader_release(r);
	return err;
}

int fdry_pack_open(struct fdry_pack_reader *r, int fd)
{
	*r = (struct fdry_pack_reader){ .fd = fd };
	return reader_open(r);
}

int fdry_pack_open_list(struct fdry_pack_reader *r, struct fdry_span list)
{
	*r = (struct fdry_pack_reader){ .fd = -1, .list = list, .is_list = true };
	return reader_open(r);
}

void fdry_pack_reader_release(struct fdry_pack_reader *r)
{
	fdry_hash_release(&r->hash);
	fdry_buf_release(&r->names);
	free(r->images);
	r->images = NULL;
}

/* --- objects --- */

static bool sizes_fit(const struct fdry_pack_object *o, bool is_list)
{
	if (o->size > FDRY_OBJECT_SIZE_MAX || o->nlinks > FDRY_OBJECT_LINKS_MAX)
		return false;
	if (is_list)
		return o->codec == FDRY_CODEC_PLAIN && !o->body;
	return o->codec == FDRY_CODEC_PLAIN ? o->body == o->size : o->body && o->body < o->size;
}

static int object_parse(struct fdry_span head, bool is_list, struct fdry_pack_object *ret)
{
	const uint8_t *p = fdry_span_at(head, 0, FDRY_PACK_OBJECT_HEAD);
	struct fdry_pack_object o;

	if (!p)
		return cut_short();
	memcpy(o.oid.b, p, FDRY_OID_SIZE);
	o.kinds = fdry_get16(p + FDRY_PACK_OBJECT_AT_KINDS);
	o.codec = p[FDRY_PACK_OBJECT_AT_CODEC];
	o.nlinks = fdry_get32(p + FDRY_PACK_OBJECT_AT_LINKS);
	o.size = fdry_get64(p + FDRY_PACK_OBJECT_AT_SIZE);
	o.body = fdry_get64(p + FDRY_PACK_OBJECT_AT_BODY);
	if (!o.kinds || p[FDRY_PACK_OBJECT_AT_FLAGS] || fdry_get64(p + FDRY_PACK_OBJECT_AT_ZERO))
		return bad("the head of an object is impossible");
	if (o.kinds & ~kinds_known)
		return kinds_unknown(o.kinds);
	if (o.codec != FDRY_CODEC_PLAIN && o.codec != FDRY_CODEC_ZSTD)
		return fdry_fail(FDRY_E_VERSION,
				 "an object of the pack is packed by codec %u, which this program "
				 "does not know; use a newer one",
				 o.codec);
	if (!sizes_fit(&o, is_list))
		return bad("the sizes of an object are impossible");
	*ret = o;
	return 0;
}

static int head_hash(struct fdry_pack_reader *r, uint8_t head[FDRY_PACK_OBJECT_HEAD])
{
	head[FDRY_PACK_OBJECT_AT_CODEC] = 0;
	fdry_set64(head + FDRY_PACK_OBJECT_AT_BODY, 0);
	return fdry_hash_update(&r->hash, head, FDRY_PACK_OBJECT_HEAD);
}

static int links_check(const uint8_t *links, uint32_t n)
{
	for (; n > 1; n--, links += FDRY_OID_SIZE)
		if (memcmp(links, links + FDRY_OID_SIZE, FDRY_OID_SIZE) >= 0)
			return bad("the links of an object are not in order");
	return 0;
}

static int links_read(struct fdry_pack_reader *r, uint32_t n, struct fdry_buf *links)
{
	size_t before = links->len;
	int err = read_buf(r, (uint64_t)n * FDRY_OID_SIZE, links);

	if (!err && n)
		err = fdry_hash_update(&r->hash, links->data + before, links->len - before) ?:
		      links_check(links->data + before, n);
	if (err)
		links->len = before;
	return err;
}

int fdry_pack_next(struct fdry_pack_reader *r, struct fdry_pack_object *ret, struct fdry_buf *links)
{
	uint8_t head[FDRY_PACK_OBJECT_HEAD];
	struct fdry_pack_object o;
	int err = read_bytes(r, head, sizeof(head));

	if (err)
		return err;
	err = object_parse((struct fdry_span){ head, sizeof(head) }, r->is_list, &o);
	if (err)
		return err;
	if (r->objects_read == r->objects || o.size > r->bytes - r->bytes_read)
		return bad("it holds more than its head says");
	err = head_hash(r, head) ?: links_read(r, o.nlinks, links);
	if (err)
		return err;
	r->objects_read++;
	r->bytes_read += o.size;
	*ret = o;
	return 0;
}

int fdry_pack_body(struct fdry_pack_reader *r, const struct fdry_pack_object *o,
		   struct fdry_buf *ret)
{
	size_t before = ret->len;
	int err = read_buf(r, o->body, ret);

	if (err)
		ret->len = before;
	return err;
}

/* Seek over @len bytes of a file that has them, so that the end of a file that was cut short is
 * still noticed. */
static bool seek_over(int fd, uint64_t len)
{
	off_t at = lseek(fd, 0, SEEK_CUR);
	struct stat st;

	return at >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size >= at &&
	       len <= (uint64_t)(st.st_size - at) && lseek(fd, (off_t)len, SEEK_CUR) >= 0;
}

int fdry_pack_skip(struct fdry_pack_reader *r, const struct fdry_pack_object *o)
{
	uint64_t left = o->body;
	uint8_t away[16384];
	size_t n;
	int err = 0;

	if (seek_over(r->fd, left)) {
		r->packed += left;
		return 0;
	}
	for (; left && !err; left -= n) {
		n = left < sizeof(away) ? (size_t)left : sizeof(away);
		err = read_bytes(r, away, n);
	}
	return err;
}

int fdry_pack_end(struct fdry_pack_reader *r, struct fdry_oid *id)
{
	uint8_t end[FDRY_PACK_END_SIZE];
	struct fdry_oid is;
	int err = r->is_list ? 0 : read_bytes(r, end, sizeof(end));

	if (err)
		return err;
	if (r->objects_read != r->objects || r->bytes_read != r->bytes)
		return bad("it holds less than its head says");
	if (r->is_list)
		return r->list.len ? bad("data follows its last object")
				   : fdry_hash_final(&r->hash, id);
	if (memcmp(end, FDRY_PACK_END_MAGIC, FDRY_PACK_MAGIC_SIZE) ||
	    !is_zero(end + FDRY_PACK_END_AT_ZERO, FDRY_PACK_END_SIZE - FDRY_PACK_END_AT_ZERO))
		return bad("its end is not where its head says");
	err = fdry_hash_final(&r->hash, &is);
	if (err)
		return err;
	if (memcmp(&is, end + FDRY_PACK_END_AT_ID, sizeof(is)))
		return bad("its heads do not match the id at its end");
	*id = is;
	return 0;
}

/* --- one object's bytes --- */

static int mismatch(const struct fdry_pack_object *o, const char *what)
{
	char hex[FDRY_OID_HEX_SIZE];

	return fdry_fail(FDRY_E_CORRUPT, "the pack is damaged: object %s %s; export it again",
			 fdry_oid_hex(&o->oid, hex), what);
}

static int unpack(const struct fdry_pack_object *o, struct fdry_span body, struct fdry_unpacker *u,
		  void *to)
{
	size_t n;

	if (o->codec == FDRY_CODEC_PLAIN) {
		if (body.len)
			memcpy(to, body.data, body.len);
		return 0;
	}
	if (!u->ctx)
		u->ctx = ZSTD_createDCtx();
	if (!u->ctx)
		return fdry_nomem();
	n = ZSTD_decompressDCtx(u->ctx, to, o->size, body.data, body.len);
	return ZSTD_isError(n) || n != o->size ? mismatch(o, "cannot be decompressed") : 0;
}

/* Before memory is allocated: the body must be one frame with the right content size and nothing
 * behind it. */
static int frame_check(const struct fdry_pack_object *o, struct fdry_span body)
{
	if (body.len != o->body)
		return mismatch(o, "has another length");
	if (o->codec == FDRY_CODEC_PLAIN)
		return 0;
	if (ZSTD_getFrameContentSize(body.data, body.len) != o->size ||
	    ZSTD_findFrameCompressedSize(body.data, body.len) != body.len)
		return mismatch(o, "is not one frame of its size");
	return 0;
}

int fdry_pack_unpack(const struct fdry_pack_object *o, struct fdry_span body,
		     struct fdry_unpacker *u, struct fdry_buf *ret)
{
	size_t before = ret->len;
	struct fdry_oid is;
	void *to = NULL;
	int err = frame_check(o, body);

	if (err)
		return err;
	err = fdry_buf_grow(ret, o->size, &to);
	if (err)
		return err;
	err = unpack(o, body, u, to);
	if (err)
		goto out_shrink;
	err = fdry_oid_of(to, o->size, &is);
	if (err)
		goto out_shrink;
	if (fdry_oid_eq(&is, &o->oid))
		return 0;
	err = mismatch(o, "does not match its id");
out_shrink:
	ret->len = before;
	return err;
}
