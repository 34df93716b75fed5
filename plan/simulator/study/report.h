// A study's results as text.
#pragma once

#include <string>
#include <vector>

#include "plan/simulator/study/study.h"

namespace clairfs {

/// For people: aligned, one line a policy, below a line for each point of a sweep; ends in a newline.
std::string study_table(const std::vector<StudyPoint>& points);

/// An array of objects, one for each point and policy, with the fields that plan/simulator/README.md lists. A
/// policy that cannot run the job has null for its figures, and a `refusal`.
std::string study_json(const std::vector<StudyPoint>& points);

/// The same as lines of values, under a line of names; the settings of a sweep come first.
std::string study_csv(const std::vector<StudyPoint>& points);

}  // namespace clairfs
