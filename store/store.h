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

struct fdry_store;

/* Where the store is if nobody says: FOUNDRY_STORE (empty is FDRY_E_ENV), else $XDG_CACHE_HOME/foundry/store
 * (empty or relative counts as unset), else $HOME/.cache/foundry/store, else FDRY_E_NOHOME. Never a temporary directory. */
int fdry_store_default_path(struct fdry_buf *ret) __must_check;

/* @path: a directory; NULL: the default. One environment per directory and process, reference-counted. */
int fdry_store_open(const char *path, unsigned int flags, struct fdry_store **ret) __must_check;
void fdry_store_close(struct fdry_store *s);
const char *fdry_store_path(const struct fdry_store *s);

/* --- writing --- */

struct fdry_put;
struct fdry_put_stats {
	uint64_t objects_new, objects_known; /* by put */
	uint64_t bytes_new;                  /* uncompressed bytes of new objects */
	uint64_t stored_new;                 /* what they take at rest */
};
int fdry_put_begin(struct fdry_store *s, struct fdry_put **ret) __must_check;
/* Store @len bytes unless they are there; commits in short transactions of its own choosing. @links: what it refers to. */
int fdry_put_object(struct fdry_put *p, enum fdry_object_kind kind, const void *data, size_t len,
		    const struct fdry_oid *links, size_t nlinks, struct fdry_oid *ret) __must_check;
/* Last: manifest and, if @ref is not NULL, the ref, in one transaction; durable when it returns. Ends the session, also on failure.
 * FDRY_E_RACED: the ref changed since the session began (two seals under one name); the objects stay for gc. */
int fdry_put_commit(struct fdry_put *p, const void *manifest, size_t len, const struct fdry_oid *links, size_t nlinks,
		    const char *ref, struct fdry_oid *ret, struct fdry_put_stats *stats) __must_check;
/* End the session without a manifest; what was put stays for gc. NULL is fine. */
void fdry_put_abort(struct fdry_put *p);

/* --- reading --- */

struct fdry_get;
int fdry_get_begin(struct fdry_store *s, struct fdry_get **ret) __must_check;
/* A verified copy, decompressed. FDRY_E_NOENT, FDRY_E_CORRUPT. */
int fdry_get_object(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_buf *ret) __must_check;
/* The bytes in place where the object is stored uncompressed (chunks are), else FDRY_E_STATE; valid until fdry_get_end(). Not verified. */
int fdry_get_map(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_span *ret) __must_check;
/* Check a mapped object against its id; remembered for the rest of the boot (a shared note beside the store), unless @always. */
int fdry_get_verify(struct fdry_get *g, const struct fdry_oid *oid, struct fdry_span data, bool always) __must_check;
void fdry_get_end(struct fdry_get *g);

struct fdry_object_info {
	struct fdry_oid oid;
	enum fdry_object_kind kind;
	uint64_t size;    /* bytes */
	uint64_t stored;  /* bytes at rest */
};
int fdry_store_info(struct fdry_store *s, const struct fdry_oid *oid, struct fdry_object_info *ret) __must_check;
typedef int (*fdry_object_fn)(void *arg, const struct fdry_object_info *info);
int fdry_store_each(struct fdry_store *s, fdry_object_fn fn, void *arg) __must_check;

/* --- refs --- */

/* Letters, digits and - _ . @ + / =; no empty, "." or ".." component; at most 255 bytes; not 64 hex digits. */
int fdry_ref_check(const char *name) __must_check;
int fdry_ref_set(struct fdry_store *s, const char *name, const struct fdry_oid *oid) __must_check;
int fdry_ref_get(struct fdry_store *s, const char *name, struct fdry_oid *ret) __must_check;
int fdry_ref_delete(struct fdry_store *s, const char *name) __must_check;
typedef int (*fdry_ref_fn)(void *arg, const char *name, const struct fdry_oid *oid);
int fdry_ref_each(struct fdry_store *s, fdry_ref_fn fn, void *arg) __must_check;
/* A ref, an id, or an unambiguous prefix (4 digits or more) of a manifest's id. */
int fdry_store_resolve(struct fdry_store *s, const char *name, struct fdry_oid *ret) __must_check;

/* --- housekeeping --- */

struct fdry_gc_report { uint64_t live, dead, dead_bytes, dead_stored; };
/* Remove what no ref reaches. @dry_run only reports. FDRY_E_LOCKED while a seal or load holds the store. */
int fdry_store_gc(struct fdry_store *s, bool dry_run, struct fdry_gc_report *ret) __must_check;

struct fdry_verify_report { uint64_t objects, bytes, damaged, missing, refs, dangling_refs; };
/* Re-hash everything and check every link; @finding is told each fault in one sentence. Returns 0 also where faults were found. */
typedef void (*fdry_finding_fn)(void *arg, const struct fdry_oid *oid, const char *text);
int fdry_store_verify(struct fdry_store *s, fdry_finding_fn finding, void *arg, struct fdry_verify_report *ret) __must_check;

#endif
