// SPDX-License-Identifier: Apache-2.0
/*
 * verify_child.c - one stage of verifying a store, in a process that may crash.
 *
 * Objects are listed in slices. A work queue checks the objects of a slice in the order in which
 * their bytes lie in the file, so that the kernel reads ahead, each in a transaction of its own: no
 * view lasts long, so that a check of a large store beside its writers does not make the file grow.
 * An object that is collected meanwhile is no fault. Faults are reported, and counted, in the order
 * of ids.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/workqueue.h"
#include "store/verify.h"

/* Threads wait for each other at the end of a slice. */
#define SLICE_BYTES (16ull << 30)
#define SLICE_OBJECTS 8192
/* After a crash, so that few objects are repeated after the next. */
#define SLICE_BYTES_SMALL (64u << 20)
#define SLICE_OBJECTS_SMALL 1024

struct child {
	struct fdry_verify *v;
	struct fdry_verify_shared *shared;
	struct fdry_store *s;
	struct fdry_txn t;
	/* of one ref */
	struct fdry_oid worst;
	uint64_t bad;
	bool gone;
	bool tables_damaged; /* one of them */
};

bool fdry_verify_next(struct fdry_oid *oid, int byte)
{
	memset(oid->b + byte + 1, 0, (size_t)(FDRY_OID_SIZE - 1 - byte));
	for (; byte >= 0; byte--)
		if (++oid->b[byte])
			return true;
	return false;
}

/* --- faults --- */

static void fault_send(struct child *c, enum fdry_fault_kind kind, const struct fdry_oid *oid,
		const struct fdry_oid *other, const char *text)
{
	struct fdry_verify_message m = { .kind = kind };

	if (oid) {
		m.oid = *oid;
		m.has_oid = 1;
	}
	if (other) {
		m.other = *other;
		m.has_other = 1;
	}
	snprintf(m.text, sizeof(m.text), "%s", text);
	while (write(c->v->pipe, &m, sizeof(m)) < 0 && errno == EINTR)
		;
}

/* Report the last error as a fault, unless it only means that the check itself failed. */
static int error_send_as(struct child *c, int err, enum fdry_fault_kind kind,
			const struct fdry_oid *oid)
{
	if (err != -FDRY_E_CORRUPT && err != -FDRY_E_VERSION && err != -FDRY_E_NOENT)
		return err;
	c->shared->report.damaged++;
	fault_send(c, kind, oid, NULL, fdry_last_error());
	return 0;
}

static int error_send(struct child *c, int err, const struct fdry_oid *oid)
{
	return error_send_as(c, err, oid ? FDRY_FAULT_DAMAGED : FDRY_FAULT_PAGES, oid);
}

/* --- tables --- */

struct tally {
	struct child *c;
	enum fdry_table table;
	uint64_t count, bytes;
};

static int tally_data(struct tally *tally, struct fdry_span key)
{
	struct fdry_record rec;
	struct fdry_oid oid;
	bool found = false;
	int err;

	if (key.len != FDRY_OID_SIZE)
		return fdry_fail(FDRY_E_CORRUPT,
				 "there is a key of %zu bytes among the objects' bytes", key.len);
	memcpy(oid.b, key.data, FDRY_OID_SIZE);
	err = fdry_record_get(&tally->c->t, &oid, &found, &rec);
	if (err == -FDRY_E_CORRUPT || found)
		return 0; /* the check of objects reports it */
	if (err)
		return err;
	tally->c->shared->report.damaged++;
	fault_send(tally->c, FDRY_FAULT_LOOSE, &oid, NULL,
	    "there are bytes of this object and no record; gc removes them");
	return 0;
}

static int tally_entry(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct tally *tally = arg;
	struct fdry_record rec;

	tally->count++;
	if (tally->table == FDRY_TABLE_OBJECTS && !fdry_record_parse(value, &rec))
		tally->bytes += rec.size;
	return tally->table == FDRY_TABLE_DATA ? tally_data(tally, key) : 0;
}

static int check_table(struct child *c, enum fdry_table table, const char *name)
{
	struct tally tally = { .c = c, .table = table };
	uint64_t count = 0;
	int err = fdry_txn_each(&c->t, table, (struct fdry_span){ 0 }, tally_entry, &tally);

	c->shared->bytes_total += tally.bytes;
	if (table == FDRY_TABLE_OBJECTS)
		c->shared->objects_total = tally.count;
	if (err)
		goto out_send;
	err = fdry_txn_count(&c->t, table, &count);
	if (err)
		goto out_send;
	if (count == tally.count)
		return 0;
	err = fdry_fail(FDRY_E_CORRUPT, "its root counts %llu entries and the table has %llu",
			(unsigned long long)count, (unsigned long long)tally.count);
out_send:
	c->tables_damaged = true;
	return error_send(c, fdry_fail_at(err, "table %s", name), NULL);
}

static int check_tables(struct child *c)
{
	static const char *const names[] = {
#define X(NAME, name) name,
		FDRY_TABLES(X)
#undef X
	};
	int i, err = fdry_txn_read(c->s->env->db, &c->t);

	if (!err)
		fdry_txn_scatter(&c->t);
	c->shared->bytes_total = 0;
	for (i = 0; i < FDRY_TABLE_COUNT && !err; i++)
		err = check_table(c, (enum fdry_table)i, names[i]);
	c->shared->tables_sound = !c->tables_damaged;
	fdry_txn_abort(&c->t);
	return err;
}

/* Check what a writer relies on: no page is used twice, and no free page is in use. Damage in a
 * table was reported before. */
static int check_pages(struct child *c)
{
	int err;

	if (!c->shared->tables_sound)
		return 0;
	err = fdry_txn_read(c->s->env->db, &c->t);
	if (err)
		return err;
	fdry_txn_scatter(&c->t);
	err = fdry_txn_check(&c->t, true, "verify");
	fdry_txn_abort(&c->t);
	return err ? error_send(c, err, NULL) : 0;
}

/* --- fingerprints in manifests --- */

struct manifests {
	struct child *c;
	struct fdry_buf ids; /* of struct fdry_oid, ascending */
	const struct fdry_verify_print *wrong; /* the last one of this manifest that is */
};

static int manifest_list(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct manifests *ms = arg;
	struct fdry_record rec;
	struct fdry_oid oid;

	/* the check of objects reports an entry that is damaged */
	if (fdry_record_parse_entry(key, value, &oid, &rec) ||
	    !(rec.kinds & 1u << FDRY_OBJECT_MANIFEST) || rec.codec == FDRY_CODEC_NONE ||
	    fdry_idset_has(&ms->c->v->damaged, &oid))
		return 0;
	return fdry_buf_put(&ms->ids, &oid, sizeof(oid));
}

static void print_add(void *arg, const struct fdry_oid *chunk, struct fdry_fingerprint value)
{
	struct manifests *ms = arg;
	const struct fdry_verify_print *print =
		fdry_verify_prints_add(ms->c->v->prints, chunk, value);

	if (print && print->wrong)
		ms->wrong = print;
}

static int wrong_send(struct manifests *ms, const struct fdry_oid *oid)
{
	char hex[FDRY_OID_HEX_SIZE], text[200];

	snprintf(text, sizeof(text),
		 "the manifest has another fingerprint than the bytes of chunk %.12s, which are "
		 "whole; seal the image anew",
		 fdry_oid_hex(&ms->wrong->oid, hex));
	fault_send(ms->c, FDRY_FAULT_DAMAGED, oid, NULL, text);
	ms->c->shared->report.damaged++;
	return fdry_idset_add(&ms->c->v->damaged, oid, NULL);
}

/* The hash of a manifest is verified before anything in it is believed. */
static int manifest_read(struct manifests *ms, const struct fdry_oid *oid, struct fdry_unpacker *u,
			 struct fdry_buf *bytes)
{
	struct child *c = ms->c;
	int err = fdry_txn_read(c->s->env->db, &c->t);

	if (err)
		return err;
	c->shared->at = *oid;
	c->shared->inside = true;
	bytes->len = 0;
	ms->wrong = NULL;
	if (!fdry_object_read(&c->t, oid, u, bytes))
		c->v->read((struct fdry_span){ bytes->data, bytes->len }, print_add, ms);
	c->shared->inside = false;
	fdry_txn_abort(&c->t);
	return ms->wrong ? wrong_send(ms, oid) : 0;
}

/* Add the fingerprints in manifests to the table. When chunks were compared, the same reports the
 * manifests that have wrong ones. Errors in the store are left to the check of objects. */
static int read_manifests(struct child *c)
{
	struct manifests ms = { .c = c };
	const struct fdry_oid *id;
	struct fdry_unpacker u = { 0 };
	struct fdry_buf bytes = { 0 };
	size_t i;
	int err = fdry_txn_read(c->s->env->db, &c->t);

	if (err)
		return err;
	(void)!fdry_txn_each(&c->t, FDRY_TABLE_OBJECTS, fdry_oid_span(&c->shared->at),
			     manifest_list, &ms);
	fdry_txn_abort(&c->t);
	id = (const void *)ms.ids.data;
	for (i = 0; i < ms.ids.len / sizeof(*id) && !err; i++)
		err = manifest_read(&ms, &id[i], &u, &bytes);
	return err; /* the process ends: nothing is freed */
}

/* --- one object, on a worker --- */

struct check {
	struct fdry_work work;
	struct fdry_saved_err saved_err;
	struct slice *slice;
	struct fdry_oid oid;
	const uint8_t *at; /* of its bytes in the map; NULL: not known */
	/* the result, beside an error */
	uint64_t bytes;
	bool gone, quarantined, compared;
	struct fdry_buf missing; /* ids of links that lead nowhere */
};

struct slice {
	struct child *c;
	struct fdry_workqueue queue;
	struct fdry_unpacker unpackers[FDRY_WORKERS_MAX];
	struct fdry_buf copies[FDRY_WORKERS_MAX];
	struct check checks[SLICE_OBJECTS];    /* ascending ids */
	struct check *by_place[SLICE_OBJECTS]; /* in the order of their bytes in the file */
	size_t count;
	uint64_t bytes;
	bool more;
};

static int check_links(struct check *k, struct fdry_txn *t, const struct fdry_record *rec)
{
	struct fdry_record other;
	struct fdry_oid link;
	bool found = false;
	uint32_t i;
	int err = 0;

	for (i = 0; i < rec->nlinks && !err; i++) {
		link = fdry_record_link(rec, i);
		if (!fdry_record_get(t, &link, &found, &other) && !found)
			err = fdry_buf_put(&k->missing, &link, sizeof(link));
	}
	return err;
}

/* Compare a chunk with the fingerprints that manifests record of it. After a difference its hash
 * decides which of the two is wrong. */
static int fingerprint_check(struct check *k, struct fdry_span bytes,
			     struct fdry_verify_print *want)
{
	struct fdry_verify_prints *prints = k->slice->c->v->prints;
	struct fdry_fingerprint found = fdry_fingerprint_of(bytes.data, bytes.len);
	int err;

	k->compared = true;
	for (; want; want = fdry_verify_prints_next(prints, &k->oid, want)) {
		if (fdry_fingerprint_eq(found, want->value))
			continue;
		err = fdry_object_verify(&k->oid, bytes);
		if (err)
			return err;
		want->wrong = true;
		__atomic_store_n(&prints->wrong, true, __ATOMIC_RELAXED);
	}
	return 0;
}

static int bytes_check(struct check *k, struct fdry_txn *t, const struct fdry_record *rec,
		       unsigned int worker)
{
	struct fdry_verify_prints *prints = k->slice->c->v->prints;
	struct fdry_buf *copy = &k->slice->copies[worker];
	struct fdry_verify_print *want = NULL;
	struct fdry_span bytes;
	int err;

	if (prints && rec->codec == FDRY_CODEC_PLAIN)
		want = fdry_verify_prints_next(prints, &k->oid, NULL);
	if (!want)
		return fdry_object_check(t, &k->oid, rec, &k->slice->unpackers[worker], copy);
	err = fdry_object_plain(t, &k->oid, rec, copy, &bytes) ?: fingerprint_check(k, bytes, want);
	if (err == -FDRY_E_CORRUPT)
		fdry_txn_damaged(t);
	return err;
}

static int check_in(struct check *k, struct fdry_txn *t, unsigned int worker)
{
	struct fdry_record rec;
	bool found = false;
	int err, links;

	err = fdry_record_get(t, &k->oid, &found, &rec);
	k->gone = !err && !found;
	if (err || k->gone)
		return err;
	k->quarantined = rec.codec == FDRY_CODEC_NONE;
	k->bytes = k->quarantined ? 0 : rec.size;
	links = check_links(k, t, &rec);
	err = k->quarantined ? 0 : bytes_check(k, t, &rec, worker);
	return err ? err : links;
}

static int check_work(struct fdry_work *work, unsigned int worker)
{
	struct check *k = (struct check *)work;
	struct fdry_txn t;
	int err = fdry_txn_read(k->slice->c->s->env->db, &t);

	if (err)
		return err;
	err = check_in(k, &t, worker);
	fdry_txn_abort(&t);
	__atomic_fetch_add(&k->slice->c->shared->bytes_done, k->bytes, __ATOMIC_RELAXED);
	return err;
}

/* --- a slice of objects --- */

static bool slice_is_full(const struct slice *sl)
{
	bool small = sl->c->shared->small;

	return sl->bytes >= (small ? SLICE_BYTES_SMALL : SLICE_BYTES) ||
	       sl->count == (small ? SLICE_OBJECTS_SMALL : SLICE_OBJECTS);
}

/* If the objects are checked alone, the list ends with the last one of the slice that crashed: what
 * follows may be what crashes. */
static int slice_entry(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct slice *sl = arg;
	struct fdry_verify_shared *sh = sl->c->shared;
	struct fdry_span bytes = { 0 };
	struct fdry_record rec;
	struct check *k;

	if (key.len != FDRY_OID_SIZE)
		return fdry_fail(FDRY_E_CORRUPT, "there is a key of %zu bytes among the objects",
				 key.len);
	if (slice_is_full(sl)) {
		sl->more = true;
		return FDRY_EACH_STOP;
	}
	k = &sl->checks[sl->count++];
	*k = (struct check){ .work = { .fn = check_work, .saved_err = &k->saved_err },
			     .slice = sl };
	memcpy(k->oid.b, key.data, FDRY_OID_SIZE);
	sl->by_place[sl->count - 1] = k;
	sl->bytes += fdry_record_parse(value, &rec) ? 0 : rec.size;
	if (sh->alone) {
		sl->more = memcmp(key.data, &sh->until, FDRY_OID_SIZE) >= 0;
		return sl->more ? FDRY_EACH_STOP : 0;
	}
	sh->until = k->oid;
	if (!fdry_txn_get(&sl->c->t, FDRY_TABLE_DATA, key, &bytes))
		k->at = bytes.data;
	return 0;
}

static int place_cmp(const void *a, const void *b)
{
	const struct check *x = *(struct check *const *)a, *y = *(struct check *const *)b;

	return (x->at > y->at) - (x->at < y->at);
}

static int slice_list(struct slice *sl)
{
	struct child *c = sl->c;
	int err = fdry_txn_read(c->s->env->db, &c->t);

	if (err)
		return err;
	sl->count = 0;
	sl->bytes = 0;
	sl->more = false;
	err = fdry_txn_each(&c->t, FDRY_TABLE_OBJECTS, fdry_oid_span(&c->shared->at), slice_entry,
			    sl);
	fdry_txn_abort(&c->t);
	if (!c->shared->alone)
		qsort(sl->by_place, sl->count, sizeof(sl->by_place[0]), place_cmp);
	return err ? error_send(c, err, NULL) : 0;
}

static void missing_send(struct child *c, const struct check *k)
{
	const struct fdry_oid *link = (const void *)k->missing.data;
	char hex[FDRY_OID_HEX_SIZE], text[200];
	size_t i;

	for (i = 0; i < k->missing.len / sizeof(*link); i++) {
		c->shared->report.missing++;
		snprintf(text, sizeof(text), "it links to object %s, which is not there",
			 fdry_oid_hex(&link[i], hex));
		/* following refs finds it again */
		fault_send(c, FDRY_FAULT_MISSING, &k->oid, &link[i], text);
	}
}

static int check_done(struct child *c, struct check *k, int err)
{
	struct fdry_verify_report *r = &c->shared->report;

	if (k->gone)
		return 0;
	r->objects++;
	r->bytes += k->bytes;
	if (k->quarantined) {
		r->quarantined++;
		fault_send(c, FDRY_FAULT_QUARANTINED, &k->oid, NULL,
		    "its bytes were damaged and are in quarantine; repair brings them back");
	}
	if (k->compared) {
		r->compared++;
		r->compared_bytes += k->bytes;
	}
	if (err)
		err = error_send(c, err, &k->oid);
	missing_send(c, k);
	return err;
}

/* Wait for each in order; if alone, also begin each in order, so that a crash shows the object. */
static int slice_check(struct slice *sl)
{
	struct fdry_verify_shared *sh = sl->c->shared;
	bool alone = sh->alone;
	struct check *k;
	size_t i;
	int err = 0, result;

	for (i = 0; i < sl->count && !alone; i++)
		fdry_workqueue_add(&sl->queue, &sl->by_place[i]->work);
	for (i = 0; i < sl->count && !err; i++) {
		k = &sl->checks[i];
		sh->at = k->oid;
		sh->inside = alone;
		if (alone)
			fdry_workqueue_add(&sl->queue, &k->work);
		result = fdry_workqueue_wait(&sl->queue, &k->work);
		sh->inside = false;
		err = check_done(sl->c, k, result);
		fdry_buf_release(&k->missing);
	}
	return err;
}

static int slice_run(struct slice *sl)
{
	static const struct fdry_workqueue_opts queue = { .name = "fdry-verify", .help_all = true };
	struct fdry_verify_shared *sh = sl->c->shared;
	int err = slice_list(sl);

	if (err || !sl->count)
		return err;
	__atomic_store_n(&sh->bytes_done, sh->report.bytes, __ATOMIC_RELAXED);
	fdry_workqueue_init(&sl->queue, &queue);
	fdry_workqueue_start(&sl->queue, fdry_worker_threads(sh->alone ? 1 : sl->c->v->threads));
	err = slice_check(sl);
	fdry_workqueue_release(&sl->queue);
	sh->alone = sh->alone && memcmp(&sh->at, &sh->until, sizeof(sh->at)) < 0;
	sl->more = sl->more && fdry_verify_next(&sh->at, FDRY_OID_SIZE - 1);
	return err;
}

static int check_objects(struct child *c)
{
	struct slice *sl = calloc(1, sizeof(*sl));
	int err = 0;

	if (!sl)
		return fdry_nomem();
	sl->c = c;
	do
		err = slice_run(sl);
	while (sl->more && !err);
	return err; /* the process ends: nothing is freed */
}

/* --- refs --- */

static int check_reached(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	struct child *c = arg;

	c->gone |= !rec;
	if (rec && !fdry_idset_has(&c->v->damaged, oid))
		return 0;
	if (!c->bad++)
		c->worst = *oid;
	return rec ? 0 : FDRY_EACH_STOP;
}

static int check_ref(void *arg, struct fdry_span key, struct fdry_span value)
{
	char hex[FDRY_OID_HEX_SIZE], text[400];
	struct fdry_idset seen = { 0 };
	struct child *c = arg;
	struct fdry_ref ref;
	int err;

	c->shared->report.refs++;
	c->bad = 0;
	c->gone = false;
	err = fdry_ref_parse_entry(key, value, &ref)
		      ?: fdry_reach(&c->t, &ref.oid, &seen, check_reached, c);
	fdry_idset_release(&seen);
	if (err)
		return error_send_as(
			c, fdry_fail_at(err, "ref '%.*s'", (int)key.len, (const char *)key.data),
			FDRY_FAULT_IMAGE, NULL);
	if (!c->bad)
		return 0;
	c->shared->report.dangling += c->gone;
	snprintf(text, sizeof(text),
		 "ref '%.*s' cannot be loaded: %llu of its objects are damaged or missing, the "
		 "first %s",
		 (int)key.len, (const char *)key.data, (unsigned long long)c->bad,
		 fdry_oid_hex(&c->worst, hex));
	fault_send(c, FDRY_FAULT_IMAGE, &ref.oid, NULL, text);
	return 0;
}

static int check_refs(struct child *c)
{
	int err = c->v->prints && c->v->prints->wrong ? read_manifests(c) : 0;

	if (err)
		return err;
	err = fdry_txn_read(c->s->env->db, &c->t);
	if (err)
		return err;
	c->shared->report.refs = c->shared->report.dangling = 0;
	err = fdry_txn_each(&c->t, FDRY_TABLE_REFS, (struct fdry_span){ 0 }, check_ref, c);
	fdry_txn_abort(&c->t);
	return err ? error_send(c, err, NULL) : 0;
}

/* --- the child --- */

void fdry_verify_child(struct fdry_verify *v, const char *path)
{
	static int (*const stages[])(struct child *) = { check_tables, read_manifests,
							 check_objects, check_pages,
							 check_refs };
	struct child c = { .v = v, .shared = v->shared };
	int err;

	/* Nothing is closed: the process ends, and damage may make closing crash. */
	err = fdry_store_open(path, FDRY_STORE_READONLY, &c.s) ?: stages[v->shared->stage](&c);
	v->shared->err = err;
	if (err)
		snprintf(v->shared->text, sizeof(v->shared->text), "%s", fdry_last_error());
	v->shared->done = true;
}
