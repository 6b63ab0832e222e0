/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.h - images in one file or pipe; Documentation/format/pack.rst is the specification.
 *
 * A pack is written and read once, from front to back. Equal images give equal packs: the order of
 * objects and the compression of each follow from the objects alone, not from the way a store holds
 * them. Every object is checked against its id when it is written and when it is read.
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

/* Writes all @len bytes of a pack. 0, or an error of ours. */
typedef int (*fdry_pack_write_fn)(void *arg, const void *data, size_t len);
/* Reads @got bytes of a pack, 1 to @len; 0 at the end. Returns 0, or an error of ours. */
typedef int (*fdry_pack_read_fn)(void *arg, void *data, size_t len, size_t *got);

/* Skips up to @len bytes without reading them and returns their number. The rest is read. */
typedef uint64_t (*fdry_pack_skip_fn)(void *arg, uint64_t len);

/* The same for a descriptor; @arg points to it. FDRY_E_IO if the reader of a pipe has closed it;
 * SIGPIPE is up to the program. */
int fdry_pack_write_fd(void *arg, const void *data, size_t len) __must_check;
int fdry_pack_read_fd(void *arg, void *data, size_t len, size_t *got) __must_check;
uint64_t fdry_pack_skip_fd(void *arg, uint64_t len);

/* An image of a pack, and its name in the pack, or NULL. */
struct fdry_pack_image {
	struct fdry_oid oid;
	struct fdry_oid identity; /* as in struct fdry_ref; zero without a name */
	const char *name;
};
/* In a pack's order: <0, 0, >0. */
int fdry_pack_image_cmp(const struct fdry_pack_image *a, const struct fdry_pack_image *b);

/* The images of a new pack, chosen by name. Zero it to start. */
struct fdry_pack_choice {
	struct fdry_buf refs;   /* of struct fdry_ref; hold the names */
	struct fdry_buf images; /* of struct fdry_pack_image; made at the end */
};
/* Add the images that @name means: all images of a ref, with that name in the pack if @named; one
 * image for an id; NULL: the images of all refs. Errors as fdry_store_resolve(); FDRY_E_NOENT if
 * there is no ref at all. */
int fdry_pack_choose(struct fdry_store *s, const char *name, bool named,
		     struct fdry_pack_choice *c) __must_check;
/* All images; valid until the choice is released. */
int fdry_pack_chosen(struct fdry_pack_choice *c, const struct fdry_pack_image **ret,
		     size_t *count) __must_check;
void fdry_pack_choice_release(struct fdry_pack_choice *c);

/* Bytes of objects, uncompressed; from the calling thread. */
typedef void (*fdry_pack_progress_fn)(void *arg, uint64_t done, uint64_t total);

struct fdry_pack_opts {
	bool plain;           /* export: nothing is compressed */
	bool dry_run;         /* import: read and check all of it, write nothing */
	bool nameless;        /* import: set no refs */
	fdry_pack_skip_fn skip; /* import: may be NULL; called with the @arg of @read */
	unsigned int threads; /* 0: as many as the process may run at the same time */
	fdry_pack_progress_fn progress; /* may be NULL */
	void *progress_arg;
};

struct fdry_pack_report {
	struct fdry_oid id;      /* the pack's id, independent of compression */
	uint64_t images, objects;
	uint64_t bytes;          /* of the objects, uncompressed */
	uint64_t packed;         /* bytes of the pack */
	uint64_t objects_new;    /* import: objects that the store did not have ... */
	uint64_t bytes_new, stored_new; /* ... and their bytes, uncompressed and at rest */
};

/**
 * fdry_pack_export() - Write images, with all objects that they reach.
 * @images: @count of them, in any order; a name may be given to several, and an image may have
 * several
 * @opts: NULL for the defaults
 *
 * Takes some 130 MiB with eight threads, more only where single objects are larger than 64 MiB,
 * and some 150 bytes for each object. No transaction is open while @write runs. Errors:
 * FDRY_E_NOENT, FDRY_E_INVAL (not an image), FDRY_E_CORRUPT (an object is damaged: nothing damaged
 * is written), FDRY_E_NAME, FDRY_E_LIMIT, FDRY_E_RACED, and errors of @write; the bytes written by
 * then are no pack.
 */
int fdry_pack_export(struct fdry_store *s, const struct fdry_pack_image *images, size_t count,
		     const struct fdry_pack_opts *opts, fdry_pack_write_fn write, void *arg,
		     struct fdry_pack_report *ret) __must_check;

/* An image that was imported; @was: the earlier image of the ref, NULL if there was none or the
 * same. */
typedef void (*fdry_pack_image_fn)(void *arg, const struct fdry_pack_image *image,
				   const struct fdry_oid *was);

/**
 * fdry_pack_import() - Read a pack and store the objects that are missing.
 * @s: in a dry run NULL for a store that does not exist yet
 * @image: called for each image at the end; may be NULL
 *
 * Objects that the store has are passed over, neither decompressed nor checked, and not read if the
 * options can skip. The last transaction sets the refs: before it nothing refers to anything new,
 * and what an import that failed has put is for a collection to remove. Takes some 200 MiB with
 * eight threads. Reads exactly the pack, nothing behind it. Errors: FDRY_E_BADIMAGE (not a pack,
 * cut short, or against the format), FDRY_E_CORRUPT (an object does not match its id),
 * FDRY_E_VERSION, FDRY_E_LIMIT, FDRY_E_NOENT (an object is needed that neither the pack nor the
 * store has), FDRY_E_RACED as fdry_writer_commit(), FDRY_E_FULL, and what @read gives.
 */
int fdry_pack_import(struct fdry_store *s, const struct fdry_pack_opts *opts,
		     fdry_pack_read_fn read, void *arg, fdry_pack_image_fn image, void *image_arg,
		     struct fdry_pack_report *ret) __must_check;

/* --- reading a pack object by object --- */

struct fdry_pack_reader {
	fdry_pack_read_fn read;
	fdry_pack_skip_fn skip;         /* may be NULL */
	void *arg;
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

/* Read head and images. After a failure there is nothing to release. */
int fdry_pack_open(struct fdry_pack_reader *r, fdry_pack_read_fn read, void *arg) __must_check;
/* The next of r->objects objects; its links are appended to @links. The body must be read or
 * skipped next. */
int fdry_pack_next(struct fdry_pack_reader *r, struct fdry_pack_object *ret,
		   struct fdry_buf *links) __must_check;
int fdry_pack_body(struct fdry_pack_reader *r, const struct fdry_pack_object *o,
		   struct fdry_buf *ret) __must_check;
int fdry_pack_skip(struct fdry_pack_reader *r, const struct fdry_pack_object *o) __must_check;
/* After the last object: check the end of the pack, its counts and its id. */
int fdry_pack_end(struct fdry_pack_reader *r, struct fdry_oid *id) __must_check;
void fdry_pack_reader_release(struct fdry_pack_reader *r);

/* Append the object's bytes, decompressed and checked against its id. @u: reused for many
 * objects. */
struct fdry_unpacker;
int fdry_pack_unpack(const struct fdry_pack_object *o, struct fdry_span body,
		     struct fdry_unpacker *u, struct fdry_buf *ret) __must_check;

#endif
