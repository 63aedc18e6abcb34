#include "package.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>

#include "failure.h"

namespace sealift::runtime {

namespace {

constexpr int SCHEMA_MAJOR = 1, SCHEMA_MINOR = 1;
constexpr char SEAL[] = "sealift/seal", MANIFEST[] = "sealift/manifest.json", MODELS[] = "data/aotinductor/";
constexpr char LIBRARY_END[] = ".wrapper.so", WEIGHTS_END[] = ".weights.bin", SHARED_WEIGHTS[] = "data/constants/sealift.weights.bin";
constexpr uint64_t MAX_SEAL_BYTES = uint64_t{16} << 20;
constexpr size_t READ_BYTES = 1 << 18;

bool starts_with(const std::string &text, const std::string &start) { return text.compare(0, start.size(), start) == 0; }
bool ends_with(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}
bool is_hex(const std::string &text) { return text.find_first_not_of("0123456789abcdef") == std::string::npos; }
bool is_number(const std::string &text) { return !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos; }

std::string folder(const std::string &model) { return MODELS + model + "/"; }

// "encoder" of "data/aotinductor/encoder/encoder.wrapper.so", else "".
std::string model_of_library(const std::string &member) {
  if (!starts_with(member, MODELS)) return "";
  const size_t begin = strlen(MODELS), slash = member.find('/', begin);
  if (slash == std::string::npos) return "";
  const std::string model = member.substr(begin, slash - begin);
  return member == folder(model) + model + LIBRARY_END ? model : "";
}

}  // namespace

Package::Package(const std::string &path) : file_(path) {
  const ZipDirectory zip = read_zip(file_);
  for (const ZipEntry &entry : zip.entries) {
    members_.push_back(Member{entry.name, entry.data_offset, entry.size_bytes, false, ""});
    const std::string model = model_of_library(entry.name);
    if (!model.empty()) models_.push_back(model);
  }
  read_seal();
  if (find(MANIFEST) == nullptr) throw Failure(SEALIFT_ERROR_PACKAGE, path + ": member '" + MANIFEST + "' is missing; help: compile the model again");
  if (models_.empty())
    throw Failure(SEALIFT_ERROR_PACKAGE, path + ": holds no model (no " + MODELS + "<model>/<model>" + LIBRARY_END + "); help: compile the model again");
}

const Package::Member *Package::find(const std::string &name) const {
  const auto at = std::lower_bound(members_.begin(), members_.end(), name, [](const Member &member, const std::string &key) { return member.name < key; });
  return at != members_.end() && at->name == name ? &*at : nullptr;
}

void Package::read_seal() {
  auto refuse = [this](const std::string &what) -> Failure {
    return Failure(SEALIFT_ERROR_PACKAGE, path() + ": " + what + "; help: the package was changed after it was sealed: compile it again, or fetch it again");
  };
  const Member *seal = find(SEAL);
  if (seal == nullptr)
    throw Failure(SEALIFT_ERROR_PACKAGE, path() + ": is not a sealift package (member '" + SEAL + "' is missing); help: compile the model with sealift");
  if (seal->size_bytes > MAX_SEAL_BYTES) throw refuse("the seal is too large");
  std::string text(seal->size_bytes, '\0');
  file_.read(seal->offset, &text[0], text.size());

  size_t at = 0;
  auto next_line = [&](std::string &line) {
    if (at >= text.size()) return false;
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) throw refuse("the seal is cut off");
    line = text.substr(at, end - at);
    at = end + 1;
    return true;
  };
  std::string line;
  const std::string title = "sealift-seal ";
  if (!next_line(line) || !starts_with(line, title)) throw refuse("the seal has no version line");
  const std::string version = line.substr(title.size());
  const size_t dot = version.find('.');
  if (dot == std::string::npos || !is_number(version.substr(0, dot)) || !is_number(version.substr(dot + 1))) throw refuse("the seal has no version line");
  const int major = atoi(version.substr(0, dot).c_str()), minor = atoi(version.substr(dot + 1).c_str());
  if (major != SCHEMA_MAJOR || minor > SCHEMA_MINOR) {
    throw Failure(SEALIFT_ERROR_VERSION, path() + ": has package schema " + version + ", this sealift " SEALIFT_VERSION_TEXT " reads up to " +
                                             std::to_string(SCHEMA_MAJOR) + "." + std::to_string(SCHEMA_MINOR) +
                                             "; help: install a newer sealift, or compile the model with this one");
  }
  while (next_line(line)) {
    const size_t colon = line.find(':'), space = line.find("  ");
    if (colon == std::string::npos || space == std::string::npos || colon > space) throw refuse("the seal has a line that is no digest");
    const std::string kind = line.substr(0, colon), digest = line.substr(colon + 1, space - colon - 1), name = line.substr(space + 2);
    const size_t digits = kind == "sha256" ? 64 : kind == "crc32c" ? 8
                                                                   : 0;
    if (digits == 0 || digest.size() != digits || !is_hex(digest)) throw refuse("the seal has a line that is no digest");
    Member *member = const_cast<Member *>(find(name));
    if (member == nullptr || member == seal) throw refuse("the seal names member '" + name + "', which is missing");
    if (!member->digest.empty()) throw refuse("the seal names member '" + name + "' twice");
    if (kind == "crc32c" && !ends_with(name, WEIGHTS_END)) throw refuse("member '" + name + "' must be sealed by SHA-256");
    member->is_crc = kind == "crc32c";
    member->digest = digest;
  }
  for (const Member &member : members_) {
    if (member.digest.empty() && &member != seal) throw refuse("member '" + member.name + "' is not in the seal");
  }
}

std::string Package::choose_model(const char *name) const {
  if (name == nullptr && models_.size() == 1) return models_[0];
  const std::string wanted = name == nullptr ? "model" : name;
  if (std::find(models_.begin(), models_.end(), wanted) != models_.end()) return wanted;
  std::string names;
  for (const std::string &model : models_) names += (names.empty() ? "'" : ", '") + model + "'";
  throw Failure(SEALIFT_ERROR_MODEL_NAME,
                path() + (name == nullptr ? ": holds several models and none is called 'model'" : ": holds no model '" + wanted + "'") +
                    "; help: choose one of " + names);
}

const Package::Member &Package::library(const std::string &model) const { return *find(folder(model) + model + LIBRARY_END); }

const Package::Member *Package::weights(const std::string &model) const {
  const Member *own = find(folder(model) + model + WEIGHTS_END);
  return own != nullptr ? own : find(SHARED_WEIGHTS);
}

std::string Package::digest_of(const Member &member) const {
  const std::unique_ptr<char[]> buffer(new char[READ_BYTES]);
  Sha256 sha;
  uint32_t crc = 0;
  for (uint64_t done = 0; done < member.size_bytes;) {
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(READ_BYTES, member.size_bytes - done));
    file_.read(member.offset + done, buffer.get(), bytes);
    if (member.is_crc) {
      crc = crc32c(buffer.get(), bytes, crc);
    } else {
      sha.update(buffer.get(), bytes);
    }
    done += bytes;
  }
  return member.is_crc ? crc32c_hex(crc) : sha.hex();
}

void Package::check_digest(const Member &member, const std::string &actual) const {
  if (member.digest == actual) return;
  throw Failure(SEALIFT_ERROR_INTEGRITY, path() + ": member '" + member.name + "' differs from its seal (" + (member.is_crc ? "CRC-32C " : "SHA-256 ") +
                                             actual.substr(0, 12) + ", sealed " + member.digest.substr(0, 12) +
                                             "); help: the file was damaged or changed: fetch it again");
}

void Package::verify_small_members(const std::string &model) const {
  for (const Member &member : members_) {
    if (member.name == SEAL || (starts_with(member.name, MODELS) && !starts_with(member.name, folder(model)))) continue;
    if (&member == &library(model) || &member == weights(model) || member.name == SHARED_WEIGHTS) continue;
    check_digest(member, digest_of(member));
  }
}

void Package::verify_weights(const Member &member, const Mapping &mapping) const {
  if (member.is_crc) {
    check_digest(member, crc32c_hex(crc32c(mapping.data(), mapping.size_bytes())));
    return;
  }
  Sha256 sha;
  sha.update(mapping.data(), mapping.size_bytes());
  check_digest(member, sha.hex());
}

const std::string *Package::content(const std::string &name) {
  const Member *member = find(name);
  if (member == nullptr) return nullptr;
  const std::lock_guard<std::mutex> lock(contents_mutex_);
  const auto known = contents_.find(name);
  if (known != contents_.end()) return &known->second;
  std::string bytes(member->size_bytes, '\0');
  file_.read(member->offset, &bytes[0], bytes.size());
  if (!member->digest.empty()) {
    Sha256 sha;
    sha.update(bytes.data(), bytes.size());
    if (member->digest != (member->is_crc ? crc32c_hex(crc32c(bytes.data(), bytes.size())) : sha.hex())) return nullptr;
  }
  return &contents_.emplace(name, std::move(bytes)).first->second;
}

}  // namespace sealift::runtime
