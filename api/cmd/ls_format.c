// SPDX-License-Identifier: Apache-2.0
/* ls_format.c - lines of ls as a template describes them: text with fields such as {{.Name}}. */
#include "api/cmd/ls.h"

#include <stdlib.h>
#include <string.h>

#include "lib/printable.h"

#define FACT "Fact."

/* X(Name, expression of the text of a row r, with the id's digits in hex) */
#define FIELDS(X) \
	X(Name, r->name) \
	X(ShortID, (hex[12] = 0, hex)) \
	X(ID, hex) \
	X(GPU, r->arch) \
	X(Graphs, NUMBER(r->graphs)) \
	X(Nodes, NUMBER(r->nodes)) \
	X(Objects, NUMBER(r->all.objects)) \
	X(Unpacked, cmd_size(r->all.bytes).text) \
	X(Size, cmd_size(r->all.stored).text) \
	X(Unique, cmd_size(r->unique.stored).text) \
	X(UnpackedBytes, NUMBER(r->all.bytes)) \
	X(SizeBytes, NUMBER(r->all.stored)) \
	X(UniqueBytes, NUMBER(r->unique.stored)) \
	X(Created, cmd_date(r->times.created).text) \
	X(CreatedSince, cmd_age(r->times.created).text) \
	X(Used, cmd_date(r->times.used).text) \
	X(UsedSince, cmd_age(r->times.used).text) \
	X(Pinned, r->pinned ? "true" : "false") \
	X(Broken, r->broken ? "true" : "false")

static const char *const fields[] = {
#define X(name, text) #name,
	FIELDS(X)
#undef X
};
#define COUNT (sizeof(fields) / sizeof(fields[0]))

static struct cmd_when number(uint64_t n)
{
	struct cmd_when w;

	snprintf(w.text, sizeof(w.text), "%llu", (unsigned long long)n);
	return w;
}
#define NUMBER(n) number(n).text

static int field_put(const char *field, const struct row *r, struct fdry_buf *ret)
{
	char hex[FDRY_OID_HEX_SIZE];

	fdry_oid_hex(&r->oid, hex);
#define X(name, text) \
	if (!strcmp(field, #name)) \
		return fdry_buf_printable(ret, text);
	FIELDS(X)
#undef X
	return 0;
}

/* Read a field at @p, behind "{{": its name without blanks and the dot. Returns what follows "}}";
 * NULL if the field does not end or has no dot. */
static const char *field_read(const char *p, char *name, size_t len)
{
	const char *end = strstr(p, "}}"), *last = end;

	while (end && last > p && last[-1] == ' ')
		last--;
	p += strspn(p, " ");
	if (!end || *p != '.' || last <= p)
		return NULL;
	snprintf(name, len, "%.*s", (int)(last - p - 1), p + 1);
	return end + 2;
}

static int field_unknown(const struct cmd_args *a, const char *name)
{
	struct cmd_guess g = { .typed = name };
	char list[512] = "";
	size_t i;

	for (i = 0; i < COUNT; i++) {
		cmd_guess_offer(&g, fields[i]);
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s, ", fields[i]);
	}
	return cmd_usage(a->cmd, "there is no field '%.80s'%s; the fields are %sFact.KEY", name,
			 cmd_guess_text(&g, ""), list);
}

int ls_format_check(const struct cmd_args *a)
{
	const char *p = cmd_value(a, FORMAT);
	char name[256];
	size_t i;

	while (p && (p = strstr(p, "{{"))) {
		p = field_read(p + 2, name, sizeof(name));
		if (!p)
			return cmd_usage(a->cmd,
					 "a field of the template must have the form {{.Name}}");
		for (i = 0; i < COUNT && strcmp(fields[i], name); i++)
			;
		if (i == COUNT && strncmp(name, FACT, strlen(FACT)))
			return field_unknown(a, name);
	}
	return -1;
}

static int escape_put(const char **p, struct fdry_buf *ret)
{
	char c = (*p)[1] == 't' ? '\t' : (*p)[1] == 'n' ? '\n' : '\\';

	*p += c == '\\' ? 1 : 2;
	return fdry_buf_put(ret, &c, 1);
}

/* The next piece of the template: a field, an escape or a letter. */
static int piece_put(const char **p, const struct row *r, const struct fdry_manifest *m,
		     struct fdry_buf *ret)
{
	char name[256];
	const char *fact;

	if (**p == '\\')
		return escape_put(p, ret);
	if (strncmp(*p, "{{", 2))
		return fdry_buf_put(ret, (*p)++, 1);
	*p = field_read(*p + 2, name, sizeof(name));
	if (strncmp(name, FACT, strlen(FACT)))
		return field_put(name, r, ret);
	fact = m ? fdry_manifest_fact(m, name + strlen(FACT)) : NULL;
	return fdry_buf_printable(ret, fact ? fact : "");
}

int ls_format_row(const char *format, const struct row *r, const struct fdry_manifest *m,
		  struct fdry_buf *ret)
{
	int err = 0;

	while (*format && !err)
		err = piece_put(&format, r, m, ret);
	return err ? err : fdry_buf_put(ret, "\n", 1);
}
