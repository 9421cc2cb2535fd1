/*
 * ready.c
 *		The ids of ready jobs in memory, and whose turn it is.
 *
 * A lane has the ids of one tenant with one priority in one queue, oldest first.  The lanes of
 * a queue and priority form a ring.  Taking an id from the lane at its head moves the head to
 * the next lane, so tenants take turns.  Lanes are found with a chained hash table and freed
 * when they run empty.
 *
 * The hash table and the set of ids are our own because libc's hsearch has one global table
 * without removal, and the set takes millions of ids at 8 bytes for each place.
 */
#include "jobs/ready.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKETS	64
#define FIRST_LANE_IDS	4
#define FIRST_SET_SLOTS 1024

typedef struct Lane
{
	struct Lane *next_in_bucket;
	struct Lane *previous; /* ring of lanes with ids */
	struct Lane *next;
	int queue;
	int priority;
	uint64_t hash;
	int64_t *ids; /* circular */
	size_t capacity;
	size_t head;
	size_t count;
	char tenant[];
} Lane;

typedef struct Queue
{
	char *name;
	Lane *ring[LLMQ_PRIORITIES];
	size_t count;
	int allowance; /* during a take */
} Queue;

/* Open addressing with linear probing; 0 marks a free place (identities start at 1). */
typedef struct IdSet
{
	int64_t *slots;
	size_t size; /* a power of two */
	size_t count;
} IdSet;

struct LlmqReady
{
	Queue *queues;
	int queue_count;
	int turn; /* the queue that comes first */
	Lane **buckets;
	size_t bucket_count;
	size_t lane_count;
	IdSet ids;
};

static uint64_t mix(uint64_t x);
static bool set_has(const IdSet *set, int64_t id);
static bool set_add(IdSet *set, int64_t id);
static void set_remove(IdSet *set, int64_t id);
static int find_queue(LlmqReady *ready, const char *name);
static Lane *find_lane(LlmqReady *ready, int queue, int priority, const char *tenant);
static bool lane_push(Lane *lane, int64_t id);
static void link_lane(Queue *queue, Lane *lane);
static void drop_lane(LlmqReady *ready, Lane *lane);
static int64_t take_one(LlmqReady *ready, Queue *queue);

LlmqReady *
llmq_ready_create(void)
{
	LlmqReady *ready = calloc(1, sizeof(*ready));

	if (ready == NULL)
		return NULL;
	ready->buckets = calloc(FIRST_BUCKETS, sizeof(*ready->buckets));
	ready->bucket_count = FIRST_BUCKETS;
	ready->ids.slots = calloc(FIRST_SET_SLOTS, sizeof(*ready->ids.slots));
	ready->ids.size = FIRST_SET_SLOTS;
	if (ready->buckets == NULL || ready->ids.slots == NULL)
	{
		llmq_ready_destroy(ready);
		return NULL;
	}
	return ready;
}

void
llmq_ready_destroy(LlmqReady *ready)
{
	if (ready == NULL)
		return;
	for (size_t i = 0; ready->buckets != NULL && i < ready->bucket_count; i++)
	{
		while (ready->buckets[i] != NULL)
		{
			Lane *lane = ready->buckets[i];

			ready->buckets[i] = lane->next_in_bucket;
			free(lane->ids);
			free(lane);
		}
	}
	for (int i = 0; i < ready->queue_count; i++)
		free(ready->queues[i].name);
	free(ready->queues);
	free(ready->buckets);
	free(ready->ids.slots);
	free(ready);
}

bool
llmq_ready_add(LlmqReady *ready, int64_t seq, const char *queue, const char *tenant, int priority)
{
	int q;
	Lane *lane;

	if (set_has(&ready->ids, seq))
		return true;
	if (ready->ids.count >= LLMQ_READY_MAX)
		return false;
	priority = priority < 0 ? 0 : priority >= LLMQ_PRIORITIES ? LLMQ_PRIORITIES - 1 : priority;
	q = find_queue(ready, queue);
	lane = q < 0 ? NULL : find_lane(ready, q, priority, tenant);
	if (lane == NULL || !set_add(&ready->ids, seq))
		return false;
	if (!lane_push(lane, seq))
	{
		set_remove(&ready->ids, seq);
		return false;
	}
	if (lane->count == 1)
		link_lane(&ready->queues[q], lane);
	ready->queues[q].count++;
	return true;
}

bool
llmq_ready_hold(LlmqReady *ready, int64_t seq)
{
	return set_has(&ready->ids, seq) || set_add(&ready->ids, seq);
}

void
llmq_ready_release(LlmqReady *ready, int64_t seq)
{
	set_remove(&ready->ids, seq);
}

size_t
llmq_ready_count(const LlmqReady *ready)
{
	return ready->ids.count;
}

size_t
llmq_ready_depth(const LlmqReady *ready, const char *queue)
{
	for (int i = 0; i < ready->queue_count; i++)
	{
		if (strcmp(ready->queues[i].name, queue) == 0)
			return ready->queues[i].count;
	}
	return 0;
}

int
llmq_ready_take(LlmqReady *ready, int64_t *seqs, int max, LlmqReadyAllowance allowance,
				void *context)
{
	int taken = 0;
	bool any = true;

	for (int i = 0; i < ready->queue_count; i++)
	{
		Queue *queue = &ready->queues[i];

		queue->allowance = queue->count == 0 ? 0 : allowance(context, queue->name);
	}
	while (any && taken < max)
	{
		any = false;
		for (int i = 0; i < ready->queue_count && taken < max; i++)
		{
			Queue *queue = &ready->queues[(ready->turn + i) % ready->queue_count];

			if (queue->allowance <= 0 || queue->count == 0)
				continue;
			seqs[taken++] = take_one(ready, queue);
			queue->allowance--;
			any = true;
		}
	}
	if (ready->queue_count > 0)
		ready->turn = (ready->turn + 1) % ready->queue_count;
	return taken;
}

bool
llmq_ready_any(LlmqReady *ready, LlmqReadyAllowance allowance, void *context)
{
	for (int i = 0; i < ready->queue_count; i++)
	{
		if (ready->queues[i].count > 0 && allowance(context, ready->queues[i].name) > 0)
			return true;
	}
	return false;
}

/* Takes the next id of a queue that has one. */
static int64_t
take_one(LlmqReady *ready, Queue *queue)
{
	int priority = LLMQ_PRIORITIES - 1;
	Lane *lane;
	int64_t id;

	while (queue->ring[priority] == NULL)
		priority--;
	lane = queue->ring[priority];
	id = lane->ids[lane->head];
	lane->head = (lane->head + 1) % lane->capacity;
	lane->count--;
	queue->count--;
	queue->ring[priority] = lane->next;
	if (lane->count == 0)
		drop_lane(ready, lane);
	set_remove(&ready->ids, id);
	return id;
}

/* Returns the index of a queue, which is added if it is new; -1 when out of memory. */
static int
find_queue(LlmqReady *ready, const char *name)
{
	Queue *queues;

	for (int i = 0; i < ready->queue_count; i++)
	{
		if (strcmp(ready->queues[i].name, name) == 0)
			return i;
	}
	queues = realloc(ready->queues, sizeof(*queues) * (size_t) (ready->queue_count + 1));
	if (queues == NULL)
		return -1;
	ready->queues = queues;
	memset(&queues[ready->queue_count], 0, sizeof(*queues));
	queues[ready->queue_count].name = strdup(name);
	if (queues[ready->queue_count].name == NULL)
		return -1;
	return ready->queue_count++;
}

static uint64_t
mix(uint64_t x)
{
	x ^= x >> 33;
	x *= UINT64_C(0xff51afd7ed558ccd);
	x ^= x >> 33;
	return x;
}

static uint64_t
hash_lane(int queue, int priority, const char *tenant)
{
	uint64_t hash = UINT64_C(1469598103934665603) + (uint64_t) queue * 16 + (uint64_t) priority;

	for (; *tenant != '\0'; tenant++)
		hash = (hash ^ (unsigned char) *tenant) * UINT64_C(1099511628211);
	return mix(hash);
}

static void
grow_buckets(LlmqReady *ready)
{
	size_t count = ready->bucket_count * 2;
	Lane **buckets = calloc(count, sizeof(*buckets));

	if (buckets == NULL)
		return; /* out of memory: chains merely get longer */
	for (size_t i = 0; i < ready->bucket_count; i++)
	{
		while (ready->buckets[i] != NULL)
		{
			Lane *lane = ready->buckets[i];

			ready->buckets[i] = lane->next_in_bucket;
			lane->next_in_bucket = buckets[lane->hash % count];
			buckets[lane->hash % count] = lane;
		}
	}
	free(ready->buckets);
	ready->buckets = buckets;
	ready->bucket_count = count;
}

/* Finds or creates a lane; NULL when out of memory. */
static Lane *
find_lane(LlmqReady *ready, int queue, int priority, const char *tenant)
{
	uint64_t hash = hash_lane(queue, priority, tenant);
	size_t len = strlen(tenant) + 1;
	Lane *lane;

	for (lane = ready->buckets[hash % ready->bucket_count]; lane != NULL;
		 lane = lane->next_in_bucket)
	{
		if (lane->hash == hash && lane->queue == queue && lane->priority == priority &&
			strcmp(lane->tenant, tenant) == 0)
			return lane;
	}
	if (ready->lane_count > ready->bucket_count)
		grow_buckets(ready);
	lane = calloc(1, sizeof(*lane) + len);
	if (lane == NULL)
		return NULL;
	memcpy(lane->tenant, tenant, len);
	lane->queue = queue;
	lane->priority = priority;
	lane->hash = hash;
	lane->next_in_bucket = ready->buckets[hash % ready->bucket_count];
	ready->buckets[hash % ready->bucket_count] = lane;
	ready->lane_count++;
	return lane;
}

static bool
lane_push(Lane *lane, int64_t id)
{
	if (lane->count == lane->capacity)
	{
		size_t capacity = lane->capacity == 0 ? FIRST_LANE_IDS : lane->capacity * 2;
		int64_t *ids = malloc(capacity * sizeof(*ids));

		if (ids == NULL)
			return false;
		for (size_t i = 0; i < lane->count; i++)
			ids[i] = lane->ids[(lane->head + i) % lane->capacity];
		free(lane->ids);
		lane->ids = ids;
		lane->capacity = capacity;
		lane->head = 0;
	}
	lane->ids[(lane->head + lane->count++) % lane->capacity] = id;
	return true;
}

/* Puts a lane that got its first id at the end of its ring. */
static void
link_lane(Queue *queue, Lane *lane)
{
	Lane **ring = &queue->ring[lane->priority];

	if (*ring == NULL)
	{
		lane->next = lane->previous = lane;
		*ring = lane;
		return;
	}
	lane->next = *ring;
	lane->previous = (*ring)->previous;
	lane->previous->next = lane;
	lane->next->previous = lane;
}

/* Takes an empty lane out of its ring and its bucket, and frees it. */
static void
drop_lane(LlmqReady *ready, Lane *lane)
{
	Queue *queue = &ready->queues[lane->queue];
	Lane **link = &ready->buckets[lane->hash % ready->bucket_count];

	if (lane->next == lane)
		queue->ring[lane->priority] = NULL;
	else
	{
		lane->previous->next = lane->next;
		lane->next->previous = lane->previous;
	}
	while (*link != lane)
		link = &(*link)->next_in_bucket;
	*link = lane->next_in_bucket;
	ready->lane_count--;
	free(lane->ids);
	free(lane);
}

static size_t
set_home(const IdSet *set, int64_t id)
{
	return (size_t) mix((uint64_t) id) & (set->size - 1);
}

static size_t
set_find(const IdSet *set, int64_t id)
{
	size_t i = set_home(set, id);

	while (set->slots[i] != 0 && set->slots[i] != id)
		i = (i + 1) & (set->size - 1);
	return i;
}

static bool
set_has(const IdSet *set, int64_t id)
{
	return set->slots[set_find(set, id)] == id;
}

static bool
set_grow(IdSet *set)
{
	IdSet grown = {calloc(set->size * 2, sizeof(int64_t)), set->size * 2, set->count};

	if (grown.slots == NULL)
		return false;
	for (size_t i = 0; i < set->size; i++)
	{
		if (set->slots[i] != 0)
			grown.slots[set_find(&grown, set->slots[i])] = set->slots[i];
	}
	free(set->slots);
	*set = grown;
	return true;
}

static bool
set_add(IdSet *set, int64_t id)
{
	if (set->count * 2 >= set->size && !set_grow(set))
		return false;
	set->slots[set_find(set, id)] = id;
	set->count++;
	return true;
}

/* Removes an id and closes the gap, so that no deletion markers are needed. */
static void
set_remove(IdSet *set, int64_t id)
{
	size_t hole = set_find(set, id);
	size_t i = hole;

	if (set->slots[hole] != id)
		return;
	for (;;)
	{
		size_t home;

		i = (i + 1) & (set->size - 1);
		if (set->slots[i] == 0)
			break;
		home = set_home(set, set->slots[i]);
		if (((i - home) & (set->size - 1)) < ((i - hole) & (set->size - 1)))
			continue;
		set->slots[hole] = set->slots[i];
		hole = i;
	}
	set->slots[hole] = 0;
	set->count--;
}
