// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_store.c - compiled code in a store, for every process of the host.
 *
 * Compiled code is an image like any other, with one kernel object and without memory and graphs.
 * Its ref is kernels/CONTENT and its identity is the key (Documentation/design/kernels.rst). So
 * refs keep it; collections, limits, packs and checks treat it like other images; and nothing here
 * writes to disk by itself. The store's readers verify all bytes: an id is a hash.
 *
 * The cache works without its store: failures here are counted, and code is compiled.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/identity.h"
#include "image/manifest.h"
#include "run/kernel_cache.h"
#include "lib/log.h"
#include "store/store.h"

#define CLAIM_WAIT_MS 60000u

static void ref_make(const struct fdry_kernels_unit *u, char ref[FDRY_REF_NAME_MAX + 1])
{
	snprintf(ref, FDRY_REF_NAME_MAX + 1, FDRY_KERNELS_REF "%s", u->content);
}

/* --- reading --- */

/* Find the image under the ref whose identity is the key; *@found is false if there is none. */
static int image_find(struct fdry_reader *g, const struct fdry_kernels_unit *u,
		      struct fdry_oid *ret, bool *found)
{
	char ref[FDRY_REF_NAME_MAX + 1];
	struct fdry_ref *refs = NULL;
	size_t count = 0, i;
	int err;

	*found = false;
	ref_make(u, ref);
	err = fdry_reader_images(g, ref, &refs, &count);
	if (err == -FDRY_E_NOENT)
		return 0;
	for (i = 0; i < count && !err && !*found; i++) {
		*found = fdry_oid_eq(&refs[i].identity, &u->key);
		*ret = refs[i].oid;
	}
	free(refs);
	return err;
}

/* The kernel object of an image. Check that the image has the key's identity. */
static int object_find(struct fdry_reader *g, const struct fdry_kernels_unit *u,
		       const struct fdry_oid *image, struct fdry_oid *ret)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_oid identity;
	int err = fdry_reader_copy(g, image, &bytes);

	if (err)
		goto out_release;
	err = fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m);
	if (err)
		goto out_release;
	err = fdry_identity_digest(&m, &identity);
	if (err)
		goto out_release;
	if (!fdry_oid_eq(&identity, &u->key) || m.n_objects != 1) {
		err = fdry_fail(FDRY_E_CORRUPT,
				"the image under " FDRY_KERNELS_REF "%s has another identity than "
				"its ref records, or not exactly one kernel",
				u->content);
		goto out_release;
	}
	*ret = m.objects[0].oid;
out_release:
	fdry_buf_release(&bytes);
	return err;
}

static int cubin_get(struct fdry_reader *g, const struct fdry_kernels_unit *u, struct fdry_buf *ret,
		     bool *found)
{
	struct fdry_oid image, object;
	int err = image_find(g, u, &image, found);

	if (err || !*found)
		return err;
	err = object_find(g, u, &image, &object);
	if (err)
		return err;
	err = fdry_reader_copy(g, &object, ret);
	if (err)
		return err;
	fdry_reader_note_use(g, &image);
	return 0;
}

/* Log a failure. Return true if the stored code is damaged or missing; else the store does not
 * work, which is counted. */
static bool is_damage(struct fdry_kernels *k, const char *doing, int err)
{
	fdry_info("kernels: %s: %s", doing, fdry_last_error());
	if (err == -FDRY_E_CORRUPT || err == -FDRY_E_BADIMAGE || err == -FDRY_E_NOENT ||
	    err == -FDRY_E_VERSION)
		return true;
	fdry_kernels_add(k, store_errors, 1);
	return false;
}

void fdry_kernels_store_get(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			    struct fdry_buf *ret, bool *found, bool *damaged)
{
	double begin = fdry_now_ms(), took;
	struct fdry_reader *g = NULL;
	int err;

	*found = false;
	if (!k->store || !u->keep)
		return;
	err = fdry_reader_begin(k->store, &g);
	if (!err)
		err = cubin_get(g, u, ret, found);
	fdry_reader_end(g);
	if (err) {
		*found = false;
		*damaged = is_damage(k, "compiled code cannot be read from the store", err) ||
			   *damaged;
	}
	took = fdry_now_ms() - begin;
	fdry_kernels_add(k, store_ms, took);
	fdry_kernels_trace(k, u->title, *found ? "found in the store" : "not in the store", took,
			   ret->len);
}

/* --- writing --- */

static int facts_add(struct fdry_manifest_writer *w, const struct fdry_kernels_unit *u)
{
	struct fdry_mf_fact mf;
	size_t i;
	int err;

	for (i = 0; i < u->nfacts; i++) {
		err = fdry_manifest_add_str(w, u->facts[i].key, &mf.key);
		if (err)
			return err;
		err = fdry_manifest_add_str(w, u->facts[i].value, &mf.value);
		if (err)
			return err;
		err = fdry_buf_put(&w->facts, &mf, sizeof(mf));
		if (err)
			return err;
	}
	return 0;
}

static int manifest_make(const struct fdry_kernels_unit *u, const struct fdry_oid *object,
			 struct fdry_buf *ret)
{
	struct fdry_manifest_writer w = { .base = 0 };
	struct fdry_mf_object mf = { .oid = *object };
	int err = facts_add(&w, u);

	if (err)
		goto out_release;
	err = fdry_buf_put(&w.objects, &mf, sizeof(mf));
	if (err)
		goto out_release;
	err = fdry_manifest_encode(&w, ret);
out_release:
	fdry_manifest_writer_release(&w);
	return err;
}

static int image_write(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
		       struct fdry_span cubin)
{
	char ref[FDRY_REF_NAME_MAX + 1];
	struct fdry_buf manifest = { 0 };
	struct fdry_oid object, image;
	struct fdry_writer *writer;
	int err = fdry_writer_begin(k->store, &writer);

	if (err)
		return err;
	err = fdry_writer_add_object(writer, FDRY_OBJECT_KERNEL, cubin.data, cubin.len, NULL, 0,
				     &object);
	if (err)
		goto out_abort;
	err = manifest_make(u, &object, &manifest);
	if (err)
		goto out_abort;
	ref_make(u, ref);
	fdry_writer_set_identity(writer, &u->key);
	err = fdry_writer_commit(writer, manifest.data, manifest.len, &object, 1, ref, &image,
				 NULL);
	fdry_buf_release(&manifest);
	return err;
out_abort:
	fdry_buf_release(&manifest);
	fdry_writer_abort(writer);
	return err;
}

void fdry_kernels_store_put(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			    struct fdry_span cubin)
{
	double begin = fdry_now_ms(), took;
	int err;

	if (!k->store || !u->keep)
		return;
	err = image_write(k, u, cubin);
	took = fdry_now_ms() - begin;
	fdry_kernels_add(k, store_ms, took);
	if (err == -FDRY_E_RACED)
		return; /* another process compiled the same and was faster */
	if (err) {
		if (is_damage(k, "compiled code cannot be written to the store", err))
			fdry_kernels_add(k, store_damaged, 1);
		return;
	}
	fdry_kernels_add(k, store_saves, 1);
	fdry_kernels_add(k, store_bytes, cubin.len);
	fdry_kernels_trace(k, u->title, "saved in the store", took, cubin.len);
}

struct fdry_claim *fdry_kernels_store_claim(struct fdry_kernels *k,
					    const struct fdry_kernels_unit *u)
{
	struct fdry_claim *claim = NULL;
	bool waited;

	if (!k->store || !u->keep)
		return NULL;
	if (fdry_claim_begin(k->store, &u->key, sizeof(u->key), CLAIM_WAIT_MS, &waited, &claim))
		fdry_debug("kernels: no claim: %s", fdry_last_error());
	return claim;
}
