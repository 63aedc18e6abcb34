#include "trace_json.h"

#include <stdio.h>

#include "sealift_observe.h"

namespace {

void put_text(std::string &out, const char *text) {
  out += '"';
  for (; *text != '\0'; ++text) {
    const auto c = static_cast<unsigned char>(*text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += *text;
    } else if (c < 0x20) {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += *text;
    }
  }
  out += '"';
}

// Exact, in decimal: doubles lose nanoseconds.
void put_microseconds(std::string &out, uint64_t ns) {
  char text[32];
  snprintf(text, sizeof text, "%llu.%03u", static_cast<unsigned long long>(ns / 1000), static_cast<unsigned>(ns % 1000));
  out += text;
}

struct Writer {
  std::string out;
  std::string pid;
  uint64_t base_ns;

  void put(const sealift_burst_event &call) {
    out += ",\n{\"ph\":\"X\",\"name\":";
    put_text(out, call.name);
    out += ",\"cat\":\"";
    out += call.source == SEALIFT_SOURCE_KERNEL ? "sealift," : "torch,";
    out += sealift_scope_name(static_cast<sealift_scope>(call.scope));
    out += "\",\"pid\":" + pid + ",\"tid\":" + std::to_string(call.thread) + ",\"ts\":";
    put_microseconds(out, call.start_ns > base_ns ? call.start_ns - base_ns : 0);
    out += ",\"dur\":";
    put_microseconds(out, call.dur_ns);
    out += ",\"args\":{";
    bool any = false;
    const auto argument = [&](const char *key, const char *value) {
      if (value[0] == '\0') return;
      if (any) out += ',';
      any = true;
      put_text(out, key);
      out += ':';
      put_text(out, value);
    };
    argument("shapes", call.shapes);
    argument("origin", call.origin);
    for (int32_t i = 0; i < sealift_info_count(call.info); ++i) {
      const sealift_label label = sealift_info_label(call.info, i);
      argument(label.key, label.value);
    }
    out += "}}";
  }
};

}  // namespace

std::string trace_json(uint64_t first, uint64_t count, int64_t pid, uint64_t base_ns) {
  Writer writer{{}, std::to_string(pid), base_ns};
  sealift_recorder_trace_visit(first, count, [](void *user, const sealift_burst_event *call) { static_cast<Writer *>(user)->put(*call); }, &writer);
  return std::move(writer.out);
}
