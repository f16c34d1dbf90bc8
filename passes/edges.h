// edges.h: which operators touch the same bytes, between schedule.c and edges.c.
#ifndef GOS_PASSES_EDGES_H_
#define GOS_PASSES_EDGES_H_

#include "plan.h"

// How an operator's tiles are counted.
typedef struct gos_sync {
  bool waited_for;
  bool read_whole; // by some tile of a consumer
  unsigned keys;   // iteration dimensions that have counters of their own
  uint32_t groups; // counters; 0: nobody waits
  uint32_t first_counter;
} gos_sync_t;

// `consumer` must run after `producer`.
typedef struct gos_edge {
  uint32_t consumer, producer;
  bool exact; // it reads what the producer wrote, tile by tile; else (bytes used again) all of it
              // must be over
  uint8_t read, written; // operands, for exact edges
} gos_edge_t;

typedef struct gos_pieces gos_pieces_t; // written bytes of one operand, by cell

typedef struct gos_edges {
  GOS_ARRAY(gos_edge_t) list; // by consumer
  size_t *first;              // of each operator, one more at the end
  gos_pieces_t **pieces;      // by producer, made when first asked for
} gos_edges_t;

// Finds all edges between operators of one graph and marks in syncs which operators are waited for,
// and by which iteration dimensions some consumer tells their tiles apart.
gos_edges_t gos_edges_find(gos_plan_t *plan, gos_sync_t *syncs);

// Calls visit with cells of the edge's producer that wrote a byte which the consumer's tile reads;
// some more than once.
void gos_edges_cells(gos_plan_t *plan, gos_edges_t *edges, const gos_edge_t *edge,
                     const gpuos_box_t *tile, void (*visit)(uint32_t cell, void *user), void *user);

#endif // GOS_PASSES_EDGES_H_
