/*
 * heap.c
 *		A binary heap with the smallest key on top, whose nodes know their position.
 *
 * It is our own because libc has none, and PostgreSQL's needs its headers, which the engine
 * must not include.
 */
#include "base/heap.h"

#include <stdlib.h>

static void
place(LlmqHeap *heap, int index, LlmqHeapNode *node)
{
	heap->nodes[index] = node;
	node->index = index;
}

static void
sift_up(LlmqHeap *heap, int index)
{
	LlmqHeapNode *node = heap->nodes[index];

	while (index > 0 && heap->nodes[(index - 1) / 2]->key > node->key)
	{
		place(heap, index, heap->nodes[(index - 1) / 2]);
		index = (index - 1) / 2;
	}
	place(heap, index, node);
}

static void
sift_down(LlmqHeap *heap, int index)
{
	LlmqHeapNode *node = heap->nodes[index];

	for (;;)
	{
		int child = 2 * index + 1;

		if (child + 1 < heap->count && heap->nodes[child + 1]->key < heap->nodes[child]->key)
			child++;
		if (child >= heap->count || heap->nodes[child]->key >= node->key)
			break;
		place(heap, index, heap->nodes[child]);
		index = child;
	}
	place(heap, index, node);
}

bool
llmq_heap_reserve(LlmqHeap *heap, int count)
{
	int capacity = heap->capacity == 0 ? 64 : heap->capacity;
	LlmqHeapNode **nodes;

	if (count <= heap->capacity)
		return true;
	while (capacity < count)
		capacity *= 2;
	nodes = realloc(heap->nodes, sizeof(LlmqHeapNode *) * (size_t) capacity);
	if (nodes == NULL)
		return false;
	heap->nodes = nodes;
	heap->capacity = capacity;
	return true;
}

void
llmq_heap_free(LlmqHeap *heap)
{
	free(heap->nodes);
	*heap = (LlmqHeap){0};
}

void
llmq_heap_add(LlmqHeap *heap, LlmqHeapNode *node)
{
	place(heap, heap->count++, node);
	sift_up(heap, node->index);
}

void
llmq_heap_remove(LlmqHeap *heap, LlmqHeapNode *node)
{
	LlmqHeapNode *last = heap->nodes[--heap->count];
	int index = node->index;

	if (last == node)
		return;
	place(heap, index, last);
	sift_up(heap, index);
	sift_down(heap, last->index);
}

LlmqHeapNode *
llmq_heap_top(const LlmqHeap *heap)
{
	return heap->count > 0 ? heap->nodes[0] : NULL;
}
