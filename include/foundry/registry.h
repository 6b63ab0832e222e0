/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.h - images in container registries. Part of foundry.h, whose rules for errors, threads,
 * handles and units apply.
 *
 * An image lies in a registry as an OCI artifact: each object of the store is one blob, whose
 * digest is the object's id. So neither side sends what the other one has.
 * Documentation/format/registry.rst specifies it.
 *
 * A registry is named "oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]"; the tag is "latest" if
 * neither is given. "oci+http://" is plain HTTP, which sends everything in the clear, passwords
 * too.
 *
 * The first call opens libfoundry-registry.so.0.2, which lies beside libfoundry.so
 * and needs libcurl and libjansson.
 */
#ifndef FOUNDRY_REGISTRY_H
#define FOUNDRY_REGISTRY_H

#include "foundry/store.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fdry_registry_flags {
	FDRY_REGISTRY_NO_REFS = 1 << 0, /* push: leave the names out; pull: set none */
	FDRY_REGISTRY_PRIVATE = 1 << 1, /* push files, and content that was not declared constant */
	FDRY_REGISTRY_PLAIN_HTTP = 1 << 2, /* "oci://" is plain HTTP, too */
};

/**
 * struct fdry_registry_progress - How far a push or pull is.
 * @sz: set by the library: sizeof(struct fdry_registry_progress)
 * @bytes, @objects: of @bytes_total and @objects_total, those that both sides have now
 * @bytes_moved: bytes that were sent or received
 * @elapsed_ms: since the first object
 * @bytes_per_s: of bytes that move, lately; 0: not known yet
 * @left_s: seconds until the end at this rate; negative: not known yet
 */
struct fdry_registry_progress {
	size_t sz;
	uint64_t bytes, bytes_total, objects, objects_total, bytes_moved;
	double elapsed_ms, bytes_per_s, left_s;
};
typedef void (*fdry_registry_progress_fn)(void *arg, const struct fdry_registry_progress *progress);

/**
 * struct fdry_registry_opts - How to push or pull.
 * @sz: sizeof(struct fdry_registry_opts)
 * @flags: of enum fdry_registry_flags
 * @requests: how many requests are in flight at the same time, at most 256; 0: 16
 * @ref: of a pull: NULL, or the name for all images in place of their own
 * @mounts: of a push: @count_mounts repositories of the same registry that may have the objects;
 * the registry then copies them without a transfer
 * @progress: NULL, or a function that is called meanwhile, with @progress_arg
 * @watch: NULL, or a function that is called where @progress is, and gets more, with @watch_arg
 * @stop, @stop_arg: NULL, or asked where @progress is called, and during a pull also while nothing
 * arrives. Objects that were transferred stay: another call goes on from there
 * @image: of a pull: NULL, or a function that is called for each image at the end, with @image_arg
 * @policy: of a pull: a file that says which keys must have signed which names, as
 * Documentation/format/policy.rst specifies it; NULL: that of FOUNDRY_POLICY; without both, every
 * image is accepted
 * @sign_key: of a push: a file with the private key that signs the image; NULL: that of
 * FOUNDRY_SIGN_KEY; without both, it is not signed
 */
struct fdry_registry_opts {
	size_t sz;
	uint32_t flags;
	uint32_t requests;
	const char *ref;
	const char *const *mounts;
	size_t count_mounts;
	fdry_bytes_fn progress;
	void *progress_arg;
	fdry_imported_fn image;
	void *image_arg;
	const char *policy;
	const char *sign_key;
	fdry_registry_progress_fn watch;
	void *watch_arg;
	fdry_stop_fn stop;
	void *stop_arg;
};

/**
 * struct fdry_registry_report - What was pushed or pulled.
 * @sz: set by the caller: sizeof(struct fdry_registry_report)
 * @id: SHA-256 of the manifest or index: REPOSITORY@sha256:ID names exactly this content
 * @images, @objects, @bytes: of the artifact
 * @objects_moved, @bytes_moved: objects that were sent or received
 * @objects_mounted: objects that the registry took from other repositories
 * @requests: HTTP requests, without those for tokens; @retries: of them, repetitions
 */
struct fdry_registry_report {
	size_t sz;
	char id[FDRY_ID_SIZE];
	uint64_t images, objects, bytes;
	uint64_t objects_moved, bytes_moved;
	uint64_t objects_mounted;
	uint64_t requests, retries;
};

/**
 * fdry_store_push() - Send images to a registry.
 * @names: @count refs, ids, or unambiguous beginnings of ids
 * @to: the registry, repository and tag; a digest is FDRY_E_INVAL. NULL: the repository that
 *      FOUNDRY_REGISTRY names, with a tag made of the one name
 * @opts: NULL for the defaults
 * @report: NULL, or what was sent
 *
 * The tag appears, or moves, after everything else has arrived. An image can contain data of the
 * program that sealed it, such as prompts in a cache. Content outside of tensors that were declared
 * constant is therefore FDRY_E_PERM without FDRY_REGISTRY_PRIVATE, and so are attached files.
 *
 * Errors: FDRY_E_NETWORK (not reached, or it failed), FDRY_E_PERM (it refuses the credentials),
 * FDRY_E_NOENT, FDRY_E_AMBIGUOUS, FDRY_E_NOCLIENT, FDRY_E_INVAL, FDRY_E_LIMIT, FDRY_E_CORRUPT,
 * FDRY_E_ENV (credentials or a key that cannot be read).
 */
int fdry_store_push(struct fdry_store *store, const char *const *names, size_t count,
		    const char *to, const struct fdry_registry_opts *opts,
		    struct fdry_registry_report *report);

/**
 * fdry_store_sign() - Sign images that were pushed to a registry.
 * @names: as they were pushed
 * @to: the registry, repository, and tag or digest
 * @opts: with @sign_key or FOUNDRY_SIGN_KEY; the flags of the push; NULL for the defaults
 * @report: NULL, or what was signed
 *
 * The signature is made for the images in the store: if the registry has other content under that
 * name, the call fails and signs nothing. It says that the images may be found under this name; a
 * policy can refuse them under others. Errors: those of fdry_store_push(); FDRY_E_CORRUPT (the
 * registry has another image there), FDRY_E_ENV (the key).
 */
int fdry_store_sign(struct fdry_store *store, const char *const *names, size_t count,
		    const char *to, const struct fdry_registry_opts *opts,
		    struct fdry_registry_report *report);

/**
 * fdry_store_pull() - Fetch the images of an artifact.
 * @from: the registry, repository, and tag or digest. NULL: the repository that FOUNDRY_REGISTRY
 *        names, with a tag made of @opts->ref, as fdry_store_push() makes it
 * @opts: NULL for the defaults
 * @report: NULL, or what was fetched
 *
 * Only objects that the store lacks are fetched, in the order in which a load needs them. Each is
 * compared with its id while it arrives. The last transaction sets the refs: a pull that fails
 * changes neither refs nor images. The policy is applied before anything but the manifest is asked
 * for. Errors: those of fdry_store_push(); FDRY_E_UNSIGNED (the policy asks for a signature that is
 * not there), FDRY_E_BADIMAGE (not an artifact of Foundry, or damaged), FDRY_E_CORRUPT (bytes that
 * do not match their id), FDRY_E_FULL.
 */
int fdry_store_pull(struct fdry_store *store, const char *from,
		    const struct fdry_registry_opts *opts, struct fdry_registry_report *report);

/* ----------------------------------------------------- repositories --- */

enum fdry_repo_flags {
	FDRY_REPO_DRY_RUN = 1 << 0,    /* only report */
	FDRY_REPO_PLAIN_HTTP = 1 << 2, /* "oci://" is plain HTTP, too */
};

enum fdry_repo_fate {
	FDRY_REPO_KEPT = 0,
	FDRY_REPO_REMOVED = 1, /* with FDRY_REPO_DRY_RUN: would be removed */
};

/**
 * struct fdry_repo_item - A tag of a repository, or a document without a tag.
 * @tag: NULL: a part of an index, or a signature, that has no tag
 * @id: SHA-256 of the manifest or index
 * @why: of a tag that is kept: the tag that the caller keeps and that leads to it; NULL: none,
 * since an image without a tag has this signature
 * @objects, @bytes: its blobs; those of an index include its parts only in fdry_repo_tags()
 * @fate: of enum fdry_repo_fate
 * @is_image: whether it is an image of Foundry
 * @is_signed, @is_signature: only in fdry_repo_tags(); whether signatures, or other documents that
 * refer to it, are at a tag; whether it is such a document
 */
struct fdry_repo_item {
	const char *tag, *id, *why;
	uint64_t objects, bytes;
	int fate;
	int is_image, is_signed, is_signature;
};
typedef void (*fdry_repo_fn)(void *arg, const struct fdry_repo_item *item);

/**
 * struct fdry_repo_opts - How to work on a repository.
 * @sz: sizeof(struct fdry_repo_opts)
 * @flags: of enum fdry_repo_flags
 * @requests: how many requests are in flight at the same time, at most 256; 0: 16
 * @keep: of a prune: @count_keep patterns of tags, with *, ? and [...] as in a shell
 * @item: NULL, or a function that is called for each item, with @item_arg
 */
struct fdry_repo_opts {
	size_t sz;
	uint32_t flags;
	uint32_t requests;
	const char *const *keep;
	size_t count_keep;
	fdry_repo_fn item;
	void *item_arg;
};

/**
 * struct fdry_repo_report - What a repository has, or what was removed from it.
 * @sz: set by the caller: sizeof(struct fdry_repo_report)
 * @tags: tags that were there
 * @kept: tags that are kept
 * @removed: manifests and indexes that were removed
 * @bytes: of blobs that nothing in the repository needs any more; the registry's own collection
 * removes them
 * @requests: HTTP requests, without those for tokens; @retries: of them, repetitions
 *
 * A call that fails fills it as well: @removed were removed before.
 */
struct fdry_repo_report {
	size_t sz;
	uint64_t tags, kept, removed;
	uint64_t bytes;
	uint64_t requests, retries;
};

/**
 * fdry_repo_tags() - List the tags of a repository, by name.
 * @from: "oci://HOST[:PORT]/REPOSITORY"
 * @opts: NULL for the defaults
 * @report: NULL, or what was found
 *
 * Errors: those of fdry_store_push(), and FDRY_E_LIMIT (more than 100,000 tags, or more than
 * 50,000 documents that they lead to).
 */
int fdry_repo_tags(const char *from, const struct fdry_repo_opts *opts,
		   struct fdry_repo_report *report);

/**
 * fdry_repo_unpush() - Remove an image from a registry.
 * @name: "oci://HOST[:PORT]/REPOSITORY", with a tag or a digest
 *
 * The manifest or index is removed, then the parts that no other index lists, then its signatures.
 * A registry removes a manifest with all its tags: a tag is therefore FDRY_E_STATE if another one
 * leads to the same manifest, and a digest if it is a part or a signature of something else. A
 * registry that does not allow removal is FDRY_E_PERM. FDRY_E_RACED: tags changed meanwhile, and
 * nothing was removed. FDRY_E_NOENT. Other errors: those of fdry_repo_tags().
 */
int fdry_repo_unpush(const char *name, const struct fdry_repo_opts *opts,
		     struct fdry_repo_report *report);

/**
 * fdry_repo_prune() - Remove all images from a repository but those whose tags are kept.
 * @from: "oci://HOST[:PORT]/REPOSITORY"
 * @opts: with @keep; with FDRY_REPO_DRY_RUN nothing is removed
 *
 * Kept are the tags that match, and all that belongs to them: other tags of the same manifests,
 * parts of indexes, signatures. An image without a tag stays; only the registry's own collection
 * finds all of them. Do not push to the repository meanwhile: tags are compared again before
 * anything is removed, but a registry has no locks. Errors: those of fdry_repo_unpush();
 * FDRY_E_INVAL (no pattern, or one that matches no tag).
 */
int fdry_repo_prune(const char *from, const struct fdry_repo_opts *opts,
		    struct fdry_repo_report *report);

#ifdef __cplusplus
}
#endif

#endif
