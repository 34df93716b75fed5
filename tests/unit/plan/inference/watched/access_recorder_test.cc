#include "plan/inference/watched/access_recorder.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

struct RecorderFixture {
  RecorderFixture() { recorder.restart(true); }
  void note(uint32_t file, uint32_t thread = 1) {
    recorder.note(ThreadId(thread), FileId(file), Access::read, now);
  }

  int wakes = 0;
  TimePoint now{std::chrono::hours(1)};
  AccessRecorder recorder{[this] { ++wakes; }};
};

}  // namespace

TEST_CASE("each file is recorded once, however many pieces are read") {
  RecorderFixture f;
  for (uint32_t file = 0; file < 3; ++file) {
    for (int piece = 0; piece < 5; ++piece) f.note(file, 10 + file);
  }
  f.note(1);  // another reader's turn
  const auto opens = f.recorder.opens();
  REQUIRE(opens.size() == 3);
  CHECK(f.recorder.count() == 3);
  CHECK(opens[2].file == FileId(2));
  CHECK(opens[2].thread == ThreadId(12));
  for (uint32_t file = 3; file < 200; ++file) f.note(file);
  f.note(1);  // in another epoch
  CHECK(f.recorder.count() == 201);
  CHECK(f.recorder.opens(5).size() == 5);
}

TEST_CASE("what was opened of some files is forgotten, and the rest is not") {
  RecorderFixture f;
  for (uint32_t file = 0; file < 10; ++file) f.note(file);
  f.recorder.forget_files({0, 3, 77});
  CHECK(f.recorder.count() == 8);
  CHECK(f.recorder.opens().front().file == FileId(1));
  f.recorder.restart(false);
  f.recorder.forget_files({1});
  CHECK(f.recorder.on());
}

TEST_CASE("nothing is recorded while it is off") {
  RecorderFixture f;
  f.note(1);
  f.recorder.restart(false);
  CHECK(!f.recorder.on());
  f.note(2);
  CHECK(f.recorder.count() == 0);
}

TEST_CASE("it wakes when as many were seen as was asked for") {
  RecorderFixture f;
  f.recorder.look_at(3);
  f.note(1);
  f.note(2);
  CHECK(f.wakes == 0);
  f.note(3);
  CHECK(f.wakes == 1);
  f.note(4);
  CHECK(f.wakes == 1);
  f.recorder.look_at(2);  // they are there already
  CHECK(f.wakes == 2);
}

TEST_CASE("what a long pause, or a reader in order, parts from what follows is forgotten") {
  RecorderFixture f;
  f.note(1);
  f.now += std::chrono::minutes(1);
  f.note(2);
  CHECK(f.recorder.count() == 2);
  f.now += std::chrono::minutes(3);
  f.note(3);
  CHECK(f.recorder.count() == 1);
  for (int i = 0; i < 31; ++i) f.recorder.note_in_order();
  CHECK(f.recorder.count() == 1);
  f.note(4);  // strays in between
  for (int i = 0; i < 31; ++i) f.recorder.note_in_order();
  CHECK(f.recorder.count() == 2);
  f.recorder.note_in_order();
  CHECK(f.recorder.count() == 0);
}

TEST_CASE("it ends when it is full, and wakes whoever begins anew after a rest") {
  RecorderFixture f;
  f.recorder.look_at(AccessRecorder::kMost + 1);
  for (uint32_t file = 0; file <= AccessRecorder::kMost; ++file) f.note(file);
  CHECK(f.recorder.count() == AccessRecorder::kMost);
  CHECK(!f.recorder.on());
  CHECK(f.wakes == 1);
}

TEST_CASE("what some threads opened is forgotten, and the rest stays") {
  RecorderFixture f;
  for (uint32_t file = 0; file < 40; ++file) f.note(file, file % 2);
  const auto forgotten = f.recorder.forget({1});
  REQUIRE(forgotten.size() == 20);
  CHECK(forgotten[1].file == FileId(3));
  CHECK(f.recorder.count() == 20);
  CHECK(f.recorder.opens()[1].file == FileId(2));
  f.wakes = 0;
  for (uint32_t file = 40; file < 50; ++file) f.note(file);
  CHECK(f.wakes == 1);  // half as many again
  f.recorder.forget({0, 1});
  CHECK(f.recorder.count() == 0);
  CHECK(f.recorder.on());
  f.note(50);
  CHECK(f.recorder.forget_all().size() == 1);
  CHECK(f.recorder.count() == 0);
}

TEST_CASE("what is forgotten in part begins anew, and what stays is no stray") {
  RecorderFixture f;
  for (uint32_t file = 0; file < 40; ++file) f.note(file, file % 2);
  const uint64_t before = f.recorder.beginnings();
  f.recorder.forget({7});
  CHECK(f.recorder.beginnings() == before);  // nothing was
  f.recorder.forget({1});
  CHECK(f.recorder.beginnings() == before + 1);
  f.note(100, 1);  // a stray of the plan's reader
  for (int i = 0; i < 32; ++i) f.recorder.note_in_order();
  CHECK(f.recorder.count() == 20);
  CHECK(f.recorder.beginnings() == before + 2);
}

TEST_CASE("of a plan's reader in order the strays are forgotten, not what others opened") {
  RecorderFixture f;
  for (uint32_t file = 0; file < 10; ++file)
    f.recorder.note(ThreadId(file % 2), FileId(file), Access::read, f.now, file % 2 == 0);
  for (uint32_t i = 0; i < 32; ++i) {
    f.recorder.note(ThreadId(1), FileId(100 + i), Access::read, f.now, false);  // they go on as well
    f.recorder.note_in_order();
  }
  CHECK(f.recorder.count() == 37);
  for (const SeenOpen& open : f.recorder.opens()) CHECK(open.thread == ThreadId(1));
}

TEST_CASE("of a file whose READs have pages each is recorded, and the same again is not") {
  RecorderFixture f;
  const auto note_page = [&](uint32_t page) {
    return f.recorder.note(ThreadId(1), FileId(7), Access::read, f.now, true, {page, 28});
  };
  CHECK(note_page(100));
  CHECK(note_page(5));
  CHECK(!note_page(100));
  f.note(8);
  const auto opens = f.recorder.opens();
  REQUIRE(opens.size() == 3);
  CHECK(opens[1].offset() == 5 * kPageSize);
  CHECK(opens[1].length() == 28 * kPageSize);
  CHECK(opens[2].length() == 0);
}
