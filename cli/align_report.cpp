#include "cli/align_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace qkv::cli {
namespace {

using nlohmann::json;

const AlignDifference* find(const AlignRow& row, AlignQuantity quantity) {
  const auto found =
      std::find_if(row.differences.begin(), row.differences.end(),
                   [&](const AlignDifference& one) { return one.quantity == quantity; });
  return found == row.differences.end() ? nullptr : &*found;
}

std::string cell(const AlignRow& row, AlignQuantity quantity) {
  const AlignDifference* one = find(row, quantity);
  if (one == nullptr) return "-";
  if (!one->difference) return "NaN";
  return *one->difference == 0 ? "0" : fmt::format("{:.1e}", *one->difference);
}

std::string tolerance(const AlignRow& row) {
  if (row.dtype != DType::Float64) return fmt::format("{}x PyTorch", align_float32_factor);
  return fmt::format("{:.0e}/{:.0e}", align_tolerance, align_parameter_tolerance);
}

/// The part of its allowance that the worst quantity takes.
double used(const AlignRow& row) {
  double worst = 0;
  for (const AlignDifference& one : row.differences) {
    if (one.difference) worst = std::max(worst, *one.difference / *one.allowed);
  }
  return worst;
}

std::string percent(double part) {
  if (part > 0 && part < 0.01) return "<1%";
  return part < 10 ? fmt::format("{:.0f}%", 100 * part) : ">999%";
}

constexpr const char* kAlignRow = "  {:<35} {:<7} {:>7} {:>7} {:>7} {:>7} {:>11} {:>5}  {}\n";
constexpr const char* kSampleRow = "  {:<20} {:<14} {:>18} {:>14} {:>7} {:>9}  {}\n";

/// Breaks lines between words so that they stay within the table's width.
std::string wrapped(const std::string& text) {
  constexpr std::size_t width = 100;
  std::string result;
  std::size_t begin = 0;
  while (text.size() - begin > width) {
    const std::size_t space = text.rfind(' ', begin + width);
    if (space == std::string::npos || space <= begin) break;
    result += text.substr(begin, space - begin) + "\n";
    begin = space + 1;
  }
  return result + text.substr(begin) + "\n";
}

/// JSON has no infinity.
json number(double value) { return std::isfinite(value) ? json(value) : json("infinite"); }

json quantity_json(const AlignDifference& one) {
  json result = {{"passed", one.passed}, {"official_is_nan", one.official_is_nan}};
  if (one.difference) {
    result["difference"] = number(*one.difference);
    result["allowed"] = number(*one.allowed);
    result["tensor"] = one.tensor;
  }
  if (one.official_error) result["official_error"] = number(*one.official_error);
  return result;
}

json row_json(const AlignRow& row) {
  json result = align_json(row.align_case);
  result["function"] = row.function;
  result["dtype"] = name_of(row.dtype);
  result["tolerance"] =
      row.dtype == DType::Float64
          ? "relative to the largest entry of PyTorch's tensor"
          : "2 x PyTorch's own error against the float64 oracle + 2^-24, relative "
            "to the largest entry";
  for (const AlignDifference& one : row.differences) {
    result["differences"][name_of(one.quantity)] = quantity_json(one);
  }
  result["verdict"] = name_of(row.verdict);
  result["passed"] = row.verdict != AlignVerdict::Fail;
  if (row.verdict == AlignVerdict::Fail) result["explanation"] = row.explanation();
  return result;
}

std::ptrdiff_t count(const std::vector<AlignRow>& rows, AlignVerdict verdict) {
  return std::count_if(rows.begin(), rows.end(),
                       [&](const AlignRow& row) { return row.verdict == verdict; });
}

}  // namespace

std::string align_header(const AlignSetting& setting) {
  std::string text =
      "qkv's MultiHeadAttention against PyTorch's own: the same weights, inputs and masks.\n";
  for (const std::string& version : setting.versions) text += fmt::format("  with {}\n", version);
  for (const std::string& why : setting.missing) text += fmt::format("  without {}\n", why);
  text +=
      "Numbers are the largest difference, relative to the largest entry of its tensor.\n"
      "  float64: from PyTorch; allowed 1e-12, parameter gradients 1e-11.\n"
      "  float32: from the float64 oracle; allowed twice PyTorch's own error there and one "
      "rounding.\n"
      "Gradients are those of sum(output) and of a random loss, through the weights where they "
      "are\n"
      "returned; d input: with respect to query, key, value and float bias; d param: to weights "
      "and "
      "biases.\n\n";
  text += fmt::format(fmt::runtime(kAlignRow), "official function", "dtype", "forward", "weights",
                      "d input", "d param", "allowed", "used", "verdict");
  return text;
}

std::string align_table(const AlignCase& align_case, const std::vector<AlignRow>& rows) {
  std::string text = align_case.describe() + "\n";
  for (const AlignRow& row : rows) {
    text += fmt::format(fmt::runtime(kAlignRow), row.function, name_of(row.dtype),
                        cell(row, AlignQuantity::Forward), cell(row, AlignQuantity::Weights),
                        cell(row, AlignQuantity::InputGradient),
                        cell(row, AlignQuantity::ParameterGradient), tolerance(row),
                        percent(used(row)), name_of(row.verdict));
    if (row.verdict == AlignVerdict::Fail) text += fmt::format("    {}\n", row.explanation());
  }
  return text;
}

std::string align_footer(const std::vector<AlignRow>& rows) {
  const auto failed = count(rows, AlignVerdict::Fail);
  const auto nan = count(rows, AlignVerdict::OfficialIsNan);
  std::string text = fmt::format("{} of {} rows pass", std::ssize(rows) - failed, rows.size());
  if (nan > 0) text += fmt::format(", in {} of them PyTorch gives NaN where ours is 0", nan);
  if (failed > 0) text += fmt::format("; {} FAIL", failed);
  return text + ".\n";
}

json align_json(const AlignCase& align_case) {
  json result = {{"case", align_case.describe()},
                 {"mask", name_of(align_case.mask)},
                 {"inputs", align_case.inputs == AlignInputs::Self ? "self" : "cross"},
                 {"lesson", align_case.is_lesson},
                 {"B", align_case.batch},
                 {"H", align_case.heads},
                 {"T", align_case.queries},
                 {"S", align_case.keys},
                 {"D", align_case.model_width},
                 {"biases", align_case.biases == AlignBiases::All}};
  result["kdim"] = align_case.key_width.value_or(align_case.model_width);
  result["vdim"] = align_case.value_width.value_or(align_case.model_width);
  return result;
}

json align_json(const AlignSetting& setting, const std::vector<AlignRow>& rows) {
  json result = {{"peers", setting.versions},
                 {"missing", setting.missing},
                 {"passed", std::ssize(rows) - count(rows, AlignVerdict::Fail)},
                 {"failed", count(rows, AlignVerdict::Fail)},
                 {"rows", json::array()}};
  for (const AlignRow& row : rows) result["rows"].push_back(row_json(row));
  return result;
}

std::string sample_table(const NamedSampleReport& sample) {
  std::string text = sample.file + "\n";
  if (!sample.report.source.empty()) text += wrapped(sample.report.source);
  text += wrapped(sample.report.layer);
  text += fmt::format(fmt::runtime(kSampleRow), "computed by", "recorded", "largest difference",
                      "largest entry", "rows", "left out", "verdict");
  for (const SampleRow& row : sample.report.rows) {
    text +=
        fmt::format(fmt::runtime(kSampleRow), row.computed_by, row.tensor,
                    fmt::format("{:.1e}", row.difference), fmt::format("{:.3g}", row.largest_entry),
                    row.rows, row.rows_left_out, row.passed() ? "pass" : "FAIL");
  }
  return text + "\n";
}

std::string sample_footer(const std::vector<NamedSampleReport>& samples) {
  std::size_t total = 0;
  std::size_t passed = 0;
  bool left_out = false;
  for (const NamedSampleReport& sample : samples) {
    for (const SampleRow& row : sample.report.rows) {
      ++total;
      if (row.passed()) ++passed;
      left_out = left_out || row.rows_left_out > 0;
    }
  }
  std::string text =
      fmt::format("{} of {} largest differences are within {:.0e} of what was recorded", passed,
                  total, sample_tolerance);
  if (passed < total) text += fmt::format("; {} FAIL", total - passed);
  if (left_out)
    text += "; left out: queries at padding that see no key, where a model may put anything";
  return wrapped(text + ".");
}

json sample_json(const std::vector<NamedSampleReport>& samples) {
  json result = json::array();
  for (const NamedSampleReport& sample : samples) {
    json rows = json::array();
    for (const SampleRow& row : sample.report.rows) {
      rows.push_back({{"computed_by", row.computed_by},
                      {"tensor", row.tensor},
                      {"difference", number(row.difference)},
                      {"allowed", sample_tolerance},
                      {"largest_entry", number(row.largest_entry)},
                      {"rows", row.rows},
                      {"rows_left_out", row.rows_left_out},
                      {"passed", row.passed()}});
    }
    result.push_back({{"file", sample.file},
                      {"source", sample.report.source},
                      {"layer", sample.report.layer},
                      {"rows", rows}});
  }
  return {{"samples", result}};
}

}  // namespace qkv::cli
