// What has to happen around fork().
#pragma once

namespace sealift::observe {

// Registers the handlers, once.
void handle_fork();
void control_after_fork();
// With the control mutex: asks the attached source what its hooks cost here.
void measure_source();
void lock_api_usage();
void unlock_api_usage();

}  // namespace sealift::observe
