/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - one LMDB environment of objects and refs, shared by all processes of a host.
 *
 * Objects are named by the SHA-256 of their bytes; a ref names a manifest and is a root
 * for garbage collection. The store does not know what objects mean: whoever puts one
 * says which others it links to. What a writer (a seal) or a reader (a load)
 * was told exists stays until it ends, although collections run beside it.
 *
 * Locking: a store may be used from any thread; a session by one thread at a time.
 * A handle used in a forked child answers FDRY_E_FORKED.
 *
 * Errors that any call may give: FDRY_E_FORKED, FDRY_E_CORRUPT (pages that LMDB finds
 * damaged), FDRY_E_STORE, FDRY_E_NOMEM. A call that fails has changed nothing.
 */
#ifndef FDRY_STORE_STORE_H
#define FDRY_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "foundry/store.h"
#include "lib/buf.h"
#include "lib/oid.h"

/* FDRY_OBJECT(number, NAME, name): numbers are frozen. */
#define FDRY_OBJECT_KINDS(X) \
	X(1, CHUNK, "chunk") \
	X(2, KERNEL, "kernel") \
	X(3, GRAPH, "graph") \
	X(4, MANIFEST, "manifest")

enum fdry_object_kind {
#define X(nr, NAME, name) FDRY_OBJECT_##NAME = nr,
	FDRY_OBJECT_KINDS(X)
#undef X
};

/* "chunk" and so on, a static string; "?" for a number that is no kind's. */
const char *fdry_object_kind_name(enum fdry_object_kind kind);

#define FDRY_OBJECT_SIZE_MAX (1u << 30)  /* bytes of one object */
#define FDRY_OBJECT_LINKS_MAX (1u << 22) /* links of one object */
#define FDRY_REF_NAME_MAX 255            /* bytes of a ref's name, without the terminator */

/* One image under a name; see refs below. */
struct fdry_ref {
	char name[FDRY_REF_NAME_MAX + 1];
	struct fdry_oid oid;
	struct fdry_oid identity; /* zero: not said */
	uint64_t change;          /* the higher, the later it was set */
	bool pinned;              /* never evicted */
};

/**
 * fdry_store_locate() - The directory of a store.
 * @path: as for fdry_store_open(); NULL: the default
 * @ret: the path is appended, with a terminator that is not counted
 *
 * The default is FOUNDRY_STORE (empty is FDRY_E_ENV), else $XDG_CACHE_HOME/foundry/store (empty or
 * relative counts as unset), else $HOME/.cache/foundry/store, else FDRY_E_NOHOME. Never a
 * temporary directory. An empty path is FDRY_E_INVAL.
 */
int fdry_store_locate(const char *path, struct fdry_buf *ret) __must_check;

/* Another handle on the same store, for reading, whatever its path names by now; needs a close of its own. */
int fdry_store_again(const struct fdry_store *s, struct fdry_store **ret) __must_check;
/* Around a call that calls functions of the caller's: closing is refused between the two. */
int fdry_store_busy(struct fdry_store *s) __must_check;
void fdry_store_idle(struct fdry_store *s);
/* As it was opened; lives as long as the handle. */
const char *fdry_store_path(const struct fdry_store *s);

/* Who may use it. */
struct fdry_sharing {
	uint32_t uid, gid, mode; /* of the directory */
	bool group;              /* all of its group, else its owner alone */
	bool fixed;              /* read-only media */
	bool readonly;           /* this process can only read */
};
int fdry_store_sharing(struct fdry_store *s, struct fdry_sharing *ret) __must_check;

/* --- writing --- */

struct fdry_writer;
struct fdry_writer_stats {
	uint64_t objects_new, objects_known; /* by put */
	uint64_t bytes_new;                  /* uncompressed bytes of new objects */
	uint64_t stored_new;                 /* what they take at rest */
};

/* Begin to seal. Where this process can make no lease (store/lease.h) it waits for a collection to end: FDRY_E_LOCKED if
 * that takes longer than half a minute. FDRY_E_PERM if the store is open read-only. */
int fdry_writer_begin(struct fdry_store *s, struct fdry_writer **ret) __must_check;

/**
 * fdry_writer_add_object() - Store bytes unless they are there.
 * @data: @len bytes, at most FDRY_OBJECT_SIZE_MAX; the caller's again when this returns
 * @links: the objects that this one refers to, put before; kept as a set
 *
 * Objects collect in memory and go out in transactions of about 32 MiB. The same bytes put
 * as several kinds are one object of all those kinds, with the links of all.
 * Errors: FDRY_E_LIMIT, FDRY_E_NOENT (a link to what is not there), FDRY_E_FULL. After
 * FDRY_E_FULL and the like what was collected is lost: the session can only be ended.
 */
int fdry_writer_add_object(struct fdry_writer *w, enum fdry_object_kind kind, const void *data,
			   size_t len, const struct fdry_oid *links, size_t nlinks,
			   struct fdry_oid *ret) __must_check;

/* The same for content (FDRY_OBJECT_CHUNK) whose id @oid the caller computed with fdry_oid_of(). */
int fdry_writer_add_chunk(struct fdry_writer *w, const void *data, size_t len,
			  const struct fdry_oid *oid) __must_check;
/* The same for content of which the caller has seen in the store, in place, that it still has all @len bytes. *ret: whether it is
 * there; if not, a collection may have taken it, and the caller must put it. */
int fdry_writer_has_chunk(struct fdry_writer *w, size_t len, const struct fdry_oid *oid,
			  bool *ret) __must_check;

/* What the image is for: its ref replaces the one of the same identity. Not called: none is said. */
void fdry_writer_set_identity(struct fdry_writer *w, const struct fdry_oid *identity);

/**
 * fdry_writer_commit() - Last: the manifest and, if @ref is not NULL, the ref.
 * @stats: what the session put, the manifest included; may be NULL
 *
 * One transaction, durable when it returns. Ends the session, also on failure.
 * FDRY_E_RACED: somebody set the ref to another image of this identity since the session began (two seals
 * under one name); FDRY_E_NAME: not a ref's name; FDRY_E_NOENT: a link to what is not there.
 */
int fdry_writer_commit(struct fdry_writer *w, const void *manifest, size_t len,
		       const struct fdry_oid *links, size_t nlinks, const char *ref,
		       struct fdry_oid *ret, struct fdry_writer_stats *stats) __must_check;
/* Store what was put so far; the session goes on, and keeps it from gc. */
int fdry_writer_flush(struct fdry_writer *w) __must_check;
/* End the session without a manifest; what was stored stays for gc. NULL is fine. */
void fdry_writer_abort(struct fdry_writer *w);

/* --- reading --- */

struct fdry_reader;

/* Begin to load: one consistent view of the store. May wait for a collection as fdry_writer_begin()
 * does. */
int fdry_reader_begin(struct fdry_store *s, struct fdry_reader **ret) __must_check;
/* fdry_store_resolve(): what it finds, and all that leads from there, this session and those that begin before it ends
 * can get. The session's view is of the moment of its first success. */
int fdry_reader_resolve(struct fdry_reader *r, const char *name, struct fdry_oid *ret) __must_check;
/* All that @name may mean: every image of a ref, newest first, or the one that anything else means; at least one. What is
 * not a ref has an empty name. free() it. */
int fdry_reader_images(struct fdry_reader *r, const char *name, struct fdry_ref **ret,
		       size_t *count) __must_check;
/* How many bytes fdry_reader_copy() would append, without reading them. FDRY_E_NOENT. */
int fdry_reader_size(struct fdry_reader *r, const struct fdry_oid *oid, uint64_t *ret) __must_check;
/* A verified copy, decompressed, appended to @ret, which is as it was on failure. FDRY_E_NOENT, FDRY_E_CORRUPT. */
int fdry_reader_copy(struct fdry_reader *r, const struct fdry_oid *oid,
		     struct fdry_buf *ret) __must_check;
/* The bytes in place where the object is stored uncompressed (chunks are), else FDRY_E_STATE; valid
 * until fdry_reader_end(). Not verified, and at any alignment. */
int fdry_reader_map(struct fdry_reader *r, const struct fdry_oid *oid,
		    struct fdry_span *ret) __must_check;
/* Check a mapped object against its id; remembered for the rest of the boot (a shared note beside the store), unless @always.
 * @hashed (may be NULL) tells whether it was hashed now. */
int fdry_reader_verify(struct fdry_reader *r, const struct fdry_oid *oid, struct fdry_span data,
		       bool always, bool *hashed) __must_check;
/* The image is being loaded: what is used is evicted last. A note beside the store, without a transaction. */
void fdry_reader_note_use(struct fdry_reader *r, const struct fdry_oid *image);
/* NULL is fine. */
void fdry_reader_end(struct fdry_reader *r);

struct fdry_object_info {
	struct fdry_oid oid;
	enum fdry_object_kind kind; /* of several, the one with the highest number */
	uint32_t kinds;             /* bit n: kind number n */
	uint32_t nlinks;
	uint64_t size;   /* bytes */
	uint64_t stored; /* bytes at rest */
};
int fdry_store_info(struct fdry_store *s, const struct fdry_oid *oid, struct fdry_object_info *ret) __must_check;
/* What an object links to, in id order; free() it. */
int fdry_store_links(struct fdry_store *s, const struct fdry_oid *oid, struct fdry_oid **ret, size_t *count) __must_check;
/* 0: go on; anything else ends the walk and is handed up. */
typedef int (*fdry_object_fn)(void *arg, const struct fdry_object_info *info);
/* Every object in id order, as they were when the walk began. @fn may use the store. */
int fdry_store_each(struct fdry_store *s, fdry_object_fn fn, void *arg) __must_check;

/* The same for the objects whose id begins with these digits, 1 to 64 of 0-9a-f. FDRY_E_INVAL for others. */
int fdry_store_prefix(struct fdry_store *s, const char *digits, fdry_object_fn fn, void *arg) __must_check;

/* The same for @oid and everything that it reaches by links, each once. FDRY_E_NOENT where something is not there. */
int fdry_store_reach(struct fdry_store *s, const struct fdry_oid *oid, fdry_object_fn fn, void *arg) __must_check;

/* --- what it takes --- */

struct fdry_sum {
	uint64_t objects, bytes, stored; /* bytes uncompressed, and at rest */
};
struct fdry_image_usage {
	struct fdry_oid oid;
	bool broken;                /* something that it needs is not there; the rest is counted */
	struct fdry_sum all, unique; /* unique: no other image that a ref names reaches it */
};
struct fdry_usage {
	struct fdry_image_usage *images; /* that refs name, by id */
	size_t count;
	struct fdry_sum reached; /* by any of them, each object once */
};
/* @done of @total are looked at. */
typedef void (*fdry_step_fn)(void *arg, uint64_t done, uint64_t total);
/* What each image takes. Time is linear in the links of all images, memory in the objects. One short view of the store an
 * image: beside writers the sums may be of different moments. @step may be NULL. */
int fdry_store_usage(struct fdry_store *s, fdry_step_fn step, void *arg, struct fdry_usage *ret) __must_check;
void fdry_usage_release(struct fdry_usage *u);
/* NULL where no ref named it. */
const struct fdry_image_usage *fdry_usage_of(const struct fdry_usage *u, const struct fdry_oid *oid);

/* Of data.mdb. */
struct fdry_file_stat {
	uint64_t page_size;
	uint64_t file_bytes;             /* as long as it is */
	uint64_t disk_bytes;             /* that it takes: less, where it is sparse */
	uint64_t pages;                  /* up to the last one in use */
	uint64_t free_pages, free_runs, longest_run; /* free among them, for the store to use again; pieces; the longest */
	uint64_t map_bytes;              /* address space */
	uint32_t readers, readers_max;   /* transactions that read now, in any process; places for them */
};
struct fdry_store_stat {
	struct fdry_sum kinds[FDRY_OBJECT_MANIFEST + 1]; /* by kind number, the highest of several; [0]: all */
	uint64_t refs;
	uint64_t quarantined; /* objects whose damaged bytes were taken out of reach */
	struct fdry_file_stat file;
};
/* Linear in the objects; short views as fdry_store_usage(). */
int fdry_store_stat(struct fdry_store *s, fdry_step_fn step, void *arg, struct fdry_store_stat *ret) __must_check;
/* Append the same, and limit, pins and leases, as gauges in Prometheus' text format (lib/telemetry.h), each labelled with
 * the store's path. Errors: those of fdry_store_stat(); FDRY_E_PERM where another user's lease cannot be read. */
int fdry_store_metrics(struct fdry_store *s, struct fdry_buf *ret) __must_check;

/* --- claims --- */

struct fdry_claim;

/**
 * fdry_claim_begin() - Be the only process that does something for a while.
 * @key: @len bytes that say what: claims of different keys do not meet
 * @wait_ms: how long to wait for others to drop theirs
 * @waited: whether there was another; written on success
 *
 * Among all processes that use the store on this host, and the threads of this one. A
 * process that dies drops its claim. Errors: FDRY_E_LOCKED (it took longer than @wait_ms),
 * FDRY_E_PERM (also where the store is open read-only), FDRY_E_FULL, FDRY_E_IO.
 */
int fdry_claim_begin(struct fdry_store *s, const void *key, size_t len, uint32_t wait_ms, bool *waited,
		   struct fdry_claim **ret) __must_check;
/* Drop it. NULL is fine. Not in a forked child. */
void fdry_claim_end(struct fdry_claim *t);

/* --- refs --- */

/*
 * A name holds images by identity: what an image is for (architecture, number of SMs, facts
 * of the caller's), as whoever names it digested it. Setting replaces the image of the same
 * identity and no other. Of more than FDRY_REF_IMAGES_MAX the one that was set longest ago
 * and is not pinned goes.
 *
 * Where a call takes a ref, NAME means all that it holds and NAME:DIGITS one of them, by the
 * beginning of the image's id (4 digits or more). No name has a colon.
 */
#define FDRY_REF_IMAGES_MAX 64

/* Letters, digits and - _ . @ + / =; no "-" in front; no empty, "." or ".." component; at most 255 bytes; not 64 hex
 * digits. */
int fdry_ref_check(const char *name) __must_check;
/* Name an image; @identity NULL: not said. FDRY_E_NOENT where it, or anything it reaches, is not there; FDRY_E_INVAL where
 * it is not a manifest; FDRY_E_LIMIT where all that the name holds is pinned and there is no room for another. */
int fdry_ref_set(struct fdry_store *s, const char *name, const struct fdry_oid *oid,
		 const struct fdry_oid *identity) __must_check;
/* The image that was set last, of those that NAME or NAME:DIGITS names. */
int fdry_ref_get(struct fdry_store *s, const char *name, struct fdry_oid *ret) __must_check;
/* Delete NAME with all it holds, or NAME:DIGITS. FDRY_E_NOENT, FDRY_E_AMBIGUOUS. */
int fdry_ref_delete(struct fdry_store *s, const char *name) __must_check;
/* What NAME or NAME:DIGITS names, newest first; free() it. FDRY_E_NOENT. */
int fdry_ref_list(struct fdry_store *s, const char *name, struct fdry_ref **ret, size_t *count) __must_check;
typedef int (*fdry_ref_fn)(void *arg, const struct fdry_ref *ref);
/* Every image of every ref, by name, then newest first, as they were when the walk began. @fn may use the store. */
int fdry_ref_each(struct fdry_store *s, fdry_ref_fn fn, void *arg) __must_check;
/* A ref (of several images the one set last), NAME:DIGITS, the id of any object, or an unambiguous prefix (4 digits or
 * more) of a manifest's id. FDRY_E_NOENT, FDRY_E_AMBIGUOUS, FDRY_E_NAME. */
int fdry_store_resolve(struct fdry_store *s, const char *name, struct fdry_oid *ret) __must_check;

#endif
