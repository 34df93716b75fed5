// Finding a reader again: does a series of sightings follow some order, from wherever it may have begun?
//
// A reader at p opens next what lies within the reorder window of p, and where only some opens are seen, up
// to `reach` positions further for each. A chain is a series of sightings, each within such a step of the one
// before. Sightings that have nothing to do with the order fall on positions at random; then a given series
// of k is a chain with probability r^(k-1), r being the length of a step over the length of the epoch, and
// the expected number of chains of k among m sightings is C(m, k) r^(k-1). A chain counts when that is below
// one in a million: 8 sightings in an epoch of millions, most of 64 in one of a few steps' length.
//
// Of an epoch of some tens of positions such a step is the whole of it. There a run tells more: sightings in
// a row, none left out, each within the reorder window w of the one before. By chance a sighting goes on with
// one in 2 w / n, n being the positions of the epoch; a run of k among m sightings is expected m (2 w /
// n)^(k-1) times. It may go on from one epoch to the next, where they lie end to end.
//
// A READ of a page with several records may be of any of them. Such a sighting is a link of a chain with
// whichever of its samples fits, so r is as many times as large as there are samples a sighting.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace clairfs {

/// A sample seen, at the tick-th distinct observation.
struct Sighting {
  uint32_t sample = 0;
  uint64_t tick = 0;
  int64_t position = 0;            ///< where the reader was then, as absolute position
  bool opened = false;             ///< by an open: the READs that come soon after are the same use
  std::vector<uint32_t> others{};  ///< less likely ones that it may have been instead
};

/// Sightings that are looked at: a wrong order is to be told within as many.
inline constexpr size_t kSightings = 64;

/// Share of the sightings that a chain must explain where all that the reader opens is seen: more than the
/// half that it has in common with the plan if the world is half as large, less than what strays leave.
inline constexpr double kExplained = 0.65;

/// Appends the positions of a sample in an order.
using PositionsOf = std::function<void(uint32_t sample, std::vector<uint32_t>& positions)>;

/// How far one sighting may lie from the one before.
struct ChainStep {
  uint64_t reorder_window = 1;  ///< positions that opens stray from the order
  uint64_t reach = 1;           ///< positions that pass for each open that is seen
};

struct Chain {
  uint32_t length = 0;  ///< sightings
  uint32_t among = 0;   ///< newest sightings that were looked at
  uint32_t top = 0;     ///< furthest position
  uint32_t second = 0;  ///< furthest but one
  uint32_t low = 0;     ///< lowest position
  uint64_t since = 0;   ///< tick of the first
};

/// The longest chain that ends in one of the newest sightings and is longer than chance explains, if any.
/// `sightings` in the order of time, at most kSightings; `epoch_length` in positions.
std::optional<Chain> find_chain(std::span<const Sighting> sightings, const PositionsOf& positions_of,
                                uint64_t epoch_length, ChainStep step);

/// The longest run that ends in the newest sighting and is longer than chance explains, if any. `length`: of
/// the order, in positions; a sample may come several times.
std::optional<Chain> find_run(std::span<const Sighting> sightings, const PositionsOf& positions_of,
                              uint64_t length, uint64_t reorder_window);

/// The length from which on a chain among `sightings` is no accident if each step hits with probability
/// `share`; more than `sightings` if none is.
uint32_t telling_length(uint32_t sightings, double share);

}  // namespace clairfs
