// random_table.h: valid records in random order and place, safe about every third time.
//
// What the tables of graphs.h have too little of: strided views that overlap in part, bytes read by
// many and written again, counters shared by few tiles, waits that just suffice or just do not.
#ifndef GOS_TEST_RANDOM_TABLE_H_
#define GOS_TEST_RANDOM_TABLE_H_

#include "tables.h"

// draw(n) is a random number below n. Settled; destroyed by the caller.
gos_tables_t *gos_random_table(uint32_t (*draw)(uint32_t));

#endif // GOS_TEST_RANDOM_TABLE_H_
