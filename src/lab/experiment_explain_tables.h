// How the findings on attributions are shown.
#pragma once

#include <vector>

#include "lab/experiment_explain_measure.h"

namespace qkv::lab {

Table task_table(const std::vector<TaskFindings>& all);
/// A row a method: the share of questions whose relevant token it ranks first, with its 95 % interval.
Table hit_table(const std::vector<TaskFindings>& all);
/// Tests of faith on one task, a row a method, with the spread over seeds.
Table faith_table(const TaskFindings& findings);
/// How much of each attribution is left after weights are shuffled.
Table sanity_table(const std::vector<TaskFindings>& all);
/// What cutting parts of the first task's model costs.
Table ablation_table(const TaskFindings& findings);
/// Rows of the heads of several reports, each with a name.
struct NamedHeads {
  Text name;
  std::vector<explain::HeadProfile> heads;
};
Table head_table(const std::vector<NamedHeads>& models);
/// What the reports say, in words.
Table summary_table(const std::vector<TaskFindings>& all);

Chart deletion_chart(const TaskFindings& findings);
Chart gap_chart(const GapFindings& gaps);
/// Weights of the example of a task, and their product with what they deliver.
HeatMaps weight_maps(const TaskFindings& findings);

/// Hits with their interval.
Measured hit_rate(const MethodOnTask& method, const TaskFindings& findings);

}  // namespace qkv::lab
