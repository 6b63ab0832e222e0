// SPDX-License-Identifier: Apache-2.0
/* store_care.c - verifying and repairing a store, by its path; see foundry/store.h. The work is store/verify.c's and store/repair.c's. */
#include "foundry.h"
#include "lib/opts.h"
#include "store/repair.h"

_Static_assert((int)FDRY_FAULT_DAMAGED == (int)FDRY_FINDING_DAMAGED &&
	       (int)FDRY_FAULT_QUARANTINED == (int)FDRY_FINDING_QUARANTINED &&
	       (int)FDRY_FAULT_MISSING == (int)FDRY_FINDING_MISSING && (int)FDRY_FAULT_IMAGE == (int)FDRY_FINDING_REF &&
	       (int)FDRY_FAULT_LOOSE == (int)FDRY_FINDING_LOOSE && (int)FDRY_FAULT_PAGES == (int)FDRY_FINDING_PAGES,
	       "faults have the same numbers in the store");
_Static_assert((int)FDRY_REPAIRED_BACK == (int)FDRY_REPAIR_BACK &&
	       (int)FDRY_REPAIRED_QUARANTINED == (int)FDRY_REPAIR_QUARANTINED &&
	       (int)FDRY_REPAIRED_LOST == (int)FDRY_REPAIR_LOST && (int)FDRY_REPAIRED_IMAGE == (int)FDRY_REPAIR_REF,
	       "what a repair tells has the same numbers in the store");

static const char *hex_of(const struct fdry_oid *oid, char hex[FDRY_OID_HEX_SIZE])
{
	return oid ? fdry_oid_hex(oid, hex) : NULL;
}

static int path_check(const char *path)
{
	if (path && !*path)
		return fdry_fail(FDRY_E_INVAL, "the store's path is empty; name a directory, or none for the default");
	return 0;
}

/* --- verifying --- */

struct verifying {
	struct fdry_verify_opts o;
	uint64_t faults, broken;
};

static void finding(void *arg, const struct fdry_finding *f)
{
	char id[FDRY_OID_HEX_SIZE], other[FDRY_OID_HEX_SIZE];
	struct verifying *v = arg;

	v->faults++;
	v->broken += f->kind == FDRY_FINDING_REF;
	if (v->o.fault)
		v->o.fault(v->o.fault_arg, (int)f->kind, hex_of(f->oid, id), hex_of(f->other, other), f->text);
}

static void verified(void *arg, uint64_t done, uint64_t total)
{
	const struct verifying *v = arg;

	if (v->o.progress)
		v->o.progress(v->o.progress_arg, done, total);
}

int fdry_store_verify(const char *path, const struct fdry_verify_opts *opts, struct fdry_verify_info *info)
{
	struct verifying v = { .faults = 0 };
	struct fdry_verify_how how = { .finding = finding, .progress = verified, .arg = &v };
	struct fdry_verify_info i = { .sz = sizeof(i) };
	struct fdry_verify_report r;
	int err = path_check(path);

	if (!err)
		err = fdry_opts_take(opts, &v.o, sizeof(v.o));
	if (!err && v.o.flags)
		err = fdry_fail(FDRY_E_OPTS, "unknown flags %#x for verifying", v.o.flags);
	if (!err)
		err = fdry_report_check(info);
	if (err)
		return err;
	how.threads = v.o.threads;
	err = fdry_store_check_at(path, &how, &r);
	if (err)
		return err;
	i.faults = v.faults;
	i.objects = r.objects;
	i.bytes = r.bytes;
	i.damaged = r.damaged;
	i.quarantined = r.quarantined;
	i.missing = r.missing;
	i.refs = r.refs;
	i.broken = v.broken;
	i.crashes = r.crashes;
	return fdry_report_give(&i, sizeof(i), info);
}

/* --- repairing --- */

static void repaired(void *arg, enum fdry_repair_event event, const struct fdry_oid *oid, const char *ref, const char *text)
{
	const struct fdry_repair_opts *o = arg;
	char id[FDRY_OID_HEX_SIZE];

	if (o->repaired)
		o->repaired(o->repaired_arg, (int)event, hex_of(oid, id), ref, text);
}

static void looked(void *arg, uint64_t done, uint64_t total)
{
	const struct fdry_repair_opts *o = arg;

	if (o->progress)
		o->progress(o->progress_arg, done, total);
}

static int sources_check(const char *const *sources, size_t count)
{
	size_t i;
	int err = count ? fdry_need(sources) : 0;

	for (i = 0; i < count && !err; i++)
		err = fdry_need(sources[i]);
	return err;
}

static int repair_opts_take(const struct fdry_repair_opts *opts, struct fdry_repair_opts *ret)
{
	int err = fdry_opts_take(opts, ret, sizeof(*ret));

	if (!err && ret->flags & ~(uint32_t)FDRY_REPAIR_DRY_RUN)
		err = fdry_fail(FDRY_E_OPTS, "unknown flags %#x for repairing", ret->flags);
	return err;
}

static int repair_give(const struct fdry_repair_report *r, struct fdry_repair_info *info)
{
	struct fdry_repair_info i = { .damaged = r->found.damaged, .missing = r->found.missing, .back = r->back,
				      .quarantined = r->quarantined, .lost = r->lost, .broken = r->refs_broken };

	return fdry_report_give(&i, sizeof(i), info);
}

int fdry_store_repair(const char *path, const char *const *sources, size_t count, const struct fdry_repair_opts *opts,
		      struct fdry_repair_info *info)
{
	struct fdry_repair_how how = { .sources = sources, .nsources = count, .told = repaired, .progress = looked };
	struct fdry_repair_report r;
	struct fdry_repair_opts o;
	int err = path_check(path);

	if (!err)
		err = sources_check(sources, count);
	if (!err)
		err = repair_opts_take(opts, &o);
	if (!err)
		err = fdry_report_check(info);
	if (err)
		return err;
	how.dry_run = o.flags & FDRY_REPAIR_DRY_RUN;
	how.threads = o.threads;
	how.arg = &o;
	err = fdry_repair(path, &how, &r);
	return err ? err : repair_give(&r, info);
}
