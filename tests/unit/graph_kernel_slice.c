// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the kernel objects that are made of a set's kernels, with a driver on paper
 * (paper.h): objects, variables, refusals. */
#include "graph/kernel_set.h"
#include "tests/lib/paper.h"

/* --- slicing --- */

START_TEST(kernels_that_share_a_variable_stay_together)
{
	struct fdry_kernel_set *set;
	struct load *l;
	uint32_t bump, alone, bump_by, lookup, affine, more;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	bump = intern(set, kernel_of(l, "bump"), true);
	alone = intern(set, kernel_of(l, "alone"), true);
	bump_by = intern(set, kernel_of(l, "bump_by"), true);
	lookup = intern(set, kernel_of(l, "lookup"), true);
	affine = intern(set, kernel_of(l, "affine"), true);
	slice(set);
	ck_assert(same_object(set, bump, bump_by));
	ck_assert(!same_object(set, bump, alone) && !same_object(set, alone, lookup) &&
		  !same_object(set, lookup, affine));
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 4);
	for (more = 0; more < 5; more++)
		sliced(set, more);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* The same kernels give the same objects in any order. */
START_TEST(order_does_not_matter)
{
	static const char *const names[] = { "bump", "alone", "bump_by", "own_static" };
	struct fdry_kernel_set *a, *b;
	struct load *l;
	uint32_t i;

	paper_begin();
	a = set_new();
	b = set_new();
	l = load_file("vars.90.cubin");
	for (i = 0; i < 4; i++) {
		intern(a, kernel_of(l, names[i]), true);
		intern(b, kernel_of(l, names[3 - i]), true);
	}
	slice(a);
	slice(b);
	for (i = 0; i < 4; i++)
		ck_assert(fdry_oid_eq(&fdry_kernel_set_get(a, i)->object,
				      &fdry_kernel_set_get(b, 3 - i)->object));
	fdry_kernel_set_free(a);
	fdry_kernel_set_free(b);
	paper_end();
}
END_TEST

/* Each slice has its own copy of read-only data: constants, and strings of assertions. */
START_TEST(read_only_data_is_duplicated)
{
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("syscalls.90.cubin");
	paper.hide_names = true; /* and needs no reading */
	intern(set, kernel_of(l, "checks"), true);
	intern(set, kernel_of(l, "quiet"), true);
	intern(set, kernel_of(l, "checks_too"), true);
	slice(set);
	ck_assert(!same_object(set, 0, 2));
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 3);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* Make the cubin another one: change the value that its code gives a variable. */
static void initial_change(struct load *l, const char *name)
{
	uint32_t i;

	for (i = 0; strcmp(l->c->variables[i].name, name); i++)
		;
	*(uint8_t *)fdry_cubin_initial(l->c, &l->c->variables[i]).data ^= 1;
}

START_TEST(two_loads_with_a_variable_each)
{
	struct fdry_kernel_set *set;
	struct load *a, *b;

	paper_begin();
	set = set_new();
	a = load_file("vars.90.cubin");
	b = load_file("vars.90.cubin");
	intern(set, kernel_of(a, "lookup"), true);
	intern(set, kernel_of(b, "affine"), true); /* shares nothing */
	slice(set);
	intern(set, kernel_of(a, "bump"), true);
	intern(set, kernel_of(b, "bump_by"), true);
	intern(set, kernel_of(a, "bump_by"), true);
	intern(set, kernel_of(b, "bump"), true); /* one kernel, two counters */
	slice(set);
	ck_assert(same_object(set, 2, 4) && same_object(set, 3, 5) && !same_object(set, 2, 3));
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 4);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* If two cubins differ only in parts that a kernel does not reach, the kernel has one object for
 * both, unless it has a counter. */
START_TEST(equal_slices_of_two_cubins)
{
	struct fdry_kernel_set *set;
	struct load *a, *b;

	paper_begin();
	set = set_new();
	a = load_file("vars.90.cubin");
	b = load_file("vars.90.cubin");
	initial_change(b, "untouched");
	intern(set, kernel_of(a, "affine"), true);
	intern(set, kernel_of(b, "affine"), true);
	slice(set);
	ck_assert(same_object(set, 0, 1));
	intern(set, kernel_of(a, "bump"), true);
	slice(set);
	intern(set, kernel_of(b, "bump"), true);
	slice(set);
	ck_assert(same_object(set, 0, 1) && !same_object(set, 2, 3));
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* A function has one set of attributes, and a second load of its module would have variables of its
 * own. */
START_TEST(two_sets_of_attributes_and_a_variable)
{
	struct paper_kernel alone, bump; /* the context's functions, of which only the kernels had
					    their attributes set */
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	alone = *kernel_of(l, "alone");
	bump = *kernel_of(l, "bump");
	kernel_of(l, "alone")->kernel_attrs[0] = 100000;
	kernel_of(l, "bump")->kernel_attrs[0] = 100000;
	intern(set, kernel_of(l, "alone"), true); /* it writes nothing */
	ck_assert_uint_eq(intern(set, &alone, false), 1);
	intern(set, kernel_of(l, "bump_by"), false);
	intern(set, kernel_of(l, "bump"), true);
	slice(set);
	ck_assert_uint_eq(intern(set, &bump, false), 4);
	slice_refused(set, "different attributes", "bump");
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* The values that a set passes. */
struct values {
	unsigned int n;
	char name[8][32];
	uint32_t object[8];
	uint64_t offset[8];
	size_t len[8];
	uint8_t first[8];
};

static int value_note(void *arg, const struct fdry_kernel_value *v)
{
	struct values *all = arg;

	ck_assert_uint_lt(all->n, 8);
	ck_assert_uint_gt(v->bytes.len, 0);
	snprintf(all->name[all->n], sizeof(all->name[0]), "%s", v->name);
	all->object[all->n] = v->object;
	all->offset[all->n] = v->offset;
	all->len[all->n] = v->bytes.len;
	all->first[all->n++] = v->bytes.data[0];
	return 0;
}

static struct values values_of(struct fdry_kernel_set *set)
{
	struct values v = { 0 };

	ck_assert_int_eq(fdry_kernel_set_values(set, value_note, &v), 0);
	return v;
}

/* A value belongs to the object whose kernels reach the variable. */
START_TEST(changed_variables)
{
	static const struct {
		const char *kernel, *variable;
		size_t size;
	} changes[] = {
		{ "bump", "counter", 4 },      { "lookup", "table", 16 },
		{ "lookup", "into_table", 8 }, { "affine", "weights", 16 },
		{ "affine", "biases", 16 },	 { "own_static", "_ZZ10own_staticE5calls", 4 },
	};
	struct fdry_kernel_set *set;
	struct values v;
	struct load *l;
	uint8_t *bytes;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	bytes = variable_of(l, changes[_i].variable);
	intern(set, kernel_of(l, "alone"), true);
	intern(set, kernel_of(l, changes[_i].kernel), _i % 2);
	slice(set);
	v = values_of(set);
	ck_assert_uint_eq(v.n, 0);
	bytes[0] ^= 1;
	slice(set);
	v = values_of(set);
	ck_assert_uint_eq(v.n, 1);
	ck_assert_str_eq(v.name[0], changes[_i].variable);
	ck_assert_uint_eq(v.object[0], 1);
	ck_assert_uint_eq(v.offset[0], 0);
	ck_assert_uint_eq(v.len[0], changes[_i].size);
	ck_assert_uint_eq(v.first[0], bytes[0]);
	bytes[0] ^= 1;
	variable_of(l, "untouched")[0] ^= 1; /* no kernel here reaches it, so it is no value */
	slice(set);
	v = values_of(set);
	ck_assert_uint_eq(v.n, 0);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* Kernels of two objects that read one constant: each object has its value. */
START_TEST(values_of_two_objects)
{
	struct fdry_kernel_set *set;
	struct values v;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	intern(set, kernel_of(l, "bump"), true);
	intern(set, kernel_of(l, "bump_by"), true);
	intern(set, kernel_of(l, "affine"), true);
	variable_of(l, "weights")[4] = 9;
	variable_of(l, "counter")[0] = 9;
	variable_of(l, "biases")[15] = 9;
	slice(set);
	v = values_of(set);
	ck_assert_uint_eq(v.n, 3);
	ck_assert_str_eq(v.name[0], "counter");
	ck_assert_str_eq(v.name[1], "biases");
	ck_assert_str_eq(v.name[2], "weights");
	ck_assert_uint_eq(v.object[0], 0);
	ck_assert_uint_eq(v.object[1], 1);
	ck_assert_uint_eq(v.object[2], 1);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* Two loads of a module become one object if they have the same values, else two. */
START_TEST(values_of_two_loads)
{
	struct fdry_kernel_set *set;
	struct load *a, *b;
	struct values v;

	paper_begin();
	set = set_new();
	a = load_file("vars.90.cubin");
	b = load_file("vars.90.cubin");
	intern(set, kernel_of(a, "affine"), true);
	intern(set, kernel_of(b, "affine"), true);
	slice(set);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 1);
	variable_of(a, "weights")[0] = 9;
	slice(set);
	v = values_of(set);
	ck_assert(v.n == 1 && v.object[0] == 0 && fdry_kernel_set_object_count(set) == 2);
	variable_of(b, "weights")[0] = 7;
	slice(set);
	v = values_of(set);
	ck_assert(v.n == 2 && v.object[0] == 0 && v.first[0] == 9);
	ck_assert(v.object[1] == 1 && v.first[1] == 7);
	variable_of(b, "weights")[0] = 9;
	slice(set);
	ck_assert(values_of(set).n == 1 && fdry_kernel_set_object_count(set) == 1);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

static unsigned int reads; /* until one returns other bytes */

static CUresult changing_read(void *to, CUdeviceptr from, size_t n)
{
	memcpy(to, (const void *)(uintptr_t)from, n);
	if (!reads--)
		*(uint8_t *)to ^= 1;
	return CUDA_SUCCESS;
}

/* The seal reads the two constants of each load to compare them, and then for their values. */
START_TEST(values_that_change)
{
	struct fdry_kernel_set *set;
	struct load *a, *b;

	paper_begin();
	set = set_new();
	a = load_file("vars.90.cubin");
	b = load_file("vars.90.cubin");
	intern(set, kernel_of(a, "affine"), true);
	intern(set, kernel_of(b, "affine"), true);
	paper.drv.cuMemcpyDtoH_v2 = changing_read;
	reads = 7;
	slice_refused(set, "changed while the seal read it", "affine");
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* into_table holds the address of table, which differs in each load: it is no value. */
START_TEST(addresses_are_no_values)
{
	struct fdry_kernel_set *set;
	struct load *a, *b;
	struct values v;

	paper_begin();
	set = set_new();
	a = load_file("vars.90.cubin");
	b = load_file("vars.90.cubin");
	intern(set, kernel_of(a, "lookup"), true);
	slice(set);
	v = values_of(set);
	ck_assert_uint_eq(v.n, 0);
	fdry_set64(variable_of(a, "into_table"),
		   (uint64_t)(uintptr_t)variable_of(b, "table") + 8); /* of another load */
	slice(set);
	v = values_of(set);
	ck_assert_uint_eq(v.n, 1);
	ck_assert_str_eq(v.name[0], "into_table");
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* Point to a byte of a variable, and slice. */
static struct fdry_kernel_variable point(struct fdry_kernel_set *set, struct load *l,
					 const char *name, uint64_t offset)
{
	CUdeviceptr start = 0, addr = (uintptr_t)variable_of(l, name);
	struct fdry_kernel_variable v;
	uint64_t size = 0;

	ck_assert_int_eq(fdry_kernel_set_point(set, addr + offset, &start, &size), 0);
	ck_assert_uint_eq(start, addr);
	ck_assert_uint_gt(size, offset);
	slice(set);
	ck_assert(!fdry_kernel_set_pointed_more(set));
	ck_assert_int_eq(fdry_kernel_set_pointed(set, start, &v), 0);
	ck_assert_str_eq(v.name, name);
	return v;
}

static const struct fdry_cubin_variable *object_variable(struct fdry_cubin *c, const char *name)
{
	uint32_t i;

	for (i = 0; i < c->nvariables; i++)
		if (!strcmp(c->variables[i].name, name))
			return &c->variables[i];
	return NULL;
}

/* A variable that no kernel of the set names is in the object of the first kernel. */
START_TEST(pointed_variable_of_no_kernel)
{
	static const uint8_t nines[16] = { 9, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0 };
	const struct fdry_cubin_variable *found;
	struct fdry_kernel_variable v;
	struct fdry_kernel_set *set;
	struct fdry_span bytes;
	struct fdry_cubin *c;
	struct fdry_oid oid;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	intern(set, kernel_of(l, "alone"), true);
	intern(set, kernel_of(l, "affine"), true);
	slice(set);
	v = point(set, l, "untouched", 5);
	ck_assert_uint_eq(v.object, 0);
	ck_assert_uint_eq(v.size, 16);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 2);
	bytes = fdry_kernel_set_object(set, 0, &oid);
	ck_assert_int_eq(fdry_cubin_new(bytes, &c), 0);
	found = object_variable(c, "untouched");
	ck_assert_ptr_nonnull(found);
	ck_assert_mem_eq(fdry_cubin_initial(c, found).data, nines, 16);
	ck_assert_ptr_null(object_variable(c, "table"));
	fdry_cubin_free(c);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* Kernels that reach a variable to which pointers point stay in one object, and so do those that
 * reach the variable which ends there: the pointer may be its end. */
START_TEST(pointed_variables_keep_kernels_together)
{
	static const struct {
		const char *a, *b, *variable;
		uint64_t offset;
		bool together;
	} cases[] = {
		{ "copy", "lookup", "table", 0, true }, /* untouched ends at the start of table */
		{ "copy", "lookup", "untouched", 0, false },
		{ "copy", "own_static", "untouched", 4, true },
		{ "alone", "affine", "weights", 0, false },
	};
	struct fdry_kernel_variable v;
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	intern(set, kernel_of(l, cases[_i].a), true);
	intern(set, kernel_of(l, cases[_i].b), true);
	slice(set);
	ck_assert(!same_object(set, 0, 1));
	v = point(set, l, cases[_i].variable, cases[_i].offset);
	ck_assert(same_object(set, 0, 1) == cases[_i].together);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), 2 - cases[_i].together);
	ck_assert_uint_eq(v.object, _i == 3);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* The value of a variable counts if pointers point there. */
START_TEST(pointed_variable_in_values)
{
	struct fdry_kernel_set *set;
	struct values v;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	intern(set, kernel_of(l, "alone"), true);
	variable_of(l, "untouched")[3] = 1; /* counts now */
	point(set, l, "untouched", 0);
	v = values_of(set);
	ck_assert_uint_eq(v.n, 1);
	ck_assert_str_eq(v.name[0], "untouched");
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* Equal constants of two loads are two if pointers lead to one of them. @_i: to which. */
START_TEST(pointed_constants_of_two_loads)
{
	struct fdry_kernel_set *set;
	struct load *l[2];

	paper_begin();
	set = set_new();
	l[0] = load_file("vars.90.cubin");
	l[1] = load_file("vars.90.cubin");
	intern(set, kernel_of(l[0], "affine"), true);
	intern(set, kernel_of(l[1], "affine"), true);
	slice(set);
	ck_assert(same_object(set, 0, 1));
	point(set, l[_i], "weights", 0);
	ck_assert(!same_object(set, 0, 1));
	point(set, l[!_i], "weights", 4);
	ck_assert(!same_object(set, 0, 1));
	ck_assert_uint_eq(values_of(set).n, 0);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* Pointers that do not point to one variable of the set's kernels. */
START_TEST(pointed_variables_that_are_refused)
{
	struct fdry_kernel_variable of_a, of_b;
	struct fdry_kernel_set *set;
	struct paper_kernel affine;
	struct load *a, *b;
	CUdeviceptr start;
	uint64_t size;

	paper_begin();
	set = set_new();
	a = load_file("vars.90.cubin");
	b = load_file("vars.90.cubin");
	intern(set, kernel_of(a, "alone"), true);
	ck_assert_int_eq(fdry_kernel_set_point(set, (uintptr_t)variable_of(b, "table"), &start,
					       &size), 0);
	ck_assert_uint_eq(start, 0); /* of a load without a kernel in the set */
	ck_assert_int_eq(fdry_kernel_set_point(set, (uintptr_t)&paper, &start,
					       &size), 0);
	ck_assert_uint_eq(start, 0);
	intern(set, kernel_of(b, "lookup"), true); /* it reaches the table of @b */
	ck_assert_int_eq(fdry_kernel_set_point(set, (uintptr_t)variable_of(a, "table"), &start,
					       &size), 0);
	ck_assert_uint_ne(start, 0);
	slice(set); /* each load has its table */
	ck_assert_int_eq(fdry_kernel_set_point(set, (uintptr_t)variable_of(b, "table"), &start,
					       &size), 0);
	slice(set);
	ck_assert_int_eq(fdry_kernel_set_pointed(set, (uintptr_t)variable_of(a, "table"), &of_a),
			 0);
	ck_assert_int_eq(fdry_kernel_set_pointed(set, (uintptr_t)variable_of(b, "table"), &of_b),
			 0);
	ck_assert_uint_ne(of_a.object, of_b.object);
	fdry_kernel_set_free(set);

	set = set_new();
	affine = *kernel_of(a, "affine");
	kernel_of(a, "affine")->kernel_attrs[0] = 100000;
	intern(set, kernel_of(a, "affine"), true);
	intern(set, &affine, false);
	slice(set);
	ck_assert_int_eq(fdry_kernel_set_point(set, (uintptr_t)variable_of(a, "weights"), &start,
					       &size),
			 0);
	slice_refused(set, "different attributes", "affine");
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

static int value_write(void *arg, CUdeviceptr addr)
{
	return fdry_call(&paper.drv, cuMemcpyHtoDAsync_v2, addr, arg, 3, NULL);
}

/* A load writes values into every module of the object, and shares none of them. */
START_TEST(values_are_written)
{
	struct fdry_kernel k[8];
	struct fdry_kernel_bank *bank = NULL, *other = NULL;
	struct fdry_kernel_set *set;
	const struct fdry_oid *object = &k[0].object;
	uint8_t value[] = { 7, 8, 9 };
	unsigned int before, i;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	intern(set, kernel_of(l, "affine"), true);
	slice(set);
	k[0] = k[1] = *fdry_kernel_set_get(set, 0);
	k[0].has_values = k[1].has_values = true;
	k[1].attrs[0] = 100000; /* a load of its own */
	before = paper.nloads;
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, k, 2, paper_object_get, set, &bank), 0);
	ck_assert_int_eq(fdry_kernel_bank_new(&paper.drv, k, 1, paper_object_get, set, &other), 0);
	ck_assert_uint_eq(paper.nloads, before + 3);
	ck_assert_int_eq(fdry_kernel_bank_each_place(bank, object, "weights", 5, sizeof(value),
						     value_write, value), 0);
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(!memcmp(variable_of(paper.loads[before + i], "weights") + 5,
					  value, sizeof(value)),
				  i < 2);
	ck_assert_int_eq(fdry_kernel_bank_each_place(bank, object, "weights", 14, sizeof(value),
						     value_write, value), -FDRY_E_BADIMAGE);
	ck_assert_int_eq(fdry_kernel_bank_each_place(bank, object, "weights", UINT64_MAX,
						     sizeof(value), value_write, value),
			 -FDRY_E_BADIMAGE);
	ck_assert_int_eq(fdry_kernel_bank_each_place(bank, object, "heights", 0, sizeof(value),
						     value_write, value), -FDRY_E_BADIMAGE);
	ck_assert_ptr_nonnull(strstr(fdry_last_error(), "variable heights: its object has no"));
	fdry_kernel_bank_free(other);
	fdry_kernel_bank_free(bank);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(unreadable_variables)
{
	struct fdry_kernel_set *set;
	struct load *l;

	paper_begin();
	set = set_new();
	l = load_file("vars.90.cubin");
	intern(set, kernel_of(l, "bump"), true);
	paper.hide_names = true;
	slice_refused(set, "unknown to the driver", "counter");
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

START_TEST(refused_kernels)
{
	static const struct {
		const char *file, *kernel, *why;
	} refused[] = {
		{ "untabled.90.cubin", "by_table", "through pointers, and no table" },
		{ "launches.rel.cubin", "parent", "dynamic parallelism" },
		{ "references.90.cubin", "reads", "reference colours" },
		{ "references.80.cubin", "reads", "reference colours" },
		{ "references.90.cubin", "writes", "reference canvas" },
		{ "references.80.cubin", "writes", "reference canvas" },
	};
	struct fdry_kernel_set *set;

	paper_begin();
	set = set_new();
	intern(set, kernel_of(load_file("plain.90.cubin"), "add"), true);
	intern(set, kernel_of(load_file(refused[_i].file), refused[_i].kernel), true);
	slice_refused(set, refused[_i].why, refused[_i].kernel);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* References of a module do not concern its other kernels. */
START_TEST(kernels_beside_references)
{
	struct fdry_kernel_set *set;

	paper_begin();
	set = set_new();
	intern(set, kernel_of(load_file(_i ? "references.90.cubin" : "references.80.cubin"),
			      "neither"),
	       true);
	ok(fdry_kernel_set_slice(set));
	ck_assert(!fdry_kernel_set_get(set, 0)->whole);
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* A set of these kernels, NULL at the end, with the codes of the last set; sliced. */
static struct fdry_kernel_set *set_of(struct load *l, struct fdry_buf *codes,
				      const char *const *names)
{
	struct fdry_kernel_set *set = set_new();

	fdry_kernel_set_adopt(set, codes);
	for (; *names; names++)
		intern(set, kernel_of(l, *names), true);
	slice(set);
	return set;
}

/* A later set has the objects of the first one, as far as the same kernels stay together. */
START_TEST(slices_are_kept)
{
	static const char *const both[] = { "alone", "bump", "bump_by", NULL };
	static const char *const one[] = { "bump", "alone", NULL };
	const char *file = _i ? "vars.100.cubin" : "vars.90.cubin";
	struct fdry_kernel_set *set;
	struct fdry_span first, again, fresh;
	struct fdry_oid id, same, other;
	struct fdry_buf codes = { 0 };
	struct load *l;

	paper_begin();
	l = load_file(file);
	set = set_of(l, &codes, both);
	first = fdry_kernel_set_object(set, fdry_kernel_set_object_count(set) - 1, &id);
	fdry_kernel_set_yield(set, &codes);
	fdry_kernel_set_free(set);
	set = set_of(l, &codes, both);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), _i ? 1 : 2);
	again = fdry_kernel_set_object(set, fdry_kernel_set_object_count(set) - 1, &same);
	ck_assert(again.data == first.data && again.len == first.len && fdry_oid_eq(&id, &same));
	ck_assert(!_i == !fdry_kernel_set_get(set, 1)->whole);
	fdry_kernel_set_yield(set, &codes);
	fdry_kernel_set_free(set);
	set = set_of(l, &codes, one);
	ck_assert_uint_eq(fdry_kernel_set_object_count(set), _i ? 1 : 2);
	(void)fdry_kernel_set_object(set, 0, &same);
	fdry_kernel_set_free(set);
	set = set_of(l, &codes, one); /* nothing is known */
	fresh = fdry_kernel_set_object(set, 0, &other);
	ck_assert(fresh.len && fdry_oid_eq(&same, &other));
	ck_assert(_i || !fdry_oid_eq(&same, &id));
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

/* Each set has other kernels together, so each adds a slice. Slices of too many bytes are freed,
 * and the code is kept. */
START_TEST(slices_do_not_grow_for_ever)
{
	static const char *const names[] = { "bump", "bump_by", NULL };
	struct fdry_set_slice big = { .bytes = { .len = (256u << 20) + 1 } };
	struct fdry_set_code *code;
	struct fdry_kernel_set *set;
	struct fdry_buf codes = { 0 };
	struct fdry_oid id, same;
	struct load *l;

	paper_begin();
	l = load_file("vars.90.cubin");
	set = set_of(l, &codes, names);
	(void)fdry_kernel_set_object(set, 0, &id);
	fdry_kernel_set_yield(set, &codes);
	fdry_kernel_set_free(set);
	code = (struct fdry_set_code *)codes.data;
	ck_assert_uint_eq(code->slices.len, sizeof(struct fdry_set_slice));
	ok(fdry_buf_put(&code->slices, &big, sizeof(big)));
	set = set_of(l, &codes, names);
	fdry_kernel_set_yield(set, &codes);
	fdry_kernel_set_free(set);
	code = (struct fdry_set_code *)codes.data;
	ck_assert_uint_eq(code->slices.len, 0);
	ck_assert_uint_gt(code->reaches.len, 0);
	set = set_of(l, &codes, names);
	(void)fdry_kernel_set_object(set, 0, &same);
	ck_assert(fdry_oid_eq(&id, &same));
	fdry_kernel_set_free(set);
	paper_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph_kernel_slice");
	TCase *tc = tcase_create("kernel");

	tcase_add_test(tc, kernels_that_share_a_variable_stay_together);
	tcase_add_test(tc, order_does_not_matter);
	tcase_add_test(tc, read_only_data_is_duplicated);
	tcase_add_test(tc, two_loads_with_a_variable_each);
	tcase_add_test(tc, equal_slices_of_two_cubins);
	tcase_add_test(tc, two_sets_of_attributes_and_a_variable);
	tcase_add_loop_test(tc, slices_are_kept, 0, 2);
	tcase_add_test(tc, slices_do_not_grow_for_ever);
	tcase_add_loop_test(tc, changed_variables, 0, 6);
	tcase_add_test(tc, values_of_two_objects);
	tcase_add_test(tc, values_of_two_loads);
	tcase_add_test(tc, values_that_change);
	tcase_add_test(tc, addresses_are_no_values);
	tcase_add_test(tc, pointed_variable_of_no_kernel);
	tcase_add_loop_test(tc, pointed_variables_keep_kernels_together, 0, 4);
	tcase_add_test(tc, pointed_variable_in_values);
	tcase_add_loop_test(tc, pointed_constants_of_two_loads, 0, 2);
	tcase_add_test(tc, pointed_variables_that_are_refused);
	tcase_add_test(tc, values_are_written);
	tcase_add_test(tc, unreadable_variables);
	tcase_add_loop_test(tc, refused_kernels, 0, 6);
	tcase_add_loop_test(tc, kernels_beside_references, 0, 2);
	suite_add_tcase(s, tc);
	return test_main(s);
}
