// SPDX-License-Identifier: Apache-2.0
/*
 * undump.c - stores the objects that a dump holds, each checked against its id.
 *
 * Each line is checked before it is used; an object is stored at its "end". One session protects
 * all objects from gc until the refs are set. An error leaves complete objects behind, which gc
 * removes. A dry run asks a plan (plan.h) instead of storing.
 */
#include "api/cmd/cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/cmd/plan.h"
#include "api/cmd/text.h"
#include "lib/fd.h"
#include "graph/graph.h"

struct undump {
	const struct cmd_args *a;
	struct fdry_store *s;
	struct fdry_writer *writer;
	struct plan plan;
	FILE *f;
	char *line;
	size_t size;
	uint64_t number;       /* of the line */
	uint64_t objects, images, refs;
	struct fdry_buf fresh; /* dry run: struct fdry_oid, objects that the store lacks */
	struct fdry_buf named; /* dry run: struct named, the refs that would be set */
	/* The current object. */
	struct fdry_oid oid;
	bool any;              /* its id is new: nothing to compare */
	uint32_t kinds;
	struct fdry_buf links; /* struct fdry_oid */
	struct fdry_buf bytes;
	struct json j;
};

#define bad(u, fmt, ...) \
	fdry_fail(FDRY_E_INVAL, "line %llu: " fmt, (unsigned long long)(u)->number, ##__VA_ARGS__)

/* --- lines --- */

/* Returns false at the end. Removes the newline. */
static bool line_read(struct undump *u)
{
	ssize_t n = getline(&u->line, &u->size, u->f);

	if (n < 0)
		return false;
	u->number++;
	if (n && u->line[n - 1] == '\n')
		u->line[n - 1] = '\0';
	return true;
}

/* Returns the rest of the line after @word and a space, NULL if the line begins otherwise. */
static char *behind(struct undump *u, const char *word)
{
	size_t n = strlen(word);

	return !strncmp(u->line, word, n) && u->line[n] == ' ' ? u->line + n + 1 : NULL;
}

static int kinds_parse(struct undump *u, char *names)
{
	char *save = NULL, *name;
	int kind;

	u->kinds = 0;
	for (name = strtok_r(names, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		for (kind = 1; kind <= FDRY_OBJECT_MANIFEST; kind++)
			if (!strcmp(name, fdry_object_kind_name((enum fdry_object_kind)kind)))
				break;
		if (kind > FDRY_OBJECT_MANIFEST)
			return bad(u, "'%.40s' is not a kind of object", name);
		u->kinds |= 1u << kind;
	}
	return u->kinds ? 0 : bad(u, "the object has no kind");
}

static int object_begin(struct undump *u, char *rest)
{
	char *kinds = strchr(rest, ' ');

	u->links.len = u->bytes.len = 0;
	if (!kinds)
		return bad(u, "an id or -, then kinds, must follow 'object'");
	*kinds++ = '\0';
	u->any = !strcmp(rest, "-");
	if (!u->any && fdry_oid_parse(rest, &u->oid))
		return bad(u, "'%.80s' is not an id", rest);
	return kinds_parse(u, kinds);
}

static int link_line(struct undump *u, const char *rest)
{
	struct fdry_oid oid;

	if (fdry_oid_parse(rest, &oid))
		return bad(u, "'%.80s' is not an id", rest);
	if (u->links.len / sizeof(oid) >= FDRY_OBJECT_LINKS_MAX)
		return bad(u, "an object has at most %u links", FDRY_OBJECT_LINKS_MAX);
	return fdry_buf_put(&u->links, &oid, sizeof(oid));
}

/* --- bytes --- */

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int digits_line(struct undump *u)
{
	const char *p;
	uint8_t b;
	int err = 0;

	for (p = u->line; *p && !err; p += 2) {
		if (digit(p[0]) < 0 || digit(p[1]) < 0)
			return bad(u, "this line must hold pairs of digits 0-9a-f");
		b = (uint8_t)(digit(p[0]) << 4 | digit(p[1]));
		err = fdry_buf_put(&u->bytes, &b, 1);
	}
	return err;
}

static int bytes_read(struct undump *u, const char *count)
{
	uint64_t want = 0;
	int err = cmd_parse_number(count, "a number of bytes", &want);

	if (err || want > FDRY_OBJECT_SIZE_MAX)
		return bad(u, "'%.40s' is not a number of bytes up to %u", count,
			   FDRY_OBJECT_SIZE_MAX);
	while (!err && u->bytes.len < want && line_read(u))
		err = digits_line(u);
	if (err)
		return err;
	if (u->bytes.len != want)
		return bad(u, "there are %zu bytes; there should be %llu", u->bytes.len,
			   (unsigned long long)want);
	return 0;
}

static int text_lines_read(struct undump *u, struct fdry_buf *text)
{
	int err;

	while (line_read(u) && strcmp(u->line, "end")) {
		err = fdry_buf_printf(text, "%s\n", u->line);
		if (err)
			return err;
		if (text->len > FDRY_OBJECT_SIZE_MAX)
			return bad(u, "a graph's text has at most %u bytes", FDRY_OBJECT_SIZE_MAX);
	}
	return feof(u->f) ? bad(u, "the text ends within an object") : 0;
}

static int text_read(struct undump *u, struct fdry_buf *text)
{
	uint64_t first = u->number;
	int err = text_lines_read(u, text);

	fdry_buf_release(&u->bytes);
	err = err ?: fdry_graph_from_text((struct fdry_span){ text->data, text->len }, &u->bytes);
	return err ? fdry_fail_at(err, "graph after line %llu", (unsigned long long)first) : 0;
}

/* --- storing --- */

static int object_put(struct undump *u)
{
	const struct fdry_oid *links = (const void *)u->links.data;
	size_t n = u->links.len / sizeof(*links);
	struct fdry_oid oid;
	int kind, err = 0;

	for (kind = 1; kind <= FDRY_OBJECT_MANIFEST && !err; kind++)
		if (u->kinds & 1u << kind)
			err = fdry_writer_add_object(u->writer, (enum fdry_object_kind)kind,
						     u->bytes.data, u->bytes.len, links, n, &oid);
	return err;
}

/* Report what object_put() would change. */
static int object_plan(struct undump *u, const struct fdry_oid *oid)
{
	struct plan_object o = { .oid = *oid,
				 .kinds = u->kinds,
				 .links = (const void *)u->links.data,
				 .nlinks = u->links.len / sizeof(*o.links) };
	char hex[FDRY_OID_HEX_SIZE];
	bool fresh = false;
	int err = plan_object(&u->plan, &o, &fresh);

	if (!err && fresh)
		err = fdry_buf_put(&u->fresh, oid, sizeof(*oid));
	if (err)
		return fdry_fail_at(err, "line %llu", (unsigned long long)u->number);
	if (fresh || u->any)
		cmd_say(u->a, fresh ? "would store %s\n" : "%s exists\n", fdry_oid_hex(oid, hex));
	return 0;
}

static int object_end(struct undump *u)
{
	char hex[FDRY_OID_HEX_SIZE], want[FDRY_OID_HEX_SIZE];
	struct fdry_oid oid;
	int err = fdry_oid_of(u->bytes.data, u->bytes.len, &oid);

	if (err)
		return err;
	if (!u->any && !fdry_oid_eq(&oid, &u->oid))
		return bad(u,
			   "the object has the id %s, not %s; if it was changed on purpose, "
			   "write - in place of the id",
			   fdry_oid_hex(&oid, hex), fdry_oid_hex(&u->oid, want));
	err = u->writer ? object_put(u) : object_plan(u, &oid);
	if (err)
		return err;
	u->objects++;
	u->images += u->kinds >> FDRY_OBJECT_MANIFEST & 1;
	if (u->any && cmd_has(u->a, JSON))
		json_oid(&u->j, NULL, &oid);
	else if (u->any && u->writer)
		cmd_say(u->a, "stored %s\n", fdry_oid_hex(&oid, hex));
	return 0;
}

/* Read lines up to the object's end. */
static int object_read(struct undump *u)
{
	struct fdry_buf text = { 0 };
	bool ended = false;
	char *rest;
	int err = 0;

	while (!err && !ended && line_read(u)) {
		ended = !strcmp(u->line, "end");
		if (ended)
			break;
		if ((rest = behind(u, "link"))) {
			err = link_line(u, rest);
		} else if ((rest = behind(u, "bytes"))) {
			err = bytes_read(u, rest);
		} else if (!strcmp(u->line, "text")) {
			err = text_read(u, &text);
			ended = true;
		} else {
			err = bad(u, "'%.40s' is not part of an object", u->line);
		}
	}
	fdry_buf_release(&text);
	if (!err && !ended)
		err = bad(u, "the text ends within an object");
	return err ? err : object_end(u);
}

/* --- refs --- */

static int ref_set(struct undump *u, const struct fdry_ref *ref)
{
	char one[FDRY_REF_NAME_MAX + 20], hex[FDRY_OID_HEX_SIZE];
	int err = fdry_writer_flush(u->writer)
			  ?: fdry_ref_set(u->s, ref->name, &ref->oid, &ref->identity);

	if (err || !ref->pinned)
		return err;
	snprintf(one, sizeof(one), "%s:%.16s", ref->name, fdry_oid_hex(&ref->oid, hex));
	return fdry_store_pin(u->s, one);
}

struct named {
	struct fdry_ref ref;
	bool had; /* another image, @was */
	struct fdry_oid was;
};

static int ref_plan(struct undump *u, const struct fdry_ref *ref)
{
	char hex[FDRY_OID_HEX_SIZE], was[FDRY_OID_HEX_SIZE];
	struct named n = { .ref = *ref };
	int err = plan_ref(&u->plan, ref, &n.had, &n.was);

	if (err)
		return err;
	err = fdry_buf_put(&u->named, &n, sizeof(n));
	if (err)
		return err;
	cmd_say(u->a, "would set %s to %s%s%s\n", ref->name, fdry_oid_hex(&ref->oid, hex),
		n.had ? ", was " : "", n.had ? fdry_oid_hex(&n.was, was) : "");
	return 0;
}

static int ref_store(struct undump *u, const struct fdry_ref *ref)
{
	int err = u->writer ? ref_set(u, ref) : ref_plan(u, ref);

	u->refs += !err;
	return err ? fdry_fail_at(err, "line %llu", (unsigned long long)u->number) : 0;
}

/* @rest: "NAME ID", optionally followed by "identity ID" and "pinned". */
static int ref_line(struct undump *u, char *rest)
{
	char *save = NULL, *name = strtok_r(rest, " ", &save), *id = strtok_r(NULL, " ", &save),
	     *word;
	struct fdry_ref ref = { .pinned = false };

	if (!name || !id || fdry_ref_check(name) || fdry_oid_parse(id, &ref.oid))
		return bad(u, "a ref's name and an id must follow 'ref'");
	memcpy(ref.name, name, strlen(name) + 1);
	word = strtok_r(NULL, " ", &save);
	if (word && !strcmp(word, "identity")) {
		id = strtok_r(NULL, " ", &save);
		if (!id || fdry_oid_parse(id, &ref.identity))
			return bad(u, "an id must follow 'identity'");
		word = strtok_r(NULL, " ", &save);
	}
	if (word && !strcmp(word, "pinned")) {
		ref.pinned = true;
		word = strtok_r(NULL, " ", &save);
	}
	if (word)
		return bad(u, "'%.40s' is not part of a ref's line", word);
	return ref_store(u, &ref);
}

static int entry_read(struct undump *u)
{
	char *rest = behind(u, "ref");
	int err;

	if (rest)
		return ref_line(u, rest);
	rest = behind(u, "object");
	if (!rest)
		return bad(u, "an object or a ref should begin here, not '%.40s'", u->line);
	err = object_begin(u, rest);
	return err ? err : object_read(u);
}

static int head_read(struct undump *u)
{
	if (line_read(u) && !strcmp(u->line, CMD_TEXT_FIRST))
		return 0;
	return fdry_fail(FDRY_E_INVAL, "this is not a dump of this version: its first line is not "
				       "'" CMD_TEXT_FIRST "'");
}

/* The lines behind the first one. */
static int all_read(struct undump *u)
{
	int err = 0;

	while (!err && line_read(u))
		if (*u->line && *u->line != '#')
			err = entry_read(u);
	if (err)
		return err;
	if (ferror(u->f))
		return fdry_fail(FDRY_E_IO, "cannot read: %s", strerror(errno));
	return 0;
}

static int undump_from(struct undump *u)
{
	int err = fdry_writer_begin(u->s, &u->writer);

	if (err)
		return err;
	err = all_read(u) ?: fdry_writer_flush(u->writer);
	fdry_writer_abort(u->writer);
	return err;
}

static int plan_from(struct undump *u)
{
	int err = u->s ? fdry_reader_begin(u->s, &u->plan.reader) : 0;

	if (err)
		return err;
	u->plan.s = u->s;
	err = all_read(u);
	fdry_reader_end(u->plan.reader);
	plan_release(&u->plan);
	return err;
}

static void plan_json(struct undump *u)
{
	const struct named *n = (const void *)u->named.data;
	const struct fdry_oid *oid = (const void *)u->fresh.data;
	size_t i;

	json_open(&u->j, "stored", '[');
	for (i = 0; i < u->fresh.len / sizeof(*oid); i++)
		json_oid(&u->j, NULL, &oid[i]);
	json_close(&u->j, ']');
	json_open(&u->j, "set", '[');
	for (i = 0; i < u->named.len / sizeof(*n); i++) {
		json_open(&u->j, NULL, '{');
		json_string(&u->j, "ref", n[i].ref.name);
		json_oid(&u->j, "id", &n[i].ref.oid);
		if (n[i].had)
			json_oid(&u->j, "was", &n[i].was);
		json_close(&u->j, '}');
	}
	json_close(&u->j, ']');
}

static void report(struct undump *u)
{
	uint64_t fresh = u->fresh.len / sizeof(struct fdry_oid);

	if (cmd_has(u->a, JSON)) {
		json_close(&u->j, ']');
		json_bool(&u->j, "dry_run", cmd_has(u->a, DRY_RUN));
		if (cmd_has(u->a, DRY_RUN))
			plan_json(u);
		json_number(&u->j, "objects", u->objects);
		json_number(&u->j, "images", u->images);
		json_number(&u->j, "refs", u->refs);
		json_close(&u->j, '}');
	} else if (cmd_has(u->a, DRY_RUN)) {
		cmd_say(u->a, "would store %llu of %llu object%s, and set %llu ref%s\n",
			(unsigned long long)fresh, (unsigned long long)u->objects,
			cmd_plural(u->objects), (unsigned long long)u->refs, cmd_plural(u->refs));
	} else {
		cmd_say(u->a, "%llu object%s, %llu of them images; %llu ref%s\n",
			(unsigned long long)u->objects, cmd_plural(u->objects),
			(unsigned long long)u->images, (unsigned long long)u->refs,
			cmd_plural(u->refs));
	}
}

static void undump_release(struct undump *u)
{
	if (u->f != stdin)
		fclose(u->f);
	free(u->line);
	fdry_buf_release(&u->links);
	fdry_buf_release(&u->bytes);
	fdry_buf_release(&u->fresh);
	fdry_buf_release(&u->named);
}

/* Make no store unless the input is a dump. */
int cmd_undump(const struct cmd_args *a, struct fdry_store *s)
{
	struct undump u = { .a = a, .s = s, .f = stdin, .j = { .f = stdout } };
	int err = 0;

	if (a->argc && strcmp(a->argv[0], "-"))
		u.f = fdry_fopen_read(a->argv[0]);
	if (!u.f)
		return cmd_fail(fdry_fail(errno == EACCES ? FDRY_E_PERM : FDRY_E_NOENT,
					  "cannot read %s: %s", a->argv[0], strerror(errno)));
	if (cmd_has(a, JSON)) {
		json_open(&u.j, NULL, '{');
		json_open(&u.j, "changed", '[');
	}
	err = head_read(&u) ?: cmd_store_open(a, FDRY_STORE_CREATE, &u.s);
	if (!err)
		err = cmd_has(a, DRY_RUN) ? plan_from(&u) : undump_from(&u);
	if (!err || cmd_has(a, JSON))
		report(&u);
	undump_release(&u);
	fdry_store_close(u.s);
	return err ? cmd_fail(err) : CMD_OK;
}
