#include "cache/catalog/scan.h"

#include <atomic>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/catalog/check.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/temp_tree.h"
#include "tests/unit/cache/few_descriptors.h"

using namespace clairfs;

namespace {

constexpr uid_t kNobody = 65534;

std::shared_ptr<const Catalog> scanned(const std::string& source, unsigned threads = 8) {
  CapturedLog log;
  const auto catalog =
      scan_catalog(source, {.chunk_size = 4096, .threads = {threads, threads}}, log.logger());
  INFO((catalog ? "" : catalog.error().message));
  REQUIRE(catalog.ok());
  return catalog.value();
}

/// `levels` directories in each other, each called `name`, with an empty file "leaf" in the last.
void make_deep(const TempTree& tree, int levels, const std::string& name) {
  Fd at(::open(tree.path().c_str(), O_RDONLY | O_DIRECTORY));
  for (int i = 0; i < levels; ++i) {
    REQUIRE(::mkdirat(at.get(), name.c_str(), 0755) == 0);
    Fd next(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY));
    REQUIRE(next);
    at = std::move(next);
  }
  const Fd leaf(::openat(at.get(), "leaf", O_WRONLY | O_CREAT, 0644));
  REQUIRE(leaf);
}

void make_mixed(const TempTree& tree) {
  for (int d = 0; d < 30; ++d) {
    for (int i = 0; i < 40; ++i) tree.write("d" + std::to_string(d) + "/e/f" + std::to_string(i), 1);
    tree.symlink("e/f0", "d" + std::to_string(d) + "/link");
  }
  for (int i = 0; i < 3000; ++i) tree.write("wide/" + std::to_string(i), 0);
}

}  // namespace

TEST_CASE("a dataset whose catalog does not fit into memory is refused while it is listed") {
  TempTree tree;
  for (int i = 0; i < 3000; ++i) tree.write("wide/" + std::to_string(i), 0);
  CapturedLog log;
  std::atomic<uint64_t> found{0};
  ScanOptions options;
  options.most_memory = 100 << 10;
  const auto refused =
      scan_catalog(tree.path(), options, log.logger(), [&](uint64_t entries) { found = entries; });
  REQUIRE(!refused);
  CHECK(refused.error().code == ENOMEM);
  INFO(refused.error().message);
  CHECK(refused.error().message.find("the catalog of " + tree.path()) == 0);
  CHECK(refused.error().message.find("only 100.0 KiB is available") != std::string::npos);
  CHECK(refused.error().message.find("mount a part of the dataset") != std::string::npos);
  CHECK(found < 1000);
  options.most_memory = 2 << 20;
  CHECK(scan_catalog(tree.path(), options, log.logger()).ok());
}

TEST_CASE("names may hold any bytes") {
  TempTree tree;
  const std::vector<std::string> names = {"with space", "new\nline",           "grün",      "\xff\xfe\x80",
                                          "-rf",        std::string(255, 'x'), "tab\there", "back\\slash"};
  for (const std::string& name : names) tree.write(name + "/" + name, 7);
  const auto catalog = scanned(tree.path());
  CHECK(catalog->size() == 1 + 2 * names.size());
  for (const std::string& name : names) {
    INFO(name);
    const auto id = catalog->find(name + "/" + name);
    REQUIRE(id);
    CHECK(catalog->name(*id) == name);
    CHECK(catalog->stamp(*id).size == 7);
  }
}

TEST_CASE("an empty source has a root and nothing else") {
  TempTree tree;
  const auto catalog = scanned(tree.path());
  CHECK(catalog->size() == 1);
  CHECK(catalog->chunk_count() == 0);
  CHECK(catalog->children(FileId(0)).count == 0);
  CHECK(Catalog::deserialize(catalog->serialize()).ok());
}

TEST_CASE("symlinks stay symlinks, hard links are files of their own") {
  TempTree tree;
  tree.write("d/file", 10);
  tree.hard_link("d/file", "hard");
  tree.symlink("d/file", "inside");
  tree.symlink("/etc/passwd", "outside");
  tree.symlink("nowhere", "dangling");
  tree.symlink("d", "to directory");
  tree.symlink("loop", "loop");
  tree.symlink(std::string(4000, 't'), "long");
  const auto catalog = scanned(tree.path());
  CHECK(catalog->count(Catalog::Kind::symlink) == 6);
  const auto target = [&](const char* name) { return catalog->symlink_target(catalog->find(name).value()); };
  CHECK(target("inside") == "d/file");
  CHECK(target("outside") == "/etc/passwd");
  CHECK(target("dangling") == "nowhere");
  CHECK(target("to directory") == "d");
  CHECK(target("loop") == "loop");
  CHECK(target("long") == std::string(4000, 't'));
  CHECK(catalog->attributes(catalog->find("inside").value()).st_size == 6);
  CHECK(S_ISLNK(catalog->attributes(catalog->find("inside").value()).st_mode));
  for (const char* name : {"hard", "d/file"}) {
    CHECK(catalog->kind(catalog->find(name).value()) == Catalog::Kind::file);
    CHECK(catalog->attributes(catalog->find(name).value()).st_nlink == 1);
    CHECK(catalog->chunks(catalog->find(name).value()).count == 1);
  }
}

TEST_CASE("special files are left out, counted and named in one line") {
  TempTree tree;
  tree.write("file", 1);
  tree.make_directory("d");
  REQUIRE(::mkfifo(tree.at("d/pipe\n1").c_str(), 0644) == 0);
  REQUIRE(::mknod(tree.at("socket").c_str(), S_IFSOCK | 0644, 0) == 0);
  CapturedLog log;
  const auto catalog = scan_catalog(tree.path(), {}, log.logger());
  REQUIRE(catalog.ok());
  CHECK((*catalog)->skipped_special() == 2);
  CHECK((*catalog)->size() == 3);
  CHECK(log.lines_with("2 special files") == 1);
  CHECK(log.has("d/pipe\\n1"));
  CHECK(log.has("socket"));
}

TEST_CASE("a source that is missing or no directory is an error that names it") {
  TempTree tree;
  tree.write("file", 1);
  CapturedLog log;
  const auto missing = scan_catalog(tree.at("missing"), {}, log.logger());
  REQUIRE(!missing);
  CHECK(missing.error().code == ENOENT);
  CHECK(missing.error().message.find("missing") != std::string::npos);
  const auto file = scan_catalog(tree.at("file"), {}, log.logger());
  REQUIRE(!file);
  CHECK(file.error().code == ENOTDIR);
  CHECK(!scan_catalog(tree.path(), {.chunk_size = 0}, log.logger()));
}

TEST_CASE("a tree of 1000 levels is scanned, checked and numbered") {
  TempTree tree;
  make_deep(tree, 1000, "level");
  const auto catalog = scanned(tree.path());
  CHECK(catalog->size() == 1002);
  const FileId leaf(1001);
  CHECK(catalog->name(leaf) == "leaf");
  CHECK(catalog->path(leaf).size() == 1000 * 6 + 4);  // beyond PATH_MAX
  CHECK(catalog->find(catalog->path(leaf)) == leaf);
  CHECK(Catalog::deserialize(catalog->serialize()).ok());
  const Fd root(::open(tree.path().c_str(), O_RDONLY | O_DIRECTORY));
  CHECK(!find_change(*catalog, root.get(), CatalogCheck::full, {8, 8}));
}

TEST_CASE("names of 255 bytes in deep trees are walked in pieces") {
  TempTree tree;
  make_deep(tree, 100, std::string(255, 'n'));
  const auto catalog = scanned(tree.path());
  CHECK(catalog->size() == 102);
  CHECK(catalog->name_bytes() < 1000);  // one name, stored once
  const Fd root(::open(tree.path().c_str(), O_RDONLY | O_DIRECTORY));
  CHECK(!find_change(*catalog, root.get(), CatalogCheck::full, {2, 2}));
}

TEST_CASE("the result does not depend on the number of threads") {
  TempTree tree;
  make_mixed(tree);
  const auto one = scanned(tree.path(), 1);
  CHECK(one->count(Catalog::Kind::file) == 30 * 40 + 3000);
  CHECK(one->count(Catalog::Kind::directory) == 1 + 30 * 2 + 1);
  for (const unsigned threads : {0U, 2U, 3U, 8U, 32U}) {
    INFO(threads);
    CHECK(scanned(tree.path(), threads)->serialize() == one->serialize());
  }
}

TEST_CASE("64 descriptors are enough for any number of threads") {
  TempTree tree;
  make_mixed(tree);
  make_deep(tree, 200, std::string(200, 'n'));
  const auto expected = scanned(tree.path());
  const Fd root(::open(tree.path().c_str(), O_RDONLY | O_DIRECTORY));
  const FewDescriptors limit(64);
  const auto catalog = scanned(tree.path(), 64);
  CHECK(catalog->serialize() == expected->serialize());
  CHECK(!find_change(*catalog, root.get(), CatalogCheck::full, {64, 64}));
}

#ifndef __SANITIZE_ADDRESS__  // UBSan looks at memory through a pipe, for which there is no descriptor then
TEST_CASE("running out of descriptors is an error, not an emptier dataset") {
  TempTree tree;
  tree.write("d/file", 1);
  CapturedLog log;
  Result<std::shared_ptr<const Catalog>> catalog = Error{};
  {
    const Fd next(::open("/dev/null", O_RDONLY));
    const FewDescriptors limit(static_cast<rlim_t>(next.get()) + 2);  // one is left: for the root
    catalog = scan_catalog(tree.path(), {}, log.logger());
  }
  REQUIRE(!catalog);
  CHECK(catalog.error().code == EMFILE);
  CHECK(catalog.error().message.find("ulimit -n") != std::string::npos);
}
#endif

TEST_CASE("100,000 files in one directory") {
  TempTree tree;
  tree.make_directory("d");
  const Fd directory(::open(tree.at("d").c_str(), O_RDONLY | O_DIRECTORY));
  for (int i = 0; i < 100'000; ++i) {
    const Fd file(::openat(directory.get(), std::to_string(i).c_str(), O_WRONLY | O_CREAT, 0644));
    if (!file) FAIL("cannot make file " << i);
  }
  const auto catalog = scanned(tree.path());
  CHECK(catalog->count(Catalog::Kind::file) == 100'000);
  size_t found = 0;
  for (int i = 0; i < 100'000; ++i) found += catalog->find("d/" + std::to_string(i)) ? 1 : 0;
  CHECK(found == 100'000);
  CHECK(!catalog->find("d/100000"));
  CHECK(catalog->memory_bytes() - catalog->name_bytes() <= 100ULL * catalog->size());
}

TEST_CASE("what comes and goes during the scan does no harm") {
  TempTree tree;
  for (int i = 0; i < 50; ++i) tree.write("stays/" + std::to_string(i), 1);
  std::atomic<bool> stop = false;
  std::thread churn([&] {
    for (int i = 0; !stop; ++i) {
      const std::string name = "goes" + std::to_string(i % 7);
      tree.write(name + "/sub/file", 1);
      tree.symlink("x", name + "/sub/link");
      tree.remove(name);
      tree.write(name, 1);  // the same name, now a file
      tree.remove(name);
    }
  });
  CapturedLog log;
  bool good = true;
  for (int round = 0; round < 50; ++round) {
    const auto catalog = scan_catalog(tree.path(), {.threads = {4, 4}}, log.logger());
    good = good && catalog.ok() && (*catalog)->unreadable() == 0;
    for (int i = 0; good && i < 50; ++i) good = (*catalog)->find("stays/" + std::to_string(i)).has_value();
    good = good && Catalog::deserialize((*catalog)->serialize()).ok();
  }
  stop = true;
  churn.join();
  INFO(log.text());
  CHECK(good);
}

TEST_CASE("progress is told from the calling thread, up to the last entry") {
  TempTree tree;
  for (int i = 0; i < 10; ++i) tree.write(std::to_string(i), 1);
  CapturedLog log;
  std::vector<uint64_t> told;
  bool same_thread = true;
  const auto caller = std::this_thread::get_id();
  const auto catalog = scan_catalog(tree.path(), {}, log.logger(), [&](uint64_t entries) {
    told.push_back(entries);
    same_thread = same_thread && std::this_thread::get_id() == caller;
  });
  REQUIRE(catalog.ok());
  REQUIRE(told.size() >= 2);
  CHECK(told.front() == 0);
  CHECK(told.back() == 10);
  CHECK(same_thread);
}

TEST_CASE("what another user may not read is counted, named, and read once it can be") {
  if (::geteuid() != 0) {
    WARN("skipped: needs root to become another user");
    return;
  }
  TempTree tree;
  tree.write("open/file", 1);
  tree.write("closed/file", 1);
  tree.write("no search/file", 1);
  tree.write("private file", 1);
  REQUIRE(::chmod(tree.at("closed").c_str(), 0700) == 0);
  REQUIRE(::chmod(tree.at("no search").c_str(), 0744) == 0);
  REQUIRE(::chmod(tree.at("private file").c_str(), 0600) == 0);
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const Fd reading(pipe_ends[0]);
  Fd writing(pipe_ends[1]);

  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    CapturedLog log;
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
    const auto catalog = scan_catalog(tree.path(), {}, log.logger());
    if (!catalog.ok() || log.lines_with("2 entries that could not be read") != 1) ::_exit(2);
    if (!log.has("closed (Permission denied)") || !log.has("no search/file (Permission denied)")) ::_exit(3);
    const Fd root(::open(tree.path().c_str(), O_RDONLY | O_DIRECTORY));
    if (find_change(**catalog, root.get(), CatalogCheck::full, {2, 2})) ::_exit(4);
    if (scan_catalog(tree.at("closed"), {}, log.logger()).ok()) ::_exit(5);
    const auto image = (*catalog)->image();
    ::_exit(::write(writing.get(), image.data(), image.size()) == static_cast<ssize_t>(image.size()) ? 0 : 6);
  }
  writing.reset();
  std::vector<std::byte> image(64 << 10);
  const ssize_t length = ::read(reading.get(), image.data(), image.size());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  REQUIRE(length > 0);
  const auto catalog = Catalog::deserialize(std::span(image).first(static_cast<size_t>(length)));
  REQUIRE(catalog.ok());
  CHECK((*catalog)->unreadable() == 2);
  const FileId closed = (*catalog)->find("closed").value();
  CHECK((*catalog)->children(closed).count == 0);
  CHECK((*catalog)->attributes(closed).st_mode == (S_IFDIR | 0700));
  CHECK((*catalog)->find("open/file"));
  CHECK((*catalog)->find("private file"));
  const Fd root(::open(tree.path().c_str(), O_RDONLY | O_DIRECTORY));
  const auto change = find_change(**catalog, root.get(), CatalogCheck::directories, {2, 2});
  REQUIRE(change);
  CHECK(change->find("could not be read when scanned") != std::string::npos);
}
