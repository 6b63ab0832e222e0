// SPDX-License-Identifier: Apache-2.0
/*
 * complete.c - prints the words that a shell may offer next; see completion.bash, .zsh and .fish.
 *
 * The operands are the words that were typed after foundry-store; the last of them is unfinished
 * and may be empty. One candidate is printed per line; the line ":files" means names of files. With
 * --long, a tab and a description follow commands and options.
 * Errors are not printed: a shell has nowhere to show them.
 */
#include "api/cmd/cmd.h"

#include <stdlib.h>
#include <string.h>

#include "image/manifest.h"

#define SHOWN 16 /* digits of an id */

struct typed {
	const struct cmd *cmd;     /* NULL: not typed yet */
	const char *store, *image; /* NULL: not typed */
	const char *cur;           /* the unfinished word */
	int operands;              /* before @cur */
	const char *arg;           /* @cur is an option's argument of this kind; else NULL */
	bool lost;                 /* the command does not exist */
	bool described;
	struct fdry_store *s;
	char offered[FDRY_REF_NAME_MAX + 1]; /* the last name that was printed */
};

static void offer_described(const struct typed *t, const char *word, const char *about)
{
	if (strncmp(word, t->cur, strlen(t->cur)) != 0)
		return;
	if (about && t->described)
		printf("%s\t%s\n", word, about);
	else
		puts(word);
}

static void offer(const struct typed *t, const char *word)
{
	offer_described(t, word, NULL);
}

/* Returns the option that @word is, CMD_OPT_COUNT if none; of a cluster of letters, the last. */
static int option_of(const char *word)
{
	bool is_long = word[0] == '-' && word[1] == '-';
	int i;

	for (i = 0; i < CMD_OPT_COUNT; i++)
		if (is_long ? !strcmp(word + 2, cmd_options[i].name)
			    : word[0] == '-' && word[1] &&
				      word[strlen(word) - 1] == cmd_options[i].letter)
			break;
	return i;
}

static void operand_typed(struct typed *t, const char *word)
{
	if (!t->cmd) {
		t->cmd = cmd_find(word);
		t->lost |= !t->cmd;
		return;
	}
	t->operands++;
	if (t->operands == 1)
		t->image = word;
}

static void read_words(struct typed *t, int argc, char **argv)
{
	int i, option;

	t->cur = argc ? argv[argc - 1] : "";
	for (i = 0; i < argc - 1; i++) {
		option = option_of(argv[i]);
		if (option < CMD_OPT_COUNT && cmd_options[option].arg) {
			t->arg = i + 2 == argc ? cmd_options[option].arg : NULL;
			i++;
			if (option == CMD_OPT_STORE && i < argc - 1)
				t->store = argv[i];
		} else if (!strncmp(argv[i], "--store=", 8)) {
			t->store = argv[i] + 8;
		} else if (argv[i][0] != '-') {
			operand_typed(t, argv[i]);
		}
	}
}

/* A name is printed once, even if it holds several images. */
static int offer_ref(void *arg, const struct fdry_ref *ref)
{
	struct typed *t = arg;

	if (strcmp(t->offered, ref->name))
		offer(t, ref->name);
	memcpy(t->offered, ref->name, sizeof(t->offered));
	return 0;
}

static int offer_image(void *arg, const struct fdry_object_info *info)
{
	char hex[FDRY_OID_HEX_SIZE];

	(void)arg;
	if (info->kinds & 1u << FDRY_OBJECT_MANIFEST)
		printf("%.*s\n", SHOWN, fdry_oid_hex(&info->oid, hex));
	return 0;
}

static int offer_object(void *arg, const struct fdry_object_info *info)
{
	char hex[FDRY_OID_HEX_SIZE];

	(void)arg;
	printf("%.*s\n", SHOWN, fdry_oid_hex(&info->oid, hex));
	return 0;
}

/* Ids are offered from four digits on, so an empty word offers names alone. */
static void offer_ids(const struct typed *t, fdry_object_fn fn)
{
	size_t len = strlen(t->cur);

	if (len >= 4 && len <= SHOWN && strspn(t->cur, "0123456789abcdef") == len &&
	    fdry_store_prefix(t->s, t->cur, fn, NULL))
		return;
}

static void offer_keys(const struct typed *t)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_reader *reader;
	struct fdry_oid oid;
	char text[24];
	uint32_t i;

	if (!t->image || fdry_reader_begin(t->s, &reader))
		return;
	if (!fdry_reader_resolve(reader, t->image, &oid) &&
	    !fdry_reader_copy(reader, &oid, &bytes) &&
	    !fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m))
		for (i = 0; i < m.n_graphs; i++) {
			snprintf(text, sizeof(text), "%llu", (unsigned long long)m.graphs[i].key);
			offer(t, text);
		}
	fdry_buf_release(&bytes);
	fdry_reader_end(reader);
}

static void offer_commands(const struct typed *t)
{
	size_t i;

	for (i = 0; i < cmd_count; i++)
		if (cmd_list[i].group != CMD_GROUP_HIDDEN)
			offer_described(t, cmd_list[i].name, cmd_list[i].summary);
}

static void offer_options(const struct typed *t)
{
	uint64_t takes = t->cmd ? cmd_options_of(t->cmd) : CMD_EVERYWHERE;
	char word[40];
	int i;

	for (i = 0; i < CMD_OPT_COUNT; i++) {
		snprintf(word, sizeof(word), "--%s", cmd_options[i].name);
		if (takes >> i & 1)
			offer_described(t, word, cmd_options[i].help);
	}
}

/* Names and ids in the store. */
static void offer_stored(struct typed *t, enum cmd_operand operand)
{
	if (fdry_store_open(t->store, FDRY_STORE_READONLY, &t->s))
		return;
	if (operand == CMD_OPERAND_KEY)
		offer_keys(t);
	else if (fdry_ref_each(t->s, offer_ref, t))
		offer(t, "");
	if (operand == CMD_OPERAND_IMAGE)
		offer_ids(t, offer_image);
	if (operand == CMD_OPERAND_OBJECT)
		offer_ids(t, offer_object);
	fdry_store_close(t->s);
}

static void offer_operand(struct typed *t, enum cmd_operand operand)
{
	switch (operand) {
	case CMD_OPERAND_IMAGE:
	case CMD_OPERAND_OBJECT:
	case CMD_OPERAND_REF:
	case CMD_OPERAND_PATTERN:
	case CMD_OPERAND_KEY:
		offer_stored(t, operand);
		break;
	case CMD_OPERAND_DIR:
	case CMD_OPERAND_FILE:
	case CMD_OPERAND_SOURCE:
		puts(":files");
		break;
	case CMD_OPERAND_COMMAND:
		offer_commands(t);
		break;
	default:
		break;
	}
}

/* "text|dot|svg", or an operand's word. */
static void offer_argument(struct typed *t)
{
	enum cmd_operand operand = cmd_operand_of(t->arg, strlen(t->arg));
	char word[32];
	const char *p;
	size_t n;

	if (operand != CMD_OPERAND_NONE) {
		offer_operand(t, operand);
		return;
	}
	for (p = t->arg; *p; p += n + (p[n] == '|')) {
		n = strcspn(p, "|");
		if ('A' <= *p && *p <= 'Z')
			continue; /* it stands for other words */
		snprintf(word, sizeof(word), "%.*s", (int)n, p);
		offer(t, word);
	}
}

int cmd_complete(const struct cmd_args *a, struct fdry_store *s)
{
	struct typed t = { .described = cmd_has(a, LONG) };

	(void)s;
	read_words(&t, a->argc, a->argv);
	if (t.lost)
		return CMD_OK;
	if (t.arg)
		offer_argument(&t);
	else if (t.cur[0] == '-')
		offer_options(&t);
	else if (!t.cmd)
		offer_commands(&t);
	else
		offer_operand(&t, cmd_operand_at(t.cmd, t.operands));
	return CMD_OK;
}
