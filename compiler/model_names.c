// model_names.c: which value a tensor name stands for at each point of the file.
#include "model.h"

#include <string.h>

// ---- a hash table -------------------------------------------------------------------------------

static size_t slot_of(const gos_model_t *m, const char *text) {
  uint64_t hash = gpuos_hash_add(0xcbf29ce484222325u, text, strlen(text));
  size_t slot = (hash ^ hash >> 32) & (m->slot_room - 1);
  while (m->slots[slot] && strcmp(m->names.at[m->slots[slot] - 1]->text, text))
    slot = (slot + 1) & (m->slot_room - 1);
  return slot;
}

gos_name_t *gos_model_find(const gos_model_t *m, const char *text) {
  if (!m->slot_room) return NULL;
  uint32_t number = m->slots[slot_of(m, text)];
  return number ? m->names.at[number - 1] : NULL;
}

static void grow(gos_model_t *m) {
  m->slot_room = m->slot_room ? m->slot_room * 2 : 256;
  m->slots = gos_alloc(m->ir->arena, m->slot_room * sizeof *m->slots);
  for (size_t i = 0; i < m->names.count; i++)
    m->slots[slot_of(m, m->names.at[i]->text)] = (uint32_t)i + 1;
}

gos_name_t *gos_model_name(gos_model_t *m, const char *text) {
  gos_name_t *name = gos_model_find(m, text);
  if (name) return name;
  if ((m->names.count + 1) * 2 > m->slot_room) grow(m);
  name = gos_alloc(m->ir->arena, sizeof *name);
  name->text = text;
  name->role = GPUOS_WORKSPACE;
  name->decl = GOS_NO_DECL;
  *gos_push(m->ir->arena, &m->names) = name;
  m->slots[slot_of(m, text)] = (uint32_t)m->names.count;
  return name;
}

// ---- uses and results ---------------------------------------------------------------------------

MlirValue gos_model_use(gos_model_t *m, const char *text, gos_loc_t at) {
  gos_name_t *name = gos_model_find(m, text);
  if (!name || !name->made) {
    *gos_push(m->ir->arena, &m->pending) = (gos_pending_t){.name = text, .at = at};
    m->op_bad = true;
    return (MlirValue){NULL};
  }
  name->used = true;
  if (mlirValueIsNull(name->value)) m->op_bad = true;
  return name->value;
}

static const char *role_word(gpuos_role_t role) {
  return role == GPUOS_INPUT ? "an input" : role == GPUOS_WEIGHT ? "a weight" : "a state";
}

void gos_model_assign(gos_model_t *m, const char *text, gos_loc_t at, MlirValue value) {
  gos_name_t *name = gos_model_name(m, text);
  if (name->role != GPUOS_WORKSPACE && name->role != GPUOS_OUTPUT) {
    const char *role = role_word(name->role);
    if (gos_model_error(m, at, "tensor-readonly", "'%s' is %s: no operator gives it", text, role))
      gos_note(m->ir->diags, name->declared_at, "declared here");
    return;
  }
  if (name->made && !name->used) {
    bool fresh = gos_model_error(m, name->made_at, "tensor-unused",
                                 "'%s' is produced here but replaced before it is used", text);
    if (fresh) gos_note(m->ir->diags, at, "replaced here");
  }
  if (!name->first_at.line) name->first_at = at;
  name->made_at = at;
  name->made = true;
  name->used = mlirValueIsNull(value); // of a bad operator no second complaint
  name->value = value;
}

// ---- at the end ---------------------------------------------------------------------------------

static void report_unknown(gos_model_t *m, const gos_pending_t *use) {
  if (!gos_model_error(m, use->at, "tensor-unknown", "no tensor '%s'", use->name)) return;
  const char **names = gos_alloc(m->ir->scratch, (m->names.count + 1) * sizeof *names);
  for (size_t i = 0; i < m->names.count; i++) names[i] = m->names.at[i]->text;
  const char *near = gos_model_suggest(m, use->name, names, m->names.count);
  if (near)
    gos_model_find(m, near)->used = true; // it probably is, by the misspelt name
  else
    gos_note(m->ir->diags, (gos_loc_t){0}, "declare it in tensors: or produce it with out:");
}

static void report_pending(gos_model_t *m) {
  for (size_t i = 0; i < m->pending.count; i++) {
    const gos_pending_t *use = &m->pending.at[i];
    gos_name_t *name = gos_model_find(m, use->name);
    if (name) name->used = true;
    if (name && name->made) {
      bool fresh = gos_model_error(m, use->at, "tensor-order",
                                   "'%s' is used before it is produced: a cycle or a wrong order",
                                   use->name);
      if (fresh) gos_note(m->ir->diags, name->first_at, "produced here");
    } else if (!name) {
      report_unknown(m, use);
    }
  }
}

static void check_one(gos_model_t *m, const gos_name_t *name) {
  if (name->role == GPUOS_OUTPUT && !name->made)
    gos_model_error(m, name->declared_at, "output-missing", "no operator produces output '%s'",
                    name->text);
  else if (name->role != GPUOS_OUTPUT && name->made && !name->used && name->declared_at.line)
    gos_model_error(m, name->declared_at, "tensor-unused", "'%s' is declared but never used",
                    name->text);
  else if (name->role == GPUOS_WORKSPACE && name->made && !name->used &&
           gos_model_error(m, name->made_at, "tensor-unused", "'%s' is produced but never used",
                           name->text))
    gos_note(m->ir->diags, (gos_loc_t){0}, "remove the operator, or declare '%s' with role: output",
             name->text);
}

void gos_model_check_names(gos_model_t *m) {
  report_pending(m);
  for (size_t i = 0; i < m->names.count && !m->skipped; i++) check_one(m, m->names.at[i]);
}
