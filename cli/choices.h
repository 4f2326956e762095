// Options that take one of some names. "?" for the value is answered with all of them, whatever
// else is on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

namespace kiln::cli {

// Thrown while the command line is parsed: not a mistake, but an answer that is printed instead of
// what the command does.
class Answer : public CLI::Success {
 public:
  explicit Answer(std::string text) : Success("Answer", std::move(text), 0) {}
};

// `answer` has the text for values that ask, and nothing for all others.
void AnswerQuestions(CLI::Option* option,
                     std::function<std::optional<std::string>(const std::string& value)> answer);

// The same for options whose only question is "?".
void AnswerQuestion(CLI::Option* option, std::function<std::string()> names);

}  // namespace kiln::cli
