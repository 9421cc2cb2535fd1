/*
 * store_spi.h
 *		The store's driver inside the server: every operation completes at once.
 */
#ifndef LLMQ_STORE_SPI_H
#define LLMQ_STORE_SPI_H

#include "core/store.h"

/*
 * Creates the driver of the calling background worker in TopMemoryContext, once.  The worker
 * must be connected, and must not be in a transaction when it uses the store.
 */
extern LlmqStore *llmq_store_spi_create(void);

#endif /* LLMQ_STORE_SPI_H */
