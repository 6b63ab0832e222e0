/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - one try of a request, as libcurl sees it. */
#ifndef FDRY_REGISTRY_TRANSFER_H
#define FDRY_REGISTRY_TRANSFER_H

#include "registry/client/http.h"

/* Begin to transfer. The bytes of an earlier try stay if the request can go on behind them. */
int fdry_transfer_begin(struct fdry_http *h, struct fdry_http_req *r) __must_check;
/* Turn the end of a transfer, @code, into a result: 0 if there is an answer, with r->status set.
 * @passes: whether the failure may pass. */
int fdry_transfer_end(struct fdry_http *h, struct fdry_http_req *r, CURLcode code,
		      bool *passes) __must_check;

#endif
