// SPDX-License-Identifier: Apache-2.0
/*
 * identity.c - a table of facts about a device: how each is read, and how it is compared.
 *
 * Kernels are machine code for one architecture, and programs choose grids for the number of SMs.
 * So both must be equal. A newer driver loads what an older one ran, but not always the reverse.
 * The size of memory is not compared: a load fails if it cannot allocate enough.
 */
#include "image/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum how {
	RECORD,   /* only recorded, never compared */
	EQUAL,    /* the same text */
	AT_LEAST, /* a number, at least as large here */
};

typedef int (*fact_fn)(const struct fdry_driver *drv, CUdevice dev, char *value, size_t len);

static int attr_fact(const struct fdry_driver *drv, CUdevice dev, CUdevice_attribute attr, int *ret)
{
	return fdry_call(drv, cuDeviceGetAttribute, ret, attr, dev);
}

static int arch_fact(const struct fdry_driver *drv, CUdevice dev, char *value, size_t len)
{
	int major, minor, err;

	err = attr_fact(drv, dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major);
	if (err)
		return err;
	err = attr_fact(drv, dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor);
	if (err)
		return err;
	snprintf(value, len, "sm_%d%d", major, minor);
	return 0;
}

static int sms_fact(const struct fdry_driver *drv, CUdevice dev, char *value, size_t len)
{
	int sms, err;

	err = attr_fact(drv, dev, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms);
	if (err)
		return err;
	snprintf(value, len, "%d", sms);
	return 0;
}

static int name_fact(const struct fdry_driver *drv, CUdevice dev, char *value, size_t len)
{
	return fdry_call(drv, cuDeviceGetName, value, (int)len, dev);
}

static int memory_fact(const struct fdry_driver *drv, CUdevice dev, char *value, size_t len)
{
	size_t bytes;
	int err = fdry_call(drv, cuDeviceTotalMem_v2, &bytes, dev);

	if (err)
		return err;
	snprintf(value, len, "%zu", bytes);
	return 0;
}

static int driver_fact(const struct fdry_driver *drv, CUdevice dev, char *value, size_t len)
{
	(void)dev;
	snprintf(value, len, "%d", drv->version);
	return 0;
}

static int kind_fact(const struct fdry_driver *drv, CUdevice dev, char *value, size_t len)
{
	(void)dev;
	snprintf(value, len, "%s", drv->software ? "software" : "nvidia");
	return 0;
}

static int toolkit_fact(const struct fdry_driver *drv, CUdevice dev, char *value, size_t len)
{
	(void)drv;
	(void)dev;
	snprintf(value, len, "%d", CUDA_VERSION);
	return 0;
}

/* In ascending order of keys, as in manifests. This is also the order of comparison, with the most
 * important facts nearly first. */
static const struct {
	const char *key;
	enum how how;
	fact_fn read;
	const char *what;
} table[FDRY_IDENTITY_FACTS] = {
	{ "fdry.gpu.arch", EQUAL, arch_fact, "GPU architecture" },
	{ "fdry.gpu.driver", EQUAL, kind_fact, "kind of driver" },
	{ "fdry.gpu.driver_version", AT_LEAST, driver_fact, "CUDA version of the driver" },
	{ "fdry.gpu.memory", RECORD, memory_fact, "device memory" },
	{ "fdry.gpu.name", RECORD, name_fact, "GPU" },
	{ "fdry.gpu.sms", EQUAL, sms_fact, "number of SMs" },
	{ "fdry.toolkit", RECORD, toolkit_fact, "CUDA headers of the library" },
};

int fdry_identity_of(const struct fdry_driver *drv, CUdevice dev, struct fdry_identity *ret)
{
	int i, err = 0;

	memset(ret, 0, sizeof(*ret));
	for (i = 0; i < FDRY_IDENTITY_FACTS; i++) {
		ret->fact[i].key = table[i].key;
		err = table[i].read(drv, dev, ret->fact[i].value, sizeof(ret->fact[i].value));
		if (err)
			return err;
	}
	return 0;
}

static void mismatch_note(struct fdry_mismatch *ret, const char *field, const char *wanted,
			  const char *found)
{
	if (!ret)
		return;
	snprintf(ret->field, sizeof(ret->field), "%s", field);
	snprintf(ret->wanted, sizeof(ret->wanted), "%s", wanted);
	snprintf(ret->found, sizeof(ret->found), "%s", found ? found : "");
}

static int own_compare(const struct fdry_manifest *m, int i, const char *here,
		       struct fdry_mismatch *ret)
{
	const char *there = fdry_manifest_fact(m, table[i].key);

	if (there && !(table[i].how == EQUAL && strcmp(there, here)) &&
	    !(table[i].how == AT_LEAST && strtoull(here, NULL, 10) < strtoull(there, NULL, 10)))
		return 0;
	mismatch_note(ret, table[i].key, here, there);
	if (!there)
		return fdry_fail(FDRY_E_IDENTITY, "the image does not state its %s; seal it anew",
				 table[i].what);
	return fdry_fail(
		FDRY_E_IDENTITY,
		"the image was made for another %s: %s there, %s here; seal one for this machine",
		table[i].what, there, here);
}

/* Names for messages of the facts that the Python package states about a capturing program. */
static const struct { const char *prefix, *what; } program[] = {
	{ "py.code.", "the code of " },
	{ "py.value.", "the value of " },
	{ "py.package.", "the version of package " },
	{ "py.python", "the version of Python" },
	{ "py.more", "a function or value that has no fact of its own" },
	{ "py.all", "the list of functions and values that the capture uses" },
};

static int changed_fail(const struct fdry_fact *fact, const char *there)
{
	const char *here = fact->value;
	size_t i, len;

	for (i = 0; i < sizeof(program) / sizeof(program[0]); i++) {
		len = strlen(program[i].prefix);
		if (!strncmp(fact->key, program[i].prefix, len))
			return fdry_fail(FDRY_E_IDENTITY,
					 "%s%s has changed since the image was captured (%s: "
					 "'%.64s' there, '%.64s' here); capture anew",
					 program[i].what, fact->key + len, fact->key, there, here);
	}
	return fdry_fail(FDRY_E_IDENTITY,
			 "the image has another '%s': '%s' there, '%s' here; seal one for this",
			 fact->key, there, here);
}

/* Images that fdry_capture_seal() made, and all images of version 0.1, state no facts about the
 * program. */
static int unsaid_fail(const struct fdry_manifest *m, const struct fdry_fact *fact)
{
	if (!strncmp(fact->key, "py.", 3) && !fdry_manifest_fact(m, "py.all"))
		return fdry_fail(
			FDRY_E_IDENTITY,
			"the image does not state which code captured it ('%s' is missing); "
			"capture anew, or compare only your own facts (identity='manual')",
			fact->key);
	return fdry_fail(
		FDRY_E_IDENTITY,
		"the image does not state the fact '%s' ('%s' here); seal it with that fact",
		fact->key, fact->value);
}

static int caller_compare(const struct fdry_manifest *m, const struct fdry_fact *fact,
			  struct fdry_mismatch *ret)
{
	const char *there;

	if (!fact->key || !fact->value)
		return fdry_fail(FDRY_E_INVAL, "a fact to compare has no key or no value");
	there = fdry_manifest_fact(m, fact->key);
	if (there && !strcmp(there, fact->value))
		return 0;
	mismatch_note(ret, fact->key, fact->value, there);
	return there ? changed_fail(fact, there) : unsaid_fail(m, fact);
}

int fdry_identity_compare(const struct fdry_manifest *m, const struct fdry_identity *here,
			  const struct fdry_fact *facts, size_t nfacts, struct fdry_mismatch *ret)
{
	size_t i;
	int err;

	for (i = 0; here && i < FDRY_IDENTITY_FACTS; i++) {
		err = own_compare(m, (int)i, here->fact[i].value, ret);
		if (err)
			return err;
	}
	for (i = 0; i < nfacts; i++) {
		err = caller_compare(m, &facts[i], ret);
		if (err)
			return err;
	}
	return 0;
}

/* Whether a fact is part of the digest. Facts of the library that need not be equal, or that a
 * later version may add, are not. */
static bool digested(const char *key)
{
	size_t i;

	for (i = 0; i < FDRY_IDENTITY_FACTS; i++)
		if (!strcmp(key, table[i].key))
			return table[i].how == EQUAL;
	return strncmp(key, "fdry.", 5) != 0;
}

int fdry_identity_hash(struct fdry_hash *h, const char *key, const char *value)
{
	int err = fdry_hash_update(h, key, strlen(key) + 1);

	return err ? err : fdry_hash_update(h, value, strlen(value) + 1);
}

int fdry_identity_digest(const struct fdry_manifest *m, struct fdry_oid *ret)
{
	struct fdry_hash h = { 0 };
	const char *key, *value;
	uint32_t i;
	int err;

	for (i = 0; i < m->n_facts; i++) {
		key = fdry_manifest_str(m, m->facts[i].key);
		value = fdry_manifest_str(m, m->facts[i].value);
		if (!digested(key))
			continue;
		err = fdry_identity_hash(&h, key, value);
		if (err)
			goto out_release;
	}
	err = fdry_hash_final(&h, ret);
out_release:
	fdry_hash_release(&h);
	return err;
}

int fdry_identity_encode(struct fdry_manifest_writer *w, struct fdry_buf *bytes,
			 struct fdry_oid *identity, struct fdry_oid **links, size_t *nlinks)
{
	struct fdry_manifest m;
	int err = fdry_manifest_encode(w, bytes);

	if (err)
		return err;
	err = fdry_manifest_init((struct fdry_span){ bytes->data, bytes->len }, &m) ?:
	      fdry_identity_digest(&m, identity) ?: fdry_manifest_links(&m, links, nlinks);
	if (err)
		fdry_buf_release(bytes);
	return err;
}
