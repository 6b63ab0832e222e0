// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/server.h"

#include <arpa/inet.h>
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

void server_client_find(void)
{
	char file[600] = "";
	char *end;
	int i;

	ck_assert_int_gt(readlink("/proc/self/exe", file, sizeof(file) - 40), 0);
	for (i = 0; i < 3; i++) {
		end = strrchr(file, '/');
		ck_assert_ptr_nonnull(end);
		*end = '\0';
	}
	strcat(file, "/libfoundry-registry.so.0.2");
	ck_assert(!setenv("FOUNDRY_REGISTRY_LIBRARY", file, 1));
}
