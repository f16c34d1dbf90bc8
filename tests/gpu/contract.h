// contract.h: the smallest kernel that keeps the runtime's contract, for test_device_cuda.c.
//
// Runs the scale model of tests/unit/runtime/models.h: one thread an SM, another one that relays
// between host and SMs. A whole negative x[0] makes it misbehave in a way that a test wants to see
// explained. In the common part of C and CUDA: contract.cu runs it on a GPU, fake_cuda.c on threads.
// Each defines the words before it includes this:
//
//   CONTRACT                 qualifiers of a function
//   ld32 st32 add32 cas32    words that host and SMs share: acquire, release; add32 gives the old
//   ld64 st64 add64 cas64    value, cas whether it swapped
//   now_ns nap trap dead     a clock; a moment's rest; the end of everything; whether that has come
//   chip_sm                  the chip's number of this SM
#ifndef GOS_TEST_CONTRACT_H_
#define GOS_TEST_CONTRACT_H_

enum misbehaviour {
  BAD_INDEX = -1, // a fault
  NO_SIGNAL = -2, // lost signals: a stall
  SPIN = -3,      // a unit that ends only when it is told to stop
  GO = -4,        // the kernel leaves without a word
  TRAP = -5,      // and the context with it
  DEAF = -6,      // a unit that ends when it wants to, after DEAF_NS
  SLOW = -7,      // units of SLOW_NS
  PARK = -8,      // the same; odd ones that end when their SM is not lent count as put down
};
#define DEAF_NS UINT64_C(6000000000)
#define SLOW_NS UINT64_C(200000)

typedef struct sm {
  const gpuos_launch_args_t *args;
  const gpuos_table_t *table;
  gpuos_control_t *control;
  gpuos_mailbox_t *mailbox; // NULL: one step
  gpuos_sm_t *record;
  uint32_t number, step;
} sm_t;

CONTRACT sm_t open_sm(const gpuos_launch_args_t *args, uint32_t number) {
  sm_t sm;
  sm.args = args;
  sm.table = (const gpuos_table_t *)args->table;
  sm.control = (gpuos_control_t *)args->control;
  sm.mailbox = (gpuos_mailbox_t *)args->mailbox;
  sm.record = (gpuos_sm_t *)args->sms + number;
  sm.number = number;
  sm.step = 0;
  return sm;
}

// ---- faults and commands ------------------------------------------------------------------------

CONTRACT void fault(const sm_t *sm, uint32_t kind, uint32_t tile, uint32_t a, uint32_t b,
                    uint32_t found) {
  gpuos_control_t *c = sm->control;
  if (!cas32(&c->fault, GPUOS_FAULT_NONE, kind)) return;
  st32(&c->fault_sm, sm->number);
  st32(&c->fault_tile, tile);
  st32(&c->fault_slice, 0);
  st32(&c->fault_a, a);
  st32(&c->fault_b, b);
  st32(&c->fault_c, found);
}

CONTRACT int stopped(const sm_t *sm) {
  return dead() || ld32(&sm->control->command) == GPUOS_ABORT ||
         ld32(&sm->control->fault) != GPUOS_FAULT_NONE;
}

// Stays while a pause lasts.
CONTRACT void hold(const sm_t *sm) {
  if (ld32(&sm->control->command) != GPUOS_PAUSE) return;
  sm->record->held_ns = now_ns();
  add32(&sm->control->held_count, 1);
  while (ld32(&sm->control->command) == GPUOS_PAUSE && !stopped(sm)) nap();
  add32(&sm->control->held_count, 0xffffffffu);
}

CONTRACT int lent(const sm_t *sm) {
  return ld32(&sm->control->sm_lent[sm->number / 32]) >> sm->number % 32 & 1;
}

// A word that only this kernel uses, and that a launch clears: all of it goes.
CONTRACT uint32_t *gone(const sm_t *sm) { return &sm->control->reserved2[0]; }

CONTRACT void report(const sm_t *sm, uint32_t phase, uint32_t tile) {
  st32(&sm->record->tile, tile);
  st32(&sm->record->slice, 0);
  st32(&sm->record->phase, phase);
}

// ---- a tile -------------------------------------------------------------------------------------

CONTRACT int wait_for(const sm_t *sm, gpuos_wait_t w, uint32_t tile) {
  uint32_t *counter = (uint32_t *)sm->args->counters + w.counter;
  uint32_t expected = w.threshold * sm->step, found;
  uint64_t start_ns = now_ns();
  while ((int32_t)((found = ld32(counter)) - expected) < 0) {
    if (stopped(sm)) return 0;
    st32(&sm->record->counter, w.counter);
    st32(&sm->record->expected, expected);
    st32(&sm->record->found, found);
    report(sm, GPUOS_SM_WAITING, tile);
    if (ld32(&sm->control->command) == GPUOS_PAUSE) hold(sm), start_ns = now_ns();
    nap();
    if ((now_ns() - start_ns) / 1000 < ld32(&sm->control->wait_limit_us)) continue;
    fault(sm, GPUOS_FAULT_STALL, tile, w.counter, expected, found);
    return 0;
  }
  return 1;
}

// 0: leave.
CONTRACT int misbehave(const sm_t *sm, int how, uint32_t tile) {
  uint64_t start_ns = now_ns();
  if (how == BAD_INDEX) fault(sm, GPUOS_FAULT_INDEX, tile, GPUOS_AS_IDS, 70000, 32000);
  while (how == SPIN && !stopped(sm)) nap();
  while (how == DEAF && now_ns() - start_ns < DEAF_NS && !dead()) nap();
  while ((how == SLOW || how == PARK) && now_ns() - start_ns < SLOW_NS) nap();
  if (how == PARK && tile % 2 == 1 && !lent(sm))
    st32(&sm->record->parks, ld32(&sm->record->parks) + 1);
  if (how == GO) st32(gone(sm), 1);
  if (how == TRAP) trap();
  return how >= 0 || how == NO_SIGNAL || how == SLOW || how == PARK;
}

CONTRACT void measure(const sm_t *sm, uint32_t op, uint32_t tile, uint64_t start_ns) {
  gpuos_unit_stats_t *stats = (gpuos_unit_stats_t *)sm->args->stats + op;
  gpuos_trace_t *ring =
      (gpuos_trace_t *)sm->args->trace + (uint64_t)sm->number * sm->args->trace_count;
  gpuos_trace_t unit = {start_ns, (uint32_t)(now_ns() - start_ns), 0, tile, 0, sm->step, 0};
  uint32_t bin = unit.run_ns / GPUOS_UNIT_BIN_NS, at = ld32(&sm->record->traced);
  ring[at & (sm->args->trace_count - 1)] = unit;
  st32(&sm->record->traced, at + 1);
  add64(&stats->units, 1);
  add64(&stats->run_ns, unit.run_ns);
  add32(&stats->bins[bin < GPUOS_UNIT_BINS ? bin : GPUOS_UNIT_BINS - 1], 1);
  for (uint32_t most; (most = ld32(&stats->longest_ns)) < unit.run_ns;)
    cas32(&stats->longest_ns, most, unit.run_ns);
}

// x * w into the workspace, or that + x into y.
CONTRACT void compute(const sm_t *sm, const gpuos_tile_t *tile) {
  float **buffers = (float **)sm->args->buffers; // x, w, y, workspace
  const gpuos_op_t *op = GPUOS_SECTION(sm->table, gpuos_op_t, ops) + tile->op;
  gpuos_box_t box = gpuos_tile_box(op, tile->index);
  for (uint32_t i = box.lo[3]; i < box.lo[3] + box.n[3]; i++) {
    union {
      uint32_t bits;
      float value;
    } x, w, product;
    x.bits = ld32((uint32_t *)buffers[0] + i);
    w.bits = (uint32_t)((const volatile uint16_t *)buffers[1])[i] << 16;
    product.bits = ld32((uint32_t *)buffers[3] + i);
    if (x.value < 0) x.value = 1; // misbehaviour aside
    if (tile->op == 0) product.value = x.value * w.value;
    if (tile->op == 1) product.value += x.value;
    st32((uint32_t *)buffers[tile->op == 0 ? 3 : 2] + i, product.bits);
  }
}

// Of several SMs that are about to open a step the first one writes it, even if another comes when the
// step is over: it is 0 before.
CONTRACT uint64_t *start_of(const sm_t *sm, uint32_t step) {
  return &sm->mailbox->step_start_ns[step % GPUOS_TIMED_STEPS];
}

// The last tile of a step ends it: the host first sees times, then the number.
CONTRACT void finish(const sm_t *sm) {
  gpuos_control_t *c = sm->control;
  if (add32(&c->tiles_done, 1) + 1 != sm->table->tiles.count) return;
  st32(&c->tiles_done, 0);
  if (sm->mailbox != NULL) {
    st64(&sm->mailbox->step_end_ns[sm->step % GPUOS_TIMED_STEPS], now_ns());
    st64(start_of(sm, sm->step + GPUOS_TIMED_STEPS / 2), 0);
    st32(&sm->mailbox->steps_done, sm->step);
  }
  st32(&c->steps_done, sm->step);
}

CONTRACT int run_tile(const sm_t *sm, uint32_t number) {
  gpuos_tile_t tile = GPUOS_SECTION(sm->table, gpuos_tile_t, tiles)[number];
  gpuos_wait_list_t list = GPUOS_SECTION(sm->table, gpuos_wait_list_t, wait_lists)[tile.wait_list];
  for (uint32_t i = 0; i < list.count; i++)
    if (!wait_for(sm, GPUOS_SECTION(sm->table, gpuos_wait_t, waits)[list.first + i], number))
      return 0;
  union {
    uint32_t bits;
    float value;
  } first;
  first.bits = ld32(*(uint32_t **)sm->args->buffers);
  uint64_t start_ns = now_ns();
  report(sm, GPUOS_SM_RUNNING, number);
  int how = (float)(int)first.value == first.value ? (int)first.value : 0;
  if (!misbehave(sm, how, number)) return 0;
  compute(sm, &tile);
  if (sm->args->trace != 0) measure(sm, tile.op, number, start_ns);
  add32(&sm->record->units_run, 1);
  if (tile.signal != GPUOS_NONE && how != NO_SIGNAL)
    add32((uint32_t *)sm->args->counters + tile.signal, 1);
  finish(sm);
  return 1;
}

// ---- an SM --------------------------------------------------------------------------------------

// The next tile of the open step, or GPUOS_NONE; opens the next step where one is due.
CONTRACT uint32_t take(sm_t *sm) {
  gpuos_control_t *c = sm->control;
  uint32_t tiles = sm->table->tiles.count;
  uint64_t ticket = ld64(&c->ticket);
  sm->step = (uint32_t)(ticket >> 32);
  if ((uint32_t)ticket < tiles) {
    ticket = add64(&c->ticket, 1);
    sm->step = (uint32_t)(ticket >> 32);
    return (uint32_t)ticket < tiles ? (uint32_t)ticket : GPUOS_NONE;
  }
  if (ld32(&c->steps_done) != sm->step || ld32(&c->submitted) == sm->step) return GPUOS_NONE;
  uint32_t next = sm->step + 1;
  // Before it is open: it may be over before this SM has another turn.
  if (sm->mailbox != NULL) cas64(start_of(sm, next), 0, now_ns());
  cas64(&c->ticket, ticket, (uint64_t)next << 32);
  return GPUOS_NONE;
}

// Without a tile: when the SM is not lent, it says once since when it has been free.
CONTRACT void rest(const sm_t *sm, int is_lent, int *away) {
  if (!is_lent && !*away) st64(&sm->record->away_ns, now_ns());
  *away = !is_lent;
  report(sm, is_lent ? GPUOS_SM_IDLE : GPUOS_SM_GONE, GPUOS_NONE);
}

CONTRACT void work(const gpuos_launch_args_t *args, uint32_t number) {
  sm_t sm = open_sm(args, number);
  int away = 0;
  st32(&sm.record->units_run, 0);
  st32(&sm.record->traced, 0);
  st32(&sm.record->smid, chip_sm());
  while (!stopped(&sm) && !ld32(gone(&sm))) {
    uint32_t tile = GPUOS_NONE;
    hold(&sm);
    int is_lent = lent(&sm);
    if (is_lent) tile = take(&sm);
    if (tile != GPUOS_NONE && !run_tile(&sm, tile)) break;
    if (tile != GPUOS_NONE) away = 0;
    if (tile != GPUOS_NONE) continue;
    rest(&sm, is_lent, &away);
    if (sm.mailbox == NULL && ld32(&sm.control->steps_done) == ld32(&sm.control->submitted)) break;
    nap();
  }
  // What was running when a fault or an unending unit stopped it stays to be seen.
  if (ld32(&sm.record->phase) == GPUOS_SM_IDLE) report(&sm, GPUOS_SM_GONE, GPUOS_NONE);
}

// ---- the relay ----------------------------------------------------------------------------------

CONTRACT void pass_word_on(const sm_t *sm, uint32_t *told, uint32_t word) {
  uint32_t now = ld32((uint32_t *)sm->mailbox + word);
  if (now != told[word]) st32((uint32_t *)sm->control + word, now);
  told[word] = now;
}

// What lies behind the count of changes only when that has changed: SMs must not hear of a change
// before its time has been taken.
CONTRACT void pass_on(const sm_t *sm, uint32_t *told) {
  uint32_t before = told[GPUOS_WORD_CHANGES];
  for (uint32_t word = 0; word < GPUOS_WORD_SM_LENT; word++) pass_word_on(sm, told, word);
  if (told[GPUOS_WORD_CHANGES] == before) return;
  uint64_t since_ns = now_ns();
  for (uint32_t word = GPUOS_WORD_SM_LENT; word < GPUOS_TOLD_WORDS; word++)
    pass_word_on(sm, told, word);
  st64(&sm->mailbox->lent_ns, since_ns);
  st32(&sm->mailbox->changes_passed, told[GPUOS_WORD_CHANGES]);
}

CONTRACT void tell_fault(const sm_t *sm) {
  uint64_t start_ns = now_ns();
  while (now_ns() - start_ns < 20000) nap(); // until all of it has been written
  for (uint32_t word = 1; word < GPUOS_FAULT_WORDS; word++)
    st32(&sm->mailbox->fault + word, ld32(&sm->control->fault + word));
  st32(&sm->mailbox->fault, ld32(&sm->control->fault));
}

// Whether nothing is taken any more; the host then knows.
CONTRACT int may_leave(const sm_t *sm, const uint32_t *told, uint64_t *idle_since_ns) {
  uint32_t submitted = told[GPUOS_WORD_SUBMITTED];
  uint64_t linger_ns = 1000ull * told[GPUOS_WORD_LINGER];
  if (ld32(&sm->control->steps_done) != submitted) *idle_since_ns = now_ns();
  if (ld32(&sm->control->steps_done) != submitted) return 0;
  if (told[GPUOS_WORD_COMMAND] != GPUOS_LEAVE && now_ns() - *idle_since_ns < linger_ns) return 0;
  st32(&sm->mailbox->residency, GPUOS_LEAVING);
  if (ld32(&sm->mailbox->submitted) == submitted) return 1;
  st32(&sm->mailbox->residency, GPUOS_RESIDENT);
  return 0;
}

// One pause of the storm that the host asked for.
CONTRACT void pause_once(const sm_t *sm, uint32_t *done) {
  gpuos_mailbox_t *box = sm->mailbox;
  uint32_t count = ld32(&box->storm_count), bin;
  uint64_t start_ns = now_ns();
  if (count == 0) *done = 0;
  if (*done >= count || ld32(&box->command) != GPUOS_RUN) return;
  st32(&sm->control->command, GPUOS_PAUSE);
  while (ld32(&sm->control->held_count) != sm->args->sm_count && now_ns() - start_ns < 1000000)
    nap();
  bin = (uint32_t)((now_ns() - start_ns) / GPUOS_PAUSE_BIN_NS);
  st32(&sm->control->command, GPUOS_RUN);
  while (ld32(&sm->control->held_count) != 0 && !stopped(sm)) nap();
  if (now_ns() - start_ns >= 1000000) st32(&box->storm_lost, ld32(&box->storm_lost) + 1);
  if (bin >= GPUOS_PAUSE_BINS) bin = GPUOS_PAUSE_BINS - 1;
  st32(&box->pause_bins[bin], ld32(&box->pause_bins[bin]) + 1);
  st32(&box->storms_done, ++*done);
}

CONTRACT void relay(const gpuos_launch_args_t *args) {
  sm_t sm = open_sm(args, 0);
  if (sm.mailbox == NULL) return;
  uint32_t told[GPUOS_TOLD_WORDS], storms = ld32(&sm.mailbox->storms_done);
  uint32_t beats = ld32(&sm.mailbox->heartbeat);
  uint64_t idle_since_ns = now_ns();
  for (uint32_t word = 0; word < GPUOS_TOLD_WORDS; word++)
    told[word] = ld32((uint32_t *)sm.control + word);
  while (!stopped(&sm)) {
    if (ld32(gone(&sm))) return; // without a word
    pass_on(&sm, told);
    st32(&sm.mailbox->heartbeat, ++beats);
    st32(&sm.mailbox->tiles_done, ld32(&sm.control->tiles_done));
    if (may_leave(&sm, told, &idle_since_ns)) break;
    pause_once(&sm, &storms);
    nap();
  }
  if (ld32(&sm.control->fault) != GPUOS_FAULT_NONE) tell_fault(&sm);
  st32(&sm.mailbox->residency, GPUOS_GONE);
  st32(gone(&sm), 1);
}

#endif // GOS_TEST_CONTRACT_H_
