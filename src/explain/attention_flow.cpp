#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>
#include <cmath>
#include <cstdint>

#include "explain/attention_attributions.h"

namespace qkv::explain {
namespace {

/// Whole numbers flow: doubles would leave remainders that an algorithm pushes around for ever.
constexpr double kUnit = 0x1p-40;

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using Graph = boost::adjacency_list<
    boost::vecS, boost::vecS, boost::directedS, boost::no_property,
    boost::property<
        boost::edge_capacity_t, std::int64_t,
        boost::property<boost::edge_residual_capacity_t, std::int64_t,
                        boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>>;

/// Nodes: a source, then layer by layer from the last state down to the embeddings, a token each.
class FlowGraph {
 public:
  FlowGraph(const Records& records, const ExplainedText& text)
      : tokens_(text.tokens.size()),
        layers_(records.layers.size()),
        graph_(1 + tokens_ * (layers_ + 1)) {
    for (std::size_t t = 0; t < tokens_; ++t) add(0, node(layers_, t), text.readout[t]);
    for (std::size_t i = 0; i < layers_; ++i) {
      const Tensor<double, 2> weights = mean_over_heads(records.layers[i].weights);
      for (std::size_t t = 0; t < tokens_; ++t) {
        for (std::size_t s = 0; s < tokens_; ++s) {
          const double skip = s == t ? 0.5 : 0;
          add(node(i + 1, t), node(i, s),
              skip + 0.5 * weights(static_cast<Index>(t), static_cast<Index>(s)));
        }
      }
    }
  }

  double flow_to(std::size_t token) {
    return kUnit * static_cast<double>(
                       boost::push_relabel_max_flow(graph_, std::size_t{0}, node(0, token)));
  }

 private:
  /// Level 0 holds the embeddings.
  std::size_t node(std::size_t level, std::size_t token) const {
    return 1 + level * tokens_ + token;
  }

  void add(std::size_t from, std::size_t to, double capacity) {
    const auto units = static_cast<std::int64_t>(std::llround(capacity / kUnit));
    if (units == 0) return;
    const auto there = boost::add_edge(from, to, graph_).first;
    const auto back = boost::add_edge(to, from, graph_).first;
    boost::put(boost::edge_capacity, graph_, there, units);
    boost::put(boost::edge_capacity, graph_, back, 0);
    boost::put(boost::edge_reverse, graph_, there, back);
    boost::put(boost::edge_reverse, graph_, back, there);
  }

  std::size_t tokens_;
  std::size_t layers_;
  Graph graph_;
};

}  // namespace

std::vector<double> attention_flow(const Records& records, const ExplainedText& text) {
  FlowGraph graph(records, text);
  std::vector<double> flows;
  for (std::size_t t = 0; t < text.tokens.size(); ++t) flows.push_back(graph.flow_to(t));
  return flows;
}

}  // namespace qkv::explain
