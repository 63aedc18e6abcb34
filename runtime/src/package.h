// A package file: its members, the seal, and which model to take. contracts/PACKAGE.md is the specification.
#pragma once

#include <stdint.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "digest.h"
#include "file.h"
#include "zip_reader.h"

namespace sealift::runtime {

class Package {
 public:
  // Reads and checks the directory and the seal; no member's content yet.
  explicit Package(const std::string &path);

  const std::string &path() const { return file_.path(); }
  const File &file() const { return file_; }
  // `name` may be NULL: the only model, else the one called "model". Failure E-PACKAGE-004 lists the names.
  std::string choose_model(const char *name) const;

  struct Member {
    std::string name;
    uint64_t offset, size_bytes;
    bool is_crc;
    std::string digest;  // hexadecimal, lower case; empty for the seal itself
  };
  const Member *find(const std::string &name) const;
  const Member &library(const std::string &model) const;
  const Member *weights(const std::string &model) const;  // its own, or those that the models share; NULL: there are none
  const std::vector<std::string> &models() const { return models_; }

  // Failure E-PACKAGE-002 if the content (`actual` digest) is not the sealed one.
  void check_digest(const Member &member, const std::string &actual) const;
  // Every member that all models share, and those of `model` but for its library and weights.
  void verify_small_members(const std::string &model) const;
  void verify_weights(const Member &member, const Mapping &mapping) const;

  // A verified copy of a member, kept as long as the package; NULL if it is absent or differs from its digest. Thread-safe.
  const std::string *content(const std::string &name);

 private:
  void read_seal();
  std::string digest_of(const Member &member) const;

  File file_;
  std::vector<Member> members_;  // sorted by name
  std::vector<std::string> models_;
  std::mutex contents_mutex_;
  std::map<std::string, std::string> contents_;
};

}  // namespace sealift::runtime
