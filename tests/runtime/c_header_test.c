/* sealift.h and sealift_model.h are C99 and compile alone; the layouts that cross a process or a release are fixed. */
#include "sealift.h"

#include "sealift_model.h"

#define ASSERT_LAYOUT(name, condition) typedef char assert_##name[(condition) ? 1 : -1]

ASSERT_LAYOUT(options, sizeof(sealift_open_options) == 32);
ASSERT_LAYOUT(record, sizeof(sealift_record) == 48);
ASSERT_LAYOUT(frame, sizeof(sealift_frame) == 120);
ASSERT_LAYOUT(api, sizeof(sealift_model_api) == 200);
ASSERT_LAYOUT(api_first, offsetof(sealift_model_api, changes_input) == 192); /* how far the first tables reach */
ASSERT_LAYOUT(host, sizeof(sealift_host) == 32);

int main(void) {
  sealift_open_options options;
  sealift_open_options_init(&options);
  sealift_close(0);
  sealift_context_destroy(0);
  return options.struct_bytes == sizeof options && options.isa == -1 && options.verify == 1 && sealift_version()[0] != 0 ? 0 : 1;
}
