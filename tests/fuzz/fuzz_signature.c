// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_signature.c - signature manifests, payloads, indexes of referrers, lists of tags, and
 * documents of a repository, which registries send; and policies, which users write. The first byte
 * of the input selects the reader.
 */
#include <stdlib.h>

#include "registry/client/catalog.h"
#include "registry/client/policy.h"
#include "registry/client/signature.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(int ok)
{
	if (!ok)
		abort();
}

static struct fdry_span span_of(const struct fdry_buf *b)
{
	return (struct fdry_span){ b->data, b->len };
}

static void try_payload(struct fdry_span s)
{
	struct fdry_payload p;

	if (!fdry_payload_read(s, &p))
		must(p.reference[0] && memchr(p.reference, 0, sizeof(p.reference)));
}

/* One more signature is added to whatever was there, and everything is read again. */
static void try_signatures(struct fdry_span s)
{
	const struct fdry_descriptor subject = { .media = FDRY_MEDIA_MANIFEST, .size = 1 };
	const struct fdry_signature added = { .len = FDRY_SIGNATURE_MAX, .size = 7 }, *last;
	struct fdry_buf read = { 0 }, text = { 0 }, again = { 0 };
	size_t n;

	if (fdry_signatures_read(s, &read)) {
		must(!read.len);
		return;
	}
	n = fdry_array_count(read, struct fdry_signature);
	must(n <= FDRY_SIGNATURES_MAX);
	if (!fdry_signatures_put(s, &subject, &added, &text)) {
		must(!fdry_signatures_read(span_of(&text), &again));
		must(fdry_array_count(again, struct fdry_signature) == n + 1);
		must(!read.len || !memcmp(again.data, read.data, read.len));
		last = fdry_array(again, struct fdry_signature) + n;
		must(last->len == added.len && last->size == 7);
	}
	fdry_buf_release(&read);
	fdry_buf_release(&text);
	fdry_buf_release(&again);
}

/* An entry is replaced by one that is new. */
static void try_referrers(struct fdry_span s)
{
	const struct fdry_descriptor added = { .media = FDRY_MEDIA_MANIFEST, .size = 3,
					       .digest.b = "a new one" };
	struct fdry_buf read = { 0 }, text = { 0 }, again = { 0 };
	const struct fdry_descriptor *d, *old;
	size_t n;

	if (!fdry_referrers_read(s, &read)) {
		old = fdry_array(read, struct fdry_descriptor);
		n = fdry_array_count(read, struct fdry_descriptor);
		if (!fdry_referrers_put(s, &added, n ? &old->digest : NULL, &text)) {
			must(!fdry_referrers_read(span_of(&text), &again));
			must(fdry_array_count(again, struct fdry_descriptor) <= n + !n);
			d = (const void *)(again.data + again.len);
			must(fdry_oid_eq(&d[-1].digest, &added.digest) && d[-1].size == 3);
		}
	}
	fdry_buf_release(&read);
	fdry_buf_release(&text);
	fdry_buf_release(&again);
}

static void try_policy(struct fdry_span s)
{
	struct fdry_registry_name name;
	struct fdry_policy p;

	must(!fdry_registry_name_parse("oci://h:5000/a/b:t", &name));
	if (fdry_policy_parse(s, "policy", &name, &p))
		return;
	must((p.rule == FDRY_POLICY_SIGNED) == (p.keys != NULL));
	must(p.repo[0] && (!p.tag[0] || !strcmp(p.tag, "t")));
	must(fdry_policy_fits(&p, p.repo) == !p.tag[0]);
	fdry_policy_release(&p);
}

static void try_tags(struct fdry_span s)
{
	struct fdry_catalog c = { 0 };
	struct fdry_oid id;
	size_t i;

	if (!fdry_catalog_tags_read(s, &c.tags))
		for (i = 0; i < fdry_catalog_tags(&c); i++) {
			must(fdry_catalog_tag(&c, i)->name[0] &&
			     strlen(fdry_catalog_tag(&c, i)->name) <= FDRY_REGISTRY_TAG_MAX);
			must(!fdry_catalog_tag_subject(fdry_catalog_tag(&c, i)->name, &id) ||
			     fdry_catalog_tag(&c, i)->name[0] == 's');
		}
	fdry_catalog_release(&c);
}

static void try_node(struct fdry_span s)
{
	struct fdry_catalog_node node = { .parts = 0 };
	struct fdry_catalog c = { 0 };

	if (!fdry_catalog_node_read(&c, s, &node)) {
		must(node.part + node.parts == fdry_array_count(c.parts, struct fdry_oid));
		must(node.objects <= fdry_array_count(c.layers, struct fdry_catalog_layer));
		must(fdry_catalog_find(&c, &node.subject) == FDRY_CATALOG_NONE);
	}
	fdry_catalog_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static void (*const ways[])(struct fdry_span) = { try_payload, try_signatures,
							  try_referrers, try_policy,
							  try_tags, try_node };

	if (len)
		ways[data[0] % 6]((struct fdry_span){ data + 1, len - 1 });
	return 0;
}
