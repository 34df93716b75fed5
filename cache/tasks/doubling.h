// The rule by which threads and operations are doubled.
#pragma once

namespace clairfs {

/// How much more twice as many at once must bring: with less than half as much again they are a queue for the
/// most part. For reads of the source and for scans of it.
inline constexpr double kDoublingPays = 1.5;

}  // namespace clairfs
