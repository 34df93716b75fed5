#include "plan/formats/index/index_store.h"

#include <atomic>
#include <cerrno>
#include <fstream>
#include <future>
#include <iterator>
#include <latch>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>

#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/captured_log.h"
#include "tests/support/dataset_fixture.h"
#include "tests/unit/plan/formats/index/index_fixture.h"

using namespace clairfs;

namespace {

/// A catalog directory, and the index of one packed file in it.
struct StoredIndex {
  TempTree tree;
  CapturedLog log;
  std::string directory = tree.at("catalog/index");
  std::shared_ptr<const Catalog> catalog = PackedFiles({1'000'000}).catalog();
  IndexKey key{"lmdb", "keys=cursor", {FileId(1)}};
  int made = 0;

  /// As the next mount does.
  Result<IndexStore::Table> get() { return get(catalog, key); }
  Result<IndexStore::Table> get(const std::shared_ptr<const Catalog>& of, const IndexKey& by) {
    IndexStore store(directory, log.logger());
    return store.get(by, of, nullptr, [&] {
      ++made;
      return records_in_f0(of, 1000, 1000);
    });
  }
  std::string file() { return IndexStore(directory, log.logger()).path(key, *catalog); }
};

/// Looks on while a line is logged.
struct LineHook : spdlog::sinks::base_sink<std::mutex> {
  std::function<void(std::string_view)> on_line;

 protected:
  void sink_it_(const spdlog::details::log_msg& line) override {
    on_line({line.payload.data(), line.payload.size()});
  }
  void flush_() override {}
};

void rewrite(const std::string& path, const std::function<void(std::string&)>& change) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  REQUIRE(!bytes.empty());
  change(bytes);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

TEST_CASE("an index is made once, for this mount and the next") {
  StoredIndex stored;
  IndexStore store(stored.directory, stored.log.logger());
  const auto make = [&]() -> Result<IndexStore::Table> {
    ++stored.made;
    return records_in_f0(stored.catalog, 1000, 1000);
  };
  const auto train = store.get(stored.key, stored.catalog, nullptr, make);
  const auto validation = store.get(stored.key, stored.catalog, nullptr, make);
  REQUIRE((train && validation));
  CHECK(*train == *validation);  // one in memory
  CHECK(stored.made == 1);
  struct stat status = {};
  REQUIRE(::stat(stored.file().c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  REQUIRE(::stat(stored.directory.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0700);
  const auto next_mount = stored.get();
  REQUIRE(next_mount);
  CHECK(stored.made == 1);
  check_equal(**next_mount, **train);
  CHECK(stored.log.has("reloaded"));

  const IndexKey other{"lmdb", "keys=decimal", {FileId(1)}};
  REQUIRE(stored.get(stored.catalog, other));
  CHECK(stored.made == 2);
}

TEST_CASE("an index that no plan uses is not kept in memory") {
  StoredIndex stored;
  IndexStore store("", stored.log.logger());
  const auto make = [&]() -> Result<IndexStore::Table> {
    ++stored.made;
    return records_in_f0(stored.catalog, 10, 10);
  };
  REQUIRE(store.get(stored.key, stored.catalog, nullptr, make));
  REQUIRE(store.get(stored.key, stored.catalog, nullptr, make));
  CHECK(stored.made == 2);  // and saved nowhere
  CHECK(store.path(stored.key, *stored.catalog).empty());
}

TEST_CASE("a saved index that is not to be believed is made anew") {
  StoredIndex stored;
  REQUIRE(stored.get());
  const std::string file = stored.file();
  const auto is_made_anew = [&](const std::string& why) {
    const int before = stored.made;
    const auto table = stored.get();
    REQUIRE(table);
    CHECK((*table)->size() == 1000);
    CHECK(stored.made == before + 1);
    INFO(stored.log.text());
    CHECK(stored.log.has(why));
    REQUIRE(stored.get());
    CHECK(stored.made == before + 1);  // and saved again
  };
  rewrite(file, [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  is_made_anew("checksum");
  rewrite(file, [](std::string& bytes) { bytes.resize(bytes.size() - 1); });
  is_made_anew("checksum");
  rewrite(file, [](std::string& bytes) { bytes = "something else, longer than the start of an index"; });
  is_made_anew("not an index");
  std::ofstream(file, std::ios::trunc).close();
  is_made_anew("shrank");
  REQUIRE(::chmod(file.c_str(), 0666) == 0);
  is_made_anew("could have been written by others");
  std::filesystem::rename(file, stored.tree.at("real"));
  std::filesystem::create_symlink(stored.tree.at("real"), file);
  is_made_anew("Too many levels of symbolic links");
  REQUIRE(::unlink(file.c_str()) == 0);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  is_made_anew("is not a regular file");
  if (::geteuid() == 0) {
    REQUIRE(::chown(file.c_str(), 65534, 65534) == 0);
    is_made_anew("could have been written by others");
  }

  // That of another dataset under this one's name.
  PackedFiles elsewhere({1'000'000});
  elsewhere.source = "/elsewhere";
  const auto other = elsewhere.catalog();
  REQUIRE(stored.get(other, stored.key));
  const std::string other_file = IndexStore(stored.directory, stored.log.logger()).path(stored.key, *other);
  CHECK(other_file != file);
  std::filesystem::copy_file(other_file, file, std::filesystem::copy_options::overwrite_existing);
  is_made_anew("another source");

  // The file that was indexed is another one now.
  PackedFiles changed({1'000'000});
  changed.files[0].mtime_ns = 5;
  stored.catalog = changed.catalog();
  is_made_anew("f0 has changed since");
}

TEST_CASE("an index that cannot be saved serves nevertheless") {
  StoredIndex stored;
  stored.directory = "/proc/no/such";
  const auto table = stored.get();
  REQUIRE(table);
  CHECK((*table)->size() == 1000);
  CHECK(stored.log.lines_with("not saved") == 1);
}

TEST_CASE("an index is there for others before it is saved") {
  StoredIndex stored;
  const auto hook = std::make_shared<LineHook>();
  Logger log("test", hook);
  IndexStore store("/proc/no/such", log);
  const uint64_t index = index_number(*stored.catalog, stored.key);
  bool here = false;
  hook->on_line = [&](std::string_view line) {
    if (line.find("not saved") == std::string_view::npos) return;
    here = store.progress(index).stage == IndexStore::Stage::here && !store.image(index).empty();
  };
  const auto table = store.get(stored.key, stored.catalog, nullptr, [&]() -> Result<IndexStore::Table> {
    return records_in_f0(stored.catalog, 1000, 1000);
  });
  REQUIRE(table);
  CHECK(here);
}

TEST_CASE("whoever asks for an index that is being made waits for it, unless cancelled") {
  StoredIndex stored;
  IndexStore store("", stored.log.logger());
  std::latch begun(1);
  std::latch may_end(1);
  auto maker = std::async(std::launch::async, [&] {
    return store.get(stored.key, stored.catalog, nullptr, [&]() -> Result<IndexStore::Table> {
      begun.count_down();
      may_end.wait();
      return records_in_f0(stored.catalog, 10, 10);
    });
  });
  begun.wait();
  const auto must_not_make = []() -> Result<IndexStore::Table> { return Error{EIO, "made twice"}; };
  IndexWork unwanted;
  unwanted.cancel();
  const auto cancelled = store.get(stored.key, stored.catalog, &unwanted, must_not_make);
  REQUIRE(!cancelled);
  CHECK(cancelled.error().code == ECANCELED);
  auto waiter = std::async(std::launch::async,
                           [&] { return store.get(stored.key, stored.catalog, nullptr, must_not_make); });
  may_end.count_down();
  const auto made = maker.get();
  REQUIRE(made);
  const auto same = waiter.get();
  REQUIRE(same);
  CHECK(*same == *made);
}

TEST_CASE("where making an index fails, the next who asks tries again") {
  StoredIndex stored;
  IndexStore store(stored.directory, stored.log.logger());
  const auto failed = store.get(stored.key, stored.catalog, nullptr, []() -> Result<IndexStore::Table> {
    return Error{EIO, "no"};
  });
  REQUIRE(!failed);
  CHECK(failed.error().code == EIO);
  CHECK(store.get(stored.key, stored.catalog, nullptr,
                  [&]() -> Result<IndexStore::Table> { return records_in_f0(stored.catalog, 10, 10); }));
}

TEST_CASE("an index that takes more memory than there is fails, and is made when there is enough") {
  StoredIndex stored;
  IndexStore store("", stored.log.logger());
  const auto failed = store.get(stored.key, stored.catalog, nullptr,
                                []() -> Result<IndexStore::Table> { throw std::bad_alloc(); });
  REQUIRE(!failed);
  CHECK(failed.error().code == ENOMEM);
  CHECK(store.progress(index_number(*stored.catalog, stored.key)).stage == IndexStore::Stage::none);
  CHECK(store.get(stored.key, stored.catalog, nullptr,
                  [&]() -> Result<IndexStore::Table> { return records_in_f0(stored.catalog, 10, 10); }));
}

TEST_CASE("the index of a Megatron dataset is read from its files once") {
  const TempTree tree;
  const auto number = [](std::string& to, uint64_t value, int width) {
    for (int i = 0; i < width; ++i) to += static_cast<char>(value >> (8 * i));
  };
  std::string idx("MMIDIDX\0\0", 9);
  number(idx, 1, 8);
  number(idx, 4, 1);
  number(idx, 3, 8);
  number(idx, 3, 8);
  for (const int length : {5, 6, 7}) number(idx, static_cast<uint64_t>(length), 4);
  for (const int offset : {0, 20, 44}) number(idx, static_cast<uint64_t>(offset), 8);
  tree.write("t.bin", 100);
  std::ofstream(tree.at("t.idx"), std::ios::binary) << idx;
  const TempTree saved;
  CapturedLog log;
  DatasetSource source = scanned(tree);
  IndexStore first(saved.path(), log.logger());
  source.indexes = &first;
  const auto work = source.work = std::make_shared<IndexWork>();
  const auto made = index_megatron(source, DatasetRoot{FileId(0), 0}, "t.bin");
  REQUIRE(made);
  CHECK(work->bytes_read() == 34 + 3 * 12);
  CHECK(work->percent() == 100);
  CHECK(work->took().has_value());
  IndexStore second(saved.path(), log.logger());
  source.indexes = &second;
  source.read_bytes = [](FileId, uint64_t, uint32_t) -> Result<std::string> { return Error{EIO, "read"}; };
  const auto reloaded = index_megatron(source, DatasetRoot{FileId(0), 0}, "t.bin");
  REQUIRE(reloaded);
  CHECK((*reloaded)->identity() == (*made)->identity());
  CHECK((*reloaded)->range(2, 0).offset == 44);
  CHECK((*reloaded)->range(2, 0).length == 28);
}

TEST_CASE("an index that is saved is found without any being made, and held once in memory") {
  StoredIndex stored;
  IndexStore store(stored.directory, stored.log.logger());
  CHECK(!store.find(stored.key, stored.catalog));
  REQUIRE(stored.get());
  const auto found = store.find(stored.key, stored.catalog);
  REQUIRE(found);
  CHECK((*found)->size() == 1000);
  const auto again = store.find(stored.key, stored.catalog);
  REQUIRE(again);
  CHECK(*again == *found);
  const auto of_plan = store.get(stored.key, stored.catalog, nullptr, []() -> Result<IndexStore::Table> {
    return Error{EIO, "made"};
  });
  REQUIRE(of_plan);
  CHECK(*of_plan == *found);
  CHECK(!IndexStore("", stored.log.logger()).find(stored.key, stored.catalog));
}

TEST_CASE("the indexes that are saved of a dataset are told by their keys") {
  StoredIndex stored;
  const IndexStore store(stored.directory, stored.log.logger());
  constexpr uint64_t kAny = 1 << 20;
  CHECK(store.saved(*stored.catalog, kAny).empty());
  REQUIRE(stored.get());
  const auto keys = store.saved(*stored.catalog, kAny);
  REQUIRE(keys.size() == 1);
  CHECK(keys[0].format == "lmdb");
  CHECK(keys[0].parameters == "keys=cursor");
  CHECK(keys[0].files == stored.key.files);
  CHECK(store.saved(*stored.catalog, 100).empty());  // larger
  PackedFiles changed({1'000'000});
  changed.files[0].mtime_ns += 1;
  CHECK(store.saved(*changed.catalog(), kAny).empty());
  PackedFiles elsewhere({1'000'000});
  elsewhere.source = "/another";
  CHECK(store.saved(*elsewhere.catalog(), kAny).empty());
  rewrite(stored.file(), [](std::string& bytes) { bytes.resize(60); });
  CHECK(store.saved(*stored.catalog, kAny).empty());
  CHECK(IndexStore("", stored.log.logger()).saved(*stored.catalog, kAny).empty());
}
