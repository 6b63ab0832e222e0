// SPDX-License-Identifier: Apache-2.0
/* Tests of the readers of the registry's client: names, challenges, manifests and indexes. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "registry/client/auth.h"
#include "registry/client/certs.h"
#include "registry/client/json.h"
#include "registry/client/manifest.h"
#include "registry/name.h"
#include "store/store.h"
#include "tests/lib/test.h"

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* --- the system's authorities --- */

/* In place of libcurl's own: a libcurl that was built with or without a place of CA files. */
static const char *built_in;
curl_version_info_data *curl_version_info(CURLversion version)
{
	static curl_version_info_data info;

	info = (curl_version_info_data){ .age = version, .cainfo = built_in };
	return &info;
}

START_TEST(authorities)
{
	struct fdry_http h = { .name = { .host = "h" } };

	setenv("XDG_CONFIG_HOME", "/none", 1);
	setenv("SSL_CERT_FILE", "/dev/null", 1);
	setenv("SSL_CERT_DIR", "/a:/b", 1);
	ok(fdry_http_certs_find(&h));
	ck_assert_str_eq(h.system_ca, "/dev/null");
	ck_assert_str_eq(h.system_folder, "/a:/b");
	ck_assert(!h.ca);

	setenv("SSL_CERT_FILE", "/none", 1);
	fails(ENV, "SSL_CERT_FILE is '/none', which cannot be read", fdry_http_certs_find(&h));

	unsetenv("SSL_CERT_FILE");
	ok(fdry_http_certs_find(&h));
	if (!access("/etc/ssl/certs/ca-certificates.crt", R_OK))
		ck_assert_str_eq(h.system_ca, "/etc/ssl/certs/ca-certificates.crt");

	built_in = "/own";
	h = (struct fdry_http){ .name = { .host = "h" } };
	setenv("SSL_CERT_FILE", "/none", 1);
	ok(fdry_http_certs_find(&h));
	ck_assert(!h.system_ca && !h.system_folder);
}
END_TEST

/* --- names --- */

START_TEST(names)
{
	struct fdry_registry_name n;
	char hex[FDRY_OID_HEX_SIZE];

	ok(fdry_registry_name_parse("oci://host.example:5000/a/b-c_d.e__f:v1.2_3", &n));
	ck_assert_str_eq(n.host, "host.example:5000");
	ck_assert_str_eq(n.repo, "a/b-c_d.e__f");
	ck_assert_str_eq(n.tag, "v1.2_3");
	ck_assert(!n.plain && !n.by_digest);
	ok(fdry_registry_name_parse("oci+http://[::1]:80/x", &n));
	ck_assert_str_eq(n.host, "[::1]:80");
	ck_assert_str_eq(n.tag, "latest");
	ck_assert(n.plain);
	ok(fdry_registry_name_parse("oci://h/x@sha256:" DIGITS, &n));
	ck_assert(n.by_digest && !n.tag[0]);
	ck_assert_str_eq(fdry_oid_hex(&n.digest, hex), DIGITS);
	ok(fdry_registry_name_parse("oci://h/x:t@sha256:" DIGITS, &n));
	ck_assert(n.by_digest);
	ck_assert_str_eq(n.tag, "t");
}
END_TEST

static const char *const bad_names[] = {
	"",
	"host/x",
	"http://h/x",
	"oci:/h/x",
	"oci://h",
	"oci:///x",
	"oci://h/",
	"oci://h/X",
	"oci://h/-x",
	"oci://h/x-",
	"oci://h/x//y",
	"oci://h/x/",
	"oci://h/x..y",
	"oci://h/x:",
	"oci://h/x:.t",
	"oci://h/x:a/b",
	"oci://h/x@",
	"oci://h/x@sha256:12",
	"oci://h/x@md5:12",
	"oci://h/x y",
	"oci://user@h/x",
	"oci://h/x?y",
	"oci://-h/x",
	"oci://h\n/x",
	"oci://h/x:a b",
	"oci://h/x@sha256:" DIGITS "0",
	"oci://h:x:y/a", "oci://h:x/a", "oci://h:/a", "oci://h:1:2/a", "oci://h:0/a",
	"oci://h:65536/a", "oci://::1/a", "oci://[::1/a", "oci://[]/a", "oci://[x]/a",
	"oci://[::1]x/a", "oci://[::1]:/a", "oci://h]/a", "oci://:80/a", "oci://h:-1/a",
};

START_TEST(names_refused)
{
	struct fdry_registry_name n;

	fails(INVAL, "", fdry_registry_name_parse(bad_names[_i], &n));
}
END_TEST

START_TEST(names_too_long)
{
	struct fdry_registry_name n;
	char name[600] = "oci://h/";

	memset(name + 8, 'a', 256);
	fails(INVAL, "repository", fdry_registry_name_parse(name, &n));
	name[8 + 255] = '\0';
	ok(fdry_registry_name_parse(name, &n));
	snprintf(name, sizeof(name), "oci://h/x:");
	memset(name + 10, 'a', 129);
	name[10 + 129] = '\0';
	fails(INVAL, "tag", fdry_registry_name_parse(name, &n));
	name[10 + 128] = '\0';
	ok(fdry_registry_name_parse(name, &n));
	snprintf(name, sizeof(name), "oci://");
	memset(name + 6, 'a', 256);
	snprintf(name + 6 + 256, 10, "/x");
	fails(INVAL, "host", fdry_registry_name_parse(name, &n));
}
END_TEST

/* --- challenges --- */

START_TEST(challenges)
{
	struct fdry_challenge c;

	ok(fdry_challenge_parse("Bearer realm=\"https://a/t\",service=\"s\",scope=\"x y\"", &c));
	ck_assert(c.bearer && !c.basic);
	ck_assert_str_eq(c.realm, "https://a/t");
	ck_assert_str_eq(c.service, "s");
	ck_assert_str_eq(c.scope, "x y");
	ok(fdry_challenge_parse("Basic realm=\"a \\\"b\\\"\", bearer realm = r , scope=s", &c));
	ck_assert(c.bearer);
	ck_assert_str_eq(c.realm, "r");
	ck_assert_str_eq(c.scope, "s");
	ok(fdry_challenge_parse("Negotiate, Basic realm=\"x\", Digest realm=y", &c));
	ck_assert(c.basic && !c.bearer);
	fails(PERM, "log-in", fdry_challenge_parse("", &c));
	fails(PERM, "log-in", fdry_challenge_parse("Negotiate", &c));
	fails(PERM, "log-in", fdry_challenge_parse("Bearer service=x", &c));
	fails(PERM, "log-in", fdry_challenge_parse("Bearer realm=\"x", &c));
	fails(PERM, "log-in", fdry_challenge_parse("Bearer realm=x,=", &c));
}
END_TEST

START_TEST(challenge_too_long)
{
	struct fdry_challenge c;
	char text[3000] = "Bearer realm=";

	memset(text + 13, 'a', 1024);
	fails(PERM, "log-in", fdry_challenge_parse(text, &c));
	snprintf(text, sizeof(text), "Bearer realm=r,service=");
	memset(text + strlen(text), 'a', 256);
	fails(PERM, "log-in", fdry_challenge_parse(text, &c));
}
END_TEST

/* --- documents --- */

static struct fdry_span span_of(const struct fdry_buf *b)
{
	return (struct fdry_span){ b->data, b->len };
}

/* The most layers, with the longest descriptors, stay below what registries accept. */
START_TEST(manifest_largest)
{
	struct fdry_descriptor *layers = calloc(FDRY_MANIFEST_LAYERS, sizeof(*layers));
	struct fdry_buf text = { 0 }, back = { 0 };
	bool is_index = true;
	uint32_t i;

	for (i = 0; i < FDRY_MANIFEST_LAYERS; i++) {
		fdry_media_of(1u << FDRY_OBJECT_MANIFEST, layers[i].media);
		fdry_set32(layers[i].digest.b, i);
		layers[i].size = FDRY_OBJECT_SIZE_MAX;
	}
	ok(fdry_manifest_put(layers, FDRY_MANIFEST_LAYERS, &text));
	ck_assert_uint_lt(text.len, FDRY_MANIFEST_BYTES);
	ok(fdry_document_read(span_of(&text), &is_index, &back));
	ck_assert(!is_index);
	ck_assert_uint_eq(back.len, FDRY_MANIFEST_LAYERS * sizeof(*layers));
	for (i = 0; i < FDRY_MANIFEST_LAYERS; i++) {
		const struct fdry_descriptor *d = (void *)back.data;

		ck_assert_str_eq(d[i].media, layers[i].media);
		ck_assert(fdry_oid_eq(&d[i].digest, &layers[i].digest));
		ck_assert_uint_eq(d[i].size, layers[i].size);
	}
	fdry_buf_release(&text);
	fdry_buf_release(&back);
	free(layers);
}
END_TEST

START_TEST(index_largest)
{
	struct fdry_descriptor *parts = calloc(FDRY_INDEX_PARTS, sizeof(*parts));
	struct fdry_buf text = { 0 }, back = { 0 };
	bool is_index = false;
	uint32_t i;

	for (i = 0; i < FDRY_INDEX_PARTS; i++) {
		snprintf(parts[i].media, sizeof(parts[i].media), FDRY_MEDIA_MANIFEST);
		parts[i].size = FDRY_MANIFEST_BYTES;
	}
	ok(fdry_index_put(parts, FDRY_INDEX_PARTS, &text));
	ck_assert_uint_lt(text.len, FDRY_MANIFEST_BYTES);
	ok(fdry_document_read(span_of(&text), &is_index, &back));
	ck_assert(is_index);
	ck_assert_uint_eq(back.len, FDRY_INDEX_PARTS * sizeof(*parts));
	fdry_buf_release(&text);
	fdry_buf_release(&back);
	free(parts);
}
END_TEST

/* A failure appends nothing. */
START_TEST(document_refused)
{
	static const char text[] = "{\"schemaVersion\":2,\"mediaType\":\"" FDRY_MEDIA_MANIFEST "\","
				   "\"layers\":[{\"digest\":\"sha256:" DIGITS "\",\"size\":1},{}]}";
	struct fdry_buf back = { 0 };
	bool is_index;

	fails(BADIMAGE, "no SHA-256", fdry_document_read((struct fdry_span){ (const void *)text,
						sizeof(text) - 1 }, &is_index, &back));
	ck_assert_uint_eq(back.len, 0);
	fdry_buf_release(&back);
}
END_TEST

START_TEST(error_texts)
{
	static const char text[] = "{\"errors\":[{\"code\":\"DENIED\",\"message\":\"no\"}]}";
	char why[16];

	fdry_json_error((struct fdry_span){ (const void *)text, sizeof(text) - 1 }, why,
			sizeof(why));
	ck_assert_str_eq(why, "DENIED: no");
	fdry_json_error((struct fdry_span){ (const void *)text, 5 }, why, sizeof(why));
	ck_assert_str_eq(why, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("registry_client");
	TCase *tc = tcase_create("client");

	tcase_add_test(tc, names);
	tcase_add_loop_test(tc, names_refused, 0, sizeof(bad_names) / sizeof(bad_names[0]));
	tcase_add_test(tc, names_too_long);
	tcase_add_test(tc, challenges);
	tcase_add_test(tc, challenge_too_long);
	tcase_add_test(tc, manifest_largest);
	tcase_add_test(tc, index_largest);
	tcase_add_test(tc, document_refused);
	tcase_add_test(tc, error_texts);
	tcase_add_test(tc, authorities);
	suite_add_tcase(s, tc);
	return test_main(s);
}
