// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/server.h"

#include <arpa/inet.h>
#include <check.h>
#include <pthread.h>
#include <sys/socket.h>

int server_start(void *(*serve)(void *))
{
	static int listener;
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	pthread_t thread;

	listener = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert(!bind(listener, (void *)&at, sizeof(at)) && !listen(listener, 8) &&
		  !getsockname(listener, (void *)&at, &len));
	ck_assert(!pthread_create(&thread, NULL, serve, &listener));
	return ntohs(at.sin_port);
}
