/*
 * heap.h
 *		A binary heap with the smallest key on top, whose nodes know their position.
 *
 * The heap is intrusive: a node is embedded in the thing that it orders, and its owner pointer
 * leads back to that thing.  Memory is reserved before nodes are added, so that adding cannot
 * fail in the middle of an operation.
 */
#ifndef LLMQ_HEAP_H
#define LLMQ_HEAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct LlmqHeapNode
{
	int64_t key;
	int index; /* kept by the heap; meaningful only while in it */
	void *owner;
} LlmqHeapNode;

typedef struct LlmqHeap
{
	LlmqHeapNode **nodes;
	int count;
	int capacity;
} LlmqHeap;

/* Makes room for count nodes in all; false when out of memory. */
extern bool llmq_heap_reserve(LlmqHeap *heap, int count);
extern void llmq_heap_free(LlmqHeap *heap);

/* Adds a node that is in no heap; there must be room. */
extern void llmq_heap_add(LlmqHeap *heap, LlmqHeapNode *node);

/* Takes a node out. */
extern void llmq_heap_remove(LlmqHeap *heap, LlmqHeapNode *node);

/* The node with the smallest key, or NULL. */
extern LlmqHeapNode *llmq_heap_top(const LlmqHeap *heap);

#endif /* LLMQ_HEAP_H */
