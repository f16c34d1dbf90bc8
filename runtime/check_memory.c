// check_memory.c: every byte read holds what the operand names, and no two accesses race.
//
// Runs the tiles in ticket order over what each byte of each written buffer holds: a value, the
// counter its writer signals, and the counters of those who read it since. check_space.h keeps
// them.
//
// Only the last writer and the readers since need to happen before a write: they themselves came
// after everything earlier, by the same test. Hence the verdict is exact.
#include "check_space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Sets of counters are chains that share their tails; `memo` maps (set, counter) to the result.
typedef struct link {
  uint32_t counter, rest;
} link_t;
typedef struct memo {
  uint32_t set, counter, result;
} memo_t;

// The last access of an operand that reads: tiles in a row mostly read the same, after the same.
typedef struct repeat {
  gos_pieces_t pieces;
  uint32_t wait_list, signal;
} repeat_t;

typedef struct memory {
  gos_check_t *check;
  gos_order_t order;
  gos_space_t *spaces; // of each buffer; points == NULL: never written
  uint64_t cells;
  repeat_t *repeats; // of each operand; pieces.run == 0: none yet
  link_t *links;     // link 0 is the empty set
  memo_t *memo;      // open addressing, set == GPUOS_NONE: free
  uint32_t link_count, link_capacity, memo_count, memo_capacity;
  // of the tile being run
  uint32_t tile;
  const gpuos_op_t *op;
  const uint64_t *before, *before_stamped;
} memory_t;

static bool no_memory(memory_t *m) {
  return gos_check_fail(m->check, GOS_CHECK_memory, GPUOS_NONE, "out of memory");
}

// All parts of operand x that any tile touches: they depend on the followed dimensions only.
static bool add_operand(memory_t *m, const gpuos_op_t *op, const gpuos_operand_t *x) {
  gos_space_t *s = &m->spaces[x->buffer];
  bool follows[GPUOS_DIMS] = {false};
  uint32_t boxes = 1;
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (x->follows[d] != GPUOS_ALL) follows[x->follows[d]] = true;
  gpuos_op_t part = *op; // the operator without the dimensions that do not matter
  for (int d = 0; d < GPUOS_DIMS; d++) {
    if (!follows[d]) part.extent[d] = 1;
    boxes *= gpuos_op_grid(&part, d);
  }
  for (uint32_t i = 0; i < boxes; i++) {
    gpuos_box_t box = gpuos_tile_box(&part, i);
    gos_pieces_t p = gos_pieces_cut(x, &box);
    if (!gos_space_add(m->check, s, &p)) return false;
  }
  return true;
}

static bool close_space(memory_t *m, uint32_t buffer) {
  gos_space_t *s = &m->spaces[buffer];
  if (s->points == NULL) return true;
  uint32_t role = m->check->buffers[buffer].role;
  bool undefined = role == GPUOS_OUTPUT || role == GPUOS_WORKSPACE;
  gos_state_t state = {.value = undefined ? GOS_UNDEFINED : buffer, .writer = GOS_INITIAL};
  if (!gos_space_close(m->check, s, state)) return false;
  m->cells += s->point_count;
  if (m->cells <= GOS_CHECK_MAX_CELLS) return true;
  return gos_check_fail(m->check, GOS_CHECK_record, GPUOS_NONE,
                        "accesses cut the buffers into more than %llu pieces", GOS_CHECK_MAX_CELLS);
}

typedef bool visit_t(memory_t *m, uint32_t op, const gpuos_operand_t *x);

static bool each_operand(memory_t *m, visit_t *visit) {
  for (uint32_t i = 0; i < m->check->table->ops.count; i++) {
    const gpuos_op_t *op = &m->check->ops[i];
    const gpuos_operand_t *x = m->check->operands + op->first_operand;
    for (uint32_t k = 0; m->check->grids[i] != 0 && k < op->operand_count; k++)
      if (!visit(m, i, &x[k])) return false;
  }
  return true;
}

static bool visit_written(memory_t *m, uint32_t op, const gpuos_operand_t *x) {
  (void)op;
  gos_space_t *s = &m->spaces[x->buffer];
  if (!x->writes || s->points != NULL) return true;
  return gos_space_open(m->check, s, m->check->buffers[x->buffer].bytes);
}

// Buffers that nobody writes hold one value all along.
static bool visit_any(memory_t *m, uint32_t op, const gpuos_operand_t *x) {
  if (m->spaces[x->buffer].points != NULL) return add_operand(m, &m->check->ops[op], x);
  uint32_t role = m->check->buffers[x->buffer].role;
  if (x->value == x->buffer && role != GPUOS_OUTPUT && role != GPUOS_WORKSPACE) return true;
  return gos_check_fail(m->check, GOS_CHECK_read_before_write, GPUOS_NONE,
                        "operator %u '%s' reads value %u from buffer '%s', which nobody writes", op,
                        GOS_OP_NAME(m->check, op), x->value, GOS_BUFFER_NAME(m->check, x->buffer));
}

static bool map_buffers(memory_t *m) {
  m->spaces = calloc(m->check->table->buffers.count, sizeof(*m->spaces));
  m->repeats = calloc(m->check->table->operands.count + (size_t)1, sizeof(*m->repeats));
  if (m->spaces == NULL || m->repeats == NULL) return no_memory(m);
  if (!each_operand(m, visit_written) || !each_operand(m, visit_any)) return false;
  for (uint32_t i = 0; i < m->check->table->buffers.count; i++)
    if (!close_space(m, i)) return false;
  return true;
}

// ---- sets of readers ----------------------------------------------------------------------------

static memo_t *find(const memory_t *m, uint32_t set, uint32_t counter) {
  uint64_t hash = (set * (uint64_t)0x9e3779b97f4a7c15u) ^ (counter * (uint64_t)0xc2b2ae3d27d4eb4fu);
  for (uint32_t i = (uint32_t)(hash >> 32);; i++) {
    memo_t *entry = &m->memo[i & (m->memo_capacity - 1)];
    if (entry->set == GPUOS_NONE || (entry->set == set && entry->counter == counter)) return entry;
  }
}

static bool grow_memo(memory_t *m) {
  memo_t *old = m->memo;
  uint32_t count = m->memo_capacity;
  m->memo_capacity = count == 0 ? 256 : 2 * count;
  m->memo = malloc(m->memo_capacity * sizeof(*m->memo));
  for (uint32_t i = 0; m->memo != NULL && i < m->memo_capacity; i++) m->memo[i].set = GPUOS_NONE;
  for (uint32_t i = 0; m->memo != NULL && i < count; i++)
    if (old[i].set != GPUOS_NONE) *find(m, old[i].set, old[i].counter) = old[i];
  free(old);
  return m->memo != NULL || no_memory(m);
}

static bool new_link(memory_t *m, uint32_t counter, uint32_t rest, uint32_t *out_set) {
  if (m->link_count == m->link_capacity) {
    m->link_capacity = m->link_capacity == 0 ? 256 : 2 * m->link_capacity;
    link_t *more = realloc(m->links, m->link_capacity * sizeof(*more));
    if (more == NULL) return no_memory(m);
    m->links = more;
  }
  m->links[m->link_count] = (link_t){.counter = counter, .rest = rest};
  *out_set = m->link_count++;
  return true;
}

// *out_set = set with counter in it.
static bool include(memory_t *m, uint32_t set, uint32_t counter, uint32_t *out_set) {
  *out_set = set;
  if (set != 0 && m->links[set].counter == counter) return true;
  if (2 * m->memo_count >= m->memo_capacity && !grow_memo(m)) return false;
  memo_t *entry = find(m, set, counter);
  if (entry->set == GPUOS_NONE) {
    if (m->memo_count++ > GOS_CHECK_MAX_SETS)
      return gos_check_fail(m->check, GOS_CHECK_record, GPUOS_NONE,
                            "more than %llu sets of readers", GOS_CHECK_MAX_SETS);
    uint32_t found = set, length = 1;
    for (; found != 0 && m->links[found].counter != counter; length++) found = m->links[found].rest;
    uint32_t result = set;
    if (!gos_check_spend(m->check, length)) return false;
    if (found == 0 && !new_link(m, counter, set, &result)) return false;
    *entry = (memo_t){.set = set, .counter = counter, .result = result};
  }
  *out_set = entry->result;
  return true;
}

// ---- a tile -------------------------------------------------------------------------------------

static bool is_in(const uint64_t *before, uint32_t counter) {
  if (counter == GOS_INITIAL) return true;
  return counter != GPUOS_NONE && gos_order_has(before, counter);
}
static bool is_before(const memory_t *m, uint32_t counter) { return is_in(m->before, counter); }

// Says which access is meant and what is wrong with it; a number of GOS_INITIAL is left out.
static bool blame(memory_t *m, gos_check_slug_t slug, const gpuos_operand_t *x, uint64_t lo,
                  const char *what, uint32_t number) {
  uint32_t op = (uint32_t)(m->op - m->check->ops);
  char which[16] = "";
  if (number < GOS_INITIAL) snprintf(which, sizeof(which), " %u", number);
  if (number == GPUOS_NONE) snprintf(which, sizeof(which), " none");
  return gos_check_fail(m->check, slug, m->tile,
                        "tile %u (%s) %s value %u %s buffer '%s' at byte %llu, %s%s", m->tile,
                        GOS_OP_NAME(m->check, op), x->writes ? "writes" : "reads", x->value,
                        x->writes ? "to" : "from", GOS_BUFFER_NAME(m->check, x->buffer),
                        (unsigned long long)lo, what, which);
}

// Operand x in the tile being run.
typedef struct access {
  const gpuos_operand_t *x;
  gos_pieces_t pieces;
  bool settled; // nothing to do: a buffer that nobody writes, or a repeat
} access_t;

// What one pass over the pieces of an access does to cells [i, j).
typedef bool act_t(memory_t *m, const gpuos_operand_t *x, uint32_t i, uint32_t j);

static bool each_piece(memory_t *m, const gpuos_operand_t *x, const gos_pieces_t *p, act_t *act) {
  gos_space_t *s = &m->spaces[x->buffer];
  uint32_t at[GPUOS_DIMS] = {0};
  uint64_t lo = p->lo;
  do {
    uint32_t i = gos_space_seek(s, &s->begin, lo), j = gos_space_seek(s, &s->end, lo + p->run);
    if (!gos_check_spend(m->check, 1 + (j - i) / 64) || !act(m, x, i, j)) return false;
  } while (gos_pieces_step(p, at, &lo));
  return true;
}

static bool check_read(memory_t *m, const gpuos_operand_t *x, uint32_t i, uint32_t j) {
  gos_space_t *s = &m->spaces[x->buffer];
  for (uint32_t head = gos_space_head(s, i); head < j; head = gos_space_next(s, head, j)) {
    const gos_state_t *state = &s->state[head];
    uint64_t lo = s->points[head < i ? i : head];
    if (!gos_check_spend(m->check, 1)) return false;
    if (state->value != x->value)
      return blame(m, GOS_CHECK_read_before_write, x, lo, "which holds value", state->value);
    if (!is_in(x->stamped ? m->before_stamped : m->before, state->writer))
      return blame(m, GOS_CHECK_race, x, lo, "whose writer it does not wait for: counter",
                   state->writer);
  }
  return true;
}

static bool check_write(memory_t *m, const gpuos_operand_t *x, uint32_t i, uint32_t j) {
  gos_space_t *s = &m->spaces[x->buffer];
  for (uint32_t head = gos_space_head(s, i); head < j; head = gos_space_next(s, head, j)) {
    uint64_t lo = s->points[head < i ? i : head];
    if (!is_before(m, s->state[head].writer))
      return blame(m, GOS_CHECK_race, x, lo, "whose writer it does not wait for: counter",
                   s->state[head].writer);
    if (!gos_check_spend(m->check, 1)) return false;
    for (uint32_t set = s->state[head].readers; set != 0; set = m->links[set].rest) {
      if (!gos_check_spend(m->check, 1)) return false;
      if (!is_before(m, m->links[set].counter))
        return blame(m, GOS_CHECK_race, x, lo,
                     "which a reader it does not wait for may still read: counter",
                     m->links[set].counter);
    }
  }
  return true;
}

static bool note_read(memory_t *m, const gpuos_operand_t *x, uint32_t i, uint32_t j) {
  gos_space_t *s = &m->spaces[x->buffer];
  uint32_t counter = m->check->tiles[m->tile].signal, next;
  for (uint32_t head = gos_space_head(s, i); head < j; head = next) {
    uint32_t readers, from = head < i ? i : head;
    next = gos_space_next(s, head, j);
    if (!gos_check_spend(m->check, 1) || !include(m, s->state[head].readers, counter, &readers))
      return false;
    if (readers == s->state[head].readers) continue;
    gos_space_split(s, from);
    gos_space_split(s, next);
    s->state[from].readers = readers;
    gos_space_fuse(s, from);
  }
  gos_space_fuse(s, j);
  return true;
}

static bool do_write(memory_t *m, const gpuos_operand_t *x, uint32_t i, uint32_t j) {
  gos_space_t *s = &m->spaces[x->buffer];
  gos_space_split(s, i);
  gos_space_split(s, j);
  for (uint32_t base = i / 64 * 64; base < j; base += 64)
    s->heads[base / 64] &= ~gos_space_mask(base, i, j);
  s->heads[i / 64] |= 1ull << (i % 64);
  s->state[i] = (gos_state_t){.value = x->value, .writer = m->check->tiles[m->tile].signal};
  gos_space_fuse(s, i);
  gos_space_fuse(s, j);
  return true;
}

static bool mark(memory_t *m, const gpuos_operand_t *x, uint32_t i, uint32_t j) {
  uint64_t *marks = m->spaces[x->buffer].marks;
  for (uint32_t base = i / 64 * 64; base < j; base += 64)
    marks[base / 64] |= gos_space_mask(base, i, j);
  return true;
}

static bool unmark(memory_t *m, const gpuos_operand_t *x, uint32_t i, uint32_t j) {
  uint64_t *marks = m->spaces[x->buffer].marks;
  for (uint32_t base = i / 64 * 64; base < j; base += 64)
    marks[base / 64] &= ~gos_space_mask(base, i, j);
  return true;
}

static bool check_mark(memory_t *m, const gpuos_operand_t *x, uint32_t i, uint32_t j) {
  const gos_space_t *s = &m->spaces[x->buffer];
  for (uint32_t base = i / 64 * 64; base < j; base += 64)
    if (s->marks[base / 64] & gos_space_mask(base, i, j))
      return blame(m, GOS_CHECK_race, x, s->points[i], "which it also reads through another view",
                   GOS_INITIAL);
  return true;
}

// Inside a tile nothing orders reads and writes, except that an element is read before the same
// element is written.
static bool check_self(memory_t *m, const gpuos_operand_t *read, const gos_pieces_t *from,
                       const gpuos_operand_t *write, const gos_pieces_t *to) {
  if (read->buffer != write->buffer || gos_check_same_view(read, write)) return true;
  if (from->lo >= gos_pieces_end(to) || to->lo >= gos_pieces_end(from)) return true;
  return each_piece(m, read, from, mark) && each_piece(m, write, to, check_mark) &&
         each_piece(m, read, from, unmark);
}

static bool check_own(memory_t *m, const access_t *accesses) {
  const access_t *end = accesses + m->op->operand_count;
  for (const access_t *w = accesses; w < end; w++)
    for (const access_t *r = accesses; w->x->writes && r < end; r++)
      if (!r->x->writes && !check_self(m, r->x, &r->pieces, w->x, &w->pieces)) return false;
  return true;
}

// True if operand x was last read in the same pieces by a tile with the same wait list and signal:
// then nothing is left to check or to note. Nobody can have written there since: that tile would
// have had to wait for this signal, which this tile has still to give.
static bool is_repeat(const memory_t *m, const gpuos_operand_t *x, const gos_pieces_t *pieces) {
  const gpuos_tile_t *tile = &m->check->tiles[m->tile];
  const repeat_t *last = &m->repeats[x - m->check->operands];
  return !x->writes && last->wait_list == tile->wait_list && last->signal == tile->signal &&
         gos_pieces_equal(&last->pieces, pieces);
}

// Keeps what is_repeat asks for.
static void remember(memory_t *m, const access_t *access) {
  const gpuos_tile_t *tile = &m->check->tiles[m->tile];
  if (!access->settled && !access->x->writes)
    m->repeats[access->x - m->check->operands] =
        (repeat_t){access->pieces, tile->wait_list, tile->signal};
}

// One pass over the accesses that read, or that write.
static bool each_access(memory_t *m, const access_t *accesses, uint8_t writes, act_t *act) {
  for (uint32_t k = 0; k < m->op->operand_count; k++)
    if (accesses[k].x->writes == writes && !accesses[k].settled &&
        !each_piece(m, accesses[k].x, &accesses[k].pieces, act))
      return false;
  return true;
}

static void find_accesses(memory_t *m, access_t *accesses) {
  gpuos_box_t box = gpuos_tile_box(m->op, m->check->tiles[m->tile].index);
  for (uint32_t k = 0; k < m->op->operand_count; k++) {
    const gpuos_operand_t *x = m->check->operands + m->op->first_operand + k;
    bool tracked = m->spaces[x->buffer].points != NULL;
    accesses[k] = (access_t){.x = x, .settled = true};
    if (!tracked) continue;
    accesses[k].pieces = gos_pieces_cut(x, &box);
    accesses[k].settled = is_repeat(m, x, &accesses[k].pieces);
  }
}

static bool run_tile(memory_t *m, uint32_t number) {
  const gpuos_tile_t *tile = &m->check->tiles[number];
  access_t accesses[GPUOS_MAX_OPERANDS];
  m->tile = number;
  m->op = &m->check->ops[tile->op];
  m->before = gos_order_before(m->check, &m->order, tile->wait_list);
  m->before_stamped = gos_order_before_stamped(m->check, &m->order, tile->wait_list);
  if (m->before == NULL || m->before_stamped == NULL) return false;
  find_accesses(m, accesses);
  // Its own reads are noted after its writes were checked: they are not in its own way.
  bool safe = each_access(m, accesses, 0, check_read) && each_access(m, accesses, 1, check_write) &&
              check_own(m, accesses) && each_access(m, accesses, 0, note_read) &&
              each_access(m, accesses, 1, do_write);
  for (uint32_t k = 0; k < m->op->operand_count; k++) remember(m, &accesses[k]);
  return safe && gos_order_signal(m->check, &m->order, tile);
}

// ---- the end of the step ------------------------------------------------------------------------

static bool check_output(memory_t *m, uint32_t buffer) {
  const gos_space_t *s = &m->spaces[buffer];
  uint64_t missing = GOS_CHECK_MAX_BYTES;
  if (s->points == NULL) missing = 0;
  uint32_t end = s->points == NULL ? 0 : (uint32_t)s->point_count - 1;
  for (uint32_t i = 0; i < end; i = gos_space_next(s, i, end))
    if (s->state[i].value == GOS_UNDEFINED && s->points[i] < missing) missing = s->points[i];
  if (missing >= m->check->buffers[buffer].bytes) return true;
  return gos_check_fail(m->check, GOS_CHECK_output, GPUOS_NONE,
                        "byte %llu of output '%s' is never written", (unsigned long long)missing,
                        GOS_BUFFER_NAME(m->check, buffer));
}

static bool run_step(memory_t *m) {
  uint32_t root;
  if (!gos_order_create(m->check, &m->order) || !map_buffers(m)) return false;
  if (!new_link(m, GPUOS_NONE, 0, &root)) return false;
  for (uint32_t i = 0; i < m->check->table->tiles.count; i++)
    if (!run_tile(m, i)) return false;
  for (uint32_t i = 0; i < m->check->table->buffers.count; i++)
    if (m->check->buffers[i].role == GPUOS_OUTPUT && !check_output(m, i)) return false;
  return true;
}

static void release(memory_t *m) {
  for (uint32_t i = 0; m->spaces != NULL && i < m->check->table->buffers.count; i++)
    gos_space_destroy(&m->spaces[i]);
  free(m->spaces);
  free(m->repeats);
  free(m->links);
  free(m->memo);
  gos_order_destroy(&m->order);
}

bool gos_check_memory(gos_check_t *check) {
  memory_t m = {.check = check};
  bool safe = run_step(&m);
  release(&m);
  return safe;
}
