// SPDX-License-Identifier: Apache-2.0
/* compiled.c - see compiled.h. */
#include "image/compiled.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/identity.h"
#include "image/manifest.h"

/* --- the key --- */

/* Return the driver's release from its file's name, such as "libcuda.so.580.159.03". Several
 * releases have the same CUDA version. */
static const char *driver_release(const struct fdry_driver *drv, char path[PATH_MAX])
{
	struct link_map *map = NULL;
	const char *p;

	if (dlinfo(drv->handle, RTLD_DI_LINKMAP, &map) || !map->l_name ||
	    !realpath(map->l_name, path))
		return "";
	p = strstr(path, "libcuda.so.");
	return p && strchr(p + 11, '.') ? p + 11 : "";
}

void fdry_compiled_compiler(const struct fdry_driver *drv, char ret[128])
{
	char path[PATH_MAX];

	snprintf(ret, 128, "driver %d %.64s", drv->version, driver_release(drv, path));
}

void fdry_compiled_facts(const struct fdry_compiled_source *src,
			 struct fdry_fact ret[FDRY_COMPILED_FACTS])
{
	const struct fdry_fact facts[] = {
		{ "fdry.gpu.arch", src->arch },
		{ "fdry.gpu.driver", src->software ? "software" : "nvidia" },
		{ "kernel.compiler", src->compiler },
		{ "kernel.content", src->content },
		{ "kernel.form", src->form },
		{ "kernel.options", src->options },
		{ "kernel.target", src->target },
		{ "kernel.version", src->version },
	};

	_Static_assert(sizeof(facts) == FDRY_COMPILED_FACTS * sizeof(*ret), "all are listed");
	memcpy(ret, facts, sizeof(facts));
}

int fdry_compiled_key(const struct fdry_fact *facts, size_t n, struct fdry_oid *ret)
{
	struct fdry_hash h = { 0 };
	size_t i;
	int err = 0;

	for (i = 0; i < n; i++) {
		err = fdry_identity_hash(&h, facts[i].key, facts[i].value);
		if (err)
			goto out_release;
	}
	err = fdry_hash_final(&h, ret);
out_release:
	fdry_hash_release(&h);
	return err;
}

/* --- reading --- */

static void ref_make(const struct fdry_compiled *c, char ref[FDRY_REF_NAME_MAX + 1])
{
	snprintf(ref, FDRY_REF_NAME_MAX + 1, FDRY_COMPILED_REF "%s", c->content);
}

/* Find the image under the ref whose identity is the key; *@found is false if there is none. */
static int image_find(struct fdry_reader *g, const struct fdry_compiled *c,
		      struct fdry_oid *ret, bool *found)
{
	char ref[FDRY_REF_NAME_MAX + 1];
	struct fdry_ref *refs = NULL;
	size_t count = 0, i;
	int err;

	*found = false;
	ref_make(c, ref);
	err = fdry_reader_images(g, ref, &refs, &count);
	if (err == -FDRY_E_NOENT)
		return 0;
	for (i = 0; i < count && !err && !*found; i++) {
		*found = fdry_oid_eq(&refs[i].identity, &c->key);
		*ret = refs[i].oid;
	}
	free(refs);
	return err;
}

/* Find the kernel object of an image, and check that the image has the key's identity. */
static int object_find(struct fdry_reader *g, const struct fdry_compiled *c,
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
	if (!fdry_oid_eq(&identity, &c->key) || m.n_objects != 1) {
		err = fdry_fail(FDRY_E_CORRUPT,
				"the image under " FDRY_COMPILED_REF "%s has another identity than "
				"its ref records, or not exactly one kernel",
				c->content);
		goto out_release;
	}
	*ret = m.objects[0].oid;
out_release:
	fdry_buf_release(&bytes);
	return err;
}

static int cubin_read(struct fdry_reader *g, const struct fdry_compiled *c, struct fdry_buf *ret,
		      bool *found)
{
	struct fdry_oid image, object;
	int err = image_find(g, c, &image, found);

	if (err || !*found)
		return err;
	err = object_find(g, c, &image, &object);
	if (err)
		return err;
	err = fdry_reader_copy(g, &object, ret);
	if (err)
		return err;
	fdry_reader_note_use(g, &image);
	return 0;
}

int fdry_compiled_get(struct fdry_store *s, const struct fdry_compiled *c, struct fdry_buf *ret,
		      bool *found)
{
	struct fdry_reader *g = NULL;
	int err = fdry_reader_begin(s, &g);

	*found = false;
	if (err)
		return err;
	err = cubin_read(g, c, ret, found);
	fdry_reader_end(g);
	return err;
}

/* --- writing --- */

static int manifest_make(const struct fdry_compiled *c, const struct fdry_oid *object,
			 struct fdry_buf *ret)
{
	struct fdry_manifest_writer w = { .base = 0 };
	struct fdry_mf_object mf = { .oid = *object };
	size_t i;
	int err = 0;

	for (i = 0; i < c->nfacts && !err; i++)
		err = fdry_manifest_add_fact(&w, c->facts[i].key, c->facts[i].value);
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

int fdry_compiled_put(struct fdry_store *s, const struct fdry_compiled *c,
		       struct fdry_span cubin)
{
	char ref[FDRY_REF_NAME_MAX + 1];
	struct fdry_buf manifest = { 0 };
	struct fdry_oid object, image;
	struct fdry_writer *writer;
	int err = fdry_writer_begin(s, &writer);

	if (err)
		return err;
	err = fdry_writer_add_object(writer, FDRY_OBJECT_KERNEL, cubin.data, cubin.len, NULL, 0,
				     &object);
	if (err)
		goto out_abort;
	err = manifest_make(c, &object, &manifest);
	if (err)
		goto out_abort;
	ref_make(c, ref);
	fdry_writer_set_identity(writer, &c->key);
	err = fdry_writer_commit(writer, manifest.data, manifest.len, &object, 1, ref, &image,
				 NULL);
	writer = NULL; /* the commit ended the session */
out_abort:
	fdry_buf_release(&manifest);
	fdry_writer_abort(writer);
	return err;
}
