/*
 * store_spi.h
 *		The store's driver inside the server: every operation completes at once.
 */
#ifndef LLMQ_STORE_SPI_H
#define LLMQ_STORE_SPI_H

#include "store.h"

/*
 * Makes the driver of the calling background worker, in TopMemoryContext, once.
 * The worker's connection must stand; the caller holds no transaction when it
 * uses the store.
 */
extern LlmqStore *llmq_store_spi_create(void);

/* Whether the extension is there; also true when that cannot be found out just now. */
extern bool llmq_store_spi_has_extension(void);

/* Fixes the settings that a worker's statements rely on, against those of roles and databases. */
extern void llmq_store_spi_configure_session(void);

#endif /* LLMQ_STORE_SPI_H */
