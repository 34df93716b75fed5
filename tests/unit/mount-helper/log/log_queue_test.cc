#include "mount-helper/log/log_queue.h"

#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "tests/support/catch.h"
#include "tests/support/eventually.h"

using namespace clairfs;

namespace {

// What an output has taken, and whether it hangs or fails. A test and the output share it.
class Gate {
 public:
  AwaitedCount asked;    // for a line
  AwaitedCount written;  // lines
  AwaitedCount gone;     // the output, and with it the thread

  void set_shut(bool shut) {
    const MutexLock lock(mutex_);
    shut_ = shut;
    changed_.notify_all();
  }
  void set_full(bool full) {
    const MutexLock lock(mutex_);
    full_ = full;
  }
  bool take(std::string_view line) {
    asked.raise();
    {
      MutexLock lock(mutex_);
      while (shut_) changed_.wait(lock);
      if (full_) return false;
      text_ += line;
    }
    written.raise();
    return true;
  }
  void note(std::string_view event) {
    const MutexLock lock(mutex_);
    text_ += event;
  }
  std::string text() const {
    const MutexLock lock(mutex_);
    return text_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool shut_ GUARDED_BY(mutex_) = false;
  bool full_ GUARDED_BY(mutex_) = false;
  std::string text_ GUARDED_BY(mutex_);
};

class GatedOutput final : public LogOutput {
 public:
  explicit GatedOutput(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  ~GatedOutput() override { gate_->gone.raise(); }
  bool write(std::string_view line) override { return gate_->take(line); }
  void open_anew() override { gate_->note("anew\n"); }

 private:
  const std::shared_ptr<Gate> gate_;
};

struct QueuedLog {
  const std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::shared_ptr<LogQueue> queue;
  Logger log;

  explicit QueuedLog(Duration patience = kLongestWait)
      : queue(std::make_shared<LogQueue>(std::make_unique<GatedOutput>(gate), patience)), log("test", queue) {
    log.set_pattern("%l: %v");
  }
  ~QueuedLog() { gate->set_shut(false); }
  void end() {
    log.sinks().clear();
    queue.reset();
  }
};

const std::string kFiller(1000, 'x');
constexpr const char* kWhyMissing = "the log could not be written, or not as fast as lines came";

// Starts the thread, and logs about twice what finds room while the gate is shut: "0 xxx", "1 xxx" and so on.
// How many lines that were.
uint64_t overfill(QueuedLog& queued) {
  queued.gate->set_shut(true);
  queued.queue->start();
  uint64_t logged = 0;
  while (logged * kFiller.size() < 2 * LogQueue::kMostBytes) queued.log.info("{} {}", logged++, kFiller);
  return logged;
}

}  // namespace

TEST_CASE("before the thread is there, each line is written when log() returns") {
  QueuedLog queued;
  queued.log.info("one");
  CHECK(queued.gate->text() == "info: one\n");
  queued.log.error("two");
  CHECK(queued.gate->text() == "info: one\nerror: two\n");
}

TEST_CASE("who logs does not wait for an output that hangs, and lines keep their order") {
  QueuedLog queued;
  queued.log.info("zero");
  queued.gate->set_shut(true);
  queued.queue->start();
  queued.log.info("one");
  REQUIRE(queued.gate->asked.reaches(2));
  queued.log.warn("two");
  queued.log.info("three");
  CHECK(queued.gate->text() == "info: zero\n");
  queued.gate->set_shut(false);
  REQUIRE(queued.gate->written.reaches(4));
  CHECK(queued.gate->text() == "info: zero\ninfo: one\nwarning: two\ninfo: three\n");
}

TEST_CASE("lines that find no room are counted in front of the next that does") {
  QueuedLog queued;
  uint64_t logged = overfill(queued);
  queued.gate->set_shut(false);
  REQUIRE(eventually([&] {
    queued.log.info("{} {}", logged++, kFiller);
    return queued.gate->text().find("missing here") != std::string::npos;
  }));
  queued.log.flush();

  std::istringstream lines(queued.gate->text());
  uint64_t next = 0;
  uint64_t kept = 0;  // before the first that is missing
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string level;
    uint64_t number = 0;
    words >> level >> number;
    if (level == "info:") {
      CHECK(number == next);
      ++next;
    } else {
      CHECK_THAT(line, Contains("missing here"));
      if (kept == 0) kept = next;
      next += number;
    }
  }
  CHECK(next == logged);
  CHECK(kept * kFiller.size() <= LogQueue::kMostBytes);
  CHECK(kept * kFiller.size() > LogQueue::kMostBytes / 2);
}

TEST_CASE("lines that find no room are counted at the end where no line follows") {
  QueuedLog queued;
  const uint64_t logged = overfill(queued);
  queued.gate->set_shut(false);
  queued.end();
  const uint64_t kept = queued.gate->written.value() - 1;
  CHECK(queued.gate->text().ends_with(
      fmt::format("\nwarning: {} lines are missing here: {}\n", logged - kept, kWhyMissing)));
}

TEST_CASE("lines that cannot be written are counted in front of the next that can") {
  QueuedLog queued;
  queued.gate->set_full(true);
  queued.log.info("one");
  queued.log.info("two");  // and the line that tells of the first
  queued.gate->set_full(false);
  queued.log.info("three");
  queued.log.info("four");
  CHECK(queued.gate->text() ==
        fmt::format("warning: 2 lines are missing here: {}\ninfo: three\ninfo: four\n", kWhyMissing));
}

TEST_CASE("lines that cannot be written are counted by a flush where no line follows") {
  QueuedLog queued;
  queued.gate->set_full(true);
  queued.log.info("one");
  queued.log.flush();
  queued.gate->set_full(false);
  queued.log.flush();
  queued.log.flush();
  CHECK(queued.gate->text() == fmt::format("warning: 1 line is missing here: {}\n", kWhyMissing));
}

TEST_CASE("lines that cannot be written are counted at the end of a log without a thread, too") {
  QueuedLog queued;
  queued.gate->set_full(true);
  queued.log.info("one");
  queued.gate->set_full(false);
  queued.end();
  CHECK(queued.gate->text() == fmt::format("warning: 1 line is missing here: {}\n", kWhyMissing));
}

TEST_CASE("the end waits for what was logged") {
  QueuedLog queued;
  queued.queue->start();
  for (int i = 0; i < 100; ++i) queued.log.info("line");
  queued.end();
  CHECK(queued.gate->written.value() == 100);
  CHECK(queued.gate->gone.value() == 1);
}

TEST_CASE("the end leaves an output behind that hangs") {
  QueuedLog queued(Duration::zero());
  queued.gate->set_shut(true);
  queued.queue->start();
  queued.log.info("one");
  REQUIRE(queued.gate->asked.reaches(1));
  queued.log.flush();
  queued.end();
  CHECK(queued.gate->text().empty());
  queued.gate->set_shut(false);
  REQUIRE(queued.gate->gone.reaches(1));
  CHECK(queued.gate->text() == "info: one\n");
}

TEST_CASE("the output is opened anew between the lines before and those after") {
  QueuedLog queued;
  queued.gate->set_shut(true);
  queued.queue->start();
  queued.log.info("one");
  queued.log.info("two");
  queued.queue->open_anew();
  queued.log.info("three");
  queued.gate->set_shut(false);
  REQUIRE(queued.gate->written.reaches(3));
  CHECK(queued.gate->text() == "info: one\ninfo: two\nanew\ninfo: three\n");
}

TEST_CASE("the output is opened anew also where no line follows") {
  QueuedLog queued;
  queued.queue->open_anew();
  CHECK(queued.gate->text() == "anew\n");
  queued.gate->set_shut(true);
  queued.queue->start();
  queued.log.info("one");
  queued.queue->open_anew();
  CHECK(queued.gate->text() == "anew\n");
  queued.gate->set_shut(false);
  queued.log.flush();
  CHECK(queued.gate->text() == "anew\ninfo: one\nanew\n");
  CHECK(queued.gate->written.value() == 1);
}
