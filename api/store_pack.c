// SPDX-License-Identifier: Apache-2.0
/* store_pack.c - images out of a store and into it, over descriptors; see foundry.h. The work is store/pack.h's. */
#include <stdlib.h>

#include "foundry.h"
#include "lib/opts.h"
#include "store/pack.h"

static int report_give(const struct fdry_pack_report *r, struct fdry_pack_info *to)
{
	struct fdry_pack_info info = { .images = r->images, .objects = r->objects, .bytes = r->bytes, .packed = r->packed,
				       .objects_new = r->objects_new, .bytes_new = r->bytes_new, .stored_new = r->stored_new };

	fdry_oid_hex(&r->id, info.id);
	return fdry_report_give(&info, sizeof(info), to);
}

static int flags_check(uint32_t flags, uint32_t known)
{
	return flags & ~known ? fdry_fail(FDRY_E_OPTS, "unknown flags %#x for a pack", flags & ~known) : 0;
}

static int images_find(struct fdry_store *s, const char *const *names, size_t count, bool refs, struct fdry_pack_choice *ret)
{
	size_t i;
	int err = 0;

	for (i = 0; i < count && !err; i++) {
		err = fdry_need(names[i]);
		if (!err)
			err = fdry_pack_choose(s, names[i], refs, ret);
	}
	return err;
}

static int export_names(struct fdry_store *s, const char *const *names, size_t count, int fd,
			const struct fdry_export_opts *o, struct fdry_pack_report *ret)
{
	struct fdry_pack_opts opts = { .plain = o->flags & FDRY_EXPORT_PLAIN, .threads = o->threads,
				       .progress = o->progress, .progress_arg = o->progress_arg };
	struct fdry_pack_choice choice = { .refs = { 0 } };
	const struct fdry_pack_image *images = NULL;
	size_t n = 0;
	int err = images_find(s, names, count, !(o->flags & FDRY_EXPORT_NO_REFS), &choice);

	if (!err)
		err = fdry_pack_chosen(&choice, &images, &n);
	if (!err)
		err = fdry_pack_export(s, images, n, &opts, fdry_pack_write_fd, &fd, ret);
	fdry_pack_choice_release(&choice);
	return err;
}

int fdry_store_export(struct fdry_store *store, const char *const *names, size_t count, int fd,
		      const struct fdry_export_opts *opts, struct fdry_pack_info *info)
{
	struct fdry_export_opts o;
	struct fdry_pack_report r;
	int err = fdry_need(store);

	if (!err)
		err = fdry_need(names);
	if (!err)
		err = fdry_opts_take(opts, &o, sizeof(o));
	if (!err)
		err = flags_check(o.flags, FDRY_EXPORT_PLAIN | FDRY_EXPORT_NO_REFS);
	if (!err)
		err = fdry_report_check(info);
	if (!err)
		err = fdry_store_busy(store);
	if (err)
		return err;
	err = export_names(store, names, count, fd, &o, &r);
	fdry_store_idle(store);
	return err ? err : report_give(&r, info);
}

static void image_told(void *arg, const struct fdry_pack_image *image, const struct fdry_oid *was)
{
	char hex[FDRY_OID_HEX_SIZE], was_hex[FDRY_OID_HEX_SIZE];
	const struct fdry_import_opts *o = arg;

	if (o->image)
		o->image(o->image_arg, fdry_oid_hex(&image->oid, hex), image->name, was ? fdry_oid_hex(was, was_hex) : NULL);
}

int fdry_store_import(struct fdry_store *store, int fd, const struct fdry_import_opts *opts, struct fdry_pack_info *info)
{
	struct fdry_pack_opts po = { .plain = false };
	struct fdry_import_opts o;
	struct fdry_pack_report r;
	int err = fdry_need(store);

	if (!err)
		err = fdry_opts_take(opts, &o, sizeof(o));
	if (!err)
		err = flags_check(o.flags, FDRY_IMPORT_DRY_RUN | FDRY_IMPORT_NO_REFS);
	if (!err)
		err = fdry_report_check(info);
	if (!err)
		err = fdry_store_busy(store);
	if (err)
		return err;
	po.dry_run = o.flags & FDRY_IMPORT_DRY_RUN;
	po.nameless = o.flags & FDRY_IMPORT_NO_REFS;
	po.skip = fdry_pack_skip_fd;
	po.threads = o.threads;
	po.progress = o.progress;
	po.progress_arg = o.progress_arg;
	err = fdry_pack_import(store, &po, fdry_pack_read_fd, &fd, image_told, &o, &r);
	fdry_store_idle(store);
	return err ? err : report_give(&r, info);
}
