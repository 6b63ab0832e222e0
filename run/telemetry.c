// SPDX-License-Identifier: Apache-2.0
/* telemetry.c - counters for callers; see foundry/telemetry.h. */
#include "lib/telemetry.h"

#include "foundry/run.h"
#include "lib/opts.h"
#include "store/store.h"

int fdry_telemetry_at(struct fdry_telemetry *ret, size_t n, size_t *count)
{
	uint64_t values[FDRY_METRICS];
	int err = fdry_need(count);
	size_t i;

	if (err)
		return err;
	if (n)
		err = fdry_need(ret);
	if (err)
		return err;
	fdry_telemetry_read(values);
	for (i = 0; i < FDRY_METRICS && i < n; i++) {
		const struct fdry_metric_info *m = &fdry_metric_infos[i];

		ret[i] = (struct fdry_telemetry){
			m->name,   m->labels, m->help,
			values[i], m->unit,   m->kind == FDRY_METRIC_GAUGE
		};
	}
	*count = FDRY_METRICS;
	return 0;
}

void fdry_telemetry_reset(void)
{
	fdry_telemetry_zero();
}

int fdry_telemetry_text(struct fdry_store *store, char **ret)
{
	struct fdry_buf b = { 0 };
	int err = fdry_need(ret);

	if (err)
		return err;
	err = fdry_telemetry_print(&b);
	if (err)
		goto out_release;
	if (store)
		err = fdry_store_metrics(store, &b);
	if (err)
		goto out_release;
	*ret = (char *)b.data;
	return 0;
out_release:
	fdry_buf_release(&b);
	return err;
}
