/*
 * store_spi.h
 *		The store's driver inside the server: every operation completes at once.
 */
#ifndef LLMQ_STORE_SPI_H
#define LLMQ_STORE_SPI_H

#include "core/store.h"

/*
 * Makes the driver of the calling background worker, in TopMemoryContext, once.
 * The worker's connection must stand; the caller holds no transaction when it
 * uses the store.
 */
extern LlmqStore *llmq_store_spi_create(void);

#endif /* LLMQ_STORE_SPI_H */
