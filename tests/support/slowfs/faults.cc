#include "tests/support/slowfs/faults.h"

#include <algorithm>
#include <utility>

#include <fnmatch.h>

namespace clairfs::slowfs {

void Faults::add_eio(std::string pattern, std::optional<uint64_t> count) {
  faults_.push_back({.pattern = std::move(pattern), .reads_only = true, .eio = true, .left = count});
}

void Faults::add_eio_all(std::optional<uint64_t> count) {
  faults_.push_back({.pattern = "*", .eio = true, .left = count});
}

void Faults::add_hang(std::string pattern, Duration hang) {
  faults_.push_back({.pattern = std::move(pattern), .hang = hang});
}

Verdict Faults::judge(Op op, const std::string& path) {
  Verdict verdict;
  for (Fault& fault : faults_) {
    if (fault.reads_only && op != Op::read) continue;
    if (fault.left == 0 || ::fnmatch(fault.pattern.c_str(), path.c_str(), 0) != 0) continue;
    if (fault.left) --*fault.left;
    verdict.eio = verdict.eio || fault.eio;
    verdict.hang = std::max(verdict.hang, fault.hang);
  }
  return verdict;
}

}  // namespace clairfs::slowfs
