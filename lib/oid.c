// SPDX-License-Identifier: Apache-2.0
/* oid.c - SHA-256 by libcrypto, which uses the CPU's own instructions; see oid.h. */
#include "lib/oid.h"

#include <openssl/evp.h>
#include <pthread.h>

static int hash_failed(void)
{
	return fdry_fail(FDRY_E_NOMEM,
			 "libcrypto could not compute a SHA-256; free memory and try again");
}

#ifdef OPENSSL_IS_AWSLC
/* AWS-LC, another libcrypto, has constant tables of its functions, and looks nothing up. */
static const EVP_MD *sha256(void)
{
	return EVP_sha256();
}
#else
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256_found;

static void sha256_find(void)
{
	sha256_found = EVP_MD_fetch(NULL, "SHA256", NULL);
}

/* Looked up once: EVP_sha256() looks it up for every hash, under locks on which threads wait. */
static const EVP_MD *sha256(void)
{
	(void)pthread_once(&sha256_once, sha256_find);
	return sha256_found ? sha256_found : EVP_sha256();
}
#endif

int fdry_oid_of(const void *data, size_t len, struct fdry_oid *ret)
{
	unsigned int n = 0;

	if (!EVP_Digest(data, len, ret->b, &n, sha256(), NULL) || n != FDRY_OID_SIZE)
		return hash_failed();
	return 0;
}

char *fdry_oid_hex(const struct fdry_oid *oid, char hex[FDRY_OID_HEX_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	int i;

	for (i = 0; i < FDRY_OID_SIZE; i++) {
		hex[2 * i] = digits[oid->b[i] >> 4];
		hex[2 * i + 1] = digits[oid->b[i] & 15];
	}
	hex[2 * i] = '\0';
	return hex;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int fdry_oid_parse(const char *hex, struct fdry_oid *ret)
{
	struct fdry_oid oid;
	int i, hi, lo;

	if (strlen(hex) != 2 * FDRY_OID_SIZE)
		goto bad;
	for (i = 0; i < FDRY_OID_SIZE; i++) {
		hi = hex_digit(hex[2 * i]);
		lo = hex_digit(hex[2 * i + 1]);
		if (hi < 0 || lo < 0)
			goto bad;
		oid.b[i] = (uint8_t)(hi << 4 | lo);
	}
	*ret = oid;
	return 0;
bad:
	return fdry_fail(FDRY_E_INVAL,
			 "'%.80s' is not an object id; give 64 lower-case hexadecimal digits", hex);
}

int fdry_hash_update(struct fdry_hash *h, const void *data, size_t len)
{
	if (!h->ctx) {
		h->ctx = EVP_MD_CTX_new();
		if (!h->ctx || !EVP_DigestInit_ex(h->ctx, sha256(), NULL))
			goto failed;
	}
	if (EVP_DigestUpdate(h->ctx, data, len))
		return 0;
failed:
	fdry_hash_release(h);
	return hash_failed();
}

int fdry_hash_final(struct fdry_hash *h, struct fdry_oid *ret)
{
	unsigned int n = 0;
	int ok, err = 0;

	if (!h->ctx)
		err = fdry_hash_update(h, "", 0);
	if (err)
		return err;
	ok = EVP_DigestFinal_ex(h->ctx, ret->b, &n);
	fdry_hash_release(h);
	return ok && n == FDRY_OID_SIZE ? 0 : hash_failed();
}

void fdry_hash_release(struct fdry_hash *h)
{
	EVP_MD_CTX_free(h->ctx);
	h->ctx = NULL;
}
