// SPDX-License-Identifier: Apache-2.0
/*
 * metrics.c - the store's numbers as gauges in Prometheus' text format; see fdry_store_metrics().
 */
#include "lib/telemetry.h"
#include "store/internal.h"
#include "store/lease.h"

struct gauges {
	struct fdry_store_stat st;
	uint64_t pinned, leases, limit, used;
};

/* X(name, unit, value, help) */
#define GAUGES(X) \
	X("foundry_store_refs", ONE, g->st.refs, "Refs of the store.") \
	X("foundry_store_pinned_refs", ONE, g->pinned, "Refs that are never evicted.") \
	X("foundry_store_quarantined_objects", ONE, g->st.quarantined, \
	  "Objects whose damaged bytes were removed.") \
	X("foundry_store_leases", ONE, g->leases, \
	  "Sessions that load or seal now, or died while they did.") \
	X("foundry_store_limit_bytes", BYTES, g->limit, \
	  "Bytes that the store may take; 0: no limit.") \
	X("foundry_store_used_bytes", BYTES, g->used, "Bytes that count against the limit.") \
	X("foundry_store_file_bytes", BYTES, g->st.file.file_bytes, "Length of data.mdb.") \
	X("foundry_store_disk_bytes", BYTES, g->st.file.disk_bytes, \
	  "Disk space that data.mdb takes.") \
	X("foundry_store_free_bytes", BYTES, g->st.file.free_pages * g->st.file.page_size, \
	  "Free pages in data.mdb, which new objects can use.") \
	X("foundry_store_map_bytes", BYTES, g->st.file.map_bytes, \
	  "Address space that the map takes.") \
	X("foundry_store_readers", ONE, g->st.file.readers, \
	  "Transactions that read now, in any process.")

/* X(name, unit, member of struct fdry_sum, help): one number for each kind of object. */
#define KINDS(X) \
	X("foundry_store_objects", ONE, objects, "Objects by kind.") \
	X("foundry_store_object_bytes", BYTES, bytes, "Uncompressed bytes of objects by kind.") \
	X("foundry_store_rest_bytes", BYTES, stored, "Stored bytes of objects by kind.")

static int count_pin(void *arg, const struct fdry_ref *ref)
{
	*(uint64_t *)arg += ref->pinned;
	return 0;
}

static int lease_seen(void *arg, const struct fdry_oid *oid)
{
	(void)arg;
	(void)oid;
	return 0;
}

static int leases_count(struct fdry_store *s, uint64_t *ret)
{
	struct fdry_leases ls = { .held = 0 };
	int err = fdry_leases_scan(&ls, s->env, lease_seen, NULL);

	*ret = ls.held;
	fdry_leases_release(&ls);
	return err;
}

static int gauges_read(struct fdry_store *s, struct gauges *g)
{
	return fdry_store_stat(s, NULL, NULL, &g->st) ?:
	       fdry_store_limit(s, &g->limit, &g->used) ?:
	       fdry_ref_each(s, count_pin, &g->pinned) ?: leases_count(s, &g->leases);
}

/* The labels: the store, and the kind unless it is NULL. */
static int labels_make(const struct fdry_store *s, const char *kind, struct fdry_buf *ret)
{
	return fdry_buf_printf(ret, "store=\"") ?: fdry_label_print(ret, s->path) ?:
	       fdry_buf_printf(ret, kind ? "\",kind=\"%s\"" : "\"", kind);
}

static int plain_print(const struct gauges *g, const char *labels, struct fdry_buf *ret)
{
#define X(text, of_unit, value, about) \
	{ { .kind = FDRY_METRIC_GAUGE, .unit = FDRY_METRIC_##of_unit, .name = text, \
	    .labels = labels, .help = about }, value },
	const struct { struct fdry_metric_info info; uint64_t n; } list[] = { GAUGES(X) };
#undef X
	size_t i;
	int err;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		err = fdry_metric_print(ret, &list[i].info, NULL, list[i].n);
		if (err)
			return err;
	}
	return 0;
}

/* One metric, with a line for each kind of object. @member: offset of the number in struct
 * fdry_sum.
 */
static int kinds_print(const struct fdry_store *s, const struct gauges *g,
		       struct fdry_metric_info *m, size_t member, struct fdry_buf *ret)
{
	struct fdry_buf labels = { 0 };
	int kind, err = 0;

	for (kind = 1; kind <= FDRY_OBJECT_MANIFEST && !err; kind++) {
		labels.len = 0;
		err = labels_make(s, fdry_object_kind_name(kind), &labels);
		if (err)
			break;
		m->labels = (const char *)labels.data;
		err = fdry_metric_print(ret, m, kind > 1 ? m : NULL,
					*(const uint64_t *)((const char *)&g->st.kinds[kind] +
							    member));
	}
	fdry_buf_release(&labels);
	return err;
}

static int objects_print(const struct fdry_store *s, const struct gauges *g, struct fdry_buf *ret)
{
	static const struct {
		struct fdry_metric_info info;
		size_t member;
	} list[] = {
#define X(text, of_unit, name_, about) \
	{ { .kind = FDRY_METRIC_GAUGE, .unit = FDRY_METRIC_##of_unit, .name = text, \
	    .help = about }, offsetof(struct fdry_sum, name_) },
		KINDS(X)
#undef X
	};
	struct fdry_metric_info m;
	size_t i;
	int err;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		m = list[i].info;
		err = kinds_print(s, g, &m, list[i].member, ret);
		if (err)
			return err;
	}
	return 0;
}

int fdry_store_metrics(struct fdry_store *s, struct fdry_buf *ret)
{
	struct gauges g = { .pinned = 0 };
	struct fdry_buf labels = { 0 };
	size_t before = ret->len;
	int err = gauges_read(s, &g);

	if (err)
		return err;
	err = labels_make(s, NULL, &labels);
	if (err)
		goto out_release;
	err = plain_print(&g, (const char *)labels.data, ret);
	if (err)
		goto out_shrink;
	err = objects_print(s, &g, ret);
	if (err)
		goto out_shrink;
	goto out_release;
out_shrink:
	ret->len = before;
out_release:
	fdry_buf_release(&labels);
	return err;
}
