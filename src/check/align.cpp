#include "check/align.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "check/align_inputs.h"
#include "check/align_module.h"

namespace qkv {
namespace {

/// One case in one dtype, with what PyTorch's Python said about it.
struct Run {
  AlignCase align_case;
  DType dtype = DType::Float64;
  TensorFile inputs;
  std::vector<std::pair<std::string, TensorFile>> python_results;  // by function
};

std::string describe(const Run& run) {
  return fmt::format("{}, {}", run.align_case.describe(), name_of(run.dtype));
}

PeerCall call_of(const Run& run, std::string_view function) {
  PeerCall call;
  call.function = function;
  call.heads = run.align_case.heads;
  call.causal = run.align_case.mask == AlignMask::Causal;
  call.inputs = run.inputs;
  return call;
}

std::vector<Run> draw_runs(const std::vector<AlignCase>& cases, const AlignPeers& peers) {
  std::vector<Run> runs;
  for (const AlignCase& align_case : cases) {
    if (align_case.is_lesson) {
      if (peers.python != nullptr) runs.push_back({align_case, DType::Float64, {}, {}});
      continue;
    }
    for (const DType dtype : {DType::Float64, DType::Float32}) {
      runs.push_back({align_case, dtype, draw_inputs(align_case, dtype), {}});
    }
  }
  return runs;
}

/// Asks Python everything at once, for loading PyTorch takes longer than all the cases.
std::string ask_python(Peer& python, const AlignListener& listener, std::vector<Run>& runs) {
  std::vector<PeerCall> calls;
  std::vector<Run*> run_of_call;
  const auto add = [&](Run& run, std::string_view function, std::optional<std::size_t> drawn_by) {
    calls.push_back(call_of(run, function));
    calls.back().drawn_by = drawn_by;
    run_of_call.push_back(&run);
  };
  for (Run& run : runs) {
    std::optional<std::size_t> drawn_by;
    if (run.align_case.is_lesson) {
      drawn_by = calls.size();
      add(run, peer_function::draw_lesson, std::nullopt);
      add(run, peer_function::lesson_class, drawn_by);
    }
    add(run, peer_function::module, drawn_by);
  }
  listener.on_progress("Python loads PyTorch");
  PeerResults answer = python.run(calls, [&](std::size_t call) {
    if (call < calls.size()) listener.on_progress("Python: " + describe(*run_of_call[call]));
  });
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].function == peer_function::draw_lesson) {
      run_of_call[i]->inputs = std::move(answer.results[i]);
    } else {
      run_of_call[i]->python_results.emplace_back(calls[i].function, std::move(answer.results[i]));
    }
  }
  return answer.version;
}

std::vector<std::pair<std::string, TensorFile>> ask_cpp(Peer& cpp, const Run& run) {
  std::vector<PeerCall> calls;
  if (torch_cpp_module_accepts(run.align_case)) {
    calls.push_back(call_of(run, peer_function::module_cpp));
  }
  calls.push_back(call_of(run, peer_function::scaled_dot_product));
  PeerResults answer = cpp.run(calls, [](std::size_t) {});
  std::vector<std::pair<std::string, TensorFile>> results;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    results.emplace_back(calls[i].function, std::move(answer.results[i]));
  }
  return results;
}

std::vector<AlignRow> compare_run(const Run& run, Peer* cpp) {
  const bool is_float64 = run.dtype == DType::Float64;
  const TensorFile oracle = run_module<double>(run.align_case, widened(run.inputs));
  const TensorFile ours = is_float64 ? oracle : run_module<float>(run.align_case, run.inputs);
  std::vector<AlignRow> rows;
  const auto add = [&](const std::string& function, const TensorFile& official) {
    rows.push_back(compare(run.align_case, function, run.dtype, {ours, oracle, official}));
  };
  for (const auto& [function, official] : run.python_results) add(function, official);
  if (cpp != nullptr) {
    for (const auto& [function, official] : ask_cpp(*cpp, run)) add(function, official);
  }
  return rows;
}

}  // namespace

bool torch_cpp_module_accepts(const AlignCase& align_case) noexcept {
  return !align_case.mask_is_per_head() && align_case.key_width == align_case.value_width;
}

void align(const std::vector<AlignCase>& cases, const AlignPeers& peers,
           const AlignListener& listener) {
  std::vector<Run> runs = draw_runs(cases, peers);
  if (runs.empty()) return;
  std::vector<std::string> versions;
  if (peers.python != nullptr) versions.push_back(ask_python(*peers.python, listener, runs));
  if (peers.cpp != nullptr) versions.push_back(peers.cpp->run({}, [](std::size_t) {}).version);
  listener.on_versions(versions);

  for (std::size_t i = 0; i < runs.size();) {
    const AlignCase align_case = runs[i].align_case;
    std::vector<AlignRow> rows;
    for (; i < runs.size() && runs[i].align_case.describe() == align_case.describe(); ++i) {
      listener.on_progress(describe(runs[i]));
      for (AlignRow& row : compare_run(runs[i], peers.cpp)) rows.push_back(std::move(row));
      runs[i] = {};  // the large cases need not be held to the end
    }
    listener.on_case(align_case, rows);
  }
}

}  // namespace qkv
