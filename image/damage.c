// SPDX-License-Identifier: Apache-2.0
/*
 * damage.c - notes damaged objects of an image, and brings them back.
 */
#include "image/damage.h"

#include <stdlib.h>

#include "image/manifest.h"
#include "lib/log.h"
#include "registry/registry.h"
#include "store/repair.h"

void fdry_damage_note(struct fdry_image *img, const struct fdry_oid *oid)
{
	pthread_mutex_lock(&img->lock);
	if (fdry_buf_put(&img->damaged, oid, sizeof(*oid)))
		fdry_debug("a damaged object is not noted: %s", fdry_last_error());
	pthread_mutex_unlock(&img->lock);
}

int fdry_damage_noted(struct fdry_image *img, const struct fdry_oid *oid, int err)
{
	if (err == -FDRY_E_CORRUPT)
		fdry_damage_note(img, oid);
	return err;
}

/* Note an object whose bytes in the store are wrong. */
static int damage_look(struct fdry_image *img, struct fdry_reader *reader,
		       const struct fdry_oid *oid)
{
	struct fdry_buf copy = { 0 };
	struct fdry_span bytes;
	int err = fdry_reader_map(reader, oid, &bytes);

	if (!err) {
		err = fdry_reader_verify(reader, oid, bytes, img->verify, NULL);
	} else if (err == -FDRY_E_STATE) { /* it is compressed */
		err = fdry_reader_copy(reader, oid, &copy);
		fdry_buf_release(&copy);
	}
	if (err != -FDRY_E_CORRUPT)
		return err;
	fdry_damage_note(img, oid);
	return 0;
}

static int damage_find(struct fdry_image *img, const struct fdry_wait *wait)
{
	struct fdry_oid *links = NULL, id;
	struct fdry_reader *reader = NULL;
	char hex[FDRY_OID_HEX_SIZE];
	size_t i, n = 0;
	int err = fdry_manifest_links(&img->m, &links, &n) ?:
		  fdry_reader_begin(img->store, &reader) ?:
		  fdry_reader_resolve(reader, fdry_oid_hex(&img->id, hex), &id);

	for (i = 0; i < n && !err && !(wait->stop && wait->stop(wait->arg)); i++)
		err = damage_look(img, reader, &links[i]);
	fdry_reader_end(reader);
	free(links);
	return err;
}

int fdry_damage_find(struct fdry_image *img, const struct fdry_wait *wait)
{
	struct fdry_saved_err damage;

	fdry_saved_err_set(&damage, -FDRY_E_CORRUPT);
	if (img->bytes.len && damage_find(img, wait))
		fdry_debug("more damage of the image is not looked for: %s", fdry_last_error());
	return fdry_saved_err_restore(&damage);
}

/* Errors of the machine, which a later call may not meet. Others say that the object stays damaged:
 * the store is read-only, for example. */
static bool may_pass(int err)
{
	switch (-err) {
	case FDRY_E_NOMEM:
	case FDRY_E_FULL:
	case FDRY_E_IO:
	case FDRY_E_STORE:
	case FDRY_E_LOCKED:
	case FDRY_E_RACED:
	case FDRY_E_STALE:
		return true;
	default:
		return false;
	}
}

int fdry_damage_repair(struct fdry_store *store, const char *name, const struct fdry_wait *wait,
		       const struct fdry_buf *damaged)
{
	size_t n = damaged->len / sizeof(struct fdry_oid), back = 0;
	struct fdry_source *registry = NULL;
	struct fdry_saved_err load_err;
	struct fdry_buf why = { 0 };
	int err;

	fdry_saved_err_set(&load_err, -FDRY_E_CORRUPT);
	if (!n)
		return fdry_saved_err_restore(&load_err);
	err = fdry_registry_source_new(wait, &registry) ?:
	      fdry_repair_objects(store, fdry_array(*damaged, const struct fdry_oid), n, registry,
				  &why, &back);
	fdry_source_close(registry);
	if (!err && !back)
		err = why.len ? fdry_fail(FDRY_E_CORRUPT, "%s; %s", load_err.why,
					  (const char *)why.data) :
				fdry_saved_err_restore(&load_err);
	else if (err && err != -FDRY_E_CALLBACK)
		err = fdry_fail(may_pass(err) ? (enum fdry_errcode)-err : FDRY_E_CORRUPT,
				"%s; it was not brought back: %s", load_err.why, fdry_last_error());
	fdry_buf_release(&why);
	if (err)
		return err;
	fdry_warn("image '%.100s' was damaged in the store; %zu object(s) were brought back, and "
		  "its content is loaded again",
		  name, back);
	return 0;
}
