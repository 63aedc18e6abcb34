/* otlp_mutations ROUNDS FILE...: reads every prefix of each message, and ROUNDS mutations of it, with the sanitizers watching. Prints how many. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>

#include "otlp.h"

namespace {

long reads = 0;

void read(const std::string &message, otlp::SeriesIds &ids) {
  const std::unique_ptr<char[]> exact(new char[message.size() ? message.size() : 1]); /* so that one byte further is an error */
  memcpy(exact.get(), message.data(), message.size());
  for (int attempt = 0; attempt < 2; attempt++) {
    otlp::Reading found;
    reads++;
    if (otlp::read_points({exact.get(), message.size()}, 1760000000000000000u, ids, &found)) return;
    for (const std::string &attributes : found.unknown) ids.learn(attributes, static_cast<int64_t>(otlp::digest(attributes, 0) >> 1), true);
    if (found.unknown.empty()) return;
  }
}

}  // namespace

int main(int count, char **arguments) {
  std::mt19937 chance(1);
  const int rounds = std::atoi(arguments[1]);
  for (int i = 2; i < count; i++) {
    std::ifstream file(arguments[i], std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    otlp::SeriesIds ids;
    for (size_t size = 0; size <= whole.size(); size++) read(whole.substr(0, size), ids);
    for (int round = 0; round < rounds; round++) {
      std::string message = whole;
      for (unsigned change = chance() % 4 + 1; change && !message.empty(); change--) {
        const size_t place = chance() % message.size();
        switch (chance() % 4) {
          case 0: message[place] = static_cast<char>(chance()); break;
          case 1: message[place] = static_cast<char>(message[place] ^ (1 << chance() % 8)); break;
          case 2: message.erase(place, chance() % 9); break;
          default: message.insert(place, std::string(chance() % 12, static_cast<char>(chance() % 3 ? 0xFF : chance())));
        }
      }
      read(message, ids);
    }
  }
  std::printf("%ld reads\n", reads);
}
