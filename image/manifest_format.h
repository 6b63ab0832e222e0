/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest_format.h - image manifests on disk; frozen.
 * Documentation/format/manifest.rst says what each byte means.
 *
 * A manifest is a header, a directory of sections, and the sections. Everything is little endian.
 * The sections come in the order of ids, each at the next multiple of 8. A section without entries
 * is left out. Padding and reserved bytes are zero. New data needs a new section or a new incompat
 * bit: no field ever changes its meaning, no number is used twice.
 */
#ifndef FDRY_IMAGE_MANIFEST_FORMAT_H
#define FDRY_IMAGE_MANIFEST_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "foundry.h"
#include "lib/fingerprint.h"
#include "lib/oid.h"
#include "lib/sections.h"
#include "graph/cuarray.h"
#include "graph/host.h"

#define FDRY_MF_MAGIC "FDRYIMG\x1a"
#define FDRY_MF_VERSION 1u
#define FDRY_MF_INCOMPAT_KNOWN 0u /* bits that this reader understands */

/* Limits: a size or count beyond them is refused before anything is computed from it. */
#define FDRY_MF_SIZE_MAX (1ull << 32)
#define FDRY_MF_SECTIONS_MAX 64u
#define FDRY_MF_CHUNK_MAX (2ull << 20) /* bytes of one chunk */
#define FDRY_MF_GRAPHS_MAX (1u << 20)
#define FDRY_MF_HOST_ALIGN_MAX 4096u
#define FDRY_MF_GENERATORS_MAX 256u /* so a graph has at most as many draws */
#define FDRY_MF_CAPACITIES_MAX 4096u
#define FDRY_MF_EXTENT_MAX (1u << 20) /* rows of a slice, slices of an array */
#define FDRY_MF_ARRAY_MAX (1ull << 40)
#define FDRY_MF_LEVELS_MAX 32u
#define FDRY_MF_FILES_MAX (1ull << 30) /* bytes of all files */
#define FDRY_MF_FILE_NAME_MAX 1024u
/* The most text of all entries, with a string counted for each entry that uses it: TEXT_TIMES times
 * the manifest's bytes, plus TEXT_FREE. */
#define FDRY_MF_TEXT_TIMES 16u
#define FDRY_MF_TEXT_FREE (16ull << 20)

struct fdry_mf_header {
	uint8_t magic[8];  /* FDRY_MF_MAGIC */
	uint32_t version;  /* FDRY_MF_VERSION */
	uint32_t sections; /* entries of the directory that follows */
	uint32_t incompat; /* an unknown bit: the reader must refuse the image */
	uint32_t compat;   /* an unknown bit: the reader ignores it */
	uint64_t size;     /* of the whole manifest, bytes; a multiple of 8 */
	uint64_t base;     /* first device address of the region, a multiple of 2 MiB */
	uint64_t end;      /* one past the last address that was allocated */
	uint8_t reserved[16];
};

/* Strings are offsets into the string section, each terminated; 0 is "". */

/* A fact about the program and device that the image was made for; by ascending key. */
struct fdry_mf_fact {
	uint32_t key;
	uint32_t value;
};

/* A range of device memory; ascending, not overlapping, inside [base, end). */
struct fdry_mf_segment {
	uint64_t addr;
	uint64_t size;     /* bytes, at least 1 */
	uint32_t role;     /* of enum fdry_role (mm/region.h) */
	uint32_t reserved;
};

/* A chunk of content; ascending, not overlapping, each inside a content segment. Content outside of
 * all chunks is zero. */
struct fdry_mf_chunk {
	uint64_t addr;
	uint64_t size;       /* bytes, at least 1, at most FDRY_MF_CHUNK_MAX */
	struct fdry_oid oid; /* of the chunk object */
};

/* A kernel object. */
struct fdry_mf_object {
	struct fdry_oid oid;
};

/* A parameter of a kernel, as struct fdry_param. */
struct fdry_mf_param {
	uint16_t offset;
	uint16_t size;
};

/* A kernel; graph objects name it by its index here. */
struct fdry_mf_kernel {
	uint32_t name;         /* entry name in its object */
	uint32_t object;       /* index into the objects */
	uint32_t param_first;  /* index of its first parameter */
	uint32_t param_count;  /* number of its parameters */
	uint32_t param_bytes;  /* of the parameter buffer */
	uint32_t whole_reason; /* why the object is a whole cubin; 0: it is a slice */
	int32_t attrs[4]; /* the first FDRY_MF_KERNEL_ATTRS of FDRY_FUNC_ATTRS; the last is zero */
};

#define FDRY_MF_KERNEL_ATTRS 3u

/* A further function attribute that is not 0; in ascending order of kernels, then ids. */
struct fdry_mf_attr {
	uint32_t kernel;   /* index into the kernels */
	uint32_t id;       /* as FDRY_FUNC_ATTRS, from FDRY_MF_KERNEL_ATTRS on */
	int32_t value;
	uint32_t reserved;
};

/* A graph, by ascending key. */
struct fdry_mf_graph {
	uint64_t key;
	uint32_t name;
	uint32_t nodes;
	struct fdry_oid oid;
};

/* A host segment: host memory that copies of the graphs read or write. Graph objects and tensors
 * name it by its index here. */
struct fdry_mf_host {
	uint64_t size;     /* bytes, at least 1, at most FDRY_HOST_SIZE_MAX */
	uint32_t align;	   /* of its first byte in the loading process: a power of two, at most
			      FDRY_MF_HOST_ALIGN_MAX */
	uint32_t reserved;
};

/* Content of a host segment, zeros included; ascending, not overlapping. */
struct fdry_mf_host_chunk {
	uint32_t segment;
	uint32_t reserved;
	uint64_t offset;
	uint64_t size;       /* bytes, at least 1, at most FDRY_MF_CHUNK_MAX */
	struct fdry_oid oid; /* of the chunk object */
};

/* A tensor, by ascending name. */
struct fdry_mf_tensor {
	uint32_t name;
	uint32_t dtype;  /* of enum fdry_dtype */
	uint32_t use;    /* of enum fdry_use */
	uint32_t flags;  /* of enum fdry_tensor_flags */
	uint32_t rank;
	uint32_t reserved;
	uint64_t addr;   /* of a host tensor its place (graph/host.h) */
	int64_t shape[FDRY_RANK_MAX];  /* zero beyond rank */
	int64_t stride[FDRY_RANK_MAX]; /* zero beyond rank */
};

/* The capacity of an external tensor, by ascending tensor: the @max bytes of addresses from its
 * first are reserved for it. The tensor ends its segment. */
struct fdry_mf_capacity {
	uint32_t tensor;   /* index into the tensors */
	uint32_t reserved;
	uint64_t max;      /* bytes, more than the tensor's; a multiple of 2 MiB */
};

/* A live allocation; in the order in which they were made. They lie anywhere in [base, end) and do
 * not overlap. */
struct fdry_mf_alloc {
	uint64_t addr;
	uint64_t size;     /* bytes, as the program requested, at least 1 */
};

/* A random number generator, whose state is a seed and an offset; by ascending name. */
struct fdry_mf_generator {
	uint32_t name;
	uint32_t kind;     /* FDRY_MF_GENERATOR_COUNTER */
};

/* The state is a seed and an offset, which counts the numbers drawn; 8 bytes each. */
#define FDRY_MF_GENERATOR_COUNTER 0u

/* One use of a generator by a graph; in ascending order of graphs, then generators. */
struct fdry_mf_rng_use {
	uint32_t graph;     /* index into the graphs */
	uint32_t generator; /* index into the generators */
	uint64_t seed;	    /* address of 8 bytes that the seed is written to before each launch, a
			       multiple of 8 */
	uint64_t offset;    /* the same for the offset */
	uint64_t increment; /* added to the offset by each launch */
};

/* A context limit that the kernels rely on: at least this much. */
struct fdry_mf_limit {
	uint32_t limit;    /* a CUlimit below FDRY_MF_LIMITS: CU_LIMIT_STACK_SIZE,
			      CU_LIMIT_PRINTF_FIFO_SIZE if a kernel prints, or
			      CU_LIMIT_MALLOC_HEAP_SIZE if a kernel allocates */
	uint32_t reserved;
	uint64_t value;
};

#define FDRY_MF_LIMITS 3u /* limits that a manifest may have */

/* A part of a variable of a kernel object, which a load writes; ascending objects, of each
 * ascending names and offsets, none across another. */
struct fdry_mf_variable {
	uint32_t object;     /* index into the objects */
	uint32_t name;
	uint64_t offset;     /* in the variable */
	uint64_t size;       /* bytes, at least 1, at most FDRY_MF_CHUNK_MAX */
	struct fdry_oid oid; /* of the chunk object */
};

/* An event of a graph that other graphs of the image use, too; ascending graphs, of each ascending
 * events. */
struct fdry_mf_event {
	uint32_t graph;    /* index into the graphs */
	uint32_t event;    /* index in the graph object */
	uint32_t number;   /* equal for one event; ascending from 0 in the order of first use */
	uint32_t reserved;
};

/* A module variable that pointers of the image point to; ascending objects, of each ascending
 * names. */
struct fdry_mf_target {
	uint32_t object; /* index into the objects */
	uint32_t name;
	uint64_t size;   /* bytes, at least 1 */
};

/* 8 bytes of a kernel node's arguments, which are zero in the graph object: a load makes them the
 * address of a byte of a target. Ascending graphs, nodes and places; none across another. */
struct fdry_mf_arg_pointer {
	uint32_t graph;  /* index into the graphs */
	uint32_t node;   /* index in the graph object */
	uint32_t at;     /* in the node's arguments */
	uint32_t target; /* index into the targets */
	uint64_t offset; /* in the target */
};

/* The same for 8 bytes of content, which are zero in the chunk; ascending addresses. */
struct fdry_mf_content_pointer {
	uint64_t addr;   /* a multiple of 8 */
	uint64_t offset; /* in the target */
	uint32_t target;
	uint32_t reserved;
};

/* The same for 8 bytes of a variable's value, which are zero in its chunk; ascending entries, of
 * each ascending places. */
struct fdry_mf_value_pointer {
	uint32_t variable; /* index into the variables */
	uint32_t target;
	uint64_t at;       /* in the variable, inside the entry */
	uint64_t offset;   /* in the target */
};

/* A pinned allocation: host memory that graphs use at its own address; ascending, apart. */
struct fdry_mf_pinned {
	uint64_t addr;
	uint64_t size;     /* bytes, as the program requested, at least 1 */
	uint32_t kind;     /* FDRY_MF_PINNED_... */
	uint32_t reserved;
};

#define FDRY_MF_PINNED_ALLOCATED 0u  /* allocated by the driver's functions, in a host area */
#define FDRY_MF_PINNED_REGISTERED 1u /* memory of the program, which it had registered */

/* A part of a pinned allocation that is no content; ascending, apart. */
struct fdry_mf_pinned_role {
	uint64_t addr;
	uint64_t size;     /* bytes, at least 1 */
	uint32_t role;     /* of enum fdry_role, never FDRY_ROLE_CONTENT */
	uint32_t reserved;
};

/* A chunk of a pinned allocation's content; ascending, apart. Content in no chunk is zero. */
struct fdry_mf_pinned_chunk {
	uint64_t addr;
	uint64_t size;       /* bytes, at least 1, at most FDRY_MF_CHUNK_MAX */
	struct fdry_oid oid; /* of the chunk object */
	struct fdry_fingerprint print;
};

/* A host segment that lies in a pinned allocation, at a fixed address; ascending segments. */
struct fdry_mf_host_place {
	uint32_t segment;  /* index into the host segments */
	uint32_t reserved;
	uint64_t addr;
};

/* A CUDA array. Graph objects name it by its index here. */
struct fdry_mf_array {
	uint32_t width;    /* elements of a row, at least 1 */
	uint32_t height;   /* rows; 0: it has no second dimension */
	uint32_t depth;    /* slices or layers; 0: it has no third dimension */
	uint32_t format;   /* a CUarray_format: 1 to 3, 8 to 10, 16 or 32 */
	uint32_t channels; /* of an element: 1, 2 or 4 */
	uint32_t flags;    /* CUDA_ARRAY3D_LAYERED, _SURFACE_LDST, _CUBEMAP, _TEXTURE_GATHER */
};

/* A mipmapped array, in the order in which the arrays first name it as theirs. */
struct fdry_mf_mipmap {
	struct fdry_mf_array top; /* level 0 */
	uint32_t levels;          /* as requested, 1 to FDRY_MF_LEVELS_MAX; the driver makes at
				     most as many as there can be */
	uint32_t reserved;
};

/* An array that is a level of a mipmapped array, whose shape follows from it; ascending arrays. */
struct fdry_mf_mipmap_level {
	uint32_t array;    /* index into the arrays */
	uint32_t mipmap;   /* index into the mipmapped arrays */
	uint32_t level;    /* below the number of levels; no other array is this level */
	uint32_t reserved;
};

/* A piece of an array's content (array_pieces.h); ascending arrays, of each ascending pieces. A
 * piece without an entry is zero. */
struct fdry_mf_array_piece {
	uint32_t array;      /* index into the arrays */
	uint32_t piece;
	struct fdry_oid oid; /* of the chunk object */
	struct fdry_fingerprint print;
};

/* The fingerprints of chunks have a section, and those of host chunks have another. Each has one
 * entry for each chunk, in the same order. Images of version 0.1 have neither. */

/* The fingerprint of an external tensor's content at the seal, in ascending order of tensors. */
struct fdry_mf_external_print {
	uint32_t tensor;   /* index into the tensors: external, with at least one byte */
	uint32_t reserved;
	struct fdry_fingerprint value; /* of the tensor's bytes, from its first byte */
};

/* A piece of a file; by ascending name, then by ascending offset. Each piece but the last of a file
 * has FDRY_MF_CHUNK_MAX bytes. Only an empty file has a piece without bytes, and its id is zero. */
struct fdry_mf_file {
	uint32_t name;
	uint32_t flags;      /* of enum fdry_file_flags; equal in all pieces */
	uint64_t offset;     /* in the file */
	uint64_t size;       /* bytes, at most FDRY_MF_CHUNK_MAX */
	struct fdry_oid oid; /* of the chunk object */
};

/* A result of a self-test; ascending graphs, then tensors. All entries have one seed. */
struct fdry_mf_selftest {
	uint32_t graph;    /* index into the graphs */
	uint32_t tensor;   /* index into the tensors; UINT32_MAX if the graph was left out */
	uint32_t flags;    /* FDRY_MF_SELFTEST_... */
	uint32_t reserved;
	uint64_t seed;     /* not 0 */
	struct fdry_fingerprint print; /* of the elements, row by row; zero if a flag is set */
};

#define FDRY_MF_SELFTEST_UNSTABLE 1u /* two replays had different results */
#define FDRY_MF_SELFTEST_LEFT_OUT 2u /* the graph was not replayed */

/* X(member, text): the targets of a word; see image/audit.h. */
#define FDRY_MF_AUDIT_TARGETS(X) \
	X(inside, "inside the image") \
	X(variables, "to module variables") \
	X(host, "to pinned host memory") \
	X(outside, "to memory of the region that the image does not hold") \
	X(none, "are no pointers")

/* The number of words with each target: of the arguments of a graph, one entry for each graph, in
 * their order; the last entry is that of content. */
struct fdry_mf_audit {
	uint32_t graph;    /* index into the graphs; FDRY_MF_AUDIT_CONTENT */
	uint32_t reserved;
#define X(member, text) uint64_t member;
	FDRY_MF_AUDIT_TARGETS(X)
#undef X
};

#define FDRY_MF_AUDIT_CONTENT UINT32_MAX
#define FDRY_MF_AUDIT_WORDS_MAX 16u /* entries of the next kind */

/* A word that points outside, the first of them in ascending order of graphs, nodes and places. */
struct fdry_mf_audit_word {
	uint32_t graph;    /* as above */
	uint32_t node;     /* index in the graph object; 0 in content */
	uint64_t at;       /* in the node's arguments, or an address of content; a multiple of 8 */
	uint64_t word;
};

/* X(id, NAME, member of view and writer, type of an entry) */
#define FDRY_MF_SECTIONS(X) \
	X(1, STRINGS, strings, char) \
	X(2, FACTS, facts, struct fdry_mf_fact) \
	X(3, LIMITS, limits, struct fdry_mf_limit) \
	X(4, SEGMENTS, segments, struct fdry_mf_segment) \
	X(5, CHUNKS, chunks, struct fdry_mf_chunk) \
	X(6, TENSORS, tensors, struct fdry_mf_tensor) \
	X(7, GRAPHS, graphs, struct fdry_mf_graph) \
	X(8, KERNELS, kernels, struct fdry_mf_kernel) \
	X(9, PARAMS, params, struct fdry_mf_param) \
	X(10, OBJECTS, objects, struct fdry_mf_object) \
	X(11, ATTRS, attrs, struct fdry_mf_attr) \
	X(12, HOSTS, hosts, struct fdry_mf_host) \
	X(13, HOST_CHUNKS, host_chunks, struct fdry_mf_host_chunk) \
	X(14, CAPACITIES, capacities, struct fdry_mf_capacity) \
	X(15, ALLOCS, allocs, struct fdry_mf_alloc) \
	X(16, GENERATORS, generators, struct fdry_mf_generator) \
	X(17, RNG_USES, rng_uses, struct fdry_mf_rng_use) \
	X(21, VARIABLES, variables, struct fdry_mf_variable) \
	X(22, EVENTS, events, struct fdry_mf_event) \
	X(24, TARGETS, targets, struct fdry_mf_target) \
	X(25, ARG_POINTERS, arg_pointers, struct fdry_mf_arg_pointer) \
	X(26, CONTENT_POINTERS, content_pointers, struct fdry_mf_content_pointer) \
	X(27, VALUE_POINTERS, value_pointers, struct fdry_mf_value_pointer) \
	X(28, PINNED, pinned, struct fdry_mf_pinned) \
	X(29, PINNED_ROLES, pinned_roles, struct fdry_mf_pinned_role) \
	X(30, PINNED_CHUNKS, pinned_chunks, struct fdry_mf_pinned_chunk) \
	X(31, HOST_PLACES, host_places, struct fdry_mf_host_place) \
	X(32, ARRAYS, arrays, struct fdry_mf_array) \
	X(33, ARRAY_PIECES, array_pieces, struct fdry_mf_array_piece) \
	X(34, MIPMAPS, mipmaps, struct fdry_mf_mipmap) \
	X(35, MIPMAP_LEVELS, mipmap_levels, struct fdry_mf_mipmap_level) \
	X(FDRY_SECTION_OPTIONAL + 18, FINGERPRINTS, fingerprints, struct fdry_fingerprint) \
	X(FDRY_SECTION_OPTIONAL + 19, HOST_FINGERPRINTS, host_fingerprints, \
	  struct fdry_fingerprint) \
	X(FDRY_SECTION_OPTIONAL + 20, EXTERNAL_PRINTS, external_prints, \
	  struct fdry_mf_external_print) \
	X(FDRY_SECTION_OPTIONAL + 23, FILES, files, struct fdry_mf_file) \
	X(FDRY_SECTION_OPTIONAL + 40, SELFTESTS, selftests, struct fdry_mf_selftest) \
	X(FDRY_SECTION_OPTIONAL + 41, AUDITS, audits, struct fdry_mf_audit) \
	X(FDRY_SECTION_OPTIONAL + 42, AUDIT_WORDS, audit_words, struct fdry_mf_audit_word)

#define FDRY_MF_FROZEN(type, size) _Static_assert(sizeof(struct type) == (size), #type " is frozen")
#define FDRY_MF_FROZEN_AT(type, field, at) \
	_Static_assert(offsetof(struct type, field) == (at), #type "." #field " is frozen")

FDRY_MF_FROZEN(fdry_mf_header, 64);
FDRY_MF_FROZEN_AT(fdry_mf_header, version, 8);
FDRY_MF_FROZEN_AT(fdry_mf_header, sections, 12);
FDRY_MF_FROZEN_AT(fdry_mf_header, incompat, 16);
FDRY_MF_FROZEN_AT(fdry_mf_header, compat, 20);
FDRY_MF_FROZEN_AT(fdry_mf_header, size, 24);
FDRY_MF_FROZEN_AT(fdry_mf_header, base, 32);
FDRY_MF_FROZEN_AT(fdry_mf_header, end, 40);
FDRY_MF_FROZEN(fdry_mf_fact, 8);
FDRY_MF_FROZEN(fdry_mf_segment, 24);
FDRY_MF_FROZEN_AT(fdry_mf_segment, role, 16);
FDRY_MF_FROZEN(fdry_mf_chunk, 48);
FDRY_MF_FROZEN_AT(fdry_mf_chunk, oid, 16);
FDRY_MF_FROZEN(fdry_mf_object, 32);
FDRY_MF_FROZEN(fdry_mf_param, 4);
FDRY_MF_FROZEN(fdry_mf_kernel, 40);
FDRY_MF_FROZEN_AT(fdry_mf_kernel, attrs, 24);
FDRY_MF_FROZEN(fdry_mf_attr, 16);
FDRY_MF_FROZEN(fdry_mf_graph, 48);
FDRY_MF_FROZEN_AT(fdry_mf_graph, oid, 16);
FDRY_MF_FROZEN(fdry_mf_tensor, 160);
FDRY_MF_FROZEN_AT(fdry_mf_tensor, addr, 24);
FDRY_MF_FROZEN_AT(fdry_mf_tensor, stride, 96);
FDRY_MF_FROZEN(fdry_mf_alloc, 16);
FDRY_MF_FROZEN(fdry_mf_limit, 16);
FDRY_MF_FROZEN(fdry_mf_generator, 8);
FDRY_MF_FROZEN(fdry_mf_rng_use, 32);
FDRY_MF_FROZEN_AT(fdry_mf_rng_use, seed, 8);
FDRY_MF_FROZEN_AT(fdry_mf_rng_use, increment, 24);
FDRY_MF_FROZEN(fdry_mf_capacity, 16);
FDRY_MF_FROZEN_AT(fdry_mf_capacity, max, 8);
FDRY_MF_FROZEN(fdry_mf_event, 16);
FDRY_MF_FROZEN(fdry_mf_target, 16);
FDRY_MF_FROZEN(fdry_mf_arg_pointer, 24);
FDRY_MF_FROZEN_AT(fdry_mf_arg_pointer, offset, 16);
FDRY_MF_FROZEN(fdry_mf_content_pointer, 24);
FDRY_MF_FROZEN_AT(fdry_mf_content_pointer, target, 16);
FDRY_MF_FROZEN(fdry_mf_value_pointer, 24);
FDRY_MF_FROZEN_AT(fdry_mf_value_pointer, at, 8);
FDRY_MF_FROZEN(fdry_mf_variable, 56);
FDRY_MF_FROZEN_AT(fdry_mf_variable, offset, 8);
FDRY_MF_FROZEN_AT(fdry_mf_variable, oid, 24);
FDRY_MF_FROZEN(fdry_mf_selftest, 40);
FDRY_MF_FROZEN_AT(fdry_mf_selftest, seed, 16);
FDRY_MF_FROZEN(fdry_mf_audit, 48);
FDRY_MF_FROZEN_AT(fdry_mf_audit, none, 40);
FDRY_MF_FROZEN(fdry_mf_audit_word, 24);
FDRY_MF_FROZEN_AT(fdry_mf_audit_word, word, 16);
FDRY_MF_FROZEN(fdry_mf_pinned, 24);
FDRY_MF_FROZEN_AT(fdry_mf_pinned, kind, 16);
FDRY_MF_FROZEN(fdry_mf_pinned_role, 24);
FDRY_MF_FROZEN_AT(fdry_mf_pinned_role, role, 16);
FDRY_MF_FROZEN(fdry_mf_pinned_chunk, 64);
FDRY_MF_FROZEN_AT(fdry_mf_pinned_chunk, oid, 16);
FDRY_MF_FROZEN_AT(fdry_mf_pinned_chunk, print, 48);
FDRY_MF_FROZEN(fdry_mf_host_place, 16);
FDRY_MF_FROZEN_AT(fdry_mf_host_place, addr, 8);
FDRY_MF_FROZEN(fdry_mf_array, 24);
FDRY_MF_FROZEN_AT(fdry_mf_array, format, 12);
FDRY_MF_FROZEN(fdry_mf_mipmap, 32);
FDRY_MF_FROZEN_AT(fdry_mf_mipmap, levels, 24);
FDRY_MF_FROZEN(fdry_mf_mipmap_level, 16);
FDRY_MF_FROZEN_AT(fdry_mf_mipmap_level, level, 8);
FDRY_MF_FROZEN(fdry_mf_array_piece, 56);
FDRY_MF_FROZEN_AT(fdry_mf_array_piece, oid, 8);
FDRY_MF_FROZEN_AT(fdry_mf_array_piece, print, 40);
FDRY_MF_FROZEN(fdry_fingerprint, 16);
FDRY_MF_FROZEN(fdry_mf_external_print, 24);
FDRY_MF_FROZEN_AT(fdry_mf_external_print, value, 8);
FDRY_MF_FROZEN(fdry_mf_file, 56);
FDRY_MF_FROZEN_AT(fdry_mf_file, offset, 8);
FDRY_MF_FROZEN_AT(fdry_mf_file, oid, 24);
FDRY_MF_FROZEN(fdry_mf_host, 16);
FDRY_MF_FROZEN_AT(fdry_mf_host, align, 8);
FDRY_MF_FROZEN(fdry_mf_host_chunk, 56);
FDRY_MF_FROZEN_AT(fdry_mf_host_chunk, offset, 8);
FDRY_MF_FROZEN_AT(fdry_mf_host_chunk, oid, 24);

#endif
