// A chunk's bytes in memory, shared by reference count.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "cache/memory/ram_arena.h"

namespace clairfs {

/// Told when a chunk's memory has come free, or when only one reference is left, so that its keeper can drop
/// it.
class MemoryListener {
 public:
  virtual void memory_released() = 0;

 protected:
  ~MemoryListener() = default;
};

/// Written by the fetch that owns it, immutable once published; of a fetch in parts each is when it has come.
class ChunkData {
 public:
  ChunkData(Block memory, uint32_t bytes, MemoryListener& listener)
      : block(std::move(memory)), length(bytes), listener_(listener) {}

  const Block block;
  const uint32_t length;  ///< bytes of the chunk; the block may be longer

 private:
  friend class ChunkRef;
  MemoryListener& listener_;
  std::atomic<uint32_t> references_{0};
};

/// Pins a chunk's memory (8 bytes, so that a slot a chunk stays cheap). Thread-safe like a shared_ptr.
class ChunkRef {
 public:
  ChunkRef() = default;
  explicit ChunkRef(ChunkData* data) : data_(data) { add(); }
  ChunkRef(const ChunkRef& other) : data_(other.data_) { add(); }
  ChunkRef(ChunkRef&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  ChunkRef& operator=(ChunkRef other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~ChunkRef() { drop(); }

  ChunkData* operator->() const { return data_; }
  ChunkData& operator*() const { return *data_; }
  explicit operator bool() const { return data_ != nullptr; }
  /// This is its only reference. Only meaningful where no other thread can take a new one.
  bool unique() const { return data_->references_.load(std::memory_order_acquire) == 1; }

 private:
  void add() const {
    if (data_ != nullptr) data_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  void drop() {
    if (data_ == nullptr) return;
    MemoryListener& listener = data_->listener_;  // before another thread may delete what it is in
    const uint32_t before = data_->references_.fetch_sub(1, std::memory_order_acq_rel);
    if (before == 1) delete data_;
    if (before <= 2) listener.memory_released();
  }

  ChunkData* data_ = nullptr;
};

}  // namespace clairfs
