/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_set.h - the fields of a kernel set: kernel_set.c fills it, kernel_slice.c makes its
 * objects. */
#ifndef FDRY_GRAPH_KERNEL_SET_H
#define FDRY_GRAPH_KERNEL_SET_H

#include "graph/code_reach.h"
#include "graph/cubin.h"
#include "graph/fatbin.h"
#include "graph/kernel.h"

/* The parts that one kernel of a cubin reaches, trimmed (code_reach.h). */
struct fdry_set_reach {
	uint32_t kernel; /* index in the cubin */
	struct fdry_code_reach reach;
};

/* The object of some kernels of a code. It follows from the code and the kernels. */
struct fdry_set_slice {
	struct fdry_buf kernels; /* u32 each: indices in the cubin */
	struct fdry_buf roots;   /* u32 each: variables that they may reach by pointers alone */
	uint32_t copy;           /* for another load with variables of its own; it ends @bytes */
	struct fdry_oid oid;
	struct fdry_buf bytes;
	char *whole_reason; /* NULL: sliced; if not, the kernels keep all of the code */
};

/* Code that was loaded, for this device. */
struct fdry_set_code {
	struct fdry_code_image image; /* the interposer's record; identifies the code */
	struct fdry_devcode found; /* the entry for this device */
	struct fdry_buf linked;    /* the driver's cubin, if the entry is PTX */
	struct fdry_span bytes;    /* the cubin, or the software driver's object */
	struct fdry_cubin *cubin;  /* NULL for the software driver's object */
	uint32_t first;            /* index of the first code with the same bytes */
	bool used;                 /* by a kernel of this set, not only of an earlier one */
	bool variables;            /* it has some, constants included: each load has its own */
	/* Found by this set or an earlier one: */
	struct fdry_buf reaches;   /* of struct fdry_set_reach */
	struct fdry_buf slices;    /* of struct fdry_set_slice */
	struct fdry_oid oid;       /* of @bytes, if @checked */
	bool checked;              /* fdry_module_check() accepts @bytes */
};

/* One load of a kernel's code, with its own variables. */
struct fdry_set_owner {
	CUlibrary library; /* NULL: it was loaded as a module */
	CUmodule module;   /* in the current context */
	uint32_t code;
};

struct fdry_set_entry {
	struct fdry_kernel k;
	uint32_t code;
	uint32_t shared;        /* the most dynamic shared memory of a node, bytes */
	struct fdry_buf owners; /* of struct fdry_set_owner */
	struct fdry_param params[];
};

struct fdry_set_object {
	struct fdry_oid oid;
	CUmodule load; /* whose variables it has; NULL: it has none */
	bool own;      /* it has these alone: kernels write them, or pointers lead there */
	struct fdry_span bytes; /* in a code or in one of its slices */
};

/* A variable that kernels of an object reach. */
struct fdry_set_variable {
	struct fdry_oid object;
	char *name;
	CUdeviceptr addr;           /* in the load that was read first */
	bool changed;               /* it no longer has the value of its code */
	struct fdry_buf bytes;      /* its value; the words of @relocated are zero */
	struct fdry_buf relocated;  /* u64 each, ascending: offsets of addresses that the driver
				       fills in when it loads the object */
};

/* A function whose address a table of a load of its code holds. */
struct fdry_set_function {
	CUdeviceptr addr; /* as the table has it */
	CUmodule load;    /* whose table it is */
	const struct fdry_cubin *cubin;
	uint32_t symbol;
};

/* A variable of a load that the driver finds by its name. */
struct fdry_set_known {
	CUdeviceptr addr;
	struct fdry_cubin_variable variable;
	uint32_t index;              /* in the variables of its code */
	struct fdry_set_owner owner; /* its code is the first one with the same bytes */
};

/* A variable that pointers point to. */
struct fdry_set_pointed {
	struct fdry_set_known known;
	struct fdry_oid object; /* set by slicing */
};

struct fdry_set_handle {
	const void *handle; /* a CUkernel or CUfunction; NULL: free */
	uint32_t index;
};

struct fdry_kernel_set {
	const struct fdry_driver *drv;
	CUdevice dev;
	unsigned int cc; /* 10 * major + minor */
	fdry_code_find_fn find;
	void *find_arg;
	struct fdry_buf codes;   /* of struct fdry_set_code */
	struct fdry_buf entries; /* of struct fdry_set_entry *, which do not move */
	struct fdry_buf objects; /* of struct fdry_set_object */
	struct fdry_buf variables; /* of struct fdry_set_variable */
	struct fdry_buf functions; /* of struct fdry_set_function, ascending */
	struct fdry_buf known;     /* of struct fdry_set_known, ascending */
	uint32_t known_entries;    /* the number of kernels whose loads @known has */
	struct fdry_buf pointed;   /* of struct fdry_set_pointed */
	bool pointed_more;         /* some of them are new since the kernels were sliced */
	struct fdry_set_handle *slots; /* open addressing; nslots is a power of two */
	uint32_t nslots, nhandles;
};

/* The load whose variables the kernel uses; NULL if its code has none. */
static inline CUmodule fdry_set_load(const struct fdry_kernel_set *set,
				     const struct fdry_set_entry *e)
{
	const struct fdry_set_code *code =
		&((const struct fdry_set_code *)set->codes.data)[e->code];

	return code->variables ? ((const struct fdry_set_owner *)e->owners.data)->module : NULL;
}

/* Whether the variable is in the load whose kernels have variables of @load, from the code whose
 * first copy is @first. */
static inline bool fdry_set_is_of(const struct fdry_set_known *k, uint32_t first, CUmodule load)
{
	return k->owner.code == first && (!load || k->owner.module == load);
}

void fdry_set_slice_release(struct fdry_set_slice *s);

static inline uint32_t fdry_set_ncodes(const struct fdry_kernel_set *set)
{
	return (uint32_t)(set->codes.len / sizeof(struct fdry_set_code));
}

/* kernel_vars.c: read every variable that a kernel reaches, in each load of its module, into
 * set->variables; e->k.object is set. FDRY_E_REFUSED names a variable that cannot be read, or whose
 * values differ between loads. */
int fdry_set_variables_read(struct fdry_kernel_set *set, const struct fdry_set_entry *e,
			    const struct fdry_code_reach *reach) __must_check;
/* Read all variables of an object of the software driver in the same way. */
int fdry_set_host_variables_read(struct fdry_kernel_set *set,
				 const struct fdry_set_entry *e) __must_check;
/* Read a variable that pointers point to; @p->object is set. FDRY_E_REFUSED also if kernels reach
 * the variable of another load of its module. */
int fdry_set_pointed_read(struct fdry_kernel_set *set,
			  const struct fdry_set_pointed *p) __must_check;
/* Whether all variables that a kernel reaches have the bytes that they have in the load @load. */
int fdry_set_values_same(const struct fdry_kernel_set *set, const struct fdry_set_entry *e,
			 const struct fdry_code_reach *reach, CUmodule load,
			 bool *ret) __must_check;
void fdry_set_variables_clear(struct fdry_kernel_set *set);

/* kernel_functions.c: sort the functions that the variables have. FDRY_E_REFUSED if a table was
 * changed so that two functions have one address. */
int fdry_set_functions_sort(struct fdry_kernel_set *set) __must_check;

#endif
