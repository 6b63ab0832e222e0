// SPDX-License-Identifier: Apache-2.0
/*
 * pin.c - implements fdry_image_pin(): an image is complete and pinned on this host, or not; and a
 * group of ranks gets one answer.
 *
 * A name may hold several images that fit the facts, and a load takes one that fits the device. So
 * all of them must be complete. The call holds a pin of each before it looks at them, so that
 * nothing evicts them in between. If the answer is yes, the pins stay for good. Otherwise the call
 * ends its own, and the pins of other calls stay.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "foundry.h"
#include "image/pull.h"
#include "image/select.h"
#include "lib/opts.h"
#include "lib/threads.h"
#include "registry/registry.h"

#define WAIT_MS 600000u
#define VOTE_MAGIC "FDRYPIN1"

/* What the ranks exchange. */
struct vote {
	uint8_t magic[8];
	int32_t code;
	uint32_t reserved;
	struct fdry_oid oid;
};

struct pin {
	struct fdry_store *s;
	const char *name;
	struct fdry_pin_opts opts;
	uint64_t holder;        /* of the pins of this call */
	struct fdry_buf pinned; /* struct fdry_oid each: images that this call has pinned */
	struct fdry_oid oid;    /* the newest that fits; zero: none */
	struct fdry_pin_report report;
};

/* --- one image --- */

static void selector(const struct pin *p, const struct fdry_oid *oid, char *ret, size_t len)
{
	char hex[FDRY_OID_HEX_SIZE];

	snprintf(ret, len, "%s:%s", p->name, fdry_oid_hex(oid, hex));
}

#define SELECTOR_SIZE (FDRY_REF_NAME_MAX + 2 + FDRY_OID_HEX_SIZE)

static int image_keep(struct pin *p, const struct fdry_oid *oid)
{
	char name[SELECTOR_SIZE];
	struct fdry_ref *refs = NULL;
	bool pinned;
	size_t n;
	int err;

	selector(p, oid, name, sizeof(name));
	err = fdry_ref_list(p->s, name, &refs, &n);
	if (err)
		return err;
	pinned = refs[0].pinned;
	free(refs);
	err = fdry_ref_hold(p->s, name, p->holder);
	if (err == -FDRY_E_PERM && pinned) /* by whoever may write to the store */
		return 0;
	return err ?: fdry_buf_put(&p->pinned, oid, sizeof(*oid));
}

/* @yes: the pins stay for good. If the store cannot note that, they stay as those of a holder that
 * does not end them. If not, they end by the name, since other images may have taken the places of
 * those that were pinned. */
static void images_release(struct pin *p, bool yes)
{
	const struct fdry_oid *oids = fdry_array(p->pinned, struct fdry_oid);
	size_t i, n = fdry_array_count(p->pinned, struct fdry_oid);
	char name[SELECTOR_SIZE];

	for (i = 0; i < n && yes; i++) {
		selector(p, &oids[i], name, sizeof(name));
		(void)fdry_store_pin(p->s, name); /* it may be gone */
	}
	if (n && !yes)
		(void)fdry_ref_unhold(p->s, p->name, p->holder); /* likewise */
	fdry_buf_release(&p->pinned);
}

static int image_look(struct pin *p, const struct fdry_candidate *image)
{
	struct fdry_complete c;
	char hex[FDRY_OID_HEX_SIZE];
	int err = fdry_identity_compare(&image->m, NULL, p->opts.facts, p->opts.nfacts, NULL) ?:
		  image_keep(p, &image->id) ?: fdry_store_complete(p->s, &image->id, &c);

	if (err)
		return err;
	p->report.objects += c.objects;
	p->report.bytes += c.bytes;
	p->report.missing += c.missing;
	if (!c.missing)
		return 0;
	return fdry_fail(FDRY_E_NOENT, "image %.12s lacks %llu of its %llu objects; pull it, or "
			 "see foundry-store repair", fdry_oid_hex(&image->id, hex),
			 (unsigned long long)c.missing, (unsigned long long)c.objects);
}

/* --- this host --- */

static int images_look(struct pin *p)
{
	const struct fdry_wanted wanted = { .facts = p->opts.facts, .nfacts = p->opts.nfacts };
	struct fdry_candidates all = { .name = p->name };
	const struct fdry_candidate *images;
	struct fdry_reader *reader;
	size_t i;
	int err = fdry_reader_begin(p->s, &reader);

	if (err)
		return err;
	err = fdry_candidates_read(reader, p->name, &all) ?:
	      fdry_candidates_filter(&all, &wanted, NULL);
	fdry_reader_end(reader);
	p->report.objects = p->report.bytes = p->report.missing = 0;
	images = fdry_array(all.list, struct fdry_candidate);
	for (i = 0; i < fdry_candidates_count(&all) && !err; i++)
		err = image_look(p, &images[i]);
	if (!err)
		p->oid = images[0].id;
	fdry_candidates_release(&all);
	return err;
}

/* What is missing comes from the registry that FOUNDRY_REGISTRY names. */
static int host_pin(struct pin *p)
{
	const struct fdry_wait stop = { .stop = p->opts.stop, .arg = p->opts.stop_arg };
	struct fdry_registry_fetch *fetch = NULL;
	struct fdry_saved_err missing;
	int err = images_look(p);

	if (err != -FDRY_E_NOENT && err != -FDRY_E_IDENTITY && err != -FDRY_E_CORRUPT)
		return err;
	fdry_saved_err_set(&missing, err);
	err = fdry_registry_fetch_begin(p->s, p->name, fdry_image_order, &stop, &fetch);
	if (!err && !fetch)
		return fdry_saved_err_restore(&missing);
	err = err ?: fdry_registry_fetch_end(fetch);
	if (err == -FDRY_E_CALLBACK)
		return err;
	if (err)
		return fdry_fail((enum fdry_errcode)-missing.err,
				 "%s; and it cannot be fetched: %s", missing.why,
				 fdry_last_error());
	return images_look(p);
}

/* --- all ranks --- */

static int votes_exchange(const struct pin *p, const struct vote *mine, struct vote *all)
{
	const struct fdry_pin_opts *o = &p->opts;
	const struct fdry_group g = { .name = o->group, .rank = o->rank, .ranks = o->ranks,
				      .len = sizeof(*mine),
				      .wait = { o->wait_ms, o->stop, o->stop_arg } };
	int err;

	if (!o->exchange)
		return fdry_group_meet(p->s, &g, mine, all);
	err = o->exchange(o->exchange_arg, mine, all, sizeof(*mine));
	return err ? fdry_fail(FDRY_E_CALLBACK, "the function that exchanges records between "
			       "ranks returned %d", err) : 0;
}

/* A rank that lacks its image keeps all others from using theirs. */
static int votes_count(struct pin *p, const struct vote *all)
{
	uint32_t i, first = 0;

	p->report.ranks_missing = 0;
	for (i = p->opts.ranks; i-- > 0;) {
		if (memcmp(all[i].magic, VOTE_MAGIC, sizeof(all[i].magic)))
			return fdry_fail(FDRY_E_CALLBACK, "rank %u exchanged other bytes than the "
					 "record of fdry_image_pin(); pass each rank's own", i);
		if (!all[i].code)
			continue;
		p->report.ranks_missing++;
		first = i;
	}
	p->report.first_missing = first;
	return 0;
}

/* The error of this rank comes before those of others. */
static int votes_judge(const struct pin *p, const struct vote *all,
		       const struct fdry_saved_err *own)
{
	uint32_t first = p->report.first_missing;

	if (own->err)
		return fdry_saved_err_restore(own);
	if (!p->report.ranks_missing)
		return 0;
	return fdry_fail((enum fdry_errcode)-all[first].code,
			 "%u of %u ranks lack their image, the first of them rank %u (%s)",
			 p->report.ranks_missing, p->opts.ranks, first,
			 fdry_error_meaning(all[first].code));
}

/* @own: what this rank found out, with its message. Returns the answer of the group. */
static int group_answer(struct pin *p, const struct fdry_saved_err *own)
{
	struct vote mine = { .code = own->err, .oid = p->oid }, *all;
	int err;

	memcpy(mine.magic, VOTE_MAGIC, sizeof(mine.magic));
	all = calloc(p->opts.ranks, sizeof(*all));
	if (!all)
		return fdry_nomem();
	err = votes_exchange(p, &mine, all) ?: votes_count(p, all) ?: votes_judge(p, all, own);
	free(all);
	return err;
}

/* --- the call --- */

static int holder_choose(struct pin *p)
{
	do
		if (getrandom(&p->holder, sizeof(p->holder), 0) != sizeof(p->holder))
			return fdry_fail(FDRY_E_IO, "the system has no random numbers");
	while (!p->holder);
	return 0;
}

static int opts_check(struct pin *p)
{
	struct fdry_pin_opts *o = &p->opts;

	if (o->flags)
		return fdry_fail(FDRY_E_OPTS, "fdry_image_pin() does not know the flags %#x; use a "
				 "newer library", o->flags);
	if (o->nfacts && !o->facts)
		return fdry_fail(FDRY_E_OPTS, "fdry_pin_opts.nfacts is %zu, but facts is NULL",
				 o->nfacts);
	if (!o->wait_ms)
		o->wait_ms = WAIT_MS;
	if (!o->ranks && !o->rank)
		o->ranks = 1;
	if (o->rank >= o->ranks || o->ranks > FDRY_GROUP_RANKS_MAX)
		return fdry_fail(FDRY_E_OPTS, "rank %u of %u does not exist; a group has %u ranks "
				 "at most", o->rank, o->ranks, FDRY_GROUP_RANKS_MAX);
	if (o->ranks > 1 && !o->group && !o->exchange)
		return fdry_fail(FDRY_E_OPTS, "ranks of a group need its name, or a function that "
				 "exchanges records");
	return fdry_ref_check(p->name);
}

int fdry_image_pin(struct fdry_store *store, const char *name, const struct fdry_pin_opts *opts,
		   struct fdry_pin_report *report)
{
	struct pin p = { .s = store, .name = name };
	struct fdry_pin_report *r = &p.report;
	struct fdry_saved_err own;
	int err = fdry_need(store) ?: fdry_need(name) ?: fdry_need(report) ?:
		  fdry_report_check(report) ?: fdry_opts_take(opts, &p.opts, sizeof(p.opts)) ?:
		  opts_check(&p) ?: holder_choose(&p) ?: fdry_store_busy(store);

	if (err)
		return err;
	/* A rank that fails reports that to its group, which would wait for it otherwise. */
	fdry_saved_err_set(&own, host_pin(&p));
	r->ranks_missing = own.err != 0;
	r->code = p.opts.ranks > 1 ? group_answer(&p, &own) : fdry_saved_err_restore(&own);
	if (r->code) {
		snprintf(r->why, sizeof(r->why), "%s", fdry_last_error());
	} else {
		fdry_oid_hex(&p.oid, r->id);
	}
	images_release(&p, !r->code);
	fdry_store_idle(store);
	return fdry_report_give(r, sizeof(*r), report);
}
