#include "mount-helper/commands/progress_bar.h"

#include <array>
#include <memory>

#include <fcntl.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

class FakeClock final : public Clock {
 public:
  TimePoint now() const override { return time; }
  TimePoint time{};
};

struct Output {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::tmpfile(), &std::fclose};
  std::string text() const {
    std::string all(static_cast<size_t>(std::ftell(file.get())), '\0');
    std::rewind(file.get());
    const size_t got = std::fread(all.data(), 1, all.size(), file.get());
    return all.substr(0, got);
  }
};

/// What stands still while nobody reads it: a pipe. A write that would wait fails instead.
class StoppedTerminal {
 public:
  StoppedTerminal() {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    reader_ = Fd(ends[0]);
    file.reset(::fdopen(ends[1], "w"));
    REQUIRE(file.get() != nullptr);
  }
  void fill() {
    const std::string page(4096, 'x');
    while (::write(::fileno(file.get()), page.data(), page.size()) > 0) {
    }
  }
  /// All that was written since.
  std::string read() {
    std::string all;
    std::array<char, 4096> buffer{};
    for (ssize_t got = 0; (got = ::read(reader_.get(), buffer.data(), buffer.size())) > 0;)
      all.append(buffer.data(), static_cast<size_t>(got));
    return all;
  }
  bool has_failed() const { return std::ferror(file.get()) != 0; }

  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{nullptr, &std::fclose};

 private:
  Fd reader_;
};

}  // namespace

TEST_CASE("progress of a transfer is put in figures") {
  CHECK(transfer_text({250, 1000, 1ULL << 30, 4ULL << 30}, 2s) ==
        "[#####...............]  25 %  250/1000 files  1.0 GiB/4.0 GiB  512.0 MiB/s  ETA 0:06");
  CHECK(transfer_text({0, 10, 0, 100}, 0s) == "[....................]   0 %  0/10 files  0 B/100 B");
  CHECK(transfer_text({1, 100, 100, 1'000'000}, 1s).find("ETA 2:46:39") != std::string::npos);
}

TEST_CASE("empty files and empty datasets are no division by zero") {
  CHECK(transfer_text({5, 10, 0, 0}, 1s).find(" 50 %") != std::string::npos);
  CHECK(transfer_text({0, 0, 0, 0}, 1s).find("100 %") != std::string::npos);
}

TEST_CASE("the bar draws at most ten times a second and clears its line") {
  FakeClock clock;
  const Output output;
  {
    ProgressBar bar(output.file.get(), clock, true);
    bar.show("one");
    clock.time += 99ms;
    bar.show("two");
    clock.time += 1ms;
    bar.show("three");
  }
  CHECK(output.text() == "\r\033[Kone\r\033[Kthree\r\033[K");
}

TEST_CASE("the end is shown however soon it comes") {
  FakeClock clock;
  const Output output;
  {
    ProgressBar bar(output.file.get(), clock, true);
    bar.show("one");
    clock.time += 1ms;
    bar.show("two");
    bar.show_end("three");
  }
  CHECK(output.text() == "\r\033[Kone\r\033[Kthree\r\033[K");
}

TEST_CASE("a bar writes nothing to a terminal that stands still, and goes on with it") {
  const FakeClock clock;
  StoppedTerminal terminal;
  ProgressBar bar(terminal.file.get(), clock, true);
  terminal.fill();
  bar.show("one");
  bar.show_end("two");
  CHECK(!terminal.has_failed());
  terminal.read();
  bar.show("three");
  CHECK(terminal.read() == "\r\033[Kthree");
  terminal.fill();
  bar.clear();
  CHECK(!terminal.has_failed());
  terminal.read();
  bar.clear();
  CHECK(terminal.read() == "\r\033[K");
}

TEST_CASE("a bar that cannot be drawn stops nobody") {
  const FakeClock clock;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> full(std::fopen("/dev/full", "w"), &std::fclose);
  REQUIRE(full);
  std::setvbuf(full.get(), nullptr, _IONBF, 0);  // as stderr
  ProgressBar bar(full.get(), clock, true);
  CHECK_NOTHROW(bar.show("one"));
  CHECK_NOTHROW(bar.clear());
}

TEST_CASE("a bar on what is no terminal stays silent") {
  const FakeClock clock;
  const Output output;
  ProgressBar bar(output.file.get(), clock);
  bar.show("one");
  bar.show_end("two");
  bar.clear();
  CHECK(!bar.enabled());
  CHECK(output.text().empty());
}
