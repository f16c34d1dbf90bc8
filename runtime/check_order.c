// check_order.c: progress, thresholds, and which tile happens before which.
//
// A wait is over when its counter has all its signals of the step. So waiting for a counter orders
// every tile that signals it, and all those waited for, before the waiter; nothing else orders
// tiles. The waits for what comes stamped order only the reading of that: who has seen the stamps goes on
// without them. Because a tile waits only for lower tickets, one pass in ticket order sees each set
// complete before it is used.
#include "check_parts.h"

#include <stdlib.h>

// ---- progress and thresholds --------------------------------------------------------------------

typedef struct signals {
  uint32_t *count;  // tiles that signal each counter
  uint32_t *last;   // the highest ticket of them
  uint32_t *latest; // of each wait list: the counter with the highest last ticket, or NONE
} signals_t;

static void count_signals(const gos_check_t *check, signals_t *s) {
  for (uint32_t i = 0; i < check->table->tiles.count; i++) {
    uint32_t counter = check->tiles[i].signal;
    if (counter == GPUOS_NONE) continue;
    s->count[counter]++;
    s->last[counter] = i;
  }
}

static bool check_list(gos_check_t *check, signals_t *s, uint32_t list) {
  s->latest[list] = GPUOS_NONE;
  const gpuos_wait_t *wait = check->waits + check->wait_lists[list].first;
  for (uint32_t i = 0; i < check->wait_lists[list].count; i++, wait++) {
    uint32_t counter = wait->counter, *latest = &s->latest[list];
    if (s->count[counter] == 0)
      return gos_check_fail(check, GOS_CHECK_progress, GPUOS_NONE,
                            "wait list %u: nobody signals counter %u", list, counter);
    if (wait->threshold != s->count[counter])
      return gos_check_fail(check, GOS_CHECK_threshold, GPUOS_NONE,
                            "wait list %u: threshold %u for counter %u, which receives %u", list,
                            wait->threshold, counter, s->count[counter]);
    if (*latest == GPUOS_NONE || s->last[counter] > s->last[*latest]) *latest = counter;
  }
  return true;
}

static bool check_signals(gos_check_t *check, signals_t *s) {
  const gpuos_table_t *t = check->table;
  count_signals(check, s);
  for (uint32_t i = 0; i < t->counters.count; i++)
    if (check->counters[i] != s->count[i])
      return gos_check_fail(check, GOS_CHECK_threshold, GPUOS_NONE,
                            "counter %u receives %u signals, the table says %u", i, s->count[i],
                            check->counters[i]);
  for (uint32_t i = 0; i < t->wait_lists.count; i++)
    if (!check_list(check, s, i)) return false;
  for (uint32_t i = 0; i < t->tiles.count; i++) {
    uint32_t counter = s->latest[check->tiles[i].wait_list];
    if (counter != GPUOS_NONE && s->last[counter] >= i)
      return gos_check_fail(check, GOS_CHECK_progress, i,
                            "tile %u (%s) waits for counter %u, signalled by tile %u", i,
                            GOS_OP_NAME(check, check->tiles[i].op), counter, s->last[counter]);
  }
  return true;
}

bool gos_check_progress(gos_check_t *check) {
  const gpuos_table_t *t = check->table;
  signals_t s = {
      .count = calloc(t->counters.count + (size_t)1, sizeof(uint32_t)),
      .last = calloc(t->counters.count + (size_t)1, sizeof(uint32_t)),
      .latest = calloc(t->wait_lists.count + (size_t)1, sizeof(uint32_t)),
  };
  bool right = s.count != NULL && s.last != NULL && s.latest != NULL
                   ? check_signals(check, &s)
                   : gos_check_fail(check, GOS_CHECK_memory, GPUOS_NONE, "out of memory");
  free(s.count);
  free(s.last);
  free(s.latest);
  return right;
}

// ---- happens before -----------------------------------------------------------------------------

bool gos_order_create(gos_check_t *check, gos_order_t *out_order) {
  const gpuos_table_t *t = check->table;
  uint64_t counters = t->counters.count, lists = t->wait_lists.count, long_lists = 0;
  for (uint64_t i = 0; i < lists; i++)
    long_lists += (check->wait_lists[i].count > 1) + (check->wait_lists[i].stamped > 0);
  *out_order = (gos_order_t){.words = counters / 64 + 1};
  if (counters + long_lists + 1 > GOS_CHECK_MAX_ORDER_BITS / 64 / out_order->words)
    return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                          "%llu counters and %llu wait lists are too many to be checked",
                          (unsigned long long)counters, (unsigned long long)lists);
  uint64_t set_bytes = out_order->words * sizeof(uint64_t);
  out_order->of_counter = calloc(counters + 1, set_bytes);
  out_order->of_long_lists = calloc(long_lists + 1, set_bytes);
  out_order->of_list = calloc(lists + 1, sizeof(*out_order->of_list));
  out_order->of_stamped = calloc(lists + 1, sizeof(*out_order->of_stamped));
  out_order->joined = malloc((counters + 1) * sizeof(*out_order->joined));
  if (out_order->of_counter == NULL || out_order->of_long_lists == NULL ||
      out_order->of_list == NULL || out_order->of_stamped == NULL || out_order->joined == NULL)
    return gos_check_fail(check, GOS_CHECK_memory, GPUOS_NONE, "out of memory");
  for (uint64_t i = 0; i < counters; i++) out_order->joined[i] = GPUOS_NONE;
  out_order->none = out_order->of_counter + counters * out_order->words;
  return true;
}

void gos_order_destroy(gos_order_t *order) {
  free(order->of_counter);
  free(order->of_long_lists);
  free(order->of_list);
  free(order->of_stamped);
  free(order->joined);
}

static void join(uint64_t *into, const uint64_t *from, uint64_t words) {
  for (uint64_t i = 0; i < words; i++) into[i] |= from[i];
}

// Of the first `count` waits of a list.
static const uint64_t *join_waits(gos_check_t *check, gos_order_t *order, const gpuos_wait_t *wait,
                                  uint32_t count) {
  if (!gos_check_spend(check, count * order->words)) return NULL;
  if (count == 0) return order->none;
  if (count == 1) return order->of_counter + wait->counter * order->words;
  uint64_t *sum = order->of_long_lists + order->long_used++ * order->words;
  for (uint32_t i = 0; i < count; i++)
    join(sum, order->of_counter + wait[i].counter * order->words, order->words);
  return sum;
}

const uint64_t *gos_order_before(gos_check_t *check, gos_order_t *order, uint32_t wait_list) {
  gpuos_wait_list_t list = check->wait_lists[wait_list];
  const uint64_t **set = &order->of_list[wait_list];
  if (*set == NULL)
    *set = join_waits(check, order, check->waits + list.first, list.count - list.stamped);
  return *set;
}

const uint64_t *gos_order_before_stamped(gos_check_t *check, gos_order_t *order,
                                         uint32_t wait_list) {
  gpuos_wait_list_t list = check->wait_lists[wait_list];
  const uint64_t **set = &order->of_stamped[wait_list];
  if (list.stamped == 0) return gos_order_before(check, order, wait_list);
  if (*set == NULL) *set = join_waits(check, order, check->waits + list.first, list.count);
  return *set;
}

bool gos_order_signal(gos_check_t *check, gos_order_t *order, const gpuos_tile_t *tile) {
  uint32_t counter = tile->signal;
  // Neighbours in ticket order mostly wait for and signal the same.
  if (counter == GPUOS_NONE || order->joined[counter] == tile->wait_list) return true;
  const uint64_t *before = gos_order_before(check, order, tile->wait_list);
  if (before == NULL || !gos_check_spend(check, order->words)) return false;
  uint64_t *set = order->of_counter + counter * order->words;
  join(set, before, order->words);
  set[counter / 64] |= 1ull << (counter % 64);
  order->joined[counter] = tile->wait_list;
  return true;
}
