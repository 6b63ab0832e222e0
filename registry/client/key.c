// SPDX-License-Identifier: Apache-2.0
/* key.c - reads keys, signs and verifies, by OpenSSL; see key.h. */
#include "registry/client/key.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include "registry/client/json.h"

#define FILE_MAX (64u << 10)
#define SIGNATURE_MAX 256

static int bad(const char *path, const char *what)
{
	return fdry_fail(FDRY_E_ENV,
			 "%s is no %s; name a file in PEM format with a key of Ed25519 or "
			 "ECDSA P-256",
			 path, what);
}

static bool is_known(EVP_PKEY *key)
{
	char group[32] = "";

	if (EVP_PKEY_is_a(key, "ED25519"))
		return true;
	return EVP_PKEY_is_a(key, "EC") &&
	       EVP_PKEY_get_group_name(key, group, sizeof(group), NULL) &&
	       !strcmp(group, "prime256v1");
}

/* OpenSSL asks for the passphrase of an encrypted key: there is none. */
static int no_passphrase(char *to, int size, int writing, void *arg)
{
	(void)to;
	(void)size;
	(void)writing;
	(void)arg;
	return -1;
}

/* @what: for the message. */
static int key_read(const char *path, const char *what, bool private, EVP_PKEY **ret)
{
	struct fdry_buf text = { 0 };
	bool there = false;
	EVP_PKEY *key;
	BIO *bio;
	int err = fdry_json_file(path, FILE_MAX, &text, &there);

	if (err)
		goto out_release;
	if (!there) {
		err = fdry_fail(FDRY_E_ENV, "the key %s does not exist", path);
		goto out_release;
	}
	bio = BIO_new_mem_buf(text.data, (int)text.len);
	key = !bio ? NULL : private ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) :
				      PEM_read_bio_PUBKEY(bio, NULL, no_passphrase, NULL);
	BIO_free(bio);
	ERR_clear_error();
	if (key && is_known(key)) {
		*ret = key;
	} else {
		err = bad(path, what);
		EVP_PKEY_free(key);
	}
out_release:
	if (text.data)
		OPENSSL_cleanse(text.data, text.cap);
	fdry_buf_release(&text);
	return err;
}

int fdry_key_private(const char *path, EVP_PKEY **ret)
{
	return key_read(path, "private key without a passphrase", true, ret);
}

int fdry_key_public(const char *path, EVP_PKEY **ret)
{
	return key_read(path, "public key", false, ret);
}

/* Ed25519 hashes the text itself. */
static const EVP_MD *digest_of(EVP_PKEY *key)
{
	return EVP_PKEY_is_a(key, "ED25519") ? NULL : EVP_sha256();
}

int fdry_key_sign(EVP_PKEY *key, struct fdry_span text, struct fdry_buf *ret)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	uint8_t bytes[SIGNATURE_MAX];
	size_t len = sizeof(bytes);
	bool signed_ = ctx && EVP_DigestSignInit(ctx, NULL, digest_of(key), NULL, key) == 1 &&
		       EVP_DigestSign(ctx, bytes, &len, text.data, text.len) == 1;

	EVP_MD_CTX_free(ctx);
	ERR_clear_error();
	if (!signed_)
		return fdry_fail(FDRY_E_ENV, "OpenSSL cannot sign with this key");
	return fdry_buf_put(ret, bytes, len);
}

bool fdry_key_verifies(EVP_PKEY *key, struct fdry_span text, struct fdry_span signature)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool good = ctx && EVP_DigestVerifyInit(ctx, NULL, digest_of(key), NULL, key) == 1 &&
		    EVP_DigestVerify(ctx, signature.data, signature.len, text.data, text.len) == 1;

	EVP_MD_CTX_free(ctx);
	ERR_clear_error();
	return good;
}
