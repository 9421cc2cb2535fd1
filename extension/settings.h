/*
 * settings.h
 *		The settings of llmq: llmq.max_in_flight is held in llmq_max_in_flight.
 */
#ifndef LLMQ_SETTINGS_H
#define LLMQ_SETTINGS_H

extern bool llmq_enabled;
extern char *llmq_databases;		 /* names as in SQL, comma-separated; "": all */
extern int llmq_workers;			 /* per database */
extern int llmq_max_in_flight;		 /* network calls per worker */
extern int llmq_poll_interval;		 /* ms */
extern char *llmq_secrets_directory; /* "": none */
extern int llmq_key_wait;			 /* ms */
extern int llmq_callback_timeout;	 /* ms */

/* Defines the settings; called once, from _PG_init. */
extern void llmq_settings_define(void);

/* Returns whether llmq.databases allows a database to have workers.  Allocates temporary memory. */
extern bool llmq_settings_serves(const char *database);

#endif /* LLMQ_SETTINGS_H */
