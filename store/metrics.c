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

/* GAUGE("name", unit, value, "help"): one number each. */
#define GAUGES(X) \
	X("foundry_store_refs", ONE, g->st.refs, "Refs of the store.") \
	X("foundry_store_pinned_refs", ONE, g->pinned, "Refs that are never evicted.") \
	X("foundry_store_quarantined_objects", ONE, g->st.quarantined, "Objects whose damaged bytes were taken out of reach.") \
	X("foundry_store_leases", ONE, g->leases, "Sessions that load or seal now, or died doing so.") \
	X("foundry_store_limit_bytes", BYTES, g->limit, "What the store may take; 0: as much as there is.") \
	X("foundry_store_used_bytes", BYTES, g->used, "What the store takes, as the limit counts.") \
	X("foundry_store_file_bytes", BYTES, g->st.file.file_bytes, "Length of data.mdb.") \
	X("foundry_store_disk_bytes", BYTES, g->st.file.disk_bytes, "What data.mdb takes of the disk.") \
	X("foundry_store_free_bytes", BYTES, g->st.file.free_pages * g->st.file.page_size, "Free in data.mdb, to be used again.") \
	X("foundry_store_map_bytes", BYTES, g->st.file.map_bytes, "Address space of the map.") \
	X("foundry_store_readers", ONE, g->st.file.readers, "Transactions that read now, in any process.")

/* The same of each kind of object. */
#define KINDS(X) \
	X("foundry_store_objects", ONE, objects, "Objects by kind.") \
	X("foundry_store_object_bytes", BYTES, bytes, "Bytes of objects by kind, unpacked.") \
	X("foundry_store_rest_bytes", BYTES, stored, "Bytes of objects by kind, as they are at rest.")

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
	int err = fdry_store_stat(s, NULL, NULL, &g->st);

	if (!err)
		err = fdry_store_limit_get(s, &g->limit, &g->used);
	if (!err)
		err = fdry_ref_each(s, count_pin, &g->pinned);
	return err ? err : leases_count(s, &g->leases);
}

/* The labels: the store, and the kind unless it is NULL. */
static int labels_make(const struct fdry_store *s, const char *kind, struct fdry_buf *ret)
{
	int err;

	ret->len = 0;
	err = fdry_buf_printf(ret, "store=\"");
	if (!err)
		err = fdry_label_print(ret, s->path);
	return err ? err : fdry_buf_printf(ret, kind ? "\",kind=\"%s\"" : "\"", kind);
}

static int plain_print(const struct gauges *g, const char *labels, struct fdry_buf *ret)
{
#define X(text, of_unit, value, about) { { .kind = FDRY_METRIC_GAUGE, .unit = FDRY_METRIC_##of_unit, .name = text, \
	.labels = labels, .help = about }, value },
	const struct { struct fdry_metric_info info; uint64_t n; } list[] = { GAUGES(X) };
#undef X
	size_t i;
	int err = 0;

	for (i = 0; i < sizeof(list) / sizeof(list[0]) && !err; i++)
		err = fdry_metric_print(ret, &list[i].info, NULL, list[i].n);
	return err;
}

static int kind_print(const struct fdry_store *s, struct fdry_metric_info *m, int kind, uint64_t n, struct fdry_buf *ret)
{
	struct fdry_buf labels = { 0 };
	int err = labels_make(s, fdry_object_kind_name(kind), &labels);

	m->labels = (const char *)labels.data;
	if (!err)
		err = fdry_metric_print(ret, m, kind > 1 ? m : NULL, n);
	fdry_buf_release(&labels);
	return err;
}

static int kinds_print(const struct fdry_store *s, const struct gauges *g, struct fdry_buf *ret)
{
	struct fdry_metric_info m = { .kind = FDRY_METRIC_GAUGE };
	int err = 0, kind;

#define X(text, of_unit, member, about) \
	m.name = text; \
	m.unit = FDRY_METRIC_##of_unit; \
	m.help = about; \
	for (kind = 1; kind <= FDRY_OBJECT_MANIFEST && !err; kind++) \
		err = kind_print(s, &m, kind, g->st.kinds[kind].member, ret);
	KINDS(X)
#undef X
	return err;
}

int fdry_store_metrics(struct fdry_store *s, struct fdry_buf *ret)
{
	struct gauges g = { .pinned = 0 };
	struct fdry_buf labels = { 0 };
	size_t before = ret->len;
	int err = gauges_read(s, &g);

	if (!err)
		err = labels_make(s, NULL, &labels);
	if (!err)
		err = plain_print(&g, (const char *)labels.data, ret);
	if (!err)
		err = kinds_print(s, &g, ret);
	if (err)
		ret->len = before;
	fdry_buf_release(&labels);
	return err;
}
