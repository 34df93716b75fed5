// A study's results as a picture.
#pragma once

#include <string>
#include <vector>

#include "cache/base/result.h"
#include "plan/simulator/model/access_frequency.h"
#include "plan/simulator/study/chart.h"
#include "plan/simulator/study/study.h"

namespace clairfs {

/// One SVG document. Without a sweep, below each other: where each policy's runtime goes, as stacked bars;
/// the time of each epoch; and how many samples a worker reads how often, against the binomial prediction.
/// With a sweep: the runtime over the values of the first axis, one line for each policy and combination of
/// the others. Errors: as count_access_frequencies().
Result<std::string> study_plots(const std::vector<StudyPoint>& points);

/// One SVG document: how many samples a node reads how often, and below it, if there are any, bars of where
/// the reads are answered. `job`, for the title: "4 nodes, 90 epochs".
std::string frequency_plot(const AccessFrequencies& frequencies, const std::vector<Bar>& sources,
                           const std::string& job);

}  // namespace clairfs
