#include "zip_reader.h"

#include <string.h>

#include <algorithm>

#include "failure.h"

namespace sealift::runtime {

namespace {

// PKWARE's APPNOTE, sections 4.3.7 to 4.3.16.
constexpr uint32_t LOCAL_HEADER = 0x04034b50, CENTRAL_HEADER = 0x02014b50, END_RECORD = 0x06054b50, END_RECORD64 = 0x06064b50, END_LOCATOR64 = 0x07064b50;
constexpr uint64_t LOCAL_BYTES = 30, CENTRAL_BYTES = 46, END_BYTES = 22, END_BYTES64 = 56, LOCATOR_BYTES64 = 20;
constexpr uint16_t ZIP64_EXTRA = 1;
constexpr uint16_t ENCRYPTED = 1u << 0, SIZES_FOLLOW = 1u << 3, STRONG_ENCRYPTION = 1u << 6, MASKED_HEADERS = 1u << 13;
constexpr uint64_t MAX_DIRECTORY_BYTES = uint64_t{64} << 20;  // a package has tens of entries

struct Cursor {
  const unsigned char *data;
  uint64_t size_bytes;

  template <class Int>
  Int at(uint64_t offset) const {  // the caller checked the bounds
    Int value;
    memcpy(&value, data + offset, sizeof value);
    return value;
  }
};

class Reader {
 public:
  explicit Reader(const File &file) : file_(file) {}
  ZipDirectory read();

 private:
  struct Record {
    std::string path;
    uint64_t header_offset, size_bytes;
    uint32_t crc;
    uint16_t flags;
    uint64_t data_offset = 0;
  };

  [[noreturn]] void refuse(const std::string &what) const {
    throw Failure(SEALIFT_ERROR_PACKAGE, file_.path() + ": " + what + "; help: copy the file again, or compile the model again");
  }
  [[noreturn]] void refuse(const std::string &path, const std::string &what) const { refuse("member '" + path + "' " + what); }

  void find_directory();
  Record parse_record(Cursor directory, uint64_t &at) const;
  void read_zip64(const std::string &path, Cursor extra, uint64_t *fields[], int count) const;
  void check_path(const std::string &path) const;
  void check_local_header(Record &record) const;

  const File &file_;
  uint64_t directory_offset_ = 0, directory_bytes_ = 0, entries_ = 0;
};

void Reader::find_directory() {
  const uint64_t size = file_.size_bytes();
  if (size < END_BYTES) refuse("is too short for a package (" + std::to_string(size) + " bytes)");
  unsigned char end[END_BYTES];
  file_.read(size - END_BYTES, end, sizeof end);
  const Cursor record{end, sizeof end};
  if (record.at<uint32_t>(0) != END_RECORD || record.at<uint16_t>(20) != 0) refuse("is not a package, or is cut off (no ZIP directory at its end)");
  if (record.at<uint16_t>(4) != 0 || record.at<uint16_t>(6) != 0) {
    if (record.at<uint16_t>(4) != 0xffff && record.at<uint16_t>(6) != 0xffff) refuse("is one part of a split archive");
  }
  if (record.at<uint16_t>(8) != record.at<uint16_t>(10)) refuse("has a ZIP directory that contradicts itself");
  entries_ = record.at<uint16_t>(10);
  directory_bytes_ = record.at<uint32_t>(12);
  directory_offset_ = record.at<uint32_t>(16);
  uint64_t directory_end = size - END_BYTES;
  if (size >= END_BYTES + LOCATOR_BYTES64) {
    unsigned char bytes[END_BYTES64];
    file_.read(size - END_BYTES - LOCATOR_BYTES64, bytes, LOCATOR_BYTES64);
    const Cursor locator{bytes, LOCATOR_BYTES64};
    if (locator.at<uint32_t>(0) == END_LOCATOR64) {
      const uint64_t at = locator.at<uint64_t>(8);
      if (at > size - END_BYTES - LOCATOR_BYTES64 || size - END_BYTES - LOCATOR_BYTES64 - at != END_BYTES64) refuse("has a ZIP64 directory that is cut off");
      file_.read(at, bytes, END_BYTES64);
      const Cursor end64{bytes, END_BYTES64};
      if (end64.at<uint32_t>(0) != END_RECORD64 || end64.at<uint64_t>(4) != END_BYTES64 - 12 || end64.at<uint32_t>(16) != 0 || end64.at<uint32_t>(20) != 0 ||
          end64.at<uint64_t>(24) != end64.at<uint64_t>(32)) {
        refuse("has a ZIP64 directory that contradicts itself");
      }
      auto agree = [](uint64_t narrow, uint64_t marker, uint64_t wide) { return narrow == marker || narrow == wide; };
      if (!agree(entries_, 0xffff, end64.at<uint64_t>(32)) || !agree(directory_bytes_, 0xffffffff, end64.at<uint64_t>(40)) ||
          !agree(directory_offset_, 0xffffffff, end64.at<uint64_t>(48))) {
        refuse("has two ZIP directories that differ");
      }
      entries_ = end64.at<uint64_t>(32);
      directory_bytes_ = end64.at<uint64_t>(40);
      directory_offset_ = end64.at<uint64_t>(48);
      directory_end = at;
    }
  }
  if (directory_offset_ > directory_end || directory_end - directory_offset_ != directory_bytes_) refuse("is cut off, or has bytes before its first member");
  if (directory_bytes_ > MAX_DIRECTORY_BYTES || entries_ > directory_bytes_ / CENTRAL_BYTES) refuse("has a ZIP directory of an impossible size");
}

// Extra fields that stand in, in this order, for each field of `fields` that is all ones.
void Reader::read_zip64(const std::string &path, Cursor extra, uint64_t *fields[], int count) const {
  uint64_t at = 0;
  bool seen = false;
  while (at < extra.size_bytes) {
    if (extra.size_bytes - at < 4) refuse(path, "has a ZIP extra field that is cut off");
    const uint16_t id = extra.at<uint16_t>(at), bytes = extra.at<uint16_t>(at + 2);
    at += 4;
    if (bytes > extra.size_bytes - at) refuse(path, "has a ZIP extra field that is cut off");
    if (id == ZIP64_EXTRA) {
      if (seen) refuse(path, "has two ZIP64 fields");
      seen = true;
      uint64_t field = at;
      for (int i = 0; i < count; ++i) {
        if (*fields[i] != 0xffffffff) continue;
        if (at + bytes - field < 8) refuse(path, "has a ZIP64 field that is cut off");
        *fields[i] = extra.at<uint64_t>(field);
        field += 8;
      }
    }
    at += bytes;
  }
}

void Reader::check_path(const std::string &path) const {
  if (path.empty() || path[0] == '/' || path.back() == '/') refuse(path, "is a directory or has an absolute or empty name");
  for (const char c : path) {
    if (c == '\\' || static_cast<unsigned char>(c) < 0x20) refuse(path, "has a backslash or a control character in its name");
  }
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t slash = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, slash - begin);
    if (part.empty() || part == "." || part == "..") refuse(path, "has a name that leaves its directory");
    begin = slash + 1;
  }
}

Reader::Record Reader::parse_record(Cursor directory, uint64_t &at) const {
  if (directory.size_bytes - at < CENTRAL_BYTES || directory.at<uint32_t>(at) != CENTRAL_HEADER) refuse("has a damaged ZIP directory");
  Record record;
  record.flags = directory.at<uint16_t>(at + 8);
  const uint16_t method = directory.at<uint16_t>(at + 10);
  record.crc = directory.at<uint32_t>(at + 16);
  uint64_t stored_bytes = directory.at<uint32_t>(at + 20);
  record.size_bytes = directory.at<uint32_t>(at + 24);
  const uint64_t name_bytes = directory.at<uint16_t>(at + 28), extra_bytes = directory.at<uint16_t>(at + 30), comment_bytes = directory.at<uint16_t>(at + 32);
  const uint16_t disk = directory.at<uint16_t>(at + 34);
  record.header_offset = directory.at<uint32_t>(at + 42);
  at += CENTRAL_BYTES;
  if (name_bytes + extra_bytes + comment_bytes > directory.size_bytes - at) refuse("has a damaged ZIP directory");
  record.path.assign(reinterpret_cast<const char *>(directory.data + at), name_bytes);
  check_path(record.path);
  uint64_t *fields[] = {&record.size_bytes, &stored_bytes, &record.header_offset};
  read_zip64(record.path, Cursor{directory.data + at + name_bytes, extra_bytes}, fields, 3);
  at += name_bytes + extra_bytes + comment_bytes;
  if (disk != 0 && disk != 0xffff) refuse(record.path, "is in another part of a split archive");
  if ((record.flags & (ENCRYPTED | STRONG_ENCRYPTION | MASKED_HEADERS)) != 0) refuse(record.path, "is encrypted");
  if (method != 0 || stored_bytes != record.size_bytes) refuse(record.path, "is compressed (a package stores its members as they are)");
  return record;
}

void Reader::check_local_header(Record &record) const {
  if (record.header_offset > directory_offset_ || directory_offset_ - record.header_offset < LOCAL_BYTES)
    refuse(record.path, "reaches past the end of the file");
  unsigned char bytes[LOCAL_BYTES];
  file_.read(record.header_offset, bytes, sizeof bytes);
  const Cursor header{bytes, sizeof bytes};
  const uint64_t name_bytes = header.at<uint16_t>(26), extra_bytes = header.at<uint16_t>(28);
  const uint64_t room = directory_offset_ - record.header_offset - LOCAL_BYTES;
  if (header.at<uint32_t>(0) != LOCAL_HEADER || name_bytes + extra_bytes > room) refuse(record.path, "has a damaged header");
  std::vector<unsigned char> tail(name_bytes + extra_bytes);
  file_.read(record.header_offset + LOCAL_BYTES, tail.data(), tail.size());
  uint64_t size_bytes = header.at<uint32_t>(22), stored_bytes = header.at<uint32_t>(18);
  uint64_t *fields[] = {&size_bytes, &stored_bytes};
  read_zip64(record.path, Cursor{tail.data() + name_bytes, extra_bytes}, fields, 2);
  const bool sizes_follow = (record.flags & SIZES_FOLLOW) != 0;
  auto agree = [&](uint64_t local, uint64_t central) { return local == central || (sizes_follow && local == 0); };
  if (header.at<uint16_t>(6) != record.flags || header.at<uint16_t>(8) != 0 || !agree(header.at<uint32_t>(14), record.crc) ||
      !agree(size_bytes, record.size_bytes) || !agree(stored_bytes, record.size_bytes) || name_bytes != record.path.size() ||
      memcmp(tail.data(), record.path.data(), name_bytes) != 0) {
    refuse(record.path, "has a header that differs from the ZIP directory");
  }
  record.data_offset = record.header_offset + LOCAL_BYTES + name_bytes + extra_bytes;
  if (record.size_bytes > directory_offset_ - record.data_offset) refuse(record.path, "reaches past the end of the file");
}

ZipDirectory Reader::read() {
  find_directory();
  std::vector<unsigned char> bytes(directory_bytes_);
  file_.read(directory_offset_, bytes.data(), bytes.size());
  const Cursor directory{bytes.data(), bytes.size()};
  std::vector<Record> records;
  records.reserve(entries_);  // no more than the directory's bytes allow
  uint64_t at = 0;
  for (uint64_t i = 0; i < entries_; ++i) records.push_back(parse_record(directory, at));
  if (at != directory_bytes_) refuse("has a ZIP directory that contradicts itself");
  if (records.empty()) refuse("is an empty archive");

  std::sort(records.begin(), records.end(), [](const Record &a, const Record &b) { return a.header_offset < b.header_offset; });
  uint64_t end = 0;
  for (Record &record : records) {
    check_local_header(record);
    if (record.header_offset < end) refuse(record.path, "overlaps another member");
    end = record.data_offset + record.size_bytes;
  }

  ZipDirectory zip;
  const size_t slash = records[0].path.find('/');
  if (slash == std::string::npos) refuse(records[0].path, "lies outside the package's directory");
  zip.top = records[0].path.substr(0, slash);
  for (const Record &record : records) {
    if (record.path.compare(0, slash + 1, zip.top + "/") != 0) refuse(record.path, "lies outside the package's directory '" + zip.top + "'");
    zip.entries.push_back(ZipEntry{record.path.substr(slash + 1), record.data_offset, record.size_bytes});
  }
  std::sort(zip.entries.begin(), zip.entries.end(), [](const ZipEntry &a, const ZipEntry &b) { return a.name < b.name; });
  for (size_t i = 1; i < zip.entries.size(); ++i) {
    if (zip.entries[i].name == zip.entries[i - 1].name) refuse(zip.entries[i].name, "is there twice");
  }
  return zip;
}

}  // namespace

ZipDirectory read_zip(const File &file) { return Reader(file).read(); }

}  // namespace sealift::runtime
