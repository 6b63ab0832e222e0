// SPDX-License-Identifier: Apache-2.0
/*
 * repair.c - bringing damaged and missing objects of a store back from other places; see repair.h.
 *
 * A verification finds the wanted objects. Sources are asked in turn, and again as long as any
 * supplies an object, since only a missing object itself names the objects that it links to.
 * Supplied objects are checked, gathered, and written in transactions of 32 MiB. Until then, links
 * may lead nowhere, as they did before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/config.h"
#include "lib/file.h"
#include "lib/log.h"
#include "lib/opts.h"
#include "lib/threads.h"
#include "store/internal.h"
#include "store/repair.h"

#define BATCH_BYTES (32u << 20)
#define BATCH_ITEMS 256
#define ITEM_OVERHEAD 8192

struct want {
	struct fdry_oid oid;
	bool damaged; /* it is there in some form; else missing */
};

struct repair {
	struct fdry_store *s;
	struct fdry_buf sources;  /* struct fdry_source_entry each */
	struct fdry_source *last; /* of them, or NULL */
	struct fdry_repair_opts opts;
	bool dry_run;
	struct fdry_repair_report report;
	struct fdry_buf wants;    /* struct want each */
	struct fdry_idset wanted; /* all of them */
	struct fdry_idset back;   /* those that a source supplied */
	bool no_memory;           /* for all wanted objects */
	uint64_t pages;           /* faults of the store itself */
	struct fdry_item items[BATCH_ITEMS];
	struct fdry_buf data[BATCH_ITEMS];
	size_t count;
	uint64_t bytes;
	int err; /* of take(): no fault of the source */
};

/* Append to a text why the last source did not supply the object. Without memory it stays. */
static void why_append(const struct repair *r, const struct fdry_oid *oid, struct fdry_buf *text)
{
	struct fdry_buf why = { 0 };
	size_t len = text->len;
	int err = 0;

	if (r->last && r->last->ops->why)
		err = r->last->ops->why(r->last, oid, &why);
	if (!err && why.len)
		err = fdry_buf_printf(text, "; %s", (const char *)why.data);
	if (err)
		text->len = len;
	fdry_buf_release(&why);
}

static void repaired(const struct repair *r, enum fdry_repaired what, const struct fdry_oid *oid,
		     const char *ref)
{
	static const char *const texts[] = {
		[FDRY_REPAIRED_BACK] = "brought back",
		[FDRY_REPAIRED_QUARANTINED] =
			"damaged, and no source has it: put into quarantine",
		[FDRY_REPAIRED_LOST] = "missing, and no source has it",
		[FDRY_REPAIRED_IMAGE] = "cannot be loaded",
	};
	char id[FDRY_OID_HEX_SIZE];
	struct fdry_buf text = { 0 };
	int err = 0;

	if (!r->opts.repaired)
		return;
	if (what == FDRY_REPAIRED_QUARANTINED || what == FDRY_REPAIRED_LOST) {
		err = fdry_buf_printf(&text, "%s", texts[what]);
		if (!err)
			why_append(r, oid, &text);
		err = err ?: fdry_buf_put(&text, "", 1);
	}
	r->opts.repaired(r->opts.repaired_arg, (int)what, fdry_oid_hex(oid, id), ref,
			 text.len && !err ? (const char *)text.data : texts[what]);
	fdry_buf_release(&text);
}

/* --- the wanted objects --- */

static int want_add(struct repair *r, const struct fdry_oid *oid, bool damaged)
{
	struct want w = { .oid = *oid, .damaged = damaged };
	bool is_new = false;
	int err = fdry_idset_add(&r->wanted, oid, &is_new);

	return err || !is_new ? err : fdry_buf_put(&r->wants, &w, sizeof(w));
}

static void fault(void *arg, int kind, const char *id, const char *other, const char *text)
{
	bool damaged = kind == FDRY_FAULT_DAMAGED || kind == FDRY_FAULT_QUARANTINED;
	const char *want = damaged ? id : kind == FDRY_FAULT_MISSING ? other : NULL;
	struct repair *r = arg;
	struct fdry_oid oid;

	(void)text;
	r->pages += kind == FDRY_FAULT_PAGES;
	if (want && (fdry_oid_parse(want, &oid) || want_add(r, &oid, damaged)))
		r->no_memory = true;
}

/* Does the ref still name the image? If not, it was removed after it was listed, and the image may
 * be gone. */
static int ref_is_current(struct fdry_txn *t, const struct fdry_ref *ref, bool *ret)
{
	struct fdry_ref now;
	bool found = false;
	int err = fdry_ref_find(t, ref->name, &ref->identity, &found, &now);

	if (err)
		return err;
	*ret = found && fdry_oid_eq(&now.oid, &ref->oid);
	return 0;
}

static int image_want(void *arg, const struct fdry_ref *ref)
{
	bool found = true, names = false;
	struct fdry_record rec;
	struct repair *r = arg;
	struct fdry_txn t;
	int err = fdry_txn_read(r->s->env->db, &t);

	if (err)
		return err;
	err = ref_is_current(&t, ref, &names);
	if (!err && names && fdry_record_get(&t, &ref->oid, &found, &rec))
		found = true; /* damaged, which verifying has found */
	fdry_txn_abort(&t);
	if (err || !names || found)
		return err;
	return want_add(r, &ref->oid, false);
}

static int verify(struct repair *r, const char *path)
{
	struct fdry_verify_opts opts = { .sz = sizeof(opts), .threads = r->opts.threads,
					 .fault = fault, .fault_arg = r,
					 .progress = r->opts.progress,
					 .progress_arg = r->opts.progress_arg };
	struct fdry_verify_report found = { .sz = sizeof(found) };
	int err = fdry_verify_store(path, &opts, NULL, &found);

	if (err)
		return err;
	if (r->no_memory)
		return fdry_nomem();
	if (found.crashes || r->pages)
		return fdry_fail(
			FDRY_E_CORRUPT,
			"pages of the store %s itself are damaged, not only objects, and it "
			"cannot be written; export what still loads and import it into a new "
			"store",
			path);
	r->report.damaged = found.damaged;
	r->report.missing = found.missing;
	return 0;
}

/* --- writing --- */

static void batch_drop(struct repair *r)
{
	while (r->count) {
		fdry_item_release(&r->items[--r->count]);
		fdry_buf_release(&r->data[r->count]);
	}
	r->bytes = 0;
}

/* A record that cannot be read prevents its own replacement. A chunk that a seal stored meanwhile
 * has its bytes. */
static int item_write(struct fdry_txn *t, const struct fdry_item *it)
{
	struct fdry_record rec;
	bool found = false, is_new;
	int err = fdry_record_get(t, &it->oid, &found, &rec);

	if (err == -FDRY_E_CORRUPT)
		err = fdry_txn_delete(t, FDRY_TABLE_OBJECTS, fdry_oid_span(&it->oid));
	else if (!err && found && rec.kinds & 1u << FDRY_OBJECT_CHUNK &&
		 it->rec.codec != FDRY_CODEC_PLAIN)
		return 0;
	return err ? err : fdry_item_store(t, it, &is_new);
}

static int batch_write(struct repair *r)
{
	struct fdry_txn t;
	size_t i;
	int err = fdry_txn_write(r->s->env->db, r->bytes + r->count * ITEM_OVERHEAD, &t);

	if (err)
		return err;
	for (i = 0; i < r->count && !err; i++)
		err = item_write(&t, &r->items[i]);
	return fdry_txn_end(&t, err);
}

static int batch_flush(struct repair *r)
{
	size_t i;
	int err = r->count && !r->dry_run ? batch_write(r) : 0;

	if (err)
		goto out_drop;
	for (i = 0; i < r->count; i++)
		repaired(r, FDRY_REPAIRED_BACK, &r->items[i].oid, NULL);
	r->report.back += r->count;
out_drop:
	batch_drop(r);
	return err;
}

/* The kinds and links of a record of this store stay; without a record they are the source's. */
static int item_init(struct repair *r, const struct fdry_supply *s, struct fdry_item *it)
{
	struct fdry_object_info info = { .kinds = s->kinds };
	int err = fdry_store_info(r->s, &s->oid, &info);
	size_t nlinks = err ? s->nlinks : 0;

	if (err && err != -FDRY_E_NOENT && err != -FDRY_E_CORRUPT)
		return err;
	err = fdry_item_init(it, (enum fdry_object_kind)(31 - __builtin_clz(info.kinds)), s->data,
			     s->links, nlinks);
	if (err)
		return err;
	it->rec.kinds = info.kinds;
	return 0;
}

static int item_make(struct repair *r, const struct fdry_supply *s, struct fdry_item *it,
		     struct fdry_buf *packed)
{
	void *to = NULL;
	int err = item_init(r, s, it);

	if (err)
		return err;
	it->rewrite = true;
	err = fdry_buf_grow(packed, fdry_item_packed_max(it), &to);
	if (err) {
		fdry_item_release(it);
		return err;
	}
	fdry_item_pack(it, s->data, to);
	return 0;
}

/* Want the links that this store lacks. The verification did not miss them, since no object of this
 * store links to them. */
static int links_want(struct repair *r, const struct fdry_item *it)
{
	struct fdry_object_info info;
	struct fdry_oid link;
	uint32_t i;
	int err = 0;

	for (i = 0; i < it->rec.nlinks && !err; i++) {
		link = fdry_record_link(&it->rec, i);
		if (!fdry_idset_has(&r->wanted, &link) &&
		    fdry_store_info(r->s, &link, &info) == -FDRY_E_NOENT)
			err = want_add(r, &link, false);
	}
	return err;
}

static int supply_take(struct repair *r, const struct fdry_supply *s)
{
	struct fdry_item it;
	int err = 0;

	if (!s->kinds || fdry_idset_has(&r->back, &s->oid) ||
	    !fdry_idset_has(&r->wanted, &s->oid))
		return 0;
	if (r->count == BATCH_ITEMS || (r->count && r->bytes + s->data.len > BATCH_BYTES))
		err = batch_flush(r);
	if (err)
		return err;
	err = item_make(r, s, &it, &r->data[r->count]);
	if (err)
		return err;
	if (!fdry_oid_eq(&it.oid, &s->oid)) { /* other bytes */
		fdry_item_release(&it);
		fdry_buf_release(&r->data[r->count]);
		return 0;
	}
	r->items[r->count++] = it;
	r->bytes += it.rec.stored + it.links.len;
	err = fdry_idset_add(&r->back, &s->oid, NULL);
	return err ? err : links_want(r, &it);
}

static int take(void *arg, const struct fdry_supply *s)
{
	struct repair *r = arg;

	r->err = supply_take(r, s);
	return r->err;
}

/* --- sources --- */

/* The wanted objects that did not come yet. */
static int wanted_now(const struct repair *r, struct fdry_idset *ret)
{
	const struct want *w = (const void *)r->wants.data;
	size_t i;
	int err = 0;

	for (i = 0; i < r->wants.len / sizeof(*w) && !err; i++)
		if (!fdry_idset_has(&r->back, &w[i].oid))
			err = fdry_idset_add(ret, &w[i].oid, NULL);
	return err;
}

/* A source that the caller did not name is left out if it cannot be read. */
static int leave_out(struct fdry_source_entry *e, const struct fdry_saved_err *failed)
{
	if (e->named || !e->path || failed->err == -FDRY_E_NOMEM)
		return fdry_saved_err_restore(failed);
	fdry_source_list_drop(e, failed->why);
	return 0;
}

/* What the source supplied before it failed, or was stopped, is stored. */
static int ask(struct repair *r, struct fdry_source_entry *e)
{
	struct fdry_saved_err failed = { 0 };
	struct fdry_idset now = { 0 };
	int err = wanted_now(r, &now);

	if (err)
		goto out_release;
	err = now.count ? e->src->ops->supply(e->src, r->s, &now, take, r) : 0;
	if (r->err)
		goto out_release;
	fdry_saved_err_set(&failed, err);
	err = batch_flush(r);
	if (!err && failed.err)
		err = leave_out(e, &failed);
out_release:
	fdry_idset_release(&now);
	return err;
}

/* Ask one source after the other, and again as long as objects came that link to missing ones. */
static int ask_all(struct repair *r)
{
	struct fdry_source_entry *e = fdry_array(r->sources, struct fdry_source_entry);
	size_t i, wanted, n = fdry_array_count(r->sources, struct fdry_source_entry);
	int err = 0;

	do {
		wanted = r->wanted.count;
		for (i = 0; i < n && !err && r->back.count < r->wanted.count; i++)
			err = fdry_source_list_open(&e[i]) ?: e[i].out ? 0 : ask(r, &e[i]);
	} while (!err && r->wanted.count > wanted);
	return err;
}

/* Sources that the caller names are all opened before the first one is asked. */
static int fetch(struct repair *r, const char *const *named, size_t count)
{
	struct fdry_source_entry *e;
	size_t i;
	int err = fdry_source_list_init(&r->sources, r->s, named, count, r->last);

	e = fdry_array(r->sources, struct fdry_source_entry);
	for (i = 0; i < count && !err; i++)
		err = fdry_source_list_open(&e[i]);
	return err ?: ask_all(r);
}

/* --- objects that no source has --- */

/* Find the state of a damaged object: in quarantine, stored again by a seal, or removed. */
static int quarantine_result(struct fdry_txn *t, const struct fdry_oid *oid,
			     enum fdry_repaired *ret)
{
	struct fdry_record rec = { .codec = FDRY_CODEC_NONE };
	bool found = false;
	int err = fdry_record_get(t, oid, &found, &rec);

	if (err)
		return err;
	*ret = !found				? FDRY_REPAIRED_LOST :
	       rec.codec == FDRY_CODEC_NONE	? FDRY_REPAIRED_QUARANTINED :
						  FDRY_REPAIRED_BACK;
	return 0;
}

static int quarantine(struct repair *r, const struct fdry_oid *oid, enum fdry_repaired *ret)
{
	enum fdry_repaired what = FDRY_REPAIRED_LOST;
	struct fdry_txn t;
	int err = fdry_txn_write(r->s->env->db, 2 * ITEM_OVERHEAD, &t);

	if (err)
		return err;
	err = fdry_quarantine(&t, oid) ?: quarantine_result(&t, oid, &what);
	err = fdry_txn_end(&t, err);
	if (err)
		return err;
	*ret = what;
	return 0;
}

static int leave(struct repair *r, const struct want *w)
{
	enum fdry_repaired what = w->damaged ? FDRY_REPAIRED_QUARANTINED : FDRY_REPAIRED_LOST;
	int err = w->damaged && !r->dry_run ? quarantine(r, &w->oid, &what) : 0;

	if (err)
		return err;
	r->report.back += what == FDRY_REPAIRED_BACK;
	r->report.quarantined += what == FDRY_REPAIRED_QUARANTINED;
	r->report.lost += what == FDRY_REPAIRED_LOST;
	repaired(r, what, &w->oid, NULL);
	return 0;
}

static int leave_all(struct repair *r)
{
	const struct want *w = (const void *)r->wants.data;
	size_t i;
	int err = 0;

	for (i = 0; i < r->wants.len / sizeof(*w) && !err; i++)
		if (!fdry_idset_has(&r->back, &w[i].oid))
			err = leave(r, &w[i]);
	return err;
}

/* --- refs --- */

static int reached(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	bool *broken = arg;

	(void)oid;
	*broken |= !rec || rec->codec == FDRY_CODEC_NONE;
	return *broken ? FDRY_EACH_STOP : 0;
}

static int ref_check(void *arg, const struct fdry_ref *ref)
{
	struct fdry_idset seen = { 0 };
	bool broken = false, names = false;
	struct repair *r = arg;
	struct fdry_txn t;
	int err = fdry_txn_read(r->s->env->db, &t);

	if (err)
		return err;
	err = ref_is_current(&t, ref, &names);
	if (!err && names)
		err = fdry_reach(&t, &ref->oid, &seen, reached, &broken);
	fdry_txn_abort(&t);
	fdry_idset_release(&seen);
	if (err == -FDRY_E_CORRUPT)
		broken = true;
	else if (err)
		return err;
	if (!broken)
		return 0;
	r->report.broken++;
	repaired(r, FDRY_REPAIRED_IMAGE, &ref->oid, ref->name);
	return 0;
}

/* --- all of it --- */

static int repair(struct repair *r, const char *const *named, size_t count)
{
	int err = fdry_ref_each(r->s, image_want, r);

	if (err)
		return err;
	err = (r->wants.len ? fetch(r, named, count) : 0) ?: leave_all(r);
	if (err)
		return err;
	if (r->wants.len && !r->dry_run)
		fdry_verified_forget(&r->s->env->dir); /* its notes may be older than the damage */
	return fdry_ref_each(r->s, ref_check, r);
}

static void release(struct repair *r)
{
	batch_drop(r);
	fdry_source_list_release(&r->sources);
	fdry_buf_release(&r->wants);
	fdry_idset_release(&r->wanted);
	fdry_idset_release(&r->back);
	free(r);
}

static int sources_check(const char *const *sources, size_t count)
{
	size_t i;
	int err = count ? fdry_need(sources) : 0;

	for (i = 0; i < count && !err; i++)
		err = fdry_need(sources[i]);
	return err;
}

int fdry_repair_store(const char *path, const char *const *sources, size_t count,
		      struct fdry_source *last, const struct fdry_repair_opts *opts,
		      struct fdry_repair_report *report)
{
	struct fdry_buf where = { 0 };
	struct repair *r;
	int err = sources_check(sources, count) ?: fdry_report_check(report) ?:
		  fdry_store_locate(path, &where);

	if (err)
		return err;
	r = calloc(1, sizeof(*r));
	if (!r) {
		err = fdry_nomem();
		goto out_where;
	}
	r->last = last;
	err = fdry_store_flags_take(opts, &r->opts, sizeof(r->opts), FDRY_REPAIR_DRY_RUN);
	if (err)
		goto out_free;
	r->dry_run = r->opts.flags & FDRY_REPAIR_DRY_RUN;
	err = verify(r, (const char *)where.data);
	if (err)
		goto out_free;
	err = fdry_store_open((const char *)where.data, r->dry_run ? FDRY_STORE_READONLY : 0,
			      &r->s);
	if (err)
		goto out_free;
	err = repair(r, sources, count) ?: fdry_report_give(&r->report, sizeof(r->report), report);
	fdry_store_close(r->s);
out_free:
	release(r);
out_where:
	fdry_buf_release(&where);
	return err;
}

/* --- some objects alone --- */

static int objects_repair(struct repair *r, const struct fdry_oid *oids, size_t n)
{
	size_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = want_add(r, &oids[i], true);
	return err ?: fetch(r, NULL, 0);
}

/* Append why the first object that did not come is not here. */
static int why_first(const struct repair *r, struct fdry_buf *why)
{
	const struct want *w = fdry_array(r->wants, struct want);
	size_t i, n = fdry_array_count(r->wants, struct want);

	for (i = 0; i < n; i++)
		if (!fdry_idset_has(&r->back, &w[i].oid))
			return r->last && r->last->ops->why ?
				       r->last->ops->why(r->last, &w[i].oid, why) : 0;
	return 0;
}

int fdry_repair_objects(struct fdry_store *s, const struct fdry_oid *oids, size_t n,
			struct fdry_source *last, struct fdry_buf *why, size_t *back)
{
	struct repair *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return fdry_nomem();
	r->s = s;
	r->last = last;
	err = objects_repair(r, oids, n) ?: why_first(r, why);
	if (!err)
		*back = r->report.back;
	if (r->report.back)
		fdry_verified_forget(&s->env->dir);
	release(r);
	return err;
}
