/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certs.h - the CA and the client's certificate for a registry.
 *
 * FOUNDRY_REGISTRY_CA, _CERT and _KEY; without the first two, the files *.crt (a CA), *.cert and
 * *.key of the folder certs.d/HOST of containers (in XDG_CONFIG_HOME, then in /etc) or of Docker
 * (in /etc). The system's CAs count as well. A libcurl of a distribution knows where they are. For
 * one that was built without such a place, they are in SSL_CERT_FILE and SSL_CERT_DIR, or else in
 * the places of the usual distributions. With a CA of its own, only those of the folder count.
 */
#ifndef FDRY_REGISTRY_CERTS_H
#define FDRY_REGISTRY_CERTS_H

#include "registry/client/http.h"

/* Set h->ca, h->cert, h->key and the system's places. FDRY_E_ENV if a file that a variable names
 * cannot be read. */
int fdry_http_certs_find(struct fdry_http *h) __must_check;

#endif
