// CodeWriter: indented lines with scopes that close themselves, so that the shape of an emitter's
// code is the shape of the text it writes.
//
//   CodeWriter w;
//   {
//     auto loop = w.Block("for (int k = 0; k < {}; ++k)", n);
//     w.Line("sum += x[k];");
//   }
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace kiln {

class CodeWriter {
 public:
  template <class... A>
  void Line(fmt::format_string<A...> format, A&&... args) {
    Text(fmt::format(format, std::forward<A>(args)...));
  }

  // Appends a line as it is; an empty one gets no indentation.
  void Text(std::string_view line) {
    if (!line.empty()) out_.append(2 * depth_, ' ').append(line);
    out_ += '\n';
  }

  // Appends many lines that are indented already.
  void Raw(std::string_view lines) { out_ += lines; }

  void Indent() { ++depth_; }
  void Dedent() { --depth_; }
  size_t column() const { return 2 * depth_; }

  // Ends the scope with "}" at its outer indentation.
  class [[nodiscard]] Scope {
   public:
    explicit Scope(CodeWriter& writer) : writer_(writer) { writer_.Indent(); }
    ~Scope() {
      writer_.Dedent();
      writer_.Text("}");
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CodeWriter& writer_;
  };

  template <class... A>
  Scope Block(fmt::format_string<A...> head, A&&... args) {
    Text(fmt::format(head, std::forward<A>(args)...) + " {");
    return Scope(*this);
  }

  const std::string& str() const& { return out_; }
  std::string str() && { return std::move(out_); }

 private:
  std::string out_;
  size_t depth_ = 0;
};

}  // namespace kiln
