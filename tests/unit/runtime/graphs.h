// graphs.h: small safe tables of different structure, for the tests of check and of the CPU device.
//
// Small enough that the oracle can look at every byte of every access.
#ifndef GOS_TEST_GRAPHS_H_
#define GOS_TEST_GRAPHS_H_

#include "tables.h"

typedef struct gos_graph {
  const char *name;
  gos_tables_t *(*build)(void); // settled; destroyed by the caller
} gos_graph_t;

enum { GOS_GRAPH_COUNT = 9 };
extern const gos_graph_t gos_graphs[GOS_GRAPH_COUNT];

#endif // GOS_TEST_GRAPHS_H_
