// Judges how well an order explains what was opened, and how likely it does so by accident.
//
// The null hypothesis: the reader follows some other order, so that each file that it opens is any of those
// that it has not opened before, with the same chance. Of an order that has nothing to do with the reader's:
//
// Window. A reader of the order that began at position a and has opened h of its samples opens next what lies
// before a + h + w, w being what its workers are ahead of each other. At any time at most w samples that were
// not opened lie there (2 w where a is not the order's beginning, since then up to w lie before it). So each
// of m opens hits with probability <= q = w / (n - m), given all those before it, and the number of hits is
// at most binomial: P[H >= h] <= exp(-m D(h/m || q)), D being the Kullback-Leibler divergence (Chernoff's
// bound; Hoeffding, J. Am. Stat. Assoc. 58, 1963).
//
// Step. A thread opens the samples of a batch one after the other: each is the successor of what it opened
// before, or lies a fixed distance after it, where others read what is between. One sample does, so
// q = 1 / (n - m); the distance is one of kMostDistance. This tells soonest, whatever the batch and the
// workers; the window tells that the opens lie together, as those of a reader of the order do.
//
// Orders that are kin. random.sample() of all samples gives random.shuffle()'s order from its end, for the
// same seed. Where a reader seems to have begun in the middle, its threads must go forward.
//
// Sequential orders. A reader of one folder's files, in any order, opens files that lie together in a
// sequential order of all folders: the window tells nothing of it, and the reader chooses among fewer than n.
// But also of a random order of m samples only, whichever they are, h given ones come right after their
// predecessors with probability (m - h)! / m!, so P[H >= h] <= C(m, h) (m - h)! / m! = 1 / h!.
//
// An order is believed if
//   (number of orders tried so far) * (ways in which each was looked at) * kShares * P < kMostWrong / 2
// (Bonferroni; ways that are likelier get a larger share of what is allowed; the k-th order gets one of k,
// and all shares together are the sum of 1 / k, which kShares makes a whole; half is for first epochs, half
// for what follows on) and its window holds kMostly of the opens. Strays, opens that do not belong to the
// order, count among the m and never among the h, so that no allowance is made for them: they only make more
// opens necessary. A seed that is searched for among many (seeds/) has another P, for which the same holds:
// the orders are all these seeds and what was tried before. For orders that have much in common with each
// other (the same seed and another world) the one whose P is least is taken, and of equals the simplest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace clairfs {

/// Chance of a wrong order over all that are tried while a mount lives.
inline constexpr double kMostWrong = 1e-9;

/// The sum of 1 / k over the orders that are tried, at most: ln of 10^13, and more.
inline constexpr double kShares = 32;

/// Share of the opens that an order must explain: strays are 5 % and a few.
inline constexpr double kMostly = 0.85;

/// Where an order has a sample that was opened.
struct Placed {
  static constexpr uint32_t kNowhere = UINT32_MAX;
  uint32_t position = kNowhere;  ///< kNowhere: the order does not have it
  uint32_t thread = 0;           ///< that opened it; 0: not known
};

/// How an order is read.
struct Reading {
  uint64_t samples = 0;     ///< n: of the dataset
  uint64_t length = 0;      ///< of the order
  uint32_t stride = 1;      ///< positions from one sample of a thread to its next: ranks of the node
  bool sequential = false;  ///< its neighbours lie together in other orders, too
  bool from_start = false;  ///< only a reader that began at the order's beginning counts
};

struct Fit {
  double log_chance = 0;  ///< natural logarithm of P times the ways in which it was looked at
  double explained = 0;   ///< share of the opens in the window; 0: none holds kMostly
  uint32_t window = 0;    ///< w, of the window whose P is least
  uint32_t spread = 0;    ///< how far an open was ahead of the number of hits before it: at most 4 w. Not of
                          ///< lone strays, where one thread of each rank opens its samples one by one, nor of
                          ///< what lies much further ahead than most of the first half of the opens, unless
                          ///< all of that lies side by side
  uint32_t start = 0;     ///< where the reader began: a
  uint64_t length = 0;    ///< of the order
  uint32_t reached = 0;   ///< furthest position of a hit, and one

  bool explains() const { return explained >= kMostly; }
};

/// Fits an order to the opens, in the order of time, each sample once. Takes time in the order of the opens.
Fit fit_order(std::span<const Placed> opens, const Reading& reading);

/// Where a plan of an order begins of which the reader was found in the middle; 0 at its beginning.
uint64_t begun_at(const Fit& fit);

/// Whether readers go forward in the order: each thread does, or all together where each opens one file. Of a
/// random order half of the steps do, and none of one that is read from its end.
bool goes_forward(std::span<const Placed> opens);

/// The threads whose opens the fit explains: one that reads elsewhere in the order is another reader's.
std::vector<uint32_t> threads_of(std::span<const Placed> opens, const Fit& fit);

/// Whether it is believed after `orders` comparisons of orders, its own among them.
bool is_certain(const Fit& fit, double orders);
/// The same of an order whose chance was multiplied by these already, as that of a seed which was searched
/// for among many; natural logarithm.
bool is_certain(double log_chance_of_all);

/// Distances of a thread's opens that are looked at: jobs up to that size.
inline constexpr uint32_t kMostDistance = 1024;

/// The distance that most opens have from what their thread opened before: the size of the job in an order of
/// all ranks, if batches are read one sample after the other.
uint32_t usual_distance(std::span<const Placed> opens);

/// Upper bound of ln P[H >= hits] of a binomial H of `trials` with probability `q`; 0 for hits <= trials * q.
double log_tail(uint64_t trials, double q, uint64_t hits);

}  // namespace clairfs
