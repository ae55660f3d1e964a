#ifndef MEGAMOE_MEGAMOE_H
#define MEGAMOE_MEGAMOE_H

#include <stddef.h>
#include <stdint.h>

#include "megamoe/export.h"

/*
 * The C interface: the operations of megamoe.hpp with status codes. Every function that can fail
 * returns a megamoe_status and changes nothing unless it returns MEGAMOE_OK; the reason is in
 * megamoe_last_error().
 *
 * Structs begin with their size, which the caller sets to sizeof: a newer library takes the structs
 * of an older header, and a newer header's struct works with an older library as long as the fields
 * that this one does not know are zero. The *_init functions set the size and the defaults.
 *
 * Handles are never used again after they are destroyed: a stale one is refused, not followed. One
 * handle may be used from one thread at a time, different groups from different threads.
 */

#ifdef __cplusplus
extern "C" {
#endif

typedef enum megamoe_status {
  MEGAMOE_OK = 0,
  MEGAMOE_INVALID_ARGUMENT = 1, /* a value given by the caller cannot be used */
  MEGAMOE_INVALID_FILE = 2,     /* a file is missing, truncated or malformed */
  MEGAMOE_UNSUPPORTED = 3,      /* valid, but this machine or this build cannot run it */
  MEGAMOE_DISAGREEMENT = 4,     /* ranks gave different problems, versions or layouts */
  MEGAMOE_FAULT = 5,            /* a call did not finish: a peer was late, lost or wrong */
  MEGAMOE_SYSTEM = 6,           /* the operating system or the driver refused */
  MEGAMOE_OUT_OF_MEMORY = 7,    /* of the host */
  MEGAMOE_INTERNAL = 8          /* a fault of the library */
} megamoe_status;

/* "invalid argument" and so on; never NULL. */
MEGAMOE_API const char* megamoe_status_name(megamoe_status status);
/* Why the last call of this thread that failed did, naming the offending values; empty before the
   first. Valid until this thread's next call that fails. */
MEGAMOE_API const char* megamoe_last_error(void);
/* "major.minor.patch" */
MEGAMOE_API const char* megamoe_version(void);

/* ---- the problem */

typedef enum megamoe_precision {
  MEGAMOE_FP8 = 0,
  MEGAMOE_BF16 = 1,
  MEGAMOE_MXFP4 = 2,
  MEGAMOE_MXFP8_MXFP4 = 3
} megamoe_precision;

typedef enum megamoe_activation {
  MEGAMOE_SWIGLU = 0,
  MEGAMOE_SWIGLU_OAI = 1,
  MEGAMOE_SITU = 2
} megamoe_activation;

/* megamoe::Problem, where the fields are explained. */
typedef struct megamoe_problem {
  size_t size;
  int32_t ranks;
  int32_t experts; /* of the whole group */
  int32_t top_k;
  int32_t hidden;
  int32_t intermediate;
  int32_t max_tokens_per_rank;
  int32_t shared_experts;
  int32_t precision;  /* megamoe_precision */
  int32_t activation; /* megamoe_activation; its constants follow, infinity: no clamp */
  float clamp;
  float alpha;
  float up_bias;
  float beta;
  float linear_beta;
} megamoe_problem;

/* One rank, FP8, swiglu without a clamp; all other sizes 0. */
MEGAMOE_API megamoe_status megamoe_problem_init(megamoe_problem* problem, size_t size);
/* MEGAMOE_OK, or MEGAMOE_INVALID_ARGUMENT with the reason why no group can be made for it. */
MEGAMOE_API megamoe_status megamoe_problem_check(const megamoe_problem* problem);

/* ---- groups and their layers */

typedef struct megamoe_group megamoe_group;
typedef struct megamoe_layer megamoe_layer;

/* Ordinary host memory: all ranks in this process, run by the CPU backend. */
MEGAMOE_API megamoe_status megamoe_group_create_host(const megamoe_problem* problem,
                                                     megamoe_group** group);
/* Virtual ranks, up to 8, in the memory of one GPU and one launch. device -1: the current one. */
MEGAMOE_API megamoe_status megamoe_group_create_cuda_virtual(const megamoe_problem* problem,
                                                             int32_t device, megamoe_group** group);
/* One rank on each of these GPUs, all different, run by this process. */
MEGAMOE_API megamoe_status megamoe_group_create_cuda_peers(const megamoe_problem* problem,
                                                           const int32_t* devices,
                                                           size_t num_devices,
                                                           megamoe_group** group);
/* Ends the group and its layers, after its calls on GPUs. NULL: nothing is done, MEGAMOE_OK. A
   group that was destroyed already: MEGAMOE_INVALID_ARGUMENT, and nothing is done. */
MEGAMOE_API megamoe_status megamoe_group_destroy(megamoe_group* group);

MEGAMOE_API megamoe_status megamoe_group_num_local_ranks(const megamoe_group* group,
                                                         int32_t* num_ranks);
/* The layer of a local rank; it belongs to the group and ends with it. */
MEGAMOE_API megamoe_status megamoe_group_layer(const megamoe_group* group, int32_t local_rank,
                                               megamoe_layer** layer);
/* Waits until the last calls and stagings of all local ranks are over. */
MEGAMOE_API megamoe_status megamoe_group_synchronize(megamoe_group* group);
/* Makes the group usable again after a fault. No call may be starting. */
MEGAMOE_API megamoe_status megamoe_group_reset(megamoe_group* group);

/* ---- what a call reads */

typedef enum megamoe_w1_order {
  MEGAMOE_GATE_THEN_UP = 0,
  MEGAMOE_INTERLEAVED_8 = 1 /* the order that calls take */
} megamoe_w1_order;

/* megamoe::ExpertTensors, where shapes and formats are listed; nothing is owned. */
typedef struct megamoe_experts {
  size_t size;
  int32_t precision; /* megamoe_precision */
  int32_t w1_order;  /* megamoe_w1_order */
  int32_t num_experts;
  int32_t hidden;
  int32_t intermediate;
  const void* w1;
  const void* w1_scales;
  const void* w2;
  const void* w2_scales;
  const float* b1;
  const float* b2;
} megamoe_experts;

/* FP8, interleaved by 8; all else 0. */
MEGAMOE_API megamoe_status megamoe_experts_init(megamoe_experts* experts, size_t size);
/* Bytes of one expert's w1, w1_scales, w2 and w2_scales. */
MEGAMOE_API megamoe_status megamoe_expert_bytes(int32_t precision, int32_t hidden,
                                                int32_t intermediate, size_t bytes[4]);
/* Puts one expert's w1 rows from the order gate_then_up into interleaved_8. `from` and `to` may be
   the same, but not overlap otherwise. */
MEGAMOE_API megamoe_status megamoe_interleave_rows(const void* from, void* to, int32_t intermediate,
                                                   size_t row_bytes);

/* megamoe::InputViews: where a layer's calls read their input, in symmetric memory. */
typedef struct megamoe_input_views {
  size_t size;
  void* x;
  void* x_scales;
  int64_t* topk_idx;   /* [capacity, top_k], -1 = no expert */
  float* topk_weights; /* [capacity, top_k] */
} megamoe_input_views;

/* `views->size` says how much is filled in. */
MEGAMOE_API megamoe_status megamoe_layer_inputs(const megamoe_layer* layer,
                                                megamoe_input_views* views);

/* Quantises BF16 hidden_states [num_tokens, hidden] into the input region, with ids and weights
   [num_tokens, top_k]; weights are multiplied by routed_scaling. `stream`: a cudaStream_t of the
   rank's device, ignored on the CPU. On a GPU all pointers are of device memory. */
MEGAMOE_API megamoe_status megamoe_layer_stage(megamoe_layer* layer, const uint16_t* hidden_states,
                                               const int64_t* topk_idx, const float* topk_weights,
                                               int32_t num_tokens, float routed_scaling,
                                               void* stream);
/* The same with ids of 32 bits. */
MEGAMOE_API megamoe_status megamoe_layer_stage_i32(megamoe_layer* layer,
                                                   const uint16_t* hidden_states,
                                                   const int32_t* topk_idx,
                                                   const float* topk_weights, int32_t num_tokens,
                                                   float routed_scaling, void* stream);

/* ---- calls */

/* megamoe::ForwardOptions */
typedef struct megamoe_forward_options {
  size_t size;
  int64_t global_num_tokens; /* of the whole group; -1: the default */
  int64_t deadline_ns;       /* longest time that any wait may last */
  int64_t first_deadline_ns; /* in the first call after creation or reset; -1: the default */
  int32_t num_sms;           /* most SMs to use; 0: the default */
  int32_t reserved_sms;      /* SMs left free for other kernels; -1: the default */
  int32_t fast_math;         /* 0 or 1 */
  int64_t* recv_stats;       /* rows per local expert are added; or NULL */
} megamoe_forward_options;

MEGAMOE_API megamoe_status megamoe_forward_options_init(megamoe_forward_options* options,
                                                        size_t size);

/* One rank's part of a call: y BF16 [num_tokens, hidden]. Every rank must call, on the CPU from
   threads of their own: it returns when all have. Virtual ranks: megamoe_group_forward only.
   `shared`: of the problem's shared experts, else NULL. `options` NULL: the defaults. On a GPU the
   call is only started, in stream order. */
MEGAMOE_API megamoe_status megamoe_layer_forward(megamoe_layer* layer, uint16_t* y,
                                                 int32_t num_tokens, const megamoe_experts* weights,
                                                 const megamoe_experts* shared,
                                                 const megamoe_forward_options* options,
                                                 void* stream);

/* What one local rank brings to megamoe_group_forward. */
typedef struct megamoe_rank_call {
  size_t size;
  uint16_t* y;
  const megamoe_experts* weights;
  const megamoe_experts* shared; /* or NULL */
  int32_t num_tokens;
} megamoe_rank_call;

/* One call on all local ranks: calls [num_calls], one per rank, all of the size of the first.
   streams [num_streams] of cudaStream_t: one per rank, one for virtual ranks, or none. */
MEGAMOE_API megamoe_status megamoe_group_forward(megamoe_group* group,
                                                 const megamoe_rank_call* calls, size_t num_calls,
                                                 const megamoe_forward_options* options,
                                                 void* const* streams, size_t num_streams);

/* megamoe::CallReport */
typedef struct megamoe_call_report {
  size_t size;
  int64_t rows_received; /* token-expert pairs computed here in the last finished call */
  int64_t bad_id;        /* the first id that was neither -1 nor an expert, if any */
  int32_t bad_token;
  int32_t bad_slot;
  int32_t has_bad_id;
  uint32_t epoch; /* calls finished since creation or reset */
} megamoe_call_report;

/* MEGAMOE_FAULT, with the fault's text in megamoe_last_error(), if a call did not finish; else what
   the last one did. It waits for nothing. `report`: NULL, or its size says how much is filled in.
 */
MEGAMOE_API megamoe_status megamoe_layer_check(const megamoe_layer* layer,
                                               megamoe_call_report* report);
/* The configuration that the last call ran, readable: at most `capacity` bytes with the ending 0 go
   to `text`, and the length of all of it to `length`, unless NULL. */
MEGAMOE_API megamoe_status megamoe_layer_config(const megamoe_layer* layer, char* text,
                                                size_t capacity, size_t* length);
MEGAMOE_API megamoe_status megamoe_layer_synchronize(megamoe_layer* layer);
/* Sets the deadlines of captured calls, from their next replay on: in all calls, and in the first
   after creation or reset. */
MEGAMOE_API megamoe_status megamoe_layer_set_deadlines(megamoe_layer* layer, int64_t deadline_ns,
                                                       int64_t first_deadline_ns);
/* Releases every peer that waits for this rank; from any thread. */
MEGAMOE_API megamoe_status megamoe_layer_abort(megamoe_layer* layer);
/* Its rank in the group. */
MEGAMOE_API megamoe_status megamoe_layer_rank(const megamoe_layer* layer, int32_t* rank);

typedef struct megamoe_memory_report {
  size_t size;
  uint64_t symmetric_bytes;
  uint64_t local_bytes;
} megamoe_memory_report;

MEGAMOE_API megamoe_status megamoe_layer_memory(const megamoe_layer* layer,
                                                megamoe_memory_report* report);
/* One line per buffer: offset, bytes, name, shape. Text as for megamoe_layer_config. */
MEGAMOE_API megamoe_status megamoe_layer_memory_map(const megamoe_layer* layer, char* text,
                                                    size_t capacity, size_t* length);

#ifdef __cplusplus
}
#endif

#endif
