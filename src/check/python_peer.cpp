#include "check/python_peer.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "check/private_folder.h"
#include "check/python_program.h"
#include "check/subprocess.h"
#include "check/torch_align_script.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr int kPackageMissing = 3;  // the script's exit code for it

void write_text(const std::string& path, std::string_view text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text << std::flush;
  if (!stream) throw FileError(path, "could not be written");
}

/// What a Python traceback ends with.
std::string last_line(const std::string& path) {
  std::ifstream stream(path);
  std::string last = "no message";
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  return last;
}

TensorFile make_request(const std::vector<PeerCall>& calls) {
  TensorFile request;
  auto list = nlohmann::json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string prefix =
        calls[i].drawn_by ? std::to_string(*calls[i].drawn_by) : fmt::format("inputs{}", i);
    list.push_back(
        {{"function", calls[i].function}, {"heads", calls[i].heads}, {"inputs", prefix}});
    for (const auto& [name, tensor] : calls[i].inputs.tensors) {
      request.tensors[fmt::format("{}.{}", prefix, name)] = tensor;
    }
  }
  request.metadata["calls"] = list.dump();
  return request;
}

/// Tensor "i.NAME" is NAME of result i.
PeerResults split_results(const TensorFile& file, std::size_t calls) {
  PeerResults split;
  split.results.resize(calls);
  if (const auto version = file.metadata.find("version"); version != file.metadata.end()) {
    split.version = version->second;
  }
  for (const auto& [name, tensor] : file.tensors) {
    std::size_t call = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), call);
    if (error != std::errc{} || *end != '.' || call >= calls) {
      throw std::runtime_error(fmt::format("align: Python returned an unknown tensor {}", name));
    }
    split.results[call].tensors[end + 1] = tensor;
  }
  return split;
}

class PythonPeer : public Peer {
 public:
  explicit PythonPeer(std::string program) : program_(std::move(program)) {}

  PeerResults run(const std::vector<PeerCall>& calls, const Progress& progress) override {
    const PrivateFolder folder("qkv-align");
    const std::string script = folder.file("torch_align.py");
    const std::string request = folder.file("request.safetensors");
    const std::string results = folder.file("results.safetensors");
    const std::string errors = folder.file("errors.txt");
    write_text(script, torch_align_script);
    write_tensors(request, make_request(calls));

    int code = 0;
    try {
      code =
          run_process({{program_, script, request, results}, errors}, [&](const std::string& line) {
            std::size_t call = 0;
            const char* end = line.data() + line.size();
            if (std::from_chars(line.data(), end, call).ptr == end) progress(call);
          });
    } catch (const std::system_error& error) {
      throw PeerMissing(error.what());
    }
    if (code == kPackageMissing) {
      throw PeerMissing(fmt::format("{}: {}", program_, last_line(errors)));
    }
    if (code != 0) {
      throw std::runtime_error(
          fmt::format("align: {} ended with code {}: {}", program_, code, last_line(errors)));
    }
    return split_results(read_tensors(results), calls.size());
  }

 private:
  std::string program_;
};

}  // namespace

std::unique_ptr<Peer> make_python_peer(const std::optional<std::string>& program) {
  return std::make_unique<PythonPeer>(find_python(program));
}

}  // namespace qkv
