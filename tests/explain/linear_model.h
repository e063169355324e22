// A model that one can compute by hand: its target is a sum over tokens of slope · embedding (width 1), and it has one head whose
// weights are given.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "explain/explained_model.h"

namespace qkv::test {

class LinearModel final : public explain::ExplainedModel {
 public:
  struct Numbers {
    std::vector<double> slopes;
    std::vector<double> embeddings;  ///< the baseline is 0
    Tensor<double, 3> weights = {};  ///< [1,T,T]; everything on token 0 where empty
    std::vector<bool> special = {};
    bool causal = true;
  };
  explicit LinearModel(Numbers numbers) : numbers_(std::move(numbers)) {
    const std::size_t tokens = numbers_.slopes.size();
    const auto count = static_cast<Index>(tokens);
    sizes_ = {count, 1, 1, 1};
    for (std::size_t t = 0; t < tokens; ++t)
      text_.tokens.push_back(std::string(1, static_cast<char>('a' + t % 26)));
    text_.special = numbers_.special.empty() ? std::vector<bool>(tokens, false) : numbers_.special;
    text_.readout.assign(tokens, 1 / static_cast<double>(tokens));
    text_.embeddings = Tensor<double, 2>({count, 1});
    std::copy(numbers_.embeddings.begin(), numbers_.embeddings.end(), text_.embeddings.data());
    text_.baseline = Tensor<double, 2>({count, 1});
    if (numbers_.weights.elements().empty()) {
      numbers_.weights = Tensor<double, 3>({1, count, count});
      for (Index t = 0; t < count; ++t) numbers_.weights(0, t, 0) = 1;
    }
  }

  const explain::ModelSizes& sizes() const noexcept override { return sizes_; }
  const explain::ExplainedText& text() const noexcept override { return text_; }
  bool may_see(Index query, Index key) const override { return !numbers_.causal || key <= query; }

  std::vector<double> run(std::span<const explain::Variant> variants) const override {
    std::vector<double> targets;
    for (const explain::Variant& variant : variants) {
      const auto& x = variant.embeddings ? *variant.embeddings : text_.embeddings;
      double target = 0;
      for (std::size_t t = 0; t < numbers_.slopes.size(); ++t) {
        target += numbers_.slopes[t] * x(static_cast<Index>(t), 0);
      }
      targets.push_back(target);
    }
    return targets;
  }

  explain::Records record() const override {
    explain::Records records;
    records.layers.push_back({text_.embeddings, numbers_.weights,
                              Tensor<double, 3>({1, sizes_.tokens, 1}), Tensor<double, 2>({1, 1})});
    records.last = text_.embeddings;
    return records;
  }

  explain::Gradients differentiate(const Tensor<double, 3>& embeddings) const override {
    explain::Gradients gradients;
    gradients.embeddings = Tensor<double, 3>(embeddings.shape());
    const auto [runs, tokens, width] = embeddings.shape();
    for (Index n = 0; n < runs; ++n) {
      double target = 0;
      for (Index t = 0; t < tokens; ++t) {
        const double slope = numbers_.slopes[static_cast<std::size_t>(t)];
        gradients.embeddings(n, t, 0) = slope;
        target += slope * embeddings(n, t, 0);
      }
      gradients.targets.push_back(target);
    }
    gradients.weights.emplace_back(Extents<4>{runs, 1, tokens, tokens});
    return gradients;
  }

  std::unique_ptr<ExplainedModel> with_shuffled_layers(Index /*layers*/,
                                                       std::uint64_t /*seed*/) const override {
    Numbers turned = numbers_;
    std::reverse(turned.slopes.begin(), turned.slopes.end());
    return std::make_unique<LinearModel>(std::move(turned));
  }

 private:
  Numbers numbers_;
  explain::ModelSizes sizes_;
  explain::ExplainedText text_;
};

}  // namespace qkv::test
