// SPDX-License-Identifier: Apache-2.0
/*
 * Passes arguments in every register and on the stack through the interposer's jumps to a driver
 * that compares them: at the first call, which looks up the symbol, and at the next. With DRIVER
 * defined, this file is that driver. Its functions differ from the driver's functions of the same
 * names.
 */
typedef float quad __attribute__((vector_size(16)));

#define INTS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define QUADS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define LONG(n) , long i##n
#define QUAD(n) , quad q##n

struct wide {
	long v[4];
};

int cuLaunchKernel(int zero INTS(LONG));
int cuTexRefSetBorderColor(int zero QUADS(QUAD));
/* The address of its result is in a register that is no argument. */
struct wide cuTexRefSetFormat(long i);

#ifdef DRIVER
int cuInit(unsigned int flags);
int cuInit(unsigned int flags)
{
	return (int)flags;
}

int cuLaunchKernel(int zero INTS(LONG))
{
#define BAD(n) + (i##n != n)
	return zero INTS(BAD);
#undef BAD
}

int cuTexRefSetBorderColor(int zero QUADS(QUAD))
{
#define BAD(n) + (q##n[0] != n || q##n[3] != -n)
	return zero QUADS(BAD);
}

struct wide cuTexRefSetFormat(long i)
{
	return (struct wide){ { i, i + 1, i + 2, i + 3 } };
}
#else
#include <errno.h>
#include <stdio.h>

int cuGLInit(void);

int main(void)
{
	struct wide w;
	int i, bad = 0;

	errno = 77;
	for (i = 0; i < 2; i++) {
#define ARG(n) , n
		bad += cuLaunchKernel(0 INTS(ARG));
#undef ARG
#define ARG(n) , (quad){ n, 0, 0, -n }
		bad += cuTexRefSetBorderColor(0 QUADS(ARG));
		w = cuTexRefSetFormat(i + 5);
		bad += w.v[0] != i + 5 || w.v[3] != i + 8;
		bad += cuGLInit() != 500; /* which this driver lacks */
	}
	printf("%d bad, errno %d\n", bad, errno);
	return bad != 0;
}
#endif
