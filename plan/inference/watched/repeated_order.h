// A reader that opens the same samples in the same order, epoch after epoch, whatever the order is: a list
// that was shuffled once, say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace clairfs {

/// The opens up to their repetition.
struct FirstPass {
  std::vector<uint32_t> order;  ///< samples, each once, in the order of their first opens
  size_t repeated_from = 0;     ///< the open with which the second pass begins
};

/// Where the opens begin to be those of samples that were opened before, most of them. Nothing as long as
/// they do not. Takes time and memory in the order of the opens.
std::optional<FirstPass> find_first_pass(std::span<const uint32_t> samples);

/// An order as a plan's `list`: "[3,1,2]".
std::string list_in_place(std::span<const uint32_t> order);

}  // namespace clairfs
