/* SPDX-License-Identifier: Apache-2.0 */
/*
 * html.h - writes a page of HTML that needs no other file, and runs no script.
 *
 * Text from outside passes through html_text() or html_format(), so no name can become a tag, end
 * an attribute, hide a character or change the direction of a line.
 */
#ifndef FDRY_API_CMD_HTML_H
#define FDRY_API_CMD_HTML_H

#include <stdint.h>
#include <stdio.h>

#define HTML_WIDTH 1080 /* units of a picture that is as wide as the page */

/* Write everything before the page's content. */
void html_begin(FILE *f, const char *title);
void html_end(FILE *f);
/* Write text with everything escaped that has a meaning in HTML or is not printable. */
void html_text(FILE *f, const char *text);
/* The same for text of at most 512 bytes that is formatted. */
void html_format(FILE *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Write the headline of a section, to which the list at the page's top links. */
void html_section(FILE *f, const char *id, const char *title);

/* A table's cell with a bar: @part of @whole, and text. */
void html_bar(FILE *f, const char *class, uint64_t part, uint64_t whole, const char *text);

#endif
