// The API log read back: its calls, each with its arguments, from what a callback heard or from a
// file.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace kiln::testing {

struct LoggedArgument {
  std::string name, type;  // "dimA", "int"; no type where the line has a location
  std::string value;       // "[2,3,4,5]", "CUDNN_DATA_FLOAT (0)", "0x7f00", "NULL_PTR"
  std::string line;        // all of it, without the indentation
  int depth = 0;           // 1 for what an object holds

  bool is_null() const { return value == "NULL_PTR"; }
  // The number that was passed: of an enumeration, of an address, or the value itself.
  long long number() const {
    const size_t bracket = value.rfind(" (");
    const std::string text = bracket == value.npos ? value : value.substr(bracket + 2);
    return is_null() ? 0 : static_cast<long long>(std::strtoull(text.c_str(), nullptr, 0));
  }
  double real() const { return std::strtod(value.c_str(), nullptr); }
  std::vector<int> ints() const {
    std::vector<int> numbers;
    std::stringstream list(value.substr(1));
    for (std::string one; std::getline(list, one, ',');) numbers.push_back(std::atoi(one.c_str()));
    return numbers;
  }
};

struct LoggedCall {
  std::string function, what;  // "cudnnCreate", "called" or "made"
  std::vector<LoggedArgument> arguments;

  const LoggedArgument* Find(const std::string& name) const {
    for (const LoggedArgument& argument : arguments)
      if (argument.depth == 0 && argument.name == name) return &argument;
    return nullptr;
  }
};

inline LoggedArgument ParseArgument(const std::string& text) {
  LoggedArgument argument;
  const size_t begin = text.find_first_not_of(' ');
  argument.depth = static_cast<int>(begin / 4) - 1;
  argument.line = text.substr(begin);
  argument.name = argument.line.substr(0, argument.line.find(": "));
  // The text behind the key, up to the next semicolon.
  const auto part = [&](const std::string& key) -> std::string {
    const size_t at = argument.line.find(key);
    if (at == std::string::npos) return "";
    const size_t from = at + key.size();
    return argument.line.substr(from, argument.line.find_first_of(";", from) - from);
  };
  argument.type = part("type=");
  argument.value = argument.line.find("addr=") != std::string::npos ? part("addr=") : part("val=");
  return argument;
}

// `prefix`: what stands before the further lines of a call: "" in a callback's text, "i! " in
// files.
inline std::vector<LoggedCall> ParseLog(const std::string& text, const std::string& prefix) {
  std::vector<LoggedCall> calls;
  std::stringstream lines(text);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    const size_t name = line.find("function ");
    const size_t end = line.find("() ");
    if (name != std::string::npos && end != std::string::npos && line.ends_with(":")) {
      inside = prefix.empty() || line[0] == 'I';
      if (!inside) continue;
      calls.push_back(
          {line.substr(name + 9, end - name - 9), line.substr(end + 3, line.size() - end - 4), {}});
    } else if (inside && line.starts_with(prefix + "    ")) {
      calls.back().arguments.push_back(ParseArgument(line.substr(prefix.size())));
    } else {
      inside = false;
    }
  }
  return calls;
}

}  // namespace kiln::testing
