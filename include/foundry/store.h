/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - stores, packs and their maintenance. Part of foundry.h, whose rules for errors,
 * threads, handles and units apply.
 *
 * A store is a directory that holds images as objects: kernels, graphs, chunks of memory content,
 * and a manifest for each image. An object's id is the SHA-256 of its bytes. A ref is a name for an
 * image. A collection removes objects that no ref reaches, an eviction removes refs. A session is a
 * seal, a load or an import in progress; a lease keeps the objects that it uses.
 */
#ifndef FOUNDRY_STORE_H
#define FOUNDRY_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------ stores --- */

struct fdry_store;

/**
 * fdry_store_open() - Open a store.
 * @path: its directory; NULL: FOUNDRY_STORE, else $XDG_CACHE_HOME/foundry/store, else
 *        $HOME/.cache/foundry/store
 * @flags: of enum fdry_store_flags
 * @ret: the handle; close it with fdry_store_close()
 *
 * A new store belongs to its owner alone, or with FDRY_STORE_GROUP to its group, for any umask. The
 * call refuses a store that an untrusted user could write to: Documentation/design/store.rst,
 * "Sharing". Several handles of one directory in a process share one LMDB environment. A handle
 * does not survive fork(): a child opens its own. If the store's files are removed or replaced
 * while it is open, every later call that reads or writes the store returns FDRY_E_STALE and
 * changes nothing; close the handle and open the store again.
 *
 * Errors: FDRY_E_NOSTORE (no directory, or not a store), FDRY_E_CORRUPT (incomplete, or pages are
 * damaged), FDRY_E_LOCKED (other processes use the store with a lock.mdb that was removed
 * meanwhile, or all places for readers were in use for a minute), FDRY_E_STALE (the files were
 * replaced at this moment; try again), FDRY_E_NETFS, FDRY_E_PERM, FDRY_E_VERSION, FDRY_E_FULL,
 * FDRY_E_NOHOME, FDRY_E_ENV, FDRY_E_IO.
 */
int fdry_store_open(const char *path, unsigned int flags, struct fdry_store **ret);
/* Close the handle. NULL is allowed. Images that were loaded from it stay. While the handle
 * exports, imports, evicts or collects, it stays open, and fdry_last_error() has a message. */
void fdry_store_close(struct fdry_store *store);

/* ------------------------------------------------------------ packs --- */

/* Bytes of objects, uncompressed. Called by the calling thread, inside the call that reports. */
typedef void (*fdry_bytes_fn)(void *arg, uint64_t done, uint64_t total);

/**
 * struct fdry_pack_report - What was exported or imported.
 * @sz: set by the caller: sizeof(struct fdry_pack_report)
 * @id: the pack's id: equal for equal images with equal names, however they are compressed
 * @bytes: bytes of the objects, uncompressed; @packed: bytes of the pack
 * @objects_new: of an import: objects that were missing; @bytes_new, @stored_new: their bytes,
 *        uncompressed and at rest (0 in a dry run)
 */
struct fdry_pack_report {
	size_t sz;
	char id[FDRY_ID_SIZE];
	uint64_t images, objects;
	uint64_t bytes, packed;
	uint64_t objects_new, bytes_new, stored_new;
};

enum fdry_export_flags {
	FDRY_EXPORT_PLAIN = 1 << 0, /* compress nothing: the same bytes with every zstd release */
	FDRY_EXPORT_NO_REFS = 1 << 1, /* the pack has no names */
	FDRY_EXPORT_ALL = 1 << 2,     /* every image that a ref names, in place of @names */
};

/**
 * struct fdry_export_opts - How to export.
 * @sz: sizeof(struct fdry_export_opts)
 * @flags: of enum fdry_export_flags
 * @threads: the number of threads; 0: as many as the process may use at the same time
 * @progress: NULL, or a function that is called meanwhile, with @progress_arg
 */
struct fdry_export_opts {
	size_t sz;
	uint32_t flags;
	uint32_t threads;
	fdry_bytes_fn progress;
	void *progress_arg;
};

/**
 * fdry_store_export() - Write images, with all objects that they need, as one pack.
 * @names: @count refs, ids, or unambiguous beginnings of ids. Images that a ref names keep that
 *        name in the pack
 * @fd: a file, a pipe or a socket, written from its position on without seeking. It stays open
 * @opts: NULL for the defaults
 * @report: NULL, or what was written
 *
 * Equal images result in equal packs. Every object is checked before it is written: a damaged one
 * is FDRY_E_CORRUPT. After an error the written bytes are no pack, and import refuses them. If the
 * reader of a pipe closes it, that is FDRY_E_IO in a program that ignores SIGPIPE. The export uses
 * some 130 MiB of memory with eight threads, and 150 bytes for each object. Errors: FDRY_E_NOENT,
 * FDRY_E_AMBIGUOUS, FDRY_E_INVAL (not an image), FDRY_E_LIMIT, FDRY_E_FULL, FDRY_E_RACED.
 */
int fdry_store_export(struct fdry_store *store, const char *const *names, size_t count, int fd,
		      const struct fdry_export_opts *opts, struct fdry_pack_report *report);

enum fdry_import_flags {
	FDRY_IMPORT_DRY_RUN = 1 << 0, /* read and check missing objects, write nothing */
	FDRY_IMPORT_NO_REFS = 1 << 1, /* set no refs: gc removes the images unless they are named */
};

/* An imported image: its id; the ref that was set, or NULL; and the id of the image that the ref
 * named before, or NULL. */
typedef void (*fdry_imported_fn)(void *arg, const char *id, const char *ref, const char *was);

/**
 * struct fdry_import_opts - How to import.
 * @sz: sizeof(struct fdry_import_opts)
 * @flags: of enum fdry_import_flags
 * @threads, @progress, @progress_arg: as for an export
 * @image: NULL, or a function that is called for each image at the end, with @image_arg
 */
struct fdry_import_opts {
	size_t sz;
	uint32_t flags;
	uint32_t threads;
	fdry_bytes_fn progress;
	void *progress_arg;
	fdry_imported_fn image;
	void *image_arg;
};

/**
 * fdry_store_import() - Read a pack, and store the objects that are missing.
 * @store: NULL in a dry run for a store that does not exist yet
 * @fd: the pack, read from its position on. Nothing after the pack is read
 * @opts: NULL for the defaults
 * @report: NULL, or what was read
 *
 * Each new object is checked against its id. The bytes of other objects are skipped, without
 * reading them if @fd is a file. The last transaction sets the refs: an import that fails changes
 * neither refs nor images, and the next collection removes the objects that it stored. It uses some
 * 200 MiB of memory with eight threads. Errors: FDRY_E_BADIMAGE (not a pack, damaged, or cut
 * short), FDRY_E_CORRUPT (an object does not match its id), FDRY_E_VERSION, FDRY_E_LIMIT,
 * FDRY_E_NOENT (neither the pack nor the store has an object that is needed), FDRY_E_RACED (another
 * process set one of the refs meanwhile), FDRY_E_FULL, FDRY_E_PERM.
 */
int fdry_store_import(struct fdry_store *store, int fd, const struct fdry_import_opts *opts,
		      struct fdry_pack_report *report);

/* ------------------------------------------------------------ refs --- */

/**
 * struct fdry_ref_info - An image under a name.
 * @sz: set by the library: sizeof(struct fdry_ref_info)
 * @name: the ref
 * @id: the image's id
 * @used: the last load or seal of the image, in seconds since 1970; 0: not known
 * @pinned: 1 if the image is never evicted; see fdry_store_pin()
 * @reserved: zero
 */
struct fdry_ref_info {
	size_t sz;
	const char *name;
	const char *id;
	uint64_t used;
	uint32_t pinned;
	uint32_t reserved;
};

/* Called with an image, which is valid until it returns. */
typedef void (*fdry_ref_info_fn)(void *arg, const struct fdry_ref_info *ref);

/**
 * fdry_store_refs() - List the images that refs name.
 * @fn: called for each, by name; the images of one name are ordered by age, the newest first
 *
 * The list is as of the beginning of the call. The function may use the store.
 * Errors: FDRY_E_CORRUPT (a record is damaged).
 */
int fdry_store_refs(struct fdry_store *store, fdry_ref_info_fn fn, void *arg);
/**
 * fdry_store_remove() - Remove a ref, or one of its images.
 * @name: a ref, which means all of its images, or REF:DIGITS, one of them by the beginning of its
 * id
 *
 * The images stay until no ref and no session reaches them and fdry_store_gc() removes them. Images
 * that are loaded are not affected. A ref whose record is damaged is removed, too.
 * Errors: FDRY_E_NOENT, FDRY_E_AMBIGUOUS, FDRY_E_NAME, FDRY_E_PERM, FDRY_E_FULL.
 */
int fdry_store_remove(struct fdry_store *store, const char *name);

/* ------------------------------------------------------------ keeping --- */

/**
 * fdry_store_pin() - Keep images from being evicted.
 * @name: a ref, which means all of its images, or REF:DIGITS, one of them by the beginning of its
 * id
 *
 * A pin belongs to the name and stays when another image of the same identity is sealed under it.
 * Errors: FDRY_E_NOENT, FDRY_E_AMBIGUOUS, FDRY_E_NAME, FDRY_E_PERM, FDRY_E_FULL.
 */
int fdry_store_pin(struct fdry_store *store, const char *name);
/* Allow them to be evicted again. */
int fdry_store_unpin(struct fdry_store *store, const char *name);

/**
 * fdry_store_limit() - Get the size that the store may have, and the size that it has.
 * @limit: NULL, or gets the limit in bytes: FOUNDRY_STORE_LIMIT if it is set, else the limit in the
 *        store; 0: no limit
 * @used: NULL, or gets the bytes of the store's tables; freed space in the file does not count
 *
 * Errors: FDRY_E_ENV (FOUNDRY_STORE_LIMIT is not a size).
 */
int fdry_store_limit(struct fdry_store *store, uint64_t *limit, uint64_t *used);
/**
 * fdry_store_set_limit() - Set the limit in the store.
 * @bytes: the limit; 0: none
 *
 * The call itself evicts nothing. A seal or an import that exceeds the limit evicts at its end, but
 * never its own images; if the disk is full, it evicts as much as it needs and tries once more. If
 * its images alone exceed the limit, it fails with FDRY_E_FULL. Without a limit nothing is ever
 * evicted.
 */
int fdry_store_set_limit(struct fdry_store *store, uint64_t bytes);

enum fdry_evict_flags {
	FDRY_EVICT_DRY_RUN = 1 << 0, /* only report; works in a store open for reading, too */
};
/*
 * Called for each evicted image, beginning with the one that was used longest ago; also if the call
 * then fails, because their space could not be freed. @used: its last load or seal, in seconds
 * since 1970; 0: not known.
 */
typedef void (*fdry_evict_fn)(void *arg, const char *ref, const char *id, uint64_t used);

/**
 * struct fdry_evict_opts - What to evict.
 * @sz: sizeof(struct fdry_evict_opts)
 * @flags: of enum fdry_evict_flags
 * @bytes: the size to fit into; 0: the store's limit
 * @evicted: NULL, or a function that is called for each image at the end, with @evicted_arg
 */
struct fdry_evict_opts {
	size_t sz;
	uint32_t flags;
	uint32_t reserved;
	uint64_t bytes;
	fdry_evict_fn evicted;
	void *evicted_arg;
};

/**
 * struct fdry_evict_report - What was evicted.
 * @sz: set by the caller: sizeof(struct fdry_evict_report)
 * @limit: the size to fit into
 * @before, @after: bytes in use; @after of a dry run is an estimate
 * @images: evicted images, counted once for each name
 * @objects, @stored: objects that were removed, and their bytes at rest; 0 in a dry run
 * @collected: 1: the space is free; 0: a later collection frees it, since another one is in
 * progress, or the call failed
 *
 * If the call fails after its checks of the arguments, the report has what was removed until then.
 * @before and @after are 0 if the store could not be read.
 */
struct fdry_evict_report {
	size_t sz;
	uint64_t limit, before, after;
	uint64_t images;
	uint64_t objects, stored;
	uint64_t collected;
};

/**
 * fdry_store_evict() - Make a store fit into its limit.
 * @opts: NULL for the defaults
 * @report: NULL, or what was done
 *
 * If the store fits, the call does nothing. Otherwise it removes refs, first those that were used
 * longest ago, until the objects of the other refs fit. Then it removes objects that no ref
 * reaches. Pinned images stay, and so do objects that a session uses. Errors: FDRY_E_STATE (no
 * limit is set, and @bytes is 0), FDRY_E_ENV, and those of fdry_store_gc().
 */
int fdry_store_evict(struct fdry_store *store, const struct fdry_evict_opts *opts,
		     struct fdry_evict_report *report);

enum fdry_gc_flags {
	FDRY_GC_DRY_RUN = 1 << 0, /* only report; works in a store that is open for reading, too */
};
enum fdry_gc_phase {
	FDRY_GC_MARK,  /* done: objects found in use; total: 0 */
	FDRY_GC_LIST,  /* the other objects are listed */
	FDRY_GC_SWEEP, /* done, total: unreachable objects */
};
/* Called every few milliseconds, by the calling thread. Nonzero: stop. */
typedef int (*fdry_gc_fn)(void *arg, int phase, uint64_t done, uint64_t total);

/**
 * struct fdry_gc_opts - How to collect.
 * @sz: sizeof(struct fdry_gc_opts)
 * @flags: of enum fdry_gc_flags
 * @progress: NULL, or a function that gets the progress and may stop the call, with @progress_arg
 */
struct fdry_gc_opts {
	size_t sz;
	uint32_t flags;
	uint32_t reserved;
	fdry_gc_fn progress;
	void *progress_arg;
};

/* Objects of one kind. */
struct fdry_gc_kind {
	uint64_t dead, stored; /* as @dead and @dead_stored of struct fdry_gc_report */
};

/**
 * struct fdry_gc_report - What was collected.
 * @sz: set by the caller: sizeof(struct fdry_gc_report)
 * @live: objects that stay
 * @dead, @dead_bytes, @dead_stored: objects that were removed (by a dry run: that would be); their
 *        bytes uncompressed, and at rest
 * @spared: live objects that stay only because a session used them meanwhile
 * @leases: sessions that kept objects; @reclaimed: leases of sessions that had died
 * @stopped: 1: the progress function ended it; the next collection removes the rest
 * @by_kind: the removed objects by kind: 1 chunks, 2 kernels, 3 graphs, 4 manifests; 0: bytes that
 *         belong to no object
 *
 * If the call fails after its checks of the arguments, the report has what was removed until then.
 */
struct fdry_gc_report {
	size_t sz;
	uint64_t live;
	uint64_t dead, dead_bytes, dead_stored;
	uint64_t spared, leases, reclaimed;
	uint64_t stopped;
	struct fdry_gc_kind by_kind[5];
};

/**
 * fdry_store_gc() - Remove objects that neither a ref nor a session reaches.
 * @opts: NULL for the defaults
 * @report: NULL, or what was done
 *
 * Seals and loads of any process may run meanwhile: objects that a session stored or found stay
 * until it ends. Writers wait for some 10 ms at a time. The store uses the space again; its file
 * does not shrink. If the call is interrupted, the next one removes the rest. Errors: FDRY_E_LOCKED
 * (another collection, or a session without a lease), FDRY_E_CORRUPT (a ref leads to a
 * missing object, or a table lacks entries that it counts: nothing more is removed), FDRY_E_PERM,
 * FDRY_E_VERSION (a lease of a newer program), FDRY_E_FULL.
 */
int fdry_store_gc(struct fdry_store *store, const struct fdry_gc_opts *opts,
		  struct fdry_gc_report *report);

/* ------------------------------------------------------------ damage --- */

enum fdry_fault_kind {
	FDRY_FAULT_DAMAGED,	/* the object @id is damaged */
	FDRY_FAULT_QUARANTINED, /* the object @id is in quarantine: its bytes were removed */
	FDRY_FAULT_MISSING,	/* the object @other, which the object @id needs, is missing */
	FDRY_FAULT_IMAGE, /* the image @id (NULL if unknown) cannot be loaded; @text names its ref
			   */
	FDRY_FAULT_LOOSE, /* there are bytes of the object @id, but no record */
	FDRY_FAULT_PAGES, /* a table or a list of pages of the store itself is damaged */
};
/* @id and @other: objects, or NULL. @text: one sentence. */
typedef void (*fdry_fault_fn)(void *arg, int kind, const char *id, const char *other,
			      const char *text);

enum fdry_verify_flags {
	FDRY_VERIFY_FAST = 1 << 0, /* compare content with fingerprints instead of hashing it */
};

/**
 * struct fdry_verify_opts - How to verify.
 * @sz: sizeof(struct fdry_verify_opts)
 * @flags: of enum fdry_verify_flags
 * @threads: the number of threads; 0: as many as the process may use at the same time
 * @fault: NULL, or a function that is called for each fault, with @fault_arg
 * @progress: NULL, or a function that is called meanwhile, with @progress_arg; a total of 0: not
 *        known yet
 */
struct fdry_verify_opts {
	size_t sz;
	uint32_t flags;
	uint32_t threads;
	fdry_fault_fn fault;
	void *fault_arg;
	fdry_bytes_fn progress;
	void *progress_arg;
};

/**
 * struct fdry_verify_report - What was found.
 * @sz: set by the caller: sizeof(struct fdry_verify_report)
 * @faults: the number of faults; 0: the store is sound
 * @objects, @bytes: objects that were read, and their bytes uncompressed
 * @damaged, @quarantined, @missing: objects
 * @refs: refs of images; @broken: those whose image cannot be loaded; @dangling: the part of
 *        @broken whose image needs a missing object
 * @crashes: times that damaged pages ended the process that read them
 * @compared, @compared_bytes: the part of @objects and @bytes that was compared with fingerprints
 */
struct fdry_verify_report {
	size_t sz;
	uint64_t faults;
	uint64_t objects, bytes;
	uint64_t damaged, quarantined, missing;
	uint64_t refs, broken, dangling;
	uint64_t crashes;
	uint64_t compared, compared_bytes;
};

/**
 * fdry_store_verify() - Hash every object of a store again; check every link and every ref.
 * @path: as for fdry_store_open(). The store need not be open, which damage may prevent
 * @opts: NULL for the defaults
 * @report: NULL, or what was found
 *
 * Seals, loads and collections may run meanwhile, and are not delayed: no view of the store lasts
 * longer than it takes to read 64 MiB of objects. Child processes read the store, since damaged
 * pages may crash a reader. A fault in the store is not an error of the call. Errors: those of
 * fdry_store_open(), FDRY_E_IO.
 *
 * With FDRY_VERIFY_FAST, the call compares content with the fingerprints that manifests record,
 * which takes the time of reading it. Manifests, kernels, graphs, and chunks without a fingerprint
 * are hashed. Fingerprints find accidents; SHA-256 also finds what an attacker changed. If content
 * is whole and the fingerprint is wrong, the manifest is the damaged object.
 */
int fdry_store_verify(const char *path, const struct fdry_verify_opts *opts,
		      struct fdry_verify_report *report);

enum fdry_repair_flags {
	FDRY_REPAIR_DRY_RUN = 1 << 0, /* ask the sources, write nothing */
};
enum fdry_repaired {
	FDRY_REPAIRED_BACK,	   /* the object @id was restored */
	FDRY_REPAIRED_QUARANTINED, /* it is damaged, and no source has it: loads of it fail */
	FDRY_REPAIRED_LOST,	   /* it is missing, and no source has it */
	FDRY_REPAIRED_IMAGE,	   /* the image @id, under the name @ref, cannot be loaded */
};
/* @what: of enum fdry_repaired. @ref: of an image, else NULL. @text: the same in words. */
typedef void (*fdry_repair_fn)(void *arg, int what, const char *id, const char *ref,
			       const char *text);

/**
 * struct fdry_repair_opts - How to repair.
 * @sz: sizeof(struct fdry_repair_opts)
 * @flags: of enum fdry_repair_flags
 * @threads: as for a verification
 * @repaired: NULL, or a function that is called for each object and image, with @repaired_arg
 * @progress: NULL, or a function that is called during the verification, which comes first, with
 *        @progress_arg
 */
struct fdry_repair_opts {
	size_t sz;
	uint32_t flags;
	uint32_t threads;
	fdry_repair_fn repaired;
	void *repaired_arg;
	fdry_bytes_fn progress;
	void *progress_arg;
};

/**
 * struct fdry_repair_report - What was repaired.
 * @sz: set by the caller: sizeof(struct fdry_repair_report)
 * @damaged, @missing: objects, before the repair
 * @back: objects that were damaged, in quarantine or missing, and are restored
 * @quarantined: objects in quarantine now, earlier ones among them; @lost: missing ones
 * @broken: refs to images that still cannot be loaded; 0: all can. In a dry run: refs to images
 *        that lack something
 */
struct fdry_repair_report {
	size_t sz;
	uint64_t damaged, missing;
	uint64_t back, quarantined, lost;
	uint64_t broken;
};

/**
 * fdry_store_repair() - Verify a store, and restore damaged and missing objects.
 * @path: as for fdry_store_verify()
 * @sources: @count directories of stores, or files of packs, asked in this order
 * @opts: NULL for the defaults
 * @report: NULL, or what was done
 *
 * After @sources, the call asks those of a load: the packs in the directory "packs" of the store,
 * the stores and packs of FOUNDRY_REPAIR, then the registry of FOUNDRY_REGISTRY. Those that cannot
 * be read are left out. Bytes of a source are used only if they match their id. Objects that a
 * restored object needs are restored, too. A damaged object that no source has goes into
 * quarantine: its bytes are removed, and loads of it fail with FDRY_E_CORRUPT until it is sealed,
 * imported or repaired again.
 * Seals, loads and collections may run meanwhile. Errors: FDRY_E_CORRUPT (the store's own pages are
 * damaged: a new store is needed), FDRY_E_BADIMAGE (a file that is no pack), FDRY_E_INVAL (neither
 * a file nor a folder), FDRY_E_NOSTORE, FDRY_E_FULL, FDRY_E_PERM. After an error, the objects that
 * were restored until then stay.
 */
int fdry_store_repair(const char *path, const char *const *sources, size_t count,
		      const struct fdry_repair_opts *opts, struct fdry_repair_report *report);

#ifdef __cplusplus
}
#endif

#endif
