/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the files of store/ share, grouped by the file that defines it.
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
	int fd;          /* what sessions share the store's lock on */
	dev_t dev;
	ino_t ino;
	mode_t mode;     /* of the directory */
	uid_t uid;       /* whose it is */
	gid_t gid;
	bool group;      /* its group may write: files are the group's, too */
	mode_t file_mode; /* for new files */
	bool fixed;      /* the medium cannot be written */
	bool made;       /* by this call */
};
/* Open, or with the flags CREATE and GROUP of enum fdry_store_flags make, a store's directory. FDRY_E_NOSTORE,
 * FDRY_E_NETFS, FDRY_E_PERM, FDRY_E_ENV, FDRY_E_FULL, FDRY_E_IO. */
int fdry_dir_open(const char *path, unsigned int flags, struct fdry_dir *ret) __must_check;
/* Close it; @undo also removes it, if this call made it and it is still empty. */
void fdry_dir_close(struct fdry_dir *d, const char *path, bool undo);
/* The name of a network file system by its number from statfs(), NULL for any other. */
const char *fdry_fs_refused(unsigned long type);

/* --- perm.c --- */

/* May this process trust who can write there, and have LMDB's files the rights that the directory promises? FDRY_E_PERM,
 * FDRY_E_NOSTORE, FDRY_E_ENV. */
int fdry_perm_check(const struct fdry_dir *d, const char *path) __must_check;

/* --- file.c --- */

#define FDRY_FILE_TEMP ".file-" /* and a number: before it gets its name */
/* Give a file or folder that this process has made the store's mode and group, whatever the umask; 0 or errno. */
int fdry_file_adopt(const struct fdry_dir *d, int fd) __must_check;
/*
 * fdry_file_get() - Open a file that is in the store's directory.
 * @flags: of open(), without O_CREAT
 *
 * Anybody who may write there can have put something else in its place: a FIFO, on which opening would wait for
 * ever, a device, a link. None of these is opened.
 *
 * Return: the descriptor, or -1 and errno: FDRY_NOT_REGULAR if it is no regular file.
 */
int fdry_file_get(int dir, const char *name, int flags) __must_check;
#define FDRY_NOT_REGULAR EMEDIUMTYPE
/* What such an errno means, and what to do about FDRY_NOT_REGULAR, for the end of a sentence. */
const char *fdry_file_text(int e);
/* Open a file of the store (@flags of open()), making it where it is missing: as it should be from the moment it can be seen.
 * Returns the descriptor, or -1 and errno. */
int fdry_file_open(const struct fdry_dir *d, const char *name, int flags) __must_check;
/* Make a folder of the store unless it is there; 0 or errno. */
int fdry_folder_make(const struct fdry_dir *d, const char *name) __must_check;
/* Is the open file still the one of that name in the directory @dir? */
bool fdry_file_is_named(int dir, const char *name, int fd);

/* --- create.c --- */

#define FDRY_NEW_FOLDER ".new-" /* and a number: where a store is made before it gets its name */
/* Before data.mdb is opened: with @create, make a store that is not there; and see that its name is durable. */
int fdry_dir_prepare(const struct fdry_dir *d, const char *path, bool create, uint64_t map_size,
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
	unsigned int generation; /* of forks: another than the process's means inherited */
	pid_t pid;
	bool readonly;           /* LMDB has it open for reading only */
	bool replaced;           /* its data.mdb was removed or replaced: who opens the directory now gets another one */
	uint8_t id[FDRY_FORMAT_ID_SIZE];
	pthread_mutex_t lock;    /* of sharers */
	unsigned int sharers;    /* sessions that share the store's lock */
};

struct fdry_store {
	struct fdry_env *env;
	_Atomic unsigned int busy; /* calls that are in a function of the caller's, or may be */
	bool readonly;
	char path[];
};

/* Every entry point starts with one of these: FDRY_E_FORKED; for writing also FDRY_E_PERM. */
int fdry_store_check(const struct fdry_store *s) __must_check;
int fdry_store_check_write(const struct fdry_store *s) __must_check;
/* fdry_store_open() with another size of map, for tests; 0: the usual one. */
int fdry_store_open_sized(const char *path, unsigned int flags, uint64_t map_size, struct fdry_store **ret) __must_check;

/* --- lock.c --- */

/* The store's lock lies on its directory: flock(), which a crash releases. Sessions of one process share one place. */
int fdry_env_share(struct fdry_env *env) __must_check;
void fdry_env_unshare(struct fdry_env *env);
/* Does not wait: FDRY_E_LOCKED names who holds it where that can be told. */
int fdry_env_exclude(struct fdry_env *env, int *fd_ret) __must_check;
/* The same where nobody is in the way at this moment; -1 elsewhere, and without a sentence. */
int fdry_env_try(struct fdry_env *env);
/* The same beside those that share it: only a collection is in the way. */
int fdry_env_look(struct fdry_env *env, int *fd_ret) __must_check;
void fdry_env_unexclude(int fd);
/* While LMDB's environment is opened or closed: one process at a time. @create: data.mdb may have to be made. */
int fdry_dir_enter(const struct fdry_dir *d, const char *path, bool create, int *fd_ret) __must_check;
void fdry_dir_leave(int fd);
/* Between the two: put a new lock.mdb in place of one that live processes use with another data.mdb. */
void fdry_lock_renew(const struct fdry_dir *d);

/* --- lockfd.c --- */

/* From opening to adding, and around fork(). */
void fdry_lockfd_lock(void);
void fdry_lockfd_unlock(void);
void fdry_lockfd_after_fork_child(void);
/* The child of a fork() closes it from now on; 0 or ENOMEM. */
int fdry_lockfd_add(int fd) __must_check;
/* How many there were: what was added before another one is closed. */
unsigned int fdry_lockfd_forks(void);
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
/* @found tells whether there is one; not there is no error. */
int fdry_record_get(struct fdry_txn *t, const struct fdry_oid *oid, bool *found, struct fdry_record *ret) __must_check;
int fdry_record_need(struct fdry_txn *t, const struct fdry_oid *oid, struct fdry_record *ret) __must_check;
struct fdry_oid fdry_record_link(const struct fdry_record *r, uint32_t i);
int fdry_record_put(struct fdry_txn *t, const struct fdry_oid *oid, const struct fdry_record *r) __must_check;
void fdry_record_info(const struct fdry_oid *oid, const struct fdry_record *r, struct fdry_object_info *ret);

/* The bytes at rest. FDRY_E_CORRUPT where they are missing or of another length. */
int fdry_object_stored(struct fdry_txn *t, const struct fdry_oid *oid, const struct fdry_record *r,
		       struct fdry_span *ret) __must_check;
/* What decompressing works with, kept from one object to the next: it is larger than most objects. Zero it to start; of one
 * thread at a time. */
struct fdry_unpacker {
	void *ctx;
};
void fdry_unpacker_release(struct fdry_unpacker *u);
/* How many bytes fdry_object_read() appends; what the record says is compared with the bytes at rest. */
int fdry_object_size(struct fdry_txn *t, const struct fdry_oid *oid, uint64_t *ret) __must_check;
/* A verified copy of the bytes, appended. */
int fdry_object_read(struct fdry_txn *t, const struct fdry_oid *oid, struct fdry_unpacker *u, struct fdry_buf *ret) __must_check;
/* The same without a copy where there need be none; @scratch is room for one. */
int fdry_object_check(struct fdry_txn *t, const struct fdry_oid *oid, const struct fdry_record *r, struct fdry_unpacker *u,
		      struct fdry_buf *scratch) __must_check;
int fdry_object_verify(const struct fdry_oid *oid, struct fdry_span data) __must_check;

/* An object on its way into the store. */
struct fdry_item {
	struct fdry_oid oid;
	struct fdry_record rec;  /* links point at @links */
	struct fdry_buf links;   /* its own */
	struct fdry_span stored; /* the bytes at rest, once packed; somebody else's */
	struct fdry_span frame;  /* the bytes as one zstd frame, where the caller has that already: it is stored as it is */
	bool rewrite;            /* the store's bytes are damaged */
};
/* Hash @data, sort the links. */
int fdry_item_init(struct fdry_item *it, enum fdry_object_kind kind, struct fdry_span data,
		   const struct fdry_oid *links, size_t nlinks) __must_check;
/* The same where the hash of @len bytes is known. */
int fdry_item_init_as(struct fdry_item *it, enum fdry_object_kind kind, size_t len, const struct fdry_oid *oid,
		      const struct fdry_oid *links, size_t nlinks) __must_check;
void fdry_item_release(struct fdry_item *it);
/* Is all that the item says in the store already, and whole? @data: its bytes. */
int fdry_item_known(struct fdry_txn *t, struct fdry_item *it, struct fdry_span data, bool *ret) __must_check;
/* Without looking at the bytes: are they there as the item needs them (@bytes), with all that it says of them (@all)? */
int fdry_item_there(struct fdry_txn *t, const struct fdry_item *it, bool *bytes, bool *all) __must_check;
/* Room that packing may need. */
size_t fdry_item_packed_max(const struct fdry_item *it);
/* Copy @data to @to, which has that room, compressed where the kind allows and it is smaller; it belongs to the caller. */
void fdry_item_pack(struct fdry_item *it, struct fdry_span data, void *to);
/* Store it or what is new of it; @is_new tells whether the object was not there. */
int fdry_item_store(struct fdry_txn *t, const struct fdry_item *it, bool *is_new) __must_check;
/* FDRY_E_NOENT where a link of the item leads nowhere. */
int fdry_item_check_links(struct fdry_txn *t, const struct fdry_item *it) __must_check;

/* --- writer.c, for who brings objects whose ids are checked already --- */

/* fdry_item_there() of what is in the store. What it finds stays there as long as the session; what a collection may be
 * taking at this moment it does not find. */
int fdry_writer_has_item(struct fdry_writer *w, const struct fdry_item *it, bool *bytes,
			 bool *all) __must_check;
/* fdry_writer_add_object() of an item: takes its links over, and copies @data, or the item's frame.
 */
int fdry_writer_add_item(struct fdry_writer *w, struct fdry_item *it,
			 struct fdry_span data) __must_check;

/* An image that is there at the end of a session. */
struct fdry_writer_image {
	struct fdry_oid oid;
	const char *ref;     /* NULL: not to be named */
	struct fdry_oid identity; /* for its ref */
	bool had;            /* the ref named another image before ... */
	struct fdry_oid was; /* ... this one */
};
/*
 * fdry_writer_finish() - fdry_writer_commit() of several images whose manifests were put.
 * @more: @nmore items whose bytes are there, which get the kinds and links that these name
 *
 * One transaction; ends the session, also on failure. FDRY_E_NOENT and FDRY_E_INVAL where an image is not there, or is none.
 */
int fdry_writer_finish(struct fdry_writer *w, struct fdry_writer_image *images, size_t count,
		       const struct fdry_item *more, size_t nmore,
		       struct fdry_writer_stats *stats) __must_check;

/* --- claim.c --- */

#define FDRY_CLAIM_FILE ".claim-" /* and a hash */

/* --- sweep.c --- */

/* Remove what processes that died left in the store's directory; beside live ones. FDRY_E_IO if it cannot be listed. */
int fdry_dir_sweep(const struct fdry_dir *dir) __must_check;

/* --- quarantine.c --- */

/* Remove the bytes of an object that is damaged, or all of it where its record is, too; nothing where it is sound or not
 * there. */
int fdry_quarantine(struct fdry_txn *t, const struct fdry_oid *oid) __must_check;

/* --- verified.c --- */

#define FDRY_VERIFIED_TEMP "verified." /* and a number: before it is put in place */

/* Ids of objects that were verified during this boot, as a session sees them. */
struct fdry_verified {
	bool loaded;
	uint8_t head[FDRY_VERIFIED_AT_IDS]; /* of the state of data.mdb when the session began */
	uint64_t epoch; /* of the note then; 0: this session notes nothing */
	struct fdry_buf old;   /* ids from the file, ascending */
	struct fdry_buf added; /* ids of this session */
};
/* To be asked before the object is hashed, also if the answer does not matter: what is noted is what was hashed from then on. */
bool fdry_verified_has(struct fdry_verified *v, struct fdry_env *env, const struct fdry_oid *oid);
void fdry_verified_add(struct fdry_verified *v, const struct fdry_oid *oid);
/* Write what was added, if anything. Failing costs only a check at the next load. */
void fdry_verified_end(struct fdry_verified *v, struct fdry_env *env);
void fdry_verified_release(struct fdry_verified *v);
/* Cancel it: damage was found, or objects are going. Sessions that began before add nothing any more. The last error stays. */
void fdry_verified_forget(const struct fdry_dir *dir);
/* A writer of ours has changed data.mdb, and nobody else: what counted before counts on. */
void fdry_verified_carry(const struct fdry_dir *dir, const struct fdry_db_state *from, const struct fdry_db_state *to);

/* --- atime.c --- */

struct fdry_atime {
	struct fdry_oid oid;
	uint64_t order; /* the higher, the later */
	uint64_t time;  /* seconds since 1970 */
};
/* Note that an image is used. Failing costs only that it may be evicted sooner. */
void fdry_atime_note(const struct fdry_env *env, const struct fdry_oid *oid);
/* All that were noted, each once, by id; nothing if there is no file. FDRY_E_IO if it cannot be read. */
int fdry_atime_read(const struct fdry_env *env, struct fdry_buf *ret) __must_check;
/* One of them; NULL where it was not noted. */
const struct fdry_atime *fdry_atime_find(const struct fdry_buf *all, const struct fdry_oid *oid);

/* --- limit.c --- */

/* The limit that this process keeps to: of FOUNDRY_STORE_LIMIT, else the store's own; 0: none. FDRY_E_ENV. */
int fdry_limit_get(struct fdry_txn *t, uint64_t *ret) __must_check;
/* --- evict.c --- */

/* What an object takes of LMDB's pages: an estimate that errs upwards. */
uint64_t fdry_record_cost(const struct fdry_record *rec);
/* Behind a seal of @count images: evict others if the store is over its limit. Failing costs nothing but room. No session of
 * the caller's is open. */
void fdry_evict_after(struct fdry_store *s, const struct fdry_oid *sealed, size_t count);

/* --- enospc.c --- */

struct fdry_lease;
/*
 * fdry_enospc_relieve() - What can be done where the disk or the map is full.
 * @need: bytes that are to be written
 * @own: the caller's lease: what it noted stays
 *
 * Gives back what the transaction that failed made the file longer by. Where there is a limit (fdry_limit_get()), collects,
 * and where that does not free @need bytes evicts what does; nothing is evicted where all that may go is less.
 *
 * Return: whether trying again has a chance. The last error is as it was where it has none.
 */
bool fdry_enospc_relieve(struct fdry_store *s, uint64_t need, const struct fdry_lease *own);

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
/* Write the counter as it is: a commit that changes nothing. */
int fdry_ref_touch(struct fdry_txn *t) __must_check;
/* The record alone: image, change and pin; name and identity are left empty. */
int fdry_ref_parse(struct fdry_span value, struct fdry_ref *ret) __must_check;
/* An entry of the table refs, key and record. */
int fdry_ref_parse_entry(struct fdry_span key, struct fdry_span value, struct fdry_ref *ret) __must_check;
/* The image of that identity; @identity NULL: of none. */
int fdry_ref_find(struct fdry_txn *t, const char *name, const struct fdry_oid *identity, bool *found,
		  struct fdry_ref *ret) __must_check;
/* All that a name holds (NULL: every ref, by name), appended as struct fdry_ref, newest first; nothing where there is no
 * such name. */
int fdry_ref_images(struct fdry_txn *t, const char *name, struct fdry_buf *ret) __must_check;
/* The same without reading their records: only names and identities, so that damaged records can be deleted. */
int fdry_ref_images_unread(struct fdry_txn *t, const char *name, struct fdry_buf *ret) __must_check;
/* Write a record as it is given; the change counter stays. */
int fdry_ref_write(struct fdry_txn *t, const struct fdry_ref *ref) __must_check;
/* Set or replace the image of that identity; a pin stays. */
int fdry_ref_store(struct fdry_txn *t, const char *name, const struct fdry_oid *oid, const struct fdry_oid *identity) __must_check;
/* Delete one; no error where it is not there. Raises the change counter. */
int fdry_ref_remove(struct fdry_txn *t, const struct fdry_ref *ref) __must_check;

/* --- resolve.c --- */

/* What @name may mean, appended as struct fdry_ref, newest first; checks the name. See
 * fdry_reader_images(). */
int fdry_ref_resolve_all(struct fdry_txn *t, const char *name, struct fdry_buf *ret) __must_check;
/* fdry_store_resolve() in a transaction: the first of them. */
int fdry_ref_resolve(struct fdry_txn *t, const char *name, struct fdry_oid *ret) __must_check;
/* What NAME or NAME:DIGITS names, as refs: an id or a prefix of one alone is not one. FDRY_E_NOENT. */
int fdry_ref_select(struct fdry_txn *t, const char *name, struct fdry_buf *ret) __must_check;

/* --- gc.c --- */

/* Take back what a collection that died announced; nothing where one is alive. */
void fdry_gc_recover(struct fdry_env *env);

/* --- idset.c --- */

/* A set of ids in memory. Zero it to start. */
struct fdry_idset {
	struct fdry_oid *slots; /* open addressing; used[] tells which are taken */
	uint8_t *used;
	size_t cap, count;
};
/* @is_new (may be NULL): it was not in before. */
int fdry_idset_add(struct fdry_idset *set, const struct fdry_oid *oid, bool *is_new) __must_check;
bool fdry_idset_has(const struct fdry_idset *set, const struct fdry_oid *oid);
void fdry_idset_release(struct fdry_idset *set);

/* --- reach.c --- */

/*
 * fdry_reach() - Visit @root and everything that it links to, each once.
 * @seen: what was visited already is passed over; grows
 * @visit: 0: go on into its links, FDRY_EACH_STOP: not into them, negative: fail. @rec is NULL where the
 *         object is not there.
 */
typedef int (*fdry_visit_fn)(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec);
int fdry_reach(struct fdry_txn *t, const struct fdry_oid *root, struct fdry_idset *seen, fdry_visit_fn visit,
	       void *arg) __must_check;

#endif
