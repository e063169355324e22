// write_sample_page FOLDER: the page of the sample experiments and its JSON, for a browser to open.
#include <fstream>
#include <string>

#include "lab/experiment_json.h"
#include "lab/page.h"
#include "tests/lab/sample_experiment.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  const std::string results = qkv::lab::experiments_json(qkv::lab::sample_experiments(), {});
  std::ofstream(folder + "/results.json") << results;
  std::ofstream(folder + "/index.html") << qkv::lab::page(results);
}
