// SPDX-License-Identifier: Apache-2.0
/*
 * metrics.c - the store as gauges, in Prometheus' text format.
 *
 * What other processes counted (launches, loads, cache hits) is theirs to show: see
 * fdry_telemetry_text(). A command would only have itself to count.
 */
#include "api/cmd/cmd.h"

#include "lib/buf.h"

int cmd_metrics(const struct cmd_args *a, struct fdry_store *s)
{
	struct fdry_buf b = { 0 };
	int err = fdry_store_metrics(s, &b);

	(void)a;
	if (!err)
		fwrite(b.data, 1, b.len, stdout);
	fdry_buf_release(&b);
	return err ? cmd_fail(err) : CMD_OK;
}
