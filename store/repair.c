// SPDX-License-Identifier: Apache-2.0
/*
 * repair.c - a store made whole again from other places; see repair.h.
 *
 * Verifying tells what is wanted. Sources are asked in turn, and again as long as something
 * comes, since an object that was missing says only then what it links to. What comes is
 * checked, collects, and is written in transactions of middling size; links may lead nowhere
 * for that time, as they did before.
 */
#include <stdlib.h>

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
	const struct fdry_repair_how *opts;
	struct fdry_repair_report report;
	struct fdry_buf wants;    /* struct want each */
	struct fdry_idset wanted; /* all of them */
	struct fdry_idset back;   /* those that came */
	int failed;               /* out of memory while findings came */
	uint64_t pages;           /* findings about the store itself */
	struct fdry_item items[BATCH_ITEMS];
	struct fdry_buf data[BATCH_ITEMS];
	size_t count;
	uint64_t bytes;
};

static void tell(const struct repair *r, enum fdry_repair_event event, const struct fdry_oid *oid, const char *ref)
{
	static const char *const texts[] = {
#define X(NAME, text) text,
		FDRY_REPAIR_EVENTS(X)
#undef X
	};

	if (r->opts->told)
		r->opts->told(r->opts->arg, event, oid, ref, texts[event]);
}

/* --- what is wanted --- */

static int want_add(struct repair *r, const struct fdry_oid *oid, bool damaged)
{
	struct want w = { .oid = *oid, .damaged = damaged };
	bool is_new = false;
	int err = fdry_idset_add(&r->wanted, oid, &is_new);

	return err || !is_new ? err : fdry_buf_put(&r->wants, &w, sizeof(w));
}

static void finding(void *arg, const struct fdry_finding *f)
{
	struct repair *r = arg;

	if (f->kind == FDRY_FINDING_DAMAGED || f->kind == FDRY_FINDING_QUARANTINED)
		r->failed |= want_add(r, f->oid, true);
	else if (f->kind == FDRY_FINDING_MISSING)
		r->failed |= want_add(r, f->other, false);
	else if (f->kind == FDRY_FINDING_PAGES)
		r->pages++;
}

static void verifying(void *arg, uint64_t done, uint64_t total)
{
	const struct repair *r = arg;

	if (r->opts->progress)
		r->opts->progress(r->opts->arg, done, total);
}

/* Does the ref still name that image? Else it was removed since it was listed, and what it named may be gone. */
static int still_names(struct fdry_txn *t, const struct fdry_ref *ref, bool *ret)
{
	struct fdry_ref now;
	bool found = false;
	int err = fdry_ref_find(t, ref->name, &ref->identity, &found, &now);

	if (!err)
		*ret = found && fdry_oid_eq(&now.oid, &ref->oid);
	return err;
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
	err = still_names(&t, ref, &names);
	if (!err && names && fdry_record_get(&t, &ref->oid, &found, &rec))
		found = true; /* damaged, which verifying has found */
	fdry_txn_abort(&t);
	return !err && names && !found ? want_add(r, &ref->oid, false) : err;
}

static int look(struct repair *r, const char *path)
{
	struct fdry_verify_how vo = { .threads = r->opts->threads, .finding = finding, .progress = verifying, .arg = r };
	int err = fdry_store_check_at(path, &vo, &r->report.found);

	if (!err && r->failed)
		err = fdry_nomem();
	if (!err && (r->report.found.crashes || r->pages))
		err = fdry_fail(FDRY_E_CORRUPT, "pages of the store %s itself are damaged, not only objects, and it cannot be written; "
				"export what still loads and import it into a new store", path ? path : "");
	return err;
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

/* A record that cannot be read is in the way of its own replacement. Whoever put a chunk meanwhile has brought its bytes. */
static int item_write(struct fdry_txn *t, const struct fdry_item *it)
{
	struct fdry_record rec;
	bool found = false, is_new;
	int err = fdry_record_get(t, &it->oid, &found, &rec);

	if (err == -FDRY_E_CORRUPT)
		err = fdry_txn_delete(t, FDRY_TABLE_OBJECTS, fdry_oid_span(&it->oid));
	else if (!err && found && rec.kinds & 1u << FDRY_OBJECT_CHUNK && it->rec.codec != FDRY_CODEC_PLAIN)
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
	if (!err)
		return fdry_txn_commit(&t);
	fdry_txn_abort(&t);
	return err;
}

static int batch_flush(struct repair *r)
{
	size_t i;
	int err = r->count && !r->opts->dry_run ? batch_write(r) : 0;

	for (i = 0; i < r->count && !err; i++)
		tell(r, FDRY_REPAIR_BACK, &r->items[i].oid, NULL);
	if (!err)
		r->report.back += r->count;
	batch_drop(r);
	return err;
}

/* Its kinds, and links to add: the source's, unless there is a record here, which stays. */
static int item_init(struct repair *r, const struct fdry_supply *s, struct fdry_item *it)
{
	struct fdry_object_info info = { .kinds = s->kinds };
	int err = fdry_store_info(r->s, &s->oid, &info);
	size_t nlinks = err ? s->nlinks : 0;

	if (err && err != -FDRY_E_NOENT && err != -FDRY_E_CORRUPT)
		return err;
	err = fdry_item_init(it, (enum fdry_object_kind)(31 - __builtin_clz(info.kinds)), s->data, s->links, nlinks);
	if (!err)
		it->rec.kinds = info.kinds;
	return err;
}

static int item_make(struct repair *r, const struct fdry_supply *s, struct fdry_item *it, struct fdry_buf *packed)
{
	void *to = NULL;
	int err = item_init(r, s, it);

	if (err)
		return err;
	it->rewrite = true;
	err = fdry_buf_grow(packed, fdry_item_packed_max(it), &to);
	if (!err)
		fdry_item_pack(it, s->data, to);
	else
		fdry_item_release(it);
	return err;
}

/* What is not here, and was not missed because nothing here leads to it. */
static int links_want(struct repair *r, const struct fdry_item *it)
{
	struct fdry_object_info info;
	struct fdry_oid link;
	uint32_t i;
	int err = 0;

	for (i = 0; i < it->rec.nlinks && !err; i++) {
		link = fdry_record_link(&it->rec, i);
		if (!fdry_idset_has(&r->wanted, &link) && fdry_store_info(r->s, &link, &info) == -FDRY_E_NOENT)
			err = want_add(r, &link, false);
	}
	return err;
}

static int take(void *arg, const struct fdry_supply *s)
{
	struct repair *r = arg;
	struct fdry_item it;
	int err = 0;

	if (!s->kinds || fdry_idset_has(&r->back, &s->oid) || !fdry_idset_has(&r->wanted, &s->oid))
		return 0;
	if (r->count == BATCH_ITEMS || (r->count && r->bytes + s->data.len > BATCH_BYTES))
		err = batch_flush(r);
	if (!err)
		err = item_make(r, s, &it, &r->data[r->count]);
	if (err)
		return err;
	if (!fdry_oid_eq(&it.oid, &s->oid)) { /* what it is worth, its hash tells */
		fdry_item_release(&it);
		fdry_buf_release(&r->data[r->count]);
		return 0;
	}
	r->items[r->count++] = it;
	r->bytes += it.rec.stored + it.links.len;
	err = fdry_idset_add(&r->back, &s->oid, NULL);
	return err ? err : links_want(r, &it);
}

/* --- asking --- */

/* Those that have not come. */
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

static int ask(struct repair *r, struct fdry_source *src)
{
	struct fdry_idset now = { 0 };
	int err = wanted_now(r, &now);

	if (!err && now.count)
		err = src->ops->supply(src, &now, take, r);
	if (!err)
		err = batch_flush(r);
	fdry_idset_release(&now);
	return err;
}

/* One source after the other, until none has anything more. */
static int ask_all(struct repair *r, struct fdry_source **sources)
{
	size_t i, before;
	int err = 0;

	do {
		before = r->back.count;
		for (i = 0; i < r->opts->nsources && !err; i++)
			err = ask(r, sources[i]);
	} while (!err && r->back.count > before);
	return err;
}

static int fetch(struct repair *r)
{
	struct fdry_source **sources = calloc(r->opts->nsources + 1, sizeof(struct fdry_source *));
	size_t i, n = 0;
	int err = 0;

	if (!sources)
		return fdry_nomem();
	for (; n < r->opts->nsources && !err; n += !err)
		err = fdry_source_open(r->opts->sources[n], &sources[n]);
	if (!err)
		err = ask_all(r, sources);
	for (i = 0; i < n; i++)
		fdry_source_close(sources[i]);
	free(sources);
	return err;
}

/* --- what did not come --- */

/* What became of it: it was put away, now or before, or somebody put it again, or it is gone. */
static int event_of(struct fdry_txn *t, const struct fdry_oid *oid, enum fdry_repair_event *ret)
{
	struct fdry_record rec = { .codec = FDRY_CODEC_NONE };
	bool found = false;
	int err = fdry_record_get(t, oid, &found, &rec);

	if (err)
		return err;
	*ret = !found ? FDRY_REPAIR_LOST : rec.codec == FDRY_CODEC_NONE ? FDRY_REPAIR_QUARANTINED : FDRY_REPAIR_BACK;
	return 0;
}

static int put_away(struct repair *r, const struct fdry_oid *oid, enum fdry_repair_event *ret)
{
	enum fdry_repair_event event;
	struct fdry_txn t;
	int err = fdry_txn_write(r->s->env->db, 2 * ITEM_OVERHEAD, &t);

	if (err)
		return err;
	err = fdry_quarantine(&t, oid);
	if (!err)
		err = event_of(&t, oid, &event);
	if (err)
		fdry_txn_abort(&t);
	else
		err = fdry_txn_commit(&t);
	if (!err)
		*ret = event;
	return err;
}

static int leave(struct repair *r, const struct want *w)
{
	enum fdry_repair_event event = w->damaged ? FDRY_REPAIR_QUARANTINED : FDRY_REPAIR_LOST;
	int err = w->damaged && !r->opts->dry_run ? put_away(r, &w->oid, &event) : 0;

	if (err)
		return err;
	r->report.back += event == FDRY_REPAIR_BACK;
	r->report.quarantined += event == FDRY_REPAIR_QUARANTINED;
	r->report.lost += event == FDRY_REPAIR_LOST;
	tell(r, event, &w->oid, NULL);
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
	err = still_names(&t, ref, &names);
	if (!err && names)
		err = fdry_reach(&t, &ref->oid, &seen, reached, &broken);
	fdry_txn_abort(&t);
	fdry_idset_release(&seen);
	if (err && err != -FDRY_E_CORRUPT)
		return err;
	if (err || broken) {
		r->report.refs_broken++;
		tell(r, FDRY_REPAIR_REF, &ref->oid, ref->name);
	}
	return 0;
}

/* --- all of it --- */

static int repair(struct repair *r)
{
	int err = fdry_ref_each(r->s, image_want, r);

	if (!err && r->wants.len)
		err = fetch(r);
	if (!err)
		err = leave_all(r);
	if (!err && r->wants.len && !r->opts->dry_run)
		fdry_verified_forget(&r->s->env->dir); /* it may vouch for what was damaged after it was seen */
	return err ? err : fdry_ref_each(r->s, ref_check, r);
}

int fdry_repair(const char *path, const struct fdry_repair_how *opts, struct fdry_repair_report *ret)
{
	struct repair *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return fdry_nomem();
	r->opts = opts;
	err = look(r, path);
	if (!err)
		err = fdry_store_open(path, opts->dry_run ? FDRY_STORE_READONLY : 0, &r->s);
	if (!err) {
		err = repair(r);
		fdry_store_close(r->s);
	}
	if (!err)
		*ret = r->report;
	batch_drop(r);
	fdry_buf_release(&r->wants);
	fdry_idset_release(&r->wanted);
	fdry_idset_release(&r->back);
	free(r);
	return err;
}
