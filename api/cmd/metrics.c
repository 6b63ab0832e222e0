// SPDX-License-Identifier: Apache-2.0
/*
 * metrics.c - prints the store's gauges in Prometheus' text format.
 *
 * Launches, loads and cache hits are counted in the process that performs them, which prints them
 * with fdry_telemetry_text(). This command has none.
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
