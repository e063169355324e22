// Attributions that read the attention weights of the plain run, and ask for no intervention: a number a token [T].
#pragma once

#include <vector>

#include "explain/explained_model.h"

namespace qkv::explain {

/// Weights [H,T,T] averaged over the heads: [T,T].
Tensor<double, 2> mean_over_heads(const Tensor<double, 3>& weights);

/// What the target reads of each row: Σ_t readout[t]·matrix[t,:].
std::vector<double> read_rows(const Tensor<double, 2>& matrix, std::span<const double> readout);

/// Raw attention: the rows that the target reads, of one head.
std::vector<double> raw_attention(const Records& records, const ExplainedText& text,
                                  const HeadPlace& head);
/// The mean of a layer's heads.
std::vector<double> raw_attention(const Records& records, const ExplainedText& text, Index layer);
/// The mean of all heads of all layers.
std::vector<double> raw_attention(const Records& records, const ExplainedText& text);

/// ‖Σ_h α_h·v_h·W_o,h‖, the length of what each key delivers to each query [T,T]: all heads together, as they add up. Source:
/// Kobayashi, Kuribayashi, Yokoi and Inui, "Attention is Not Only a Weight: Analyzing Transformers with Vector Norms" (2020), eq. 6.
Tensor<double, 2> delivered_norms(const LayerRecord& layer);
/// ‖α_h·v_h·W_o,h‖ of one head.
Tensor<double, 2> delivered_norms(const LayerRecord& layer, Index head);
/// The rows that the target reads, of one layer; the mean of the layers.
std::vector<double> attention_times_norm(const Records& records, const ExplainedText& text,
                                         Index layer);
std::vector<double> attention_times_norm(const Records& records, const ExplainedText& text);

/// The product over the layers of ½·(mean over heads) + ½·I [T,T]; rows sum to 1 where those of the weights do. Source: Abnar and
/// Zuidema, "Quantifying Attention Flow in Transformers" (2020).
Tensor<double, 2> rollout(const Records& records);
std::vector<double> attention_rollout(const Records& records, const ExplainedText& text);

/// The most that can flow from each token of the input to what the target reads, where edges carry ½·(mean over heads) + ½·I.
/// Capacities are multiples of 2⁻⁴⁰. Source: the same paper.
std::vector<double> attention_flow(const Records& records, const ExplainedText& text);

}  // namespace qkv::explain
