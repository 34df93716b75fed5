// The process that reads an HDF5 file may do anything. Here it is a shell.
#include "plan/formats/hdf5/index_process.h"

#include <cerrno>
#include <cstring>

#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;
using namespace clairfs::hdf5;

namespace {

/// A dataset of one file, and a program that does what a script says, with the socket as its input and
/// output.
class Process {
 public:
  explicit Process(const std::string& script, std::chrono::milliseconds silence = std::chrono::minutes(1)) {
    tree_.write("x", 10000);
    source_ = scanned(tree_);
    std::ofstream(tree_.at("helper")) << "#!/bin/sh\nexec >&0\n" << script << "\n";
    std::filesystem::permissions(tree_.at("helper"), std::filesystem::perms::owner_all);
    options_.helper = tree_.at("helper");
    options_.silence = silence;
  }

  Result<FileIndex> run() const { return index_file(source_, *source_.catalog->find("x"), {"/a"}, options_); }
  std::string refused() const {
    const auto index = run();
    REQUIRE_FALSE(index.ok());
    CHECK(index.error().code == EINVAL);
    return index.error().message;
  }

  DatasetSource& source() { return source_; }
  IndexOptions& options() { return options_; }

 private:
  const TempTree tree_;
  DatasetSource source_;
  IndexOptions options_;
};

/// A shell command that says these numbers of eight bytes after a head.
std::string message(Say what, const std::vector<uint64_t>& numbers, uint32_t bytes = UINT32_MAX) {
  const FrameHead head{static_cast<uint32_t>(what),
                       bytes == UINT32_MAX ? static_cast<uint32_t>(8 * numbers.size()) : bytes};
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  text.append(reinterpret_cast<const char*>(numbers.data()), 8 * numbers.size());
  std::string command = "printf '";
  for (const char c : text) command += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
  return command + "'\n";
}

const std::string kTenRows = message(Say::dataset, {1, 10, 100, 2000, 0});

}  // namespace

TEST_CASE("hdf5: what the process reads is shared, what it says are the rows") {
  // The answer has eight bytes of its own.
  Process process(message(Say::read, {0, 4096}) + "head -c 4104 >/dev/null\n" +
                  message(Say::read, {9990, 100}) + "head -c 18 >/dev/null\n" +
                  message(Say::read, {20000, 1}) + "head -c 8 >/dev/null\n" + kTenRows +
                  message(Say::done, {}));
  const auto index = process.run();
  REQUIRE(index);
  REQUIRE(index->reads.size() == 2);
  CHECK((index->reads[1].offset == 9990 && index->reads[1].length == 10));
  RecordTableBuilder table(process.source().catalog, "hdf5");
  REQUIRE(index->layout.add_samples(*process.source().catalog->find("x"), table));
  CHECK(table.finish()->range(9, 0).offset == 2900);
}

TEST_CASE("hdf5: a process that ends, hangs or lies costs a refusal") {
  CHECK(Process("exit 3").refused().find("ended with status 3") != std::string::npos);
  CHECK(Process("exit 0").refused().find("too early") != std::string::npos);
  CHECK(Process(kTenRows + "kill -9 $$").refused().find("signal 9") != std::string::npos);
  constexpr auto kSoon = std::chrono::milliseconds(200);
  CHECK(Process("exec sleep 1000", kSoon).refused().find("too long") != std::string::npos);
  CHECK(Process(message(Say::done, {})).refused().find("fewer datasets") != std::string::npos);
  CHECK(Process(message(Say::dataset, {1, 10, 100, 9500, 0})).refused().find("within the file") !=
        std::string::npos);
  CHECK(Process(message(Say::done, {}, kMostFrame + 1)).refused().find("too much") != std::string::npos);
  CHECK(Process(message(Say::read, {0})).refused().find("half a request") != std::string::npos);
  CHECK(Process(message(Say::read, {0, kMostRead + 1})).refused().find("too large") != std::string::npos);
  CHECK(Process(message(Say::refused, {0x6f6e20736179})).refused().find("yas no") != std::string::npos);
  // It never takes what it asked for.
  Process deaf(message(Say::read, {0, 10000}) + message(Say::read, {0, 10000}) + "exec sleep 1000", kSoon);
  CHECK(deaf.refused().find("too long") != std::string::npos);
}

TEST_CASE("hdf5: a process that goes on for ever is ended") {
  Process process("while :; do " + message(Say::read, {0, 1}) + "head -c 9 >/dev/null; done");
  process.options().total = std::chrono::milliseconds(200);
  CHECK(process.refused().find("took too long") != std::string::npos);
}

TEST_CASE("hdf5: the error of a read is the plan's") {
  Process process(message(Say::read, {0, 1}) + "exec sleep 1000");
  process.source().read_bytes = [](FileId, uint64_t, uint32_t) -> Result<std::string> {
    return Error{ESTALE, "x has changed"};
  };
  const auto index = process.run();
  REQUIRE_FALSE(index.ok());
  CHECK(index.error().code == ESTALE);
}

TEST_CASE("hdf5: without the program a plan is refused") {
  Process process("");
  process.options().helper = "/nonexistent/helper";
  CHECK(process.refused().find("No such file") != std::string::npos);
}
