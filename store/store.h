/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - one LMDB environment of objects and refs, shared by all processes of a host.
 *
 * Objects are named by the SHA-256 of their bytes; a ref names a manifest and is a root
 * for garbage collection. The store does not know what objects mean: whoever puts one
 * says which others it links to. A put session (sealing) and a get session (loading) each
 * hold the store's lock shared; collecting holds it exclusively.
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

#include "arch/buf.h"
#include "arch/oid.h"

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

struct fdry_store;

/**
 * fdry_store_default_path() - Where the store is if nobody says.
 * @ret: the path is appended, with a terminator that is not counted
 *
 * FOUNDRY_STORE (empty is FDRY_E_ENV), else $XDG_CACHE_HOME/foundry/store (empty or
 * relative counts as unset), else $HOME/.cache/foundry/store, else FDRY_E_NOHOME. Never a
 * temporary directory.
 */
int fdry_store_default_path(struct fdry_buf *ret) __must_check;

/**
 * fdry_store_open() - Open a store.
 * @path: a directory; NULL: the default
 * @flags: of enum fdry_store_flags
 *
 * One environment per directory and process, however often it is opened; each open needs a
 * close. Errors: FDRY_E_NOSTORE, FDRY_E_CORRUPT (cut short), FDRY_E_VERSION, FDRY_E_NETFS,
 * FDRY_E_PERM, FDRY_E_FULL, FDRY_E_NOHOME, FDRY_E_ENV, FDRY_E_STATE.
 */
int fdry_store_open(const char *path, unsigned int flags, struct fdry_store **ret) __must_check;
/* Another handle on the same store, for reading, whatever its path names by now; needs a close of its own. */
int fdry_store_again(const struct fdry_store *s, struct fdry_store **ret) __must_check;
/* NULL is fine; a forked child may close what it inherited. Sessions end first. */
void fdry_store_close(struct fdry_store *s);
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

struct fdry_put;
struct fdry_put_stats {
	uint64_t objects_new, objects_known; /* by put */
	uint64_t bytes_new;                  /* uncompressed bytes of new objects */
	uint64_t stored_new;                 /* what they take at rest */
};

/* Begin to seal. Waits for a collection to end; FDRY_E_LOCKED if that takes longer than half a minute.
 * FDRY_E_PERM if the store is open read-only. */
int fdry_put_begin(struct fdry_store *s, struct fdry_put **ret) __must_check;

/**
 * fdry_put_object() - Store bytes unless they are there.
 * @data: @len bytes, at most FDRY_OBJECT_SIZE_MAX; the caller's again when this returns
 * @links: the objects that this one refers to, put before; kept as a set
 *
 * Objects collect in memory and go out in transactions of about 32 MiB. The same bytes put
 * as several kinds are one object of all those kinds, with the links of all.
 * Errors: FDRY_E_LIMIT, FDRY_E_NOENT (a link to what is not there), FDRY_E_FULL. After
 * FDRY_E_FULL and the like what was collected is lost: the session can only be ended.
 */
int fdry_put_object(struct fdry_put *p, enum fdry_object_kind kind, const void *data, size_t len,
		    const struct fdry_oid *links, size_t nlinks, struct fdry_oid *ret) __must_check;

/**
 * fdry_put_commit() - Last: the manifest and, if @ref is not NULL, the ref.
 * @stats: what the session put, the manifest included; may be NULL
 *
 * One transaction, durable when it returns. Ends the session, also on failure.
 * FDRY_E_RACED: somebody set the ref to another image since the session began (two seals
 * under one name); FDRY_E_NAME: not a ref's name; FDRY_E_NOENT: a link to what is not there.
 */
int fdry_put_commit(struct fdry_put *p, const void *manifest, size_t len, const struct fdry_oid *links, size_t nlinks,
		    const char *ref, struct fdry_oid *ret, struct fdry_put_stats *stats) __must_check;
/* End the session without a manifest; what was put stays for gc. NULL is fine. */
void fdry_put_abort(struct fdry_put *p);

/* --- reading --- */

struct fdry_get;

/* Begin to load: one consistent view of the store. Waits for a collection as fdry_put_begin() does. */
int fdry_get_begin(struct fdry_store *s, struct fdry_get **ret) __must_check;
/* fdry_store_resolve() within the session's view: what it finds, the session can get. */
int fdry_get_resolve(struct fdry_get *g, const char *name, struct fdry_oid *ret) __must_check;
/* A verified copy, decompressed, appended to @ret, which is as it was on failure. FDRY_E_NOENT, FDRY_E_CORRUPT. */
int fdry_get_object(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_buf *ret) __must_check;
/* The bytes in place where the object is stored uncompressed (chunks are), else FDRY_E_STATE; valid until fdry_get_end().
 * Not verified, and at any alignment. */
int fdry_get_map(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_span *ret) __must_check;
/* Check a mapped object against its id; remembered for the rest of the boot (a shared note beside the store), unless @always.
 * @hashed (may be NULL) tells whether it was hashed now. */
int fdry_get_verify(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_span data, bool always, bool *hashed) __must_check;
/* NULL is fine. */
void fdry_get_end(struct fdry_get *g);

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

/* The same for @oid and everything that it reaches by links, each once. FDRY_E_NOENT where something is not there. */
int fdry_store_reach(struct fdry_store *s, const struct fdry_oid *oid, fdry_object_fn fn, void *arg) __must_check;

/* --- claims --- */

struct fdry_claim;

/**
 * fdry_claim_take() - Be the only process that does something for a while.
 * @key: @len bytes that say what: claims of different keys do not meet
 * @wait_ms: how long to wait for others to drop theirs
 * @waited: whether there was another; written on success
 *
 * Among all processes that use the store on this host, and the threads of this one. A
 * process that dies drops its claim. Errors: FDRY_E_LOCKED (it took longer than @wait_ms),
 * FDRY_E_PERM (also where the store is open read-only), FDRY_E_FULL, FDRY_E_IO.
 */
int fdry_claim_take(struct fdry_store *s, const void *key, size_t len, uint32_t wait_ms, bool *waited,
		   struct fdry_claim **ret) __must_check;
/* Drop it. NULL is fine. Not in a forked child. */
void fdry_claim_drop(struct fdry_claim *t);

/* --- refs --- */

/* Letters, digits and - _ . @ + / =; no empty, "." or ".." component; at most 255 bytes; not 64 hex digits. */
int fdry_ref_check(const char *name) __must_check;
/* Name an image, whatever the ref named before. FDRY_E_NOENT where it, or anything it reaches, is not there;
 * FDRY_E_INVAL where it is not a manifest. Waits for a collection as fdry_put_begin() does. */
int fdry_ref_set(struct fdry_store *s, const char *name, const struct fdry_oid *oid) __must_check;
int fdry_ref_get(struct fdry_store *s, const char *name, struct fdry_oid *ret) __must_check;
int fdry_ref_delete(struct fdry_store *s, const char *name) __must_check;
typedef int (*fdry_ref_fn)(void *arg, const char *name, const struct fdry_oid *oid);
/* Every ref in name order, as they were when the walk began. @fn may use the store. */
int fdry_ref_each(struct fdry_store *s, fdry_ref_fn fn, void *arg) __must_check;
/* A ref, the id of any object, or an unambiguous prefix (4 digits or more) of a manifest's id.
 * FDRY_E_NOENT, FDRY_E_AMBIGUOUS, FDRY_E_NAME. */
int fdry_store_resolve(struct fdry_store *s, const char *name, struct fdry_oid *ret) __must_check;

/* --- housekeeping --- */

struct fdry_gc_report {
	uint64_t live, dead;            /* objects */
	uint64_t dead_bytes, dead_stored; /* of the dead: uncompressed, and at rest */
};
/* Remove what no ref reaches. @dry_run only reports. FDRY_E_LOCKED while a seal or load holds the store.
 * The space is used again by the store; the file does not shrink. */
int fdry_store_gc(struct fdry_store *s, bool dry_run, struct fdry_gc_report *ret) __must_check;

struct fdry_verify_report {
	uint64_t objects, bytes;         /* looked at; bytes uncompressed */
	uint64_t damaged, missing;       /* objects that do not match their id; links to what is not there */
	uint64_t refs, dangling_refs;
	uint64_t crashes;                /* times that damage to pages ended the checking process */
};
/**
 * fdry_store_verify() - Hash everything again, and check every link and ref.
 * @finding: told each fault in one sentence; @oid is NULL where no single object is meant
 *
 * The work is done by a child process, since damaged pages may crash LMDB.
 *
 * Return: 0 also where faults were found: see @ret.
 */
typedef void (*fdry_finding_fn)(void *arg, const struct fdry_oid *oid, const char *text);
int fdry_store_verify(struct fdry_store *s, fdry_finding_fn finding, void *arg, struct fdry_verify_report *ret) __must_check;
/* The same of a store that this process need not open, since damage may crash that as well. @path as for fdry_store_open(). */
int fdry_store_verify_at(const char *path, fdry_finding_fn finding, void *arg,
			 struct fdry_verify_report *ret) __must_check;

#endif
