/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - declarations that the files of store/ share, grouped by the defining file.
 */
#ifndef FDRY_STORE_INTERNAL_H
#define FDRY_STORE_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "lib/file.h"
#include "store/format.h"
#include "store/lmdb.h"
#include "store/store.h"

/* --- path.c --- */

/* A store's directory, checked. */
struct fdry_dir {
	int fd;          /* sessions share the store's lock on it */
	dev_t dev;
	ino_t ino;
	mode_t mode;     /* of the directory */
	uid_t uid;       /* the owner */
	gid_t gid;
	bool group;      /* its group may write: files belong to the group, too */
	mode_t file_mode; /* for new files */
	bool fixed;      /* the medium cannot be written */
	bool made;       /* this call created it */
};
/* Open a store's directory, or create it with the flags CREATE and GROUP of enum fdry_store_flags.
 * FDRY_E_NOSTORE, FDRY_E_NETFS, FDRY_E_PERM, FDRY_E_ENV, FDRY_E_FULL, FDRY_E_IO. */
int fdry_dir_open(const char *path, unsigned int flags, struct fdry_dir *ret) __must_check;
/* Close it; @undo also removes it, if fdry_dir_open() created it and it is still empty. */
void fdry_dir_close(struct fdry_dir *d, const char *path, bool undo);

/* --- perm.c --- */

/* Are the users who can write there trusted, and do the modes of LMDB's files fit the directory?
 * FDRY_E_PERM, FDRY_E_NOSTORE, FDRY_E_ENV. */
int fdry_perm_check(const struct fdry_dir *d, const char *path) __must_check;

/* --- file.c --- */

#define FDRY_FILE_TEMP ".file-" /* and a number: a file before it gets its name */
/* Set the store's mode and group on a file or folder that this process created, whatever the umask;
 * 0 or errno. */
int fdry_file_adopt(const struct fdry_dir *d, int fd) __must_check;
/* The same for one that is opened with @flags. @ret: its descriptor; NULL: it is closed again. */
int fdry_file_adopt_at(const struct fdry_dir *d, const char *name, int flags,
		       int *ret) __must_check;
/*
 * fdry_file_get() - Open a file that is in the store's directory.
 * @flags: of open(), without O_CREAT
 *
 * Other users who may write there can replace the file by a FIFO, on which opening would wait for
 * ever, by a device, or by a link. None of these is opened.
 *
 * Return: the descriptor, or -1 and errno: FDRY_NOT_REGULAR if it is no regular file.
 */
int fdry_file_get(int dir, const char *name, int flags) __must_check;
#define FDRY_NOT_REGULAR EMEDIUMTYPE
/* The text for such an errno, for the end of an error message. */
const char *fdry_file_text(int e);
/* Open a file of the store (@flags of open()), or create it if it is missing; it has its mode and
 * group before it has its name. Returns the descriptor, or -1 and errno. */
int fdry_file_open(const struct fdry_dir *d, const char *name, int flags) __must_check;
/* Create a folder of the store unless it exists; 0 or errno. */
int fdry_folder_make(const struct fdry_dir *d, const char *name) __must_check;
/* flock() that a signal does not interrupt; 0, or -1 and errno. */
int fdry_flock(int fd, int op);
/* Is the open file still the one of that name in the directory @dir? */
bool fdry_file_is_named(int dir, const char *name, int fd);

/* --- create.c --- */

#define FDRY_NEW_FOLDER ".new-" /* and a number: a new store before it gets its name */
/* Before data.mdb is opened: with @create, create a missing store; then make sure that its name is
 * durable. */
int fdry_dir_prepare(const struct fdry_dir *d, const char *path, bool create,
		     int (*fresh)(struct fdry_txn *t)) __must_check;
/* Remove such a folder from the directory @dir. */
void fdry_new_remove(int dir, const char *folder);

/* --- store.c --- */

/* One directory, as this process has it open. */
struct fdry_env {
	struct fdry_env *next;
	struct fdry_db *db;
	struct fdry_dir dir;
	unsigned int refs;       /* handles and sessions; under the registry's lock */
	/* of forks: if it differs from the process's, the environment was inherited */
	unsigned int generation;
	pid_t pid;
	bool readonly;           /* LMDB has it open for reading only */
	/* its data.mdb was removed or replaced: opening the directory now creates another
	 * environment */
	bool replaced;
	uint8_t id[FDRY_FORMAT_ID_SIZE];
	pthread_mutex_t lock;    /* protects @sharers */
	unsigned int sharers;    /* sessions that share the store's lock */
};

struct fdry_store {
	struct fdry_env *env;
	_Atomic unsigned int busy; /* calls that may be in a callback of the caller's now */
	struct fdry_arrival *arrival; /* its readers wait for these objects; NULL: none */
	bool readonly;
	char path[];
};

/* Every entry point starts with one of these: FDRY_E_FORKED; for writing also FDRY_E_PERM. */
int fdry_store_check(const struct fdry_store *s) __must_check;
int fdry_store_check_write(const struct fdry_store *s) __must_check;
/* The first one, and a transaction that reads: end it with fdry_txn_abort(). */
int fdry_store_read(const struct fdry_store *s, struct fdry_txn *t) __must_check;
/* fdry_opts_take() for a struct that begins with its size and flags. @known: the flags that it may
 * have. */
int fdry_store_flags_take(const void *opts, void *ret, size_t len, uint32_t known) __must_check;
/* The same for one with a reserved field behind the flags. */
int fdry_store_opts_take(const void *opts, void *ret, size_t len, uint32_t known) __must_check;

/* --- lock.c --- */

/* The store's lock: flock() on its directory. Sessions of one process share one open file. */
int fdry_env_share(struct fdry_env *env) __must_check;
void fdry_env_unshare(struct fdry_env *env);
/* Does not wait. FDRY_E_LOCKED names the holding processes if they are known. */
int fdry_env_exclude(struct fdry_env *env, int *fd_ret) __must_check;
/* The same without an error message: returns the descriptor, or -1 if the lock is held. */
int fdry_env_try(struct fdry_env *env);
/* Share the lock with sessions: fails only while a collection runs. */
int fdry_env_look(struct fdry_env *env, int *fd_ret) __must_check;
void fdry_env_unexclude(int fd);
/* The lock under which one process at a time opens or closes LMDB's environment. @create: create
 * data.mdb if needed. */
int fdry_dir_enter(const struct fdry_dir *d, const char *path, bool create,
		   int *fd_ret) __must_check;
void fdry_dir_leave(int fd);
/* Between the two: replace a lock.mdb that live processes use with another data.mdb. */
void fdry_lock_renew(const struct fdry_dir *d);

/* --- lockfd.c --- */

/* Held from opening a descriptor until it is added, and around fork(). */
void fdry_lockfd_lock(void);
void fdry_lockfd_unlock(void);
void fdry_lockfd_after_fork_child(void);
/* Add a descriptor that a child of fork() closes; 0 or ENOMEM. */
int fdry_lockfd_add(int fd) __must_check;
/* The number of forks so far: after a change, descriptors that were added before are closed. */
unsigned int fdry_lockfd_forks(void);
/* Open a file of the store for reading and writing, or create it, and add it. Returns the
 * descriptor, or -1 and errno. */
int fdry_lockfd_open(const struct fdry_dir *d, const char *name) __must_check;
/* Unlock and close it, added or not. */
void fdry_lockfd_close(int fd);

/* --- object.c --- */

/* A record of the table objects, decoded. @links lies in the value that it was read from. */
struct fdry_record {
	uint32_t kinds;
	uint32_t codec;
	uint32_t nlinks;
	uint64_t size, stored;
	struct fdry_span links;
};

static inline struct fdry_span fdry_oid_span(const struct fdry_oid *oid)
{
	return (struct fdry_span){ oid->b, FDRY_OID_SIZE };
}

int fdry_record_parse(struct fdry_span value, struct fdry_record *ret) __must_check;
/* The id that is a key of the tables objects and data. FDRY_E_CORRUPT if the length is wrong. */
int fdry_oid_of_key(struct fdry_span key, struct fdry_oid *ret) __must_check;
/* An entry of the table objects: its id and its record. */
int fdry_record_parse_entry(struct fdry_span key, struct fdry_span value, struct fdry_oid *oid,
			    struct fdry_record *ret) __must_check;
/* Called for a record; 0: continue, FDRY_EACH_STOP: stop without an error, negative: fail. */
typedef int (*fdry_record_fn)(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec);
/* Call @fn for each record whose id begins with @digits, 64 at most of 0-9a-f ("": every record),
 * in id order. @fn must not write. */
int fdry_record_each(struct fdry_txn *t, const char *digits, fdry_record_fn fn,
		     void *arg) __must_check;
/* @found: whether there is one; a missing record is no error. */
int fdry_record_get(struct fdry_txn *t, const struct fdry_oid *oid, bool *found,
		    struct fdry_record *ret) __must_check;
int fdry_record_need(struct fdry_txn *t, const struct fdry_oid *oid,
		     struct fdry_record *ret) __must_check;
struct fdry_oid fdry_record_link(const struct fdry_record *r, uint32_t i);
int fdry_record_put(struct fdry_txn *t, const struct fdry_oid *oid,
		    const struct fdry_record *r) __must_check;
void fdry_record_info(const struct fdry_oid *oid, const struct fdry_record *r,
		      struct fdry_object_info *ret);

/* The stored bytes. FDRY_E_CORRUPT if they are missing or their length does not fit the record. */
int fdry_object_stored(struct fdry_txn *t, const struct fdry_oid *oid, const struct fdry_record *r,
		       struct fdry_span *ret) __must_check;
/* Memory for decompressing, reused for many objects, since it is larger than most objects. Zero it
 * to start; only one thread at a time uses it. */
struct fdry_unpacker {
	void *ctx;
};
void fdry_unpacker_release(struct fdry_unpacker *u);
/* The number of bytes that fdry_object_read() appends; the record is compared with the stored
 * bytes. */
int fdry_object_size(struct fdry_txn *t, const struct fdry_oid *oid, uint64_t *ret) __must_check;
/* Append a verified copy of the bytes. */
int fdry_object_read(struct fdry_txn *t, const struct fdry_oid *oid, struct fdry_unpacker *u,
		     struct fdry_buf *ret) __must_check;
/* The bytes of an object whose codec is FDRY_CODEC_PLAIN, not verified. Most are copied to @scratch
 * from the file (fdry_txn_copy()). @ret: valid until the transaction ends or @scratch is used */
int fdry_object_plain(struct fdry_txn *t, const struct fdry_oid *oid, const struct fdry_record *r,
		      struct fdry_buf *scratch, struct fdry_span *ret) __must_check;
/* Verify the bytes. @scratch: for a copy. */
int fdry_object_check(struct fdry_txn *t, const struct fdry_oid *oid, const struct fdry_record *r,
		      struct fdry_unpacker *u, struct fdry_buf *scratch) __must_check;
int fdry_object_verify(const struct fdry_oid *oid, struct fdry_span data) __must_check;

/* An object on its way into the store. */
struct fdry_item {
	struct fdry_oid oid;
	struct fdry_record rec;  /* links point at @links */
	struct fdry_buf links;   /* owned by the item */
	struct fdry_span stored; /* the packed bytes; owned by the caller */
	/* the bytes as one zstd frame if the caller has one: it is stored unchanged */
	struct fdry_span frame;
	bool rewrite;            /* the store's bytes are damaged */
};
/* Hash @data, sort the links. */
int fdry_item_init(struct fdry_item *it, enum fdry_object_kind kind, struct fdry_span data,
		   const struct fdry_oid *links, size_t nlinks) __must_check;
/* The same if the hash of the @len bytes is known. */
int fdry_item_init_as(struct fdry_item *it, enum fdry_object_kind kind, size_t len,
		      const struct fdry_oid *oid, const struct fdry_oid *links,
		      size_t nlinks) __must_check;
void fdry_item_release(struct fdry_item *it);
/* Does the store already have the item with its bytes, kinds and links, undamaged? @data: its
 * bytes. */
int fdry_item_known(struct fdry_txn *t, struct fdry_item *it, struct fdry_span data,
		    bool *ret) __must_check;
/* Without reading the bytes: does the store have them in the needed form (@bytes), with all kinds
 * and links (@all)? */
int fdry_item_there(struct fdry_txn *t, const struct fdry_item *it, bool *bytes,
		    bool *all) __must_check;
/* The most bytes that packing may write. */
size_t fdry_item_packed_max(const struct fdry_item *it);
/* Copy @data to @to, of fdry_item_packed_max() bytes, compressed if the kind allows that and it is
 * smaller. The caller keeps @to. */
void fdry_item_pack(struct fdry_item *it, struct fdry_span data, void *to);
/* Store the item, or its new kinds and links; @is_new: whether the object was missing. */
int fdry_item_store(struct fdry_txn *t, const struct fdry_item *it, bool *is_new) __must_check;
/* FDRY_E_NOENT if a link of the item leads to a missing object. */
int fdry_item_check_links(struct fdry_txn *t, const struct fdry_item *it) __must_check;

/* --- writer.c, for callers that have checked the ids of their objects --- */

/* fdry_item_there() in the store. An item that it finds stays until the session ends. It does not
 * find an item that a collection may be deleting at this moment. */
int fdry_writer_has_item(struct fdry_writer *w, const struct fdry_item *it, bool *bytes,
			 bool *all) __must_check;
/* fdry_writer_add_object() for an item: it takes over the item's links, and copies @data or the
 * item's frame. */
int fdry_writer_add_item(struct fdry_writer *w, struct fdry_item *it,
			 struct fdry_span data) __must_check;

/* Objects that were added and wait for the next transaction. */
size_t fdry_writer_pending(const struct fdry_writer *w);

/* An image that the end of a session names. */
struct fdry_writer_image {
	struct fdry_oid oid;
	const char *ref;     /* NULL: no ref */
	struct fdry_oid identity; /* for its ref */
	bool had;            /* the ref named another image before ... */
	struct fdry_oid was; /* ... this one */
};
/*
 * fdry_writer_finish() - fdry_writer_commit() for several images whose manifests were added.
 * @more: @nmore items that add kinds and links to objects whose bytes are in the store
 *
 * One transaction; ends the session, also on failure. FDRY_E_NOENT if an image is missing,
 * FDRY_E_INVAL if an object is not an image.
 */
int fdry_writer_finish(struct fdry_writer *w, struct fdry_writer_image *images, size_t count,
		       const struct fdry_item *more, size_t nmore,
		       struct fdry_writer_stats *stats) __must_check;

/* --- arrival.c --- */

/* Wait until the object is committed; 0 at once if it is not listed. */
int fdry_arrival_wait(struct fdry_arrival *a, const struct fdry_oid *oid) __must_check;
/* The manifest of a listed image; false if there is none. */
bool fdry_arrival_manifest(const struct fdry_arrival *a, const struct fdry_oid *oid,
			   struct fdry_span *ret);
/* The listed images as images of @name, the newest first. The caller frees @ret with free(). */
int fdry_arrival_refs(const struct fdry_arrival *a, const char *name, struct fdry_ref **ret,
		      size_t *count) __must_check;

/* --- claim.c --- */

#define FDRY_CLAIM_FILE ".claim-" /* and a hash */

/* --- group.c --- */

#define FDRY_GROUP_FILE ".group-" /* and a hash */

/* --- sweep.c --- */

/* Remove files that dead processes left in the store's directory; live processes may use it.
 * FDRY_E_IO if it cannot be listed. */
int fdry_dir_sweep(const struct fdry_dir *dir) __must_check;

/* --- quarantine.c --- */

/* Remove the bytes of a damaged object, or all of it if its record is damaged, too. A sound or
 * missing object is left alone. */
int fdry_quarantine(struct fdry_txn *t, const struct fdry_oid *oid) __must_check;

/* --- verified.c --- */

#define FDRY_VERIFIED_TEMP "verified." /* and a number: a new note before it is renamed */

/* Ids of objects that were verified during this boot, as a session sees them. */
struct fdry_verified {
	bool loaded;
	uint8_t head[FDRY_VERIFIED_AT_IDS]; /* of the state of data.mdb when the session began */
	uint64_t epoch; /* of the note then; 0: this session writes no note */
	struct fdry_buf old;   /* ids from the file, ascending */
	struct fdry_buf added; /* ids of this session */
};
/* Must be called before the object is hashed, even if the answer does not matter: it fixes the
 * state that is noted. */
bool fdry_verified_has(struct fdry_verified *v, struct fdry_env *env, const struct fdry_oid *oid);
void fdry_verified_add(struct fdry_verified *v, const struct fdry_oid *oid);
/* Write the ids that were added. A failure costs only a check at the next load. */
void fdry_verified_end(struct fdry_verified *v, struct fdry_env *env);
void fdry_verified_release(struct fdry_verified *v);
/* Cancel the note: damage was found, or objects are being deleted. Sessions that began before add
 * nothing any more. The last error stays. */
void fdry_verified_forget(const struct fdry_dir *dir);
/* A transaction of this process changed data.mdb, and no other process did: a valid note stays
 * valid. */
void fdry_verified_carry(const struct fdry_dir *dir, const struct fdry_db_state *from,
			 const struct fdry_db_state *to);

/* --- boot.c --- */

/* The kernel's boot id. */
bool fdry_boot_id(uint8_t ret[16]);

/* --- checked.c --- */

/* All of these need the writers' lock, except the last one. */

/* Did a process check the pages of this state? */
bool fdry_checked_is(const struct fdry_dir *dir, const struct fdry_db_state *state);
/* This process checked them. A note that cannot be written is logged. */
void fdry_checked_set(const struct fdry_dir *dir, const struct fdry_db_state *state);
/* A transaction of this process changed data.mdb: a valid note stays valid. */
void fdry_checked_carry(const struct fdry_dir *dir, const struct fdry_db_state *from,
			const struct fdry_db_state *to);
/* Damage was found: the next writer checks. */
void fdry_checked_forget(const struct fdry_dir *dir);

/* --- atime.c --- */

struct fdry_atime {
	struct fdry_oid oid;
	uint64_t order; /* the higher, the later */
	uint64_t time;  /* seconds since 1970; 0: not known, as are the next two */
	uint64_t made;  /* when it was sealed, imported or fetched last */
	uint64_t took_ms; /* its capture */
};
/* Note that an image is used. After a failure it may be evicted sooner. */
void fdry_atime_note(const struct fdry_env *env, const struct fdry_oid *oid);
/* Note that an image was written to the store now, which counts as a use. */
void fdry_atime_note_made(const struct fdry_env *env, const struct fdry_oid *oid);
/* Append one line of the file's other forms, with its newline. Returns 0 or errno. */
int fdry_atime_append(const struct fdry_env *env, const char *line);
/* Append the bytes of the file; none if there is no file. FDRY_E_IO. */
int fdry_atime_text(const struct fdry_env *env, struct fdry_buf *ret) __must_check;
/* The lines of a text: the next one, without its newline and with a terminator, in @line. */
#define FDRY_ATIME_LINE_MAX 192
bool fdry_atime_next(const struct fdry_buf *text, size_t *at, char line[FDRY_ATIME_LINE_MAX]);
/* The notes in a text of that form, one for each image, by id. FDRY_E_NOMEM. */
int fdry_atime_parse(const struct fdry_buf *text, struct fdry_buf *ret) __must_check;
/* All notes; none if there is no file. FDRY_E_IO if it cannot be read. */
int fdry_atime_read(const struct fdry_env *env, struct fdry_buf *ret) __must_check;
/* The note of one image; NULL if there is none. */
const struct fdry_atime *fdry_atime_find(const struct fdry_buf *all, const struct fdry_oid *oid);

/* --- env_copy.c --- */

/* Copy the pages of the environment in @dir that are in use to @fd. No process has it open. */
int fdry_env_copy(const char *dir, const struct fdry_dir *entered, int fd) __must_check;

/* --- load_stats.c --- */

struct fdry_load_stats;
/* Sum the lines of the file @text. @all: its notes on images. */
void fdry_load_stats_sum(const struct fdry_buf *text, const struct fdry_buf *all,
			 struct fdry_load_stats *ret);
/* Append lines with the same sums. FDRY_E_NOMEM. */
int fdry_load_stats_put(const struct fdry_load_stats *s, struct fdry_buf *ret) __must_check;

/* --- limit.c --- */

/* The limit of this process: FOUNDRY_STORE_LIMIT, else the store's own limit; 0: none.
 * FDRY_E_ENV. */
int fdry_limit_read(struct fdry_txn *t, uint64_t *ret) __must_check;

/* --- evict.c --- */

/* Bytes of LMDB's pages that an object takes: an estimate, rather too high than too low. */
uint64_t fdry_record_cost(const struct fdry_record *rec);
/* More conditions for an eviction. All zero: none. */
struct fdry_evict_bounds {
	const struct fdry_oid *keep; /* @nkeep images that stay in any case */
	size_t nkeep;
	const struct fdry_idset *held; /* objects that stay in any case, and count; may be NULL */
	uint64_t free; /* not 0: evict this many bytes, whatever the size or the limit is */
};
/*
 * fdry_store_evict() with @bounds and checked options. If @after of the report is at most @limit,
 * the eviction frees enough, by estimate.
 */
int fdry_evict(struct fdry_store *s, const struct fdry_evict_opts *opts,
	       const struct fdry_evict_bounds *bounds, struct fdry_evict_report *ret) __must_check;
/* After a seal of @count images: evict others if the store is over its limit. A failure is only
 * logged. The caller has no open session. */
void fdry_evict_after(struct fdry_store *s, const struct fdry_oid *sealed, size_t count);

/* --- enospc.c --- */

struct fdry_lease;
/*
 * fdry_enospc_relieve() - Free space after a transaction found the disk or the map full.
 * @need: bytes to write
 * @lease: the caller's: objects that it noted stay
 *
 * Cuts off the pages that the failed transaction appended to the file. If there is a limit
 * (fdry_limit_read()), it also runs a collection; if that does not free @need bytes, it evicts
 * images. It evicts none if all images that may go are too small together.
 *
 * Return: true if the caller should try again. If not, the last error is as it was before.
 */
bool fdry_enospc_relieve(struct fdry_store *s, uint64_t need, const struct fdry_lease *lease);

/* --- meta.c --- */

/* A record of the table meta by its key; data is NULL if there is none. */
int fdry_meta_get(struct fdry_txn *t, const char *key, struct fdry_span *ret) __must_check;
int fdry_meta_put(struct fdry_txn *t, const char *key, const void *data, size_t len) __must_check;
int fdry_meta_delete(struct fdry_txn *t, const char *key) __must_check;
/* Is a collection under way, or was one when it died? */
int fdry_gc_announced(struct fdry_txn *t, bool *ret) __must_check;

/* --- ref.c --- */

/* The value of the change counter; 0 in a new store. */
int fdry_ref_changes(struct fdry_txn *t, uint64_t *ret) __must_check;
/* Parse a record alone: image, change and pin; name and identity stay empty. */
int fdry_ref_parse(struct fdry_span value, struct fdry_ref *ret) __must_check;
/* Parse an entry of the table refs: key and record. */
int fdry_ref_parse_entry(struct fdry_span key, struct fdry_span value,
			 struct fdry_ref *ret) __must_check;
/* The image of that identity; NULL: the image without identity. */
int fdry_ref_find(struct fdry_txn *t, const char *name, const struct fdry_oid *identity,
		  bool *found, struct fdry_ref *ret) __must_check;
/* Append all images of a name (NULL: of every ref, by name) as struct fdry_ref, newest first; none
 * if there is no such name. */
int fdry_ref_images(struct fdry_txn *t, const char *name, struct fdry_buf *ret) __must_check;
/* The same in any order, without reading their records: only names and identities, so that damaged
 * records can be deleted. */
int fdry_ref_images_unread(struct fdry_txn *t, const char *name, struct fdry_buf *ret) __must_check;
/* Write a record unchanged; the change counter stays. */
int fdry_ref_write(struct fdry_txn *t, const struct fdry_ref *ref) __must_check;
/* pins.c: pin a ref for good, or end all of its pins. */
int fdry_pin_set(struct fdry_txn *t, const struct fdry_ref *ref, bool pinned) __must_check;
/* The ref is removed: delete the notes of its holders. */
int fdry_pin_forget(struct fdry_txn *t, const struct fdry_ref *ref) __must_check;
/* As fdry_ref_hold() and fdry_ref_unhold(). */
int fdry_pin_hold(struct fdry_txn *t, const struct fdry_ref *ref, uint64_t holder) __must_check;
int fdry_pin_unhold(struct fdry_txn *t, const struct fdry_ref *ref, uint64_t holder) __must_check;
/* Set or replace the image of that identity; a pin stays. */
int fdry_ref_store(struct fdry_txn *t, const char *name, const struct fdry_oid *oid,
		   const struct fdry_oid *identity) __must_check;
/* Delete one; a missing one is no error. Raises the change counter. */
int fdry_ref_remove(struct fdry_txn *t, const struct fdry_ref *ref) __must_check;

/* --- resolve.c --- */

/* Append everything that @name may mean as struct fdry_ref, newest first; checks the name. See
 * fdry_reader_images(). */
int fdry_ref_resolve_all(struct fdry_txn *t, const char *name, struct fdry_buf *ret) __must_check;
/* Append the refs that NAME or NAME:DIGITS names; an id alone is no ref. FDRY_E_NOENT. */
int fdry_ref_select(struct fdry_txn *t, const char *name, struct fdry_buf *ret) __must_check;

/* --- gc.c --- */

/* Withdraw the announcement of a dead collection; does nothing while one is alive. */
void fdry_gc_recover(struct fdry_env *env);

/* --- idset.c --- */

/* A set of ids in memory. Zero it to start. */
struct fdry_idset {
	struct fdry_oid *slots; /* open addressing; @used marks those in use */
	uint8_t *used;
	size_t cap, count;
};
/* @is_new (may be NULL): the set did not have it. */
int fdry_idset_add(struct fdry_idset *set, const struct fdry_oid *oid, bool *is_new) __must_check;
/* Add an id; if it is new, append it to @stack, too. */
int fdry_idset_push(struct fdry_idset *set, const struct fdry_oid *oid,
		    struct fdry_buf *stack) __must_check;
bool fdry_idset_has(const struct fdry_idset *set, const struct fdry_oid *oid);
void fdry_idset_release(struct fdry_idset *set);
/* Sort a list of ids and remove duplicates, so that equal sets become equal lists. */
void fdry_oids_sort(struct fdry_buf *ids);

/* --- reach.c --- */

/* Push the links of @rec that are not in @seen, and add them to it. */
int fdry_links_push(const struct fdry_record *rec, struct fdry_idset *seen,
		    struct fdry_buf *stack) __must_check;

/*
 * fdry_reach() - Visit @root and everything that it links to, each once.
 * @seen: objects that were visited are skipped and added
 * @visit: 0: continue with its links, FDRY_EACH_STOP: skip its links, negative: fail. @rec is NULL
 * if the object is missing.
 */
int fdry_reach(struct fdry_txn *t, const struct fdry_oid *root, struct fdry_idset *seen,
	       fdry_record_fn visit, void *arg) __must_check;

#endif
