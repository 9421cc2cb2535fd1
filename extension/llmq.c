/*
 * llmq.c
 *		Loads the library.
 *
 * The postmaster loads it if it is in shared_preload_libraries.  Otherwise each session loads
 * it that calls one of its functions, and its own processes do.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "cage.h"
#include "launcher.h"
#include "settings.h"
#include "shared.h"
#include "wakeup.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	llmq_settings_define();
	llmq_wakeup_install();
	llmq_cage_install();
	if (!process_shared_preload_libraries_in_progress)
		return;
	llmq_shared_install_hooks();
	/* No calls may be made while pg_upgrade runs the server. */
	if (!IsBinaryUpgrade)
		llmq_launcher_register();
}
