// SPDX-License-Identifier: Apache-2.0
/* html.c - writes a page of HTML; see html.h. */
#include "api/cmd/html.h"

#include <stdarg.h>
#include <string.h>

#include "api/cmd/cmd.h"

static const char style[] =
#include "api/cmd/html_style.def"
	;

void html_text(FILE *f, const char *text)
{
	const char *s;

	for (s = cmd_text(text); *s; s++) {
		switch (*s) {
		case '&':
			fputs("&amp;", f);
			break;
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		case '\'':
			fputs("&#39;", f);
			break;
		default:
			fputc(*s, f);
		}
	}
}

void html_format(FILE *f, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	html_text(f, text);
}

void html_begin(FILE *f, const char *title)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta http-equiv=\"Content-Security-Policy\" "
	      "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
	      f);
	html_text(f, title);
	fprintf(f, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", style);
}

void html_end(FILE *f)
{
	fprintf(f, "<footer>Written by foundry-store %s</footer>\n</main>\n</body>\n</html>\n",
		FDRY_VERSION);
}

void html_section(FILE *f, const char *id, const char *title)
{
	fprintf(f, "<h2 id=\"%s\">%s</h2>\n", id, title);
}

void html_bar(FILE *f, const char *class, uint64_t part, uint64_t whole, const char *text)
{
	double share = whole ? 100.0 * (double)part / (double)whole : 0;

	fprintf(f, "<td class=\"bar %s\"><i style=\"width:%.1f%%\"></i><b>", class,
		share > 100 ? 100 : share);
	html_text(f, text);
	fputs("</b></td>", f);
}
