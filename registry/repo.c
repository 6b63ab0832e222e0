// SPDX-License-Identifier: Apache-2.0
/* repo.c - lists the tags of repositories, and removes images from them; see foundry/registry.h. */
#include <stdlib.h>

#include "lib/opts.h"
#include "registry/name.h"
#include "registry/registry.h"

/* The options, with their defaults. */
static int opts_read(const struct fdry_repo_opts *opts, struct fdry_repo_opts *ret)
{
	struct fdry_registry_opts checked, plain = { .sz = sizeof(plain) };
	int err = fdry_opts_take(opts, ret, sizeof(*ret));

	if (err)
		return err;
	if (ret->flags & ~(uint32_t)(FDRY_REPO_DRY_RUN | FDRY_REPO_PLAIN_HTTP))
		return fdry_fail(FDRY_E_OPTS,
				 "the options have flags %#x, which this library does not know",
				 ret->flags);
	plain.requests = ret->requests;
	err = fdry_registry_opts_take(&plain, &checked);
	ret->requests = checked.requests;
	return err;
}

/* The name of a whole repository has no tag. */
static int whole_check(const char *name)
{
	const char *slash = strrchr(name, '/');

	if (slash && !strpbrk(slash, ":@"))
		return 0;
	return fdry_fail(FDRY_E_INVAL, "'%.200s' names one image; give the repository, without a "
			 "tag or digest", name);
}

static int repo_call(const char *name, enum fdry_repo_mode mode, const struct fdry_repo_opts *opts,
		     struct fdry_repo_report *report)
{
	struct fdry_repo_report done = { .tags = 0 };
	const struct fdry_registry_client *client;
	struct fdry_registry_name parsed;
	struct fdry_repo_opts own;
	const struct fdry_repo_call call = { .mode = mode, .opts = &own };
	int given, err = fdry_need(name) ?: fdry_report_check(report) ?: opts_read(opts, &own) ?:
		  fdry_registry_name_parse(name, &parsed) ?:
		  (mode == FDRY_REPO_UNPUSH ? 0 : whole_check(name)) ?:
		  fdry_registry_open(&client);

	if (err)
		return err;
	err = client->repo(name, &call, &done);
	err = fdry_registry_result(client, err, 0);
	given = fdry_report_give(&done, sizeof(done), report);
	return err ?: given;
}

int fdry_repo_tags(const char *from, const struct fdry_repo_opts *opts,
		   struct fdry_repo_report *report)
{
	return repo_call(from, FDRY_REPO_TAGS, opts, report);
}

int fdry_repo_unpush(const char *name, const struct fdry_repo_opts *opts,
		     struct fdry_repo_report *report)
{
	return repo_call(name, FDRY_REPO_UNPUSH, opts, report);
}

int fdry_repo_prune(const char *from, const struct fdry_repo_opts *opts,
		    struct fdry_repo_report *report)
{
	int err = fdry_need(opts);

	if (!err && (!opts->count_keep || !opts->keep))
		err = fdry_fail(FDRY_E_INVAL, "no tag would be kept; give the patterns of those "
				"to keep");
	return err ?: repo_call(from, FDRY_REPO_PRUNE, opts, report);
}
