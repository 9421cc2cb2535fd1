/*
 * preinit.c
 *		Makes AddressSanitizer begin before any other library of the server does.
 *
 * Preloaded into a stock server without this it waits for ever at the start: another
 * library's constructor calls malloc first, before the sanitizer is ready for that.
 * Linked with -z initfirst, this constructor runs before theirs.
 */
#include <stdlib.h>

static __attribute__((constructor)) void
begin(void)
{
	void *volatile some = malloc(1);

	free(some);
}
