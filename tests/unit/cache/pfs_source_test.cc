#include "cache/pfs_source.h"

#include <cerrno>
#include <deque>
#include <vector>

#include <catch2/catch.hpp>

#include "cache/catalog_scan.h"
#include "tests/support/captured_log.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

namespace {

/// A backend with so many descriptors: reads beyond fail, the others wait until the test ends them.
class FewDescriptors final : public IoBackend {
 public:
  explicit FewDescriptors(size_t most) : most_(most) {}
  void submit(FileRead request) override {
    const bool fails = waiting_.size() >= most_ && request.open_fd < 0;
    (fails ? failed_ : waiting_).push_back(std::move(request));
  }
  void submit(Transfer) override { FAIL("not for sources"); }
  const char* kind() const override { return "test"; }

  /// Ends what has failed, then one that has not. False when there is nothing.
  bool step(const Catalog& catalog) {
    if (!failed_.empty()) {
      ++failures;
      take(failed_).done(Error{EMFILE, "open: Too many open files"});
    } else if (!waiting_.empty()) {
      const FileRead read = take(waiting_);
      const FileId file = *catalog.find(read.path);
      FileRead::Outcome outcome;
      outcome.bytes = read.memory[0].iov_len;
      outcome.stamp = catalog.stamp(file);
      read.done(std::move(outcome));
    } else {
      return false;
    }
    return true;
  }
  void set_most(size_t most) { most_ = most; }

  size_t failures = 0;

 private:
  static FileRead take(std::deque<FileRead>& from) {
    FileRead first = std::move(from.front());
    from.pop_front();
    return first;
  }
  size_t most_;
  std::deque<FileRead> waiting_;
  std::deque<FileRead> failed_;
};

struct Fixture {
  explicit Fixture(size_t descriptors) : io(descriptors) {
    for (int i = 0; i < 500; ++i) tree.write("f" + std::to_string(i), 100);
    catalog = *scan_catalog(tree.path(), {}, log.logger());
    source = std::make_unique<PfsSource>(*catalog, Fd(), io, PfsOptions{}, clock, metrics, log.logger(),
                                         [](FileId) {});
  }
  void fetch(int file, Urgency urgency = {Urgency::Kind::prefetch, 0}) {
    source->fetch({*catalog->find("f" + std::to_string(file)),
                   0,
                   100,
                   {{memory.data(), 100}},
                   urgency,
                   false,
                   [this, file](Result<Origin> result) {
                     ended.push_back(file);
                     if (!result) errors.push_back(result.error().code);
                   }});
  }
  void run() {
    while (io.step(*catalog)) {
    }
  }

  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  const SteadyClock clock;
  FewDescriptors io;
  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<PfsSource> source;
  std::vector<char> memory = std::vector<char>(100);
  std::vector<int> ended;
  std::vector<int> errors;
};

}  // namespace

TEST_CASE("fetches wait for descriptors that others have") {
  Fixture f(3);
  for (int i = 0; i < 500; ++i) f.fetch(i);
  f.run();
  CHECK(f.ended.size() == 500);
  CHECK(f.errors.empty());
  CHECK(f.metrics.pfs_errors.value() == 0);
  CHECK(f.metrics.pfs_in_flight.value() == 0);
  CHECK(f.log.lines_with("Too many open files") == 1);
  // What the first round lacked, and an attempt now and then.
  CHECK(f.io.failures < 16 + 500 / 32);
}

TEST_CASE("a fetch that waits for a descriptor can still be expedited") {
  Fixture f(2);
  for (int i = 0; i < 20; ++i) f.fetch(i);
  f.io.step(*f.catalog);  // one of the first sixteen has failed and waits again
  f.fetch(100, Urgency{});
  f.run();
  CHECK(f.ended.size() == 21);
  CHECK(f.errors.empty());
  CHECK(std::find(f.ended.begin(), f.ended.end(), 100) - f.ended.begin() < 16);
}

TEST_CASE("without any descriptor a fetch fails, and later ones do not once there are some") {
  Fixture f(0);
  f.fetch(1);
  f.run();
  CHECK(f.errors == std::vector{EMFILE});
  f.io.set_most(64);
  for (int i = 0; i < 100; ++i) f.fetch(i);
  f.run();
  CHECK(f.ended.size() == 101);
  CHECK(f.errors.size() == 1);
}
