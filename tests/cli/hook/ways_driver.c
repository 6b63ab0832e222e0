// SPDX-License-Identifier: Apache-2.0
/*
 * ways_driver.c - a driver with a few functions, each of which returns a number of its own.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void opened(void)
{
	const char *log = getenv("OPENED");
	int fd = log ? open(log, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
	if (fd >= 0 && write(fd, "x", 1) == 1)
		close(fd);
}
int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *v) { *v = VERSION; return 0; }
/* Arguments in every register and on the stack, named as the driver's function of that many. */
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
		   unsigned h, void *s, void **p, void **x)
{
	return f == (void *)1 && a == 2 && b == 3 && c == 4 && d == 5 && e == 6 && g == 7 &&
			       h == 8 && s == (void *)9 && p == (void *)10 && x == (void *)11
		       ? 0
		       : 1;
}
/* The driver's function of this name has other arguments: here, vectors in every register that can
 * hold one. */
int cuTexRefSetMipmapLevelClamp(void *t, double a, float b, double c, float d, double e, float f,
				double g, float h)
{
	return t == (void *)1 && a == 1.5 && b == 2.5f && c == 3.5 && d == 4.5f && e == 5.5 &&
			       f == 6.5f && g == 7.5 && h == 8.5f
		       ? 0
		       : 1;
}
typedef double quad __attribute__((vector_size(16)));
int cuTexRefSetBorderColor(quad a, quad b, quad c, quad d, quad e, quad f, quad g, quad h)
{
	return a[1] == 1 && b[1] == 2 && c[1] == 3 && d[1] == 4 && e[1] == 5 && f[1] == 6 &&
			       g[1] == 7 && h[1] == 8
		       ? 0
		       : 1;
}
/* Variadic: the count of vector registers is an argument, too. */
int cuParamSetv(int n, ...)
{
	va_list ap;
	double sum = 0;

	for (va_start(ap, n); n--;)
		sum += va_arg(ap, double);
	va_end(ap);
	return sum == 6 ? 0 : 1;
}
