// SPDX-License-Identifier: Apache-2.0
/* certs.c - finds the CA and the client's certificate for a registry; see certs.h. */
#include "registry/client/certs.h"

#include <fcntl.h>
#include <unistd.h>

#include "lib/config.h"
#include "lib/file.h"
#include "registry/client/places.h"

#define SUFFIXES 3

static const char *const suffixes[SUFFIXES] = { ".crt", ".cert", ".key" };

static bool ends_with(const char *name, const char *suffix)
{
	size_t len = strlen(name), n = strlen(suffix);

	return len > n && !strcmp(name + len - n, suffix);
}

/* The first of each kind by name. */
static void names_select(struct fdry_names *list, char selected[SUFFIXES][NAME_MAX + 1])
{
	const char *name;
	int i;

	while ((name = fdry_names_next(list)))
		for (i = 0; i < SUFFIXES; i++)
			if (ends_with(name, suffixes[i]) &&
			    (!selected[i][0] || strcmp(name, selected[i]) < 0))
				snprintf(selected[i], sizeof(selected[i]), "%s", name);
}

/* Append the paths of the selected files, each with its terminator; a missing one is empty. */
static int paths_put(struct fdry_buf *to, const char *folder, char selected[SUFFIXES][NAME_MAX + 1])
{
	int i, err = 0;

	for (i = 0; i < SUFFIXES && !err; i++) {
		err = selected[i][0] ? fdry_buf_printf(to, "%s/%s", folder, selected[i]) : 0;
		err = err ?: fdry_buf_put(to, "", 1);
	}
	return err;
}

/* @found: whether the folder has any. A folder that does not exist has none. */
static int folder_look(struct fdry_http *h, const char *folder, bool *found)
{
	char selected[SUFFIXES][NAME_MAX + 1] = { "" };
	struct fdry_names list;

	if (fdry_names_open(AT_FDCWD, folder, 0, &list))
		return 0;
	names_select(&list, selected);
	if (fdry_names_close(&list))
		return 0;
	*found = selected[0][0] || selected[1][0];
	return *found ? paths_put(&h->certs, folder, selected) : 0;
}

static int folders_look(struct fdry_http *h, bool *found)
{
	const char *const etc[] = { "/etc/containers/certs.d", "/etc/docker/certs.d" };
	struct fdry_buf path = { 0 };
	size_t i;
	int err = fdry_registry_config_place("containers/certs.d", &path);

	for (i = 0; !err && !*found && i <= sizeof(etc) / sizeof(etc[0]); i++) {
		if (i) {
			path.len = 0;
			err = fdry_buf_printf(&path, "%s", etc[i - 1]);
		}
		if (!path.len)
			continue;
		err = err ?: fdry_buf_printf(&path, "/%s", h->name.host) ?:
		      fdry_buf_put(&path, "", 1);
		err = err ?: folder_look(h, (const char *)path.data, found);
	}
	fdry_buf_release(&path);
	return err;
}

static const char *next_path(const char **at)
{
	const char *path = *at;

	*at += strlen(path) + 1;
	return *path ? path : NULL;
}

static int readable(const char *name, const char *path)
{
	if (!path || !access(path, R_OK))
		return 0;
	return fdry_fail(FDRY_E_ENV, "%s is '%s', which cannot be read; name a file in PEM format",
			 name, path);
}

static const char *const system_files[] = {
	"/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Alpine, Arch */
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* Fedora, Red Hat */
	"/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora before 42 */
	"/etc/ssl/ca-bundle.pem",                            /* SUSE */
	"/etc/ssl/cert.pem",                                 /* Alpine without ca-certificates */
	NULL
};
static const char *const system_folders[] = {
	"/etc/ssl/certs", "/etc/pki/ca-trust/extracted/pem/directory-hash", NULL
};

static const char *first_readable(const char *const *paths)
{
	while (*paths && access(*paths, R_OK))
		paths++;
	return *paths;
}

static int system_find(struct fdry_http *h)
{
	const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);
	int err;

	if (info->age >= CURLVERSION_SEVENTH && (info->cainfo || info->capath))
		return 0;
	err = fdry_config_path(FDRY_CONFIG_SSL_CERT_FILE, &h->system_ca) ?:
	      fdry_config_path(FDRY_CONFIG_SSL_CERT_DIR, &h->system_folder) ?:
	      readable("SSL_CERT_FILE", h->system_ca);
	if (!h->system_ca)
		h->system_ca = first_readable(system_files);
	if (!h->system_folder)
		h->system_folder = first_readable(system_folders);
	return err;
}

int fdry_http_certs_find(struct fdry_http *h)
{
	bool found = false;
	const char *at;
	int err = system_find(h) ?: fdry_config_path(FDRY_CONFIG_REGISTRY_CA, &h->ca);

	/* A mirror must not learn who this client is at the registry itself. */
	if (!err && !h->opts.mirror)
		err = fdry_config_path(FDRY_CONFIG_REGISTRY_CERT, &h->cert) ?:
		      fdry_config_path(FDRY_CONFIG_REGISTRY_KEY, &h->key);
	if (err)
		return err;
	if (h->ca || h->cert)
		return readable("FOUNDRY_REGISTRY_CA", h->ca) ?:
		       readable("FOUNDRY_REGISTRY_CERT", h->cert) ?:
		       readable("FOUNDRY_REGISTRY_KEY", h->key);
	err = folders_look(h, &found);
	if (err || !found)
		return err;
	at = (const char *)h->certs.data;
	h->ca = next_path(&at);
	h->cert = next_path(&at);
	h->key = next_path(&at);
	return 0;
}
