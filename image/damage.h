/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage.h - objects of an image that are damaged in the store, and how they come back.
 *
 * A load, a restore or a comparison notes each object that it finds damaged, and fails. Then the
 * objects are asked for from other sources, and the load, restore or comparison begins again.
 */
#ifndef FDRY_IMAGE_DAMAGE_H
#define FDRY_IMAGE_DAMAGE_H

#include "image/image.h"

/* The most repairs in one load or restore: each may find other damaged objects. */
#define FDRY_REPAIRS_MAX 64u

/* Note for a repair that an object of the load is damaged in the store. Any thread may call it. */
void fdry_damage_note(struct fdry_image *img, const struct fdry_oid *oid);
/* The same if @err, of a call for the object, says that it is damaged. Returns @err. */
int fdry_damage_noted(struct fdry_image *img, const struct fdry_oid *oid, int err) __must_check;
/* After a load failed with FDRY_E_CORRUPT: note what else of the image is damaged in the store, so
 * that one repair asks for all of it. Other errors end the search, as @wait->stop does. Returns the
 * load's error, with its message. */
int fdry_damage_find(struct fdry_image *img, const struct fdry_wait *wait) __must_check;
/* Call it after a load of @name failed with FDRY_E_CORRUPT: restore the objects in @damaged from
 * packs, other stores and the registry that FOUNDRY_REGISTRY names. @wait: as of
 * fdry_registry_source_new(). Returns 0 if any of them is whole again, so that another load may
 * succeed; FDRY_E_CALLBACK; an error of the machine, such as FDRY_E_NOMEM or FDRY_E_FULL; otherwise
 * the load's error, with the reason why the registry did not help. */
int fdry_damage_repair(struct fdry_store *store, const char *name, const struct fdry_wait *wait,
		       const struct fdry_buf *damaged) __must_check;

#endif
