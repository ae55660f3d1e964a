/* Two ranks on the CPU backend, two experts each. Every matrix is constant, so that the result is
   known: the first matrix gives 1 for gate and up, silu(1) * 1 = 0.731, and the second keeps it.
   Prints the value and compares it. */
#include <stdio.h>
#include <stdlib.h>

#include <megamoe/megamoe.h>

enum { RANKS = 2, EXPERTS = 4, TOP_K = 2, HIDDEN = 256, INTERMEDIATE = 128, CAPACITY = 8 };
enum { EXPERTS_PER_RANK = EXPERTS / RANKS };

static const uint16_t one = 0x3F80, two_to_minus_8 = 0x3B80, two_to_minus_7 = 0x3C00; /* BF16 */
static const uint16_t expected = 0x3F3B;                                              /* 0.7305 */

static uint16_t w1[EXPERTS_PER_RANK * 2 * INTERMEDIATE * HIDDEN];
static uint16_t w2[EXPERTS_PER_RANK * HIDDEN * INTERMEDIATE];
static uint16_t hidden_states[HIDDEN];
static uint16_t y[HIDDEN];

static void fill(uint16_t* values, size_t count, uint16_t value) {
  size_t i;
  for (i = 0; i < count; ++i) values[i] = value;
}

static void need(megamoe_status status) {
  if (status == MEGAMOE_OK) return;
  fprintf(stderr, "%s: %s\n", megamoe_status_name(status), megamoe_last_error());
  exit(1);
}

static megamoe_group* make_group(void) {
  megamoe_problem problem;
  megamoe_group* group = NULL;
  need(megamoe_problem_init(&problem, sizeof problem));
  problem.ranks = RANKS;
  problem.experts = EXPERTS;
  problem.top_k = TOP_K;
  problem.hidden = HIDDEN;
  problem.intermediate = INTERMEDIATE;
  problem.max_tokens_per_rank = CAPACITY;
  problem.precision = MEGAMOE_BF16;
  need(megamoe_group_create_host(&problem, &group));
  return group;
}

int main(void) {
  const int64_t ids[TOP_K] = {0, 3}; /* expert 0 is rank 0's, expert 3 rank 1's */
  const float weights_of_slots[TOP_K] = {0.5F, 0.5F};
  megamoe_group* group = make_group();
  megamoe_layer* layers[RANKS];
  megamoe_experts weights;
  megamoe_rank_call calls[RANKS] = {{0}};
  int rank;

  fill(w1, sizeof w1 / sizeof w1[0], two_to_minus_8);
  fill(w2, sizeof w2 / sizeof w2[0], two_to_minus_7);
  fill(hidden_states, HIDDEN, one);
  need(megamoe_experts_init(&weights, sizeof weights));
  weights.precision = MEGAMOE_BF16;
  weights.num_experts = EXPERTS_PER_RANK;
  weights.hidden = HIDDEN;
  weights.intermediate = INTERMEDIATE;
  weights.w1 = w1;
  weights.w2 = w2;

  for (rank = 0; rank < RANKS; ++rank) {
    /* rank 0 brings one token, rank 1 none */
    const int tokens = rank == 0 ? 1 : 0;
    need(megamoe_group_layer(group, rank, &layers[rank]));
    need(megamoe_layer_stage(layers[rank], hidden_states, ids, weights_of_slots, tokens, 1.0F,
                             NULL));
    calls[rank].size = sizeof calls[rank];
    calls[rank].y = y;
    calls[rank].num_tokens = tokens;
    calls[rank].weights = &weights;
  }
  need(megamoe_group_forward(group, calls, RANKS, NULL, NULL, 0));
  for (rank = 0; rank < RANKS; ++rank) {
    megamoe_call_report report;
    report.size = sizeof report;
    need(megamoe_layer_check(layers[rank], &report));
    printf("rank %d computed %d row\n", rank, (int)report.rows_received);
  }
  printf("y[0][0] has the BF16 bits 0x%04X, expected 0x%04X\n", (unsigned)y[0], (unsigned)expected);
  need(megamoe_group_destroy(group));
  return y[0] == expected && y[HIDDEN - 1] == expected ? 0 : 1;
}
