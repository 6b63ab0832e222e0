/* SPDX-License-Identifier: Apache-2.0 */
/* server.h - a server of this machine alone, for tests of the registry's client. */
#ifndef FDRY_TESTS_LIB_SERVER_H
#define FDRY_TESTS_LIB_SERVER_H

/* Listen at a free port, and run @serve in a thread, with a pointer to the listening descriptor.
 * Returns the port. */
int server_start(void *(*serve)(void *));

/* Let the library use the client that was built with this program. */
void server_client_find(void);

#endif
