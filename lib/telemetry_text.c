// SPDX-License-Identifier: Apache-2.0
/* telemetry_text.c - counters as text for scrapers; see telemetry.h. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "lib/printable.h"
#include "lib/telemetry.h"

int fdry_label_print(struct fdry_buf *b, const char *text)
{
	uint32_t c = 0;
	size_t n;
	int err;

	for (; *text; text += n ? n : 1) {
		n = fdry_utf8_next(text, strlen(text), &c);
		if (*text == '\n')
			err = fdry_buf_put(b, "\\n", 2);
		else if (*text == '"' || *text == '\\')
			err = fdry_buf_printf(b, "\\%c", *text);
		else if (n && fdry_is_printable(c))
			err = fdry_buf_put(b, text, n);
		else
			err = n > 1 ? fdry_buf_printf(b, "\\\\U%08x", c)
				    : fdry_buf_printf(b, "\\\\x%02x", (unsigned int)(uint8_t)*text);
		if (err)
			return err;
	}
	return 0;
}

int fdry_metric_print(struct fdry_buf *b, const struct fdry_metric_info *m,
		      const struct fdry_metric_info *before, uint64_t value)
{
	bool labels = *m->labels;
	int err = 0;

	if (!before || strcmp(m->name, before->name))
		err = fdry_buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name,
				      m->kind == FDRY_METRIC_COUNTER ? "counter" : "gauge");
	if (err)
		return err;
	err = fdry_buf_printf(b, "%s%s%s%s ", m->name, labels ? "{" : "", m->labels,
			      labels ? "}" : "");
	if (err)
		return err;
	if (m->unit == FDRY_METRIC_NS)
		return fdry_buf_printf(b, "%" PRIu64 ".%09" PRIu64 "\n", value / 1000000000,
				       value % 1000000000);
	return fdry_buf_printf(b, "%" PRIu64 "\n", value);
}

int fdry_telemetry_print(struct fdry_buf *b)
{
	uint64_t values[FDRY_METRICS];
	enum fdry_metric_id id;
	int err;

	fdry_telemetry_read(values);
	for (id = 0; id < FDRY_METRICS; id++) {
		err = fdry_metric_print(b, &fdry_metric_infos[id],
					id ? &fdry_metric_infos[id - 1] : NULL, values[id]);
		if (err)
			return err;
	}
	return 0;
}
