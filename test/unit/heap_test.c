/*
 * heap_test.c
 *		A heap gives its nodes by their keys, and lets any of them go.
 */
#include "base/heap.h"
#include "base/retry.h"
#include "tap.h"

#define NODES 200

int
main(void)
{
	static LlmqHeapNode nodes[NODES];
	LlmqHeap heap = {0};
	LlmqHeapNode *node;
	LlmqRandom random;
	LlmqHeapNode **held;
	int64_t last = -1;
	bool sorted = true;
	int taken = 0;

	llmq_random_seed(&random, 3);
	ok(llmq_heap_top(&heap) == NULL, "an empty heap has no top");
	ok(llmq_heap_reserve(&heap, NODES), "room can be had before it is needed");
	held = heap.nodes;
	ok(llmq_heap_reserve(&heap, NODES / 2) && heap.nodes == held,
	   "and what is there is not given away for less");
	for (int i = 0; i < NODES; i++)
	{
		nodes[i].key = llmq_random_upto(&random, 50);
		llmq_heap_add(&heap, &nodes[i]);
	}
	for (int i = 0; i < NODES; i += 3)
		llmq_heap_remove(&heap, &nodes[i]);
	for (; (node = llmq_heap_top(&heap)) != NULL; taken++)
	{
		sorted = sorted && node->key >= last && (node - nodes) % 3 != 0;
		last = node->key;
		llmq_heap_remove(&heap, node);
	}
	ok(sorted, "nodes come by their keys, and those that were let go come no more");
	is_int(taken, NODES - (NODES + 2) / 3, "each once");
	llmq_heap_free(&heap);
	return tap_done();
}
