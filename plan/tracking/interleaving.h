// Finds out how a DataLoader deals an order among its workers, from where its first opens fell.
//
// Worker w of W opens the samples of batches w, w + W, w + 2 W, ... of B samples each, one after the other.
// So while an epoch begins, a sample that is opened before its predecessor is the first of a batch, at a
// multiple of B; and there are as many workers as batches that are begun before the first of them is
// complete, or before no other one has been for long.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace clairfs {

struct Interleaving {
  uint32_t batch = 0;
  uint32_t workers = 0;
};

/// `positions` in the epoch's order, of sightings in the order of time; positions below `opened` were opened
/// before. One in five may be another reader's. Nothing if these are not the first of an epoch that several
/// workers read.
std::optional<Interleaving> find_interleaving(std::span<const uint32_t> positions, uint32_t opened);

/// The largest number, up to 2^16, that divides four in five of them. REQUIRES: not empty.
uint32_t common_divisor(std::span<const uint32_t> numbers);

}  // namespace clairfs
