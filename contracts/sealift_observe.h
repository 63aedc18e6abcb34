/* sealift_observe.h: watch operators. Callbacks, the recorder, debug info and API usage for C and C++; and, at the end, the table that an
 * event source (torch_bridge/) is given, so that it shares this runtime without linking to it.
 *
 * Events come from sealift's own kernels and, once a bridge is attached, from every operator of PyTorch in this process.
 * Threads: every function may be called from any thread. None may be called from inside a callback, but for sealift_info_* and
 * sealift_log_api_usage_once. After fork() the child keeps callbacks, debug info and the recorder, with empty counts and new random streams.
 * Strings are UTF-8, borrowed for the call unless it says otherwise. C99. What this file does not declare is not API. */
#ifndef SEALIFT_OBSERVE_H
#define SEALIFT_OBSERVE_H

#include "sealift.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SEALIFT_OBSERVE_VERSION 2u

/* ---- events -------------------------------------------------------------------------------------------------------------- */

typedef enum sealift_source { SEALIFT_SOURCE_TORCH = 0, SEALIFT_SOURCE_KERNEL = 1 } sealift_source;

/* The first ten are PyTorch's at::RecordScope, same numbers; the last is sealift's own kernels. A mask has bit 1 << scope. */
typedef enum sealift_scope {
  SEALIFT_SCOPE_FUNCTION = 0,
  SEALIFT_SCOPE_BACKWARD_FUNCTION = 1,
  SEALIFT_SCOPE_TORCHSCRIPT_FUNCTION = 2,
  SEALIFT_SCOPE_KERNEL_FUNCTION_DTYPE = 3,
  SEALIFT_SCOPE_CUSTOM_CLASS = 4,
  SEALIFT_SCOPE_BUILD_FEATURE = 5,
  SEALIFT_SCOPE_LITE_INTERPRETER = 6,
  SEALIFT_SCOPE_USER = 7,
  SEALIFT_SCOPE_STATIC_RUNTIME_OP = 8,
  SEALIFT_SCOPE_STATIC_RUNTIME_MODEL = 9,
  SEALIFT_SCOPE_KERNEL = 10,
  SEALIFT_SCOPE_COUNT = 11
} sealift_scope;
SEALIFT_API const char *sealift_scope_name(sealift_scope scope); /* "function", "backward_function", ..., "kernel" */

/* An operator's argument, and the members of a list. */
typedef enum sealift_value_kind {
  SEALIFT_VALUE_NONE = 0,
  SEALIFT_VALUE_TENSOR = 1,
  SEALIFT_VALUE_INT = 2,
  SEALIFT_VALUE_FLOAT = 3,
  SEALIFT_VALUE_BOOL = 4,
  SEALIFT_VALUE_STRING = 5,
  SEALIFT_VALUE_LIST = 6,
  SEALIFT_VALUE_OTHER = 7 /* `text` names its type */
} sealift_value_kind;

typedef struct sealift_value {
  int32_t kind;                         /* sealift_value_kind */
  int32_t count;                        /* TENSOR: its rank; LIST: how many follow in `items` */
  int64_t integer;                      /* INT, BOOL */
  double number;                        /* FLOAT */
  const char *text;                     /* STRING, OTHER; TENSOR: its dtype, "float32" */
  const int64_t *shape, *strides;       /* TENSOR, in elements; strides NULL where it has none (sparse) */
  const struct sealift_value *items;    /* LIST */
  const char *device;                   /* TENSOR: "cpu", "cuda:0" */
} sealift_value;

typedef struct sealift_info sealift_info; /* debug info, below */

typedef struct sealift_observed {
  uint32_t struct_bytes;
  int32_t source, scope;                /* sealift_source, sealift_scope */
  const char *name;                     /* "aten::mm", "k7_mm_gelu" */
  const char *overload;                 /* "out", or "" */
  const char *model_name;               /* of a sealift kernel, or "" */
  const char *ops, *origin;             /* of a sealift kernel: what it stands for and where it comes from, or "" */
  int32_t kernel_id;                    /* of a sealift kernel, or -1 */
  int32_t num_inputs;                   /* -1: not asked for, or not known */
  const sealift_value *inputs;
  int64_t sequence;                     /* autograd's number, which joins a backward function with its forward; -1: none */
  uint64_t thread_id, forward_thread_id;/* PyTorch's numbers of threads; the second 0 outside backward functions */
  uint64_t start_ns, dur_ns;            /* CLOCK_MONOTONIC; dur_ns is 0 in on_enter, and without what observing took inside */
  uint64_t weight;                      /* how many events this one stands for */
  const sealift_info *info;             /* of the moment of entry; NULL: none. Borrowed. */
} sealift_observed;

typedef struct sealift_observer {
  uint32_t struct_bytes;                /* sizeof(sealift_observer) */
  /* on_enter's result is given to on_exit. Both on the thread of the operator; either may be NULL. Operators that they run themselves are not
   * reported to anybody. on_exit's event has no inputs. */
  void *(*on_enter)(void *user, const sealift_observed *event);
  void (*on_exit)(void *user, void *entered, const sealift_observed *event);
  void (*release)(void *user);          /* called once when the observer is gone for good; may be NULL */
  void *user;
  double sampling_probability;          /* (0, 1]: each event independently */
  uint32_t scopes;                      /* mask; 0: FUNCTION and KERNEL */
  int32_t needs_inputs;                 /* costs every event that any observer sees, so ask for it only where it is used */
  int32_t this_thread_only;
} sealift_observer;

/* At most 16 at a time (SEALIFT_ERROR_MEMORY beyond). */
SEALIFT_API sealift_status sealift_observer_add(const sealift_observer *observer, uint64_t *id, char *err, size_t err_len);
/* No event that begins after this is reported; an operator that has begun on another thread still gets its on_exit, and `release` follows the last.
 * SEALIFT_ERROR_ARGUMENT: there is none of that id. SEALIFT_ERROR_BUSY: called inside a callback. */
SEALIFT_API sealift_status sealift_observer_remove(uint64_t id);
/* For the calling thread: whether observers and the recorder see it. Returns what it was. */
SEALIFT_API int32_t sealift_observe_enable_thread(int32_t enabled);

/* ---- debug info ---------------------------------------------------------------------------------------------------------- */

/* An immutable set of labels, counted. The label "model_id" says which model the operators belong to. */
typedef struct sealift_label {
  const char *key, *value;
} sealift_label;

/* The parent's labels, overridden and extended. Both may be NULL / 0. Returns one reference, NULL without memory. */
SEALIFT_API sealift_info *sealift_info_create(const sealift_info *parent, int32_t count, const sealift_label *labels);
SEALIFT_API sealift_info *sealift_info_retain(const sealift_info *info); /* NULL is passed on */
SEALIFT_API void sealift_info_release(const sealift_info *info);
SEALIFT_API int32_t sealift_info_count(const sealift_info *info);
SEALIFT_API sealift_label sealift_info_label(const sealift_info *info, int32_t index); /* sorted by key */
/* The calling thread's, one reference. With a bridge attached it follows torch.jit.fork and backward. */
SEALIFT_API sealift_info *sealift_info_current(void);
/* Makes it the calling thread's (NULL: none) and returns the one before, one reference, to be given back by another call. */
SEALIFT_API sealift_info *sealift_info_exchange(const sealift_info *info);
/* For a language with contexts of its own (asyncio's tasks): asked for the calling thread's info at every recorded event, with whatever locks the
 * operator's caller holds. Returns one reference; *is_set 0: it knows nothing, so the thread's is taken. NULL: none. */
SEALIFT_API void sealift_set_info_provider(sealift_info *(*provider)(int32_t *is_set));

/* ---- the recorder -------------------------------------------------------------------------------------------------------- */

typedef struct sealift_recorder_options {
  uint32_t struct_bytes;
  double sampling_probability;    /* in a window; with a budget: at most */
  double duty_cycle;              /* the share of time that windows take; at random places, one in each period */
  double budget;                  /* the share of running time that recording may cost; 0: no limit, and the probability is taken as it is */
  double burst_duty_cycle;        /* the share of time in which every operator is recorded, for self time; 0: none */
  double host_probability;        /* whether this process records at all, drawn once at the start; the counts stand for those that do not */
  uint32_t scopes;                /* mask; 0: FUNCTION and KERNEL */
  int32_t shapes;                 /* 1: the inputs' shapes are part of a series' key */
  const char *labels;             /* keys of the debug info that are part of a series' key besides model_id, comma-separated; NULL: none */
  int32_t max_series;             /* 0: 2048 */
  int32_t every;                  /* sealift_every */
} sealift_recorder_options;

typedef enum sealift_every {
  SEALIFT_EVERY_OPERATOR = 0, /* each operator drawn by itself, in windows; and bursts for self time */
  SEALIFT_EVERY_BURST = 1,    /* bursts of all operators only */
  SEALIFT_EVERY_STEP = 2      /* whole steps between calls of sealift_recorder_step, drawn with sampling_probability */
} sealift_every;

/* 1, 0.0625, 0.003, 0.005, 1, 0, 0, NULL, 0, EVERY_OPERATOR: every operator in short windows, as long as the budget allows, a sixteenth of the time
 * at most. An operator that is recorded among others costs a fraction of one that is recorded alone. For EVERY_STEP set a probability, for
 * EVERY_BURST a duty cycle: 0.25 is the Python interface's. */
SEALIFT_API void sealift_recorder_options_init(sealift_recorder_options *options);
/* Empties the counts and begins. SEALIFT_ERROR_BUSY: it is running. */
SEALIFT_API sealift_status sealift_recorder_start(const sealift_recorder_options *options, char *err, size_t err_len);
/* Ends recording; the counts stay readable until the next start. */
SEALIFT_API void sealift_recorder_stop(void);
/* What may change while it records. Negative: as it is. */
typedef struct sealift_recorder_rates {
  uint32_t struct_bytes;
  double sampling_probability, duty_cycle, budget, burst_duty_cycle; /* as in the options; with a budget the first two are upper bounds */
  double host_probability;        /* with which whoever asks chose this process to record; its weights are divided by it */
  int32_t records;                /* 0: it was not chosen, and records nothing until it is; 1: it was; -1: as it is */
} sealift_recorder_rates;
/* All negative. */
SEALIFT_API void sealift_recorder_rates_init(sealift_recorder_rates *rates);
/* At once, on windows that are drawn anew. Counts go on: each sample has the weight of the rates that it was drawn with, so that sums stay unbiased.
 * SEALIFT_ERROR_ARGUMENT also where it does not run. */
SEALIFT_API sealift_status sealift_recorder_adjust(const sealift_recorder_rates *rates, char *err, size_t err_len);
/* The calling thread's program begins a new step (a batch, a request). */
SEALIFT_API void sealift_recorder_step(void);

#define SEALIFT_HISTOGRAM_BUCKETS 320 /* bucket i: (2^(i/8), 2^((i+1)/8)] ns; the last holds all that is longer */

typedef struct sealift_series {
  uint32_t struct_bytes;
  int32_t source, scope;
  const char *name, *origin, *shapes;     /* "" where there is none; "(overflow)": events that no series had room for */
  const char *model_id;
  int32_t num_labels;
  const sealift_label *labels;
  uint64_t count, samples;                /* calls, estimated without bias; events recorded */
  uint64_t total_ns;                      /* estimated */
  uint64_t burst_samples, burst_total_ns, burst_self_ns; /* of bursts: self time is total_ns * burst_self_ns / burst_total_ns */
  uint64_t zero_count;                    /* weighted, as the buckets */
  const uint64_t *buckets;                /* [SEALIFT_HISTOGRAM_BUCKETS] */
} sealift_series;

typedef struct sealift_recorder_state {
  uint32_t struct_bytes;
  int32_t running;
  uint64_t start_unix_ns;
  double probability, duty_cycle;         /* now */
  double overhead;                        /* share of the running time that recording cost, as measured since the start */
  uint64_t samples, overflow, dropped;    /* dropped: events lost, and the first two of each foreign thread, whose places are not random */
  uint64_t fork_count;                    /* how often this process's ancestors forked since the library was loaded: a new one, a new start id */
  int32_t num_series, num_tables;
  sealift_recorder_rates rates;           /* as they were started with or adjusted to */
  double burst_duty_cycle;                /* now */
} sealift_recorder_state;

SEALIFT_API void sealift_recorder_get_state(sealift_recorder_state *state);
/* Visits every series that has samples; threads go on recording meanwhile. What it is given lives until the visit returns. */
SEALIFT_API void sealift_recorder_visit(void (*visit)(void *user, const sealift_series *series), void *user);

/* One call of a burst: nested calls of a thread lie inside each other. */
typedef struct sealift_burst_event {
  const char *name;                       /* of its series, as all of these */
  int32_t source, scope;
  const char *model_id, *shapes, *origin;
  uint64_t start_ns, dur_ns;              /* CLOCK_MONOTONIC */
  int64_t thread;                         /* gettid() */
  uint32_t burst;                         /* which: counted from 1; 0: of a trace */
  const sealift_info *info;               /* of a trace's calls: the debug info whole; else NULL */
} sealift_burst_event;
/* The calls that bursts recorded, the oldest first, and forgets them; at most 16384 are kept. */
SEALIFT_API void sealift_recorder_take_events(void (*visit)(void *user, const sealift_burst_event *event), void *user);

/* A trace on demand: every operator of every thread from begin to end, whatever the recorder samples besides, and counted in none of its numbers but
 * the overhead. At most `max_calls` are kept, the first ones; 0: 1,000,000. The recorder must run. SEALIFT_ERROR_BUSY: one is under way, or its
 * calls were not freed. */
SEALIFT_API sealift_status sealift_recorder_trace_begin(uint64_t max_calls, char *err, size_t err_len);
/* Returns how many calls there are; *lost (may be NULL): how many more there were. */
SEALIFT_API uint64_t sealift_recorder_trace_end(uint64_t *lost);
/* Calls first ... first + count - 1, in the order of their ends; between end and free, by one thread at a time. */
SEALIFT_API void sealift_recorder_trace_visit(uint64_t first, uint64_t count, void (*visit)(void *user, const sealift_burst_event *event), void *user);
SEALIFT_API void sealift_recorder_trace_free(void);

/* ---- API usage ----------------------------------------------------------------------------------------------------------- */

/* Notes that an API was used, once per process and key; the first time returns 1 and tells the handler. */
SEALIFT_API int32_t sealift_log_api_usage_once(const char *key);
/* Free after the first time at each place. `key` must be a literal. */
#define SEALIFT_LOG_API_USAGE_ONCE(key)                                            \
  do {                                                                             \
    static int sealift_logged_;                                                    \
    if (!__atomic_load_n(&sealift_logged_, __ATOMIC_RELAXED)) {                    \
      __atomic_store_n(&sealift_logged_, 1, __ATOMIC_RELAXED);                     \
      (void)sealift_log_api_usage_once(key);                                       \
    }                                                                              \
  } while (0)
/* Called at once, on the thread that used the API, which may hold any lock: it must not block. NULL: none. Keys noted before are told first. */
SEALIFT_API void sealift_set_api_usage_handler(void (*handler)(void *user, const char *key, uint64_t first_unix_ns), void *user);
SEALIFT_API void sealift_api_usage_visit(void (*visit)(void *user, const char *key, uint64_t first_unix_ns), void *user);

/* A model file was written or read, with what is known of it: flat JSON, {"kind": "saved", "format": "torchscript", ...}. A bounded queue. */
SEALIFT_API void sealift_note_model_file(const char *json);
SEALIFT_API void sealift_take_model_files(void (*visit)(void *user, const char *json, uint64_t unix_ns), void *user);

/* ---- for event sources --------------------------------------------------------------------------------------------------- */

#define SEALIFT_OBSERVE_SLOTS 21      /* 0..15: observers; the others are the recorder's */

/* How a source is to report to one slot. */
typedef struct sealift_listen {
  double probability;
  uint64_t weight;                      /* 1 / probability, or more where windows are only a part of the time */
  uint32_t scopes;
  int32_t needs_inputs;
  int32_t this_thread_only;
  int32_t sample_flags;                 /* 0: report by enter() and exit(); else by record() at the end alone, with these flags */
} sealift_listen;

enum {
  SEALIFT_SAMPLE_COUNT = 1,             /* counts, times and histogram */
  SEALIFT_SAMPLE_SELF = 2,              /* of a burst, whose every operator is reported: self time, and the list of calls */
  SEALIFT_SAMPLE_TRACE = 4              /* of a trace: nothing but the list of calls */
};

/* One event for the recorder. */
typedef struct sealift_sample {
  const char *name, *origin, *shapes;   /* the last two may be NULL */
  int32_t source, scope;
  uint64_t start_ns, dur_ns, weight;
  const sealift_info *info;             /* may be NULL */
  uint64_t self_ns;                     /* bursts: dur_ns less that of the operators inside; UINT64_MAX: not known */
  int32_t flags;                        /* 0: forgotten, for a source that measures itself */
  uint64_t inner_ns;                    /* of dur_ns: what observing took inside, of operators within this one; a series' times are without it */
  uint64_t spent_ns;                    /* what recording took on this thread since its last sample, as measured; 0: the source's costs tell */
} sealift_sample;

/* What a source measured its hooks to cost. */
typedef struct sealift_source_costs {
  double sample_ns, passed_ns, node_ns; /* per recorded operator; per operator that is not drawn; per backward node */
} sealift_source_costs;

/* A thread's state, for the source to look at without a call. */
typedef struct sealift_observe_thread {
  int32_t disabled;                     /* > 0: report nothing */
} sealift_observe_thread;

typedef struct sealift_event_source {
  uint32_t version, struct_bytes;
  const char *name;                     /* "torch 2.13.0" */
  int32_t (*listen)(int32_t slot, const sealift_listen *how); /* 0: refused */
  void (*unlisten)(int32_t slot);
  sealift_info *(*get_info)(int32_t *is_set); /* the thread's, one reference */
  void (*set_info)(const sealift_info *info);
  void (*measure)(double probability, sealift_source_costs *out);
  /* Before a fork: returns once no thread is seen holding a lock of the source's own. NULL, or past struct_bytes: it has none. */
  void (*settle)(void);
} sealift_event_source;

typedef struct sealift_observe_host {
  uint32_t version, struct_bytes;
  sealift_observe_thread *(*thread)(void); /* the calling thread's; lives as long as it */
  /* The source's, for good. 0: there is one already, or the versions differ. */
  int32_t (*attach)(const sealift_event_source *source);
  /* A slot's callback. enter returns a token for exit, which must be called, on any thread; NULL: no exit. `event` is filled but for info. */
  void *(*enter)(int32_t slot, sealift_observed *event);
  void (*exit)(void *token, sealift_observed *event);
  void (*record)(const sealift_sample *sample);
  void (*drop)(uint64_t count);
  sealift_info *(*current_info)(void);  /* one reference; asks the source where that knows better */
  sealift_info *(*retain_info)(const sealift_info *info);
  void (*release_info)(const sealift_info *info);
  int32_t (*log_api_usage)(const char *key);
  void (*note_model_file)(const char *json);
} sealift_observe_host;

/* NULL where `version` is not served. */
SEALIFT_API const sealift_observe_host *sealift_observe_get_host(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
