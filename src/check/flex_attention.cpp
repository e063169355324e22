#include "check/flex_attention.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "check/flex_attention_script.h"
#include "check/private_folder.h"
#include "check/python_program.h"
#include "check/subprocess.h"

namespace qkv {
namespace {

using nlohmann::json;

constexpr const char* kName = "flex_attention";

/// The Python process. Requests and answers are JSON, a line each; see the script.
class FlexProcess {
 public:
  explicit FlexProcess(const FlexOptions& options) : program_(find_python(options.program)) {
    std::vector<std::string> command{program_, "-c", std::string(flex_attention_script)};
    if (options.mode == FlexMode::Eager) command.emplace_back("--eager");
    if (options.tuning == PeerTuning::AsShipped) command.emplace_back("--as-shipped");
    try {
      process_.emplace(ProcessRequest{command, "/dev/null"});
    } catch (const std::system_error& error) {
      // Not error.what(): it would hold the script.
      throw PeerMissing(fmt::format("{}: {}", program_, error.code().message()));
    }
  }

  json ask(const json& request) {
    const std::optional<std::string> line = process_->ask(request.dump());
    if (!line) throw std::runtime_error(fmt::format("{}: ended without an answer", program_));
    json answer = json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) {
      throw std::runtime_error(fmt::format("{}: expected JSON, got \"{:.60}\"", program_, *line));
    }
    if (answer.contains("missing")) {
      throw PeerMissing(fmt::format("{}: {}", program_, answer.value("missing", "")));
    }
    if (answer.contains("error")) {
      throw std::runtime_error(fmt::format("{}: {}", program_, answer.value("error", "")));
    }
    return answer;
  }

 private:
  std::string program_;
  std::optional<AnsweringProcess> process_;
};

class FlexCall : public TimedCall {
 public:
  FlexCall(std::shared_ptr<FlexProcess> process, std::size_t number, std::string form)
      : process_(std::move(process)), number_(number), form_(std::move(form)) {}

  void run() override {
    const json answer = process_->ask({{"do", "run"}, {"form", number_}});
    measured_.seconds = answer.at("seconds").get<double>();
    const json& bytes = answer.at("extra_bytes");
    if (!bytes.is_null()) measured_.extra_memory = bytes.get<std::size_t>();
  }

  TensorFile results() const override {
    const PrivateFolder folder("qkv-flex");
    const std::string path = folder.file("results.safetensors");
    process_->ask({{"do", "save"}, {"results", path}});
    return read_tensors(path);
  }

  std::string form() const override { return form_; }
  std::optional<MeasuredElsewhere> measured_elsewhere() const override { return measured_; }

 private:
  std::shared_ptr<FlexProcess> process_;
  std::size_t number_;
  std::string form_;
  MeasuredElsewhere measured_;
};

class FlexPeer : public TimedPeer {
 public:
  explicit FlexPeer(FlexOptions options) : options_(std::move(options)) {}

  std::vector<std::string> describe() const override {
    if (version_.empty()) return {};
    return {"FlexAttention of " + version_ +
            ", measured there: two calls in inference mode on as many threads of its own, of which"
            " the second counts; block masks made before"};
  }

  std::vector<std::unique_ptr<TimedCall>> prepare(const PeerCall& call, int threads) override {
    if (!call.rule || call.function != peer_function::attention ||
        call.inputs.contains("output_gradient")) {
      throw std::invalid_argument(fmt::format(
          "{}: call: expected attention with a rule and without gradients, got another", kName));
    }
    // Kept when it has answered: after a failure the next call starts another one.
    std::shared_ptr<FlexProcess> process = std::exchange(process_, nullptr);
    if (process == nullptr) process = std::make_shared<FlexProcess>(options_);
    json answer;
    {
      const PrivateFolder folder("qkv-flex");  // no longer than until the inputs are read
      const std::string path = folder.file("inputs.safetensors");
      TensorFile inputs;
      for (const char* name : {"query", "key", "value"}) {
        inputs.tensors[name] = call.inputs.at(name);
      }
      write_tensors(path, inputs);
      const bool window = call.rule->kind == PositionRule::Kind::Window;
      answer = process->ask({{"do", "prepare"},
                             {"inputs", path},
                             {"rule", window ? "window" : "documents"},
                             {"size", call.rule->size},
                             {"threads", threads}});
    }
    process_ = std::move(process);
    version_ = answer.at("version").get<std::string>();
    std::vector<std::unique_ptr<TimedCall>> forms;
    for (const json& form : answer.at("forms")) {
      forms.push_back(std::make_unique<FlexCall>(process_, forms.size(), form.get<std::string>()));
    }
    return forms;
  }

 private:
  FlexOptions options_;
  std::shared_ptr<FlexProcess> process_;
  std::string version_;
};

}  // namespace

std::unique_ptr<TimedPeer> make_flex_attention_peer(FlexOptions options) {
  return std::make_unique<FlexPeer>(std::move(options));
}

}  // namespace qkv
