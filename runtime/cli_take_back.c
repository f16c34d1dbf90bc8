// cli_take_back.c: lends half of the SMs and takes them back, over and over, and asks each when it was
// free.
//
// A record that the host reads is a copy of some moment, and may hold the end of an earlier round:
// what counts is no earlier than the kernel's word to its SMs, and an SM is taken back only after it
// has noticed that it was lent: it would not say again that it is free. Of a pair, one can be handed a last
// tile by its neighbour just after it said that it is free, so all are asked until two passes agree.
#include <string.h>

#include "cli_bench.h"

enum {
  LENT_NS = 400000,  // at most, at random, so that tiles are met everywhere
  TOLD_LIMIT_S = 10, // a kernel that has not started yet counts, too
  LOST_LIMIT_NS = 1000000000,
};

// ---- changes ------------------------------------------------------------------------------------

static uint32_t random_below(gos_take_backs_t *t, uint32_t count) { // xorshift64* (Vigna 2016)
  t->random ^= t->random >> 12, t->random ^= t->random << 25, t->random ^= t->random >> 27;
  return (uint32_t)((t->random * UINT64_C(0x2545f4914f6cdd1d) >> 32) * count >> 32);
}

static bool lend(gos_take_backs_t *t, const uint32_t *mask, gos_take_back_phase_t phase) {
  gpuos_status_t status = gpuos_lend(t->session->program, mask);
  t->phase = phase;
  t->told_ns = 0;
  t->changed_ns = gos_clock_ns();
  return status == GPUOS_OK || gos_session_failed(t->session, "--take-back", status);
}

static bool lend_none(gos_take_backs_t *t, gos_take_back_phase_t phase) {
  return lend(t, (const uint32_t[GPUOS_MAX_SMS / 32]){0}, phase);
}

// Each half is as likely as any other.
static bool lend_half(gos_take_backs_t *t) {
  const gpuos_program_t *program = t->session->program;
  uint32_t size = program->sm_group, groups = program->sm_count / size;
  uint32_t wanted = groups < 2 ? groups : groups / 2, mask[GPUOS_MAX_SMS / 32] = {0};
  t->count = 0;
  for (uint32_t g = 0; g < groups; g++) {
    if (random_below(t, groups - g) >= wanted) continue;
    wanted--;
    for (uint32_t sm = g * size; sm < (g + 1) * size; sm++) {
      mask[sm / 32] |= UINT32_C(1) << sm % 32;
      t->sms[t->count++] = sm;
    }
  }
  return lend(t, mask, GOS_TAKE_BACK_COMING);
}

static bool lend_all(gos_take_backs_t *t) {
  uint32_t mask[GPUOS_MAX_SMS / 32];
  memset(mask, 0xff, sizeof mask);
  return lend(t, mask, GOS_TAKE_BACK_OVER);
}

static bool take_back(gos_take_backs_t *t) {
  for (uint32_t i = 0; i < t->count; i++) t->taken[t->sms[i]].away_ns = 0;
  return lend_none(t, GOS_TAKE_BACK_LEAVING);
}

// Whether the SMs have been told of the last change: told_ns is then set.
static bool ask_relay(gos_take_backs_t *t) {
  uint64_t now_ns = gos_clock_ns();
  gpuos_status_t status = gpuos_lent_ns(t->session->program, &t->told_ns);
  if (status != GPUOS_OK) return gos_session_failed(t->session, "--take-back", status);
  if (t->told_ns != 0) t->changed_ns = now_ns;
  if (now_ns - t->changed_ns < TOLD_LIMIT_S * UINT64_C(1000000000)) return true;
  gos_say("error: --take-back: the kernel has not told its SMs of a change for %d s; if other work "
          "does not hold the GPU, compile the model with this version",
          TOLD_LIMIT_S);
  return false;
}

// ---- answers ------------------------------------------------------------------------------------

static bool is_late(const gos_take_backs_t *t) {
  return gos_clock_ns() - t->changed_ns > LOST_LIMIT_NS;
}

static bool ask_sm(const gos_take_backs_t *t, uint32_t sm, gpuos_sm_info_t *out_info) {
  gpuos_status_t status = gpuos_program_sm(t->session->program, sm, out_info);
  return status == GPUOS_OK || gos_session_failed(t->session, "--take-back", status);
}

// Before the first round: a record that its SM has not written yet is no sign that it is here.
static bool ask_whether_started(gos_take_backs_t *t) {
  gpuos_sm_info_t info;
  if (!ask_sm(t, t->asked, &info)) return false;
  if (strcmp(info.phase, "gone") == 0 || is_late(t)) t->asked++;
  if (t->asked < t->session->program->sm_count) return true;
  t->asked = 0;
  return lend_half(t);
}

// One that does not come will not be free anew either: it is lost then.
static bool ask_whether_here(gos_take_backs_t *t) {
  gpuos_sm_info_t info;
  if (!ask_sm(t, t->sms[t->asked], &info)) return false;
  if (strcmp(info.phase, "gone") != 0 || is_late(t)) t->asked++;
  if (t->asked < t->count) return true;
  t->asked = 0;
  t->phase = GOS_TAKE_BACK_LENT;
  t->until_ns = gos_clock_ns() + random_below(t, LENT_NS);
  return true;
}

static void count_sm(gos_take_backs_t *t, gos_taken_sm_t *taken) {
  if (taken->away_ns != 0) {
    gos_times_keep(&t->times, taken->away_ns - t->told_ns);
    t->parked += taken->parks != taken->parks_before;
  } else {
    t->lost++;
  }
  taken->parks_before = taken->parks;
}

// After a pass over all.
static bool end_pass(gos_take_backs_t *t) {
  bool over = !t->unsettled || is_late(t);
  t->asked = 0;
  t->unsettled = false;
  if (!over) return true;
  for (uint32_t i = 0; i < t->count; i++) count_sm(t, &t->taken[t->sms[i]]);
  t->done++;
  return t->done < t->rounds ? lend_half(t) : lend_all(t);
}

static bool ask_whether_free(gos_take_backs_t *t) {
  gos_taken_sm_t *taken = &t->taken[t->sms[t->asked]];
  gpuos_sm_info_t info;
  if (!ask_sm(t, t->sms[t->asked++], &info)) return false;
  bool away = strcmp(info.phase, "gone") == 0 && info.away_ns >= t->told_ns;
  uint64_t away_ns = away ? info.away_ns : 0;
  if (!away || away_ns != taken->away_ns) t->unsettled = true;
  taken->away_ns = away_ns;
  taken->parks = info.parks;
  return t->asked < t->count || end_pass(t);
}

// ---- rounds -------------------------------------------------------------------------------------

bool gos_take_backs_begin(gos_take_backs_t *take_backs, gos_session_t *session, uint32_t rounds) {
  gos_take_backs_t *t = take_backs;
  *t = (gos_take_backs_t){.session = session,
                          .rounds = rounds,
                          .phase = GOS_TAKE_BACK_OVER,
                          .random = UINT64_C(0x9e3779b97f4a7c15)};
  if (rounds == 0) return true;
  t->changed_ns = gos_clock_ns();
  return ask_relay(t) && lend_none(t, GOS_TAKE_BACK_AWAY); // a device that cannot do it says so
}

bool gos_take_backs_poll(gos_take_backs_t *take_backs) {
  gos_take_backs_t *t = take_backs;
  if (t->phase == GOS_TAKE_BACK_OVER) return true;
  if (t->told_ns == 0) return ask_relay(t);
  switch (t->phase) {
  case GOS_TAKE_BACK_AWAY: return ask_whether_started(t);
  case GOS_TAKE_BACK_COMING: return ask_whether_here(t);
  case GOS_TAKE_BACK_LENT: return gos_clock_ns() < t->until_ns || take_back(t);
  default: return ask_whether_free(t);
  }
}

bool gos_take_backs_over(const gos_take_backs_t *take_backs) {
  return take_backs->phase == GOS_TAKE_BACK_OVER;
}
