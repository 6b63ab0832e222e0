/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.h - images in one file or pipe; Documentation/format/pack.rst is the specification.
 *
 * A pack is written and read once, from front to back. Equal images give equal packs: the order of
 * objects and the compression of each follow from the objects alone, not from the way a store holds
 * them. Every object is checked against its id when it is written and when it is read.
 * fdry_store_export() and fdry_store_import() are in pack_write.c and pack_import.c.
 */
#ifndef FDRY_STORE_PACK_H
#define FDRY_STORE_PACK_H

#include "store/store.h"

#define FDRY_PACK_MAGIC "FOUNDRY PACK\r\n\x1a\n" /* 16 bytes, no terminator */
#define FDRY_PACK_MAGIC_SIZE 16
#define FDRY_PACK_VERSION 1
#define FDRY_PACK_AT_VERSION 16  /* u32, then a zero u32 */
#define FDRY_PACK_AT_INCOMPAT 24 /* u64: features without which the pack must not be read */
#define FDRY_PACK_AT_IMAGES 32   /* u32, then a zero u32 */
#define FDRY_PACK_AT_OBJECTS 40  /* u64 */
#define FDRY_PACK_AT_BYTES 48    /* u64: of all objects, uncompressed */
#define FDRY_PACK_AT_ZERO 56     /* u64: 0 */
#define FDRY_PACK_HEAD 64

/* An image: */
#define FDRY_PACK_IMAGE_AT_LEN 32  /* u16: bytes of the name that follows; 0: none */
#define FDRY_PACK_IMAGE_AT_ZERO 34 /* 6 bytes: 0 */
#define FDRY_PACK_IMAGE_AT_IDENTITY 40 /* 32 bytes: as in the key of the table refs */
#define FDRY_PACK_IMAGE_HEAD 72

/* An object: */
#define FDRY_PACK_OBJECT_AT_KINDS 32 /* u16: as in the store's record */
#define FDRY_PACK_OBJECT_AT_CODEC 34 /* u8: of enum fdry_codec, then a zero byte */
#define FDRY_PACK_OBJECT_AT_FLAGS 35
#define FDRY_PACK_OBJECT_AT_LINKS 36 /* u32 */
#define FDRY_PACK_OBJECT_AT_SIZE 40  /* u64 */
#define FDRY_PACK_OBJECT_AT_BODY 48  /* u64: bytes that follow the links */
#define FDRY_PACK_OBJECT_AT_ZERO 56  /* u64: 0 */
#define FDRY_PACK_OBJECT_HEAD 64

/* The end: */
#define FDRY_PACK_END_MAGIC "FOUNDRY PACK END" /* 16 bytes, no terminator */
#define FDRY_PACK_END_AT_ID 16   /* 32 bytes: the pack's id */
#define FDRY_PACK_END_AT_ZERO 48 /* 16 bytes: 0 */
#define FDRY_PACK_END_SIZE 64

#define FDRY_PACK_IMAGES_MAX 65536

/* An image of a pack, and its name in the pack, or NULL. */
struct fdry_pack_image {
	struct fdry_oid oid;
	struct fdry_oid identity; /* as in struct fdry_ref; zero without a name */
	const char *name;
};
/* In a pack's order: <0, 0, >0. */
int fdry_pack_image_cmp(const struct fdry_pack_image *a, const struct fdry_pack_image *b);

/* An object of a plan. */
struct fdry_pack_entry {
	struct fdry_oid oid;
	uint32_t kinds, nlinks;
	uint64_t size;
};

/* The images of a pack, and the objects that they reach, in the pack's order. Zero it, then set
 * @s and @flags. */
struct fdry_pack_plan {
	struct fdry_store *s;
	uint32_t flags;                 /* FDRY_EXPORT_ALL, FDRY_EXPORT_NO_REFS */
	struct fdry_buf refs;           /* struct fdry_ref each; hold the names */
	struct fdry_pack_image *images; /* sorted, none twice */
	size_t nimages;
	struct fdry_buf entries;        /* struct fdry_pack_entry each */
	uint64_t bytes;                 /* of all objects */
	struct fdry_lease *lease;       /* keeps them */
};
/* Errors are those of fdry_store_export(). Also release the plan after a failure. */
int fdry_pack_plan_init(struct fdry_pack_plan *p, const char *const *names,
			size_t count) __must_check;
void fdry_pack_plan_release(struct fdry_pack_plan *p);
static inline size_t fdry_pack_plan_count(const struct fdry_pack_plan *p)
{
	return p->entries.len / sizeof(struct fdry_pack_entry);
}

/* Append the bytes of object @i, checked against its id. */
int fdry_pack_plan_read(struct fdry_pack_plan *p, size_t i, struct fdry_buf *ret) __must_check;

/* Append the head of the pack and its images. */
int fdry_pack_put_images(const struct fdry_pack_plan *p, struct fdry_buf *ret) __must_check;
/* Append the head of an object and its links, with codec and body 0. FDRY_E_RACED if the object got
 * another kind or link since it was listed. */
struct fdry_txn;
int fdry_pack_put_head(struct fdry_txn *t, const struct fdry_pack_entry *e,
		       struct fdry_buf *ret) __must_check;
/*
 * A list is a pack without bodies and end: the head, the images, and the head and links of every
 * object with codec and body 0. Its SHA-256 is the pack's id.
 */
int fdry_pack_put_list(const struct fdry_pack_plan *p, struct fdry_buf *ret) __must_check;

struct fdry_pack_reader {
	int fd;
	struct fdry_span list; /* the unread rest of a list, which is read in place of @fd */
	bool is_list;
	struct fdry_hash hash;
	struct fdry_buf names;
	struct fdry_pack_image *images; /* names lie in @names */
	uint32_t nimages;
	uint64_t objects, bytes;        /* as the head says */
	uint64_t objects_read, bytes_read;
	uint64_t packed;                /* bytes read */
};

/* The head of one object. */
struct fdry_pack_object {
	struct fdry_oid oid;
	uint32_t kinds, codec, nlinks;
	uint64_t size, body;
};

/* Read head and images from @fd, at its position. After a failure there is nothing to release. */
int fdry_pack_open(struct fdry_pack_reader *r, int fd) __must_check;
/* The same for a list, which must last as long as the reader. Its objects have no bodies to read;
 * fdry_pack_end() returns its SHA-256. */
int fdry_pack_open_list(struct fdry_pack_reader *r, struct fdry_span list) __must_check;
/* The next of r->objects objects; its links are appended to @links. The body must be read or
 * skipped next. */
int fdry_pack_next(struct fdry_pack_reader *r, struct fdry_pack_object *ret,
		   struct fdry_buf *links) __must_check;
int fdry_pack_body(struct fdry_pack_reader *r, const struct fdry_pack_object *o,
		   struct fdry_buf *ret) __must_check;
/* Skip the body. If a file holds all of it, none of its bytes are read. */
int fdry_pack_skip(struct fdry_pack_reader *r, const struct fdry_pack_object *o) __must_check;
/* After the last object: check the end of the pack, its counts and its id. */
int fdry_pack_end(struct fdry_pack_reader *r, struct fdry_oid *id) __must_check;
void fdry_pack_reader_release(struct fdry_pack_reader *r);
/* fdry_store_import() of the pack behind @head, which fdry_pack_open() has read and the import then
 * owns, unless it fails before. NULL: of the pack in @fd. */
int fdry_pack_import(struct fdry_store *store, struct fdry_pack_reader *head, int fd,
		     const struct fdry_import_opts *opts,
		     struct fdry_pack_report *report) __must_check;

/* Append the object's bytes, decompressed and checked against its id. @u: reused for many
 * objects. */
struct fdry_unpacker;
int fdry_pack_unpack(const struct fdry_pack_object *o, struct fdry_span body,
		     struct fdry_unpacker *u, struct fdry_buf *ret) __must_check;

/* --- pack_fetch.c: the images of a list, whose objects the caller brings --- */

struct fdry_fetch;
struct fdry_fetch_object {
	struct fdry_oid oid;
	uint32_t kinds, nlinks;
	uint64_t size;
	bool has; /* the store has it; known after fdry_fetch_begin() */
};

/* Check a list. It is copied. */
int fdry_fetch_new(struct fdry_span list, struct fdry_fetch **ret) __must_check;
/* NULL is fine. */
void fdry_fetch_free(struct fdry_fetch *f);
/* Its objects, each after the objects that it links to. They last as long as @f. */
size_t fdry_fetch_objects(const struct fdry_fetch *f, const struct fdry_fetch_object **ret);
size_t fdry_fetch_images(const struct fdry_fetch *f, const struct fdry_pack_image **ret);
/* The ids that object @i links to; all of them come before it. */
const struct fdry_oid *fdry_fetch_links(const struct fdry_fetch *f, size_t i);
/* Begin to write, and find the objects that the store has. They stay until the end. */
int fdry_fetch_begin(struct fdry_fetch *f, struct fdry_store *s) __must_check;
/* Store object @i, whose bytes the caller compared with its id. The objects that it links to come
 * before it. After a failure the caller can only free @f. */
int fdry_fetch_put(struct fdry_fetch *f, size_t i, struct fdry_span bytes) __must_check;

/* Commit the objects that wait for a transaction. */
int fdry_fetch_flush(struct fdry_fetch *f) __must_check;
/* Of the objects that were stored, all but so many are committed. */
size_t fdry_fetch_pending(const struct fdry_fetch *f);

struct fdry_fetch_end {
	const char *ref; /* the name of all images; NULL: the names of the list */
	bool no_refs;    /* without @ref: no names */
	fdry_imported_fn image; /* NULL, or called for each image */
	void *image_arg;
};
/* One transaction writes the rest and sets the refs. Errors: fdry_store_import(). */
int fdry_fetch_finish(struct fdry_fetch *f, const struct fdry_fetch_end *end,
		      struct fdry_writer_stats *stats) __must_check;

#endif
