#include "check/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

namespace qkv {
namespace {

void check(int code, const std::string& what) {
  if (code != 0) throw std::system_error(code, std::generic_category(), what);
}

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  int get() const { return descriptor_; }
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

class FileActions {
 public:
  FileActions() { check(posix_spawn_file_actions_init(&actions_), "posix_spawn"); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

/// SIGINT and SIGQUIT at their defaults in the child, whatever the parent makes of them.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    check(posix_spawnattr_init(&attributes_), "posix_spawn");
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGQUIT);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

class IgnoredSignal {
 public:
  explicit IgnoredSignal(int number) : number_(number) {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(number_, &ignore, &before_);
  }
  IgnoredSignal(const IgnoredSignal&) = delete;
  IgnoredSignal& operator=(const IgnoredSignal&) = delete;
  ~IgnoredSignal() { sigaction(number_, &before_, nullptr); }

 private:
  int number_;
  struct sigaction before_ {};
};

/// Without an input it reads nothing.
pid_t start(const ProcessRequest& request, std::optional<int> input, int output) {
  FileActions actions;
  if (input) {
    check(posix_spawn_file_actions_adddup2(actions.get(), *input, STDIN_FILENO), "posix_spawn");
  } else {
    check(posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0),
          "posix_spawn");
  }
  check(posix_spawn_file_actions_adddup2(actions.get(), output, STDOUT_FILENO), "posix_spawn");
  check(posix_spawn_file_actions_addopen(actions.get(), STDERR_FILENO, request.error_file.c_str(),
                                         O_WRONLY | O_CREAT | O_TRUNC, 0600),
        "posix_spawn");
  std::vector<char*> arguments;
  for (const std::string& argument : request.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));  // posix_spawn does not write to them
  }
  arguments.push_back(nullptr);
  const SpawnAttributes attributes;
  pid_t child = 0;
  check(posix_spawnp(&child, arguments[0], actions.get(), attributes.get(), arguments.data(),
                     environ),
        request.arguments[0]);
  return child;
}

void read_lines(int descriptor, const std::function<void(const std::string&)>& on_line) {
  std::string pending;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    pending.append(buffer.data(), static_cast<std::size_t>(count));
    for (auto end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
      on_line(pending.substr(0, end));
      pending.erase(0, end + 1);
    }
  }
  if (!pending.empty()) on_line(pending);
}

}  // namespace

int run_process(const ProcessRequest& request,
                const std::function<void(const std::string&)>& on_output_line) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) check(errno, "pipe");
  Descriptor reader(ends[0]);
  Descriptor writer(ends[1]);
  const IgnoredSignal interrupt(SIGINT);
  const IgnoredSignal quit(SIGQUIT);
  const pid_t child = start(request, std::nullopt, writer.get());
  writer.close();
  read_lines(reader.get(), on_output_line);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) check(errno, "waitpid");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

AnsweringProcess::AnsweringProcess(const ProcessRequest& request) {
  // A socket, as writing to a process that has ended must be an error and no signal.
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    check(errno, "socketpair");
  }
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  child_ = start(request, theirs.get(), theirs.get());
  socket_ = ours.release();
}

AnsweringProcess::~AnsweringProcess() {
  ::close(socket_);
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<std::string> AnsweringProcess::ask(const std::string& line) {
  const std::string request = line + "\n";
  for (std::size_t sent = 0; sent < request.size();) {
    const ssize_t count =
        ::send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    sent += static_cast<std::size_t>(count);
  }
  for (;;) {
    if (const auto end = pending_.find('\n'); end != std::string::npos) {
      std::string answer = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return answer;
    }
    std::array<char, 4096> buffer{};
    const ssize_t count = ::read(socket_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    pending_.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace qkv
