#include "cli/choices.h"

#include <utility>

namespace kiln::cli {

void AnswerQuestions(CLI::Option* option,
                     std::function<std::optional<std::string>(const std::string& value)> answer) {
  option->check(CLI::Validator(
      [answer = std::move(answer)](std::string& value) {
        if (std::optional<std::string> text = answer(value)) throw Answer(*std::move(text));
        return std::string();
      },
      ""));
}

void AnswerQuestion(CLI::Option* option, std::function<std::string()> names) {
  AnswerQuestions(option, [names = std::move(names)](const std::string& value) {
    return value == "?" ? std::optional(names()) : std::nullopt;
  });
}

}  // namespace kiln::cli
