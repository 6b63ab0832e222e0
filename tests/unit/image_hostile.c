// SPDX-License-Identifier: Apache-2.0
/* Unit tests of images with correct hashes that no seal would make: loads refuse them, and allocate
 * no more memory than is allowed for what is stored. */
#include "graph/elf.h"
#include "graph/graph.h"
#include "tests/lib/handmade.h"

static void setup(void)
{
	dir_setup_in("/dev/shm");
}

/* --- kernel objects --- */

/* Make an image of one kernel with these bytes as its object. */
static void kernel_image(const char *ref, const void *object, size_t len)
{
	struct handmade h;

	handmade_begin(&h);
	handmade_object(&h, object, len);
	handmade_add(&h, kernels, { .name = handmade_str(&h, "k"), .attrs = { 0, -1, 0, 0 } });
	handmade_install(&h, ref);
}

START_TEST(kernel_objects_that_lie)
{
	const struct fdry_elf_ehdr far = { .ident = { 0x7f, 'E', 'L', 'F', 2, 1, 1 },
					   .type = FDRY_ET_DYN, .machine = 62, .version = 1,
					   .shoff = 0x30000000, .ehsize = 64, .shentsize = 64,
					   .shnum = 8 };
	const uint64_t wrapper[] = { 0x1466243b1, 0x4141414141414000, 0 };
	struct {
		const char *ref;
		const void *data;
		size_t len;
	} objects[] = {
		{ "text", ".version 7.0", 12 },
		{ "far", &far, sizeof(far) },
		{ "short",
		  "\x7f"
		  "EL",
		  3 },
		{ "wrapper", wrapper, 24 },
	};
	struct fdry_image *img;
	size_t i;

	for (i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
		kernel_image(objects[i].ref, objects[i].data, objects[i].len);
		fails(BADCODE,
		      "kernel 0 k: ", fdry_image_load(load_store(), objects[i].ref, NULL, &img));
	}
}
END_TEST

/* --- files --- */

static int file_fn(void *arg, const struct fdry_file *f)
{
	(void)f;
	++*(unsigned int *)arg;
	return 0;
}

/* The manifest's sizes limit what a reader allocates for files, so objects must have them. */
START_TEST(file_pieces_that_lie)
{
	static const struct {
		const char *ref;
		uint64_t size; /* the object has 4 bytes */
		int err;
	} pieces[] = { { "less", 3, -FDRY_E_BADIMAGE }, { "more", 5, -FDRY_E_BADIMAGE },
		       { "equal", 4, 0 } };
	struct handmade h;
	unsigned int n;
	size_t i;

	for (i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		handmade_begin(&h);
		handmade_add(&h, files,
			     { .name = handmade_str(&h, "a"), .size = pieces[i].size,
			       .oid = put(h.writer, FDRY_OBJECT_CHUNK, "code", 4) });
		handmade_install(&h, pieces[i].ref);
		n = 0;
		ck_assert_int_eq(fdry_image_files(load_store(), pieces[i].ref, file_fn, &n),
				 pieces[i].err);
		ck_assert_uint_eq(n, !pieces[i].err);
		if (pieces[i].err)
			ck_assert_ptr_nonnull(strstr(fdry_last_error(), "file 'a': a piece has 4"));
	}
}
END_TEST

/* --- more than is stored --- */

#define MANY 400000u /* a reader with quadratic time would not end */

static struct fdry_image *image;

static int load(const char *ref)
{
	return fdry_image_load(load_store(), ref, NULL, &image);
}

static void host_image(const char *ref, uint64_t bytes)
{
	struct handmade h;

	handmade_begin(&h);
	handmade_add(&h, hosts, { .size = bytes, .align = 256 });
	handmade_install(&h, ref);
}

START_TEST(host_memory_is_limited)
{
	host_image("huge", 1ull << 40);
	host_image("small", 1u << 20);
	fails(LIMIT, "set FOUNDRY_LOAD_MEMORY", load("huge"));
	ok(load("small"));
	fdry_image_unload(image);
	ok(setenv("FOUNDRY_LOAD_MEMORY", "1048575", 1));
	fails(LIMIT, "1048575 bytes", load("small"));
	ok(setenv("FOUNDRY_LOAD_MEMORY", "1M", 1));
	ok(load("small"));
	fdry_image_unload(image);
	ok(setenv("FOUNDRY_LOAD_MEMORY", "0", 1));
	ok(load("small"));
	fdry_image_unload(image);
	ok(setenv("FOUNDRY_LOAD_MEMORY", "much", 1));
	fails(ENV, "FOUNDRY_LOAD_MEMORY", load("small"));
}
END_TEST

/* Objects of zeros need almost no space on disk: their size is checked before they are unpacked. */
START_TEST(unpacked_objects_are_limited)
{
	const size_t len = 8u << 20;
	uint8_t *zeros = calloc(1, len);
	struct handmade h;
	int i;

	handmade_begin(&h);
	for (i = 0; i < 4; i++) {
		zeros[0] = (uint8_t)i;
		handmade_object(&h, zeros, len);
	}
	handmade_install(&h, "zeros");
	free(zeros);
	ok(setenv("FOUNDRY_LOAD_MEMORY", "31M", 1));
	fails(LIMIT, "kernels and graphs", load("zeros"));
	ok(setenv("FOUNDRY_LOAD_MEMORY", "32M", 1));
	ok(load("zeros"));
	fdry_image_unload(image);
}
END_TEST

static struct fdry_oid graph_put(struct handmade *h, uint32_t nodes)
{
	struct fdry_buf text = { 0 }, bytes = { 0 };
	struct fdry_oid oid;
	uint32_t i;

	ok(fdry_buf_printf(&text, "foundry-graph 1\n"));
	for (i = 0; i < nodes; i++)
		if (fdry_buf_printf(&text, "node %u empty\n", i))
			ck_abort_msg("%s", fdry_last_error());
	ok(fdry_graph_from_text((struct fdry_span){ text.data, text.len }, &bytes));
	oid = put(h->writer, FDRY_OBJECT_GRAPH, bytes.data, bytes.len);
	fdry_buf_release(&text);
	fdry_buf_release(&bytes);
	return oid;
}

/* The object of 2,000 graphs, of 300 KB, is read once: the load uses a tenth of the memory of 2,000
 * copies. Each graph can be launched. */
START_TEST(graphs_share_their_object)
{
	struct handmade h;
	struct fdry_oid oid;
	uint64_t key;

	handmade_begin(&h);
	oid = graph_put(&h, 300000);
	for (key = 0; key < 2000; key++)
		handmade_add(&h, graphs, { .key = key, .nodes = 300000, .oid = oid });
	handmade_install(&h, "shared");
	ok(setenv("FOUNDRY_LOAD_MEMORY", "60M", 1));
	ok(load("shared"));
	fdry_image_unload(image);
	handmade_begin(&h);
	oid = graph_put(&h, 3);
	handmade_add(&h, graphs, { .key = 1, .nodes = 3, .oid = oid });
	handmade_add(&h, graphs, { .key = 2, .nodes = 3, .oid = oid });
	handmade_install(&h, "two");
	ok(load("two"));
	ok(fdry_image_launch(image, 2, NULL));
	ok(fdry_image_launch(image, 1, NULL));
	fdry_image_unload(image);
	handmade_begin(&h);
	oid = graph_put(&h, 3);
	handmade_add(&h, graphs, { .key = 1, .nodes = 3, .oid = oid });
	handmade_add(&h, graphs, { .key = 2, .nodes = 4, .oid = oid });
	handmade_install(&h, "differ");
	fails(BADIMAGE, "graph 2: it has 3 nodes, but 4 in the manifest", load("differ"));
}
END_TEST

/* A list of kernels is read in a time that grows with its length, whatever they are. */
START_TEST(many_kernels)
{
	struct handmade h;
	uint32_t i, name;
	size_t len;
	void *code = test_sim_cubin("kernels", &len);

	handmade_begin(&h);
	handmade_object(&h, code, len);
	name = handmade_str(&h, "vecadd");
	for (i = 0; i < MANY; i++)
		handmade_add(&h, kernels, { .name = name, .attrs = { 0, -1, (int32_t)i, 0 } });
	handmade_install(&h, "attrs");
	fails(LIMIT, "kernel vecadd has more than 256 sets of attributes", load("attrs"));
	handmade_begin(&h);
	handmade_object(&h, code, len);
	name = handmade_str(&h, "nobody");
	for (i = 0; i < MANY; i++)
		handmade_add(&h, kernels, { .name = name, .attrs = { 0, -1, 0, 0 } });
	handmade_install(&h, "same");
	fails(BADIMAGE, "no kernel of that name", load("same"));
	free(code);
}
END_TEST

/* Test manifests whose entries share segments, chunks or objects. */
static int opened(struct handmade *h)
{
	struct fdry_manifest m;
	struct fdry_buf bytes;
	int err;

	handmade_bytes(h, &bytes);
	err = fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m);
	fdry_buf_release(&bytes);
	fdry_manifest_writer_release(&h->w);
	memset(h, 0, sizeof(*h));
	return err;
}

START_TEST(shared_text_is_limited)
{
	struct handmade h = { 0 };
	char *text = malloc((1u << 20) + 1), key[16];
	uint32_t i, value;

	memset(text, 'A', 1u << 20);
	text[1u << 20] = 0;
	value = handmade_str(&h, text);
	for (i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "f%07u", i);
		handmade_add(&h, facts, { handmade_str(&h, key), value });
	}
	fails(LIMIT, "more than 16 times the size of the manifest", opened(&h));
	value = handmade_str(&h, text);
	for (i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "f%07u", i);
		handmade_add(&h, facts, { handmade_str(&h, key), value });
	}
	ok(opened(&h));
	free(text);
}
END_TEST

START_TEST(parameters_are_not_shared)
{
	struct handmade h = { 0 };
	struct fdry_oid oid = { { 1 } };

	handmade_add(&h, objects, { oid });
	handmade_add(&h, params, { 0, 8 });
	handmade_add(&h, kernels,
		     { .name = handmade_str(&h, "k"), .param_count = 1, .param_bytes = 8 });
	handmade_add(&h, kernels,
		     { .name = handmade_str(&h, "l"), .param_count = 1, .param_bytes = 8 });
	fails(BADIMAGE, "kernel 1 shares its parameters", opened(&h));
}
END_TEST

/* Each tensor spans all segments. */
START_TEST(tensors_across_segments)
{
	const uint64_t base = 0x4fda00000000ull;
	struct handmade h = { 0 };
	uint32_t i, role;
	char name[16];

	for (role = FDRY_ROLE_CONTENT; role <= FDRY_ROLE_EXTERNAL; role++) {
		h.w.base = base;
		h.w.end = base + (uint64_t)MANY * 4096;
		for (i = 0; i < MANY; i++)
			handmade_add(&h, segments,
				     { .addr = base + (uint64_t)i * 4096, .size = 4096,
				       .role = i ? role : FDRY_ROLE_EXTERNAL });
		ok(fdry_buf_put(&h.w.strings, "", 1));
		for (i = 0; i < MANY / 4; i++) {
			struct fdry_mf_tensor t = { .dtype = FDRY_U8, .addr = base, .rank = 1,
						    .shape = { (int64_t)MANY * 4096 },
						    .stride = { 1 },
						    .name = (uint32_t)h.w.strings.len };

			t.flags = role == FDRY_ROLE_EXTERNAL || i + 1 == MANY / 4
					  ? FDRY_TENSOR_EXTERNAL
					  : 0;
			snprintf(name, sizeof(name), "t%07u", i);
			handmade_put(&h.w.strings, name, strlen(name) + 1);
			handmade_put(&h.w.tensors, &t, sizeof(t));
		}
		if (role == FDRY_ROLE_EXTERNAL)
			ok(opened(&h));
		else
			fails(BADIMAGE, "tensor 99999 does not lie in memory of its kind",
			      opened(&h));
	}
}
END_TEST

/* --- nothing at all --- */

static void look(const char *ref)
{
	struct fdry_requirements *needs = NULL;
	char *text = NULL;

	ok(fdry_image_describe(load_store(), ref, &text));
	ok(fdry_image_requirements(load_store(), ref, NULL, &needs));
	free(text);
	free(needs);
}

/* Each list of the image is empty once, since sums with NULL and copies of 0 bytes can be undefined
 * behaviour. */
START_TEST(lists_that_are_empty)
{
	size_t len;
	void *code = test_sim_cubin("kernels", &len);
	struct fdry_load_opts o = { .sz = sizeof(o), .flags =
					    FDRY_LOAD_VERIFY | FDRY_LOAD_POISON | FDRY_LOAD_BUILD };
	const char *const refs[] = { "facts", "host", "object", "kernel", "graph", "memory" };
	struct fdry_tensor t;
	struct handmade h;
	size_t i;

	handmade_begin(&h);
	handmade_install(&h, "facts");
	handmade_begin(&h);
	handmade_add(&h, hosts, { .size = 1, .align = 1 });
	handmade_install(&h, "host");
	handmade_begin(&h);
	handmade_object(&h, "", 0);
	handmade_install(&h, "object");
	handmade_begin(&h);
	handmade_object(&h, code, len);
	handmade_add(&h, kernels,
		     { .name = handmade_str(&h, "nothing"), .attrs = { 0, -1, 0, 0 } });
	handmade_install(&h, "kernel");
	handmade_begin(&h);
	handmade_add(&h, graphs, { .key = 0, .oid = graph_put(&h, 0) });
	handmade_install(&h, "graph");
	handmade_begin(&h);
	h.w.base = TEST_BASE;
	h.w.end = h.w.base + 4096;
	handmade_add(&h, segments, { .addr = h.w.base, .size = 4096, .role = FDRY_ROLE_CONTENT });
	handmade_add(&h, tensors,
		     { .name = handmade_str(&h, "nothing"), .dtype = FDRY_F32, .rank = 1,
		       .addr = h.w.base });
	handmade_install(&h, "memory");
	for (i = 0; i < sizeof(refs) / sizeof(refs[0]); i++) {
		look(refs[i]);
		ok(fdry_image_load(load_store(), refs[i], &o, &image));
		ok(fdry_image_restore(image, NULL));
		ck_assert_uint_eq(fdry_image_tensor_count(image), i == 5);
		if (i == 4)
			ok(fdry_image_launch(image, 0, NULL));
		if (i == 5) {
			ok(fdry_image_tensor_find(image, "nothing", &t));
			ok(fdry_image_read(image, "nothing", &t, 0, NULL));
			ok(fdry_image_write(image, "nothing", NULL, 0, NULL));
		}
		fdry_image_unload(image);
	}
	free(code);
}
END_TEST

/* A manifest that is only a header names no device, so it fits none. */
START_TEST(a_manifest_of_nothing)
{
	struct fdry_manifest_writer none = { 0 };
	struct handmade h;

	handmade_begin(&h);
	fdry_manifest_writer_release(&h.w);
	h.w = none;
	handmade_install(&h, "none");
	look("none");
	fails(IDENTITY, "does not state its GPU architecture", load("none"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_hostile");
	TCase *tc = tcase_create("hostile");

	tcase_add_checked_fixture(tc, setup, dir_teardown);
	tcase_add_test(tc, kernel_objects_that_lie);
	tcase_add_test(tc, file_pieces_that_lie);
	tcase_add_test(tc, host_memory_is_limited);
	tcase_add_test(tc, unpacked_objects_are_limited);
	tcase_add_test(tc, graphs_share_their_object);
	tcase_add_test(tc, many_kernels);
	tcase_add_test(tc, shared_text_is_limited);
	tcase_add_test(tc, parameters_are_not_shared);
	tcase_add_test(tc, tensors_across_segments);
	tcase_add_test(tc, lists_that_are_empty);
	tcase_add_test(tc, a_manifest_of_nothing);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(s, tc);
	return test_main(s);
}
