/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the time since some moment before the program began. */
#ifndef FDRY_TESTS_LIB_CLOCK_H
#define FDRY_TESTS_LIB_CLOCK_H

double now_s(void);
double now_ms(void);
double now_us(void);
double now_ns(void);

#endif
