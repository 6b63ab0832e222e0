/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - one LMDB environment of objects and refs, shared by all processes of a host.
 *
 * An object is named by the SHA-256 of its bytes. A ref names a manifest and is a root for garbage
 * collection. The store does not know what objects mean: the writer of an object lists the objects
 * that it links to. A session is a writer (a seal) or a reader (a load). An object that a session
 * found or wrote exists until the session ends, although collections run at the same time.
 *
 * Locking: any thread may use a store; only one thread at a time may use a session. A call on a
 * handle that a forked child inherited returns FDRY_E_FORKED.
 *
 * Any call may return FDRY_E_FORKED, FDRY_E_CORRUPT (LMDB found damaged pages), FDRY_E_STORE and
 * FDRY_E_NOMEM. A call that fails has changed nothing.
 */
#ifndef FDRY_STORE_STORE_H
#define FDRY_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "foundry/store.h"
#include "lib/buf.h"
#include "lib/fingerprint.h"
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

/* "chunk" and so on, a static string; "?" for an unknown kind. */
const char *fdry_object_kind_name(enum fdry_object_kind kind);

#define FDRY_OBJECT_SIZE_MAX (1u << 30)  /* bytes of one object */
#define FDRY_OBJECT_LINKS_MAX (1u << 22) /* links of one object */
#define FDRY_REF_NAME_MAX 255            /* bytes of a ref's name, without the terminator */

/* One image of a name; see refs below. */
struct fdry_ref {
	char name[FDRY_REF_NAME_MAX + 1];
	struct fdry_oid oid;
	struct fdry_oid identity; /* zero: none */
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

/* Another handle on the same store, for reading, even if the path leads to another store by now.
 * The caller closes it. */
int fdry_store_again(const struct fdry_store *s, struct fdry_store **ret) __must_check;
/* Around a call that calls functions of the caller: fdry_store_close() refuses to close the store
 * between the two. */
int fdry_store_busy(struct fdry_store *s) __must_check;
void fdry_store_idle(struct fdry_store *s);
/* The path that the store was opened with; valid as long as the handle. */
const char *fdry_store_path(const struct fdry_store *s);

/* The users who may use a store. */
struct fdry_sharing {
	uint32_t uid, gid, mode; /* of the directory */
	bool group;              /* its group, else only its owner */
	bool fixed;              /* it lies on read-only media */
	bool readonly;           /* this process can only read */
};
int fdry_store_sharing(struct fdry_store *s, struct fdry_sharing *ret) __must_check;

/* --- writing --- */

struct fdry_writer;
struct fdry_writer_stats {
	uint64_t objects_new, objects_known; /* that the session added */
	uint64_t bytes_new;                  /* uncompressed bytes of new objects */
	uint64_t stored_new;                 /* their stored bytes */
};

/* Begin to seal. A process that cannot create a lease (store/lease.h) waits for a running
 * collection to end: FDRY_E_LOCKED if that takes longer than half a minute. FDRY_E_PERM if the
 * store is open for reading only. */
int fdry_writer_begin(struct fdry_store *s, struct fdry_writer **ret) __must_check;

/**
 * fdry_writer_add_object() - Store an object unless the store has it.
 * @data: @len bytes, at most FDRY_OBJECT_SIZE_MAX; this call does not keep the pointer
 * @links: the objects that this one refers to, added before; kept as a set
 *
 * Objects collect in memory and are written in transactions of about 32 MiB. Equal bytes that are
 * added as several kinds are one object of all these kinds, with all links.
 * Errors: FDRY_E_LIMIT, FDRY_E_NOENT (a link leads to a missing object), FDRY_E_FULL. If a
 * transaction fails (FDRY_E_FULL and others), the objects in memory are lost, and the caller can
 * only end the session.
 */
int fdry_writer_add_object(struct fdry_writer *w, enum fdry_object_kind kind, const void *data,
			   size_t len, const struct fdry_oid *links, size_t nlinks,
			   struct fdry_oid *ret) __must_check;

/* The same for content (FDRY_OBJECT_CHUNK) whose id @oid the caller computed with fdry_oid_of(). */
int fdry_writer_add_chunk(struct fdry_writer *w, const void *data, size_t len,
			  const struct fdry_oid *oid) __must_check;
/**
 * fdry_writer_has_object() - Refer to an object that was put before, without its bytes.
 * @len: bytes of the object
 * @ret: whether the store has it; if not, for example since a collection took it, the caller puts
 *       its bytes
 */
int fdry_writer_has_object(struct fdry_writer *w, enum fdry_object_kind kind, size_t len,
			   const struct fdry_oid *oid, bool *ret) __must_check;

/* An object that was put before. */
struct fdry_writer_object {
	struct fdry_oid oid;
	uint64_t size;
	bool has; /* whether the store has it */
};

/**
 * fdry_writer_find_objects() - Look many objects up, as fdry_writer_has_object() looks up one.
 * @objects: of one kind; @has is set in each
 *
 * The session may refer to those that the store has. It counts each to which it refers by
 * fdry_writer_count_known().
 */
int fdry_writer_find_objects(struct fdry_writer *w, enum fdry_object_kind kind,
			     struct fdry_writer_object *objects, size_t n) __must_check;
void fdry_writer_count_known(struct fdry_writer *w, uint64_t objects);

/* Set the image's identity: its ref replaces the ref of the same identity. Default: no identity. */
void fdry_writer_set_identity(struct fdry_writer *w, const struct fdry_oid *identity);

/**
 * fdry_writer_commit() - Write the manifest and, unless @ref is NULL, the ref.
 * @stats: what the session wrote, including the manifest; may be NULL
 *
 * One transaction, durable when it returns. Ends the session, also on failure.
 * FDRY_E_RACED: another session has set the ref to another image of this identity since this
 * session began (two seals under one name); FDRY_E_NAME: not a ref's name; FDRY_E_NOENT: a link
 * leads to a missing object.
 */
int fdry_writer_commit(struct fdry_writer *w, const void *manifest, size_t len,
		       const struct fdry_oid *links, size_t nlinks, const char *ref,
		       struct fdry_oid *ret, struct fdry_writer_stats *stats) __must_check;
/* Write the objects that were added so far. The session continues, and keeps them from collections.
 */
int fdry_writer_flush(struct fdry_writer *w) __must_check;
/* End the session without a manifest. The next collection deletes its objects. NULL is fine. */
void fdry_writer_abort(struct fdry_writer *w);

/* --- reading --- */

struct fdry_reader;

/* Begin to load: one consistent view of the store. May wait for a collection, as
 * fdry_writer_begin(). */
int fdry_reader_begin(struct fdry_store *s, struct fdry_reader **ret) __must_check;
/* fdry_store_resolve() for a session. This session, and sessions that begin before it ends, can
 * read the object that it returns and all objects that it reaches. The session's view is fixed by
 * its first call that succeeds. */
int fdry_reader_resolve(struct fdry_reader *r, const char *name, struct fdry_oid *ret) __must_check;
/* All images that @name may mean, at least one: every image of a ref, the newest first; for other
 * forms of @name the one object, with an empty name. The caller frees @ret with free(). */
int fdry_reader_images(struct fdry_reader *r, const char *name, struct fdry_ref **ret,
		       size_t *count) __must_check;
/* The number of bytes that fdry_reader_copy() would append, without reading them. FDRY_E_NOENT. */
int fdry_reader_size(struct fdry_reader *r, const struct fdry_oid *oid, uint64_t *ret) __must_check;
/* Append a verified, uncompressed copy to @ret, which a failure leaves unchanged. FDRY_E_NOENT,
 * FDRY_E_CORRUPT. */
int fdry_reader_copy(struct fdry_reader *r, const struct fdry_oid *oid,
		     struct fdry_buf *ret) __must_check;
/* The bytes in place, if the object is stored uncompressed (chunks are), else FDRY_E_STATE. Valid
 * until fdry_reader_end(). Not verified, and at any alignment. */
int fdry_reader_map(struct fdry_reader *r, const struct fdry_oid *oid,
		    struct fdry_span *ret) __must_check;
/* Check a mapped object against its id. The result is noted in a file beside the store, so that no
 * process hashes the object again during this boot, unless @always is set. @hashed (may be NULL):
 * whether this call hashed it. */
int fdry_reader_verify(struct fdry_reader *r, const struct fdry_oid *oid, struct fdry_span data,
		       bool always, bool *hashed) __must_check;
/* Note that the image is being loaded, in a file beside the store: images in use are evicted last.
 */
void fdry_reader_note_use(struct fdry_reader *r, const struct fdry_oid *image);
/* NULL is fine. */
void fdry_reader_end(struct fdry_reader *r);

/**
 * fdry_repair_objects() - Bring damaged objects back from packs and other stores.
 * @oids: @n ids of objects that are damaged or missing
 * @last: NULL, or a source (store/repair.h) that is asked after all others
 * @why: if an object did not come, the reason of @last is appended, with a terminator, if it has
 *       one
 * @back: how many objects are whole again
 *
 * The call asks the files in the directory "packs" beside data.mdb, by name, then the stores and
 * packs of FOUNDRY_REPAIR, then @last. Without any, nothing happens. A source that cannot be read
 * is left out. Nothing that was verified before is trusted afterwards. Readers that began before
 * see the old bytes. Errors: FDRY_E_PERM and others if the store cannot be written.
 */
struct fdry_source;
int fdry_repair_objects(struct fdry_store *s, const struct fdry_oid *oids, size_t n,
			struct fdry_source *last, struct fdry_buf *why, size_t *back) __must_check;
/* As fdry_store_repair(), with @last as above. */
int fdry_repair_store(const char *path, const char *const *sources, size_t count,
		      struct fdry_source *last, const struct fdry_repair_opts *opts,
		      struct fdry_repair_report *report) __must_check;

/* Call @fn for each chunk of which @manifest, 8-byte aligned, records a fingerprint. A manifest
 * that is not valid has none. */
typedef void (*fdry_verify_print_fn)(void *arg, const struct fdry_oid *chunk,
				     struct fdry_fingerprint value);
typedef void (*fdry_verify_read_fn)(struct fdry_span manifest, fdry_verify_print_fn fn, void *arg);

/* As fdry_store_verify(). @read: reads manifests for FDRY_VERIFY_FAST; NULL if that is not set. */
int fdry_verify_store(const char *path, const struct fdry_verify_opts *opts,
		      fdry_verify_read_fn read, struct fdry_verify_report *report) __must_check;

struct fdry_object_info {
	struct fdry_oid oid;
	enum fdry_object_kind kind; /* if it has several, the one with the highest number */
	uint32_t kinds;             /* bit n: kind number n */
	uint32_t nlinks;
	uint64_t size;   /* bytes */
	uint64_t stored; /* stored bytes */
};
int fdry_store_info(struct fdry_store *s, const struct fdry_oid *oid,
		    struct fdry_object_info *ret) __must_check;
/* The objects that an object links to, in id order. The caller frees @ret with free(). */
int fdry_store_links(struct fdry_store *s, const struct fdry_oid *oid, struct fdry_oid **ret,
		     size_t *count) __must_check;
/* 0: continue; any other value ends the walk, which returns it. */
typedef int (*fdry_object_fn)(void *arg, const struct fdry_object_info *info);
/* Call @fn for every object, in id order, as of the beginning of the call. @fn may use the store.
 */
int fdry_store_each(struct fdry_store *s, fdry_object_fn fn, void *arg) __must_check;

/* The same for objects whose id begins with @digits, 1 to 64 of 0-9a-f; FDRY_E_INVAL for others. */
int fdry_store_prefix(struct fdry_store *s, const char *digits, fdry_object_fn fn,
		      void *arg) __must_check;

/* The same for @oid and all objects that it reaches by links, each once. FDRY_E_NOENT if one is
 * missing. */
int fdry_store_reach(struct fdry_store *s, const struct fdry_oid *oid, fdry_object_fn fn,
		     void *arg) __must_check;

/* --- what this host has loaded --- */

/*
 * Loads and captures of all processes of this host, as lines that they append to a file beside the
 * store. A line costs no transaction and takes no lock. If it cannot be written, it is not counted.
 */
#define FDRY_MISS_CODES 24 /* different errors that are counted apart */
struct fdry_load_stats {
	uint64_t since;          /* seconds since 1970; 0: nothing was counted */
	uint64_t hits, missed;   /* loads that succeeded and that failed */
	uint64_t bytes, load_us; /* content that hits copied, and their time */
	uint64_t captures;
	uint64_t saved_hits, saved_us; /* hits whose capture's time is known; the time saved */
	uint32_t codes;                /* of the misses; the last one also counts all others */
	struct {
		uint64_t count;
		int code;
	} why[FDRY_MISS_CODES];
};
void fdry_store_note_hit(struct fdry_store *s, const struct fdry_oid *image, uint64_t bytes,
			 double ms);
/* Returns @err, why the load failed, and keeps its message. */
int fdry_store_note_miss(struct fdry_store *s, int err) __must_check;
/* @ms: from the beginning of the capture to the end of the seal. */
void fdry_store_note_capture(struct fdry_store *s, const struct fdry_oid *image, double ms);
/* @image was made of @from, whose capture took as long. */
void fdry_store_note_same_capture(struct fdry_store *s, const struct fdry_oid *image,
				  const struct fdry_oid *from);
/* FDRY_E_IO if the file cannot be read. */
int fdry_store_load_stats(struct fdry_store *s, struct fdry_load_stats *ret) __must_check;
/* Count from now on. FDRY_E_PERM, FDRY_E_FULL, FDRY_E_IO. */
int fdry_store_load_stats_zero(struct fdry_store *s) __must_check;

/* When images were written to the store and used last, in seconds since 1970; 0: not known. */
struct fdry_image_times {
	uint64_t created, used;
};
/* Read what is known of all images. The caller releases @ret. */
int fdry_store_times_read(struct fdry_store *s, struct fdry_buf *ret) __must_check;
struct fdry_image_times fdry_times_of(const struct fdry_buf *all, const struct fdry_oid *image);

/* --- sizes --- */

struct fdry_sum {
	uint64_t objects, bytes, stored; /* bytes: uncompressed; stored: as they are stored */
};
struct fdry_image_usage {
	struct fdry_oid oid;
	bool broken;                /* an object that it needs is missing; the others count */
	struct fdry_sum all, unique; /* unique: objects that no other image with a ref reaches */
};
struct fdry_usage {
	struct fdry_image_usage *images; /* that refs name, by id */
	size_t count;
	struct fdry_sum reached; /* objects that any of them reaches, each once */
};
/* @done of @total are done. */
typedef void (*fdry_step_fn)(void *arg, uint64_t done, uint64_t total);
/* The size of each image. Time is linear in the links of all images, memory in the objects. Each
 * image is read in a short view of its own, so the sums may belong to different moments. @step may
 * be NULL. */
int fdry_store_usage(struct fdry_store *s, fdry_step_fn step, void *arg,
		     struct fdry_usage *ret) __must_check;
void fdry_usage_release(struct fdry_usage *u);
/* NULL if no ref named it. */
const struct fdry_image_usage *fdry_usage_of(const struct fdry_usage *u,
					     const struct fdry_oid *oid);

/* The file data.mdb. */
struct fdry_file_stat {
	uint64_t page_size;
	uint64_t file_bytes; /* its length */
	uint64_t disk_bytes; /* the disk space that it takes: less if it is sparse */
	uint64_t pages;      /* up to the last one in use */
	uint64_t free_pages; /* pages among them that new objects can use ... */
	uint64_t free_runs;  /* ... in so many runs of adjacent pages ... */
	uint64_t longest_run; /* ... of which the longest has so many */
	uint64_t map_bytes;  /* address space */
	uint32_t readers;    /* transactions that read now, in any process ... */
	uint32_t readers_max; /* ... of so many that can */
};
struct fdry_store_stat {
	/* by kind number (if an object has several, the highest); [0]: all */
	struct fdry_sum kinds[FDRY_OBJECT_MANIFEST + 1];
	uint64_t refs;
	uint64_t quarantined; /* objects whose damaged bytes were removed */
	struct fdry_file_stat file;
};
/* Time is linear in the objects. Reads in short views, as fdry_store_usage(). */
int fdry_store_stat(struct fdry_store *s, fdry_step_fn step, void *arg,
		    struct fdry_store_stat *ret) __must_check;
/* Append the same numbers, and limit, pins and leases, as gauges in Prometheus' text format
 * (lib/telemetry.h), each labelled with the store's path. Errors: those of fdry_store_stat();
 * FDRY_E_PERM if another user's lease cannot be read. */
int fdry_store_metrics(struct fdry_store *s, struct fdry_buf *ret) __must_check;

/* Bytes that data.mdb takes on the disk. */
struct fdry_compact_report {
	uint64_t before, after;
};
/**
 * fdry_store_compact() - Replace data.mdb by a copy without free pages.
 * @path: as for fdry_store_open(); NULL: the default
 * @step: called in the calling thread; may be NULL
 *
 * The disk needs space for the copy. No process may have the store open, this one included, and
 * processes that open it meanwhile wait, for half a minute at most. A call that fails, or a process
 * that dies, leaves the old file. Errors: FDRY_E_LOCKED names the processes that have it open;
 * FDRY_E_PERM, FDRY_E_FULL, FDRY_E_CORRUPT, FDRY_E_IO, and those of fdry_store_open().
 */
int fdry_store_compact(const char *path, fdry_step_fn step, void *arg,
		       struct fdry_compact_report *ret) __must_check;

/* --- arrivals --- */

struct fdry_arrival;

/*
 * Objects that one thread fetches into the store while other threads load them. Readers of a handle
 * that expects them wait for each object until it is committed. They see each object as of the call
 * that asks for it, not one view of the store. FDRY_E_NETWORK and others: the fetch failed.
 */
int fdry_arrival_new(struct fdry_arrival **ret) __must_check;
/* The fetching thread has ended, and no handle expects it. NULL is fine. */
void fdry_arrival_free(struct fdry_arrival *a);
/* The fetching thread lists the images, with their manifests (8-byte aligned, copied), and then the
 * objects in the order in which they will come. */
int fdry_arrival_add_image(struct fdry_arrival *a, const struct fdry_oid *oid,
			   const struct fdry_oid *identity, struct fdry_span manifest) __must_check;
int fdry_arrival_add(struct fdry_arrival *a, const struct fdry_oid *oid) __must_check;
/* The lists are complete. */
void fdry_arrival_begin(struct fdry_arrival *a);
/* The first @count objects are committed. */
void fdry_arrival_reach(struct fdry_arrival *a, size_t count);
/* The fetch has ended. @err: its error, whose message is in place; 0: all objects are committed. */
void fdry_arrival_end(struct fdry_arrival *a, int err);
/* Wait until the lists are complete or the fetch has ended. False if no images were listed. */
bool fdry_arrival_has_images(struct fdry_arrival *a);
/* From now on, readers of this handle wait for these objects, and find the listed images under any
 * name. NULL: no more. No reader is open. */
void fdry_store_expect(struct fdry_store *s, struct fdry_arrival *a);

struct fdry_complete {
	uint64_t objects, bytes; /* of an image; bytes of those that are there */
	uint64_t missing;        /* objects whose bytes are not there */
};
/* Look for every object of an image, without reading their bytes. */
int fdry_store_complete(struct fdry_store *s, const struct fdry_oid *image,
			struct fdry_complete *ret) __must_check;

/* --- waiting for other processes --- */

struct fdry_wait {
	uint32_t ms;       /* the longest time */
	fdry_stop_fn stop; /* NULL, or asked after each nap */
	void *arg;
};

/* Sleep for a moment. Errors: FDRY_E_CALLBACK (the function has ended the wait). */
int fdry_wait_nap(const struct fdry_wait *w) __must_check;

/* --- groups --- */

#define FDRY_GROUP_RANKS_MAX 4096u
#define FDRY_GROUP_LEN_MAX 256u

struct fdry_group {
	const char *name;     /* one for each meeting */
	uint32_t rank, ranks; /* at most FDRY_GROUP_RANKS_MAX */
	size_t len;           /* bytes of a record, at most FDRY_GROUP_LEN_MAX */
	struct fdry_wait wait; /* for all ranks */
};

/**
 * fdry_group_meet() - Exchange records among processes of one host that use the store.
 * @mine: the record of this rank
 * @all: gets the records of all ranks
 *
 * All ranks get the same answer: the records, or FDRY_E_LOCKED if not all ranks came before one of
 * them had waited long enough. Other errors concern this rank alone: FDRY_E_EXISTS (it was there
 * before), FDRY_E_INVAL (another number of ranks), FDRY_E_CALLBACK (it has ended the wait; the
 * other ranks get FDRY_E_LOCKED), FDRY_E_PERM, FDRY_E_FULL, FDRY_E_IO.
 */
int fdry_group_meet(struct fdry_store *s, const struct fdry_group *g, const void *mine,
		    void *all) __must_check;

/* --- claims --- */

struct fdry_claim;

/**
 * fdry_claim_begin() - Make this thread the only one that does a certain task.
 * @key: @len bytes that name the task; claims with different keys are independent
 * @wait: until another claim of this key ends; NULL: not at all
 * @waited: whether there was another claim; written on success
 *
 * The claim excludes all processes on this host that use the store, and the other threads of this
 * process. It ends if its process dies. Errors: FDRY_E_LOCKED (the wait took too long),
 * FDRY_E_CALLBACK (see fdry_wait_nap()), FDRY_E_PERM (also if the store is open for reading only),
 * FDRY_E_FULL, FDRY_E_IO.
 */
int fdry_claim_begin(struct fdry_store *s, const void *key, size_t len,
		     const struct fdry_wait *wait, bool *waited,
		     struct fdry_claim **ret) __must_check;
/* End it. NULL is fine. In a forked child, only its memory is freed. */
void fdry_claim_end(struct fdry_claim *t);

/* --- refs --- */

/*
 * A name holds one image for each identity. The identity is a hash of the facts that say which
 * programs can load the image (architecture, number of SMs, facts of the caller); the caller
 * computes it. Setting a ref replaces only the image of the same identity. If a name would hold
 * more than FDRY_REF_IMAGES_MAX images, the one that was set longest ago and is not pinned is
 * removed.
 *
 * In arguments, NAME means all images of a ref, and NAME:DIGITS means one of them, by the beginning
 * of its id (4 digits or more). No name has a colon.
 */
#define FDRY_REF_IMAGES_MAX 64

/* A name has letters, digits and - _ . @ + / =; no "-" in front; no empty, "." or ".." component;
 * at most 255 bytes. It is not 64 hexadecimal digits. FDRY_E_NAME. */
int fdry_ref_check(const char *name) __must_check;
/* Name an image; @identity NULL: none. FDRY_E_NOENT if the image, or an object that it reaches, is
 * missing; FDRY_E_INVAL if it is not a manifest; FDRY_E_LIMIT if the name holds as many images as
 * it may, and all are pinned. */
int fdry_ref_set(struct fdry_store *s, const char *name, const struct fdry_oid *oid,
		 const struct fdry_oid *identity) __must_check;
/* The image that was set last among those that NAME or NAME:DIGITS names. */
int fdry_ref_get(struct fdry_store *s, const char *name, struct fdry_oid *ret) __must_check;
/* The images that NAME or NAME:DIGITS names, the newest first. The caller frees @ret with free().
 * FDRY_E_NOENT. */
int fdry_ref_list(struct fdry_store *s, const char *name, struct fdry_ref **ret,
		  size_t *count) __must_check;
/* Pin the images that NAME or NAME:DIGITS names, until fdry_ref_unhold() for the same holder: a
 * number other than 0, which no other holder has. The pins of other holders stay, and so does one
 * that fdry_store_pin() makes before or meanwhile. fdry_store_unpin() ends all of them. */
int fdry_ref_hold(struct fdry_store *s, const char *name, uint64_t holder) __must_check;
int fdry_ref_unhold(struct fdry_store *s, const char *name, uint64_t holder);
typedef int (*fdry_ref_fn)(void *arg, const struct fdry_ref *ref);
/* Call @fn for every image of every ref, by name, then the newest first, as of the beginning of the
 * call. @fn may use the store. */
int fdry_ref_each(struct fdry_store *s, fdry_ref_fn fn, void *arg) __must_check;
/* @name is a ref (if it holds several images, the one set last), NAME:DIGITS, the id of any object,
 * or an unambiguous prefix (4 digits or more) of a manifest's id. FDRY_E_NOENT, FDRY_E_AMBIGUOUS,
 * FDRY_E_NAME. */
int fdry_store_resolve(struct fdry_store *s, const char *name, struct fdry_oid *ret) __must_check;

#endif
