// SPDX-License-Identifier: Apache-2.0
/* Tests of signatures, keys and policies without a registry. */
#include <stdio.h>
#include <stdlib.h>

#include "registry/client/catalog.h"
#include "registry/client/policy.h"
#include "registry/client/signature.h"
#include "tests/lib/test.h"

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define IDENTITY "\"identity\":{\"docker-reference\":\"h/r:t\"}"
#define IMAGE "\"image\":{\"docker-manifest-digest\":\"sha256:" DIGITS "\"}"
#define TYPE "\"type\":\"cosign container image signature\""

static struct fdry_span text_of(const char *text)
{
	return (struct fdry_span){ (const uint8_t *)text, strlen(text) };
}

static struct fdry_span span_of(const struct fdry_buf *b)
{
	return (struct fdry_span){ b->data, b->len };
}

/* --- payloads --- */

START_TEST(payload)
{
	struct fdry_payload p = { .reference = "h:1/a/b:t" }, back;
	struct fdry_buf text = { 0 };

	ok(fdry_oid_parse(DIGITS, &p.id));
	ok(fdry_payload_put(&p, &text));
	ok(fdry_payload_read(span_of(&text), &back));
	ck_assert(fdry_oid_eq(&p.id, &back.id));
	ck_assert_str_eq(back.reference, p.reference);
	fdry_buf_release(&text);
}
END_TEST

static const char *const bad_payloads[] = {
	"",
	"{}",
	"{\"critical\":1}",
	"{\"critical\":{" IDENTITY "," IMAGE "}}",
	"{\"critical\":{" IDENTITY "," TYPE "}}",
	"{\"critical\":{" IMAGE "," TYPE "}}",
	"{\"critical\":{" IDENTITY "," IMAGE "," TYPE ",\"more\":1}}",
	"{\"critical\":{" IDENTITY "," IMAGE ",\"type\":\"another\"}}",
	"{\"critical\":{\"identity\":{}," IMAGE "," TYPE "}}",
	"{\"critical\":{\"identity\":{\"docker-reference\":\"\"}," IMAGE "," TYPE "}}",
	"{\"critical\":{\"identity\":{\"docker-reference\":\"a\",\"b\":1}," IMAGE "," TYPE "}}",
	"{\"critical\":{" IDENTITY ",\"image\":{\"docker-manifest-digest\":\"md5:1\"}," TYPE "}}",
	"{\"critical\":{" IDENTITY "," IMAGE "," TYPE "},\"critical\":1}",
	"{\"critical\":{" IDENTITY "," IMAGE "," TYPE "}}x",
};

START_TEST(payloads_refused)
{
	struct fdry_payload p;

	fails(BADIMAGE, "", fdry_payload_read(text_of(bad_payloads[_i]), &p));
}
END_TEST

START_TEST(payload_long_name)
{
	struct fdry_payload p = { .reference = "" }, back;
	struct fdry_buf text = { 0 };

	memset(p.reference, 'a', sizeof(p.reference) - 1);
	ok(fdry_payload_put(&p, &text));
	ok(fdry_payload_read(span_of(&text), &back));
	text.len = 0;
	ok(fdry_buf_printf(&text,
			   "{\"critical\":{\"identity\":{\"docker-reference\":\"a%s\"}," IMAGE
			   "," TYPE "}}",
			   p.reference));
	fails(BADIMAGE, "names no image", fdry_payload_read(span_of(&text), &back));
	fdry_buf_release(&text);
}
END_TEST

/* --- signature manifests --- */

/* A manifest with @count signatures, which count up. */
static void manifest_make(unsigned int count, struct fdry_buf *ret)
{
	const struct fdry_descriptor subject = { .media = FDRY_MEDIA_INDEX, .size = 9 };
	struct fdry_signature s = { .len = 64, .size = 200 };
	struct fdry_buf next = { 0 };
	unsigned int i;

	for (i = 0; i < count; i++) {
		s.bytes[0] = (uint8_t)i;
		ok(fdry_signatures_put(span_of(ret), &subject, &s, &next));
		fdry_buf_release(ret);
		*ret = next;
		next = (struct fdry_buf){ 0 };
	}
}

START_TEST(signatures)
{
	const struct fdry_descriptor subject = { .media = FDRY_MEDIA_INDEX, .size = 9 };
	const struct fdry_signature one = { .len = 1 }, *s;
	struct fdry_buf text = { 0 }, list = { 0 };
	unsigned int i;

	manifest_make(FDRY_SIGNATURES_MAX, &text);
	ok(fdry_signatures_read(span_of(&text), &list));
	ck_assert_uint_eq(fdry_array_count(list, struct fdry_signature), FDRY_SIGNATURES_MAX);
	s = fdry_array(list, struct fdry_signature);
	for (i = 0; i < FDRY_SIGNATURES_MAX; i++)
		ck_assert(s[i].len == 64 && s[i].size == 200 && s[i].bytes[0] == i);
	fdry_buf_release(&list);
	fails(LIMIT, "lists 64 entries",
	      fdry_signatures_put(span_of(&text), &subject, &one, &list));
	fdry_buf_release(&text);
	fdry_buf_release(&list);
}
END_TEST

#define LAYER(media, size, text) \
	"{\"layers\":[{\"mediaType\":\"" media "\",\"digest\":\"sha256:" DIGITS \
	"\",\"size\":" size ",\"annotations\":{\"dev.cosignproject.cosign/signature\":\"" text \
	"\"}}]}"

/* Layers that are no signatures are left out. */
static const char *const odd_layers[] = {
	LAYER("text/plain", "9", "AAAA"),
	LAYER(FDRY_MEDIA_PAYLOAD, "16385", "AAAA"),
	LAYER(FDRY_MEDIA_PAYLOAD, "-1", "AAAA"),
	LAYER(FDRY_MEDIA_PAYLOAD, "9", ""),
	LAYER(FDRY_MEDIA_PAYLOAD, "9", "AAA"),
	LAYER(FDRY_MEDIA_PAYLOAD, "9", "===="),
	LAYER(FDRY_MEDIA_PAYLOAD, "9", "A\\u0001=="),
	"{\"layers\":[1,{},null]}",
	"{\"layers\":[]}",
};

START_TEST(layers_left_out)
{
	struct fdry_buf list = { 0 };

	ok(fdry_signatures_read(text_of(odd_layers[_i]), &list));
	ck_assert_uint_eq(list.len, 0);
}
END_TEST

START_TEST(signature_lengths)
{
	struct fdry_buf text = { 0 }, list = { 0 };
	char long_text[177] = "";

	memset(long_text, 'A', 176); /* 132 bytes; with == 130, more than 128 */
	ok(fdry_buf_printf(&text, LAYER(FDRY_MEDIA_PAYLOAD, "9", "%s"), long_text));
	ok(fdry_signatures_read(span_of(&text), &list));
	ck_assert_uint_eq(list.len, 0);
	text.len = 0;
	memset(long_text, 0, sizeof(long_text));
	memset(long_text, 'A', 171);
	long_text[171] = '=';
	ok(fdry_buf_printf(&text, LAYER(FDRY_MEDIA_PAYLOAD, "9", "%s"), long_text));
	ok(fdry_signatures_read(span_of(&text), &list));
	ck_assert_uint_eq(fdry_array_count(list, struct fdry_signature), 1);
	ck_assert_uint_eq(fdry_array(list, struct fdry_signature)->len, FDRY_SIGNATURE_MAX);
	fdry_buf_release(&text);
	fdry_buf_release(&list);
}
END_TEST

/* --- policies --- */

/* The rule for oci://h:1/a/b:t. */
static int rule_of(const char *text, struct fdry_policy *ret)
{
	static struct fdry_registry_name name; /* the policy points into it */

	ok(fdry_registry_name_parse("oci://h:1/a/b:t", &name));
	return fdry_policy_parse(text_of(text), "p", &name, ret);
}

#define POLICY(default_, names) \
	"{\"version\":1,\"default\":" default_ ",\"names\":{" names "}}"
#define KEYS(more) "{\"keys\":[\"k\"]" more "}"

static const struct {
	const char *text;
	const char *repo; /* NULL: rejected; "": accepted; else the signature's */
	const char *tag;
} rules[] = {
	{ POLICY("\"reject\"", ""), NULL, NULL },
	{ POLICY("\"accept\"", ""), "", NULL },
	{ POLICY("\"reject\"", "\"h:1/a/b:t\":\"accept\""), "", NULL },
	{ POLICY("\"reject\"", "\"h:1/a/b\":\"accept\""), "", NULL },
	{ POLICY("\"reject\"", "\"h:1/a\":\"accept\""), "", NULL },
	{ POLICY("\"reject\"", "\"h:1\":\"accept\""), "", NULL },
	{ POLICY("\"reject\"", "\"h\":\"accept\""), NULL, NULL },
	{ POLICY("\"reject\"", "\"h:1/a/b:u\":\"accept\""), NULL, NULL },
	{ POLICY("\"reject\"", "\"h:1/a\":\"reject\",\"h:1/a/b\":\"accept\""), "", NULL },
	{ POLICY("\"accept\"", "\"h:1/a/b:t\":\"reject\",\"h:1/a/b\":\"accept\""), NULL, NULL },
	{ POLICY(KEYS(""), ""), "h:1/a/b", "t" },
	{ POLICY(KEYS(",\"identity\":\"repository\""), ""), "h:1/a/b", "" },
	{ POLICY("\"reject\"", "\"h:1\":" KEYS(",\"signedAs\":\"g\"")), "g/a/b", "t" },
	{ POLICY("\"reject\"", "\"h:1/a\":" KEYS(",\"signedAs\":\"g/x\"")), "g/x/b", "t" },
	{ POLICY("\"reject\"", "\"h:1/a/b\":" KEYS(",\"signedAs\":\"g/x\"")), "g/x", "t" },
};

START_TEST(rules_found)
{
	struct fdry_policy p;

	ok(rule_of(rules[_i].text, &p));
	if (!rules[_i].repo) {
		ck_assert(p.rule == FDRY_POLICY_REJECT);
	} else if (!*rules[_i].repo) {
		ck_assert(p.rule == FDRY_POLICY_ACCEPT);
	} else {
		ck_assert(p.rule == FDRY_POLICY_SIGNED);
		ck_assert_str_eq(p.repo, rules[_i].repo);
		ck_assert_str_eq(p.tag, rules[_i].tag);
	}
	fdry_policy_release(&p);
}
END_TEST

/* Hosts are the same in capital letters, so the rule for one is. */
START_TEST(hosts_in_capitals)
{
	struct fdry_registry_name name;
	struct fdry_policy p;

	ok(fdry_registry_name_parse("oci://H:1/a/b:t", &name));
	ok(fdry_policy_parse(text_of(POLICY("\"accept\"", "\"h:1/a\":" KEYS(""))), "p", &name,
			     &p));
	ck_assert(p.rule == FDRY_POLICY_SIGNED);
	fdry_policy_release(&p);
	ok(fdry_policy_parse(text_of(POLICY("\"accept\"", "\"h:1/a/b:t\":\"reject\"")), "p", &name,
			     &p));
	ck_assert(p.rule == FDRY_POLICY_REJECT);
	fdry_policy_release(&p);
	fails(ENV, "host is in lower case",
	      rule_of(POLICY("\"accept\"", "\"H:1\":\"reject\""), &p));
}
END_TEST

/* "h" and "h:443" are one host, and by plain HTTP "h" and "h:80". */
static const struct {
	const char *name, *scope, *reference;
	bool one;
} ports[] = {
	{ "oci://h/a:t", "h:443/a", "h:443/a:t", true },
	{ "oci://h:443/a:t", "h/a", "h/a:t", true },
	{ "oci://H:443/a:t", "h", "h/a:t", true },
	{ "oci://h:443/a:t", "h/a:t", "h:443/a:t", true },
	{ "oci://h/a:t", "h:443/a:t", "h/a:t", true },
	{ "oci://h:443/a:t", "h:443", "H/a:t", true },
	{ "oci+http://h:80/a:t", "h", "h/a:t", true },
	{ "oci+http://h/a:t", "h:80/a", "h:80/a:t", true },
	{ "oci://h/a:t", "h:80", "h:80/a:t", false },
	{ "oci://h:80/a:t", "h", "h/a:t", false },
	{ "oci+http://h:443/a:t", "h", "h/a:t", false },
	{ "oci://h:1443/a:t", "h:1", "h/a:t", false },
};

START_TEST(default_ports)
{
	struct fdry_registry_name name;
	struct fdry_buf text = { 0 };
	struct fdry_policy p;

	ok(fdry_registry_name_parse(ports[_i].name, &name));
	ok(fdry_buf_printf(&text, POLICY("\"reject\"", "\"%s\":" KEYS("")), ports[_i].scope));
	ok(fdry_policy_parse(span_of(&text), "p", &name, &p));
	ck_assert_int_eq(p.rule, ports[_i].one ? FDRY_POLICY_SIGNED : FDRY_POLICY_REJECT);
	ck_assert_int_eq(fdry_policy_fits(&p, ports[_i].reference), ports[_i].one);
	fdry_policy_release(&p);
	fdry_buf_release(&text);
}
END_TEST

START_TEST(host_named_twice)
{
	struct fdry_policy p;

	fails(ENV, "with and without its default port",
	      rule_of(POLICY("\"accept\"", "\"g/x\":\"reject\",\"g:443/x\":\"accept\""), &p));
}
END_TEST

START_TEST(names_compared)
{
	struct fdry_policy p;

	ok(rule_of(POLICY(KEYS(""), ""), &p));
	ck_assert(fdry_policy_fits(&p, "h:1/a/b:t"));
	ck_assert(!fdry_policy_fits(&p, "h:1/a/b"));
	ck_assert(!fdry_policy_fits(&p, "h:1/a/b:"));
	ck_assert(!fdry_policy_fits(&p, "h:1/a/b:tt"));
	ck_assert(!fdry_policy_fits(&p, "h:1/a/bt:t"));
	ck_assert(!fdry_policy_fits(&p, "h:1/a/b/c:t"));
	ck_assert(!fdry_policy_fits(&p, "h:1/a:t"));
	ck_assert(!fdry_policy_fits(&p, "g:1/a/b:t"));
	fdry_policy_release(&p);
	ok(rule_of(POLICY(KEYS(",\"identity\":\"repository\""), ""), &p));
	ck_assert(fdry_policy_fits(&p, "h:1/a/b:t"));
	ck_assert(fdry_policy_fits(&p, "h:1/a/b"));
	ck_assert(!fdry_policy_fits(&p, "h:1/a/bc"));
	ck_assert(!fdry_policy_fits(&p, "h:1/a/b/c"));
	fdry_policy_release(&p);
}
END_TEST

START_TEST(signed_as_has_no_place)
{
	struct fdry_policy p;

	fails(ENV, "default has no", rule_of(POLICY(KEYS(",\"signedAs\":\"g\""), ""), &p));
	fails(ENV, "for a tag", rule_of(POLICY("\"accept\"", "\"h:1/a/b:t\":"
					       KEYS(",\"signedAs\":\"g\"")), &p));
}
END_TEST

/* --- tags --- */

START_TEST(tags_of_signatures)
{
	struct fdry_oid id, want;

	ok(fdry_oid_parse(DIGITS, &want));
	ck_assert(fdry_catalog_tag_subject("sha256-" DIGITS, &id) && fdry_oid_eq(&id, &want));
	ck_assert(fdry_catalog_tag_subject("sha256-" DIGITS ".sig", &id));
	ck_assert(fdry_catalog_tag_subject("sha256-" DIGITS ".att", &id));
	ck_assert(!fdry_catalog_tag_subject("sha256-" DIGITS "0", &id));
	ck_assert(!fdry_catalog_tag_subject("sha256-" DIGITS "-x", &id));
	ck_assert(!fdry_catalog_tag_subject("sha256-0123", &id));
	ck_assert(!fdry_catalog_tag_subject("sha512-" DIGITS, &id));
	ck_assert(!fdry_catalog_tag_subject("", &id));
}
END_TEST

/* Documents of any program: what cannot be read is left out. */
START_TEST(node_read)
{
	static const char text[] =
		"{\"artifactType\":\"" FDRY_MEDIA_IMAGE "\","
		"\"subject\":{\"digest\":\"sha256:" DIGITS "\"},"
		"\"layers\":[{\"mediaType\":\"" FDRY_MEDIA_LIST "\",\"digest\":\"sha256:" DIGITS
		"\",\"size\":5},{\"digest\":\"sha256:" DIGITS "\",\"size\":9223372036854775807},"
		"{\"digest\":\"sha256:" DIGITS "\",\"size\":9223372036854775807},"
		"{\"digest\":\"sha256:" DIGITS "\",\"size\":9},{\"digest\":\"md5:1\"},7],"
		"\"manifests\":[{\"digest\":\"sha256:" DIGITS "\"},{}]}";
	struct fdry_catalog_node node = { .parts = 0 };
	struct fdry_catalog c = { 0 };

	ok(fdry_catalog_node_read(&c, text_of(text), &node));
	ck_assert(node.is_image && node.has_subject);
	ck_assert_uint_eq(node.parts, 1);
	ck_assert_uint_eq(node.objects, 3);
	ck_assert_uint_eq(node.bytes, UINT64_MAX); /* and no overflow */
	node = (struct fdry_catalog_node){ .parts = 0 };
	ok(fdry_catalog_node_read(&c, text_of("no document"), &node));
	ck_assert(!node.is_image && !node.parts && !node.bytes);
	fdry_catalog_release(&c);
}
END_TEST

/* Ids that begin equally must be distinguished. */
START_TEST(nodes_are_found_by_their_ids)
{
	struct fdry_catalog_node node = { .parts = 0 };
	struct fdry_catalog c = { 0 };
	uint32_t i;

	ck_assert(fdry_catalog_find(&c, &node.id) == FDRY_CATALOG_NONE);
	for (i = 0; i < 3000; i++) {
		fdry_set32(node.id.b, i / 3);
		node.id.b[31] = (uint8_t)(i % 3);
		ck_assert(fdry_catalog_find(&c, &node.id) == FDRY_CATALOG_NONE);
		node.objects = i;
		ok(fdry_catalog_node_add(&c, &node));
	}
	for (i = 0; i < 3000; i++) {
		fdry_set32(node.id.b, i / 3);
		node.id.b[31] = (uint8_t)(i % 3);
		ck_assert_uint_eq(fdry_catalog_find(&c, &node.id), i);
		ck_assert_uint_eq(fdry_catalog_node(&c, i)->objects, i);
		node.id.b[30] = 1;
		ck_assert(fdry_catalog_find(&c, &node.id) == FDRY_CATALOG_NONE);
		node.id.b[30] = 0;
	}
	fdry_catalog_release(&c);
}
END_TEST

START_TEST(tag_lists)
{
	char long_tag[200] = "{\"tags\":[\"";
	struct fdry_buf tags = { 0 };

	ok(fdry_catalog_tags_read(text_of("{\"tags\":[\"b\",\"a\"]}"), &tags));
	ck_assert_uint_eq(fdry_array_count(tags, struct fdry_catalog_tag), 2);
	memset(long_tag + strlen(long_tag), 'a', 129);
	memcpy(long_tag + strlen(long_tag), "\"]}", 4);
	fails(BADIMAGE, "malformed", fdry_catalog_tags_read(text_of(long_tag), &tags));
	fdry_buf_release(&tags);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("registry_trust");
	TCase *tc = tcase_create("trust");

	tcase_add_test(tc, payload);
	tcase_add_loop_test(tc, payloads_refused, 0, sizeof(bad_payloads) / sizeof(*bad_payloads));
	tcase_add_test(tc, payload_long_name);
	tcase_add_test(tc, signatures);
	tcase_add_loop_test(tc, layers_left_out, 0, sizeof(odd_layers) / sizeof(*odd_layers));
	tcase_add_test(tc, signature_lengths);
	tcase_add_loop_test(tc, rules_found, 0, sizeof(rules) / sizeof(*rules));
	tcase_add_test(tc, hosts_in_capitals);
	tcase_add_loop_test(tc, default_ports, 0, sizeof(ports) / sizeof(*ports));
	tcase_add_test(tc, host_named_twice);
	tcase_add_test(tc, names_compared);
	tcase_add_test(tc, signed_as_has_no_place);
	tcase_add_test(tc, tags_of_signatures);
	tcase_add_test(tc, node_read);
	tcase_add_test(tc, nodes_are_found_by_their_ids);
	tcase_add_test(tc, tag_lists);
	suite_add_tcase(s, tc);
	return test_main(s);
}
