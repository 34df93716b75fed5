// Workers and batch of the loaders that read an order, from which thread opened which position.
//
// FUSE requests carry the number of the thread that reads, so each worker's own way is visible: worker w of W
// opens batches w, w + W, ... of B samples, one after the other. Workers are the threads that are still
// there, or were seen opening at the same time (`xargs cat` makes a new process when one has ended); a new
// one begins at a multiple of B.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "plan/inference/chance/fit.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

struct Dealing {
  uint64_t batch = 1;
  uint64_t workers = 0;

  bool operator==(const Dealing&) const = default;
};

/// `opens` as they fit an order that `ranks` ranks of this node share position by position. The reorder
/// window of a plan with what is returned (AccessSequence::reorder_window(), PyTorch's prefetch_factor)
/// covers what was seen. `alive` tells whether a thread is still there.
Dealing find_dealing(std::span<const Placed> opens, uint32_t ranks, const Fit& fit,
                     const std::function<bool(uint32_t thread)>& alive);

/// Opens that show the workers of an order of that length: a few may be those of a few workers. Of 64 ranks
/// no look has as many, and some are strays or repeated.
uint64_t enough_opens(uint64_t ranks, uint64_t length);

/// Adds workers and batch to a plan of all the ranks that are here; false if more must be seen of them.
bool add_dealing(PlanSpec& plan, std::span<const Placed> opens, const Fit& fit);

}  // namespace clairfs
