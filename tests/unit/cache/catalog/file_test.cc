#include "cache/catalog/file.h"

#include <filesystem>
#include <fstream>

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

namespace {

/// A small dataset and a directory for its catalog.
struct Setup {
  Setup() {
    source.write("a/one", 5000, 1);
    source.write("a/two", 10, 2);
    source.write("b/three", 0);
    source.symlink("a/one", "link");
    options.scan.chunk_size = 4096;
    options.scan.threads = {3, 3};
    options.directory = cache.at("made/here");
  }

  LoadedCatalog load() {
    auto loaded = load_or_scan_catalog(source.path(), options, log.logger());
    INFO((loaded ? "" : loaded.error().message));
    REQUIRE(loaded.ok());
    return std::move(*loaded);
  }

  TempTree source;
  TempTree cache;
  CatalogOptions options;
  CapturedLog log;
};

unsigned mode_of(const std::string& path) {
  struct stat found = {};
  REQUIRE(::lstat(path.c_str(), &found) == 0);
  return found.st_mode & 07777;
}

size_t entries_in(const std::string& directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
  REQUIRE(out.flush());
}

}  // namespace

TEST_CASE("an unchanged source is reloaded as the same catalog, by either check") {
  Setup setup;
  const LoadedCatalog first = setup.load();
  CHECK(!first.reloaded);
  CHECK(first.reason == "no saved catalog");
  REQUIRE(!first.saved_file.empty());
  CHECK(mode_of(first.saved_file) == 0600);
  CHECK(mode_of(setup.cache.at("made")) == 0700);
  CHECK(mode_of(setup.options.directory) == 0700);
  CHECK(entries_in(setup.options.directory) == 1);
  for (const CatalogCheck check : {CatalogCheck::full, CatalogCheck::directories}) {
    setup.options.check = check;
    const LoadedCatalog again = setup.load();
    CHECK(again.reloaded);
    CHECK(again.reason.empty());
    CHECK(again.saved_file == first.saved_file);
    CHECK(again.catalog->serialize() == first.catalog->serialize());
  }
  CHECK(setup.log.lines_with("scanning") == 1);
  CHECK(setup.log.lines_with("reloaded") == 2);
}

TEST_CASE("every kind of change makes the full check scan again") {
  Setup setup;
  const LoadedCatalog first = setup.load();
  std::string what;
  SECTION("file added") {
    setup.source.write("a/new", 1);
    what = "a: modified";
  }
  SECTION("file removed") {
    setup.source.remove("a/two");
    what = "a";
  }
  SECTION("file renamed") {
    setup.source.rename("a/two", "a/too");
    what = "a";
  }
  SECTION("file moved") {
    setup.source.rename("a/two", "b/two");
    what = ": ";
  }
  SECTION("content changed in place, same size") {
    setup.source.write("a/one", 5000, 3);
    what = "a/one: modified";
  }
  SECTION("content changed in place, same size, mtime set back") {
    struct stat before = {};
    REQUIRE(::stat(setup.source.at("a/one").c_str(), &before) == 0);
    setup.source.write("a/one", 5000, 3);
    const timespec times[2] = {before.st_atim, before.st_mtim};
    REQUIRE(::utimensat(AT_FDCWD, setup.source.at("a/one").c_str(), times, 0) == 0);
    what = "a/one: changed";
  }
  SECTION("chmod of a file") {
    REQUIRE(::chmod(setup.source.at("a/one").c_str(), 0600) == 0);
    what = "a/one: another mode";
  }
  SECTION("chmod of the root") {
    REQUIRE(::chmod(setup.source.path().c_str(), 0700) == 0);
    what = "the source directory: another mode";
  }
  SECTION("file replaced by a copy") {
    std::filesystem::copy_file(setup.source.at("a/one"), setup.source.at("copy"));
    setup.source.rename("copy", "a/one");
    what = ": ";
  }
  SECTION("another symlink target") {
    setup.source.remove("link");
    setup.source.symlink("a/two", "link");
    what = ": ";
  }
  const LoadedCatalog second = setup.load();
  CHECK(!second.reloaded);
  INFO(second.reason);
  CHECK(second.reason.find("the source has changed: ") == 0);
  CHECK(second.reason.find(what) != std::string::npos);
  CHECK(second.catalog->serialize() != first.catalog->serialize());
  CHECK(setup.load().reloaded);
}

TEST_CASE("the check of directories sees what comes and goes, not what changes in place") {
  Setup setup;
  setup.options.check = CatalogCheck::directories;
  setup.load();
  SECTION("in place: not seen, as documented") {
    setup.source.write("a/one", 6000, 3);
    REQUIRE(::chmod(setup.source.at("a/two").c_str(), 0600) == 0);
    CHECK(setup.load().reloaded);
    setup.options.check = CatalogCheck::full;
    CHECK(!setup.load().reloaded);
  }
  SECTION("added") {
    setup.source.write("a/new", 1);
    CHECK(!setup.load().reloaded);
  }
  SECTION("removed") {
    setup.source.remove("b/three");
    CHECK(!setup.load().reloaded);
  }
  SECTION("renamed") {
    setup.source.rename("a/two", "a/too");
    CHECK(!setup.load().reloaded);
  }
  SECTION("a directory's mode") {
    REQUIRE(::chmod(setup.source.at("b").c_str(), 0700) == 0);
    CHECK(!setup.load().reloaded);
  }
}

TEST_CASE("a damaged saved catalog costs one log line and a scan") {
  Setup setup;
  const LoadedCatalog first = setup.load();
  const std::string good = bytes_of(first.saved_file);
  SECTION("empty") {
    put_bytes(first.saved_file, "");
  }
  SECTION("cut off") {
    put_bytes(first.saved_file, good.substr(0, good.size() / 2));
  }
  SECTION("one byte") {
    std::string bad = good;
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
    put_bytes(first.saved_file, bad);
  }
  SECTION("something else") {
    put_bytes(first.saved_file, std::string(10000, 'x'));
  }
  SECTION("a directory") {
    std::filesystem::remove(first.saved_file);
    std::filesystem::create_directory(first.saved_file);
  }
  SECTION("a pipe") {
    std::filesystem::remove(first.saved_file);
    REQUIRE(::mkfifo(first.saved_file.c_str(), 0600) == 0);
  }
  SECTION("a symlink") {
    std::filesystem::rename(first.saved_file, setup.cache.at("elsewhere"));
    std::filesystem::create_symlink(setup.cache.at("elsewhere"), first.saved_file);
  }
  SECTION("writable by others") {
    REQUIRE(::chmod(first.saved_file.c_str(), 0666) == 0);
  }
  SECTION("of another source") {
    TempTree other;
    other.write("x", 1);
    auto options = setup.options;
    const auto loaded = load_or_scan_catalog(other.path(), options, setup.log.logger());
    REQUIRE(loaded.ok());
    std::filesystem::rename(loaded->saved_file, first.saved_file);
  }
  const LoadedCatalog second = setup.load();
  CHECK(!second.reloaded);
  CHECK(second.reason != "no saved catalog");
  CHECK(setup.log.lines_with(second.reason) == 1);
  CHECK(second.catalog->serialize() == first.catalog->serialize());
  if (!std::filesystem::is_directory(first.saved_file)) CHECK(setup.load().reloaded);
}

TEST_CASE("a saved catalog that does not fit into memory is refused before it is read, and not scanned for") {
  Setup setup;
  const LoadedCatalog first = setup.load();
  const uint64_t size = first.catalog->image().size();
  setup.options.scan.most_memory = size;
  CHECK(setup.load().reloaded);
  put_bytes(first.saved_file, bytes_of(first.saved_file).substr(0, 128) + std::string(size - 128, 'x'));
  setup.options.scan.most_memory = size - 1;
  const auto refused = load_or_scan_catalog(setup.source.path(), setup.options, setup.log.logger());
  REQUIRE(!refused);
  CHECK(refused.error().code == ENOMEM);
  INFO(refused.error().message);
  CHECK(refused.error().message.find(first.saved_file + " (7 entries") != std::string::npos);
  CHECK(refused.error().message.find(" is available") != std::string::npos);
  CHECK(setup.log.lines_with("scanning") == 1);
}

TEST_CASE("each chunk size and source has a file of its own; a symlink to the source shares its") {
  Setup setup;
  const std::string file = setup.load().saved_file;
  setup.options.scan.chunk_size = 8192;
  const LoadedCatalog other_chunks = setup.load();
  CHECK(other_chunks.saved_file != file);
  setup.options.scan.record_chunks = {{"two", 4096}};
  CHECK_FALSE(setup.load().reloaded);
  CHECK(setup.load().reloaded);
  setup.options.scan.record_chunks = {{"one", 4096}};
  const LoadedCatalog other_records = setup.load();
  CHECK_FALSE(other_records.reloaded);
  CHECK(other_records.catalog->chunks(*other_records.catalog->find("a/one")).count == 2);
  setup.options.scan.record_chunks.clear();
  setup.cache.symlink(setup.source.path(), "to source");
  const auto linked = load_or_scan_catalog(setup.cache.at("to source/."), setup.options, setup.log.logger());
  REQUIRE(linked.ok());
  CHECK(linked->reloaded);
  CHECK(linked->saved_file == other_chunks.saved_file);
}

TEST_CASE("the source is never written: a catalog directory inside it is refused") {
  Setup setup;
  for (const std::string& directory : {setup.source.path(), setup.source.at("a"), setup.source.at("x/y/z")}) {
    setup.options.directory = directory;
    const auto loaded = load_or_scan_catalog(setup.source.path(), setup.options, setup.log.logger());
    REQUIRE(!loaded);
    CHECK(loaded.error().code == EINVAL);
    CHECK(loaded.error().message.find("choose another one") != std::string::npos);
  }
  CHECK(!std::filesystem::exists(setup.source.at("x")));
  setup.options.directory =
      setup.source.path() + "-beside";  // begins with the same characters, is not inside
  CHECK(setup.load().saved_file.find(setup.options.directory + "/") == 0);
  std::filesystem::remove_all(setup.options.directory);
}

TEST_CASE("without a directory, or with one that cannot be written, the catalog is scanned and used") {
  Setup setup;
  SECTION("none") {
    setup.options.directory = "";
    CHECK(setup.load().saved_file.empty());
  }
  SECTION("a file in its place") {
    setup.cache.write("file", 1);
    setup.options.directory = setup.cache.at("file/below");
    CHECK(setup.load().saved_file.empty());
    CHECK(setup.log.lines_with("not saved") == 1);
  }
  CHECK(setup.load().catalog->find("a/one"));
}

TEST_CASE("a source that is written to during the scan is not saved") {
  Setup setup;
  const auto scribble = [&](uint64_t) { setup.source.write("a/two", 10, 9); };
  const auto loaded = load_or_scan_catalog(setup.source.path(), setup.options, setup.log.logger(), scribble);
  REQUIRE(loaded.ok());
  CHECK(loaded->saved_file.empty());
  CHECK(setup.log.lines_with("was being written to") == 1);
  CHECK(!setup.load().reloaded);
  CHECK(setup.load().reloaded);
}

TEST_CASE("an invalidated catalog is scanned again") {
  Setup setup;
  const LoadedCatalog first = setup.load();
  CHECK(invalidate_saved_catalog(first.saved_file).ok());
  CHECK(invalidate_saved_catalog(first.saved_file).ok());
  CHECK(invalidate_saved_catalog("").ok());
  CHECK(!invalidate_saved_catalog(setup.source.path()).ok());
  CHECK(setup.load().reason.find("the source had changed") != std::string::npos);
  CHECK(setup.load().reloaded);
}

TEST_CASE("the leftover of a killed writer is reused, that of a living one left alone") {
  Setup setup;
  const LoadedCatalog first = setup.load();
  const std::string temporary = first.saved_file + ".tmp";
  put_bytes(temporary, std::string(100'000, 'x'));
  setup.source.write("a/new", 1);
  SECTION("killed") {
    const LoadedCatalog second = setup.load();
    CHECK(!second.reloaded);
    CHECK(entries_in(setup.options.directory) == 1);
    CHECK(setup.load().reloaded);
  }
  SECTION("alive") {
    const Fd other(::open(temporary.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(::flock(other.get(), LOCK_EX) == 0);
    CHECK(!setup.load().reloaded);
    CHECK(bytes_of(temporary).size() == 100'000);
    CHECK(bytes_of(first.saved_file).size() == first.catalog->image().size());
  }
}

TEST_CASE("several processes may load the same source at once") {
  Setup setup;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      bool good = true;
      for (int round = 0; good && round < 10; ++round) {
        const auto loaded = load_or_scan_catalog(setup.source.path(), setup.options, setup.log.logger());
        good = loaded.ok() && loaded->catalog->find("a/one");
        if (good && round % 3 == 2) good = invalidate_saved_catalog(loaded->saved_file).ok();
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  const LoadedCatalog last = setup.load();
  CHECK(last.catalog->size() == 7);
  CHECK(entries_in(setup.options.directory) == 1);
}
