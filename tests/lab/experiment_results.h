// What tests of experiments ask of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>

#include "lab/experiment.h"

namespace qkv::test {

inline lab::ExperimentOptions quick_options() {
  lab::ExperimentOptions options;
  options.quick = true;
  return options;
}

template <class Things>
const auto& named(const Things& things, const std::string& key) {
  for (const auto& thing : things) {
    if (thing.key == key) return thing;
  }
  throw std::out_of_range(key);
}

/// A cell's number.
inline double number(const lab::Table& table, std::size_t row, const std::string& column) {
  const auto at = std::find_if(table.columns.begin(), table.columns.end(),
                               [&](const lab::Column& one) { return one.key == column; });
  if (at == table.columns.end()) throw std::out_of_range(column);
  const lab::Cell& cell =
      table.rows.at(row).at(static_cast<std::size_t>(at - table.columns.begin()));
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*whole);
  return std::get<lab::Measured>(cell).value;
}

inline bool bilingual(const lab::Text& text) {
  return !text.english.empty() && !text.chinese.empty();
}

/// Both languages everywhere, rectangular tables, no key twice, heat maps of one size.
inline void expect_well_formed(const lab::Experiment& experiment) {
  EXPECT_TRUE(bilingual(experiment.title));
  EXPECT_TRUE(bilingual(experiment.explanation));
  EXPECT_TRUE(bilingual(experiment.seen));
  EXPECT_GE(experiment.section, 1);
  std::set<std::string> keys;
  for (const lab::Table& table : experiment.tables) {
    EXPECT_TRUE(keys.insert("table " + table.key).second) << table.key;
    EXPECT_TRUE(bilingual(table.title)) << table.key;
    EXPECT_FALSE(table.rows.empty()) << table.key;
    for (const lab::Column& column : table.columns)
      EXPECT_TRUE(bilingual(column.name)) << column.key;
    for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size()) << table.key;
  }
  for (const lab::Chart& chart : experiment.charts) {
    EXPECT_TRUE(keys.insert("chart " + chart.key).second) << chart.key;
    EXPECT_TRUE(bilingual(chart.title) && bilingual(chart.x.name) && bilingual(chart.y.name))
        << chart.key;
    for (const lab::Series& series : chart.series) {
      EXPECT_TRUE(bilingual(series.name)) << chart.key;
      EXPECT_FALSE(series.x.empty()) << chart.key;
      EXPECT_EQ(series.x.size(), series.y.size()) << chart.key;
    }
  }
  for (const lab::HeatMaps& maps : experiment.heat_maps) {
    EXPECT_TRUE(keys.insert("maps " + maps.key).second) << maps.key;
    EXPECT_TRUE(bilingual(maps.title)) << maps.key;
    for (const lab::HeatMapVariant& variant : maps.variants) {
      EXPECT_TRUE(bilingual(variant.name)) << maps.key;
      EXPECT_EQ(variant.values.shape(), maps.variants.front().values.shape()) << maps.key;
    }
  }
  for (const lab::Effect& effect : experiment.effects) {
    EXPECT_TRUE(keys.insert("effect " + effect.key).second) << effect.key;
    EXPECT_TRUE(bilingual(effect.claim) && bilingual(effect.found)) << effect.key;
  }
}

inline void expect_effects(const lab::Experiment& experiment, const std::set<std::string>& keys) {
  for (const std::string& key : keys) {
    const lab::Effect& effect = named(experiment.effects, key);
    EXPECT_TRUE(effect.holds) << key << ": " << effect.found.english;
  }
}

}  // namespace qkv::test
