// Options that take one of some names. "?" for the value is answered with all of them, whatever
// else is on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

namespace kiln::cli {

// An answer that is printed instead of the command's work. It is thrown while the command line is
// parsed, and is no mistake.
class Answer : public CLI::Success {
 public:
  explicit Answer(std::string text) : Success("Answer", std::move(text), 0) {}
};

// Lets an option answer questions. `answer` returns the text for values that ask, and nothing for
// all others.
void AnswerQuestions(CLI::Option* option,
                     std::function<std::optional<std::string>(const std::string& value)> answer);

// Lets an option answer "?", its only question, by the names.
void AnswerQuestion(CLI::Option* option, std::function<std::string()> names);

}  // namespace kiln::cli
